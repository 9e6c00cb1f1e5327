"""Every diagnostic id that the code can raise, found in its text."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import lampwork

PACKAGE = Path(lampwork.__file__).parent

#: What makes a diagnostic: the name that is called, and which argument is the id (position, keyword, default).
MAKERS = {
    "Diagnostic": (0, "id", None),
    "Break": (0, "id", None),
    "BreakReason": (0, "id", None),
    "RunEagerly": (0, "id", None),
    "Refusal": (0, "id", None),
    "NotCapturable": (0, "id", None),
    "RefusedFusion": (0, "id", None),
    "_refusing": (0, "id", None),  # the rows of `capture/natives/rules.py`
}
#: Those of `lampwork.fakes`, whose id has a default; the bytecode machine has an `Unsupported` of its own.
UNSUPPORTED = {"Unsupported": (2, "id", "unsupported-operator"), "DataDependent": (2, "id", "data-dependent")}


def ids_of(path: Path) -> Iterator[tuple[str, int]]:
    """(id, line) of each diagnostic that the text of `path` makes. Ids that are passed on (`stop.id`) are made elsewhere."""
    tree = ast.parse(path.read_text())
    makers = dict(MAKERS)
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for name in ("Unsupported", "DataDependent"):
        if imported.get(name, "").startswith("lampwork.fakes.") or path.name == "fake.py":
            makers[name] = UNSUPPORTED[name]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", None))
        if name not in makers:
            continue
        position, keyword, default = makers[name]
        given = next((each.value for each in node.keywords if each.arg == keyword), None)
        if given is None and len(node.args) > position:
            given = node.args[position]
        yield from ((text, node.lineno) for text in _texts(given, default))


def _texts(given: ast.expr | None, default: str | None) -> Iterator[str]:
    if given is None:
        if default is not None:
            yield default
    elif isinstance(given, ast.Constant):
        yield given.value
    elif isinstance(given, ast.IfExp):
        yield from _texts(given.body, None)
        yield from _texts(given.orelse, None)
    elif not isinstance(given, (ast.Attribute, ast.Name, ast.Starred)):
        yield f"<{ast.unparse(given)}>"


@functools.cache
def all_ids() -> dict[str, list[str]]:
    """Each id, with the places that make it, as "file:line"."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for id, line in ids_of(path):
            found.setdefault(id, []).append(f"lampwork/{path.relative_to(PACKAGE)}:{line}")
    return found


if __name__ == "__main__":
    for id, places in sorted(all_ids().items()):
        print(f"{id:24s} {', '.join(places)}")
