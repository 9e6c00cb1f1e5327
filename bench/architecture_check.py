"""Whether architectures of `transformers` compile into one graph with eager's result, each in a process of its own.

    python -m bench.architectures [NAMES...] [--fullgraph] [--json FILE] [--device cpu|cuda] [--dtype bfloat16]
    python -m bench.architectures [NAMES...] --task train|step [--fullgraph] [--json FILE]

A table of what came of each: graphs, breaks with reason and line, right or not, time of the first call in a process
that has imported PyTorch, operators captured, kernels. FILE is written after each; what it holds already is not run
again (`--again` does). The exit status is 0 if every one gives eager's result.

"Right" is the acceptance rule of `lampwork.verdict.verify` on two calls and then on calls with inputs of other sizes
(`architecture_resizing.py`), against eager and a float64 reference. With `--task` three steps of training are judged,
on the CPU in float32: `architecture_training.py`.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench import architecture_process, architecture_training
from bench.architecture_resizing import resized
from bench.architecture_training import told
from bench.architectures import ARCHITECTURES, BY_NAME, Missing
from lampwork.benchmark.zoo import convert
from lampwork.verdict.verify import compare

#: Starts the line of a worker's output that holds its result; models print what they like.
MARK = "RESULT "
#: A process that takes longer is ended, seconds.
TIMEOUT = 180.0


# In the process of one architecture -----------------------------------------------------------------------------------


def check(name: str, *, fullgraph: bool = False, device: str = "cpu", dtype: str = "float32") -> dict[str, Any]:
    """What came of compiling the architecture `name`, as JSON: see `_compiled` for the keys.

    `status` is "ok" (eager's result), "wrong", "break" (only with `fullgraph`) or "missing" (`reasons` says what is).
    Other exceptions pass.
    """
    try:
        module, inputs = BY_NAME[name].build()
    except Missing as missing:
        return {"status": "missing", "reasons": [str(missing)]}
    reference_module = copy.deepcopy(module).double()
    reference_inputs = convert(inputs, dtype=torch.float64)
    target = getattr(torch, dtype)
    module, inputs = module.to(device=device, dtype=target), convert(inputs, device=device, dtype=target)
    with torch.no_grad():
        expected = module(**inputs)
        reference = _reference(reference_module, reference_inputs, device)
        result, compiled = _compiled(module, inputs, expected, reference, fullgraph)
        if compiled is not None:
            _check_other_sizes(result, compiled, module, reference_module, inputs, device)
        return result


def _reference(module: torch.nn.Module, inputs: dict[str, Any], device: str) -> Any:
    """The call in float64; None where the model itself insists on a smaller type."""
    try:
        return module.to(device)(**convert(inputs, device=device))
    except (RuntimeError, NotImplementedError):
        return None


def _compiled(
    module: torch.nn.Module, inputs: Mapping[str, Any], expected: Any, reference: Any, fullgraph: bool
) -> tuple[dict[str, Any], Any]:
    """Compile, call twice and compare. The compiled module comes second, None after a break under `fullgraph`.

    graphs, breaks, fallbacks, kernels, launches, extern_calls, seconds (by stage): as `lampwork.stats` has them.
    first_call_s: the first call, with all compiling and loading of the compiler. nodes: operators in the graph.
    """
    import lampwork

    compiled = lampwork.compile(module, fullgraph=fullgraph, options={"cache": False})
    result: dict[str, Any] = {"status": "ok", "reasons": [], "breaks": [], "fallbacks": []}
    start = time.perf_counter()
    try:
        first = compiled(**inputs)
    except lampwork.GraphBreak as stop:
        return {**result, "status": "break", "reasons": [], "breaks": [told(stop.diagnostic)]}, None
    result["first_call_s"] = time.perf_counter() - start
    for call, value in (("first", first), ("second", compiled(**inputs))):
        verdict = compare(value, expected, reference)
        if not verdict.accepted:
            result["status"] = "wrong"
            result["reasons"] += [f"{call} call: {reason}" for reason in verdict.reasons[:4]]
        result["notes"] = list(verdict.notes[:4])
    stats = lampwork.stats(compiled)
    running = stats["entries"] if stats["launches"] or stats["extern_calls"] else 0
    result.update(
        graphs=running,
        breaks=[told(each) for each in stats["breaks"]],
        fallbacks=[told(each) for each in stats["fallbacks"]],
        kernels=stats["native_kernels"],
        launches=stats["launches"],
        extern_calls=sum(stats["extern_calls"].values()),
        seconds=dict(stats["compile_seconds"]),
        nodes=0 if stats["breaks"] or stats["fallbacks"] else _captured_nodes(module, inputs),
        sizes=[],
    )
    return result, compiled


def _check_other_sizes(
    result: dict[str, Any],
    compiled: Any,
    module: torch.nn.Module,
    reference_module: torch.nn.Module,
    inputs: Mapping[str, Any],
    device: str,
) -> None:
    """Calls with inputs of other sizes, judged and noted in `result`: `sizes` names those that eager takes."""
    import lampwork

    for name, changed in resized(inputs):
        try:
            expected = module(**changed)
        except Exception:  # a configuration may fix the size
            continue
        reference = _reference(reference_module, convert(changed, dtype=torch.float64), device)
        verdict = compare(compiled(**changed), expected, reference)
        result["sizes"].append(name)
        if not verdict.accepted:
            result["status"] = "wrong"
            result["reasons"] += [f"{name}: {reason}" for reason in verdict.reasons[:4]]
    stats = lampwork.stats(compiled)
    known = [*result["fallbacks"], *result["breaks"]]
    late = [told(each) for key in ("breaks", "fallbacks") for each in stats[key]]
    result["late"] = [each for each in late if each not in known]


def _captured_nodes(module: torch.nn.Module, inputs: Mapping[str, Any]) -> int:
    """Operators in the captured graph, inputs and result left out."""
    from lampwork.capture.capture import capture
    from lampwork.config import Settings

    graph = capture(module, (), dict(inputs), Settings()).graph
    return sum(node.op == "call_function" for node in graph.nodes)


# The processes and the table ------------------------------------------------------------------------------------------


def run_apart(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """`check` in a process of its own. A crash, an exception and a timeout are results too."""
    common: dict[str, Any] = {"timeout": options.timeout, "fullgraph": options.fullgraph}
    if options.task != "infer":
        return architecture_process.run_apart(architecture_training.check, name, task=options.task, **common)
    if options.device == "cpu":
        return architecture_process.run_apart(check, name, dtype=options.dtype, **common)
    command = [sys.executable, "-m", "bench.architecture_check", name, "--worker", "--device", options.device]
    command += ["--dtype", options.dtype, *(["--fullgraph"] if options.fullgraph else [])]
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=options.timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "reasons": [f"no result in {options.timeout:.0f} s"]}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    told = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
    return {"status": "crash" if done.returncode < 0 else "error", "reasons": told}


_STATUS = {"ok": "[green]yes[/]", "missing": "[dim]not here[/]"}


def report(results: Mapping[str, Mapping[str, Any]], console: Console) -> None:
    """Prints the table, then why some are not one graph or not right, and a line that sums it up."""
    table = Table(box=None, pad_edge=False)
    for title in ("architecture", "family", "one graph", "right"):
        table.add_column(title, no_wrap=True)
    for title in ("first call, s", "operators", "kernels", "ATen calls"):
        table.add_column(title, justify="right", no_wrap=True)
    reasons: list[str] = []
    for name, result in results.items():
        numbers = [f"{result['first_call_s']:.2f}" if "first_call_s" in result else ""]
        numbers += [str(result.get(key) or "") for key in ("nodes", "kernels", "extern_calls")]
        status = _STATUS.get(result["status"], f"[red]{result['status']}[/]")
        table.add_row(name, BY_NAME[name].family, "yes" if _is_one_graph(result) else "", status, *numbers)
        reasons += [f"{name}: {reason}" for reason in _reasons(result)]
    console.print(table)
    for reason in reasons:
        console.print(reason, markup=False, highlight=False, soft_wrap=True)
    present = [each for each in results.values() if each["status"] != "missing"]
    right = sum(each["status"] == "ok" for each in present)
    one = sum(map(_is_one_graph, present))
    eagerly = sum(bool(each.get("fallbacks")) for each in present)
    sizes = sum(len(each.get("sizes", [])) for each in present)
    counts = f"{right} with eager's result, {one} in one graph, {eagerly} with calls run eagerly"
    console.print(f"{len(present)} architectures: {counts}" + (f"; {sizes} calls at other sizes" if sizes else ""))


def _is_one_graph(result: Mapping[str, Any]) -> bool:
    """Nothing divided it, nothing ran eagerly. Training may have had to compile it again after the first step."""
    return bool(result.get("graphs")) and not result.get("fallbacks") and not result.get("breaks")


def _reasons(result: Mapping[str, Any]) -> list[str]:
    breaks = result.get("breaks", [])
    broken = {each["reason"] for each in breaks}
    again = [f"recompiled: {each['reason']}" for each in result.get("recompiles", [])]
    others = [each for each in result.get("fallbacks", []) if each["reason"] not in broken]
    divided = [f"break at {_short(each['where'])}: {each['reason']}" for each in breaks]
    late = [f"at other sizes, {_short(each['where'])}: {each['reason']}" for each in result.get("late", [])]
    return [*divided, *late, *(f"fall-back: {each['reason']}" for each in others), *again, *result["reasons"]]


def _short(where: str) -> str:
    return "/".join(where.split("/")[-2:])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.architectures", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {len(ARCHITECTURES)}: {', '.join(BY_NAME)}")
    parser.add_argument("--task", choices=("infer", "train", "step"), default="infer", help="train: see its file")
    parser.add_argument("--fullgraph", action="store_true", help="a break is a failure")
    parser.add_argument("--json", metavar="FILE", help="write results here, and go on from what it holds")
    parser.add_argument("--again", action="store_true", help="run what FILE holds already")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds for one architecture")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in BY_NAME]
    if unknown:
        parser.error(f"no architecture {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    if options.worker:
        warnings.simplefilter("ignore")
        result = check(options.names[0], fullgraph=options.fullgraph, device=options.device, dtype=options.dtype)
        print(MARK + json.dumps(result), flush=True)
        return 0
    names = options.names or list(BY_NAME)
    file = Path(options.json) if options.json else None
    stored = json.loads(file.read_text()) if file is not None and file.exists() and not options.again else {}
    results: dict[str, Any] = {}
    console = Console(width=None if sys.stdout.isatty() else 120)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("architectures", total=len(names))
        for name in names:
            progress.update(task, description=name)
            results[name] = stored[name] if name in stored else run_apart(name, options)
            if results[name]["status"] == "missing":
                console.print(f"{name}: skipped: {results[name]['reasons'][0]}")
            if file is not None:
                file.write_text(json.dumps({**stored, **results}, indent=1))
            progress.advance(task)
    report(results, console)
    return 0 if all(each["status"] in ("ok", "missing") for each in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
