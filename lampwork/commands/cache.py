"""`lampwork cache`: where compiled entries are kept on disk, how many there are, and how to be rid of them; to pack
them into a file for other machines, and to say why something is not among them."""

from __future__ import annotations

import argparse
import re
import sys
import time
from datetime import datetime
from pathlib import Path

from lampwork.config import environment

#: What is kept in the cache folder: entries, kernels and what tuning found; what keys were made of; who compiles now;
#: programs that show a failure.
CACHE_FOLDERS = ("v1", "facts", "locks", "reproducers")

_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of `lampwork cache`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("show", help="where it is, and how much is in it (without an action)")
    actions.add_parser("clear", help="remove everything")
    actions.add_parser("path", help="print the folder")
    export = actions.add_parser("export", help="pack entries into one file, for images of containers")
    export.add_argument("file", type=Path, metavar="FILE")
    export.add_argument("--since", type=_since, metavar="WHEN", help="only what was stored or used since then: 2h, 3d, "
                        "2026-05-01T12:00")  # fmt: skip
    export.add_argument("--key-file", metavar="FILE", help="sign the pack (LAMPWORK_CACHE_KEY_FILE)")
    load = actions.add_parser("import", help="unpack such a file into the cache")
    load.add_argument("file", type=Path, metavar="FILE")
    vouched = load.add_mutually_exclusive_group()
    vouched.add_argument("--key-file", metavar="FILE", help="the key that it was signed with (LAMPWORK_CACHE_KEY_FILE)")
    vouched.add_argument("--trust", action="store_true", help="whoever wrote it may run programs as you")
    why = actions.add_parser(
        "why", help="whether there are entries for a function; if not, which fact of its key missed"
    )
    why.add_argument("target", metavar="TARGET", help="package.module:factory or script.py::factory, or a function, or "
                     "something compiled, by its name")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked; 1 if a file could not be removed or a pack is not taken, 2 for a target or key that is none."""
    folder = Path(environment.cache_dir)
    if arguments.action == "path":
        print(folder)
        return 0
    if arguments.action in ("export", "import"):
        return _pack(arguments, folder)
    if arguments.action == "why":
        return _why(arguments.target)
    # The folder may be one that the user keeps other things in: only what is written to it is looked at.
    kept = [folder / name for name in CACHE_FOLDERS if (folder / name).is_dir() and not (folder / name).is_symlink()]
    found = [path for each in kept for path in (each, *each.rglob("*")) if not path.is_symlink()]
    files = [path for path in found if path.is_file()]
    if arguments.action != "clear":
        size_bytes = sum(path.stat().st_size for path in files)
        state = "" if environment.cache else " (switched off by LAMPWORK_CACHE=0)"
        print(f"{folder}{state}: {len(files)} files, {size_bytes / 2**20:.1f} MiB")
        if environment.cache_url:
            from lampwork.runtime.cache.places import without_secrets

            print(f"shared: {without_secrets(environment.cache_url)}")
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


def _since(text: str) -> float:
    """Seconds since 1970 of an age or a date."""
    age = _AGE.fullmatch(text.strip())
    if age:
        return time.time() - float(age.group(1)) * _SECONDS[age.group(2)]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no age such as 2h or 3d, and no date such as 2026-05-01"
        ) from None


def _pack(arguments: argparse.Namespace, folder: Path) -> int:
    from lampwork.runtime.cache import packs
    from lampwork.runtime.cache.shared import key_in

    path = arguments.key_file or environment.cache_key_file
    trust = arguments.action == "import" and arguments.trust
    try:
        key = key_in(path) if path and not trust else b""
    except (OSError, ValueError) as error:
        print(f"lampwork cache: the key file {path}: {error}", file=sys.stderr)
        return 2
    try:
        if arguments.action == "export":
            count, size_bytes = packs.export(folder, arguments.file, key, arguments.since)
            signed = "signed" if key else "not signed"
            print(f"{arguments.file}: {count} entries, {size_bytes / 2**20:.1f} MiB, {signed}")
            return 0
        made = packs.load(folder, arguments.file, key, trust or environment.cache_trust)
    except (OSError, packs.NotAPack) as error:
        print(f"lampwork cache: {error}", file=sys.stderr)
        return 1
    for each in made.left_out:
        print(f"lampwork cache: left out: {each}", file=sys.stderr)
    left_out = f", {len(made.left_out)} left out" if made.left_out else ""
    print(f"{folder}: {made.new} entries are new, {made.had} were there{left_out}")
    return 1 if made.left_out else 0


def _why(target: str) -> int:
    from lampwork.config import make_settings
    from lampwork.runtime.cache import entries, misses
    from lampwork.runtime.wrappers import compiled_of, is_wrapper
    from lampwork.warming import named

    try:
        function, _ = named.found(target)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"lampwork cache: {error}", file=sys.stderr)
        return 2
    settings = make_settings()
    if is_wrapper(function):
        settings, function = compiled_of(function).settings, compiled_of(function).function
    facts = entries.facts_of(function, settings)
    if facts is None:
        print(f"{target}: nothing is stored for it: it has no Python code that names it")
        return 1
    key = entries.key_of_facts(facts)
    if entries.is_anything_stored(function, settings):
        print(f"{target}: there are entries, in {Path(environment.cache_dir) / 'v1' / key}")
        print("A call that none of them fits is compiled: `lampwork.stats(compiled)['cache_notes']` names the guard.")
        return 0
    why = misses.why_missed(Path(environment.cache_dir), facts) or "nothing was ever stored for a function of this name"
    print(f"{target}: no entries: {why}")
    return 1
