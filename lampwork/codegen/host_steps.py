"""Steps of the host function: launches, calls of ATen and checks, with the memory that they need from there on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from keyword import iskeyword
from typing import Any

from lampwork import _torch
from lampwork.backends import backend_of
from lampwork.codegen.host_blocks import Blocks
from lampwork.codegen.host_expressions import Expressions, dims
from lampwork.codegen.host_poison import idle_ranges, poison_line
from lampwork.codegen.launch_sequences import sequence_starts
from lampwork.errors import CompileError
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Buffer
from lampwork.ir.program import (
    Check,
    Extern,
    FromBuffer,
    FromInput,
    Launch,
    NativeCode,
    Program,
    TensorRef,
    ViewOfInput,
    launch_instances,
    step_buffers,
)
from lampwork.ir.size import Size, SizeExpr, Symbol, linear_terms, span

#: Results of at least this size are made by `large`, which uses memory of earlier results again.
LARGE_BYTES = 1 << 20
#: Of each buffer after a workspace: where it begins, and what kernels may read past its end.
ALIGNMENT_BYTES, SLACK_BYTES = 512, 64


class Steps(Expressions):
    """The lines for one program's steps, and what is known of the program while they are written."""

    def __init__(
        self,
        program: Program,
        native: NativeCode,
        weights: frozenset[int],
        owns_inputs: bool = False,
        poison: bool = False,
    ) -> None:
        super().__init__(program, weights)
        #: Whether planned memory is filled with NaN where nothing is in it; the ranges where that was done.
        self.poison = poison
        self.poisoned = idle_ranges(program, -1) if poison else ()
        #: Whether calls with `out=` are checked each time: sizes that they hang on may be found midway.
        self.always_checked = poison or bool(program.found)
        self.native = native
        returned = {each.input for each in program.results if isinstance(each, (FromInput, ViewOfInput))}
        #: Inputs that are given back as soon as no step needs them.
        self.freed = {
            name: index
            for index, name in enumerate(program.inputs)
            if owns_inputs and index not in returned and name not in program.numbers
        }
        self.owns_inputs = owns_inputs
        self.streams = backend_of(program.device).streams
        self.slot = {name: index for index, name in enumerate(native.buffer_order)}
        self.lines: list[str] = []
        #: Buffers that the host makes and nobody sees: while a graph is captured, they lie after the workspace.
        self.passing: dict[str, tuple[int, int]] = {}
        #: Whether a graph's capture may have memory for results.
        self.given = False
        self.may_pass = self.streams and not program.sizes and not program.found
        self.returned = {result.view.buffer for result in program.results if isinstance(result, FromBuffer)}
        self.captured_bytes = _aligned(program.workspace_bytes + SLACK_BYTES)
        self.blocks = Blocks()
        self.starts = sequence_starts(program)
        #: Buffers that steps need; results among them that are allocated by now.
        self.accessed = {name for step in program.steps for name in step_buffers(step)} if self.streams else set()
        self.made: set[str] = set()
        self.committed = False
        #: Sizes that are known midway, and are not yet; what is to be checked once they are.
        self.late: set[str] = set()
        self.found: set[str] = set()
        self.assumed = list(program.assumed)
        #: The last step that may find that the program does not serve the call. Draws before it can be taken back.
        self.last_doubt = max(
            [number for number, step in enumerate(program.steps) if self._may_refuse(step)], default=-1
        )
        self.saved = False
        #: The last step whose operator may turn out to return something else than was planned.
        self.last_fallible = max(
            [number for number, step in enumerate(program.steps) if isinstance(step, Extern) and _returns(step)],
            default=-1,
        )
        self.kept_inputs = self._written_before(self.last_fallible)
        self.keeps_generators = any(
            isinstance(step, Extern) and step.draws for step in program.steps[: self.last_fallible]
        )

    def _written_before(self, last: int) -> list[int]:
        """Inputs that steps up to `last` write to."""
        written: set[int] = set()
        start = 0
        for position, step in enumerate(self.program.steps):
            if not isinstance(step, Launch):
                names = step.mutates if isinstance(step, Extern) else ()
                start = position + 1
            else:  # launches in a row run as one
                names = tuple(name for parameter, name in self._arguments(step) if parameter.access != "read")
            if start <= last:
                written.update(self.place(name).index for name in names if self.place(name).kind == "input")
        return sorted(written)

    def _may_refuse(self, step: object) -> bool:
        """Whether contents may decide that the program ends at a step: eager makes the call then, and the program may
        catch its error. A GPU's kernels do not tell the host."""
        if isinstance(step, Check):
            return not self.streams or step.error in ("AssumptionFailed", "SideNotAssumed")
        if not isinstance(step, Extern):
            return False
        found = {buffer for buffer, _ in self.program.found.values()} if self.program.assumed else set()
        return not found.isdisjoint(step.outputs) or (not self.streams and not _is_total(step))

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def _bind_symbol(self, size: Size, text: Callable[[], str], unbound: set[str]) -> None:
        """`size` is the integer `text()`: the value of its symbol, where it is one times a number plus a number."""
        constant, terms = linear_terms(size)
        if len(terms) != 1:
            return
        factor, symbol = terms[0]
        if not isinstance(symbol, Symbol) or symbol.name not in unbound:
            return
        unbound.discard(symbol.name)
        if symbol.name not in self.late:
            self.symbols.append(symbol.name)
        value = text() if not constant else f"({text()} - {constant})"
        self.emit(f"{symbol.name} = {value}" + (f" // {factor}" if factor != 1 else ""))
        self._set_size(symbol.name)

    def _set_size(self, name: str) -> None:
        if name in self.program.sizes:
            self.emit(f"lease.sizes[{self.program.sizes.index(name)}] = {name}")

    # Steps -----------------------------------------------------------------------------------------------------------

    def _steps(self) -> None:
        sequence = 0
        for position, step in enumerate(self.program.steps):
            if isinstance(step, Launch):
                if position in self.starts:
                    for launch in self._sequence(position):
                        self._allocate(step_buffers(launch))
                    if any(self._writes_input(launch) for launch in self._sequence(position)):
                        self._commit()
                    self._run(sequence, position)
                    self._poison_after(position + len(list(self._sequence(position))) - 1)
                    sequence += 1
            else:
                if isinstance(step, Extern):
                    self._extern(step, position)
                elif isinstance(step, Check):
                    self._check(step)
                else:
                    raise CompileError("host", f"unknown step {type(step).__name__}")
                self._poison_after(position)
            for name in self.program.free_after.get(position, ()):
                if name in self.extern_names:
                    self.emit(f"del {self.extern_names[name]}")
                    self.passing.pop(name, None)
                    self.blocks.give_back(name)
                elif self.freed.get(name) in self.used_inputs:
                    self.emit(f"del x{self.freed[name]}")

    def _poison_all(self) -> None:
        """Before the first step there is nothing in planned memory."""
        if not self.poison:
            return
        if self.program.workspace_bytes:
            self.emit(poison_line(idle_ranges(self.program, -1)))
        if self.program.arena:
            self.emit("poison(lease.arena)")

    def _poison_after(self, position: int) -> None:
        """What no step after `position` reads is filled, once."""
        if not self.poison:
            return
        ranges = idle_ranges(self.program, position)
        if ranges and ranges != self.poisoned:
            self.emit(poison_line(ranges))
        self.poisoned = ranges

    def _run(self, number: int, start: int) -> None:
        """Run the launch sequence that begins with step `start`."""
        if not self.streams:
            self.emit(f"run{number}(lease.address, lease.sizes_address, threads())")
            return
        outside: dict[str, str] = {}
        for launch in self._sequence(start):
            for parameter, name in self._arguments(launch):
                place = self.place(name)
                if place.kind in ("input", "extern"):
                    tensor = self.input(place.index) if place.kind == "input" else self.extern_names[name]
                    written = parameter.access != "read" or outside.get(name, "").endswith("True)")
                    outside[name] = f"({self.slot[name]}, {tensor}, {written})"
        self.emit(f"answer = run{number}(lease.address, lease.sizes_address, stream)")
        tensors = "".join(f"{each}, " for each in outside.values())
        self.emit(f"if answer: again(answer, run{number}, lease, stream, ({tensors}))")

    def _sequence(self, start: int) -> Iterator[Launch]:
        for position, step in enumerate(self.program.steps[start:], start):
            if not isinstance(step, Launch) or (position in self.starts and position > start):
                return
            yield step

    def _writes_input(self, launch: Launch) -> bool:
        return any(
            parameter.access != "read" and self.place(name).kind == "input"
            for parameter, name in self._arguments(launch)
        )

    def _arguments(self, launch: Launch) -> Iterator[tuple[Any, str]]:
        """Every parameter of every run of a launch, with the buffer it is given."""
        kernel = self.program.kernels[launch.kernel]
        for buffers, _ in launch_instances(launch, kernel):
            yield from zip(kernel.parameters, buffers, strict=True)

    def _commit(self) -> None:
        if not self.committed:
            self.committed = True
            self.emit("committed = True")

    def _extern(self, step: Extern, position: int) -> None:
        if any(self.place(name).kind == "input" for name in step.mutates):
            self._commit()
        elif step.draws:
            self._draw(position)
        own = () if step.out_variant is None else step.outputs
        self._allocate([name for name in (*own, *_tensors_of(step)) if name is not None])
        arguments = [self.argument(value) for value in step.args]
        arguments += [
            f"**{{{name!r}: {self.argument(value)}}}" if iskeyword(name) else f"{name}={self.argument(value)}"
            for name, value in step.kwargs
            if step.out_variant is None or name not in _torch.DRAWN_LAYOUT
        ]
        if step.out_variant is not None:
            outs = list(zip(_torch.out_arguments(step.out_variant, len(step.outputs)), step.outputs, strict=True))
            for name, output in outs:
                arguments.append(f"{name}={'scrap()' if output is None else self.whole(output)}")
            given = tuple([name for name, output in outs if output is not None])
            self.emit(f"{self.out_operator(step.out_variant, given)}({', '.join(arguments)})")
            return
        call = f"{self.operator(step.op)}({', '.join(arguments)})"
        if not step.outputs or all(output is None for output in step.outputs):
            self.emit(call)
        elif len(step.outputs) == 1:
            self._bind(step.outputs[0], f"{call}[0]" if _torch.returns_list(step.op) else call)
        else:
            self.emit(f"returned = {call}")
            for index, output in enumerate(step.outputs):
                if output is not None:
                    self._bind(output, f"returned[{index}]")
            self.emit("del returned")

    def _bind(self, name: str | None, value: str) -> None:
        """The tensor `value` becomes buffer `name`."""
        assert name is not None
        buffer = self.program.buffers[name]
        if self.place(name).kind != "extern":
            self.emit(f"{self.whole(name)}.copy_({value})")
            return
        variable = self.extern_names.setdefault(name, f"e{len(self.extern_names)}")
        self.emit(f"{variable} = {value}")
        if not buffer.device:
            self.blocks.take(name, span_bytes(buffer))
        self._find_sizes(name, variable)
        shape, strides = dims(buffer.shape), dims(buffer.strides)
        dtype = f"torch.{buffer.dtype}"
        fits = f"{variable}.stride() == {strides} and {variable}.shape == {shape} and {variable}.dtype == {dtype}"
        if buffer.dtype.startswith("complex"):
            fits += f" and not {variable}.is_conj()"
        self.emit(f"if {variable} is None or not ({fits}):")
        self.emit(f"    {variable} = restride({variable}, {shape}, {strides}, {dtype})")
        if name in self.slot:
            self.emit(f"p[{self.slot[name]}] = {variable}.data_ptr()")

    def _draw(self, position: int) -> None:
        """Before a call that draws random numbers: past the last doubt it commits, until then generators are saved."""
        if position > self.last_doubt:
            self._commit()
        elif not self.saved and not self.committed:
            self.saved = True
            self.emit("generators = generator_states()")

    def _find_sizes(self, name: str, variable: str) -> None:
        """Sizes that the buffer is the first to have are known from here on, and what is assumed of them holds."""
        here = [(symbol, axis) for symbol, (buffer, axis) in self.program.found.items() if buffer == name]
        for symbol, axis in here:
            self.emit(f"{symbol} = {variable}.shape[{axis}]")
            self._set_size(symbol)
            self._bind_symbol(self.program.buffers[name].shape[axis], lambda: symbol, self.late)
        if not here:
            return
        unknown = {symbol for symbol in self.program.found if symbol not in self.found} - {symbol for symbol, _ in here}
        self.found |= {symbol for symbol, _ in here}
        for each in [each for each in self.assumed if unknown.isdisjoint(each.names)]:
            self.assumed.remove(each)
            where = f" at {each.location.file}:{each.location.line}" if each.location.file else ""
            message = f"a size that the contents of a tensor decide is not one of those with {each.text}{where}"
            self.emit(f"if not ({each.text}):")
            self.emit(f"    raise SizeNotAssumed({message!r})")
        for symbol, axis in here:
            # What made it a number may name a size that is found later.
            size = self.program.buffers[name].shape[axis]
            if isinstance(size, int):
                message = f"a size that the contents of a tensor decide is not {size}"
                self.emit(f"if {symbol} != {size}:")
                self.emit(f"    raise SizeNotAssumed({message!r})")

    def _allocate(self, names: Iterable[str]) -> None:
        """Makes buffers that no call of ATen makes and that steps need from here on: those whose size was found midway;
        on a GPU large ones, and results."""
        for name in names:
            place = self.place(name)
            if place.kind == "result" and self.streams and name not in self.made:
                self.made.add(name)
                self._make(f"r{place.index}", name)
            elif place.kind == "extern" and name not in self.extern_names:
                self.extern_names[name] = f"e{len(self.extern_names)}"
                self._make(self.extern_names[name], name)

    def _make(self, variable: str, name: str) -> None:
        """The tensor `variable` is memory for a buffer."""
        buffer = self.program.buffers[name]
        dtype = f"torch.{buffer.dtype}" if self.streams else f"dtype=torch.{buffer.dtype}"
        made = f"{dims(buffer.shape)}, {dims(buffer.strides)}, {dtype}"
        place = self.place(name)
        self.blocks.take(name, span_bytes(buffer), place.kind == "result")
        if self.may_pass and place.kind == "extern" and name not in self.returned:
            self.emit(f"{variable} = passing({self._pass(name, span_bytes(buffer))}, {made})")
        elif self.may_pass and place.kind == "result":
            self.given = True
            self.emit(f"{variable} = empty({made}) if given is None else given.pop({place.index})")
        else:
            self.emit(f"{variable} = empty({made})")
        if name in self.slot:
            self.emit(f"p[{self.slot[name]}] = {variable}.data_ptr()")

    def _pass(self, name: str, size_bytes: int) -> int:
        """Where the buffer lies while a graph is captured: in the first gap between those that are there now."""
        start = _aligned(self.program.workspace_bytes + SLACK_BYTES)
        for begin, end in sorted(self.passing.values()):
            if start + size_bytes + SLACK_BYTES <= begin:
                break
            start = max(start, end)
        end = _aligned(start + size_bytes + SLACK_BYTES)
        self.passing[name] = (start, end)
        self.captured_bytes = max(self.captured_bytes, end)
        return start

    def _check(self, step: Check) -> None:
        self.emit(f"if {self.first(step.buffer)}.item():")
        self.emit(f"    raise {step.error}({step.message!r})")


def _tensors_of(step: Extern) -> Iterator[str]:
    """Buffers among the arguments of a call."""
    pending: list[object] = [step.args, step.kwargs]
    while pending:
        value = pending.pop()
        if isinstance(value, TensorRef):
            yield value.buffer
        elif isinstance(value, (tuple, list)):
            pending.extend(value)


#: How the names of operators of ATen begin that raise for no contents and no arguments that a graph can have. The list
#: may be short of some: a generator is saved for nothing then.
_TOTAL = (
    "addmm", "mm", "baddbmm", "bmm", "addmv", "mv", "dot", "convolution", "mkldnn", "native_dropout", "_scaled_dot",
    "rand.", "rand_like", "randn", "randperm", "empty", "copy", "clone", "cumsum", "cumprod",
    "sort", "topk", "native_layer_norm", "native_batch_norm",
)  # fmt: skip


def _is_total(step: Extern) -> bool:
    space, _, name = step.op.partition("::")
    return space == "lampwork" or (space in ("aten", "mkldnn") and name.startswith(_TOTAL))


def _returns(step: Extern) -> bool:
    """Whether the call's results are tensors that ATen makes, not planned memory."""
    return step.out_variant is None and any(name is not None for name in step.outputs)


def span_bytes(buffer: Buffer) -> int:
    """Bytes the buffer spans; unknown sizes count as large."""
    if any(isinstance(value, SizeExpr) for value in (*buffer.shape, *buffer.strides)):
        return LARGE_BYTES
    return span(buffer.shape, buffer.strides) * ITEM_SIZE_BYTES[buffer.dtype]


def _aligned(offset_bytes: int) -> int:
    return -(-offset_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
