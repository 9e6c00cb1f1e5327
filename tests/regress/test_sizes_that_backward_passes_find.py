"""What is assumed of sizes by contents is checked before the call is done, also of those that only gradients need."""

from __future__ import annotations

import pytest
import torch

import lampwork


def put_beside_another(x, m, k):
    y = x * 2
    y[m] = x[k].exp()
    return y


def listed(x, m, k):
    y = x * 2
    y[[True, False, True, True]] += x[[True, True, False, True]]
    y[[True, False, True, True]] *= 2
    return y.sum(), y


class Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, m, k):
        ctx.save_for_backward(x, m, k)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        x, m, k = ctx.saved_tensors
        return g + (g[m] * x[k]).sum(), None, None


def products(x, m, k):
    return Products.apply(x, m, k)


def hooked(x, m, k):
    y, picked = x.exp(), x[m]
    y.register_hook(lambda g: g * (g[k] + picked).sum())
    return y * 2


class OfTangents(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, m):
        ctx.save_for_backward(x[m])
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g + (g[g > 2] * ctx.saved_tensors[0]).sum(), None


def of_tangents(x, m, k):
    return OfTangents.apply(x, m).exp()


#: Equal numbers of elements, then such as broadcast, then such as do not fit.
MASKS = [((1, 0, 1, 1), (0, 1, 1, 1)), ((1, 1, 0, 0), (0, 1, 1, 0)), ((1, 1, 1, 0), (1, 0, 0, 0)),
         ((0, 0, 0, 0), (0, 0, 0, 0)), ((1, 1, 1, 0), (1, 1, 0, 0)), ((0, 1, 0, 1), (1, 1, 0, 0))]  # fmt: skip


def outcome(function, m, k):
    x = torch.tensor([0.1, 0.5, 0.7, -1.0]).requires_grad_()
    try:
        results = function(x, torch.tensor(m).bool(), torch.tensor(k).bool())
        results = results if isinstance(results, tuple) else (results,)
        sum(each.square().sum() for each in results).backward()
    except RuntimeError as error:
        return str(error)
    return (*results, x.grad)


@pytest.mark.parametrize("program", [put_beside_another, listed, products, hooked, of_tangents])
@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for m, k in MASKS:
        found, expected = outcome(compiled, m, k), outcome(program, m, k)
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)
    assert not any(each.diagnostic.id == "run-failed" for each in lampwork.stats(compiled)["fallbacks"])


def test_masks_of_lists_have_known_sizes():
    x, (m, k) = torch.ones(4), torch.tensor(MASKS[0]).bool()
    assert "nonzero" not in str(lampwork.explain(listed, x.requires_grad_(), m, k))
    assert "nonzero" in str(lampwork.explain(put_beside_another, x, m, k))
