"""Distributions over gamma and binomial draws left the whole call to eager: the operators of their draws and derivatives
have no rule for shapes in PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import distributions

import lampwork

MADE = {
    "Gamma": lambda a, b: distributions.Gamma(a, b),
    "Chi2": lambda a, b: distributions.Chi2(a),
    "StudentT": lambda a, b: distributions.StudentT(a + 2, b),
    "FisherSnedecor": lambda a, b: distributions.FisherSnedecor(a + 1, b + 5),
    "InverseGamma": lambda a, b: distributions.InverseGamma(a + 2, b),
    "Binomial": lambda a, b: distributions.Binomial(5, logits=a),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_samples_and_their_gradients(make, dynamic):
    def program(a, b):
        distribution = make(a, b)
        drawn = distribution.rsample() if distribution.has_rsample else distribution.sample()
        return drawn, distribution.log_prob(drawn)

    compiled = lampwork.compile(program, fullgraph=True, dynamic=dynamic, options={"cache": False})
    for count in (4, 6):
        seen = []
        for function in (compiled, program):
            a, b = ((torch.arange(count) / 7 + each).requires_grad_() for each in (0.5, 0.7))
            torch.manual_seed(count)
            results = function(a, b)
            sum(each.sum() for each in results if each.requires_grad).backward()
            seen.append([*results, a.grad, b.grad])
        for found, expected in zip(*seen, strict=True):
            assert (found is None) == (expected is None)
            if found is not None:
                torch.testing.assert_close(found, expected)
