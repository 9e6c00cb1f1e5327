"""A fault in a stage is found, and that stage is named."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest
import torch

from lampwork import pipeline
from lampwork.graph import prepare
from lampwork.ir.loops import Constant, Loop, Store
from lampwork.ir.program import Placement
from tests.validation.compare import difference
from tests.validation.validate import validate

schedule_stage = importlib.import_module("lampwork.schedule.schedule")
segment_stage = importlib.import_module("lampwork.schedule.segment")


def program(x, y):
    a = torch.sin(x) @ y
    b = torch.cos(a) @ y
    return (a + b).sum(0), b * 2


def stage_found(function=program) -> str:
    with torch.no_grad():
        report = validate("program", function, [((torch.randn(5, 6), torch.randn(6, 6)), {})])
    assert len(report.differences) == 1
    return report.differences[0].stage


def test_nothing_is_found_where_nothing_is_wrong():
    with torch.no_grad():
        report = validate("program", program, [((torch.randn(5, 6), torch.randn(6, 6)), {})])
    assert not report.differences
    assert report.stages >= 7
    assert not report.undecided


def test_a_wrong_graph_pass(monkeypatch):
    def wrong(functional):
        for node in functional.graph.nodes:
            if node.target is torch.ops.aten.cos.default:
                node.target = torch.ops.aten.sin.default
        return functional

    monkeypatch.setattr(prepare, "remove_no_ops", wrong)
    assert stage_found() == "graph: wrong"


def test_nests_in_a_wrong_order(monkeypatch):
    def writes(x, y):
        total = x.sum(1)
        x.add_(1)
        return total, y * 2

    def backwards(items, *rest):
        return list(range(len(items)))[::-1]

    monkeypatch.setattr(schedule_stage, "find_levels", backwards)
    monkeypatch.setattr(pipeline, "_verify_program", lambda *arguments: None)  # which sees it, too
    assert stage_found(writes) == "schedule: levels"


def test_groups_in_a_wrong_order(monkeypatch):
    fuse = segment_stage.fuse

    def wrong(*args):
        groups, refused = fuse(*args)
        return groups[::-1], refused

    def chain(x, y):
        return x.softmax(0).t().contiguous().softmax(0).sum(0), y

    monkeypatch.setattr(segment_stage, "fuse", wrong)
    monkeypatch.setattr(pipeline, "_verify_program", lambda *arguments: None)
    assert stage_found(chain) == "schedule: fuse"


def test_memory_that_is_used_twice(monkeypatch):
    place_buffers = schedule_stage.place_buffers

    def wrong(*args):
        placements, *rest = place_buffers(*args)
        moved = {
            name: Placement("workspace", 0, 0) if each.kind == "workspace" else each
            for name, each in placements.items()
        }
        return moved, *rest

    monkeypatch.setattr(pipeline, "_verify_program", lambda *arguments: None)
    monkeypatch.setattr(schedule_stage, "place_buffers", wrong)
    assert stage_found() == "schedule: places"


def test_wrong_machine_code(monkeypatch):
    generate = pipeline.generate

    def wrong(program, *rest):
        return generate(replace(program, kernels=tuple(map(spoiled, program.kernels))), *rest)

    monkeypatch.setattr(pipeline, "generate", wrong)
    assert stage_found() == "native"


def spoiled(kernel):
    """The kernel, whose last store of each loop stores zeros."""

    def changed(statement):
        if isinstance(statement, Loop):
            return replace(statement, body=tuple(map(changed, statement.body)))
        if isinstance(statement, Store) and statement.value.dtype == "float32":
            return replace(statement, value=Constant(0.0, "float32"))
        return statement

    return replace(kernel, body=tuple(map(changed, kernel.body)))


@pytest.mark.parametrize("place", [(0, 0), (2, 3)])
def test_one_small_wrong_element(place):
    """Next to large elements that are right."""
    expected = torch.tensor([[1e-3, 1.0, 2.0, 3.0]] * 2 + [[1e3, 1.0, -2.0, 1e-3]])
    exact = expected.double()
    found = expected.clone()
    found[place] += 2e-4
    assert difference(found, expected, exact)
    assert not difference(expected * (1 + 1e-7), expected, exact)
