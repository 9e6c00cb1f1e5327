"""Our operators that draw random numbers as ATen's in-place ones do, and write to nothing."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch._ops import OpOverload

from lampwork._torch.library import DRAWING, libraries, once

#: What our operators that draw are told about the memory that is drawn into, by keyword.
DRAWN_LAYOUT = ("drawn_size", "drawn_stride", "drawn_dtype", "drawn_device")


@once
def drawing(op: OpOverload) -> OpOverload:
    """For an operator of ATen that fills a tensor with random numbers: ours that gives a fresh tensor with them.

    `normal_(self, mean, std)` -> `normal_(*, mean, std, drawn_size, drawn_stride, drawn_dtype, drawn_device)`. Draws
    depend on how the memory lies that they are written to, so ATen's operator is called on memory of that layout.
    """
    name, target = op._schema.name.partition("::")[2], drawn_argument(op)
    arguments = [each.strip() for each in _arguments_of(str(op._schema)) if each.strip() != "*"]
    kept = [each for each in arguments if not re.search(rf"\b{target}(=|$)", each)]
    assert len(kept) == len(arguments) - 1, op
    layout = ["SymInt[] drawn_size", "SymInt[] drawn_stride", "ScalarType drawn_dtype", "Device drawn_device"]

    def call(
        *, drawn_size: object, drawn_stride: object, drawn_dtype: object, drawn_device: object, **others: object
    ) -> Any:
        memory = torch.empty_strided(drawn_size, drawn_stride, dtype=drawn_dtype, device=drawn_device)
        return op(**{target: memory}, **others)

    full = name if op._overloadname == "default" else f"{name}.{op._overloadname}"
    library = torch.library.Library(DRAWING, "FRAGMENT")
    tags = (torch.Tag.nondeterministic_seeded,)
    library.define(f"{full}(*, {', '.join([*kept, *layout])}) -> Tensor", tags=tags)
    library.impl(full, call, "CompositeExplicitAutograd")
    libraries.append(library)
    return getattr(getattr(getattr(torch.ops, DRAWING), name), op._overloadname)


def drawn_argument(op: OpOverload) -> str:
    """The name of the argument that a filling operator writes to: `self`, `out`."""
    (name,) = [each.name for each in op._schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    return name


def drawn_by(op: OpOverload) -> str:
    """For an operator that `drawing` made: the name of the one of ATen's that it calls."""
    return f"aten::{op._schema.name.partition('::')[2]}.{op._overloadname}"


def _arguments_of(schema: str) -> list[str]:
    """The texts of a schema's arguments."""
    return re.split(r",\s*", schema[schema.index("(") + 1 : schema.rindex(") ->")])
