"""Kernels one at a time: each is run by its interpreter and as machine code of its own, on the same memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lampwork.backends import backend_of
from lampwork.codegen.generate import generate
from lampwork.config import Settings
from lampwork.debug.interpret.memory import Block
from lampwork.debug.interpret.steps import Execution, Steps
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.location import Origin
from lampwork.ir.loops import Parameter, storage_numel
from lampwork.ir.program import Launch, Program, launch_instances
from lampwork.verification.judge import Difference
from lampwork.verification.operators import Found
from lampwork.verification.values import run_on

#: Roundings of its own and of elements like it that machine code may be off by from the interpreter, which adds in
#: another order. The first kernel beyond the largest is to blame; where there is none, beyond the next.
ROUNDINGS = (4096.0, 256.0, 32.0)


def wrong_kernel(program: Program, settings: Settings, inputs: list[Any]) -> Found | None:
    """The first kernel whose machine code differs from what its interpreter gives; None where none does: then what
    runs the kernels is wrong. CPU only. Kernels are run in the program's order on what the interpreters gave before."""
    if not backend_of(program.device).is_host:
        return None
    seen: list[tuple[float, Found]] = []

    def note(found: Found, times: float) -> None:
        seen.append((times, found))

    run_on(inputs, lambda own: _Compared(program, settings, own, note).run())
    for limit in ROUNDINGS:
        for times, found in seen:
            if times > limit:
                return found
    return None


class _Compared(Execution):
    def __init__(
        self, program: Program, settings: Settings, inputs: list[Any], note: Callable[[Found, float], None]
    ) -> None:
        steps = Steps(
            program.kernels, program.steps, program.buffers, program, program.placements, program.arena,
            program.workspace_bytes,
        )  # fmt: skip
        super().__init__(steps, inputs)
        self.whole_program, self.settings, self.note = program, settings, note

    def launch(self, step: Launch) -> None:
        from lampwork.pipeline import target_of

        names = list(dict.fromkeys(step.buffers))
        blocks = {id(block): block for block, _ in (self.places[name] for name in names)}
        before = {key: block.bytes.copy() for key, block in blocks.items()}
        super().launch(step)
        program = replace(
            self.whole_program, kernels=(self.whole_program.kernels[step.kernel],), steps=(replace(step, kernel=0),)
        )
        native = generate(program, self.settings, target_of(program.device))
        if not native.runs:
            return
        copies = {key: torch.from_numpy(_aligned(each, blocks[key])) for key, each in before.items()}
        pointers = (ctypes.c_void_p * len(native.buffer_order))()
        for place, name in enumerate(native.buffer_order):
            if name in self.places:
                block, start = self.places[name]
                pointers[place] = copies[id(block)].data_ptr() + start if id(block) in copies else None
        sizes = (ctypes.c_int64 * max(1, len(program.sizes)))(*[self.sizes.get(name, 0) for name in program.sizes])
        code = backend_of(program.device).launching.load(native)
        code.runs[0](ctypes.addressof(pointers), ctypes.addressof(sizes), torch.get_num_threads())
        self._compare(step, blocks, copies)

    def _compare(self, step: Launch, blocks: dict[int, Block], copies: dict[int, torch.Tensor]) -> None:
        """Notes how far what the kernel wrote is from what its interpreter wrote."""
        kernel = self.whole_program.kernels[step.kernel]
        for names, _ in launch_instances(step, kernel):
            for parameter, name in zip(kernel.parameters, names):
                if parameter.access == "read":
                    continue
                block, start = self.places[name]
                size = self.number(storage_numel(self.buffers[name])) * ITEM_SIZE_BYTES[parameter.dtype]
                interpreted = torch.from_numpy(block.bytes[start : start + size].copy())
                known = torch.from_numpy(block.defined[start : start + size].copy())
                found = copies[id(block)][start : start + size]
                times, what = _distance(parameter, name, found.clone(), interpreted, known)
                if times > 1:
                    origins = [each for each in step.origins if each.node == name.partition(".")[0]]
                    origin = (origins or list(step.origins) or [Origin("", "")])[-1]
                    self.note(Found(origin, what, kernel.name), times)


def _distance(
    parameter: Parameter, name: str, found: torch.Tensor, interpreted: torch.Tensor, known: torch.Tensor
) -> tuple[float, Difference]:
    """In roundings of an element and of those like it, and the worst element in words. All are bytes."""
    dtype = getattr(torch, parameter.dtype)
    mine, theirs = found.view(dtype), interpreted.view(dtype)
    where = known.view(-1, dtype.itemsize)[:, 0]
    if dtype.is_floating_point and dtype.itemsize > 1:
        eps = torch.finfo(dtype).eps
        own, other = mine.double(), theirs.double()
        size = torch.where(other.isfinite() & where, other.abs(), 0.0)
        typical = (size.square().sum() / where.sum().clamp_min(1)).sqrt()
        off = (own - other).abs() / (eps * (size + typical) + torch.finfo(dtype).tiny)
        same = (own == other) | (own.isnan() & other.isnan())
        off = torch.where(same | ~where, 0.0, off.nan_to_num(nan=float("inf")))
    else:
        if dtype.itemsize == 1:
            mine, theirs = found, interpreted
        off = torch.where((mine != theirs) & where, float("inf"), 0.0)
    if not off.numel() or not bool((off > 0).any()):
        return 0.0, Difference(name, "")
    place = int(off.argmax())
    text = f"machine code gives {mine[place].item()} at {place} of {len(mine)}, the kernel says {theirs[place].item()}"
    return float(off[place]), Difference(name, text, int((off > 1).sum()), len(mine))


def _aligned(data: np.ndarray, block: Block) -> np.ndarray:
    """A copy that begins as far from a line of 64 bytes as the block does."""
    rest = block.tensor.data_ptr() % 64
    made = np.empty(len(data) + 128, np.uint8)
    start = (rest - made.ctypes.data) % 64
    made[start : start + len(data)] = data
    return made[start : start + len(data)]
