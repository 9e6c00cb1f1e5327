"""Batch norms with `momentum=None` under numerics="eager": the library's own call updates the running statistics, with
the momentum that the host knows by then. A formula of ours rounded otherwise. Of an empty batch nothing is written, which
was an average of nothing; and no version rises, whatever the momentum."""

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


KINDS = {
    "BatchNorm1d": [(4, 3), (0, 3), (4, 3, 5), (4, 3, 0), (2, 3, 1)],
    "BatchNorm2d": [(4, 3, 2, 2), (0, 3, 2, 2), (4, 3, 0, 2)],
    "BatchNorm3d": [(2, 3, 2, 2, 2), (0, 3, 2, 2, 2)],
    "InstanceNorm1d": [(4, 3, 5), (0, 3, 5), (4, 3, 0), (4, 3, 1)],
    "InstanceNorm2d": [(4, 3, 2, 2), (0, 3, 2, 2), (3, 2, 2)],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("momentum", [None, 0.0, 0.1, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_nothing(kind, momentum, dynamic):
    def run(shape, learns, compiles):
        torch.manual_seed(0)
        model = getattr(torch.nn, kind)(3, momentum=momentum, track_running_stats=True)
        call = lampwork.compile(model, dynamic=dynamic, options={"cache": False}) if compiles else model
        found = []
        for batch in (shape, KINDS[kind][0], shape):
            x = torch.randn(batch, requires_grad=learns)
            try:
                y = call(x)
                if learns:
                    (y * y).sum().backward()
                    found.append(x.grad)
                found.append(y.detach())
            except Exception as error:
                found.append(type(error))
            found += [each.clone() for each in model.buffers()]
            found.append([each._version for each in model.buffers()])
        return found

    for shape in KINDS[kind]:
        for learns in (False, True):
            for ours, theirs in zip(run(shape, learns, True), run(shape, learns, False), strict=True):
                if isinstance(theirs, torch.Tensor):
                    torch.testing.assert_close(ours, theirs, equal_nan=True, atol=1e-4, rtol=1e-4)
                    assert ours.stride() == theirs.stride()
                else:
                    assert ours == theirs


def test_rows_that_a_mask_picks():
    for momentum in (None, 0.1):
        models = [torch.nn.BatchNorm1d(3, momentum=momentum) for _ in range(2)]
        calls = [lambda x, model=model: model(x[x[:, 0] > 0]) for model in models]
        calls[1] = lampwork.compile(calls[1], options={"cache": False})
        for count in (4, 0, 3, 0):
            x = torch.rand(6, 3)
            x[count:, 0] *= -1
            torch.testing.assert_close(*[call(x) for call in calls])
            torch.testing.assert_close(*[list(model.buffers()) for model in models])
