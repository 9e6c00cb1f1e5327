"""Code generation for a program on a GPU: kernels to Triton text to machine code, launches to native code.

Program ──source──> DeviceKernels ──compile──> with machine code ──┐
                                 └──launch──> host code ───────────┴──> NativeCode
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lampwork.codegen.launch_sequences import launch_sequences
from lampwork.codegen.triton.compile import compile_kernels
from lampwork.codegen.triton.horizontal import fill_kernel
from lampwork.codegen.triton.launch import NULLS, launch_code
from lampwork.codegen.triton.source import kernel_source
from lampwork.codegen.triton.tiles import Tiling
from lampwork.codegen.triton.tune import Tuner
from lampwork.config import Settings
from lampwork.errors import CompileError
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Kernel, Parameter
from lampwork.ir.program import DeviceKernel, NativeCode, Program
from lampwork.ir.target import Target
from lampwork.turns import give_way

#: Parameters up to this size are not expected to be aligned, unless they are for sure. Wide loads gain nothing there,
#: and a call with another address, such as a slice of position numbers, would have to copy.
SMALL_BYTES = 1024


def generate_device(program: Program, settings: Settings, target: Target, tuner: Tuner | None = None) -> NativeCode:
    """The machine code of `program` for a GPU, with the tiles that `tuner` finds fastest if it is given.

    Raises `CompileError` naming the kernel that cannot be generated.
    """
    sequences = launch_sequences(program)
    if not sequences:
        return NativeCode(b"", (), (), (), (), device=program.device)
    tilings: list[Tiling] | list[None] = [None] * len(program.kernels)
    if tuner is not None:
        tilings = tuner.tilings(program.kernels)
    kernels = [_source(kernel, target, tiling) for kernel, tiling in zip(program.kernels, tilings)]
    if any(kernel.horizontal for kernel in program.kernels):
        kernels.append(fill_kernel(target))
    with ThreadPoolExecutor(1) as beside:
        compiling = beside.submit(compile_kernels, kernels)
        code = launch_code(program, sequences, kernels)
        compiled = compiling.result()
    for before, after in zip(kernels, compiled):
        if after.num_warps != before.num_warps or after.hidden > NULLS:
            raise CompileError("generate", f"{before.name} was compiled to what its launch was not made for")
    return replace(code, kernels=compiled)


def _source(kernel: Kernel, target: Target, tiling: Tiling | None) -> DeviceKernel:
    """The text of a kernel, for small parameters at any address."""
    give_way()
    made = kernel_source(kernel, target, tiling=tiling)
    if kernel.horizontal:
        return made
    aligned = tuple(i for i in made.aligned if kernel.parameters[i].aligned or not _is_small(kernel.parameters[i]))
    return replace(made, aligned=aligned)


def _is_small(parameter: Parameter) -> bool:
    numel = parameter.numel
    return isinstance(numel, int) and numel * ITEM_SIZE_BYTES[parameter.dtype] <= SMALL_BYTES
