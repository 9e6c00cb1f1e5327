"""Every sample of PyTorch's own optimizer tests: four steps compiled, alone and behind `backward()`, next to eager's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

from tests.training.support import Steps, check_steps

#: What runs in parts: a search that decides by numbers, gradients of another layout.
IN_PARTS = frozenset({"LBFGS", "SparseAdam"})


def samples(first: bool = False) -> list:
    """A test parameter for each optimizer, sample of its arguments (or the `first` alone), and way to compute it.

    `differentiable` is left out: parameters that require grad cannot be written then.
    """
    found = []
    for info in optim_db:
        ways = [way for way in ("foreach", "fused") if way in info.supported_impls]
        for number, sample in enumerate(info.optim_inputs_func(device="cpu")[: 1 if first else None]):
            for way in ("plain", *ways):
                if way == "foreach" and isinstance(sample.kwargs.get("lr"), torch.Tensor):
                    continue  # eager refuses it
                if way == "fused" and "cpu" not in info.supports_fused_on:
                    continue
                keywords = {**sample.kwargs, **{each: each == way for each in ways}}
                name = f"{info.name}-{number}-{way}-{sample.desc.replace(' ', '_')}"
                found.append(pytest.param(info, keywords, id=name))
    return found


def shapes_of(info) -> tuple:
    return ((5, 4), (4, 6)) if info.name == "Muon" else ((5, 4), (3,), ())


def parameters_of(info) -> list[torch.Tensor]:
    """In double precision where small differences would lead a search elsewhere."""
    dtype = torch.float64 if info.step_requires_closure else torch.float32
    return [torch.nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes_of(info)]


def gradients_of(info, number: int) -> list[torch.Tensor]:
    """The gradients of step `number`; those of embeddings where the optimizer takes no others."""
    generator = torch.Generator().manual_seed(number)
    dtype = torch.float64 if info.step_requires_closure else torch.float32
    made = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes_of(info)]
    return [each.to_sparse() if info.only_supports_sparse_grads else each for each in made]


def state_of(optimizer: torch.optim.Optimizer) -> list:
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return [groups, [dict(state) for state in optimizer.state.values()], optimizer.param_groups[0]["params"]]


def alone(info, keywords) -> Steps:
    """The optimizer's own `step`, with gradients set before it."""
    parameters = parameters_of(info)
    optimizer = info.optim_cls(parameters, **copy.deepcopy(keywords))  # samples hold tensors

    def arguments(number: int) -> tuple:
        for parameter, gradient in zip(parameters, gradients_of(info, number), strict=True):
            parameter.grad = gradient
        return ()

    return Steps(optimizer.step, lambda: [state_of(optimizer), [each.grad for each in parameters]], arguments)


def whole(info, keywords) -> Steps:
    """The gradients are taken in the compiled step, too."""
    parameters = parameters_of(info)
    optimizer = info.optim_cls(parameters, **copy.deepcopy(keywords))

    def step(*targets):
        def closure():
            optimizer.zero_grad()
            loss = sum((each - target).cosh().sum() for each, target in zip(parameters, targets, strict=True))
            loss.backward()
            return loss

        if info.step_requires_closure:
            return optimizer.step(closure).detach()
        loss = closure()
        optimizer.step()
        return loss.detach()

    def observe() -> list:
        gradients = [each.grad for each in parameters]
        return [gradients, parameters] if info.step_requires_closure else [state_of(optimizer), gradients]

    return Steps(step, observe, lambda number: tuple(gradients_of(info, number)))


@pytest.mark.parametrize(("info", "keywords"), [each for each in samples() if not each.values[0].step_requires_closure])
def test_alone(info, keywords):
    check_steps(lambda: alone(info, keywords), whole=info.name not in IN_PARTS)


@pytest.mark.filterwarnings("ignore::lampwork.errors.LampworkWarning")
@pytest.mark.parametrize(
    ("info", "keywords"), [each for each in samples(first=True) if not each.values[0].only_supports_sparse_grads]
)
def test_behind_backward(info, keywords):
    check_steps(lambda: whole(info, keywords), count=3, whole=info.name not in IN_PARTS, rtol=2e-5)
