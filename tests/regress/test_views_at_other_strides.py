"""Views of tensors whose strides vary, and of tensors with a history whose sizes vary: their memory had no name."""

from __future__ import annotations

import pytest
import torch

import lampwork


def element(x):
    return x[1, 2]


@pytest.mark.parametrize("has_history", [False, True])
def test_strides_that_vary(has_history):
    lampwork.reset()
    compiled = lampwork.compile(element, options={"cache": False, "recompile_limit": 20})
    memory = torch.randn(64, requires_grad=has_history)
    for strides in ((3, 1), (1, 4), (0, 1), (12, 2), (7, 1), (9, 2)):
        x = (memory * 1).as_strided((4, 3), strides)
        torch.testing.assert_close(compiled(x), element(x))
    assert not lampwork.stats(compiled)["fallbacks"]


def test_sizes_that_vary_of_a_tensor_with_a_history():
    lampwork.reset()
    compiled = lampwork.compile(lambda x: x[1:].sum(0), dynamic=True, options={"cache": False})
    for rows in (3, 5, 8):
        x = torch.randn(rows, 2, requires_grad=True)
        torch.testing.assert_close(compiled(x * 1), x[1:].sum(0))
    assert not lampwork.stats(compiled)["fallbacks"]


def test_views_of_single_elements_at_other_strides():
    """A dimension of size 1 has a stride of its own, which a view keeps."""
    compiled = lampwork.compile(lambda x: x.view(x.size(0), -1), dynamic=True, options={"cache": False})
    for strides in ((1, 3, 3, 3), (1, 1, 1, 1), (1, 3, 1, 1)):
        x = torch.arange(10.0).as_strided((3, 1, 1, 1), strides)
        assert compiled(x).stride() == x.view(3, -1).stride()
