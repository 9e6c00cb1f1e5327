"""A memory format wants a number of dimensions: eager raises for others, whatever makes the tensor, and however large it
is. Tensors were laid out as if there were such a format, but for small ones, of which a kernel was asked."""

from __future__ import annotations

import pytest
import torch

import lampwork

MADE = {
    "empty": lambda x, layout: torch.empty(x.shape, memory_format=layout).fill_(1),
    "empty_like": lambda x, layout: torch.empty_like(x, memory_format=layout).fill_(1),
    "zeros_like": lambda x, layout: torch.zeros_like(x, memory_format=layout),
    "full_like": lambda x, layout: torch.full_like(x, 2.0, memory_format=layout),
    "rand_like": lambda x, layout: torch.rand_like(x, memory_format=layout),
    "randint_like": lambda x, layout: torch.randint_like(x, 4, memory_format=layout),
    "clone": lambda x, layout: x.clone(memory_format=layout),
    "contiguous": lambda x, layout: x.contiguous(memory_format=layout),
    "to": lambda x, layout: x.to(torch.float64, memory_format=layout),
    "copied": lambda x, layout: x.to(torch.float32, memory_format=layout, copy=True),
}
SHAPES = [(), (6,), (0,), (3, 4), (2, 3, 4), (0, 2, 2), (2, 3, 4, 5), (2, 3, 2, 2, 2), (1, 2, 3, 2, 2, 2), (80, 80)]


def layout_of(call, x):
    torch.manual_seed(0)
    try:
        made = call(x)
    except Exception as error:
        return type(error)
    return made.dtype, made.shape, made.stride()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize(
    "layout", [torch.channels_last, torch.channels_last_3d, torch.preserve_format, torch.contiguous_format], ids=str
)
def test_refused_as_eager_refuses(layout, name, dynamic):
    for shape in SHAPES:
        call = lambda x: MADE[name](x, layout)
        x = torch.ones(shape)
        assert layout_of(lampwork.compile(call, dynamic=dynamic, options={"cache": False}), x) == layout_of(call, x)
