"""Every collective against NumPy, on ranks that are threads."""

import gc
from contextlib import nullcontext as nothing

import ml_dtypes
import numpy as np
import pytest
from conftest import HEAP, on_ranks, values

import crosswarp

DTYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "int32": np.int32,
    "int64": np.int64,
}
NUMPY_OPS = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "bit_and": np.bitwise_and.reduce,
    "bit_or": np.bitwise_or.reduce,
    "bit_xor": np.bitwise_xor.reduce,
}


def reduced(op, arrays):
    wide = np.stack([a.astype(np.int64 if a.dtype.kind == "i" else np.float64) for a in arrays])
    if op == "avg":
        mean = wide.sum(0) / len(arrays)
        return (
            np.trunc(mean).astype(arrays[0].dtype)
            if arrays[0].dtype.kind == "i"
            else mean.astype(arrays[0].dtype)
        )
    return NUMPY_OPS[op](wide).astype(arrays[0].dtype)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operation_of_every_type(dtype):
    kind = DTYPES[dtype]
    ops = ["sum", "prod", "min", "max", "avg"]
    if dtype.startswith("int"):
        ops += ["bit_and", "bit_or", "bit_xor"]
    if dtype.startswith("float8"):
        ops.remove("avg")  # a third is rounded once from float, here twice
    inputs = [values(r, 777, kind) for r in range(3)]

    def rank_main(world):
        coll = crosswarp.Coll(world)
        return {op: coll.all_reduce(inputs[world.rank], op=op) for op in ops}

    for got in on_ranks(3, rank_main):
        for op in ops:
            if op == "avg" and dtype in ("float32", "float64", "float16", "bfloat16"):
                np.testing.assert_allclose(
                    got[op].astype(np.float64), reduced(op, inputs).astype(np.float64), rtol=1e-2
                )
            else:
                assert same(got[op], reduced(op, inputs)), op


@pytest.mark.parametrize("algorithm", ["automatic", "push", "pull", "two_shot", "ring"])
def test_algorithms_have_the_same_bits(algorithm):
    inputs = [np.random.default_rng(r).standard_normal(20_000).astype(np.float32) for r in range(4)]

    def rank_main(world):
        return crosswarp.Coll(world, algorithm=algorithm).all_reduce(inputs[world.rank])

    # In the order of ranks, as every algorithm does it.
    want = ((inputs[0] + inputs[1]) + inputs[2]) + inputs[3]
    for got in on_ranks(4, rank_main):
        assert same(got, want)


@pytest.mark.parametrize("count", [0, 1, 3, 1000, 100_000])
def test_all_reduce_in_place_and_into_out(count):
    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = np.full(count, world.rank + 1, np.int64)
        out = np.zeros(count, np.int64)
        assert coll.all_reduce(x, out) is out
        assert coll.all_reduce(x, x, op="max") is x
        return out, x

    for out, x in on_ranks(3, rank_main):
        assert (out == 6).all() and (x == 3).all()


def test_shapes_are_kept():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        assert coll.all_reduce(np.ones((2, 3, 4), np.float32)).shape == (2, 3, 4)
        assert coll.all_reduce(np.float32(1) * np.ones(())).shape == ()
        assert coll.all_gather(np.ones((2, 3), np.float32)).shape == (4, 3)
        assert coll.all_gather(np.array(5)).shape == (2,)
        assert coll.reduce_scatter(np.ones((4, 3), np.float32)).shape == (2, 3)

    on_ranks(2, rank_main)


@pytest.mark.parametrize("root", [0, 2])
def test_rooted_ones(root):
    def rank_main(world):
        coll = crosswarp.Coll(world)
        me, n = world.rank, world.size
        x = np.arange(10, dtype=np.int32) + 100 * me
        total = coll.reduce(x, root=root)
        all_x = coll.gather(x, root=root)
        if me == root:
            assert (total == 3 * np.arange(10) + 300).all()
            assert (all_x.reshape(n, 10) == np.arange(10) + 100 * np.arange(n)[:, None]).all()
            part = coll.scatter(np.arange(6, dtype=np.int16).reshape(6, 1), root=root)
            assert part.shape == (2, 1)
        else:
            assert total is None and all_x is None
            part = coll.scatter(out=np.zeros(2, np.int16), root=root)
        assert (part.ravel() == [2 * me, 2 * me + 1]).all()
        data = np.full(5, me, np.uint8)
        assert coll.broadcast(data, root=root) is data
        assert (data == root).all()

    on_ranks(3, rank_main)


def test_exchanges():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        me, n = world.rank, world.size
        x = np.arange(2 * n, dtype=np.float64) + 100 * me
        got = coll.all_to_all(x)
        want = np.concatenate([np.arange(2) + 2 * me + 100 * r for r in range(n)])
        assert (got == want).all()
        assert (coll.all_gather(x).reshape(n, -1)[:, 0] == 100 * np.arange(n)).all()
        part = coll.reduce_scatter(x, op="min")
        assert (part == np.arange(2) + 2 * me).all()
        coll.barrier()
        coll.check()

    on_ranks(3, rank_main)


def test_moves_take_elements_of_any_type():
    record = np.dtype([("a", "i4"), ("b", "f8")])

    def rank_main(world):
        coll = crosswarp.Coll(world)
        for kind in (np.bool_, np.complex64, np.uint16, record, "S5", ml_dtypes.float8_e4m3b11fnuz):
            x = np.zeros(3, kind)
            x.view(np.uint8)[:] = world.rank + 1
            got = coll.all_gather(x)
            assert got.dtype == x.dtype
            assert (got.view(np.uint8).reshape(2, -1) == [[1], [2]]).all()

    on_ranks(2, rank_main)


def test_buffers_and_other_producers_of_dlpack():
    class Producer:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **arguments):
            return self.array.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    def rank_main(world):
        coll = crosswarp.Coll(world)
        got = coll.all_reduce(Producer(np.full(4, world.rank, np.float32)))
        assert isinstance(got, crosswarp.Tensor) and not got.symmetric
        assert (np.from_dlpack(got) == 1).all()
        data = bytearray(b"rank%d" % world.rank)
        coll.broadcast(data, root=1)
        assert data == b"rank1"
        fixed = np.ones(3, np.float32)
        fixed.flags.writeable = False
        assert (coll.all_reduce(fixed) == 2).all()
        assert bytes(np.from_dlpack(coll.all_gather(b"ab"))) == b"abab"

    on_ranks(2, rank_main)


def test_symmetric_tensors_are_used_in_place():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = world.empty(50_000, np.float32)
        out = world.empty(50_000, np.float32)
        x.numpy()[:] = world.rank
        assert coll.explain(x, out).direct
        assert not coll.explain(np.ones(50_000, np.float32)).direct
        world.barrier()
        coll.all_reduce(x, out)
        assert (out.numpy() == 3).all()

    on_ranks(3, rank_main)


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def rank_main(world):
        coll = crosswarp.Coll(world)
        with jax.default_device(jax.devices("cpu")[0]):  # where there is a GPU, too
            mine = jnp.full((3, 2), world.rank + 1, jnp.bfloat16)
        got = coll.all_reduce(mine)
        assert isinstance(got, jax.Array) and got.dtype == jnp.bfloat16
        with pytest.raises(ValueError, match="cannot be written"):
            coll.broadcast(got)
        return np.asarray(got).astype(np.float32)

    for got in on_ranks(2, rank_main):
        assert (got == 3).all()


# ---- uneven parts


@pytest.mark.parametrize("seed", range(4))
def test_uneven_parts(seed):
    rng = np.random.default_rng(seed)
    n = 4
    counts = [int(c) for c in rng.integers(0, 5, n)]
    counts[seed % n] = 0
    matrix = rng.integers(0, 5, (n, n))
    root = seed % n
    row = (2, 3)
    x = [rng.integers(0, 100, (counts[r], *row)).astype(np.int32) for r in range(n)]
    whole = [rng.integers(0, 100, (sum(counts), *row)).astype(np.float32) for _ in range(n)]
    sent = [rng.integers(0, 100, (int(matrix[r].sum()), *row)).astype(np.int16) for r in range(n)]
    begin = np.concatenate([[0], np.cumsum(counts)])

    def rank_main(world):
        coll = crosswarp.Coll(world)
        me = world.rank
        mine = slice(begin[me], begin[me + 1])
        got = coll.all_gather_v(x[me], counts)
        assert same(got, np.concatenate(x))
        got = coll.gather_v(x[me], np.array(counts), root=root)
        assert got is None if me != root else same(got, np.concatenate(x))
        part = np.empty((counts[me], *row), np.float32)
        got = coll.scatter_v(whole[root] if me == root else None, counts, part, root=root)
        assert got is part and same(part, whole[root][mine])
        assert same(coll.reduce_scatter_v(whole[me], counts), sum(whole)[mine])
        assert same(coll.reduce_scatter_v(whole[me], counts, op="max"), np.max(whole, axis=0)[mine])
        got = coll.all_to_all_v(sent[me], matrix[me], matrix[:, me])
        begins = [np.concatenate([[0], np.cumsum(matrix[r])]) for r in range(n)]
        want = [sent[r][begins[r][me] : begins[r][me + 1]] for r in range(n)]
        assert same(got, np.concatenate(want))

    on_ranks(n, rank_main)


def test_uneven_parts_that_differ_are_told():
    def told(call):
        def rank_main(world):
            coll = crosswarp.Coll(world)
            with pytest.raises(crosswarp.Error) as raised:
                call(coll, world.rank)
            assert raised.value.code == "asymmetric"

        on_ranks(2, rank_main)

    told(lambda c, r: c.all_gather_v(np.ones(2), [2, 2] if r == 0 else [3, 2]))
    told(lambda c, r: c.gather_v(np.ones(2), [2, 2] if r == 0 else [3, 2]))
    told(lambda c, r: c.reduce_scatter_v(np.ones(4), [2, 2] if r == 0 else [1, 3]))
    told(lambda c, r: c.all_to_all_v(np.ones(4), [2, 2], [2, 3] if r == 0 else [2, 2]))
    told(lambda c, r: c.all_gather_v(np.ones((2, 1 + r)), [2, 2]))


# ---- messages


@pytest.mark.parametrize("count", [0, 1, 777, 100_000])
def test_messages_go_down_the_line(count):
    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = np.arange(count, dtype=np.int32) if world.rank == 0 else np.zeros(count, np.int32)
        if world.rank > 0:
            assert coll.receive(x, world.rank - 1) is x
        if world.rank + 1 < world.size:
            coll.send(x, world.rank + 1)
        return x

    for x in on_ranks(3, rank_main):
        assert (x == np.arange(count)).all()


def test_exchange_is_at_once_and_in_order():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        me, n = world.rank, world.size
        others = [r for r in range(n) if r != me]
        # A long one and a short one to everybody, and the same from everybody.
        sends = [(np.full(50_000, 10 * me + r), r) for r in others]
        sends += [(np.array([[me, r]], np.int16), r) for r in others]
        long = [(np.zeros(50_000, np.int64), r) for r in others]
        short = [(np.zeros((1, 2), np.int16), r) for r in others]
        got = coll.exchange(sends, long + short)
        assert all(a is b for a, (b, _) in zip(got, long + short, strict=True))
        for (x, r), (y, _) in zip(long, short, strict=True):
            assert (x == 10 * r + me).all()
            assert (y == [[r, me]]).all()
        assert coll.exchange() == []
        # With send() and receive() of others.
        if me == 0:
            coll.exchange(sends=[(b"to you", 1)])
        if me == 1:
            assert coll.receive(bytearray(6), 0) == b"to you"

    on_ranks(3, rank_main)


def test_messages_of_other_lengths_are_told_to_both():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        with pytest.raises(crosswarp.Error) as told:
            if world.rank == 0:
                coll.send(np.ones(10), 1)
            else:
                coll.receive(np.ones(11), 0)
        assert told.value.code == "asymmetric"

    on_ranks(2, rank_main)


def test_what_cannot_be_received_is_refused():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        other = 1 - world.rank
        x = np.ones(10)
        with pytest.raises(ValueError, match="out cannot be written"):
            coll.receive(b"fixed", other)
        with pytest.raises(ValueError, match=r"receives\[0\] and sends\[0\] overlap"):
            coll.exchange([(x[:6], other)], [(x[5:], other)])
        with pytest.raises(ValueError, match=r"receives\[1\] and receives\[0\] overlap"):
            coll.exchange(receives=[(x, other), (x, other)])
        with pytest.raises(crosswarp.Error, match="there is room for 64") as told:
            coll.exchange([(x, other)] * 65)
        assert told.value.code == "not_supported"

    on_ranks(2, rank_main)


# ---- bad input


def raised(kind, match, call):
    def rank_main(world):
        with pytest.raises(kind, match=match):
            call(crosswarp.Coll(world), world)

    on_ranks(1, rank_main)


@pytest.mark.parametrize(
    ("kind", "match", "call"),
    [
        (TypeError, "str is no array", lambda c, w: c.all_reduce("text")),
        (TypeError, "NoneType is no array", lambda c, w: c.all_reduce(None)),
        (TypeError, "Python objects", lambda c, w: c.all_gather(np.array([None]))),
        (TypeError, "byte order", lambda c, w: c.all_reduce(np.ones(3, ">f4"))),
        (TypeError, "elements of uint8", lambda c, w: c.all_reduce(np.ones(3, np.uint8))),
        (TypeError, "bit_and of float32", lambda c, w: c.all_reduce(np.ones(3, np.float32), op="bit_and")),
        (ValueError, "op 'mean' is none of sum", lambda c, w: c.all_reduce(np.ones(3), op="mean")),
        (ValueError, "inp is not contiguous", lambda c, w: c.all_reduce(np.ones((4, 4))[:, :2])),
        (ValueError, "inp is not contiguous", lambda c, w: c.all_reduce(np.ones((4, 4)).T)),
        (ValueError, "out has 2 elements, the result 3", lambda c, w: c.all_reduce(np.ones(3), np.ones(2))),
        (TypeError, "out is of float32", lambda c, w: c.all_reduce(np.ones(3), np.ones(3, np.float32))),
        (ValueError, "out cannot be written", lambda c, w: c.all_reduce(np.ones(3), np.broadcast_to(1.0, 3).copy().view(fixed))),
        (ValueError, "cannot be written", lambda c, w: c.broadcast(b"fixed")),
        (ValueError, "root 1: there are 1 ranks", lambda c, w: c.broadcast(np.ones(3), root=1)),
        (TypeError, "root is a rank", lambda c, w: c.broadcast(np.ones(3), root="0")),
        (ValueError, "has no streams", lambda c, w: c.all_reduce(np.ones(3), stream=0)),
        (ValueError, "2 counts for 1 ranks", lambda c, w: c.all_gather_v(np.ones(3), [3, 0])),
        (ValueError, "below zero", lambda c, w: c.all_gather_v(np.ones(3), [-3])),
        (TypeError, "counts are whole numbers", lambda c, w: c.all_gather_v(np.ones(3), [3.0])),
        (TypeError, "counts are whole numbers", lambda c, w: c.all_gather_v(np.ones(3), 3)),
        (ValueError, "has not the 2 rows", lambda c, w: c.all_gather_v(np.ones(3), [2])),
        (ValueError, "has not the 1 rows", lambda c, w: c.all_gather_v(np.ones(()), [1])),
        (ValueError, "has not the 2 rows", lambda c, w: c.gather_v(np.ones(3), [2])),
        (ValueError, "has not the 2 rows", lambda c, w: c.scatter_v(np.ones(3), [2])),
        (ValueError, "nothing to scatter", lambda c, w: c.scatter_v(None, [2])),
        (ValueError, "out has 2 elements, the result 3", lambda c, w: c.scatter_v(np.ones(3), [3], np.ones(2))),
        (ValueError, "has not the 2 rows", lambda c, w: c.reduce_scatter_v(np.ones(3), [2])),
        (ValueError, "2 receive_counts for 1", lambda c, w: c.all_to_all_v(np.ones(3), [3], [3, 0])),
        (ValueError, "has not the 4 rows", lambda c, w: c.all_to_all_v(np.ones(3), [4], [4])),
        (ValueError, "nothing to scatter", lambda c, w: c.scatter(out=np.ones(3))),
        (crosswarp.Error, "none of automatic, push", lambda c, w: crosswarp.Coll(w, algorithm="rings")),
        (ValueError, "send: to 0 is this rank itself", lambda c, w: c.send(np.ones(3), 0)),
        (ValueError, "receive: source 1: there are 1 ranks", lambda c, w: c.receive(np.ones(3), 1)),
        (TypeError, "to is a rank, not str", lambda c, w: c.send(np.ones(3), "0")),
        (ValueError, r"the rank of receives\[0\] 0 is this rank itself", lambda c, w: c.exchange([], [(np.ones(3), 0)])),
        (TypeError, r"sends\[0\] is no pair", lambda c, w: c.exchange([np.ones(2)])),
        (TypeError, "a World is needed", lambda c, w: crosswarp.Coll(None)),
    ],
)  # fmt: skip
def test_bad_arguments(kind, match, call):
    raised(kind, match, call)


class fixed(np.ndarray):  # noqa: N801
    """An array that cannot be written."""

    def __array_finalize__(self, base):
        self.flags.writeable = False


def test_overlapping_arrays_are_refused():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = np.ones(10)
        with pytest.raises(ValueError, match="overlap"):
            coll.all_reduce(x[:6], x[4:])
        with pytest.raises(ValueError, match="overlap"):
            coll.all_gather(x[:1], x[:1])

    on_ranks(1, rank_main)


def test_parts_have_to_be_equal():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        for call in (coll.reduce_scatter, coll.all_to_all):
            with pytest.raises(ValueError, match="no multiple of 2 ranks"):
                call(np.ones(3))
        if world.rank == 1:
            with pytest.raises(ValueError, match="pass out"):
                coll.scatter()
            with pytest.raises(ValueError, match="pass out"):
                coll.scatter_v(None, [1, 1])

    on_ranks(2, rank_main)


def test_ranks_that_differ_are_told():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        with pytest.raises(crosswarp.Error) as told:
            coll.all_reduce(np.ones(10 + world.rank, np.float32))
        assert told.value.code == "asymmetric"
        for rank in range(2):
            assert f"all_reduce of {10 + rank} f32, sum" in str(told.value)

    on_ranks(2, rank_main)


def test_registered_arrays_are_used_in_place():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        x, out = np.full(5000, 1.0 + world.rank), np.zeros(5000)
        assert not coll.explain(x, out).direct
        coll.register_buffer(x)
        coll.register_buffer(out)
        assert coll.explain(x, out).direct and coll.explain(x[4:], out[:-4]).direct
        assert (coll.all_reduce(x, out) == 3).all()
        coll.unregister_buffer(x)
        assert not coll.explain(x, out).direct
        assert (coll.all_reduce(x, out) == 3).all()
        assert coll.register_recorded() == 0
        coll.forget_recorded()
        # Lives until then, though nobody else refers to it.
        coll.register_buffer(np.ones(5000))
        coll.close()
        with pytest.raises(crosswarp.Error, match="closed"):
            coll.register_buffer(x)

    on_ranks(2, rank_main)


def test_registering_is_refused_everywhere():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = np.ones(5000)
        with pytest.raises(crosswarp.Error, match="bytes, this rank") as told:
            coll.register_buffer(x[: 4000 + 8 * world.rank])
        assert told.value.code == "asymmetric" and told.value.peer == 1 - world.rank
        coll.register_buffer(x)
        with pytest.raises(crosswarp.Error, match="registered already") as told:
            coll.register_buffer(x[8:] if world.rank == 1 else np.ones(4992))
        assert told.value.code == "invalid_argument" and told.value.peer == 1
        with pytest.raises(crosswarp.Error, match="no registered buffer begins there"):
            coll.unregister_buffer(x[8:])
        assert (coll.all_reduce(x, x) == 2).all()
        fixed = np.ones(10)
        fixed.flags.writeable = False
        with pytest.raises(ValueError, match="cannot be written"):
            coll.register_buffer(fixed)
        with pytest.raises(ValueError, match="not contiguous"):
            coll.register_buffer(np.ones((8, 8))[:, :4])
        coll.close()

    on_ranks(2, rank_main)


def test_a_closed_communicator_is_refused():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        coll.close()
        coll.close()
        with pytest.raises(crosswarp.Error, match="closed") as told:
            coll.all_reduce(np.ones(3))
        assert told.value.code == "invalid_argument" and told.value.peer is None

    on_ranks(2, rank_main)


def test_dropped_communicators_give_their_memory_back():
    def rank_main(world):
        many = 3 * HEAP // memory_of_one(world)
        for i in range(many):  # as a cell of a notebook that is run again
            coll = crosswarp.Coll(world)
            if i % 10 == 0:
                coll.all_reduce(np.ones(3))
        for _ in range(many):
            with crosswarp.Coll(world) as coll:
                pass
            assert coll._native.closed
        return many

    assert on_ranks(2, rank_main)[0] > 3


def memory_of_one(world):
    """Bytes of the heap, at least: how many there are until it is full."""
    alive = []
    try:  # pytest.raises would keep this frame
        while True:
            alive.append(crosswarp.Coll(world))
    except crosswarp.Error as full:
        assert full.code == "out_of_memory" and len(alive) > 2
    return HEAP // (len(alive) + 1)


def test_a_communicator_that_one_rank_keeps_works_on():
    def rank_main(world):
        kept = crosswarp.Coll(world)
        x = np.ones(5000)
        kept.register_buffer(x)
        if world.rank == 1:
            del kept
        other = crosswarp.Coll(world)
        if world.rank == 0:
            # Its memory is there; the other rank is not.
            assert kept.explain(x).direct and not kept._native.given_back
            del kept
        assert len(world._dropped) == 1  # what is registered lives until all ranks let it go
        assert (other.all_reduce(x) == 2).all()
        crosswarp.Coll(world)
        assert not world._dropped

    on_ranks(2, rank_main)


def test_an_exception_leaves_a_communicators_block_without_waiting():
    def rank_main(world):
        x = np.ones(5000)
        if world.rank == 0:
            with pytest.raises(KeyError), crosswarp.Coll(world) as coll:
                coll.register_buffer(x)
                raise KeyError
        else:
            coll = crosswarp.Coll(world)
            coll.register_buffer(x)
        world.barrier()  # the next meeting of both
        with pytest.raises(crosswarp.Error, match="closed") if world.rank == 0 else nothing():
            coll.explain(x)

    on_ranks(2, rank_main, timeout=20)


def test_registered_arrays_outlive_what_a_function_of_run_forgets():
    ended = []

    class Noted(np.ndarray):
        def __del__(self):
            if self.base is None:
                ended.append(natives[0].ended)

    natives = []

    def rank_main(world):
        natives.append(world._native)
        coll = crosswarp.Coll(world)
        x = Noted(5000)
        coll.register_buffer(x)

    on_ranks(1, rank_main)
    gc.collect()
    assert ended == [True]
