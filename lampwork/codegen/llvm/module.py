"""One LLVM module for a program: a function per kernel, one per parallel loop, one entry per stretch of launches.

Shapes of what is written:

    run_0(externals, buffers, sizes, threads)              the image's entry: calls kernels in order
    kernel_3(externals, b0, b1, ..., sizes..., threads)    one kernel; runs parallel loops through OpenMP or directly
    kernel_3_loop_0(context)                               a parallel loop: what each thread runs, its share of iterations
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lampwork.codegen.llvm.builder import Builder, Value
from lampwork.codegen.llvm.external import Externals
from lampwork.codegen.llvm.kernel import FunctionEmitter, Memory
from lampwork.codegen.llvm.lanes import expressions, statements
from lampwork.codegen.llvm.sizes import SizeEmitter
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Accumulate, Index, Kernel, Load, Local, Loop, Parameter, Store
from lampwork.ir.program import Launch, Program
from lampwork.ir.size import Size, product, symbols
from lampwork.ir.target import Target

LAUNCH_TYPES = "ptr %externals, ptr %buffers, ptr %sizes, i64 %threads"


class ModuleEmitter:
    """Collects the functions of one module. `text()` is the whole."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.vector_bytes = target.vector_bytes
        self.native_half = self.fused = target.name != "sse4"
        self.declarations: dict[str, str] = {}
        self.externals = Externals(target.name)
        self.functions: list[str] = []
        self._kernel = ""
        self._parameters: list[tuple[Parameter, bool]] = []

    # -- kernels ------------------------------------------------------------------------------------------------------

    def kernel(self, name: str, kernel: Kernel, distinct: Sequence[bool]) -> None:
        """Writes `kernel` as function `name`. `distinct[i]`: parameter i overlaps no other parameter that is written."""
        self._kernel = name
        self._parameters = list(zip(kernel.parameters, distinct))
        emitter = FunctionEmitter(self, self._parallel)
        self._bind_parameters(emitter)
        for size in kernel.sizes:
            emitter.sizes.symbols[size] = Value(f"%s.{size}", "i64")
        emitter.body(kernel.body)
        sizes = [f"i64 %s.{size}" for size in kernel.sizes]
        signature = ", ".join(["ptr %externals", *self._pointers(), *sizes, "i64 %threads"])
        self.functions.append(emitter.finish(f"internal void @{name}({signature})", "#0"))

    def _pointers(self) -> list[str]:
        return [f"ptr {'noalias ' if alone else ''}%p.{p.name}" for p, alone in self._parameters]

    def _bind_parameters(self, emitter: FunctionEmitter) -> None:
        for parameter, alone in self._parameters:
            bytes = parameter.numel * ITEM_SIZE_BYTES[parameter.dtype] if isinstance(parameter.numel, int) else 0
            emitter.context.buffers[parameter.name] = Memory(
                Value(f"%p.{parameter.name}", "ptr"),
                parameter.dtype,
                parameter.aligned,
                frozen=alone and parameter.access == "read",
                stream=alone and parameter.access == "write" and bytes > self.target.l3_bytes,
            )

    # -- parallel loops -----------------------------------------------------------------------------------------------

    def _parallel(self, outer: FunctionEmitter, loop: Loop) -> None:
        """Writes the loop as a function of its own and, in the kernel, the call that runs it on the threads."""
        loops = [loop]
        while len(loops[-1].body) == 1 and isinstance(loops[-1].body[0], Loop) and loops[-1].body[0].kind == "parallel":
            loops.append(loops[-1].body[0])
        extents = [item.axis.extent for item in loops]
        name = f"{self._kernel}_loop_{sum(text.count(f'@{self._kernel}_loop_') > 0 for text in self.functions)}"
        captured = _captured(outer, loops[-1].body, extents)
        fixed = [Value("%externals", "ptr"), *(Value(f"%p.{p.name}", "ptr") for p, _ in self._parameters)]
        self._loop_function(name, outer, loops, fixed, captured)

        build = outer.build
        total = outer.sizes.scalar(product(extents))
        if total.is_constant and int(total.text) <= 0:
            return
        grain = max((item.grain * _inner(extents, i) for i, item in enumerate(loops) if item.grain > 1), default=1)
        several = build.boolean(False)
        threads = build.integer(1)
        if not total.is_constant or int(total.text) > grain:
            shares = outer.sizes.divide(
                build.binary("add", total, build.integer(grain - 1)), build.integer(grain), True, True
            )
            threads = outer.sizes.pick(Value("%threads", "i64"), shares, smaller=True)
            several = build.compare("icmp sgt", threads, build.integer(1))
        context = build.allocate(f"[{len(fixed) + len(captured) + 2} x i64]", 16)
        values = [*fixed, *(value for _, _, value in captured), total, build.convert("zext", several, "i64")]
        for slot, value in enumerate(values):
            place = build.here("ptr", 1, f"getelementptr i64, ptr {context}, i64 {slot}")
            build.effect(f"store {value}, {place}, align 8")
        if several.text != "false":
            build.open_block()
            start = self.externals.address(build, "gomp:GOMP_parallel")
            count = build.convert("trunc", threads, "i32")
            build.effect(f"call void {start.text}(ptr @{name}, ptr {context}, {count}, i32 0)")
            build.close_block(several)
        # With one thread, or too little work to share, this thread runs it all.
        build.open_block()
        build.effect(f"call void @{name}(ptr {context})")
        some = build.compare("icmp sgt", total, build.integer(0))
        build.close_block(build.binary("and", build.binary("xor", several, build.boolean(True)), some))

    def _loop_function(
        self, name: str, outer: FunctionEmitter, loops: list[Loop], fixed: list[Value], captured: list[tuple[str, str, Value]]
    ) -> None:
        """The function each thread runs: its share of the iterations, or all of them where threads are not used.

        The context holds `fixed`, the captured values, the number of iterations, and whether threads share them.
        """
        emitter = FunctionEmitter(self, None)
        build, sizes = emitter.build, emitter.sizes

        def argument(slot: int, type: str, name: str = "") -> Value:
            place = build.here("ptr", 1, f"getelementptr i64, ptr %context, i64 {slot}")
            result = Value(name or build.fresh(), type)
            build.effect(f"{result.text} = load {type}, {place}, align 8, !invariant.load !1")
            return result

        for slot, value in enumerate(fixed):
            argument(slot, "ptr", value.text)  # under the names they have in the kernel
        self._bind_parameters(emitter)
        for slot, (kind, key, value) in enumerate(captured, start=len(fixed)):
            inner = argument(slot, value.type)
            if kind == "symbol":
                sizes.symbols[key] = inner
            elif kind == "scratch":
                emitter.context.buffers[key] = Memory(inner, outer.context.buffers[key].dtype, True, False)
            elif kind == "accumulator":
                emitter.context.values[key] = (inner, "")
            else:
                emitter.context.values[key] = (inner, outer.context.values[key][1])
        last = len(fixed) + len(captured)
        total, shared = argument(last, "i64"), argument(last + 1, "i64")
        begin, end = self._share(build, total, shared)

        build.open_block()
        counter = build.open_loop(runs=True)
        left = counter
        for i, item in enumerate(loops):
            step = sizes.scalar(product(loop.axis.extent for loop in loops[i + 1 :]))
            sizes.symbols[item.axis.name] = sizes.divide(left, step, True, True)
            if i + 1 < len(loops):
                left = sizes.divide(left, step, False, True)
        emitter.body(loops[-1].body)
        build.close_loop(counter, begin, end, 1)
        build.close_block(build.compare("icmp slt", begin, end))
        self.functions.append(emitter.finish(f"internal void @{name}(ptr %context)", "#0"))

    def _share(self, build: Builder, total: Value, shared: Value) -> tuple[Value, Value]:
        """This thread's `[begin, end)`: an equal share, whatever number of threads OpenMP granted."""
        entry, threads, ready = build.levels[-1].label, build.fresh_label("threads"), build.fresh_label("ready")
        condition = build.here("i1", 1, f"icmp ne {shared}, 0")
        build.effect(f"br {condition}, label %{threads}, label %{ready}")
        build.start_block(threads)
        me, count = (
            build.here("i64", 1, f"zext {build.here('i32', 1, f'call i32 {address.text}()')} to i64")
            for address in [
                build.here("ptr", 1, f"load ptr, ptr {slot.text}")
                for slot in [
                    build.here("ptr", 1, f"getelementptr ptr, ptr %externals, i64 {self.externals.slot(name)}")
                    for name in ("gomp:omp_get_thread_num", "gomp:omp_get_num_threads")
                ]
            ]
        )
        first = build.here("i64", 1, f"mul {total}, {me.text}")
        following = build.here("i64", 1, f"add {first}, {total.text}")
        bounds = [build.here("i64", 1, f"udiv {value}, {count.text}") for value in (first, following)]
        build.branch_to(ready)
        begin = build.here("i64", 1, f"phi i64 [ 0, %{entry} ], [ {bounds[0].text}, %{threads} ]")
        end = build.here("i64", 1, f"phi i64 [ {total.text}, %{entry} ], [ {bounds[1].text}, %{threads} ]")
        return begin, end

    # -- entries ------------------------------------------------------------------------------------------------------

    def entry(self, name: str, launches: Sequence[tuple[str, Launch]], places: Mapping[str, int], sizes: Sequence[str]) -> None:
        """Writes the entry that runs `launches` (function name, launch). `places`: index of each buffer's pointer."""
        build = Builder(self.declarations)
        emitter = SizeEmitter(build)
        needed = {symbol for _, launch in launches for size in launch.sizes for symbol in symbols(size)}
        for i, symbol in enumerate(sizes):
            if symbol in needed:
                place = build.pure("ptr", 1, f"getelementptr i64, ptr %sizes, i64 {i}")
                emitter.symbols[symbol] = build.pure("i64", 1, f"load i64, {place}, align 8", place)
        for function, launch in launches:
            arguments = ["ptr %externals"]
            for buffer in launch.buffers:
                place = build.pure("ptr", 1, f"getelementptr ptr, ptr %buffers, i64 {places[buffer]}")
                arguments.append(str(build.pure("ptr", 1, f"load ptr, {place}, align 8", place)))
            arguments += [str(emitter.scalar(size)) for size in launch.sizes]
            build.effect(f"call void @{function}({', '.join(arguments)}, i64 %threads)")
        self.functions.append(build.function(f"void @{name}({LAUNCH_TYPES})", "#0"))

    def text(self) -> str:
        """The module as LLVM assembly."""
        tune = f' "tune-cpu"="{self.target.tune}"' if self.target.tune else ""
        width = self.vector_bytes * 8
        common = f'nounwind "no-builtins" "min-legal-vector-width"="{width}" "prefer-vector-width"="{width}"{tune}'
        return "\n".join([
            'target triple = "x86_64-unknown-linux-gnu"',
            *self.declarations.values(),
            *self.functions,
            f"attributes #0 = {{ {common} }}",
            "!0 = !{i32 1}",
            "!1 = !{}",
            "",
        ])  # fmt: skip


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
    from lampwork.codegen.llvm import reduction

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
        parameters = program.kernels[step.kernel].parameters
        for i, first in enumerate(step.buffers):
            for j in range(i + 1, len(step.buffers)):
                if parameters[i].access == "read" and parameters[j].access == "read":
                    continue
                if _share_memory(program, first, step.buffers[j], parameters[i], parameters[j]):
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
