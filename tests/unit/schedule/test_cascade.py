"""Long float sums in blocks: the loops, their values, and an error like eager's."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.ir.size import Symbol, evaluate
from lampwork.schedule.cascade import BLOCKS, STEPS, cascade
from lampwork.schedule.loops import PlannedLoop
from tests.unit.schedule.programs import Graph, assert_same, op, texts


def places(loops: list[PlannedLoop], value) -> list[int]:
    """What `value` is in each iteration of the nest, in order."""
    found: list[int] = []

    def run(depth: int, known: dict[str, int]) -> None:
        if depth == len(loops):
            found.append(evaluate(value, known))
            return
        for index in range(evaluate(loops[depth].extent, known)):
            run(depth + 1, {**known, loops[depth].name: index})

    run(0, {})
    return found


@pytest.mark.parametrize("extent", [1, 47, 49, 97, 100, 769, 5003, 70_000])
def test_pieces_cover_the_loop_in_order(extent):
    values = {"g0": Symbol("i0", 0, extent - 1)}
    loops = cascade([PlannedLoop("i0", extent)], values, iter(f"j{n}" for n in range(9)))
    assert places(loops, values["g0"]) == list(range(extent))
    assert all(evaluate(loop.extent, {l.name: 0 for l in loops}) <= 2 * max(STEPS, BLOCKS) for loop in loops)
    assert not loops[-1].cascades and all(loop.cascades for loop in loops[:-1])


def test_two_loops_share_the_count_of_additions():
    values = {"g0": Symbol("i0", 0, 99), "g1": Symbol("i1", 0, 39)}
    loops = cascade([PlannedLoop("i0", 100), PlannedLoop("i1", 40)], values, iter("abcdef"))
    assert [loop.cascades for loop in loops] == [True, True, False]
    assert len(places(loops, values["g0"])) == 4000


@pytest.mark.parametrize("shape, axis", [((200, 6), 0), ((3, 5, 130), 1), ((2, 90, 3), 1)])
def test_values(shape, axis):
    g = Graph()
    x = g.input(shape)
    kept = tuple(extent for place, extent in enumerate(shape) if place != axis)

    def body(*index):
        *outer, inner = index
        return g.load(x, *outer[:axis], inner, *outer[axis:])

    total = g.reduce("sum", kept, (shape[axis],), body)
    top = g.reduce("max", kept, (shape[axis],), body)
    assert_same(g.finish(total, top))


def test_maximum_is_not_cut_but_shares_the_loops_of_a_sum():
    g = Graph()
    x = g.input((200, 16))
    total = g.reduce("sum", (16,), (200,), lambda i, r: g.load(x, r, i))
    top = g.reduce("max", (16,), (200,), lambda i, r: g.load(x, r, i))
    text = texts(assert_same(g.finish(total, top)))
    assert text.count("f32 sum") == 2 and text.count("f32 max") == 1


@pytest.mark.parametrize("rows", [1, 24, 25, 130])
def test_dynamic_extent(rows):
    n = Symbol("s0", 1, 1 << 20)
    g = Graph(("s0",))
    x = g.input((n, 16))
    total = g.reduce("sum", (16,), (n,), lambda i, r: g.load(x, r, i))
    mean = g.pointwise((16,), lambda i: op("mul", g.load(total, i), g.load(total, i)))
    program = assert_same(g.finish(mean), sizes={"s0": rows})
    assert texts(program).count("accumulator") == 3


#: name -> (function, shape of uniform values)
LONG_SUMS = {
    "columns": (lambda x: x.sum(0), (8192, 300)),
    "narrow columns": (lambda x: x.mean(0), (100_000, 16)),
    "rows": (lambda x: x.mean(-1), (20, 300_000)),
    "middle": (lambda x: x.sum(1), (8, 30_000, 8)),
    "variance": (lambda x: (x + 10).var(0), (40_960, 64)),
}


@pytest.mark.parametrize("name", LONG_SUMS)
def test_error_is_at_most_twice_eagers(name):
    function, shape = LONG_SUMS[name]
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        exact = function(x.double())
        ours, theirs = lampwork.compile(function, options={"cache": False})(x), function(x)

    def error(result):
        return (result.double() - exact).square().mean().sqrt().item()

    assert error(ours) <= 2 * error(theirs)
