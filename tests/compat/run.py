"""Makes an environment for a pair of versions, and runs the tests in it.

    python3 tests/compat/run.py --torch 2.15.0 --python 3.14                the README's test command there
    python3 tests/compat/run.py --torch 2.12.1 --python 3.12 -- tests/unit -x    what pytest is given
    make compat TORCH=2.15.0 PYTHON=3.14 TESTS="tests/unit -x"              the same

Environments lie in `.compat/`, one for each pair, and are used again. Any build of PyTorch does: those for CUDA run on
CPUs, and take some gigabytes.

The interpreter is the one of that version which is on the PATH, or which pyenv has. Where there is none, and the tool
`mmdebstrap` is installed and the user is root, Debian's testing suite is unpacked into `.compat/`, and its interpreter
runs in there. Needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".compat"

#: What tests need beside the interpreter: their compilers, time zones and certificates.
_PACKAGES = "python{0} python{0}-venv libpython{0}-testsuite ca-certificates gcc g++ libc6-dev libgomp1 git tzdata"


class Interpreter:
    """A Python of one version: `run` starts it, in this system or in another root."""

    def __init__(self, command: str, root: Path | None = None) -> None:
        self.command, self.root = command, root

    def run(self, command: Sequence[str], **settings: str) -> int:
        """Runs a command in the project's folder, and returns its status."""
        environment = {**os.environ, **settings}
        if self.root is None:
            return subprocess.run(command, cwd=ROOT, env=environment).returncode
        # The mounts are of this process alone, and end with it. The project is at the same path inside.
        inside = f"{self.root}{ROOT}"
        os.makedirs(inside, exist_ok=True)
        script = (
            'mount --rbind "$1" "$2" && mount -t proc proc "$3/proc" && mount --rbind /dev "$3/dev" && '
            'cp /etc/resolv.conf "$3/etc/" && root=$3 && folder=$1 && shift 3 && '
            'exec chroot "$root" /bin/sh -c \'cd "$0" && exec "$@"\' "$folder" "$@"'
        )
        outer = ["unshare", "--mount", "sh", "-c", script, "sh", str(ROOT), inside, str(self.root)]
        return subprocess.run([*outer, *command], env=environment).returncode


def find(version: str) -> Interpreter:
    """The interpreter of a version such as "3.14". Exits with what to do where there is none."""
    named = shutil.which(f"python{version}")
    found = ([named] if named else []) + glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python"))
    for each in found:
        said = subprocess.run([each, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True)
        if said.stdout.decode().strip() == version:
            return Interpreter(each)
    root = PLACE / f"debian-{version}"
    if not (root / "usr/bin" / f"python{version}").exists():
        if not shutil.which("mmdebstrap") or os.geteuid():
            sys.exit(
                f"no CPython {version} is found: put python{version} on the PATH or install it with pyenv; or, as root "
                "on Debian, install mmdebstrap and run this again, which unpacks Debian's testing suite"
            )
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(exist_ok=True)
        included = ",".join(_PACKAGES.format(version).split())
        # A mirror may be some weeks old, which the suite's own dates do not allow.
        dates = ['Acquire::Check-Valid-Until "false"', 'Acquire::Check-Date "false"']
        options = [f"--aptopt={each}" for each in dates]
        command = ["mmdebstrap", "--variant=apt", *options, f"--include={included}", "testing", str(root)]
        if subprocess.run(command).returncode:
            sys.exit(f"Debian's testing suite could not be unpacked, or has no python{version}")
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():  # also those that this system trusts beyond Debian's
        shutil.copyfile(certificates, f"{root}{certificates}")
    return Interpreter(f"/usr/bin/python{version}", root)


def install(interpreter: Interpreter, version: str, torch: str) -> Path:
    """The environment's Python. It is made, and everything that tests need installed, unless that was done before."""
    venv = PLACE / f"torch-{torch}-python-{version}"
    python, done = venv / "bin/python", venv / "installed"
    if done.exists():
        return python
    shutil.rmtree(venv, ignore_errors=True)
    PLACE.mkdir(exist_ok=True)
    constraints = PLACE / f"torch-{torch}.txt"
    constraints.write_text(f"torch=={torch}\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["bench"], *extras["docs"], *extras["dev"]]
    wanted = [f"torch=={torch}", *(each for each in wanted if not each.startswith(("torch", "lampwork", "triton")))]
    steps = [
        [interpreter.command, "-m", "venv", str(venv)],
        [str(python), "-m", "pip", "install", "-q", *wanted],
        # CUDA builds bring the Triton that they were made with.
        [str(python), "-c", "import triton"],
        [str(python), "-m", "pip", "install", "-q", "--no-deps", "-e", "."],
    ]
    for step in steps:
        status = interpreter.run(step, PIP_CONSTRAINT=str(constraints))
        if status and step[-1] == "import triton":
            status = interpreter.run([str(python), "-m", "pip", "install", "-q", "triton>=3.6"])
        if status:
            sys.exit(f"the environment could not be made: {' '.join(step)} ended with {status}")
    done.touch()
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch", required=True, metavar="VERSION", help="of PyTorch, such as 2.15.0")
    parser.add_argument("--python", required=True, metavar="VERSION", help="of CPython, such as 3.14")
    parser.add_argument("tests", nargs=argparse.REMAINDER, help="for pytest; default: all tests, on all cores")
    arguments = parser.parse_args()
    interpreter = find(arguments.python)
    python = install(interpreter, arguments.python, arguments.torch)
    interpreter.run(
        [str(python), "-c", "import sys, torch; print('CPython', sys.version, 'PyTorch', torch.__version__)"]
    )
    tests = [each for each in arguments.tests if each != "--"] or ["-n", "auto"]
    return interpreter.run([str(python), "-m", "pytest", "-p", "no:cacheprovider", *tests])


if __name__ == "__main__":
    sys.exit(main())
