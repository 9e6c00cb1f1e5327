"""Generated programs of pointwise, reduction, broadcast, transpose, reshape, cat and gather nests: scheduled equals unscheduled."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lampwork.ir.size import Symbol, floordiv, mod
from tests.fuzz.thresholds import as_if_large
from tests.thresholds import thresholds
from tests.unit.schedule.programs import Graph, assert_same, below, constant, inside, op

EXAMPLES = int(os.environ.get("LAMPWORK_FUZZ_EXAMPLES", "60"))
UNARY = ("neg", "exp", "tanh", "abs", "relu", "sigmoid")
BINARY = ("add", "sub", "mul", "maximum", "where")


def eager_to_split():
    """Thresholds so low that tiny shapes are cut, tiled, run in parallel and reduced in two stages."""
    return thresholds({
        "lampwork.schedule.loops.WORTH_A_THREAD_NS": 0.001, "lampwork.schedule.loops.SMALLEST_CHUNK": 4,
        "lampwork.schedule.loops.LARGEST_CHUNK": 8, "lampwork.schedule.split.LARGE_ELEMENTS": 16,
        "lampwork.schedule.split.CHUNK_ELEMENTS": 4, "lampwork.schedule.fuse.FEW_ROWS": 0,
    })  # fmt: skip


class Chooser:
    """Draws one program. Values stay small: every nest's result is squashed now and then."""

    def __init__(self, draw, long_axis: int) -> None:
        self.draw = draw
        self.g = Graph()
        self.a, self.b = draw(st.sampled_from([2, 3, 4])), long_axis
        self.tensors: list[str] = []
        for shape in [(self.a, self.b), (self.b,), (self.a, 1), (2, self.a, self.b)]:
            self.tensors.append(self.g.input(shape))
        self.ids = self.g.input((self.a,), "int64")
        self.tensors.append(self.g.input((self.a, self.b), strides=(self.b + 2, 1)))  # rows with gaps

    def pick(self, condition=lambda shape: True) -> str:
        names = [name for name in self.tensors if condition(self.g.buffers[name].shape)]
        # Recent tensors first: chains, not stars.
        return names[-1 - self.draw(st.integers(0, min(len(names) - 1, 4)))]

    def shape(self, name: str) -> tuple:
        return self.g.buffers[name].shape

    def broadcast(self, name: str, index: tuple):
        shape = self.shape(name)
        tail = index[len(index) - len(shape) :]
        return self.g.load(name, *[0 if extent == 1 else i for i, extent in zip(tail, shape)])

    def step(self) -> None:
        kind = self.draw(
            st.sampled_from(
                [
                    "unary",
                    "binary",
                    "binary",
                    "reduce",
                    "center",
                    "transpose",
                    "cat",
                    "flatten",
                    "gather",
                    "pad",
                    "masked",
                    "masked",
                    "extern",
                ]
            )
        )
        getattr(self, kind)()

    def unary(self) -> None:
        x, name = self.pick(), self.draw(st.sampled_from(UNARY))

        def body(*i):
            value = self.g.load(x, *i)
            if name == "relu":
                return op("maximum", value, constant(0.0))
            if name == "exp":
                return op("exp", op("minimum", value, constant(2.0)))
            return op(name, value)

        self.add(self.shape(x), body)

    def binary(self) -> None:
        x, name = self.pick(), self.draw(st.sampled_from(BINARY))
        shape = self.shape(x)
        fits = lambda other: (
            len(other) <= len(shape) and all(m in (1, n) for m, n in zip(other, shape[len(shape) - len(other) :]))
        )
        y = self.pick(fits)

        def body(*i):
            left, right = self.g.load(x, *i), self.broadcast(y, i)
            if name == "where":
                return op("where", op("lt", left, right, dtype="bool"), left, right)
            return op(name, left, right)

        self.add(shape, body)

    def reduce(self) -> None:
        x = self.pick(lambda shape: len(shape) > 1)
        shape = self.shape(x)
        dims = self.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
        name = self.draw(st.sampled_from(["sum", "max", "min"]))
        kept = [d for d in range(len(shape)) if d not in dims]

        def body(*i):
            index = dict(zip([*kept, *sorted(dims)], i))
            value = self.g.load(x, *[index[d] for d in range(len(shape))])
            return op("mul", value, constant(0.25)) if name == "sum" else value

        result = self.g.reduce(name, [shape[d] for d in kept], [shape[d] for d in sorted(dims)], body)
        if kept:
            self.tensors.append(result)
        self.last = result

    def center(self) -> None:
        """x - reduce(x), the shape of every normalisation."""
        x = self.pick(lambda shape: len(shape) > 1)
        shape = self.shape(x)
        dim = self.draw(st.integers(0, len(shape) - 1))
        kept = [d for d in range(len(shape)) if d != dim]

        def inner(*i):
            index = dict(zip([*kept, dim], i))
            return self.g.load(x, *[index[d] for d in range(len(shape))])

        top = self.g.reduce("max", [shape[d] for d in kept], [shape[dim]], inner)
        self.add(shape, lambda *i: op("sub", self.g.load(x, *i), self.g.load(top, *[i[d] for d in kept])))

    def transpose(self) -> None:
        x = self.pick(lambda shape: len(shape) > 1)
        shape = self.shape(x)
        self.add((*shape[:-2], shape[-1], shape[-2]), lambda *i: self.g.load(x, *i[:-2], i[-1], i[-2]))

    def cat(self) -> None:
        x = self.pick()
        shape = self.shape(x)
        y = self.pick(lambda other: other == shape)
        first = shape[0]

        def body(*i):
            low = below(i[0], first)
            left = self.g.load(x, *i, mask=low)
            return op("where", low, left, self.g.load(y, i[0] - first, *i[1:], mask=op("not", low)))

        self.add((2 * first, *shape[1:]), body)

    def pad(self) -> None:
        x = self.pick()
        shape = self.shape(x)

        def body(*i):
            return self.g.load(
                x, *i[:-1], i[-1] - 1, mask=op("and", below(0, i[-1]), below(i[-1], shape[-1] + 1)), other=0.5
            )

        self.add((*shape[:-1], shape[-1] + 2), body)

    def masked(self) -> None:
        """A pointwise value of two tensors behind a mask: what the smaller one gives depends on fewer axes."""
        x = self.pick()
        shape = self.shape(x)
        fits = lambda other: (
            len(other) <= len(shape) and all(m in (1, n) for m, n in zip(other, shape[len(shape) - len(other) :]))
        )
        y = self.pick(fits)
        axis = self.draw(st.integers(0, len(shape) - 1))
        limit = self.draw(st.integers(0, shape[axis]))

        def body(*i):
            inside = below(i[axis], limit)
            right = self.broadcast(y, i)
            value = op("sub", self.g.load(x, *i, mask=inside), self.g.load(y, *right.index, mask=inside, other=0.5))
            return op("where", inside, value, constant(0.25))

        self.add(shape, body)

    def flatten(self) -> None:
        x = self.pick(lambda shape: len(shape) > 1)
        shape = self.shape(x)
        last = shape[-1]
        flat = (*shape[:-2], shape[-2] * last)
        self.add(flat, lambda *i: self.g.load(x, *i[:-1], floordiv(i[-1], last), mod(i[-1], last)))

    def gather(self) -> None:
        x = self.pick(lambda shape: len(shape) == 2 and shape[0] >= 3)
        row = Symbol("x", 0, 2)
        self.add(
            (self.a, self.shape(x)[1]),
            lambda i, j: self.g.load(x, row, j, indirect=(("x", inside(self.g.load(self.ids, i), 3)),)),
        )

    def extern(self) -> None:
        x = self.pick()
        self.tensors.append(self.g.extern("double.out", (self.squash(x),), self.shape(x)))
        self.last = self.tensors[-1]

    def squash(self, x: str) -> str:
        return self.g.pointwise(self.shape(x), lambda *i: op("mul", self.g.load(x, *i), constant(0.5)))

    def add(self, shape, body) -> None:
        self.last = self.g.pointwise(shape, body)
        self.tensors.append(self.last)


@st.composite
def programs(draw, long_axis=5):
    chooser = Chooser(draw, long_axis)
    chooser.tensors.append(chooser.g.input((3, long_axis)))
    for _ in range(draw(st.integers(2, 9))):
        chooser.step()
    made = [item for item in chooser.g.buffers if item.startswith("t")]
    results = {chooser.last, *draw(st.lists(st.sampled_from(made), max_size=2))}
    if draw(st.booleans()):
        fitting = [name for name in made if chooser.shape(name) == chooser.shape("in0")]
        if fitting:
            chooser.g.write("in0", draw(st.sampled_from(fitting)))
    return chooser.g.finish(*sorted(results))


COMMON = dict(deadline=None, suppress_health_check=list(HealthCheck), max_examples=EXAMPLES, derandomize=True)


@settings(**COMMON)
@given(programs())
def test_scheduled_programs_compute_what_their_nests_say(lowered):
    assert_same(lowered)


@settings(**COMMON)
@given(programs(long_axis=12))
def test_cut_tiled_and_parallel_programs_too(lowered):
    with eager_to_split():
        assert_same(lowered)


@settings(**COMMON)
@given(programs(long_axis=12), st.integers(0, 99))
def test_programs_compiled_as_large_ones_are(lowered, seed):
    with as_if_large(seed):
        assert_same(lowered)


@pytest.mark.slow
@settings(**{**COMMON, "max_examples": 1500, "derandomize": False})
@given(programs(long_axis=9), st.integers(0, 99))
def test_many_programs(lowered, seed):
    with eager_to_split(), as_if_large(seed):
        assert_same(lowered)
