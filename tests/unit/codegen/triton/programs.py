"""Programs through the GPU schedule: kernels run in Triton's interpreter, ATen calls on the CPU, compared with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from lampwork.codegen.triton.product import product_tilings
from lampwork.codegen.triton.source import kernel_source
from lampwork.config import Settings
from lampwork.debug.interpret_lowered import _Run
from lampwork.ir.alternative import Alternative, Choose
from lampwork.ir.dtype import FLOAT8
from lampwork.ir.kernel_verify import verify_program
from lampwork.ir.loops import Kernel
from lampwork.ir.program import Check, DeviceKernel, Extern, Launch, Lowered, Program, launch_instances
from lampwork.ir.size import evaluate
from lampwork.ir.target import Target
from lampwork.lower import lower
from lampwork.schedule import schedule
from tests.unit.codegen.triton.interpret import launch
from tests.unit.lower.graphs import _flatten, functional_graph

#: An H100, but with few multiprocessors: small tensors are cut as large ones would be.
TARGET = Target("sm_90", 16, 132, 227 << 10, 50 << 20, 50 << 20, device="cuda")


def program_of(function: Callable, arguments: Sequence[torch.Tensor], target: Target = TARGET) -> Program:
    return scheduled(lower(functional_graph(function, arguments), Settings()), target)


def scheduled(lowered: Lowered, target: Target = TARGET) -> Program:
    program = schedule(lowered, Settings(), target)
    verify_program(program)
    return program


def fuse_all(parts: Sequence[Sequence[Alternative]]) -> list[int]:
    """Chooses the alternatives with the fewest ATen calls."""
    return [min(range(len(part)), key=lambda number: len(part[number].calls)) for part in parts]


def fused_program(
    function: Callable, arguments: Sequence[torch.Tensor], target: Target = TARGET, choose: Choose = fuse_all
) -> Program:
    """The program in which `choose` decides what becomes of matrix products."""
    program = schedule(lower(functional_graph(function, arguments), Settings()), Settings(), target, choose)
    verify_program(program)
    return program


def sources(program: Program, target: Target = TARGET) -> list[DeviceKernel]:
    return [kernel_source(kernel, target) for kernel in program.kernels]


def product_sources(program: Program, target: Target = TARGET, place: int = 0) -> list[DeviceKernel]:
    """As `sources`, but products in tiling number `place` of those that would be measured."""
    found = []
    for kernel in program.kernels:
        tilings = product_tilings(kernel, target)
        tiling = tilings[min(place, len(tilings) - 1)] if tilings else None
        found.append(kernel_source(kernel, target, tiling=tiling))
    return found


def run_program(program: Program, inputs: Sequence[Any], target: Target = TARGET) -> list[Any]:
    return run_kernels(program, sources(program, target), inputs)


def run_kernels(program: Program, kernels: Sequence[DeviceKernel], inputs: Sequence[Any]) -> list[Any]:
    """Runs a program whose kernels have these texts."""
    return _ProgramRun(program, kernels, inputs).run()


class _ProgramRun(_Run):
    def __init__(self, program: Program, kernels: Sequence[DeviceKernel], inputs: Sequence[Any]) -> None:
        super().__init__(program, inputs)  # type: ignore[arg-type]  # a program has all that is read of a Lowered
        self.program = program
        self.kernels = kernels

    def run(self) -> list[Any]:
        for step in self.program.steps:
            if isinstance(step, Launch):
                self.launch(step)
            elif isinstance(step, Extern):
                self.extern(step)
            elif isinstance(step, Check):
                assert not bool(self.tensors[step.buffer].reshape(-1)[0]), step.message
        for result in self.program.results:
            view = getattr(result, "view", None)
            if view is not None and view.buffer not in self.tensors:
                self.tensors[view.buffer] = self.allocate(view.buffer)
        return [self.result(result) for result in self.program.results]

    def launch(self, step: Launch) -> None:
        kernel = self.program.kernels[step.kernel]
        if kernel.horizontal:
            self.launch_instances(step, kernel)
            return
        memory = self.memory(step.buffers)
        sizes = {name: evaluate(size, self.sizes) for name, size in zip(kernel.sizes, step.sizes)}
        launch(self.kernels[step.kernel], memory, sizes)

    def launch_instances(self, step: Launch, kernel: Kernel) -> None:
        """As the launch code does it, but that the table is filled by hand."""
        device = self.kernels[step.kernel]
        records, programs, behind = [], 0, []
        for buffers, sizes in launch_instances(step, kernel):
            memory = self.memory(buffers)
            behind += memory
            records.append([programs, *sizes, *(tensor.data_ptr() for tensor in memory)])
            programs += evaluate(device.grid[0], dict(zip(kernel.sizes, sizes)))
        table = torch.tensor(records, dtype=torch.int64).T.contiguous().flatten()
        launch(replace(device, grid=(programs,)), [table], {"rows": len(records)}, behind)

    def memory(self, buffers: Sequence[str]) -> list[torch.Tensor]:
        memory = []
        for name in buffers:
            if name not in self.tensors:
                self.tensors[name] = self.allocate(name)
                if self.tensors[name].is_floating_point():
                    self.tensors[name].fill_(float("nan"))
            tensor = self.tensors[name]
            if str(tensor.dtype).removeprefix("torch.") in FLOAT8:
                tensor = tensor.view(torch.uint8)
            last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride()))
            memory.append(tensor.as_strided((last + 1 if tensor.numel() else 0,), (1,)))
        return memory


def assert_like_eager(function: Callable, *arguments: torch.Tensor, target: Target = TARGET, **tolerances: float):
    """Runs `function` both ways; values, dtypes and strides must be eager's. Returns the program."""
    with torch.no_grad():
        expected = _flatten(function(*[argument.clone() for argument in arguments]))
    program = program_of(function, arguments, target)
    found = run_program(program, [copied(argument) for argument in arguments], target)
    compare(found, expected, **tolerances)
    return program


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides (`clone` makes a tensor with gaps contiguous)."""
    last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride())) if tensor.numel() else -1
    memory = tensor.as_strided((last + 1,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride())


def compare(found: Sequence[Any], expected: Sequence[torch.Tensor], **tolerances: float) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if theirs.numel() and not any(step == 0 for step in theirs.stride()):
            wide = [place for place, extent in enumerate(theirs.shape) if extent > 1]
            assert [ours.stride(k) for k in wide] == [theirs.stride(k) for k in wide]
        torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerances)
