"""Collectives whose parts are equal."""

from __future__ import annotations

from typing import Any

from . import _dtypes
from ._arrays import Array
from ._coll_calls import Calls


class EqualParts(Calls):
    # ---- reductions: op is sum, prod, min, max, avg, or of integers bit_and, bit_or, bit_xor

    def all_reduce(self, inp: Any, out: Any = None, *, op: str = "sum", stream: Any = None) -> Any:
        """``op`` over all ranks of each element, everywhere. In place when ``out`` is ``inp``."""
        call = "all_reduce"
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        numbers = _dtypes.check_reduction(call, a.dtype, op)
        b, result = self._output(call, out, a, a.shape, place, in_place=True)
        self._native.all_reduce(b.address, a.address, a.count, *numbers, place.stream)
        return self._done(result, a, place)

    def reduce(
        self, inp: Any, out: Any = None, *, root: int = 0, op: str = "sum", stream: Any = None
    ) -> Any:
        """The same at ``root`` alone; None elsewhere."""
        call = "reduce"
        self._check_rank(call, root)
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        numbers = _dtypes.check_reduction(call, a.dtype, op)
        b, result = self._output_at(root, call, out, a, a.shape, place, in_place=True)
        self._native.reduce(b, a.address, a.count, *numbers, root, place.stream)
        return self._done(result, a, place)

    def reduce_scatter(
        self, inp: Any, out: Any = None, *, op: str = "sum", stream: Any = None
    ) -> Any:
        """``op`` over all ranks of the part of ``inp`` that is this rank's; parts are equal, along
        the first dimension."""
        call = "reduce_scatter"
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        numbers = _dtypes.check_reduction(call, a.dtype, op)
        b, result = self._output(call, out, a, self._part(call, a), place)
        self._native.reduce_scatter(b.address, a.address, b.count, *numbers, place.stream)
        return self._done(result, a, place)

    # ---- moves, of elements of any type

    def all_gather(self, inp: Any, out: Any = None, *, stream: Any = None) -> Any:
        """Everybody's ``inp``, by rank, one after the other along the first dimension."""
        call = "all_gather"
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        b, result = self._output(call, out, a, self._whole(a), place)
        self._native.all_gather(b.address, a.address, a.nbytes, place.stream)
        return self._done(result, a, place)

    def all_to_all(self, inp: Any, out: Any = None, *, stream: Any = None) -> Any:
        """Part r of ``inp`` goes to rank r; part r of the result came from there."""
        call = "all_to_all"
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        self._part(call, a)
        b, result = self._output(call, out, a, a.shape, place)
        self._native.all_to_all(b.address, a.address, a.nbytes // self.size, place.stream)
        return self._done(result, a, place)

    def broadcast(self, data: Any, *, root: int = 0, stream: Any = None) -> Any:
        """What ``root`` has in ``data``, in everybody's."""
        call = "broadcast"
        self._check_rank(call, root)
        place = self._place(call, stream, data)
        a = self._input(call, data, place)
        if not a.writable:
            raise ValueError(f"{call}: the array cannot be written")
        self._native.broadcast(a.address, a.nbytes, root, place.stream)
        return self._done(data, a, place)

    def gather(self, inp: Any, out: Any = None, *, root: int = 0, stream: Any = None) -> Any:
        """Everybody's ``inp``, as of all_gather, at ``root``; None elsewhere."""
        call = "gather"
        self._check_rank(call, root)
        place = self._place(call, stream, inp)
        a = self._input(call, inp, place)
        b, result = self._output_at(root, call, out, a, self._whole(a), place)
        self._native.gather(b, a.address, a.nbytes, root, place.stream)
        return self._done(result, a, place)

    def scatter(
        self, inp: Any = None, out: Any = None, *, root: int = 0, stream: Any = None
    ) -> Any:
        """This rank's part of what ``root`` has in ``inp``. Others need not have any: they pass
        ``out``."""
        call = "scatter"
        self._check_rank(call, root)
        at_root = self.rank == root
        if at_root and inp is None:
            raise ValueError(f"{call}: rank {root} is the root and has nothing to scatter")
        if not at_root and out is None:
            raise ValueError(f"{call}: only the root knows what comes; pass out")
        place = self._place(call, stream, inp if at_root else out)
        if not at_root:
            b = self._input(call, out, place, "out")
            if not b.writable:
                raise ValueError(f"{call}: out cannot be written")
            self._native.scatter(b.address, 0, b.nbytes, root, place.stream)
            return self._done(out, b, place)
        a = self._input(call, inp, place)
        b, result = self._output(call, out, a, self._part(call, a), place)
        self._native.scatter(b.address, a.address, b.nbytes, root, place.stream)
        return self._done(result, a, place)

    def barrier(self, *, stream: Any = None) -> None:
        """All ranks' streams wait for each other here; the stream of the last call, unless another
        is named."""
        self._native.barrier(self._place("barrier", stream).stream)

    def _part(self, call: str, a: Array) -> tuple[int, ...]:
        if not a.shape or a.shape[0] % self.size:
            raise ValueError(
                f"{call}: the first dimension of {list(a.shape)} is no multiple of {self.size} ranks"
            )
        return (a.shape[0] // self.size, *a.shape[1:])

    def _whole(self, a: Array) -> tuple[int, ...]:
        return (self.size * a.shape[0], *a.shape[1:]) if a.shape else (self.size,)
