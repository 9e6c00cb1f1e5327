"""Operands of types that a kernel does not take together raise eager's error, and results have eager's types."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

ROW, CLASSES = torch.tensor([1]), torch.arange(4)
PROGRAMS = {
    "layer_norm": lambda x, w: F.layer_norm(x, (8,), w, w), "bias": lambda x, w: F.layer_norm(x, (8,), None, w),
    "group_norm": lambda x, w: F.group_norm(x, 2, w, w), "batch_norm": lambda x, w: F.batch_norm(x, w, w),
    "training": lambda x, w: F.batch_norm(x, None, None, w, w, training=True),
    "instance_norm": lambda x, w: F.instance_norm(x.unsqueeze(-1).expand(-1, -1, 3), None, None, w, w),
    "binary_cross_entropy": lambda x, w: F.binary_cross_entropy(x[0] / 2, w / 2),
    "cross_entropy": lambda x, w: F.cross_entropy(x, CLASSES, w), "index_add": lambda x, w: x.index_add(0, ROW, w[None]),
    "vector_norm": lambda x, w: torch.linalg.vector_norm(x, dtype=w.dtype), "ldexp": torch.ldexp,
}  # fmt: skip


@pytest.mark.parametrize("types", [("float32", "float64"), ("float32", "bfloat16"), ("float64", "float32"),
                                   ("bfloat16", "float32"), ("float32", "int64")], ids=str)  # fmt: skip
@pytest.mark.parametrize("name", PROGRAMS)
def test_mixed_types(name, types):
    first, second = (getattr(torch, each) for each in types)
    x, w = (torch.rand(4, 8) + 0.1).to(first), (torch.rand(8) + 0.1).to(second)
    program = PROGRAMS[name]
    try:
        expected, error = program(x, w), None
    except (RuntimeError, TypeError) as raised:
        expected, error = None, raised
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        if error is not None:
            with pytest.raises(type(error)) as raised:
                compiled(x, w)
            assert str(raised.value) == str(error)
        else:
            result = compiled(x, w)
            assert result.dtype == expected.dtype
            torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_powers_with_numbers_that_vary(dtype, shape):
    """The number has no type of its own beside a tensor without dimensions."""

    def program(x, number):
        return x**number, number**x, x.pow(number), torch.pow(number, x)

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.full(shape, 1.5, dtype=dtype)
    for number in (2.0, 2.5, 3.7, 0.5):
        for mine, theirs in zip(compiled(x, number), program(x, number), strict=True):
            assert mine.dtype == theirs.dtype
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("second", ["float64", "float32", "float16", "bfloat16", "int32"])
@pytest.mark.parametrize("first", ["float64", "float32", "float16", "bfloat16", "int32"])
def test_powers_of_two_without_dimensions(first, second):
    """The power that `ldexp` multiplies by has a type of its own, which depends on the dimensions of the exponent."""

    def program(x, exponents):
        return torch.ldexp(x, exponents), torch.ldexp(x, exponents[0]), torch.ldexp(x[0], exponents[0])

    compiled = lampwork.compile(program, options={"cache": False})
    for number in (130.3, 17.1, 0.3, 1000.2, -1000.2):
        x = torch.tensor([1, 0, 8]).to(getattr(torch, first))
        exponents = torch.full((3,), number).to(getattr(torch, second))
        for mine, theirs in zip(compiled(x, exponents), program(x, exponents), strict=True):
            torch.testing.assert_close(mine, theirs, equal_nan=True)


LOSSES = {
    "mse": F.mse_loss, "smooth_l1": F.smooth_l1_loss, "huber": F.huber_loss, "soft_margin": F.soft_margin_loss,
    "l1": F.l1_loss,
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("types", [("bfloat16", "float32"), ("float32", "bfloat16"), ("float16", "float64"),
                                   ("float32", "float64"), ("float16", "bfloat16")], ids=str)  # fmt: skip
@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_computed_in_the_common_type(name, types, reduction):
    """Of operands that are equal where the narrower type is written to, and are not equal."""
    program = lambda x, y: LOSSES[name](x, y, reduction=reduction)
    compiled = lampwork.compile(program, options={"cache": False})
    x, y = torch.tensor([1.296875, -70144.0, 0.1, 2.5]), torch.tensor([1.3, -70000.3, 0.2, 2.5])
    seen = []
    for function in (program, compiled):
        leaves = [each.to(getattr(torch, dtype)).requires_grad_() for each, dtype in zip((x, y), types)]
        try:
            result = function(*leaves)
            seen.append([result, *torch.autograd.grad(result, leaves, torch.ones_like(result))])
        except RuntimeError as error:  # from the backward pass, too: gradients of a type that it does not expect
            seen.append(str(error))
    if type(seen[0]) is str:
        assert seen[0] == seen[1]
        return
    for theirs, mine in zip(*seen, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)


def test_convolutions_of_sizes_that_vary():
    """The error was raised at the first size alone."""
    program = lambda x, weight: (F.conv2d(x, weight, groups=2), weight)[1]
    compiled = lampwork.compile(program, options={"cache": False})
    for rows in (4, 6, 8):
        for function in (program, compiled):
            with pytest.raises(RuntimeError):
                function(torch.ones(1, 2, 1, 1, dtype=torch.float64), torch.ones(rows, 1, 1, 1))
