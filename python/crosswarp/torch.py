"""Collectives as PyTorch's own operations: ``torch.compile`` and CUDA graphs take them in.

    group = crosswarp.torch.add(crosswarp.Coll(world))

    @torch.compile
    def step(x):
        return crosswarp.torch.all_reduce(x * 2, group)

They are also ``torch.ops.crosswarp.all_reduce(x, group, "sum")`` and so on. A group is the number of
a communicator, since graphs of PyTorch hold numbers and not objects. Results are new tensors, those
of names that end in ``_`` aside. Gradients do not flow through them.
"""

from __future__ import annotations

import itertools
from typing import Optional

import torch

from ._coll import Coll

__all__ = [
    "add",
    "all_gather",
    "all_reduce",
    "all_reduce_",
    "all_reduce_quantise",
    "all_reduce_rms_norm",
    "all_reduce_rms_norm_",
    "all_to_all",
    "broadcast_",
    "reduce_scatter",
    "remove",
]

_groups: dict[int, Coll] = {}
_numbers = itertools.count()


def add(coll: Coll) -> int:
    """The group of a communicator, for calls until remove(). The same number on all ranks that add
    the same communicators in the same order."""
    if not isinstance(coll, Coll):
        raise TypeError(f"crosswarp.torch.add: a Coll is needed, not {type(coll).__name__}")
    number = next(_numbers)
    _groups[number] = coll
    return number


def remove(group: int) -> None:
    """The communicator stays open."""
    _groups.pop(group, None)


def _coll(group: int) -> Coll:
    if group not in _groups:
        raise ValueError(f"crosswarp: no group {group}: crosswarp.torch.add() makes one")
    return _groups[group]


def _first_dimension(name: str, x: torch.Tensor, size: int) -> int:
    if x.dim() == 0 or x.shape[0] % size:
        raise ValueError(
            f"{name}: the first dimension of {list(x.shape)} is no multiple of {size} ranks"
        )
    return x.shape[0] // size


# The second of each pair is what torch.compile asks for the shape of the result.


@torch.library.custom_op("crosswarp::all_reduce", mutates_args=())
def all_reduce(inp: torch.Tensor, group: int, op: str = "sum") -> torch.Tensor:
    return _coll(group).all_reduce(inp.contiguous(), op=op)


@all_reduce.register_fake
def _(inp: torch.Tensor, group: int, op: str = "sum") -> torch.Tensor:
    return torch.empty_like(inp, memory_format=torch.contiguous_format)


@torch.library.custom_op("crosswarp::all_reduce_", mutates_args=("data",))
def all_reduce_(data: torch.Tensor, group: int, op: str = "sum") -> None:
    _coll(group).all_reduce(data, data, op=op)


@all_reduce_.register_fake
def _(data: torch.Tensor, group: int, op: str = "sum") -> None:
    return None


@torch.library.custom_op("crosswarp::reduce_scatter", mutates_args=())
def reduce_scatter(inp: torch.Tensor, group: int, op: str = "sum") -> torch.Tensor:
    return _coll(group).reduce_scatter(inp.contiguous(), op=op)


@reduce_scatter.register_fake
def _(inp: torch.Tensor, group: int, op: str = "sum") -> torch.Tensor:
    part = _first_dimension("reduce_scatter", inp, _coll(group).size)
    return inp.new_empty((part, *inp.shape[1:]))


@torch.library.custom_op("crosswarp::all_gather", mutates_args=())
def all_gather(inp: torch.Tensor, group: int) -> torch.Tensor:
    return _coll(group).all_gather(inp.contiguous())


@all_gather.register_fake
def _(inp: torch.Tensor, group: int) -> torch.Tensor:
    size = _coll(group).size
    return inp.new_empty((size * inp.shape[0], *inp.shape[1:]) if inp.dim() else (size,))


@torch.library.custom_op("crosswarp::all_to_all", mutates_args=())
def all_to_all(inp: torch.Tensor, group: int) -> torch.Tensor:
    return _coll(group).all_to_all(inp.contiguous())


@all_to_all.register_fake
def _(inp: torch.Tensor, group: int) -> torch.Tensor:
    _first_dimension("all_to_all", inp, _coll(group).size)
    return torch.empty_like(inp, memory_format=torch.contiguous_format)


# Sums that go on in the same kernel; see Coll.


@torch.library.custom_op("crosswarp::all_reduce_rms_norm", mutates_args=())
def all_reduce_rms_norm(
    inp: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    group: int,
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows, normalised; and the sum with the residual."""
    return _coll(group).all_reduce_rms_norm(
        inp.contiguous(), residual.contiguous(), weight.contiguous(), epsilon=epsilon
    )


@all_reduce_rms_norm.register_fake
def _(
    inp: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    group: int,
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.empty_like(inp, memory_format=torch.contiguous_format),
        torch.empty_like(inp, memory_format=torch.contiguous_format),
    )


@torch.library.custom_op("crosswarp::all_reduce_rms_norm_", mutates_args=("data", "residual"))
def all_reduce_rms_norm_(
    data: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    group: int,
    epsilon: float = 1e-6,
) -> None:
    _coll(group).all_reduce_rms_norm(
        data, residual, weight.contiguous(), data, residual, epsilon=epsilon
    )


@all_reduce_rms_norm_.register_fake
def _(
    data: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    group: int,
    epsilon: float = 1e-6,
) -> None:
    return None


@torch.library.custom_op("crosswarp::all_reduce_quantise", mutates_args=())
def all_reduce_quantise(
    inp: torch.Tensor, group: int, dtype: str = "float8_e4m3fn", scale: Optional[float] = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """In FP8; and the scales of rows, of which there are none when ``scale`` is given."""
    got = _coll(group).all_reduce_quantise(inp.contiguous(), dtype=dtype, scale=scale)
    scales = inp.new_empty(0, dtype=torch.float32) if got.scales is None else got.scales
    return got.out, scales


@all_reduce_quantise.register_fake
def _(
    inp: torch.Tensor, group: int, dtype: str = "float8_e4m3fn", scale: Optional[float] = None
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = inp.shape[:-1] if scale is None else (0,)
    return (
        inp.new_empty(inp.shape, dtype=getattr(torch, dtype)),
        inp.new_empty(rows, dtype=torch.float32),
    )


@torch.library.custom_op("crosswarp::broadcast_", mutates_args=("data",))
def broadcast_(data: torch.Tensor, group: int, root: int = 0) -> None:
    _coll(group).broadcast(data, root=root)


@broadcast_.register_fake
def _(data: torch.Tensor, group: int, root: int = 0) -> None:
    return None
