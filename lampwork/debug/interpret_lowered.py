"""Runs a `Lowered` program slowly: nests by the interpreter of `ir`, externs by torch. For tests and bisection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lampwork import _torch
from lampwork.ir.attention import Attention
from lampwork.ir.dtype import FLOAT8, STORED
from lampwork.ir.interpret import interpret_nest, size_values
from lampwork.ir.loops import Expr, Load, LoopNest
from lampwork.ir.program import (
    Check,
    Extern,
    FromBuffer,
    FromInput,
    Lowered,
    ScalarResult,
    TensorRef,
    TorchConstant,
    ViewOfInput,
)
from lampwork.ir.size import SizeExpr, Symbol, linear_terms
from lampwork.ir.weighted_sums import WeightedSums, nests_of
from lampwork.runtime.launch.randomness import OPERATORS
from lampwork.runtime.launch.recurrent import OPERATORS as RECURRENT


def interpret_lowered(lowered: Lowered, inputs: Sequence[Any]) -> list[Any]:
    """The results of the program on `inputs` (tensors are written in place where the program writes inputs).

    Raises what a failed `Check` says, before anything is written to an input by a nest.
    """
    return _Run(lowered, inputs).run()


def sizes_of_inputs(lowered: Lowered, inputs: Sequence[Any]) -> dict[str, int]:
    """The value of every symbol that an input's size, stride or value says."""
    found: dict[str, int] = {}
    for name, value in zip(lowered.inputs, inputs):
        if isinstance(value, torch.Tensor):
            buffer = lowered.buffers[name]
            pairs = [*zip(buffer.shape, value.shape), *zip(buffer.strides, value.stride())]
        else:
            pairs = [(lowered.numbers[name], value)] if name in lowered.numbers else []
        for size, number in pairs:
            constant, terms = linear_terms(size)
            if len(terms) == 1 and isinstance(terms[0][1], Symbol):
                found.setdefault(terms[0][1].name, (number - constant) // terms[0][0])
    return found


class _Run:
    def __init__(self, lowered: Lowered, inputs: Sequence[Any]) -> None:
        self.lowered = lowered
        self.inputs = list(inputs)
        self.sizes: dict[str, int] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        for name, value in zip(lowered.inputs, inputs, strict=True):
            if isinstance(value, torch.Tensor):
                self.tensors[name] = value.detach()
        self.sizes.update(sizes_of_inputs(lowered, self.inputs))
        for name, (dtype, shape, data) in lowered.constants.items():
            flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
            self.tensors[name] = flat.view(getattr(torch, dtype)).reshape(shape)

    def run(self) -> list[Any]:
        for item in self.lowered.items:
            if isinstance(item, LoopNest):
                self.nest(item)
            elif isinstance(item, (Attention, WeightedSums)):
                self.attention(item)
            elif isinstance(item, Extern):
                self.extern(item)
            elif isinstance(item, Check):
                self.check(item)
        for write in self.lowered.writes:
            self.inputs[write.input].copy_(self.view(write.source))
        return [self.result(result) for result in self.lowered.results]

    def allocate(self, name: str) -> torch.Tensor:
        buffer = self.lowered.buffers[name]
        shape = [int(size_values(extent, self.sizes)) for extent in buffer.shape]
        strides = [int(size_values(step, self.sizes)) for step in buffer.strides]
        return torch.empty_strided(shape, strides, dtype=getattr(torch, buffer.dtype))

    def nest(self, nest: LoopNest) -> None:
        names = {nest.store.buffer} if nest.partial else set()
        for root in (nest.store.value, *[bound for _, bound in nest.store.indirect]):
            names |= _loaded(root)
        arrays = {name: _to_numpy(self.tensors[name]) for name in names}
        interpret_nest(nest, self.lowered.buffers, arrays, self.sizes)
        target = nest.store.buffer
        if target not in self.tensors:
            self.tensors[target] = self.allocate(target)
        dtype, made = self.tensors[target].dtype, torch.from_numpy(arrays[target].copy())
        self.tensors[target].copy_(made.view(dtype) if self.lowered.buffers[target].dtype in FLOAT8 else made.to(dtype))

    def attention(self, item: Attention | WeightedSums) -> None:
        nests, between = nests_of(item, self.lowered.buffers)
        outer = self.lowered
        self.lowered = replace(outer, buffers={**outer.buffers, **between})
        try:
            for nest in nests:
                self.nest(nest)
        finally:
            self.lowered = outer
            for name in between:
                self.tensors.pop(name, None)

    def view(self, ref: TensorRef) -> torch.Tensor:
        base = self.tensors[ref.buffer]
        whole = base if base.dtype == getattr(torch, ref.dtype) else base.view(getattr(torch, ref.dtype))
        resolve = lambda value: int(size_values(value, self.sizes))
        return whole.as_strided(
            [resolve(s) for s in ref.shape],
            [resolve(s) for s in ref.strides],
            base.storage_offset() + resolve(ref.offset),
        )

    def argument(self, value: Any) -> Any:
        if isinstance(value, TensorRef):
            return self.view(value)
        if isinstance(value, tuple):
            return [self.argument(item) for item in value]
        if isinstance(value, TorchConstant):
            return torch.device(value.name) if value.kind == "device" else getattr(torch, value.name)
        if isinstance(value, SizeExpr):
            return int(size_values(value, self.sizes))
        return value

    def extern(self, item: Extern) -> None:
        if item.out_variant in OPERATORS:
            (name,) = item.outputs  # they write to one
            assert item.out_variant is not None and name is not None
            out = self.allocate(name)
            self.tensors[name] = OPERATORS[item.out_variant](*[self.argument(v) for v in item.args], out=out)
            return
        if item.out_variant == _torch.LAUNCH_OUT:
            for name in item.outputs:
                if name is not None and name not in item.mutates:
                    self.tensors[name] = self.allocate(name)
            names = _torch.out_arguments(item.out_variant, len(item.outputs))
            outs = zip(names, [self.tensors[name] for name in item.outputs if name is not None], strict=True)
            _torch.direct_call(item.out_variant)(*[self.argument(v) for v in item.args], **dict(outs))
            return
        namespace, _, packet_name = item.op.partition("::")
        packet, _, overload = packet_name.partition(".")
        op = RECURRENT.get(item.op) or getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        results = op(*[self.argument(v) for v in item.args], **{k: self.argument(v) for k, v in item.kwargs})
        if not isinstance(results, (tuple, list)):
            results = (results,)
        for output, result in zip(item.outputs, results):
            if output is not None:
                self.tensors[output] = self.allocate(output).copy_(result)

    def check(self, item: Check) -> None:
        if bool(self.tensors[item.buffer].reshape(-1)[0]):
            raise IndexError(item.message) if item.error == "IndexError" else RuntimeError(item.message)

    def result(self, result: Any) -> Any:
        if isinstance(result, FromInput):
            return self.inputs[result.input]
        if isinstance(result, FromBuffer):
            made = self.view(result.view)
            return made.conj() if result.conjugate else made
        if isinstance(result, ViewOfInput):
            ref = TensorRef(
                self.lowered.inputs[result.input], result.dtype, result.shape, result.strides, result.offset
            )
            made = self.view(ref)
            return made.conj() if result.conjugate else made
        if isinstance(result, ScalarResult):
            return int(size_values(result.value, self.sizes))
        raise TypeError(f"not a result: {result!r}")


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Logical elements; bfloat16 as float32, float8 as bytes."""
    assert str(tensor.dtype).removeprefix("torch.") in STORED
    if str(tensor.dtype).removeprefix("torch.") in FLOAT8:
        tensor = tensor.view(torch.uint8)
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return tensor.resolve_conj().resolve_neg().contiguous().numpy().copy()


def _loaded(value: Expr) -> set[str]:
    if isinstance(value, Load):
        found = {value.buffer}
        for _, bound in value.indirect:
            found |= _loaded(bound)
        return found | (_loaded(value.mask) if value.mask is not None else set())
    found = set()
    for argument in getattr(value, "args", ()):
        found |= _loaded(argument)
    return found
