"""Optimizers of torch.optim in a compiled step: states, parameters and hyper-parameters as eager leaves them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.optim import lr_scheduler

import lampwork
from lampwork.ir.number import words
from lampwork.ir.source import Numbers
from tests.training.support import Steps, check_steps, state_of
from tests.training.test_backward import batch, mlp


def state_of_optimizer(optimizer: torch.optim.Optimizer) -> list:
    """Groups without their tensors, and what is remembered of each parameter."""
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return [groups, [dict(state) for state in optimizer.state.values()]]


def training(make_optimizer, body=None, model=mlp, schedule=None, dtype=None, **options):
    """Whole steps with an optimizer; `schedule(optimizer)` makes a scheduler, stepped between the steps."""

    def make() -> Steps:
        made = model() if dtype is None else model().to(dtype)
        optimizer = make_optimizer(made)
        scheduler = None if schedule is None else schedule(optimizer)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(made(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        def between(number):
            if scheduler is not None:
                scheduler.step()

        run = step if body is None else lambda x, y: body(made, optimizer, x, y)
        return Steps(run, lambda: [state_of(made), state_of_optimizer(optimizer)], arguments, between)

    def arguments(number: int) -> tuple:
        return tuple(each if dtype is None else each.to(dtype) for each in batch(number))

    return check_steps(make, **options)


OPTIMIZERS = {
    "sgd": lambda p, **o: torch.optim.SGD(p, lr=0.1, **o),
    "sgd momentum": lambda p, **o: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, **o),
    "sgd dampening": lambda p, **o: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, **o),
    "sgd nesterov": lambda p, **o: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **o),
    "adam": lambda p, **o: torch.optim.Adam(p, lr=0.01, **o),
    "adam amsgrad": lambda p, **o: torch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1, **o),
    "adamw": lambda p, **o: torch.optim.AdamW(p, lr=0.01, **o),
    "adamw amsgrad": lambda p, **o: torch.optim.AdamW(p, lr=0.01, amsgrad=True, **o),
    "adagrad": lambda p, **o: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.01, **o),
    "rmsprop": lambda p, **o: torch.optim.RMSprop(p, lr=0.01, **o),
    "rmsprop centered": lambda p, **o: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.9, **o),
    "nadam": lambda p, **o: torch.optim.NAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True, **o),
    "adamax": lambda p, **o: torch.optim.Adamax(p, lr=0.01, **o),
    "adadelta": lambda p, **o: torch.optim.Adadelta(p, lr=0.5, **o),
    "rprop": lambda p, **o: torch.optim.Rprop(p, lr=0.01, **o),
    "asgd": lambda p, **o: torch.optim.ASGD(p, lr=0.01, **o),
}  # fmt: skip


@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name, foreach):
    # A variance as the difference of two means has no digits left in float32: which ones is up to the processor.
    dtype = torch.float64 if "centered" in name else None
    training(lambda model: OPTIMIZERS[name](model.parameters(), foreach=foreach), dtype=dtype)


@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
def test_radam_changes_its_rule_once(foreach):
    """The sixth step takes another branch, which is another entry."""
    found = training(
        lambda model: torch.optim.RAdam(model.parameters(), lr=0.01, foreach=foreach), count=9, whole=False
    )
    assert not found["breaks"] and not found["fallbacks"] and found["entries"] == 2


@pytest.mark.parametrize("name", ["sgd momentum", "adamw", "rmsprop", "adagrad", "adadelta"])
def test_maximize(name):
    training(lambda model: OPTIMIZERS[name](model.parameters(), maximize=True))


@pytest.mark.parametrize("name", ["sgd", "sgd nesterov", "adam amsgrad", "adamw", "adagrad"])
def test_fused(name):
    training(lambda model: OPTIMIZERS[name](model.parameters(), fused=True))


def test_parameter_groups():
    def make(model):
        groups = [
            {"params": model[0].parameters(), "lr": 0.1},
            {"params": [model[2].weight], "weight_decay": 0.5, "betas": (0.8, 0.99)},
            {"params": [model[2].bias], "eps": 1e-3},
        ]
        return torch.optim.AdamW(groups, lr=0.01)

    training(make)


def test_learning_rate_as_tensor():
    training(lambda model: torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01), foreach=False))


def test_half_precision_parameters():
    def body(model, optimizer, x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x.bfloat16()), y.bfloat16()).backward()
        optimizer.step()

    def make(model):
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.1)

    training(make, body, lambda: mlp().bfloat16(), rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_updates_are_rounded_as_in_eager(dtype):
    def make() -> Steps:
        parameter = torch.randn(40).to(dtype).requires_grad_()
        optimizer = torch.optim.AdamW([parameter], lr=0.01)
        directions = torch.randn(5, 40).to(dtype)

        def step(direction):
            parameter.grad = direction
            optimizer.step()

        return Steps(step, lambda: state_of_optimizer(optimizer), lambda number: (directions[number],))

    check_steps(make, rtol=1e-2, atol=1e-3)


class Lion(torch.optim.Optimizer):
    """An optimizer of a user's."""

    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["count"] = 0
                state["count"] += 1
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                average = state["exp_avg"]
                first, second = group["betas"]
                update = average.clone().mul_(first).add(parameter.grad, alpha=1 - first).sign_()
                parameter.add_(update, alpha=-group["lr"])
                average.mul_(second).add_(parameter.grad, alpha=1 - second)


def test_optimizer_of_a_user():
    """Its counter is an integer: it varies from the third step on, and is a symbol from then on."""
    found = training(lambda model: Lion(model.parameters()), count=7, whole=False)
    assert not found["breaks"] and not found["fallbacks"] and found["entries"] <= 4


# Hyper-parameters that change -----------------------------------------------------------------------------------------

SCHEDULES = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20),
    "step": lambda o: lr_scheduler.StepLR(o, 2),
    "warm-up": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.ExponentialLR(o, 0.5)], [2]
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimizer", ["sgd momentum", "adamw"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedulers_never_recompile(schedule, optimizer):
    training(lambda model: OPTIMIZERS[optimizer](model.parameters()), schedule=SCHEDULES[schedule], count=6)


def test_plateau():
    def make() -> Steps:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)

        def step(x, y):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()

        return Steps(step, lambda: [state_of(model), state_of_optimizer(optimizer)], batch,
                     lambda number: scheduler.step(1.0))  # fmt: skip

    check_steps(make, count=6)


def test_hyper_parameters_set_between_steps():
    def make() -> Steps:
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()

        def between(number):
            optimizer.param_groups[0].update(lr=0.1 / (number + 1), weight_decay=0.01 * number + 0.01, eps=1e-6)

        return Steps(step, lambda: [state_of(model), state_of_optimizer(optimizer)], batch, between)

    check_steps(make, count=5)


def test_a_hyper_parameter_that_becomes_zero_is_another_entry():
    def make() -> Steps:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)

        def step(x, y):
            F.mse_loss(model(x), y).backward()
            optimizer.step()

        def between(number):
            optimizer.param_groups[0]["weight_decay"] = 0.0 if number >= 2 else 0.2

        return Steps(step, lambda: [state_of(model), state_of_optimizer(optimizer)], batch, between)

    found = check_steps(make, count=6, whole=False)
    assert found["entries"] == 3 and not found["breaks"]


def test_step_counters_that_part_are_told_apart():
    """Counters that stand at one number are one number to the program; those of another step are not taken for it."""
    torch.manual_seed(0)
    values = [torch.randn(8) for _ in range(10)]
    gradients = [torch.randn(8) for _ in range(10)]
    runs = []
    for compiled in (False, True):
        params = [torch.nn.Parameter(value.clone()) for value in values]
        for param, gradient in zip(params, gradients):
            param.grad = gradient.clone()
        optimizer = torch.optim.AdamW(params, lr=0.1)
        step = lampwork.compile(optimizer.step) if compiled else optimizer.step
        for _ in range(3):
            step()
        if compiled:
            assert len(step_inputs(step)) == 2  # 1 - beta1 ** step and the like, once for all ten
        with torch.no_grad():
            optimizer.state[params[7]]["step"] += 5
        for _ in range(3):
            step()
        if compiled:
            assert lampwork.stats(step)["captures"] == 2 and not lampwork.stats(step)["fallbacks"]
        runs.append((params, [state["step"] for state in optimizer.state.values()]))
    for one, other in zip(runs[0][0], runs[1][0]):
        torch.testing.assert_close(one, other)
    assert runs[0][1] == runs[1][1]


def step_inputs(step) -> list[str]:
    """The expressions with a step counter that the newest graph of a compiled step is given."""
    numbers = [each for each in step.__lampwork__.entries[0].artifact.inputs if isinstance(each, Numbers)]
    return [number for each in numbers for number in each.numbers if "single(" in words(number)]
