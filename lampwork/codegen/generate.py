"""Code generation for a program, by the back end of its machine. Only that one is loaded: LLVM takes 0.2 s."""

from __future__ import annotations

from typing import Any

from lampwork.backends import backend_of
from lampwork.backends.backend import named
from lampwork.config import Settings
from lampwork.ir.program import NativeCode, Program
from lampwork.ir.target import Target


def generate(program: Program, settings: Settings, target: Target, tuner: object = None) -> NativeCode:
    """Machine code for all kernels of `program`. Raises `CompileError` naming the kernel that cannot be generated.

    `tuner`: what `make_tuner` made for the program, if the fastest forms of kernels are to be taken.
    """
    return named(backend_of(target.device).generate)(program, settings, target, tuner)


def make_tuner(target: Target, measure: object) -> Any:
    """What chooses by what `measure` finds on the device: for a GPU a `codegen.triton.tune.Tuner`."""
    tuner = backend_of(target.device).tuner
    assert tuner is not None, f"{target.device} is not tuned"
    return named(tuner)(target, measure)
