"""The early proof: generated programs, recorded, made pure, run by a plain interpreter, equal eager in every mode."""

from __future__ import annotations

import contextlib

import pytest
import torch

from lampwork.capture.record.recorder import record
from lampwork.config import Settings
from lampwork.debug.interpret.graphs import run_functional, run_recorded
from lampwork.graph.prepare import prepare
from tests.fuzz.programs import generate

SEEDS = range(200)
MODES = {
    "no_grad": (torch.no_grad, False),
    "inference_mode": (torch.inference_mode, False),
    "grad_mode": (torch.enable_grad, False),
    "no_grad_on_parameters": (torch.no_grad, True),
}


@contextlib.contextmanager
def mode(name):
    with MODES[name][0]():
        yield


def inputs_of(program, name):
    inputs = program.make_inputs()
    if MODES[name][1]:
        # A view cannot be made to require grad alone where its base does not; leaves can.
        inputs = [each.detach().requires_grad_() if each.is_floating_point() else each for each in inputs]
    return inputs


def same_values(left, right):
    torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True, check_stride=True)


def aliasing(inputs, outputs):
    """Which tensors are the same object, and which share memory at which places."""
    tensors = [*inputs, *outputs]
    facts = []
    for left in tensors:
        for right in tensors:
            same_storage = left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
            distance = left.storage_offset() * left.element_size() - right.storage_offset() * right.element_size()
            facts.append((left is right, same_storage, distance if same_storage else None))
    return facts


@pytest.mark.parametrize("mode_name", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_program_equals_eager(seed, mode_name):
    program = generate(seed)
    with mode(mode_name):
        region = record(program, inputs_of(program, mode_name))
    functional = prepare(region, Settings())

    expected_inputs = inputs_of(program, mode_name)
    with mode(mode_name):
        expected = program(*expected_inputs)
    actual_inputs = inputs_of(program, mode_name)
    actual = run_functional(functional, actual_inputs)

    assert len(actual) == len(expected)
    for got, want in zip(actual, expected):
        same_values(got.detach(), want.detach())
    for got, want in zip(actual_inputs, expected_inputs):
        same_values(got.detach(), want.detach())
    # One object returned twice is the bytecode machine's affair: it names results by object.
    distinct = [index for index, each in enumerate(expected) if not any(each is other for other in expected[:index])]
    assert aliasing(actual_inputs, [actual[i] for i in distinct]) == aliasing(
        expected_inputs, [expected[i] for i in distinct]
    )


@pytest.mark.parametrize("seed", range(0, 200, 4))
def test_recorded_graph_equals_eager_as_it_is(seed):
    """Before functionalisation: the recording itself, in-place operators included."""
    program = generate(seed)
    with torch.no_grad():
        region = record(program, program.make_inputs())
        expected_inputs, actual_inputs = program.make_inputs(), program.make_inputs()
        expected = program(*expected_inputs)
    actual = run_recorded(region.graph, actual_inputs)
    for got, want in zip([*actual, *actual_inputs], [*expected, *expected_inputs]):
        same_values(got, want)


@pytest.mark.parametrize("seed", range(0, 200, 4))
def test_every_mode_records_the_same_graph(seed):
    program = generate(seed)
    texts = []
    for name in ("no_grad", "inference_mode", "grad_mode"):
        with mode(name):
            texts.append(str(record(program, program.make_inputs()).graph))
    assert texts[0] == texts[1] == texts[2]
