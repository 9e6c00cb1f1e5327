"""`make test-ops`: every operator of PyTorch's own test samples through `lampwork.compile`, compared with eager.

Each operator and dtype is native (all its compute in kernels of our own), called through ATen, fell back to eager, or
failed. What was checked for the present source of lampwork is in a record and skipped next time. Exits with 1 if an
operator failed or if 5% of them or more fell back, with 3 if `--budget` did not suffice for all.

`--gradients` checks the first derivatives of differentiable operators in float32, each compiled together with the
operator; `--gradients apart` compiles the operator and leaves its derivative to eager's engine, which calls ours.
`--device cuda` checks the operators that a GPU program consists of, in float32 and bfloat16, integers and truth values
where they are what matters, or their derivatives; `--all` every operator.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tests.ops.check import DEVICE_LOST, DTYPES, OUTCOMES, full_name

ROOT = Path(__file__).resolve().parents[2]
BATCH = 60  # operators that a worker process checks before a fresh one takes over
OUT_OF_TIME = 3  # the exit status of a run that stopped at its budget
COUNTED = ("pointwise", "reduction", "view", "index")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ops.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--samples", default="4", help="samples an operator and dtype: a number, or all (4)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where the samples are (cpu)")
    parser.add_argument(
        "--gradients", nargs="?", const="whole", choices=["whole", "apart"], help="derivatives instead of the operators"
    )
    parser.add_argument("--all", action="store_true", help="on a GPU, every operator")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="stop in time")
    parser.add_argument("--dtypes", nargs="+", metavar="DTYPE", help=f"{' '.join(str(each)[6:] for each in DTYPES)}")
    parser.add_argument("--ops", nargs="+", metavar="NAME", help="only these operators")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="only the I-th of N equal parts (0/1)")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at once (2)")
    parser.add_argument("--timeout", type=float, default=90, help="seconds for one operator and dtype (90)")
    parser.add_argument("--record", default=str(ROOT / "ops-record"), metavar="DIR", help="where results are kept")
    parser.add_argument("--fresh", action="store_true", help="check again what is recorded")
    parser.add_argument("--any-source", action="store_true", help="trust results of another source of lampwork too")
    parser.add_argument("--failures", type=int, default=40, help="failures to print (40)")
    options = parser.parse_args()
    if options.samples != "all" and not options.samples.isdigit():
        parser.error("--samples takes a number or all")
    part, parts = (int(number) for number in options.shard.split("/"))
    if not 0 <= part < parts:
        parser.error("--shard I/N needs 0 <= I < N")

    if options.device == "cuda" and not has_gpu():
        print("skipped: no NVIDIA GPU")
        return 0
    if options.device == "cuda":
        found = gpu_items(["float32"] if options.gradients else options.dtypes, options.ops, options.all)
        if options.gradients:
            found = [item for item in found if item[0] in differentiable()]
    elif options.gradients:
        found = [item for item in work_items(["float32"], options.ops) if item[0] in differentiable()]
    else:
        found = work_items(options.dtypes or [str(dtype)[6:] for dtype in DTYPES], options.ops)
    items = found[part::parts]
    if not items:
        parser.error("no such operator")
    folder = Path(options.record)
    folder.mkdir(parents=True, exist_ok=True)
    source = source_digest()
    where = f"-gradients-{options.gradients}" if options.gradients else ""
    where += "" if options.device == "cpu" else f"-{options.device}"
    kept = folder / f"results{where}-{options.samples}.jsonl"
    results = {} if options.fresh else read_results(kept, None if options.any_source else source)
    todo = [item for item in items if item not in results]
    console = Console()
    if len(todo) < len(items):
        console.print(f"{len(items) - len(todo)} of {len(items)} are recorded in {kept}; --fresh checks them again")
    with open(kept, "a", buffering=1) as record:
        for result in run(todo, options, folder, console):
            record.write(json.dumps({**result, "source": source}) + "\n")
            results[(result["op"], result["dtype"])] = result
    status = summarise([results[item] for item in items if item in results], console, options.failures)
    left = [item for item in items if item not in results]
    if left:
        console.print(f"out of time: {len(left)} of {len(items)} were not checked; run it again to go on")
    return OUT_OF_TIME if left and not status else status


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


#: Operators of no category above that GPU programs consist of: products, attention, sorting.
GPU_OTHERS = frozenset(
    """
    mm bmm addmm addbmm baddbmm addmv matmul mv nn.functional.linear nn.functional.conv1d nn.functional.conv2d
    nn.functional.conv_transpose2d nn.functional.scaled_dot_product_attention sort topk argsort cumsum cumprod
    logcumsumexp cummax cummin nn.functional.max_pool2d multinomial unique nonzero bernoulli normal uniform randn_like
    rand_like randint_like nn.functional.multi_head_attention_forward einsum kron tensordot inner
    """.split()
)

#: Operators whose integers or truth values go another way than their floats.
OF_INTEGERS = frozenset(
    """
    add sub mul div eq lt ge where sum amax argmax cat index_select gather scatter any all floor_divide remainder
    cumsum masked_fill index_put clamp maximum abs neg pow arange full to sort
    """.split()
)


def gpu_items(dtypes: list[str] | None, names: list[str] | None, everything: bool) -> list[tuple[str, str]]:
    """(operator, dtype) to check on a GPU: float32 and bfloat16; int64 and bool where there is no float, or for
    `OF_INTEGERS`. Given `dtypes` take the place of that rule, given `names` and `everything` that of the choice."""
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.ops.categories import category

    found: dict[tuple[str, str], None] = {}
    for op in op_db:
        name = full_name(op)
        if names is not None:
            wanted = name in names or op.name in names
        else:
            wanted = everything or category(op) in COUNTED or name in GPU_OTHERS or op.name in GPU_OTHERS
        if not wanted:
            continue
        supported = {str(dtype)[6:] for dtype in op.supported_dtypes("cuda")}
        chosen = dtypes or [each for each in ("float32", "bfloat16") if each in supported]
        if dtypes is None and (not chosen or name in OF_INTEGERS):
            chosen = [*chosen, *(each for each in ("int64", "bool") if each in supported)]
        found.update({(name, each): None for each in chosen if each in supported})
    return list(found)


def work_items(dtypes: list[str], names: list[str] | None) -> list[tuple[str, str]]:
    """(operator, dtype) for all that PyTorch has samples of, in the order of its list."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = [getattr(torch, name) for name in dtypes]
    found: dict[tuple[str, str], None] = {}
    for op in op_db:
        if names is None or full_name(op) in names or op.name in names:
            supported = op.supported_dtypes("cpu")
            found.update({(full_name(op), str(dtype)[6:]): None for dtype in wanted if dtype in supported})
    return list(found)


def differentiable() -> set[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {full_name(op) for op in op_db if op.supports_autograd}


def source_digest() -> str:
    """Changes whenever lampwork's source or the checks do."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "lampwork").rglob("*.py"), *(ROOT / "tests" / "ops").glob("*.py")]):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def read_results(path: Path, source: str | None) -> dict[tuple[str, str], dict[str, Any]]:
    """Recorded results by (operator, dtype), those of the given source only. Broken lines are skipped."""
    results = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                result = json.loads(line)
            except ValueError:
                continue
            if source is None or result.get("source") == source:
                results[(result["op"], result["dtype"])] = result
    return results


def run(todo: list[tuple[str, str]], options: argparse.Namespace, folder: Path, console: Console):
    """Yield a result for each item, from worker processes; one that hangs or dies costs its current item alone."""
    if options.device == "cpu":
        queue = [todo[start : start + BATCH] for start in range(0, len(todo), BATCH)]
    else:  # a process costs a context of the GPU and its start: one for each job, neighbours spread over all
        queue = [todo[start :: options.jobs] for start in range(min(options.jobs, len(todo)))]
    deadline = time.monotonic() + options.budget if options.budget else float("inf")
    running: list[Worker] = []
    number = 0
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with progress:
        task = progress.add_task("operators", total=len(todo))
        try:
            while (queue or running) and time.monotonic() < deadline:
                while queue and len(running) < options.jobs:
                    running.append(Worker(queue.pop(0), folder, number, options))
                    number += 1
                time.sleep(0.2)
                for worker in list(running):
                    for result in worker.poll(options.timeout):
                        progress.advance(task)
                        progress.update(task, description=f"{result['op']} {result['dtype']}")
                        yield result
                    if worker.finished:
                        running.remove(worker)
                        if worker.rest:
                            queue.insert(0, worker.rest)
        finally:
            for worker in running:
                worker.stop()


class Worker:
    """A process that works through a batch, and what it has written so far."""

    def __init__(self, items: list[tuple[str, str]], folder: Path, number: int, options: argparse.Namespace) -> None:
        self.rest = list(items)
        self.finished = False
        self.delivered = 0
        self.current: tuple[str, str] | None = None
        self.since = time.monotonic() + 60  # starting up
        self.read = 0
        stem = folder / f"worker-{os.getpid()}-{number}"
        self.items, self.record, self.log = (stem.with_suffix(end) for end in (".items", ".jsonl", ".log"))
        self.items.write_text(json.dumps(items))
        self.record.touch()
        # Kernels are compiled in the process itself: there are as many as cores already.
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "LAMPWORK_COMPILE_WORKERS": "0",
            "PYTHONWARNINGS": "ignore",
        }
        how = [options.samples, options.device, *([options.gradients] if options.gradients else [])]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.ops.worker", str(self.items), str(self.record), *how],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def poll(self, timeout: float) -> list[dict[str, Any]]:
        """Results since the last call. Sets `finished` once the process has ended; `rest` is then what it left."""
        ended = self.process.poll()
        results = []
        with open(self.record) as file:
            file.seek(self.read)
            text = file.read()
        whole = text.rfind("\n") + 1
        self.read += len(text[:whole].encode())
        for line in text[:whole].splitlines():
            event = json.loads(line)
            item = (event["op"], event["dtype"])
            if event.get("begin"):
                self.current, self.since = item, time.monotonic()
            else:
                self.current = None
                self.rest.remove(item)
                self.delivered += 1
                results.append(event)
        if ended is None and time.monotonic() - self.since > timeout:
            self.stop()
            results.append(self._lost(f"no result within {timeout:.0f} s"))
            self.finished = True
        elif ended is not None:
            self.finished = True
            if self.rest and not (ended == DEVICE_LOST and self.delivered):
                told = signal.Signals(-ended).name if ended < 0 else f"status {ended}"
                lines = self.log.read_text(errors="replace").strip().splitlines()
                results.append(self._lost(f"the process ended with {told}: {lines[-1] if lines else ''}"[:300]))
        if self.finished:
            for path in (self.items, self.record, self.log):
                path.unlink(missing_ok=True)
        return results

    def _lost(self, reason: str) -> dict[str, Any]:
        op, dtype = item = self.current or self.rest[0]
        self.rest.remove(item)
        outcome = {"outcome": "failed", "samples": {"failed": 1}, "details": [reason], "seconds": 0.0}
        return {"op": op, "dtype": dtype, "category": "other", **outcome}

    def stop(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def worst_by_operator(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each operator the outcome of its worst dtype; those whose every sample raised in eager are "raises"."""
    order = ("none", *OUTCOMES)
    worst: dict[str, dict[str, Any]] = {}
    for result in results:
        known = worst.get(result["op"])
        if known is None or order.index(result["outcome"]) > order.index(known["outcome"]):
            category = result["category"] if known is None or result["category"] != "other" else known["category"]
            worst[result["op"]] = {**result, "category": category}
    return worst


def summarise(results: list[dict[str, Any]], console: Console, shown: int) -> int:
    """Print the table and the failures; the exit status."""
    worst = worst_by_operator(results)
    judged = {name: result for name, result in worst.items() if result["outcome"] not in ("none", "raises")}
    by_category: dict[str, Counter[str]] = defaultdict(Counter)
    for result in judged.values():
        by_category[result["category"]][result["outcome"]] += 1
        by_category["all"][result["outcome"]] += 1
        if result["category"] in COUNTED:
            by_category["these four"][result["outcome"]] += 1
    table = Table(title="Operators of PyTorch's samples, each by its worst sample over all dtypes")
    table.add_column("category")
    for heading in ("operators", "native", "called through ATen", "fell back", "failed", "native share"):
        table.add_column(heading, justify="right")
    for name in (*COUNTED, "these four", "other", "all"):
        counts = by_category[name]
        total = counts.total()
        share = f"{counts['native'] / total:.0%}" if total else "-"
        table.add_row(
            name, str(total), *(str(counts[kind]) for kind in ("native", "aten", "fallback", "failed")), share
        )
    console.print(table)
    samples: Counter[str] = Counter()
    for result in results:
        samples.update(result["samples"])
    console.print(
        f"samples: {samples.total()}, native {samples['native']}, through ATen {samples['aten']}, fell back "
        f"{samples['fallback']}, failed {samples['failed']}, {samples['raises']} raised as eager does; "
        f"{len(worst) - len(judged)} operators had no sample to judge"
    )
    inplace = sorted({result["op"] for result in results if result.get("inplace")})
    if inplace:
        console.print(f"in-place variants that fell back, not counted above: {', '.join(inplace)}", highlight=False)
    aten: Counter[str] = Counter()
    for result in results:
        for detail in result["details"]:
            if ": aten: " in detail:
                aten.update(set(detail.split(": aten: ")[1].split()))
    if aten:
        common = ", ".join(f"{name} {count}" for name, count in aten.most_common(25))
        console.print(f"most often called through ATen: {common}", highlight=False)
    problems = [result for result in results if result["outcome"] in ("failed", "fallback")]
    problems.sort(key=lambda result: (result["outcome"] != "failed", result["op"]))
    for result in problems[:shown]:
        detail = next((d for d in result["details"] if result["outcome"] in d), (result["details"] or [""])[0])
        console.print(f"{result['outcome']} {result['op']} {result['dtype']}: {detail}", markup=False, highlight=False)
    if len(problems) > shown:
        console.print(f"... and {len(problems) - shown} more")
    failed = by_category["all"]["failed"]
    fell_back = by_category["all"]["fallback"]
    total = by_category["all"].total()
    share = fell_back / total if total else 0.0
    console.print(
        f"{total} operators: {failed} failed, {fell_back} fell back ({share:.1%}, to be below 5%)", highlight=False
    )
    return 1 if failed or share >= 0.05 else 0


if __name__ == "__main__":
    sys.exit(main())
