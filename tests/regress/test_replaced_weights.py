"""A stored entry forgot which weights its program reads, so that one that was replaced went unseen while other things
changed with every call."""

from __future__ import annotations

import torch

import lampwork


def program():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(8)])
    changing = {"scale": 1.0}

    def run(x):
        return model(x) * changing["scale"]

    return model, changing, run


def test_a_weight_that_is_replaced_in_each_call():
    for _ in range(2):  # compiled, and found
        model, changing, run = program()
        compiled = lampwork.compile(run)
        with torch.no_grad():
            for number in range(24):
                changing["number"] = number
                if number > 12:
                    model[3].weight = torch.nn.Parameter(torch.randn(8, 8))
                x = torch.randn(2, 8)
                torch.testing.assert_close(compiled(x), run(x))
    assert lampwork.stats(compiled)["captures"] == 0
