"""A known torch function mode in the program: all that followed was left to eager, in transformers every layer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

import lampwork


def mask(x):
    """As transformers makes masks of functions that look at tensors."""
    packed = (x[:, 0, :, 0] > 0.5).cumsum(-1)

    def visible(batch, head, query, key):
        return (query >= key) & (packed[batch, query] == packed[batch, key])

    with TransformGetItemToIndex():
        for dims in [(None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)]:
            visible = torch.vmap(visible, in_dims=dims)
        found = visible(*map(torch.arange, x.shape))
    return torch.where(found, x, 0).softmax(-1)


def items(x):
    index = torch.tensor(1)
    with TransformGetItemToIndex():
        return x[index] * x[0], x[0, 1], x[:, 0], x[index, index], x[0, 0, 0, 0]


def plain(x):
    with BaseTorchFunctionMode():
        y = F.softmax(F.relu(x - 0.5), -1)
        with BaseTorchFunctionMode():
            y = F.silu(F.dropout(y, 0.5, training=False))
    return y[0] * 2


def left_by_an_error(x):
    try:
        with TransformGetItemToIndex():
            raise KeyError("no such row")
    except KeyError as error:
        return x[0] * 2, str(error)


@pytest.mark.parametrize("program", [mask, items, plain, left_by_an_error])
def test_one_graph_as_eager(program):
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for _ in range(2):
        ours, theirs = (torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(1)) for _ in range(2))
        ours.requires_grad_()
        theirs.requires_grad_()
        found, expected = compiled(ours), program(theirs)
        both = list(zip(found, expected, strict=True)) if isinstance(expected, tuple) else [(found, expected)]
        tensors = [pair for pair in both if isinstance(pair[1], torch.Tensor)]
        for mine, other in tensors:
            torch.testing.assert_close(mine, other)
            assert (mine.stride(), mine._base is None) == (other.stride(), other._base is None)
        assert [one for one, _ in both[len(tensors) :]] == [one for _, one in both[len(tensors) :]]
        for leaf, results in ((ours, [mine for mine, _ in tensors]), (theirs, [other for _, other in tensors])):
            sum(each.sin().sum() for each in results).backward()
            assert leaf.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad)


def broken_inside(x):
    with TransformGetItemToIndex():
        y = x[torch.tensor(1)] * 2
        if y.sum() > 0:
            y = y[0] + 1
    return y.cos()


class Swapped(TorchFunctionMode):
    """A mode of the user's: what it does is not known."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return torch.cos(*args) if func is torch.sin else func(*args, **(kwargs or {}))


def of_the_users(x):
    with Swapped():
        y = torch.sin(x)
    return y + torch.sin(x)


@pytest.mark.parametrize("program", [broken_inside, of_the_users])
def test_others_are_eagers(program):
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.rand(2, 3, 5, 5)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), program(x))
    assert torch._C._len_torch_function_stack() == 0
