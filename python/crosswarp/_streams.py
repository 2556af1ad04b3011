"""Streams of CUDA, by any name that a framework has for them."""

from __future__ import annotations

import sys
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
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return None
