"""What a type checker tells users of the package: `user_program.py` passes `mypy --strict`, mistakes in it are found.

The checker sees the package as installed: only `py.typed` makes it read the annotations.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import torch

import lampwork

ROOT = Path(lampwork.__file__).parents[1]

#: Parts of PyTorch and of others that the program meets nowhere. They take half of the time.
UNSEEN = (
    "torch._dynamo", "torch._inductor", "torch._functorch", "torch._higher_order_ops", "torch.distributed",
    "torch.onnx", "torch.export", "torch._export", "torch.fx.experimental", "torch.fx.passes", "torch.testing",
    "torch.ao", "torch.masked", "torch._refs", "torch._prims", "torch._subclasses", "torch.jit", "torch.profiler",
    "sympy", "networkx", "triton", "rich", "llvmlite", "numpy",
)  # fmt: skip


def test_a_program_of_a_user_passes_strict_checks(tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    packages = next(environment.glob("lib/python3*/site-packages"))
    (packages / "installed.pth").write_text(f"{ROOT}\n{Path(torch.__file__).parents[1]}\n")
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\n[mypy-{','.join(f'{name}.*' for name in UNSEEN)}]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(settings), "--cache-dir", "/dev/null",
               "--python-executable", str(environment / "bin" / "python"),
               str(ROOT / "tests" / "types" / "user_program.py")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
