"""`lampwork cache`: where compiled entries are kept on disk, how many there are, and how to be rid of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lampwork.config import environment

#: What is kept in the cache folder: entries, kernels and what tuning found; programs that show a failure.
CACHE_FOLDERS = ("v1", "reproducers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of `lampwork cache`."""
    parser.add_argument("action", nargs="?", default="show", choices=["show", "clear", "path"])


def run(arguments: argparse.Namespace) -> int:
    """Print or clear the cache; 1 if a file could not be removed."""
    folder = Path(environment.cache_dir)
    if arguments.action == "path":
        print(folder)
        return 0
    # The folder may be one that the user keeps other things in: only what is written to it is looked at.
    kept = [folder / name for name in CACHE_FOLDERS if (folder / name).is_dir() and not (folder / name).is_symlink()]
    found = [path for each in kept for path in (each, *each.rglob("*")) if not path.is_symlink()]
    files = [path for path in found if path.is_file()]
    if arguments.action == "show":
        size_bytes = sum(path.stat().st_size for path in files)
        state = "" if environment.cache else " (switched off by LAMPWORK_CACHE=0)"
        print(f"{folder}{state}: {len(files)} files, {size_bytes / 2**20:.1f} MiB")
        return 0
    failed = 0
    for path in files:
        try:
            path.unlink()
        except OSError as error:
            failed += 1
            print(f"lampwork cache: {path}: {error.strerror}", file=sys.stderr)
    for path in sorted((path for path in found if path.is_dir()), reverse=True):
        try:
            path.rmdir()
        except OSError:
            pass  # not empty: a file that could not be removed, or one written meanwhile
    print(f"{folder}: removed {len(files) - failed} files" + (f", {failed} could not be removed" if failed else ""))
    return 1 if failed else 0
