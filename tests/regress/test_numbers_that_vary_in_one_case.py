"""Counters that begin to vary behind a milestone, where the entries from before it do not read them."""

from __future__ import annotations

import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

import lampwork


def test_a_counter_that_is_read_behind_a_milestone():
    def program(x, counts):
        counts["calls"] += 1
        if counts["calls"] < 5:
            return x * 2
        counts["later"] += 1
        return x + counts["later"]

    compiled = lampwork.compile(program, options={"cache": False})
    expected, found = {"calls": 0, "later": 0}, {"calls": 0, "later": 0}
    captures = []
    for number in range(14):
        x = torch.full((3,), float(number))
        assert torch.equal(compiled(x, found), program(x, expected))
        assert found == expected
        captures.append(lampwork.stats(compiled)["captures"])
    assert captures[-1] == captures[8] <= 6, captures
    assert not lampwork.stats(compiled)["fallbacks"]


def test_schedules_one_after_the_other():
    def make():
        optimizer = SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
        schedule = SequentialLR(
            optimizer, [LinearLR(optimizer, 0.1, total_iters=20), CosineAnnealingLR(optimizer, 30)], [5]
        )

        def step():
            schedule.step()
            return schedule.get_last_lr(), schedule.last_epoch

        return step

    eager, compiled = make(), lampwork.compile(make(), options={"cache": False})
    for number in range(16):
        rates, epoch = eager()
        found, count = compiled()
        torch.testing.assert_close(found, rates)
        assert epoch == count
        if number == 10:
            captures = lampwork.stats(compiled)["captures"]
    stats = lampwork.stats(compiled)
    assert stats["captures"] == captures and not stats["breaks"] and not stats["fallbacks"], stats["recompiles"]
