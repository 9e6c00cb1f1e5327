"""Classes of stale entries that wait for the rebuild of capture, and the smallest program that shows each.

`CLASSES`: name of the class -> the kinds of changes (see `changes.py`, `process.py`) whose findings belong to it.
`EXAMPLES`: name of the class -> (reads of a program, the change that its entry does not notice). A test makes each, and
fails when an entry notices it: then it is taken out of here.
"""

from __future__ import annotations

from tests.mutation.run import Finding

CLASSES: dict[str, tuple[str, ...]] = {
    # What a class says of itself is read without a guard, and who registered with an abstract one.
    "names of classes": ("class renamed", "class qualname changed"),
    "bases of classes": ("bases extended",),
    "registration": ("class registered",),
}
EXAMPLES: dict[str, tuple[tuple[str, ...], str]] = {
    "names of classes": (("x = x + len(Part.__name__)",), "class renamed @ function.global['Part']"),
    "bases of classes": (("x = x + len(Part.__mro__)",), "bases extended @ function.global['Part']"),
    "registration": (("x = x + (1 if isinstance(ITEM, Shape) else 2)",), "class registered @ function.global['Shape']"),
}


def class_of(finding: Finding) -> str | None:
    """The known class that a finding belongs to; None for one that is new."""
    for name, kinds in CLASSES.items():
        if finding.change.kind in kinds:
            return name
    return None
