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


def _array():
    return np.linspace(-1, 2, 12).reshape(3, 4)


@program(together=lambda: (_x(),))
def statistics_in_numpy(x):
    a = x.detach().numpy()
    return a.mean(), a.std(axis=0), a.max(), np.argmax(a, axis=1), a.shape, a.dtype, a.sum(dtype=None)


@program(together=lambda: (_x(), _array()))
def array_and_tensor_of_one_function(x, a):
    scaled = (a - a.mean(axis=1, keepdims=True)) / a.std()
    return torch.from_numpy(scaled).float() + x, scaled


@program(together=lambda: (_array(),))
def array_written(a):
    a[0] = 1
    a[1, 2:] += 2
    a *= 2
    return a.sum()


@program(together=lambda: (_x(),))
def written_through_both(x):
    y = x * 1
    a = y.numpy()
    y.add_(1)
    a[:, 0] = -1
    b = a.T
    b[0, 1] = 5
    return y, a, b


@program(together=lambda: (_x(),))
def predictions_as_arrays(x):
    probabilities = torch.softmax(x, dim=1).cpu().numpy()
    labels = probabilities.argmax(axis=1)
    return {"labels": labels, "top": probabilities.max(axis=1).tolist(), "n": len(labels)}


@program(together=lambda: (_array(), np.array([0.0, 1.0, 2.0, 4.0])))
def division_warns(a, b):
    return torch.from_numpy(a / b)


@program(together=lambda: (_x(), np.float32(0.5)))
def scalars_of_numpy_computed_with(x, scale):
    a = x.numpy()
    peak = a.max()
    return peak * 2, float(peak), type(peak), isinstance(peak, np.floating), x * float(peak + scale), peak > 1


@program(together=lambda: (torch.arange(6).reshape(2, 3),))
def whole_numbers_in_numpy(x):
    a = x.numpy()
    return a + 1, a / 2, a * 2.5, a.sum(axis=0), a.mean(), a > 2, (a % 2).tolist()


@program(together=lambda: (_x(), np.array([True, False, True])))
def rows_by_mask_of_an_array(x, mask):
    return x[torch.from_numpy(mask)], mask.sum()


@program(together=lambda: (_x(),))
def stacked_and_reshaped(x):
    a = x.numpy()
    b = np.stack([a, a * 2]).reshape(2, -1)
    c = np.concatenate([b, np.ones((1, 12), dtype=np.float32)], axis=0)
    return c, c.T.shape, torch.as_tensor(np.where(c > 0, c, 0.0)), np.clip(a, -0.5, 0.5)


@program(together=lambda: (_x(), np.arange(4.0)[::-1]))
def array_with_negative_steps(x, a):
    return x * torch.tensor(a.copy()), a.sum()


@program(together=lambda: (_x(), [np.zeros(2)]))
def arrays_kept_by_the_caller(x, kept):
    kept.append(x.sum(dim=0).numpy())
    kept[0][1] = 3.0
    return kept[0] is kept[-1], kept[0]


@program(together=lambda: (_x(),))
def array_in_text(x):
    a = x.sum(dim=0).numpy()
    print(a.round(2) if a.ndim > 1 else a, a.shape, f"{a.max():.3f} {a.mean()}")
    return str(a), f"{a}"


@program(together=lambda: (_x(),))
def numbers_of_an_array_loop(x):
    total = 0.0
    for row in x.numpy():
        total += float(row[0]) * 2
    return total, x + total
