"""Views of tensors without elements: of the same sizes they keep strides, of others they have those of a new tensor. A
reshape of one with gaps counted as a copy."""

from __future__ import annotations

import pytest
import torch

import lampwork

CASES = [
    ((0, 3), (6, 1), (-1, 3)), ((0, 3), (6, 1), (0, 3)), ((3, 0), (7, 2), (0,)), ((3, 0), (7, 2), (5, 0, 4)),
    ((2, 0, 4), (1, 9, 2), (2, 0, 4)), ((0, 2, 2), (9, 4, 1), (0, 4)),
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("method", ["view", "reshape"])
@pytest.mark.parametrize(("shape", "strides", "asked"), CASES)
def test_strides(shape, strides, asked, method, dynamic):
    def function(x):
        return getattr(x, method)(asked)

    def outcome(run):
        try:
            return run(torch.zeros(64).as_strided(shape, strides)).stride()
        except RuntimeError as error:
            return type(error)

    compiled = lampwork.compile(function, dynamic=dynamic, options={"cache": False})
    assert outcome(compiled) == outcome(function)
