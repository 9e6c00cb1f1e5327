"""LAMPWORK_DEBUG: each level tells on stderr what the table of docs/debugging.md says, and those below it do not."""

from __future__ import annotations

import os
import sys
import warnings

import pytest
import torch

import lampwork
from lampwork.config import environment
from tests.processes import run_python

SHOWN = {
    1: ["compiled in ", "breaks there", "data-dependent", "what to do:", "no entry fits this call", "test_console.py:"],
    2: ["guards of the entry", "shape was [4], is now [6]"],
    3: ["graph, as captured", "graph, pure and simplified", "aten.mul.Tensor"],
    4: ["one loop nest an operator", "fused kernels", "launched 1 times"],
    5: ["host function", "def host(values", "LLVM IR", "define "],
}


def told(level: int, monkeypatch, capfd, function, *calls) -> str:
    monkeypatch.setitem(vars(environment), "debug", level)
    compiled = lampwork.compile(function, options={"cache": False})
    capfd.readouterr()
    with torch.no_grad():
        for args in calls:
            compiled(*args)
    captured = capfd.readouterr()
    assert not captured.out
    return captured.err


def breaking(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@pytest.mark.parametrize("level", range(6))
def test_levels(level, monkeypatch, capfd):
    text = told(level, monkeypatch, capfd, breaking, (torch.ones(4),), (torch.ones(6),))
    for each, expected in SHOWN.items():
        for words in expected:
            assert (words in text) == (each <= level), words


def test_a_model(monkeypatch, capfd):
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    model = BertModel(config).eval()
    text = told(1, monkeypatch, capfd, model, (torch.arange(8)[None],))
    assert text.startswith("lampwork BertModel: compiled in ") and "guards, on cpu" in text
    assert len(text.splitlines()) < 6


def test_fall_backs_are_told_once(monkeypatch, capfd):
    monkeypatch.setitem(vars(environment), "strict", False)

    def scaled(x, scale):
        return x * len(scale)

    compiled_calls = [(torch.ones(2), "a" * count) for count in range(1, 4)]
    monkeypatch.setitem(vars(environment), "debug", 1)
    compiled = lampwork.compile(scaled, options={"cache": False, "recompile_limit": 1}, dynamic=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in compiled_calls:
            compiled(*args)
    assert capfd.readouterr().err.count("[recompile-limit]") == 1


def test_stored_entries_are_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch, lampwork\n@lampwork.compile\ndef f(x):\n    return x + 1\nf(torch.ones(3))\n")
    known = {**os.environ, "LAMPWORK_CACHE": "1", "LAMPWORK_CACHE_DIR": str(tmp_path / "cache"), "LAMPWORK_DEBUG": "1"}
    known["PYTHONPATH"] = os.pathsep.join(sys.path)
    run = lambda: run_python([script], env=known, check=True).stderr
    assert "f: compiled in" in run()
    assert "f: loaded from the on-disk cache" in run()


def test_what_cannot_be_printed_is_no_business_of_the_program(monkeypatch):
    class Closed:
        def write(self, text):
            raise OSError("closed")

        flush = write

    monkeypatch.setitem(vars(environment), "debug", 1)
    monkeypatch.setattr(sys, "stderr", Closed())
    assert lampwork.compile(lambda x: x + 1, options={"cache": False})(torch.ones(2)).tolist() == [2, 2]
