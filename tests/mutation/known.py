"""Classes of stale entries that wait for a repair, and the smallest program that shows each.

`CLASSES`: name of the class -> the kinds of changes (see `changes.py`, `process.py`) whose findings belong to it.
`EXAMPLES`: name of the class -> (reads of a program, the change that its entry does not notice). A test makes each, and
fails when an entry notices it: then it is taken out of here, and belongs to `NOTICED`.
`NOTICED`: the smallest program of what was stale once, and the change; a test makes each.
"""

from __future__ import annotations

from tests.mutation.run import Finding

CLASSES: dict[str, tuple[str, ...]] = {}
EXAMPLES: dict[str, tuple[tuple[str, ...], str]] = {}
NOTICED: dict[str, tuple[tuple[str, ...], str]] = {
    "names of classes": (("x = x + len(Part.__name__)",), "class renamed @ function.global['Part']"),
    "qualified names": (("x = x + len(Part.__qualname__)",), "class qualname changed @ function.global['Part']"),
    "texts of classes": (("x = x + len(str(Part.__doc__))",), "class doc changed @ function.global['Part']"),
    "bases of classes": (
        ("x = x + len(Part.__mro__)",),
        "bases extended @ function.global['Part']",
    ),
    "registration": (("x = x + (1 if isinstance(ITEM, Shape) else 2)",), "class registered @ function.global['Shape']"),
    "two objects": (
        ("x = x + (1 if ITEM == ITEM2 else 2)",),
        "made one object @ function.global['ITEM2'] = function.global['ITEM']",
    ),
    "two objects as keys": (
        ("x = x + len({ITEM, ITEM2})",),
        "made one object @ function.global['ITEM2'] = function.global['ITEM']",
    ),
    "counted objects": (
        ("x = x + [ITEM, ITEM2].count(ITEM)",),
        "made one object @ function.global['ITEM2'] = function.global['ITEM']",
    ),
    "one object": (
        ("x = x + (1 if ITEM == SAME else 2) + len({ITEM: 1, SAME: 2})",),
        "made another object @ function.global['ITEM']",
    ),
    "annotations": (("x = x + len(Part.__annotations__)",), "class annotations changed @ function.global['Part']"),
    "hooks of classes that are made": (
        ("class Made(Base): pass\nx = x + getattr(Made, 'changed', 3)",),
        "class gets __init_subclass__ @ function.global['Base']",
    ),
    "absent default values": (
        ("try: x = CLOSURE()\nexcept TypeError: x = x + 1",),
        "defaults added @ function.global['CLOSURE']",
    ),
    "where code was written": (
        ("x = x + helper.__code__.co_firstlineno",),
        "function moved @ function.global['helper']",
    ),
    "absent modules": (
        ("try:\n    import absent_module; x = x + 1\nexcept ImportError: x = x + 2",),
        "import succeeds @ absent_module",
    ),
    "modules": (
        ("try:\n    import string; x = x + 1\nexcept ImportError: x = x + 2",),
        "import fails @ string",
    ),
    "operators of tensors": (("x = -x[1:]",), "operator of tensors patched @ __neg__"),
    "names of members": (
        ("x = x + len(Kind.ONE._name_)",),
        "attribute deleted @ function.global['Kind'].member['ONE'].attribute['_name_']",
    ),
}


def class_of(finding: Finding) -> str | None:
    """The known class that a finding belongs to; None for one that is new."""
    for name, kinds in CLASSES.items():
        if finding.change.kind in kinds:
            return name
    return None
