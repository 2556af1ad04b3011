"""Worlds and symmetric tensors, on ranks that are threads."""

import gc
import threading
import time

import ml_dtypes
import numpy as np
import pytest
from conftest import HEAP, on_ranks

import crosswarp


def test_a_world_of_one():
    with crosswarp.World(device="cpu", heap=1 << 20) as world:
        assert (world.rank, world.size, world.device, world.closed) == (0, 1, "cpu", False)
        assert world.allgather(b"x") == [b"x"]
        world.barrier()
        world.check()
        assert world.is_mapped(0)
        assert "rank 0 of 1 on cpu" in repr(world)
    assert world.closed and "closed" in repr(world)
    world.close()
    with pytest.raises(crosswarp.Error, match="closed") as told:
        world.barrier()
    assert told.value.code == "invalid_argument"


def test_memory_that_is_in_use_outlives_close():
    with crosswarp.World(device="cpu", heap=1 << 20) as world:
        tensor = world.empty(1000)
        array = np.asarray(tensor)
        array[:] = 7
    assert (array == 7).all()
    with pytest.raises(crosswarp.Error, match="closed"):
        world.empty(1)


def test_results_come_by_rank():
    assert on_ranks(4, lambda w: (w.rank, w.size)) == [(r, 4) for r in range(4)]


def test_ranks_meet_and_exchange():
    def rank_main(world):
        world.barrier()
        return world.allgather(b"x" * world.rank)

    assert on_ranks(3, rank_main) == [[b"", b"x", b"xx"]] * 3


def test_what_was_raised_first_is_raised():
    def rank_main(world):
        if world.rank == 1:
            raise KeyError("mine")
        world.barrier()  # ends, since the other gave up

    with pytest.raises(KeyError, match="mine"):
        on_ranks(3, rank_main)


def test_a_rank_that_does_not_come_is_a_timeout():
    def rank_main(world):
        if world.rank == 0:
            with pytest.raises(crosswarp.Error) as told:
                world.barrier()
            assert told.value.code == "timeout"
        else:
            time.sleep(1.5)

    with pytest.raises(crosswarp.Error):  # the world is broken, whoever caught it
        on_ranks(2, rank_main, timeout=0.5)


def test_abort_ends_waits_and_other_threads_go_on():
    def rank_main(world):
        if world.rank == 1:
            time.sleep(0.1)  # without the GIL nobody would get here
            world.abort("enough")
            return
        with pytest.raises(crosswarp.Error, match="enough") as told:
            world.barrier()
        assert told.value.code == "aborted" and told.value.peer == 1

    with pytest.raises(crosswarp.Error, match="enough"):  # the world is broken, whoever caught it
        on_ranks(2, rank_main)


def test_calls_of_several_threads_take_turns():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        results = []
        # The same call in each thread: which of them comes first does not matter.
        threads = [
            threading.Thread(target=lambda: results.append(coll.all_reduce(np.ones(100))))
            for _ in range(4)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(results) == 4 and all((r == world.size).all() for r in results)

    on_ranks(2, rank_main)


# ---- tensors


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        np.float64,
        np.dtype("int16"),
        ml_dtypes.bfloat16,
        "torch.float16",
        float,
        bool,
        "complex64",
    ],
)
def test_tensors_of_many_types(dtype):
    def rank_main(world):
        t = world.empty((3, 4), dtype)
        a = np.asarray(t)
        assert a.shape == t.shape == (3, 4) and a.dtype.name == t.dtype
        assert not a.astype(bool).any()
        assert (t.ndim, t.size, t.nbytes, len(t)) == (2, 12, a.nbytes, 3)
        assert t.symmetric and t.device == "cpu" and t.rank == world.rank
        assert np.shares_memory(a, t.numpy())

    on_ranks(2, rank_main)


def test_exports_without_a_copy():
    def rank_main(world):
        t = world.empty(5, np.int32)
        a, b = np.from_dlpack(t), np.asarray(t)
        a[2] = 9
        assert b[2] == 9 and t.__dlpack_device__() == (1, 0)
        assert np.array(t, dtype=np.float64)[2] == 9
        assert not hasattr(t, "__cuda_array_interface__")
        with pytest.raises(BufferError):
            t.__dlpack__(copy=True)

    on_ranks(1, rank_main)


def test_peers_memory_is_read_and_written():
    def rank_main(world):
        t = world.empty(world.size, np.int64)
        for r in range(world.size):
            t.peer(r).numpy()[world.rank] = 10 * r + world.rank
        world.barrier()
        assert (t.numpy() == 10 * world.rank + np.arange(world.size)).all()
        assert t.peer(0).rank == 0
        world.barrier()
        with pytest.raises(ValueError, match="no rank 7 among 3"):
            t.peer(7)
        with pytest.raises(ValueError, match="other ranks do not have"):
            world.private(3).peer(0)

    on_ranks(3, rank_main)


def test_memory_comes_back_when_no_rank_wants_it():
    def rank_main(world):
        third = HEAP // 3
        kept = None
        for i in range(20):
            t = world.empty(third, np.uint8)
            if i == 5 and world.rank == 1:
                kept = t  # this one alone is not given back
            a = np.asarray(t)
            assert not a.any()
            a[:] = 1
            del t, a
        del kept
        world.empty(1)
        world.empty(2 * third, np.uint8)

    on_ranks(2, rank_main)


def test_tensors_that_end_in_another_order_on_each_rank():
    def rank_main(world):
        random = np.random.default_rng(world.rank)
        alive = []
        for _ in range(100):
            alive.append(world.empty(HEAP // 64, np.uint8))
            random.shuffle(alive)
            del alive[int(random.integers(0, 3)) :]

    on_ranks(3, rank_main)


def test_a_full_heap_is_told():
    def rank_main(world):
        with pytest.raises(crosswarp.Error) as told:
            world.empty(HEAP, np.float64)
        assert told.value.code == "out_of_memory"

    on_ranks(2, rank_main)


def test_different_shapes_are_told():
    def rank_main(world):
        with pytest.raises(crosswarp.Error) as told:
            world.empty(100 + world.rank)
        assert told.value.code == "asymmetric" and told.value.peer == 1 - world.rank

    on_ranks(2, rank_main)


def test_arrays_may_not_outlive_the_worlds_of_run():
    with pytest.raises(BufferError, match="return copies"):
        on_ranks(1, lambda world: np.asarray(world.empty(3)))


def test_a_failed_ranks_frames_do_not_keep_memory_that_is_gone():
    def rank_main(world):
        array = np.asarray(world.empty(1000))
        raise RuntimeError(f"after {array[0]}")

    with pytest.raises(RuntimeError, match="after") as told:
        on_ranks(1, rank_main)
    frame = told.tb
    while frame is not None:
        assert (
            "array" not in frame.tb_frame.f_locals
            or "world" not in frame.tb_frame.f_code.co_varnames
        )
        frame = frame.tb_next
    gc.collect()


def test_use_after_the_end_is_an_error():
    kept = []
    on_ranks(1, lambda world: kept.append((world, crosswarp.Coll(world))))
    world, coll = kept[0]
    assert world.closed
    with pytest.raises(crosswarp.Error):
        world.barrier()
    with pytest.raises(crosswarp.Error, match="ended"):
        coll.all_reduce(np.ones(3))


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (ValueError, lambda: crosswarp.run(0, print)),
        (ValueError, lambda: crosswarp.run(True, print)),
        (TypeError, lambda: crosswarp.run(2, None)),
        (TypeError, lambda: crosswarp.World(device=3)),
        (ValueError, lambda: crosswarp.World(heap=-1)),
        (TypeError, lambda: crosswarp.World(heap="1M")),
        (ValueError, lambda: crosswarp.World(timeout=0)),
        (crosswarp.Error, lambda: crosswarp.World(device="tpu")),
        (TypeError, lambda: on_ranks(1, lambda w: w.empty(3, "float12"))),
        (TypeError, lambda: on_ranks(1, lambda w: w.empty(1.5))),
        (ValueError, lambda: on_ranks(1, lambda w: w.empty((2, -1)))),
        (TypeError, lambda: on_ranks(1, lambda w: w.allgather("text"))),
    ],
)
def test_bad_arguments(kind, call):
    with pytest.raises(kind):
        call()


def test_a_gpu_that_is_not_there_is_told():
    if crosswarp.cuda_device_count() > 0:
        pytest.skip("there is one")
    assert crosswarp.cuda_absence_reason()
    with pytest.raises(crosswarp.Error) as told:
        crosswarp.World(device="cuda")
    assert told.value.code == "not_supported"
