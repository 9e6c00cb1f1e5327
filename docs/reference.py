"""Puts signatures and docstrings into the pages of the site: a hook of mkdocs (see mkdocs.yml).

A line `::: NAME` of a page becomes the heading, signature and docstring of `lampwork.NAME`. Lists of docstrings, which
are columns of text, become tables:

    function   what is compiled; or something       | name       | meaning                                      |
               compiled already                     | `function` | what is compiled; or something compiled ...  |
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
import typing
from collections.abc import Callable

import lampwork

MARK = re.compile(r"^::: ([\w.]+)$", re.M)
PAGE = re.compile(r"docs/([\w/-]+\.md)")
ENTRY = re.compile(r"([\w.*]+(?:, [\w.*]+)*)\s{2,}(\S.*)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """What mkdocs calls for each page."""
    return MARK.sub(lambda found: described(found[1]), markdown)


def described(name: str) -> str:
    """Markdown about `lampwork.NAME`. Raises AttributeError for a name that is not there, ValueError for one without
    a docstring."""
    module, _, last = name.rpartition(".")
    home = importlib.import_module(f"lampwork.{module}") if module else lampwork
    thing = getattr(home, last)
    if not (thing.__doc__ or "").strip():
        raise ValueError(f"lampwork.{name} has no docstring")
    parts = [f"### {last}" if module else f"### lampwork.{last}"]
    if module:
        parts.append(f"`lampwork.{name}`")
    elif signature(last, thing):
        parts.append(f"```python\n{signature(last, thing)}\n```")
    parts.append(PAGE.sub(r"[\1](\1)", with_tables(inspect.cleandoc(thing.__doc__))))
    if inspect.isclass(thing):
        parts += members(thing)
    return "\n\n".join(parts) + "\n"


def signature(name: str, thing: Callable) -> str:
    """`thing` as it is called, a parameter a line if they are many; empty for an error, which nobody makes."""
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return ""
    # Annotations are text already (`from __future__ import annotations`): without quotes they are what was written.
    found = re.sub(r"'((?:[^'\\]|\\.)*)'(?=[,)=\s]|$)", lambda each: _bare(each[1]), str(inspect.signature(thing)))
    if typing.get_overloads(thing):
        found = found.rpartition(" -> ")[0]  # it depends on what is given: the docstring says how
    text = f"lampwork.{name}{found}"
    if len(text) <= 100:
        return text
    inside, _, result = text.partition("(")[2].rpartition(")")
    parameters = re.split(r", (?=\*?\*?\w+(?::|=|,|$)|\*,)", inside)
    return f"lampwork.{name}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){result}"


def _bare(text: str) -> str:
    """An annotation without its quotes; a default value keeps them."""
    return f"'{text}'" if text in ("lampwork", "default") else text


def members(thing: type) -> list[str]:
    """A list of the public methods and properties that have docstrings, and were not told of as fields."""
    fields = {each.name for each in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    found = []
    for name, member in vars(thing).items():
        text = inspect.getdoc(member) if isinstance(member, property) or inspect.isfunction(member) else None
        if text and not name.startswith("_") and name not in fields:
            called = "" if isinstance(member, property) else "()"
            found.append(f"- `.{name}{called}`: {' '.join(text.split())}")
    return ["\n".join(found)] if found else []


def with_tables(text: str) -> str:
    """Paragraphs of columns as tables; indented ones as code; all else as it is."""
    made = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.split("\n")
        if all(line.startswith("    ") for line in lines):
            made.append(f"```python\n{textwrap.dedent(paragraph)}\n```")
        elif ENTRY.fullmatch(lines[0]):
            made.append(table(lines))
        else:
            made.append(paragraph)
    return "\n\n".join(made)


def table(lines: list[str]) -> str:
    rows: list[list[str]] = []
    for line in lines:
        found = ENTRY.fullmatch(line)
        if found and not line.startswith(" "):
            rows.append([found[1], found[2]])
        else:
            rows[-1][1] += " " + line.strip()
    cells = ["| | |", "|---|---|"] + [f"| `{name}` | {text.replace('|', '&#124;')} |" for name, text in rows]
    return "\n".join(cells)
