"""Two processes and one on-disk cache: written at once, read while it is written, never wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys, warnings
import torch, lampwork

warnings.simplefilter("error", lampwork.LampworkWarning)

def program(x, factor):
    return (x * factor).softmax(-1) + x.shape[0]

hits = 0
with torch.no_grad():
    for round in range(6):
        compiled = lampwork.compile(program, dynamic=False)
        for rows in (2, 3, 5, 7):
            x = torch.rand(rows, 8)
            torch.testing.assert_close(compiled(x, rows), program(x, rows))
        hits += lampwork.stats(compiled)["cache_hits"]
        lampwork.reset()
print("hits", hits)
"""


def test_two_processes_write_the_cache_at_once(tmp_path):
    environment = {**os.environ, "LAMPWORK_CACHE_DIR": str(tmp_path), "LAMPWORK_CACHE": "1", "PYTHONPATH": str(ROOT)}
    script = tmp_path / "program_of_two_processes.py"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script)]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        out, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
        assert int(out.split()[-1]) > 0, out  # later rounds find what either has written
    assert not list(tmp_path.rglob("*.tmp*")), "files half written are left over"
