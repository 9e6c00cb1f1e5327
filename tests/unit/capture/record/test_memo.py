"""Calls that are alike are recorded from templates: the graph is the one that is recorded without."""

from __future__ import annotations

import pytest
import torch

from lampwork.capture.record import memo
from lampwork.capture.record.recorder import Recorder


def tensors(count=8, shape=(3, 4), dtype=torch.float32):
    return [torch.randn(shape).to(dtype) for _ in range(count)]


def recorded(program, inputs, plainly, monkeypatch):
    """What is known of the recording: nodes, their tensors, what is written."""
    followed = []
    with monkeypatch.context() as patch:
        if plainly:
            patch.setattr(memo.Alike, "call", lambda self, op, args, kwargs, plainly: plainly(op, args, kwargs))
        else:
            follow = memo.Template.follow
            patch.setattr(memo.Template, "follow", lambda self, *rest: followed.append(1) or follow(self, *rest))
        recorder = Recorder()
        fakes = [recorder.input(each) for each in inputs]
        with recorder.recording():
            try:
                results = program(fakes)
            except RuntimeError as error:
                return str(error), len(followed)
        graph = recorder.finish(results or [])
    found = []
    for node in graph.nodes:
        value = node.meta.get("val")
        about = None
        if isinstance(value, torch.Tensor):
            storage = next(other.name for other in graph.nodes if shares(other, value))
            about = value.dtype, tuple(value.size()), value.stride(), value.device, value.requires_grad, storage
        found.append((node.format_node(), about, {name: node.meta[name] for name in node.meta if name != "val"}))
    return (found, [each.untyped_storage()._cdata in recorder.written for each in fakes]), len(followed)


def shares(node, value):
    other = node.meta.get("val")
    return isinstance(other, torch.Tensor) and other.untyped_storage()._cdata == value.untyped_storage()._cdata


def same(program, inputs, monkeypatch, follows=True):
    with torch.no_grad():
        plain, _ = recorded(program, inputs, True, monkeypatch)
        found, followed = recorded(program, inputs, False, monkeypatch)
    assert found == plain
    assert bool(followed) == follows
    return found


def in_place(values):
    for one, other in zip(values[::2], values[1::2]):
        one.mul_(0.5).addcmul_(other, other, value=0.25)
        one.add_(other, alpha=2).div_(other.abs().sqrt_().add_(1e-8))


def on_lists(values):
    ours, theirs = values[::2], values[1::2]
    torch._foreach_lerp_(ours, theirs, 0.5)
    torch._foreach_addcdiv_(ours, theirs, torch._foreach_sqrt(theirs), [2.0] * len(ours))
    return torch._foreach_pow(ours, 2.0)


def one_tensor_twice(values):
    for number, each in enumerate(values):
        each.mul_(each if number % 2 else values[0])
        each.copy_(each + each)


def broadcasts(values):
    row = values[0].select(0, 0)
    return [each * row + values[1].select(1, 0).unsqueeze(1) for each in values]


def one_element(values):
    for each in values:
        each.select(0, 0).select(0, 0).add_(1)
        each.select(0, 0).mul_(2)


def constants_of_other_types(values):
    return [each + number for each, number in zip(values, (1, 1, 1, 1.0, 1.0, 1.0, True, True))]


def signed_zeros(values):
    return [each * number for each, number in zip(values, (0.0, -0.0) * 4)]


FOR_FLOATS = [in_place, on_lists]
FOR_ALL = [one_tensor_twice, broadcasts, constants_of_other_types, signed_zeros, one_element]


@pytest.mark.parametrize(
    ("dtype", "program"),
    [
        *((dtype, program) for dtype in (torch.float32, torch.bfloat16) for program in (*FOR_FLOATS, *FOR_ALL)),
        *((torch.int64, program) for program in FOR_ALL),
    ],
)
def test_same_graph(program, dtype, monkeypatch):
    same(program, tensors(dtype=dtype), monkeypatch)


def test_layouts_are_told_apart(monkeypatch):
    inputs = [each.t() if number % 3 else each.t().contiguous() for number, each in enumerate(tensors(12))]
    same(in_place, inputs, monkeypatch)


def test_the_default_type_counts(monkeypatch):
    def program(values):
        made = []
        for number, each in enumerate(values):
            torch.set_default_dtype(torch.float64 if number > 4 else torch.float32)
            made.append(each / 2)
        return made

    try:
        found, _ = same(program, tensors(dtype=torch.int64), monkeypatch)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {about[0] for text, about, _ in found if "div" in text and about} == {torch.float32, torch.float64}


def test_what_eager_refuses_is_refused_behind_templates(monkeypatch):
    inputs = tensors(6)
    flat = torch.randn(20)
    inputs += [flat[:12].view(3, 4), flat[4:16].view(3, 4)]
    assert "single memory location" in same(in_place, inputs, monkeypatch)
    inputs = [*tensors(6), torch.randn(3, 1), torch.randn(3, 4)]
    assert "broadcast shape" in same(in_place, inputs, monkeypatch)


def test_literals_are_not_taken_for_others(monkeypatch):
    def program(values):
        return [torch.tensor(number) * torch.tensor(2.0) for number in range(5)]

    same(program, tensors(1), monkeypatch, follows=False)
