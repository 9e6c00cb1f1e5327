"""Operator samples with `numerics="eager"`: results, gradients and what is written have eager's bits.

python -m tests.ops.bits [--samples 4] [--ops NAME ...]        every operator, and its gradients
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import lampwork
from lampwork.verdict.verify import leaves
from tests.ops.check import RESIZING, UNINITIALISED, _call, _copy, _dense, full_name, samples
from tests.ops.gradients import CompiledForward, gradient_samples

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Exactly:
    """`lampwork` for a caller that hands it options: with eager's numerics."""

    reset, stats = staticmethod(lampwork.reset), staticmethod(lampwork.stats)

    @staticmethod
    def compile(function: Callable, options: dict[str, Any]) -> Any:
        return lampwork.compile(function, options={**options, "numerics": "eager"})


class ExactForward(CompiledForward):
    def compile(self, function: Any, options: Any) -> Any:
        return super().compile(function, {**options, "numerics": "eager"})


def bits_apart(program: Callable, args: tuple, kwargs: dict, compiler: Any = Exactly) -> str:
    """Where the compiled program has other bits than eager, in words; empty if nowhere, or if both raise."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    eager_arguments, our_arguments = _copy((args, kwargs)), _copy((args, kwargs))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, eager_error = _call(program, eager_arguments)
        lampwork.reset()
        ours, our_error = _call(compiler.compile(called, {"cache": False}), our_arguments)
    if eager_error is not None or our_error is not None:
        return "" if type(eager_error) is type(our_error) else f"{our_error!r} instead of {eager_error!r}"
    return apart((ours, our_arguments), (expected, eager_arguments))


def apart(ours: Any, expected: Any) -> str:
    """The first tensor whose bits differ, and in how many elements."""
    for (path, mine), (_, right) in zip(leaves(_dense(ours)), leaves(_dense(expected)), strict=True):
        if isinstance(right, torch.Tensor):
            if mine.dtype != right.dtype or mine.shape != right.shape:
                return f"{path}: {mine.dtype} {tuple(mine.shape)} instead of {right.dtype} {tuple(right.shape)}"
            different = bits(mine) != bits(right)
            if different.any():
                where = int(different.reshape(-1).nonzero()[0])
                return f"{path}: {int(different.sum())} of {different.numel()} elements, at {where}"
    return ""


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of each element as an integer, those of every NaN as of one."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    plain = plain.contiguous()
    if not plain.is_floating_point():
        return plain
    if plain.dtype.itemsize > 1:
        plain = torch.where(plain.isnan(), torch.full_like(plain, torch.nan), plain)
    return plain.view(_BITS[plain.dtype.itemsize])


def cases(op: Any, dtype: torch.dtype, limit: int) -> Iterator[tuple[str, Callable, tuple, dict, Any]]:
    """(label, program, arguments, keyword arguments, compiler) of an operator's samples and of its gradients'."""
    if op.name in UNINITIALISED | RESIZING:
        return
    if dtype in op.supported_dtypes("cpu"):
        for label, function, args, kwargs in samples(op, dtype, limit):
            yield label, function, args, kwargs, Exactly
    if dtype.is_floating_point:
        for label, program, args, kwargs in gradient_samples(op, dtype, limit):
            yield f"gradient {label}", program, args, kwargs, Exactly
            yield f"gradient apart {label}", program, args, kwargs, ExactForward(program)


def main() -> int:
    from torch.testing._internal.common_methods_invocations import op_db

    parser = argparse.ArgumentParser(prog="python -m tests.ops.bits", description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--ops", nargs="+")
    parser.add_argument("--dtypes", nargs="+", default=[str(each)[6:] for each in DTYPES])
    options = parser.parse_args()
    tried = failed = 0
    for op in op_db:
        if options.ops and full_name(op) not in options.ops:
            continue
        for dtype in map(torch.__dict__.__getitem__, options.dtypes):
            for label, program, args, kwargs, compiler in cases(op, dtype, options.samples):
                tried += 1
                difference = bits_apart(program, args, kwargs, compiler)
                if difference:
                    failed += 1
                    print(f"{full_name(op)} {str(dtype)[6:]} {label}: {difference[:200]}", flush=True)
    print(f"{tried} samples, {failed} with other bits than eager's")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
