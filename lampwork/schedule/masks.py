"""Masks: what is only seen where a condition holds is computed as if it always held.

    where(j < 7, exp(where(j < 7, x[i, j] if j < 7, 0) - where(j < 7, m[i] if j < 7, 0)), 0)
 -> where(j < 7, exp((x[i, j] if j < 7) - m[i]), 0)

A producer inlined into a masked load brings a `where` along, and masks for all that it loads. Of a chain of them one
select at the end is seen. And what depends on rows alone, such as m, is loaded and computed for rows: the mask is about
another axis. Precondition: pooled expressions in which masks keep loads inside of their buffers. Guarantee: at every
point of the axes values are equal and loads inside. Licence: exact. Non-goal: masks of what varies along their axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from itertools import product as combinations
from typing import TypeGuard

from lampwork.ir.dtype import FLOATING
from lampwork.ir.loops import Axis, Compute, Constant, Expr, Index, Load, children, nodes
from lampwork.ir.scalar_operators import SCALARS
from lampwork.ir.size import Size, Symbol, add, bounds, coefficient, mul, substitute, symbols
from lampwork.schedule.expressions import Pool, find_symbol, substitute_sizes

#: Conditions that hold, or do not, wherever an expression is seen: (id of a condition, which).
Facts = frozenset[tuple[int, bool]]
_NO_FACTS: Facts = frozenset()
#: Points tried for one that satisfies all conditions.
_MOST_POINTS = 256


def simplify_masks(pool: Pool, roots: Sequence[Expr], axes: Sequence[Axis]) -> list[Expr]:
    """`roots`, seen at all points of `axes`, with masks and selects left out that make no difference."""
    order = nodes(roots)
    masked = [node for node in order if _is_masked(node)]
    if len(masked) < 2 or all(type(node) is Load for node in masked):
        return list(roots)
    conditions = _Conditions()
    simplify = _Simplifier(pool, conditions, _facts(order, roots, conditions), axes, order)
    for node in order:
        simplify.new[id(node)] = simplify.rewrite(node)
    return [simplify.new[id(root)] for root in roots]


# -- Where an expression is seen --------------------------------------------------------------------------------------


def _facts(order: Sequence[Expr], roots: Sequence[Expr], conditions: _Conditions) -> dict[int, Facts]:
    """For each expression what holds wherever one of its users is seen: it stays one value for all of them."""
    known: dict[int, Facts] = {id(root): _NO_FACTS for root in roots}
    changeable: set[int] = set()
    for node in order:
        if _is_masked(node) or any(id(child) in changeable for child in children(node)):
            changeable.add(id(node))
    for node in reversed(order):
        for child, facts in _operands(node, known[id(node)], conditions):
            if id(child) not in changeable:
                facts = _NO_FACTS  # long conditions would be looked at again for each set of facts
            before = known.get(id(child))
            known[id(child)] = facts if before is None else before & facts
    return known


def _operands(node: Expr, facts: Facts, conditions: _Conditions) -> Iterator[tuple[Expr, Facts]]:
    """The operands of `node`, which is seen where `facts` hold, and what holds where they are."""
    if type(node) is Load:
        # Addresses matter where memory is read: wherever the mask says so, seen or not.
        if node.mask is not None:
            yield node.mask, _NO_FACTS
        inside = _NO_FACTS if node.mask is None else conditions.implied(node.mask, True)
        for _, bound in node.indirect:
            yield bound, inside
    elif type(node) is not Compute:
        return
    elif node.op == "where":
        condition, value, other = node.args
        yield condition, facts
        yield value, facts | conditions.implied(condition, True)
        yield other, facts | conditions.implied(condition, False)
    elif _is_logic(node) and len(node.args) == 2:
        # One side matters only where the other does not decide. Comparisons of positions need no help.
        first, second = node.args[::-1] if conditions.is_positional(node.args[1]) else node.args
        yield first, facts
        yield second, facts | conditions.implied(first, node.op == "and")
    else:
        for arg in node.args:
            yield arg, _NO_FACTS if _traps(node) else facts


class _Conditions:
    """What can be said of conditions by themselves, once for each."""

    def __init__(self) -> None:
        self._implied: dict[tuple[int, bool], Facts] = {}
        self._positional: dict[int, bool] = {}

    def implied(self, condition: Expr, holds: bool) -> Facts:
        """What follows from `condition` being `holds`."""
        key = id(condition), holds
        found = self._implied.get(key)
        if found is None:
            found = frozenset((key,))
            if _is_logic(condition) and condition.op == "not":
                found |= self.implied(condition.args[0], not holds)
            elif _is_logic(condition) and (condition.op == "and") == holds:
                found = found.union(*(self.implied(arg, holds) for arg in condition.args))
            self._implied[key] = found
        return found

    def is_positional(self, condition: Expr) -> bool:
        """Whether `condition` is made of comparisons of positions and sizes alone."""
        found = self._positional.get(id(condition))
        if found is None:
            if _is_logic(condition):
                found = all(self.is_positional(arg) for arg in condition.args)
            else:
                found = _is_comparison(condition)
            self._positional[id(condition)] = found
        return found


def _is_masked(node: Expr) -> bool:
    return node.op == "where" if type(node) is Compute else type(node) is Load and node.mask is not None


def _is_logic(node: Expr) -> TypeGuard[Compute]:
    return type(node) is Compute and node.dtype == "bool" and node.op in ("and", "or", "not")


def _is_comparison(node: Expr) -> TypeGuard[Compute]:
    """Of positions and sizes."""
    return type(node) is Compute and node.op in _NOT_BELOW_ZERO and all(_size_of(arg) is not None for arg in node.args)


def _traps(node: Compute) -> bool:
    """Operations that are carried out, and may fail, where nobody sees their result."""
    if node.op == "asserted":
        return True
    return SCALARS[node.op].divides and node.dtype not in FLOATING


def _size_of(expr: Expr) -> Size | None:
    if type(expr) is Index:
        return expr.value
    if type(expr) is Constant and expr.dtype == "int64":
        return int(expr.value)
    return None


# -- The new expressions ----------------------------------------------------------------------------------------------


class _Simplifier:
    """Rewrites expressions, operands before users; `new` has the result of each."""

    def __init__(
        self,
        pool: Pool,
        conditions: _Conditions,
        facts: Mapping[int, Facts],
        axes: Sequence[Axis],
        order: Sequence[Expr],
    ) -> None:
        self.pool, self.conditions, self.facts = pool, conditions, facts
        self.extents = {axis.name: axis.extent for axis in axes}
        #: No axis bounds another: a point stays inside when it moves along one.
        self.rectangular = not any(symbols(extent) & self.extents.keys() for extent in self.extents.values())
        #: What asserts something does so wherever it is computed: it is never left out.
        self.asserts: set[int] = set()
        for node in order:
            asserted = type(node) is Compute and node.op == "asserted"
            if asserted or any(id(child) in self.asserts for child in children(node)):
                self.asserts.add(id(node))
        self.new: dict[int, Expr] = {}
        self._known: dict[tuple[int, Facts], bool | None] = {}
        self._remaining: dict[tuple[int, Facts], Expr] = {}

    def rewrite(self, node: Expr) -> Expr:
        """A value equal to `node` where its facts hold; where they do not it may be computed as well."""
        facts = self.facts[id(node)]
        if type(node) is Load:
            return self._load(node, facts)
        if type(node) is not Compute:
            return node
        if node.dtype == "bool":
            known = self._decided(node, facts)
            if known is not None:
                return self.pool.constant(known, "bool")
            if _is_logic(node) and id(node) not in self.asserts:
                return self._condition(node, facts)
        if node.op == "where":
            return self._select(node, facts)
        return self.pool.compute(node.op, tuple([self.new[id(arg)] for arg in node.args]), node.dtype)

    def _select(self, node: Compute, facts: Facts) -> Expr:
        condition, value, other = (self.new[id(arg)] for arg in node.args)
        decided = self._decided(node.args[0], facts)
        if decided is None:
            condition = self._condition(node.args[0], facts)
        # where(true, a, b) == a;  where(false, a, b) == b
        elif id(node.args[2 if decided else 1]) not in self.asserts:
            return value if decided else other
        # where(c, a, a) == a
        if value is other and id(node.args[0]) not in self.asserts:
            return value
        # where(c, (x if c and d else o), o) == (x if c and d else o)
        if type(value) is Load and value.mask is not None and other is self.pool.constant(value.other, value.dtype):
            if _conjuncts(condition).keys() <= _conjuncts(value.mask).keys():
                return value
        return self.pool.compute("where", (condition, value, other), node.dtype)

    def _decided(self, condition: Expr, facts: Facts) -> bool | None:
        """What `condition` is where `facts` hold."""
        key = id(condition), facts
        if key not in self._known:
            self._known[key] = self._decide(condition, facts)
        return self._known[key]

    def _decide(self, condition: Expr, facts: Facts) -> bool | None:
        if id(condition) in self.asserts:
            return None
        for answer in (True, False):
            if (id(condition), answer) in facts:
                return answer
        new = self.new.get(id(condition))
        if type(new) is Constant:
            return bool(new.value)
        if not _is_logic(condition):
            return None
        known = [self._decided(arg, facts) for arg in condition.args]
        if condition.op == "not":
            return None if known[0] is None else not known[0]
        decisive = condition.op == "or"
        if decisive in known:
            return decisive
        return not decisive if known == [not decisive, not decisive] else None

    def _condition(self, condition: Expr, facts: Facts) -> Expr:
        """`condition`, undecided, without the parts that are decided where `facts` hold."""
        if not _is_logic(condition) or id(condition) in self.asserts:
            return self.new[id(condition)]
        key = id(condition), facts
        found = self._remaining.get(key)
        if found is None:
            left = [arg for arg in condition.args if self._decided(arg, facts) is None]
            args = tuple([self._condition(arg, facts) for arg in left])
            found = args[0] if len(args) < len(condition.args) else self.pool.compute(condition.op, args, "bool")
            self._remaining[key] = found
        return found

    # -- Loads --------------------------------------------------------------------------------------------------------

    def _load(self, load: Load, facts: Facts) -> Expr:
        if load.mask is None and not load.indirect:
            return load
        mask = None if load.mask is None else self.new[id(load.mask)]
        if load.mask is not None and not load.indirect:
            mask = self._without_idle(load, facts)
        if type(mask) is Constant and mask.value:
            mask = None
        indirect: list[tuple[str, Expr]] = []
        names: dict[str, Size] = {}
        for name, bound in load.indirect:
            new = self.new[id(bound)]
            if new is bound:
                indirect.append((name, bound))
                continue
            symbol = next(found for part in load.index if (found := find_symbol(part, name)) is not None)
            new_name = self.pool.symbol_of(new)
            names[name] = Symbol(new_name, symbol.lower, symbol.upper)
            indirect.append((new_name, new))
        index = tuple([substitute_sizes(part, names) for part in load.index]) if names else load.index
        return self.pool.load(load.buffer, index, load.dtype, tuple(dict(indirect).items()), mask, load.other)

    def _without_idle(self, load: Load, facts: Facts) -> Expr | None:
        """The mask of `load` without the conditions that hold wherever it is seen and say nothing about its address.

        Such conditions are on axes that neither the address nor the rest of the mask varies along. Somewhere on these
        axes they hold, and there the mask lets in, as it always did, whatever it lets in without them. So all
        addresses that are read now were read before.
        """
        assert load.mask is not None
        conditions = _conjuncts(load.mask)
        idle = {
            key: each
            for key, each in conditions.items()
            if (key, True) in facts and self.conditions.is_positional(each)
        }
        used = frozenset().union(*(symbols(part) for part in load.index)) & self.extents.keys()
        while True:
            used = used.union(*(self._axes(self.new[key]) for key in conditions if key not in idle))
            fewer = {key: each for key, each in idle.items() if used.isdisjoint(self._axes(each))}
            if len(fewer) == len(idle):
                break
            idle = fewer
        if not idle or not self._satisfiable(list(idle.values())):
            return self.new[id(load.mask)]
        mask: Expr | None = None
        for key in conditions:
            if key not in idle:
                part = self.new[key]
                mask = part if mask is None else self.pool.compute("and", (mask, part), "bool")
        return mask

    def _axes(self, expr: Expr) -> frozenset[str]:
        return self.pool.free(expr) & self.extents.keys()

    def _satisfiable(self, conditions: Sequence[Expr]) -> bool:
        """Whether some point of the axes, of those tried, satisfies all `conditions`, whatever the sizes are."""
        names = sorted(frozenset().union(*(self._axes(each) for each in conditions)))
        places = [self._candidates(name, conditions) for name in names]
        points = islice(combinations(*places), _MOST_POINTS) if self.rectangular else ()
        return any(_hold(conditions, dict(zip(names, point))) for point in points)

    def _candidates(self, name: str, conditions: Sequence[Expr]) -> list[Size]:
        """Indices of the axis `name`, its first among them, next to where comparisons of it change their answers."""
        found: dict[Size, None] = {0: None}
        last = add(self.extents[name], -1)
        for node in nodes(conditions):
            if not _is_comparison(node):
                continue
            difference = _difference(node)
            step = coefficient(difference, name)
            if step in (1, -1):
                zero = mul(substitute(difference, {name: 0}), -step)
                for place in (zero, add(zero, -1), add(zero, 1)):
                    if bounds(place)[0] >= 0 and bounds(add(last, mul(place, -1)))[0] >= 0:
                        found.setdefault(place)
        return list(found)


def _conjuncts(mask: Expr) -> dict[int, Expr]:
    """The conditions that `mask` is the conjunction of, by id, in order."""
    found: dict[int, Expr] = {}
    left, seen = [mask], set()
    while left:
        each = left.pop()
        if _is_logic(each) and each.op == "and":
            if id(each) not in seen:
                seen.add(id(each))
                left += reversed(each.args)
        else:
            found.setdefault(id(each), each)
    return found


#: Comparisons as what must not be negative: a < b is b - a - 1 >= 0, so (sign of a - b, constant).
_NOT_BELOW_ZERO: Mapping[str, tuple[int, int]] = {"lt": (-1, -1), "le": (-1, 0), "gt": (1, -1), "ge": (1, 0)}
_OPPOSITE: Mapping[str, str] = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _difference(comparison: Compute) -> Size:
    left, right = (_size_of(arg) for arg in comparison.args)
    assert left is not None and right is not None
    return add(left, mul(right, -1))


def _hold(conditions: Sequence[Expr], point: Mapping[str, Size]) -> bool:
    """Whether all `conditions` hold at `point`, whatever the sizes are."""
    answers: dict[int, set[bool]] = {}  # the answers that are sure: one or none
    for node in nodes(conditions):
        if _is_comparison(node):
            difference = substitute(_difference(node), point)
            answers[id(node)] = {
                answer
                for answer, op in ((True, node.op), (False, _OPPOSITE[node.op]))
                if bounds(add(mul(difference, _NOT_BELOW_ZERO[op][0]), _NOT_BELOW_ZERO[op][1]))[0] >= 0
            }
        elif _is_logic(node):
            known = [answers[id(arg)] for arg in node.args]
            if node.op == "not":
                answers[id(node)] = {not answer for answer in known[0]}
            else:
                decisive = node.op == "or"
                sure = {decisive} if any(decisive in each for each in known) else set()
                answers[id(node)] = sure or set.intersection(*known)
    return all(True in answers[id(each)] for each in conditions)
