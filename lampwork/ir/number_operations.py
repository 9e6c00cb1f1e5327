"""The operations that expressions of numbers are made of: one row each, with all that any stage asks of it.

    add         (a + b)              of integers an integer, else a float; never raises; the graph has it
    math.sqrt   math.sqrt(a)         a float; raises below zero; the graph has it
    round       round(a), round(a, n)

`OPERATIONS` has them by name, `operation_of` by Python's own function. `RELATIONS` are the comparisons. No torch: the
graph's operators are named.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable
from typing import Any

#: Classes of numbers, by the names that expressions have for them.
KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool}


def single(value: float) -> float:
    """`value` rounded to single precision, as a tensor of float32 stores it."""
    return ctypes.c_float(value).value


def is_float(value: object) -> bool:
    """Whether it is a float, and not an integer or a complex number."""
    return type(value) is float


def real_power(base: float, exponent: float) -> float:
    """`base ** exponent`. Raises ValueError where that is no real number."""
    found = base**exponent
    if type(found) is not float:
        raise ValueError("a power is complex")
    return found


def total(*values: Any) -> Any:
    """`sum(values)`, by Python's own rules, which differ between versions."""
    return sum(values)


class NumberOperation:
    """One row.

    `function`: Python's own. `python`: its text, with a place for each argument; a name is called with all of them.
    `kind`: the class of the result for those of the arguments, None where values decide that.
    `raises`: "never" for numbers that are floats or fit in one; "zero" where the last argument is zero; "maybe".
    `in_graph`: what computes the same bits of float64 tensors, "operator.x" or "torch.x"; "" if only the host does.
    `inplace`: the function of the statement `a += b`.
    """

    __slots__ = ("name", "function", "python", "kind", "raises", "in_graph", "inplace")

    def __init__(
        self, name: str, function: Callable[..., Any], python: str, kind: Callable[..., str | None], raises: str,
        in_graph: str = "", inplace: Callable[..., object] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.function, self.python, self.kind = name, function, python, kind
        self.raises, self.in_graph, self.inplace = raises, in_graph, inplace

    def text(self, args: list[str]) -> str:
        """The operation on what these texts stand for."""
        return self.python.format(*args) if "{" in self.python else f"{self.python}({', '.join(args)})"


# Classes of results --------------------------------------------------------------------------------------------------


def _wider(*kinds: str) -> str:
    return "float" if "float" in kinds else "int"


def _float(*kinds: str) -> str:
    return "float"


def _int(*kinds: str) -> str:
    return "int"


def _bool(*kinds: str) -> str:
    return "bool"


def _unknown(*kinds: str) -> None:
    """Powers are integers, floats or complex numbers."""
    return None


def _one_of(*kinds: str) -> str | None:
    return kinds[0] if len(set(kinds)) == 1 else None


def _rounded(kind: str, digits: str = "") -> str:
    return "float" if digits and kind == "float" else "int"


# The table -----------------------------------------------------------------------------------------------------------

_O, _M = operator, math
_ROWS: tuple[tuple[Any, ...], ...] = (
    ("add", _O.add, "({} + {})", _wider, "never", "operator.add", _O.iadd),
    ("sub", _O.sub, "({} - {})", _wider, "never", "operator.sub", _O.isub),
    ("mul", _O.mul, "({} * {})", _wider, "never", "operator.mul", _O.imul),
    ("truediv", _O.truediv, "({} / {})", _float, "zero", "operator.truediv", _O.itruediv),
    ("floordiv", _O.floordiv, "({} // {})", _wider, "zero", "", _O.ifloordiv),
    ("mod", _O.mod, "({} % {})", _wider, "zero", "", _O.imod),
    ("pow", _O.pow, "({} ** {})", _unknown, "maybe", "torch.pow", _O.ipow),
    ("neg", _O.neg, "(-{})", _wider, "never", "torch.neg"),
    ("pos", _O.pos, "(+{})", _wider, "never"),
    ("invert", _O.invert, "(~{})", _int, "never"),
    ("not", _O.not_, "not {}", _bool, "never"),
    ("is_float", is_float, "type({}) is float", _bool, "never"),
    ("single", single, "single", _float, "never"),
    ("real_power", real_power, "real_power", _float, "maybe"),
    ("total", total, "total", _wider, "never"),
    ("bool", bool, "bool", _bool, "never"),
    ("abs", abs, "abs", _wider, "never", "torch.abs"),
    ("min", min, "min", _one_of, "never"),
    ("max", max, "max", _one_of, "never"),
    ("float", float, "float", _float, "never"),
    ("int", int, "int", _int, "maybe"),
    ("round", round, "round", _rounded, "maybe"),
    ("math.floor", _M.floor, "math.floor", _int, "maybe"),
    ("math.ceil", _M.ceil, "math.ceil", _int, "maybe"),
    ("math.trunc", _M.trunc, "math.trunc", _int, "maybe"),
    ("math.isnan", _M.isnan, "math.isnan", _bool, "never", "torch.isnan"),
    ("math.isinf", _M.isinf, "math.isinf", _bool, "never", "torch.isinf"),
    ("math.isfinite", _M.isfinite, "math.isfinite", _bool, "never", "torch.isfinite"),
    ("math.isclose", _M.isclose, "math.isclose", _bool, "never"),
    ("math.fabs", _M.fabs, "math.fabs", _float, "never"),
    ("math.tanh", _M.tanh, "math.tanh", _float, "never", "torch.tanh"),
    ("math.atan", _M.atan, "math.atan", _float, "never"),
    ("math.copysign", _M.copysign, "math.copysign", _float, "never"),
    ("math.sqrt", _M.sqrt, "math.sqrt", _float, "maybe", "torch.sqrt"),
    ("math.exp", _M.exp, "math.exp", _float, "maybe", "torch.exp"),
    ("math.log", _M.log, "math.log", _float, "maybe", "torch.log"),
    ("math.sin", _M.sin, "math.sin", _float, "maybe", "torch.sin"),
    ("math.cos", _M.cos, "math.cos", _float, "maybe", "torch.cos"),
    *[
        (f"math.{name}", getattr(math, name), f"math.{name}", _float, "maybe")
        for name in (
            "tan", "log2", "log10", "log1p", "expm1", "pow", "hypot", "erf", "erfc", "atan2", "asin", "acos", "sinh",
            "cosh", "asinh", "acosh", "atanh", "exp2", "cbrt", "fmod", "remainder", "gamma", "lgamma", "radians",
            "degrees",
        )
    ],
)  # fmt: skip

OPERATIONS: dict[str, NumberOperation] = {row[0]: NumberOperation(*row) for row in _ROWS}
_BY_FUNCTION: dict[Any, NumberOperation] = {each.function: each for each in OPERATIONS.values()}
_BY_FUNCTION |= {each.inplace: each for each in OPERATIONS.values() if each.inplace is not None}


def operation_of(function: object) -> NumberOperation | None:
    """The operation that Python's `function` computes, in place or not; None where it is none of them."""
    try:
        return _BY_FUNCTION.get(function)
    except TypeError:  # a callable without a hash
        return None


#: Arithmetic that statements such as `a += b` have, too.
ARITHMETIC = frozenset({each.function for each in OPERATIONS.values() if each.inplace is not None})
#: Functions that programs call.
FUNCTIONS = frozenset({each.function for each in OPERATIONS.values() if "{" not in each.python}) - {
    single, real_power, total, bool,
}  # fmt: skip
#: Those of one number, with which it is not converted.
FUNCTIONS_OF_ONE = FUNCTIONS - {
    min, max, float, int, round, math.isclose, math.copysign, math.pow, math.hypot, math.fmod, math.atan2,
    math.remainder,
}  # fmt: skip

#: Comparisons, by how Python writes them.
RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
#: How Python writes a comparison.
RELATION_OF: dict[Any, str] = {function: relation for relation, function in RELATIONS.items()}

#: What texts of expressions name, beside the numbers.
NAMES: dict[str, Any] = {
    "math": math, "single": single, "min": min, "max": max, "abs": abs, "float": float, "int": int, "type": type,
    "round": round, "real_power": real_power, "total": total, "bool": bool,
}  # fmt: skip
