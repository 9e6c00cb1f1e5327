"""A loop's first step, which makes the states of optimizers and finds no gradients, is served by the later ones' entry."""

from __future__ import annotations

import pytest
import torch

import lampwork
from tests.training.support import Steps, check_steps
from tests.training.test_optimizers import OPTIMIZERS


class Net(torch.nn.Module):
    """Two ways through; `other` gets gradients when `both` are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 2)
        self.other = torch.nn.Linear(8, 2)

    def forward(self, x, both):
        hidden = self.first(x).tanh()
        return self.second(hidden) + self.other(hidden) if both else self.second(hidden)


def whole_step(make_optimizer, before=lambda optimizer, loss: None, both=lambda number: True):
    """`Steps` of a whole step; `before(optimizer, loss)` runs in it, ahead of the optimizer's own step."""

    def make() -> Steps:
        net = Net()
        optimizer = make_optimizer(net)

        def step(x, both):
            optimizer.zero_grad()
            loss = net(x, both).square().mean()
            loss.backward()
            before(optimizer, loss)
            optimizer.step()
            return loss.detach()

        def observe():
            states = [dict(optimizer.state.get(each, {})) for each in net.parameters()]
            return [each.detach().clone() for each in net.parameters()], states, [p.grad for p in net.parameters()]

        return Steps(step, observe, lambda number: (torch.randn(3, 4), both(number)))

    return make


@pytest.mark.parametrize("name", ["adam amsgrad", "adamw", "rmsprop", "nadam", "adamax", "adadelta", "rprop"])
@pytest.mark.parametrize("foreach", [False, True])
def test_one_entry(name, foreach):
    make = OPTIMIZERS[name]
    found = check_steps(whole_step(lambda net: make(net.parameters(), foreach=foreach)), entries=1)
    assert found["captures"] == 1


def test_parameters_without_gradients_have_no_state():
    adam = lambda net: torch.optim.Adam(net.parameters(), lr=0.01)
    check_steps(whole_step(adam, both=lambda number: False), entries=1)
    found = check_steps(whole_step(adam, both=lambda number: number >= 2), count=5, whole=False)
    assert not found["breaks"] and not found["fallbacks"] and found["entries"] == 2


def test_a_group_that_comes_later():
    def make() -> Steps:
        net = Net()
        optimizer = torch.optim.AdamW(net.first.parameters(), lr=0.01)
        groups = {2: {"params": list(net.second.parameters()), "lr": 0.1, "weight_decay": 0.0}}

        def between(number: int) -> None:
            if number in groups:
                optimizer.add_param_group(groups[number])

        def step(x):
            net.zero_grad()
            loss = net(x, True).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        def observe():
            return [each.detach().clone() for each in net.parameters()], optimizer.state_dict()["state"]

        return Steps(step, observe, lambda number: (torch.randn(3, 4),), between)

    found = check_steps(make, count=6, whole=False)
    assert not found["breaks"] and not found["fallbacks"] and found["captures"] == 2


def test_a_program_that_looks_at_the_state_first():
    seen: list[int] = []

    def look(optimizer, loss):
        if not optimizer.state:
            seen.append(1)

    check_steps(whole_step(lambda net: torch.optim.Adam(net.parameters(), lr=0.01), look), entries=2)
    assert len(seen) == 2  # eager's and the compiled first step


def test_hyper_parameters_that_states_are_made_of_are_set_in_the_step():
    def set_rate(optimizer, loss):
        optimizer.param_groups[0]["lr"] = 0.02

    check_steps(whole_step(lambda net: torch.optim.Rprop(net.parameters(), lr=0.01), set_rate), entries=3, whole=False)


def test_a_break_before_the_step():
    def decide(optimizer, loss):
        if loss > 1e6:
            optimizer.param_groups[0]["lr"] = 0.0

    check_steps(whole_step(lambda net: torch.optim.Adam(net.parameters(), lr=0.01), decide), whole=False)


def failing_step(optimizer, net, fails):
    @lampwork.compile(options={"cache": False})
    def step(x):
        optimizer.zero_grad()
        loss = net(x, True).square().mean()
        loss.backward()
        if fails and (x > 100).any():
            raise ValueError("too large")
        optimizer.step()
        return loss.detach()

    return step


def test_a_call_that_fails_before_the_step_makes_no_state():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    step = failing_step(optimizer, net, True)
    with pytest.raises(ValueError, match="too large"):
        step(torch.full((3, 4), 1000.0))
    assert not optimizer.state
    step(torch.randn(3, 4))
    assert len(optimizer.state) == 6 and all(state["step"] == 1 for state in optimizer.state.values())


def test_explaining_makes_no_state():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    step = failing_step(optimizer, net, False)
    lampwork.explain(step, torch.randn(3, 4))
    assert not optimizer.state


def test_states_taken_away_are_made_anew():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    step = failing_step(optimizer, net, False)
    for _ in range(2):
        step(torch.randn(3, 4))
    optimizer.state.clear()
    step(torch.randn(3, 4))
    assert all(state["step"] == 1 for state in optimizer.state.values())
    assert lampwork.stats(step)["captures"] == 1


@pytest.mark.parametrize("owner", ["optimizer", "module"])
@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_forgotten_before_there_are_any(owner, to_none):
    def make() -> Steps:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        forget = optimizer.zero_grad if owner == "optimizer" else net.zero_grad

        def step(x):
            forget(set_to_none=to_none)
            loss = net(x, False).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        def observe():
            return [p.grad for p in net.parameters()], [p.detach().clone() for p in net.parameters()]

        def between(number: int) -> None:
            if number == 2:  # what eager left is forgotten, too
                net(torch.ones(3, 4), True).sum().backward()

        return Steps(step, observe, lambda number: (torch.randn(3, 4),), between)

    found = check_steps(make, count=5, whole=False)
    assert not found["breaks"] and not found["fallbacks"]
    assert found["captures"] == 1 or not to_none
