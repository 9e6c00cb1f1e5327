"""Every sample of PyTorch's own optimizer tests: four steps compiled, alone and behind `backward()`, next to eager's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

from tests.training.support import Steps, check_steps


def samples() -> list:
    """One parameter of a test for each optimizer, sample of its arguments, and way it is implemented."""
    found = []
    for info in optim_db:
        ways = [way for way in info.supported_impls if way != "fused" or "cpu" in info.supports_fused_on]
        for number, sample in enumerate(info.optim_inputs_func(device="cpu")):
            for way in ("plain", *ways):
                keywords = dict(sample.kwargs)
                if ways:
                    keywords |= {each: each == way for each in ways}
                lr = keywords.get("lr")
                if isinstance(lr, torch.Tensor) and way == "foreach":
                    continue  # refused by eager
                name = f"{info.name}-{number}-{way}-{sample.desc.replace(' ', '_')}"
                found.append(pytest.param(info, keywords, id=name))
    return found


def shapes_of(info) -> tuple:
    return ((5, 4), (4, 6)) if info.name == "Muon" else ((5, 4), (3,), ())


def parameters_of(info) -> list[torch.Tensor]:
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes_of(info)]


def gradients_of(info, number: int) -> list[torch.Tensor]:
    """The gradients of step `number`; those of embeddings where the optimizer takes no others."""
    generator = torch.Generator().manual_seed(number)
    made = [torch.randn(shape, generator=generator) for shape in shapes_of(info)]
    return [each.to_sparse() if info.only_supports_sparse_grads else each for each in made]


def state_of(optimizer: torch.optim.Optimizer) -> list:
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return [groups, [dict(state) for state in optimizer.state.values()], optimizer.param_groups[0]["params"]]


def alone(info, keywords) -> Steps:
    """The optimizer's own `step`, with gradients set before it."""
    parameters = parameters_of(info)
    optimizer = info.optim_cls(parameters, **copy.deepcopy(keywords))

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
            loss = sum((each.sin() * target).pow(2).sum() for each, target in zip(parameters, targets, strict=True))
            loss.backward()
            return loss

        if info.step_requires_closure:
            return optimizer.step(closure).detach()
        loss = closure()
        optimizer.step()
        return loss.detach()

    return Steps(
        step,
        lambda: [state_of(optimizer), [each.grad for each in parameters]],
        lambda number: tuple(gradients_of(info, number)),
    )
