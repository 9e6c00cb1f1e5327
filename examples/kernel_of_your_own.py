"""A pass of your own: a part of a model is computed by your kernel, forward and backward."""

import ctypes

import torch
from torch import Tensor

import lampwork

# Stands for a kernel in C, CUDA or Triton: one that takes memory and sizes.
C_HYPOT = ctypes.CDLL(None).hypot
C_HYPOT.restype, C_HYPOT.argtypes = ctypes.c_double, [ctypes.c_double, ctypes.c_double]


@torch.library.custom_op("example::length", mutates_args=())
def length(x: Tensor, y: Tensor) -> Tensor:
    pairs = zip(x.flatten().tolist(), y.flatten().tolist())
    return torch.tensor([C_HYPOT(*pair) for pair in pairs], dtype=x.dtype).view(x.shape)


@length.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


# Its derivative. It may call kernels of yours, too.
def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:
    x, y, result = ctx.saved_tensors
    return gradient * x / result, gradient * y / result


def keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs, output)


length.register_autograd(backward, setup_context=keep)

# In the stage "program", what is put in is differentiated like what the program calls itself.
by_kernel = lampwork.Pattern(
    lambda x, y: torch.sqrt(x * x + y * y), length, (torch.rand(2, 3), torch.rand(2, 3)),
    name="length", digest=lampwork.digest(__file__),
)  # fmt: skip

model = torch.nn.Linear(8, 8)


def loss(x: Tensor, y: Tensor) -> Tensor:
    a, b = model(x), model(y)
    return torch.sqrt(a * a + b * b).mean()


fast = lampwork.compile(loss, options={"passes": {"program": [by_kernel]}})
x, y = torch.randn(4, 8), torch.randn(4, 8)
(ours,) = torch.autograd.grad(fast(x, y), model.weight)
(eager,) = torch.autograd.grad(loss(x, y), model.weight)
torch.testing.assert_close(ours, eager)
print(f"gradients agree; calls: {dict(lampwork.stats(fast)['extern_calls'])}")
