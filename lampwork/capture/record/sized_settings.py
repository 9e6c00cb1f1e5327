"""Numbers in tensors of one element that a program computes from its settings and from sizes that vary.

    windows = torch.ceil((x.shape[-1] - self.window + 3) / self.stride + 1).to(torch.int64) - 1

With a window of 5 and a stride of 2 held by guards, that is `ceildiv(s0, 2) - 1`, a size as any other. Quotients are
kept as numerator and denominator until they are rounded to a whole number: eager divides in single precision, which
rounds to the same whole number as long as the numerators are below `_EXACT` (which is guarded): the quotient is then
further from any other whole number than a few roundings move it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.record.fake import Fake

aten = torch.ops.aten
#: Numerators below this, rounded `_MOST_ROUNDINGS` times as a quotient in single precision, round up or down as they do
#: exactly: each rounding moves a quotient n / d by at most n / d * 2**-24, and whole numbers are at least 1 / d away.
_MOST_ROUNDINGS = 3
_EXACT = (1 << 24) // _MOST_ROUNDINGS
#: Types that numbers pass through; floats with fewer digits round otherwise.
_TYPES = frozenset({torch.int64, torch.bool, torch.float32, torch.float64})
#: Integers that no tensor's type wraps around.
_LARGEST = 1 << 31


@dataclass(frozen=True)
class _Ratio:
    """`numerator / denominator`, a float in eager, rounded so many times by then."""

    numerator: Any
    denominator: int
    roundings: int = 1

    def plus(self, number: Any, sign: int = 1) -> _Ratio | None:
        made = _Ratio(self.numerator + sign * number * self.denominator, self.denominator, self.roundings + 1)
        return made if made.is_exact() else None

    def is_exact(self) -> bool:
        """Guarded."""
        return self.roundings <= _MOST_ROUNDINGS and bool(-_EXACT < self.numerator) and bool(self.numerator < _EXACT)

    def rounded(self, up: bool) -> _Whole:
        sign = -1 if up else 1
        return _Whole(sign * (sign * self.numerator // self.denominator))


@dataclass(frozen=True)
class _Whole:
    """A float without a fraction."""

    value: Any


def number_of(node: Node, held: Callable[[Node], int | None]) -> Any:
    """What the tensor of `node` holds, as an integer, a symbol, or the truth of a comparison; None where something else
    takes part. `held`: the integer that an input holds, guarded. Call it while nothing is recorded."""
    found: dict[Node, Any] = {}
    pending = [node]
    while pending:
        last = pending[-1]
        missing = [each for each in last.all_input_nodes if each not in found]
        if missing and last not in found:
            pending += missing
            continue
        pending.pop()
        if last not in found:
            made = found[last] = _number(last, found, held)
            if made is None:
                return None
    made = found[node]
    return made if isinstance(made, (int, torch.SymInt, torch.SymBool)) else None


def _number(node: Node, found: dict[Node, Any], held: Callable[[Node], int | None]) -> Any:
    fake = node.meta["val"]
    if type(fake) is not Fake or fake.dtype not in _TYPES or fake.dim():
        return None
    if node.op == "placeholder":
        made = held(node)
    elif node.target is _torch.tensor_constant:
        value = _torch.tensor_constant(*node.args)
        made = value.item() if value.dtype is torch.int64 else None
    else:
        rule = _RULES.get(node.target)
        if rule is None or set(node.kwargs) - {"dtype"}:
            return None
        made = rule(*[found[each] if isinstance(each, Node) else each for each in node.args], **node.kwargs)
    return None if type(made) is int and abs(made) > _LARGEST else made


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def _sum(sign: int) -> Callable[[Any, Any], Any]:
    def rule(left: Any, right: Any) -> Any:
        if _is_integer(left) and _is_integer(right):
            return left + sign * right
        if isinstance(left, _Ratio) and _is_integer(right):
            return left.plus(right, sign)
        return right.plus(left) if sign > 0 and isinstance(right, _Ratio) and _is_integer(left) else None

    return rule


def _product(left: Any, right: Any) -> Any:
    return left * right if _is_integer(left) and _is_integer(right) else None


def _quotient(left: Any, right: Any) -> Any:
    if not _is_integer(left) or type(right) is not int or not 0 < right < _EXACT:
        return None
    made = _Ratio(left, right)
    return made if made.is_exact() else None


def _whole_quotient(left: Any, right: Any) -> Any:
    return left // right if _is_integer(left) and type(right) is int and right > 0 else None


def _rest(left: Any, right: Any) -> Any:
    return left % right if _is_integer(left) and type(right) is int and right > 0 else None


def _rounded(up: bool) -> Callable[[Any], Any]:
    return lambda value: value.rounded(up) if isinstance(value, _Ratio) else None


def _converted(value: Any, dtype: torch.dtype | None = None) -> Any:
    if dtype is not torch.int64:
        return None
    return value.value if isinstance(value, _Whole) else value if _is_integer(value) else None


def _compared(relation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda left, right: relation(left, right) if _is_integer(left) and _is_integer(right) else None


_RULES: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: _sum(1), aten.sub.Tensor: _sum(-1), aten.mul.Tensor: _product,
    aten.rsub.Scalar: lambda left, right: _sum(-1)(right, left),
    aten.neg.default: lambda value: -value if _is_integer(value) else None,
    aten.div.Tensor: _quotient, aten.floor_divide.default: _whole_quotient, aten.remainder.Tensor: _rest,
    aten.remainder.Scalar: _rest, aten.ceil.default: _rounded(True), aten.floor.default: _rounded(False),
    aten._to_copy.default: _converted,
    aten.detach.default: lambda value: value, aten.alias.default: lambda value: value,
    **{
        getattr(getattr(aten, name), form): _compared(getattr(operator, name))
        for name in ("gt", "ge", "lt", "le", "eq", "ne")
        for form in ("Tensor", "Scalar")
    },
}  # fmt: skip
