"""Runs a `Lowered` program: loop nests by numpy, calls of ATen by torch, in the order in which they are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from lampwork import _torch
from lampwork.debug.interpret.graphs import bind
from lampwork.debug.interpret.steps import CHECKED, OWN_OPERATORS
from lampwork.debug.interpret_lowered import _Run, _to_numpy
from lampwork.ir.dtype import FLOAT8, FLOATING
from lampwork.ir.interpret import interpret_nest, size_values
from lampwork.ir.kernel_interpret import KernelFault
from lampwork.ir.loops import Axis, Buffer, LoopNest
from lampwork.ir.program import Check, Extern, Lowered, TensorRef
from lampwork.ir.size import Size, symbols
from lampwork.schedule.copies import written_out
from lampwork.schedule.expressions import Pool, rewriter, substitute_sizes


def run_lowered(lowered: Lowered, inputs: list[object]) -> list[object]:
    """The results of the program, whose nests and calls run in the order in which they are there."""
    if lowered.copies:
        lowered = written_out(lowered, set(range(len(lowered.copies))))
    return Nests(lowered, inputs).run()


class Nests(_Run):
    """Buffers begin with what no program would compute."""

    def nest(self, nest: LoopNest) -> None:
        target, buffers = nest.store.buffer, self.lowered.buffers
        if target not in self.tensors:
            self.tensors[target] = self.allocate(target)
        names = {target, *nest.read}
        arrays = {name: _to_numpy(self.tensors[name]) for name in names}
        for each in _rectangular(nest):
            interpret_nest(each, buffers, arrays, self.sizes)
        made, kept = torch.from_numpy(arrays[target]), self.tensors[target]
        # Elements that share memory are equal, or the nest means nothing: the last of them is as good as any.
        made = made.view(kept.dtype) if buffers[target].dtype in FLOAT8 else made.to(kept.dtype)
        once = tuple(slice(0, 1) if step == 0 else slice(None) for step in kept.stride())
        if not torch.equal(made[once].expand_as(made).nan_to_num(), made.nan_to_num()):
            raise KernelFault(f"{target} has one place for different elements")
        kept[once].copy_(made[once])

    def allocate(self, name: str) -> torch.Tensor:
        made = super().allocate(name)
        dtype = self.lowered.buffers[name].dtype
        if dtype in FLOATING:
            return made.fill_(float("nan"))
        made.untyped_storage().fill_(0xFB if dtype != "bool" else 1)
        return made

    def view(self, ref: TensorRef) -> torch.Tensor:
        buffer = self.lowered.buffers[ref.buffer]
        if ref.buffer in self.tensors and self.tensors[ref.buffer].layout != torch.strided:
            return self.tensors[ref.buffer]  # packed weights
        if ref.buffer not in self.tensors and (0 in map(self.number, buffer.shape) or buffer.kind == "unwritten"):
            self.tensors[ref.buffer] = self.allocate(ref.buffer)  # no nest stores anything there
        return super().view(ref)

    def number(self, size: Size) -> int:
        return int(size_values(size, self.sizes))

    def extern(self, item: Extern) -> None:
        if item.out_variant is not None and item.out_variant.startswith("lampwork::"):
            super().extern(item)
            return
        op = OWN_OPERATORS.get(item.op) or _torch.direct_call(item.op)
        found = op(*[self.argument(v) for v in item.args], **{k: self.argument(v) for k, v in item.kwargs})
        results = found if isinstance(found, (tuple, list)) else (found,)
        for name, result in zip(item.outputs, results):
            if name is None:
                continue
            buffer = self.lowered.buffers[name]
            for symbol, (maker, axis) in self.lowered.found.items():
                if maker == name:
                    self.sizes[symbol] = result.shape[axis]
                    bind(buffer.shape[axis], result.shape[axis], self.sizes)
            self.tensors[name] = result if self.fits(result, buffer) else self.allocate(name).copy_(result)

    def check(self, item: Check) -> None:
        if bool(self.tensors[item.buffer].reshape(-1)[0]):
            raise CHECKED[item.error](item.message)

    def fits(self, result: torch.Tensor, buffer: Buffer) -> bool:
        strides = zip(result.shape, result.stride(), map(self.number, buffer.strides))
        return all(size == 1 or step == planned for size, step, planned in strides)


def _rectangular(nest: LoopNest) -> Iterator[LoopNest]:
    """The nest; where the extent of an axis depends on another one (a last piece is shorter), a nest for each value of
    that one."""
    axes = (*nest.axes, *(nest.reduction.axes if nest.reduction is not None else ()))
    used = {name for axis in axes for name in symbols(axis.extent)}
    outer = next((axis for axis in nest.axes if axis.name in used), None)
    if outer is None:
        yield nest
        return
    assert isinstance(outer.extent, int)
    for number in range(outer.extent):
        values = {outer.name: number}
        pool = Pool()
        rewrite = rewriter(
            pool, values,
            lambda load, index, indirect, mask: pool.load(load.buffer, index, load.dtype, indirect, mask, load.other),
        )  # fmt: skip
        at = lambda axis: Axis(axis.name, substitute_sizes(axis.extent, values))
        store = replace(
            nest.store,
            index=tuple(substitute_sizes(part, values) for part in nest.store.index),
            value=rewrite(nest.store.value),
        )
        reduction = nest.reduction and replace(nest.reduction, axes=tuple(map(at, nest.reduction.axes)))
        rest = tuple(at(axis) for axis in nest.axes if axis is not outer)
        yield from _rectangular(replace(nest, axes=rest, store=store, reduction=reduction, partial=True))
