"""Components that are alike are compiled once: which are found, and that nothing else changes."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.capture.record.recorder import record
from lampwork.codegen.target import host_target
from lampwork.config import Settings
from lampwork.graph.prepare import prepare
from lampwork.graph.repeated import FEWEST, repeated
from lampwork.ir.program import launch_instances
from lampwork.ir.target import Target
from lampwork.lower import lower
from lampwork.schedule import schedule
from lampwork.schedule.copies import written_out

SHAPES = [(3,), (4, 4), (16,)]
GPU = Target("sm_90", 16, 132, 227 << 10, 50 << 20, 50 << 20, device="cuda")


def tensors(count, shapes=SHAPES, dtype=torch.float32):
    made = torch.Generator().manual_seed(count)
    return [torch.randn(shapes[number % len(shapes)], generator=made).to(dtype) for number in range(count)]


def update(values, gradients, moments):
    for value, gradient, moment in zip(values, gradients, moments):
        moment.lerp_(gradient, 0.1)
        value.mul_(0.5).addcdiv_(gradient, moment.abs().add_(1.0), value=-0.25)


def of_lists(step, *lists):
    """The region of `step` on lists of tensors."""
    count = len(lists[0])

    def flat(*every):
        return step(*[list(every[count * number : count * (number + 1)]) for number in range(len(lists))])

    return record(flat, [each for found in lists for each in found])


def calls(functional):
    return [node for node in functional.graph.nodes if node.op == "call_function"]


def test_one_of_each_kind_is_left():
    region = of_lists(update, tensors(30), tensors(30), tensors(30))
    tables, left_out = repeated(region)
    assert len(tables) == len(SHAPES) and all(len(table) == 10 for table in tables)
    assert sorted(place for table in tables for row in table for place in row) == list(range(90))
    assert len(left_out) == 27 * len(calls(region)) // 30
    few = prepare(of_lists(update, tensors(9), tensors(9), tensors(9)), Settings(), copies=True)
    many = prepare(region, Settings(), copies=True)
    assert len(calls(many)) == len(calls(few))


def test_rows_name_inputs_in_the_same_order():
    tables, _ = repeated(of_lists(update, tensors(10, [(5,)]), tensors(10, [(5,)]), tensors(10, [(5,)])))
    (table,) = tables
    assert table == tuple(tuple((place + number) for place in table[0]) for number in range(10))


@pytest.mark.parametrize("different", ["operator", "number", "type", "strides", "returned"])
def test_what_differs_is_no_copy(different):
    values = tensors(FEWEST + 2, [(4, 6)])
    if different == "type":
        values[3] = values[3].double()
    if different == "strides":
        values[3] = values[3].t().contiguous().t()

    def step(values):
        for number, value in enumerate(values):
            odd = number == 3
            value.mul_(0.25 if odd and different == "number" else 0.5)
            (value.sin_ if odd and different == "operator" else value.cos_)()
        return (values[3],) if different == "returned" else ()

    tables, _ = repeated(of_lists(step, values))
    assert [3 in [place for row in table for place in row] for table in tables] == [False]
    assert len(tables[0]) == FEWEST + 1


def test_what_is_shared_joins_only_if_it_is_written():
    values, other = tensors(10, [(4,)]), [torch.ones(())] * 10

    def reads(values, other):
        for value in values:
            value.mul_(other[0] + 1)

    def writes(values, other):
        for value in values:
            value.mul_(other[0])
            other[0].add_(1)

    assert len(repeated(of_lists(reads, values, other))[0]) == 1
    assert repeated(of_lists(writes, values, other))[0] == ()


def test_reductions_and_draws_are_no_copies():
    def sums(values):
        for value in values:
            value.mul_(value.sum())

    def draws(values):
        for value in values:
            value.mul_(torch.rand_like(value))

    assert repeated(of_lists(sums, tensors(20)))[0] == ()
    assert repeated(of_lists(draws, tensors(20)))[0] == ()


def test_copies_written_out_are_the_program_without_copies():
    region = of_lists(update, tensors(12), tensors(12), tensors(12))
    plain = lower(prepare(region, Settings()), Settings())
    lowered = lower(prepare(region, Settings(), copies=True), Settings())
    found = written_out(lowered, set(range(len(lowered.copies))))
    assert not found.copies and len(found.items) == len(plain.items) > len(lowered.items)
    stored = [
        sorted(each.store.buffer for each in one.items if each.store.buffer in one.inputs) for one in (found, plain)
    ]
    assert stored[0] == stored[1]


def check(step, make, **expected):
    ours, theirs = make(), make()
    compiled = lampwork.compile(step, fullgraph=True, options={"cache": False})
    for _ in range(2):
        compiled(*ours)
        step(*theirs)
    for one, other in zip(ours, theirs):
        for mine, his in zip(one, other):
            torch.testing.assert_close(mine, his)
            assert mine.stride() == his.stride()
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"]
    return stats


def test_numbers():
    stats = check(update, lambda: (tensors(40), tensors(40), [each.abs() for each in tensors(40)]))
    assert stats["launches"] == 2  # with masks and without


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types(dtype):
    check(update, lambda: tuple(tensors(20, dtype=dtype) for _ in range(3)))


def test_copies_that_are_no_rows():
    """Tensors with gaps: a nest each."""

    def make():
        return ([each[:, ::2] for each in tensors(10, [(4, 6)])], *(tensors(10, [(4, 3)]) for _ in range(2)))

    check(update, make)


def test_inputs_that_share_memory():
    """Two parameters that overlap are one component, and the same tensor twice is."""

    def make():
        values, moments = tensors(12, [(8,)]), tensors(12, [(8,)])
        base = torch.arange(12.0)
        values[2], values[5] = base[:8], base[4:]
        values[7] = values[8]
        return values, tensors(12, [(8,)]), moments

    check(update, make)


def test_results_among_the_components():
    """What is made for some is returned: state that a first step makes."""

    def step(values, gradients):
        made = []
        for value, gradient in zip(values, gradients):
            made.append(torch.zeros_like(value).lerp_(gradient, 0.5))
            value.sub_(made[-1])
        return made[:3]

    values, gradients = tensors(12, [(8,)]), tensors(12, [(8,)])
    copies = [each.clone() for each in values]
    found = lampwork.compile(step, fullgraph=True, options={"cache": False})(values, gradients)
    for one, other in zip([*found, *values], [*step(copies, gradients), *copies]):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("target", [host_target(), GPU], ids=["cpu", "gpu"])
def test_the_program_is_the_one_without_copies(target):
    """Equal kernels, and launches of the same rows."""
    region = of_lists(update, tensors(60), tensors(60), tensors(60))

    def launches(copies):
        program = schedule(lower(prepare(region, Settings(), copies=copies), Settings()), Settings(), target)
        kernels = [each.name for each in program.kernels]
        rows = [(each.kernel, sorted(launch_instances(each, program.kernels[each.kernel]))) for each in program.steps]
        return kernels, rows, program.written_inputs, program.unscheduled_bytes

    assert launches(True) == launches(False)
