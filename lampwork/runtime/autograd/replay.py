"""Runs the operators of a region, in eager: again and above autograd, or its backward half alone.

The compiled backward program has no derivative: gradients of gradients go through a `Replayed`. Where a backward pass
is asked for gradients that can be differentiated (`create_graph=True`), they are computed by eager from the region's
inputs, which makes that call of the backward pass as slow as eager's own, forward included; it is counted as a
fall-back. A backward program that fails is replaced by an `EagerHalf`, which reads what it read.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.replay import DETACH, Call, EagerBackward, Expression, Replay, Value
from lampwork.ir.size import evaluate
from lampwork.runtime.cache.codec import Decoder
from lampwork.runtime.launch.host import view


class Gone(Exception):
    """An input is no more what it was when the region ran; the text says how."""


class Kept:
    """The inputs of one call that a replay needs and autograd does not save: parameters, and what lives elsewhere.

    Memory is kept for as long as eager would: activations that nothing else saves are referred to weakly, but not those
    at the places `made`, which were made for the call: nobody else has them.
    """

    __slots__ = ("values", "versions")

    def __init__(self, values: Sequence[object], made: Collection[int] = ()) -> None:
        self.values = [value if place in made else _reference(value) for place, value in enumerate(values)]
        self.versions = [_version(value) for value in values]

    def get(self) -> list[Any]:
        """The values. Raises `Gone`."""
        found = []
        for held, version in zip(self.values, self.versions, strict=True):
            value = held() if type(held) is weakref.ref else held
            if value is None and type(held) is weakref.ref:
                raise Gone("an input of the region is freed; keep a reference to it")
            if _version(value) != version:
                raise Gone("an input of the region was changed in place since")
            found.append(value)
        return found


def _reference(value: object) -> Any:
    if isinstance(value, torch.Tensor) and not (value.is_leaf and value.requires_grad):
        return weakref.ref(value)
    return value


def _version(value: Any) -> int:
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


class Replayed:
    """A replay that can be run. `replay`: as a stored artifact holds it, or as it was made."""

    def __init__(self, replay: Replay | bytes) -> None:
        self.replay: Replay = Decoder(replay).next() if isinstance(replay, bytes) else replay

    def gradients(
        self, inputs: dict[int, Any], wanted: Sequence[int], tangents: Sequence[Any], history: bool = True
    ) -> list[Any]:
        """Gradients of the graph inputs `wanted`; `inputs`: values of graph inputs by index.

        None where an input is not reached. `history`: the gradients have one.
        """
        replay = self.replay
        with torch.enable_grad(), _torch.without_autocast():
            # As views, so that gradients stop at this region's inputs where one was computed from another.
            own = {index: _cut(inputs[index]) for index in replay.inputs}
            outputs = self.outputs(own)
            pairs = [
                (output, tangent)
                for output, tangent in zip(outputs, tangents, strict=True)
                if tangent is not None and output.requires_grad
            ]
            reached = [index for index in wanted if index in own and own[index].requires_grad]
            found: dict[int, Any] = {}
            if pairs and reached:
                gradients = torch.autograd.grad(
                    [output for output, _ in pairs], [own[index] for index in reached],
                    [tangent for _, tangent in pairs], create_graph=history, allow_unused=True,
                )  # fmt: skip
                found = dict(zip(reached, gradients, strict=True))
        return [found.get(index) for index in wanted]

    def outputs(self, inputs: dict[int, Any]) -> list[torch.Tensor]:
        """What the region's differentiated outputs were, computed by eager's operators."""
        replay = self.replay
        sizes = {
            name: int(inputs[index]) if dimension is None else inputs[index].shape[dimension]
            for name, index, dimension in replay.symbols
        }
        values = [inputs[index] for index in replay.inputs]
        values += [_torch.tensor_constant(*literal) for literal in replay.literals]
        for call in replay.calls:
            with torch.set_grad_enabled(call.grad):
                values.append(_run(call, values, sizes))
        return [values[index] for index in replay.outputs]


class EagerHalf:
    """A backward half that eager can compute. `half`: as a stored artifact holds it, or as it was made."""

    def __init__(self, half: EagerBackward | bytes) -> None:
        self.half: EagerBackward = Decoder(half).next() if isinstance(half, bytes) else half

    def gradients(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """What the backward program returns for these values of its inputs: tensors of their own."""
        half = self.half
        sizes = {
            name: int(inputs[index]) if dimension is None else inputs[index].shape[dimension]
            for name, index, dimension in half.symbols
        }
        with torch.no_grad(), _torch.without_autocast(), _torch.below_autograd():
            # Some operators look at requires_grad even below autograd.
            values: list[Any] = [each.detach() if isinstance(each, torch.Tensor) else each for each in inputs]
            values += [_torch.tensor_constant(*literal) for literal in half.literals]
            for call in half.calls:
                values.append(_run(call, values, sizes))
            made: dict[int, torch.Tensor] = {}
            found = []
            for result in half.results:
                tensor = values[result.index]
                if result.view is not None:
                    shape, strides, offset = _load([*map(list, result.view[:2]), result.view[2]], values, sizes)
                    dtype = getattr(torch, result.dtype) if result.dtype else tensor.dtype
                    tensor = view(tensor, dtype, shape, strides, offset)
                if result.conjugate:
                    tensor = tensor.conj()
                if result.view is not None or result.conjugate:
                    found.append(tensor.clone())
                    continue
                if result.index not in made:  # one value is one object, as the program returns it
                    made[result.index] = tensor.clone()
                found.append(made[result.index])
        return found


def _cut(value: object) -> Any:
    return value.view_as(value) if isinstance(value, torch.Tensor) else value


def _run(call: Call, values: list[object], sizes: dict[str, int]) -> Any:
    args = [_load(each, values, sizes) for each in call.args]
    if call.item is not None:
        return args[0][call.item]
    if call.op == DETACH:
        return args[0].data
    return _torch.overload(call.op)(*args, **{key: _load(each, values, sizes) for key, each in call.kwargs})


def _load(argument: object, values: list[object], sizes: dict[str, int]) -> Any:
    if isinstance(argument, Value):
        return values[argument.index]
    if isinstance(argument, Expression):
        return evaluate(argument.size, sizes)
    if isinstance(argument, list):
        return [_load(each, values, sizes) for each in argument]
    return argument
