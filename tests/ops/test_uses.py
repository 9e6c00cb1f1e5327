"""A small part of `python -m tests.ops.uses`, for every run of the tests."""

from __future__ import annotations

import pytest

from tests.ops.test_quick import GRADIENTS
from tests.ops.uses import DRAWING, LOST, REFUSED, USES, compare, difference, loss

OPS = [op for op in GRADIENTS if not any(each in op.name for each in (*DRAWING, "scaled_dot"))][::3]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_gradients_in_every_use(op):
    found = compare(op)
    assert found and not [each for each in found if each not in ("", LOST)]


@pytest.mark.parametrize("use", USES)
def test_a_wrong_gradient_is_found(use):
    import torch

    def results(factor):
        x, y = (torch.linspace(0.5, 2.0, 6, dtype=torch.float64).view(2, 3).requires_grad_() for _ in range(2))
        return [x * x, (x * factor * y).sin()], [x, y]

    def outcome(factor):
        try:
            return USES[use](*results(factor))
        except RuntimeError as error:
            return error

    assert difference(outcome(1.0), outcome(1.0)) is None
    if use == "written":  # both refuse
        assert isinstance(outcome(1.0), RuntimeError)
        assert difference(loss(results(1.0)[0])[None], outcome(1.0)) == LOST
    else:
        assert difference(outcome(1.001), outcome(1.0)) not in (None, LOST, REFUSED)
