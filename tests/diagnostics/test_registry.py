"""Every diagnostic has one id, in one registry, with one page; and each page's program brings its id up."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import types
import warnings
from pathlib import Path

import pytest
import torch

from lampwork.config import environment
from lampwork.debug.diagnostics import DIAGNOSTICS, KINDS, index_text
from tests.diagnostics.scan import all_ids

PAGES = Path(__file__).parents[2] / "docs" / "diagnostics"
BLOCK = re.compile(r"^```python(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The release of PyTorch that a page's program needs: `Function.apply` took no arguments by name.
NEEDED_RELEASE = {"autograd-function": (2, 13)}
NO_PROGRAM = "No small program of a user's shows it"
HOW_TO_ADD = """
A new id needs
  1. a line in lampwork/debug/diagnostics.py: its kind, one sentence on what happened, what the user can do;
  2. a page docs/diagnostics/<id>.md: copy one of the same kind. It begins with "# <id>", repeats that sentence and the
     remedy, and shows the smallest program in a ```python block which prints `[<id>]` (```python gpu, or gpus for two,
     where it needs them; the sentence "No small program of a user's shows it" where there is none);
  3. docs/diagnostics/README.md written again: python -m tests.diagnostics.test_registry
"""


def page(id):
    return (PAGES / f"{id}.md").read_text()


def joined(text):
    return " ".join(text.split())


def test_every_id_that_the_code_makes_is_registered():
    missing = {id: places for id, places in all_ids().items() if id not in DIAGNOSTICS}
    told = "\n".join(f"{id}, made at {', '.join(places)}, is not registered" for id, places in missing.items())
    assert not missing, told + HOW_TO_ADD


def test_every_registered_id_is_made_somewhere():
    unused = set(DIAGNOSTICS) - set(all_ids())
    assert not unused, f"nothing makes {sorted(unused)}: take the line out of the registry and remove the page"


def test_every_id_has_a_page_and_every_page_an_id():
    pages = {path.stem for path in PAGES.glob("*.md")} - {"README"}
    assert not set(DIAGNOSTICS) - pages, f"no page for {sorted(set(DIAGNOSTICS) - pages)}" + HOW_TO_ADD
    assert not pages - set(DIAGNOSTICS), f"no id for the pages {sorted(pages - set(DIAGNOSTICS))}" + HOW_TO_ADD


@pytest.mark.parametrize("id", DIAGNOSTICS)
def test_a_page_says_what_the_registry_says(id):
    text = page(id)
    assert text.startswith(f"# {id}\n"), HOW_TO_ADD
    assert KINDS[DIAGNOSTICS[id].kind] in text
    assert joined(DIAGNOSTICS[id].meaning) in joined(text), HOW_TO_ADD
    assert joined(DIAGNOSTICS[id].remedy) in joined(text), HOW_TO_ADD
    assert "## What it costs" in text
    assert bool(BLOCK.search(text)) is not (NO_PROGRAM in text), HOW_TO_ADD


def test_the_index_lists_them_all():
    assert (PAGES / "README.md").read_text() == index_text(), HOW_TO_ADD


def run_block(id, source, monkeypatch):
    """What the program prints, with the warnings it causes."""
    monkeypatch.setitem(vars(environment), "strict", False)  # as users run it: some programs make a stage fail
    monkeypatch.setitem(vars(environment), "cache", False)
    name = f"lampwork_page_{id.replace('-', '_')}"
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        exec(compile(source, str(PAGES / f"{id}.md"), "exec"), module.__dict__)
    return printed.getvalue() + "\n".join(str(each.message) for each in caught)


@pytest.mark.parametrize("id", [id for id in DIAGNOSTICS if NO_PROGRAM not in page(id)])
def test_the_program_of_a_page_shows_its_id(id, monkeypatch):
    needs, source = BLOCK.search(page(id)).groups()
    if torch.cuda.device_count() < {None: 0, "gpu": 1, "gpus": 2}[needs]:
        compile(source, id, "exec")  # tests/gpu runs it
        return
    if tuple(map(int, torch.__version__.split(".")[:2])) < NEEDED_RELEASE.get(id, ()):
        compile(source, id, "exec")
        return
    assert f"[{id}]" in run_block(id, source, monkeypatch), HOW_TO_ADD


if __name__ == "__main__":
    (PAGES / "README.md").write_text(index_text())
