"""Runs a scheduled program on memory that knows what was written: kernels by their interpreter, the rest by ATen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.debug.interpret.graphs import bind
from lampwork.debug.interpret.lanes import run_kernel
from lampwork.debug.interpret.memory import Block, Cells, strided_bytes
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.kernel_interpret import KernelFault
from lampwork.ir.loops import Buffer, Kernel, storage_numel
from lampwork.ir.program import (
    Check,
    Extern,
    FromBuffer,
    FromInput,
    Launch,
    Lowered,
    Placement,
    Program,
    Step,
    TensorRef,
    TorchConstant,
    ViewOfInput,
    launch_instances,
    step_buffers,
)
from lampwork.ir.record import record
from lampwork.ir.size import Size, SizeExpr, evaluate
from lampwork.runtime.launch import recurrent, strided
from lampwork.runtime.launch.randomness import OPERATORS
from lampwork.runtime.launch.unbacked_sizes import AssumptionFailed, SideNotAssumed

#: What a failed `Check` raises.
CHECKED = {"IndexError": IndexError, "RuntimeError": RuntimeError, "AssumptionFailed": AssumptionFailed,
           "SideNotAssumed": SideNotAssumed}  # fmt: skip

OWN_OPERATORS = {**OPERATORS, **recurrent.OPERATORS, **strided.OPERATORS}


@record(frozen=False)
class Steps:
    """What a scheduled program runs, before or after its buffers have places (`placements` None: before)."""

    kernels: Sequence[Kernel]
    steps: Sequence[Step]
    buffers: Mapping[str, Buffer]
    lowered: Lowered | Program
    placements: Mapping[str, Placement] | None = None
    arena: Sequence[Size] = ()
    workspace_bytes: int = 0


def run_steps(program: Steps, inputs: list[Any]) -> list[Any]:
    """The results of the program, which writes to `inputs`. Raises `KernelFault` for what no memory model allows."""
    return Execution(program, inputs).run()


def run_program(program: Program, inputs: list[Any]) -> list[Any]:
    return run_steps(
        Steps(program.kernels, program.steps, program.buffers, program, program.placements, program.arena,
              program.workspace_bytes),
        inputs,
    )  # fmt: skip


class Execution:
    def __init__(self, program: Steps, inputs: list[Any]) -> None:
        self.program, self.inputs = program, inputs
        self.lowered, self.buffers = program.lowered, program.buffers
        self.sizes: dict[str, int] = {}
        #: For each buffer its memory, and the byte where it begins there.
        self.places: dict[str, tuple[Block, int]] = {}
        self.shared: dict[int, Block] = {}
        self.kept: list[torch.Tensor] = []
        #: Packed weights, which only calls of ATen read.
        self.packed: dict[str, torch.Tensor] = {}
        self._take_inputs()
        self.workspace = Block.fresh(program.workspace_bytes)
        self.slots: dict[int, Block] = {}
        self.result_blocks: dict[int, Block] = {}
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        for number, step in enumerate(program.steps):
            for name in step_buffers(step):
                self.first.setdefault(name, number)
                self.last[name] = number
        for result in self.lowered.results:
            if isinstance(result, FromBuffer):
                self.last[result.view.buffer] = len(program.steps)
                self.first.setdefault(result.view.buffer, len(program.steps))
        self.live: dict[str, tuple[int, int]] = {}

    def _take_inputs(self) -> None:
        for name, value in zip(self.lowered.inputs, self.inputs):
            if isinstance(value, torch.Tensor) and value.layout != torch.strided:
                self.packed[name] = value
            elif isinstance(value, torch.Tensor):
                self.places.setdefault(name, (self.block_of(value), value.storage_offset() * value.element_size()))
                buffer = self.buffers.get(name)
                if buffer is not None:
                    for size, number in zip((*buffer.shape, *buffer.strides), (*value.shape, *value.stride())):
                        bind(size, number, self.sizes)
            elif name in self.lowered.numbers:
                bind(self.lowered.numbers[name], value, self.sizes)
        for name, (_, _, data) in self.lowered.constants.items():
            flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
            self.kept.append(flat)
            self.places[name] = (self.block_of(flat), 0)

    def block_of(self, tensor: torch.Tensor) -> Block:
        key = _torch.storage_key(tensor)
        if key not in self.shared:
            self.kept.append(tensor)
            self.shared[key] = Block.of(tensor)
        return self.shared[key]

    def number(self, size: Size) -> int:
        return evaluate(size, self.sizes)

    # The whole ------------------------------------------------------------------------------------------------------

    def run(self) -> list[Any]:
        for number, step in enumerate(self.program.steps):
            for name in step_buffers(step):
                if self.first[name] == number:
                    self.begin(name, step)
            if isinstance(step, Launch):
                self.launch(step)
            elif isinstance(step, Extern):
                self.extern(step)
            else:
                self.check(step)
            for name in dict.fromkeys(step_buffers(step)):
                if self.last[name] == number:
                    self.end(name)
        for name, first in self.first.items():
            if first == len(self.program.steps) and name not in self.places:
                self.begin(name, None)
        return [self.result(result) for result in self.lowered.results]

    def span_bytes(self, name: str) -> int:
        buffer = self.buffers[name]
        shape = [self.number(extent) for extent in buffer.shape]
        if 0 in shape:
            return 0
        steps = [self.number(stride) for stride in buffer.strides]
        return (1 + sum((extent - 1) * step for extent, step in zip(shape, steps))) * ITEM_SIZE_BYTES[buffer.dtype]

    def begin(self, name: str, step: Step | None) -> None:
        """The buffer gets its memory, which holds nothing."""
        if name in self.places or name in self.packed:
            return
        makes = isinstance(step, Extern) and step.out_variant is None and name in step.outputs
        if self.program.placements is None:
            if not makes:
                self.places[name] = (Block.fresh(self.span_bytes(name)), 0)
        else:
            placement = self.program.placements[name]
            if placement.kind == "extern":
                if makes:
                    return
                self.places[name] = (Block.fresh(self.span_bytes(name)), 0)
            elif placement.kind == "result":
                block = self.result_blocks.setdefault(placement.index, Block.fresh(self.span_bytes(name)))
                self.places[name] = (block, 0)
            elif placement.kind == "workspace":
                self.take(name, self.workspace, placement.offset_bytes, self.program.workspace_bytes)
            elif placement.kind == "arena":
                size = self.number(self.program.arena[placement.index])
                block = self.slots.setdefault(placement.index, Block.fresh(size))
                self.take(name, block, 0, size)
            else:
                raise KernelFault(f"{name} has no memory")
        if name in self.places and self.buffers[name].kind == "unwritten":
            block, start = self.places[name]
            block.defined[start : start + self.span_bytes(name)] = True

    def take(self, name: str, block: Block, start: int, limit: int) -> None:
        size = self.span_bytes(name)
        if start + size > limit:
            raise KernelFault(f"{name} of {size} bytes does not fit where it is planned")
        for other, (their_start, their_size) in self.live.items():
            if self.places[other][0] is block and start < their_start + their_size and their_start < start + size:
                raise KernelFault(f"{name} is planned over {other}, which is still needed")
        block.forget(start, size)
        self.live[name] = (start, size)
        self.places[name] = (block, start)

    def end(self, name: str) -> None:
        """Nobody needs the buffer any more; who reads it after this finds nothing."""
        if name in self.live:
            start, size = self.live.pop(name)
            self.places[name][0].forget(start, size)

    # Steps ----------------------------------------------------------------------------------------------------------

    def launch(self, step: Launch) -> None:
        kernel = self.program.kernels[step.kernel]
        for names, sizes in launch_instances(step, kernel):
            cells = []
            for _, name in zip(kernel.parameters, names, strict=True):
                buffer = self.buffers[name]
                block, start = self.places[name]
                cells.append(Cells(name, block, start, self.number(storage_numel(buffer)), buffer.dtype))
            numbers = {name: self.number(size) for name, size in zip(kernel.sizes, sizes, strict=True)}
            run_kernel(kernel, cells, numbers)

    def view(self, ref: TensorRef, reads: bool = False, writes: bool = False) -> torch.Tensor:
        if ref.buffer in self.packed:
            return self.packed[ref.buffer]
        block, start = self.places[ref.buffer]
        dtype = getattr(torch, ref.dtype)
        shape, strides = [self.number(s) for s in ref.shape], [self.number(s) for s in ref.strides]
        start += self.number(ref.offset) * dtype.itemsize
        made = torch.empty(0, dtype=dtype)
        if not block.tensor.untyped_storage().nbytes() or 0 in shape:
            return torch.empty_strided(shape, strides, dtype=dtype)
        made.set_(block.tensor.untyped_storage(), start // dtype.itemsize, shape, strides)
        if reads or writes:
            known = strided_bytes(block.defined, start, shape, strides, dtype.itemsize)
            if reads and not known.all():
                raise KernelFault(f"a call of ATen reads {ref.buffer} where nothing was written")
            if writes:
                for byte in range(dtype.itemsize):
                    strided_bytes(block.defined, start + byte, shape, strides, dtype.itemsize)[...] = True
        return made

    def whole(self, name: str) -> TensorRef:
        buffer = self.buffers[name]
        return TensorRef(name, buffer.dtype, buffer.shape, buffer.strides)

    def argument(self, value: Any) -> Any:
        if isinstance(value, TensorRef):
            return self.view(value, reads=True)
        if isinstance(value, tuple):
            return [self.argument(item) for item in value]
        if isinstance(value, TorchConstant):
            return torch.device(value.name) if value.kind == "device" else getattr(torch, value.name)
        if isinstance(value, SizeExpr):
            return self.number(value)
        return value

    def extern(self, step: Extern) -> None:
        arguments = [self.argument(value) for value in step.args]
        if step.out_variant is not None:
            names = _torch.out_arguments(step.out_variant, len(step.outputs))
            given = {name: self.argument(v) for name, v in step.kwargs if name not in _torch.DRAWN_LAYOUT}
            for name, output in zip(names, step.outputs, strict=True):
                given[name] = torch.empty(0) if output is None else self.view(self.whole(output), writes=True)
            places = {name: each.data_ptr() for name, each in given.items() if name in names}
            _operator(step.out_variant)(*arguments, **given)
            for name, output in zip(names, step.outputs):
                if output is not None and given[name].numel() and given[name].data_ptr() != places[name]:
                    raise KernelFault(f"{step.out_variant} moved its result {output}")
            return
        found = _operator(step.op)(*arguments, **{name: self.argument(value) for name, value in step.kwargs})
        results = found if isinstance(found, (tuple, list)) else (found,)
        for output, result in zip(step.outputs, results):
            if output is not None:
                self.bind(output, result)

    def bind(self, name: str, result: torch.Tensor) -> None:
        buffer = self.buffers[name]
        for symbol, (maker, axis) in self.lowered.found.items():
            if maker == name:
                self.sizes[symbol] = result.shape[axis]
                bind(buffer.shape[axis], result.shape[axis], self.sizes)
        shape, strides = [self.number(s) for s in buffer.shape], [self.number(s) for s in buffer.strides]
        if list(result.shape) != shape or str(result.dtype) != f"torch.{buffer.dtype}":
            raise KernelFault(
                f"{name}: ATen returned {result.dtype}{list(result.shape)}, planned was {buffer.dtype}{shape}"
            )
        if name in self.places:  # a result that lies in planned memory
            self.view(self.whole(name), writes=True).copy_(result)
            return
        if any(size != 1 and step != planned for size, step, planned in zip(shape, result.stride(), strides)):
            result = torch.empty_strided(shape, strides, dtype=result.dtype).copy_(result)
        self.places[name] = (self.block_of(result), result.storage_offset() * result.element_size())

    def check(self, step: Check) -> None:
        dtype = self.buffers[step.buffer].dtype
        if self.view(TensorRef(step.buffer, dtype, (), ()), reads=True).item():
            raise CHECKED[step.error](step.message)

    # Results --------------------------------------------------------------------------------------------------------

    def result(self, result: Any) -> Any:
        if isinstance(result, FromInput):
            return self.inputs[result.input]
        if isinstance(result, FromBuffer):
            if 0 not in [self.number(size) for size in self.buffers[result.view.buffer].shape]:
                made = self.view(result.view, reads=True)
            else:
                made = self.view(result.view)
            return made.conj() if result.conjugate else made
        if isinstance(result, ViewOfInput):
            name = self.lowered.inputs[result.input]
            ref = TensorRef(name, result.dtype, result.shape, result.strides, result.offset)
            made = self.view(ref)
            return made.conj() if result.conjugate else made
        return self.number(result.value)


def _operator(name: str) -> Any:
    return OWN_OPERATORS.get(name) or _torch.direct_call(name)
