"""A step with an optimizer is served from the on-disk cache in a new process: nothing is captured there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json
import torch
import lampwork

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


compiled = lampwork.compile(step)
losses = [compiled(torch.ones(2, 8)).item() for _ in range(4)]
found = lampwork.stats(compiled)
print(json.dumps([losses, found["captures"], found["cache_hits"], len(found["fallbacks"]) + len(found["breaks"])]))
"""


def test_a_step_is_served_from_disk(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "LAMPWORK_CACHE_DIR": str(tmp_path / "cache")}

    def run() -> list:
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first, second = run(), run()
    assert first[1:] == [2, 0, 0]
    assert second[1:] == [0, 2, 0]
    assert first[0] == second[0]
