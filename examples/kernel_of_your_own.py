"""A pass of your own: a part of a model is computed by your kernel, in training too."""

import ctypes

import torch
from torch import Tensor

import lampwork

# Stands for a kernel in C, CUDA or Triton: one that takes memory and sizes.
C_SQRT = ctypes.CDLL(None).sqrt
C_SQRT.restype, C_SQRT.argtypes = ctypes.c_double, [ctypes.c_double]


@torch.library.custom_op("example::root", mutates_args=())
def root(x: Tensor) -> Tensor:
    return torch.tensor([C_SQRT(each) for each in x.flatten().tolist()], dtype=x.dtype).view(x.shape)


@root.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


# In training, what the program computes on the way is kept for its gradient: the pattern is what is left of it. The
# gradient is that of the program as it is written, whose `root` is what `sqrt` gave, now by the kernel.
by_kernel = lampwork.Pattern(
    torch.sqrt, lambda x: torch.ops.example.root(x), (torch.rand(3),), name="sqrt", digest=lampwork.digest(__file__)
)

model = torch.nn.Linear(8, 8)


def distance(x: Tensor, y: Tensor) -> Tensor:
    return torch.sqrt((model(x) - model(y)).square().sum(-1) + 1e-6).mean()


fast = lampwork.compile(distance, options={"passes": {"joint": [by_kernel]}})
x, y = torch.randn(4, 8), torch.randn(4, 8)
with torch.no_grad():
    torch.testing.assert_close(fast(x, y), distance(x, y))

(ours,) = torch.autograd.grad(fast(x, y), model.weight)
(eager,) = torch.autograd.grad(distance(x, y), model.weight)
torch.testing.assert_close(ours, eager)
print(f"gradients agree; calls: {dict(lampwork.stats(fast)['extern_calls'])}")
