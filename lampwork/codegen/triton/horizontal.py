"""Horizontal kernels: how a program finds its row, and how the rows' addresses get onto the device.

    table     int64[(1 + sizes + parameters) * rows], on the device: for each row the number of its first program; for
              each size the rows' ones; for each parameter the rows' addresses
    fill      a kernel that stores its arguments to a stretch of a table, so that addresses travel as arguments of
              launches do: in order with them, and under a CUDA graph

A program counts the rows that begin at or before it. Sizes, and addresses that hold 16 elements at a time, are known to
be multiples of 16, so that loads are wide.
"""

from __future__ import annotations

from functools import lru_cache

from lampwork.codegen.triton.expressions import POINTERS
from lampwork.ir.loops import Kernel
from lampwork.ir.program import DeviceKernel
from lampwork.ir.size import mod
from lampwork.ir.target import Target

#: What one launch of the fill kernel stores. Arguments are at most 4 KiB; Triton takes 1 ms for each.
FILLED = 240
#: Rows that a program looks at at once.
LOOKED_AT = 256
#: Elements whose number and addresses wide accesses want to be multiples of (bytes, for addresses).
WIDE = 16


def is_wide(kernel: Kernel, parameter: int) -> bool:
    """Whether the parameter's size is a multiple of 16 elements, and its addresses of 16 bytes."""
    numel = kernel.parameters[parameter].numel
    return not isinstance(numel, int) and mod(numel, WIDE) == 0


def prologue(kernel: Kernel, index_type: str) -> list[str]:
    """Lines that find the program's row: its buffers and sizes get the names they have in the body, and `block` is the
    program's number in the row."""
    lines = [
        f"    place = tl.arange(0, {LOOKED_AT})",
        f"    begun = tl.zeros(({LOOKED_AT},), tl.int32)",
        f"    for start in range(0, rows, {LOOKED_AT}):",
        "        begins = tl.load(table + start + place, mask=start + place < rows, other=0x7FFFFFFFFFFF)",
        "        begun += (begins <= tl.program_id(0)).to(tl.int32)",
        "    record = table + (tl.sum(begun, 0) - 1)",
        f"    block = (tl.program_id(0) - tl.load(record)).to({index_type})",
    ]
    for number, name in enumerate(kernel.sizes, start=1):
        lines.append(f"    {name} = tl.load(record + {number} * rows).to({index_type})")
    for place, parameter in enumerate(kernel.parameters):
        kind = POINTERS[parameter.dtype].removeprefix("*")
        address = f"tl.load(record + {1 + len(kernel.sizes) + place} * rows)"
        pointer = f"{address}.to(tl.pointer_type({_ELEMENTS[kind]}))"
        lines.append(
            f"    {parameter.name} = " + (f"tl.multiple_of({pointer}, {WIDE})" if is_wide(kernel, place) else pointer)
        )
    return lines


_ELEMENTS = {
    "fp64": "tl.float64", "fp32": "tl.float32", "fp16": "tl.float16", "bf16": "tl.bfloat16",
    "i64": "tl.int64", "i32": "tl.int32", "i16": "tl.int16", "i8": "tl.int8", "i1": "tl.int1",
    "u64": "tl.uint64", "u32": "tl.uint32", "u16": "tl.uint16", "u8": "tl.uint8",
}  # fmt: skip


@lru_cache(8)
def fill_kernel(target: Target) -> DeviceKernel:
    """The kernel `fill(table, first, values...)`: stores its values from place `first` of the table on."""
    names = [f"a{number}" for number in range(FILLED)]
    lines = [
        "import triton",
        "import triton.language as tl",
        "",
        "",
        "@triton.jit",
        f"def fill_rows(table, first, {', '.join(names)}):",
        "    record = table + first",
        *[f"    tl.store(record + {number}, {name})" for number, name in enumerate(names)],
        "",
    ]
    signature = ("*i64", "i64", *["i64"] * FILLED)
    return DeviceKernel("fill_rows", "\n".join(lines), signature, (0,), num_warps=1, arch=target.name)
