"""Fused kernels against the memory roofline of a GPU: achieved bandwidth as a share of a copy's.

    python -m bench.gpu_kernels [NAMES...] [--seconds 1] [--json FILE] [--budget S] [--no-peer]

Every case reads and writes several times what the L2 cache holds, counts each input read once and each output written
once, and is checked against eager and float64 before it is timed. The yardstick is the fastest of PyTorch's copies of
the same sizes, measured in the same run. Times are CUDA events over rows of calls, outputs dropped at once; eager,
torch.compile and lampwork take turns. Exits with 1 if lampwork failed, was wrong, or fell back.

`--device cpu --tiny` tries the harness where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from lampwork.benchmark import device as devices
from lampwork.benchmark.measure import geometric_mean
from lampwork.benchmark.tables import number, table
from lampwork.verdict.verify import compare

DROPPED = 0.1


@dataclass(frozen=True)
class Case:
    """A function and its inputs: `inputs(scale, device)` makes them, smaller ones for a scale above 1.

    `random`: its draws differ from eager's, so that only what is dropped and what is kept can be checked.
    """

    name: str
    function: Callable[..., torch.Tensor]
    inputs: Callable[[int, str], tuple[torch.Tensor, ...]]
    random: bool = False


def gelu(x):
    return functional.gelu(x)


def softmax(x):
    return torch.softmax(x, -1)


def layer_norm(x, weight, bias):
    return functional.layer_norm(x, (x.shape[-1],), weight, bias)


def rms_norm(x, weight):
    return functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def rms_norm_by_hand(x, weight):
    """As language models write it: in float32, by its parts."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def cross_entropy(logits, target):
    return functional.cross_entropy(logits, target, reduction="none")


def bias_dropout_residual(x, bias, residual):
    return functional.dropout(x + bias, DROPPED, training=False) + residual


def bias_dropout_residual_training(x, bias, residual):
    return functional.dropout(x + bias, DROPPED, training=True) + residual


def transpose(x):
    return x.t().contiguous()


def add_norm(x, residual, weight, bias):
    """A block's end: two outputs, the sum and its norm."""
    total = x + residual
    return total, functional.layer_norm(total, (x.shape[-1],), weight, bias)


def of(*shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> Callable[[int, str], tuple[torch.Tensor, ...]]:
    """Random tensors; `scale` divides the first dimension of those that have two."""

    def inputs(scale: int, device: str) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(5)
        sizes = [(max(1, shape[0] // scale), *shape[1:]) if len(shape) > 1 else shape for shape in shapes]
        return tuple(torch.randn(size, device=device, dtype=torch.float32).to(dtype) for size in sizes)

    return inputs


def logits(rows: int, classes: int) -> Callable[[int, str], tuple[torch.Tensor, ...]]:
    def inputs(scale: int, device: str) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(5)
        count = max(1, rows // scale)
        target = torch.randint(0, classes, (count,), device=device)
        return torch.randn(count, classes, device=device).to(torch.bfloat16), target

    return inputs


WIDE, TALL = (16384, 16384), (65536, 4096)  # 512 MiB in bf16, ten times the L2 of an H100
CASES = [
    Case("gelu bf16", gelu, of(WIDE)),
    Case("gelu f32", gelu, of((16384, 8192), dtype=torch.float32)),
    Case("softmax bf16 65536x4096", softmax, of(TALL)),
    Case("softmax f32 131072x1024", softmax, of((131072, 1024), dtype=torch.float32)),
    Case("layer_norm bf16 65536x4096", layer_norm, of(TALL, (4096,), (4096,))),
    Case("layer_norm bf16 262144x768", layer_norm, of((262144, 768), (768,), (768,))),
    Case("rms_norm bf16 65536x4096", rms_norm, of(TALL, (4096,))),
    Case("rms_norm by hand bf16 65536x2048", rms_norm_by_hand, of((65536, 2048), (2048,))),
    Case("add + layer_norm bf16 65536x4096", add_norm, of(TALL, TALL, (4096,), (4096,))),
    Case("cross_entropy bf16 8192x32000", cross_entropy, logits(8192, 32000)),
    Case("cross_entropy bf16 8192x50257", cross_entropy, logits(8192, 50257)),
    Case("bias+dropout+residual bf16", bias_dropout_residual, of(TALL, (4096,), TALL)),
    Case("the same, training", bias_dropout_residual_training, of(TALL, (4096,), TALL), random=True),
    Case("transpose bf16", transpose, of(WIDE)),
    Case("transpose f32", transpose, of((16384, 8192), dtype=torch.float32)),
]


def copy_bandwidth(device: str, scale: int) -> dict[str, float]:
    """GB/s, read and written bytes counted, of PyTorch's copy at three sizes; the best is the yardstick."""
    found = {}
    for mebibytes in (128, 512, 2048):
        source = torch.empty(mebibytes * 2**20 // scale, dtype=torch.uint8, device=device).random_()
        target = torch.empty_like(source)
        timing = devices.measure_in_turns(
            {"copy": lambda target=target, source=source: target.copy_(source)}, device, seconds=0.3
        )["copy"]
        found[f"{mebibytes} MiB"] = 2 * source.nbytes / (timing.device or timing.wall).median_ms / 1e6
    return found


def bytes_moved(inputs: Any, outputs: Any) -> int:
    tensors = [*inputs, *(outputs if isinstance(outputs, tuple) else (outputs,))]
    return sum(tensor.nbytes for tensor in tensors)


def dropped_rightly(output: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> str:
    """What is wrong with `bias_dropout_residual_training`'s output, or nothing: each element is dropped or scaled, and
    as many are dropped as should be."""
    x, bias, residual = (tensor.double() for tensor in inputs)
    kept = (x + bias) / (1 - DROPPED) + residual
    output = output.double()
    # Each step rounds: the terms of the last sum may be much larger than the sum.
    slack = 0.02 + 0.02 * ((x + bias).abs() / (1 - DROPPED) + residual.abs())
    as_kept, as_dropped = (output - kept).abs() <= slack, (output - residual).abs() <= slack
    if not bool((as_kept | as_dropped).all()):
        return "an element is neither dropped nor scaled"
    clear = (kept - residual).abs() > 0.5
    share = float((as_dropped & clear).sum() / clear.sum())
    return "" if abs(share - DROPPED) < 0.01 else f"{share:.3f} dropped instead of {DROPPED}"


def check(case: Case, output: Any, inputs: tuple[torch.Tensor, ...]) -> str:
    """What is wrong with an output, or nothing."""
    if case.random:
        return dropped_rightly(output, inputs)
    # On some rows: float64 of everything would take longer than the measurement. A transpose has no rows.
    rows = inputs[0].shape[0] if case.function is transpose else min(1024, inputs[0].shape[0])
    few = tuple(tensor[:rows] if tensor.shape[0] == inputs[0].shape[0] else tensor for tensor in inputs)
    expected = case.function(*few)
    double = (tensor.double() if tensor.is_floating_point() else tensor for tensor in few)
    reference = None if case.function is transpose else case.function(*double)
    part = tuple(each[:rows] for each in output) if isinstance(output, tuple) else output[: expected.shape[0]]
    verdict = compare(part, expected, reference)
    return "" if verdict.accepted else "; ".join(verdict.reasons)


def measure_case(
    case: Case, compilers: dict[str, Callable[[Any], Any]], device: str, seconds: float, scale: int
) -> dict[str, Any]:
    """Median ms, GB/s and what was wrong for each column of one case."""
    import lampwork

    inputs = case.inputs(scale, device)
    found: dict[str, Any] = {"name": case.name, "columns": {}, "errors": {}}
    calls: dict[str, Callable[[], Any]] = {}
    with torch.no_grad():
        found["bytes"] = bytes_moved(inputs, case.function(*inputs))
        for column, compiler in compilers.items():
            started = time.perf_counter()
            try:
                compiled = compiler(case.function)
                wrong = check(case, compiled(*inputs), inputs) if column != "eager" else ""
                if wrong:
                    found["errors"][column] = wrong
                elif column == "lampwork" and lampwork.stats(compiled)["fallbacks"]:
                    found["errors"][column] = f"ran eagerly: {lampwork.stats(compiled)['fallbacks'][0]}"
            except Exception as error:  # one compiler's failure is a cell of the table
                found["errors"][column] = f"{type(error).__name__}: {error}"[:300]
                continue
            found["columns"][column] = {"first_call_seconds": time.perf_counter() - started}
            calls[column] = lambda compiled=compiled: compiled(*inputs)
        timings = devices.measure_in_turns(calls, device, seconds=seconds, min_rounds=5)
        for column, timing in timings.items():
            milliseconds = (timing.device or timing.wall).median_ms
            found["columns"][column] |= {
                "median_ms": milliseconds,
                "gb_s": found["bytes"] / milliseconds / 1e6,
                "timing": timing.as_dict(),
            }
    return found


def print_table(results: list[dict[str, Any]], columns: list[str], copies: dict[str, float]) -> None:
    """Milliseconds and the share of the copy's bandwidth, and lampwork's geometric mean and worst case."""
    best = max(copies.values())
    rows = []
    for found in results:
        cells = [found["name"], f"{found['bytes'] / 2**20:.0f} MiB"]
        for column in columns:
            values = found["columns"].get(column)
            if values is None:
                cells += ["failed", "-"]
                continue
            cells += [number(values["median_ms"]), f"{values['gb_s'] / best:.1%}"]
            if column in found["errors"]:
                cells[-1] += " WRONG"
        rows.append(cells)
    headings = ["kernel", "moved", *(text for column in columns for text in (f"{column} ms", "of copy"))]
    sizes = ", ".join(f"{size} {value:.0f}" for size, value in copies.items())
    print(table(f"Copy, GB/s: {sizes}. Share of the best:", headings, rows))
    for column in columns:
        shares = {
            found["name"]: found["columns"][column]["gb_s"] / best for found in results if column in found["columns"]
        }
        if shares:
            worst = min(shares, key=lambda name: shares[name])
            mean = geometric_mean(list(shares.values()))
            print(f"{column}: {mean:.1%} in geometric mean of {len(shares)}, least {shares[worst]:.1%} ({worst})")
    for found in results:
        for column, error in found["errors"].items():
            print(f"{found['name']}, {column}: {error}")


def main() -> int:
    import lampwork

    parser = argparse.ArgumentParser(prog="python -m bench.gpu_kernels", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="a 512th of the sizes")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each case (1)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="start no case after so many seconds")
    parser.add_argument("--json", metavar="FILE", help="written anew after each case")
    parser.add_argument("--no-peer", action="store_true", help="leave torch.compile out")
    parser.add_argument("--peer-mode", default="default", metavar="MODE")
    parser.add_argument("--mode", default="default", metavar="MODE", help="lampwork's mode (default)")
    parser.add_argument("--dynamic", action="store_true", help="lampwork's kernels for sizes that vary")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("bench.gpu_kernels: no NVIDIA GPU; --device cpu --tiny tries the harness", file=sys.stderr)
        return 2
    cases = [case for case in CASES if not options.names or any(name in case.name for name in options.names)]
    if not cases:
        parser.error("no such case: " + ", ".join(case.name for case in CASES))
    compilers: dict[str, Callable[[Any], Any]] = {"eager": lambda function: function}
    # Sizes are fixed: a second size of one function, in this process or in the cache, would make its kernel dynamic.
    if not options.no_peer:
        compilers["torch.compile"] = lambda function: torch.compile(function, dynamic=False, mode=options.peer_mode)
    compilers["lampwork"] = lambda function: lampwork.compile(function, mode=options.mode, dynamic=options.dynamic)
    scale = 512 if options.tiny else 1
    deadline = time.monotonic() + (options.budget or float("inf"))
    results: list[dict[str, Any]] = []
    copies = copy_bandwidth(options.device, scale)
    for case in cases:
        if time.monotonic() > deadline:
            print(f"out of time before {case.name}", file=sys.stderr)
            break
        started = time.monotonic()
        results.append(measure_case(case, compilers, options.device, options.seconds, scale))
        ours = results[-1]["columns"].get("lampwork", {}).get("gb_s")
        told = "failed" if ours is None else f"{ours / max(copies.values()):.1%} of the copy"
        print(f"{case.name}: {told} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
        if options.json:
            report = {"torch": torch.__version__, "device": devices.describe(options.device), "copy_gb_s": copies}
            Path(options.json).write_text(json.dumps({**report, "cases": results}, indent=1))
    print_table(results, list(compilers), copies)
    return 1 if any("lampwork" in found["errors"] for found in results) else 0


if __name__ == "__main__":
    sys.exit(main())
