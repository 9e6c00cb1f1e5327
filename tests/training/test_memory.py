"""What the backward pass of a compiled region occupies: saved tensors until their last use, layers one at a time."""

from __future__ import annotations

import pytest
import torch

import lampwork

WIDTH, ROWS, LAYERS = 64, 512, 8


def network():
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU("tanh")) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers)


def compiled_network(**options):
    module = network()
    return module, lampwork.compile(module, options={"cache": False, **options})


def backward_artifact(compiled):
    (entry,) = compiled.__lampwork__.entries
    return entry.artifact.backward.artifact


def test_layers_that_are_computed_again_take_turns():
    _, compiled = compiled_network()
    compiled(torch.randn(ROWS, WIDTH)).sum().backward()
    program = backward_artifact(compiled).program
    assert program.workspace_bytes <= 4 * (4 * ROWS * WIDTH), program.workspace_bytes  # of 8 layers


def test_saved_tensors_are_given_back_while_the_backward_pass_runs():
    _, compiled = compiled_network()
    result = compiled(torch.randn(ROWS, WIDTH))
    result.sum().backward()
    source = backward_artifact(compiled).host_source
    assert "values.clear()" in source
    deleted = [place for place, line in enumerate(source.splitlines()) if line.strip().startswith("del x")]
    assert len(deleted) >= LAYERS and len(set(deleted)) == len(deleted)


def test_a_graph_is_walked_once():
    _, compiled = compiled_network()
    result = compiled(torch.randn(ROWS, WIDTH))
    result.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        result.sum().backward()


def test_a_retained_graph_is_walked_again():
    module, compiled = compiled_network()
    x = torch.randn(ROWS, WIDTH)
    loss = compiled(x).square().sum()
    loss.backward(retain_graph=True)
    first = [parameter.grad.clone() for parameter in module.parameters()]
    loss.backward()
    for parameter, once in zip(module.parameters(), first):
        torch.testing.assert_close(parameter.grad, 2 * once)
