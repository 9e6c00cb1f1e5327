"""`Replay`: the operators of a region that is differentiated, as they were recorded, for eager to run them again.

Gradients that were taken with `create_graph=True` are differentiated through it. It is data: it is stored with its
artifact, and read only where second derivatives are taken.
"""

from __future__ import annotations

from typing import Any

from lampwork.ir.record import record
from lampwork.ir.size import Size


@record
class Value:
    """The value `index` of a replay: its inputs, then its literals, then what its calls return."""

    index: int


@record
class Expression:
    """A size that varies, as an argument."""

    size: Size


@record
class Call:
    """An operator ("aten::mm.default"), or with `item` that item of the only argument, a tuple. `grad`: whether
    autograd was on."""

    op: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    item: int | None = None
    grad: bool = True


@record
class InputLayout:
    """A tensor among the inputs: what a fake of it is made of. `dtype` is empty for an integer, the only size of
    `shape`."""

    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...] = ()
    device: str = "cpu"
    requires_grad: bool = False
    is_leaf: bool = True


@record
class Replay:
    """`inputs`: graph inputs that it reads. `literals`: (element type, shape, bytes) of CPU constants. `outputs`: the
    values that tangents belong to. `symbols`: where each size that varies stands: (name, input, dimension, or None
    where the input is the size). `layouts`: of the inputs."""

    inputs: tuple[int, ...]
    literals: tuple[tuple[str, tuple[int, ...], bytes], ...]
    calls: tuple[Call, ...]
    outputs: tuple[int, ...]
    symbols: tuple[tuple[str, int, int | None], ...] = ()
    layouts: tuple[InputLayout, ...] = ()
