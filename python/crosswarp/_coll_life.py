"""A communicator from its making to its end, which may come by nobody referring to it any more."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

from . import _arrays, _crosswarp
from ._crosswarp import Error
from ._world import Dropped, World


class Communicator:
    """What a communicator holds, and until when."""

    def __init__(self, world: World, *, algorithm: str = "automatic") -> None:
        if not isinstance(world, World):
            raise TypeError(f"Coll: a World is needed, not {type(world).__name__}")
        self._world = world
        native = world._alive("Coll")
        world._before_giving_back()
        self._native = _crosswarp.Coll(native, algorithm)
        world._after_giving_back()
        self._registered: dict[int, Any] = {}  # arrays by address: they live until unregistered
        self._recorded = False  # there is something to forget
        self._under_way: list[tuple[_crosswarp.Mark, list[Any]]] = []  # until the mark is passed
        self._lock = threading.Lock()  # of that
        self._let_go = weakref.finalize(
            self, _drop, world._dropped, Dropped(self._native, self._registered, self._under_way)
        )
        self._let_go.atexit = False  # the world ends then

    @property
    def world(self) -> World:
        return self._world

    @property
    def rank(self) -> int:
        return self._native.rank

    @property
    def size(self) -> int:
        return self._native.size

    def close(self) -> None:
        """Collective, and when nothing of it is queued any more. Its memory is given back at a later
        ``World.empty`` or ``Coll``."""
        if self._native.closed:
            return
        _arrays.synchronize(self._world.device)
        # Where ranks do not meet any more, nobody uses this memory either.
        with contextlib.suppress(Error):
            if self._recorded:
                self._native.forget_recorded()
            for address in self._registered:
                self._native.unregister_buffer(address)
        self._registered.clear()
        self._let_go()


def _drop(dropped: list[Dropped], what: Dropped) -> None:
    """A communicator that nobody refers to any more. At any time and in any thread, so nothing is
    waited for."""
    if (what.registered or what.under_way) and not what.native.given_back:
        dropped.append(what)
    what.native.close()
