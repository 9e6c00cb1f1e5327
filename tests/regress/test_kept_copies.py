"""What a program copied was kept for the backward pass as the original: a write to that in between was an error."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import lampwork


class Queue(nn.Module):
    """`looked` makes of the buffer what the product reads."""

    def __init__(self, looked) -> None:
        super().__init__()
        self.layer, self.looked = nn.Linear(4, 3), looked
        self.register_buffer("queue", torch.randn(3, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) @ self.looked(self.queue)


KINDS = {
    "clone": lambda queue: queue.clone().detach(),
    "detached": lambda queue: queue.detach().clone(),
    "view": lambda queue: queue[:, 1:].clone(),
    "copy": lambda queue: queue.to(torch.float32, copy=True),
    "joined": lambda queue: torch.cat([queue, queue], 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_written_before_the_backward_pass(kind):
    torch.manual_seed(0)
    eager = Queue(KINDS[kind])
    ours = copy.deepcopy(eager)
    x = torch.randn(2, 4)
    for model, run in ((eager, eager), (ours, lampwork.compile(ours, options={"cache": False}))):
        y = run(x)
        model.queue.add_(1)
        y.sum().backward()
    torch.testing.assert_close(ours.layer.weight.grad, eager.layer.weight.grad)


def test_a_copy_of_a_large_input():
    def program(x, memory):
        return x * memory.clone()

    compiled = lampwork.compile(program, options={"cache": False})
    x, memory = torch.randn(200, 300, requires_grad=True), torch.randn(200, 300)
    expected = memory.clone()
    y = compiled(x, memory)
    memory.zero_()
    y.sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_what_eager_keeps_is_watched_as_before():
    compiled = lampwork.compile(lambda x, y: x * y, options={"cache": False})
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    z = compiled(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_statistics_that_are_updated_behind_a_break():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 6)
            self.register_buffer("mean", torch.zeros(6))
            self.register_buffer("square", torch.ones(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layer(x)
            y = ((x - self.mean) / (self.square + 1e-3).sqrt()).tanh()
            if x.abs().max() < 1000:
                with torch.no_grad():
                    self.mean.lerp_(x.mean(0), 0.1)
                    self.square.lerp_(x.square().mean(0), 0.1)
            return y

    torch.manual_seed(0)
    eager = Scaled()
    ours = copy.deepcopy(eager)
    compiled = lampwork.compile(ours, options={"cache": False})
    for _ in range(3):
        x = torch.randn(5, 4)
        eager(x).sum().backward()
        compiled(x).sum().backward()
    for one, other in zip((*ours.parameters(), *ours.buffers()), (*eager.parameters(), *eager.buffers())):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one.grad, other.grad)


READ_AGAIN = {
    "joined": lambda x, memory: x.detach()[:, :1] @ torch.cat([memory, memory], 1)[:1] * x.sum(),
    "activated": lambda x, memory: torch.nn.functional.gelu(x + 1),
    "gated": lambda x, memory: x.relu() * memory,
    "scaled": lambda x, memory: x * (memory * 2).cos(),
}


@pytest.mark.parametrize("width", [6, 6000])
@pytest.mark.parametrize("kind", READ_AGAIN)
def test_what_the_backward_pass_only_computes_again_may_be_written(kind, width):
    """However large: `x += block(x)`, where autograd keeps what the block makes of x. Leaves stay between steps."""
    program = READ_AGAIN[kind]
    found = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        torch.manual_seed(0)
        leaf, memory = torch.randn(3, width, requires_grad=True), torch.randn(3, width)
        x = leaf * 1
        y = function(x, memory)
        x += 1
        if kind != "gated":  # whose derivative reads it
            memory.zero_()
        y.sum().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[1], found[0])
