"""Results without elements, and those of kernels that no rule followed at varying sizes, have eager's layout."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lampwork

NOTHING = torch.empty(0).as_strided((1, 0, 3), (1, 3, 1))
STRIDED = torch.empty(2).as_strided((1, 1, 1, 0), (2, 2, 2, 2))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "program, x",
    [
        (lambda x: torch.ops.aten.fill.Scalar(x, True), NOTHING),
        (lambda x: F.pixel_unshuffle(x, 1), STRIDED),
        (lambda x: torch.diag_embed(x), torch.ones(1, 2, dtype=torch.complex64).t()),
        (lambda x: torch.diag_embed(x, -1, 0, 2), torch.rand(3, 4).t()),
        (lambda x: x.clone(memory_format=torch.channels_last), torch.empty(2, 0, 3, 6)),
        (lambda x: x.contiguous(memory_format=torch.channels_last), torch.empty(2, 3, 0, 4)),
    ],
)
def test_strides(program, x, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic)
    for each in (x.clone(memory_format=torch.contiguous_format), x):
        ours, expected = compiled(each), program(each)
        assert torch.equal(ours, expected) and ours.stride() == expected.stride()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("types", [(torch.float16, torch.float32), (torch.float32, torch.float64)])
def test_losses_of_mixed_types(types, reduction, dynamic):
    program = lambda x, y: F.huber_loss(x, y, reduction=reduction)
    compiled = lampwork.compile(program, dynamic=dynamic)
    for length in (3, 5):
        x, y = torch.linspace(-2, 2, length, dtype=types[0]), torch.linspace(1, 0, length, dtype=types[1])
        ours, expected = compiled(x, y), program(x, y)
        assert ours.dtype == expected.dtype
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "program", [lambda x: x.chunk(2, -1), lambda x: (x[:1], x[:, 1:]), lambda x: (x.t(), x.view(-1))]
)
def test_views_of_inputs_without_elements(program, dynamic):
    """They share the input's memory, and are differentiated as its views."""
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for shape in ((5, 6), (0, 3), (4, 2)):
        x = torch.zeros(shape, requires_grad=True)
        for ours, expected in zip(compiled(x), program(x), strict=True):
            assert (ours.shape, ours.stride(), ours._base is x) == (expected.shape, expected.stride(), True)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_gradients_of_a_convolution_that_does_not_derive_its_bias():
    """The kernel that is asked returns None for the bias's; what it says of the others counts all the same."""

    def gradient(function):
        x = torch.empty(1, 0, 3, requires_grad=True)
        weight = torch.empty(0).as_strided((1, 0, 2), (1, 2, 1)).requires_grad_()
        result = function(x, weight, torch.ones(1))
        result.backward(torch.ones(result.shape))
        return weight.grad

    ours, expected = gradient(lampwork.compile(lambda *each: F.conv1d(*each))), gradient(F.conv1d)
    assert ours.shape == expected.shape and ours.stride() == expected.stride()
