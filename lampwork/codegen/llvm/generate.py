"""The CPU back end: a program's kernels to one native image.

Program ──module──> LLVM IR text ──compile──> ELF object ──link──> NativeCode
"""

from __future__ import annotations

from typing import Any

from lampwork.codegen.launch_sequences import launch_sequences
from lampwork.codegen.llvm.compile import emitting
from lampwork.codegen.llvm.link import link
from lampwork.codegen.llvm.module import ModuleEmitter, overlapping
from lampwork.config import Settings
from lampwork.errors import CompileError
from lampwork.ir.program import NativeCode, Program
from lampwork.ir.target import Target
from lampwork.turns import give_way


def generate_native(program: Program, settings: Settings, target: Target, tuner: None = None) -> NativeCode:
    """Machine code for all kernels of `program`, which LLVM may still be emitting (see `NativeCode.being_made`). Raises
    `CompileError` naming the kernel that cannot be generated."""
    sequences = launch_sequences(program)
    if not sequences:
        return NativeCode(b"", (), (), (), ())
    text, buffer_order, externals = module_text(program, target)
    code = emitting(text, target)

    def linked() -> dict[str, Any]:
        image, entries = link(code())
        numbers = range(len(sequences))
        return {
            "image": image,
            "runs": tuple(entries[f"run_{i}"] for i in numbers),
            "calls": tuple(entries[f"call_run_{i}"] for i in numbers),
        }

    return NativeCode.being_made(
        linked,
        buffer_order=buffer_order,
        externals=externals,
        features=target.features,
        kernel_names=tuple(kernel.name for kernel in program.kernels),
        source=text,
        device="cpu",
        kernels=(),
    )


def module_text(program: Program, target: Target) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The program's LLVM assembly, the order of buffer pointers, and the names of external addresses."""
    sequences = launch_sequences(program)
    module = ModuleEmitter(target)
    distinct = overlapping(program)
    used = {launch.kernel for sequence in sequences for launch in sequence}
    for i, kernel in enumerate(program.kernels):
        give_way()
        if i not in used:
            continue
        try:
            module.kernel(f"kernel_{i}", kernel, distinct[i])
        except CompileError as error:
            origin = kernel.origins[0] if kernel.origins else None
            operators = ", ".join(dict.fromkeys(origin.op for origin in kernel.origins))
            location = {"location": origin.location} if origin else {}
            raise CompileError("generate", f"{kernel.name}: {error.reason}", operators, **location) from error
    order: dict[str, int] = {}
    for sequence in sequences:
        for launch in sequence:
            for buffer in launch.buffers:
                order.setdefault(buffer, len(order))
    for i, sequence in enumerate(sequences):
        launches = [(f"kernel_{launch.kernel}", launch) for launch in sequence]
        module.entry(f"run_{i}", launches, order, program.sizes, program.kernels)
    return module.text(), tuple(order), tuple(module.externals.names)
