"""LAMPWORK_STOP_AT: every stage of real programs gives eager's answer, and a fault shows from its own stage on."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

import lampwork
from lampwork.config import STOPS, environment
from lampwork.lower.rules import RULES


@pytest.fixture(params=STOPS)
def stage(request, monkeypatch):
    monkeypatch.setitem(vars(environment), "stop_at", request.param)
    return request.param


class Convolutional(torch.nn.Module):
    """Batch norms write their statistics; `head` is a view of its input."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.last = torch.nn.Linear(4, 5)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.last(x.mean((2, 3))), x.flatten(1)


def test_writes_and_views(stage):
    model = Convolutional()
    eager, compiled = copy.deepcopy(model), lampwork.compile(model)
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), eager(x))
    torch.testing.assert_close(model.norm.running_var, eager.norm.running_var)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_gradients(stage):
    model = Convolutional()
    eager, x = copy.deepcopy(model), torch.randn(2, 3, 6, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if stage != "graph" else "ignore")  # which says where it begins
        lampwork.compile(model)(x)[0].square().sum().backward()
    eager(x)[0].square().sum().backward()
    for ours, theirs in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)


def test_a_transformer(stage):
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model, tokens = BertModel(config).eval(), torch.arange(8)[None]
    compiled = lampwork.compile(model)
    with torch.no_grad():
        torch.testing.assert_close(compiled(tokens)[0], model(tokens)[0])
        torch.testing.assert_close(compiled(tokens[:, :5])[0], model(tokens[:, :5])[0])  # with symbols
        torch.testing.assert_close(compiled(tokens[:, :6])[0], model(tokens[:, :6])[0])


def test_breaks_identities_and_sizes_by_contents(stage):
    def program(x, kept):
        kept.add_(1)
        picked = x[x > 0] * 2
        if kept.sum() > 3:
            picked = picked + 1
        return x, picked, x.t()

    kept = torch.zeros(3)
    x = torch.randn(4, 5)
    same, picked, turned = lampwork.compile(program)(x, kept)
    expected = program(x, torch.zeros(3))
    assert same is x and turned.data_ptr() == x.data_ptr() and turned._base is x
    torch.testing.assert_close(picked, expected[1])
    assert kept.tolist() == [1, 1, 1] and kept._version == 1


def test_a_fault_shows_from_its_stage_on(stage, monkeypatch):
    monkeypatch.setitem(RULES, "aten::neg.default", RULES["aten::abs.default"])
    answer = lampwork.compile(lambda x: (-x).exp())(torch.ones(2))
    assert torch.allclose(answer, torch.ones(2).neg().exp()) == (stage in ("graph", "functional"))


def test_loops_are_not_interpreted_on_a_gpu():
    from dataclasses import replace

    from lampwork.config import Settings
    from lampwork.debug.stop_at import KeptStages
    from lampwork.errors import CompileError
    from lampwork.pipeline import compile_call

    artifact = compile_call(lambda x: x + 1, (torch.ones(2),), {}, Settings())
    moved = replace(artifact, program=replace(artifact.program, device="cuda:0"))
    with pytest.raises(CompileError, match="graph and functional run there"):
        KeptStages("lowered").interpreters(moved)
