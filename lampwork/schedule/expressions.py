"""Expressions as a hash-consed graph: equal expressions are one object, so every walk costs the graph, not the tree.

`Pool` makes expressions; `rewriter` maps one expression graph to another (new sizes, new loads), visiting each node
once. Nothing here knows about loops or fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from lampwork.ir.loops import Buffer, Compute, Constant, Expr, Index, Load, Local, children
from lampwork.ir.program import TensorRef
from lampwork.ir.scalar_operators import SCALARS
from lampwork.ir.size import (
    INFINITY,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Size,
    Sum,
    Symbol,
    _from_terms,
    _join_quotient_and_rest,
    add,
    bounds,
    evaluate,
    floordiv,
    mod,
    mul,
    product,
    substitute,
)
from lampwork.ir.size import symbols as size_symbols

#: At least this much work makes a value worth keeping rather than computing twice.
EXPENSIVE = 8

_NO_SYMBOLS: frozenset[str] = frozenset()


class Pool:
    """Makes expressions so that equal ones are the same object. `-0.0` and `0.0`, `1` and `True` stay different."""

    def __init__(self) -> None:
        self._nodes: dict[tuple, Expr] = {}
        self._free: dict[int, frozenset[str]] = {}
        self._indirect: dict[int, str] = {}

    def constant(self, value: bool | int | float, dtype: str) -> Expr:
        return self._node(("constant", repr(value), dtype), Constant, value, dtype)

    def index(self, value: Size) -> Expr:
        return self._node(("index", value), Index, value)

    def local(self, name: str, dtype: str) -> Expr:
        return self._node(("local", name, dtype), Local, name, dtype)

    def compute(self, op: str, args: tuple[Expr, ...], dtype: str) -> Expr:
        if op == "cast" and args[0].dtype == dtype:
            return args[0]
        return self._node((op, dtype, *map(id, args)), Compute, op, args, dtype)

    def load(
        self,
        buffer: str,
        index: tuple[Size, ...],
        dtype: str,
        indirect: tuple[tuple[str, Expr], ...] = (),
        mask: Expr | None = None,
        other: bool | int | float = 0,
    ) -> Expr:
        bound = tuple((name, id(value)) for name, value in indirect)
        key = ("load", buffer, index, dtype, bound, id(mask), repr(other))
        return self._node(key, Load, buffer, index, dtype, indirect, mask, other)

    def symbol_of(self, value: Expr) -> str:
        """The one name that indices use for the pooled integer `value`: equal gathers become equal loads."""
        name = self._indirect.get(id(value))
        if name is None:
            name = self._indirect[id(value)] = f"x{len(self._indirect)}"
        return name

    def free(self, expr: Expr) -> frozenset[str]:
        """Loop symbols and locals that pooled `expr` depends on."""
        found = self._free.get(id(expr))
        if found is None:
            found = self._free[id(expr)] = self._find_free(expr)
        return found

    def _node(self, key: tuple, kind: type, *fields: object) -> Expr:
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = kind(*fields)
        return node

    def _find_free(self, expr: Expr) -> frozenset[str]:
        if type(expr) is Constant:
            return _NO_SYMBOLS
        if type(expr) is Index:
            return size_symbols(expr.value)
        if type(expr) is Local:
            return frozenset((expr.name,))
        if type(expr) is Compute:
            found = _NO_SYMBOLS
            for arg in expr.args:
                found |= self.free(arg)
            return found
        found = _NO_SYMBOLS
        for value in expr.index:
            if not isinstance(value, int):
                found |= size_symbols(value)
        for name, bound in expr.indirect:
            found = (found - {name}) | self.free(bound)
        if expr.mask is not None:
            found |= self.free(expr.mask)
        return found


def substitute_sizes(value: Size, values: Mapping[str, Size]) -> Size:
    """`ir.size.substitute`, quick for the common affine case: one merge of terms instead of one per term."""
    if isinstance(value, int):
        return value
    if type(value) is Symbol:
        return values.get(value.name, value)
    if type(value) is Sum:
        constant = value.constant
        merged: dict = {}
        for factor, atom in value.terms:
            if type(atom) is Symbol:
                new = values.get(atom.name, atom)
            else:
                new = substitute(atom, values)
            if isinstance(new, int):
                constant += factor * new
            elif type(new) is Sum:
                constant += factor * new.constant
                for inner_factor, inner in new.terms:
                    merged[inner] = merged.get(inner, 0) + factor * inner_factor
            else:
                merged[new] = merged.get(new, 0) + factor
        return _from_terms(constant, merged)
    return substitute(value, values)


def flat_offset(index: Iterable[Size], strides: Iterable[Size]) -> Size:
    """`sum(index[d] * strides[d])` in elements."""
    constant = 0
    merged: dict = {}
    for value, stride in zip(index, strides):
        if isinstance(stride, int):
            if isinstance(value, int):
                constant += value * stride
                continue
            if stride == 0:
                continue
            if type(value) is Sum:
                constant += value.constant * stride
                for factor, atom in value.terms:
                    merged[atom] = merged.get(atom, 0) + factor * stride
            else:
                merged[value] = merged.get(value, 0) + stride
        else:
            scaled = mul(value, stride)
            if isinstance(scaled, int):
                constant += scaled
                continue
            if type(scaled) is Sum:
                constant += scaled.constant
            for factor, atom in scaled.terms if type(scaled) is Sum else ((1, scaled),):
                merged[atom] = merged.get(atom, 0) + factor
    if any(type(atom) is Mod for atom in merged):
        _join_quotient_and_rest(merged)
    return _from_terms(constant, merged)


def view_index(buffer: Buffer, view: TensorRef, index: tuple[Size, ...]) -> tuple[Size, ...]:
    """The element of `buffer`, by its own dimensions, that element `index` of the strided `view` denotes."""
    if view.shape == buffer.shape and view.strides == buffer.strides and view.offset == 0:
        return index
    offset: Size = view.offset
    for part, stride in zip(index, view.strides):
        offset = add(offset, mul(part, stride))
    result: list[Size] = [0] * len(buffer.shape)
    pairs = enumerate(zip(buffer.strides, buffer.shape))
    order = sorted((bounds(stride)[1], bounds(extent)[1], place) for place, (stride, extent) in pairs)
    by_stride = [place for _, _, place in order]
    for place in reversed(by_stride):
        stride, extent = buffer.strides[place], buffer.shape[place]
        if extent == 1 or stride == 0:
            continue
        result[place] = floordiv(offset, stride)
        offset = mod(offset, stride)
    return tuple(result)


def in_two_steps(value: Size, first: Mapping[str, Size], then: Mapping[str, Size]) -> Size:
    """`value` with the axes of an operator replaced by atoms (`first`), and these by loops (`then`).

    Not by both at once: a loop over several atoms gives its index to the last of them and 0 to the others. That serves
    what is linear in the atoms, which `(4*a + 2*b + c) // 4` is once it is known to be `a`, and not before.
    """
    return substitute_sizes(substitute_sizes(value, first), then) if first else substitute_sizes(value, then)


def rewriter(
    pool: Pool,
    sizes: Mapping[str, Size],
    on_load: Callable[[Load, tuple[Size, ...], tuple, Expr | None], Expr],
    gathered: Mapping[str, Expr] | None = None,
    first: Mapping[str, Size] | None = None,
) -> Callable[[Expr], Expr]:
    """A function from expressions to pooled expressions with symbols replaced as `sizes` says.

    Each load becomes `on_load(load, index, indirect, mask)`, whose last three are already rewritten. One node is
    visited once however often it occurs, as long as the caller keeps the expressions alive. `gathered`: symbols among
    the new sizes that stand for pooled integers; outside of loads they become those integers. `first`: what is replaced
    before (see `in_two_steps`).
    """
    memo: dict[int, Expr] = {}
    size_memo: dict[Size, Size] = {}

    def resize(value: Size) -> Size:
        if isinstance(value, int):
            return value
        new = size_memo.get(value)
        if new is None:
            new = size_memo[value] = in_two_steps(value, first or {}, sizes)
        return new

    def rewrite(expr: Expr) -> Expr:
        new = memo.get(id(expr))
        if new is not None:
            return new
        if type(expr) is Compute:
            new = pool.compute(expr.op, tuple([rewrite(arg) for arg in expr.args]), expr.dtype)
        elif type(expr) is Load:
            mask = rewrite(expr.mask) if expr.mask is not None else None
            if expr.indirect:
                names: dict[str, Size] = {}
                indirect = []
                for name, value in expr.indirect:
                    bound = rewrite(value)
                    new_name = pool.symbol_of(bound)
                    for part in expr.index:
                        symbol = find_symbol(part, name)
                        if symbol is not None:
                            names[name] = Symbol(new_name, symbol.lower, symbol.upper)
                            indirect.append((new_name, bound))
                            break
                local = {**sizes, **names}
                index = tuple([in_two_steps(part, first or {}, local) for part in expr.index])
                new = on_load(expr, index, tuple(dict(indirect).items()), mask)
            else:
                new = on_load(expr, tuple([resize(part) for part in expr.index]), (), mask)
        elif type(expr) is Index:
            size: Size = resize(expr.value)
            if isinstance(size, int):
                new = pool.constant(size, "int64")
            elif gathered and not size_symbols(size).isdisjoint(gathered):
                new = integer_expression(pool, size, gathered)
            else:
                new = pool.index(size)
        elif type(expr) is Constant:
            new = pool.constant(expr.value, expr.dtype)
        else:
            new = pool.local(expr.name, expr.dtype)
        memo[id(expr)] = new
        return new

    return rewrite


def integer_expression(pool: Pool, value: Size, gathered: Mapping[str, Expr]) -> Expr:
    """The int64 value of a size that holds symbols which stand for integers computed in the kernel."""

    def binary(op: str, left: Expr, right: Expr) -> Expr:
        return pool.compute(op, (left, right), "int64")

    def walk(part: Size) -> Expr:
        if isinstance(part, int):
            return pool.constant(part, "int64")
        if size_symbols(part).isdisjoint(gathered):
            return pool.index(part)
        if isinstance(part, Symbol):
            return pool.compute("cast", (gathered[part.name],), "int64")
        if isinstance(part, Sum):
            total: Expr | None = pool.constant(part.constant, "int64") if part.constant else None
            for factor, atom in part.terms:
                term = walk(atom) if factor == 1 else binary("mul", walk(atom), pool.constant(factor, "int64"))
                total = term if total is None else binary("add", total, term)
            assert total is not None
            return total
        if isinstance(part, Product):
            result = walk(part.factors[0])
            for factor_part in part.factors[1:]:
                result = binary("mul", result, walk(factor_part))
            return result
        if isinstance(part, (FloorDiv, Mod)):
            return binary("floordiv" if isinstance(part, FloorDiv) else "mod", walk(part.value), walk(part.divisor))
        if isinstance(part, (Min, Max)):
            return binary("minimum" if isinstance(part, Min) else "maximum", walk(part.left), walk(part.right))
        raise TypeError(f"not a size: {part!r}")

    return walk(value)


def find_symbol(value: Size, name: str) -> Symbol | None:
    """The symbol called `name` inside `value`, with its bounds."""
    if isinstance(value, int):
        return None
    if type(value) is Symbol:
        return value if value.name == name else None
    if type(value) is Sum:
        parts: Iterable[Size] = [atom for _, atom in value.terms]
    elif type(value) is Product:
        parts = value.factors
    elif isinstance(value, (FloorDiv, Mod)):
        parts = (value.value, value.divisor)
    elif isinstance(value, (Min, Max)):
        parts = (value.left, value.right)
    else:
        raise TypeError(f"not a size: {value!r}")
    for part in parts:
        found = find_symbol(part, name)
        if found is not None:
            return found
    return None


def height(below: Sequence[Expr]) -> int:
    """The longest chain among `below`, which has operands before users (`nodes`)."""
    heights: dict[int, int] = {}
    for expr in below:
        heights[id(expr)] = 1 + max([heights[id(each)] for each in children(expr)], default=0)
    return max(heights.values(), default=0)


def operation_cost(expr: Expr) -> int:
    """Estimated cost of one node."""
    return SCALARS[expr.op].cost if type(expr) is Compute else 0


def affine_strides(value: Size, axes: Container[str]) -> tuple[dict[str, Size], frozenset[str]]:
    """Strides of `value` by loop symbol, and the loop symbols (of `axes`) that occur in it in any other way."""
    if isinstance(value, int):
        return {}, _NO_SYMBOLS
    strides: dict[str, Size] = {}
    other: set[str] = set()
    for factor, atom in value.terms if type(value) is Sum else ((1, value),):
        if type(atom) is Symbol:
            if atom.name in axes:
                strides[atom.name] = add(strides.get(atom.name, 0), factor)
            continue
        inside = [name for name in size_symbols(atom) if name in axes]
        if len(inside) == 1 and type(atom) is Product:
            # A dynamic stride such as s0 * i.
            rest = [part for part in atom.factors if not (type(part) is Symbol and part.name == inside[0])]
            if len(rest) == len(atom.factors) - 1 and not any(inside[0] in size_symbols(part) for part in rest):
                strides[inside[0]] = add(strides.get(inside[0], 0), mul(product(rest), factor))
                continue
        other.update(inside)
    return strides, frozenset(other)


#: The elements of one row of a `horizontal` kernel, in units of 1 or `UNIT`; all rows are many together.
ELEMENTS = Symbol("elements", 1, 1 << 26)
UNIT = 16
MANY_ELEMENTS = 1 << 20


def estimate(value: Size) -> int:
    """A plausible number for `value`: dynamic sizes count as 64 within their bounds, loop indices as 0."""
    if isinstance(value, int):
        return value
    names = {
        name: 0 if symbol.lower == 0 and symbol.upper < INFINITY else max(symbol.lower, min(symbol.upper, 64))
        for name, symbol in _all_symbols(value).items()
    }
    if ELEMENTS.name in names:
        names[ELEMENTS.name] = MANY_ELEMENTS
    return evaluate(value, names)


def _all_symbols(value: Size) -> dict[str, Symbol]:
    return {name: found for name in size_symbols(value) if (found := find_symbol(value, name)) is not None}
