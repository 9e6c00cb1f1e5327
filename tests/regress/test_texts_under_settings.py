"""Texts of tensors and arrays are made after the graph, where the program had put back what it had set to make them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lampwork


def options(x):
    torch.set_printoptions(precision=1)
    text = str(x)
    torch.set_printoptions(profile="default")
    return text, str(x)


def default_type_before(x):
    torch.set_default_dtype(torch.float64)
    text = f"{x}"
    torch.set_default_dtype(torch.float32)
    return text


def default_type_behind(x):
    text = repr(x)
    torch.set_default_dtype(torch.float64)
    y = torch.ones(1)
    torch.set_default_dtype(torch.float32)
    return text, y.dtype


@pytest.mark.parametrize("program", [options, default_type_before, default_type_behind], ids=lambda each: each.__name__)
def test_as_in_eager(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for factor in (1.0, 1.23456, 2.5):
        x = torch.tensor([1.23456, 2.0]) * factor
        assert compiled(x) == program(x)


def array_options(x):
    with np.printoptions(precision=2, suppress=True):
        return str(x.numpy())


def array_options_for_good(x):
    np.set_printoptions(precision=2)
    try:
        return f"{x.numpy()}"
    finally:
        np.set_printoptions(precision=8)


@pytest.mark.parametrize("program", [array_options, array_options_for_good], ids=lambda each: each.__name__)
def test_arrays(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for factor in (1.0, 1.23456, 2.5):
        x = torch.tensor([1.23456, 2.0]) * factor
        assert compiled(x) == program(x)
