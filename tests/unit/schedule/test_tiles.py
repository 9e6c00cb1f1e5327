"""The schedule for GPUs: generated programs mean what their nests say, and kernels have the form code generation needs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from lampwork.config import Settings
from lampwork.ir.loops import Loop, Scratch
from lampwork.ir.size import Symbol
from lampwork.ir.target import Target
from lampwork.schedule import schedule
from tests.thresholds import thresholds
from tests.unit.schedule.programs import Graph, assert_same, constant, launches, op, texts
from tests.unit.schedule.test_fuzz import COMMON, programs

GPU = Target("sm_90", 16, 132, 227 << 10, 50 << 20, 50 << 20, device="cuda")


def eager_to_split():
    """Thresholds so low that tiny reductions are done in two stages."""
    names = {"LONG_ROW": 32, "COLUMNS": 2, "FEWEST_ROWS": 2}
    return thresholds({f"lampwork.schedule.tiles.{name}": value for name, value in names.items()})


def assert_form(program) -> None:
    """Parallel loops around one body, inner nests in it, no scratch memory."""

    def inner(loop: Loop) -> None:
        assert loop.kind != "parallel"
        for stmt in loop.body:
            assert not isinstance(stmt, Scratch)
            if isinstance(stmt, Loop):
                inner(stmt)

    for kernel in program.kernels:
        body = kernel.body
        while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "parallel":
            body = body[0].body
        for stmt in body:
            assert not isinstance(stmt, Scratch)
            if isinstance(stmt, Loop):
                inner(stmt)


@settings(**COMMON)
@given(programs())
def test_scheduled_programs_compute_what_their_nests_say(lowered):
    assert_form(assert_same(lowered, target=GPU))


@settings(**COMMON)
@given(programs(long_axis=12))
def test_reductions_in_two_stages_too(lowered):
    with eager_to_split():
        assert_form(assert_same(lowered, target=GPU))


@pytest.mark.slow
@settings(**{**COMMON, "max_examples": 1500, "derandomize": False})
@given(programs(long_axis=9))
def test_many_programs(lowered):
    with eager_to_split():
        assert_form(assert_same(lowered, target=GPU))


def softmax(rows: int, columns: int):
    g = Graph()
    x = g.input((rows, columns))
    top = g.reduce("max", (rows,), (columns,), lambda i, r: g.load(x, i, r))
    power = g.pointwise((rows, columns), lambda i, j: op("exp", op("sub", g.load(x, i, j), g.load(top, i))))
    total = g.reduce("sum", (rows,), (columns,), lambda i, r: g.load(power, i, r))
    y = g.pointwise((rows, columns), lambda i, j: op("div", g.load(power, i, j), g.load(total, i)))
    return g.finish(y)


def test_softmax_is_one_kernel_that_recomputes():
    program = assert_same(softmax(4, 6), target=GPU)
    assert launches(program) == 1
    assert "scratch" not in texts(program)
    assert texts(program).count("exp(") == 2


def test_what_is_stored_is_not_loaded_again():
    """A value that is a result and also summed: threads of one kernel do not hand it on through memory."""
    g = Graph()
    x = g.input((4, 6))
    power = g.pointwise((4, 6), lambda i, j: op("exp", g.load(x, i, j)))
    total = g.reduce("sum", (4,), (6,), lambda i, r: g.load(power, i, r))
    y = g.pointwise((4, 6), lambda i, j: op("div", g.load(power, i, j), g.load(total, i)))
    program = assert_same(g.finish(power, y), target=GPU)
    assert launches(program) == 1
    assert all(p.access != "readwrite" for kernel in program.kernels for p in kernel.parameters)


@pytest.mark.parametrize(
    ("rows", "columns", "expected"), [(1, 1 << 20, 2), (4, 1 << 17, 2), (200, 1 << 17, 1), (1, 4096, 1)]
)
def test_few_long_rows_are_folded_in_two_stages(rows, columns, expected):
    g = Graph()
    x = g.input((rows, columns))
    total = g.reduce("sum", (rows,), (columns,), lambda i, r: g.load(x, i, r))
    program = schedule(g.finish(total), Settings(), GPU)
    assert launches(program) == expected


def scaled_and_summed(shape: tuple[int, ...], columns: int):
    """A product with a number that is stored, and its sums over all dimensions but the last."""
    g = Graph()
    x = g.input((*shape, columns))
    y = g.pointwise((*shape, columns), lambda *i: op("mul", g.load(x, *i), constant(3.0)))
    total = g.reduce("sum", (columns,), shape, lambda i, *r: g.load(y, *r, i))
    return g.finish(y, total)


def parts(program) -> list[list[int]]:
    """For each kernel the extents of its parallel loops."""
    found = []
    for kernel in program.kernels:
        extents, body = [], kernel.body
        while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "parallel":
            extents.append(body[0].axis.extent)
            body = body[0].body
        found.append(extents)
    return found


@pytest.mark.parametrize(
    ("shape", "columns", "expected"),
    [
        ((8192,), 3072, [[16, 3072], [3072]]),
        ((6304,), 3072, [[16, 3072], [3072]]),  # 394 rows each
        ((8, 1024), 768, [[64, 768], [768]]),
        ((32, 56, 56), 256, [[128, 256], [256]]),  # 14 rows of an image each
        ((16, 197), 3072, [[16, 3072], [3072]]),
        ((512,), 3072, [[3072]]),  # too little to be worth another kernel
        ((2048,), 16384, [[16384]]),  # programs enough
    ],
)
def test_columns_are_cut_where_programs_are_few(shape, columns, expected):
    """Into equal parts, and what is stored on the way stays in the kernel that folds it."""
    program = schedule(scaled_and_summed(shape, columns), Settings(), GPU)
    assert parts(program) == expected


def test_columns_of_a_prime_number_of_rows_are_cut_unevenly():
    program = schedule(scaled_and_summed((8191,), 3072), Settings(), GPU)
    assert parts(program)[-2:] == [[13, 3072], [3072]]


@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 3, 5), (7,), (5, 7), (1, 8)])
def test_parts_of_columns_are_all_of_them(shape):
    with eager_to_split():
        assert_form(assert_same(scaled_and_summed(shape, 3), target=GPU))


def test_sums_of_the_same_rows_are_cut_alike():
    """Whatever the types: they share a kernel."""
    g = Graph()
    x, y = g.input((8192, 768), "bfloat16"), g.input((8192, 768))
    value = lambda r, i: op("cast", g.load(x, r, i), dtype="float32")
    both = g.reduce("sum", (768,), (8192,), lambda i, r: op("mul", value(r, i), g.load(y, r, i)))
    one = g.reduce("sum", (768,), (8192,), lambda i, r: value(r, i))
    program = schedule(g.finish(both, one), Settings(), GPU)
    assert parts(program) == [[64, 768], [768]] and launches(program) == 3


def test_columns_that_the_kernel_reads_again_are_cut_later():
    """A softmax down columns has parts of them in a cache when it comes back to them."""
    assert len(schedule(column_softmax(4096, 4096), Settings(), GPU).kernels) == 1
    assert len(schedule(column_softmax(8192, 1024), Settings(), GPU).kernels) > 1


def column_softmax(rows: int, columns: int):
    g = Graph()
    x = g.input((rows, columns))
    top = g.reduce("max", (columns,), (rows,), lambda i, r: g.load(x, r, i))
    power = g.pointwise((rows, columns), lambda i, j: op("exp", op("sub", g.load(x, i, j), g.load(top, j))))
    total = g.reduce("sum", (columns,), (rows,), lambda i, r: g.load(power, r, i))
    return g.finish(g.pointwise((rows, columns), lambda i, j: op("div", g.load(power, i, j), g.load(total, j))))


@pytest.mark.parametrize("rows", [1, 3])
def test_dynamic_rows(rows):
    n = Symbol("s0", 1, 1 << 20)
    g = Graph(("s0",))
    x = g.input((n, 8))
    top = g.reduce("max", (n,), (8,), lambda i, r: g.load(x, i, r))
    y = g.pointwise((n, 8), lambda i, j: op("sub", g.load(x, i, j), g.load(top, i)))
    assert launches(assert_same(g.finish(y), sizes={"s0": rows}, target=GPU)) == 1


@pytest.mark.parametrize("size", [8, 512])
@pytest.mark.parametrize("across", ["store", "load"])
def test_what_is_stored_across_the_rows_of_a_sum_has_a_kernel_of_its_own(across, size):
    """Where it is worth one: tiles that are square write and read whole lines."""
    from lampwork.config import Settings
    from lampwork.schedule import schedule

    g = Graph()
    x = g.input((size, size))
    turned = g.pointwise((size, size), lambda i, j: op("exp", g.load(x, j, i)))
    along = (lambda i, r: g.load(x, i, r)) if across == "store" else (lambda i, r: g.load(x, r, i))
    total = g.reduce("sum", (size,), (size,), along)
    lowered = g.finish(turned, total)
    assert launches(schedule(lowered, Settings(), GPU)) == (1 if size == 8 else 2)
    if size == 8:
        assert_same(lowered, target=GPU)


def test_what_needs_the_sum_is_stored_beside_it_in_any_order():
    from lampwork.config import Settings
    from lampwork.schedule import schedule

    g = Graph()
    x = g.input((512, 512))
    top = g.reduce("max", (512,), (512,), lambda i, r: g.load(x, i, r))
    turned = g.pointwise((512, 512), lambda i, j: op("sub", g.load(x, j, i), g.load(top, j)))
    assert launches(schedule(g.finish(turned), Settings(), GPU)) == 1
