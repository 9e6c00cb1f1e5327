"""Matrix products with what follows them as one kernel: whatever the machine measures, and in every tiling."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import lampwork
from lampwork.codegen.triton import product, tune
from lampwork.schedule.products import MOST_FLOAT32
from tests.gpu.support import assert_close, compiled_of, in_double

MODE = "max-autotune-no-cudagraphs"


def gelu(x, w, b):
    return functional.gelu(functional.linear(x, w, b))


def gate(x, w, b):
    return functional.silu(functional.linear(x, w)) * functional.linear(x, w.flip(0))


def batched(x, w, b):
    return torch.relu(torch.bmm(x.expand(2, *x.shape), torch.stack([w.t(), 2 * w.t()]))) + b


def operands(device, rows, columns, inner, dtype):
    shapes = ((rows, inner), (columns, inner), (columns,))
    return [(torch.randn(shape, device=device) / shape[-1] ** 0.25).to(dtype) for shape in shapes]


def agrees(program, args, mode=MODE):
    with torch.no_grad():
        compiled = compiled_of(program, mode)
        expected, reference = program(*args), in_double(program, *args)
        for _ in range(3):
            assert_close(compiled(*args), expected, reference)
    stats = lampwork.stats(compiled)
    assert list(stats["fallbacks"]) == []
    return stats


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(256, 256, 128), (75, 328, 72), (1000, 776, 1032)], ids=str)
@pytest.mark.parametrize("program", [gelu, gate, batched])
def test_fused_products(program, shape, dtype, device, monkeypatch):
    """Taken whether they are faster or not; large ones of single precision have no kernel of ours."""
    fewest = lambda self, parts: [min(range(len(part)), key=lambda n: len(part[n].calls)) for part in parts]
    monkeypatch.setattr(tune.Tuner, "_choose", fewest)
    usual = tune.candidate_tilings
    monkeypatch.setattr(
        tune, "candidate_tilings", lambda *kernel: product.product_tilings(*kernel)[:1] or usual(*kernel)
    )
    stats = agrees(program, operands(device, *shape, dtype))
    rows, columns, inner = shape
    is_left = dtype == torch.float32 and rows * columns * inner > MOST_FLOAT32
    assert any("mm" in name for name in stats["extern_calls"]) == is_left


def test_products_in_tf32(device):
    args = operands(device, 512, 512, 512, torch.float32)
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (True, False):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            agrees(gelu, args)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_a_large_product_takes_its_gelu(device):
    """Measured on an H100: 83 microseconds, 96 as a call and a kernel."""
    stats = agrees(gelu, operands(device, 8192, 3072, 768, torch.bfloat16), "max-autotune")
    if torch.cuda.get_device_capability() == (9, 0):
        assert not stats["extern_calls"]
    assert stats["compile_seconds"]["tune"] > 0
