"""Each script of `examples/` by itself, as a user runs it: it ends well, and nothing runs eagerly that should not."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import lampwork
from lampwork.config import use_cache_dir
from lampwork.verdict import starting
from tests.processes import run_python

ROOT = Path(lampwork.__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))

#: Ids of what an example shows running eagerly. In all others nothing does.
EAGER = {"stances.py": ["stance"]}

#: Of each script something that it must have told.
TOLD = {
    "closed_list.py": r"in place of another: +0\.\d+",
    "fuse_norm_and_quantisation.py": r"rms_norm_static_fp8_quant\S*: 2\}",
    "inference.py": r"0 breaks, 0 fall-backs, [1-9]\d* kernels",
    "instrumentation.py": r"relu: relu\(32, 16\) +at most \d",
    "kernel_of_your_own.py": r"gradients agree; calls: .*'example::length.default': 1",
    "stances.py": r"refused: .*dtype was float32, is now float64",
    "training_step.py": r"20 steps, 1 capture, ",
    "varying_lengths.py": r"call 29: .*, [23] compiled so far",
    "verdict.py": r"for 3 calls: leave it as it is",
    "warm_start.py": r"warm process: .* 0 captured, 1 from the cache",
}

#: Runs the script, then says what of all that it compiled ran eagerly: its globals are held until then. Prints no word
#: of its own on stdout.
RUNNER = """
import json, runpy, sys
script, told, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = script
kept = runpy.run_path(script, run_name="__main__")
from lampwork.runtime import function
snapshots = [each.counters.snapshot(each.entries, each.continuations) for each in list(function._all)]
found = {name: sorted({record.id for each in snapshots for record in each[name]}) for name in ("fallbacks", "breaks")}
found["compiled"] = sum(each["entries"] for each in snapshots)
open(told, "w").write(json.dumps(found))
"""


def test_every_script_is_looked_at():
    assert {script.name for script in SCRIPTS} == set(TOLD)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs(script, tmp_path):
    settings = {name: value for name, value in os.environ.items() if not name.startswith("LAMPWORK_")}
    settings |= {"LAMPWORK_STRICT": "1", "LAMPWORK_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    with use_cache_dir(str(tmp_path / "cache")):  # measured once for a machine; it takes longer than all scripts
        record = starting._record("cpu")
        record.parent.mkdir(parents=True)
        record.write_text(json.dumps({"cold": 2.0, "warm": 0.5}))
    done = run_python(["-c", RUNNER, script, tmp_path / "told"], cwd=tmp_path, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(TOLD[script.name], done.stdout), done.stdout
    found = json.loads((tmp_path / "told").read_text())
    assert found["fallbacks"] == EAGER.get(script.name, []) and found["breaks"] == []
    assert found["compiled"] or script.name in ("verdict.py", "warm_start.py")  # which compile in other processes
    assert len(script.read_text().splitlines()) <= 60
