"""Rules of backward passes are found by the names of their operators, which all say so: they are loaded late."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lampwork

PROGRAM = """
import importlib, json, pkgutil, sys
rules, package = map(importlib.import_module, sys.argv[1:])
before = set(rules.RULES)
found = rules.rule_of(sys.argv[1] + "::no_such_backward")
after = set(rules.RULES)
for each in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"{package.__name__}.{each.name}")
print(json.dumps([found, sorted(before), sorted(after), sorted(rules.RULES)]))
"""


@pytest.mark.parametrize(
    ("rules", "package"),
    [("lampwork.lower.rules", "lampwork.lower"), ("lampwork.fakes.shapes", "lampwork.fakes.rules")],
)
def test_every_late_rule_is_found(rules, package):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, rules, package],
        capture_output=True, text=True, check=True, cwd=Path(lampwork.__file__).parents[1],
    )  # fmt: skip
    found, before, after, every = json.loads(done.stdout)
    late = set(after) - set(before)
    assert found is None and after == every
    assert len(late) > 10 and all("backward" in name for name in late)
