"""Scheduling of one segment: nests without an ATen call between them become kernels. Repeated segments are free.

A segment is a pure function of its content: nests with buffers and axes numbered in order of appearance. The 48
layers of a
deep model hold two or three different segments; the others are found in a table and only renamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.kernel_print import kernel_text
from lampwork.ir.loops import Buffer, Compute, Constant, Expr, Index, Kernel, Load, LoopNest
from lampwork.ir.size import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol, product, symbols
from lampwork.ir.target import Target
from lampwork.schedule.build import Built, build_kernel
from lampwork.schedule.expressions import Pool, estimate, nodes
from lampwork.schedule.fuse import Refused, fuse
from lampwork.schedule.inline import inline
from lampwork.schedule.regions import split_regions
from lampwork.schedule.split import split_reductions
from lampwork.schedule.tiles import is_gpu


@dataclass(frozen=True)
class ScheduledKernel:
    """A kernel of a segment, with the segment's names: `buffers` in parameter order, `nests` it came from."""

    kernel: Kernel
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    nests: tuple[int, ...]
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class Segment:
    """The kernels in a valid order, buffers made for them alone, refused fusions by producing and consuming nest."""

    kernels: tuple[ScheduledKernel, ...]
    new_buffers: tuple[Buffer, ...]
    refused: tuple[Refused, ...]
    unscheduled_bytes: int


#: Scheduled segments by content. Bounded: a process that compiles without end starts over now and then.
_memo: dict[tuple, tuple[Segment, tuple[str, ...]]] = {}
_MEMO_LIMIT = 1024


def schedule_segment(
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    live_out: frozenset[str],
    mutable: frozenset[str],
    target: Target,
    prefix: str,
) -> Segment:
    """Kernels for `nests`, which are in program order. New buffers are called `prefix` plus a number."""
    key, names = _content(nests, buffers, live_out, mutable, target)
    found = _memo.get(key)
    if found is None:
        segment = _schedule(nests, buffers, live_out, mutable, target, prefix)
        if len(_memo) >= _MEMO_LIMIT:
            _memo.clear()
        made = tuple(buffer.name for buffer in segment.new_buffers)
        _memo[key] = (segment, (*names, *made))
        return segment
    segment, known = found
    made = tuple(f"{prefix}{number}" for number in range(len(segment.new_buffers)))
    renamed = dict(zip(known, (*names, *made)))
    kernels = tuple(
        ScheduledKernel(
            item.kernel,
            tuple([renamed[name] for name in item.buffers]),
            item.sizes,
            item.nests,
            item.read_bytes,
            item.written_bytes,
        )
        for item in segment.kernels
    )
    new_buffers = tuple(
        Buffer(renamed[buffer.name], buffer.dtype, buffer.shape, buffer.strides) for buffer in segment.new_buffers
    )
    return Segment(kernels, new_buffers, segment.refused, segment.unscheduled_bytes)


def _schedule(nests, buffers, live_out, mutable, target: Target, prefix: str) -> Segment:
    # A nest over an empty axis stores nothing.
    kept = [place for place, nest in enumerate(nests) if not any(axis.extent == 0 for axis in nest.axes)]
    nests = [nests[place] for place in kept]
    split, new_buffers = split_reductions(nests, buffers, target, prefix)
    if new_buffers:
        buffers = {**buffers, **{buffer.name: buffer for buffer in new_buffers}}
    places = [kept[place] for _, place in split]
    positions: dict[str, list[int]] = {name: [] for name in mutable}
    for number, (nest, _) in enumerate(split):
        if nest.store.buffer in mutable:
            positions[nest.store.buffer].append(number)
    pool = Pool()
    operators = inline([nest for nest, _ in split], buffers, live_out, positions, pool)
    groups, found = fuse(operators, buffers, live_out, mutable, target)
    kernels = []
    for group in groups:
        needed = _needed(group, groups, live_out, mutable)
        origin = tuple(places[member.operator.position] for member in group.members)
        # A thread of a GPU loads nothing where its mask is false, and a launch costs more than masks.
        for region in [group] if is_gpu(target) else split_regions(group, pool, mutable):
            kernels.append(_named(build_kernel(region, buffers, needed, target), origin))
    made = {name for kernel in kernels for name in kernel.buffers}
    refused = tuple(Refused(places[item.producer], places[item.consumer], item.refusal, item.bytes) for item in found)
    return Segment(
        tuple(kernels),
        tuple(buffer for buffer in new_buffers if buffer.name in made),
        refused,
        sum(_nest_bytes(nest, buffers) for nest in nests),
    )


def _needed(group, groups, live_out: frozenset[str], mutable: frozenset[str]) -> frozenset[str]:
    """Buffers of the group that somebody outside it reads."""
    made = {member.buffer for member in group.members}
    needed = {name for name in made if name in live_out or name in mutable}
    for other in groups:
        if other is not group:
            for member in other.members:
                needed.update(load.buffer for load in member.operator.loads if load.buffer in made)
    return frozenset(needed)


def _named(built: Built, nests: tuple[int, ...]) -> ScheduledKernel:
    """The kernel under a name made from its content, so that equal kernels have equal names."""
    kernel = built.kernel
    text = kernel_text(kernel)
    kind = "reduce" if "accumulator " in text else "pointwise"
    name = f"{kind}_{blake2b(text.encode(), digest_size=6).hexdigest()}"
    kernel = Kernel(name, kernel.parameters, kernel.body, kernel.sizes, kernel.origins)
    return ScheduledKernel(kernel, built.buffers, built.sizes, nests, built.read_bytes, built.written_bytes)


def _nest_bytes(nest: LoopNest, buffers: Mapping[str, Buffer]) -> int:
    """Memory traffic of a nest run by itself: every element it touches once."""
    domain = nest.axes + (nest.reduction.axes if nest.reduction else ())
    total = 0
    for load in nodes([nest.store.value, *(value for _, value in nest.store.indirect)]):
        if type(load) is not Load:
            continue
        used = frozenset().union(*(symbols(part) for part in load.index)) if load.index else frozenset()
        touched = estimate(product(axis.extent for axis in domain if load.indirect or axis.name in used))
        size = estimate(product(buffers[load.buffer].shape))
        total += (touched if load.indirect else min(touched, size)) * ITEM_SIZE_BYTES[load.dtype]
    stored = estimate(product(axis.extent for axis in nest.axes))
    return total + stored * ITEM_SIZE_BYTES[buffers[nest.store.buffer].dtype]


# -- Content ----------------------------------------------------------------------------------------------------------


def _content(
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    live_out: frozenset[str],
    mutable: frozenset[str],
    target: Target,
) -> tuple[tuple, tuple[str, ...]]:
    """The segment with buffers and axes as numbers, and the buffers' names in that numbering."""
    numbers: dict[str, int] = {}
    tokens: list = [target]
    for nest in nests:
        axes: dict[str, int] = {}
        for axis in nest.axes:
            axes[axis.name] = len(axes)
            tokens.append(_size_token(axis.extent, axes))
        if nest.reduction:
            tokens.append((nest.reduction.op, nest.reduction.dtype))
            for axis in nest.reduction.axes:
                axes[axis.name] = len(axes)
                tokens.append(_size_token(axis.extent, axes))
        store = nest.store
        for name, value in store.indirect:
            axes[name] = len(axes)
            tokens.append(_token(value, axes, numbers))
        tokens.append((store.mode, nest.partial, numbers.setdefault(store.buffer, len(numbers))))
        tokens.append(tuple([_size_token(part, axes) for part in store.index]))
        tokens.append(_token(store.value, axes, numbers))
    for name in numbers:
        buffer = buffers[name]
        tokens.append((buffer.dtype, buffer.shape, buffer.strides, buffer.kind, name in live_out, name in mutable))
    return tuple(tokens), tuple(numbers)


def _token(expr: Expr, axes: dict[str, int], numbers: dict[str, int]) -> tuple:
    if isinstance(expr, Compute):
        return (expr.op, expr.dtype, *[_token(arg, axes, numbers) for arg in expr.args])
    if isinstance(expr, Load):
        bound = []
        for name, value in expr.indirect:
            bound.append(_token(value, axes, numbers))
            axes[name] = len(axes)
        return (
            numbers.setdefault(expr.buffer, len(numbers)),
            expr.dtype,
            tuple([_size_token(part, axes) for part in expr.index]),
            *bound,
            None if expr.mask is None else (_token(expr.mask, axes, numbers), repr(expr.other)),
        )
    if isinstance(expr, Constant):
        return ("constant", repr(expr.value), expr.dtype)
    if isinstance(expr, Index):
        return ("index", _size_token(expr.value, axes))
    return ("local", expr.name, expr.dtype)


def _size_token(value: Size, axes: Mapping[str, int]) -> object:
    if isinstance(value, int):
        return value
    if isinstance(value, Symbol):
        number = axes.get(value.name)
        return (value.name, value.lower, value.upper) if number is None else (number, value.lower, value.upper)
    if isinstance(value, Sum):
        return (value.constant, *[(factor, _size_token(atom, axes)) for factor, atom in value.terms])
    if isinstance(value, Product):
        return ("*", *[_size_token(part, axes) for part in value.factors])
    if isinstance(value, (FloorDiv, Mod)):
        return (type(value).__name__, _size_token(value.value, axes), _size_token(value.divisor, axes))
    if isinstance(value, (Min, Max)):
        return (type(value).__name__, _size_token(value.left, axes), _size_token(value.right, axes))
    raise TypeError(f"not a size: {value!r}")
