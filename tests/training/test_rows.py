"""Updates of many tensors as a few kernels, in native code: numbers, threads, stored entries."""

from __future__ import annotations

import os

import pytest
import torch

import lampwork
from tests.processes import run_python

SHAPES = [(3,), (16,), (5, 7), (32, 33), (640, 100), (1000,), (2, 3, 8, 1), (48,), (160,), (11,), (9, 5), (1 << 17,), (13,),
          (4096, 64), (), (1,), (70001,), (208,), (17,), (272,), (15,)]  # fmt: skip


def update(parameters, gradients, averages, squares, rate, largest):
    """A step of AdamW behind clipping, tensor by tensor."""
    with torch.no_grad():
        norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
        coefficient = torch.clamp(largest / (norm + 1e-6), max=1.0)
        for parameter, gradient, average, square in zip(parameters, gradients, averages, squares):
            gradient.mul_(coefficient)
            parameter.mul_(1 - rate * 0.01)
            average.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            parameter.addcdiv_(average, square.sqrt().add_(1e-8), value=-rate)
        return norm


def tensors(dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    values = [[torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES] for _ in range(3)]
    return [*values, [value.abs() for value in values[0]]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_numbers(dtype, threads):
    lampwork.reset()
    close = {"rtol": 0.02, "atol": 0.002} if dtype == torch.bfloat16 else {}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ours, theirs = tensors(dtype), tensors(dtype)
        compiled = lampwork.compile(update, fullgraph=True)
        for _ in range(3):
            torch.testing.assert_close(compiled(*ours, 0.01, 1.0), update(*theirs, 0.01, 1.0), **close)
            for one, other in zip(ours, theirs):
                torch.testing.assert_close(one, other, **close)
    finally:
        torch.set_num_threads(before)
    stats = lampwork.stats(compiled)
    assert stats["graphs"] and not stats["breaks"] and not stats["fallbacks"]


def test_channels_last_parameters_keep_their_layout():
    def make():
        generator = torch.Generator().manual_seed(5)
        return [
            torch.randn(8, 4 + n, 3, 3, generator=generator).to(memory_format=torch.channels_last) for n in range(10)
        ]

    def step(values, gradients):
        for value, gradient in zip(values, gradients):
            value.sub_(gradient, alpha=0.5)

    ours, theirs = (make(), make()), (make(), make())
    lampwork.compile(step, fullgraph=True)(*ours)
    step(*theirs)
    for one, other in zip(ours[0], theirs[0]):
        assert torch.equal(one, other) and one.stride() == other.stride()


def test_parts_of_one_flat_tensor():
    """Parameters that are views of one tensor, as some wrappers keep them."""

    def step(values, gradients):
        for value, gradient in zip(values, gradients):
            value.sub_(gradient, alpha=0.5)

    def make():
        flat = torch.arange(1200.0)
        return list(flat.split([10, 20, 33, 64, 100, 5, 200, 1, 300, 467])), flat

    (ours, flat), (theirs, expected) = make(), make()
    gradients = [torch.full_like(value, 3.0) for value in ours]
    lampwork.compile(step)(ours, gradients)
    step(theirs, gradients)
    assert torch.equal(flat, expected)


SCRIPT = """
import torch, lampwork
from tests.training.test_rows import tensors, update
ours, theirs = tensors(), tensors()
compiled = lampwork.compile(update, fullgraph=True)
compiled(*ours, 0.01, 1.0); update(*theirs, 0.01, 1.0)
for one, other in zip(ours, theirs): torch.testing.assert_close(one, other)
print(lampwork.stats(compiled)["cache_hits"], lampwork.stats(compiled)["native_kernels"])
"""


def test_a_stored_entry_runs_in_another_process(tmp_path):
    environment = {**os.environ, "LAMPWORK_CACHE_DIR": str(tmp_path), "LAMPWORK_CACHE": "1"}
    found = [run_python(["-c", SCRIPT], env=environment, timeout=100) for _ in range(2)]
    assert [each.returncode for each in found] == [0, 0], found[-1].stderr
    (cold, kernels), (warm, again) = (each.stdout.split() for each in found)
    assert (cold, warm) == ("0", "1") and kernels == again


def test_numbers_of_the_caller_need_no_kernel():
    """The learning rate as float32 is computed where it is read: a kernel for each kind of size is all there is."""
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(16 if number % 2 else 5)) for number in range(24)]
    for each in params:
        each.grad = torch.randn_like(each)
    copies = [torch.nn.Parameter(each.detach().clone()) for each in params]
    for copy, each in zip(copies, params):
        copy.grad = each.grad.clone()
    compiled, eager = torch.optim.AdamW(params, lr=0.1), torch.optim.AdamW(copies, lr=0.1)
    step = lampwork.compile(compiled.step, options={"cache": False})
    for number in range(4):
        for optimizer in (compiled, eager):
            optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
        step()
        eager.step()
    assert lampwork.stats(step)["launches"] <= 4  # two for parameters, one or two for counters
    torch.testing.assert_close(params, copies)
