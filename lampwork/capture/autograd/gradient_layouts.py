"""How eager lays out gradients: strides, and which of them are one object with a tangent or with each other.

Derivatives are eager's own, run on fakes, and fakes have eager's strides, so the gradients' fakes say it. That is for
tangents that are laid out as the outputs are. For others, such as a sum's, which is expanded, `relaid` runs the
operators of the region and the engine once more on fakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.autograd.derivatives import as_of_plain_tensors
from lampwork.capture.autograd.reached import reached_nodes
from lampwork.capture.record.recorder import Recorder
from lampwork.fakes.fake import Fake, FakeStorage, TensorSpec, make_fake
from lampwork.fakes.symbolic import sizes_of
from lampwork.ir.differentiation import GradientLayout
from lampwork.ir.replay import DETACH, Call, Expression, InputLayout, Replay, Value
from lampwork.ir.size import evaluate

#: Shape, strides, element type and device of a tangent; None where there is none.
TangentLayout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device] | None


def layouts_of(gradients: Sequence[Fake], tangents: Sequence[Fake | None]) -> tuple[GradientLayout, ...]:
    """The layouts of gradients that the engine gave for tangents."""
    places = {id(each): index for index, each in enumerate(tangents) if each is not None}
    seen: dict[int, int] = {}
    found = []
    for index, gradient in enumerate(gradients):
        same = seen.setdefault(id(gradient), index)
        found.append(
            GradientLayout(sizes_of(gradient.stride()), places.get(id(gradient), -1), same if same != index else -1)
        )
    return tuple(found)


def relaid(
    replay: Replay, wanted: Sequence[int], tangents: Sequence[TangentLayout], sizes: Mapping[str, int]
) -> tuple[GradientLayout | None, ...]:
    """The layouts of the gradients of graph inputs `wanted`, for tangents laid out so; None for those that there are
    not. `sizes`: the values of symbols."""
    recorder = Recorder()
    inputs = {
        index: _input(recorder, layout, sizes) for index, layout in zip(replay.inputs, replay.layouts, strict=True)
    }
    literals = [_torch.tensor_constant(*literal) for literal in replay.literals]
    with recorder.recording(), torch.enable_grad(), _torch.without_autocast():
        values: list[Any] = [inputs[index] for index in replay.inputs]
        values += map(recorder.constant, literals)
        for call in replay.calls:
            with torch.set_grad_enabled(call.grad):
                values.append(_run(call, values, sizes))
        pairs = []
        for output, layout in zip([values[index] for index in replay.outputs], tangents, strict=True):
            tangent = _tangent(recorder, layout) if layout is not None and output.requires_grad else None
            pairs.append((output, tangent))
        present = [(output, tangent) for output, tangent in pairs if tangent is not None]
        reached = [each for each in wanted if isinstance(inputs.get(each), Fake) and inputs[each].requires_grad]
        outputs = tuple(output for output, _ in present)
        edges = tuple(_edge(inputs[each]) for each in reached)
        with torch.no_grad(), as_of_plain_tensors(recorder, reached_nodes(outputs)):
            gradients = _torch.run_backward(
                outputs, tuple(tangent for _, tangent in present), True, False, edges, allow_unreachable=True,
                accumulate_grad=False,
            )  # fmt: skip
    found = {index: each for index, each in zip(reached, gradients) if each is not None}
    kept = [each for each in wanted if each in found]
    layouts = dict(zip(kept, layouts_of([found[each] for each in kept], [tangent for _, tangent in pairs])))
    recorder.release(False)
    numbers = {place: wanted.index(each) for place, each in enumerate(kept)}
    return tuple(_renumbered(layouts.get(each), numbers) for each in wanted)


def _renumbered(layout: GradientLayout | None, numbers: Mapping[int, int]) -> GradientLayout | None:
    if layout is None or layout.same < 0:
        return layout
    return GradientLayout(layout.strides, layout.tangent, numbers[layout.same])


def _input(recorder: Recorder, layout: InputLayout, sizes: Mapping[str, int]) -> Any:
    shape = tuple(evaluate(each, sizes) for each in layout.shape)
    if not layout.dtype:
        return shape[0]
    strides = tuple(evaluate(each, sizes) for each in layout.strides)
    spec = TensorSpec(
        shape, strides, getattr(torch, layout.dtype), torch.device(layout.device), layout.requires_grad,
        layout.offset, layout.is_leaf,
    )  # fmt: skip
    storage = FakeStorage(layout.storage_bytes, spec.device) if layout.storage_bytes else None
    return recorder.placeholder(make_fake(spec, storage=storage))


def _edge(fake: Fake) -> Any:
    return torch.autograd.graph.GradientEdge(fake.lampwork_edge, 0) if fake.lampwork_edge is not None else fake


def _tangent(recorder: Recorder, layout: Any) -> Fake:
    with recorder._paused():
        made = _torch.tensor_without_memory(Fake, *layout)
    return recorder.tangent(made)


def _run(call: Call, values: list[Any], sizes: Mapping[str, int]) -> Any:
    args = [_load(each, values, sizes) for each in call.args]
    if call.item is not None:
        return args[0][call.item]
    if call.op == DETACH:
        return args[0].data
    op, kwargs = _torch.overload(call.op), {key: _load(each, values, sizes) for key, each in call.kwargs}
    if op.namespace == _torch.GIVEN_NUMBERS:
        op, given, kwargs = _torch.some_numbers(op, tuple(args), kwargs)
        return op(*given, **kwargs)
    return op(*args, **kwargs)


def _load(argument: Any, values: list[Any], sizes: Mapping[str, int]) -> Any:
    if isinstance(argument, Value):
        return values[argument.index]
    if isinstance(argument, Expression):
        return evaluate(argument.size, sizes)
    if isinstance(argument, list):
        return [_load(each, values, sizes) for each in argument]
    return argument
