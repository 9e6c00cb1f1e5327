"""Recordings of one checkout are identical, in processes that hash otherwise; what differs is found and shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.replay.compare import canonical, difference, differing_parts, read, table

ROOT = Path(__file__).parents[2]


def _replay(seed: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.replay", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip


def test_two_recordings_of_one_checkout_are_identical(tmp_path):
    chosen = ("--sets", "models", "mechanisms", "--only", "la")
    first = _replay(1, "--record", str(tmp_path / "one"), *chosen)
    assert first.returncode == 0, first.stderr
    second = _replay(2, "--compare", str(tmp_path / "one"), "--record", str(tmp_path / "two"), *chosen)
    assert second.returncode == 0, second.stdout + second.stderr
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    found, _ = read(tmp_path / "one")
    assert {name.split()[0] for name in found} == {"cpu", "gpu"}
    for parts in found.values():
        assert (
            parts["graph"] and parts["guards"] and parts["loops"] and parts["host"] and "raised" not in parts["counts"]
        )
        assert ("llvm" in parts["code"] or "define" in parts["code"] or "triton" in parts["code"]) == (
            "kernels: 0" not in parts["counts"]
        )


def test_numbers_in_names_are_no_difference():
    before = {"kernels": "add_7 = add(x_3, x_4)\nadd_9 = add(add_7, x_3)"}
    renamed = {"kernels": "add_1 = add(x_1, x_2)\nadd_2 = add(add_1, x_1)"}
    other = {"kernels": "add_1 = add(x_1, x_2)\nadd_2 = add(add_1, x_2)"}
    assert differing_parts(before, renamed) == {"kernels": "renamed"}
    assert differing_parts(before, other) == {"kernels": "differs"}
    for kept in ("float32", "i64", "f32", "log2", "v4 i32", "s0"):
        assert canonical(kept).split()[-1] == kept.split()[-1]
    assert canonical("load x[i0 * 12 + 3]") == canonical("load x[i4 * 12 + 3]") != canonical("load x[i0 * 13 + 3]")


def test_the_table_and_the_difference():
    before = {"cpu one": {"graph": "a\nb", "host": "h"}, "cpu two": {"graph": "a"}, "cpu gone": {}}
    after = {"cpu one": {"graph": "a\nc", "host": "h"}, "cpu two": {"graph": "a"}, "cpu new": {}}
    text, differs = table(before, after)
    assert differs and "graph" in text.splitlines()[0] and text.splitlines()[0].endswith("cpu one")
    assert "only before: cpu gone" in text and "only after: cpu new" in text and "cpu two" not in text
    assert table(before, before)[1] is False
    assert "-b" in difference(before["cpu one"], after["cpu one"], "one").splitlines()
