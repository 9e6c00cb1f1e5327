"""What the policy of a selective checkpoint says is saved is saved; the rest is computed again."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import lampwork
from lampwork.ir.program import Extern

aten = torch.ops.aten


def products_of_backward(policy):
    """How many matrix products the backward pass of a checkpointed function with two runs."""

    def block(x, first, second):
        return ((x @ first).sin() @ second).cos()

    options = {"use_reentrant": False}
    if policy is not None:
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, policy)
    compiled = lampwork.compile(lambda *inputs: checkpoint(block, *inputs, **options), options={"cache": False})
    inputs = [torch.randn(64, 64, generator=torch.Generator().manual_seed(n)).requires_grad_() for n in range(3)]
    found = torch.autograd.grad(compiled(*inputs).sum(), inputs)
    for one, other in zip(found, torch.autograd.grad(block(*inputs).sum(), inputs)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"]
    (entry,) = compiled.__lampwork__.entries
    program = entry.artifact.backward.artifact.program
    return sum("mm" in step.op for step in program.steps if isinstance(step, Extern))


def every_second():
    seen = []

    def policy(context, operator, *args, **kwargs):
        if operator == aten.mm.default:
            seen.append(operator)
        return CheckpointPolicy.MUST_SAVE if len(seen) == 2 else CheckpointPolicy.MUST_RECOMPUTE

    return policy


@pytest.mark.parametrize(
    "policy, again",
    [
        (None, 2),
        ([aten.sin.default], 2),
        ([aten.mm.default], 0),
        (lambda context, operator, *args, **kwargs: operator == aten.mm.default, 0),
        (lambda context, operator, *args, **kwargs: CheckpointPolicy.PREFER_RECOMPUTE, 2),
        (every_second(), 1),
    ],
)
def test_products_computed_again(policy, again):
    assert products_of_backward(policy) == 4 + again
