"""State that calls change is put back into the same objects."""

from __future__ import annotations

import random

import pytest
import torch

from lampwork.verdict.snapshot import Snapshot


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.calls = 0
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        y = self.norm(self.linear(x))
        self.last = y.detach().mean(0)  # another tensor each time
        return y


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
@pytest.mark.parametrize("stepped_before", [False, True])
def test_a_training_step_is_undone(make, stepped_before):
    torch.manual_seed(0)
    model = Counting()
    optimizer = make(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    x = torch.randn(4, 3)

    def step():
        optimizer.zero_grad()
        model(x * torch.rand(())).square().sum().backward()
        optimizer.step()
        schedule.step()

    if stepped_before:
        step()
    snapshot = Snapshot()
    for each in (model, optimizer, schedule):
        snapshot.add(each)

    def state():
        tensors = [*model.parameters(), *model.buffers()]
        values = [each.detach().clone() for each in tensors]
        grads = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
        kept = {key: dict(each) for key, each in optimizer.state.items()}
        return tensors, values, grads, kept, optimizer.param_groups[0]["lr"], schedule.last_epoch, model.calls

    before = state()
    for _ in range(2):
        step()
        snapshot.restore()
        after = state()
        assert all(one is other for one, other in zip(before[0], after[0]))
        assert all(torch.equal(one, other) for one, other in zip(before[1], after[1]))
        for one, other in zip(before[2], after[2]):
            assert (one is None) == (other is None) and (one is None or torch.equal(one, other))
        assert list(before[3]) == list(after[3])
        assert before[4:] == after[4:]


def test_generators_are_put_back():
    snapshot = Snapshot()
    first = torch.rand(3), random.random()
    snapshot.restore()
    again = torch.rand(3), random.random()
    assert torch.equal(first[0], again[0]) and first[1] == again[1]


def test_buffers_alone():
    model = Counting()
    snapshot = Snapshot(only_buffers=True)
    snapshot.add(model)
    model(torch.randn(4, 3))
    with torch.no_grad():
        model.linear.weight.zero_()
    snapshot.restore()
    assert model.norm.num_batches_tracked == 0 and not model.last.any()
    assert not model.linear.weight.any()  # a parameter is left as it is


def test_lazy_modules_have_nothing_to_save_yet():
    snapshot = Snapshot()
    snapshot.add(torch.nn.LazyLinear(3))
    snapshot.restore()


def test_stretched_tensors_are_left_as_they_are():
    snapshot = Snapshot()
    snapshot.add(torch.ones(1, 3).expand(4, 3))
    snapshot.restore()


SEEN: list[int] = []
TOTAL = 0


class Feed:
    """A program's own object."""

    def __init__(self, batches):
        self.batches, self.place, self.numbers = batches, 0, random.Random(3)

    def take(self):
        self.place = (self.place + 1) % len(self.batches)
        SEEN.append(self.place)
        return self.batches[self.place] * self.numbers.random()


def test_what_a_function_keeps_in_plain_python_is_undone():
    feed = Feed([torch.full((2,), float(each)) for each in range(5)])
    generator = torch.Generator().manual_seed(1)
    total, log, scale = 0, {"lines": []}, torch.ones(())

    def helper():
        nonlocal total
        total += 1
        log["lines"].append(total)
        log["last"] = total
        scale.mul_(2)
        return torch.rand(2, generator=generator)

    def program():
        global TOTAL
        TOTAL += 1
        return feed.take() + helper() * scale

    snapshot = Snapshot()
    snapshot.add_program(program)
    lines = log["lines"]
    results = []
    for _ in range(3):
        results.append(program())
        snapshot.restore()
        assert (feed.place, total, log, SEEN, TOTAL, float(scale)) == (0, 0, {"lines": []}, [], 0, 1.0)
        assert log["lines"] is lines
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_a_large_tensor_keeps_no_small_one_from_being_saved(monkeypatch):
    monkeypatch.setattr("lampwork.verdict.snapshot.MOST_BYTES", 1000)
    batches, count = torch.zeros(1000), torch.zeros(3)

    def program():
        return batches.sum() + count.add_(1)

    snapshot = Snapshot()
    snapshot.add_program(program)
    program()
    snapshot.restore()
    assert not count.any()
