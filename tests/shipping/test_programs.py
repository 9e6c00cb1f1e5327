"""The programs of `tests/python`, by way of a file: beside their functions, and packaged, they equal eager as well."""

from __future__ import annotations

import collections
import os
import random
import re
import warnings

import pytest
import torch

import lampwork
from tests.python.compare import Comparison, Mismatch
from tests.python.harness import REMAINING as HARNESS
from tests.python.harness import Side, all_programs, load_feature
from tests.python.harness import _installed as installed

#: Programs whose packages differ from them by intent: why.
BY_INTENT = {"batch_norm_by_hand": "the buffer in the result is the package's"}
#: Objects of the program's classes are of plain ones; exceptions have eager's type, and our words.
PLAIN = re.compile(r"a \S+ in eager, a (Output|Attributes|tuple) compiled$|exception.args\[0\]")
#: Programs that entries from a file do not serve right: those that do not equal eager at all, and defects of entries
#: that show as soon as a later entry serves an earlier call, in memory and from the on-disk cache as well.
REMAINING = HARNESS | {
    "property_that_is_cached": "two floats that were one object are equal ones when they are stored",
    "flags_decide": "reading a member of several flags makes it known to its enumeration",
}


def called(feature, name, compiled):
    """A program that was called as its harness does."""
    torch.manual_seed(0)
    side = Side(feature, name, compiled)
    for number, which in enumerate(side.program.order):
        side.call(which, number)
    return side


def packaged(feature, name, path):
    """What comes of one more call of a package, made after the calls of the harness; "same" where it equals eager's."""
    eager, side = called(feature, name, False), called(feature, name, True)
    try:
        with installed(side.module), warnings.catch_warnings():
            warnings.simplefilter("ignore", lampwork.LampworkWarning)
            lampwork.package(side.function, path)
            side.function = lampwork.load(path)
    except lampwork.ArtifactError:
        return "refused"
    which = eager.program.order[-1]
    try:
        Comparison(eager.module.__name__).compare(eager.call(which, 99), side.call(which, 99))
    except lampwork.NotServedError:
        return "not served"
    except Mismatch as difference:
        return "plain" if PLAIN.search(str(difference)) else f"{name}, packaged: {difference}"
    return "same"


def loaded(feature, name, path):
    """What comes of all calls of a function that was loaded from a file; "same" where it equals eager."""
    side = called(feature, name, True)
    try:
        with installed(side.module), warnings.catch_warnings():
            warnings.simplefilter("ignore", lampwork.LampworkWarning)
            lampwork.save(side.function, path)
    except lampwork.ArtifactError:
        return "refused"
    torch.manual_seed(0)
    eager, side = Side(feature, name, False), Side(feature, name, False)
    with installed(side.module):
        side.function = lampwork.load(path, side.function)
    for number, which in enumerate(eager.program.order):
        try:
            Comparison(eager.module.__name__).compare(eager.call(which, number), side.call(which, number))
        except Mismatch as difference:
            return f"{name}, loaded: {difference}"
    return "same"


def run(programs, tmp_path):
    """(differences, how often each way came out how)."""
    ends: collections.Counter[tuple[str, str]] = collections.Counter()
    differences = []
    for feature, name in programs:
        for way, known in ((packaged, BY_INTENT), (loaded, REMAINING)):
            if name not in known:
                end = way(feature, name, tmp_path / "it.lamp")
                if end not in ("same", "plain", "refused", "not served"):
                    differences.append(end)
                ends[way.__name__, end] += 1
    return differences, ends


def test_some_programs(tmp_path):
    programs = [(feature, name) for feature in ("basics", "containers") for name in load_feature(feature)[1]]
    differences, ends = run(random.Random(0).sample(programs, 15), tmp_path)
    assert not differences, "\n".join(differences)
    assert ends["loaded", "same"] > 10 and ends["packaged", "same"] > 5, ends


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_all_programs(part, tmp_path):
    programs = all_programs()[part::16]
    differences, ends = run(programs, tmp_path)
    assert not differences, "\n".join(differences)
    assert ends["loaded", "same"] > len(programs) // 2 and ends["packaged", "same"] > len(programs) // 3, ends
    assert os.environ.get("LAMPWORK_STRICT") == "1"
