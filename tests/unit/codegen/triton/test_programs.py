"""Programs scheduled for a GPU, run in Triton's interpreter on CPU tensors, must equal eager."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import assert_like_eager

pytestmark = pytest.mark.skipif(bool(available()), reason=available())


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def kernels(program) -> int:
    return len(program.kernels)


POINTWISE = {
    "gelu": F.gelu,
    "broadcast": lambda x: x * x[:1] + x[:, :1],
    "silu": lambda x: F.silu(x) - torch.sigmoid(x),
    "where": lambda x: torch.where(x > 0, x, torch.exp(x)),
    "clamp": lambda x: x.clamp(-0.5, 0.5).round() + x.floor(),
    "cast": lambda x: (x * 100).to(torch.int32) // 7,
}


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("shape", [(7, 13), (1, 5), (64, 128), (3, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_pointwise(name, shape, dtype):
    program = assert_like_eager(POINTWISE[name], torch.randn(shape).to(dtype))
    assert kernels(program) == 1


REDUCED = {
    "sum": lambda x: x.sum(-1),
    "mean_first": lambda x: x.mean(0),
    "amax": lambda x: x.amax(-1),
    "amin_all": lambda x: x.amin(),
    "argmax": lambda x: x.argmax(-1),
    "argmin_first": lambda x: x.argmin(0),
    "any": lambda x: (x > 1).any(-1),
    "all": lambda x: (x > -2).all(0),
    "prod": lambda x: (1 + 0.01 * x).prod(-1),
    "softmax": lambda x: x.softmax(-1),
    "softmax_first": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], x[0], x[0]),
    "var": lambda x: x.var(-1),
    "rms": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "max_dim": lambda x: x.max(-1),
}


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("shape", [(7, 13), (1, 5), (3, 200), (5, 1)])
def test_reductions(name, shape):
    x = torch.randn(shape)
    if name == "var" and shape[-1] == 1:
        pytest.skip("eager warns")
    assert_like_eager(REDUCED[name], x)


@pytest.mark.parametrize("name", REDUCED)
def test_long_rows_in_blocks(name):
    """A row longer than what one program keeps is folded block by block."""
    if name == "layer_norm":
        assert_like_eager(REDUCED[name], torch.randn(2, 20011), rtol=1e-5, atol=2e-5)
    else:
        assert_like_eager(REDUCED[name], torch.randn(2, 20011), rtol=2e-5, atol=1e-5)
