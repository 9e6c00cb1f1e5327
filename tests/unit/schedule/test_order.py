"""The order of loads and stores: whatever depends on one another stays in order, and memory that is written twice is right.

Generated programs whose nests store to parts of buffers, to all of them again, and to the caller's memory, between reads,
reductions and calls; and small ones that differ in one thing, so that a table of what was scheduled before tells them apart.
"""

from __future__ import annotations

import random

import pytest

from lampwork.ir.loops import LoopNest, Origin, Store
from lampwork.ir.program import Check, Extern
from lampwork.ir.size import Symbol
from lampwork.schedule import regions, segment
from lampwork.schedule.dependences import accesses, find_dependences
from tests.unit.schedule.programs import Graph, assert_same, below, constant, inside, launches, op, symbol
from tests.unit.schedule.test_fuzz import eager_to_split

# Dependences ---------------------------------------------------------------------------------------------------------


def _items(chooser):
    """Buffers and items at random: what each reads and writes is all that counts."""
    g = Graph()
    names = [g.input((4,)) for _ in range(2)] + [
        g._buffer(f"t{number}", (4,), "float32", "intermediate", None) for number in range(3)
    ]
    flag = g.input((), "bool")
    items = []
    for number in range(chooser.randint(3, 10)):
        origin = Origin(f"n{number}", "test")
        read, written = chooser.choice(names), chooser.choice(names)
        kind = chooser.choice(["nest", "nest", "part", "call", "draw", "check", "copy"])
        axes, index = g._grid((4,), "i")
        if kind == "check":
            items.append(Check(flag, "wrong", origin=origin))
        elif kind in ("nest", "part"):
            items.append(
                LoopNest(axes, Store(written, index, g.load(read, *index)), partial=kind == "part", origin=origin)
            )
        elif kind == "copy":
            items.append(
                Extern("aten::copy_.default", (g.ref(written), g.ref(read)), (), (None,), None, (written,), origin)
            )
        else:
            made = chooser.choice(names[2:])
            items.append(
                Extern("aten::sin.default", (g.ref(read),), (), (made,), None, (), origin, draws=kind == "draw")
            )
    return items, g.buffers


def test_what_touches_the_same_stays_in_order():
    """Each pair of items of which one writes what the other touches; draws; the caller's memory behind checks."""
    for seed in range(300):
        items, buffers = _items(random.Random(seed))
        before = find_dependences(items, buffers).before
        after = [set() for _ in items]  # all that an item must follow
        for number, direct in enumerate(before):
            assert all(other < number for other in direct)
            after[number] = set(direct).union(*(after[other] for other in direct))
        for number, item in enumerate(items):
            reads, writes = map(set, accesses(item))
            for other in range(number):
                earlier_reads, earlier_writes = map(set, accesses(items[other]))
                needed = bool(writes & (earlier_reads | earlier_writes) or reads & earlier_writes)
                draws = [isinstance(each, Extern) and each.draws for each in (items[other], item)]
                checked = isinstance(items[other], Check) and (
                    draws[1] or any(buffers[name].kind == "input" for name in writes)
                )
                if needed or all(draws) or checked:
                    assert other in after[number], f"seed {seed}: {number} may run before {other}"


# Programs -------------------------------------------------------------------------------------------------------------

SHAPE = (3, 4)


class Writer:
    """Builds one program; its buffers are of one shape, so that each may be read and written where another is."""

    def __init__(self, seed: int) -> None:
        self.chooser = random.Random(seed)
        self.g = Graph()
        self.inputs = [self.g.input(SHAPE) for _ in range(3)]
        self.row = self.g.input((4,))
        self.ids = self.g.input((3,), "int64")
        self.made: list[str] = []
        self.results: list[str] = []
        #: Inputs that nothing reads any more, since they are written: those come last.
        self.changed: list[str] = []

    def any(self) -> str:
        return self.chooser.choice([*(each for each in self.inputs if each not in self.changed), *self.made[-4:]])

    def value(self, name: str):
        """Something of one element of a buffer, and perhaps of another."""
        other, kind = self.any(), self.chooser.choice(["scaled", "sum", "alone", "row"])

        def body(i, j):
            x = self.g.load(name, i, j)
            if kind == "scaled":
                return op("mul", x, constant(0.5))
            if kind == "alone":
                return op("neg", x)
            if kind == "row":
                return op("add", x, self.g.load(self.row, j))
            return op("sub", x, op("mul", self.g.load(other, i, j), constant(0.25)))

        return body

    def step(self) -> None:
        kinds = [
            "make",
            "make",
            "heavy",
            "rows",
            "columns",
            "part",
            "part",
            "one_row",
            "call",
            "shifted",
            "gathered",
            "masked",
        ]
        getattr(self, self.chooser.choice(kinds))()

    def make(self) -> None:
        self.made.append(self.g.pointwise(SHAPE, self.value(self.any())))

    def heavy(self) -> None:
        """What is not computed twice."""
        x = self.any()
        self.made.append(self.g.pointwise(SHAPE, lambda i, j: op("tanh", op("sin", self.g.load(x, i, j)))))

    def rows(self) -> None:
        x = self.any()
        self.results.append(self.g.reduce("sum", (3,), (4,), lambda i, r: self.g.load(x, i, r)))

    def columns(self) -> None:
        x = self.any()
        self.results.append(self.g.reduce("max", (4,), (3,), lambda i, r: self.g.load(x, r, i)))

    def shifted(self) -> None:
        x = self.any()
        self.made.append(self.g.pointwise(SHAPE, lambda i, j: op("abs", self.g.load(x, i, 3 - j))))

    def gathered(self) -> None:
        """Rows of a buffer, in an order that data decide, beside the rows in order."""
        x, row = self.any(), Symbol("x", 0, 2)
        bound = (("x", inside(self.g.load(self.ids, symbol("i0", 3)), 3)),)
        body = lambda i, j: op("add", self.g.load(x, row, j, indirect=bound), self.g.load(x, i, j))
        self.made.append(self.g.pointwise(SHAPE, body))

    def masked(self) -> None:
        """One element under one condition, with other numbers where it does not hold."""
        x, limit = self.any(), self.chooser.randint(0, 4)
        first, second = (self.chooser.choice([0.0, 1.0, -3.0]) for _ in range(2))

        def body(i, j):
            mask = below(j, limit)
            return op("sub", self.g.load(x, i, j, mask=mask, other=first),
                      op("exp", self.g.load(x, i, j, mask=mask, other=second)))  # fmt: skip

        self.made.append(self.g.pointwise(SHAPE, body))

    def call(self) -> None:
        x = self.g.pointwise(SHAPE, self.value(self.any()))
        self.made.append(self.g.extern("double.out", (x,), SHAPE))

    def store(self, target: str, shape, where, body, partial: bool) -> None:
        axes, index = self.g._grid(shape, "i")
        store = Store(target, where(*index), body(*index))
        self.g._add(LoopNest(axes, store, partial=partial, origin=Origin(target, "write")))

    def part(self, target: str = "") -> None:
        if not (target := target or (self.chooser.choice(self.made) if self.made else "")):
            return
        x, low = self.any(), self.chooser.randint(0, 2)
        if x != target:
            self.store(target, (3, 2), lambda i, j: (i, j + low), lambda i, j: op("neg", self.g.load(x, i, j)), True)

    def one_row(self, target: str = "") -> None:
        if not (target := target or (self.chooser.choice(self.made) if self.made else "")):
            return
        x, place = self.any(), self.chooser.randint(0, 2)
        if x != target:
            double = lambda j: op("mul", self.g.load(x, 0, j), constant(2.0))
            self.store(target, (4,), lambda j: (place, j), double, True)

    def write(self) -> None:
        """An input, all of it or in parts, perhaps from what it was."""
        target = self.chooser.choice([each for each in self.inputs if each not in self.changed])
        kind = self.chooser.choice(["all", "all", "part", "one_row"])
        if kind == "all":
            body = self.value(self.chooser.choice([target, self.any()]))
            self.changed.append(target)
            self.store(target, SHAPE, lambda i, j: (i, j), body, False)
            return
        self.changed.append(target)
        for _ in range(self.chooser.randint(1, 3)):
            getattr(self, self.chooser.choice(["part", "one_row"]))(target)

    def finish(self):
        results = [*self.results[-3:], *self.made[-2:]] or [self.inputs[0]]
        return self.g.finish(*dict.fromkeys(results))


@pytest.mark.parametrize("part", range(4))
def test_programs_that_write(part):
    for seed in range(part, 240, 4):
        writer = Writer(seed)
        for _ in range(writer.chooser.randint(3, 9)):
            writer.step()
        for _ in range(writer.chooser.randint(0, 2)):
            writer.write()
        if part % 2:
            assert_same(writer.finish())
        else:
            with eager_to_split():
                assert_same(writer.finish())


# Programs that differ in one thing ------------------------------------------------------------------------------------------


def _variant(**changes):
    """A masked load, a pointwise result that is transposed in memory or not, and a fold of it."""
    parts = {
        "other": 0.0,
        "strides": (6, 1),
        "limit": 4,
        "factor": 2.0,
        "shift": 0,
        "op": "sum",
        "partial": False,
    } | changes
    parts |= {"input_strides": parts.get("input_strides", (6, 1)), "mask_op": parts.get("mask_op", "lt")}
    g = Graph()
    x = g.input((5, 6), strides=parts["input_strides"])

    def body(i, j):
        mask = op(parts["mask_op"], below(j, parts["limit"]).args[0], below(j, parts["limit"]).args[1], dtype="bool")
        position = symbol("i1", 6) if not parts["shift"] else j
        loaded = g.load(x, i, position, mask=mask, other=parts["other"])
        return op("add", op("mul", loaded, constant(parts["factor"])), g.load(x, i, 5 - j if parts["shift"] else j))

    y = g.pointwise((5, 6), body, strides=parts["strides"])
    z = g.reduce(parts["op"], (5,), (6,), lambda i, r: g.load(y, i, r))
    return g.finish(*((y, z) if parts.get("both", True) else (z,)))


VARIANTS = [
    {}, {"other": 3.0}, {"other": -0.0}, {"strides": (1, 5)}, {"strides": (8, 1)}, {"input_strides": (1, 5)},
    {"input_strides": (12, 2)}, {"limit": 3}, {"limit": 5}, {"factor": -2.0}, {"factor": 0.0}, {"shift": 1},
    {"op": "max"}, {"op": "min"}, {"op": "prod"}, {"both": False}, {"both": False, "other": 3.0}, {"mask_op": "le"},
    {"mask_op": "gt"}, {"mask_op": "ge"},
]  # fmt: skip


def test_programs_that_differ_in_one_thing():
    """Each is scheduled with all others in the table, and finds its own kernels there when it comes again."""
    segment._memo.clear()
    made = [assert_same(_variant(**changes)) for changes in VARIANTS]
    for changes, program in zip(VARIANTS, made):
        assert [kernel.name for kernel in assert_same(_variant(**changes)).kernels] == [k.name for k in program.kernels]


# Regions -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("comparison", ["lt", "le", "gt", "ge"])
def test_regions_begin_where_comparisons_change(comparison, monkeypatch):
    """A concatenation of five, its conditions written in each of the ways there are; a kernel each, and no masks."""
    monkeypatch.setattr(regions, "SMALLEST_REGION", 1)
    rows = 3

    def before(position, limit):
        """position < limit"""
        plain = below(position, limit).args
        if comparison == "lt":
            return op("lt", *plain, dtype="bool")
        if comparison == "le":
            return op("le", plain[0], constant(limit - 1, "int64"), dtype="bool")
        opposite = op("ge", *plain, dtype="bool") if comparison == "ge" else None
        if opposite is None:
            opposite = op("gt", plain[0], constant(limit - 1, "int64"), dtype="bool")
        return op("not", opposite)

    g = Graph()
    pieces = [g.input((rows, 4)) for _ in range(5)]

    def body(i, j):
        value = g.load(pieces[-1], i - 4 * rows, j, mask=op("not", before(i, 4 * rows)))
        for place in reversed(range(4)):
            mask = before(i, (place + 1) * rows)
            if place:
                mask = op("and", op("not", before(i, place * rows)), mask)
            value = op(
                "where", before(i, (place + 1) * rows), g.load(pieces[place], i - place * rows, j, mask=mask), value
            )
        return value

    segment._memo.clear()
    program = assert_same(g.finish(g.pointwise((5 * rows, 4), body)))
    segment._memo.clear()
    assert launches(program) == 5
