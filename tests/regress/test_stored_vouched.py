"""Entries with functions marked `allow_in_graph` or `assume_constant` were stored, and found after what those functions
call had been edited: capture runs them natively and sees nothing of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.processes import run_python

PROGRAM = """
import json
import sys

import torch
import lampwork

sys.path.insert(0, sys.argv[1])
import marked

def constant(x):
    return x * marked.number()

def whole(x):
    return marked.scaled(x) + 1

found = []
for function in (constant, whole):
    compiled = lampwork.compile(function)
    value = compiled(torch.ones(2))[0].item()
    statistics = lampwork.stats(compiled)
    found.append([value, statistics["captures"], statistics["cache_hits"]])
print(json.dumps(found))
"""

MARKED = """
import lampwork
from marked import helper

@lampwork.assume_constant
def number():
    return helper.factor()

@lampwork.allow_in_graph
def scaled(x):
    return x * helper.factor()
"""


class Runs:
    """The program, run in processes of its own, beside a library at `library`."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.program, self.library = folder / "program.py", library
        self.installed = library.name == "site-packages"
        self.environment = {**os.environ, "LAMPWORK_CACHE_DIR": str(folder / "cache")}
        self.program.write_text(PROGRAM)

    def __call__(self, factor: int) -> list:
        (self.library / "marked" / "helper.py").write_text(f"def factor():\n    return {factor}\n")
        done = run_python([self.program, self.library], env=self.environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(params=["site-packages", "project"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    library = tmp_path / request.param
    (library / "marked").mkdir(parents=True)
    (library / "marked" / "__init__.py").write_text(MARKED)
    return Runs(tmp_path, library)


def test_what_marked_functions_call_is_edited(runs: Runs) -> None:
    assert runs(5) == [[5.0, 1, 0], [6.0, 1, 0]]
    again = runs(5)
    assert [row[0] for row in again] == [5.0, 6.0]
    assert all(row[1:] == ([0, 1] if runs.installed else [1, 0]) for row in again)
    assert [row[0] for row in runs(7)] == [7.0, 8.0]
