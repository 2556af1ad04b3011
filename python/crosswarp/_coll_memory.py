"""Memory of the caller that all_reduce is to use in place, as it does a World.empty."""

from __future__ import annotations

from typing import Any

from . import _arrays
from ._coll_calls import Calls, Place


class RegisteredMemory(Calls):
    """All of these are collective, and raise on all ranks or on none."""

    def register_buffer(self, x: Any) -> None:
        """From now on, any part of this array's memory is used in place. Each rank passes an array
        of its own, of equal length; it is kept until it is unregistered. A ``World.empty`` needs no
        registering.

        Raises Error, with code "not_supported" and what to do, for memory that other ranks cannot be
        given: between processes that is all but memory of ``cudaMalloc`` (PyTorch's, unless its
        segments are expandable) and whole pages of a CPU.
        """
        a = self._input("register_buffer", x, Place(), "x")
        if not a.writable:
            raise ValueError("register_buffer: the array cannot be written")
        _arrays.synchronize(self._world.device)
        self._native.register_buffer(a.address, a.nbytes)
        self._registered[a.address] = x

    def unregister_buffer(self, x: Any) -> None:
        """``x``: what was registered. What was captured with it may not be replayed any more."""
        a = self._input("unregister_buffer", x, Place(), "x")
        _arrays.synchronize(self._world.device)
        self._native.unregister_buffer(a.address)
        self._registered.pop(a.address, None)

    def register_recorded(self) -> int:
        """After the capture of CUDA graphs and before the next replay of any: registers the memory of
        captured calls to all_reduce that were not made in place, so that replays are. Returns how
        many. That memory, which graphs keep, has to live until ``forget_recorded`` or ``close``."""
        calls = self._native.register_recorded()
        self._recorded = self._recorded or calls > 0
        return calls

    def forget_recorded(self) -> None:
        """Graphs with such calls may not be replayed any more."""
        _arrays.synchronize(self._world.device)
        self._native.forget_recorded()
        self._recorded = False
