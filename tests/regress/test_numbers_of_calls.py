"""Numbers that vary, as arguments of operators that are called: the host gives them on each call, and nothing is compiled
anew. They were taken as they are and guarded, an entry for each."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import lampwork
from bench.numerics import Run, equal_steps
from lampwork.backends import BACKENDS, exact
from lampwork.benchmark import training
from lampwork.capture.capture import capture
from lampwork.capture.record import lists, scalars
from lampwork.config import make_settings
from lampwork.graph.prepare import prepare
from lampwork.ir.program import Extern
from lampwork.lower import lower
from tests.cuda_stand_in import cuda_stand_in
from tests.ops.bits import apart

#: Nearly all operators are called, as long ago on GPUs.
FEW_ROWS = exact._joined(exact._MOVES, exact._IEEE)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """What kernels may compute on a GPU, on the CPU."""
    monkeypatch.setitem(BACKENDS, "cpu", dataclasses.replace(BACKENDS["cpu"], exact=FEW_ROWS))
    monkeypatch.setattr(scalars, "_EXACT", scalars._EXACT_ON_GPUS)


def called(function, *arguments, numerics="default"):
    """What is called for a number that varies; results are eager's."""
    compiled = lampwork.compile(function, options={"numerics": numerics, "cache": False})
    for number in (0.3, 0.7, 1.1, 0.2, 2.5, 0.9):
        assert not apart(compiled(*arguments, number), function(*arguments, number))
    stats = lampwork.stats(compiled)
    assert stats["entries"] == 2 and not stats["fallbacks"] and not stats["breaks"]  # of the first number, and of all
    return list(stats["extern_calls"])


@pytest.mark.parametrize("numerics", ["default", "eager"])
def test_operators_without_kernels(numerics):
    x = torch.randn(5, 7)
    assert called(lambda x, p: torch.renorm(x, 2, 0, p) + 1, x, numerics=numerics) == [
        "lampwork_given_numbers::with8_renorm.default"
    ]
    both = called(lambda x, p: torch.renorm(x, p, 0, p * 2), x, numerics=numerics)
    assert both == ["lampwork_given_numbers::with10_renorm.default"]
    assert called(lambda x, p: x.clone().renorm_(2, 0, p), x, numerics=numerics) == [
        "lampwork_given_numbers::with8_renorm.default"
    ]


PROGRAMS = {
    "div": lambda x, y, p: x / p,
    "add": lambda x, y, p: torch.add(x, y, alpha=p),
    "lerp": lambda x, y, p: torch.lerp(x, y, p),
    "addcdiv": lambda x, y, p: torch.addcdiv(x, y, y + 3, value=-p),
    "addcmul_": lambda x, y, p: x.clone().addcmul_(y, y, value=p),
    "pow": lambda x, y, p: x.abs() ** p,
    "pow of": lambda x, y, p: p**x,
    "hardtanh": lambda x, y, p: torch.nn.functional.hardtanh(x, -p, p),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_operators_whose_kernels_round_otherwise(name, dtype, as_on_a_gpu):
    x, y = torch.randn(5, 7).to(dtype), torch.randn(5, 7).to(dtype)
    (operator,) = called(PROGRAMS[name], x, y, numerics="eager")
    assert operator.startswith("lampwork_given_numbers::")


def test_results_have_the_type_that_numbers_give(as_on_a_gpu):
    """A tensor of no dimensions decides the type beside another one; a number does not."""
    x = torch.tensor(3.0)
    called(lambda x, p: x / p, x, numerics="eager")


def test_gradients(as_on_a_gpu):
    def program(x, p):
        x = x.detach().requires_grad_()
        return torch.autograd.grad((torch.add(x, x * x, alpha=p) / p).sum(), x)

    called(program, torch.randn(5, 7), numerics="eager")


def test_gradients_that_the_caller_takes(as_on_a_gpu):
    def program(x, p):
        return torch.addcmul(x, x, x, value=p) / p

    compiled = lampwork.compile(program, options={"numerics": "eager", "cache": False})
    for number in (0.3, 0.7, 1.1, 0.2):
        x = torch.randn(5, 7, requires_grad=True)
        found, expected = (torch.autograd.grad(each(x, number).sum(), x) for each in (compiled, program))
        assert not apart(found, expected)
    assert lampwork.stats(compiled)["entries"] == 2


def test_numbers_out_of_tensors(as_on_a_gpu):
    def program(x, y):
        return torch.lerp(x, x * x, y.sum().item() + 0.1)

    compiled = lampwork.compile(program, options={"numerics": "eager", "cache": False})
    for _ in range(3):
        x, y = torch.randn(5, 7), torch.randn(4)
        assert not apart(compiled(x, y), program(x, y))
    stats = lampwork.stats(compiled)
    assert stats["entries"] == 1 and not stats["breaks"]


def test_steps_of_an_optimizer(as_on_a_gpu):
    """Corrections of Adam's are numbers that each step computes of its count."""
    workload = training.prepare("mlp", device="cpu", size="tiny")
    runs = [Run(workload, numerics, "step") for numerics in (None, "eager")]
    assert equal_steps(*runs, 12)[0] == 12
    stats = lampwork.stats(runs[1].compiled)
    assert stats["entries"] == 1 and not stats["fallbacks"] and not stats["recompiles"]
    assert "lampwork_given_numbers::with8_addcdiv.default" in stats["extern_calls"]


def test_steps_on_lists_of_tensors(as_on_a_gpu, monkeypatch):
    """Kernels for lists are called as they are on a GPU, with numbers for each tensor."""

    def on_each(recorder, op, args, kwargs):
        if all(each.numel() == 1 for each in lists.tensors_in(args)):
            return plain(recorder, op, args, kwargs)
        return (
            lists._with_numbers(recorder, op, args, kwargs)
            if lists.mentions_numbers((args, kwargs))
            else NotImplemented
        )

    plain = lists.on_each
    monkeypatch.setattr(lists, "on_each", on_each)
    workload = training.prepare("mlp", device="cpu", size="tiny")
    runs = [Run(workload, numerics, "step", optimizer="foreach") for numerics in (None, "eager")]
    assert equal_steps(*runs, 6)[0] == 6
    stats = lampwork.stats(runs[1].compiled)
    assert stats["entries"] == 1 and not stats["fallbacks"] and not stats["breaks"]
    assert "lampwork_given_numbers::with2__foreach_div.ScalarList" in stats["extern_calls"]


def test_on_a_gpu_the_number_stays_on_the_host():
    settings = make_settings(options={"numerics": "eager"})
    parameter = torch.nn.Parameter(torch.randn(4, 8))
    optimizer = torch.optim.AdamW([parameter], foreach=False)
    parameter.grad = torch.randn(4, 8)
    optimizer.step()
    with cuda_stand_in((optimizer.state[parameter]["step"],)):
        lowered = lower(prepare(capture(optimizer.step, (), {}, settings), settings), settings)
    assert lowered.device == "cuda:0"
    calls = [each for each in lowered.items if isinstance(each, Extern) and "given_numbers" in each.op]
    assert {each.op.partition("_")[2].partition("::")[2] for each in calls} >= {
        "with8_addcdiv.default",
        "with2_div.Tensor",
    }
    for each in calls:
        numbers = [ref for ref in (*each.args, *dict(each.kwargs).values()) if getattr(ref, "shape", None) == ()]
        assert numbers and all(lowered.buffers[ref.buffer].device == "cpu" for ref in numbers)
