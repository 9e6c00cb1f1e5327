"""Checks kernels and programs. Run between stages under LAMPWORK_VERIFY=1; raises `VerifyError` naming the invariant
broken.

Kernel:
 1. Parameters are b0, b1, ... in order, each of a native type; sizes are s0, s1, ...
 2. A name is defined once on every path to its use: Lets, accumulators and scratch in the enclosing bodies, before it.
 3. Indices have one entry. Their symbols are loops around them, sizes of the kernel, or bound by `indirect`.
 4. Loads and stores name a parameter or a visible scratch buffer; their type is its type. A `read` parameter is never
    stored, a `write` parameter never loaded, mode `add` needs `readwrite`.
 5. Operations are in SCALARS with the right number of operands; operand and result types fit the operation.
 6. Parallel loops are outermost and nest in each other directly; nothing else stands beside an inner parallel loop.
 7. A vector loop holds no parallel and no vector loop, nor does an unroll loop; unroll loops have a constant extent.
 8. An accumulator is folded only inside the body that declares it, with a value of its type; `position` is there for
    those of POSITIONS, may be for those of FIRSTS, and is for no others.
 9. Accumulators declared outside a parallel loop are not folded inside it.
10. Offsets stay inside the parameter: 0 <= offset < numel, for all sizes that pass the guards, all points of the loops,
    and all that masks and clamped indices leave. What is neither proved nor looked at point by point is refused
    (`OffsetError`): with numbers for sizes it is compiled again.

11. A kernel that is `horizontal` is one parallel loop.

Program:
11. Launches name a kernel and as many buffers and sizes as it has, for each row if it is `horizontal`; types agree, and
    buffers are as large as the kernel takes them to be, for all sizes that pass the guards.
12. Parameters of one run are distinct buffers whose workspace ranges do not overlap, nor share a slot of the arena.
    What one row writes no other row of the launch touches.
13. Every buffer of a step or result has a placement; workspace ranges are 64-byte aligned and inside the workspace;
    slots of the arena are never smaller than what they hold.
14. A workspace, result or extern buffer is written before it is read.
15. No two buffers overlap in the workspace, or share a slot of the arena, while both are live (from first write to last
    use).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lampwork.errors import OffsetError
from lampwork.ir.dtype import FLOATING, INTEGRAL, ITEM_SIZE_BYTES, NATIVE, STORED
from lampwork.ir.loops import (
    FIRSTS,
    POSITIONS,
    REDUCTIONS,
    Accumulate,
    Accumulator,
    Compute,
    Constant,
    Expr,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Parameter,
    Scratch,
    Stmt,
    Store,
    storage_numel,
)
from lampwork.ir.offsets import TALLY, Access, computed_index, facts_of, numbers_of, parts_of, renamed
from lampwork.ir.order import read_before_written, step_accesses
from lampwork.ir.program import FromBuffer, Launch, Program, launch_instances, step_buffers
from lampwork.ir.prove import Prover
from lampwork.ir.scalar_operators import SCALARS
from lampwork.ir.size import Size, SizeExpr, Symbol, add, bounds, common_factor, divided, mul, substitute, symbols
from lampwork.ir.verify import VerifyError


def verify_kernel(kernel: Kernel) -> list[Access]:
    """Raises `VerifyError` unless invariants 1 to 9 hold. Returns the loads and stores of which invariant 10 takes more
    to prove than the kernel says: what guards say of its sizes."""
    check = _KernelCheck(kernel)
    check.run()
    if not kernel.sizes:
        for access in check.unproved:
            _settle(kernel, access, ())
    return check.unproved


class _KernelCheck:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.parameters: dict[str, Parameter] = {p.name: p for p in kernel.parameters}
        self.values: dict[str, Expr] = {}
        self.conditions: list[Expr] = []
        self.unproved: list[Access] = []
        self.seen_accesses: set[tuple] = set()

    def fail(self, rule: int, message: str) -> None:
        raise VerifyError(f"kernel {self.kernel.name}: invariant {rule}: {message}")

    def need(self, condition: bool, rule: int, message: str) -> None:
        if not condition:
            self.fail(rule, message)

    def run(self) -> None:
        kernel = self.kernel
        names = [p.name for p in kernel.parameters]
        self.need(names == [f"b{k}" for k in range(len(names))], 1, f"parameters {names}")
        self.need(list(kernel.sizes) == [f"s{k}" for k in range(len(kernel.sizes))], 1, f"sizes {kernel.sizes}")
        for parameter in kernel.parameters:
            self.need(parameter.dtype in STORED, 1, f"{parameter.name} has type {parameter.dtype}")
            self.size(parameter.numel, frozenset(kernel.sizes))
        if kernel.horizontal:
            loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop) and stmt.kind == "parallel"]
            self.need(
                len(loops) == len(kernel.body) == 1, 11, "a horizontal kernel of something else than one parallel loop"
            )
        self.body(kernel.body, {}, frozenset(kernel.sizes), (), {}, top=True)

    def body(
        self,
        body: tuple[Stmt, ...],
        outer: dict[str, object],
        scope: frozenset[str],
        kinds: tuple[str, ...],
        extents: dict[str, Size],
        top: bool,
    ) -> None:
        """`outer`: visible names; `scope`: symbols; `kinds`: of the loops around."""
        seen = dict(outer)
        for stmt in body:
            if isinstance(stmt, Loop):
                self.loop(stmt, body, seen, scope, kinds, extents, top)
            elif isinstance(stmt, Let):
                self.need(stmt.name not in seen, 2, f"{stmt.name} is defined twice")
                self.expr(stmt.value, seen, scope, extents)
                seen[stmt.name] = stmt.value.dtype
                self.values[stmt.name] = stmt.value
            elif isinstance(stmt, Accumulator):
                restarts = isinstance(seen.get(stmt.name), Accumulator)
                self.need(stmt.name not in seen or restarts, 2, f"{stmt.name} is defined twice")
                self.need(stmt.op in REDUCTIONS, 5, f"reduction {stmt.op}")
                seen[stmt.name] = stmt
                self.parallel_depth = getattr(self, "parallel_depth", {})
                self.parallel_depth[stmt.name] = kinds.count("parallel")
            elif isinstance(stmt, Accumulate):
                self.accumulate(stmt, seen, scope, kinds, extents)
            elif isinstance(stmt, Scratch):
                self.need(stmt.name not in seen, 2, f"{stmt.name} is defined twice")
                self.need(isinstance(stmt.numel, int) and stmt.numel > 0, 3, f"scratch {stmt.name} of {stmt.numel}")
                seen[stmt.name] = Parameter(stmt.name, stmt.dtype, "readwrite", stmt.numel)
            elif isinstance(stmt, Store):
                self.store(stmt, seen, scope, extents)
            elif isinstance(stmt, If):
                self.need(self.expr(stmt.condition, seen, scope, extents) == "bool", 5, "condition is not bool")
                self.conditions.append(stmt.condition)
                self.body(stmt.body, seen, scope, kinds, extents, False)
                self.conditions.pop()
            else:
                self.fail(5, f"not a statement: {stmt!r}")

    def loop(self, stmt: Loop, body, seen, scope, kinds, extents, top: bool) -> None:
        name = stmt.axis.name
        self.size(stmt.axis.extent, scope)
        self.need(name not in scope, 2, f"loop {name} inside a loop or size of that name")
        if stmt.kind == "parallel":
            self.need(all(kind == "parallel" for kind in kinds), 6, f"parallel {name} inside a {kinds[-1:]} loop")
            self.need(not kinds or len(body) == 1, 6, f"parallel {name} has company")
            self.need(stmt.grain >= 1, 6, f"grain {stmt.grain}")
        if stmt.kind in ("parallel", "vector"):
            self.need(not {"vector", "unroll"} & set(kinds), 7, f"{stmt.kind} {name} inside {kinds}")
        if stmt.kind == "unroll":
            self.need(isinstance(stmt.axis.extent, int), 7, f"unroll {name} in {stmt.axis.extent}")
        inner = {**extents, name: stmt.axis.extent}
        self.body(stmt.body, seen, scope | {name}, (*kinds, stmt.kind), inner, False)

    def accumulate(self, stmt: Accumulate, seen, scope, kinds, extents) -> None:
        accumulator = seen.get(stmt.name)
        self.need(isinstance(accumulator, Accumulator), 8, f"{stmt.name} is not an accumulator here")
        dtype = self.expr(stmt.value, seen, scope, extents)
        self.need(dtype == accumulator.dtype, 8, f"{stmt.name} is {accumulator.dtype}, the value {dtype}")
        if stmt.position is None:
            self.need(accumulator.op not in POSITIONS, 8, f"no position of {stmt.name}")
        else:
            self.need(accumulator.op in POSITIONS | FIRSTS.keys(), 8, f"position of {stmt.name}")
            self.size(stmt.position, scope)
        self.need(self.parallel_depth[stmt.name] == kinds.count("parallel"), 9, stmt.name)

    def store(self, stmt: Store, seen, scope, extents) -> None:
        buffer = self.buffer(stmt.buffer, seen)
        allowed = ("readwrite",) if stmt.mode == "add" else ("write", "readwrite")
        self.need(buffer.access in allowed, 4, f"{stmt.mode} to {buffer.access} {stmt.buffer}")
        dtype = self.expr(stmt.value, seen, scope, extents)
        self.need(dtype == buffer.dtype, 4, f"{dtype} stored in {stmt.buffer}, which is {buffer.dtype}")
        self.index(stmt.index, stmt.indirect, buffer, seen, scope, extents, None)

    def buffer(self, name: str, seen) -> Parameter:
        found = seen.get(name) if name in seen else self.parameters.get(name)
        if isinstance(found, Parameter):
            return found
        raise VerifyError(f"kernel {self.kernel.name}: invariant 4: {name} is not a buffer here")

    def index(self, index, indirect, buffer: Parameter, seen, scope, extents, mask: Expr | None) -> None:
        self.need(len(index) == 1, 3, f"{buffer.name} has index {index}")
        bound = set(scope)
        for name, value in indirect:
            self.need(self.expr(value, seen, scope, extents) in INTEGRAL, 3, f"{name} is not an integer")
            bound.add(name)
        self.size(index[0], frozenset(bound))
        offset, facts, numbers = computed_index(index[0], indirect, self.values)
        exact = True
        for condition in (mask, *self.conditions):
            compared, limits = numbers_of(condition, self.values, numbers)
            numbers = [*numbers, *compared]
            more, all_said = facts_of(condition, self.values, numbers)
            facts += [*limits, *more]
            exact &= all_said and not compared
        ranges = {name: add(extent, -1) for name, extent in extents.items()}
        text = f"{buffer.name}[{index[0]}] of {buffer.numel}"
        access = Access(text, offset, buffer.numel, ranges, tuple(facts), exact)
        key = (buffer.name, offset, access.facts, tuple(ranges.items()))
        if key not in self.seen_accesses:
            self.seen_accesses.add(key)
            if access.proved():
                TALLY.proved += 1
            else:
                self.unproved.append(access)

    def size(self, value: Size, scope: frozenset[str]) -> None:
        free = symbols(value) - scope
        self.need(not free, 3, f"unknown symbols {sorted(free)} in {value}")

    def expr(self, expr: Expr, seen, scope, extents) -> str:
        """The type of `expr`."""
        if isinstance(expr, Constant):
            self.need(expr.dtype in NATIVE, 5, f"constant of {expr.dtype}")
            return expr.dtype
        if isinstance(expr, Index):
            self.size(expr.value, scope)
            return "int64"
        if isinstance(expr, Local):
            found = seen.get(expr.name)
            if isinstance(found, Accumulator):
                found = "int64" if found.op.startswith("arg") else found.dtype
            self.need(isinstance(found, str), 2, f"{expr.name} is not defined here")
            self.need(found == expr.dtype, 5, f"{expr.name} is {found}, used as {expr.dtype}")
            return expr.dtype
        if isinstance(expr, Load):
            buffer = self.buffer(expr.buffer, seen)
            self.need(buffer.access != "write", 4, f"load of write parameter {expr.buffer}")
            self.need(buffer.dtype == expr.dtype, 4, f"{expr.buffer} is {buffer.dtype}, loaded as {expr.dtype}")
            if expr.mask is not None:
                self.need(self.expr(expr.mask, seen, scope, extents) == "bool", 5, "mask is not bool")
            self.index(expr.index, expr.indirect, buffer, seen, scope, extents, expr.mask)
            return expr.dtype
        self.need(isinstance(expr, Compute), 5, f"not an expression: {expr!r}")
        return self.compute(expr, [self.expr(arg, seen, scope, extents) for arg in expr.args])

    def compute(self, expr: Compute, args: list[str]) -> str:
        op, dtype = expr.op, expr.dtype
        row = SCALARS.get(op)
        self.need(row is not None and row.arity == len(args), 5, f"{op} of {len(args)} operands")
        assert row is not None
        shown = f"{op}({', '.join(args)}) -> {dtype}"
        if op == "where":
            self.need(args[0] == "bool" and args[1] == args[2] == dtype, 5, shown)
        elif op in ("asserted", "promised"):
            self.need(args == [dtype, "bool"], 5, shown)
        elif op == "random":
            self.need(args == ["int64", "int64"] and dtype == "uint32", 5, shown)
        elif op == "cast":
            self.need(dtype in NATIVE, 5, shown)
        elif op == "bitcast":
            self.need(ITEM_SIZE_BYTES[args[0]] == ITEM_SIZE_BYTES[dtype], 5, shown)
        elif row.gives_bool:
            self.need(dtype == "bool" and len(set(args)) == 1, 5, shown)
        else:
            self.need(set(args) == {dtype}, 5, shown)
            self.need(row.domain != "float" or dtype in FLOATING, 5, shown)
            self.need(row.domain != "integer" or dtype in INTEGRAL, 5, shown)
        return dtype


# -- Programs ---------------------------------------------------------------------------------------------------------


def verify_program(program: Program, facts: Sequence[Size] = ()) -> None:
    """Raises `VerifyError` unless every kernel is valid and invariants 11 to 15 hold.

    `facts`: expressions of the program's sizes that are not negative in any call that passes the guards.
    """
    unproved = [verify_kernel(kernel) for kernel in program.kernels]
    for step in program.steps:
        if isinstance(step, Launch) and step.sizes:
            _verify_offsets(program.kernels[step.kernel], unproved[step.kernel], step, facts)
    ranges, known = _workspace_ranges(program), _symbols_of(program)
    live: dict[str, list[int]] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, Launch):
            _verify_launch(program, number, step, ranges)
            _verify_sizes(program, number, step, facts, known)
        reads, writes = step_accesses(program, step)
        for name in (*reads, *writes):
            live.setdefault(name, [number, number])[1] = number
    wrong = read_before_written(program)
    if wrong:
        raise VerifyError(wrong)
    for result in program.results:
        if isinstance(result, FromBuffer):
            name = result.view.buffer
            if program.placements[name].kind in ("workspace", "arena"):
                raise VerifyError(f"invariant 13: result {name} lies in the workspace")
    names = [name for name in live if name in ranges]
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            together = live[one][0] <= live[other][1] and live[other][0] <= live[one][1]
            if together and _overlap(ranges[one], ranges[other]):
                raise VerifyError(f"invariant 15: {one} and {other} overlap in the workspace")
    _verify_arena(program, live)


def prove_program(program: Program, facts: Sequence[Size] = (), numbers: bool = False) -> None:
    """Raises an error where invariant 10 is not proved of a kernel that takes sizes (`numbers`: of any kernel), or that
    its buffers are as large as it takes them to be. `facts`: as for `verify_program`."""
    unproved: dict[int, list[Access]] = {}
    known = _symbols_of(program)
    for number, step in enumerate(program.steps):
        if isinstance(step, Launch) and (step.sizes or numbers):
            kernel = program.kernels[step.kernel]
            if step.kernel not in unproved:
                check = _KernelCheck(kernel)
                check.run()
                unproved[step.kernel] = check.unproved
            _verify_offsets(kernel, unproved[step.kernel], step, facts)
            _verify_sizes(program, number, step, facts, known)


def _verify_offsets(kernel: Kernel, unproved: list[Access], step: Launch, facts: Sequence[Size]) -> None:
    """Raises an error where invariant 10 does not follow from what guards say of this launch's sizes."""
    if not unproved:
        return
    names: dict[str, Symbol] = {}
    given: dict[str, Symbol] = {}
    for own, value in zip(kernel.sizes, step.sizes):
        found = next((s for a in unproved for s in a.symbols() if s.name == own), Symbol(own, 0))
        if isinstance(value, Symbol):
            names.setdefault(value.name, found)
        given[own] = found
    known = renamed(facts, names)
    numbers = {
        own: value for own, value in zip(kernel.sizes, step.sizes) if isinstance(value, int) and not kernel.horizontal
    }
    for own, value in zip(kernel.sizes, step.sizes):
        if isinstance(value, SizeExpr):  # what the kernel's size is in sizes of the program
            (same,) = renamed([value], names)
            more = add(given[own], mul(same, -1))
            known += [each for each in (more, mul(more, -1)) if not isinstance(each, int)]
    for access in unproved:
        _settle(kernel, access.at(numbers) if numbers else access, known)


def _symbols_of(program: Program) -> dict[str, Symbol]:
    """Each symbol of the program's sizes, with bounds, by name."""
    sizes = [size for buffer in program.buffers.values() for size in (*buffer.shape, *buffer.strides)]
    return {each.name: each for size in dict.fromkeys(sizes) for each in parts_of(size)}


def _verify_sizes(
    program: Program, number: int, step: Launch, facts: Sequence[Size], known: Mapping[str, Symbol]
) -> None:
    """Raises an error where nothing proves that a kernel's buffers are as large as it takes them to be."""
    kernel = program.kernels[step.kernel]
    for buffers, sizes in launch_instances(step, kernel):
        values = dict(zip(kernel.sizes, sizes))
        for parameter, name in zip(kernel.parameters, buffers):
            expected = substitute(substitute(parameter.numel, values), known)
            spare = add(substitute(storage_numel(program.buffers[name]), known), mul(expected, -1))
            if bounds(spare)[0] < 0 and not Prover([substitute(fact, known) for fact in facts]).holds(spare):
                raise OffsetError(f"step {number}: invariant 11: nothing proves that {name} has {expected} elements")


def _settle(kernel: Kernel, access: Access, facts: Sequence[Size]) -> None:
    """Counts an access that the kernel alone does not prove. Raises `VerifyError` where it is outside of its buffer at
    some point, `OffsetError` where nobody can say."""
    if access.proved(facts):
        TALLY.proved += 1
        return
    point = access.counterexample(facts) if access.exact else None
    if point is not None:
        raise VerifyError(f"kernel {kernel.name}: invariant 10: {access.text} is outside at {point}")
    if access.enumerated():
        TALLY.enumerated += 1
        return
    TALLY.refused(kernel.name, access, facts)
    raise OffsetError(f"kernel {kernel.name}: invariant 10: nothing proves that {access.text} is inside of its buffer")


def _verify_arena(program: Program, live: dict[str, list[int]]) -> None:
    """Buffers of one slot are never alive together, and are never larger than it."""
    users: dict[int, list[str]] = {}
    for name, place in program.placements.items():
        if place.kind == "arena":
            users.setdefault(place.index, []).append(name)
    for slot, names in users.items():
        used = sorted((live[name], name) for name in names if name in live)
        for (one, first), (other, second) in zip(used, used[1:]):
            if other[0] <= one[1]:
                raise VerifyError(f"invariant 15: {first} and {second} overlap in slot {slot} of the arena")
        for name in names:
            needed = mul(storage_numel(program.buffers[name]), ITEM_SIZE_BYTES[program.buffers[name].dtype])
            spare = add(program.arena[slot], mul(needed, -1))
            if bounds(divided(spare, common_factor(spare)))[0] < 0:
                raise VerifyError(f"invariant 13: {name} may be larger than slot {slot} of the arena")


def _verify_launch(program: Program, number: int, step: Launch, ranges: dict[str, tuple[int, int]]) -> None:
    where = f"step {number}"
    if not 0 <= step.kernel < len(program.kernels):
        raise VerifyError(f"{where}: invariant 11: no kernel {step.kernel}")
    kernel = program.kernels[step.kernel]
    rows = launch_instances(step, kernel)
    count = len(rows)
    if len(step.buffers) != count * len(kernel.parameters) or len(step.sizes) != count * len(kernel.sizes):
        raise VerifyError(f"{where}: invariant 11: {kernel.name} has other numbers of buffers or sizes")
    touched: dict[str, int] = {}
    written: set[str] = set()
    for row, (buffers, sizes) in enumerate(rows):
        if kernel.horizontal and not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise VerifyError(f"{where}: invariant 11: row {row} has sizes {sizes}")
        values = dict(zip(kernel.sizes, sizes)) if kernel.horizontal else {}
        for parameter, name in zip(kernel.parameters, buffers):
            if program.buffers[name].dtype != parameter.dtype:
                raise VerifyError(f"{where}: invariant 11: {name} is not {parameter.dtype}")
            numel = storage_numel(program.buffers[name])
            expected = substitute(parameter.numel, values)
            if isinstance(expected, int) and expected != numel:
                raise VerifyError(f"{where}: invariant 11: {name} has {numel} elements, {parameter.name} {expected}")
            if touched.setdefault(name, row) != row and (parameter.access != "read" or name in written):
                raise VerifyError(f"{where}: invariant 12: {name} is written by a row and touched by another")
            if parameter.access != "read":
                written.add(name)
        if len(set(buffers)) != len(buffers):
            raise VerifyError(f"{where}: invariant 12: a buffer is passed twice")
    names = tuple(dict.fromkeys(step_buffers(step)))
    places = [program.placements[name] for name in names if name in program.placements]
    slots = [place.index for place in places if place.kind == "arena"]
    if len(set(slots)) != len(slots):
        raise VerifyError(f"{where}: invariant 12: two buffers in one slot of the arena")
    placed = [name for name in names if name in ranges]
    for place, one in enumerate(placed):
        for other in placed[place + 1 :]:
            if _overlap(ranges[one], ranges[other]):
                raise VerifyError(f"{where}: invariant 12: {one} and {other} overlap")


def _workspace_ranges(program: Program) -> dict[str, tuple[int, int]]:
    ranges = {}
    for name, place in program.placements.items():
        if place.kind != "workspace":
            continue
        buffer = program.buffers[name]
        numel = storage_numel(buffer)
        if not isinstance(numel, int):
            raise VerifyError(f"invariant 13: {name} of dynamic size lies in the workspace")
        start = place.offset_bytes
        end = start + numel * ITEM_SIZE_BYTES[buffer.dtype]
        if start % 64 or start < 0 or end > program.workspace_bytes:
            raise VerifyError(f"invariant 13: {name} at [{start}, {end}) of {program.workspace_bytes}")
        ranges[name] = (start, end)
    return ranges


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
