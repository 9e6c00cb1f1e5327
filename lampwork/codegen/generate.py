"""Code generation for a program, by the back end of its machine. Only that one is loaded: LLVM takes 0.2 s."""

from __future__ import annotations

from collections.abc import Callable

from lampwork.config import Settings
from lampwork.ir.program import NativeCode, Program
from lampwork.ir.target import Target


def generate(
    program: Program, settings: Settings, target: Target, measure: Callable[..., list[float]] | None = None
) -> NativeCode:
    """Machine code for all kernels of `program`. Raises `CompileError` naming the kernel that cannot be generated.

    `measure(kernel, forms)` gives the milliseconds of forms of a kernel on the machine: then the fastest are taken.
    """
    if target.device == "cpu":
        from lampwork.codegen.llvm.generate import generate_native

        return generate_native(program, settings, target)
    from lampwork.codegen.triton.generate import generate_device

    return generate_device(program, settings, target, measure)
