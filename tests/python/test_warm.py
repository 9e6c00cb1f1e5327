"""Programs served from the on-disk cache of another process equal eager too."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.python.harness import features


@pytest.mark.slow
def test_programs_in_a_second_process(tmp_path):
    names = [name for name in features() if not name.startswith("torch_")]
    hits = []
    for seed in ("1", "2"):  # other hashes of strings, other orders of sets
        environment = {
            **os.environ, "LAMPWORK_PROGRAMS_CACHED": "1", "LAMPWORK_CACHE_DIR": str(tmp_path), "PYTHONHASHSEED": seed,
        }  # fmt: skip
        command = [sys.executable, "-W", "ignore", "-m", "tests.python", *names]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
        hits.append(int(re.search(r"on-disk cache: (\d+)", done.stdout)[1]))
    assert hits[0] == 0 and hits[1] > 200
