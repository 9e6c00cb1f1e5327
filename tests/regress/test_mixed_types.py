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


def test_convolutions_of_sizes_that_vary():
    """The error was raised at the first size alone."""
    program = lambda x, weight: (F.conv2d(x, weight, groups=2), weight)[1]
    compiled = lampwork.compile(program, options={"cache": False})
    for rows in (4, 6, 8):
        for function in (program, compiled):
            with pytest.raises(RuntimeError):
                function(torch.ones(1, 2, 1, 1, dtype=torch.float64), torch.ones(rows, 1, 1, 1))
