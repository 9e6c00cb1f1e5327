"""Full disks, and limits on the size of files."""

from __future__ import annotations

import os
import resource
import subprocess

from tests.faults.cases import Skipped, case
from tests.faults.support import check, compiled, counted_warnings, folder, make


def _all_right() -> None:
    with counted_warnings():
        for number in range(6):
            made = compiled(make(number), stored=True)
            check(made, make(number))
            check(made, make(number))


@case(seconds=90, quick=True)
def limited_file_sizes(seed: int) -> None:
    """Writes end with EFBIG, at any size."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 1, 512, 4096, 20000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
        _all_right()
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    _all_right()


@case(seconds=90)
def a_full_disk(seed: int) -> None:
    """The cache is on a file system of 32 KiB, then of as many inodes as it has files."""
    place = folder() / "small"
    place.mkdir()
    for options in ("size=32k", "size=4k", "size=1m,nr_inodes=4"):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True)
        if done.returncode:
            raise Skipped(f"no file system can be mounted here: {done.stderr.strip()}")
        try:
            os.environ["LAMPWORK_CACHE_DIR"] = str(place / "cache")
            _use(place / "cache")
            _all_right()
        finally:
            subprocess.run(["umount", "-l", place], check=True)


def _use(path: os.PathLike) -> None:
    """Makes `path` the cache's folder, which is read from the environment once."""
    import dataclasses

    from lampwork import config
    from lampwork.runtime import function
    from lampwork.runtime.cache import entries

    changed = dataclasses.replace(config.environment, cache_dir=os.fspath(path))
    for module in (config, entries, function):
        module.environment = changed  # type: ignore[attr-defined]


@case(seconds=60, environment={"TMPDIR": "/nonexistent", "HOME": "/nonexistent", "LAMPWORK_CACHE_DIR": None})
def no_folder_for_anything(seed: int) -> None:
    """There is no home, and no folder for temporary files."""
    _all_right()


@case(seconds=60, environment={"HOME": None, "LAMPWORK_CACHE_DIR": None, "XDG_CACHE_HOME": None, "USER": None})
def no_home(seed: int) -> None:
    """The environment names no home."""
    _all_right()
