"""`explain --dump`: a file for each stage, and scripts that compile each graph in a process that knows no file of the
user's."""

from __future__ import annotations

import os
import re
import sys

import pytest
import torch

import lampwork
from lampwork.cli import main
from lampwork.debug.graph_code import NotWritten, constant_code, unique
from tests.processes import run_python

STAGES = (
    "00_summary.txt", "01_bytecode.txt", "02_graph.py", "03_functional.py", "04_loops.txt", "05_kernels.txt",
    "07_generated.ll", "08_host.py", "09_guards.txt", "10_entry.py", "repro.py",
)  # fmt: skip

SCRIPT = """
import torch


class Convolutional(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.dropout = torch.nn.Dropout(0.1)
        self.last = torch.nn.Linear(4, 5)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.last(self.dropout(x.mean((2, 3))))


def convolutional():
    return Convolutional(), (torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last),)


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    return BertModel(config).eval(), (torch.arange(8)[None],)


def divided(x):
    y = x.sin() + torch.tensor([1.0, float("inf"), 3.0, 4.0])
    if y.nan_to_num(posinf=0).sum() > 0:
        y = y + 1
    found = y.isfinite().nonzero()
    open("/dev/null").close()
    return y.softmax(-1), found


def breaks():
    return divided, (torch.randn(4, 6).t(),)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    yield tmp_path / "dump"
    sys.modules.pop("script", None)


def explain(target, *options):
    assert main(["explain", f"script.py::{target}", "--dump", "dump", *options]) == 0


def run(folder, *scripts):
    """What the scripts print, all of them in one new process; what differs from eager by more than rounding fails."""
    (folder.parent / "script.py").unlink(missing_ok=True)
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[1:])}
    runs = "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path, run_name='__main__')\n"
    text = run_python(["-c", runs, *scripts], env=known, cwd=folder, check=True).stdout
    for error in re.findall(r"differs (?:by at most|in) (\S+)", text):
        assert float(error) < 1e-5, text
    return text


def test_a_transformer(folder, capsys):
    explain("bert")
    written = capsys.readouterr().out.split()
    assert {os.path.basename(path) for path in written} >= set(STAGES)
    assert all(os.path.getsize(path) > 20 for path in written)
    text = run(folder, folder / "repro.py")
    assert "result 0: float32[1, 8, 16]" in text and "afterwards" not in text


def test_training(folder):
    explain("convolutional", "--grad-mode", "grad")
    assert (folder / "03_functional_backward.py").exists() and (folder / "05_kernels_backward.txt").exists()
    assert "requires_grad_()" in (folder / "repro.py").read_text()
    assert (
        "(432, 1, 72, 12)" in (folder / "repro.py").read_text()
        or "(108, 1, 18, 3)" in (folder / "repro.py").read_text()
    )
    text = run(folder, folder / "repro.py")
    assert "gradient of self_first_weight" in text and "self_norm_running_var afterwards" in text


def test_breaks(folder):
    explain("breaks")
    graphs = sorted(folder.glob("graph_*"))
    assert len(graphs) >= 3
    assert (folder / "00_summary.txt").read_text().startswith("graph_1: divided\ngraph_2: divided, continued at ")
    for graph in graphs:
        assert "divided" in (graph / "01_bytecode.txt").read_text()
        compile((graph / "02_graph.py").read_text(), "graph", "exec")
    text = run(folder, *[graph / "repro.py" for graph in graphs])
    assert "int64[24, 2]" in text or "int64[" in text


def test_sizes_that_vary(tmp_path):
    compiled = lampwork.compile(lambda x: (x[: x.shape[0] // 2] * 2).sum(0), dynamic=True)
    lampwork.explain(compiled, torch.randn(6, 4)).dump(tmp_path / "dump")
    assert re.search(r"(\w+) = x.shape\[0\]", (tmp_path / "dump" / "02_graph.py").read_text())
    assert "result 0: float32[4]" in run(tmp_path / "dump", tmp_path / "dump" / "repro.py")


def test_what_is_no_python(tmp_path):
    with pytest.raises(NotWritten):
        constant_code(torch.zeros(1 << 13))
    assert unique("self.layers[3].weight", {"self_layers_3_weight"}) == "self_layers_3_weight_2"
    assert unique("lambda", set()) == "lambda_2"


def test_folders_that_cannot_be_written(folder, capsys):
    folder.write_text("a file")
    assert main(["explain", "script.py::convolutional", "--dump", "dump"]) == 2
    assert "--dump" in capsys.readouterr().err
