"""One LLVM module for a program: a function per kernel and parallel loop, one entry per launch sequence.

Shapes of what is written:

    run_0(externals, buffers, sizes, threads)    the image's entry: runs kernels in order
    call_0(self, args, count)                    the entry as a CPython function of three integers
    kernel_3(context, begin, end)                a kernel that is one parallel loop: the iterations [begin, end)
    kernel_4(externals, b0, ..., sizes..., threads)    any other kernel
    kernel_4_loop_0(context, begin, end)         a parallel loop in it
    launch(context, threads, shares)             runs a loop function directly, or on threads through OpenMP
    worker(context)                              what each OpenMP thread runs: its share of the iterations

A kernel that is `horizontal` has two more:

    rows_3(context, begin, end)                  the iterations [begin, end) of all rows, one after the other

with a context of its own: buffers and a table in the place of what the loop uses. The table has a record for each row:
its iterations, the places of its buffers' pointers, its sizes.

A context is an array of 64-bit slots: function, number of iterations, externals, then what the loop uses: pointers,
sizes and other values from the scopes around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lampwork.codegen.llvm import reduction, tiles
from lampwork.codegen.llvm.builder import Builder, Value
from lampwork.codegen.llvm.external import Externals
from lampwork.codegen.llvm.kernel import FunctionEmitter, Memory
from lampwork.codegen.llvm.lanes import expressions, statements
from lampwork.codegen.llvm.sizes import SizeEmitter
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Accumulate, Index, Kernel, Load, Local, Loop, Parameter, Store
from lampwork.ir.program import Launch, Program, launch_instances
from lampwork.ir.record import record
from lampwork.ir.size import Size, evaluate, product, symbols
from lampwork.ir.target import Target

ENTRY_SIGNATURE = "ptr %externals, ptr %buffers, ptr %sizes, i64 %threads"

#: Slots of a context that every loop has.
_FUNCTION, _TOTAL, _EXTERNALS, _FIRST = 0, 1, 2, 3

_LAUNCH = """define internal void @launch(ptr %context, i64 %threads, i64 %shares) #1 {
entry:
  %fewer = icmp slt i64 %threads, %shares
  %count = select i1 %fewer, i64 %threads, i64 %shares
  %several = icmp sgt i64 %count, 1
  br i1 %several, label %parallel, label %alone
parallel:
  %table_slot = getelementptr i64, ptr %context, i64 2
  %table = load ptr, ptr %table_slot
  %start_slot = getelementptr ptr, ptr %table, i64 {start}
  %start = load ptr, ptr %start_slot
  %narrow = trunc i64 %count to i32
  call void %start(ptr @worker, ptr %context, i32 %narrow, i32 0)
  ret void
alone:
  %function = load ptr, ptr %context
  %total_slot = getelementptr i64, ptr %context, i64 1
  %total = load i64, ptr %total_slot
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %work, label %done
work:
  call void %function(ptr %context, i64 0, i64 %total)
  br label %done
done:
  ret void
}
define internal void @worker(ptr %context) #1 {
entry:
  %function = load ptr, ptr %context
  %total_slot = getelementptr i64, ptr %context, i64 1
  %total = load i64, ptr %total_slot
  %table_slot = getelementptr i64, ptr %context, i64 2
  %table = load ptr, ptr %table_slot
  %number_slot = getelementptr ptr, ptr %table, i64 {number}
  %number = load ptr, ptr %number_slot
  %count_slot = getelementptr ptr, ptr %table, i64 {count}
  %count = load ptr, ptr %count_slot
  %me32 = call i32 %number()
  %of32 = call i32 %count()
  %me = zext i32 %me32 to i64
  %of = zext i32 %of32 to i64
  %first = mul i64 %total, %me
  %following = add i64 %first, %total
  %begin = udiv i64 %first, %of
  %end = udiv i64 %following, %of
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %work, label %done
work:
  call void %function(ptr %context, i64 %begin, i64 %end)
  br label %done
done:
  ret void
}"""


_CALL = """define ptr @call_{name}(ptr %self, ptr %args, i64 %count) #1 {
entry:
  %externals = getelementptr i8, ptr %self, i64 {contents}
  %convert_slot = getelementptr ptr, ptr %externals, i64 {convert}
  %convert = load ptr, ptr %convert_slot
  %arg0 = load ptr, ptr %args
  %slot1 = getelementptr ptr, ptr %args, i64 1
  %arg1 = load ptr, ptr %slot1
  %slot2 = getelementptr ptr, ptr %args, i64 2
  %arg2 = load ptr, ptr %slot2
  %buffers = call ptr %convert(ptr %arg0)
  %sizes = call ptr %convert(ptr %arg1)
  %pointer = call ptr %convert(ptr %arg2)
  %threads = ptrtoint ptr %pointer to i64
  %save_slot = getelementptr ptr, ptr %externals, i64 {save}
  %save = load ptr, ptr %save_slot
  %state = call ptr %save()
  call void @{name}(ptr %externals, ptr %buffers, ptr %sizes, i64 %threads)
  %restore_slot = getelementptr ptr, ptr %externals, i64 {restore}
  %restore = load ptr, ptr %restore_slot
  call void %restore(ptr %state)
  %none_slot = getelementptr ptr, ptr %externals, i64 {none}
  %none = load ptr, ptr %none_slot
  %own_slot = getelementptr ptr, ptr %externals, i64 {own}
  %own = load ptr, ptr %own_slot
  call void %own(ptr %none)
  ret ptr %none
}"""

#: The external functions of `_CALL`, by the name of their place in it. The interpreter lock is released meanwhile.
_PYTHON = (
    ("convert", "PyLong_AsVoidPtr"), ("save", "PyEval_SaveThread"), ("restore", "PyEval_RestoreThread"),
    ("none", "_Py_NoneStruct"), ("own", "Py_IncRef"),
)  # fmt: skip

#: Where the contents of a `bytes` object begin: the function's `self` is one, and its contents are the externals.
BYTES_CONTENTS = 32

#: The external functions of `_LAUNCH`, by the name of their place in it.
_OPENMP = (("start", "GOMP_parallel"), ("number", "omp_get_thread_num"), ("count", "omp_get_num_threads"))


@record
class _ParallelKernel:
    """A kernel that is one parallel loop: its iterations as an expression of its sizes, and the grain."""

    total: Size
    grain: int


_ROWS = """define internal void @{name}(ptr %context, i64 %begin, i64 %end) #1 {{
entry:
  %inner = alloca [{slots} x i64], align 16
  %externals_slot = getelementptr i64, ptr %context, i64 2
  %externals = load i64, ptr %externals_slot
  %inner_externals = getelementptr i64, ptr %inner, i64 2
  store i64 %externals, ptr %inner_externals
  %buffers_slot = getelementptr i64, ptr %context, i64 3
  %buffers = load ptr, ptr %buffers_slot
  %table_slot = getelementptr i64, ptr %context, i64 4
  %table = load ptr, ptr %table_slot
  br label %row
row:
  %record = phi ptr [ %table, %entry ], [ %next, %after ]
  %first = phi i64 [ 0, %entry ], [ %last, %after ]
  %iterations = load i64, ptr %record
  %last = add i64 %first, %iterations
  %some = icmp sgt i64 %last, %begin
  br i1 %some, label %work, label %after
work:
{fill}
  %early = icmp slt i64 %first, %begin
  %from = select i1 %early, i64 %begin, i64 %first
  %late = icmp sgt i64 %last, %end
  %to = select i1 %late, i64 %end, i64 %last
  %row_begin = sub i64 %from, %first
  %row_end = sub i64 %to, %first
  call void @{kernel}(ptr %inner, i64 %row_begin, i64 %row_end)
  br label %after
after:
  %next = getelementptr i64, ptr %record, i64 {width}
  %done = icmp sge i64 %last, %end
  br i1 %done, label %leave, label %row
leave:
  ret void
}}"""


class ModuleEmitter:
    """Collects the functions of one module. `text()` is the whole."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.vector_bytes = target.vector_bytes
        self.native_half = target.name != "sse4"
        self.scales = target.name == "avx512"
        self.declarations: dict[str, str] = {}
        self.externals = Externals(target.name)
        self.functions: list[str] = []
        self._direct: dict[str, _ParallelKernel] = {}
        self._kernel = ""
        self._loops = 0
        self._parameters: list[tuple[Parameter, bool]] = []

    # -- kernels ------------------------------------------------------------------------------------------------------

    def kernel(self, name: str, kernel: Kernel, distinct: Sequence[bool]) -> None:
        """Writes `kernel` as function `name`. `distinct[i]`: parameter i overlaps no other one that either writes."""
        self._kernel, self._loops = name, 0
        self._parameters = list(zip(kernel.parameters, distinct))
        if len(kernel.body) == 1 and isinstance(kernel.body[0], Loop) and kernel.body[0].kind == "parallel":
            loops = _nested(kernel.body[0])
            sizes = [("symbol", size, Value("", "i64")) for size in kernel.sizes]
            self._loop_function(name, None, loops, sizes)
            extents = [loop.axis.extent for loop in loops]
            self._direct[name] = _ParallelKernel(product(extents), _grain(loops))
            if kernel.horizontal:
                self.functions.append(_rows_function(name, len(kernel.parameters), len(kernel.sizes)))
            return
        emitter = FunctionEmitter(self, self._parallel)
        self._bind_parameters(emitter)
        for size in kernel.sizes:
            emitter.sizes.symbols[size] = Value(f"%s.{size}", "i64")
        emitter.body(kernel.body)
        pointers = [f"ptr %p.{p.name}" for p in kernel.parameters]
        sizes_text = [f"i64 %s.{size}" for size in kernel.sizes]
        signature = ", ".join(["ptr %externals", *pointers, *sizes_text, "i64 %threads"])
        self.functions.append(emitter.finish(f"internal void @{name}({signature})", "#0"))

    def _bind_parameters(self, emitter: FunctionEmitter) -> None:
        for parameter, alone in self._parameters:
            bytes = parameter.numel * ITEM_SIZE_BYTES[parameter.dtype] if isinstance(parameter.numel, int) else 0
            emitter.context.buffers[parameter.name] = Memory(
                Value(f"%p.{parameter.name}", "ptr"),
                parameter.dtype,
                parameter.aligned,
                frozen=alone and parameter.access == "read",
                stream=alone and parameter.access == "write" and bytes >= self.target.l3_bytes,
                far=parameter.access == "read" and bytes >= self.target.l3_bytes,
            )

    # -- parallel loops -----------------------------------------------------------------------------------------------

    def _parallel(self, outer: FunctionEmitter, loop: Loop) -> None:
        """Writes a loop inside a kernel as a function of its own, and in the kernel the launch of it."""
        loops = _nested(loop)
        name = f"{self._kernel}_loop_{self._loops}"
        self._loops += 1
        extents = [item.axis.extent for item in loops]
        captured = _captured(outer, loops[-1].body, extents)
        self._loop_function(name, outer, loops, captured)
        values = [Value(f"%p.{p.name}", "ptr") for p, _ in self._parameters] + [value for _, _, value in captured]
        build = outer.build
        context = build.allocate(f"[{_FIRST + len(values)} x i64]", 16)
        self._launch(build, outer.sizes, context, name, values, outer.sizes.scalar(product(extents)), _grain(loops))

    def _launch(
        self, build: Builder, sizes: SizeEmitter, context: str, name: str, values: list[Value], total: Value, grain: int
    ) -> None:
        """Fills a context and runs loop function `name` on it."""
        shares = total
        if grain > 1:
            rounded = sizes.total([total, build.integer(grain - 1)], 0)
            shares = sizes.divide(rounded, build.integer(grain), True, True)
        for slot, value in enumerate([Value(f"@{name}", "ptr"), total, Value("%externals", "ptr"), *values]):
            place = f"getelementptr i64, ptr {context}, i64 {slot}"
            build.effect(f"store {value}, {build.pure('ptr', 1, place) if slot else f'ptr {context}'}, align 8")
        build.effect(f"call void @launch(ptr {context}, i64 %threads, {shares})")

    def _loop_function(
        self, name: str, outer: FunctionEmitter | None, loops: list[Loop], captured: list[tuple[str, str, Value]]
    ) -> None:
        """The function that runs iterations [begin, end) of the flattened `loops`; begin < end.

        Its context holds the kernel's pointers and then `captured`, as (kind, name, value in the kernel).
        """
        emitter = FunctionEmitter(self, None)
        build, sizes = emitter.build, emitter.sizes

        def argument(slot: int, type: str, name: str = "") -> Value:
            place = build.pure("ptr", 1, f"getelementptr i64, ptr %context, i64 {slot}")
            result = Value(name or build.fresh(), type)
            build.effect(f"{result.text} = load {type}, {place}, align 8, !invariant.load !1")
            return result

        argument(_EXTERNALS, "ptr", "%externals")
        for slot, (parameter, _) in enumerate(self._parameters, start=_FIRST):
            argument(slot, "ptr", f"%p.{parameter.name}")
        self._bind_parameters(emitter)
        for slot, (kind, key, value) in enumerate(captured, start=_FIRST + len(self._parameters)):
            inner = argument(slot, value.type)
            if kind == "symbol":
                sizes.symbols[key] = inner
            elif kind == "scratch":
                assert outer is not None
                emitter.context.buffers[key] = emitter.memory(inner, outer.context.buffers[key].dtype)
            else:
                assert outer is not None
                dtype = outer.context.values[key][1] if kind == "value" else ""
                emitter.context.values[key] = (inner, dtype)
        body = loops[-1].body
        outside = tiles.serial_loop_to_run_outside(loops[0]) if len(loops) == 1 else None
        if outside is not None:
            extent = sizes.scalar(outside.axis.extent)
            sizes.symbols[outside.axis.name] = build.open_loop(runs=extent.is_constant and int(extent.text) > 0)
            body = outside.body
        counter = build.open_loop(runs=True)
        left = counter
        loops = tiles.walk_along_loads(loops)
        for i, item in enumerate(loops):
            step = sizes.scalar(product(loop.axis.extent for loop in loops[i + 1 :]))
            sizes.symbols[item.axis.name] = sizes.divide(left, step, True, True)
            if i + 1 < len(loops):
                left = sizes.divide(left, step, False, True)
        emitter.body(body)
        build.close_loop(counter, Value("%begin", "i64"), Value("%end", "i64"), 1)
        if outside is not None:
            build.close_loop(sizes.symbols[outside.axis.name], build.integer(0), extent, 1)
        self.functions.append(emitter.finish(f"internal void @{name}(ptr %context, i64 %begin, i64 %end)", "#0"))

    # -- entries ------------------------------------------------------------------------------------------------------

    def entry(self, name: str, launches: Sequence[tuple[str, Launch]], places: Mapping[str, int], sizes: Sequence[str],
              kernels: Sequence[Kernel]) -> None:  # fmt: skip
        """Writes the entry that runs `launches` (function name, launch). `places`: index of each buffer's pointer."""
        build = Builder(self.declarations)
        emitter = SizeEmitter(build)
        needed = {symbol for _, launch in launches for size in launch.sizes for symbol in symbols(size)}
        for i, symbol in enumerate(sizes):
            if symbol in needed:
                place = build.pure("ptr", 1, f"getelementptr i64, ptr %sizes, i64 {i}")
                emitter.symbols[symbol] = build.pure("i64", 1, f"load i64, {place}, align 8", place)
        used = [
            _FIRST + (2 if kernels[launch.kernel].horizontal else len(launch.buffers) + len(launch.sizes))
            for name, launch in launches
            if name in self._direct
        ]
        context = build.allocate(f"[{max(used)} x i64]", 16) if used else ""
        for number, (function, launch) in enumerate(launches):
            if kernels[launch.kernel].horizontal:
                self._launch_instances(
                    build, emitter, context, f"{name}_rows_{number}", function, launch, places, kernels
                )
                continue
            arguments = []
            for buffer in launch.buffers:
                place = build.pure("ptr", 1, f"getelementptr ptr, ptr %buffers, i64 {places[buffer]}")
                arguments.append(build.pure("ptr", 1, f"load ptr, {place}, align 8", place))
            arguments += [emitter.scalar(size) for size in launch.sizes]
            direct = self._direct.get(function)
            if direct is None:
                text = "".join(f"{argument}, " for argument in arguments)
                build.effect(f"call void @{function}(ptr %externals, {text}i64 %threads)")
                continue
            inner = SizeEmitter(build)
            inner.symbols = dict(zip(kernels[launch.kernel].sizes, arguments[len(launch.buffers) :]))
            self._launch(build, inner, context, function, arguments, inner.scalar(direct.total), direct.grain)
        self.functions.append(build.function(f"void @{name}({ENTRY_SIGNATURE})", "#1"))
        slots = {key: self.externals.slot(f"python:{symbol}") for key, symbol in _PYTHON}
        self.functions.append(_filled(_CALL, {"name": name, "contents": BYTES_CONTENTS, **slots}))

    def _launch_instances(self, build: Builder, sizes: SizeEmitter, context: str, table: str, function: str,
                          launch: Launch, places: Mapping[str, int], kernels: Sequence[Kernel]) -> None:  # fmt: skip
        """Runs all rows of a launch as one space of iterations, and writes the table that says what they are."""
        kernel, direct = kernels[launch.kernel], self._direct[function]
        words: list[int] = []
        total = 0
        for buffers, row_sizes in launch_instances(launch, kernel):
            numbers = [evaluate(size, {}) for size in row_sizes]
            iterations = evaluate(direct.total, dict(zip(kernel.sizes, numbers)))
            words += [iterations, *(places[buffer] for buffer in buffers), *numbers]
            total += iterations
        contents = ", ".join(f"i64 {word}" for word in words)
        self.functions.append(f"@{table} = private unnamed_addr constant [{len(words)} x i64] [{contents}], align 64")
        values = [Value("%buffers", "ptr"), Value(f"@{table}", "ptr")]
        self._launch(build, sizes, context, _rows_name(function), values, build.integer(total), direct.grain)

    def text(self) -> str:
        """The module as LLVM assembly."""
        tune = f' "tune-cpu"="{self.target.tune}"' if self.target.tune else ""
        width = self.vector_bytes * 8
        common = f'nounwind "no-builtins" "min-legal-vector-width"="{width}" "prefer-vector-width"="{width}"{tune}'
        launch = _filled(_LAUNCH, {key: self.externals.slot(f"gomp:{symbol}") for key, symbol in _OPENMP})
        return "\n".join([
            'target triple = "x86_64-unknown-linux-gnu"',
            *self.declarations.values(),
            *self.functions,
            launch,
            f"attributes #0 = {{ {common} }}",
            # Optimising what runs once a launch would take longer than generating a small kernel.
            f"attributes #1 = {{ {common} noinline optnone }}",
            "!0 = !{i32 1}",
            "!1 = !{}",
            "",
        ])  # fmt: skip


def _rows_name(kernel: str) -> str:
    return f"{kernel}_rows"


def _rows_function(kernel: str, pointers: int, sizes: int) -> str:
    """The function that runs a stretch of the iterations of all rows of a kernel."""
    lines = []
    for word in range(1, 1 + pointers + sizes):
        lines += [
            f"  %word{word}_slot = getelementptr i64, ptr %record, i64 {word}",
            f"  %word{word} = load i64, ptr %word{word}_slot",
        ]
        value = f"%word{word}"
        if word <= pointers:
            value = f"%pointer{word}"
            lines += [
                f"  {value}_slot = getelementptr i64, ptr %buffers, i64 %word{word}",
                f"  {value} = load i64, ptr {value}_slot",
            ]
        lines += [
            f"  %inner{word} = getelementptr i64, ptr %inner, i64 {_FIRST + word - 1}",
            f"  store i64 {value}, ptr %inner{word}",
        ]
    return _ROWS.format(
        name=_rows_name(kernel),
        kernel=kernel,
        slots=_FIRST + pointers + sizes,
        fill="\n".join(lines),
        width=1 + pointers + sizes,
    )


def _filled(template: str, values: Mapping[str, object]) -> str:
    for key, value in values.items():
        template = template.replace(f"{{{key}}}", str(value))
    return template


def _nested(loop: Loop) -> list[Loop]:
    """`loop` and the parallel loops directly inside it: one iteration space."""
    loops = [loop]
    while len(loops[-1].body) == 1:
        inner = loops[-1].body[0]
        if not (isinstance(inner, Loop) and inner.kind == "parallel"):
            break
        loops.append(inner)
    return loops


def _grain(loops: list[Loop]) -> int:
    """The smallest number of iterations of the whole space worth a thread."""
    extents = [loop.axis.extent for loop in loops]
    return max((loop.grain * _inner(extents, i) for i, loop in enumerate(loops) if loop.grain > 1), default=1)


def _inner(extents: list[Size], i: int) -> int:
    """The product of the extents inside loop `i`, where known (else 1)."""
    result = product(extents[i + 1 :])
    return result if isinstance(result, int) else 1


def _captured(outer: FunctionEmitter, body: tuple, extents: list[Size]) -> list[tuple[str, str, Value]]:
    """`(kind, name, value)` of everything that a parallel loop's body uses from the scopes around it."""
    locals_used: set[str] = set()
    used: set[str] = set()
    buffers: set[str] = set()

    def note(*sizes: Size) -> None:
        for size in sizes:
            used.update(symbols(size))

    note(*extents)
    for statement in statements(body):
        if isinstance(statement, Loop):
            note(statement.axis.extent)
        elif isinstance(statement, Store):
            note(*statement.index)
            buffers.add(statement.buffer)
        elif isinstance(statement, Accumulate) and statement.position is not None:
            note(statement.position)
    for expr in expressions(body):
        if isinstance(expr, Index):
            note(expr.value)
        elif isinstance(expr, Load):
            note(*expr.index)
            buffers.add(expr.buffer)
        elif isinstance(expr, Local):
            locals_used.add(expr.name)
            used.add(expr.name)
    result: list[tuple[str, str, Value]] = []
    for name in sorted(locals_used):
        if name in outer.context.accumulators:
            result.append(("accumulator", name, reduction.read(outer, outer.context.accumulators[name])))
        elif name in outer.context.values:
            result.append(("value", name, outer.context.values[name][0]))
    for name in sorted(used):
        value = outer.sizes.symbols.get(name)
        if value is not None:
            result.append(("symbol", name, value))
    parameters = {f"%p.{name}" for name in outer.context.buffers}
    for name in sorted(buffers):
        memory = outer.context.buffers.get(name)
        if memory is not None and memory.pointer.text not in parameters:
            result.append(("scratch", name, memory.pointer))
    return result


def overlapping(program: Program) -> dict[int, list[bool]]:
    """For each kernel, whether each parameter overlaps no other one of which either is written, in every launch."""
    result = {i: [True] * len(kernel.parameters) for i, kernel in enumerate(program.kernels)}
    for step in program.steps:
        if not isinstance(step, Launch):
            continue
        kernel = program.kernels[step.kernel]
        parameters = kernel.parameters
        for buffers, _ in launch_instances(step, kernel):
            for i, first in enumerate(buffers):
                for j in range(i + 1, len(buffers)):
                    if parameters[i].access == "read" and parameters[j].access == "read":
                        continue
                    if _share_memory(program, first, buffers[j], parameters[i], parameters[j]):
                        result[step.kernel][i] = result[step.kernel][j] = False
    return result


def _share_memory(program: Program, first: str, second: str, a: Parameter, b: Parameter) -> bool:
    if first == second:
        return True
    one, other = program.placements.get(first), program.placements.get(second)
    if one is None or other is None or one.kind != other.kind:
        return False
    if one.kind == "workspace":
        if not (isinstance(a.numel, int) and isinstance(b.numel, int)):
            return True
        starts = one.offset_bytes, other.offset_bytes
        ends = starts[0] + a.numel * ITEM_SIZE_BYTES[a.dtype], starts[1] + b.numel * ITEM_SIZE_BYTES[b.dtype]
        return starts[0] < ends[1] and starts[1] < ends[0]
    # Two inputs may be views of one storage; the caller guards that only where one of them is written.
    return one.kind == "input" or one.index == other.index
