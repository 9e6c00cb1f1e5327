"""What whole steps keep from the forward pass to the backward one, by what their programs need at a time."""

from __future__ import annotations

import itertools

import torch
from torch.utils.checkpoint import checkpoint

import lampwork
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import storage_numel
from lampwork.ir.program import Program
from lampwork.schedule.plan import step_buffers

WIDTH, ROWS, LAYERS = 64, 512, 8
BYTES = 4 * ROWS * WIDTH


class Layer(torch.nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.wide, self.narrow = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.activation = activation

    def forward(self, x):
        return x + self.narrow(self.activation(self.wide(x)))


def most_needed(program: Program) -> int:
    """Bytes of what steps have made and later ones read, where they are most."""
    needed: dict[str, list[int]] = {}
    for number, step in enumerate(program.steps):
        for name in step_buffers(step):
            needed.setdefault(name, []).append(number)
    changes = [0] * (len(program.steps) + 1)
    for name, numbers in needed.items():
        if program.placements[name].kind not in ("input", "constant"):
            size = storage_numel(program.buffers[name]) * ITEM_SIZE_BYTES[program.buffers[name].dtype]
            changes[numbers[0]] += size
            changes[numbers[-1] + 1] -= size
    return max(itertools.accumulate(changes))


def kept_by(activation, call) -> int:
    """`most_needed` by a step over `LAYERS` layers, each called by `call`; its results are compared with eager's."""
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(Layer(activation) for _ in range(LAYERS))
    parameters = list(layers.parameters())

    def step(x):
        for each in parameters:
            each.grad = None
        for layer in layers:
            x = call(layer, x)
        loss = x.square().mean()
        loss.backward()
        return loss.detach()

    compiled = lampwork.compile(step, fullgraph=True, options={"cache": False})
    x = torch.randn(ROWS, WIDTH)
    expected = step(x), [each.grad for each in parameters]
    torch.testing.assert_close((compiled(x), [each.grad for each in parameters]), expected)
    (entry,) = compiled.__lampwork__.entries
    (program,) = entry.programs
    return most_needed(program)


def test_products_that_are_computed_again_wait_for_the_backward_pass():
    """Calls of what a checkpoint wraps ran ahead, in the forward pass: their results were kept after all."""
    kept = kept_by(torch.tanh, lambda layer, x: checkpoint(layer, x, use_reentrant=False))
    assert kept <= (LAYERS + 3 * 4 + 2) * BYTES  # an input for each layer, and what one layer needs


def test_factors_of_derivatives_are_computed_behind_the_forward_pass():
    """What a gradient is multiplied by was computed with the forward values that it is computed of, and kept in their place
    though it is wider."""

    def activation(x):
        return torch.nn.functional.silu(1.5 * x.bfloat16().float())

    kept = kept_by(activation, lambda layer, x: layer(x))
    assert kept <= ((1 + 2 + 4) * LAYERS + 2 * 4) * BYTES  # what two products read, and x in half precision
