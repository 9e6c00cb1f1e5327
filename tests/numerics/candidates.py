"""Operators that might be rows of `backends/exact.py`: each alone, by a kernel of ours beside eager's.

    python -m tests.numerics.candidates --device cuda --out candidates.json

What the table says is set aside: kernels compute all that there is a rule for. A cell says how many elements have other
bits than eager's, of those of all layouts: all values of half types, and many of the others, in vectors with tails, with
gaps, transposed. `=` means none in any call; `call` that no kernel was made, `fails` that something raised. Operators
that contain the sum of a product are tried with one rounding of it (`fma`) and with two (`mul+add`).

An operator becomes a row where all its cells are `=`, for the types where they are: with the condition of its calls.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

import lampwork
from lampwork import _torch
from lampwork.backends import BACKENDS, exact
from lampwork.ir.dtype import NATIVE
from lampwork.lower import lower as _lower  # noqa: F401  (loads every rule)
from tests.numerics.exact_rows import CALLS, FLOATS, MORE, values
from tests.ops.bits import bits

aten = torch.ops.aten

#: Name -> (types, tensors, functions of these).
Candidates = dict[str, tuple[tuple[torch.dtype, ...], int, list[Callable]]]


class _Everything(dict):
    """A table in which each operator is a row."""

    _rows = (exact.Exact(NATIVE),)

    def get(self, name: str, default: Any = None) -> Any:
        return self._rows


def _one(name: str, *rest: Any, overload: str = "default", **options: Any) -> Callable:
    return lambda x: getattr(getattr(aten, name), overload)(x, *rest, **options)


def _rowed(function: Callable) -> Callable:
    """Of rows of a vector; of other layouts nothing."""
    return lambda x: (
        function(x[: x.numel() // 64 * 64].reshape(-1, 64)) if x.dim() == 1 and x.numel() >= 64 else x.clone()
    )


_UNARY = """sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc
    sigmoid silu gelu mish softplus elu selu celu hardswish hardsigmoid lgamma frac sgn relu6 logit
    trunc round""".split()
_BINARY = """fmin fmax atan2 hypot nextafter tanh_backward sigmoid_backward silu_backward gelu_backward hardswish_backward
    hardsigmoid_backward logaddexp""".split()


def _known(names: list[str]) -> list[str]:
    return [name for name in names if hasattr(aten, name)]


FURTHER: Candidates = {
    **{name: (FLOATS, 1, [getattr(torch, name, None) or getattr(aten, name).default]) for name in _known(_UNARY)},
    **{name: (FLOATS, 2, [getattr(aten, name).default]) for name in _known(_BINARY)},
    **{f"pow {power}": (FLOATS, 1, [partial(lambda x, p: torch.pow(x, p), p=power)]) for power in
       (0, 0.5, 1.5, 2, 2.0, 3, 4, -0.5, -1, -2, 0.3)},
    **{f"div {number}": (FLOATS, 1, [partial(lambda x, n: x / n, n=number)]) for number in (3.0, 0.3, -2, 4, 1e-3, 1e30)},
    "number / x": (FLOATS, 1, [lambda x: 1 / x, lambda x: 0.3 / x]),
    "div by a row": (FLOATS, 2, [lambda a, b: a / b.flatten()[3]]),
    "div of whole numbers": ((torch.int64, torch.int32), 1, [lambda x: x / 3, lambda x: x / 0.3]),
    "div floor": (FLOATS, 2, [partial(torch.div, rounding_mode="floor")]), "div trunc": (FLOATS, 2, [partial(torch.div, rounding_mode="trunc")]),
    "fmod": (FLOATS, 2, [torch.fmod]), "remainder": (FLOATS, 2, [torch.remainder]), "pow": (FLOATS, 2, [torch.pow]),
    **{f"addcdiv {value}": (FLOATS, 3, [partial(torch.addcdiv, value=value)]) for value in (1, 0.3, -2, -1)},
    **{f"addcmul {value}": (FLOATS, 3, [partial(torch.addcmul, value=value)]) for value in (1, 0.3, -2, -1)},
    **{f"add {alpha}": (FLOATS, 2, [partial(torch.add, alpha=alpha)]) for alpha in (0.3, -2, -1)},
    **{f"sub {alpha}": (FLOATS, 2, [partial(torch.sub, alpha=alpha)]) for alpha in (0.3, -2)},
    **{f"lerp {weight}": (FLOATS, 2, [partial(torch.lerp, weight=weight)]) for weight in (0.1, 0.5, 0.9, -3.0, 0.999)},
    "lerp by a tensor": (FLOATS, 3, [torch.lerp]),
    "gelu tanh": (FLOATS, 1, [_one("gelu", approximate="tanh")]),
    "gelu_backward tanh": (FLOATS, 2, [lambda g, x: aten.gelu_backward.default(g, x, approximate="tanh")]),
    "hardtanh_backward": (FLOATS, 2, [lambda g, x: aten.hardtanh_backward.default(g, x, -1.0, 0.3)]),
    "elu_backward": (FLOATS, 2, [lambda g, x: aten.elu_backward.default(g, 1.0, 1.0, 1.0, False, x)]),
    "softplus_backward": (FLOATS, 2, [lambda g, x: aten.softplus_backward.default(g, x, 1.0, 20.0)]),
    "clamp by tensors": (FLOATS, 3, [torch.clamp]), "clamp 0 6": (FLOATS, 1, [_one("clamp", 0, 6)]),
    "log_sigmoid": (FLOATS, 1, [torch.nn.functional.logsigmoid]),
    "mse": (FLOATS, 2, [partial(torch.nn.functional.mse_loss, reduction="none")]),
    "smooth l1": (FLOATS, 2, [partial(torch.nn.functional.smooth_l1_loss, reduction="none")]),
    "where": (FLOATS, 2, [lambda a, b: torch.where(a > b, a, b), lambda a, b: torch.where(a > b, a, 0.3)]),
    "xlogy": (FLOATS, 2, [torch.xlogy]), "ldexp": (FLOATS, 2, [torch.ldexp]),
    **{f"{name} of rows": (FLOATS, 1, [_rowed(function)]) for name, function in {
        "sum": lambda x: x.sum(-1), "mean": lambda x: x.mean(-1), "sum of columns": lambda x: x.sum(0), "mean of columns": lambda x: x.mean(0),
        "amax": lambda x: x.amax(-1), "amin": lambda x: x.amin(-1), "max": lambda x: x.max(-1)[0], "argmax": lambda x: x.argmax(-1),
        "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1), "var": lambda x: x.var(-1),
        "cumsum": lambda x: x.cumsum(-1), "prod": lambda x: x.prod(-1), "layer_norm": lambda x: torch.layer_norm(x, (64,)),
        "rms_norm": lambda x: torch.rms_norm(x, (64,)), "norm": lambda x: x.norm(dim=-1)}.items()},
    "to": (FLOATS, 1, [lambda x, to=to: x.to(to) for to in (*FLOATS, torch.bool)]),
    **{f"more {number}": each for number, each in enumerate(MORE)},
}  # fmt: skip

#: Those that contain the sum of a product.
SUMS = ("addcdiv", "addcmul", "add ", "sub ", "lerp", "tanh_backward", "silu_backward", "gelu", "aten::addc", "aten::lerp", "more 1")  # fmt: skip

COUNT = 1 << 16


def layouts(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """All of it as a vector with a tail, a few, some with gaps, and transposed."""
    yield x
    yield x[:5]
    yield x[100:3000:3]
    yield x[: 64 * 33].view(64, 33).t()


def tried(name: str, candidate: tuple, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """How many elements differ, of each call of the candidate. Whatever raises is said."""
    _, arity, calls = candidate
    found: dict[str, Any] = {"row": name, "dtype": str(dtype).removeprefix("torch.")}
    try:
        inputs = [values(dtype, seed, device) for seed in range(arity)]

        def program(*inputs: torch.Tensor) -> list[list[torch.Tensor]]:
            return [[call(*each) for each in zip(*map(layouts, inputs))] for call in calls]

        # Each time a function of its own: code that is compiled again and again is not what this is about.
        compiled = lampwork.compile(program, dynamic=False, options={"numerics": "eager", "cache": False})
        with torch.no_grad():
            ours, eagers = compiled(*inputs), program(*inputs)
        found["differing"] = [
            sum(_differing(one, other) for one, other in zip(*pair, strict=True))
            for pair in zip(ours, eagers, strict=True)
        ]
        found["elements"] = sum(each.numel() for each in eagers[0])
        stats = lampwork.stats(compiled)
        found["called"] = {op: count for op, count in stats["extern_calls"].items() if op != "aten::copy_.default"}
        if stats["fallbacks"] or stats["breaks"]:
            found["error"] = f"{[each.reason for each in (*stats['fallbacks'], *stats['breaks'])]}"[:300]
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"[:300]
    return found


def _differing(one: torch.Tensor, other: torch.Tensor) -> int:
    if one.dtype != other.dtype or one.shape != other.shape:
        return max(1, other.numel())
    return int((bits(one) != bits(other)).sum())


def cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    if "error" in found:
        return "fails"
    worst = max(found["differing"], default=0)
    if worst:
        text = f"{worst / max(1, found['elements']):.2%}" if worst > 99 else str(worst)
        return f"call {text}" if found["called"] else text
    return "call" if found["called"] else "="


def run(device: str, names: list[str], threads: int, seconds: float, told: Callable) -> list[dict[str, Any]]:
    """What was found of each candidate and type. Those that do not fit into `seconds` are left out."""
    candidates = {**CALLS, **FURTHER}
    chosen = [name for name in candidates if not names or any(each in name for each in names)]
    jobs: list[tuple[bool | None, str, torch.dtype]] = []
    for name in chosen:
        for rounds in (True, False) if name.startswith(SUMS) else (None,):
            jobs += [(rounds, name, dtype) for dtype in candidates[name][0]]
    backend, asked = BACKENDS[device], _torch.contracts_products
    end = time.monotonic() + seconds
    results: list[dict[str, Any]] = []

    def job(rounds: bool | None, name: str, dtype: torch.dtype) -> dict[str, Any] | None:
        if time.monotonic() > end:
            return None
        found = tried(name, candidates[name], dtype, device)
        if rounds is not None:
            found["form"] = "fma" if rounds else "mul+add"
        told(found)
        return found

    BACKENDS[device] = dataclasses.replace(backend, exact=_Everything())
    try:
        for rounds in (None, True, False):
            if rounds is not None:
                _torch.contracts_products = lambda kind="cpu", rounds=rounds: rounds
            todo = [each for each in jobs if each[0] is rounds]
            if threads == 1:
                results += [found for each in todo if (found := job(*each)) is not None]
                continue
            with ThreadPoolExecutor(threads) as pool:
                made = [each for each in pool.map(lambda each: job(*each), todo) if each is not None]
            for place, found in enumerate(made):  # alone, where what raised may have been for the others
                if "error" in found and time.monotonic() < end:
                    again = tried(found["row"], candidates[found["row"]], getattr(torch, found["dtype"]), device)
                    made[place] = {**again, **({"form": found["form"]} if "form" in found else {})}
            results += made
    finally:
        BACKENDS[device], _torch.contracts_products = backend, asked
    return results


def table(results: list[dict[str, Any]]) -> str:
    rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for found in results:
        rows.setdefault((found["row"], found.get("form", "")), {})[found["dtype"]] = found
    types = [str(each).removeprefix("torch.") for each in FLOATS]
    lines = [f"{'':40}{'':9}" + "".join(f"{each:>12}" for each in types) + "  others"]
    for (name, form), cells in sorted(rows.items()):
        others = " ".join(f"{each} {cell(found)}" for each, found in cells.items() if each not in types)
        lines.append(f"{name:40}{form:9}" + "".join(f"{cell(cells.get(each)):>12}" for each in types) + f"  {others}")
    errors = sorted({f"{found['row']} {found['dtype']}: {found['error']}" for found in results if "error" in found})
    return "\n".join([*lines, "", *errors])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rows", nargs="*", default=[], help="parts of names")
    parser.add_argument("--threads", type=int, default=0, help="programs compiled at once; 0: 8 on a GPU, else 1")
    parser.add_argument("--seconds", type=float, default=165.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    done: list[dict[str, Any]] = []

    def told(found: dict[str, Any]) -> None:
        done.append(found)
        if options.out is not None and len(done) % 50 == 0:  # what there is, should the process be ended
            options.out.write_text(json.dumps(done))

    threads = options.threads or (8 if options.device == "cuda" else 1)
    results = run(options.device, options.rows, threads, options.seconds, told)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))
    print(table(results))
    print(f"{len(results)} tried on {options.device}, torch {torch.__version__}, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
