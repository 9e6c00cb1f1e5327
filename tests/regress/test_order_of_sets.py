"""The order in which a set gives its elements is guarded where a program sees it: equal sets differ in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lampwork


def walked(x, numbers):
    return [x * n for n in numbers], list(numbers)


def unpacked(x, numbers):
    first, *_ = numbers
    return x * first, next(iter(numbers)), tuple(numbers), f"{numbers}", {**dict.fromkeys(numbers)}


def joined(x, numbers):
    return x, list(numbers | {16}), list(set(numbers)), [*numbers.union([5])], list(numbers ^ {3}), {3, *numbers}


def looked_up(x, numbers):
    return x * len(numbers), 8 in numbers, sorted(numbers), max(numbers), numbers == {0, 8}


@pytest.mark.parametrize("kind", [set, frozenset])
@pytest.mark.parametrize("program", [walked, unpacked, joined])
def test_equal_sets_in_another_order(program, kind):
    compiled = lampwork.compile(program)
    x = torch.arange(2.0)
    for numbers in ([0, 8], [8, 0], [0, 8], [1, 9, 17], [17, 9, 1]):
        assert str(compiled(x, kind(numbers))) == str(program(x, kind(numbers)))


def test_order_of_a_set_that_was_larger():
    numbers = set(range(100))
    for each in range(100):
        numbers.discard(each)
    numbers.update((64, 33, 1))
    assert list(set(numbers)) != list(numbers)
    assert lampwork.compile(walked)(torch.ones(1), numbers)[1] == list(numbers)


def test_membership_needs_no_order():
    compiled = lampwork.compile(looked_up)
    for numbers in ({0, 8}, {8, 0}):
        assert str(compiled(torch.ones(1), numbers)) == str(looked_up(torch.ones(1), numbers))
    assert lampwork.stats(compiled)["entries"] == 1


def added_and_walked(x, numbers):
    numbers.add(16)
    return x, list(numbers)


def test_set_that_the_program_changes_first():
    compiled = lampwork.compile(added_and_walked)
    for numbers in ([0, 8], [8, 0], range(3)):
        found, expected = set(numbers), set(numbers)
        assert compiled(torch.ones(1), found)[1] == added_and_walked(torch.ones(1), expected)[1]
        assert found == expected


_STORED = """
import torch, lampwork

def names(x):
    return x * 2, list({"query", "key", "value", "out"})

compiled = lampwork.compile(names)
print(compiled(torch.ones(1))[1] == names(torch.ones(1))[1], lampwork.stats(compiled)["cache_hits"])
"""


def test_texts_in_another_process(tmp_path):
    """Another process hashes texts in another way, and stored entries know that."""
    found = []
    for seed in ("1", "2", "1"):
        environment = {
            **os.environ, "PYTHONHASHSEED": seed, "LAMPWORK_CACHE": "1", "LAMPWORK_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        }  # fmt: skip
        script = tmp_path / "script.py"
        script.write_text(_STORED)
        run = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
        found.append(run.stdout.split())
    assert [right for right, _ in found] == ["True"] * 3
    assert [int(hits) > 0 for _, hits in found] == [False, False, True]
