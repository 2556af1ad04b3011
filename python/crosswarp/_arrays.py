"""What the library needs to know about other people's arrays, and new ones of the same kind.

No framework is imported here: who passes an array has imported its framework.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from . import _crosswarp, _dtypes, _streams

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13  # DLPack's device types


class Array:
    """One argument of a call."""

    __slots__ = (
        "address", "contiguous", "device", "dtype", "itemsize", "keep", "kind", "shape", "writable",
    )  # fmt: skip

    def __init__(
        self, keep: Any, kind: str, address: int, shape: tuple[int, ...], dtype: str,
        itemsize: int, device: str, contiguous: bool, writable: bool,
    ) -> None:  # fmt: skip
        self.keep = keep  # what has to live as long as the address is used
        self.kind = kind
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.itemsize = itemsize
        self.device = device
        self.contiguous = contiguous
        self.writable = writable

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.count * self.itemsize

    def overlaps(self, other: Array) -> bool:
        return (
            self.address < other.address + other.nbytes
            and other.address < self.address + self.nbytes
        )


def kind_of(x: Any) -> str:
    """Whose array it is: numpy, torch, cupy, jax, crosswarp, or dlpack for any other."""
    for module, name in (
        ("numpy", "ndarray"),
        ("torch", "Tensor"),
        ("cupy", "ndarray"),
        ("jax", "Array"),
    ):
        framework = sys.modules.get(module)
        array = getattr(framework, name, None)
        if array is not None and isinstance(x, array):
            return module
    return "crosswarp" if hasattr(x, "__crosswarp_array__") else "dlpack"


def describe(x: Any, call: str, stream: int = -1) -> Array:
    """Raises TypeError for what is no array. `stream`: where DLPack's producers have to be done by;
    -1: they need not care."""
    kind = kind_of(x)
    if kind == "crosswarp":
        own: Array = x.__crosswarp_array__()
        return own
    if kind == "numpy":
        return _describe_numpy(x, call)
    if kind == "torch":
        return _describe_torch(x, call)
    return _describe_dlpack(x, kind, call, stream)


def _describe_numpy(x: Any, call: str) -> Array:
    dtype = x.dtype
    if dtype.hasobject:
        raise TypeError(f"{call}: an array of Python objects")
    if not dtype.isnative:
        raise TypeError(f"{call}: elements of another byte order ({dtype.str})")
    flags = x.flags
    address = x.__array_interface__["data"][0]
    return Array(
        x, "numpy", address, x.shape, dtype.name, x.itemsize, "cpu",
        flags.c_contiguous, flags.writeable,
    )  # fmt: skip


def _describe_torch(x: Any, call: str) -> Array:
    torch = sys.modules["torch"]
    if x.layout is not torch.strided:
        raise TypeError(f"{call}: a tensor of layout {x.layout}")
    where = x.device
    if where.type not in ("cpu", "cuda"):
        raise TypeError(f"{call}: a tensor on {where}")
    if x.is_conj() or x.is_neg():  # a view, whose memory has the numbers before that
        how = "resolve_conj" if x.is_conj() else "resolve_neg"
        raise TypeError(f"{call}: a tensor whose memory has other numbers; pass its {how}()")
    address = x.data_ptr()
    if address == 0 and x.numel() > 0:
        raise TypeError(f"{call}: a tensor without memory ({type(x).__name__})")
    device = "cpu" if where.type == "cpu" else f"cuda:{where.index}"
    return Array(
        x, "torch", address, tuple(x.shape), _dtypes.name_of(x.dtype), x.element_size(),
        device, x.is_contiguous(), True,
    )  # fmt: skip


def _describe_dlpack(x: Any, kind: str, call: str, stream: int) -> Array:
    source = x
    if hasattr(x, "__dlpack_device__"):
        on_gpu = x.__dlpack_device__()[0] in (_CUDA, _CUDA_MANAGED)
        if on_gpu:
            # JAX knows no stream -1; it waits itself when it is told of none.
            source = x.__dlpack__() if stream < 0 and kind == "jax" else x.__dlpack__(stream=stream)
    try:
        address, shape, contiguous, code, bits, where, ordinal, writable = _crosswarp.describe(
            source
        )
    except (TypeError, RuntimeError, BufferError):
        raise TypeError(
            f"{call}: {type(x).__name__} is no array that DLPack or a buffer describes"
        ) from None
    if where not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise TypeError(f"{call}: an array on DLPack's device type {where}")
    if bits % 8:
        raise TypeError(f"{call}: elements of {bits} bits")
    known = _dtypes.by_code.get((code, bits))
    return Array(
        (x, source), kind, address, shape, known.name if known else f"DLPack's type {code}",
        bits // 8, f"cuda:{ordinal}" if where in (_CUDA, _CUDA_MANAGED) else "cpu", contiguous,
        writable and kind != "jax",  # whose arrays never change
    )  # fmt: skip


def empty(
    like: Array, shape: tuple[int, ...], world: Any, *, stream: int | None = None,
    dtype: str | None = None,
) -> Any:  # fmt: skip
    """A new array of the same kind and place, of the same type unless another is named. `stream`: the
    one that writes it, where that is not the framework's current one."""
    x = like.keep
    if like.kind == "numpy":
        return sys.modules["numpy"].empty(shape, _numpy_dtype(dtype) if dtype else x.dtype)
    if like.kind == "torch":
        return _empty_torch(like, shape, stream, dtype)
    if like.kind == "cupy":
        if dtype is not None and dtype.startswith("float8"):
            dtype = "uint8"  # it knows no other name for these bits
        with _streams.allocating("cupy", like.device, stream):
            return sys.modules["cupy"].empty(shape, dtype or x[0].dtype)
    if like.kind == "crosswarp" and x.symmetric:
        return world.empty(shape, dtype or like.dtype)
    return world.private(shape, dtype or like.dtype)


def _numpy_dtype(name: str) -> Any:
    if _dtypes.by_name[name].typestr is not None:
        return name
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"arrays of {name} need the package ml_dtypes") from None
    return getattr(ml_dtypes, name)


def _empty_torch(like: Array, shape: tuple[int, ...], stream: int | None, dtype: str | None) -> Any:
    torch = sys.modules["torch"]
    kind = getattr(torch, dtype) if dtype else like.keep.dtype
    where = like.keep.device
    with _streams.allocating("torch", like.device, stream):
        new = torch.empty(shape, dtype=kind, device=where)
    if stream is not None:
        # Who made the call goes on with it where its work is; until that is done, too, the memory is
        # not for the next result on `stream`.
        new.record_stream(torch.cuda.current_stream(where))
    return new


def returned(out: Any, kind: str) -> Any:
    """A result in memory of ours, as its framework's array; any other as it is."""
    if kind == "jax" and hasattr(out, "__crosswarp_array__"):
        import jax

        return jax.dlpack.from_dlpack(out)
    return out


def synchronize(device: str) -> None:
    """Waits for what frameworks have queued on a GPU: before memory is given back."""
    if device == "cpu":
        return
    ordinal = int(device.rpartition(":")[2])
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize(ordinal)
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        with cupy.cuda.Device(ordinal):
            cupy.cuda.runtime.deviceSynchronize()
