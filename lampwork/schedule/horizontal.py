"""Horizontal fusion: operators that do the same to many tensors, whatever their sizes, are one kernel, launched once.

    p1 += -lr * g1;  p2 += -lr * g2;  ...     (300 parameters)  ->  one kernel, launched on 300 rows of buffers

An optimizer's step is hundreds of components: nests over one tensor's elements that share no buffers with the others.
Each is brought to one axis of unknown length; equal ones are one class, scheduled once. Its kernels are `horizontal`,
and what is of one component is a *row* of their launch.

A component consists of *flat* nests: every buffer is read and written at the point of the axes, all buffers have one
shape and one dense layout, or are single elements. Numbers that the caller gives as a list (learning rates,
corrections by the step) are read at a place that is a size of the row. Components with fewer equals than `FEWEST_ROWS`,
or that hand larger values to other nests of the segment, stay with them, since fusing is worth more. The rest of the
segment is cut in stages around the classes:

    stage 0: norms of all gradients, the clipping coefficient -> updates of all parameters -> stage 1: what reads them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lampwork.ir.loops import Axis, Buffer, Compute, Constant, Expr, Load, LoopNest, Store
from lampwork.ir.record import record
from lampwork.ir.size import Size, Symbol, evaluate, mul
from lampwork.schedule.copies import Copies, NotFused
from lampwork.schedule.expressions import ELEMENTS, UNIT
from lampwork.schedule.group import loop_symbol

#: Fewer equal components than this are not worth a kernel of their own.
FEWEST_ROWS = 8
NO_COPIES = Copies()


@record
class RowClass:
    """Equal components as nests over one axis of `ELEMENTS` times `unit` elements.

    `nests`, `buffers`, `live_out` and `mutable` describe one of them, with buffers called v0.. `rows[k]` are the names
    of component k's buffers in that order, `sizes[k]` are its `ELEMENTS` and the places of numbers in lists, by name,
    `elements`: of all of them. `members`: nests by number, of components that are no copies. `models`: buffers that
    copies make, and what each is like.
    """

    nests: tuple[LoopNest, ...]
    buffers: dict[str, Buffer]
    live_out: frozenset[str]
    mutable: frozenset[str]
    rows: tuple[tuple[str, ...], ...]
    sizes: tuple[dict[str, int], ...]
    members: tuple[tuple[int, ...], ...]
    elements: int
    models: dict[str, str]


@record
class Stage:
    """`rest`: nests by number that are scheduled as usual, and whose buffers `live_out` are read outside of them; then
    the classes, in any order."""

    rest: tuple[int, ...]
    live_out: frozenset[str]
    classes: tuple[RowClass, ...]


@record(frozen=False, eq=False)
class _Unit:
    """What is scheduled as one: a nest of the rest, or a component of flat nests over `numel` elements."""

    members: list[int]
    numel: int = 0
    table: int = -1
    key: tuple = ()
    names: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    stage: int = 0


def find_rows(
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    live_out: frozenset[str],
    mutable: frozenset[str],
    copies: Copies = NO_COPIES,
    tables: Sequence[int] = (),
) -> tuple[Stage, ...]:
    """The stages of a segment, in order; one stage without classes where nothing repeats. `tables`: for each nest the
    table of `copies` that it is of; raises `NotFused` for nests of a table that are not among the rows."""
    stages = _find_rows(nests, buffers, live_out, mutable, copies, tables)
    left = {tables[number] for stage in stages for number in stage.rest} if tables else set()
    if left - {-1}:
        raise NotFused(left - {-1})
    return stages


def _find_rows(
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    live_out: frozenset[str],
    mutable: frozenset[str],
    copies: Copies,
    tables: Sequence[int],
) -> tuple[Stage, ...]:
    everything = (Stage(tuple(range(len(nests))), live_out, ()),)
    if len(nests) < FEWEST_ROWS and not tables:
        return everything
    reads = [nest.read for nest in nests]
    flats = [_flat(nest, buffers, mutable) for nest in nests]
    if sum(flat is not None for flat in flats) < FEWEST_ROWS and not tables:
        return everything
    readers: dict[str, list[int]] = {}
    for number, names in enumerate(reads):
        for name in names:
            readers.setdefault(name, []).append(number)
    inside = {nest.store.buffer for nest in nests} - live_out - mutable
    components = _isolated(_components(nests, reads, flats, readers, inside), nests, reads, flats, buffers)
    for unit in components:
        _describe(unit, nests, buffers, readers, live_out, mutable)
        if tables:
            unit.table = max(tables[number] for number in unit.members)
    components = _frequent(components, lambda unit: unit.key, copies)
    while components:
        units = _ordered(components, nests, reads)
        kept = [unit for unit in units if unit.numel]
        components = _frequent(kept, lambda unit: (unit.stage, unit.key), copies)
        if len(components) == len(kept):
            return _stages(units, nests, buffers, readers, live_out, mutable, copies)
    return everything


def _frequent(units: list[_Unit], key: Callable[[_Unit], tuple], copies: Copies) -> list[_Unit]:
    counts: Counter[tuple] = Counter()
    for unit in units:
        counts[key(unit)] += copies.count(unit.table)
    return [unit for unit in units if counts[key(unit)] >= FEWEST_ROWS]


def spread_numbers(
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    live_out: frozenset[str],
    mutable: frozenset[str],
    repeated: bool = False,
) -> list[LoopNest | None]:
    """The nests with what is computed of the caller's numbers alone (a learning rate as float32) computed where it is
    read; None in place of a nest that nobody needs then. All components share such a number, and a kernel that made it
    would have to run before theirs. `repeated`: some nests stand for many."""
    if len(nests) < FEWEST_ROWS and not repeated:
        return list(nests)
    made: dict[str, Expr] = {}
    for nest in nests:
        name = nest.store.buffer
        if name in live_out or name in mutable or not _is_single(buffers[name]):
            continue
        if nest.reduction is not None or nest.partial or nest.store.mode != "write" or nest.store.indirect:
            continue
        parts = nest.parts
        if len(parts) <= _LONGEST_NUMBER and all(_is_of_numbers(part, buffers, mutable) for part in parts):
            made[name] = nest.store.value
    if not made:
        return list(nests)
    memo: dict[int, Expr] = {}
    return [None if nest.store.buffer in made else _with_numbers(nest, made, memo) for nest in nests]


#: Nodes of an expression that is computed by each of its readers.
_LONGEST_NUMBER = 4


def _is_of_numbers(expr: Expr, buffers: Mapping[str, Buffer], mutable: frozenset[str]) -> bool:
    if type(expr) is Load:
        plain = expr.mask is None and not expr.indirect and expr.buffer not in mutable
        return plain and _is_number(expr, buffers[expr.buffer])
    return type(expr) is Compute or type(expr) is Constant


def _with_numbers(nest: LoopNest, made: Mapping[str, Expr], memo: dict[int, Expr]) -> LoopNest:
    if made.keys().isdisjoint(nest.read):
        return nest
    store = nest.store
    indirect = tuple([(name, _put(value, made, memo)) for name, value in store.indirect])
    return replace(nest, store=replace(store, value=_put(store.value, made, memo), indirect=indirect))


def _put(expr: Expr, made: Mapping[str, Expr], memo: dict[int, Expr]) -> Expr:
    """`expr` with loads of the buffers `made` replaced."""
    found = memo.get(id(expr))
    if found is not None:
        return found
    found = expr
    if type(expr) is Compute:
        args = tuple([_put(arg, made, memo) for arg in expr.args])
        if any(new is not old for new, old in zip(args, expr.args)):
            found = Compute(expr.op, args, expr.dtype)
    elif type(expr) is Load:
        if expr.buffer in made:
            found = made[expr.buffer]
            if expr.mask is not None:
                other = Constant(expr.other, expr.dtype)
                found = Compute("where", (_put(expr.mask, made, memo), found, other), expr.dtype)
        elif expr.indirect or expr.mask is not None:
            bound = tuple([(name, _put(value, made, memo)) for name, value in expr.indirect])
            found = replace(expr, indirect=bound, mask=None if expr.mask is None else _put(expr.mask, made, memo))
    memo[id(expr)] = found
    return found


# -- Components -------------------------------------------------------------------------------------------------------


@record
class _Flat:
    """A flat nest: how many elements it runs over, and the buffers of so many, if they are more than one."""

    numel: int
    tensors: tuple[str, ...]


def _flat(nest: LoopNest, buffers: Mapping[str, Buffer], mutable: frozenset[str]) -> _Flat | None:
    """The nest as a flat one; None for any other, and for so many elements that offsets take more than 31 bits."""
    store = nest.store
    if nest.reduction is not None or nest.partial or store.mode != "write" or store.indirect:
        return None
    target = buffers[store.buffer]
    numel = _dense_numel(target)
    if not 0 < numel <= ELEMENTS.upper * _unit(numel) or not _is_point(store.index, target, nest.axes):
        return None
    tensors = {} if numel == 1 else {store.buffer: None}
    for node in nest.parts:
        if type(node) is Load:
            if node.indirect or node.mask is not None:
                return None
            if node.buffer in tensors:
                if node.index != store.index and not _is_point(node.index, target, nest.axes):
                    return None
                continue
            buffer = buffers[node.buffer]
            if _is_single(buffer) or _is_number(node, buffer) and node.buffer not in mutable:
                continue
            if numel == 1 or buffer.shape != target.shape:
                return None
            if buffer.strides != target.strides and _layout(buffer) != _layout(target):
                return None
            if node.index != store.index and not _is_point(node.index, buffer, nest.axes):
                return None
            tensors[node.buffer] = None
        elif type(node) is not Compute and type(node) is not Constant:
            return None
    return _Flat(numel, tuple(tensors))


def _is_number(load: Load, buffer: Buffer) -> bool:
    """Whether the load is of a certain element of a list of numbers from outside."""
    if buffer.kind != "input" or len(load.index) != 1:
        return False
    return isinstance(load.index[0], int) and isinstance(buffer.shape[0], int)


def _is_single(buffer: Buffer) -> bool:
    for extent in buffer.shape:
        if extent != 1:
            return False
    return True


def _is_point(index: tuple[Size, ...], buffer: Buffer, axes: tuple[Axis, ...]) -> bool:
    """Whether `index` is the axes themselves, one for each dimension of the buffer that has more than one element."""
    parts = [(part, extent) for part, extent in zip(index, buffer.shape) if extent != 1]
    wide = [axis for axis in axes if axis.extent != 1]
    if len(parts) != len(wide):
        return False
    for (part, extent), axis in zip(parts, wide):
        if not isinstance(part, Symbol) or part.name != axis.name or extent != axis.extent:
            return False
    return True


def _layout(buffer: Buffer) -> tuple[tuple[Size, Size], ...]:
    return tuple((extent, stride) for extent, stride in zip(buffer.shape, buffer.strides) if extent != 1)


def _dense_numel(buffer: Buffer) -> int:
    """Elements of a buffer without gaps, in whatever order of dimensions; 0 for any other."""
    numel = 1
    layout = []
    for extent, stride in _layout(buffer):
        if not isinstance(extent, int) or not isinstance(stride, int):
            return 0
        layout.append((extent, stride))
    for extent, stride in sorted(layout, key=lambda part: part[1]):
        if stride != numel:
            return 0
        numel *= extent
    return numel


def _components(
    nests: Sequence[LoopNest],
    reads: Sequence[tuple[str, ...]],
    flats: Sequence[_Flat | None],
    readers: Mapping[str, Sequence[int]],
    inside: set[str],
) -> list[_Unit]:
    """Flat nests that share buffers, each set in program order.

    What single elements are read does not join, but a number that one component alone needs is made in it.
    """
    parents = list(range(len(nests)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = number = parents[parents[number]]
        return number

    users: dict[str, int] = {}
    for number, flat in enumerate(flats):
        for name in flat.tensors if flat is not None else ():
            parents[root(number)] = root(users.setdefault(name, number))
    absorbed = set()
    for number in range(len(nests) - 1, -1, -1):
        flat, name = flats[number], nests[number].store.buffer
        if flat is None or flat.numel > 1 or name not in inside:
            continue
        found = readers.get(name, ())
        if all(flats[reader] is not None for reader in found) and len({root(reader) for reader in found}) == 1:
            if all(_numel(flats[reader]) > 1 or reader in absorbed for reader in found):
                absorbed.add(number)
                parents[number] = root(found[0])
    writers: dict[str, int] = {}
    for number, flat in enumerate(flats):
        if flat is not None and flat.numel == 1 and number not in absorbed:
            for name in (*reads[number], nests[number].store.buffer):
                if name in writers:
                    parents[root(number)] = root(writers[name])
            writers[nests[number].store.buffer] = number
    components: dict[int, _Unit] = {}
    for number, flat in enumerate(flats):
        if flat is not None:
            unit = components.setdefault(root(number), _Unit([]))
            unit.members.append(number)
            unit.numel = max(unit.numel, flat.numel)
    return list(components.values())


def _numel(flat: _Flat | None) -> int:
    return 0 if flat is None else flat.numel


def _isolated(
    units: list[_Unit],
    nests: Sequence[LoopNest],
    reads: Sequence[tuple[str, ...]],
    flats: Sequence[_Flat | None],
    buffers: Mapping[str, Buffer],
) -> list[_Unit]:
    """Those that exchange nothing but single elements with nests outside of all of them."""
    taken: set[str] = set()  # what the others write, and read: a component may read what they read, too
    written: set[str] = set()
    for number, nest in enumerate(nests):
        if flats[number] is None:
            written.add(nest.store.buffer)
            taken.update(reads[number])
    found = []
    for unit in units:
        made = {nests[number].store.buffer for number in unit.members}
        used = {name for number in unit.members for name in reads[number]}
        if not any(not _is_single(buffers[name]) for name in (made & (taken | written)) | (used & written)):
            found.append(unit)
    return found


def _unit(numel: int) -> int:
    """Rows whose sizes are multiples of this have kernels of their own, which need no masks."""
    return UNIT if numel % UNIT == 0 else 1


def _describe(
    unit: _Unit,
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    readers: Mapping[str, Sequence[int]],
    live_out: frozenset[str],
    mutable: frozenset[str],
) -> None:
    """Fills in what equal components have in common, and what they do not: names of buffers, places of numbers."""
    names: dict[str, int] = {}
    places: dict[tuple[str, int], int] = {}

    def token(expr: Expr) -> object:
        if type(expr) is Compute:
            return (expr.op, expr.dtype, *[token(arg) for arg in expr.args])
        if type(expr) is Load:
            number = names.setdefault(expr.buffer, len(names))
            buffer = buffers[expr.buffer]
            if buffer.kind != "input" or _is_single(buffer) or not _is_number(expr, buffer):
                return number
            return (number, places.setdefault((expr.buffer, evaluate(expr.index[0], {})), len(places)))
        assert isinstance(expr, Constant)
        return ("constant", repr(expr.value), expr.dtype)

    tokens: list[tuple] = [(_unit(unit.numel), unit.numel == 1)]
    for number in unit.members:
        store = nests[number].store
        tokens.append((token(store.value), names.setdefault(store.buffer, len(names))))
    inside = set(unit.members)
    numbers = {name for name, _ in places}
    for name in names:
        buffer = buffers[name]
        live = name in live_out or any(reader not in inside for reader in readers.get(name, ()))
        shape = buffer.shape if name in numbers else _is_single(buffer)
        tokens.append((buffer.dtype, shape, live, name in mutable))
    unit.key, unit.names, unit.places = tuple(tokens), tuple(names), tuple(places)


# -- Stages -----------------------------------------------------------------------------------------------------------


def _ordered(components: list[_Unit], nests: Sequence[LoopNest], reads: Sequence[tuple[str, ...]]) -> list[_Unit]:
    """All units with their stages, nests of the rest in program order. A component that would have to run both before
    and after another nest is split."""
    units = list(components)
    of = {number: unit for unit in components for number in unit.members}
    for number in range(len(nests)):
        if number not in of:
            of[number] = _Unit([number])
            units.append(of[number])
    place = {id(unit): index for index, unit in enumerate(units)}
    before: list[set[int]] = [set() for _ in units]
    last_write: dict[str, int] = {}
    reads_since: dict[str, set[int]] = {}
    for number, nest in enumerate(nests):
        me = place[id(of[number])]
        for name in reads[number]:
            if name in last_write:
                before[me].add(last_write[name])
        written = nest.store.buffer
        if written in last_write:
            before[me].add(last_write[written])
        before[me] |= reads_since.get(written, set())
        for name in reads[number]:
            reads_since.setdefault(name, set()).add(me)
        last_write[written] = me
        reads_since[written] = set()
    after: list[list[int]] = [[] for _ in units]
    waiting = []
    for me, earlier in enumerate(before):
        earlier.discard(me)
        waiting.append(len(earlier))
        for other in earlier:
            after[other].append(me)
    for unit in units:
        unit.stage = 0
    ready = [me for me, count in enumerate(waiting) if not count]
    order = []
    while ready:
        me = ready.pop()
        order.append(me)
        for other in after[me]:
            units[other].stage = max(units[other].stage, units[me].stage + (1 if units[me].numel else 0))
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    stuck = {id(unit) for unit, count in zip(units, waiting) if count}
    if stuck:
        return _ordered([unit for unit in components if id(unit) not in stuck], nests, reads)
    for me in reversed(order):  # a nest of the rest runs with its first reader, which it may be fused with
        if not units[me].numel and after[me]:
            units[me].stage = min(units[other].stage for other in after[me])
    return units


def _stages(
    units: list[_Unit],
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    readers: Mapping[str, Sequence[int]],
    live_out: frozenset[str],
    mutable: frozenset[str],
    copies: Copies,
) -> tuple[Stage, ...]:
    result = []
    for stage in range(max(unit.stage for unit in units) + 1):
        here = [unit for unit in units if unit.stage == stage]
        rest = tuple(unit.members[0] for unit in here if not unit.numel)
        inside = set(rest)
        live = frozenset(
            name
            for name in (nests[number].store.buffer for number in rest)
            if name in live_out or any(reader not in inside for reader in readers.get(name, ()))
        )
        classes: dict[tuple, list[_Unit]] = {}
        for unit in here:
            if unit.numel:
                classes.setdefault(unit.key, []).append(unit)
        made = tuple(_row_class(found, nests, buffers, mutable, copies) for found in classes.values())
        result.append(Stage(rest, live, made))
    return tuple(result)


def _row_class(
    units: list[_Unit],
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    mutable: frozenset[str],
    copies: Copies,
) -> RowClass:
    first = units[0]
    names = {name: f"v{number}" for number, name in enumerate(first.names)}
    unit = _unit(first.numel)
    extent = mul(ELEMENTS, unit)
    point = (loop_symbol("e", extent),)
    numbers = {
        key: Symbol(f"number{slot}", 0, evaluate(buffers[key[0]].shape[0], {}) - 1)
        for slot, key in enumerate(first.places)
    }
    lists = {name for name, _ in first.places}
    singles = {name for name in names if first.numel > 1 and _is_single(buffers[name])}
    made: dict[int, Expr] = {}

    def rewrite(expr: Expr) -> Expr:
        found = made.get(id(expr))
        if found is None:
            if isinstance(expr, Compute):
                found = Compute(expr.op, tuple([rewrite(arg) for arg in expr.args]), expr.dtype)
            elif isinstance(expr, Load):
                index: tuple[Size, ...] = () if expr.buffer in singles else point
                if expr.buffer in lists:
                    index = (numbers[expr.buffer, evaluate(expr.index[0], {})],)
                found = Load(names[expr.buffer], index, expr.dtype)
            else:
                found = expr
            made[id(expr)] = found
        return found

    rows = []
    for number in first.members:
        nest = nests[number]
        single = nest.store.buffer in singles
        store = Store(names[nest.store.buffer], () if single else point, rewrite(nest.store.value))
        rows.append(LoopNest(() if single else (Axis("e", extent),), store, origin=nest.origin))
    own = {nests[number].store.buffer for number in first.members} - mutable
    described: dict[str, Buffer] = {}
    for old, new in names.items():
        shape: tuple[Size, ...] = () if old in singles else (extent,)
        strides: tuple[Size, ...] = () if old in singles else (1,)
        if old in lists:
            shape, strides = buffers[old].shape, buffers[old].strides
        described[new] = Buffer(new, buffers[old].dtype, shape, strides, "intermediate" if old in own else "input")
    flags = first.key[-len(first.names) :]
    named: list[tuple[str, ...]] = []
    sizes: list[dict[str, int]] = []
    models: dict[str, str] = {}
    for each in units:
        named.append(each.names)
        sizes += [
            {ELEMENTS.name: each.numel // unit}
            | {symbol.name: place for symbol, (_, place) in zip(numbers.values(), each.places)}
        ] * copies.count(each.table)
        if copies.count(each.table) > 1:
            inside = {nests[number].store.buffer for number in each.members} - mutable
            for copy in range(1, copies.count(each.table)):
                row = tuple([copies.name(each.table, copy, name, inside) for name in each.names])
                models.update((new, old) for new, old in zip(row, each.names) if old in inside)
                named.append(row)
    return RowClass(
        nests=tuple(rows),
        buffers=described,
        live_out=frozenset(new for new, flag in zip(names.values(), flags) if flag[2]),
        mutable=frozenset(new for new, flag in zip(names.values(), flags) if flag[3]),
        rows=tuple(named),
        sizes=tuple(sizes),
        members=tuple(tuple(each.members) for each in units),
        elements=sum(each.numel * copies.count(each.table) for each in units),
        models=models,
    )
