"""Training scalars: what an optimizer keeps of a parameter of one element is no counter."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("shape", [(), (1,)], ids=["scalar", "vector"])
@pytest.mark.parametrize("optimizer", ["AdamW", "Adam", "RMSprop", "Adagrad", "NAdam"])
def test_later_steps_have_the_entry_of_the_first(optimizer, shape):
    """Moments of several such parameters begin as the same number: they were guarded to stay that, as step counters
    are, so the second step was compiled again."""

    def trained(compile):
        torch.manual_seed(0)
        gates = [torch.nn.Parameter(torch.randn(shape)) for _ in range(3)]
        weight = torch.nn.Parameter(torch.randn(4, 4))
        update = getattr(torch.optim, optimizer)([*gates, weight], lr=1e-2)

        def step(x):
            update.zero_grad()
            loss = (gates[0] * x @ weight * gates[1] + gates[2]).sin().square().mean()
            loss.backward()
            update.step()
            return loss.detach()

        run = compile(step)
        inputs = torch.randn(5, 2, 4)
        return [run(x) for x in inputs], [*gates, weight], run

    expected = trained(lambda step: step)[:2]
    losses, parameters, compiled = trained(lambda step: lampwork.compile(step, options={"cache": False}))
    torch.testing.assert_close((losses, parameters), expected)
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"], [*stats["breaks"], *stats["fallbacks"]]
    assert stats["captures"] == 1, stats["recompiles"]
