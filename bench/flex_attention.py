"""`flex_attention` on a GPU, forward and backward, beside `torch.compile(flex_attention)`.

    python bench/flex_attention.py [--rows 1024 4096] [--width 64 128] [--cases causal window] [--tilings]

A line for each case: milliseconds of ours and of the other compiler, medians of `--repeats` calls. `--tilings`:
instead, the time of each kernel of the backward pass by tiling (rows, keys, warps, stages).
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import warnings
from collections.abc import Callable

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import lampwork

HEADS = 16


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j < 1024)


def capped(score, b, h, i, j):
    return 20 * torch.tanh(score / 20)


def case_of(name: str, rows: int) -> tuple[Callable, Callable]:
    """(ours, the peer's): functions of q, k and v before they are compiled."""
    mask, change = None, None
    if name in ("causal", "window"):
        mask = create_block_mask(causal if name == "causal" else window, None, None, rows, rows, device="cuda")
    elif name == "document":
        ids = torch.arange(rows, device="cuda") // max(rows // 8, 1)
        mask = create_block_mask(
            lambda b, h, i, j: (ids[i] == ids[j]) & (i >= j), None, None, rows, rows, device="cuda"
        )
    elif name == "capped":
        change = capped

    def function(q, k, v):
        return flex_attention(q, k, v, score_mod=change, block_mask=mask)

    peer = torch.compile(flex_attention, dynamic=False)
    return function, lambda q, k, v: peer(q, k, v, score_mod=change, block_mask=mask)


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    for _ in range(4):
        call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in times)


def measured(function: Callable, q, k, v, repeats: int) -> tuple[float, float, list[torch.Tensor]]:
    """(forward, backward, results and gradients)."""
    inputs = [each.detach().clone().requires_grad_() for each in (q, k, v)]
    result = function(*inputs)
    tangent = torch.ones_like(result).mul_(0.1)
    gradients = torch.autograd.grad(result, inputs, tangent, retain_graph=True)
    forward = milliseconds(lambda: function(*inputs), repeats)
    backward = milliseconds(lambda: torch.autograd.grad(result, inputs, tangent, retain_graph=True), repeats)
    return forward, backward, [result.detach(), *gradients]


def compare(options: argparse.Namespace) -> None:
    ratios: dict[str, list[float]] = {"forward": [], "backward": []}
    print(f"{'case':9} {'width':>5} {'rows':>6}   forward: ours peer ratio      backward: ours peer ratio   difference")
    for name in options.cases:
        for width in options.width:
            for rows in options.rows:
                torch._dynamo.reset()
                q, k, v = (torch.randn(1, HEADS, rows, width, dtype=torch.bfloat16, device="cuda") for _ in range(3))
                function, peer = case_of(name, rows)
                compiled = lampwork.compile(function, options={"cache": False})
                ours = measured(compiled, q, k, v, options.repeats)
                theirs = measured(peer, q, k, v, options.repeats)
                off = max(
                    ((one - other).float().abs().max() / other.float().abs().max()).item()
                    for one, other in zip(ours[2], theirs[2])
                )
                parts = [f"{ours[n]:8.3f} {theirs[n]:8.3f} {theirs[n] / ours[n]:5.2f}" for n in range(2)]
                ratios["forward"].append(theirs[0] / ours[0])
                ratios["backward"].append(theirs[1] / ours[1])
                notes = [each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]]
                notes += [f"{op} x{n}" for op, n in lampwork.stats(compiled)["extern_calls"].items()]
                print(
                    f"{name:9} {width:5} {rows:6}   {parts[0]}   {parts[1]}   {off:.1e} {' '.join(notes)}", flush=True
                )
    for name, values in ratios.items():
        print(name, "geometric mean", round(math.exp(statistics.fmean(map(math.log, values))), 3))


def tilings(options: argparse.Namespace) -> None:
    from lampwork.codegen.triton import weighted_sums as writing
    from lampwork.codegen.triton.tiles import Tiling

    rule = writing.sum_tilings
    for name in options.cases:
        for width in options.width:
            for rows in options.rows:
                q, k, v = (
                    torch.randn(1, HEADS, rows, width, dtype=torch.bfloat16, device="cuda", requires_grad=True)
                    for _ in range(3)
                )
                for y, x, warps, stages in CANDIDATES:
                    wanted = Tiling(x, max(64, width), y, num_warps=warps, num_stages=stages)
                    writing.sum_tilings = lambda kernel, target: (wanted,) if rule(kernel, target) else ()
                    try:
                        compiled = lampwork.compile(case_of(name, rows)[0], options={"cache": False})
                        result = compiled(q, k, v)
                        tangent = torch.ones_like(result)
                        for _ in range(3):
                            torch.autograd.grad(result, (q, k, v), tangent, retain_graph=True)
                        activities = [torch.profiler.ProfilerActivity.CUDA]
                        with torch.profiler.profile(activities=activities) as profile:
                            for _ in range(10):
                                torch.autograd.grad(result, (q, k, v), tangent, retain_graph=True)
                            torch.cuda.synchronize()
                        found = sorted(
                            (each.key, each.device_time_total / each.count / 1e3)
                            for each in profile.key_averages()
                            if "weighted" in each.key
                        )
                        text = " ".join(f"{key[-6:]} {time:.3f}" for key, time in found)
                    except Exception as error:
                        text = f"{type(error).__name__}: {error}"[:100]
                    print(name, width, rows, (y, x, warps, stages), text, flush=True)


CANDIDATES = (
    (128, 64, 8, 2), (128, 64, 4, 2), (128, 64, 8, 3), (128, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 2),
    (64, 128, 8, 2), (128, 32, 4, 3), (128, 128, 8, 2), (64, 32, 4, 3), (128, 64, 8, 1), (64, 64, 8, 2),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1024, 4096, 16384, 32768])
    parser.add_argument("--width", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--cases", nargs="+", default=["plain", "causal", "window", "document", "capped"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tilings", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with torch.no_grad():
        flex_attention(*(torch.zeros(1, 1, 4, 4),) * 3)  # imports
    print(torch.__version__, torch.cuda.get_device_name(), file=sys.stderr)
    (tilings if options.tilings else compare)(options)


if __name__ == "__main__":
    main()
