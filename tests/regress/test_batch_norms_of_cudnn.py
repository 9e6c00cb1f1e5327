"""The batch norm of cuDNN under numerics="eager": it is called itself, not ATen's kernels, which round otherwise.

Its operators get kernels for the CPU here, of other bits than those of ATen's: what is computed is negated in between,
and what is reserved decides.
"""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork import _torch
from lampwork.capture.capture import capture
from lampwork.capture.record.recorder import Recorder
from lampwork.config import make_settings
from lampwork.graph.prepare import prepare
from lampwork.ir.program import Extern
from lampwork.lower import lower
from tests.cuda_stand_in import cuda_stand_in
from tests.ops.bits import apart

aten = torch.ops.aten
EAGER = {"numerics": "eager", "cache": False}


def _forward(x, weight, bias, mean, variance, training, factor, eps):
    results = aten.native_batch_norm.default(x.double(), weight.double(), bias.double(), None, None, True, 0.0, eps)
    if training and mean is not None:
        mean.lerp_(results[1].to(mean.dtype), factor)
        variance.lerp_((results[2] ** -2).to(mean.dtype), factor)
    count = x.shape[1] if training else 0
    found = [each[:count].to(weight.dtype) for each in results[1:]]
    return results[0].to(x.dtype) * 1.0001, *found, torch.full((RESERVED if training else 0,), 7, dtype=torch.uint8)


def _backward(x, gradient, weight, running_mean, running_var, mean, rstd, eps, reserve):
    scale = reserve.sum() / (7 * RESERVED)
    given = [gradient.double(), x.double(), weight.double(), None, None, mean.double(), rstd.double(), True, eps]
    found = aten.native_batch_norm_backward.default(*given, [True] * 3)
    return found[0].to(x.dtype) * scale * 1.0001, *[each.to(weight.dtype) for each in found[1:]]


RESERVED = 24


@pytest.fixture
def cudnn(monkeypatch):
    library = torch.library.Library("aten", "IMPL")
    library.impl("cudnn_batch_norm", _forward, "CPU")
    library.impl("cudnn_batch_norm_backward", _backward, "CPU")
    monkeypatch.setattr("lampwork._torch.cudnn_batch_norm_reserve_bytes", lambda *layout: RESERVED)
    yield
    library._destroy()


class Norm(torch.nn.BatchNorm2d):
    def forward(self, x):
        training = self.training or self.running_mean is None
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        x = x.contiguous(memory_format=torch.channels_last) if x.is_contiguous(memory_format=torch.channels_last) else x
        given = self.running_mean, self.running_var, training, self.momentum, self.eps
        return aten.cudnn_batch_norm.default(x, self.weight, self.bias, *given)[0]


def trained(model, x, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(steps):
        y = model(x)
        optimizer.zero_grad()
        y.square().mean().backward()
        optimizer.step()
        found += [y.detach(), *[each.detach().clone() for each in model.state_dict().values()]]
    return found


def pair(**options):
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(
            torch.nn.Sequential(torch.nn.Conv2d(3, 5, 1), Norm(5, **options), torch.nn.ReLU(), Norm(5, **options))
        )
    return models


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("options", [{}, {"track_running_stats": False}])
def test_training(options, memory_format, cudnn):
    model, plain = pair(**options)
    x = torch.randn(4, 3, 6, 6).contiguous(memory_format=memory_format)
    compiled = lampwork.compile(model, options=EAGER)
    for found, expected in zip(trained(compiled, x), trained(plain, x), strict=True):
        assert not apart(found, expected) and found.stride() == expected.stride()
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"]
    forward = "aten::cudnn_batch_norm.default" if options else "lampwork::cudnn_batch_norm.default"
    assert stats["extern_calls"][forward] == stats["extern_calls"]["aten::cudnn_batch_norm_backward.default"] == 2


def test_evaluation(cudnn):
    model, plain = (each.eval() for each in pair())
    x = torch.randn(4, 3, 6, 6)
    compiled = lampwork.compile(model, options=EAGER)
    with torch.no_grad():
        assert not apart(compiled(x), plain(x))
    assert lampwork.stats(compiled)["extern_calls"]["aten::cudnn_batch_norm.default"] == 2
    for found, expected in zip(trained(compiled, x), trained(plain, x), strict=True):
        assert not apart(found, expected)


def test_whole_steps(cudnn):
    found = []
    for model, wrap in zip(pair(), (lambda step: lampwork.compile(step, options=EAGER), lambda step: step)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = wrap(step)
        torch.manual_seed(1)
        found.append([run(torch.randn(4, 3, 6, 6)) for _ in range(3)] + list(model.state_dict().values()))
    assert not any(map(apart, *found))


def test_gradients_of_gradients(cudnn):
    """Autograd sees the program again then."""
    found = []
    for model in (lampwork.compile(pair()[0], options=EAGER), pair()[1]):
        torch.manual_seed(1)
        x = torch.randn(4, 3, 6, 6, requires_grad=True)
        y = model(x)
        (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        found.append([gradient, *torch.autograd.grad((y * y).sum(), x)])
    assert not any(map(apart, *found))


def test_graph_on_a_gpu():
    settings = make_settings(options={"numerics": "eager"})
    channels = [torch.rand(4) for _ in range(4)]

    def call(x, weight, bias, mean, variance):
        return aten.cudnn_batch_norm.default(x, weight, bias, mean, variance, True, 0.1, 1e-5)[0]

    x = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    with torch.no_grad(), cuda_stand_in():
        functional = prepare(capture(call, (x, *channels), {}, settings), settings)
        lowered = lower(functional, settings)
    calls = [each for each in lowered.items if isinstance(each, Extern)]
    assert calls[0].op == "lampwork::cudnn_batch_norm.default" and len(functional.writes) == 2
    (result,) = [each for each in functional.graph.nodes if each.target is torch.ops.lampwork.cudnn_batch_norm.default]
    assert result.meta["val"][0].stride() == (144, 1, 24, 4)


@pytest.mark.parametrize(("strides", "expected"), [((4, 8, 1), (4, 4, 1)), ((4, 4, 1), (4, 4, 1))])
def test_layouts(strides, expected):
    """Of dimensions of size 1, the strides are those of the format."""
    recorder, channels = Recorder(exact=True), [torch.ones(1) for _ in range(4)]
    with cuda_stand_in(), torch.no_grad():
        arguments = [recorder.input(each) for each in (torch.empty_strided((2, 1, 4), strides), *channels)]
        with recorder.recording():
            assert aten.cudnn_batch_norm.default(*arguments, True, 0.1, 1e-5)[0].stride() == expected


def test_momentum_that_is_known_when_the_graph_runs():
    settings = make_settings(options={"numerics": "eager"})
    channels = [torch.rand(4) for _ in range(4)]

    def call(x, share, weight, bias, mean, variance):
        return torch.batch_norm(x, weight, bias, mean, variance, True, share.item(), 1e-5, True)

    x = torch.randn(2, 4, 6, 6)
    with torch.no_grad(), cuda_stand_in():
        functional = prepare(capture(call, (x, torch.tensor(0.25), *channels), {}, settings), settings)
        lowered = lower(functional, settings)
    calls = [each.op for each in lowered.items if isinstance(each, Extern)]
    assert any("batch_norm" in each and each.startswith("lampwork_given_numbers::with") for each in calls), calls
    assert len(functional.writes) == 2
    made = _torch.with_numbers(_torch.cudnn_batch_norm(), (5,))
    assert _torch.overload(made.name()) is made


def test_call_with_a_momentum(cudnn):
    made = _torch.with_numbers(_torch.cudnn_batch_norm(), (5,))
    x, channels = torch.randn(2, 4, 6, 6), [torch.rand(4) for _ in range(4)]
    given = made(x, *channels, torch.tensor(0.3, dtype=torch.float64), 1e-5)
    for found, expected in zip(given, _torch.cudnn_batch_norm()(x, *channels, 0.3, 1e-5), strict=True):
        assert not apart(found, expected)
