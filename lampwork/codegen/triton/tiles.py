"""Which elements one program of a GPU kernel works on, and with how many warps.

    pointwise            x                a block of consecutive elements (outer loops as one index)
    rows, transposed     y, x             a block of rows: what each or all of them share, or another access's columns
    short reduction      x                every thread folds its own elements, one after another
    reduction            x, r             XBLOCK rows; RBLOCK elements of each: the whole row if it fits, else in turn

A kernel for a GPU is a nest of parallel loops around straight-line statements and inner nests (`Nest`), one per phase.
Sizes follow bytes: every thread should have two 16-byte accesses under way for each tensor, and a program for every
multiprocessor comes before that. (H200, measured: plain kernels reach 0.94 to 0.99 of copy bandwidth with warps chosen
by bytes per row, half of it with the wrong number.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lampwork.errors import CompileError
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import (
    Accumulate,
    Accumulator,
    Axis,
    Compute,
    Expr,
    Kernel,
    Let,
    Load,
    Loop,
    Stmt,
    Store,
)
from lampwork.ir.record import record
from lampwork.ir.size import Size, bounds, coefficient, product, seen_value, symbols
from lampwork.ir.target import Target

#: Bytes of one vectorised access, and what a program's tile aims at: two of them a thread in four warps.
ACCESS_BYTES = 16
TILE_BYTES = 4096
#: The largest row that one program keeps whole, by how many full-size tensors the kernel reads: registers bound it.
WHOLE_ROW = ((2, 16384), (4, 8192), (1 << 30, 4096))
#: Elements of a row taken at a time where phases do not share them.
ROW_BLOCK = 4096
#: Elements of a tile whose rows are not contiguous: rows of at least COLUMN_BYTES lie side by side. The first is of
#: kernels that keep whole columns, the second of those that fold them in turns. (H100: gelu's derivative and its sum
#: down parts of 8192 x 3072 bfloat16 take 72 us with 64 by 32 and 4 warps, 105 with 32 by 64, 140 with 256 by 8.)
COLUMN_ELEMENTS, COLUMN_BYTES = 8192, 128
COLUMN_TURN = 2048
#: Bytes of a side of a transposed tile: of a plain copy, whose threads need few registers, and of any kernel.
#: (H100, 16384x16384 bfloat16: sides of 128 bytes 93% of copy bandwidth, of 256 bytes and 16 warps 96%.)
COPIED_SIDE_BYTES, TRANSPOSED_SIDE_BYTES = 256, 128
#: Bytes of a tensor that one thread of such a copy moves.
COPIED_BYTES = 64
#: Iterations and statements of inner loops that are written one after another.
LONGEST_UNROLLED, MOST_UNROLLED = 32, 128
#: Elements of the last loop that are worth a row of a tile.
SHORTEST_ROW = 64
LARGEST_BLOCK = 2048
#: Elements of a row that a tile of many rows has at most, bytes of a tensor that one of its threads moves, its warps.
MOST_COLUMNS, ROW_PART_BYTES, ROW_PART_WARPS = 256, 32, 4
#: The same for rows that all threads lie side by side along, so that each has what rows share for its own columns: none
#: of it goes through shared memory. (H200, a bias and a dropout of 4096 columns in bfloat16: 98% of copy bandwidth
#: with tiles of 8 by 256, 101% with 2 by 1024.)
WIDEST_PART = 1024
#: Elements of the last inner loop from which on the loops around it stay loops.
LONG_INNER_ROW = 1024
#: Warps of one program at most, the bytes of a row that they take at a time; fewer programs a multiprocessor are few.
MOST_WARPS, LONGEST_BLOCK, FEW_PROGRAMS = 16, 16384, 2
#: Elements of a row of unknown length that one thread works on at a time.
UNKNOWN_ROW_ELEMENTS = 8


@record
class Rescaled:
    """Fold `value` into accumulator `maximum`, and exp(value - maximum) into accumulator `total`: see online.py."""

    maximum: str
    total: str
    value: Expr


@record
class Nest:
    """Inner loops, outermost first, as one index space, and what is done in it, in order."""

    axes: tuple[Axis, ...]
    body: tuple[Let | Accumulate | Store | Rescaled, ...]


@record
class Form:
    """A kernel as `outer` loops around `row`."""

    outer: tuple[Axis, ...]
    row: tuple[Let | Accumulator | Store | Nest, ...]

    @property
    def nests(self) -> tuple[Nest, ...]:
        return tuple(stmt for stmt in self.row if isinstance(stmt, Nest))


@record
class Tiling:
    """Block sizes (powers of two; 0: the tile has no such dimension: inner loops are unrolled) and launch parameters.

    `y_loop`: the outer loop that is dimension y; the other outer loops are x. A tile of one row (`x_block` 1) beside r
    has no dimension x.

    `group`: not 0 for a matrix product, whose rows are y, whose columns are x, and which takes `r_block` of the inner
    dimension at a time. Programs one after the other work on so many tiles of rows before the next tile of columns.
    """

    x_block: int
    r_block: int = 0
    y_block: int = 0
    y_loop: int = -1
    num_warps: int = 4
    num_stages: int = 1
    group: int = 0


def read_form(kernel: Kernel) -> Form:
    """The parts of a kernel scheduled for a GPU. Raises `CompileError` for a kernel of another shape."""
    outer: list[Axis] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "parallel":
        outer.append(body[0].axis)
        body = body[0].body
    names = {axis.name for axis in outer}
    if any(names & symbols(axis.extent) for axis in outer):
        raise CompileError("generate", f"kernel {kernel.name}: the extent of a parallel loop depends on another one")
    row: list[Let | Accumulator | Store | Nest] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            row.append(_nest(kernel, stmt))
        elif isinstance(stmt, (Let, Accumulator, Store)):
            row.append(stmt)
        else:
            raise CompileError("generate", f"kernel {kernel.name}: {type(stmt).__name__} in a kernel for a GPU")
    return Form(tuple(outer), tuple(row))


def _nest(kernel: Kernel, loop: Loop) -> Nest:
    axes: list[Axis] = []
    body: list[Let | Accumulate | Store] = []

    def enter(loop: Loop) -> None:
        if loop.kind == "parallel":
            raise CompileError("generate", f"kernel {kernel.name}: a parallel loop inside of others")
        axes.append(loop.axis)
        for stmt in loop.body:
            if isinstance(stmt, Loop) and stmt is loop.body[-1]:
                enter(stmt)
            elif isinstance(stmt, (Let, Accumulate, Store)):
                body.append(stmt)
            else:
                raise CompileError("generate", f"kernel {kernel.name}: {type(stmt).__name__} in an inner loop")

    enter(loop)
    return Nest(tuple(axes), tuple(body))


def choose_tiling(form: Form, kernel: Kernel, target: Target) -> Tiling:
    """The tile of one program."""
    accesses = list(_accesses(form, kernel))
    if form.nests and not _unrolls(form, accesses):
        return _reduction(form, accesses, target)
    across = None if form.nests else _transposed_loop(form, accesses)
    if across is not None:
        return _transposed(form, across, accesses, target)
    if not form.nests and _has_row_values(form, accesses):
        return _rows(form, accesses, target)
    if not form.nests and _has_column_values(form, accesses):
        return _columns_of_rows(form, accesses, target)
    return _pointwise(form, accesses, target, kernel.horizontal)


def candidate_tilings(kernel: Kernel, target: Target) -> tuple[Tiling, ...]:
    """The tiling that `choose_tiling` takes, then others that may be faster: what there is to measure."""
    form = read_form(kernel)
    chosen = choose_tiling(form, kernel, target)
    if form.nests:
        others = _other_reductions(form, chosen)
    elif chosen.y_block:
        others = [
            replace(chosen, x_block=x, y_block=y, num_warps=warps)
            for x, y in ((32, 32), (64, 32), (32, 64), (64, 64), (128, 32), (32, 128))
            for warps in (4, 8)
        ]
    else:
        others = [
            replace(chosen, x_block=block, num_warps=warps)
            for block in (chosen.x_block // 2, chosen.x_block, 2 * chosen.x_block)
            for warps in (chosen.num_warps // 2, chosen.num_warps, 2 * chosen.num_warps)
            if block >= 32
        ]
    sound = [each for each in others if 1 <= each.num_warps <= 16]
    return tuple(dict.fromkeys([chosen, *sound]))


def _other_reductions(form: Form, chosen: Tiling) -> list[Tiling]:
    lengths = [likely(product(upper(axis.extent) for axis in nest.axes)) for nest in form.nests]
    whole = power_of_two(max(*lengths, 1))
    tiles = {(chosen.x_block, chosen.r_block), (2 * chosen.x_block, chosen.r_block)}
    if chosen.x_block > 1:
        tiles.add((chosen.x_block // 2, chosen.r_block))
    if whole <= 32768 // chosen.x_block:
        tiles.add((chosen.x_block, whole))
    if chosen.r_block >= whole and whole > 1024:
        tiles.add((chosen.x_block, 1024))
    elif chosen.r_block < whole:
        tiles |= {(chosen.x_block, chosen.r_block // 2), (chosen.x_block, 2 * chosen.r_block)}
    return [
        replace(chosen, x_block=x, r_block=r, num_warps=warps)
        for x, r in sorted(tiles)
        for warps in (1, 2, 4, 8, 16)
        if x * r <= 32768 and r >= 1 and 64 <= x * r // warps <= 4096
    ]


def nest_loads(nest: Nest) -> list[Load]:
    """The loads of a nest, in order."""
    found: list[Load] = []

    def visit(expr: Expr) -> None:
        if isinstance(expr, Compute):
            for arg in expr.args:
                visit(arg)
        elif isinstance(expr, Load):
            found.append(expr)

    for stmt in nest.body:
        visit(stmt.value)
    return found


def has_row_values(nest: Nest) -> bool:
    """Whether something in an inner nest is loaded for many consecutive elements at once (the weight of a channel)."""
    last = nest.axes[-1]
    if not all(isinstance(axis.extent, int) for axis in nest.axes) or likely(last.extent) < LONG_INNER_ROW:
        return False
    return any(
        coefficient(load.index[0], last.name) == 0
        and any(coefficient(load.index[0], axis.name) != 0 for axis in nest.axes[:-1])
        for load in nest_loads(nest)
    )


# -- Accesses ---------------------------------------------------------------------------------------------------------


@record
class _Access:
    offset: Size
    item_bytes: int
    store: bool
    gathered: bool
    nest: Nest | None

    def stride(self, axis: Axis) -> Size | None:
        return coefficient(self.offset, axis.name)


def _accesses(form: Form, kernel: Kernel) -> Iterator[_Access]:
    sizes = {parameter.name: ITEM_SIZE_BYTES[parameter.dtype] for parameter in kernel.parameters}
    seen: set[tuple[str, Size, bool]] = set()

    def of_expression(expr: Expr, nest: Nest | None) -> Iterator[_Access]:
        if isinstance(expr, Compute):
            for arg in expr.args:
                yield from of_expression(arg, nest)
        elif isinstance(expr, Load):
            key = (expr.buffer, expr.index[0], nest is None)
            if key not in seen:
                seen.add(key)
                yield _Access(expr.index[0], sizes[expr.buffer], False, bool(expr.indirect), nest)
            for _, value in expr.indirect:
                yield from of_expression(value, nest)
            if expr.mask is not None:
                yield from of_expression(expr.mask, nest)

    def of_statement(stmt: Stmt, nest: Nest | None) -> Iterator[_Access]:
        if isinstance(stmt, (Let, Accumulate, Store)):
            yield from of_expression(stmt.value, nest)
        if isinstance(stmt, Store):
            for _, value in stmt.indirect:
                yield from of_expression(value, nest)
            yield _Access(stmt.index[0], sizes[stmt.buffer], True, bool(stmt.indirect), nest)

    for part in form.row:
        if isinstance(part, Nest):
            for stmt in part.body:
                if not isinstance(stmt, Rescaled):  # made when tiles have been chosen
                    yield from of_statement(stmt, part)
        else:
            yield from of_statement(part, None)


def likely(value: Size) -> int:
    """A plausible number for `value`: what it was in the call that was captured; else the least it can be, but not less
    than 4096 if it may be that."""
    if isinstance(value, int):
        return value
    low, high = bounds(value)
    seen = seen_value(value)
    return max(low, min(high, 4096 if seen is None else seen))


def upper(extent: Size) -> Size:
    """`extent`, or its largest value where it depends on loops around it."""
    return extent if isinstance(extent, int) or not _on_loops(extent) else bounds(extent)[1]


def _on_loops(value: Size) -> bool:
    return any(name.startswith("i") for name in symbols(value))


def power_of_two(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()


def _between(low: int, number: int, high: int) -> int:
    return max(low, min(number, high))


# -- Shapes -----------------------------------------------------------------------------------------------------------


#: What all rows of a kernel that is `horizontal` have together, at least.
MANY_ELEMENTS = 1 << 24


def _pointwise(form: Form, accesses: list[_Access], target: Target, many: bool = False) -> Tiling:
    numel = MANY_ELEMENTS if many else likely(product(axis.extent for axis in form.outer))
    moved = [access.item_bytes for access in accesses if not form.outer or access.stride(form.outer[-1]) != 0]
    item_bytes = min(moved, default=4)
    block = _between(256, 2 * TILE_BYTES // (2 * item_bytes), LARGEST_BLOCK)
    while block > 128 and numel < block * target.threads:
        block //= 2
    block = min(block, power_of_two(max(numel, 1)))
    per_warp = 32 * max(ACCESS_BYTES // max(item_bytes, 2), 2)
    # In updates of many tensors threads have two accesses under way for each (H100, H200: AdamW takes 2 to 3% less).
    return Tiling(block, num_warps=_between(1, block // (2 * per_warp if many else per_warp), 8))


def _unrolls(form: Form, accesses: list[_Access]) -> bool:
    """Whether the inner loops are so short, and their elements so scattered, that every thread does all of them."""
    statements = 0
    for nest in form.nests:
        extents = [axis.extent for axis in nest.axes]
        length = product(extents)
        if not isinstance(length, int) or not all(isinstance(extent, int) for extent in extents):
            return False
        if length > LONGEST_UNROLLED:
            return False
        statements += length * len(nest.body)
    if statements > MOST_UNROLLED:
        return False
    return not any(
        access.nest is not None
        and access.stride(access.nest.axes[-1]) == 1
        and likely(access.nest.axes[-1].extent) * access.item_bytes >= ACCESS_BYTES
        for access in accesses
    )


def _has_row_values(form: Form, accesses: list[_Access]) -> bool:
    """Whether something is loaded for many consecutive elements at once: a tile with rows does so once a row."""
    if len(form.outer) < 2 or likely(form.outer[-1].extent) < SHORTEST_ROW:
        return False
    return any(
        not access.store and access.stride(form.outer[-1]) == 0 and access.stride(form.outer[-2]) != 0
        for access in accesses
    )


def _has_column_values(form: Form, accesses: list[_Access]) -> bool:
    """Whether rows share something that is loaded along them (the weights of channels that come last)."""
    if len(form.outer) < 2 or likely(form.outer[-1].extent) < SHORTEST_ROW:
        return False
    *rows, last = form.outer
    return any(
        not access.store and access.stride(last) == 1 and all(access.stride(axis) == 0 for axis in rows)
        for access in accesses
    )


def _columns_of_rows(form: Form, accesses: list[_Access], target: Target) -> Tiling:
    """Many rows of a part of the last loop: what rows share is loaded, and computed on, once for all of a thread's.

    Half as many instructions bind a GPU less: where they did, a batch norm and a sum took 0.10 ms instead of 0.21 of
    an H100 that was drawing all the power it may.
    """
    item_bytes = min(access.item_bytes for access in accesses if access.stride(form.outer[-2]) != 0)
    elements = max(ROW_PART_BYTES // item_bytes, 2) * 32 * ROW_PART_WARPS
    if likely(product(axis.extent for axis in form.outer)) < elements * target.threads:
        return _pointwise(form, accesses, target)
    wide = min(ACCESS_BYTES // item_bytes * 32 * ROW_PART_WARPS, WIDEST_PART)
    x = _row_part(form, wide)
    if x < wide:
        x = _row_part(form, MOST_COLUMNS)
    return Tiling(x, y_block=elements // x, y_loop=len(form.outer) - 2, num_warps=ROW_PART_WARPS)


def _row_part(form: Form, most: int) -> int:
    """At most `most` elements of a row, so that the last part of a row is not too empty."""
    length = likely(form.outer[-1].extent)
    x = min(most, power_of_two(length))
    while x > SHORTEST_ROW and -(-length // x) * x > length + length // 8:
        x //= 2
    return x


def _rows(form: Form, accesses: list[_Access], target: Target) -> Tiling:
    """Rows of the last loop, many side by side if they are short."""
    flat = _pointwise(form, accesses, target)
    x = _row_part(form, flat.x_block)
    y = min(max(flat.x_block // x, 1), power_of_two(likely(form.outer[-2].extent)))
    return Tiling(x, y_block=y, y_loop=len(form.outer) - 2, num_warps=flat.num_warps)


def _transposed_loop(form: Form, accesses: list[_Access]) -> int | None:
    """The outer loop along which some access is contiguous whose accesses along the last loop are not."""
    if len(form.outer) < 2:
        return None
    last = form.outer[-1]
    best: tuple[int, int] | None = None
    for access in accesses:
        if access.gathered or access.stride(last) in (None, 0, 1):
            continue
        for place, axis in enumerate(form.outer[:-1]):
            if access.stride(axis) == 1 and min(likely(axis.extent), likely(last.extent)) >= 8:
                best = max(best or (0, 0), (access.item_bytes, place))
    return None if best is None else best[1]


def _transposed(form: Form, across: int, accesses: list[_Access], target: Target) -> Tiling:
    item_bytes = max((access.item_bytes for access in accesses), default=4)
    lengths = likely(form.outer[-1].extent), likely(form.outer[across].extent)
    total = likely(product(axis.extent for axis in form.outer))

    def tile(side: int) -> tuple[int, int]:
        x, y = (min(side, power_of_two(length)) for length in lengths)
        return x, y

    large = COPIED_SIDE_BYTES // max(item_bytes, 2)
    x, y = tile(large)
    if len(accesses) == 2 and total >= FEW_PROGRAMS * target.threads * x * y:
        return Tiling(x, y_block=y, y_loop=across, num_warps=_between(1, x * y * item_bytes // (32 * COPIED_BYTES), 16))
    x, y = tile(max(TRANSPOSED_SIDE_BYTES // max(item_bytes, 2), 32))
    return Tiling(x, y_block=y, y_loop=across, num_warps=_between(1, x * y // 256, 8))


def _reduction(form: Form, accesses: list[_Access], target: Target) -> Tiling:
    rows = likely(product(axis.extent for axis in form.outer))
    lengths = [likely(product(upper(axis.extent) for axis in nest.axes)) for nest in form.nests]
    length = power_of_two(max(*lengths, 1))
    inside = [access for access in accesses if access.nest is not None]
    full = {
        access.offset
        for access in inside
        if not access.store and any(access.stride(axis) != 0 for axis in form.outer) or access.gathered
    }
    item_bytes = max((access.item_bytes for access in inside), default=4)
    columns = _columns(form, inside)
    if columns and len(form.nests) == 1:
        return _column_turns(form, inside, rows, length, target)
    whole = next(limit for count, limit in WHOLE_ROW if len(full) <= count)
    phases = len(form.nests)
    if columns:
        x = _between(8, COLUMN_BYTES // item_bytes, 64)
        x = min(x, power_of_two(max(rows, 1)))
        while x > 8 and 2 * rows < x * target.threads and length > 64:
            x //= 2
        while x > 8 and phases > 1 and length * x > COLUMN_ELEMENTS >= length * 8:
            x //= 2
        if phases > 1 and length * x <= COLUMN_ELEMENTS:
            r = length
        else:
            r = _between(1, COLUMN_ELEMENTS // x, length)
        return Tiling(x, r, num_warps=_between(1, x * r // 512, 16))
    fits = length <= (whole if phases > 1 else ROW_BLOCK)
    r = length if fits else ROW_BLOCK
    row_bytes = r * item_bytes
    x = 1
    if fits and phases > 1 and row_bytes >= TILE_BYTES // 2 and not all(map(_is_known, form.nests)):
        # Whole rows of unknown length are never sure to fit: no thread should keep many of its elements. Measured on an
        # H100, rows of 1024 to 4096: 1.3 to 1.9 times the speed of the tile for known lengths.
        r = max(r // 4, 64)
        return Tiling(1, r, num_warps=_between(1, r // (32 * UNKNOWN_ROW_ELEMENTS), MOST_WARPS))
    if row_bytes < TILE_BYTES // 2:
        x = min(TILE_BYTES // row_bytes, power_of_two(max(rows, 1)), 1024)
        while x > 1 and rows < x * target.threads:
            x //= 2
    programs = -(-rows // x)
    if length > r and programs < FEW_PROGRAMS * target.threads:
        r = min(length, LONGEST_BLOCK // item_bytes)
        row_bytes = r * item_bytes
    if length > r:
        for nest in form.nests:
            if has_row_values(nest):
                inner = power_of_two(likely(nest.axes[-1].extent))
                r = min(r, inner if 8 * likely(nest.axes[-1].extent) >= 7 * inner else inner // 2)
                row_bytes = r * item_bytes
    # Measured on an H100: rows of 1.5 KiB gain 20% from one warp instead of two, rows from 4 KiB on do not care, and
    # rows taken in turns want all warps there are (32000 columns: 0.24 ms with 16, 0.35 with 4).
    wanted = x * row_bytes // (4 * 32 * ACCESS_BYTES) if fits else MOST_WARPS
    warps = _between(1, power_of_two(max(wanted, 1)), MOST_WARPS)
    # Few programs have a multiprocessor each: more threads keep more bytes under way.
    most = min(power_of_two(max(x * row_bytes // (32 * ACCESS_BYTES), 1)), MOST_WARPS)
    while warps < most and programs * warps < MOST_WARPS * target.threads:
        warps *= 2
    return Tiling(x, r, num_warps=warps)


def _column_turns(form: Form, inside: list[_Access], rows: int, length: int, target: Target) -> Tiling:
    """Columns that are folded in turns: full lines of memory, and small programs where there are enough of them."""
    last = form.outer[-1]
    item_bytes = min(access.item_bytes for access in inside if not access.gathered and access.stride(last) == 1)
    x = _between(8, COLUMN_BYTES // item_bytes, 64)
    x = min(x, max(power_of_two(likely(last.extent)), 8), power_of_two(max(rows, 1)))
    while x > 8 and 2 * rows < x * target.threads and length > 64:
        x //= 2
    r = COLUMN_TURN // x
    # Few programs have a multiprocessor each: more threads keep more bytes under way.
    while x * r < COLUMN_ELEMENTS and r < length and rows * r < MOST_WARPS * 512 * target.threads:
        r *= 2
    r = _between(1, r, length)
    return Tiling(x, r, num_warps=_between(1, x * r // 512, MOST_WARPS))


def _is_known(nest: Nest) -> bool:
    return all(isinstance(upper(axis.extent), int) for axis in nest.axes)


def _columns(form: Form, inside: list[_Access]) -> bool:
    """Whether most bytes of the inner loops lie side by side along the last outer loop."""
    if not form.outer:
        return False
    last = form.outer[-1]
    along_rows = along_columns = 0
    for access in inside:
        assert access.nest is not None
        if access.gathered:
            continue
        if access.stride(access.nest.axes[-1]) == 1:
            along_rows += access.item_bytes if access.stride(last) != 0 else 0
        elif access.stride(last) == 1:
            along_columns += access.item_bytes
    return along_columns > along_rows
