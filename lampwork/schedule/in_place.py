"""Kernels that write where they read: an elementwise result takes the memory of a buffer that nobody reads again.

    g = mm(..)   norm = ..g..   c = g * coefficient(norm)   p += -lr * c       ->       the last kernel writes c over g

Gradients that are clipped would be there twice otherwise, just when a training step's memory is at its peak. The two
buffers become one, and so do the kernel's parameters, which is `readwrite` then: whatever generates code knows those.

A kernel is changed only if all of its launches allow it, so that there are no more kernels than before, and where it is
worth a look (`FEWEST_BYTES`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import (
    Accumulate,
    Buffer,
    Compute,
    Expr,
    If,
    Kernel,
    Let,
    Load,
    Loop,
    Parameter,
    Stmt,
    Store,
    nodes,
    storage_numel,
)
from lampwork.ir.program import Extern, FromBuffer, Launch, Lowered, Step, TensorRef, launch_instances, step_buffers
from lampwork.ir.record import record
from lampwork.ir.size import Size, Symbol, bounds, linear_terms, mul
from lampwork.schedule.expressions import estimate
from lampwork.schedule.segment import with_name

#: What the launches of a kernel write to one parameter, at least.
FEWEST_BYTES = 1 << 20

#: ATen calls without an `out` variant that are known to return memory which is nobody else's.
FRESH = frozenset({
    "aten::convolution.default", "aten::convolution_backward.default", "aten::embedding_dense_backward.default",
    "mkldnn::_linear_pointwise.default",
})  # fmt: skip


def reuse_memory(
    lowered: Lowered, kernels: Sequence[Kernel], steps: Sequence[Step], buffers: Mapping[str, Buffer]
) -> tuple[Lowered, list[Kernel], list[Step], dict[str, Buffer]]:
    """The program with pairs of buffers become one. The order of steps, and what they compute, stays."""
    plan = _Plan(lowered, steps, buffers)
    kernels = list(kernels)
    launches: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Launch):
            launches.setdefault(step.kernel, []).append(number)
    changed: dict[int, dict[str, str]] = {}
    for place, numbers in launches.items():
        merged = _pairs(kernels[place], plan, numbers)
        if merged:
            changed[place] = merged
    for number, each in enumerate(steps):
        if isinstance(each, Extern) and each.out_variant == LAUNCHED:
            _write_in_place(each, number, plan)
    if not plan.taken:
        return lowered, kernels, list(steps), dict(buffers)
    made = list(steps)
    for place, merged in changed.items():
        kernel = kernels[place]
        kept = [each.name not in merged for each in kernel.parameters]
        for number in launches[place]:
            step = made[number]
            assert isinstance(step, Launch)
            left = tuple([name for row, _ in launch_instances(step, kernel) for name, keep in zip(row, kept) if keep])
            made[number] = replace(step, buffers=left)
        kernels[place] = _merged(kernel, merged)
    names = plan.names()
    made = [_renamed_step(step, names) for step in made]
    results = tuple(
        replace(each, view=_renamed(each.view, names)) if isinstance(each, FromBuffer) else each
        for each in lowered.results
    )
    stay = {name: buffer for name, buffer in buffers.items() if name not in names}
    return replace(lowered, results=results), kernels, made, stay


@record(frozen=False)
class _Plan:
    """Who needs which buffer from when to when, while pairs of them become one."""

    lowered: Lowered
    steps: Sequence[Step]
    buffers: Mapping[str, Buffer]
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    #: Buffers that are another one by now.
    taken: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.made: dict[str, Extern] = {}
        for number, step in enumerate(self.steps):
            for name in step_buffers(step):
                self.first.setdefault(name, number)
                self.last[name] = number
            if isinstance(step, Extern):
                self.made.update((name, step) for name in step.outputs if name is not None)
        self.returned = {each.view.buffer for each in self.lowered.results if isinstance(each, FromBuffer)}
        self.fixed = {*self.lowered.inputs, *self.lowered.constants, *(name for name, _ in self.lowered.found.values())}

    def allows(self, number: int, read: str, written: str) -> bool:
        """Whether step `number` is the last to need `read` and the first to have `written`, and they are alike."""
        one, other = self.buffers[read], self.buffers[written]
        if read in self.fixed or written in self.fixed or read in self.returned or one.device or other.device:
            return False
        if self.last[read] != number or self.first[written] != number or read in self.taken:
            return False
        maker = self.made.get(read)
        if maker is not None and maker.out_variant is None and maker.op not in FRESH:
            return False
        return one.dtype == other.dtype and storage_numel(one) == storage_numel(other)

    def join(self, read: str, written: str) -> None:
        """They are one from here on: by the name of the later one, whose layout a caller may see, unless an ATen call
        makes the earlier one in another layout."""
        read, written = self.name(read), self.name(written)  # other launches of a kernel may have joined them to others
        one, other = self.buffers[read], self.buffers[written]
        first, last = self.first[read], self.last[written]
        same = one.shape == other.shape and one.strides == other.strides
        gone, stays = (read, written) if same or read not in self.made else (written, read)
        self.taken[gone] = stays
        self.first[stays], self.last[stays] = first, last
        if gone in self.made:
            self.made[stays] = self.made[gone]
        if gone in self.returned:
            self.returned.add(stays)

    def name(self, name: str) -> str:
        while name in self.taken:
            name = self.taken[name]
        return name

    def names(self) -> dict[str, str]:
        """What each buffer that is gone is called."""
        return {name: self.name(name) for name in self.taken}


def _write_in_place(call: Extern, number: int, plan: _Plan) -> None:
    """The program's own Triton kernels write where they are given memory that nobody needs again as it was."""
    _, written, read, _, _ = call.args
    for value, output in zip(written, call.outputs, strict=True):
        if value is None or output is None:
            continue
        given = plan.name(value.buffer)
        one, other = plan.buffers[value.buffer], plan.buffers[output]
        whole = (value.dtype, value.shape, value.strides, value.offset) == (one.dtype, one.shape, one.strides, 0)
        alike = whole and (one.shape, one.strides) == (other.shape, other.strides)
        counts = {_count_in_a_row(each) for each in (value, one, other)}
        alike = alike or (len(counts) == 1 and None not in counts and value.dtype == one.dtype and value.offset == 0)
        names = [plan.name(each.buffer) for each in (*written, *read) if each is not None]
        if alike and names.count(given) == 1 and plan.allows(number, given, output):
            plan.join(given, output)


def _count_in_a_row(each: TensorRef | Buffer) -> Size | None:
    """The number of elements of what is contiguous; None for others."""
    count: Size = 1
    for extent, stride in zip(reversed(each.shape), reversed(each.strides)):
        if stride != count:
            return None
        count = mul(count, extent)
    return count


#: What ATen calls that launch kernels of the program's own are known by.
LAUNCHED = "lampwork::launch.out"


def _pairs(kernel: Kernel, plan: _Plan, numbers: Sequence[int]) -> dict[str, str]:
    """Parameters of the kernel that become one with others in all of its launches: written by read."""
    rows = [
        (number, dict(zip([each.name for each in kernel.parameters], map(plan.name, names))))
        for number in numbers
        for names, _ in launch_instances(plan.steps[number], kernel)  # type: ignore[arg-type]
    ]
    found: dict[str, str] = {}
    accesses: dict[str, _Accesses] | None = None
    for written in kernel.parameters:
        if written.access != "write" or sum(_bytes(plan.buffers[row[written.name]]) for _, row in rows) < FEWEST_BYTES:
            continue
        for read in kernel.parameters:
            if read.access != "read" or read.dtype != written.dtype or read.name in found.values():
                continue
            if not all(plan.allows(number, row[read.name], row[written.name]) for number, row in rows):
                continue
            if not _alone(kernel, plan, numbers, read):
                continue
            accesses = _accesses(kernel) if accesses is None else accesses
            if read.numel == written.numel and _same_places(accesses[read.name], accesses[written.name]):
                found[written.name] = read.name
                for _, row in rows:
                    plan.join(row[read.name], row[written.name])
                break
    return found


def _alone(kernel: Kernel, plan: _Plan, numbers: Sequence[int], parameter: Parameter) -> bool:
    """Whether no other row of a launch touches what this parameter is in one."""
    place = [each.name for each in kernel.parameters].index(parameter.name)
    for number in numbers:
        step = plan.steps[number]
        assert isinstance(step, Launch)
        counts = Counter(map(plan.name, step.buffers))
        if any(counts[plan.name(names[place])] > 1 for names, _ in launch_instances(step, kernel)):
            return False
    return True


def _bytes(buffer: Buffer) -> int:
    return estimate(storage_numel(buffer)) * ITEM_SIZE_BYTES[buffer.dtype]


# -- Kernels ----------------------------------------------------------------------------------------------------------


@record(frozen=False)
class _Accesses:
    """Where a parameter is loaded and stored: (body, statement in it, index or None for one that is gathered)."""

    loads: list[tuple[tuple[int, ...], int, Size | None]] = field(default_factory=list)
    stores: list[tuple[tuple[int, ...], int, Size | None, tuple[Loop, ...]]] = field(default_factory=list)


def _accesses(kernel: Kernel) -> dict[str, _Accesses]:
    found = {parameter.name: _Accesses() for parameter in kernel.parameters}

    def expression(values: Sequence[Expr], path: tuple[int, ...], place: int) -> None:
        for node in nodes(values):
            if type(node) is Load and node.buffer in found:
                index = node.index[0] if not node.indirect else None
                found[node.buffer].loads.append((path, place, index))

    def body(statements: tuple[Stmt, ...], path: tuple[int, ...], loops: tuple[Loop, ...], sure: bool) -> None:
        for place, stmt in enumerate(statements):
            if isinstance(stmt, Loop):
                body(stmt.body, (*path, place), (*loops, stmt), sure)
            elif isinstance(stmt, If):
                expression([stmt.condition], path, place)
                body(stmt.body, (*path, place), loops, False)
            elif isinstance(stmt, Store):
                expression([stmt.value, *(value for _, value in stmt.indirect)], path, place)
                if stmt.buffer in found:
                    plain = sure and stmt.mode == "write" and not stmt.indirect
                    found[stmt.buffer].stores.append((path, place, stmt.index[0] if plain else None, loops))
            elif isinstance(stmt, (Let, Accumulate)):
                expression([stmt.value], path, place)

    body(kernel.body, (), (), True)
    return found


def _same_places(read: _Accesses, written: _Accesses) -> bool:
    """Whether each iteration stores to the one place that it alone has loaded from, and loads no more after that."""
    if len(written.stores) != 1:
        return False
    path, place, index, loops = written.stores[0]
    if index is None or not _one_to_one(index, loops):
        return False
    return all(each[0] == path and each[1] <= place and each[2] == index for each in read.loads)


def _one_to_one(index: Size, loops: Sequence[Loop]) -> bool:
    """Whether different iterations of the loops have different indices: a number in mixed radix."""
    _, terms = linear_terms(index)
    extents = {loop.axis.name: loop.axis.extent for loop in loops}
    if not all(isinstance(term, Symbol) for _, term in terms):
        return False
    factors = {term.name: factor for factor, term in terms if isinstance(term, Symbol)}
    if any(name not in extents for name in factors):
        return False
    extents = {name: extent for name, extent in extents.items() if extent != 1}
    if any(name not in factors for name in extents):
        return False
    reached = 0  # by the digits so far
    for factor, name in sorted((abs(factors[name]), name) for name in extents):
        if factor <= reached:
            return False
        reached += factor * (bounds(extents[name])[1] - 1)
    return True


def _merged(kernel: Kernel, merged: Mapping[str, str]) -> Kernel:
    """The kernel with each parameter `merged` names being the one that it is mapped to, under a name of its own."""
    kept = [each for each in kernel.parameters if each.name not in merged]
    names = {each.name: f"b{place}" for place, each in enumerate(kept)}
    names |= {written: names[read] for written, read in merged.items()}
    both = set(merged.values())
    parameters = tuple(
        Parameter(names[each.name], each.dtype, "readwrite" if each.name in both else each.access, each.numel)
        if each.name in both
        else replace(each, name=names[each.name])
        for each in kept
    )
    memo: dict[int, Expr] = {}

    def expression(expr: Expr) -> Expr:
        found = memo.get(id(expr))
        if found is None:
            if type(expr) is Compute:
                found = replace(expr, args=tuple([expression(arg) for arg in expr.args]))
            elif type(expr) is Load:
                mask = None if expr.mask is None else expression(expr.mask)
                indirect = tuple([(name, expression(value)) for name, value in expr.indirect])
                found = replace(expr, buffer=names.get(expr.buffer, expr.buffer), indirect=indirect, mask=mask)
            else:
                found = expr
            memo[id(expr)] = found
        return found

    def statement(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Loop):
            return replace(stmt, body=tuple(map(statement, stmt.body)))
        if isinstance(stmt, If):
            return replace(stmt, condition=expression(stmt.condition), body=tuple(map(statement, stmt.body)))
        if isinstance(stmt, Store):
            indirect = tuple([(name, expression(value)) for name, value in stmt.indirect])
            buffer = names.get(stmt.buffer, stmt.buffer)
            return replace(stmt, buffer=buffer, value=expression(stmt.value), indirect=indirect)
        return replace(stmt, value=expression(stmt.value)) if isinstance(stmt, (Let, Accumulate)) else stmt

    return with_name(replace(kernel, parameters=parameters, body=tuple(map(statement, kernel.body))))


# -- Steps ------------------------------------------------------------------------------------------------------------


def _renamed(ref: TensorRef, names: Mapping[str, str]) -> TensorRef:
    return replace(ref, buffer=names[ref.buffer]) if ref.buffer in names else ref


def _renamed_step(step: Step, names: Mapping[str, str]) -> Step:
    if names.keys().isdisjoint(step_buffers(step)):
        return step
    if isinstance(step, Launch):
        return replace(step, buffers=tuple([names.get(name, name) for name in step.buffers]))
    if not isinstance(step, Extern):
        return replace(step, buffer=names.get(step.buffer, step.buffer))

    def tree(value: object) -> Any:
        if isinstance(value, TensorRef):
            return _renamed(value, names)
        return type(value)(map(tree, value)) if isinstance(value, (tuple, list)) else value

    return replace(
        step,
        args=tree(step.args),
        kwargs=tuple((key, tree(value)) for key, value in step.kwargs),
        outputs=tuple(name if name is None else names.get(name, name) for name in step.outputs),
        mutates=tuple(names.get(name, name) for name in step.mutates),
    )
