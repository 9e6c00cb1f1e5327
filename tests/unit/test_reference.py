"""The API reference names all that the package offers, and docstrings become its text."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import lampwork

DOCS = Path(lampwork.__file__).parents[1] / "docs"


def loaded():
    specification = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


reference = loaded()


def test_every_public_name_has_its_place():
    named = reference.MARK.findall((DOCS / "api.md").read_text())
    assert len(named) == len(set(named)) and set(lampwork.__all__) - set(named) == {"__version__"}


def test_the_page_is_made_of_docstrings():
    page = reference.on_page_markdown((DOCS / "api.md").read_text())
    assert not reference.MARK.search(page)
    assert (
        "lampwork.compile(\n    function: Callable[..., Any] | None = None,\n    *,\n    fullgraph: bool = False,"
        in page
    )
    assert "| `fullgraph` | raise `GraphBreak` where the program holds" in page
    assert "lampwork.reset() -> None" in page and "```python\nfor batch in lampwork.watch(" in page
    assert "- `.pays`: Whether something compiled is the better choice" in page


def test_columns_become_tables():
    text = "One line.\n\nfirst    what it is,\n         in two lines\nsecond   3 | 4\n\n    code(1)\n\nThe end."
    assert reference.with_tables(text) == (
        "One line.\n\n| | |\n|---|---|\n| `first` | what it is, in two lines |\n| `second` | 3 &#124; 4 |\n\n"
        "```python\ncode(1)\n```\n\nThe end."
    )
