"""A floating-point number that a size was made to is a plain number in graphs. Where a dynamic size became known on the
way, a derivative's factor reached lowering as a `torch.SymFloat`, which raised."""

import torch

import lampwork


def spread(x):
    """Its derivative is multiplied by 2 / (n - 1), n being of a size that `as_strided` makes known."""
    variance = torch.var_mean(x, 1)[0]
    return variance.as_strided((2, 2), (1, 1), variance.storage_offset())


def test_the_factor_of_a_derivative():
    results = []
    for function in (spread, lampwork.compile(spread, dynamic=True)):
        x = torch.arange(8.0).view(1, 2, 2, 2).requires_grad_()
        y = function(x)
        y.sum().backward()
        results.append((y.detach(), x.grad))
    assert all(map(torch.equal, *results))
