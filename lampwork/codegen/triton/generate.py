"""Code generation for a program on a GPU: kernels to Triton text to machine code, launches to native code.

Program ──source──> DeviceKernels ──compile──> with machine code ──┐
                                 └──launch──> host code ───────────┴──> NativeCode
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lampwork.codegen.stretches import launch_stretches
from lampwork.codegen.triton.compile import compile_kernels
from lampwork.codegen.triton.launch import NULLS, launch_code
from lampwork.codegen.triton.source import kernel_source
from lampwork.config import Settings
from lampwork.errors import CompileError
from lampwork.ir.program import NativeCode, Program
from lampwork.ir.target import Target


def generate_device(program: Program, settings: Settings, target: Target) -> NativeCode:
    """The machine code of `program` for a GPU. Raises `CompileError` naming the kernel that cannot be generated."""
    stretches = launch_stretches(program)
    if not stretches:
        return NativeCode(b"", (), (), (), (), device=program.device)
    kernels = []
    for kernel in program.kernels:
        try:
            kernels.append(kernel_source(kernel, target))
        except CompileError as error:
            if error.operator or not kernel.origins:
                raise
            origin = kernel.origins[0]
            reason = f"{kernel.name}: {error.reason}"
            raise CompileError("generate", reason, origin.op, location=origin.location) from error
    with ThreadPoolExecutor(1) as beside:
        compiling = beside.submit(compile_kernels, kernels)
        code = launch_code(program, stretches, kernels)
        compiled = compiling.result()
    for before, after in zip(kernels, compiled):
        if after.num_warps != before.num_warps or after.hidden > NULLS:
            raise CompileError("generate", f"{before.name} was compiled to what its launch was not made for")
    return replace(code, kernels=compiled)
