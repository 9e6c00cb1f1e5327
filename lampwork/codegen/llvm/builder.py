"""`Builder`: writes one LLVM function as text, with common subexpressions shared and invariants hoisted as it goes.

The function is a stack of open levels: the function itself, then one level per open loop or conditional block. A pure
instruction is placed at the deepest level among its operands, so loop invariants land before the loop, and equal
instructions of a level are written once. What reads or writes memory is placed at the innermost level, in order.

A closed level's text is appended to its parent between the branch into it and its end label; so whatever was appended
to the parent while the level was open dominates it.
"""

from __future__ import annotations

from lampwork.codegen.llvm.types import BITS, float_bits, float_literal, mangled, vector

#: The whole numbers as wide as a type.
_WHOLE = {"float": "i32", "double": "i64"}


class Value:
    """An SSA value or a literal: `lanes` of scalar `type`; `level` is the depth of the level that defines it."""

    __slots__ = ("lanes", "level", "text", "type")

    def __init__(self, text: str, type: str, lanes: int = 1, level: int = 0) -> None:
        self.text, self.type, self.lanes, self.level = text, type, lanes, level

    @property
    def is_constant(self) -> bool:
        return self.text[0] != "%"

    def __repr__(self) -> str:
        return f"{vector(self.type, self.lanes)} {self.text}"

    __str__ = __repr__


class Level:
    """`runs`: the level is executed whenever its parent is, so what it loads may be loaded before it."""

    __slots__ = ("header", "label", "lines", "memo", "runs")

    def __init__(self, header: str, runs: bool) -> None:
        self.header = self.label = header  # `label` names the block that is being written
        self.lines: list[str] = []
        self.memo: dict[str, Value] = {}
        self.runs = runs


class Builder:
    """See the module. `declarations` collects the intrinsics used, for the module to declare."""

    def __init__(self, declarations: dict[str, str]) -> None:
        self.levels = [Level("entry", True)]
        self.declarations = declarations
        self.allocations: list[str] = []
        self.rounded: dict[str, Value] = {}  # text of a bfloat16 -> the float32 bits it is the upper half of
        self._counter = 0

    # -- placing instructions -----------------------------------------------------------------------------------------

    def fresh(self) -> str:
        self._counter += 1
        return f"%v{self._counter}"

    def fresh_label(self, hint: str) -> str:
        self._counter += 1
        return f"{hint}{self._counter}"

    @property
    def depth(self) -> int:
        return len(self.levels) - 1

    def pure(self, type: str, lanes: int, text: str, *operands: Value) -> Value:
        """The value of instruction `text`, which depends on `operands` alone and cannot trap."""
        depth = 0
        for operand in operands:
            if operand.level > depth:
                depth = operand.level
        return self.at_level(type, lanes, text, depth)

    def at_level(self, type: str, lanes: int, text: str, depth: int) -> Value:
        """As `pure`, at the level of the given depth."""
        level = self.levels[depth]
        known = level.memo.get(text)
        if known is None:
            known = level.memo[text] = Value(self.fresh(), type, lanes, depth)
            level.lines.append(f"  {known.text} = {text}")
        return known

    def here(self, type: str, lanes: int, text: str) -> Value:
        """The value of instruction `text`, placed at this point of the program and never shared."""
        result = Value(self.fresh(), type, lanes, self.depth)
        self.levels[-1].lines.append(f"  {result.text} = {text}")
        return result

    def effect(self, text: str, depth: int = -1) -> None:
        """Writes an instruction without a result at the innermost level, or at the end of an outer one so far."""
        self.levels[depth].lines.append("  " + text)

    def allocate(self, type: str, align: int) -> str:
        """A stack slot of the function (allocated once, at entry); the pointer's text."""
        name = self.fresh()
        self.allocations.append(f"  {name} = alloca {type}, align {align}")
        return name

    def load_depth(self, wanted: int) -> int:
        """The shallowest depth, at least `wanted`, where a load may stand: never above a level that may not run."""
        for depth in range(self.depth, wanted, -1):
            if not self.levels[depth].runs:
                return depth
        return wanted

    # -- control flow -------------------------------------------------------------------------------------------------

    def start_block(self, label: str) -> None:
        self.levels[-1].lines.append(f"{label}:")
        self.levels[-1].label = label

    def open_loop(self, runs: bool) -> Value:
        """Opens a counting loop's level; the result is its i64 counter. Close it with `close_loop`."""
        self.levels.append(Level(self.fresh_label("loop"), runs))
        return Value(self.fresh(), "i64", 1, self.depth)

    def close_loop(self, counter: Value, start: Value, end: Value, step: int) -> None:
        """`for (counter = start; counter < end; counter += step)`. `end - start` must be a multiple of `step`.

        Unless the level `runs`, an empty range is skipped; else it must not be empty.
        """
        guard = None
        runs = self.levels[-1].runs
        following = self.binary("add", counter, self.integer(step), flags=" nuw nsw")
        again = self.compare("icmp slt", following, end)
        level = self.levels.pop()
        parent = self.levels[-1]
        done = self.fresh_label("done")
        if not runs:
            guard = self.compare("icmp slt", start, end)
        before = parent.label
        if guard is None:
            parent.lines.append(f"  br label %{level.header}")
        else:
            parent.lines.append(f"  br i1 {guard.text}, label %{level.header}, label %{done}")
        parent.lines.append(f"{level.header}:")
        parent.lines.append(
            f"  {counter.text} = phi i64 [ {start.text}, %{before} ], [ {following.text}, %{level.label} ]"
        )
        parent.lines += level.lines
        parent.lines.append(f"  br i1 {again.text}, label %{level.header}, label %{done}")
        self.start_block(done)

    def open_block(self) -> None:
        """Opens the level of a block that runs under a condition. Close it with `close_block`."""
        self.levels.append(Level(self.fresh_label("then"), False))

    def close_block(self, condition: Value) -> None:
        level = self.levels.pop()
        done = self.fresh_label("done")
        self.effect(f"br i1 {condition.text}, label %{level.header}, label %{done}")
        self.levels[-1].lines.append(f"{level.header}:")
        self.levels[-1].lines += level.lines
        self.effect(f"br label %{done}")
        self.start_block(done)

    def function(self, signature: str, attributes: str) -> str:
        """The finished function, which returns void."""
        (level,) = self.levels
        lines = [f"define {signature} {attributes} {{", "entry:", *self.allocations, *level.lines, "  ret void", "}"]
        return "\n".join(lines)

    # -- constants and shapes -----------------------------------------------------------------------------------------

    def integer(self, value: int, type: str = "i64") -> Value:
        bits = BITS[type]
        value &= (1 << bits) - 1
        return Value(str(value - (1 << bits) if value >> (bits - 1) else value), type)

    def number(self, value: float, type: str) -> Value:
        return Value(float_literal(value, type), type)

    def boolean(self, value: bool) -> Value:
        return Value("true" if value else "false", "i1")

    def widen(self, value: Value, lanes: int) -> Value:
        """`value` in every lane, unless it has `lanes` lanes already."""
        if value.lanes == lanes:
            return value
        if value.is_constant:
            return Value(f"splat ({value.type} {value.text})", value.type, lanes)
        type = vector(value.type, lanes)
        first = self.pure(value.type, lanes, f"insertelement {type} poison, {value}, i64 0", value)
        return self.pure(
            value.type, lanes, f"shufflevector {first}, {type} poison, <{lanes} x i32> zeroinitializer", first
        )

    def same_lanes(self, *values: Value) -> tuple[Value, ...]:
        lanes = max(value.lanes for value in values)
        return tuple(self.widen(value, lanes) for value in values)

    def iota(self, lanes: int, type: str, step: int = 1) -> Value:
        """`0, step, 2 * step, ...`"""
        if lanes == 1:
            return self.integer(0, type)
        items = ", ".join(f"{type} {lane * step}" for lane in range(lanes))
        return Value(f"<{items}>", type, lanes)

    def shuffle(self, first: Value, second: Value | None, lanes: list[int]) -> Value:
        """The lanes of `first` and `second` (numbered on) listed; the result has at least two lanes."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        other = f"{second}" if second is not None else f"{vector(first.type, first.lanes)} poison"
        operands = (first,) if second is None else (first, second)
        text = f"shufflevector {first}, {other}, <{len(lanes)} x i32> <{mask}>"
        return self.pure(first.type, len(lanes), text, *operands)

    def extract(self, value: Value, lane: int) -> Value:
        if value.lanes == 1:
            return value
        return self.pure(value.type, 1, f"extractelement {value}, i64 {lane}", value)

    def piece(self, value: Value, start: int, lanes: int) -> Value:
        """Lanes `start .. start + lanes` of `value`."""
        if value.lanes == lanes:
            return value
        if lanes == 1:
            return self.extract(value, start)
        return self.shuffle(value, None, list(range(start, start + lanes)))

    def join(self, pieces: list[Value]) -> Value:
        """The concatenation of equally wide pieces, a power of two in number."""
        while len(pieces) > 1:
            if pieces[0].lanes == 1:
                return self.gather_lanes(pieces)
            lanes = list(range(2 * pieces[0].lanes))
            pieces = [self.shuffle(a, b, lanes) for a, b in zip(pieces[::2], pieces[1::2])]
        return pieces[0]

    def gather_lanes(self, lanes: list[Value]) -> Value:
        """A vector of scalars."""
        type = lanes[0].type
        result = Value("poison", type, len(lanes))
        for lane, value in enumerate(lanes):
            result = self.pure(type, len(lanes), f"insertelement {result}, {value}, i64 {lane}", result, value)
        return result

    # -- instructions -------------------------------------------------------------------------------------------------

    def binary(self, opcode: str, a: Value, b: Value, flags: str = "") -> Value:
        if a.lanes != b.lanes:
            a, b = self.same_lanes(a, b)
        return self.pure(a.type, a.lanes, f"{opcode}{flags} {a}, {b.text}", a, b)

    def compare(self, opcode: str, a: Value, b: Value) -> Value:
        """`opcode` such as "icmp slt" or "fcmp oeq"."""
        if a.lanes != b.lanes:
            a, b = self.same_lanes(a, b)
        return self.pure("i1", a.lanes, f"{opcode} {a}, {b.text}", a, b)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        if condition.text == "true":
            return a
        if condition.text == "false":
            return b
        if condition.lanes == 1:
            a, b = self.same_lanes(a, b)
        else:
            condition, a, b = self.same_lanes(condition, a, b)
        if a.lanes == 1 and a.type in _WHOLE and a.is_constant and b.is_constant:
            # LLVM 22 makes it a load from a table of both. Where it finds later what the condition is, it takes the
            # load for one of the whole table: an assertion of it ends the process, or the number is wrong.
            whole = _WHOLE[a.type]
            bits = (self.integer(float_bits(each.text, each.type), whole) for each in (a, b))
            return self.convert("bitcast", self.select(condition, *bits), a.type)
        return self.pure(a.type, a.lanes, f"select {condition}, {a}, {b}", condition, a, b)

    def from_bool(self, value: Value, type: str) -> Value:
        """A boolean as a number of `type`, 1 or 0."""
        if type not in _WHOLE:
            return self.convert("zext", value, type)
        if value.lanes == 1:  # which LLVM would make a selection between two numbers, too
            return self.select(value, self.number(1.0, type), self.number(0.0, type))
        return self.convert("uitofp", value, type)

    def convert(self, opcode: str, value: Value, type: str) -> Value:
        """`opcode` such as "zext", "fptrunc", "bitcast"."""
        if value.type == type:
            return value
        return self.pure(type, value.lanes, f"{opcode} {value} to {vector(type, value.lanes)}", value)

    def intrinsic(self, name: str, *operands: Value, result: str = "") -> Value:
        """A pure intrinsic such as "fmuladd", overloaded on its first operand's type."""
        operands = self.same_lanes(*operands)
        lanes = operands[0].lanes
        type = vector(result or operands[0].type, lanes)
        full = f"@llvm.{name}.{mangled(operands[0].type, lanes)}"
        if full not in self.declarations:
            types = ", ".join(vector(operand.type, operand.lanes) for operand in operands)
            self.declarations[full] = f"declare {type} {full}({types})"
        arguments = ", ".join(map(str, operands))
        return self.pure(result or operands[0].type, lanes, f"call {type} {full}({arguments})", *operands)

    def declare(self, name: str, declaration: str) -> None:
        self.declarations.setdefault(name, declaration)

    # Short forms for arithmetic written by hand (math.py).

    def fadd(self, a: Value, b: Value) -> Value:
        return self.binary("fadd", a, b)

    def fsub(self, a: Value, b: Value) -> Value:
        return self.binary("fsub", a, b)

    def fmul(self, a: Value, b: Value) -> Value:
        return self.binary("fmul", a, b)

    def fdiv(self, a: Value, b: Value) -> Value:
        return self.binary("fdiv", a, b)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """`a * b + c`, fused where the machine can: for arithmetic of our own only, never for the user's."""
        return self.intrinsic("fmuladd", a, b, c)

    def fabs(self, a: Value) -> Value:
        return self.intrinsic("fabs", a)

    def fneg(self, a: Value) -> Value:
        return self.pure(a.type, a.lanes, f"fneg {a}", a)

    def copysign(self, size: Value, sign: Value) -> Value:
        """The magnitude of `size` with the sign of `sign`, by bits. For the intrinsic, LLVM may convert a `sign` that
        was rounded from a double straight to the half type of the result, with a library call that is not linked."""
        size, sign = self.same_lanes(size, sign)
        type, bits = size.type, BITS[size.type]
        whole, first = f"i{bits}", self.integer(1 << (bits - 1), f"i{bits}")
        size, sign = (self.convert("bitcast", each, whole) for each in (self.fabs(size), sign))
        return self.convert("bitcast", self.binary("or", size, self.binary("and", sign, first)), type)

    def is_nan(self, a: Value) -> Value:
        return self.compare("fcmp uno", a, a)
