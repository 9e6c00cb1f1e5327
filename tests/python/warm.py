"""A script in two processes with one cache: the second starts from what the first has stored."""

from __future__ import annotations

import os

from tests.processes import run_python


def run_cold_and_warm(folder, text, edited=None):
    """The output of both runs, as lines. `edited`: what the script's text is in the second run."""
    script = folder / "warm.py"
    environment = {**os.environ, "LAMPWORK_CACHE_DIR": str(folder / "cache"), "LAMPWORK_CACHE": "1"}
    runs = []
    for each in (text, edited or text):
        script.write_text(each)
        runs.append(run_python([script], env=environment, timeout=200))
    assert all(run.returncode == 0 for run in runs), runs[0].stderr + runs[1].stderr
    return [run.stdout.splitlines() for run in runs]
