"""Batch norms with `momentum=None` under numerics="eager": the library's own call updates the running statistics, with
the momentum that the host knows by then. A formula of ours rounded otherwise."""

from __future__ import annotations

import pytest
import torch

import lampwork
from tests.ops.bits import apart


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("whole", [False, True])
def test_training(whole, dtype):
    found = []
    for compiles in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.BatchNorm2d(6, momentum=None), torch.nn.BatchNorm2d(6, momentum=None))

        def step(x, model=model):
            y = model(x)
            y.float().square().mean().backward()
            return y.detach()

        options = {"numerics": "eager", "cache": False}
        compiled = lampwork.compile(step if whole else model, options=options)
        if compiles and not whole:

            def run(x, compiled=compiled):
                y = compiled(x)
                y.float().square().mean().backward()
                return y.detach()
        else:
            run = compiled if compiles else step
        results = []
        for _ in range(4):
            model.zero_grad()
            results.append(run(torch.randn(8, 6, 7, 5).to(dtype)))
            results += [each.grad.clone() for each in model.parameters()]
            results += [each.clone() for each in model.state_dict().values()]
        if compiles:
            stats = lampwork.stats(compiled)
            assert stats["entries"] == 1 and not stats["fallbacks"] and not stats["breaks"]
        found.append(results)
    assert not any(map(apart, *found))
