"""Element types by name, as NumPy, ml_dtypes, JAX and PyTorch call them."""

from __future__ import annotations

from typing import Any, NamedTuple


class DType(NamedTuple):
    name: str
    code: int  # DLPack's
    bits: int
    reduction: int | None  # crosswarp::data_type; None: can be moved, not reduced
    typestr: str | None  # of NumPy's array interface; None: NumPy alone does not know it


_all = (
    DType("float64", 2, 64, 0, "<f8"),
    DType("float32", 2, 32, 1, "<f4"),
    DType("float16", 2, 16, 2, "<f2"),
    DType("bfloat16", 4, 16, 3, None),
    DType("float8_e4m3fn", 10, 8, 4, None),
    DType("float8_e5m2", 12, 8, 5, None),
    DType("int32", 0, 32, 6, "<i4"),
    DType("int64", 0, 64, 7, "<i8"),
    DType("int8", 0, 8, None, "|i1"),
    DType("int16", 0, 16, None, "<i2"),
    DType("uint8", 1, 8, None, "|u1"),
    DType("uint16", 1, 16, None, "<u2"),
    DType("uint32", 1, 32, None, "<u4"),
    DType("uint64", 1, 64, None, "<u8"),
    DType("bool", 6, 8, None, "|b1"),
    DType("complex64", 5, 64, None, "<c8"),
    DType("complex128", 5, 128, None, "<c16"),
)
by_name = {t.name: t for t in _all}
by_code = {(t.code, t.bits): t for t in _all}
_python = {float: "float64", int: "int64", bool: "bool", complex: "complex128"}

#: What can be reduced.
reducible = tuple(t.name for t in _all if t.reduction is not None)

#: What a reduction does; the places are those of crosswarp::coll_op.
ops = {
    name: i
    for i, name in enumerate(("sum", "prod", "min", "max", "avg", "bit_and", "bit_or", "bit_xor"))
}
_bit_ops = ("bit_and", "bit_or", "bit_xor")


def name_of(dtype: Any) -> str:
    """The name of a dtype of any framework, of a scalar type, or of a name."""
    if dtype in _python:
        return _python[dtype]
    if isinstance(dtype, str):
        name = dtype
    elif isinstance(dtype, type):
        name = dtype.__name__  # numpy.float32, ml_dtypes.bfloat16
    else:
        name = getattr(dtype, "name", None) or str(dtype)  # numpy.dtype; torch.float32
    return name.rpartition(".")[2]


def parse(dtype: Any) -> DType:
    name = name_of(dtype)
    if name not in by_name:
        raise TypeError(f"dtype {dtype!r} is none of {', '.join(by_name)}")
    return by_name[name]


#: What a sum can go on with in the same kernel, and what it can be rounded to.
_row_elements = ("float32", "float16", "bfloat16")
_narrow = ("float8_e4m3fn", "float8_e5m2")


def _number(name: str) -> int:
    number = by_name[name].reduction
    assert number is not None
    return number


def check_rows(call: str, name: str) -> int:
    """The number of a type whose sums can be normalised or quantised."""
    if name not in _row_elements:
        raise TypeError(f"{call}: elements of {name}; it knows {', '.join(_row_elements)}")
    return _number(name)


def check_narrow(call: str, dtype: Any) -> tuple[str, int]:
    """The name and the number of a type that sums are quantised to."""
    name = name_of(dtype)
    if name not in _narrow:
        raise TypeError(f"{call}: to {dtype!r}; sums are quantised to {', '.join(_narrow)}")
    return name, _number(name)


def check_reduction(call: str, name: str, op: str) -> tuple[int, int]:
    """The numbers of a type and an operation that go together."""
    if not isinstance(op, str) or op not in ops:
        raise ValueError(f"{call}: op {op!r} is none of {', '.join(ops)}")
    known = by_name.get(name)
    if known is None or known.reduction is None:
        raise TypeError(f"{call}: elements of {name}; reductions know {', '.join(reducible)}")
    if op in _bit_ops and not name.startswith("int"):
        raise TypeError(f"{call}: {op} of {name}; operations on bits know int32, int64")
    return known.reduction, ops[op]
