"""One LLVM module for a program: a function per kernel, one per parallel loop, one entry per stretch of launches.

Shapes of what is written:

    run_0(externals, buffers, sizes, threads)              the image's entry: calls kernels in order
    kernel_3(externals, b0, b1, ..., sizes..., threads)    one kernel; runs parallel loops through OpenMP or directly
    kernel_3_loop_0(externals, b0, ..., captured..., begin, end)    the iterations [begin, end) of a parallel loop
    kernel_3_loop_0_thread(context)                        what each OpenMP thread runs: its share of the iterations
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
        self._loop_function(name, outer, loops, captured)

        build = outer.build
        total = outer.sizes.scalar(product(extents))
        fixed = "".join(f", ptr %p.{p.name}" for p, _ in self._parameters) + "".join(f", {v}" for _, _, v in captured)
        direct = f"call void @{name}(ptr %externals{fixed}, i64 0, {total})"
        grain = max((item.grain * _inner(extents, i) for i, item in enumerate(loops) if item.grain > 1), default=1)
        if total.is_constant and int(total.text) <= 0:
            return
        if total.is_constant and int(total.text) <= grain:
            build.effect(direct)
            return
        shares = outer.sizes.divide(
            build.binary("add", total, build.integer(grain - 1)), build.integer(grain), True, True
        )
        threads = outer.sizes.pick(Value("%threads", "i64"), shares, smaller=True)
        several = build.compare("icmp sgt", threads, build.integer(1))
        slots = ["%externals", *(f"%p.{p.name}" for p, _ in self._parameters)]
        values = [Value(slot, "ptr") for slot in slots] + [value for _, _, value in captured] + [total]
        context = build.allocate(f"[{len(values)} x i64]", 16)
        build.open_block()
        for slot, value in enumerate(values):
            place = build.here("ptr", 1, f"getelementptr i64, ptr {context}, i64 {slot}")
            build.effect(f"store {value}, {place}, align 8")
        start = self.externals.address(build, "gomp:GOMP_parallel")
        count = build.convert("trunc", threads, "i32")
        build.effect(f"call void {start.text}(ptr @{name}_thread, ptr {context}, {count}, i32 0)")
        build.close_block(several)
        # The direct call is taken where the parallel one was not: with one thread, or too little work to share.
        build.open_block()
        build.effect(direct)
        some = build.compare("icmp sgt", total, build.integer(0))
        alone = build.binary("xor", several, build.boolean(True))
        build.close_block(build.binary("and", alone, some))
        self._thread_function(name, values)

    def _loop_function(
        self, name: str, outer: FunctionEmitter, loops: list[Loop], captured: list[tuple[str, str, Value]]
    ) -> None:
        emitter = FunctionEmitter(self, None)
        build, sizes = emitter.build, emitter.sizes
        self._bind_parameters(emitter)
        arguments = []
        for i, (kind, key, value) in enumerate(captured):
            inner = Value(f"%c{i}", value.type)
            arguments.append(str(inner))
            if kind == "symbol":
                sizes.symbols[key] = inner
            elif kind == "scratch":
                emitter.context.buffers[key] = Memory(inner, outer.context.buffers[key].dtype, True, False)
            elif kind == "accumulator":
                emitter.context.values[key] = (inner, "")
            else:
                dtype = outer.context.values[key][1]
                emitter.context.values[key] = (inner, dtype)
        counter = build.open_loop(runs=True)
        left = counter
        for i, item in enumerate(loops):
            rest = product(loop.axis.extent for loop in loops[i + 1 :])
            step = sizes.scalar(rest)
            sizes.symbols[item.axis.name] = sizes.divide(left, step, True, True)
            if i + 1 < len(loops):
                left = sizes.divide(left, step, False, True)
        emitter.body(loops[-1].body)
        build.close_loop(counter, Value("%begin", "i64"), Value("%end", "i64"), 1)
        parameters = ", ".join(["ptr %externals", *self._pointers(), *arguments, "i64 %begin", "i64 %end"])
        self.functions.append(emitter.finish(f"internal void @{name}({parameters})", "#1"))

    def _thread_function(self, name: str, values: list[Value]) -> None:
        """Each thread takes an equal share of the iterations, whatever number of threads OpenMP granted."""
        build = Builder(self.declarations)
        loaded = []
        for slot, value in enumerate(values):
            place = build.here("ptr", 1, f"getelementptr i64, ptr %context, i64 {slot}")
            # Named as in the kernel, because `externals` is read by that name.
            text = "%externals" if slot == 0 else build.fresh()
            build.effect(f"{text} = load {value.type}, {place}, align 8")
            loaded.append(Value(text, value.type))
        total = loaded[-1]
        me, count = (
            build.convert("zext", build.here("i32", 1, f"call i32 {self.externals.address(build, symbol).text}()"), "i64")
            for symbol in ("gomp:omp_get_thread_num", "gomp:omp_get_num_threads")
        )
        begin = build.binary("udiv", build.binary("mul", total, me), count)
        following = build.binary("mul", total, build.binary("add", me, build.integer(1)))
        end = build.binary("udiv", following, count)
        build.open_block()
        arguments = ", ".join(map(str, [*loaded[:-1], begin, end]))
        build.effect(f"call void @{name}({arguments})")
        build.close_block(build.compare("icmp slt", begin, end))
        self.functions.append(build.function(f"internal void @{name}_thread(ptr %context)", "#0"))

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
            f"attributes #1 = {{ noinline {common} }}",
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
