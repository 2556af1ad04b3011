"""Sums that go on in the same kernel, as in tensor-parallel inference."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import _arrays, _dtypes
from ._arrays import Array
from ._coll_calls import Calls


class Quantised(NamedTuple):
    """What comes of all_reduce_quantise."""

    out: Any  # in FP8
    scales: Any  # float32, one for each row; None where all have the one that was given
    sum: Any  # as all_reduce gives it


class FusedSums(Calls):
    """Rows are along the last dimension, of float32, float16 or bfloat16; a row has the same bits
    alone and in any batch."""

    def all_reduce_rms_norm(
        self,
        inp: Any,
        residual: Any,
        weight: Any,
        out: Any = None,
        residual_out: Any = None,
        *,
        epsilon: float = 1e-6,
        stream: Any = None,
    ) -> tuple[Any, Any]:
        """``x / sqrt(mean(x * x) + epsilon) * weight`` of each row, where ``x`` is the sum over all
        ranks plus ``residual``; and ``x``. In place when ``out`` is ``inp`` and ``residual_out`` is
        ``residual``."""
        call = "all_reduce_rms_norm"
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        number = _dtypes.check_rows(call, a.dtype)
        rows, hidden = self._rows(call, a)
        r = self._input(call, residual, place, "residual")
        w = self._input(call, weight, place, "weight")
        for name, x, count in (("residual", r, a.count), ("weight", w, hidden)):
            if x.dtype != a.dtype:
                raise TypeError(f"{call}: {name} is of {x.dtype}, inp of {a.dtype}")
            if x.count != count:
                raise ValueError(f"{call}: {name} has {x.count} elements, not {count}")
        if not epsilon >= 0:
            raise ValueError(f"{call}: epsilon is {epsilon}")
        b, normed = self._output(call, out, a, a.shape, place, in_place=True)
        c, summed = self._output(
            call, residual_out, a, a.shape, place, in_place=True, name="residual_out"
        )
        # The sum is in `out` on the way.
        _check_apart(call, out=b, residual=r)
        _check_apart(call, out=b, residual_out=c)
        _check_apart(call, out=b, weight=w)
        _check_apart(call, residual_out=c, weight=w)
        if c.address != r.address:
            _check_apart(call, residual_out=c, residual=r)
        self._native.all_reduce_rms_norm(
            b.address, c.address, a.address, r.address, w.address, rows, hidden, float(epsilon), number,
            place.stream,
        )  # fmt: skip
        return self._done(normed, a, place), _arrays.returned(summed, a.kind)

    def all_reduce_quantise(
        self,
        inp: Any,
        out: Any = None,
        *,
        dtype: Any = "float8_e4m3fn",
        scale: float | None = None,
        scales: Any = None,
        sum: Any = None,
        stream: Any = None,
    ) -> Quantised:
        """The sum over all ranks, over a scale, in FP8: ``dtype``, or that of ``out``, which may also be
        of uint8. What is too large becomes the largest number. ``scale`` is for all rows; without it each has its own, by
        which its largest magnitude becomes the largest number, and ``scales`` is where they go.
        ``sum`` is where the sum goes, and may be ``inp``."""
        call = "all_reduce_quantise"
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        number = _dtypes.check_rows(call, a.dtype)
        rows, hidden = self._rows(call, a)
        if scale is not None and scales is not None:
            raise ValueError(f"{call}: a scale for all rows, and scales for each of them")
        if scale is not None and not 0 < scale < math.inf:
            raise ValueError(f"{call}: scale is {scale}; it is above zero, and finite")
        given = None if out is None else _arrays.describe(out, call).dtype
        name, narrow = _dtypes.check_narrow(call, dtype if given in (None, "uint8") else given)
        b, rounded = self._output(call, out, a, a.shape, place, dtype=given or name)
        s, summed = self._output(call, sum, a, a.shape, place, in_place=True, name="sum")
        _check_apart(call, out=b, sum=s)
        address, each = 0, None
        if scale is None:
            t, each = self._output(
                call, scales, a, a.shape[:-1], place, dtype="float32", name="scales"
            )
            _check_apart(call, scales=t, out=b)
            _check_apart(call, scales=t, sum=s)
            address = t.address
        self._native.all_reduce_quantise(
            b.address, s.address, a.address, address, 1.0 if scale is None else float(scale), rows,
            hidden, number, narrow, place.stream,
        )  # fmt: skip
        rounded = self._done(rounded, a, place)
        return Quantised(rounded, *(_arrays.returned(x, a.kind) for x in (each, summed)))

    def _rows(self, call: str, a: Array) -> tuple[int, int]:
        """How many, and elements of each."""
        if not a.shape or a.shape[-1] == 0:
            raise ValueError(f"{call}: inp of shape {list(a.shape)} has no rows of elements")
        return a.count // a.shape[-1], a.shape[-1]


def _check_apart(call: str, **two: Array) -> None:
    (one, a), (other, b) = two.items()
    if a.overlaps(b):
        raise ValueError(f"{call}: {one} and {other} overlap")
