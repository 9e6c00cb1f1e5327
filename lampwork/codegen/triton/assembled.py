"""What the assembler made of a kernel, looked at: uniform registers that are read and that nothing writes.

    add.s64 %rd34, %rd70, 9223371...     UIADD3 UR46, UP0, UR21, 0x40       nothing writes UR21: it should be UR38,
    (%rd70: a 32-bit number, widened)    UIADD3.X UR47, UR21, 0x80000020    and 0 in the second line

So CUDA 12.8's `ptxas` adds to the descriptors of factors in shared memory, in kernels with many of them: products read
elsewhere in shared memory, or outside of it. `worker.py` writes such sums otherwise; this says whether that was enough.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s+(.*?)\s*;")
#: Operands that name a group of registers of which some do not matter: descriptors of matrices, and of memory.
_DESCRIPTOR = re.compile(r"g?desc\[UR\d+\]")
#: Operations that write a uniform register, their first operand that is no predicate.
_WRITE = ("U", "R2UR", "S2UR", "REDUX", "VOTEU")


def unwritten(code: str) -> set[int]:
    """The numbers of uniform registers that disassembled `code` reads and writes nowhere."""
    read: set[int] = set()
    written: set[int] = set()
    for operation, operands in _INSTRUCTION.findall(code):
        parts = [each.strip() for each in _DESCRIPTOR.sub("", operands).split(",")]
        while parts and re.fullmatch(r"!?U?P(\d+|T)", parts[0]):
            del parts[0]
        if operation.startswith(_WRITE) and parts and re.fullmatch(r"UR\d+", parts[0]):
            first = int(parts[0][2:])
            width = 4 if ".128" in operation else 2 if ".64" in operation or "WIDE" in operation else 1
            written.update(range(first, first + width))
            del parts[0]
        read.update(int(each) for each in re.findall(r"\bUR(\d+)", ", ".join(parts)))
    return read - written


def disassembled(binary: bytes) -> str:
    """The machine code in words; empty where Triton brings no disassembler."""
    from triton.backends import nvidia

    program = os.path.join(os.path.dirname(nvidia.__file__), "bin", "nvdisasm")
    if not os.access(program, os.X_OK):
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        return subprocess.run([program, "-c", file.name], capture_output=True, text=True, timeout=60).stdout
