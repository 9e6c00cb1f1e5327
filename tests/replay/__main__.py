"""Writes down what the compiler makes of a set of programs, and compares two checkouts by it.

python -m tests.replay --record FILE                       of this checkout
python -m tests.replay --record FILE --checkout DIR        of another one: its `lampwork`, the programs of this one
python -m tests.replay --compare FILE [--show NAME]        what differs in this checkout, by part; exit status 1 if any

What differs only by the numbers in names counts as renamed. `--show` prints the difference of the programs whose name
holds NAME, `--only NAME` records those alone. `--all` takes every program; a recording made so is compared with `--all`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

SETTINGS = {
    "LAMPWORK_STRICT": "1", "LAMPWORK_VERIFY": "0", "LAMPWORK_CACHE": "0", "LAMPWORK_POISON": "0",
    "TRANSFORMERS_VERBOSITY": "error",
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.replay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="where to write the recording")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="a recording to compare this checkout with")
    parser.add_argument("--checkout", metavar="DIR", help="record the `lampwork` in this folder")
    parser.add_argument("--show", metavar="NAME", help="print the differences of programs whose name holds this")
    parser.add_argument("--only", default="", metavar="NAME", help="programs whose name holds this")
    parser.add_argument("--sets", nargs="+", help="sets of programs, instead of all")
    parser.add_argument("--kinds", nargs="+", help="what to compile for, instead of cpu and gpu")
    parser.add_argument("--all", action="store_true", help="every program of each set")
    options = parser.parse_args(arguments)
    if options.record is None and options.compare is None:
        parser.error("give --record or --compare")
    os.environ.update(SETTINGS)
    if options.checkout:
        sys.path.insert(0, os.path.abspath(options.checkout))
    # Only now: the environment is read, and a checkout chosen, when lampwork is imported.
    from tests.replay.compare import difference, read, table, write
    from tests.replay.programs import SETS
    from tests.replay.record import KINDS

    before = read(options.compare)[0] if options.compare else {}
    only = options.only or (options.show or "")
    sets, kinds = tuple(options.sets or SETS), tuple(options.kinds or KINDS)
    if only.split(" ")[0] in KINDS:  # a name as the table prints it
        kind, _, only = only.partition(" ")
        kinds = (kind,)
    found = recorded(sets, kinds, options.all, only)
    if options.record is not None:
        write(options.record, found, {"all": str(options.all)})
        print(f"{len(found)} recordings in {options.record}")
    if options.compare is None:
        return 0
    wanted = {
        name: parts
        for name, parts in before.items()
        if only in name.partition(" ")[2] and name.split()[0] in kinds and name.split()[1] in sets
    }
    text, differs = table(wanted, found)
    print(text)
    if options.show:
        for name in wanted:
            if name in found:
                print(difference(wanted[name], found[name], name))
    return int(differs)


def recorded(sets: tuple[str, ...], kinds: tuple[str, ...], everything: bool, only: str = "") -> dict:
    """Texts by part of the programs asked for."""
    import torch

    from tests.replay.programs import programs, seed
    from tests.replay.record import record

    torch.set_num_threads(1)
    found, last = {}, time.perf_counter()
    spent: dict[str, float] = {}
    for program in programs(sets, everything, only):
        for kind in reversed(kinds):  # what runs may change its arguments
            seed()
            start = time.perf_counter()
            found[f"{kind} {program.name}"] = record(program, kind)
            key = f"{kind} {program.name.split()[0]}"
            spent[key] = spent.get(key, 0.0) + time.perf_counter() - start
        if time.perf_counter() - last > 30:
            last = time.perf_counter()
            print(f"... {len(found)} recordings, now {program.name}", file=sys.stderr, flush=True)
    print(", ".join(f"{name} {seconds:.0f} s" for name, seconds in spent.items()), file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main())
