"""numpy beside torch: arrays in and out, functions of one on values of the other."""

from __future__ import annotations

import numpy as np
import torch

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(3, 4)


@program(together=lambda: (_x(),))
def tensor_to_numpy(x):
    return (x * 2).numpy()


@program(together=lambda: (np.arange(6.0, dtype=np.float32).reshape(2, 3),))
def array_as_argument(array):
    return torch.from_numpy(array) * 2


@program(together=lambda: (_x(),))
def numpy_function_on_a_tensor(x):
    return np.sum(x.numpy(), axis=0), x + 1


@program(together=lambda: (_x(), np.float32(2.5), np.int64(3)))
def numpy_scalars_as_arguments(x, scale, power):
    return x * scale + power


@program(together=lambda: (_x(),))
def numpy_constants(x):
    return x * np.pi + np.e, x * np.float64(0.5), np.sqrt(2.0)


@program(together=lambda: (_x(),))
def table_made_by_numpy(x):
    table = np.linspace(0, 1, 4).astype(np.float32)
    return x * torch.from_numpy(table)


@program(together=lambda: (_x(),))
def numpy_sizes(x):
    return x.reshape(np.prod(x.shape)), int(np.prod(x.shape[:1])), np.ceil(x.shape[1] / 3)


@program(together=lambda: (_x(),))
def array_round_trip(x):
    array = x.detach().cpu().numpy()
    array = array + 1
    return torch.as_tensor(array).sum()


@program(together=lambda: (_x(),))
def tensor_from_nested_arrays(x):
    return x[:, :2] + torch.tensor(np.array([[1.0, 2.0]], dtype=np.float32))


@program(together=lambda: (_x(),))
def memory_shared_with_numpy(x):
    y = x.clone()
    array = y.numpy()
    array[0] = 7
    return y


@program(together=lambda: (_x(), np.random.RandomState(0)))
def numpy_random_state(x, state):
    return x * float(state.rand())


@program(together=lambda: (_x(), np.array([0, 2])))
def array_as_index(x, rows):
    return x[rows]
