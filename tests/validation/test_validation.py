"""The quick part of translation validation: every stage of a fixed choice of programs, see `python -m tests.validation`."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
import torch

from tests.validation.mechanisms import mechanism_programs
from tests.validation.sources import DTYPES, Program, generated_programs, gradient_programs, operator_programs
from tests.validation.validate import validate

#: How many operators, and how many tests they are divided among.
OPERATORS, PARTS = 56, 8
GRADIENTS = 24


def check(programs: Iterable[Program], kind: str = "plain") -> None:
    """Every stage of every program computes what the program means; what was run is more than nothing."""
    stages, wrong, undecided, elements = 0, [], 0, 0
    for program in programs:
        with torch.set_grad_enabled(program.gradients):
            report = validate(program.name, program.function, program.calls, program.settings, kind=kind)
        stages += report.stages
        wrong += report.differences
        undecided, elements = undecided + report.undecided, elements + report.elements
    assert not wrong, "\n".join(map(str, wrong))
    assert stages
    assert undecided <= elements // 10


@cache
def drawn(count: int, seed: int) -> tuple[Any, ...]:
    from torch.testing._internal.common_methods_invocations import op_db

    return tuple(random.Random(seed).sample(list(op_db), count))


@pytest.mark.parametrize("part", range(PARTS))
def test_operators(part):
    warnings.simplefilter("ignore")
    every = []
    for place, op in enumerate(drawn(OPERATORS, 1)[part::PARTS]):
        # Each operator in one type and layout: all types and layouts come again and again.
        dtypes = [dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")]
        layout = ("as it is", "turned", "apart")[place % 3]
        if dtypes:
            every += operator_programs(op, (dtypes[place % len(dtypes)],), 1, (layout,))
    check(every)


@pytest.mark.parametrize("part", range(4))
def test_gradients_of_operators(part):
    warnings.simplefilter("ignore")
    ops = drawn(GRADIENTS, 2)[part::4]
    programs = itertools.chain.from_iterable(
        gradient_programs(op, 1, ("as it is", "turned")[place % 2]) for place, op in enumerate(ops)
    )
    check(programs)


def selected(x, mask):
    return x.masked_select(mask), x[mask] * 2


def test_gradients_of_results_whose_sizes_contents_decide():
    x = torch.arange(12.0).view(4, 3).requires_grad_()
    check([Program("selected", selected, [((x, x.detach() % 5 > 1), {})], gradients=True)])


@pytest.mark.parametrize("part", range(4))
def test_generated_programs(part):
    check(generated_programs(range(part, 16, 4)))


@pytest.mark.parametrize("part", range(2))
def test_gradients_of_generated_programs(part):
    check(generated_programs(range(part, 4, 2), gradients=True))


EVERY = [pytest.param(each, id=each.name) for gradients in (False, True) for each in mechanism_programs(gradients)]
#: Those that are compiled for one size.
FIXED = [each for each in EVERY if len(each.values[0].calls) == 1]


@pytest.mark.parametrize("program", EVERY)
def test_what_passes_look_at(program):
    check([program])


@pytest.mark.parametrize("program", FIXED[::2])
def test_as_if_tensors_were_large(program):
    check([program], "small")


@pytest.mark.parametrize("program", FIXED[1::2])
def test_passes_for_a_gpu(program):
    check([program], "gpu")
