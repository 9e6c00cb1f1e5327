"""`python -m tests.ops.mixed_values`: values where one operand has another type, and numbers at the ends of its range.

    python -m tests.ops.mixed_values             every operator that takes several tensors
    python -m tests.ops.mixed_values loss fill

`mixed_types.py` looks at types alone, ordinary samples at one type. Formulas that eager writes in several steps round
what is in between to the type of one operand or of another, and numbers that it takes out of tensors must fit. Exit
status 1 where one result is NaN or infinite and the other not so, or one side raises and the other does not.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tests.ops.mixed_types import places, replaced
from tests.ops.unasked import compiled, operators, samples

SAMPLES = 4
#: The ends of the range, what is near zero, and one number among others.
SPIKES = {
    torch.float64: (1.7e308, -1.7e308, 1e200, -1e-300, 5e-324),
    torch.float32: (3e38, -3e38, 1e-45, -1e-30, 0.1),
    torch.float16: (6e4, -6e4, 6e-8, -1e-4, 0.1),
}
#: Draws, results that hang on the library, and what is known to differ: of numbers whose squares or quotients overflow,
#: norms are finite where eager's are not, and a remainder is exact where eager's vectors give NaN.
LEFT_OUT = ("rand", "multinomial", "bernoulli", "dropout", "linalg", "normal", "norm", "mod", "remainder", "sparse")


def spiked(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in another type, some of its numbers replaced by `SPIKES`."""
    if not value.is_floating_point():
        return value
    made = value.detach().to(dtype).clone(memory_format=torch.contiguous_format)
    flat = made.view(-1)
    for place, number in enumerate(SPIKES[dtype][: flat.numel()]):
        flat[7 * place % flat.numel()] = number
    return made


def outcome(function: Callable, arguments: tuple, named: dict) -> Any:
    """The results in a row, or the exception."""
    torch.manual_seed(0)
    try:
        made = tree_leaves(function(*arguments, **named))
    except Exception as error:
        return error
    return [each for each in made if isinstance(each, torch.Tensor) and each.layout == torch.strided]


def difference(found: Any, expected: Any) -> str:
    """In words; empty where they agree."""
    if isinstance(found, Exception) or isinstance(expected, Exception):
        if isinstance(found, Exception) and isinstance(expected, Exception):
            return ""
        return f"{_told(found)} instead of {_told(expected)}"
    for place, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return f"result {place} is {mine.dtype}{list(mine.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
        if not theirs.is_floating_point():
            continue
        finite = torch.where(theirs.isfinite() & mine.isfinite(), 0, mine), torch.where(theirs.isfinite(), 0, theirs)
        wrong = ~torch.isclose(*(each.double() for each in finite), equal_nan=True)
        if wrong.any():
            at = int(wrong.flatten().nonzero()[0])
            return f"result {place} at {at}: {mine.flatten()[at].item()} instead of {theirs.flatten()[at].item()}"
    return ""


def _told(value: Any) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, Exception) else "a result"


def compare(op: Any) -> tuple[int, list[str]]:
    """How many calls were compared, and those that differ, in words."""
    calls, others = 0, []
    for sample in samples(op, SAMPLES) if torch.float32 in op.dtypes else ():
        whole = ((sample.input, *sample.args), dict(sample.kwargs))
        paths = list(places(whole))
        for path, dtype in itertools.product(paths if len(paths) > 1 else (), SPIKES):
            arguments, named = replaced(whole, path, lambda each: spiked(each, dtype))
            differs = difference(
                outcome(compiled(op.op, named, False), arguments, {}), outcome(op.op, arguments, named)
            )
            calls += 1
            if differs:
                others.append(f"operand {path} as {dtype}: {differs}")
    return calls, others


def chosen(names: list[str]) -> list[Any]:
    return [op for op in operators(names) if not any(each in op.name for each in LEFT_OUT)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ops.mixed_values", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="operators whose names contain one of these; all by default")
    ops = chosen(parser.parse_args().names)

    from rich.progress import track

    calls = wrong = 0
    for op in track(ops, "values", disable=not sys.stderr.isatty()):
        made, others = compare(op)
        calls, wrong = calls + made, wrong + bool(others)
        for each in others[:2]:
            print(f"{op.name} {op.variant_test_name}".strip() + f": {each[:300]}", flush=True)
    print(f"{len(ops)} operators, {calls} calls: {wrong} operators with other results")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
