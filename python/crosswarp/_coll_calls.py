"""How a call begins and ends: where it is queued, its arrays, and how long they are kept."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import _arrays, _streams
from ._arrays import Array
from ._coll_life import Communicator
from ._world import World


class Place(NamedTuple):
    """Where a call is queued."""

    stream: int | None = None  # a cudaStream_t; None: the world's own stream
    wait: bool = False  # the caller's framework cannot be told to wait, so the host does
    ready: int = -1  # the stream, as DLPack counts them, that waits for its producers; -1: none
    # On a stream that the caller named: what the call uses. The framework may give that memory to
    # work on another stream as soon as nobody refers to it.
    used: list[Any] | None = None


class Calls(Communicator):
    """What the calls have in common."""

    def __init__(self, world: World, *, algorithm: str = "automatic") -> None:
        super().__init__(world, algorithm=algorithm)
        self._last = Place()  # of the last call

    # ---- where

    def _place(self, call: str, stream: Any, *arrays: Any) -> Place:
        device = self._world.device
        if device == "cpu":
            if stream is not None:
                raise ValueError(f"{call}: the world is on the CPU, which has no streams to name")
            return self._last
        if stream is not None:
            handle = _streams.handle_of(stream, call)
            self._last = Place(handle, ready=handle or 1)  # 1: the default stream
            return self._last._replace(used=[])
        if arrays:
            self._last = self._place_of(arrays[0])
        return self._last

    def _place_of(self, x: Any) -> Place:
        """In order with the framework whose array it is; where that has no stream, after it."""
        device = self._world.device
        kind = _arrays.kind_of(x)
        if kind == "crosswarp":
            _arrays.synchronize(device)  # whichever framework wrote it
        handle = _streams.current(kind, int(device.rpartition(":")[2]))
        if handle is not None:
            return Place(handle)
        return Place(wait=True, ready=self._world._native.stream())

    # ---- arrays

    def _input(self, call: str, x: Any, place: Place, name: str = "inp") -> Array:
        a = _arrays.describe(x, call, place.ready)
        if a.device != self._world.device:
            raise ValueError(f"{call}: {name} is on {a.device}, the world on {self._world.device}")
        if not a.contiguous:
            raise ValueError(f"{call}: {name} is not contiguous")
        if place.used is not None:
            place.used.append(a.keep)
        return a

    def _output(
        self,
        call: str,
        out: Any,
        a: Array,
        shape: tuple[int, ...],
        place: Place,
        in_place: bool = False,
        *,
        name: str = "out",
        dtype: str | None = None,
    ) -> tuple[Array, Any]:
        """Where the result goes, and what is returned for it. `dtype`: of `inp` unless given."""
        if out is None:
            on = None if place.used is None else place.stream
            new = _arrays.empty(a, shape, self._world, stream=on, dtype=dtype)
            return self._input(call, new, place, name), new
        b = self._input(call, out, place, name)
        if not b.writable:
            raise ValueError(f"{call}: {name} cannot be written")
        if dtype is None and b.dtype != a.dtype:
            raise TypeError(f"{call}: {name} is of {b.dtype}, inp of {a.dtype}")
        if dtype is not None and b.dtype != dtype:
            raise TypeError(f"{call}: {name} is of {b.dtype}, not of {dtype}")
        wanted = math.prod(shape)
        if b.count != wanted:
            raise ValueError(f"{call}: {name} has {b.count} elements, the result {wanted}")
        if a.overlaps(b) and not (in_place and a.address == b.address):
            raise ValueError(f"{call}: {name} and inp overlap")
        return b, out

    def _output_at(
        self,
        root: int,
        call: str,
        out: Any,
        a: Array,
        shape: tuple[int, ...],
        place: Place,
        in_place: bool = False,
    ) -> tuple[int, Any]:
        """The same at the root; others' is not used."""
        if self.rank != root:
            return 0, None
        b, result = self._output(call, out, a, shape, place, in_place)
        return b.address, result

    def _check_rank(self, call: str, rank: int, name: str = "root") -> None:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise TypeError(f"{call}: {name} is a rank, not {type(rank).__name__}")
        if not 0 <= rank < self.size:
            raise ValueError(f"{call}: {name} {rank}: there are {self.size} ranks")

    # ---- when it is queued

    def _done(self, result: Any, a: Array, place: Place) -> Any:
        self._queued(place)
        return _arrays.returned(result, a.kind)

    def _queued(self, place: Place) -> None:
        if place.wait:
            self._native.check(None)
        if place.used and place.stream is not None:
            self._keep_until_done(place.used, place.stream)

    def _keep_until_done(self, used: list[Any], stream: int) -> None:
        mark = self._native.mark(stream)
        with self._lock:
            self._under_way[:] = [use for use in self._under_way if not use[0].passed]
            # What is captured lives as long as its graph, which is the caller's to see to.
            if mark is not None:
                self._under_way.append((mark, used))
