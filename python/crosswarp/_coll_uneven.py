"""Collectives of uneven parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import index
from typing import Any

from . import _dtypes
from ._arrays import Array
from ._coll_calls import Calls


class UnevenParts(Calls):
    """counts[r] rows of rank r, along the first dimension, one rank's after the other's; all ranks
    pass the same counts."""

    def reduce_scatter_v(
        self,
        inp: Any,
        counts: Sequence[int],
        out: Any = None,
        *,
        op: str = "sum",
        stream: Any = None,
    ) -> Any:
        """``op`` over all ranks of those rows of ``inp`` that are this rank's."""
        call = "reduce_scatter_v"
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        numbers = _dtypes.check_reduction(call, a.dtype, op)
        rows = self._counts(call, counts)
        row = self._row(call, a, sum(rows))
        b, result = self._output(call, out, a, (rows[self.rank], *a.shape[1:]), place)
        self._native.reduce_scatter_v(
            b.address, a.address, *_spread(rows, row), *numbers, place.stream
        )
        return self._done(result, a, place)

    def all_gather_v(
        self, inp: Any, counts: Sequence[int], out: Any = None, *, stream: Any = None
    ) -> Any:
        """Everybody's ``inp``, by rank."""
        call = "all_gather_v"
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        rows = self._counts(call, counts)
        row = self._row(call, a, rows[self.rank]) * a.itemsize
        b, result = self._output(call, out, a, (sum(rows), *a.shape[1:]), place)
        self._native.all_gather_v(b.address, a.address, *_spread(rows, row), place.stream)
        return self._done(result, a, place)

    def gather_v(
        self,
        inp: Any,
        counts: Sequence[int],
        out: Any = None,
        *,
        root: int = 0,
        stream: Any = None,
    ) -> Any:
        """The same at ``root``; None elsewhere."""
        call = "gather_v"
        self._check_rank(call, root)
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        rows = self._counts(call, counts)
        row = self._row(call, a, rows[self.rank]) * a.itemsize
        b, result = self._output_at(root, call, out, a, (sum(rows), *a.shape[1:]), place)
        self._native.gather_v(b, a.address, *_spread(rows, row), root, place.stream)
        return self._done(result, a, place)

    def scatter_v(
        self,
        inp: Any,
        counts: Sequence[int],
        out: Any = None,
        *,
        root: int = 0,
        stream: Any = None,
    ) -> Any:
        """This rank's rows of what ``root`` has in ``inp``. Others pass None there, and ``out``."""
        call = "scatter_v"
        self._check_rank(call, root)
        at_root = self.rank == root
        if at_root and inp is None:
            raise ValueError(f"{call}: rank {root} is the root and has nothing to scatter")
        if not at_root and out is None:
            raise ValueError(f"{call}: only the root knows what comes; pass out")
        place = self._place(call, stream, inp if at_root else out)
        rows = self._counts(call, counts)
        if not at_root:
            b = self._input(call, out, place, "out")
            if not b.writable:
                raise ValueError(f"{call}: out cannot be written")
            row = self._row(call, b, rows[self.rank], "out") * b.itemsize
            self._native.scatter_v(b.address, 0, *_spread(rows, row), root, place.stream)
            return self._done(out, b, place)
        a = self._input(call, inp, place)
        row = self._row(call, a, sum(rows)) * a.itemsize
        b, result = self._output(call, out, a, (rows[self.rank], *a.shape[1:]), place)
        self._native.scatter_v(b.address, a.address, *_spread(rows, row), root, place.stream)
        return self._done(result, a, place)

    def all_to_all_v(
        self,
        inp: Any,
        send_counts: Sequence[int],
        receive_counts: Sequence[int],
        out: Any = None,
        *,
        stream: Any = None,
    ) -> Any:
        """send_counts[r] rows of ``inp`` go to rank r; receive_counts[r] rows of the result came
        from there. Other counts on each rank; what one sends, the other expects."""
        call = "all_to_all_v"
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        sent = self._counts(call, send_counts, "send_counts")
        received = self._counts(call, receive_counts, "receive_counts")
        row = self._row(call, a, sum(sent)) * a.itemsize
        b, result = self._output(call, out, a, (sum(received), *a.shape[1:]), place)
        self._native.all_to_all_v(
            b.address, a.address, *_spread(sent, row), *_spread(received, row), place.stream
        )
        return self._done(result, a, place)

    def _counts(self, call: str, counts: Sequence[int], name: str = "counts") -> list[int]:
        try:
            rows = [index(n) for n in counts]
        except TypeError:
            raise TypeError(f"{call}: {name} are whole numbers, one for each rank") from None
        if len(rows) != self.size:
            raise ValueError(f"{call}: {len(rows)} {name} for {self.size} ranks")
        if min(rows) < 0:
            raise ValueError(f"{call}: {name} has {min(rows)}, which is below zero")
        return rows

    def _row(self, call: str, a: Array, rows: int, name: str = "inp") -> int:
        """Elements of a row."""
        if not a.shape or a.shape[0] != rows:
            raise ValueError(
                f"{call}: {name} of shape {list(a.shape)} has not the {rows} rows of the counts"
            )
        return math.prod(a.shape[1:])


def _spread(rows: list[int], row: int) -> tuple[list[int], list[int]]:
    """Counts and places, in what a row is counted in."""
    counts = [n * row for n in rows]
    return counts, [0, *accumulate(counts)][: len(counts)]
