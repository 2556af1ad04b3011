"""Streams of CUDA, by any name that a framework has for them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


def handle_of(stream: Any, call: str) -> int:
    """The cudaStream_t of a number, of a framework's stream, or of anything with __cuda_stream__."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream < 0:
            raise ValueError(f"{call}: stream {stream} is no cudaStream_t")
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version_and_handle = protocol() if callable(protocol) else protocol
        return int(version_and_handle[1])
    for name in ("cuda_stream", "ptr"):  # torch.cuda.Stream; cupy.cuda.Stream
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    raise TypeError(
        f"{call}: {type(stream).__name__} is no stream: neither an int nor one with __cuda_stream__"
    )


def current(kind: str, ordinal: int) -> int | None:
    """Where a framework queues its work now; None when it does not tell."""
    if kind == "torch":
        return int(sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream)
    if kind == "cupy":
        cuda = sys.modules["cupy"].cuda
        with cuda.Device(ordinal):
            return int(cuda.get_current_stream().ptr)
    return None


@contextlib.contextmanager
def allocating(kind: str, device: str, stream: int | None) -> Iterator[None]:
    """What a framework allocates in this block is for a stream: its allocator gives out again at once
    what was freed, to whom it takes for the same stream. None: the current one."""
    ordinal = int(device.rpartition(":")[2]) if device != "cpu" else -1
    if ordinal < 0 or (stream is None and kind == "torch"):
        yield
    elif kind == "torch":
        cuda = sys.modules["torch"].cuda
        # 0 and 1 are CUDA's names for the default stream.
        on = (
            cuda.default_stream(ordinal)
            if stream in (0, 1)
            else cuda.ExternalStream(stream, ordinal)
        )
        with cuda.stream(on):
            yield
    else:
        cuda = sys.modules["cupy"].cuda
        with cuda.Device(ordinal):
            if stream is None:
                yield
                return
            with cuda.ExternalStream(stream):
                yield
