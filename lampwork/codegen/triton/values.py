"""`ValueWriter`: expressions, positions and memory accesses of a kernel as Triton text.

    Load(b0, 768*i0 + i1) * 2.0       ->     t0 = tl.load(b0 + (768 * x + r), mask=m0)
                                             t1 = t0 * 2.0

A value is a name and the dimensions of the tile it varies along; what varies along fewer is computed once for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lampwork.codegen.triton.expressions import (
    COMPARISONS,
    TYPES,
    is_narrow,
    literal,
    operation,
    takes_literal,
    typed,
)
from lampwork.codegen.triton.lines import TextLines
from lampwork.codegen.triton.unaligned_rows import Moved
from lampwork.errors import CompileError
from lampwork.ir.loops import Axis, Compute, Constant, Expr, Index, Kernel, Let, Load, Local, Parameter, Store
from lampwork.ir.size import (
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Size,
    Sum,
    Symbol,
    add,
    bounds,
    coefficient,
    mod,
    mul,
    substitute,
    symbols,
)
from lampwork.ir.target import Target

#: A text and the dimensions of the tile it varies along.
Value = tuple[str, frozenset[str]]
NONE: frozenset[str] = frozenset()
#: Types that atomic additions exist for; bfloat16 from sm_90 on.
ATOMIC = frozenset({"float64", "float32", "float16", "bfloat16", "int64", "uint64", "int32", "uint32"})


class ValueWriter(TextLines):
    """Lines that compute values, load and store them, given what the indices in sight are.

    The owner fills in `dims`, `symbols`, `masks` and `fixed` before it asks for a value.
    """

    def __init__(self, kernel: Kernel, target: Target, index_type: str) -> None:
        super().__init__()
        self.kernel, self.target, self.index_type = kernel, target, index_type
        self.parameters: dict[str, Parameter] = {p.name: p for p in kernel.parameters}
        #: Dimensions in order: an axis each of a tile's shape.
        self.dims: tuple[str, ...] = ()
        #: Loop indices, sizes and computed integers.
        self.symbols: dict[str, Value] = {name: (name, NONE) for name in kernel.sizes}
        #: By dimension: what is inside, where blocks overhang.
        self.masks: dict[str, Value] = {}
        #: Loads that begin at an aligned address before what they read, by index.
        self.moved: dict[Size, Moved] = {}
        #: By dimension: the loops that its index goes through, where even places of a tile are even indices.
        self.along: dict[str, tuple[Axis, ...]] = {}
        #: Inner loops that are unrolled: the iteration.
        self.fixed: dict[str, Size] = {}
        self.locals: dict[str, Value] = {}
        #: Conditions that always hold, or never.
        self.decided: dict[str, bool] = {}
        #: By buffer: where it has been stored to, as the index and the iteration of inner loops that are unrolled.
        self.stored: dict[str, list[tuple[Size | None, dict[str, Size]]]] = {}
        #: Functions of `expressions.HELPERS` that the module needs.
        self.helpers: dict[str, None] = {}

    def helper(self, name: str) -> str:
        self.helpers.setdefault(name)
        return name

    def _let(self, stmt: Let) -> None:
        decided = self._decided(stmt.value)
        if decided is not None:
            self.decided[stmt.name] = decided
        else:
            self.decided.pop(stmt.name, None)
            self.locals[stmt.name] = self.value(stmt.value)

    # -- Memory -------------------------------------------------------------------------------------------------------

    def _bind(self, indirect: tuple[tuple[str, Expr], ...]) -> None:
        """Symbols of an index that stand for computed integers."""
        for name, bound in indirect:
            text, dims = self.value(bound)
            if TYPES[bound.dtype] != self.index_type:
                text = self.name(f"{text}.to({self.index_type})")
            self.symbols[name] = (text, dims)

    def _load(self, load: Load) -> Value:
        if not self._precedes_stores(load):
            raise CompileError("generate", f"kernel {self.kernel.name} loads {load.buffer} after storing to it")
        decided = self._decided(load.mask) if load.mask is not None else True
        if decided is False:
            return self.name(typed(load.other, load.dtype)), NONE
        moved = self.moved.get(load.index[0])
        if moved is not None:
            return self._load_moved(load, moved)
        self._bind(load.indirect)
        offset, dims = self._size(load.index[0])
        conditions = [mask[0] for dim, mask in self.masks.items() if dim in dims and mask[1] <= dims]
        wider = dims
        for dim, mask in self.masks.items():
            if dim in dims and not mask[1] <= dims:
                conditions.append(mask[0])
                wider |= mask[1]
        other = ""
        if load.mask is not None and decided is None:
            text, varies = self.value(load.mask)
            for dim, mask in self.masks.items():
                if dim in varies - wider:  # beyond the end of a dimension the condition says nothing
                    conditions.append(mask[0])
                    varies |= mask[1]
            conditions.append(text)
            wider |= varies
            other = f", other={self._other(load)}"
        if wider != dims:
            order = tuple(dim for dim in self.dims if dim in wider)
            offset = self._widen_offset((offset, dims), order)
        pointer = load.buffer if offset == "0" else f"{load.buffer} + {_operand_text(offset)}"
        mask_text = f", mask={self._all(conditions)}" if conditions else ""
        text = f"tl.load({pointer}{mask_text}{other})"
        if load.dtype == "bool":
            text += ".to(tl.int1)"
        return self.name(text), wider

    def _precedes_stores(self, load: Load) -> bool:
        """Whether nothing of what is loaded may have been stored by this kernel, whose threads do not wait for others.

        Unrolled iterations that load and store at one place each have a place of their own.
        """
        for index, fixed in self.stored.get(load.buffer, ()):
            if index is None or load.indirect or index != load.index[0]:
                return False
            low, high = bounds(add(substitute(index, self.fixed), mul(substitute(index, fixed), -1)))
            if low <= 0 <= high:
                return False
        return True

    def _other(self, load: Load) -> str:
        """What a load gives where its mask is false."""
        plain = load.dtype != "float64" or is_narrow(load.other)
        if plain and takes_literal("add", load.dtype, 1, load.other) or load.dtype == "bool":
            return literal(load.other, load.dtype)
        return self.name(typed(load.other, load.dtype))

    def _load_moved(self, load: Load, moved: Moved) -> Value:
        """Aligned reads that may begin before the row and end after it: what lies there is masked where it is folded.

        A vector that reaches over the end of the buffer has an element in it, so that it lies in the same page.
        """
        mask = f", mask={moved.inside}" if moved.inside else ""
        return self.name(f"tl.load({load.buffer} + {moved.offset}{mask})"), moved.dims

    def _store(self, stmt: Store, dims: tuple[str, ...]) -> None:
        dtype = self.parameters[stmt.buffer].dtype
        value, _ = self.value(stmt.value)
        if isinstance(stmt.value, Constant):
            value = self.name(typed(stmt.value.value, stmt.value.dtype))
        self._bind(stmt.indirect)
        offset = self._widen_offset(self._size(stmt.index[0]), dims)
        pointer = stmt.buffer if offset == "0" else f"{stmt.buffer} + {_operand_text(offset)}"
        conditions = [mask[0] for dim, mask in self.masks.items() if dim in dims]
        mask = f", mask={self._all(conditions)}" if conditions else ""
        if stmt.mode == "add":
            too_old = dtype == "bfloat16" and int(self.target.name.removeprefix("sm_") or 0) < 90
            if dtype not in ATOMIC or too_old:
                raise CompileError("generate", f"no atomic addition of {dtype} on {self.target.name}")
            self._line(f'tl.atomic_add({pointer}, {value}{mask}, sem="relaxed")')
        else:
            self._line(f"tl.store({pointer}, {value}{mask})")
        place = None if stmt.indirect or stmt.mode == "add" else stmt.index[0]
        self.stored.setdefault(stmt.buffer, []).append((place, dict(self.fixed)))

    def _all(self, conditions: list[str]) -> str:
        text = conditions[0]
        for other in conditions[1:]:
            text = self.name(f"{text} & {other}")
        return text

    def _shape(self, dims: tuple[str, ...]) -> str:
        """The shape of a tile that varies along `dims`."""
        return "[" + ", ".join(f"{dim.upper()}BLOCK" if dim in dims else "1" for dim in self.dims) + "]"

    def _widen(self, value: Value, dims: tuple[str, ...]) -> str:
        """`value` over all of `dims`."""
        text, varies = value
        if varies >= set(dims):
            return text
        return self.name(f"tl.broadcast_to({text}, {self._shape(dims)})")

    def _widen_offset(self, value: Value, dims: tuple[str, ...]) -> str:
        """The same for an offset, which may be a number."""
        text, varies = value
        if varies >= set(dims):
            return text
        zeros = self.name(f"tl.full({self._shape(dims)}, 0, {self.index_type})")
        return zeros if text == "0" else self.name(f"{zeros} + {_operand_text(text)}")

    # -- Expressions --------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        """The name that holds `expr`."""
        if isinstance(expr, Constant):
            return self.name(typed(expr.value, expr.dtype)), NONE
        if isinstance(expr, Index):
            text, dims = self._position_value(expr.value)
            if text.lstrip("-").isdigit():
                return self.name(typed(int(text), "int64")), NONE
            return self.name(f"{_operand_text(text)}.to(tl.int64)"), dims
        decided = self._decided(expr)
        if decided is not None:
            return self.name(typed(decided, "bool")), NONE
        if isinstance(expr, Local):
            return self.locals[expr.name]
        if isinstance(expr, Load):
            return self._load(expr)
        if expr.op == "asserted":
            self._assert(expr.args[1])
            return self.value(expr.args[0])
        if expr.op == "promised":
            return self.value(expr.args[0])
        if expr.op == "random":
            return self._random(*expr.args)
        if expr.op in COMPARISONS:
            found = self._compared_indices(expr)
            if found is not None:
                return found
        if expr.op in ("and", "or") and expr.dtype == "bool":
            for arg, other in (expr.args, expr.args[::-1]):
                decided = self._decided(arg)
                if decided is not None:
                    return self.value(other if decided == (expr.op == "and") else Constant(decided, "bool"))
        dtype = expr.args[-1].dtype
        varying = [place for place, arg in enumerate(expr.args) if not isinstance(arg, Constant)]
        if expr.op == "where":
            varying = [place for place in varying if place > 0]
        args, dims = [], NONE
        for place, arg in enumerate(expr.args):
            if isinstance(arg, Constant) and varying and takes_literal(expr.op, dtype, place, arg.value):
                args.append(literal(arg.value, arg.dtype))
                continue
            text, varies = self.value(arg)
            args.append(text)
            dims |= varies
        return operation(self, expr.op, dtype, expr.dtype, tuple(args)), dims

    def _assert(self, condition: Expr) -> None:
        """A line that stops the device where `condition` is false inside the loops' bounds, unless one is in sight."""
        if self._decided(condition):
            return
        text, dims = self.value(condition)
        inside = [mask[0] for dim, mask in self.masks.items() if dim in dims]
        mask = f", mask={self._all(inside)}" if inside else ""
        operators = ", ".join(dict.fromkeys(origin.op for origin in self.kernel.origins))
        line = f'tl.device_assert({text}, "an index or a value is out of range, in {operators}"{mask})'
        if not any(line in table for table in self.known):
            self._line(line)
            self.known[-1][line] = text

    def _random(self, key: Expr, number: Expr) -> Value:
        """Random bits. Neighbours of a tile that are the two words of one counter are made together: half the work."""
        word, varies = self.value(key)
        if not isinstance(number, Index):
            text, dims = self.value(number)
            return self._random_word(word, text, narrow=False), dims | varies
        text, dims = self._position_value(number.value)
        text = self.name(f"tl.full([], {text}, tl.int64)" if text.isdigit() else text)
        low, high = bounds(number.value)
        narrow = low >= 0 and high < 1 << 33
        last = self.dims[-1] if self.dims else ""
        value = substitute(number.value, self.fixed) if self.fixed else number.value
        if varies or last not in dims or not pairs_along(value, self.along.get(last, ())):
            return self._random_word(word, text, narrow), dims | varies
        shape, block = self._shape(tuple(dim for dim in self.dims if dim in dims)), f"{last.upper()}BLOCK"
        pairs = self.name(f"tl.reshape({text}, {shape.replace(block, f'{block} // 2')[:-1]}, 2])")
        even, _ = self.block((f"{{0}}, {{1}} = tl.split({pairs})",), "{0} {1}").split()
        words = self.name(f"tl.join({', '.join(self._random_words(word, even, narrow))})")
        return self.name(f"tl.reshape({words}, {shape})"), dims

    def _random_words(self, key: str, number: str, narrow: bool) -> list[str]:
        """Both words of a number's counter; one of 32 bits, as positions mostly give, has no upper half."""
        low = self.name(f"({number} >> 1).to(tl.uint32)")
        high = "0" if narrow else self.name(f"({number} >> 33).to(tl.uint32)")
        return self.block((f"{{0}}, {{1}} = {self.helper('random_words')}({key}, {low}, {high})",), "{0} {1}").split()

    def _random_word(self, key: str, number: str, narrow: bool) -> str:
        first, second = self._random_words(key, number, narrow)
        return self.name(f"tl.where(({number} & 1) == 0, {first}, {second})")

    def _decided(self, expr: Expr) -> bool | None:
        """What a condition on positions always is, by the bounds of the loops."""
        if isinstance(expr, Constant) and expr.dtype == "bool":
            return bool(expr.value)
        if isinstance(expr, Local):
            return self.decided.get(expr.name)
        if not isinstance(expr, Compute) or expr.dtype != "bool":
            return None
        if expr.op in ("and", "or"):
            known = {self._decided(arg) for arg in expr.args}
            decisive = expr.op == "or"
            return decisive if decisive in known else not decisive if known == {not decisive} else None
        if expr.op not in _ORDER:
            return None
        limits: list[tuple[int, int]] = []
        for arg in expr.args:
            if isinstance(arg, Index):
                limits.append(bounds(substitute(arg.value, self.fixed) if self.fixed else arg.value))
            elif isinstance(arg, Constant) and arg.dtype == "int64":
                limits.append((int(arg.value), int(arg.value)))
            else:
                return None
        never, always = _ORDER[expr.op](*limits[0], *limits[1])
        return True if always else False if never else None

    def _compared_indices(self, expr: Compute) -> Value | None:
        """Positions are compared as the integers they are made of: 64 bits would take twice the instructions."""
        if not any(isinstance(arg, Index) for arg in expr.args):
            return None
        texts, dims = [], NONE
        for arg in expr.args:
            if isinstance(arg, Index):
                text, varies = self._position_value(arg.value)
                texts.append(_operand_text(text))
                dims |= varies
            elif isinstance(arg, Constant) and abs(int(arg.value)) < 1 << 31:
                texts.append(literal(arg.value, "int64"))
            else:
                return None
        return self.name(f"{texts[0]} {COMPARISONS[expr.op]} {texts[1]}"), dims

    def _position_value(self, value: Size) -> Value:
        """A position as a value: unlike an offset it may be larger than all memory (`arange` in large steps)."""
        if self.index_type == "tl.int64" or all(_is_narrow(part) for part in parts(value)):
            return self._size(value)
        saved = dict(self.symbols)
        for name in symbols(value):
            text, dims = self.symbols[name]
            if name not in self.fixed:
                self.symbols[name] = (self.name(f"{_operand_text(text)}.to(tl.int64)"), dims)
        found = self._size(value)
        self.symbols = saved
        return found

    def _divisor(self, value: Size) -> str:
        """A size as the right operand of a division."""
        return _operand_text(self._size(value)[0])

    def _size(self, value: Size) -> Value:
        """An index expression as text. Divisions round to zero in Triton: where a dividend may be negative they are
        put right."""
        if self.fixed:
            value = substitute(value, self.fixed)
        if isinstance(value, int):
            return str(value), NONE
        if isinstance(value, Symbol):
            found = self.symbols.get(value.name)
            if found is None:
                raise CompileError("generate", f"kernel {self.kernel.name}: unknown index {value.name}")
            return found
        if isinstance(value, Sum):
            parts: list[str] = []
            dims = NONE
            for factor, atom in value.terms:
                text, varies = self._size(atom)
                if text == "0":
                    continue
                dims |= varies
                part = _operand_text(text) if factor in (1, -1) else f"{abs(factor)} * {_operand_text(text)}"
                sign = "-" if factor < 0 else "+"
                parts.append(part if not parts and factor > 0 else f"{sign} {part}")
            if value.constant or not parts:
                sign = "-" if value.constant < 0 else "+"
                parts.append(str(value.constant) if not parts else f"{sign} {abs(value.constant)}")
            return " ".join(parts), dims
        if isinstance(value, Product):
            texts = [self._size(factor) for factor in value.factors]
            if any(text == "0" for text, _ in texts):
                return "0", NONE
            return " * ".join(_operand_text(text) for text, _ in texts), NONE.union(*(dims for _, dims in texts))
        if isinstance(value, (FloorDiv, Mod)):
            (text, dims), (divisor, varies) = self._size(value.value), self._size(value.divisor)
            text = _operand_text(text)
            divisor = _operand_text(divisor)
            if bounds(value.value)[0] < 0:
                # (v - (v < 0) * (d - 1)) rounded to zero is v // d rounded down.
                text = self.name(text) if not text.isidentifier() else text
                quotient = f"({text} - tl.where({text} < 0, {divisor} - 1, 0)) // {divisor}"
                if isinstance(value, FloorDiv):
                    return self.name(quotient), dims | varies
                return self.name(f"{text} - {divisor} * {self.name(quotient)}"), dims | varies
            return self.name(f"{text} {'//' if isinstance(value, FloorDiv) else '%'} {divisor}"), dims | varies
        if isinstance(value, (Min, Max)):
            (left, dims), (right, varies) = self._size(value.left), self._size(value.right)
            function = "tl.minimum" if isinstance(value, Min) else "tl.maximum"
            return self.name(f"{function}({left}, {right})"), dims | varies
        raise TypeError(f"not a size: {value!r}")


#: (never, always) true of a value in [a, b] and another in [c, d].
_ORDER: dict[str, Callable[[int, int, int, int], tuple[bool, bool]]] = {
    "lt": lambda a, b, c, d: (a >= d, b < c),
    "le": lambda a, b, c, d: (a > d, b <= c),
    "gt": lambda a, b, c, d: (b <= c, a > d),
    "ge": lambda a, b, c, d: (b < c, a >= d),
    "eq": lambda a, b, c, d: (b < c or a > d, a == b == c == d),
    "ne": lambda a, b, c, d: (a == b == c == d, b < c or a > d),
}


def pairs_along(number: Size, axes: tuple[Axis, ...]) -> bool:
    """Whether neighbours along one index over `axes`, an even one and the next, have numbers 2k and 2k + 1."""
    long = [axis for axis in axes if axis.extent != 1]
    if not long or coefficient(number, long[-1].name) != 1:
        return False
    steps = [coefficient(number, axis.name) for axis in long]
    if all(
        step == mul(inner, axis.extent) for step, inner, axis in zip(steps, steps[1:], long[1:]) if inner is not None
    ):
        return mod(substitute(number, {axis.name: 0 for axis in long}), 2) == 0  # the index itself
    return mod(long[-1].extent, 2) == 0 and mod(substitute(number, {long[-1].name: 0}), 2) == 0


def parts(value: Size) -> Iterator[Size]:
    """`value` and all that it is made of."""
    yield value
    if isinstance(value, Sum):
        for factor, atom in value.terms:
            yield from parts(atom)
            yield mul(atom, factor)
    elif isinstance(value, Product):
        for atom in value.factors:
            yield from parts(atom)
    elif isinstance(value, (FloorDiv, Mod)):
        yield from parts(value.value)
        yield from parts(value.divisor)
    elif isinstance(value, (Min, Max)):
        yield from parts(value.left)
        yield from parts(value.right)


def _is_narrow(value: Size) -> bool:
    low, high = bounds(value)
    return -(1 << 31) <= low and high < 1 << 31


def _operand_text(text: str) -> str:
    """`text` as an operand: in parentheses if it is more than a name or a number."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"
