"""Parts that the backward pass is to have of what is returned as a whole: their copies lay as the parts had lain."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint

import lampwork


def gradients(function, module, inputs, weight):
    module.zero_grad()
    (function(*inputs)[1] * weight).sum().backward()
    return [parameter.grad.clone() for parameter in module.parameters()]


class Pooled(torch.nn.Module):
    """A tower that returns all positions, and one of them normalized."""

    def __init__(self, part):
        super().__init__()
        self.linear, self.norm, self.part = torch.nn.Linear(8, 32), torch.nn.LayerNorm(32), part

    def forward(self, x):
        hidden = self.linear(x)
        return hidden, self.norm(self.part(hidden))


@pytest.mark.parametrize(
    "part",
    [
        lambda hidden: hidden[:, 0],
        lambda hidden: hidden[:, 3:6],
        lambda hidden: hidden[1:],
        lambda hidden: hidden.transpose(0, 1)[4:8],
        lambda hidden: hidden[:, 0].reshape(3, 1, 32),
        lambda hidden: hidden[:, 5].as_strided((3, 32), (17 * 32, 1), 32),
    ],
    ids=["one", "several", "rows", "transposed", "reshaped", "by place"],
)
def test_a_part_of_a_result(part):
    torch.manual_seed(0)
    module, x = Pooled(part), torch.randn(3, 17, 8)
    weight = torch.randn_like(module(x)[1])
    compiled = lampwork.compile(module, options={"cache": False})
    expected = gradients(module, module, (x,), weight)
    for _ in range(2):
        torch.testing.assert_close(gradients(compiled, module, (x,), weight), expected, rtol=1e-4, atol=1e-5)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_what_a_strided_input_held():
    """The program writes to an input that has holes in memory, and the backward pass needs what it held before."""
    whole = torch.randn(4, 6)

    def program(x, y):
        product = (x * 2) * y  # what is multiplied is computed again
        x.add_(1)
        return x, product

    def run(function):
        x, y = whole.clone()[:, ::2], torch.ones(4, 3, requires_grad=True)
        function(x, y)[1].sum().backward()
        return y.grad

    compiled = lampwork.compile(program, options={"cache": False})
    torch.testing.assert_close(run(compiled), run(program))
    assert not lampwork.stats(compiled)["fallbacks"]


def test_checkpointed_attention():
    """Attention is an operator with several results that cannot be run again: nothing of it could be saved either."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 24)

        def attend(self, x):
            q, k, v = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in self.linear(x).chunk(3, -1))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

        def forward(self, x):
            return x, x + torch.utils.checkpoint.checkpoint(self.attend, x, use_reentrant=False)

    torch.manual_seed(0)
    module, x, weight = Block(), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    compiled = lampwork.compile(module, options={"cache": False})
    torch.testing.assert_close(gradients(compiled, module, (x,), weight), gradients(module, module, (x,), weight))
    assert not lampwork.stats(compiled)["fallbacks"]


def joined(x):
    """A product of matrices reads both as one, which a copy of a row in the place of its repetitions has not."""
    repeated = torch.broadcast_to(x, (2, *x.shape))
    return repeated @ x, torch.where(repeated.isnan(), repeated, x)


def squared(x):
    numbers = torch.view_as_complex(x)
    return torch.view_as_real(numbers * numbers), x * 2


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "program, shape, part",
    [(joined, (1, 2), lambda x: x.expand(2, 2)), (squared, (6, 2), lambda x: x[::2].expand(2, 3, 2))],
)
def test_views_that_a_dense_copy_has_not(program, shape, part, dynamic):
    found = []
    for function in (program, lampwork.compile(program, dynamic=dynamic, options={"cache": False})):
        leaf = torch.arange(1.0, 1 + shape[0] * shape[1]).view(shape).requires_grad_()
        results = function(part(leaf))
        torch.autograd.backward(results, [torch.arange(float(each.numel())).view(each.shape) for each in results])
        found.append((*results, leaf.grad))
    for ours, theirs in zip(*reversed(found)):
        torch.testing.assert_close(ours, theirs)
