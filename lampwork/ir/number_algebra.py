"""The simplifier of expressions of numbers: constants are computed, integers are canonical, floats stay as written.

apply("add", s0 + 1, s0)        Integer(2*s0 + 1)
apply("truediv", s0, 2)         Apply("truediv", (Integer(s0), Constant(2)))
apply("mul", 2.0, 0.5)          1.0
compare("<", s0, s0 + 1)        True
"""

from __future__ import annotations

from collections.abc import Callable

from lampwork.ir import size as sizes
from lampwork.ir.number import Constant, Integer, Leaf, NumberExpr, applied, compared, constant, integer
from lampwork.ir.number_operations import OPERATIONS, RELATIONS
from lampwork.ir.size import Size, bounds

#: A number of the program, or an expression for one.
Number = int | float | bool | NumberExpr


def expression(number: Number) -> NumberExpr:
    """The number as an expression."""
    return number if isinstance(number, NumberExpr) else constant(number)


def apply(operation: str, *numbers: Number) -> Number:
    """What the operation makes of these: a number where all of them are and it does not raise, an integer expression
    where all of them are integers and it gives one, else the operation as it is written."""
    args = tuple(map(expression, numbers))
    values = [each.value for each in args if isinstance(each, Constant)]
    if len(values) == len(args):
        try:
            value = OPERATIONS[operation].function(*values)
        except (ArithmeticError, ValueError):
            return applied(operation, *args)
        return value if type(value) in (int, float, bool) else applied(operation, *args)
    combine = _INTEGERS.get(operation)
    parts = _as_sizes(args) if combine is not None else None
    if combine is not None and parts is not None:
        found, leaves = combine(*parts[0]), parts[1]
        if found is not None:
            return found if isinstance(found, int) else integer(found, leaves)
    return applied(operation, *args)


def compare(relation: str, *numbers: Number) -> bool | NumberExpr:
    """Whether the relation holds between each number and the next, where that is known for all numbers of a call."""
    args = tuple(map(expression, numbers))
    parts = _as_sizes(args)
    if parts is not None:
        differences = [sizes.add(left, sizes.mul(right, -1)) for left, right in zip(parts[0], parts[0][1:])]
        answers = [RELATIONS[relation](each, 0) for each in differences if isinstance(each, int)]
        if not all(answers) or len(answers) == len(differences):
            return all(answers)
    elif all(isinstance(each, Constant) for each in args):
        values = [each.value for each in args if isinstance(each, Constant)]
        return all(RELATIONS[relation](left, right) for left, right in zip(values, values[1:]))
    return compared(relation, *args)


def _as_sizes(args: tuple[NumberExpr, ...]) -> tuple[list[Size], dict[str, Leaf]] | None:
    """The arguments as sizes, and what their symbols are; None where one is no integer, or symbols clash."""
    leaves: dict[str, Leaf] = {}
    found: list[Size] = []
    for each in args:
        if isinstance(each, Integer):
            if any(leaves.setdefault(name, leaf) != leaf for name, leaf in each.symbols):
                return None
            found.append(each.size)
        elif isinstance(each, Constant) and type(each.value) is not float:
            found.append(int(each.value))
        else:
            return None
    return found, leaves


def _divided(function: Callable[[Size, Size], Size]) -> Callable[[Size, Size], Size | None]:
    """Divisors are positive, or the operation stays as it is written."""
    return lambda left, right: function(left, right) if bounds(right)[0] > 0 else None


_INTEGERS: dict[str, Callable[..., Size | None]] = {
    "add": sizes.add, "sub": lambda left, right: sizes.add(left, sizes.mul(right, -1)), "mul": sizes.mul,
    "neg": lambda value: sizes.mul(value, -1), "pos": lambda value: value,
    "floordiv": _divided(sizes.floordiv), "mod": _divided(sizes.mod), "int": lambda value: value,
}  # fmt: skip
