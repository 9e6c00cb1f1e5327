"""Arrays of numpy's from outside that no tensor can stand for (steps backwards, read-only, of another byte order): of
these only the type is known. Beside arrays that are part of the graph their contents were taken for constants."""

from __future__ import annotations

import numpy
import pytest
import torch

import lampwork


def after_a_break(x):
    a = x.numpy()
    return torch.from_numpy(numpy.concatenate([a, a[::-1]]))


def joined(x, b):
    return torch.from_numpy(numpy.concatenate([x.numpy(), b]))


def stacked(x, b):
    return torch.from_numpy(numpy.stack([x.numpy(), b]))


def added(x, b):
    return torch.from_numpy(x.numpy() + b)


def other_way(x, b):
    return torch.from_numpy(b * x.numpy())


def chosen(x, b):
    return torch.from_numpy(numpy.where(x.numpy() > 0, x.numpy(), b))


def written(x, b):
    a = (x * 1).numpy()
    a[:] = b
    return torch.from_numpy(a)


def greatest(x, b):
    return torch.from_numpy(numpy.maximum(x.numpy(), b))


def product(x, b):
    return torch.as_tensor(x.numpy() @ b)


def indexed(x, b):
    return x[b.argsort() % 2] if isinstance(b, torch.Tensor) else x[b.astype(numpy.int64) % 4]


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


LAYOUTS = {
    "backwards": lambda a: a[::-1],
    "read-only": read_only,
    "other order": lambda a: a.astype(a.dtype.newbyteorder()),
}


def test_after_a_break():
    compiled = lampwork.compile(after_a_break, options={"cache": False})
    for number in range(3):
        x = torch.arange(4.0) + 10 * number
        assert torch.equal(compiled(x), after_a_break(x))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("program", [joined, stacked, added, other_way, chosen, written, greatest, product, indexed])
def test_arguments(program, layout):
    compiled = lampwork.compile(program, options={"cache": False})
    for number in range(3):
        x = torch.arange(4.0) + number
        b = LAYOUTS[layout](numpy.arange(4, dtype=numpy.float32) * (number + 1))
        assert torch.equal(compiled(x, b), program(x, b))
