"""Many tensors, one kernel: which components become rows, what stays with its neighbours, and in what order all runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lampwork.ir.kernel_verify import verify_program
from lampwork.ir.program import Launch
from lampwork.ir.verify import VerifyError
from lampwork.schedule.horizontal import FEWEST_ROWS
from tests.unit.schedule.programs import Graph, assert_same, constant, launches, op, scheduled

SHAPES = [(3,), (16,), (5, 7), (4, 12), (64,), (2, 3, 8), (11,), (9, 5), (4, 1, 3, 3), (160,), (13,), (48,), (7,), (80,),
          (1, 17), (96,), (21,), (2, 2, 16), (112,)]  # fmt: skip


def decay(g: Graph, value: str, gradient: str, coefficient: str | None = None) -> str:
    """The caller's value less a share of its gradient, written back; the gradient is scaled first."""
    shape = g.buffers[value].shape

    def scaled(*i):
        factor = constant(0.5) if coefficient is None else g.load(coefficient)
        return op("mul", g.load(gradient, *i), factor)

    t = g.pointwise(shape, scaled)
    new = g.pointwise(shape, lambda *i: op("sub", g.load(value, *i), op("mul", g.load(t, *i), constant(0.25))))
    g.write(value, new)
    return new


def many(program):
    return [
        (program.kernels[step.kernel].horizontal, len(step.sizes)) for step in program.steps if isinstance(step, Launch)
    ]


def test_updates_of_many_sizes_are_two_kernels():
    g = Graph()
    for shape in SHAPES:
        decay(g, g.input(shape), g.input(shape))
    program = assert_same(g.finish())
    # Those whose sizes are multiples of 16 have one of their own.
    assert sorted(many(program)) == [(True, 9), (True, 10)]
    assert len(program.kernels) == 2


def test_equal_sizes_need_no_rows_to_be_one_kernel_but_one_launch():
    g = Graph()
    for _ in range(FEWEST_ROWS):
        decay(g, g.input((32,)), g.input((32,)))
    assert many(assert_same(g.finish())) == [(True, FEWEST_ROWS)]


def test_a_few_stay_single():
    g = Graph()
    for _ in range(FEWEST_ROWS - 1):
        decay(g, g.input((32,)), g.input((32,)))
    program = assert_same(g.finish())
    assert many(program) == [(False, 0)] * (FEWEST_ROWS - 1)


def test_layouts_without_gaps_are_flat_and_others_are_not():
    g = Graph()
    for _ in range(FEWEST_ROWS):  # channels last
        value, gradient = (g.input((2, 3, 4, 4), strides=(48, 1, 12, 3)) for _ in range(2))
        t = g.pointwise((2, 3, 4, 4), lambda *i: op("neg", g.load(gradient, *i)), strides=(48, 1, 12, 3))
        g.write(value, t)
    for _ in range(FEWEST_ROWS):  # a gap
        value, gradient = (g.input((4, 5), strides=(8, 1)) for _ in range(2))
        g.write(value, g.pointwise((4, 5), lambda *i: op("neg", g.load(gradient, *i)), strides=(8, 1)))
    for _ in range(FEWEST_ROWS):  # two orders
        value, gradient = g.input((4, 5)), g.input((4, 5), strides=(1, 4))
        g.write(value, g.pointwise((4, 5), lambda *i: op("neg", g.load(gradient, *i))))
    program = assert_same(g.finish())
    assert sorted(many(program)) == [(False, 0)] * (2 * FEWEST_ROWS) + [(True, FEWEST_ROWS)]


def test_clipping_is_between_two_stages():
    g = Graph()
    pairs = [(g.input((16 * n,)), g.input((16 * n,))) for n in range(2, 2 + FEWEST_ROWS)]
    norms = []
    for _, gradient in pairs:
        shape = g.buffers[gradient].shape
        square = lambda r, name=gradient: op("mul", g.load(name, r), g.load(name, r))
        norms.append(g.reduce("sum", (), shape, square))
    total = norms[0]
    for norm in norms[1:]:
        total = g.pointwise((), lambda a=total, b=norm: op("add", g.load(a), g.load(b)))
    coefficient = g.pointwise((), lambda: op("rsqrt", op("add", g.load(total), constant(1.0))))
    for value, gradient in pairs:
        decay(g, value, gradient, coefficient)
    program = assert_same(g.finish(coefficient))
    assert many(program)[-1] == (True, FEWEST_ROWS)
    assert not any(found for found, _ in many(program)[:-1])


def test_counters_of_one_element_are_rows_that_come_first():
    g = Graph()
    for n in range(2, 2 + FEWEST_ROWS):
        value, gradient, step = g.input((16 * n,)), g.input((16 * n,)), g.input(())
        counted = g.pointwise((), lambda: op("add", g.load(step), constant(1.0)))
        g.write(step, counted)
        rate = g.pointwise((), lambda: op("reciprocal", g.load(counted)))
        decay(g, value, gradient, rate)
    program = assert_same(g.finish())
    assert many(program) == [(True, FEWEST_ROWS)] * 2


def test_other_constants_are_other_kernels():
    """Of one operator, of one type, at one place."""
    g = Graph()
    for number in range(2 * FEWEST_ROWS):
        value, factor = g.input((16 + 16 * number,)), constant(0.25 if number % 2 else 0.5)
        body = lambda i, value=value, factor=factor: op("mul", g.load(value, i), factor)
        g.write(value, g.pointwise(g.buffers[value].shape, body))
    program = assert_same(g.finish())
    assert many(program) == [(True, FEWEST_ROWS)] * 2 and len(program.kernels) == 2


def test_numbers_from_a_list_are_made_where_they_are_needed():
    g = Graph()
    numbers = g.input((40,), "float64")
    for n in range(FEWEST_ROWS):
        value, gradient = g.input((16 + 16 * n,)), g.input((16 + 16 * n,))
        rate = g.pointwise((), lambda: op("cast", g.load(numbers, 3 * n + 2), dtype="float32"))
        half = g.pointwise((), lambda: op("mul", g.load(rate), constant(0.5)))
        t = g.pointwise((16 + 16 * n,), lambda i: op("mul", g.load(gradient, i), g.load(half)))
        last = lambda i: op("cast", g.load(numbers, 39), dtype="float32")
        g.write(value, g.pointwise((16 + 16 * n,), lambda i: op("add", g.load(t, i), op("mul", g.load(rate), last(i)))))
    program = assert_same(g.finish())
    assert len(program.kernels) == len(program.steps) == 1
    (kernel,), (step,) = program.kernels, program.steps
    assert kernel.sizes == ("s0", "s1", "s2")
    assert sorted(step.sizes[1:3]) == [2, 39] and sorted(step.sizes[4:6]) == [5, 39]


def test_a_number_that_is_read_under_a_mask_stays_under_it():
    g = Graph()
    numbers, flag = g.input((40,)), g.input((), "bool")
    for n in range(FEWEST_ROWS):
        value = g.input((16,))
        rate = g.pointwise((), lambda: op("reciprocal", g.load(numbers, n)))
        masked = lambda: g.load(rate, mask=g.load(flag), other=0.25)
        g.write(value, g.pointwise((16,), lambda i: op("mul", g.load(value, i), masked())))
    assert_same(g.finish())


def test_a_number_that_two_components_need_is_made_once():
    g = Graph()
    step = g.input(())
    rate = g.pointwise((), lambda: op("reciprocal", g.load(step)))
    for n in range(FEWEST_ROWS):
        decay(g, g.input((16 + 16 * n,)), g.input((16 + 16 * n,)), rate)
    program = assert_same(g.finish())
    assert many(program) == [(False, 0), (True, FEWEST_ROWS)]


def test_a_list_that_is_written_is_no_list_of_numbers():
    g = Graph()
    numbers = g.input((40,))
    for n in range(FEWEST_ROWS):
        value = g.input((16,))
        g.write(value, g.pointwise((16,), lambda i: op("mul", g.load(value, i), g.load(numbers, n))))
    g.write(numbers, g.pointwise((40,), lambda i: op("neg", g.load(numbers, i))))
    program = assert_same(g.finish())
    assert not any(found for found, _ in many(program))


def test_what_is_read_before_it_is_written():
    g = Graph()
    scale = g.input(())
    for n in range(2, 2 + FEWEST_ROWS):
        decay(g, g.input((16 * n,)), g.input((16 * n,)), scale)
    g.write(scale, g.pointwise((), lambda: op("mul", g.load(scale), constant(2.0))))
    program = assert_same(g.finish())
    assert many(program) == [(True, FEWEST_ROWS), (False, 0)]


def test_what_another_nest_reads_is_fused_with_it():
    g = Graph()
    results = []
    for _ in range(FEWEST_ROWS):
        x = g.input((8, 16))
        t = g.pointwise((8, 16), lambda i, j: op("exp", g.load(x, i, j)))
        results.append(g.reduce("sum", (8,), (16,), lambda i, r: g.load(t, i, r)))
    program = assert_same(g.finish(*results))
    assert not any(found for found, _ in many(program))
    assert launches(program) == FEWEST_ROWS


def test_a_component_that_others_need_half_way_is_no_row():
    g = Graph()
    counters = [g.input(()) for _ in range(FEWEST_ROWS)]
    made = [g.pointwise((), lambda x=x: op("add", g.load(x), constant(1.0))) for x in counters]
    table = g.input((4,))
    sums = made[0]
    for each in made[1:]:
        sums = g.reduce(
            "sum", (), (4,), lambda i, a=sums, b=each: op("add", g.load(table, i), op("add", g.load(a), g.load(b)))
        )
    for counter, new in zip(counters, made):
        g.write(counter, g.pointwise((), lambda new=new: op("add", g.load(new), g.load(sums))))
    program = assert_same(g.finish(sums))
    assert not any(found for found, _ in many(program))


def test_what_reads_rows_comes_after_them():
    g = Graph()
    counters = [g.input(()) for _ in range(FEWEST_ROWS)]
    made = [g.pointwise((), lambda x=x: op("add", g.load(x), constant(1.0))) for x in counters]
    table = g.input((4,))
    total = g.pointwise((4,), lambda i: g.load(table, i))
    for each in made:
        total = g.pointwise((4,), lambda i, a=total, b=each: op("add", g.load(a, i), g.load(b)))
    program = assert_same(g.finish(total, *made))
    assert many(program) == [(True, FEWEST_ROWS), (False, 0)]


def test_rows_in_other_types_are_other_classes():
    g = Graph()
    for dtype in ("float32", "float64", "float32", "float64") * (FEWEST_ROWS // 2):
        x = g.input((32,), dtype)
        g.write(x, g.pointwise((32,), lambda i: op("mul", g.load(x, i), constant(2.0, dtype)), dtype))
    program = assert_same(g.finish())
    assert many(program) == [(True, FEWEST_ROWS)] * 2 and len(program.kernels) == 2


def test_the_same_rows_again_are_found_in_the_table_of_segments():
    def graph():
        g = Graph()
        for n in range(FEWEST_ROWS):
            decay(g, g.input((16 + 32 * n,)), g.input((16 + 32 * n,)))
        return g.finish()

    first, second = scheduled(graph()), scheduled(graph())
    assert [step.buffers for step in first.steps] == [step.buffers for step in second.steps]
    assert first.kernels == second.kernels


def test_no_row_writes_what_another_touches():
    g = Graph()
    for _ in range(FEWEST_ROWS):
        decay(g, g.input((32,)), g.input((32,)))
    program = scheduled(g.finish())
    (step,) = program.steps
    kernel = program.kernels[step.kernel]
    written = next(place for place, p in enumerate(kernel.parameters) if p.access != "read")
    read = 1 - written
    buffers = list(step.buffers)
    buffers[2 + read] = buffers[written]
    with pytest.raises(VerifyError, match="invariant 12"):
        verify_program(replace(program, steps=(replace(step, buffers=tuple(buffers)),)))
    with pytest.raises(VerifyError, match="invariant 11"):
        verify_program(replace(program, steps=(replace(step, sizes=(1, *step.sizes[1:])),)))
