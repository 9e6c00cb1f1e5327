"""What `lampwork.compile(optimizer.step)` costs and gains, for every optimizer of `torch.optim` over many parameters.

    python -m bench.optimizers [NAMES...] [--parameters 300] [--width W] [--device cpu|cuda]
                               [--ways single foreach fused] [--mode MODE] [--seconds 0.5] [--record FILE] [--resume]

Parameters are those of transformer layers, twelve a layer, of width 64 on the CPU and 1024 on a GPU (Muon gets the
matrices alone). A line for each optimizer and way of PyTorch's to run it:

    compile     seconds of the first ten steps beyond ten later ones, and the share of them that was the first step's;
                processor time of the calling thread, with what any compile loads loaded before
    entries     programs compiled, and launches of the last one
    step        microseconds of a step, by turns: compiled, eager the same way, eager's foreach and fused if any
    apart       the largest difference of a parameter from eager's after three steps, over the largest parameter

Results go to `--record`, a line of JSON each; `--resume` goes on with it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import lampwork
from lampwork.benchmark.record import Record, source_digest

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 1e-3}),
    "momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "adam": ("Adam", {"lr": 1e-3}),
    "adamw": ("AdamW", {"lr": 1e-3}),
    "amsgrad": ("AdamW", {"lr": 1e-3, "amsgrad": True}),
    "adagrad": ("Adagrad", {"lr": 1e-3}),
    "rmsprop": ("RMSprop", {"lr": 1e-3}),
    "nadam": ("NAdam", {"lr": 1e-3}),
    "radam": ("RAdam", {"lr": 1e-3}),
    "adadelta": ("Adadelta", {"lr": 1e-1}),
    "adamax": ("Adamax", {"lr": 1e-3}),
    "asgd": ("ASGD", {"lr": 1e-3}),
    "rprop": ("Rprop", {"lr": 1e-3}),
    "muon": ("Muon", {"lr": 1e-3}),
    "adafactor": ("Adafactor", {"lr": 1e-3}),
}
WAYS: dict[str, dict[str, Any]] = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
FIRST_STEPS = 10


def shapes_of(count: int, width: int) -> list[tuple[int, ...]]:
    """The first `count` parameters of layers of a transformer."""
    layer: list[tuple[int, ...]] = [
        (width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,),
        (width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,),
    ]  # fmt: skip
    return [layer[index % len(layer)] for index in range(count)]


class Training:
    """Parameters with gradients, and an optimizer over them. The same for the same arguments."""

    def __init__(self, name: str, way: str, count: int, width: int, device: str) -> None:
        """Raises RuntimeError, TypeError or ValueError where the optimizer is not run that way."""
        kind, options = OPTIMIZERS[name]
        made = torch.Generator(device).manual_seed(0)
        shapes = [each for each in shapes_of(count, width) if len(each) == 2 or kind != "Muon"]
        self.params = [torch.nn.Parameter(torch.randn(s, generator=made, device=device)) for s in shapes]
        self.grads = [torch.randn(each.shape, generator=made, device=device) for each in self.params]
        only_way = {} if kind == "Muon" and way == "single" else WAYS[way]
        self.optimizer = getattr(torch.optim, kind)(self.params, **options, **only_way)
        self.set_gradients()

    def new_gradients(self) -> list[torch.Tensor]:
        """New tensor objects, as every backward pass makes them."""
        return [grad.detach() for grad in self.grads]

    def set_gradients(self, gradients: list[torch.Tensor] | None = None) -> None:
        for param, grad in zip(self.params, gradients or self.new_gradients()):
            param.grad = grad


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def compile_costs(
    step: Callable[[], Any], training: Training, eager: Training, device: str
) -> tuple[list[float], list[float], float]:
    """Processor seconds of each of the first steps, and of as many later ones; and how far `eager` is apart after
    three steps."""
    spent, apart = [], 0.0
    for number in range(2 * FIRST_STEPS):
        training.set_gradients()
        start = time.thread_time()
        step()
        synchronize(device)
        spent.append(time.thread_time() - start)
        if number < 3:
            eager.optimizer.step()
            apart = difference(training, eager)
    return spent[:FIRST_STEPS], spent[FIRST_STEPS:], apart


@torch.no_grad()
def difference(training: Training, eager: Training) -> float:
    """The largest difference of a parameter, over the largest of the parameter."""
    pairs = zip(training.params, eager.params)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs)


def step_times(steps: dict[str, tuple[Callable[[], Any], Training]], device: str, seconds: float) -> dict[str, float]:
    """Median microseconds of a step of each, in turns of five steps. Setting every `.grad` is part of it."""
    found: dict[str, list[float]] = {each: [] for each in steps}
    end = time.perf_counter() + seconds * len(steps)
    while time.perf_counter() < end or not all(found.values()):
        for each, (step, training) in steps.items():
            gradients = [training.new_gradients() for _ in range(5)]
            synchronize(device)
            start = time.perf_counter()
            for each_step in gradients:
                training.set_gradients(each_step)
                step()
            synchronize(device)
            found[each].append((time.perf_counter() - start) / 5)
    return {each: statistics.median(times) * 1e6 for each, times in found.items()}


def measure(name: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """One line of the table; {"refused": why} where PyTorch does not run the optimizer that way."""
    sizes = (options.parameters, options.width, options.device)
    try:
        training, eager = (Training(name, way, *sizes) for _ in range(2))
    except (RuntimeError, TypeError, ValueError) as error:
        return {"refused": str(error).splitlines()[0]}
    step = lampwork.compile(training.optimizer.step, mode=options.mode, options={"cache": False})
    first, later, apart = compile_costs(step, training, eager, options.device)
    steps: dict[str, tuple[Callable[[], Any], Training]] = {
        "compiled": (step, training),
        "eager": (eager.optimizer.step, eager),
    }
    for other in ("foreach", "fused"):
        if other == way:
            continue
        try:
            peer = Training(name, other, *sizes)
        except (RuntimeError, TypeError, ValueError):
            continue
        steps[other] = (peer.optimizer.step, peer)
    stats = lampwork.stats(step)
    beyond = [each - statistics.median(later) for each in first]
    return {
        "compile_seconds": sum(beyond),
        "first_call_seconds": beyond[0],
        "entries": stats["entries"],
        "launches": stats["launches"],
        "whole": not stats["breaks"] and not stats["fallbacks"],
        "step_us": step_times(steps, options.device, options.seconds),
        "apart": apart,
    }


def load_the_compiler(device: str) -> None:
    """Compiles a small update, so that what any compile loads is loaded."""
    param = torch.nn.Parameter(torch.zeros(4, 4, device=device))
    param.grad = torch.ones_like(param)
    optimizer = torch.optim.Adam([param])
    step = lampwork.compile(optimizer.step, options={"cache": False})
    for _ in range(8):
        step()


def table_of(record: Record, names: list[str], ways: list[str]) -> Table:
    columns = ("optimizer", "way", "compile s", "first", "entries", "launches", "step us", "eager", "foreach", "fused")
    table = Table(*columns, "apart")
    for name in names:
        for way in ways:
            found = record.get(name, way)
            if not found or "refused" in found:
                continue
            times = found["step_us"]
            peers = [f"{times[each]:.0f}" if each in times else "-" for each in ("eager", "foreach", "fused")]
            whole = "" if found["whole"] else " (in parts)"
            table.add_row(
                name, way, f"{found['compile_seconds']:.2f}", f"{found['first_call_seconds']:.2f}",
                f"{found['entries']}{whole}", str(found["launches"]), f"{times['compiled']:.0f}", *peers,
                f"{found['apart']:.0e}",
            )  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*OPTIMIZERS, []], default=[], metavar="NAMES")
    parser.add_argument("--parameters", type=int, default=300)
    parser.add_argument("--width", type=int)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--mode", default="default")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--record")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    options.width = options.width or (64 if options.device == "cpu" else 1024)
    names = options.names or list(OPTIMIZERS)
    plan = f"{options.device} {options.parameters} x {options.width} {options.mode}"
    record = Record(options.record, plan, source_digest(), options.resume)
    console = Console(width=140)
    load_the_compiler(options.device)
    for name in names:
        for way in options.ways:
            if not record.get(name, way):
                start = time.perf_counter()
                found = measure(name, way, options)
                record.add(name, way, "", found, time.perf_counter() - start)
                console.print(f"{name} {way}: {found}", highlight=False)
    console.print(f"{plan}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    console.print(table_of(record, names, options.ways))


if __name__ == "__main__":
    main()
