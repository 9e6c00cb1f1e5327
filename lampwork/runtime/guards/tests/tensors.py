"""Tests of tensors by their metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lampwork.ir.guard import TensorIs
from lampwork.ir.source import Source
from lampwork.runtime.guards.interpreter import read, tensor_is
from lampwork.runtime.guards.rules import GuardRule, guard_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots

_PLAIN_TENSORS = {"torch.Tensor": torch.Tensor, "torch.nn.parameter.Parameter": torch.nn.Parameter}


@guard_rule(TensorIs)
class TensorIsRule(GuardRule[TensorIs]):
    on_load = True
    tells_type = True
    advice = "Pad to few sizes, or compile with dynamic=True."

    def difference(self, test: TensorIs, source: Source, scope: Scope) -> str:
        return tensor_is(read(source, scope), test)

    def emit(self, writer: CheckWriter, test: TensorIs, source: Source) -> None:
        value = writer.load(source)
        kind = _PLAIN_TENSORS.get(test.tensor_type)
        if kind is None:  # a subclass: its attributes may run code of the program
            writer.refuse(f"reading.tensor_is({value}, {writer.constant(test)})")
            return
        writer.learn_type(source, kind)
        conditions = [f"type({value}) is not {writer.constant(kind)}"]
        conditions.append(f"{value}.dtype is not {writer.constant(getattr(torch, test.dtype))}")
        conditions.append(_shape_differs(f"{value}.shape", test.shape, writer))
        if test.layout == "strided":
            conditions.append(_shape_differs(f"{value}.stride()", test.strides, writer))
        conditions.append(f"{value}.requires_grad is not {test.requires_grad}")
        device = torch.device(test.device)
        if device == torch.device("cpu"):
            conditions.append(f"not {value}.is_cpu")
        else:
            conditions.append(f"{value}.device != {writer.constant(device)}")
        conditions.append(f"{value}.layout is not {writer.constant(getattr(torch, test.layout))}")
        conditions.append(f"{value}.is_inference() is not {test.is_inference}")
        if test.is_leaf is not None:
            conditions.append(f"{value}.is_leaf is not {test.is_leaf}")
        if test.dtype.startswith("complex"):
            conditions.append(f"{value}.is_conj() is not {test.is_conj}")
        conditions.append(f"{value}.is_neg() is not {test.is_neg}")
        writer.refuse(" or ".join(condition for condition in conditions if condition))

    def snapshot(self, snapshots: VersionSnapshots, test: TensorIs, source: Source) -> None:
        value = snapshots.value(source)
        snapshots.of_source(source)
        snapshots.tensor(value, test)


def _shape_differs(text: str, dims: tuple[int | None, ...], writer: CheckWriter) -> str:
    """A condition that is true when the tuple at `text` differs from `dims`."""
    if None not in dims:
        return f"{text} != {writer.constant(dims)}" if dims else f"len({text}) != 0"
    parts = [f"len({text}) != {len(dims)}"]
    parts += [f"{text}[{index}] != {size}" for index, size in enumerate(dims) if size is not None]
    return " or ".join(parts)
