"""Calls that kernels refuse, or lay out in another way than rules and meta kernels said: exceptions were lost, and strides
of empty tensors and of dimensions of one place differed from eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.fakes import kernels

REFUSED = {
    "floor division of bool": (lambda x: x // True, torch.tensor([True])),
    "gcd of floats": (lambda x: torch.gcd(x, x), torch.ones(2)),
    "gelu of integers": (lambda x: F.gelu(x), torch.ones(2, dtype=torch.int64)),
    "softmax of integers": (lambda x: torch.softmax(x, 0), torch.ones(2, dtype=torch.int64)),
    "softmax of a dimension that is not there": (lambda x: torch.softmax(x, 5), torch.ones(2, 3)),
    "average of half precision in three dimensions": (lambda x: F.avg_pool3d(x, 2), torch.ones(1, 2, 4, 4, 4).half()),
    "pooling of integers": (lambda x: F.adaptive_avg_pool2d(x, 2), torch.ones(1, 2, 4, 4, dtype=torch.int64)),
    "addcdiv of integers": (lambda x: torch.addcdiv(x, x, x), torch.ones(2, dtype=torch.int64)),
    "products of two types": (lambda x: x @ x.double(), torch.ones(2, 2)),
    "maximum along nothing": (lambda x: x.max(0)[0], torch.ones(0, 3)),
    "samples of an empty image": (lambda x: F.grid_sample(x, x.new_zeros(2, 3, 2, 2)), torch.zeros(2, 2, 0, 2)),
    "a transform of nothing, conjugated": (lambda x: torch.fft.hfftn(x, dim=-1), torch.empty(5, 0, 13)),
    "shuffled pixels of a volume in channels last": (
        lambda x: F.pixel_shuffle(x, 2),
        torch.zeros(2, 4, 4, 4, 4).contiguous(memory_format=torch.channels_last_3d),
    ),
    "pixels of a volume, shuffled back": (
        lambda x: F.pixel_unshuffle(x, 2),
        torch.zeros(2, 4, 4, 4, 4).contiguous(memory_format=torch.channels_last_3d),
    ),
    "places that are no whole numbers": (lambda x: F.embedding(x % 1, torch.argwhere(x)), torch.tensor(0.0)),
    "an inverse, unread": (lambda x: (x + 1, torch.linalg.inv(x))[0], torch.zeros(2, 2)),
    "a pseudoinverse, overwritten": (lambda x: torch.linalg.pinv(x).fill_(1), torch.full((2, 3), torch.nan)),
    "a histogram, unread": (lambda x: (x, torch.histogram(x, 4))[0], torch.full((4,), torch.nan)),
    "a decomposition, unread": (
        lambda x: (x, torch.lu_unpack(x, torch.tensor([-3, 1], dtype=torch.int32)))[0],
        torch.ones(2, 2),
    ),
    "whole numbers from NaN, unread": (
        lambda x: (x, torch.linspace(x, 3, 4, dtype=torch.int64))[0],
        torch.tensor(torch.nan),
    ),
    "a loss of other points, unread": (
        lambda x: (x, F.nll_loss(x, x.new_ones(2, 1, 1).long()))[0],
        torch.ones(2, 2, 2, 1),
    ),
    "batch norm of nothing, as it writes its statistics": (
        lambda x: torch.native_batch_norm(x, None, None, x.new_zeros(5), x.new_ones(5), True, 0.1, 1e-5),
        torch.ones(0, 5, 5),
    ),
    "bool of a type of its own, large": (lambda x: x // True, torch.ones(100, 100, dtype=torch.bool)),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_kernels_refuse_is_refused(name, mode, dynamic):
    program, x = REFUSED[name]
    with pytest.raises(Exception) as expected:
        program(x)
    compiled = lampwork.compile(program, dynamic=dynamic)
    for _ in range(2):
        with pytest.raises(expected.type), mode():
            compiled(x)


def test_what_the_contents_decide_is_left_to_the_call():
    """Matrices of ones and zeros have no inverse; the program's have."""
    compiled = lampwork.compile(lambda x: torch.linalg.inv(x) @ torch.linalg.cholesky(x @ x.T))
    x = torch.eye(3) + 0.1
    torch.testing.assert_close(compiled(x), torch.linalg.inv(x) @ torch.linalg.cholesky(x @ x.T))
    taken = lampwork.compile(lambda x, at: x[at] + x.index_select(0, at) + F.embedding(at, x))
    x, at = torch.randn(1, 3), torch.tensor([0])
    torch.testing.assert_close(taken(x, at), 3 * x)


LAID_OUT = {
    "frexp": (lambda x: torch.frexp(x), torch.randn(2, 3, 1).permute(2, 0, 1)),
    "roll": (lambda x: torch.roll(x, 2, 2), torch.randn(24).as_strided((1, 1, 6, 4), (24, 1, 4, 1))),
    "rot90": (lambda x: torch.rot90(x), torch.randn(2)[None][:, 1:]),
    "deg2rad": (lambda x: torch.deg2rad(x), torch.ones(2, 5)[:1, :3]),
    "diag_embed": (lambda x: torch.diag_embed(x), torch.ones(5, 2)[:, :1]),
    "isinf": (lambda x: torch.isinf(x), torch.ones(4, 5, dtype=torch.int64)[:1, :3]),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x * 1, 2), torch.zeros(3, 0, 2, 0)),
    "addcdiv": (lambda x: torch.addcdiv(x, x, x), torch.ones(2, 1, 1, 1, dtype=torch.complex128)),
    "rsub": (lambda x: torch.rsub(x.t(), x.view(1, 1, 2)), torch.ones(2, 1)),
    "channel_shuffle": (lambda x: torch.channel_shuffle(x * 1, 2), torch.ones(1, 4, 3, 10)[:, :, :0]),
    "conv3d": (lambda x: F.conv3d(x, x.new_ones(1, 1, 1, 1, 1)), torch.ones(1, 1, 1, 2, 1, dtype=torch.float64)),
    "rfft2": (lambda x: torch.fft.rfft2(x), torch.ones(1, 2)),
    "rfftn": (lambda x: torch.fft.rfftn(x), torch.randn(5, 6, 7)),
    "huber_loss": (lambda x: F.huber_loss(x, torch.ones(2, dtype=torch.float64)), torch.ones(2)),
    "mse_loss": (lambda x: F.mse_loss(x, x, reduction="none"), torch.ones(4).as_strided((1, 1), (3, 1))),
    "smooth_l1_loss": (lambda x: F.smooth_l1_loss(x[0], x, reduction="none"), torch.ones(1)),
}


@pytest.mark.parametrize("name", LAID_OUT)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_results_are_laid_out_as_by_kernels(name):
    program, x = LAID_OUT[name]
    expected, found = program(x), lampwork.compile(program)(x)
    for left, right in zip(*([each] if isinstance(each, torch.Tensor) else each for each in (found, expected))):
        assert (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
        torch.testing.assert_close(left, right)


permuted = lambda *size: torch.rand(size).permute(*reversed(range(len(size))))
LARGE = {
    "losses of two layouts": (
        lambda x, y: F.binary_cross_entropy(x, y, reduction="none"), torch.rand(30, 20, 10), permuted(10, 20, 30),
    ),
    "losses of every other row": (lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), *[torch.rand(2, 80, 90)[1::2]] * 2),
    "margins of one column": (
        lambda x, y: F.soft_margin_loss(x, y, reduction="none"), torch.rand(60, 1, 90), permuted(90, 1, 60),
    ),
    "squares of one column": (
        lambda x, y: F.mse_loss(x, y, reduction="none"), torch.rand(60, 1, 90), permuted(90, 1, 60),
    ),
    "rolled": (lambda x, y: torch.roll(x, 1, 3), torch.rand(6000).as_strided((30, 20, 1, 10), (200, 1, 200, 20)), 0),
    "stacked": (lambda x, y: torch.stack((x, x), -1), torch.rand(9000).as_strided((1, 1, 90, 100), (9000, 1, 100, 1)), 0),
    "losses of two types": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y), torch.rand(60, 90).double(), torch.rand(60, 90),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("dynamic", [None, True])
def test_large_results_are_laid_out_as_by_kernels(name, dynamic):
    program, x, y = LARGE[name]
    expected, found = program(x, y), lampwork.compile(program, dynamic=dynamic)(x, y)
    assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())
    torch.testing.assert_close(found, expected)


def test_views_of_a_part_of_a_leaf_at_any_size():
    """A tensor with a history has symbolic sizes, and is viewed."""
    program = lambda x: x[1::3].unsqueeze(0) * 2
    compiled = lampwork.compile(program, dynamic=True, fullgraph=True)
    for size in (5, 7):
        leaf = torch.randn(size, 2, requires_grad=True)
        for function in (compiled, program):
            leaf.grad, before = None, leaf.grad
            function(leaf[1:]).square().sum().backward()
            assert before is None or torch.equal(before, leaf.grad)


@pytest.mark.parametrize("size", [3, 60])
def test_what_a_derivative_refuses_is_refused(size):
    """Eager's derivative of `nll_loss` of images wants them with channels first."""
    x = torch.randn(2, 4, size, size).contiguous(memory_format=torch.channels_last).requires_grad_()
    target = torch.zeros(2, size, size, dtype=torch.int64)
    for function in (F.nll_loss, lampwork.compile(lambda x, target: F.nll_loss(x, target))):
        with pytest.raises(RuntimeError, match="grad_input must be contiguous"):
            function(x, target).backward()


@pytest.mark.parametrize("size", [3, 3000])
def test_derivatives_of_two_types_are_refused(size):
    compiled = lampwork.compile(lambda x, y: F.huber_loss(x, y, reduction="none"), dynamic=True)
    for function in (F.huber_loss, compiled):
        x, y = torch.rand(size, requires_grad=True), torch.rand(size).bfloat16().requires_grad_()
        with pytest.raises(RuntimeError, match="Found dtype"):
            function(x, y).sum().backward()


def test_kernels_are_not_asked_about_places_that_may_not_be_there():
    """Derivatives of pooling trust the places that they are given: of an image of one element, the second is outside."""
    from lampwork.fakes.kernels import _fills

    derivative = torch.ops.aten.adaptive_max_pool2d_backward.default
    assert not any(fill((3,), dtype=torch.int64).any() for fill in _fills(derivative))
    compiled = lampwork.compile(lambda x: F.adaptive_max_pool1d(x, 1), options={"cache": False})
    x = torch.randn(2, 3, 1, requires_grad=True)
    compiled(x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize("operator", ["linalg_ldl_solve", "linalg_lu_solve", "lu_unpack"])
def test_pivots_that_kernels_are_asked_with(operator):
    """LAPACK counts them from 1, and some releases of PyTorch pass on a 0, which writes outside of memory."""
    fills = kernels._fills(getattr(torch.ops.aten, operator).default)
    assert all(fill(3, dtype=torch.int32).min() >= 1 for fill in fills)


@pytest.mark.parametrize("dynamic", [None, True])
def test_solutions_by_factors(dynamic):
    compiled = lampwork.compile(lambda ld, pivots, b: torch.linalg.ldl_solve(ld, pivots, b) * 2, dynamic=dynamic)
    for size in (3, 5):
        ld, pivots = torch.linalg.ldl_factor(torch.eye(size) * 2)
        b = torch.rand(size, 2)
        torch.testing.assert_close(compiled(ld, pivots, b), torch.linalg.ldl_solve(ld, pivots, b) * 2)
