"""What looks at compiles, or measures them, finds nothing that an equal module has left (`runtime/siblings.py`)."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.config import use_cache_dir
from lampwork.lower.rules import RULES


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))[1:] * 2


@lampwork.disable
def not_compiled():
    pass


class Breaking(Block):
    def forward(self, x):
        y = super().forward(x)
        not_compiled()
        return y + 1


X = torch.linspace(-1, 1, 12).view(3, 4)


def compiled(module=Block, **options):
    made = lampwork.compile(module(), options=options)
    made(X)
    return made


def captures(made):
    return lampwork.stats(made)["captures"]


def test_explain_shows_all_stages():
    alone = lampwork.explain(Breaking(), X)
    kept = compiled(Breaking, cache=False)
    beside = lampwork.explain(Breaking(), X)
    assert beside["graph"] == alone["graph"] and beside["kernels"] == alone["kernels"]
    assert captures(kept) == 2


def test_verify_blames_the_pass_that_is_wrong(monkeypatch):
    rule = RULES["aten::slice.Tensor"]
    wrong = lambda lowering, self, dim=0, start=None, end=None, step=1: rule(lowering, self, dim, 0, 2, step)
    monkeypatch.setitem(RULES, "aten::slice.Tensor", wrong)
    answer = lampwork.verify(Block(), X)
    assert not answer.right and answer.blame is not None and answer.blame.stage == "lower"


def test_a_compile_in_another_folder_is_cold(tmp_path):
    """`lampwork.assess` measures compiles, and starts with what they have stored."""
    with use_cache_dir(str(tmp_path / "first")):
        first = compiled()
        inside = compiled()
    with use_cache_dir(str(tmp_path / "second")):
        second = compiled()
        with use_cache_dir(str(tmp_path / "second")):
            third = compiled()
    assert [captures(each) for each in (first, inside, second, third)] == [1, 0, 1, 0]
    assert lampwork.stats(third)["compile_seconds"].keys() == {"load"}


@pytest.fixture(autouse=True)
def _anew():
    lampwork.reset()
