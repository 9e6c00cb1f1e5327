"""A program's "machine code": its kernels and launches, as data."""

from __future__ import annotations

import pickle
from typing import Any

from lampwork.codegen.launch_sequences import launch_sequences
from lampwork.config import Settings
from lampwork.errors import CompileError
from lampwork.ir.program import NativeCode, Program, launch_instances
from lampwork.ir.target import Target
from tests.backends.toy.launch import TYPES


def generate(program: Program, settings: Settings, target: Target, tuner: Any = None) -> NativeCode:
    for kernel in program.kernels:
        for parameter in kernel.parameters:
            if parameter.dtype not in TYPES:
                raise CompileError("generate", f"{kernel.name} has memory of type {parameter.dtype}")
    order: dict[str, int] = {}
    sequences = []
    for sequence in launch_sequences(program):
        rows = []
        for launch in sequence:
            for buffers, sizes in launch_instances(launch, program.kernels[launch.kernel]):
                slots = [order.setdefault(name, len(order)) for name in buffers]
                rows.append((launch.kernel, slots, sizes))
        sequences.append(rows)
    if not sequences:
        return NativeCode(b"", (), (), (), ())
    image = pickle.dumps((program.kernels, sequences, program.sizes))
    return NativeCode(image, tuple(range(len(sequences))), tuple(order), (), ())
