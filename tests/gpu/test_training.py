"""Training on a GPU: modules with their backward pass, whole steps, optimizers, all in small sizes, next to eager."""

from __future__ import annotations

import copy
import functools

import pytest
import torch

import lampwork
from lampwork import _torch
from lampwork.benchmark import training, zoo
from tests.gpu.support import assert_close, compiled_of

STEPS = 6
PRECISIONS = pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["float32", "autocast"])


@pytest.fixture(autouse=True)
def exact():
    """No TF32: its rounding differs between equal products of other shapes."""
    with _torch.exact_products():
        yield


def whole(compiled, captures):
    stats = lampwork.stats(compiled)
    assert list(stats["breaks"]) == [] and list(stats["fallbacks"]) == [], (stats["breaks"], stats["fallbacks"])
    assert stats["captures"] <= captures, [str(each.diagnostic) for each in stats["recompiles"]]
    assert stats["native_kernels"] > 0


def check_steps(name, device, captures, autocast=None, kind="fused", **compiles):
    """`STEPS` steps with AdamW, clipping and a schedule come to what eager's come to, judged by float64."""
    workload = training.prepare(name, device=device, size="tiny")
    start = {key: value.detach().cpu().clone() for key, value in workload.module.named_parameters()}
    trainers = [
        training.Trainer(workload, device, optimizer=kind, autocast=autocast, **more) for more in (compiles, {})
    ]
    exact = training.Trainer(workload, device, optimizer="plain", dtype=torch.float64)
    ours, eager, reference = (training.train(each, STEPS) for each in (*trainers, exact))
    verdict = training.compare(ours, eager, reference, start, autocast or torch.float32)
    assert verdict["accepted"], verdict["reasons"]
    whole(trainers[0].compiled, captures)


@PRECISIONS
@pytest.mark.parametrize("name", zoo.ZOO)
def test_module(name, autocast, device):
    """Forward and backward compiled, the rest eager."""
    check_steps(name, device, 1, autocast, compile_model=compiled_of)


@PRECISIONS
@pytest.mark.parametrize("name", zoo.ZOO)
def test_whole_step(name, autocast, device):
    """The first step makes the optimizer's state; the second is captured for all that come after."""
    check_steps(name, device, 2, autocast, compile_step=compiled_of)


@pytest.mark.parametrize("kind", ["foreach", "plain"])
def test_other_implementations(kind, device):
    check_steps("gpt2", device, 2, torch.bfloat16, kind, compile_step=compiled_of)


@pytest.mark.parametrize("name", ["mlp", "gpt2", "resnet"])
@pytest.mark.parametrize("what", ["compile_model", "compile_step"])
def test_cuda_graphs(name, what, device):
    compile_it = functools.partial(compiled_of, mode="reduce-overhead")
    check_steps(name, device, 2, torch.bfloat16, **{what: compile_it})


def test_dropout_of_a_compiled_module(device):
    """The backward pass draws the masks of the forward pass again."""
    module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Dropout(0.25)).to(device)
    x = torch.randn(128, 64, device=device, requires_grad=True)
    compiled = compiled_of(module)
    for _ in range(3):
        result = compiled(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        kept = result != 0
        assert 0.7 < kept.float().mean() < 0.8
        inner = module[0](x)
        again = torch.nn.functional.gelu(inner) * kept / 0.75
        assert_close(result, again)
        assert_close(gradient, torch.autograd.grad(again.sum(), x)[0])
    whole(compiled, 1)


def test_an_optimizer_of_300_tensors(device):
    """`opt.step` alone: equal to the vendor's fused kernel, in a few kernels."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(64, 64), (64,), (3, 5, 7), (1000,)] * 75
    values = [torch.randn(shape, generator=generator).to(device) for shape in shapes]
    sides = [[torch.nn.Parameter(value.clone()) for value in values] for _ in range(2)]
    optimizers = [torch.optim.AdamW(side, lr=1e-2, fused=True) for side in sides]
    compiled = compiled_of(optimizers[0].step)
    for number in range(5):
        for one, other in zip(*sides):
            one.grad = torch.randn(one.shape, generator=generator).to(device)
            other.grad = one.grad.clone()
        compiled()
        optimizers[1].step()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] *= 0.9
    for one, other in zip(*sides):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    whole(compiled, 2)


def test_a_scaler_for_float16(device):
    """Autocast to float16 with `GradScaler`, whose scale and found infinities stay on the device."""
    torch.manual_seed(2)
    first = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to(device)
    second = copy.deepcopy(first)
    batches = [torch.randn(16, 32, device=device) * (1 if number != 2 else 1e6) for number in range(5)]

    def make(module):
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=2)

        def step(batch):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = module(batch).float().square().mean()
            scaler.scale(loss).backward()
            return loss.detach()

        def update():
            scaler.step(optimizer)
            scaler.update()

        return step, update, scaler

    (ours, ours_update, ours_scaler), (theirs, theirs_update, theirs_scaler) = make(first), make(second)
    compiled = compiled_of(ours)
    for batch in batches:
        torch.testing.assert_close(compiled(batch), theirs(batch), rtol=1e-2, atol=1e-3, equal_nan=True)
        ours_update()
        theirs_update()
        assert ours_scaler.get_scale() == theirs_scaler.get_scale()
    for one, other in zip(first.parameters(), second.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
    assert list(lampwork.stats(compiled)["fallbacks"]) == []
