"""Scheduling of one segment: nests without an ATen call between them become kernels. Repeated segments are free.

A segment is a pure function of its content: nests with buffers and axes numbered in order of appearance. The 48
layers of a
deep model hold two or three different segments; the others are found in a table and only renamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import prod

from lampwork.ir.attention import read_attention
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.kernel_print import kernel_text
from lampwork.ir.loops import Buffer, Compute, Constant, Expr, Index, Kernel, Load, Loop, LoopNest
from lampwork.ir.record import record
from lampwork.ir.size import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol, symbols
from lampwork.ir.target import Target
from lampwork.ir.weighted_sums import read_sums
from lampwork.schedule.build import Built, build_kernel
from lampwork.schedule.copies import Copies, NotFused
from lampwork.schedule.expressions import ELEMENTS, MANY_ELEMENTS, Pool, estimate
from lampwork.schedule.fuse import Refused, fuse
from lampwork.schedule.horizontal import NO_COPIES, RowClass, find_rows, spread_numbers
from lampwork.schedule.inline import inline
from lampwork.schedule.regions import split_regions
from lampwork.schedule.split import split_reductions
from lampwork.schedule.tiles import kernels_of


@record
class ScheduledKernel:
    """A kernel of a segment, with the segment's names: `buffers` in parameter order, `nests` it came from.

    For a `horizontal` kernel: the buffers and sizes of all rows, the nests of the first; `table` as in `Launch`.
    """

    kernel: Kernel
    buffers: tuple[str, ...]
    sizes: tuple[str | int, ...]
    nests: tuple[int, ...]
    read_bytes: int
    written_bytes: int
    table: str = ""


@record
class Segment:
    """The kernels in a valid order, buffers made for them alone, refused fusions by producing and consuming nest."""

    kernels: tuple[ScheduledKernel, ...]
    new_buffers: tuple[Buffer, ...]
    refused: tuple[Refused, ...]
    unscheduled_bytes: int


#: Tables of rows are filled by so many words at a time.
SHORTEST_TABLE = 256

#: A segment of more nests is no layer of a model that would come again: an optimizer's step.
LONGEST_REPEATED = 512

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
    copies: Copies = NO_COPIES,
    tables: Sequence[int] = (),
) -> Segment:
    """Kernels for `nests`, which are in program order. New buffers are called `prefix` plus a number.

    `tables`: for each nest the table of `copies` that it is of, if any is. Raises `NotFused` for those that do not
    become rows of a launch.
    """
    if len(nests) > LONGEST_REPEATED or tables:
        return _schedule(nests, buffers, live_out, mutable, target, prefix, copies, tables)
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
            renamed[item.table] if item.table else "",
        )
        for item in segment.kernels
    )
    new_buffers = tuple(
        Buffer(renamed[buffer.name], buffer.dtype, buffer.shape, buffer.strides) for buffer in segment.new_buffers
    )
    return Segment(kernels, new_buffers, segment.refused, segment.unscheduled_bytes)


def _schedule(
    nests, buffers, live_out, mutable, target: Target, prefix: str, copies: Copies = NO_COPIES, tables=()
) -> Segment:
    # A nest over an empty axis stores nothing.
    kept = [place for place, nest in enumerate(nests) if not any(axis.extent == 0 for axis in nest.axes)]
    nests = [nests[place] for place in kept]
    spread = spread_numbers(nests, buffers, live_out, mutable, bool(tables))
    kept = [place for place, nest in zip(kept, spread) if nest is not None]
    nests = [nest for nest in spread if nest is not None]
    tables = [tables[place] for place in kept] if tables else ()
    stages = find_rows(nests, buffers, live_out, mutable, copies, tables)
    if len(stages) == 1 and not stages[0].classes:
        return _schedule_nests(nests, kept, buffers, live_out, mutable, target, prefix)
    counts = [copies.count(table) for table in tables] or [1] * len(nests)
    parts: list[Segment] = []
    for number, stage in enumerate(stages):
        inside = [nests[place] for place in stage.rest]
        origin = [kept[place] for place in stage.rest]
        own = f"{prefix}{number}_"
        parts.append(_schedule_nests(inside, origin, buffers, stage.live_out, mutable, target, own))
        for place, rows in enumerate(stage.classes):
            made = _schedule_rows(rows, kept, buffers, target, f"{own}{place}_")
            if made is None:
                if tables:
                    raise NotFused({*tables} - {-1})
                return _schedule_nests(nests, kept, buffers, live_out, mutable, target, prefix)
            parts.append(made)
    return Segment(
        tuple(kernel for part in parts for kernel in part.kernels),
        tuple(buffer for part in parts for buffer in part.new_buffers),
        tuple(refused for part in parts for refused in part.refused),
        sum(_nest_bytes(nest, buffers) * count for nest, count in zip(nests, counts)),
    )


def _schedule_rows(
    rows: RowClass, kept: Sequence[int], buffers: Mapping[str, Buffer], target: Target, prefix: str
) -> Segment | None:
    """`horizontal` kernels for all rows of a class; None where they would not be plain loops over the elements."""
    first = [kept[place] for place in rows.members[0]]
    found = _schedule_nests(rows.nests, first, rows.buffers, rows.live_out, rows.mutable, target, prefix)
    kernels, tables = [], []
    for number, made in enumerate(found.kernels):
        kernel = made.kernel
        if made.sizes[:1] != (ELEMENTS.name,) or not _is_parallel_loop(kernel) or found.new_buffers:
            return None
        places = [int(name[1:]) for name in made.buffers]
        table = ""
        if kernels_of(target).tables:
            # For each row: where it begins among all programs, its sizes, its pointers.
            shape = (max(len(rows.rows) * (1 + len(made.sizes) + len(places)), SHORTEST_TABLE),)
            tables.append(Buffer(f"{prefix}table{number}", "int64", shape, (1,)))
            table = tables[-1].name
        kernels.append(
            ScheduledKernel(
                with_name(Kernel("", kernel.parameters, kernel.body, kernel.sizes, kernel.origins, horizontal=True)),
                tuple(row[place] for row in rows.rows for place in places),
                tuple(sizes[str(name)] for sizes in rows.sizes for name in made.sizes),
                made.nests,
                made.read_bytes * rows.elements // MANY_ELEMENTS,
                made.written_bytes * rows.elements // MANY_ELEMENTS,
                table,
            )
        )
    used = {name for kernel in kernels for name in kernel.buffers} if rows.models else set()
    new = [replace(buffers[old], name=name) for name, old in rows.models.items() if name in used]
    return Segment(tuple(kernels), (*tables, *new), (), 0)


def _is_parallel_loop(kernel: Kernel) -> bool:
    return len(kernel.body) == 1 and isinstance(kernel.body[0], Loop) and kernel.body[0].kind == "parallel"


def _schedule_nests(nests, kept, buffers, live_out, mutable, target: Target, prefix: str) -> Segment:
    """`nests`, which are called by the numbers in `kept`, fused as far as they go."""
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
    readers = _readers(groups)
    for group in groups:
        needed = _needed(group, readers, live_out, mutable)
        origin = tuple(places[member.operator.position] for member in group.members)
        # A thread of a GPU loads nothing where its mask is false, and a launch costs more than masks.
        for region in [group] if kernels_of(target).independent_threads else split_regions(group, pool, mutable):
            kernels.append(_named(build_kernel(region, buffers, needed, target), origin))
    made = {name for kernel in kernels for name in kernel.buffers}
    refused = tuple(Refused(places[item.producer], places[item.consumer], item.refusal, item.bytes) for item in found)
    return Segment(
        tuple(kernels),
        tuple(buffer for buffer in new_buffers if buffer.name in made),
        refused,
        sum(_nest_bytes(nest, buffers) for nest in nests),
    )


def _readers(groups) -> dict[str, list]:
    """For each buffer the groups that read it."""
    found: dict[str, list] = {}
    for group in groups:
        for name in {load.buffer for member in group.members for load in member.operator.loads}:
            found.setdefault(name, []).append(group)
    return found


def _needed(group, readers, live_out: frozenset[str], mutable: frozenset[str]) -> frozenset[str]:
    """Buffers of the group that somebody outside it reads."""
    made = {member.buffer for member in group.members}
    return frozenset(
        name
        for name in made
        if name in live_out or name in mutable or any(other is not group for other in readers.get(name, ()))
    )


def _named(built: Built, nests: tuple[int, ...]) -> ScheduledKernel:
    """The kernel under a name made from its content, so that equal kernels have equal names."""
    return ScheduledKernel(
        with_name(built.kernel), built.buffers, built.sizes, nests, built.read_bytes, built.written_bytes
    )


def with_name(kernel: Kernel) -> Kernel:
    """The kernel under a name made of its content: what it is, its operators, a digest of its text.

    Profiles of a GPU show names alone: `reduce_softmax_dropout_5f03d1c2ab94`.
    """
    text = kernel_text(replace(kernel, name=""))
    kind = "reduce" if "accumulator " in text else "rows" if kernel.horizontal else "pointwise"
    kind = "attention" if read_attention(kernel) is not None else kind
    kind = "weighted_sums" if read_sums(kernel) is not None else kind
    words = [kind, *_operators(kernel), blake2b(text.encode(), digest_size=6).hexdigest()]
    return Kernel("_".join(words), kernel.parameters, kernel.body, kernel.sizes, kernel.origins, kernel.horizontal)


def same_text(kernel: Kernel) -> str:
    """What kernels of equal text share of their names: operators of two names may compute the same."""
    return kernel.name.rpartition("_")[2]


#: So many operators stand in a kernel's name.
_NAMED_OPERATORS = 4


def _operators(kernel: Kernel) -> list[str]:
    """`aten::native_layer_norm.default` is layer_norm, `prims::convert_element_type.default` convert_element_type."""
    found: dict[str, None] = {}
    for origin in kernel.origins:
        base = origin.op.rpartition("::")[2].partition(".")[0].removeprefix("native_").strip("_")
        word = "".join(each for each in base if each.isascii() and (each.isalnum() or each == "_"))
        if word:
            found[word] = None
    words = list(found)
    kept = _NAMED_OPERATORS - 1
    return words if len(words) <= _NAMED_OPERATORS else [*words[:kept], "and", str(len(words) - kept)]


def _nest_bytes(nest: LoopNest, buffers: Mapping[str, Buffer]) -> int:
    """Memory traffic of a nest run by itself: every element it touches once."""
    domain = nest.axes + (nest.reduction.axes if nest.reduction else ())
    stored = _numel([axis.extent for axis in nest.axes])
    total = stored * ITEM_SIZE_BYTES[buffers[nest.store.buffer].dtype]
    point = None if nest.reduction else nest.store.index
    for load in nest.parts:
        if type(load) is not Load:
            continue
        if load.index is point and len(point) == len(nest.axes) and not load.indirect:
            total += stored * ITEM_SIZE_BYTES[load.dtype]
            continue
        used = {name for part in load.index for name in ((part.name,) if type(part) is Symbol else symbols(part))}
        touched = _numel([axis.extent for axis in domain if load.indirect or axis.name in used])
        size = touched if load.indirect else _numel(buffers[load.buffer].shape)
        total += min(touched, size) * ITEM_SIZE_BYTES[load.dtype]
    return total


def _numel(shape: Sequence[Size]) -> int:
    """Elements of a shape, about."""
    return estimate(prod(shape))  # sizes multiply like the numbers that they mostly are


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
        return (value.name if number is None else number, value.lower, value.upper, value.seen)
    if isinstance(value, Sum):
        return (value.constant, *[(factor, _size_token(atom, axes)) for factor, atom in value.terms])
    if isinstance(value, Product):
        return ("*", *[_size_token(part, axes) for part in value.factors])
    if isinstance(value, (FloorDiv, Mod)):
        return (type(value).__name__, _size_token(value.value, axes), _size_token(value.divisor, axes))
    if isinstance(value, (Min, Max)):
        return (type(value).__name__, _size_token(value.left, axes), _size_token(value.right, axes))
    raise TypeError(f"not a size: {value!r}")
