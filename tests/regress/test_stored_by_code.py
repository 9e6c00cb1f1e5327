"""Entries were kept from the on-disk cache by functions without an importable name behind `functools.lru_cache` (every
`Optional[int]` is one, so whole steps on PyTorch 2.11), and by `__new__` of classes written in C."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

from lampwork.ir.reference import reference, resolve
from tests.processes import run_python

PROGRAM = """
import functools
import json
import typing

import torch
import lampwork


def make(factor):
    @functools.lru_cache(maxsize=None)
    def scale(n):
        return n * factor

    return scale


scale = make(FACTOR)


def subscripts(x):
    return x * typing.cast(typing.Optional[int], 3) + typing.cast(typing.Dict[str, typing.List[int]], 1)


def closure(x):
    return x * scale(2)


found = []
for function in (subscripts, closure):
    compiled = lampwork.compile(function)
    value = compiled(torch.ones(2))[0].item()
    statistics = lampwork.stats(compiled)
    found.append([value, statistics["captures"], statistics["cache_hits"]])
print(json.dumps(found))
"""


def test_functions_without_a_name_are_told_by_their_code(tmp_path: Path) -> None:
    environment = {**os.environ, "LAMPWORK_CACHE_DIR": str(tmp_path / "cache")}
    program = tmp_path / "program.py"

    def run(factor: int) -> list:
        program.write_text(PROGRAM.replace("FACTOR", str(factor)))
        done = run_python([program], env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert run(1) == [[4, 1, 0], [2, 1, 0]]
    assert run(1) == [[4, 0, 1], [2, 0, 1]]
    assert run(5) == [[4, 0, 1], [10, 1, 0]]  # what the cached function returns is still compared


def test_constructors_of_native_classes_have_names() -> None:
    found = reference(itertools.chain.__new__)
    assert found.portable
    assert resolve(type(found)(*found.__getstate__())) is itertools.chain.__new__
