"""Collectives of any framework's arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._coll_calls import Place
from ._coll_equal import EqualParts
from ._coll_fused import FusedSums, Quantised
from ._coll_memory import RegisteredMemory
from ._coll_messages import Messages
from ._coll_uneven import UnevenParts

__all__ = ["Choice", "Coll", "Quantised"]


class Choice(NamedTuple):
    """What an all_reduce does, and why."""

    algorithm: str
    blocks: int
    direct: bool  # on symmetric or registered memory, without a copy
    why: str


class Coll(EqualParts, UnevenParts, FusedSums, Messages, RegisteredMemory):
    """Collectives of a world's ranks. Making one is collective.

    Arrays are NumPy's on a CPU, CuPy's, JAX's or PyTorch's on a GPU, a ``World.empty``, or anything
    else with DLPack; contiguous, and on the world's device. All ranks make the same calls in the
    same order, messages from rank to rank apart.

    On a CPU calls return when they are done. On a GPU they are queued: on ``stream`` (an int, a
    stream of CuPy or PyTorch, anything with ``__cuda_stream__``), else on the current stream of the
    array's framework; ``check()`` waits and tells what went wrong. JAX and a ``World.empty`` have no
    stream to queue on: their calls begin when frameworks have done what they queued, and return when
    they are done.

    ``out`` is where the result goes; without it, a new array of the same framework, of memory that
    ``stream`` may write at once. What a call on a named stream uses lives at least until it is done.

    ``close()`` is collective, and so is the end of a ``with`` block. Who only drops it gives its
    memory back, too, at a later ``World.empty`` or ``Coll``, once all ranks have; what was captured
    with it is not to be replayed any more.
    """

    def check(self, *, stream: Any = None) -> None:
        """Waits for the stream, that of the last call unless another is named. Raises what has gone
        wrong in any call so far; then this object is of no more use."""
        self._native.check(self._place("check", stream).stream)

    def explain(self, inp: Any, out: Any = None) -> Choice:
        """What all_reduce does for these, and why. ``out``: ``inp`` unless given."""
        a = self._input("explain", inp, Place())
        b = a if out is None else self._input("explain", out, Place(), "out")
        return Choice(*self._native.explain(b.address, a.address, a.nbytes))

    def __enter__(self) -> Coll:
        return self

    def __exit__(self, kind: Any, failure: BaseException | None, where: Any) -> None:
        if failure is None:
            self.close()
        else:
            self._let_go()  # the other ranks may be elsewhere: nobody waits for them

    def __repr__(self) -> str:
        return f"<crosswarp.Coll rank {self.rank} of {self.size} on {self._world.device}>"
