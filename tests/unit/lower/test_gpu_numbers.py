"""Numbers beside half types as eager's kernels for a GPU take them, and what those copy: the lowered program of CUDA
tensors, run by the IR's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lampwork.capture.capture import capture
from lampwork.capture.outside.dynamic_sizes import DynamicPolicy
from lampwork.config import make_settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.graph.prepare import prepare
from lampwork.lower import lower
from tests.cuda_stand_in import cuda_stand_in
from tests.unit.lower.test_device_checks import lowered

X = [0.30078125, 1.130859375, 2.5, -0.75]


def run(function, *args):
    """The first result, as a GPU gives it."""
    return interpret_lowered(lowered(function, *args), args)[0]


#: name -> (a function of a tensor and a number, the number): kernels that are given it as an element of the tensor.
ELEMENTS = {
    "remainder": (lambda x, n: x % n, 0.001),
    "of a number": (lambda x, n: torch.remainder(n, x), 7.001),
    "fmod": (lambda x, n: torch.fmod(x, n), 0.001),
    "pow": (lambda x, n: x.abs() ** n, 1.001),
    "of a base": (lambda x, n: n**x, 1.001),
    "xlogy": (lambda x, n: torch.xlogy(x, n), 0.3),
    "less": (lambda x, n: (x.abs() < n).to(x.dtype), 0.3),
    "equal": (lambda x, n: (x == n).to(x.dtype), 0.3),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ELEMENTS)
def test_numbers_that_are_elements_are_rounded(name, dtype):
    function, number = ELEMENTS[name]
    x = torch.tensor([*X, torch.tensor(0.3, dtype=dtype).item()], dtype=dtype)
    rounded = torch.tensor(number, dtype=dtype).item()
    assert rounded != number
    expected = function(x.double(), rounded).to(dtype)
    torch.testing.assert_close(run(lambda x: function(x, number), x), expected)
    if name != "pow":  # of a number that nothing is known of but its value
        (tensor,) = [run(lambda x: function(x, torch.tensor(number, dtype=torch.float64)), x)]
        torch.testing.assert_close(tensor, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_factors_are_taken_as_they_are(dtype):
    x = torch.tensor(X, dtype=dtype)
    for function in (lambda x: x * 0.001, lambda x: x / 0.3, lambda x: x + 0.001):
        assert torch.equal(run(function, x), function(x.double()).to(dtype))


@pytest.mark.parametrize(
    ("mode", "shape"), [("linear", (1, 1, 5)), ("bilinear", (1, 1, 1, 5)), ("trilinear", (1, 1, 1, 1, 5))]
)
def test_where_nothing_is_resampled_elements_are_copied(mode, shape):
    x = torch.tensor([-0.5, 0.0, -0.0, 0.0, -0.75]).view(shape)
    for options in ({"size": shape[2:]}, {"size": shape[2:], "align_corners": True}, {"scale_factor": 1.0}):
        found = run(lambda x: F.interpolate(x, mode=mode, **options), x)
        assert torch.equal(found, x) and torch.equal(found.signbit(), x.signbit())


def test_means_of_images_are_nested():
    """The mean of the second row is negative: times 0 it is -0, and so is the sum. The products by themselves are zeros
    of both signs."""
    x = torch.tensor([[[[-0.0, -0.0], [0.5, -1.0]]]])
    for each in (x, x.contiguous(memory_format=torch.channels_last)):
        found = run(lambda x: F.interpolate(x, size=3, mode="bilinear"), each)
        assert found[0, 0, 0].eq(0).all() and found[0, 0, 0].signbit().tolist() == [False, True, True]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bias", [-0.0, 0.0])
def test_a_bias_of_negative_zero_is_one(training, bias):
    """Eager's kernel for a GPU adds it to what is normalised: -0 and -0 are -0."""
    x = torch.tensor([[-1.0, 0.5, 3.0], [0.5, -1.0, 5.0]])
    shift, mean, var = torch.full((3,), bias), torch.zeros(3), torch.ones(3)
    for scale in (torch.full((3,), -0.0), torch.zeros(3)):
        stats = (None, None) if training else (mean, var)
        found = run(
            lambda x, w, b, *stats: F.batch_norm(x, *(stats or (None, None)), w, b, training),
            *(x, scale, shift, *(stats if not training else ())),
        )
        centered = x - (x.mean(0) if training else mean)
        expected = centered * scale + shift
        assert torch.equal(found, expected) and torch.equal(found.signbit(), expected.signbit())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("length", [2, 3, 4, 8])
@pytest.mark.parametrize("dynamic", [False, True])
def test_zeros_of_normalised_rows(length, dtype, dynamic):
    """Eager's kernel adds a constant term, but not in whole vectors, which there are none of doubles."""
    x = torch.zeros(2, length, dtype=dtype).copysign(torch.tensor([[-1.0], [1.0]]))
    function = lambda x: F.layer_norm(x, (x.size(1),))
    with torch.no_grad(), cuda_stand_in():
        policy = DynamicPolicy(dynamic, dynamic, frozenset(), True)
        region = capture(function, (x,), {}, make_settings(), policy)
        program = lower(prepare(region, make_settings()), make_settings())
    found = interpret_lowered(program, (x,))[0]
    keeps_sign = length % 4 == 0 and dtype is not torch.float64
    assert torch.equal(found.signbit(), x.signbit() if keeps_sign else torch.zeros_like(x, dtype=torch.bool))
