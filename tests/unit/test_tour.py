"""docs/tour.py runs, computes what eager computes, and names files that are there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

import lampwork

PACKAGE = Path(lampwork.__file__).parent
TOUR = PACKAGE.parent / "docs" / "tour.py"

if sys.version_info[:2] != (3, 11):
    pytest.skip("the tour reads the byte code of CPython 3.11", allow_module_level=True)


@pytest.fixture(scope="module")
def tour():
    spec = importlib.util.spec_from_file_location("tour", TOUR)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tour"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["tour"]


def test_it_shows_every_stage(tour, capsys):
    tour.main()
    text = capsys.readouterr().out
    assert re.findall(r"^== (\w+)", text, re.M) == ["capture", "guards", "schedule", "generate", "runtime"]
    assert "another value of a global: 3 entries" in text


def normalized(x, scale):
    centred = x - x.sum(-1, True) / x.shape[1]
    squares = (centred * centred).sum(-1, True) / x.shape[1]
    return torch.exp(squares * scale) * centred


def test_it_computes_what_eager_computes(tour):
    fast = tour.Compiled(normalized)
    for rows, columns, scale in [(4, 8, 0.1), (1, 5, 0.1), (4, 8, 2), (4, 8, 0.1)]:
        x = torch.randn(rows, columns)
        torch.testing.assert_close(fast(x, scale), normalized(x, scale))
    assert len(fast.entries) == 3 and not fast.breaks
    x = torch.full((2, 3), float("nan"))
    relu = tour.Compiled(lambda x: torch.relu(x) + 1)
    assert relu(x).isnan().all() == (torch.relu(x) + 1).isnan().all()


def test_what_it_does_not_know_runs_eagerly(tour):
    fast = tour.Compiled(lambda x: x.cumsum(1))
    assert fast(torch.ones(1, 3)).tolist() == [[1, 2, 3]]
    assert fast.breaks == ["the attribute cumsum of a tensor"]


def test_the_files_it_names_are_there():
    named = re.findall(r"\b(?:lampwork/)?([a-z_]+(?:/[a-z_]+)*/(?:[a-z_]+\.py)?)", TOUR.read_text())
    assert len(named) > 20
    for name in named:
        if not name.startswith("docs/"):
            assert (PACKAGE / name).exists(), name
