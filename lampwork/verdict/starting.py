"""What a process pays for having a compiler at all: loading it, its libraries and the device's parts of it.

The first program that a process compiles pays this once. It is measured in fresh processes, as a process that has
compiled already cannot see it, and kept in the cache folder for these versions and this machine.

    python -m lampwork.verdict.starting DEVICE     prints {"first": seconds, "second": seconds} of two small programs
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lampwork.ir.record import record


@record
class Starting:
    """Seconds that a process pays once: with nothing compiled before (`cold`), and with a filled cache (`warm`)."""

    cold: float
    warm: float


def starting(device: str) -> Starting:
    """Measured once for each machine and version, which takes some processes; read from the cache folder later.

    The shortest of three is what it takes: others may want the machine meanwhile, and the first one reads from a disk
    what is in memory later.
    """
    path = _record(device)
    try:
        found = json.loads(path.read_text())
        return Starting(float(found["cold"]), float(found["warm"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = [_cold_and_warm(device) for _ in range(3)]
    cold, warm = min(cold for cold, _ in found), min(warm for _, warm in found)
    made = Starting(cold, warm)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"cold": cold, "warm": warm}))
    except OSError:
        pass  # it is measured again next time
    return made


def _cold_and_warm(device: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="lampwork-starting-") as folder:
        return _process(device, folder), _process(device, folder)


def _record(device: str) -> Path:
    import torch

    from lampwork import __version__
    from lampwork.config import cache_dir

    parts = [__version__, torch.__version__, sys.version, os.uname().nodename, device]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Path(cache_dir()) / "v1" / "starting" / f"{name}.json"


def _process(device: str, folder: str) -> float:
    command = [sys.executable, "-m", "lampwork.verdict.starting", device]
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    cold = {"LAMPWORK_CACHE_DIR": folder, "LAMPWORK_CACHE_URL": ""}
    environment = {**os.environ, **cold, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return max(0.0, found["first"] - found["second"])


def load(device: str) -> dict[str, float]:
    """Compiles two small programs; seconds of the first, with which a process loads the compiler, and of the second."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device == "cuda" else []), torch.no_grad():
        x = torch.randn(64, 64, device=device)
        weight = torch.randn(64, 64, device=device)
        torch.relu(x @ weight).sum().item()  # what eager pays as well
        seconds: dict[str, float] = {}
        started = time.perf_counter()
        import lampwork

        for name, program in (("first", _first), ("second", _second)):
            lampwork.compile(program)(x, weight).sum().item()
            seconds[name] = time.perf_counter() - started
            started = time.perf_counter()
    return seconds


def _first(x: Any, weight: Any) -> Any:
    return (x @ weight).relu() * 2 + x.sum(1)


def _second(x: Any, weight: Any) -> Any:
    return (x @ weight).tanh() * 3 - x.amax(1)


if __name__ == "__main__":
    print(json.dumps(load(sys.argv[1])))
