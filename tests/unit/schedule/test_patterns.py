"""Typical patterns: the number of kernels they become, and the same values as their nests."""

from __future__ import annotations

import pytest

from lampwork.ir.location import Origin
from lampwork.ir.program import Launch
from lampwork.ir.size import floordiv, mod
from tests.unit.schedule.programs import (
    Graph,
    assert_same,
    below,
    constant,
    inside,
    launches,
    op,
    scheduled,
    texts,
)


def softmax(g: Graph, x: str, rows: int, columns: int) -> str:
    top = g.reduce("max", (rows,), (columns,), lambda i, r: g.load(x, i, r))
    e = g.pointwise((rows, columns), lambda i, j: op("exp", op("sub", g.load(x, i, j), g.load(top, i))))
    total = g.reduce("sum", (rows,), (columns,), lambda i, r: g.load(e, i, r))
    return g.pointwise((rows, columns), lambda i, j: op("div", g.load(e, i, j), g.load(total, i)))


def layer_norm(g: Graph, x: str, rows: int, columns: int, weight: str, bias: str) -> str:
    total = g.reduce("sum", (rows,), (columns,), lambda i, r: g.load(x, i, r))
    mean = g.pointwise((rows,), lambda i: op("div", g.load(total, i), constant(columns)))

    def squared(i, r):
        centered = op("sub", g.load(x, i, r), g.load(mean, i))
        return op("mul", centered, centered)

    squares = g.reduce("sum", (rows,), (columns,), squared)
    rstd = g.pointwise(
        (rows,), lambda i: op("rsqrt", op("add", op("div", g.load(squares, i), constant(columns)), constant(1e-5)))
    )

    def normalized(i, j):
        centered = op("mul", op("sub", g.load(x, i, j), g.load(mean, i)), g.load(rstd, i))
        return op("add", op("mul", centered, g.load(weight, j)), g.load(bias, j))

    return g.pointwise((rows, columns), normalized)


def gelu(g: Graph, x: str, *shape: int) -> str:
    half = g.pointwise(shape, lambda *i: op("mul", g.load(x, *i), constant(0.5)))
    scaled = g.pointwise(shape, lambda *i: op("mul", g.load(x, *i), constant(0.70710678)))
    erf = g.pointwise(shape, lambda *i: op("erf", g.load(scaled, *i)))
    one = g.pointwise(shape, lambda *i: op("add", g.load(erf, *i), constant(1.0)))
    return g.pointwise(shape, lambda *i: op("mul", g.load(half, *i), g.load(one, *i)))


def test_pointwise_chain_is_one_kernel_and_nothing_is_stored_between():
    g = Graph()
    x = g.input((4, 6))
    program = assert_same(g.finish(gelu(g, x, 4, 6)))
    assert launches(program) == 1
    assert program.workspace_bytes == 0
    assert set(program.buffers) == {x, "t4"}
    assert texts(program).count("erf") == 1


def test_softmax_is_one_kernel_with_a_scratch_row():
    g = Graph()
    x = g.input((3, 40))
    program = assert_same(g.finish(softmax(g, x, 3, 40)))
    assert launches(program) == 1
    assert texts(program).count("exp(") == 1
    assert "scratch r0: f32[40]" in texts(program)


def test_softmax_over_the_outer_axis_runs_down_columns():
    g = Graph()
    x = g.input((5, 64))
    top = g.reduce("max", (64,), (5,), lambda i, r: g.load(x, r, i))
    e = g.pointwise((5, 64), lambda j, i: op("exp", op("sub", g.load(x, j, i), g.load(top, i))))
    total = g.reduce("sum", (64,), (5,), lambda i, r: g.load(e, r, i))
    y = g.pointwise((5, 64), lambda j, i: op("div", g.load(e, j, i), g.load(total, i)))
    program = assert_same(g.finish(y))
    assert launches(program) == 1
    assert "vector i0 in 64" in texts(program)


def test_layer_norm_with_residual_is_one_kernel():
    g = Graph()
    x, y, weight, bias = g.input((3, 24)), g.input((3, 24)), g.input((24,)), g.input((24,))
    total = g.pointwise((3, 24), lambda i, j: op("add", g.load(x, i, j), g.load(y, i, j)))
    program = assert_same(g.finish(layer_norm(g, total, 3, 24, weight, bias), total))
    assert launches(program) == 1


def test_flattened_rows_are_recognised():
    """The sum over [6, 8] as rows of a [2, 3, 8] tensor, the rest over the three axes."""
    g = Graph()
    x = g.input((2, 3, 8))
    total = g.reduce("sum", (6,), (8,), lambda i, r: g.load(x, floordiv(i, 3), mod(i, 3), r))
    y = g.pointwise((2, 3, 8), lambda a, b, c: op("div", g.load(x, a, b, c), g.load(total, 3 * a + b)))
    assert launches(assert_same(g.finish(y))) == 1


def test_group_norm_is_one_kernel():
    g = Graph()
    x, weight = g.input((2, 8, 5)), g.input((8,))
    total = g.reduce("sum", (2, 2), (4, 5), lambda n, k, c, p: g.load(x, n, 4 * k + c, p))
    mean = g.pointwise((2, 2), lambda n, k: op("div", g.load(total, n, k), constant(20.0)))

    def centered(n, c, p):
        return op("mul", op("sub", g.load(x, n, c, p), g.load(mean, n, floordiv(c, 4))), g.load(weight, c))

    assert launches(assert_same(g.finish(g.pointwise((2, 8, 5), centered)))) == 1


def test_batch_statistics_over_outer_and_inner_axes():
    g = Graph()
    x = g.input((3, 4, 5))
    total = g.reduce("sum", (4,), (3, 5), lambda c, n, p: g.load(x, n, c, p))
    y = g.pointwise((3, 4, 5), lambda n, c, p: op("sub", g.load(x, n, c, p), g.load(total, c)))
    assert launches(assert_same(g.finish(y, total))) == 1


def test_independent_reductions_of_one_input_share_the_pass():
    g = Graph()
    x = g.input((4, 30))
    total = g.reduce("sum", (4,), (30,), lambda i, r: g.load(x, i, r))
    squares = g.reduce("sum", (4,), (30,), lambda i, r: op("mul", g.load(x, i, r), g.load(x, i, r)))
    where = g.reduce("argmax", (4,), (30,), lambda i, r: g.load(x, i, r))
    program = assert_same(g.finish(total, squares, where))
    assert launches(program) == 1
    assert texts(program).count("vector") == 1


def test_transpose_is_tiled():
    g = Graph()
    x = g.input((48, 40))
    y = g.pointwise((40, 48), lambda i, j: g.load(x, j, i))
    program = assert_same(g.finish(y))
    assert texts(program).count("16") >= 2 and "vector" in texts(program)


def test_cat_and_what_follows_is_one_kernel():
    g = Graph()
    x, y = g.input((3, 4)), g.input((3, 5))

    def piece(i, j):
        first = below(j, 4)
        left = g.load(x, i, j, mask=first)
        right = g.load(y, i, j - 4, mask=op("not", first))
        return op("where", first, left, right)

    both = g.pointwise((3, 9), piece)
    program = assert_same(g.finish(g.pointwise((3, 9), lambda i, j: op("neg", g.load(both, i, j)))))
    assert launches(program) == 1


def test_inlining_under_a_mask_does_not_read_what_the_mask_hides():
    g = Graph()
    x = g.input((4,))
    e = g.pointwise((4,), lambda i: op("mul", g.load(x, i), constant(3.0)))
    padded = g.pointwise((6,), lambda i: g.load(e, i - 1, mask=op("and", below(0, i), below(i, 5)), other=7.0))
    program = assert_same(g.finish(padded))
    assert launches(program) == 1


def test_embedding_feeds_a_norm_in_one_kernel():
    g = Graph()
    table, ids, weight, bias = g.input((3, 12)), g.input((4,), "int64"), g.input((12,)), g.input((12,))
    from lampwork.ir.size import Symbol

    row = Symbol("x", 0, 2)
    rows = g.pointwise((4, 12), lambda i, j: g.load(table, row, j, indirect=(("x", inside(g.load(ids, i), 3)),)))
    assert launches(assert_same(g.finish(layer_norm(g, rows, 4, 12, weight, bias)))) == 1


def test_nests_between_two_calls_are_one_kernel_each_time():
    """linear, gelu, linear, residual and norm: the calls stay, everything between them is one kernel."""
    g = Graph()
    x, weight, bias = g.input((3, 16)), g.input((16,)), g.input((16,))
    hidden = x
    for _ in range(3):
        up = g.extern("aten::mm.out", (hidden,), (3, 16))
        down = g.extern("aten::mm.out", (gelu(g, up, 3, 16),), (3, 16))
        total = g.pointwise((3, 16), lambda i, j: op("add", g.load(down, i, j), g.load(hidden, i, j)))
        hidden = layer_norm(g, total, 3, 16, weight, bias)
    program = assert_same(g.finish(hidden))
    assert launches(program) == 6
    # The layers repeat: the last norm writes a result, the others the workspace, which is no difference to a kernel.
    assert len(program.kernels) <= 3


def test_input_is_overwritten_in_place_after_its_last_read():
    g = Graph()
    running, batch, x = g.input((8,)), g.input((8,)), g.input((3, 8))
    y = g.pointwise((3, 8), lambda i, j: op("sub", g.load(x, i, j), g.load(running, j)))
    new = g.pointwise(
        (8,),
        lambda i: op("add", op("mul", g.load(running, i), constant(0.9)), op("mul", g.load(batch, i), constant(0.1))),
    )
    g.write(running, new)
    program = assert_same(g.finish(y))
    assert program.written_inputs == (0,)
    assert program.workspace_bytes == 0


def test_a_shifted_read_of_an_overwritten_input_is_not_done_in_place():
    g = Graph()
    x = g.input((8,))
    rolled = g.pointwise((8,), lambda i: g.load(x, mod(i + 1, 8)))
    g.write(x, rolled)
    program = assert_same(g.finish())
    assert launches(program) == 2


def test_partial_stores_keep_their_order():
    g = Graph()
    x = g.input((4,))
    base = g.pointwise((6,), lambda i: constant(1.0))
    g.store_part(base, (4,), lambda i: (i + 1,), lambda i: g.load(x, i))
    y = g.pointwise((6,), lambda i: op("neg", g.load(base, i)))
    assert_same(g.finish(y))


def test_large_reduction_has_a_fixed_number_of_chunks():
    g = Graph()
    x = g.input((600, 1000))
    program = scheduled(g.finish(g.reduce("sum", (), (600, 1000), lambda i, j: g.load(x, i, j))))
    assert launches(program) == 2
    assert "parallel i0 in" in texts(program)
    again = scheduled(g.finish("t0"))
    assert texts(program) == texts(again)


def test_refusals_say_why():
    g = Graph()
    x = g.input((20, 24))
    total = g.reduce("sum", (20,), (24,), lambda i, r: op("exp", g.load(x, i, r)))
    grand = g.reduce("sum", (), (20,), lambda r: g.load(total, r))
    program = assert_same(g.finish(grand))
    assert launches(program) == 2
    (refused,) = program.refused
    assert refused.producer == Origin("t0", "sum") and refused.consumer == Origin("t1", "sum")
    assert refused.id == "fusion-reductions"
    assert "reduce over different axes" in refused.reason
    assert refused.bytes == 2 * 20 * 4


def test_equal_layers_share_kernels_and_scheduling():
    g = Graph()
    x = g.input((4, 16))
    hidden = x
    for _ in range(5):
        hidden = g.extern("aten::mm.out", (softmax(g, hidden, 4, 16),), (4, 16))
    program = assert_same(g.finish(hidden))
    assert launches(program) == 5
    assert len(program.kernels) == 1


@pytest.mark.parametrize("rows", [1, 7])
def test_dynamic_rows(rows):
    from lampwork.ir.size import Symbol

    n = Symbol("s0", 1, 1 << 20)
    g = Graph(("s0",))
    x = g.input((n, 8))
    top = g.reduce("max", (n,), (8,), lambda i, r: g.load(x, i, r))
    y = g.pointwise((n, 8), lambda i, j: op("sub", g.load(x, i, j), g.load(top, i)))
    program = assert_same(g.finish(y), sizes={"s0": rows})
    assert launches(program) == 1
    step = next(step for step in program.steps if isinstance(step, Launch))
    assert [str(size) for size in step.sizes] == ["s0"]


def test_what_nobody_reads_is_not_computed():
    g = Graph()
    x = g.input((4, 8))
    g.reduce("sum", (4,), (8,), lambda i, r: g.load(x, i, r))
    g.pointwise((4, 8), lambda i, j: op("exp", g.load(x, i, j)))
    empty = g.pointwise((0, 3), lambda i, j: constant(1.0))
    y = g.pointwise((4, 8), lambda i, j: op("neg", g.load(x, i, j)))
    program = assert_same(g.finish(y, empty))
    assert launches(program) == 1
    (step,) = program.steps
    assert [origin.node for origin in step.origins] == [y]
