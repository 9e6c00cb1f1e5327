"""What kernels of a schedule read and where: other orders, pieces that leave a rest, memory of symbolic sizes."""

from __future__ import annotations

import itertools

import pytest

from lampwork.ir.loops import storage_numel
from lampwork.ir.program import Launch
from lampwork.ir.size import Symbol, evaluate, floordiv
from tests.unit.schedule.programs import Graph, assert_same, constant, launches, op, scheduled
from tests.unit.schedule.test_fuzz import eager_to_split

SIDE = 6
#: Where a consumer reads what a producer made at (i, j).
READ = {
    "in order": lambda i, j: (i, j),
    "transposed": lambda i, j: (j, i),
    "from the last": lambda i, j: (SIDE - 1 - i, j),
    "columns from the last": lambda i, j: (i, SIDE - 1 - j),
    "one row": lambda i, j: (2, j),
    "one column": lambda i, j: (i, 3),
    "every row twice": lambda i, j: (floordiv(i, 2), j),
    "the diagonal": lambda i, j: (i, i),
}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", READ)
def test_a_consumer_that_reads_in_another_order(name, split):
    """The producer is a result as well, or a reduction: it is stored, and not computed again where it is read."""
    for reduces, folds in itertools.product((False, True), repeat=2):
        g = Graph()
        x, y = g.input((SIDE, SIDE, 5)), g.input((SIDE, SIDE))
        if reduces:
            made = g.reduce("sum", (SIDE, SIDE), (5,), lambda i, j, r: g.load(x, i, j, r))
        else:
            made = g.pointwise((SIDE, SIDE), lambda i, j: op("exp", g.load(x, i, j, 1)))
        body = lambda i, j: op("add", g.load(made, *READ[name](i, j)), g.load(y, i, j))
        read = g.reduce("max", (SIDE,), (SIDE,), body) if folds else g.pointwise((SIDE, SIDE), body)
        if split:
            with eager_to_split():
                program = assert_same(g.finish(made, read))
        else:
            program = assert_same(g.finish(made, read))
        if name == "in order" and not reduces and not split:
            assert launches(program) == 1


@pytest.mark.parametrize("op_name", ["sum", "max", "prod"])
@pytest.mark.parametrize("extent", [16, 17, 31, 37, 50])
def test_pieces_of_a_reduction_that_leave_a_rest(extent, op_name):
    for shape, at in (((extent,), lambda g, x, r: g.load(x, r)), ((extent, 3), lambda g, x, r: g.load(x, r, 1))):
        g = Graph()
        x = g.input(shape)
        total = g.reduce(op_name, (), (extent,), lambda r: at(g, x, r))
        with eager_to_split():
            program = assert_same(g.finish(total))
            assert sum(isinstance(step, Launch) for step in program.steps) > 1 or len(program.kernels[0].body) > 1
    g = Graph()
    x = g.input((extent, 7))
    rows = g.reduce(op_name, (7,), (extent,), lambda i, r: g.load(x, r, i))
    whole = g.reduce(op_name, (), (extent, 7), lambda r, s: g.load(x, r, s))
    with eager_to_split():
        assert_same(g.finish(rows, whole))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_memory_of_symbolic_sizes_holds_what_is_put_there(order):
    """Whatever the sizes are. Calls of ATen keep what they read and write apart."""
    n = Symbol("n", 1, 1 << 40)
    g = Graph(("n",))
    name = g.input((n,))
    for number in order:
        shape = ((n,), (n + 3,), (2 * n,), (n, 2 * n))[number]
        name = g.extern("aten::sin.out", (name,), shape)
    name = g.extern("aten::sin.out", (name,), (n,))
    program = scheduled(g.finish(g.pointwise((n,), lambda i: op("add", g.load(name, i), constant(1.0)))))
    for buffer, place in program.placements.items():
        if place.kind == "arena":
            for size in (1, 2, 3, 4, 100):
                needed = 4 * evaluate(storage_numel(program.buffers[buffer]), {"n": size})
                assert needed <= evaluate(program.arena[place.index], {"n": size})


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_value_of_two_dimensions_that_is_computed_again_over_three(steps):
    """Its rows have gaps: the loops over both of its dimensions cannot be one, though what is stored would let them."""
    g = Graph()
    x, w = g.input((2, 5), strides=(7, 1)), g.input((2,))

    def near(i, j):
        found = g.load(x, i, j)
        for _ in range(steps):
            found = op("abs", op("add", found, constant(0.25)))
        return found

    part = g.pointwise((2, 5), near)
    cube = lambda i, j: op("mul", op("mul", g.load(part, i, j), g.load(part, i, j)), g.load(part, i, j))
    value = g.pointwise((2, 5), cube)
    total = g.reduce("sum", (), (2, 5), lambda i, j: g.load(value, i, j))
    spread = g.reduce("sum", (), (2, 5), lambda i, j: op("sub", g.load(value, i, j), g.load(total)))
    wide = g.pointwise((2, 5, 2), lambda i, j, k: op("mul", g.load(value, i, j), g.load(w, k)))
    assert_same(g.finish(spread, wide))
