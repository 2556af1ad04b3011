"""FastAllreduce, in the shape of the classes that it stands for."""

import numpy as np
import pytest
from conftest import on_ranks

import crosswarp
from crosswarp import FastAllreduce


def with_each(ranks, function, **options):
    def rank_main(world):
        fa = FastAllreduce(world.rank, world.size, world=world, **options)
        function(fa)
        fa.close()

    on_ranks(ranks, rank_main)


def test_all_reduce_again_and_again():
    def use(fa):
        x = np.ones(1024, np.float32)
        for round_ in range(1, 6):
            x = fa.all_reduce(x)
            assert (x == fa.world_size**round_).all()
        assert fa.all_reduce(x, x) is x
        assert fa.all_reduce(x, op="max") is not x
        fa.check()

    with_each(3, use)


def test_should_use():
    def use(fa):
        assert fa.should_use(np.ones(256, np.float32))
        assert not fa.should_use(np.ones(257, np.float32))  # longer than max_size
        assert not fa.should_use(np.ones(10, np.uint8))
        assert not fa.should_use(np.ones((8, 8), np.float32)[:, :4])
        assert not fa.should_use(np.array([None]))
        assert not fa.should_use("text")
        assert not fa.should_use(None)
        assert fa.should_use(fa.empty(100, "bfloat16"))
        with pytest.raises(ValueError, match="1028 bytes, but max_size is 1024"):
            fa.all_reduce(np.ones(257, np.float32))

    with_each(2, use, max_size=1024)


def test_should_use_never_raises():
    class Fake:  # as the fake tensors of torch.compile, which have no memory
        def __dlpack_device__(self):
            raise RuntimeError("no data pointer")

    class Worse:
        def __dlpack__(self, **_):
            raise KeyError("anything")

    def use(fa):
        assert not fa.should_use(Fake())
        assert not fa.should_use(Worse())

    with_each(1, use)


def test_a_closed_one_is_not_to_be_used():
    fa = FastAllreduce(0, 1, device="cpu")
    assert (fa.rank, fa.world_size) == (0, 1)
    fa.close()
    fa.close()
    assert not fa.should_use(np.ones(3))


def test_other_collectives_of_its_communicator():
    def use(fa):
        assert (fa.coll.all_gather(np.full(300, fa.rank))[::300] == [0, 1]).all()

    with_each(2, use, max_size=1024)


def test_registered_buffers_are_used_in_place():
    def use(fa):
        x = np.ones(5000, np.float32)
        assert not fa._coll.explain(x).direct
        fa.register_buffer(x)
        assert fa._coll.explain(x[100:]).direct
        assert fa.all_reduce(x, x) is x and (x == 2).all()
        fa.unregister_buffer(x)
        assert not fa._coll.explain(x).direct
        fa.register_buffer(fa.empty(5000))
        with pytest.raises(ValueError, match="cannot be reduced here"):
            fa.register_buffer(np.ones(1000, np.uint8))
        with pytest.raises(TypeError):
            fa.register_buffer(7)

    with_each(2, use)


def test_captures_are_compared():
    def use(fa):
        x = np.ones(10, np.float32)
        with fa.capture() as capture:
            assert capture is fa
            fa.all_reduce(x)
            fa.all_reduce(x, x)
            assert fa.register_graph_buffers() == 0  # a CPU captures nothing
        with fa.capture():
            with pytest.raises(ValueError, match="already"), fa.capture():
                pass

    with_each(2, use)


def test_captures_that_differ_are_told():
    def use(fa):
        with pytest.raises(crosswarp.Error) as told, fa.capture():
            if fa.rank == 1:
                fa._captured.append("a call that rank 0 does not make")
        assert told.value.code == "asymmetric" and told.value.peer == 1 - fa.rank

    with_each(2, use)


def test_the_wrong_rank_is_refused():
    with pytest.raises(ValueError, match="rank 1 of 2 was asked for, but this is rank 0 of 1"):
        FastAllreduce(1, 2, device="cpu")
    with pytest.raises(ValueError, match="max_size"):
        FastAllreduce(0, 1, 0)


def test_ends_with_its_block():
    with FastAllreduce(0, 1, device="cpu") as fa:
        assert (fa.all_reduce(np.ones(4)) == 1).all()
    assert fa.world.closed
