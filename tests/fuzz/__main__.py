"""`python -m tests.fuzz`: random tensor programs, compiled and run beside eager, until the time is up.

    python -m tests.fuzz --minutes 60                 fresh seeds, values of forward passes
    python -m tests.fuzz --minutes 30 --grad          gradients, too
    python -m tests.fuzz --minutes 30 --dynamic       sizes vary between the calls of a program
    python -m tests.fuzz --seed 123 --programs 1      one program again, by the same release of PyTorch
    python -m tests.fuzz --against torch.compile      another compiler in our place
    python -m tests.fuzz --against eager              none: what is found then is the judge's own mistake

Exit status 1 where anything was found. Each class of findings (its kind, and the operators of the reduced program) is
printed once, as a script that runs by itself; `--out` writes them to a folder.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import os
import sys
import time

#: What worker processes must have from their start. Freed and new memory is filled with a pattern; failures inside the
#: compiler raise; nothing stored by other processes is found. TF32 is off: of equal operands a library takes it for one
#: layout and not for another, and it keeps three digits.
ENVIRONMENT = {
    "MALLOC_PERTURB_": "1", "LAMPWORK_STRICT": "1", "LAMPWORK_VERIFY": "1", "LAMPWORK_CACHE": "0",
    "NVIDIA_TF32_OVERRIDE": "0",
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long programs are generated")
    parser.add_argument("--programs", type=int, help="how many programs at most")
    parser.add_argument("--seed", type=int, help="the first seed; by default, one that differs from run to run")
    parser.add_argument("--grad", action="store_true", help="compare gradients")
    parser.add_argument("--dynamic", action="store_true", help="sizes vary between calls")
    parser.add_argument(
        "--samples", type=float, default=0.15, help="the share of statements that are PyTorch's samples"
    )
    parser.add_argument("--against", default="lampwork", choices=("lampwork", "torch.compile", "eager"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--reduce", type=float, default=20.0, metavar="SECONDS", help="how long a finding is reduced")
    parser.add_argument("--out", help="a folder for the scripts of findings")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.environ.update(ENVIRONMENT)
        os.execv(sys.executable, [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]])

    import torch
    from rich.console import Console

    from tests.fuzz import report
    from tests.fuzz.generate import Options
    from tests.fuzz.samples import operators
    from tests.fuzz.worker import Job, run

    console = Console()
    first = options.seed if options.seed is not None else time.time_ns() // 1_000_000 % 1_000_000_000
    if options.samples:
        operators()  # loaded once, before processes fork
    job = Job(
        Options(options.grad, options.dynamic, options.samples),
        options.against,
        options.device,
        options.reduce,
        options.threads,
    )
    console.print(f"seeds from {first}, torch {torch.__version__}", highlight=False)
    seeds = itertools.count(first)
    if options.programs is not None:
        seeds = itertools.islice(seeds, options.programs)  # type: ignore[assignment]
    start = time.monotonic()
    counts: collections.Counter = collections.Counter()
    found: dict[tuple, report.Found] = {}
    try:
        for result in run(job, seeds, options.processes, start + 60 * options.minutes):
            counts[result.finding.kind if result.finding else report.RIGHT] += 1
            counts["eager raised"] += result.raised
            counts["left out"] += result.left_out
            counts["broke"] += result.broke
            counts["fell back"] += bool(result.fallbacks)
            for each in set(result.fallbacks):
                counts[f"fell back: {each}"] += 1
            if result.finding is None:
                continue
            this = report.Found(result.finding, result.program, [result.seed])
            known = found.setdefault(this.key, this)
            if known is not this:
                known.seeds.append(result.seed)
                continue
            text = report.script(result.program, result.finding) if result.program else report.headline(result.finding)
            print(f"\n--- seed {result.seed} " + "-" * 60 + f"\n{text}", flush=True)
            if options.out:
                os.makedirs(options.out, exist_ok=True)
                name = f"{result.finding.kind.replace(' ', '_')}_{result.seed}.py"
                with open(os.path.join(options.out, name), "w") as file:
                    file.write(text)
    except KeyboardInterrupt:
        pass
    console.print(report.table(counts, found, time.monotonic() - start))
    for each in sorted(found.values(), key=lambda each: (each.finding.kind, -len(each.seeds))):
        operators_of = " ".join(each.key[1])
        print(f"{each.finding.kind}: {operators_of}  x{len(each.seeds)}, seeds {each.seeds[:4]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
