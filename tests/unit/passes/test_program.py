"""Passes over a program before it is differentiated: gradients are those of what the passes leave."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import lampwork

aten = torch.ops.aten


def norm(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


@torch.library.custom_op("test_program::norm", mutates_args=())
def fused(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return norm(x, w, eps)


@torch.library.custom_op("test_program::norm_backward", mutates_args=())
def fused_backward(gradient: Tensor, x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    factor, weighted = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps), gradient * w
    of_x = factor * weighted - x * factor.pow(3) * (weighted * x).mean(-1, keepdim=True)
    return of_x, (gradient * x * factor).reshape(-1, x.shape[-1]).sum(0)


@torch.library.custom_op("test_program::bare", mutates_args=())
def bare(x: Tensor) -> Tensor:
    return x.relu()


def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.eps = inputs[2]


fused.register_fake(lambda x, w, eps: torch.empty_like(x))
fused_backward.register_fake(lambda gradient, x, w, eps: (torch.empty_like(x), torch.empty_like(w)))
bare.register_fake(lambda x: torch.empty_like(x))
fused.register_autograd(
    lambda ctx, gradient: (*fused_backward(gradient, *ctx.saved_tensors, ctx.eps), None),
    setup_context=keep,
)
PATTERN = lampwork.Pattern(norm, fused, (torch.empty(2, 8), torch.empty(8), 0.0123), name="norm")


class Model(torch.nn.Module):
    """Draws, writes to buffers, and returns something that requires no grad."""

    def __init__(self):
        super().__init__()
        self.linear, self.batch = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)
        self.w = torch.nn.Parameter(torch.linspace(0.5, 1.5, 8))

    def forward(self, x):
        y = F.dropout(norm(self.linear(x), self.w, 1e-5), 0.3, self.training)
        return self.batch(y.relu()).square().mean(), norm(x, self.w, 1e-3).sum(), y.argmax(-1)


@pytest.mark.parametrize("dynamic", [None, True])
def test_what_is_put_in_is_differentiated(dynamic):
    torch.manual_seed(0)
    ours, eager = Model(), Model()
    eager.load_state_dict(ours.state_dict())
    fast = lampwork.compile(ours, dynamic=dynamic, options={"passes": {"program": [PATTERN]}, "cache": False})
    for rows in (4, 5):
        x = torch.randn(rows, 8)
        leaves = []
        for model in (fast, eager):
            torch.manual_seed(1)
            leaves.append(x.clone().requires_grad_())
            first, second, _ = results = model(leaves[-1])
            (first + 2 * second).backward()
            leaves.append(results)
        torch.testing.assert_close(leaves[1], leaves[3])
        torch.testing.assert_close(leaves[0].grad, leaves[2].grad)
        for one, other in zip((*ours.parameters(), *ours.buffers()), (*eager.parameters(), *eager.buffers())):
            torch.testing.assert_close(one, other)
            torch.testing.assert_close(one.grad, other.grad)
    stats = lampwork.stats(fast)
    assert stats["fallbacks"] == stats["breaks"] == ()
    assert stats["extern_calls"]["test_program::norm.default"] == 2
    assert stats["extern_calls"]["test_program::norm_backward.default"] == 2


def test_the_derivative_is_that_of_the_operator():
    def sines(graph):
        for node in list(graph.nodes):
            if node.target is aten.relu.default:
                with graph.inserting_before(node):
                    node.replace_all_uses_with(graph.call_function(aten.sin.default, node.args))
                graph.erase_node(node)

    found = {}
    for stage in ("program", "joint"):
        x = torch.linspace(-1, 1, 6, requires_grad=True)
        made = lampwork.compile(lambda x: (x * 2).relu(), options={"passes": {stage: [sines]}, "cache": False})
        made(x).sum().backward()
        found[stage] = x.grad
    torch.testing.assert_close(found["program"], 2 * torch.cos(2 * torch.linspace(-1, 1, 6)))
    torch.testing.assert_close(found["joint"], 2.0 * (torch.sin(2 * torch.linspace(-1, 1, 6)) > 0))


def test_what_no_pass_changes_stays():
    seen = []
    model = Model()
    made = lampwork.compile(model, options={"passes": {"program": [lambda graph: seen.append(graph)]}, "cache": False})
    made(torch.randn(4, 8))[0].backward()
    with torch.no_grad():
        made(torch.randn(4, 8))
    assert len(seen) == 2 and model.w.grad is not None and lampwork.stats(made)["fallbacks"] == ()


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (lambda x: x.t()[0], "it returns views"),
        (lambda x: (y := x.relu(), y[0]), "it returns views"),
        (lambda x: checkpoint(torch.sin, x, use_reentrant=False) * 2, "it has checkpoints"),
        (lambda x: Twice.apply(x) + 1, "backward"),
    ],
)
def test_what_cannot_be_recorded_once_more_is_refused(program, why):
    made = lampwork.compile(program, options={"passes": {"program": [lambda graph: None]}, "cache": False})
    with pytest.raises(lampwork.PassError, match=r"Give them in the stage 'joint'") as caught:
        made(torch.randn(4, 3, requires_grad=True))
    assert why in str(caught.value)


def test_an_operator_without_a_derivative_is_refused():
    pattern = lampwork.Pattern(torch.relu, bare, (torch.empty(3),))
    made = lampwork.compile(lambda x: x.relu() * 2, options={"passes": {"program": [pattern]}, "cache": False})
    assert torch.equal(made(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(lampwork.PassError):
        made(torch.ones(3, requires_grad=True))
