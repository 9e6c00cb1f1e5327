"""Tensors made in the program: from data, from sizes, of given types and devices."""

from __future__ import annotations

import torch

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(3, 4)


@program(together=lambda: (_x(),))
def tensors_from_python_data(x):
    return x + torch.tensor([1.0, 2, 3, 4]), torch.tensor([[True], [False]]), torch.tensor(5), torch.tensor([])


@program(together=lambda: (_x(), 2.5))
def tensor_from_an_argument(x, number):
    return x * torch.tensor(number), torch.tensor([number, number * 2]), torch.full((2,), number)


@program(together=lambda: (_x(),))
def tensor_of_tensors(x):
    return torch.tensor([1.0, 2.0]), torch.stack([x.sum(), x.mean()]), torch.as_tensor([3, 4])


@program(together=lambda: (_x(),))
def filled_with_constants(x):
    return (
        torch.zeros(2, 3),
        torch.ones_like(x),
        torch.full((2,), 7),
        torch.eye(3),
        torch.empty(2, 0),
        x.new_full((2,), 3),
    )


@program(together=lambda: (_x(),))
def ranges(x):
    size = x.shape[0]
    return torch.arange(size), torch.linspace(0, 1, 5), torch.arange(1, 2, 0.25), torch.logspace(0, 1, 3), range(size)


@program(together=lambda: (_x(),))
def type_and_device_given(x):
    return (
        torch.zeros(2, dtype=torch.int32, device=x.device),
        torch.ones(2, dtype=x.dtype, device="cpu"),
        x.new_zeros(2),
    )


@program(together=lambda: (_x(), torch.float64, torch.device("cpu")))
def type_and_device_as_arguments(x, dtype, device):
    return torch.arange(3, dtype=dtype, device=device), x.to(device=device, dtype=dtype), device.type


@program(together=lambda: (_x(),))
def grids(x):
    rows, columns = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")
    return rows * x, columns, torch.cartesian_prod(torch.arange(2), torch.arange(3))


@program(together=lambda: (_x(),))
def triangles_and_diagonals(x):
    return torch.tril(torch.ones(4, 4)), torch.diag(x[0]), torch.triu_indices(3, 3), torch.block_diag(x, x)


@program(together=lambda: (_x(),))
def joined_and_repeated(x):
    return (
        torch.cat([x, x * 2], dim=-1),
        torch.stack((x, x)),
        x.repeat(2, 1),
        torch.tile(x, (1, 2)),
        torch.hstack([x, x]),
    )


@program(together=lambda: (_x(),))
def legacy_constructors(x):
    return torch.Tensor([1, 2]), torch.FloatTensor([3.0]) + x[0, 0], torch.LongTensor([1, 2])


@program(together=lambda: (_x(),))
def clone_keeps_layout(x):
    y = x.t()
    return y.clone(), torch.empty_like(y).copy_(y), y.clone(memory_format=torch.contiguous_format), torch.zeros_like(y)


@program(together=lambda: (values(1, 2, 4, 4),))
def channels_last(x):
    y = x.to(memory_format=torch.channels_last)
    return y + 1, y.is_contiguous(memory_format=torch.channels_last), y.contiguous()


@program(together=lambda: (_x(),))
def scalars_and_types(x):
    return x + 1, x.int() + 1.5, x * True, 2**x, 1 / (x + 10), x // 2, x % 2, -x, abs(x)


@program(together=lambda: (_x(),))
def tensor_from_nested_tuples_and_shapes(x):
    return torch.tensor(((1, 2), (3, 4))), torch.tensor(x.shape), torch.Size([2, 3]) + (1,), torch.zeros(x.shape[::-1])
