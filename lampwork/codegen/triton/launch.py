"""The native code that launches a program's kernels: one function per stretch of launches, as on the CPU.

    run_0(externals, buffers, sizes, stream) -> i64     launches the stretch's kernels on a CUDA stream, in order
    call_run_0(self, args, count)                       the same as a CPython function of three integers

The answer is 0, or what went wrong and where: the driver's error code in the lower half and the position of the launch
in the upper; nothing is launched behind an error. Before anything is launched, pointers that come from outside are
compared with what the kernels were compiled for: `UNALIGNED` says that one of them is not divisible by 16.

A launch hands the driver the addresses of its arguments. Pointers and sizes stand in the tables that the caller passes
already, so nothing is copied: an argument's address is its place in the table. Behind them stand addresses of null
pointers, as many as any release of Triton appends arguments for; the driver takes what the kernel has.

What only the compiled kernel tells, its shared memory, comes in through the externals: so this code is made while the
kernels are compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from lampwork.codegen.llvm.builder import Builder, Value
from lampwork.codegen.llvm.compile import TRIPLE, object_code
from lampwork.codegen.llvm.external import Externals
from lampwork.codegen.llvm.link import link
from lampwork.codegen.llvm.module import BYTES_CONTENTS
from lampwork.codegen.llvm.sizes import SizeEmitter
from lampwork.ir.program import UNALIGNED, DeviceKernel, Launch, NativeCode, Program
from lampwork.ir.size import Size, Symbol, symbols
from lampwork.ir.target import LEVELS, Target

#: Launching needs no vector instruction: the code runs on every processor that Lampwork supports.
_HOST = Target("sse4", features=LEVELS["sse4"])

_ENTRY = """define i64 @{name}(ptr %externals, ptr %buffers, ptr %sizes, i64 %stream) #0 {{
  %code = call i64 @run(ptr @body_{name}, ptr %externals, ptr %buffers, ptr %sizes, i64 %stream)
  ret i64 %code
}}
define ptr @call_{name}(ptr %self, ptr %args, i64 %count) #0 {{
  %answer = call ptr @call(ptr @body_{name}, ptr %self, ptr %args)
  ret ptr %answer
}}"""

_SHARED = """define internal i64 @run(ptr %body, ptr %externals, ptr %buffers, ptr %sizes, i64 %stream) #0 {{
  %result = alloca [2 x i32], align 8
  store i64 0, ptr %result, align 8
  call void %body(ptr %externals, ptr %buffers, ptr %sizes, i64 %stream, ptr %result)
  %both = load i64, ptr %result, align 8
  %error = load i32, ptr %result, align 8
  %fine = icmp eq i32 %error, 0
  %code = select i1 %fine, i64 0, i64 %both
  ret i64 %code
}}
define internal ptr @call(ptr %body, ptr %self, ptr %args) #0 {{
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
  %stream = ptrtoint ptr %pointer to i64
  %save_slot = getelementptr ptr, ptr %externals, i64 {save}
  %save = load ptr, ptr %save_slot
  %state = call ptr %save()
  %code = call i64 @run(ptr %body, ptr %externals, ptr %buffers, ptr %sizes, i64 %stream)
  %restore_slot = getelementptr ptr, ptr %externals, i64 {restore}
  %restore = load ptr, ptr %restore_slot
  call void %restore(ptr %state)
  %number_slot = getelementptr ptr, ptr %externals, i64 {number}
  %number = load ptr, ptr %number_slot
  %answer = call ptr %number(i64 %code)
  ret ptr %answer
}}"""

#: Addresses of null pointers behind a kernel's arguments.
NULLS = 4

#: The external functions of `_SHARED`, by the name of their place in it. The interpreter lock is released meanwhile: a
#: launch waits while the stream's queue is full.
_PYTHON = {
    "convert": "PyLong_AsVoidPtr", "save": "PyEval_SaveThread", "restore": "PyEval_RestoreThread",
    "number": "PyLong_FromLongLong",
}  # fmt: skip


def launch_code(program: Program, stretches: Sequence[Sequence[Launch]], kernels: Sequence[DeviceKernel]) -> NativeCode:
    """The native code of a program for a GPU. `kernels` stand in the order of the program's; they need not be compiled.

    `buffer_order`, `runs` and `calls` are as on the CPU.
    """
    writer = _Writer(program, kernels)
    for stretch in stretches:
        for launch in stretch:
            for buffer in launch.buffers:
                writer.places.setdefault(buffer, len(writer.places))
    for i, stretch in enumerate(stretches):
        writer.entry(f"run_{i}", stretch)
    text = writer.text()
    image, entries = link(object_code(text, _HOST))
    return NativeCode(
        image=image,
        runs=tuple(entries[f"run_{i}"] for i in range(len(stretches))),
        buffer_order=tuple(writer.places),
        externals=tuple(writer.externals.names),
        features=_HOST.features,
        kernel_names=tuple(kernel.name for kernel in program.kernels),
        source=text,
        calls=tuple(entries[f"call_run_{i}"] for i in range(len(stretches))),
        device=program.device,
        kernels=tuple(kernels),
    )


class _Writer:
    def __init__(self, program: Program, kernels: Sequence[DeviceKernel]) -> None:
        self.program, self.kernels = program, kernels
        self.places: dict[str, int] = {}
        self.externals = Externals(_HOST.name)
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []

    def text(self) -> str:
        slots = {key: self.externals.slot(f"python:{symbol}") for key, symbol in _PYTHON.items()}
        shared = _SHARED.format(contents=BYTES_CONTENTS, **slots)
        lines = [f'target triple = "{TRIPLE}"', *self.declarations.values(), shared, *self.functions]
        # What runs once a launch is not worth optimising.
        return "\n".join([*lines, 'attributes #0 = { nounwind noinline optnone "no-builtins" }', "!1 = !{}", ""])

    def entry(self, name: str, stretch: Sequence[Launch]) -> None:
        """Writes the functions of one stretch."""
        build = Builder(self.declarations)
        sizes = self._sizes(build, stretch)
        self._check_alignment(build, stretch)
        most = max(self._arguments(launch) for launch in stretch)
        table = build.allocate(f"[{max(most, 1)} x ptr]", 16)
        values = build.allocate(f"[{max(max(len(launch.sizes) for launch in stretch), 1)} x i64]", 16)
        null = build.allocate("i64", 8)
        build.effect(f"store i64 0, ptr {null}, align 8")
        for position, launch in enumerate(stretch):
            self._launch(build, sizes, launch, position, table, values, null)
        build.branch_to("finish")
        body = f"internal void @body_{name}(ptr %externals, ptr %buffers, ptr %sizes, i64 %stream, ptr %result)"
        self.functions += [build.function(body, "#0"), _ENTRY.format(name=name)]

    def _sizes(self, build: Builder, stretch: Sequence[Launch]) -> SizeEmitter:
        """Arithmetic in which every symbol that the launches use has its value, loaded at the start."""
        sizes = SizeEmitter(build)
        needed = {symbol for launch in stretch for size in launch.sizes for symbol in symbols(size)}
        for i, symbol in enumerate(self.program.sizes):
            if symbol in needed:
                place = build.pure("ptr", 1, f"getelementptr i64, ptr %sizes, i64 {i}")
                sizes.symbols[symbol] = build.pure("i64", 1, f"load i64, {place}, align 8", place)
        return sizes

    def _arguments(self, launch: Launch) -> int:
        return len(launch.buffers) + len(launch.sizes) + NULLS

    def _check_alignment(self, build: Builder, stretch: Sequence[Launch]) -> None:
        """Leaves with `UNALIGNED` when a pointer from outside is not as kernels want it. Planned memory always is."""
        checked = from_outside(self.program, stretch, self.kernels)
        if not checked:
            return
        bits: Value | None = None
        for buffer in checked:
            place = build.pure("ptr", 1, f"getelementptr i64, ptr %buffers, i64 {self.places[buffer]}")
            pointer = build.pure("i64", 1, f"load i64, {place}, align 8", place)
            bits = pointer if bits is None else build.binary("or", bits, pointer)
        assert bits is not None
        odd = build.compare("icmp ne", build.binary("and", bits, build.integer(15)), build.integer(0))
        build.effect(f"br i1 {odd.text}, label %unaligned, label %aligned")
        build.start_block("unaligned")
        build.effect(f"store i64 {UNALIGNED}, ptr %result, align 8")
        build.effect("br label %finish")
        build.start_block("aligned")

    def _launch(
        self, build: Builder, sizes: SizeEmitter, launch: Launch, position: int, table: str, values: str, null: str
    ) -> None:
        kernel = self.kernels[launch.kernel]
        given = [sizes.scalar(size) for size in launch.sizes]
        inner = SizeEmitter(build)
        inner.symbols = dict(zip(self.program.kernels[launch.kernel].sizes, given))
        grid = [inner.scalar(size) for size in (*kernel.grid, 1, 1)[:3]]
        if any(count.text == "0" for count in grid):
            return
        addresses = [
            build.pure("ptr", 1, f"getelementptr ptr, ptr %buffers, i64 {self.places[buffer]}")
            for buffer in launch.buffers
        ]
        for i, (size, value) in enumerate(zip(launch.sizes, given)):
            addresses.append(self._size_address(build, size, value, values, i))
        addresses += [Value(null, "ptr")] * NULLS
        for i, address in enumerate(addresses):
            place = build.pure("ptr", 1, f"getelementptr ptr, ptr {table}, i64 {i}")
            build.effect(f"store {address}, {place}, align 8")
        function = self.externals.address(build, f"kernel:{launch.kernel}")
        start = self.externals.address(build, "cuda:cuLaunchKernel")
        shared_place = self.externals.address(build, f"shared:{launch.kernel}")
        shared = build.pure("i32", 1, f"ptrtoint {shared_place} to i32", shared_place)
        place = build.pure("ptr", 1, "getelementptr i32, ptr %result, i64 1")
        build.effect(f"store i32 {position}, {place}, align 4")
        numbers = [build.integer(int(count.text), "i32") if count.is_constant else build.convert("trunc", count, "i32")
                   for count in grid]  # fmt: skip
        following = build.fresh_label("launched")
        unknown = [count for count in grid if not count.is_constant]
        if unknown:  # a grid without programs is an error to the driver, and nothing to do for us
            programs = unknown[0]
            for count in unknown[1:]:
                programs = build.binary("mul", programs, count)
            some = build.compare("icmp ne", programs, build.integer(0))
            label = build.fresh_label("launch")
            build.effect(f"br i1 {some.text}, label %{label}, label %{following}")
            build.start_block(label)
        stream = build.here("ptr", 1, "inttoptr i64 %stream to ptr")
        arguments = ", ".join([
            str(function), *map(str, numbers), f"i32 {kernel.num_warps * 32}", "i32 1", "i32 1",
            str(shared), str(stream), f"ptr {table}", "ptr null",
        ])  # fmt: skip
        code = build.here("i32", 1, f"call i32 {start.text}({arguments})")
        build.effect(f"store {code}, ptr %result, align 8")
        failed = build.here("i1", 1, f"icmp ne {code}, 0")
        build.effect(f"br i1 {failed.text}, label %finish, label %{following}")
        build.start_block(following)

    def _size_address(self, build: Builder, size: Size, value: Value, values: str, i: int) -> Value:
        """Where the value of a size lies: in the caller's table, or in slot `i` of ours."""
        if isinstance(size, Symbol) and size.name in self.program.sizes:
            return build.pure("ptr", 1, f"getelementptr i64, ptr %sizes, i64 {self.program.sizes.index(size.name)}")
        place = build.pure("ptr", 1, f"getelementptr i64, ptr {values}, i64 {i}")
        build.effect(f"store {value}, {place}, align 8")
        return place


def from_outside(program: Program, stretch: Sequence[Launch], kernels: Sequence[DeviceKernel]) -> tuple[str, ...]:
    """Buffers of a stretch that must be aligned and whose memory is not ours: inputs, and what ATen calls returned."""
    found: dict[str, None] = {}
    for launch in stretch:
        for i in kernels[launch.kernel].aligned:
            if i < len(launch.buffers) and program.placements[launch.buffers[i]].kind in ("input", "extern"):
                found[launch.buffers[i]] = None
    return tuple(found)
