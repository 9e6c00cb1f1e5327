"""Element types by name. Names are PyTorch's (`float32` is `torch.float32`), so no table maps one to the other.

The loop IR and everything below it know element types as these strings and never import torch.
"""

from __future__ import annotations

from typing import Final

ITEM_SIZE_BYTES: Final[dict[str, int]] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1,
    "bool": 1,
    "complex128": 16, "complex64": 8, "complex32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip

SHORT: Final[dict[str, str]] = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "bool": "b8",
    "complex128": "c128", "complex64": "c64", "complex32": "c32",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2",
}  # fmt: skip

FLOATING: Final = frozenset({"float64", "float32", "float16", "bfloat16"})
SIGNED: Final = frozenset({"int64", "int32", "int16", "int8"})
UNSIGNED: Final = frozenset({"uint64", "uint32", "uint16", "uint8"})
INTEGRAL: Final = SIGNED | UNSIGNED
#: What kernels compute with. Operators on other types (complex) go to ATen.
NATIVE: Final = FLOATING | INTEGRAL | {"bool"}
#: What kernels only load, store and take the bits of: conversions are made of integer operations (`lower/float8.py`).
FLOAT8: Final = frozenset({"float8_e4m3fn", "float8_e5m2"})
STORED: Final = NATIVE | FLOAT8


def compute_dtype(dtype: str) -> str:
    """The type arithmetic on `dtype` is done in: half types compute in float32, as ATen's opmath type does."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


#: The largest finite value.
_LARGEST: Final[dict[str, float]] = {
    "float64": (2 - 2**-52) * 2.0**1023, "float32": (2 - 2**-23) * 2.0**127, "float16": 65504.0,
    "bfloat16": (2 - 2**-7) * 2.0**127,
    "int64": 2**63 - 1, "int32": 2**31 - 1, "int16": 2**15 - 1, "int8": 127,
    "uint64": 2**64 - 1, "uint32": 2**32 - 1, "uint16": 2**16 - 1, "uint8": 255, "bool": 1,
}  # fmt: skip


def is_in_range(dtype: str, of: str) -> bool:
    """Whether each value of type `dtype` lies in the range of the type `of`: no conversion of one overflows. All values
    have a truth value, so the range of bool holds them."""
    if dtype == of or of == "bool":
        return True
    if dtype not in _LARGEST or of not in _LARGEST:
        return False
    if (dtype in FLOATING and of not in FLOATING) or (dtype in SIGNED and of in UNSIGNED):
        return False
    return _LARGEST[dtype] <= _LARGEST[of]
