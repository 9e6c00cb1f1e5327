"""Classes of stale entries that wait for the rebuild of capture, and the smallest program that shows each.

`CLASSES`: name of the class -> the kinds of changes (see `changes.py`, `process.py`) whose findings belong to it.
`EXAMPLES`: name of the class -> (reads of a program, the change that its entry does not notice). A test makes each, and
fails when an entry notices it: then it is taken out of here.
"""

from __future__ import annotations

from tests.mutation.run import Finding

CLASSES: dict[str, tuple[str, ...]] = {}
EXAMPLES: dict[str, tuple[tuple[str, ...], str]] = {}


def class_of(finding: Finding) -> str | None:
    """The known class that a finding belongs to; None for one that is new."""
    for name, kinds in CLASSES.items():
        if finding.change.kind in kinds:
            return name
    return None
