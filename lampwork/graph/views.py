"""Memories and the views of them: what functionalisation knows of a recorded tensor, and how a write goes back to it.

    %row = select(%y, 0, 1)       View of %y's memory, kept as the operator that made it
    %row becomes %mul             select_scatter(%y, %mul, 0, 1): the parent's contents after that (SCATTERS)
    %t = transpose(%y, 0, 1)
    %t becomes %new               transpose(%new, 0, 1): the way back is the operator's inverse (INVERSES)

Every other view is written through `as_strided_scatter` of the root.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.strides import overlap
from lampwork.ir.size import span

if TYPE_CHECKING:
    from lampwork.graph.functionalize import Functionalizer

aten = torch.ops.aten


def needs_places(target: Any, result: Any, argument: Any) -> bool:
    """Whether an operator depends on where in its storage the argument begins."""
    if target in _BY_OFFSET:
        return True
    return target is aten.view.dtype and result.dtype.itemsize > argument.dtype.itemsize


_BY_OFFSET = frozenset({
    aten.as_strided.default, aten.as_strided_scatter.default, aten.view_as_complex.default,
})  # fmt: skip


class Memory:
    """One storage. `value`: the node that holds the root's current contents; `generation` counts writes.

    `exact` says whether `value` has the root's own strides; views are replayed on exact values only.
    `inputs`: indices of the placeholders that lie in it. `is_flat`: the root is no input, but all memory of them.
    `row`: it is written as a row, which begins so many elements after the first one of that input.
    """

    __slots__ = ("exact", "generation", "inputs", "is_flat", "root", "row", "value")

    def __init__(self, value: Node, inputs: tuple[int, ...] = (), is_flat: bool = False) -> None:
        self.value, self.is_flat = value, is_flat
        self.exact = True
        self.generation = 0
        self.inputs = inputs
        self.row: tuple[int, Any] | None = None
        self.root: View


class View:
    """A tensor in a memory: the root (`parent` None) or `operator(parent, *args, **kwargs)`."""

    __slots__ = ("args", "fake", "generation", "kwargs", "like", "memory", "node", "operator", "parent")

    def __init__(self, memory: Memory, fake: Fake, parent: View | None = None, operator: object = None,
                 args: tuple = (), kwargs: dict | None = None, like: Node | None = None) -> None:  # fmt: skip
        self.memory, self.fake, self.parent = memory, fake, parent
        self.operator, self.args, self.kwargs, self.like = operator, args, kwargs or {}, like
        self.node: Node | None = None
        self.generation = -1

    @property
    def whole(self) -> Fake:
        """What it is a view of."""
        assert self.parent is not None
        return self.parent.fake


def is_contiguous(fake: Any) -> bool:
    """In order and without gaps, as far as numbers say."""
    step = 1
    for size, stride in zip(reversed(fake.size()), reversed(fake.stride())):
        if type(size) is not int or type(stride) is not int or size > 1 and stride != step:
            return False
        step *= size
    return True


def end_of(fake: torch.Tensor) -> int:
    """One past the last element, in elements from the start of the storage."""
    return fake.storage_offset() + span(fake.size(), fake.stride())


def overlapping_inputs(fakes: list[Fake]) -> list[list[int]]:
    """The inputs of one storage, by number, in groups that overlap; a guard (`StorageGroups`) says which do, and how.
    Of others the program may know nothing but that they do not overlap: on another call their storages may differ."""
    groups: list[list[int]] = []
    end = 0
    begins = [int(fake.storage_offset()) * fake.itemsize for fake in fakes]
    for index in sorted(range(len(fakes)), key=begins.__getitem__):
        fake = fakes[index]
        start, stop = fake.storage_offset() * fake.itemsize, end_of(fake) * fake.itemsize
        if start == stop:  # no elements
            groups.insert(0, [index])
        elif start < end:
            groups[-1].append(index)
            end = max(end, stop)
        else:
            groups.append([index])
            end = stop
    return [sorted(group) for group in groups]


def overlaps_itself(fake: torch.Tensor) -> bool:
    """Whether several of its elements may be one memory location."""
    return overlap(fake.size(), fake.stride())


def written_part(argument: torch.Tensor, value: torch.Tensor, row: int | None) -> torch.Tensor:
    """What a write to an argument stores `value` to: all of it, or memory in a row that begins `row` elements after
    its first one."""
    return argument if row is None else argument.as_strided(value.shape, (1,), argument.storage_offset() + row)


def covers(root: Fake, fake: Fake) -> bool:
    """Whether all elements of `fake` lie between the first and the last one of `root`, and none in its gaps."""
    if fake.dtype != root.dtype:
        return True  # refused elsewhere
    first, last = root.storage_offset(), end_of(root)
    if not (first <= fake.storage_offset() and end_of(fake) <= last):
        return False
    numbers = (*root.size(), *root.stride(), *fake.size(), *fake.stride(), first, last)
    if root.numel() == last - first or any(type(each) is not int for each in numbers):
        return bool(root.numel() == last - first)
    return max(root.numel(), fake.numel()) <= _FEW_PLACES and places(fake) <= places(root)


#: Places of so many elements are listed; of more, some are taken to lie in gaps.
_FEW_PLACES = 1 << 12


def places(fake: torch.Tensor) -> set[int]:
    """Where in its storage the elements lie."""
    found = {int(fake.storage_offset())}
    for size, stride in zip(fake.size(), fake.stride()):
        found = {place + stride * step for place in found for step in range(size)}
    return found if fake.numel() else set()


def reaching_views(inputs: list[Node], nodes: list[Node], written: set[int]) -> dict[Node, list[Fake]]:
    """By input: what `as_strided` makes of it or of its views that lies outside of it, in memory that is written."""
    source = {node: node for node in inputs}
    found: dict[Node, list[Fake]] = {}
    for node in nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not node.args:
            continue
        parent = node.args[0]
        if not isinstance(parent, Node) or parent not in source:
            continue
        origin = source[parent]
        parts = value if isinstance(value, (list, tuple)) else (value,)  # `chunk` gives several
        if not all(_are_of_one_memory(origin.meta["val"], each) for each in parts):
            continue
        source[node] = origin
        if node.target is aten.as_strided.default and isinstance(value, Fake) and _torch.storage_key(value) in written:
            if not covers(origin.meta["val"], value):
                found.setdefault(origin, []).append(value)
    return found


def _are_of_one_memory(one: object, other: object) -> bool:
    if not (isinstance(one, Fake) and isinstance(other, Fake)):
        return False
    return _torch.storage_key(one) == _torch.storage_key(other)


def is_stretched(view: View) -> bool:
    """Whether a tensor on the way from the root to `view` has several elements in one memory location."""
    while view.parent is not None:
        if view.operator in STRETCHES and overlaps_itself(view.fake):
            return True
        view = view.parent
    return False


def written_storages(nodes: list[Node]) -> set[int]:
    """Keys of the storages that some operator of the recorded graph writes to."""
    written: set[int] = set()

    def note(value: object) -> None:
        if isinstance(value, Node):
            written.add(_torch.storage_key(value.meta["val"]))
        elif isinstance(value, (list, tuple)):
            for each in value:
                note(each)

    for node in nodes:
        if node.op == "call_function" and _torch.is_operator(node.target):
            op = operator(node.target)
            for where in op.written:
                if isinstance(where, str):
                    note(node.kwargs.get(where))
                elif where < len(node.args):
                    note(node.args[where])
                else:
                    note(node.kwargs.get(op.positional[where]))
    return written


#: Operators that write a view's contents into its parent.
SCATTERS = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
}
#: Views that may repeat elements.
STRETCHES = frozenset({aten.expand.default, aten.as_strided.default, aten.unfold.default})


def _reshaped(run: Functionalizer, view: View, new: Node) -> Node:
    return _viewed(run, aten.view.default, new, list(view.whole.size()))


def _viewed(run: Functionalizer, op: Any, new: Node, *arguments: object) -> Node:
    """The view `op` of a new value, which may lie in memory as the parent does not: then of a dense copy."""
    try:
        return run.emit(op, new, *arguments)
    except RuntimeError:
        copied = run.emit(aten.clone.default, new, memory_format=torch.contiguous_format)
        return run.emit(op, copied, *arguments)


def _unpermuted(run: Functionalizer, view: View, new: Node) -> Node:
    dims = [dim % len(view.args[0]) for dim in view.args[0]]
    inverse = [dims.index(position) for position in range(len(dims))]
    return run.emit(aten.permute.default, new, inverse)


#: What a parent's contents become when a view of all its elements does: `INVERSES[op](run, view, new)`.
INVERSES: dict[object, Callable[[Functionalizer, View, Node], Node]] = {
    aten.view.default: _reshaped,
    aten._reshape_alias.default: _reshaped,
    aten.unsqueeze.default: _reshaped,
    aten.squeeze.default: _reshaped,
    aten.squeeze.dim: _reshaped,
    aten.squeeze.dims: _reshaped,
    aten.alias.default: lambda run, view, new: new,
    aten.detach.default: lambda run, view, new: new,
    aten.t.default: lambda run, view, new: run.emit(aten.t.default, new),
    aten.transpose.int: lambda run, view, new: run.emit(aten.transpose.int, new, *view.args),
    aten.permute.default: _unpermuted,
    aten.view.dtype: lambda run, view, new: _viewed(run, aten.view.dtype, new, view.whole.dtype),
    aten.view_as_real.default: lambda run, view, new: _viewed(run, aten.view_as_complex.default, new),
    aten.view_as_complex.default: lambda run, view, new: run.emit(aten.view_as_real.default, new),
    aten._conj.default: lambda run, view, new: run.emit(aten._conj_physical.default, new),
    aten._neg_view.default: lambda run, view, new: run.emit(aten.neg.default, new),
}


#: Views whose writes go to their parents; those of others go to the root at once.
WRITTEN_TO_PARENTS = frozenset({*SCATTERS, *INVERSES})


def as_strided(fake: Fake) -> tuple[Any, tuple, dict]:
    """The view that a tensor is of its storage: operator, arguments, keywords."""
    return aten.as_strided.default, (list(fake.size()), list(fake.stride()), fake.storage_offset()), {}


def _slices(base: Fake, values: list[Fake], index: int, sizes: object, dim: int = 0) -> tuple[object, tuple, dict]:
    start = sum(each.size()[dim] for each in values[:index])
    return aten.slice.Tensor, (dim, start, start + values[index].size()[dim]), {}


def _unbound(base: Fake, values: list[Fake], index: int, dim: int = 0) -> tuple[object, tuple, dict]:
    return aten.select.int, (dim, index), {}


#: What each result of an operator with several is: the view that alone would give it.
PIECES: dict[object, Callable[..., tuple[object, tuple, dict]]] = {
    aten.split.Tensor: _slices,
    aten.split_with_sizes.default: _slices,
    aten.unbind.int: _unbound,
}
