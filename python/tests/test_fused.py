"""Sums that go on in the same kernel, against NumPy in float64."""

import ml_dtypes
import numpy as np
import pytest
from conftest import on_ranks

import crosswarp

KINDS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
NARROW = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
EPSILON = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # of one rounding


def whole(seed, shape, kind):
    """Small whole numbers: sums of a few are exact in every type."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(kind)


def total(ranks, shape, kind):
    return sum(whole(r, shape, np.float64) for r in range(ranks))


def check_norm(got, want, dtype):
    """One rounding to the type, and a few in float32 before."""
    error = np.abs(got.astype(np.float64) - want)
    assert (error <= np.abs(want) * (EPSILON[dtype] * 1.01 + 20 * 2.0**-24) + 1e-7).all()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(5, 1001), (2, 3, 64), (7,), (1, 4608)])
def test_rms_norm_is_what_it_says(dtype, shape):
    kind = KINDS[dtype]
    residual = whole(77, shape, kind)
    weight = np.random.default_rng(88).normal(size=shape[-1]).astype(kind)

    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = whole(world.rank, shape, kind)
        got = coll.all_reduce_rms_norm(x, residual, weight, epsilon=1e-5)
        assert same(x, whole(world.rank, shape, kind))  # as it was
        return got

    results = on_ranks(3, rank_main)
    x = total(3, shape, kind) + residual.astype(np.float64)
    root = np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    for out, residual_out in results:
        assert out.dtype == residual_out.dtype == kind and out.shape == shape
        assert same(residual_out, x.astype(kind))
        check_norm(out, x / root * weight.astype(np.float64), dtype)
        assert same(out, results[0][0])


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_rms_norm_in_place_and_without_a_copy():
    shape = (40, 512)

    def rank_main(world):
        coll = crosswarp.Coll(world)
        residual, weight = whole(77, shape, np.float32), whole(88, shape[-1:], np.float32)
        x = whole(world.rank, shape, np.float32)
        want, summed = coll.all_reduce_rms_norm(x, residual, weight)
        # The sum goes where it was called for, and nobody needs memory for it.
        t = world.empty(shape, np.float32)
        t.numpy()[:] = x
        assert coll.explain(t).direct
        world.barrier()
        for data in (x, t):
            r = residual.copy()
            got = coll.all_reduce_rms_norm(data, r, weight, data, r)
            assert got[0] is data and got[1] is r
            assert same(np.asarray(data), want) and same(r, summed)
        # As of C++: the sum with the residual may go where the input was.
        x = whole(world.rank, shape, np.float32)
        got = coll.all_reduce_rms_norm(x, residual, weight, residual_out=x)
        assert got[1] is x and same(x, summed) and same(got[0], want)

    on_ranks(2, rank_main)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("narrow", NARROW)
def test_rows_are_quantised_by_their_own_scales(dtype, narrow):
    kind, shape = KINDS[dtype], (3, 5, 333)
    largest = np.float32(ml_dtypes.finfo(NARROW[narrow]).max)

    def rank_main(world):
        coll = crosswarp.Coll(world)
        return coll.all_reduce_quantise(whole(world.rank, shape, kind), dtype=narrow)

    exact = total(2, shape, kind)
    for got in on_ranks(2, rank_main):
        out, scales, summed = got
        assert isinstance(got, crosswarp.Quantised) and got.sum is summed
        assert same(summed, exact.astype(kind))
        assert same(scales, (np.abs(exact).max(-1).astype(np.float32) / largest))
        # To the nearest number of FP8, and no further from the sum than that.
        assert same(out, (exact.astype(np.float32) / scales[..., None]).astype(NARROW[narrow]))
        back = out.astype(np.float64) * scales[..., None]
        step = 2.0**-4 if narrow == "float8_e4m3fn" else 2.0**-3
        least = float(ml_dtypes.finfo(NARROW[narrow]).smallest_subnormal) * scales[..., None]
        assert (np.abs(back - exact) <= np.maximum(np.abs(exact) * step * 1.001, least)).all()


def test_one_scale_for_all_and_memory_of_the_callers():
    shape = (4, 100)

    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = whole(world.rank, shape, np.float32) * 100
        exact = (total(2, shape, np.float32) * 100).astype(np.float32)
        got = coll.all_reduce_quantise(x, scale=2)
        assert got.scales is None
        # What is too large becomes the largest number.
        assert np.abs(exact / 2).max() > 448
        want = np.clip(exact / 2, -448, 448).astype(ml_dtypes.float8_e4m3fn)
        assert same(got.out, want)
        out, scales = np.empty(shape, ml_dtypes.float8_e5m2), np.zeros(4, np.float32)
        got = coll.all_reduce_quantise(x, out, scales=scales, sum=x)
        assert got.out is out and got.scales is scales and got.sum is x
        assert same(x, exact)
        assert same(out, (exact / scales[:, None]).astype(ml_dtypes.float8_e5m2))
        bits = np.empty(shape, np.uint8)
        x = whole(world.rank, shape, np.float32) * 100
        assert coll.all_reduce_quantise(x, bits, dtype="float8_e5m2").out is bits
        assert same(bits, out.view(np.uint8))

    on_ranks(2, rank_main)


def test_symmetric_rows_and_no_rows():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        t = world.empty((2, 8), "bfloat16")
        t.numpy()[:] = 1
        world.barrier()
        got = coll.all_reduce_quantise(t, sum=t)
        assert got.sum is t and (t.numpy() == 2).all()
        assert got.out.dtype == "float8_e4m3fn" and (got.out.numpy() == 448).all()
        assert (np.asarray(got.scales) == np.float32(2) / 448).all()
        none = np.zeros((0, 8), np.float16)
        assert coll.all_reduce_quantise(none).scales.shape == (0,)
        out, _ = coll.all_reduce_rms_norm(none, none.copy(), np.ones(8, np.float16))
        assert out.shape == (0, 8)

    on_ranks(2, rank_main)


X, W = np.ones((2, 4), np.float32), np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("kind", "match", "call"),
    [
        (TypeError, "elements of float64; it knows float32", lambda c: c.all_reduce_rms_norm(X.astype(float), X, W)),
        (TypeError, "elements of int32", lambda c: c.all_reduce_quantise(X.astype(np.int32))),
        (TypeError, "residual is of float16, inp of float32", lambda c: c.all_reduce_rms_norm(X, X.astype(np.float16), W)),
        (ValueError, "residual has 4 elements, not 8", lambda c: c.all_reduce_rms_norm(X, X[:1], W)),
        (ValueError, "weight has 3 elements, not 4", lambda c: c.all_reduce_rms_norm(X, X.copy(), W[:3])),
        (ValueError, "epsilon is -1", lambda c: c.all_reduce_rms_norm(X, X.copy(), W, epsilon=-1)),
        (ValueError, "no rows of elements", lambda c: c.all_reduce_rms_norm(X[:, :0].copy(), X, W)),
        (ValueError, "no rows of elements", lambda c: c.all_reduce_quantise(np.ones((), np.float32))),
        (ValueError, "out and residual overlap", lambda c: c.all_reduce_rms_norm(X, Y := X.copy(), W, Y)),
        (ValueError, "out and residual_out overlap", lambda c: c.all_reduce_rms_norm(Y := X.copy(), X, W, Y, Y)),
        (ValueError, "residual_out and weight overlap", lambda c: c.all_reduce_rms_norm(X, X.copy(), (Y := X.copy())[0], None, Y)),
        (ValueError, "out and inp overlap", lambda c: c.all_reduce_rms_norm((Y := np.ones((3, 4), np.float32))[:2], X, W, Y[1:])),
        (ValueError, "residual_out has 4 elements, the result 8", lambda c: c.all_reduce_rms_norm(X, X.copy(), W, None, W.copy())),
        (TypeError, "sums are quantised to float8_e4m3fn", lambda c: c.all_reduce_quantise(X, dtype="int8")),
        (TypeError, "sums are quantised to float8_e4m3fn", lambda c: c.all_reduce_quantise(X, X.copy())),
        (ValueError, "scale is 0; it is above zero", lambda c: c.all_reduce_quantise(X, scale=0)),
        (ValueError, "scale is inf", lambda c: c.all_reduce_quantise(X, scale=float("inf"))),
        (ValueError, "a scale for all rows, and scales", lambda c: c.all_reduce_quantise(X, scale=1, scales=W[:2])),
        (TypeError, "scales is of float64, not of float32", lambda c: c.all_reduce_quantise(X, scales=np.ones(2))),
        (ValueError, "scales has 3 elements, the result 2", lambda c: c.all_reduce_quantise(X, scales=W[:3].copy())),
        (TypeError, "sum is of float64, inp of float32", lambda c: c.all_reduce_quantise(X, sum=X.astype(float))),
    ],
)  # fmt: skip
def test_bad_arguments(kind, match, call):
    def rank_main(world):
        with pytest.raises(kind, match=match):
            call(crosswarp.Coll(world))

    on_ranks(1, rank_main)


def test_ranks_that_differ_are_told():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = np.ones((8, 8) if world.rank == 0 else (4, 16), np.float32)
        with pytest.raises(crosswarp.Error) as told:
            coll.all_reduce_quantise(x)
        assert told.value.code == "asymmetric"

    on_ranks(2, rank_main)
