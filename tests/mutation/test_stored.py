"""A part of the net over stored entries: `python -m tests.mutation.stored` runs all of it."""

from __future__ import annotations

import subprocess
import sys


def test_no_stored_entry_is_stale():
    command = [sys.executable, "-W", "ignore", "-m", "tests.mutation.stored", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
