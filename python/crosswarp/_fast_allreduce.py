"""all_reduce in the shape that inference servers know it in."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from . import _arrays, _dtypes
from ._coll import Coll
from ._crosswarp import Error
from ._world import Tensor, World


class FastAllreduce:
    """Sums of tensors that are not too long, over the ranks of one machine.

        fa = FastAllreduce(rank, world_size)
        if fa.should_use(x):
            y = fa.all_reduce(x)

    Collective, as ``close()`` is. ``max_size``: bytes of the longest tensor; longer ones are for
    another library. ``world``: one that there is already; without it one is made, on ``device``,
    which is PyTorch's current GPU when PyTorch has one, else what CROSSWARP_DEVICE says.
    """

    def __init__(
        self, rank: int, world_size: int, max_size: int = 8192 * 1024, *,
        world: World | None = None, device: str | None = None,
    ) -> None:  # fmt: skip
        if max_size <= 0:
            raise ValueError(f"FastAllreduce: max_size is {max_size}")
        self._own = world is None
        # Room for more than one communicator, unless it is said how much there is to be.
        heap = None if "CROSSWARP_HEAP" in os.environ else 64 << 20
        self._world = World(device=device or _torch_device(), heap=heap) if world is None else world
        if (self._world.rank, self._world.size) != (rank, world_size):
            found = f"rank {self._world.rank} of {self._world.size}"
            if self._own:
                self._world.close()
            raise ValueError(
                f"FastAllreduce: rank {rank} of {world_size} was asked for, but this is {found}"
            )
        self.max_size = max_size
        self._coll = Coll(self._world)
        self._captured: list[str] | None = None

    @property
    def rank(self) -> int:
        return self._world.rank

    @property
    def world_size(self) -> int:
        return self._world.size

    @property
    def world(self) -> World:
        return self._world

    @property
    def coll(self) -> Coll:
        """For the other collectives, which max_size is nothing to."""
        return self._coll

    def should_use(self, inp: Any) -> bool:
        """Whether all_reduce takes it. Never raises."""
        try:
            a = _arrays.describe(inp, "should_use")
        except Exception:  # other people's arrays raise what they like, fake tensors a RuntimeError
            return False
        known = _dtypes.by_name.get(a.dtype)
        return (
            not self._world.closed
            and known is not None
            and known.reduction is not None
            and a.contiguous
            and a.device == self._world.device
            and a.nbytes <= self.max_size
        )

    def all_reduce(self, inp: Any, out: Any = None, *, op: str = "sum", stream: Any = None) -> Any:
        """The sum over all ranks; see Coll.all_reduce. May be captured in a CUDA graph, when ``out``
        is given or the framework's allocator can be captured too, as PyTorch's."""
        a = _arrays.describe(inp, "all_reduce")
        if a.nbytes > self.max_size:
            raise ValueError(
                f"FastAllreduce.all_reduce: {a.nbytes} bytes, but max_size is {self.max_size}; ask should_use first"
            )
        if self._captured is not None:
            self._captured.append(f"{a.count} {a.dtype} {op}")
        return self._coll.all_reduce(inp, out, op=op, stream=stream)

    def check(self, *, stream: Any = None) -> None:
        """Waits for the stream, and raises what has gone wrong; see Coll.check."""
        self._coll.check(stream=stream)

    def empty(self, shape: Any, dtype: Any = "float32") -> Tensor:
        """Symmetric memory, which all_reduce uses in place. Collective."""
        return self._world.empty(shape, dtype)

    def register_buffer(self, inp: Any) -> None:
        """From now on all_reduce uses this memory in place, on all ranks; see Coll.register_buffer.
        Collective. Memory of ``empty`` needs no registering."""
        a = _arrays.describe(inp, "register_buffer")
        if not self.should_use(inp):
            raise ValueError(
                f"register_buffer: {a.nbytes} bytes of {a.dtype} on {a.device}, "
                f"{'' if a.contiguous else 'not '}contiguous, cannot be reduced here; "
                f"the world is on {self._world.device}, max_size is {self.max_size}"
            )
        self._coll.register_buffer(inp)

    def unregister_buffer(self, inp: Any) -> None:
        """Collective; see Coll.unregister_buffer."""
        self._coll.unregister_buffer(inp)

    @contextlib.contextmanager
    def capture(self) -> Iterator[FastAllreduce]:
        """Around the capture of CUDA graphs; at its end comes register_graph_buffers()."""
        if self._captured is not None:
            raise ValueError("FastAllreduce.capture: there is one already")
        self._captured = []
        try:
            yield self
            self.register_graph_buffers()
        finally:
            self._captured = None

    def register_graph_buffers(self) -> int:
        """After a capture and before the first replay: registers the memory of captured calls, so
        that replays use it in place, and returns how many calls that are; see
        Coll.register_recorded. What is short is sent in packets and needs no registering.

        Collective: addresses are exchanged here, so there is nothing to be gathered by hand. Before
        that, ranks compare what they captured in this capture(). Raises Error, with code
        "asymmetric" and a rank that captured other calls: at a replay they would not meet.
        """
        calls = self._captured or []
        mine = hashlib.sha256("\n".join(calls).encode()).digest()
        for rank, theirs in enumerate(self._world.allgather(mine)):
            if theirs != mine:
                failure = Error(
                    f"register_graph_buffers: rank {rank} captured other calls than rank {self.rank}"
                )
                failure.code, failure.peer = "asymmetric", rank
                raise failure
        return self._coll.register_recorded()

    def close(self) -> None:
        """Collective. Graphs that were captured may not be replayed any more."""
        self._coll.close()
        if self._own:
            self._world.close()

    def __enter__(self) -> FastAllreduce:
        return self

    def __exit__(self, kind: Any, failure: BaseException | None, where: Any) -> None:
        if failure is not None and self._own and not self._world.closed:
            self._world.abort(f"{type(failure).__name__}: {failure}")
        self.close()


def _torch_device() -> str | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return f"cuda:{torch.cuda.current_device()}"
