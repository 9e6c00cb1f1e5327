"""Code generation for a program, by the back end of its machine. Only that one is loaded: LLVM takes 0.2 s."""

from __future__ import annotations

from typing import Any

from lampwork.config import Settings
from lampwork.ir.program import NativeCode, Program
from lampwork.ir.target import Target


def generate(program: Program, settings: Settings, target: Target, tuner: Any = None) -> NativeCode:
    """Machine code for all kernels of `program`. Raises `CompileError` naming the kernel that cannot be generated.

    `tuner`: what `make_tuner` made for the program, if the fastest forms of kernels are to be taken.
    """
    if target.device == "cpu":
        from lampwork.codegen.llvm.generate import generate_native

        return generate_native(program, settings, target)
    from lampwork.codegen.triton.generate import generate_device

    return generate_device(program, settings, target, tuner)


def make_tuner(target: Target, measure: Any) -> Any:
    """A `codegen.triton.tune.Tuner`, which chooses by what `measure` finds on the device."""
    from lampwork.codegen.triton.tune import Tuner

    return Tuner(target, measure)
