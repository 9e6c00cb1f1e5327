"""`NumberExpr`: expressions over numbers that a call has: sizes, floats from outside, what is in small tensors.

    lr * 0.9                Apply("mul", (Leaf(group["lr"], "value"), Constant(0.9)))
    2*s0 + 1                Integer(2*s0 + 1, s0: Leaf(argument 0, "shape", 0)): canonical, by `ir.size`
    2 <= s0 <= 9            Compare("<=", (2, s0, 9)): a chain, as Python has it

Guards, templates and sources hold them. An expression is printed as Python text once for each entry (`text`), or walked
(`evaluate`); `words` says it as the user would. `number_operations.py` has the operations.

Expressions are made by the functions here and in `number_algebra.py`. Equal ones are one object while one of them
lives, if their leaves' sources are; those that were read from a file compare equal by their parts. What is asked of a
part again and again is kept there. No torch, and nothing that a warm start without sizes would have to import.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from weakref import WeakValueDictionary

from lampwork.ir.number_operations import KINDS, OPERATIONS, RELATIONS
from lampwork.ir.record import record
from lampwork.ir.source import Source, describe
from lampwork.ir.stored import Identifier, OneOf, Operation

if TYPE_CHECKING:
    from lampwork.ir.size import SizeExpr


class NumberExpr:
    """Base of all expressions. Immutable and hashable."""

    __dict__: dict[str, Any]
    #: Of its class, which is a record.
    _names: ClassVar[tuple[str, ...]]

    def __getstate__(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in self._names}

    @property
    def kind(self) -> str | None:
        """The class of the number, "int", "float" or "bool"; None where the numbers in it decide that."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[NumberExpr, ...]:
        """The expressions that it is made of, in the order in which they are written."""
        return ()

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The numbers in it that a call has, each once, in the order in which they are written."""
        found = self.__dict__.get("_leaves")
        if found is None:
            every = [leaf for part in self.parts for leaf in part.leaves]
            found = self.__dict__["_leaves"] = tuple(dict.fromkeys(every))
        return found

    @property
    def nodes(self) -> int:
        """How many expressions it is written with."""
        found = self.__dict__.get("_nodes")
        if found is None:
            found = self.__dict__["_nodes"] = 1 + sum(part.nodes for part in self.parts)
        return found


def _hash(self: Any) -> int:
    kept = self.__dict__
    found = kept.get("_hash")
    if found is None:
        found = kept["_hash"] = hash((type(self), *[kept[name] for name in self._names]))
    return found


@record
class Leaf(NumberExpr):
    """A number of the call, of the class `of`. `read`: the "shape" or "stride" of dimension `axis` of the tensor at
    `source`, its storage "offset", the "value" at `source` itself (an int or float), or the "item" of the tensor of one
    element there."""

    source: Source
    read: Annotated[str, OneOf("shape", "stride", "offset", "value", "item")]
    axis: int = 0
    of: Annotated[str, OneOf("int", "float", "bool")] = "int"

    __hash__ = _hash

    @property
    def kind(self) -> str:
        return self.of

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self,)

    def words(self) -> str:
        """The number as the user would write it: `argument 0.size(1)`."""
        where = describe(self.source)
        if self.read in ("offset", "item"):
            return f"{where}.{'storage_offset' if self.read == 'offset' else 'item'}()"
        return where if self.read == "value" else f"{where}.{'size' if self.read == 'shape' else 'stride'}({self.axis})"

    def text(self, value: str) -> str:
        """The Python expression for the number, where `value` is that for what is at the source."""
        if self.read == "item":
            return f"{value}.item()"
        if self.read == "shape":
            return f"{value}.shape[{self.axis}]"
        if self.read == "stride":
            return f"{value}.stride({self.axis})"
        return f"{value}.storage_offset()" if self.read == "offset" else value

    def number(self, value: Any) -> Any:
        """The number, where `value` is what is at the source."""
        if self.read == "item":
            return value.item()
        if self.read == "shape":
            return value.shape[self.axis]
        if self.read == "stride":
            return value.stride(self.axis)
        return value.storage_offset() if self.read == "offset" else value


@record
class Constant(NumberExpr):
    """A number that the program has. Equal ones have the same class and the same bits."""

    value: int | float | bool

    @property
    def kind(self) -> str:
        return type(self.value).__name__

    def __hash__(self) -> int:
        return hash(_bits(self.value))

    def __eq__(self, other: object) -> bool:
        return type(other) is Constant and _bits(self.value) == _bits(other.value)


@record
class Integer(NumberExpr):
    """A canonical integer expression of several symbols, each a number of the call; see `ir.size`."""

    size: SizeExpr
    symbols: tuple[tuple[Identifier, Leaf], ...]

    __hash__ = _hash

    @property
    def kind(self) -> str:
        return "int"

    @property
    def parts(self) -> tuple[NumberExpr, ...]:
        return tuple(leaf for _, leaf in self.symbols)


@record
class Apply(NumberExpr):
    """What an operation makes of numbers, computed as it is written: floating-point arithmetic is not rearranged."""

    operation: Operation
    args: tuple[NumberExpr, ...]

    __hash__ = _hash

    @property
    def kind(self) -> str | None:
        kinds = [each.kind for each in self.args]
        return None if None in kinds else OPERATIONS[self.operation].kind(*kinds)

    @property
    def parts(self) -> tuple[NumberExpr, ...]:
        return self.args


@record
class Compare(NumberExpr):
    """Whether the relation holds between each number and the next, asked from left to right until one does not."""

    relation: Annotated[str, OneOf("==", "!=", "<", "<=", ">", ">=")]
    numbers: tuple[NumberExpr, ...]

    __hash__ = _hash

    @property
    def kind(self) -> str:
        return "bool"

    @property
    def parts(self) -> tuple[NumberExpr, ...]:
        return self.numbers


@record
class Both(NumberExpr):
    """`left and right`, which are comparisons or the like; the right one is not asked where the left one is false."""

    left: NumberExpr
    right: NumberExpr

    __hash__ = _hash

    @property
    def kind(self) -> str:
        return "bool"

    @property
    def parts(self) -> tuple[NumberExpr, ...]:
        return self.left, self.right


# Making --------------------------------------------------------------------------------------------------------------

#: Expressions that are alive, by their class and their parts: a part by its address, which it keeps while that is here.
_alive: WeakValueDictionary[tuple, Any] = WeakValueDictionary()


def _one(key: tuple, cls: type, *fields: object) -> Any:
    found = _alive.get(key)
    if found is None:
        found = _alive[key] = cls(*fields)
    return found


def _bits(value: object) -> tuple:
    return type(value), struct.pack("<d", value) if type(value) is float else value


def leaf(source: Source, read: str, axis: int = 0, kind: str = "int") -> Leaf:
    return _one((Leaf, id(source), read, axis, kind), Leaf, source, read, axis, kind)


def constant(value: int | float | bool) -> Constant:
    if type(value) not in KINDS.values():
        raise TypeError(f"a {type(value).__name__} is no number of an expression")
    return _one((Constant, *_bits(value)), Constant, value)


def integer(size: int | SizeExpr, leaves: Mapping[str, Leaf]) -> NumberExpr:
    """The size as an expression. `leaves`: the number that each symbol is. Raises `UnboundName` for a symbol that is
    none."""
    if isinstance(size, int):
        return constant(size)
    names = size.names
    unbound = names - leaves.keys()
    if unbound:
        from lampwork.ir.text import UnboundName

        raise UnboundName(f"the size {size} names {', '.join(sorted(unbound))}, which no call has")
    symbols = tuple((name, leaves[name]) for name in sorted(names))
    return _one((Integer, size, *((name, id(each)) for name, each in symbols)), Integer, size, symbols)


def applied(operation: str, *args: NumberExpr) -> Apply:
    """The operation on these, as it is written: see `number_algebra.apply`."""
    if operation not in OPERATIONS:
        raise TypeError(f"{operation!r} is no operation on numbers")
    return _one((Apply, operation, *map(id, args)), Apply, operation, args)


def compared(relation: str, *numbers: NumberExpr) -> Compare:
    """The chain of comparisons `a <= b <= c`."""
    if relation not in RELATIONS or len(numbers) < 2:
        raise TypeError(f"{relation!r} of {len(numbers)} numbers is no comparison")
    return _one((Compare, relation, *map(id, numbers)), Compare, relation, numbers)


def both(left: NumberExpr, right: NumberExpr) -> Both:
    return _one((Both, id(left), id(right)), Both, left, right)


def equals(number: NumberExpr, value: int | float | bool) -> NumberExpr:
    """That `number` is `value`, which may be no number, or a zero with a sign."""
    if type(value) is float and math.isnan(value):
        return compared("!=", number, number)
    same = compared("==", number, constant(value))
    if type(value) is not float or value:
        return same
    sign = constant(math.copysign(1.0, value))
    return both(same, compared("==", applied("math.copysign", constant(1.0), number), sign))


# Reading -------------------------------------------------------------------------------------------------------------


def evaluate(number: NumberExpr, read: Callable[[Leaf], Any]) -> Any:
    """What the expression is for the numbers that `read` gives, computed as Python computes it. Raises what that does:
    ArithmeticError, ValueError."""
    if isinstance(number, Leaf):
        return read(number)
    if isinstance(number, Constant):
        return number.value
    if isinstance(number, Integer):
        return number.size.evaluated({name: read(leaf) for name, leaf in number.symbols})
    if isinstance(number, Apply):
        return OPERATIONS[number.operation].function(*[evaluate(each, read) for each in number.args])
    if isinstance(number, Compare):
        holds = RELATIONS[number.relation]
        left = evaluate(number.numbers[0], read)
        for each in number.numbers[1:]:
            right = evaluate(each, read)
            if not holds(left, right):
                return False
            left = right
        return True
    if isinstance(number, Both):
        return evaluate(number.left, read) and evaluate(number.right, read)
    raise TypeError(f"not an expression of numbers: {number!r}")


def text(number: NumberExpr, name: Callable[[Leaf], str]) -> str:
    """The expression as Python text over `number_operations.NAMES` and what `name` gives for the numbers in it: names,
    or attributes, items and calls of names. They are asked for from left to right."""
    if isinstance(number, Integer):
        return _integer_text(number, name)
    if isinstance(number, Compare):
        return f" {number.relation} ".join([_side(each, name) for each in number.numbers])
    if isinstance(number, Both):
        return f"{text(number.left, name)} and {text(number.right, name)}"
    return _operand(number, name)


def _operand(number: NumberExpr, name: Callable[[Leaf], str]) -> str:
    """The text as an operand of any operator."""
    if isinstance(number, Leaf):
        return name(number)
    if isinstance(number, Constant):
        return _literal(number.value)
    if isinstance(number, Integer):
        return f"({_integer_text(number, name)})"
    if isinstance(number, Apply):
        if number.operation == "not":
            (asked,) = number.args
            return f"not {f'({text(asked, name)})' if isinstance(asked, Both) else text(asked, name)}"
        return OPERATIONS[number.operation].text([_enclosed(each, name) for each in number.args])
    return f"({text(number, name)})"


def _enclosed(number: NumberExpr, name: Callable[[Leaf], str]) -> str:
    shown = _operand(number, name)
    return f"({shown})" if isinstance(number, Apply) and number.operation in _LOOSE else shown


#: Operations whose text is no operand as it stands.
_LOOSE = ("not", "is_float")


def _side(number: NumberExpr, name: Callable[[Leaf], str]) -> str:
    """The text as a side of a comparison."""
    if isinstance(number, Integer):
        return _integer_text(number, name)
    if isinstance(number, Constant) and type(number.value) is int:
        return repr(number.value)
    return _enclosed(number, name)


def _integer_text(number: Integer, name: Callable[[Leaf], str]) -> str:
    leaves = dict(number.symbols)
    return number.size.bare_text(lambda symbol: name(leaves[symbol]))


def _literal(value: Any) -> str:
    if type(value) is float and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "(-math.inf)"
    return f"({value!r})" if value < 0 or (type(value) is float and math.copysign(1.0, value) < 0) else repr(value)


#: A chain of more equal numbers than these is not written out.
_NUMBERS_IN_WORDS = 6


def words(number: NumberExpr) -> str:
    """The expression with its numbers named by where they come from: `2 <= argument 0.size(1)`."""
    if isinstance(number, Compare) and number.relation == "==" and len(number.numbers) > _NUMBERS_IN_WORDS:
        first, *_, last = number.numbers
        if isinstance(first, Leaf) and isinstance(last, Leaf):
            count = len(number.numbers) - 1
            return f"{first.words()} and {count} other numbers like {last.words()} to be equal"
    return text(number, Leaf.words)


#: Whole numbers up to this are floats, and so are their sums.
_EXACT = 1 << 52


def is_exact(value: float) -> bool:
    """Whether it is a whole number that an integer says as well: no zero with a sign."""
    return value.is_integer() and abs(value) < _EXACT and (value != 0 or math.copysign(1, value) > 0)
