"""Seeds each fault, verifies programs until the numbers of one are wrong, and counts how many are blamed on the right
pass or kernel.

python -m tests.mutants.blamed                  every fault of a stage that numbers come from
python -m tests.mutants.blamed schedule lower   the faults of two stages
python -m tests.mutants.blamed war-edge-lost    one fault

A fault that no program shows is not counted: it changes no numbers, or those of no program that is there. Blame is right
where it names the file that the fault is in: a pass, the rule of an operator, the machine code of a kernel, the host
function. First all programs are verified without a fault: none may be found wrong. Takes 3 minutes of a processor
for that, a second for a fault that a program in `shown.py` shows, and `--seconds` for one that none shows.
Exit status 1 where fewer than `--least` of 100 are blamed rightly, or a program is found wrong without a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.mutants.__main__ import faults
from tests.mutants.fault import ROOT, Fault
from tests.mutants.reseed import reseed
from tests.mutants.shown import FIRST

#: Stages that numbers of a program on a CPU come from. Faults of capture change what is no number; those of `ir` are in
#: the arithmetic of sizes, which is no pass.
STAGES = ("llvm", "lower", "graph", "host", "schedule", "fakes", "runtime")
#: A process that takes longer than this for one program hangs.
HANGS_SECONDS = 120


#: A program by name, and whether it is compiled with thresholds lowered, with eager's numbers of it.
Known = dict[str, tuple[Any, bool, Any]]


def load() -> None:
    """Imports all that runs need, once for all of them; nothing is compiled."""
    import lampwork

    for each in pkgutil.walk_packages(lampwork.__path__, "lampwork."):
        if ".triton" not in each.name and not each.name.endswith("__main__"):
            importlib.import_module(each.name)


def child(work: Callable[[], dict[str, Any]], place: Path) -> dict[str, Any]:
    """What `work` returns in a process of its own. Empty with "ended" where a signal ends it, or it hangs."""
    process = os.fork()
    if not process:
        status = 1
        with contextlib.suppress(BaseException):
            warnings.simplefilter("ignore")
            sink = os.open(f"{place}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            try:
                place.write_text(json.dumps(work()))
                status = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
        os._exit(status)
    place.unlink(missing_ok=True)
    last = time.monotonic()
    alive = Path(f"{place}.alive")
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            break
        if alive.exists():
            last = max(last, time.monotonic() - (time.time() - alive.stat().st_mtime))
        if time.monotonic() - last > HANGS_SECONDS:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
    if place.exists():
        return json.loads(place.read_text())
    return {"ended": f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"}


def each_program() -> Iterator[tuple[str, Any, bool]]:
    """(name, program, whether thresholds are lowered), in the order in which they are tried."""
    import torch

    torch.manual_seed(0)  # some are made of random numbers while they are imported
    from tests.mutants.programs import every_program
    from tests.validation.mechanisms import TABLE

    found = list(every_program())
    for program in found:
        yield program.name, program, False
    for program in found:
        if program.name in TABLE:
            yield f"{program.name} small", program, True


def subject_of(program: Any) -> Any:
    """With gradients where the program is differentiated, and takes none itself."""
    import torch

    from lampwork.verification.call import Subject

    torch.manual_seed(0)
    try:
        return Subject(program.function, program.calls, backward=program.gradients)
    except TypeError:
        return Subject(program.function, program.calls)


def lowered(small: bool) -> contextlib.AbstractContextManager[None]:
    from tests.thresholds import thresholds
    from tests.validation.observe import ALWAYS, SMALL

    chosen = ALWAYS | (SMALL if small else {})
    return thresholds(
        {f"{module}.{name}": value for module, values in chosen.items() for name, value in values.items()}
    )


def references_of(folder: Path, alive: Path) -> dict[str, Any]:
    """Eager's numbers of all programs are written to `folder`; those are returned that are found wrong without a fault."""
    import torch

    from lampwork.verification.verify import compared_with

    wrong: dict[str, Any] = {}
    count = 0
    for name, program, small in each_program():
        alive.touch()
        if (folder / f"{name}.pt").exists():  # found right before
            count += 1
            continue
        with torch.set_grad_enabled(program.gradients), lowered(small):
            try:
                subject = subject_of(program)
            except (RuntimeError, ValueError, IndexError):
                continue  # generated, and an error in eager for one of its sizes
            references = subject.references()
            found = compared_with(subject, program.settings, references)
        count += 1
        if found:
            torch.save(references, folder / f"{name}.pt")
        else:
            wrong[name] = found.to_dict()
    return {"count": count, "wrong": wrong}


def known_programs(folder: Path) -> Known:
    """The programs that `references_of` found right."""
    import torch

    found: Known = {}
    for name, program, small in each_program():
        path = folder / f"{name}.pt"
        if path.exists():
            found[name] = (program, small, torch.load(path, weights_only=False))
    return found


def verify_with(fault: Fault, programs: Known, place: Path, most_seconds: float) -> dict[str, Any]:
    """The blame for the first program that is wrong with the fault, of those tried in so many seconds."""
    reseed(fault)
    import torch

    from lampwork.verification.verify import compared_with
    from tests.mutants.programs import own_names

    began, alive = time.process_time(), Path(f"{place}.alive")
    first, own = FIRST.get(fault.name, ()), own_names() if fault.stage not in ("graph", "schedule") else set()
    tried, raised = 0, 0
    for name in sorted(programs, key=lambda name: (name not in first, name not in own)):
        alive.touch()
        if time.process_time() - began > most_seconds:
            break
        tried += 1
        program, small, references = programs[name]
        try:
            with torch.set_grad_enabled(program.gradients), lowered(small):
                found = compared_with(subject_of(program), program.settings, references)
        except Exception:
            traceback.print_exc()
            raised += 1
            continue
        if not found:
            seconds = time.process_time() - began
            return {"program": name, "answer": found.to_dict(), "tried": tried, "seconds": seconds}
    return {"program": "", "tried": tried, "raised": raised, "seconds": time.process_time() - began}


def is_right(fault: Fault, blame: dict[str, Any] | None) -> bool:
    """Whether the blame names the file that the fault is in."""
    return blame is not None and any(fault.file == each or fault.file.startswith(f"{each}/") for each in blame["files"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.blamed", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"stages, or names of faults ({', '.join(STAGES)})")
    parser.add_argument("--least", type=float, default=95.0, help="faults of 100 that must be blamed rightly (95)")
    parser.add_argument("--folder", type=Path, help="keep eager's numbers and all answers here, and use them again")
    parser.add_argument("--seconds", type=float, default=300.0, help="of a processor for one fault, then it counts as "
                        "changing no numbers (300)")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="with --folder: also those that have an answer there")
    options = parser.parse_args()
    chosen = faults(options.names or STAGES)
    chosen.sort(key=lambda fault: STAGES.index(fault.stage) if fault.stage in STAGES else len(STAGES))
    os.chdir(ROOT)
    os.environ.update(LAMPWORK_CACHE="0", OMP_NUM_THREADS="1")
    os.environ.pop("LAMPWORK_STRICT", None)
    load()
    console = Console()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        sound_file = folder / "sound.json"
        sound = child(lambda: references_of(folder, Path(f"{sound_file}.alive")), sound_file)
        if "ended" in sound:
            console.print(f"[red]the programs cannot be verified without a fault: {sound['ended']}, {sound_file}.log")
            return 1
        console.print(f"{sound['count']} programs without a fault, {len(sound['wrong'])} found wrong, "
                      f"{time.monotonic() - began:.0f} s")  # fmt: skip
        for name, answer in sound["wrong"].items():
            console.print(f"[red]{name}: {answer['sentence']}")
        results: list[tuple[Fault, dict[str, Any]]] = []
        programs = known_programs(folder)
        gc.freeze()
        for fault in chosen:
            place = folder / f"{fault.name}.json"
            if options.again or not place.exists():
                found = child(
                    lambda fault=fault, place=place: verify_with(fault, programs, place, options.seconds), place
                )
            else:
                found = json.loads(place.read_text())
            results.append((fault, found))
            blame = found.get("answer", {}).get("blame")
            told = _words(blame) if found.get("program") else found.get("ended", "changes no numbers")
            style = "" if not found.get("program") else "[green]" if is_right(fault, blame) else "[red]"
            console.print(f"{style}{fault.name} ({fault.file}): {found.get('program', '')}: {told}")
    return report(console, results, options.least, time.monotonic() - began, bool(sound["wrong"]))


def _words(blame: dict[str, Any] | None) -> str:
    if blame is None:
        return "nobody blamed"
    return " ".join(filter(None, (blame["stage"], blame["pass"], blame["half"], blame["operator"], blame["kernel"])))


def report(
    console: Console, results: Sequence[tuple[Fault, dict[str, Any]]], least: float, seconds: float, unsound: bool
) -> int:
    """Prints the share of each stage; the exit status."""
    table = Table("stage", "faults", "change numbers", "blamed rightly", "with a source line")
    shown = [(fault, found["answer"]["blame"]) for fault, found in results if found.get("program")]
    for stage in dict.fromkeys(fault.stage for fault, _ in results):
        own = [(fault, blame) for fault, blame in shown if fault.stage == stage]
        table.add_row(
            stage, str(sum(fault.stage == stage for fault, _ in results)), str(len(own)),
            str(sum(is_right(*each) for each in own)), str(sum(bool(blame and blame["line"]) for _, blame in own)),
        )  # fmt: skip
    right = sum(is_right(*each) for each in shown)
    share = 100 * right / max(1, len(shown))
    console.print(table)
    console.print(f"{right} of {len(shown)} faults that change numbers are blamed on the right pass or kernel "
                  f"({share:.1f}%); {len(results) - len(shown)} change none; {seconds / 60:.1f} minutes")  # fmt: skip
    return 1 if unsound or share < least else 0


if __name__ == "__main__":
    sys.exit(main())
