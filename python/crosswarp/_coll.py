"""Collectives of any framework's arrays."""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import index
from typing import Any, NamedTuple

from . import _arrays, _crosswarp, _dtypes, _streams
from ._arrays import Array
from ._crosswarp import Error
from ._world import Dropped, World


class Choice(NamedTuple):
    """What an all_reduce does, and why."""

    algorithm: str
    blocks: int
    direct: bool  # on symmetric or registered memory, without a copy
    why: str


class Quantised(NamedTuple):
    """What comes of all_reduce_quantise."""

    out: Any  # in FP8
    scales: Any  # float32, one for each row; None where all have the one that was given
    sum: Any  # as all_reduce gives it


class _Place(NamedTuple):
    """Where a call is queued."""

    stream: int | None = None  # a cudaStream_t; None: the world's own stream
    wait: bool = False  # the caller's framework cannot be told to wait, so the host does
    ready: int = -1  # the stream, as DLPack counts them, that waits for its producers; -1: none
    # On a stream that the caller named: what the call uses. The framework may give that memory to
    # work on another stream as soon as nobody refers to it.
    used: list[Any] | None = None


class _Message(NamedTuple):
    """From rank to rank."""

    is_sent: bool
    array: Any
    rank: int  # the other one
    name: str  # of the argument


class Coll:
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

    def __init__(self, world: World, *, algorithm: str = "automatic") -> None:
        if not isinstance(world, World):
            raise TypeError(f"Coll: a World is needed, not {type(world).__name__}")
        self._world = world
        native = world._alive("Coll")
        world._before_giving_back()
        self._native = _crosswarp.Coll(native, algorithm)
        world._after_giving_back()
        self._last = _Place()  # of the last call
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

    # ---- of uneven parts: counts[r] rows of rank r, along the first dimension, one rank's after the
    #      other's; all ranks pass the same counts

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

    # ---- sums that go on in the same kernel, as in tensor-parallel inference: rows are along the last
    #      dimension, of float32, float16 or bfloat16; a row has the same bits alone and in any batch

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

    # ---- from rank to rank; the others have nothing to do with it

    def send(self, data: Any, to: int, *, stream: Any = None) -> None:
        """To rank ``to``, which receives as many bytes; messages of two ranks match in the order in
        which each of them makes the calls. Ranks that send to each other, or in a circle, do it by
        ``exchange``: here each would wait for the other."""
        call = "send"
        rank = self._other(call, to, "to")
        self._exchange(call, [_Message(True, data, rank, "data")], stream)

    def receive(self, out: Any, source: int, *, stream: Any = None) -> Any:
        """What rank ``source`` sends, in ``out``."""
        call = "receive"
        rank = self._other(call, source, "source")
        return self._exchange(call, [_Message(False, out, rank, "out")], stream)[0]

    def exchange(
        self,
        sends: Iterable[tuple[Any, int]] = (),
        receives: Iterable[tuple[Any, int]] = (),
        *,
        stream: Any = None,
    ) -> list[Any]:
        """Messages that are under way at once: arrays, each with the rank it goes to or comes from.
        They match those of ``send`` and ``receive``, too, for each pair of ranks in the order given.
        Returns the arrays that were received."""
        call = "exchange"
        messages = self._pairs(call, sends, "sends") + self._pairs(call, receives, "receives")
        return self._exchange(call, messages, stream)

    def barrier(self, *, stream: Any = None) -> None:
        """All ranks' streams wait for each other here; the stream of the last call, unless another
        is named."""
        self._native.barrier(self._place("barrier", stream).stream)

    # ---- memory that all_reduce is to use in place, as it does a World.empty. All of these are
    #      collective, and raise on all ranks or on none.

    def register_buffer(self, x: Any) -> None:
        """From now on, any part of this array's memory is used in place. Each rank passes an array
        of its own, of equal length; it is kept until it is unregistered. A ``World.empty`` needs no
        registering.

        Raises Error, with code "not_supported" and what to do, for memory that other ranks cannot be
        given: between processes that is all but memory of ``cudaMalloc`` (PyTorch's, unless its
        segments are expandable) and whole pages of a CPU.
        """
        a = self._input("register_buffer", x, _Place(), "x")
        if not a.writable:
            raise ValueError("register_buffer: the array cannot be written")
        _arrays.synchronize(self._world.device)
        self._native.register_buffer(a.address, a.nbytes)
        self._registered[a.address] = x

    def unregister_buffer(self, x: Any) -> None:
        """``x``: what was registered. What was captured with it may not be replayed any more."""
        a = self._input("unregister_buffer", x, _Place(), "x")
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

    # ---- what became of it

    def check(self, *, stream: Any = None) -> None:
        """Waits for the stream, that of the last call unless another is named. Raises what has gone
        wrong in any call so far; then this object is of no more use."""
        self._native.check(self._place("check", stream).stream)

    def explain(self, inp: Any, out: Any = None) -> Choice:
        """What all_reduce does for these, and why. ``out``: ``inp`` unless given."""
        a = self._input("explain", inp, _Place())
        b = a if out is None else self._input("explain", out, _Place(), "out")
        return Choice(*self._native.explain(b.address, a.address, a.nbytes))

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

    def __enter__(self) -> Coll:
        return self

    def __exit__(self, kind: Any, failure: BaseException | None, where: Any) -> None:
        if failure is None:
            self.close()
        else:
            self._let_go()  # the other ranks may be elsewhere: nobody waits for them

    # ---- arguments

    def _check_rank(self, call: str, rank: int, name: str = "root") -> None:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise TypeError(f"{call}: {name} is a rank, not {type(rank).__name__}")
        if not 0 <= rank < self.size:
            raise ValueError(f"{call}: {name} {rank}: there are {self.size} ranks")

    def _other(self, call: str, rank: int, name: str) -> int:
        self._check_rank(call, rank, name)
        if rank == self.rank:
            raise ValueError(f"{call}: {name} {rank} is this rank itself; copy instead")
        return rank

    def _pairs(self, call: str, pairs: Iterable[tuple[Any, int]], name: str) -> list[_Message]:
        """What is sent, or received, with names for errors."""
        messages = []
        for i, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"{call}: {name}[{i}] is no pair of an array and a rank")
            rank = self._other(call, pair[1], f"the rank of {name}[{i}]")
            messages.append(_Message(name == "sends", pair[0], rank, f"{name}[{i}]"))
        return messages

    def _exchange(self, call: str, messages: list[_Message], stream: Any) -> list[Any]:
        """Returns what was received."""
        if not messages:
            return []
        place = self._place(call, stream, messages[0].array)
        arrays = [self._input(call, m.array, place, m.name) for m in messages]
        for i, (m, a) in enumerate(zip(messages, arrays, strict=True)):
            if m.is_sent:
                continue
            if not a.writable:
                raise ValueError(f"{call}: {m.name} cannot be written")
            for other, b in zip(messages[:i], arrays[:i], strict=True):
                if a.overlaps(b):
                    raise ValueError(f"{call}: {m.name} and {other.name} overlap")
        self._native.exchange(
            [
                (m.is_sent, a.address, a.nbytes, m.rank)
                for m, a in zip(messages, arrays, strict=True)
            ],
            place.stream,
        )
        self._queued(place)
        return [m.array for m in messages if not m.is_sent]

    def _place(self, call: str, stream: Any, *arrays: Any) -> _Place:
        device = self._world.device
        if device == "cpu":
            if stream is not None:
                raise ValueError(f"{call}: the world is on the CPU, which has no streams to name")
            return self._last
        if stream is not None:
            handle = _streams.handle_of(stream, call)
            self._last = _Place(handle, ready=handle or 1)  # 1: the default stream
            return self._last._replace(used=[])
        if arrays:
            self._last = self._place_of(arrays[0])
        return self._last

    def _place_of(self, x: Any) -> _Place:
        """In order with the framework whose array it is; where that has no stream, after it."""
        device = self._world.device
        kind = _arrays.kind_of(x)
        if kind == "crosswarp":
            _arrays.synchronize(device)  # whichever framework wrote it
        handle = _streams.current(kind, int(device.rpartition(":")[2]))
        if handle is not None:
            return _Place(handle)
        return _Place(wait=True, ready=self._world._native.stream())

    def _input(self, call: str, x: Any, place: _Place, name: str = "inp") -> Array:
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
        place: _Place,
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
        place: _Place,
        in_place: bool = False,
    ) -> tuple[int, Any]:
        """The same at the root; others' is not used."""
        if self.rank != root:
            return 0, None
        b, result = self._output(call, out, a, shape, place, in_place)
        return b.address, result

    def _rows(self, call: str, a: Array) -> tuple[int, int]:
        """How many, and elements of each."""
        if not a.shape or a.shape[-1] == 0:
            raise ValueError(f"{call}: inp of shape {list(a.shape)} has no rows of elements")
        return a.count // a.shape[-1], a.shape[-1]

    def _part(self, call: str, a: Array) -> tuple[int, ...]:
        if not a.shape or a.shape[0] % self.size:
            raise ValueError(
                f"{call}: the first dimension of {list(a.shape)} is no multiple of {self.size} ranks"
            )
        return (a.shape[0] // self.size, *a.shape[1:])

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

    def _whole(self, a: Array) -> tuple[int, ...]:
        return (self.size * a.shape[0], *a.shape[1:]) if a.shape else (self.size,)

    def _done(self, result: Any, a: Array, place: _Place) -> Any:
        self._queued(place)
        return _arrays.returned(result, a.kind)

    def _queued(self, place: _Place) -> None:
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

    def __repr__(self) -> str:
        return f"<crosswarp.Coll rank {self.rank} of {self.size} on {self._world.device}>"


def _drop(dropped: list[Dropped], what: Dropped) -> None:
    """A communicator that nobody refers to any more. At any time and in any thread, so nothing is
    waited for."""
    if (what.registered or what.under_way) and not what.native.given_back:
        dropped.append(what)
    what.native.close()


def _check_apart(call: str, **two: Array) -> None:
    (one, a), (other, b) = two.items()
    if a.overlaps(b):
        raise ValueError(f"{call}: {one} and {other} overlap")


def _spread(rows: list[int], row: int) -> tuple[list[int], list[int]]:
    """Counts and places, in what a row is counted in."""
    counts = [n * row for n in rows]
    return counts, [0, *accumulate(counts)][: len(counts)]
