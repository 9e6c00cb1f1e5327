"""Writes the host function of a program: Python text that fills a pointer table, runs kernels and calls ATen.

    program, native -> "def host(values, generation=None): ..."

`values[k]` is the tensor of input k. The text is complete but for the names that `runtime/launch/host.py` provides
(`idle`, `give`, `runs`, `operator`, ...), so it prints and reads as the program it is. Anything that can fail and be
repeated comes before `committed = True`; until then a failure is raised as `Rerun` and the caller may run the call
eagerly. Random numbers drawn while the program may still find that it does not serve the call are taken back then.

For `(x + 1) * 2` on 8 elements (on a GPU, `stream` stands for `threads()`, and what `run0` answers is looked at):

    SIZES = ()
    run0, = runs
    def host(values, generation=None):
        x0 = values[0]
        try:
            lease = idle()
        except LookupError:
            try:
                lease = new_lease()
            except Exception as error:
                raise Rerun from error
        committed = False
        try:
            p = lease.pointers
            p[0] = x0.data_ptr()
            r0 = empty((8,), (1,), dtype=torch.float32)
            p[1] = r0.data_ptr()
            run0(lease.address, lease.sizes_address, threads())
            return (r0,)
        except Exception as error:
            if committed:
                raise
            raise Rerun from error
        finally:
            give(lease)
"""

from __future__ import annotations

from collections.abc import Iterator

from lampwork.codegen.host_expressions import at_least_nothing, dims
from lampwork.codegen.host_steps import LARGE_BYTES, Steps, span_bytes
from lampwork.codegen.launch_sequences import launch_sequences
from lampwork.errors import CompileError
from lampwork.ir.program import Check, Extern, NativeCode, Program, device_index, raised_inputs
from lampwork.ir.size import SizeExpr, symbols


def host_source(
    program: Program,
    native: NativeCode,
    weights: frozenset[int] = frozenset(),
    owns_inputs: bool = False,
    poison: bool = False,
) -> str:
    """The text of the host function. Raises `CompileError` for a program that names a buffer without a place.

    `weights`: inputs that stay the same objects, at the same place in memory, while `generation` does. `owns_inputs`:
    the values come in a list that the function empties; memory that only it knew is free from its last use on.
    `poison`: planned memory is filled with NaN where nothing is in it.
    """
    return _HostWriter(program, native, weights, owns_inputs, poison).text()


class _HostWriter(Steps):
    """The whole: tables, what comes before the first step, the steps, results."""

    # The whole -------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        program = self.program
        self._sizes()
        self._pointers()
        self._result_storages()
        setup, self.lines = self.lines, []
        self._steps()
        steps, self.lines = self.lines, []
        self._arena()
        self._poison_all()
        setup += self.lines
        self.lines = []
        has_externs = any(isinstance(step, (Extern, Check)) for step in program.steps)
        if has_externs:
            steps = ["with below_autograd():", *("    " + line for line in steps or ["pass"])]
        rollback = self._rollback()
        if rollback:
            self.emit("if kept is not None:")
            self.emit(f"    rollbacks.proven.add({self._call_sizes()})")
        setup += self._out_operators()
        if self.out_operators and not self.always_checked:
            self.emit(f"lease.seen = {self._call_sizes()}")
        # Results without elements, which no step makes, of a size that was found midway.
        self._allocate(name for name in sorted(self.returned) if self.place(name).kind == "extern")
        raised = raised_inputs(program)
        if any(index in self.weights for index in raised):
            self.emit("increment_versions(lease.written)")
        written = [index for index in raised if index not in self.weights]
        if written:
            self.emit(f"increment_version({', '.join(map(self.input, written))})")
        self._return()
        body = ["given = given_results()"] * self.given + [*setup, *rollback, *steps, *self.lines]
        body = [*self._weights(), *body]
        unpack = [f"x{index} = values[{index}]" for index in sorted(self.used_inputs)]
        unpack += ["values.clear()"] * self.owns_inputs
        needs_lease = bool(self.views) or any("lease" in line for line in body)
        return "\n".join([*self._tables(), *self._frame(unpack, body, needs_lease)]) + "\n"

    def _return(self) -> None:
        """Lines that make the results, with the versions that eager's have."""
        program = self.program
        made = self.results(program.results)
        for pairs, untied in ((program.separate, "data"), (program.detached, "detach()")):
            for index, owner in pairs:
                if index != owner:
                    made[index] = f"with_version_of(own{owner}, {made[index]})"
                    continue
                self.emit(f"own{index} = {made[index]}.{untied}")
                made[index] = f"own{index}"
        for index in program.inference:
            made[index] = f"as_inference({made[index]})"
        for index, _ in program.versions:
            self.emit(f"made{index} = {made[index]}")
            made[index] = f"made{index}"
        if program.versions:
            names = "".join(f"{made[index]}, " for index, _ in program.versions)
            self.emit(f"set_versions(({names}), ({''.join(f'{version}, ' for _, version in program.versions)}))")
        self.emit(f"return ({''.join(f'{each}, ' for each in made)})")

    def _rollback(self) -> list[str]:
        """Lines that make the first run one that can be taken back, where it may fail with something written."""
        if not self.kept_inputs and not self.keeps_generators:
            return []
        tensors = "".join(f"{self.input(index)}, " for index in self.kept_inputs)
        return [f"kept = rollbacks.keep({self._call_sizes()}, ({tensors}), {self.keeps_generators})"]

    def _out_operators(self) -> list[str]:
        """Lines that take the operators which write to given tensors: checked ones until they have been seen to leave
        planned memory where it is, with the sizes of this call."""
        if not self.out_operators:
            return []
        which = "CHECKED" if self.always_checked else f"PLAIN if lease.seen == {self._call_sizes()} else CHECKED"
        return [f"{', '.join(self.out_operators.values())}, = {which}"]

    def _call_sizes(self) -> str:
        """The sizes that are known when the call begins, as a tuple."""
        return f"({''.join(name + ', ' for name in self.symbols)})"

    def _tables(self) -> Iterator[str]:
        program = self.program
        yield f"WORKSPACE_BYTES = {program.workspace_bytes}"
        if self.streams:
            yield f"CAPTURED_BYTES = {self.captured_bytes}  # workspace and large buffers, while a graph is captured"
            peaks = (self.blocks.peak, self.blocks.peak_with_results) if self.may_pass else (0, 0)
            yield f"ALLOCATED_BYTES = {peaks}  # at most at once, in large blocks: without results, with them"
        yield f"SIZES = {program.sizes!r}"
        rows = ", ".join(
            f"{self.slot[name]}: {place.offset_bytes}"
            for name, place in program.placements.items()
            if place.kind == "workspace" and name in self.slot
        )
        yield f"WORKSPACE_SLOTS = {{{rows}}}  # pointer table index: byte offset"
        rows = ", ".join(
            f"{self.slot[name]}: {name!r}"
            for name, place in program.placements.items()
            if place.kind == "constant" and name in self.slot
        )
        yield f"CONSTANT_SLOTS = {{{rows}}}"
        elsewhere = {
            name: program.buffers[name].device
            for name in program.constants
            if name in program.buffers and program.buffers[name].device
        }
        if elsewhere:
            yield f"ELSEWHERE = {elsewhere}  # constants on another device than the program's"
        if self.view_rows:
            yield "# Views of planned memory: (place, dtype, shape, strides, offset in bytes)"
            yield "VIEWS = ["
            yield from (f"    {row}," for row in self.view_rows)
            yield "]"
        else:
            yield "VIEWS = []"
        for name, variable in self.operators.items():
            yield f"{variable} = operator({name!r})"
        if self.out_operators:
            yield f"OUT = {tuple(self.out_operators)}  # operators and their arguments that are memory for results"
            yield "PLAIN = tuple(operator(name) for name, _ in OUT)"
            yield "CHECKED = checked(PLAIN, OUT)"

    def _frame(self, unpack: list[str], body: list[str], needs_lease: bool) -> Iterator[str]:
        runs = len(launch_sequences(self.program))
        if runs:
            yield "".join(f"run{index}, " for index in range(runs)) + "= runs"
        yield "def host(values, generation=None):"
        yield from ("    " + line for line in unpack)
        stream = "stream" if self.streams else ""
        if self.streams and (needs_lease or runs):
            yield f"    stream = current_stream({device_index(self.program.device)})"
        if needs_lease:
            yield "    try:"
            yield f"        lease = idle({stream})"
            yield "    except LookupError:"
            yield "        try:"
            yield f"            lease = new_lease({stream})"
            yield "        except Exception as error:"
            yield "            raise Rerun from error"
        rolls_back = bool(self.kept_inputs or self.keeps_generators)
        yield "    committed = False"
        if rolls_back:
            yield "    kept = None"
        if self.saved:
            yield "    generators = None"
        yield "    try:"
        if self.view_rows:
            yield "        w = lease.views"
        yield from ("        " + line for line in body)
        yield "    except Exception as error:"
        if self.out_operators:
            yield "        if isinstance(error, ResultMoved):"
            yield "            lease = None  # planned memory may lie elsewhere now"
        yield "        if committed:"
        if rolls_back:
            yield "            if kept is None:"
            yield "                raise"
            yield "            put_back(kept)"
        else:
            yield "            raise"
        if self.saved:
            yield "        if generators is not None:"
            yield "            restore_generators(generators)"
        yield "        raise Rerun from error"
        if needs_lease:
            yield "    finally:"
            if self.out_operators:
                yield "        if lease is not None:"
                yield "            give(lease)"
            else:
                yield "        give(lease)"

    # Before the first step -------------------------------------------------------------------------------------------

    def _sizes(self) -> None:
        """Bind every symbol to the input dimension that has it for a size."""
        unbound = set(self.program.sizes)
        for buffer in self.program.buffers.values():
            for size in (*buffer.shape, *buffer.strides):
                if isinstance(size, SizeExpr):
                    unbound |= symbols(size)
        unbound -= set(self.program.found)
        if not unbound:
            return
        for index, name in enumerate(self.program.inputs):
            if name in self.program.numbers:
                self._bind_symbol(self.program.numbers[name], lambda: self.input(index), unbound)
                continue
            buffer = self.program.buffers[name]
            for kind, extents in (("shape[{}]", buffer.shape), ("stride({})", buffer.strides)):
                for axis, size in enumerate(extents):
                    self._bind_symbol(size, lambda: f"{self.input(index)}.{kind.format(axis)}", unbound)
        for name, axis in self.program.found.values():
            self.late |= unbound & symbols(self.program.buffers[name].shape[axis])
        if unbound - self.late:
            raise CompileError("host", f"no input has the sizes {sorted(unbound - self.late)}")

    def _arena(self) -> None:
        """Memory whose size depends on the call's, and the views that depend on them: made anew when they change."""
        places = self.program.placements
        slots = [(self.slot[name], place.index) for name, place in places.items()
                 if place.kind == "arena" and name in self.slot]  # fmt: skip
        if not self.sized_views and not slots:
            return
        self.emit(f"if lease.key != ({''.join(name + ', ' for name in self.symbols)}):")
        self.emit("    lease.key = None")
        for number, size in enumerate(self.program.arena):
            start = f"a{number - 1} + n{number - 1}" if number else "0"
            self.emit(f"    a{number}, n{number} = {start}, {at_least_nothing(size)} + 63 & -64")
        if self.program.arena:
            last = len(self.program.arena) - 1
            self.emit(f"    base = arena(lease, a{last} + n{last})")
        for slot, number in slots:
            self.emit(f"    p[{slot}] = base + a{number}")
        views = "".join(f"{text}, " for text in self.sized_views)
        self.emit(f"    lease.sized = ({views})")
        self.emit(f"    lease.key = ({''.join(name + ', ' for name in self.symbols)})")
        if self.sized_views:
            self.emit("d = lease.sized")

    def _pointers(self) -> None:
        if self.slot:
            self.emit("p = lease.pointers")
        for index, name in enumerate(self.program.inputs):
            if name in self.slot and index not in self.weights:
                self.emit(f"p[{self.slot[name]}] = {self.input(index)}.data_ptr()")

    def _weights(self) -> list[str]:
        """Lines that fill in what stays the same from call to call, when it has changed."""
        lines = [
            f"    lease.pointers[{self.slot[name]}] = values[{index}].data_ptr()"
            for index, name in enumerate(self.program.inputs)
            if name in self.slot and index in self.weights
        ]
        if self.weight_views:
            lines.append(f"    lease.weights = ({''.join(view + ', ' for view in self.weight_views)})")
        written = [f"values[{index}], " for index in raised_inputs(self.program) if index in self.weights]
        if written:
            lines.append(f"    lease.written = with_versions(({''.join(written)}))")
        if not lines:
            return []
        lines = ["if generation is None or lease.generation is not generation:", *lines]
        lines.append("    lease.generation = generation")
        if self.weight_views:
            lines.append("u = lease.weights")
        return lines

    def _result_storages(self) -> None:
        for index, name in enumerate(self.program.result_storages):
            buffer = self.program.buffers[name]
            shape, strides = dims(buffer.shape), dims(buffer.strides)
            if self.streams:  # torch keeps memory of earlier results there, for all
                if name in self.accessed:  # made when it is first needed
                    continue
                self._make(f"r{index}", name)
                continue
            elif span_bytes(buffer) >= LARGE_BYTES:
                self.emit(f"r{index} = large({index}, {shape}, {strides}, torch.{buffer.dtype})")
            else:
                self.emit(f"r{index} = empty({shape}, {strides}, dtype=torch.{buffer.dtype})")
            if name in self.slot:
                self.emit(f"p[{self.slot[name]}] = r{index}.data_ptr()")

    # Steps -----------------------------------------------------------------------------------------------------------
