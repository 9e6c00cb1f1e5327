"""A dimension of size 1 had another stride than eager's where a reshape copies: (1, 1) for (32, 1). So it was where
operands of varying sizes have strides of their own in such dimensions, and PyTorch's rules for symbols answered."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork


def copied(x):
    return x.permute(0, 2, 1).reshape(1, 32)


def flattened(x):
    return (x * 2).transpose(1, 2).flatten(1)


def in_the_middle(x):
    return x.transpose(1, 2).reshape(4, 1, 8), x.transpose(1, 2).reshape(4, 8, 1)


@pytest.mark.parametrize("program", [copied, flattened, in_the_middle])
def test_strides_are_eagers(program):
    x = torch.rand(1, 4, 8)
    mine, expected = lampwork.compile(program, fullgraph=True)(x), program(x)
    pairs = zip(mine, expected, strict=True) if isinstance(expected, tuple) else [(mine, expected)]
    for one, other in pairs:
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("strides", [(1, 1, 1, 1), (2, 1, 1, 4), (4, 2, 1, 2)])
def test_sums_of_booleans(strides, dynamic):
    x = torch.ones(2, dtype=torch.bool).as_strided((1, 1, 2, 1), strides)
    program = lambda x: x + x
    assert lampwork.compile(program, dynamic=dynamic)(x).stride() == program(x).stride()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("strides", [(1, 1, 1), (1, 2, 1), (2, 2, 1)])
def test_choices_of_two_types(strides, dynamic):
    condition = torch.ones(2, dtype=torch.bool).as_strided((1, 1, 2), strides)
    operands = condition, torch.ones(2, 1, dtype=torch.uint8), torch.ones(1, 1, dtype=torch.int64)
    result = lampwork.compile(torch.where, dynamic=dynamic)(*operands)
    assert result.stride() == torch.where(*operands).stride() and result.dtype == torch.int64


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [
    lambda x: F.smooth_l1_loss(x, x * 2, reduction="none"), lambda x: F.mse_loss(x, x, reduction="none"),
    lambda x: torch.renorm(x, 2, 0, 1.5), torch.rot90, lambda x: x.flip(0), lambda x: torch.aminmax(x, dim=0),
], ids=range(6))  # fmt: skip
@pytest.mark.parametrize("shape, strides", [((2, 1), (1, 2)), ((1, 2), (1, 1)), ((1, 4, 1), (1, 1, 1))], ids=str)
def test_kernels_that_look_at_no_stride_of_size_one(program, shape, strides, dynamic):
    x = torch.arange(4.0).as_strided(shape, strides)
    found = lampwork.compile(program, dynamic=dynamic)(x), program(x)
    pairs = zip(*found) if isinstance(found[0], tuple) else [found]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("program", [
    lambda x, n: x.clamp(n), lambda x, n: torch.lerp(x, x, n), lambda x, n: n - x, lambda x, n: torch.where(x > 0, n, x),
], ids=range(4))  # fmt: skip
def test_numbers_that_vary_are_no_operands(program):
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for number in (0.5, 0.25):
        for shape, strides in (((9, 1), (1, 9)), ((1, 9), (1, 1)), ((1, 3, 3), (1, 1, 3))):
            x = torch.arange(9.0).as_strided(shape, strides)
            ours, theirs = compiled(x, number), program(x, number)
            assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


def test_rolls_of_nothing():
    compiled = lampwork.compile(lambda x: torch.roll(x, -2), dynamic=True, options={"cache": False})
    for size in (2, 0):
        x = torch.arange(99.0).as_strided((size, size, 3), (5, 5, 1))
        assert compiled(x).stride() == torch.roll(x, -2).stride()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "shape, target",
    [
        ((1,), (1, 1)),
        ((3,), (1, 3)),
        ((1, 3), (1, 1, 3)),
        ((), (1,)),
        ((), (2, 1)),
        ((3,), (1, 2, 3)),
        ((3,), (2, 1, 3)),
        ((0,), (1, 0)),
    ],
)
def test_new_dimensions(shape, target, dynamic):
    """A tensor that is written whole has the strides that it had, whatever is written: here, a view with new dimensions."""

    def program(x, y):
        y = y + 1
        y.copy_(x * 2)
        return y, (x * 3).expand(target)

    compiled = lampwork.compile(program, dynamic=dynamic)
    for _ in range(2):
        x, y = torch.randn(shape), torch.randn(target)
        found, expected = compiled(x, y), program(x, y)
        assert [each.stride() for each in found] == [each.stride() for each in expected]
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("dynamic", [None, True])
def test_predicates_of_whole_numbers(dynamic):
    """Eager fills a tensor in the operand's strides: nothing is computed."""
    x = torch.tensor([1, 2]).as_strided((1, 2, 1, 1), (2, 1, 2, 2))
    for program in (lambda x: x.isinf(), lambda x: x.isnan(), lambda x: x.isneginf(), lambda x: x.isfinite()):
        assert lampwork.compile(program, dynamic=dynamic)(x).stride() == program(x).stride()


def into_a_view(x, y):
    view = x.clone().view(x.shape)
    return view.addcmul_(view, y)


def through_a_view(x, y):
    made = x.clone()
    made.view(x.shape).addcmul_(made, y)
    return made


@pytest.mark.parametrize("program", [into_a_view, through_a_view])
def test_views_of_the_same_shape(program):
    """A reshape to the shape that a tensor has gives other strides where a dimension has one element."""
    x = torch.tensor([2.0, 1, 0, 0]).view(2, 1, 1, 2)
    y = torch.tensor([0.25, -0.25]).as_strided((2, 1, 1, 1), (1, 2, 2, 2), 0)
    found, expected = lampwork.compile(program)(x, y), program(x, y)
    assert torch.equal(found, expected) and found.stride() == expected.stride()
