"""Fused kernels one by one: eager, torch.compile and lampwork in turns, output kept and output dropped at once.

    python -m bench.kernels [NAMES...] [--seconds 2] [--json FILE] [--no-peer]

Each case checks lampwork's numbers against eager and float64 before it is timed. With the output kept, every call
writes to memory that was not in use before, and page faults are part of it; dropped at once, a compiler may write to
the same memory again. GB/s counts each input read once and each output written once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch.nn import functional

from lampwork.benchmark.measure import geometric_mean, measure_interleaved
from lampwork.verdict.verify import compare

aten = torch.ops.aten
KEPT = 4  # outputs that stay alive in the "kept" half


@dataclass(frozen=True)
class Case:
    """A function and its inputs; `inputs()` makes them anew, equal each time."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]


def gelu_affine(x, s, b):
    return functional.gelu(x * s + b)


def softmax(x):
    return torch.softmax(x, -1)


def layer_norm(x, weight, bias):
    return functional.layer_norm(x, (x.shape[-1],), weight, bias)


def sum_rows(x):
    return x.sum(0)


def sum_columns(x):
    return x.sum(1)


def transpose_copy(x):
    return x.t().contiguous()


def silu_gate(x, y):
    return functional.silu(x) * y


# Derivatives, as autograd calls them ----------------------------------------


def gelu_gradients(g, x):
    of_input = aten.gelu_backward(g, x)
    return of_input, of_input.sum(0)


def layer_norm_gradients(g, x, weight, bias):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    return aten.native_layer_norm_backward(
        g, x, [x.shape[-1]], mean, (variance + 1e-5).rsqrt(), weight, bias, [True, True, True]
    )


def softmax_gradient(g, y):
    return aten._softmax_backward_data(g, y, -1, y.dtype)


def cross_entropy_gradient(logits, target):
    y = torch.log_softmax(logits, -1)
    loss, total = aten.nll_loss_forward(y, target, None, 1, -100)
    picked = aten.nll_loss_backward(torch.ones_like(loss), y, target, None, 1, -100, total)
    return loss, aten._log_softmax_backward_data(picked, y, 1, y.dtype)


def embedding_gradient(g, indices):
    return aten.embedding_dense_backward(g, indices, 8192, -1, False)


def batch_norm_gradients(g, x, weight, mean, rstd):
    return aten.native_batch_norm_backward(
        g, x, weight, None, None, mean, rstd.abs() + 0.5, True, 1e-5, [True, True, True]
    )


def group_norm_gradients(g, x, weight, mean, rstd):
    n, c, h, w = x.shape
    return aten.native_group_norm_backward(
        g, x, mean, rstd.abs() + 0.5, weight, n, c, h * w, mean.shape[1], [True, True, True]
    )


def max_pool_gradient(g, x):
    indices = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])[1]
    return aten.max_pool2d_with_indices_backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, indices)


def slices_gradient(q, k, v):
    """Of a tensor that was cut into three: the sum of three gradients among zeros."""
    size = [q.shape[0], 3 * q.shape[1]]
    width = q.shape[1]
    return (
        aten.slice_backward(q, size, 1, 0, width, 1)
        + aten.slice_backward(k, size, 1, width, 2 * width, 1)
        + aten.slice_backward(v, size, 1, 2 * width, 3 * width, 1)
    )


def _random(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], tuple[torch.Tensor, ...]]:
    def inputs() -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(5)
        return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)

    return inputs


def _with_numbers(shape: tuple[int, ...], numbers: tuple[int, ...], below: int) -> Callable[[], tuple]:
    """A random tensor and random integers of shape `numbers` below a bound."""

    def inputs() -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(5)
        return torch.randn(shape, generator=generator), torch.randint(0, below, numbers, generator=generator)

    return inputs


SQUARE = (4096, 4096)
IMAGES = (16, 64, 56, 56)
CASES = [
    Case("gelu(x*s+b) f32 4096x4096", gelu_affine, _random(SQUARE, (4096,), (4096,))),
    Case("gelu(x*s+b) bf16 4096x4096", gelu_affine, _random(SQUARE, (4096,), (4096,), dtype=torch.bfloat16)),
    Case("softmax 2048x2048", softmax, _random((2048, 2048))),
    Case("layer_norm 8192x1024", layer_norm, _random((8192, 1024), (1024,), (1024,))),
    Case("sum dim 0 4096x4096", sum_rows, _random(SQUARE)),
    Case("sum dim 1 4096x4096", sum_columns, _random(SQUARE)),
    Case("transpose copy 4096x4096", transpose_copy, _random(SQUARE)),
    Case("silu-gate 4096x4096", silu_gate, _random(SQUARE, SQUARE)),
    Case("gelu, bias gradients 4096x3072", gelu_gradients, _random((4096, 3072), (4096, 3072))),
    Case("layer_norm gradients 8192x768", layer_norm_gradients, _random((8192, 768), (8192, 768), (768,), (768,))),
    Case("softmax gradient 2048x2048", softmax_gradient, _random((2048, 2048), (2048, 2048))),
    Case("cross entropy, gradient 512x32000", cross_entropy_gradient, _with_numbers((512, 32000), (512,), 32000)),
    Case("embedding gradient 4096 of 8192x768", embedding_gradient, _with_numbers((4096, 768), (4096,), 8192)),
    Case("batch_norm gradients 16x64x56x56", batch_norm_gradients, _random(IMAGES, IMAGES, (64,), (64,), (64,))),
    Case(
        "group_norm gradients 16x64x56x56",
        group_norm_gradients,
        _random(IMAGES, IMAGES, (64,), (16, 8), (16, 8)),
    ),
    Case("max_pool, gradient 16x64x56x56", max_pool_gradient, _random((16, 64, 28, 28), IMAGES)),
    Case("gradient of three slices 4096x2304", slices_gradient, _random((4096, 768), (4096, 768), (4096, 768))),
]


def measure_case(case: Case, seconds: float, compilers: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Times of one case in ms: {"kept": {column: Timing}, "dropped": ...}, the verdict, and bytes moved a call."""
    inputs = case.inputs()
    found: dict[str, Any] = {"name": case.name, "errors": {}}
    with torch.no_grad():
        expected = case.function(*inputs)
        reference = case.function(*(each.double() if each.is_floating_point() else each for each in inputs))
        results = expected if isinstance(expected, tuple) else (expected,)
        found["bytes"] = sum(tensor.nbytes for tensor in (*inputs, *results))
        del results
        calls: dict[str, Callable[[], Any]] = {}
        for column, compiler in compilers.items():
            try:
                compiled = compiler(case.function)
                verdict = compare(compiled(*inputs), expected, reference)
            except Exception as error:  # one compiler's failure is a cell of the table
                found["errors"][column] = f"{type(error).__name__}: {error}"[:300]
                continue
            if not verdict.accepted:
                found["errors"][column] = "; ".join(verdict.reasons)
            calls[column] = lambda compiled=compiled: compiled(*inputs)
        del expected, reference
        for kept in (KEPT, 0):
            timings = measure_interleaved(calls, seconds=seconds, min_rounds=7, calls_per_sample=1, keep_outputs=kept)
            found["kept" if kept else "dropped"] = {name: timing.as_dict() for name, timing in timings.items()}
    return found


def print_table(results: list[dict[str, Any]], columns: list[str], console: Console) -> None:
    """Medians in ms, and how many times faster than torch.compile (or eager without it) lampwork is."""
    over = "torch.compile" if "torch.compile" in columns else "eager"
    for half in ("kept", "dropped"):
        table = Table(title=f"Output {half}: median ms (GB/s), lampwork's times faster than {over}")
        table.add_column("kernel")
        for column in columns:
            table.add_column(column, justify="right")
        table.add_column(f"x {over}", justify="right")
        ratios = []
        for found in results:
            timings = found[half]
            cells = []
            for column in columns:
                if column in timings:
                    median = timings[column]["median_ms"]
                    wrong = " [red]WRONG[/red]" if column in found["errors"] else ""
                    cells.append(f"{median:.2f} ({found['bytes'] / median / 1e6:.0f}){wrong}")
                else:
                    cells.append("[red]failed[/red]")
            if over in timings and "lampwork" in timings:
                ratios.append(timings[over]["median_ms"] / timings["lampwork"]["median_ms"])
                cells.append(f"{ratios[-1]:.2f}")
            else:
                cells.append("-")
            table.add_row(found["name"], *cells)
        if len(ratios) > 1:
            table.add_section()
            table.add_row("geometric mean", *[""] * len(columns), f"{geometric_mean(ratios):.2f}")
        console.print(table)
    for found in results:
        for column, error in found["errors"].items():
            console.print(f"{found['name']}, {column}: {error}", markup=False, style="red")


def main() -> int:
    import lampwork

    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each case and half (2)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--no-peer", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.names or any(name in case.name for name in options.names)]
    if not cases:
        parser.error("no such case: " + ", ".join(case.name for case in CASES))
    compilers: dict[str, Callable[[Any], Any]] = {"eager": lambda function: function}
    if not options.no_peer:
        # Sizes are fixed: a second size seen under the same code object would make the peer's kernel dynamic.
        compilers["torch.compile"] = lambda function: torch.compile(function, dynamic=False)
    compilers["lampwork"] = lampwork.compile
    results = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("kernels", total=len(cases))
        for case in cases:
            progress.update(task, description=case.name)
            results.append(measure_case(case, options.seconds, compilers))
            progress.advance(task)
    print_table(results, list(compilers), Console())
    if options.json:
        threads = torch.get_num_threads()
        report = {"torch": torch.__version__, "threads": threads, "seconds": options.seconds, "cases": results}
        Path(options.json).write_text(json.dumps(report, indent=1))
    return 1 if any("lampwork" in found["errors"] for found in results) else 0


if __name__ == "__main__":
    sys.exit(main())
