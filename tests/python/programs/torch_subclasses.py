"""Tensor subclasses and objects that overload torch functions."""

from __future__ import annotations

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.python.harness import program
from tests.python.tensors import frozen, values


def _x():
    return values(2, 4)


class Plain(torch.Tensor):
    pass


class Logged(torch.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result


class Metadata(torch.Tensor):
    """Carries a name through operations."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, cls):
            result.label = next((each.label for each in args if isinstance(each, cls) and hasattr(each, "label")), "")
        return result


class Length:
    """Not a tensor: torch functions ask it what to do."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = tuple(each.value if isinstance(each, cls) else each for each in args)
        return cls(func(*args, **(kwargs or {})))


class Masked:
    def __init__(self, data, mask):
        self.data, self.mask = data, mask

    def __add__(self, other):
        return Masked(self.data + other.data, self.mask & other.mask)

    def mean(self):
        return torch.where(self.mask, self.data, 0.0).sum() / self.mask.sum()


def _labelled():
    x = _x().as_subclass(Metadata)
    x.label = "input"
    return (x,)


@program(together=lambda: (_x().as_subclass(Plain),))
def subclass_without_behaviour(x):
    return x + 1


@program(together=lambda: (_x().as_subclass(Logged),))
def subclass_with_torch_function(x):
    return (x * 2).sum(), type(x).__name__


@program(together=_labelled)
def subclass_with_metadata(x):
    y = x * 2
    return y, y.label


@program(together=lambda: (_x(),))
def subclass_made_inside(x):
    y = x.as_subclass(Plain)
    return (y + 1).as_subclass(torch.Tensor), isinstance(y, Plain)


@program(together=lambda: (_x(),))
def object_with_torch_function(x):
    length = Length(x)
    return torch.add(length, 1).value, type(torch.mul(length, length)).__name__


@program(together=lambda: (_x(), values(2, 4, seed=1)))
def masked_values_class(x, y):
    left, right = Masked(x, x > 0), Masked(y, y > -1)
    total = left + right
    return total.data, total.mask, total.mean()


class Special(nn.Parameter):
    pass


def _special():
    layer = nn.Linear(4, 4)
    layer.weight = Special(layer.weight.detach())
    return layer


@program(together=lambda: (_x(), frozen(_special)))
def parameter_subclass(x, layer):
    return layer(x), type(layer.weight).__name__


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def parameter_asked(x, layer):
    weight = layer.weight
    return x @ weight, isinstance(weight, nn.Parameter), isinstance(x, nn.Parameter), type(weight) is nn.Parameter


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@program(together=lambda: (_x(),))
def torch_function_mode(x):
    with Counting() as mode:
        y = torch.relu(x) + 1
    return y, mode.count


@program(together=lambda: (_x(),))
def parameter_made_inside(x):
    weight = nn.Parameter(torch.ones(4, 4), requires_grad=False)
    return x @ weight, isinstance(weight, nn.Parameter)


@program(together=lambda: (_x(),), grad=True)
def parameter_made_inside_with_grad(x):
    weight = nn.Parameter(torch.ones(4, 4))
    with torch.no_grad():
        return x @ weight, weight.requires_grad


@program(together=lambda: (torch.eye(4).to_sparse(), _x()))
def sparse_tensor(matrix, x):
    return torch.sparse.mm(matrix, x.T)


@program(together=lambda: (torch.quantize_per_tensor(_x(), 0.1, 0, torch.qint8),))
def quantized_tensor(x):
    return x.dequantize()


class Wrapped:
    """A tensor behind a class of the user's, with the operators that it needs."""

    def __init__(self, data):
        self.data = data

    def __getattr__(self, name):
        return getattr(self.data, name)

    def __matmul__(self, other):
        return Wrapped(self.data @ other.data)


@program(together=lambda: (_x(), values(4, 2, seed=1)))
def wrapped_tensors(x, y):
    product = Wrapped(x) @ Wrapped(y)
    return product.data.sum(), product.shape


@program(together=lambda: (_x().as_subclass(Plain), values(2, 4, seed=2)))
def subclass_beside_a_tensor(x, y):
    return torch.add(x, y), type(x + y).__name__
