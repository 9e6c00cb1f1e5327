"""What stands behind a `torch.SymInt` and a `torch.SymBool`: PyTorch's interface of nodes, over sizes of `ir.size`.

PyTorch's native code and the methods of `torch.SymInt` call these by name. Arithmetic makes a new node; a question
makes a `TruthNode`, which asks the `SymbolicSizes` that it came from when its answer is needed. A node asked for its
number specialises the symbol.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lampwork.ir.size import Size, add, floordiv, maximum, minimum, mod, mul

if TYPE_CHECKING:
    from lampwork.fakes.symbolic import SymbolicSizes

#: The relation that holds where the other does not.
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class _Node:
    """Answers that numbers and truth values share."""

    __slots__ = ()

    def is_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_float(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def constant_float(self) -> float | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def constant_int(self) -> int | None:
        return None

    def maybe_as_int(self) -> int | None:
        return None

    def constant_bool(self) -> bool | None:
        return None

    def maybe_as_bool(self) -> bool | None:
        return None

    def has_hint(self) -> bool:
        return True

    def clone(self) -> Any:
        return self

    def _graph_repr(self) -> str:
        return str(self)

    def str(self) -> str:
        return str(self)


class SizeNode(_Node):
    """An integer: `value` in symbols of `sizes`."""

    __slots__ = ("sizes", "value")

    def __init__(self, sizes: SymbolicSizes, value: Size) -> None:
        self.sizes = sizes
        self.value = value

    def __str__(self) -> str:
        return str(self.value)

    @property
    def resolved(self) -> Size:
        return self.sizes.resolve(self.value)

    @property
    def hint(self) -> int:
        return self.sizes.hint(self.value)

    def is_int(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return not isinstance(self.value, int)

    def is_constant(self) -> bool:
        return False  # operators of torch 2.11 take every constant for a bool

    def constant_int(self) -> int | None:
        return self.value if isinstance(self.value, int) else None

    maybe_as_int = constant_int

    def wrap_int(self, value: int) -> SizeNode:
        return SizeNode(self.sizes, value)

    def wrap_bool(self, value: bool) -> TruthNode:
        return TruthNode(self.sizes, (), value)

    def sym_float(self) -> Any:
        if self.sizes.floats is not None and not self.sizes.by_contents(self.value):
            return self.sizes.floats(self)
        return FloatNode(float(self.sizes.specialise(self.value, "it becomes a floating-point number")))

    # Numbers are asked for: the value is guarded.

    def int_(self) -> int:
        return self.sizes.specialise(self.value, "the program needs it as a number")

    def guard_int(self, file: str, line: int) -> int:
        return self.sizes.specialise(self.value, "PyTorch needs it as a number")

    # Arithmetic.

    def _of(self, value: Size) -> SizeNode:
        return SizeNode(self.sizes, value)

    def add(self, other: SizeNode) -> SizeNode:
        return self._of(add(self.value, other.value))

    def sub(self, other: SizeNode) -> SizeNode:
        return self._of(add(self.value, mul(other.value, -1)))

    def mul(self, other: SizeNode) -> SizeNode:
        return self._of(mul(self.value, other.value))

    def neg(self) -> SizeNode:
        return self._of(mul(self.value, -1))

    def pos(self) -> SizeNode:
        return self

    def abs(self) -> SizeNode:
        return self if self.sizes.holds(self.value, ">=", 0) else self.neg()

    def sym_max(self, other: SizeNode) -> SizeNode:
        return self._of(maximum(self.value, other.value))

    def sym_min(self, other: SizeNode) -> SizeNode:
        return self._of(minimum(self.value, other.value))

    def sym_sum(self, nodes: Any) -> SizeNode:
        total: Size = 0
        for node in nodes:
            total = add(total, node.value)
        return self._of(total)

    def int_floordiv(self, other: SizeNode) -> SizeNode:
        if self.sizes.holds(other.value, "==", 0):
            raise ZeroDivisionError("integer division or modulo by zero")
        if not self.sizes.holds(other.value, ">", 0):  # expressions know positive divisors only
            return self.neg().int_floordiv(other.neg())
        return self._of(floordiv(self.value, other.value))

    floordiv = int_floordiv

    def mod(self, other: SizeNode) -> SizeNode:
        if self.sizes.holds(other.value, "==", 0):
            raise ZeroDivisionError("integer modulo by zero")
        if not self.sizes.holds(other.value, ">", 0):
            return self.neg().mod(other.neg()).neg()
        return self._of(mod(self.value, other.value))

    def pow_by_natural(self, other: SizeNode) -> SizeNode:
        exponent = self.sizes.specialise(other.value, "it is an exponent")
        result: Size = 1
        for _ in range(exponent):
            result = mul(result, self.value)
        return self._of(result)

    pow = pow_by_natural

    def floor(self) -> SizeNode:
        return self

    ceil = trunc = round = floor

    # Questions.

    def _compare(self, relation: str, other: SizeNode) -> TruthNode:
        return TruthNode(self.sizes, (self.value, relation, other.value))

    def eq(self, other: SizeNode) -> TruthNode:
        return self._compare("==", other)

    def ne(self, other: SizeNode) -> TruthNode:
        return self._compare("!=", other)

    def lt(self, other: SizeNode) -> TruthNode:
        return self._compare("<", other)

    def le(self, other: SizeNode) -> TruthNode:
        return self._compare("<=", other)

    def gt(self, other: SizeNode) -> TruthNode:
        return self._compare(">", other)

    def ge(self, other: SizeNode) -> TruthNode:
        return self._compare(">=", other)

    def equals_surely(self, left: Size, right: Size) -> bool:
        """Whether two sizes are equal; where contents decide, for all contents."""
        known = self.sizes.known(left, "==", right)
        if known is None and (self.sizes.by_contents(left) or self.sizes.by_contents(right)):
            return False
        return self.sizes.holds(left, "==", right) if known is None else known

    def seen_equal(self, left: Size, right: Size) -> bool:
        """Whether two sizes are equal, and more than 1, in the call at hand; guarded then, and not else."""
        sizes = self.sizes
        if sizes.by_contents(left) or sizes.by_contents(right) or not sizes.hint(left) == sizes.hint(right) > 1:
            return False
        return sizes.holds(left, "==", right)

    def known(self, relation: str, other: Size) -> bool | None:
        """See `SymbolicSizes.known`."""
        return self.sizes.known(self.value, relation, other)

    def in_layout(self, relation: str, other: Size) -> bool:
        """See `SymbolicSizes.holds_in_layout`."""
        return self.sizes.holds_in_layout(self.value, relation, other)

    # Layouts, for releases of PyTorch that ask the node.

    def _layout(self, sizes: Any, strides: Any, order: Any) -> TruthNode:
        """Whether `strides` are those of a dense tensor with the dimensions `order`, innermost first."""
        expected: Size = 1
        answer = True
        for dim in order:
            size, stride = sizes[dim].value, strides[dim].value
            if self.sizes.known(stride, "==", expected) is not True and self.sizes.holds_in_layout(size, "!=", 1):
                if self.sizes.holds_in_layout(stride, "!=", expected):
                    answer = False
                    break
            expected = mul(expected, size)
        return self.wrap_bool(answer)

    def is_contiguous(self, sizes: Any, strides: Any) -> TruthNode:
        return self._layout(sizes, strides, range(len(sizes) - 1, -1, -1))

    def is_channels_last_contiguous_2d(self, sizes: Sequence[int], strides: Sequence[int]) -> TruthNode:
        return self._layout(sizes, strides, (1, 3, 2, 0)) if len(sizes) == 4 else self.wrap_bool(False)

    def is_channels_last_contiguous_3d(self, sizes: Sequence[int], strides: Sequence[int]) -> TruthNode:
        return self._layout(sizes, strides, (1, 4, 3, 2, 0)) if len(sizes) == 5 else self.wrap_bool(False)

    is_channels_last_strides_2d = is_channels_last_contiguous_2d
    is_channels_last_strides_3d = is_channels_last_contiguous_3d

    def is_non_overlapping_and_dense(self, sizes: Any, strides: Any) -> TruthNode:
        order = sorted(range(len(sizes)), key=lambda dim: self.sizes.hint(strides[dim].value))
        return self._layout(sizes, strides, order)


class TruthNode(_Node):
    """A truth value: one comparison of sizes, or several joined.

    `parts`: (left, relation, right), ("and" | "or", node, node), or empty for the constant `value`, which asks no
    `sizes`.
    """

    __slots__ = ("parts", "sizes", "value")

    def __init__(self, sizes: SymbolicSizes | None, parts: tuple, value: bool | None = None) -> None:
        self.sizes: Any = sizes
        self.parts = parts
        self.value = value

    def __str__(self) -> str:
        if not self.parts:
            return str(self.value)
        if self.parts[0] in ("and", "or"):
            return f"({self.parts[1]} {self.parts[0]} {self.parts[2]})"
        left, relation, right = self.parts
        return f"{left} {relation} {right}"

    def is_bool(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return self.value is None

    def is_constant(self) -> bool:
        return self.value is not None

    def constant_bool(self) -> bool | None:
        return self.value

    maybe_as_bool = constant_bool

    def wrap_bool(self, value: bool) -> TruthNode:
        return TruthNode(self.sizes, (), value)

    def wrap_int(self, value: int) -> SizeNode:
        return SizeNode(self.sizes, value)

    def known(self) -> bool | None:
        """The answer for all sizes that pass the guards; None: it depends on them."""
        if self.value is None and self.parts[0] not in ("and", "or"):
            return self.sizes.known(*self.parts)
        if self.value is not None:
            return self.value
        word, left, right = self.parts
        one, two = left.known(), right.known()
        decides = word == "or"
        if one is decides or two is decides:
            return decides
        return None if one is None or two is None else not decides

    def bool_(self) -> bool:
        """The answer for the sizes seen, guarded."""
        if self.value is None:
            if self.parts[0] in ("and", "or"):
                word, left, right = self.parts
                decides = word == "or"
                known = self.known()
                self.value = (
                    known if known is not None else (left.bool_() if left.bool_() is decides else right.bool_())
                )
            else:
                self.value = self.sizes.holds(*self.parts)
        return self.value

    def guard_bool(self, file: str, line: int) -> bool:
        return self.bool_()

    expect_true = guard_bool

    def guard_or_false(self, file: str, line: int) -> bool:
        """PyTorch asks so where False is right for every size, if less precise: nothing is assumed of what contents
        decide."""
        known = self.known()
        if known is None and not self.by_contents():
            known = self.bool_()
        return known is True

    guard_size_oblivious = guard_or_false

    def guard_or_true(self, file: str, line: int) -> bool:
        known = self.known()
        if known is None and not self.by_contents():
            known = self.bool_()
        return known is not False

    def by_contents(self) -> bool:
        """Whether the contents of a tensor decide the answer."""
        if self.value is not None:
            return False
        left, relation, right = self.parts
        if left in ("and", "or"):
            return relation.by_contents() or right.by_contents()
        return self.sizes.by_contents(left) or self.sizes.by_contents(right)

    def statically_known_true(self, file: str, line: int) -> bool:
        return self.known() is True

    def sym_and(self, other: TruthNode) -> TruthNode:
        return TruthNode(self.sizes, ("and", self, other))

    def sym_or(self, other: TruthNode) -> TruthNode:
        return TruthNode(self.sizes, ("or", self, other))

    and_, or_ = sym_and, sym_or

    def sym_not(self) -> TruthNode:
        if not self.parts:
            return self.wrap_bool(not self.value)
        if self.parts[0] in ("and", "or"):
            word, left, right = self.parts
            return TruthNode(self.sizes, ("and" if word == "or" else "or", left.sym_not(), right.sym_not()))
        left, relation, right = self.parts
        return TruthNode(self.sizes, (left, OPPOSITE[relation], right))

    not_ = sym_not

    def eq(self, other: TruthNode) -> TruthNode:
        return self.wrap_bool(self.bool_() == other.bool_())

    def ne(self, other: TruthNode) -> TruthNode:
        return self.wrap_bool(self.bool_() != other.bool_())


class FloatNode(_Node):
    """A floating-point number that a size was made to: known, since that guarded the size."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value

    def __str__(self) -> str:
        return str(self.value)

    def is_float(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return False

    def is_constant(self) -> bool:
        return False  # as above

    def constant_float(self) -> float:
        return self.value

    maybe_as_float = constant_float

    def guard_float(self, file: str, line: int) -> float:
        return self.value

    def wrap_float(self, value: float) -> FloatNode:
        return FloatNode(value)

    def sym_float(self) -> FloatNode:
        return self

    def add(self, other: FloatNode) -> FloatNode:
        return FloatNode(self.value + other.value)

    def sub(self, other: FloatNode) -> FloatNode:
        return FloatNode(self.value - other.value)

    def mul(self, other: FloatNode) -> FloatNode:
        return FloatNode(self.value * other.value)

    def truediv(self, other: FloatNode) -> FloatNode:
        """As native code divides: by zero, too."""
        if other.value:
            return FloatNode(self.value / other.value)
        return FloatNode(math.nan if not self.value or math.isnan(self.value) else math.copysign(math.inf, self.value))

    float_truediv = truediv

    def neg(self) -> FloatNode:
        return FloatNode(-self.value)

    def sym_max(self, other: FloatNode) -> FloatNode:
        return FloatNode(max(self.value, other.value))

    def sym_min(self, other: FloatNode) -> FloatNode:
        return FloatNode(min(self.value, other.value))

    def eq(self, other: FloatNode) -> TruthNode:
        return _truth(self.value == other.value)

    def ne(self, other: FloatNode) -> TruthNode:
        return _truth(self.value != other.value)

    def lt(self, other: FloatNode) -> TruthNode:
        return _truth(self.value < other.value)

    def le(self, other: FloatNode) -> TruthNode:
        return _truth(self.value <= other.value)

    def gt(self, other: FloatNode) -> TruthNode:
        return _truth(self.value > other.value)

    def ge(self, other: FloatNode) -> TruthNode:
        return _truth(self.value >= other.value)


def _truth(value: bool) -> TruthNode:
    """A constant, which asks no sizes."""
    return TruthNode(None, (), value)
