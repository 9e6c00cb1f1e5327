"""Natives that capture has answers for: one table a module, all of them gathered."""

import re
from collections import Counter
from pathlib import Path

import lampwork.capture
from lampwork.capture.machine.natives import InPython
from lampwork.capture.natives.tables import MODULES, NATIVES

CAPTURE = Path(lampwork.capture.__file__).parent


def test_every_table_is_gathered():
    files = {path for path in CAPTURE.rglob("*.py") if re.search(r"^NATIVES: dict", path.read_text(), re.M)}
    assert files == {Path(module.__file__) for module in MODULES}


def test_no_native_is_in_two_tables():
    counts = Counter(native for module in MODULES for native in module.NATIVES)
    assert [native for native, count in counts.items() if count > 1] == []


def test_a_native_has_an_answer_or_a_version_in_python():
    assert not NATIVES.intrinsics.keys() & NATIVES.substitutes.keys()
    assert not any(isinstance(answer, InPython) for answer in NATIVES.intrinsics.values())
    assert NATIVES.names >= {native.__name__ for native in NATIVES.substitutes}
