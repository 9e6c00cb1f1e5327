"""Builds wheel and source distribution, and uses the wheel as a user would: `make dist`.

They are made of a copy of the checkout, the wheel from the source distribution. The wheel is installed into an
environment of its own, which borrows all other packages of the interpreter that runs this: nothing is fetched but what
builds. Needs `pip install build`. Exit status 1, with what is wrong, at the first thing that is.

    python .ci/dist.py [--keep FOLDER]     FOLDER gets the two files, if all is right
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: What building adds to a source distribution.
MADE = ("PKG-INFO", "setup.cfg")

#: Run where no checkout is, by the interpreter of the new environment.
PROGRAM = """
import importlib.metadata, sys
from pathlib import Path
import torch, lampwork

version, environment = sys.argv[1:]
assert Path(lampwork.__file__).is_relative_to(environment), lampwork.__file__
assert lampwork.__version__ == version == importlib.metadata.version("lampwork"), lampwork.__version__
assert (Path(lampwork.__file__).parent / "py.typed").is_file()

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)).eval()
fast, x = lampwork.compile(model, fullgraph=True), torch.randn(4, 8)
with torch.no_grad():
    torch.testing.assert_close(fast(x), model(x))
found = lampwork.stats(fast)
assert found["native_kernels"] and not found["fallbacks"], found
[entry] = {each for each in importlib.metadata.entry_points(group="torch_dynamo_backends") if each.name == "lampwork"}
assert callable(entry.load())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="gets the two files, if all is right")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="lampwork-dist-") as folder:
        work = Path(folder)
        files = copied(work / "source")
        # Files that an earlier build left in the checkout cannot come into this one.
        run(sys.executable, "-m", "build", "--outdir", work / "dist", work / "source", quiet=True)
        [wheel], [source] = (work / "dist").glob("*.whl"), (work / "dist").glob("*.tar.gz")
        version = wheel.name.split("-")[1]
        check_wheel(wheel, files, version)
        check_source(source, files, version)
        check_installed(wheel, version, work)
        print(f"{wheel.name} ({wheel.stat().st_size >> 10} KiB) and {source.name} ({source.stat().st_size >> 10} KiB)")
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            for each in (wheel, source):
                shutil.copy(each, keep)


def copied(folder: Path) -> set[str]:
    """Copies what belongs to the checkout into `folder`; their paths. Needs git, or a source distribution."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
        files = {name for name in listed if name and (ROOT / name).is_file()}
    else:
        every = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        left_out = ("__pycache__", "lampwork.egg-info", "build", "dist")
        files = {
            path.as_posix() for path in every
            if path.name not in MADE and not any(part in left_out or part.startswith(".venv") for part in path.parts)
        }  # fmt: skip
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return files


def check_wheel(wheel: Path, files: set[str], version: str) -> None:
    """The package with all of its files, its metadata, and nothing else."""
    about = f"lampwork-{version}.dist-info/"
    names = zipfile.ZipFile(wheel).namelist()
    package = {name for name in names if not name.startswith(about)}
    same(package, {name for name in files if name.startswith("lampwork/")}, wheel.name)
    needed = {f"{about}{name}" for name in ("METADATA", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    same(needed & set(names), needed, wheel.name)
    metadata = zipfile.ZipFile(wheel).read(f"{about}METADATA").decode()
    for field in ("Summary", "Author", "Keywords", "License-Expression", "Requires-Python", "Classifier: Typing"):
        if f"\n{field}" not in metadata:
            sys.exit(f"{wheel.name}: no {field} in its metadata")


def check_source(source: Path, files: set[str], version: str) -> None:
    """Everything that belongs to the checkout: tests, pages and checks run from it."""
    with tarfile.open(source) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    same({name for name in names if name not in MADE and ".egg-info/" not in name}, files, source.name)


def same(found: set[str], expected: set[str], name: str) -> None:
    if found != expected:
        sys.exit(f"{name}: misses {sorted(expected - found)}, has {sorted(found - expected)} for no reason")


def check_installed(wheel: Path, version: str, work: Path) -> None:
    """The wheel in a new environment: the program above, and the command."""
    environment, elsewhere = work / "environment", work / "elsewhere"
    venv.create(environment, with_pip=False)
    elsewhere.mkdir()
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    # From here on it sees what this interpreter has, after what is its own.
    [packages] = environment.glob("lib/python3*/site-packages")
    borrowed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    run(python, "-c", PROGRAM, version, environment, cwd=elsewhere, cache=work)
    run(environment / "bin" / "lampwork", "doctor", cwd=elsewhere, cache=work)


def run(*command: object, cwd: Path | None = None, cache: Path | None = None, quiet: bool = False) -> None:
    """Ends the program, with what the command said, if the command fails."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("LAMPWORK_", "PYTHONPATH"))}
    if cache is not None:
        settings["LAMPWORK_CACHE_DIR"] = str(cache / "cache")
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=settings, stdout=output, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout or ''}\n{command[0]} ... failed: exit status {done.returncode}")


if __name__ == "__main__":
    main()
