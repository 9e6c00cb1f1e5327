"""Which keys a block of rows needs at all, and which need no mask: what a mask says of positions.

    score = where(i >= j, s, -inf), rows first..last     ->     keys below last + 1, unmasked below first + 1

A mask is a condition that makes the score -inf where it is false. Of comparisons of positions that are linear in row
and key (factor 1 or -1) the bounds follow by interval arithmetic over the block's rows; of those with a number in
memory, where that is one for the block (the length of a sequence, the first key of a list of blocks). What else a mask
is made of says nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field, replace

from lampwork.ir.loops import Compute, Constant, Expr, Index, nodes
from lampwork.ir.record import record
from lampwork.ir.size import Size, add, coefficient, maximum, minimum, mul, substitute, symbols

#: A bound that is not there.
Bound = Size | None
_LOWEST = float("-inf")


@record
class KeyRange:
    """Keys from `start` on and before `end`; None: from the first, to the last."""

    start: Bound = None
    end: Bound = None


@record
class Block:
    """Rows of one block by the first and the last of them, and the symbols of a row and of a key. `bound`: what stands
    for a number, made of ones in memory, that is one for all rows of the block; None for other numbers."""

    row: str
    key: str
    first: Size
    last: Size
    bound: Callable[[Expr], Size | None] = field(default=lambda number: None, compare=False)


def mask_of(score: Expr) -> Expr | None:
    """A condition that makes `score` -inf wherever it is false; None: there is none to see."""
    if not isinstance(score, Compute):
        return None
    op, args = score.op, score.args
    if op == "where":
        condition, value, other = args
        if _is_lowest(other):
            return _both(condition, mask_of(value))
        if _is_lowest(value):
            return _both(Compute("not", (condition,), "bool"), mask_of(other))
        return None
    if op in ("mul", "div") and isinstance(args[1], Constant) and 0 < args[1].value < float("inf"):
        return mask_of(args[0])
    if op == "add" and _is_finite(args[1]) or op == "sub" and _is_finite(args[1]):
        return mask_of(args[0])
    if op == "add" and _is_finite(args[0]):
        return mask_of(args[1])
    return None


def nonzero_of(weight: Expr) -> Expr | None:
    """A condition that makes `weight` 0 wherever it is false; None: there is none to see."""
    if not isinstance(weight, Compute):
        return None
    op, args = weight.op, weight.args
    if op == "exp":  # of scores relative to a statistic of their row: where that is infinite, so are all scores
        exponent = args[0]
        if isinstance(exponent, Compute) and exponent.op == "sub":
            exponent = exponent.args[0]
        return mask_of(exponent)
    if op == "where":
        condition, value, other = args
        if _is_zero(other):
            return _both(condition, nonzero_of(value))
        return _both(Compute("not", (condition,), "bool"), nonzero_of(other)) if _is_zero(value) else None
    if op in ("cast", "neg", "div"):
        return nonzero_of(args[0])
    if op == "mul":
        left, right = map(nonzero_of, args)
        return right if left is None else _both(left, right)
    return None


def masks_in(weight: Expr) -> list[Expr]:
    """The conditions outside of which parts of `weight` are 0, or are scores of -inf."""
    found: dict[Expr, None] = {}
    for part in nodes([weight]):
        if isinstance(part, Compute) and part.op == "where":
            if _is_masked(part.args[2]):
                found.setdefault(part.args[0])
            elif _is_masked(part.args[1]):
                found.setdefault(Compute("not", (part.args[0],), "bool"))
    return list(found)


def all_of(conditions: list[Expr]) -> Expr | None:
    return functools.reduce(lambda one, other: Compute("and", (one, other), "bool"), conditions) if conditions else None


def any_of(conditions: list[Expr]) -> Expr | None:
    return functools.reduce(lambda one, other: Compute("or", (one, other), "bool"), conditions) if conditions else None


def without_masks(weight: Expr, block: Block) -> Expr:
    """`weight` where all that `masks_in` it say of positions holds (see `kept_parts`)."""
    memo: dict[int, Expr] = {}

    def walk(part: Expr) -> Expr:
        if not isinstance(part, Compute):
            return part
        found = memo.get(id(part))
        if found is None:
            found = memo[id(part)] = make(part)
        return found

    def make(part: Compute) -> Expr:
        if part.op == "where" and (_is_masked(part.args[1]) or _is_masked(part.args[2])):
            condition, value, other = part.args
            holds = _is_masked(other)
            left = _left(condition, block, holds)
            if left is None:
                return walk(value if holds else other)
            return Compute("where", (left, walk(value), walk(other)), part.dtype)
        args = tuple(map(walk, part.args))
        return part if all(one is other for one, other in zip(args, part.args)) else replace(part, args=args)

    return walk(weight)


def _is_masked(value: Expr) -> bool:
    return _is_zero(value) or _is_lowest(value)


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Constant) and value.value == 0


def unmasked(score: Expr, block: Block) -> Expr:
    """`score` where all that its mask says of positions holds (see `kept_keys`)."""
    if not isinstance(score, Compute):
        return score
    op, args = score.op, score.args
    if op == "where" and (_is_lowest(args[2]) or _is_lowest(args[1])):
        holds = _is_lowest(args[2])
        left = _left(args[0], block, holds)
        value = unmasked(args[1] if holds else args[2], block)
        if left is None:
            return value
        return Compute("where", (left, value, args[2]) if holds else (left, args[1], value), score.dtype)
    if op in ("mul", "div") and isinstance(args[1], Constant) or op in ("add", "sub") and _is_finite(args[1]):
        return Compute(op, (unmasked(args[0], block), args[1]), score.dtype)
    if op == "add" and _is_finite(args[0]):
        return Compute(op, (args[0], unmasked(args[1], block)), score.dtype)
    return score


def _left(condition: Expr, block: Block, holds: bool) -> Expr | None:
    """What of a condition is not known among `kept_keys`, where it is true (or, if not `holds`, false)."""
    if kept_keys(condition, block, holds) is not None:
        return None
    if isinstance(condition, Compute) and condition.op == "promised":
        return _left(condition.args[0], block, holds)
    if isinstance(condition, Compute) and condition.op == ("and" if holds else "or") and condition.dtype == "bool":
        left = [_left(arg, block, holds) for arg in condition.args]
        known = [each for each in left if each is not None]
        return known[0] if len(known) == 1 else Compute(condition.op, tuple(known), "bool") if known else None
    return condition


def _is_lowest(value: Expr) -> bool:
    return isinstance(value, Constant) and value.value == _LOWEST


def _is_finite(value: Expr) -> bool:
    """Whether a term is a number for sure: made of positions."""
    if isinstance(value, Constant):
        return abs(value.value) < float("inf")
    if isinstance(value, Compute) and value.op == "cast" and value.dtype == "float32":
        return isinstance(value.args[0], Index)
    return False


def _both(left: Expr, right: Expr | None) -> Expr:
    return left if right is None else Compute("and", (left, right), "bool")


def needed_keys(condition: Expr, block: Block, holds: bool = True) -> KeyRange:
    """All keys for which `condition` may be true (false, if not `holds`) of some row of the block are among these."""
    if isinstance(condition, Compute) and condition.dtype == "bool":
        op, args = condition.op, condition.args
        if op == "not":
            return needed_keys(args[0], block, not holds)
        if op == "promised":
            return needed_keys(Compute("and", args, "bool") if holds else args[0], block, holds)
        if op in ("and", "or"):
            one, other = (needed_keys(arg, block, holds) for arg in args)
            if (op == "and") == holds:
                return KeyRange(_pick(maximum, one.start, other.start), _pick(minimum, one.end, other.end))
            return KeyRange(_both_sides(minimum, one.start, other.start), _both_sides(maximum, one.end, other.end))
    start, end = None, None
    for difference in _differences(condition, block, holds) or ():
        found = _solved(difference, block, largest=True)
        start, end = _pick(maximum, start, found.start), _pick(minimum, end, found.end)
    return KeyRange(start, end)


def kept_keys(condition: Expr, block: Block, holds: bool = True) -> KeyRange | None:
    """Keys for all of which `condition` is true (false, if not `holds`) of all rows of the block; None: unknown."""
    if isinstance(condition, Compute) and condition.dtype == "bool":
        op, args = condition.op, condition.args
        if op == "not":
            return kept_keys(args[0], block, not holds)
        if op == "promised":
            return kept_keys(args[0], block, holds)
        if op in ("and", "or"):
            if (op == "and") != holds:
                return None
            one, other = (kept_keys(arg, block, holds) for arg in args)
            if one is None or other is None:
                return None
            return KeyRange(_pick(maximum, one.start, other.start), _pick(minimum, one.end, other.end))
    found = _differences(condition, block, holds)
    if found is None or len(found) != 1:
        return None
    return _solved(found[0], block, largest=False)


def kept_parts(condition: Expr, block: Block, holds: bool = True) -> KeyRange | None:
    """Keys for all of which the parts of `condition` that speak of positions hold; None: no part does."""
    known = kept_keys(condition, block, holds)
    if known is not None or not isinstance(condition, Compute) or condition.dtype != "bool":
        return known
    if condition.op == "not":
        return kept_parts(condition.args[0], block, not holds)
    if condition.op == "promised":
        return kept_parts(condition.args[0], block, holds)
    if condition.op == ("and" if holds else "or"):
        parts = [part for part in (kept_parts(arg, block, holds) for arg in condition.args) if part is not None]
        if parts:
            one, other = parts[0], parts[-1]
            return KeyRange(_pick(maximum, one.start, other.start), _pick(minimum, one.end, other.end))
    return None


def _pick(choose, left: Bound, right: Bound) -> Bound:
    return right if left is None else left if right is None or left == right else choose(left, right)


def _both_sides(choose, left: Bound, right: Bound) -> Bound:
    return None if left is None or right is None else left if left == right else choose(left, right)


_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "ne": "eq", "eq": "ne"}


def _differences(condition: Expr, block: Block, holds: bool) -> list[Size] | None:
    """Expressions that are not negative exactly where a comparison of positions is true (false, if not `holds`)."""
    if not isinstance(condition, Compute) or condition.op not in _OPPOSITE:
        return None
    op = condition.op if holds else _OPPOSITE[condition.op]
    sides: list[Size] = []
    for arg in condition.args:
        if isinstance(arg, Index):
            sides.append(arg.value)
        elif isinstance(arg, Constant) and arg.dtype == "int64":
            sides.append(int(arg.value))
        else:
            bound = block.bound(arg) if arg.dtype in ("int64", "int32") else None
            if bound is None:
                return None
            sides.append(bound)
    left, right = sides
    more, less = add(left, mul(right, -1)), add(right, mul(left, -1))
    found = {"lt": [add(less, -1)], "le": [less], "gt": [add(more, -1)], "ge": [more], "eq": [more, less]}.get(op)
    if found is None or any(_factors(each, block) is None for each in found):
        return None
    return found


def _factors(difference: Size, block: Block) -> tuple[int, int, Size] | None:
    """(of the key, of the row, the rest): a linear expression; None for others."""
    of_key, of_row = coefficient(difference, block.key), coefficient(difference, block.row)
    if of_key not in (-1, 1) or not isinstance(of_row, int):
        return None
    rest = substitute(difference, {block.key: 0, block.row: 0})
    if symbols(rest) & {block.key, block.row}:
        return None
    assert isinstance(of_key, int)
    return of_key, of_row, rest


def _solved(difference: Size, block: Block, largest: bool) -> KeyRange:
    """The keys for which `difference` is not negative, with the row that makes it largest, or smallest."""
    found = _factors(difference, block)
    assert found is not None  # see _differences
    of_key, of_row, rest = found
    row = block.last if (of_row > 0) == largest else block.first
    rest = add(rest, mul(row, of_row))
    return KeyRange(start=mul(rest, -1)) if of_key > 0 else KeyRange(end=add(rest, 1))
