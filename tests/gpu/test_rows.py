"""Updates of many tensors as a few kernels on a GPU: addresses in tables, alignment, CUDA graphs, memory that moves."""

from __future__ import annotations

import pytest
import torch

import lampwork
from tests.gpu.support import assert_compiled, compiled_of

SHAPES = [(3,), (16,), (5, 7), (32, 33), (640, 100), (1000,), (2, 3, 8, 1), (48,), (160,), (11,), (9, 5), (1 << 17,), (13,),
          (409, 640), (1,), (70001,), (208,), (17,), (272,), (15,), (768, 76), (768,), (307, 76)] * 13  # fmt: skip


def update(parameters, gradients, averages, squares, largest):
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    coefficient = torch.clamp(largest / (norm + 1e-6), max=1.0)
    for parameter, gradient, average, square in zip(parameters, gradients, averages, squares):
        gradient = gradient * coefficient
        parameter.mul_(0.999)
        average.lerp_(gradient, 0.1)
        square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        parameter.addcdiv_(average, square.sqrt().add_(1e-8), value=-0.01)
    return norm


def tensors(device, dtype=torch.float32, shapes=SHAPES):
    generator = torch.Generator().manual_seed(5)
    values = [[torch.randn(shape, generator=generator).to(dtype).to(device) for shape in shapes] for _ in range(3)]
    return [*values, [value.abs() for value in values[0]]]


@pytest.mark.parametrize(
    ("dtype", "mode"), [(torch.float32, "default"), (torch.float32, "reduce-overhead"), (torch.bfloat16, "default")]
)
def test_an_optimizer_over_300_tensors(device, dtype, mode):
    close = {"rtol": 0.02, "atol": 0.004} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    ours, theirs = tensors(device, dtype), tensors(device, dtype)
    compiled = compiled_of(update, mode, recompile_limit=8)
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(compiled(*ours, 1.0), update(*theirs, 1.0), **close)
            for one, other in zip(ours, theirs):
                torch.testing.assert_close(one, other, **close)
    assert_compiled(compiled)


def test_tensors_that_move(device):
    """Addresses are read on every call."""
    step = lambda values: [value * 2 + 1 for value in values]
    compiled = compiled_of(step)
    with torch.no_grad():
        for _ in range(5):
            values = [torch.randn(shape, device=device) for shape in SHAPES[:40]]
            for one, other in zip(compiled(values), step(values)):
                torch.testing.assert_close(one, other)
    assert_compiled(compiled)


def test_parts_of_one_tensor_that_begin_anywhere(device):
    def step(values):
        for value in values:
            value.mul_(0.5).add_(1)

    def make():
        flat = torch.arange(5000.0, device=device)
        return flat, [part[1:] for part in flat.split([33, 65, 129, 17, 81, 97, 161, 1025, 49, 17, 33, 49, 3244])]

    (ours, parts), (theirs, others) = make(), make()
    compiled = compiled_of(step)
    with torch.no_grad():
        for _ in range(3):
            compiled(parts)
            step(others)
    assert torch.equal(ours, theirs)
    assert list(lampwork.stats(compiled)["fallbacks"]) == []
