"""What no result of a graph can be breaks it, or leaves the call to eager; it was a failure of the compiler."""

from __future__ import annotations

import pytest
import torch

import lampwork


def lazily_negated(x):
    return torch.complex(x, x).conj().imag, x * 2


def lazily_negated_view(x):
    return torch._neg_view(x)


def quantized(x):
    return torch.quantize_per_tensor(x * 2, 0.5, 10, torch.quint8).dequantize() + 1


def quantized_by_channel(x):
    return torch.quantize_per_channel(x, torch.tensor([0.1, 0.5]), torch.zeros(2, dtype=torch.long), 0, torch.qint8)


def filled_by_a_vector(x):
    try:
        x.clone().fill_(x)
    except RuntimeError as error:
        return str(error), x + 1


def test_views_without_a_history():
    """Made under `no_grad`, of what was written there afterwards: eager's shows that history as invalid."""

    def program(x):
        y = x * 2
        with torch.no_grad():
            view = y.view(-1)
            y.add_(1)
        return y, view

    x = torch.ones(2, 2, requires_grad=True)
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        y, view = compiled(x)
        assert y.tolist() == [[3.0, 3.0], [3.0, 3.0]] and view.tolist() == [3.0] * 4
        assert y.data_ptr() == view.data_ptr() and view.requires_grad


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
@pytest.mark.parametrize(
    "program",
    [lazily_negated, lazily_negated_view, quantized, quantized_by_channel, filled_by_a_vector],
    ids=lambda each: each.__name__,
)
def test_as_in_eager(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        x = torch.tensor([[1.0, -2.0], [3.5, 4.0]])
        expected, found = program(x), compiled(x)
        for left, right in zip(
            *[each if isinstance(each, tuple) else (each,) for each in (expected, found)], strict=True
        ):
            if isinstance(left, torch.Tensor):
                assert left.dtype == right.dtype and left.is_neg() == right.is_neg()
                assert (
                    torch.equal(left.dequantize(), right.dequantize())
                    if left.is_quantized
                    else torch.equal(left, right)
                )
            else:
                assert left == right
