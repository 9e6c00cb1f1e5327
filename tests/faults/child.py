"""Runs one case in this process: `python -m tests.faults.child FILE.NAME SEED SECONDS`. Exit status 0: it passed; 77: it
cannot be run here."""

from __future__ import annotations

import faulthandler
import importlib
import random
import sys

SKIPPED = 77


def main() -> None:
    name, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds * 0.9)
    from tests.faults.cases import Skipped

    file, _, function = name.partition(".")
    random.seed(seed)
    try:
        getattr(importlib.import_module(f"tests.faults.{file}"), function)(seed)
    except Skipped as why:
        print(why)
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
