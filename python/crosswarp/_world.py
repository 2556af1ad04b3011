"""Worlds, and memory that all ranks have."""

from __future__ import annotations

import atexit
import gc
import math
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from . import _arrays, _crosswarp, _dtypes
from ._crosswarp import Error

T = TypeVar("T")


class Dropped(NamedTuple):
    """What is left of a communicator that a rank does not use any more, until no rank does."""

    native: Any
    registered: dict[int, Any]  # arrays that other ranks can reach until then
    under_way: list[tuple[Any, list[Any]]]  # calls on streams that only the caller knows


# Worlds that have not ended, with what was dropped in them. They end when they are closed or when the
# process does, and not when Python happens to collect them: their end is collective.
_open: list[tuple[Any, list[Dropped]]] = []


@atexit.register
def _end_all() -> None:
    while _open:
        native, _dropped = _open.pop()
        # An exception that nobody caught ends this process: nobody is to wait for this rank.
        failure = getattr(sys, "last_value", None)
        if failure is not None:
            native.abort(f"{type(failure).__name__}: {failure}")
        native.end()


class World:
    """This rank's membership in a job.

    ``World()`` joins the job that started this process (``crosswarp run``, ``mpirun``, ``srun`` or
    ``torchrun``), or is a world of one. Making one is collective, and so is closing it. Everything
    that waits gives up after ``timeout`` seconds, or when a rank is lost, and raises
    ``crosswarp.Error``.

    device: "cpu", "cuda", "cuda:1" or "auto"; heap: bytes of symmetric memory on each rank. What is
    not given is as CROSSWARP_DEVICE, CROSSWARP_HEAP and CROSSWARP_TIMEOUT say.
    """

    def __init__(
        self, *, device: str | None = None, heap: int | None = None, timeout: float | None = None
    ) -> None:
        self._native = _crosswarp.World(*_checked_options(device, heap, timeout))
        self._closed = False
        self._dropped: list[Dropped] = []
        _open.append((self._native, self._dropped))

    @classmethod
    def _adopt(cls, native: _crosswarp.World) -> World:
        world = cls.__new__(cls)
        world._native = native
        world._closed = False
        world._dropped = []
        return world

    @property
    def rank(self) -> int:
        return self._native.rank

    @property
    def size(self) -> int:
        return self._native.size

    @property
    def device(self) -> str:
        """ "cpu" or "cuda:0": where this rank's memory is, and its collectives run."""
        return self._native.device

    @property
    def closed(self) -> bool:
        return self._closed or self._native.ended

    # ---- meeting

    def barrier(self) -> None:
        """Waits for all ranks. What is queued on a GPU may still be on its way."""
        self._alive("World.barrier").barrier()

    def allgather(self, mine: bytes) -> list[bytes]:
        """Everybody's bytes, by rank; of any length."""
        if not isinstance(mine, bytes):
            raise TypeError(f"World.allgather: bytes are needed, not {type(mine).__name__}")
        return self._alive("World.allgather").allgather(mine)

    def check(self) -> None:
        """Raises what broke the world, if anything did."""
        self._alive("World.check").check()

    def abort(self, why: str) -> None:
        """Breaks the world: all waits of all ranks end with an Error. Any thread."""
        self._native.abort(why)

    # ---- memory

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Tensor:
        """A tensor on each rank, at the same place of all symmetric heaps; zero at the start.

        Collective. Its memory is given back at a later ``empty`` or ``Coll``, when no rank refers
        to it any more.
        """
        return self._make(shape, dtype, symmetric=True)

    def private(self, shape: int | Sequence[int], dtype: Any = "float32") -> Tensor:
        """A tensor in this rank's own memory, on its device; zero at the start. Not collective."""
        return self._make(shape, dtype, symmetric=False)

    def _make(self, shape: int | Sequence[int], dtype: Any, symmetric: bool) -> Tensor:
        native = self._alive("World.empty")
        kind = _dtypes.parse(dtype)
        lengths = _checked_shape(shape)
        nbytes = math.prod(lengths) * kind.bits // 8
        if symmetric:
            self._before_giving_back()
        memory = _crosswarp.Memory(native, nbytes, symmetric)
        if symmetric:
            self._after_giving_back()
        return Tensor(self, memory, self.rank, lengths, kind)

    def _before_giving_back(self) -> None:
        """Memory that nobody refers to may come again: what was queued with it has to be done."""
        _arrays.synchronize(self.device)
        for dropped in list(self._dropped):
            for mark, _ in list(dropped.under_way):
                mark.wait()

    def _after_giving_back(self) -> None:
        for dropped in list(self._dropped):
            if dropped.native.given_back:
                self._dropped.remove(dropped)

    def is_mapped(self, rank: int) -> bool:
        """Whether that rank's memory is reached by loads and stores."""
        return self._alive("World.is_mapped").is_mapped(rank)

    def path_to(self, rank: int) -> str:
        """How that rank's memory is reached, for people."""
        return self._alive("World.path_to").path_to(rank)

    # ---- the end

    def close(self) -> None:
        """Leaves the job: waits for the other ranks, at most as long as the timeout.

        Collective. Memory that arrays of some rank still refer to stays until the process ends.
        """
        if self.closed:
            return
        self._closed = True
        _arrays.synchronize(self.device)
        try:
            used = any(
                b == b"1" for b in self._native.allgather(b"1" if self._native.in_use else b"0")
            )
        except Error:  # it is broken: there is nobody to wait for
            used = self._native.in_use > 0
        if not used:
            self._native.end()
            _open[:] = [
                (native, dropped) for native, dropped in _open if native is not self._native
            ]
            self._dropped.clear()

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: Any, failure: BaseException | None, where: Any) -> None:
        if failure is not None and not self.closed:
            self.abort(f"{type(failure).__name__}: {failure}")
        self.close()

    def _alive(self, call: str) -> _crosswarp.World:
        if self._closed:
            failure = Error(f"{call}: the world is closed")
            failure.code, failure.peer = "invalid_argument", None
            raise failure
        return self._native

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<crosswarp.World rank {self.rank} of {self.size} on {self.device}{state}>"


class Tensor:
    """Memory of the library, with a shape: from ``World.empty``, and results that no framework
    takes. Other libraries use it in place, by DLPack (``numpy.from_dlpack(t)``,
    ``torch.from_dlpack(t)``, ...) or by NumPy's and CUDA's array interfaces (``numpy.asarray(t)``).
    """

    __slots__ = ("_kind", "_memory", "_rank", "_shape", "_world", "__weakref__")

    def __init__(
        self,
        world: World,
        memory: _crosswarp.Memory,
        rank: int,
        shape: tuple[int, ...],
        kind: _dtypes.DType,
    ) -> None:
        self._world = world
        self._memory = memory
        self._rank = rank
        self._shape = shape
        self._kind = kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> str:
        return self._kind.name

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    @property
    def device(self) -> str:
        return self._world.device

    @property
    def symmetric(self) -> bool:
        """Whether all ranks have it: collectives use it in place."""
        return self._memory.symmetric

    @property
    def rank(self) -> int:
        """Whose memory it is."""
        return self._rank

    def peer(self, rank: int) -> Tensor:
        """Another rank's, to be read and written from here. Nothing orders that with what the
        other does, unless both meet (``World.barrier``)."""
        if not self.symmetric:
            raise ValueError("Tensor.peer: other ranks do not have this memory")
        if not self._world.is_mapped(rank):
            raise ValueError(
                f"Tensor.peer: the memory of rank {rank} is not mapped here ({self._world.path_to(rank)})"
            )
        return Tensor(self._world, self._memory, rank, self._shape, self._kind)

    def numpy(self) -> Any:
        """As NumPy's array, without a copy; on a CPU."""
        import numpy

        if self.device != "cpu":
            raise TypeError(
                f"Tensor.numpy: the memory is on {self.device}; cupy.from_dlpack takes it"
            )
        if self._kind.typestr is not None:
            return numpy.asarray(_Interface(self, self._kind.typestr, self._shape))
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(f"Tensor.numpy: {self.dtype} needs the package ml_dtypes") from None
        plain = numpy.asarray(_Interface(self, f"<u{self._kind.bits // 8}", self._shape))
        return plain.view(getattr(ml_dtypes, self.dtype))

    def _address(self) -> int:
        return self._memory.address(self._rank)

    def _array_interface(self, typestr: str) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self._shape,
            "typestr": typestr,
            "data": (self._address(), False),
        }

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device != "cpu" or self._kind.typestr is None:
            raise AttributeError("__array_interface__")  # NumPy then asks __array__
        return self._array_interface(self._kind.typestr)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError("Tensor.__array__: another type needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device == "cpu" or self._kind.typestr is None:
            raise AttributeError("__cuda_array_interface__")
        return self._array_interface(self._kind.typestr)

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        """Nothing is waited for: who wrote the memory on a stream orders the reader after that."""
        array = self._memory.array(
            self, list(self._shape), self._kind.code, self._kind.bits, self._rank
        )
        return array.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.device == "cpu":
            return (1, 0)
        return (2, int(self.device.rpartition(":")[2]))

    def __crosswarp_array__(self) -> _arrays.Array:
        return _arrays.Array(
            self, "crosswarp", self._address(), self._shape, self.dtype, self._kind.bits // 8,
            self.device, True, True,
        )  # fmt: skip

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a tensor without dimensions")
        return self._shape[0]

    def __repr__(self) -> str:
        whose = f", of rank {self._rank}" if self.symmetric else ""
        return f"<crosswarp.Tensor {self.dtype}{list(self._shape)} on {self.device}{whose}>"


class _Interface:
    """A tensor's memory with another type, for NumPy; keeps the tensor."""

    def __init__(self, of: Tensor, typestr: str, shape: tuple[int, ...]) -> None:
        self.of = of
        self.__array_interface__ = of._array_interface(typestr)


def run(
    ranks: int, function: Callable[[World], T], *, device: str | None = None,
    heap: int | None = None, timeout: float | None = None,
) -> list[T]:  # fmt: skip
    """Calls ``function(world)`` for this rank of the launcher's job, or without a launcher for so
    many ranks, each a thread of this process; returns what the calls of this process returned, by
    rank. When one raises, the others' waits end, and what was raised first is raised here.

    The world ends with the function: arrays in its symmetric memory may not outlive it.
    """
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"run: {ranks!r} ranks; at least one is needed")
    if not callable(function):
        raise TypeError(f"run: {type(function).__name__} cannot be called")
    results: dict[int, T] = {}
    dropped = []  # lives until the worlds have ended

    def rank_main(native: _crosswarp.World) -> None:
        world = World._adopt(native)
        dropped.append(world._dropped)
        try:
            results[native.rank] = function(world)
        except BaseException as failure:
            if native.in_use:  # who prints the variables of these frames must not read that memory
                traceback.clear_frames(failure.__traceback__)
            raise
        finally:
            world._closed = True
        if native.in_use:
            gc.collect()
        if native.in_use:
            results.pop(native.rank)
            raise BufferError(
                f"run: rank {native.rank} is done, but {native.in_use} of its symmetric tensors are "
                "still in use; return copies"
            )

    _crosswarp.run(ranks, rank_main, *_checked_options(device, heap, timeout))
    return [results[r] for r in sorted(results)]


def _checked_options(
    device: str | None, heap: int | None, timeout: float | None
) -> tuple[str | None, int | None, float | None]:
    if device is not None and not isinstance(device, str):
        raise TypeError(f"device: a name such as 'cpu' or 'cuda:0', not {type(device).__name__}")
    if heap is not None:
        if isinstance(heap, bool) or not isinstance(heap, int):
            raise TypeError(f"heap: a number of bytes, not {type(heap).__name__}")
        if heap <= 0:
            raise ValueError(f"heap: {heap} bytes")
    if timeout is not None:
        timeout = float(timeout)
        if not 0 < timeout <= 365 * 24 * 3600:
            raise ValueError(f"timeout: {timeout} is not from 0 to a year, in seconds")
    return device, heap, timeout


def _checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    for n in lengths:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"shape {shape!r}: lengths are integers")
        if n < 0:
            raise ValueError(f"shape {shape!r}: a length is negative")
    return tuple(int(n) for n in lengths)
