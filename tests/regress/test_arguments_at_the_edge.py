"""Operators with arguments that hardly anybody hands them: eager's values, and eager's errors."""

from __future__ import annotations

import pytest
import torch

import lampwork


def _clamp(x):
    return x.clamp()


def _clamp_in_place(x):
    return x.clamp_(None, None)


def _clip(x):
    return torch.clip(x, min=None)


def _copy_of_a_number(x):
    y = x.clone()
    y[0].copy_(2.5)
    x.copy_(7)
    return y


def _copy_into_integers(x):
    return x.long().copy_(2.75), x.bool().copy_(0.5)


def _logit(x):
    return torch.logit(x, 0.75), torch.logit(x, 1), torch.special.logit(x, 0.5)


def _cumulative(x):
    return x[0].cumsum_(1)


def _address(x):
    return x.const_data_ptr() == x.data_ptr() != 0


def _bitwise(x):
    return x.bitwise_not_()


def _interpolate(x):
    return torch.nn.functional.interpolate(x[None, None], size=0)


def _one_hot(x):
    return torch.nn.functional.one_hot(x.long(), 0)


def _outcome(function, x):
    try:
        return function(x)
    except (RuntimeError, IndexError, AttributeError) as error:  # PyTorch 2.11 has no `const_data_ptr`
        return type(error), str(error)


@pytest.mark.parametrize(
    "program",
    [_clamp, _clamp_in_place, _clip, _copy_of_a_number, _copy_into_integers, _logit, _cumulative, _address, _bitwise,
     _interpolate, _one_hot],
    ids=lambda each: each.__name__,
)  # fmt: skip
def test_as_in_eager(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for seed in range(2):
        x = torch.rand(2, 3, generator=torch.Generator().manual_seed(seed))
        y = x.clone()
        expected, found = _outcome(program, x), _outcome(compiled, y)
        assert torch.equal(x, y)
        if isinstance(expected, tuple) and isinstance(expected[0], type):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected, equal_nan=True)
