"""A pass of your own: RMSNorm and the quantisation after it become one operator, as in vLLM."""

import torch
from torch import Tensor

import lampwork

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max


# The operator: vLLM's has this signature and a CUDA kernel. This one shows what it computes.
@torch.library.custom_op("example::rms_norm_static_fp8_quant", mutates_args={"result"})
def rms_norm_static_fp8_quant(result: Tensor, input: Tensor, weight: Tensor, scale: Tensor, epsilon: float) -> None:
    result.copy_(quantised(rms_norm(input, weight, epsilon), scale))


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def quantised(x: Tensor, scale: Tensor) -> Tensor:
    return (x / scale).clamp(-LARGEST, LARGEST).to(FP8)


# What is looked for, and what takes its place. Example inputs may be of any size; the number stands for any number.
def unfused(x: Tensor, weight: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    return quantised(rms_norm(x, weight, epsilon), scale)


def fused(x: Tensor, weight: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    result = torch.empty_like(x, dtype=FP8)
    torch.ops.example.rms_norm_static_fp8_quant(result, x, weight, scale, epsilon)
    return result


EXAMPLE = (torch.empty(2, 8), torch.empty(8), torch.empty(1), 0.0123)
fuse = lampwork.Pattern(unfused, fused, EXAMPLE, digest=lampwork.digest(__file__))


class Block(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norms = torch.nn.ParameterList([torch.rand(size), torch.rand(size)])
        self.register_buffer("scale", torch.tensor([0.02]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return quantised(rms_norm(x, self.norms[0], 1e-6), self.scale), quantised(
            rms_norm(x + 1, self.norms[1], 1e-5), self.scale
        )


model, x = Block(64).requires_grad_(False), torch.randn(16, 64)
fast = lampwork.compile(model, options={"passes": {"forward": [fuse]}})
for ours, eager in zip(fast(x), model(x)):
    assert torch.equal(ours.float(), eager.float())
print(f"calls: {dict(lampwork.stats(fast)['extern_calls'])}, {lampwork.stats(fast)['launches']} kernel launches beside")
