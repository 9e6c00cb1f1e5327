"""Running one kernel on torch tensors as memory."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import torch

from lampwork.codegen.generate import generate
from lampwork.codegen.target import make_target
from lampwork.config import Settings
from lampwork.ir.dtype import compute_dtype
from lampwork.ir.loops import (
    Axis,
    Buffer,
    Compute,
    Constant,
    Expr,
    Kernel,
    Load,
    Local,
    Loop,
    Parameter,
    Store,
)  # fmt: skip
from lampwork.ir.program import Launch, NativeCode, Placement, Program
from lampwork.ir.size import Symbol
from lampwork.ir.target import LEVELS, machine_features
from lampwork.runtime.launch.native import LoadedCode

#: Every level that this machine runs.
TARGETS = [name for name, features in LEVELS.items() if machine_features().issuperset(features)]
DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
    "bool",
]  # fmt: skip


def parameter(name: str, dtype: str, numel: int, access: str = "read", aligned: bool = False) -> Parameter:
    return Parameter(name, dtype, access, numel, aligned)


def program_of(kernel: Kernel) -> Program:
    """A program that launches `kernel` once, each parameter in memory of its own."""
    buffers = {p.name: Buffer(p.name, p.dtype, (p.numel,), (1,), "input") for p in kernel.parameters}
    placements = {p.name: Placement("result", i) for i, p in enumerate(kernel.parameters)}
    launch = Launch(0, tuple(buffers), tuple(Symbol(size) for size in kernel.sizes))
    return Program((kernel,), buffers, placements, (launch,), (), (), sizes=kernel.sizes)


def compiled(kernel: Kernel, target: str = "avx512", **caches: int) -> NativeCode:
    """`caches`: sizes of caches (`l3_bytes`) that are not to be this machine's."""
    return generate(program_of(kernel), Settings(), replace(make_target(target, 2), **caches))


def execute(
    native: NativeCode, tensors: dict[str, torch.Tensor], threads: int = 1, sizes: tuple[int, ...] = ()
) -> None:
    """Runs the first sequence with `tensors` as the buffers, by name."""
    code = LoadedCode(native)
    pointers = (ctypes.c_void_p * max(len(native.buffer_order), 1))(
        *(tensors[name].data_ptr() for name in native.buffer_order)
    )
    numbers = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
    code.runs[0](ctypes.addressof(pointers), ctypes.addressof(numbers), threads)


def run(
    kernel: Kernel,
    tensors: dict[str, torch.Tensor],
    target: str = "avx512",
    threads: int = 1,
    sizes: tuple[int, ...] = (),
) -> None:
    execute(compiled(kernel, target), tensors, threads, sizes)


def symbol(name: str, extent: int) -> Symbol:
    return Symbol(name, 0, extent - 1)


def f32(op: str, *args: Expr) -> Compute:
    return Compute(op, args, "float32")


def constant(value: float, dtype: str = "float32") -> Constant:
    return Constant(value, dtype)


def elementwise(
    op: str,
    inputs: list[str],
    output: str,
    count: int,
    dtype: str | None = None,
    literals: dict[int, Any] | None = None,
) -> Kernel:
    """`out[i] = op(in0[i], in1[i], ...)` as a vector loop; half operands are computed in float32 as lowering does.
    `literals`: numbers that stand in the place of inputs, by position."""
    i = symbol("i0", count)
    loads: list[Expr] = []
    for n, name in enumerate(inputs):
        if literals is not None and n in literals:
            loads.append(Constant(literals[n], compute_dtype(name)))
            continue
        load: Expr = Load(f"b{n}", (i,), name)
        if op not in ("cast", "where", "bitcast") and compute_dtype(name) != name:
            load = Compute("cast", (load,), "float32")
        loads.append(load)
    result = dtype or (compute_dtype(output) if op not in ("cast", "where", "bitcast") else output)
    value: Expr = Compute(op, tuple(loads), result)
    if result != output:
        value = Compute("cast", (value,), output)
    out = f"b{len(inputs)}"
    parameters = [parameter(f"b{n}", name, count) for n, name in enumerate(inputs)]
    parameters.append(parameter(out, output, count, "write"))
    body = (Loop(Axis("i0", count), (Store(out, (i,), value),), "vector"),)
    return Kernel("elementwise", tuple(parameters), body)


def sample(dtype: str, count: int, seed: int = 0) -> torch.Tensor:
    """Values of all sizes, with the special ones among them."""
    generator = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    if dtype == "bool":
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if not kind.is_floating_point:
        bits = torch.iinfo(kind).bits
        wide = torch.randint(-(1 << 63), (1 << 63) - 1, (count,), generator=generator)
        shift = torch.randint(0, 64, (count,), generator=generator)
        values = wide >> shift
        values[:4] = torch.tensor([0, -1, 1, 1 << (bits - 1) if bits < 64 else -(1 << 63)])
        return values.to(torch.int64).view(torch.uint64).to(kind) if dtype == "uint64" else values.to(kind)
    values = torch.randn(count, generator=generator, dtype=torch.float64)
    values *= torch.exp(4 * torch.randn(count, generator=generator, dtype=torch.float64))
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 0.5, -2.5, 1e-40, 3.5])
    values[: len(special)] = special[:count]
    return values.to(kind)


def local(name: str, dtype: str = "float32") -> Local:
    return Local(name, dtype)
