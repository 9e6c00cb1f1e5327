"""Anomaly detection around calls: an entry made while it did not look for NaN served calls in which it does; a program that
takes gradients itself was captured under it, which warned of stand-ins."""

from __future__ import annotations

import warnings

import torch

import lampwork


def loss(x):
    return (torch.sqrt(x) * 0).sum()


def step(x):
    weight = x.detach().clone().requires_grad_()
    (torch.sqrt(weight) * 0).sum().backward()
    return weight.grad


def of_a_transform(x):
    return torch.func.grad(loss)(x)


def outcome(function, differentiated, enabled, check_nan):
    x = torch.zeros(3, requires_grad=differentiated)
    with warnings.catch_warnings(record=True) as told, torch.autograd.set_detect_anomaly(enabled, check_nan):
        warnings.simplefilter("always")
        try:
            result = function(x)
            if differentiated:
                result.backward()
                result = x.grad
            found = str(result)
        except RuntimeError as error:
            found = str(error)
    return found, [each.category for each in told if each.category is not lampwork.LampworkWarning]


def test_entries_know_whether_nan_is_looked_for():
    for program, differentiated in ((loss, True), (step, False), (of_a_transform, False)):
        made = lampwork.compile(program, options={"cache": False})
        for enabled, check_nan in (
            (False, True),
            (True, False),
            (True, True),
            (False, True),
            (True, True),
            (True, False),
        ):
            expected = outcome(program, differentiated, enabled, check_nan)
            assert outcome(made, differentiated, enabled, check_nan) == expected
        assert lampwork.stats(made)["captures"] == 3
