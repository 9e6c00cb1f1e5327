"""Operators of a region that is differentiated, as they were recorded, for eager to run them.

Gradients that were taken with `create_graph=True` are differentiated through a `Replay`, which computes the region
again. An `EagerBackward` takes the place of a compiled backward program that failed. Both are data: they are stored
with their artifact, and read only where they are needed.
"""

from __future__ import annotations

from typing import Any

from lampwork.ir.record import record
from lampwork.ir.size import Size

#: How `x.data` and `x.detach()` are recorded alike. Both run again as `x.data`, whose version is its own: writes to it
#: are none of `x`'s to autograd. Where the two differ eager's derivatives raise, and the region was not recorded.
DETACH = "aten::detach"


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
    `shape`. `offset`, `storage_bytes`: where it lies in how large a storage, for programs that ask (`as_strided`)."""

    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...] = ()
    device: str = "cpu"
    requires_grad: bool = False
    is_leaf: bool = True
    offset: int = 0
    storage_bytes: int = 0


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


@record
class Gradient:
    """A result of the backward half: the value `index`, or a strided view of its memory, as in `FromGraph`."""

    index: int
    view: tuple[tuple[Any, ...], tuple[Any, ...], Any] | None = None
    dtype: str | None = None
    conjugate: bool = False


@record
class EagerBackward:
    """The backward half of a region before any pass of ours. Values are its `inputs` (a number of them; those of the
    backward program), then literals, then what its calls return. `symbols`: as in `Replay`."""

    inputs: int
    literals: tuple[tuple[str, tuple[int, ...], bytes], ...]
    calls: tuple[Call, ...]
    results: tuple[Gradient, ...]
    symbols: tuple[tuple[str, int, int | None], ...] = ()
