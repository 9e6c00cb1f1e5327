"""An ELF object as one flat image that runs wherever it is mapped.

Code and read-only data are laid out one after the other and references between them, all relative to the program
counter, are resolved here; so loading is a memory map and nothing else. References to anything outside are refused.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from lampwork.errors import CompileError

_X86_64 = 62
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_ALLOCATED, _WRITABLE, _EXECUTABLE = 2, 1, 4
_PC32, _PLT32, _PC64 = 2, 4, 24


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_bytes: int


def link(data: bytes) -> tuple[bytes, dict[str, int]]:
    """The image of relocatable object `data` and the offsets of its global functions."""
    if data[:4] != b"\x7fELF" or data[4] != 2 or struct.unpack_from("<H", data, 18)[0] != _X86_64:
        raise CompileError("generate", "the object is not x86-64 ELF")
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i)) for i in range(count)]

    image = bytearray()
    base: dict[int, int] = {}
    kept = [i for i, section in enumerate(sections) if section.kind == _PROGBITS and section.flags & _ALLOCATED]
    for i in sorted(kept, key=lambda i: not sections[i].flags & _EXECUTABLE):
        section = sections[i]
        if section.flags & _WRITABLE and section.size:
            raise CompileError("generate", "the object has writable data")
        image += bytes(-len(image) % max(section.align, 1))
        base[i] = len(image)
        image += data[section.offset : section.offset + section.size]

    symbols: list[tuple[str, int, int, bool]] = []  # name, section, value, global
    for section in sections:
        if section.kind == _SYMTAB:
            strings = sections[section.link].offset
            for place in range(section.offset, section.offset + section.size, 24):
                name, info, _, index, value, _ = struct.unpack_from("<IBBHQQ", data, place)
                end = data.index(b"\0", strings + name)
                symbols.append((data[strings + name : end].decode(), index, value, info >> 4 == 1))

    for section in sections:
        if section.kind != _RELA or section.info not in base:
            continue
        for place in range(section.offset, section.offset + section.size, 24):
            offset, info, addend = struct.unpack_from("<QQq", data, place)
            name, index, value, _ = symbols[info >> 32]
            if index not in base:
                raise CompileError("generate", f"the code refers to {name or 'a section'} outside it")
            where = base[section.info] + offset
            distance = base[index] + value + addend - where
            kind = info & 0xFFFFFFFF
            if kind in (_PC32, _PLT32):
                struct.pack_into("<i", image, where, distance)
            elif kind == _PC64:
                struct.pack_into("<q", image, where, distance)
            else:
                raise CompileError("generate", f"relocation {kind} is not relative to the program counter")
    entries = {name: base[index] + value for name, index, value, exported in symbols if exported and index in base}
    return bytes(image), entries
