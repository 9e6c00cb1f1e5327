"""`lampwork.verify`: right programs are found right, wrong ones are blamed on the right pass, kernel, operator and line."""

from __future__ import annotations

import importlib
import inspect
import json

import pytest
import torch
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan

import lampwork
from lampwork import _torch, cli, pipeline
from lampwork.codegen.llvm import arithmetic
from lampwork.errors import OptionError
from lampwork.graph import prepare
from lampwork.ir.program import Placement
from lampwork.lower.rules import RULES

schedule_stage = importlib.import_module("lampwork.schedule.schedule")
segment_stage = importlib.import_module("lampwork.schedule.segment")


def program(x, y):
    a = torch.sin(x) @ y
    b = torch.cos(a) @ y
    return (a + b).sum(0), b * 2


def line_of(text, function=program):
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def verified(function=program, *args, **options):
    torch.manual_seed(0)
    with torch.no_grad():
        return lampwork.verify(function, *(args or (torch.randn(15, 16), torch.randn(16, 16))), **options)


def test_a_right_program():
    answer = verified()
    assert answer and answer.right and answer.blame is None and answer.wrong == ()
    assert {each.kind: each.values for each in answer.compared} == {"results": 2, "arguments": 2}
    assert sum(each.elements for each in answer.compared) == 16 + 15 * 16 + 15 * 16 + 16 * 16
    assert answer.graphs == 1 and answer.notes == ()
    assert "right" in str(answer)


def test_whole_training_steps_of_a_module():
    torch.manual_seed(0)
    layers = (
        torch.nn.Linear(6, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(8, 2),
    )
    module = torch.nn.Sequential(*layers)
    before = [value.clone() for value in module.state_dict().values()]
    answer = lampwork.verify(module, torch.randn(12, 6), steps=4, seeds=1)
    assert answer, str(answer)
    assert {each.kind for each in answer.compared} == {
        "results", "gradients", "buffers", "parameters", "states of optimizers", "arguments",
    }  # fmt: skip
    assert answer.losses.inside and len(answer.losses.ours) == 4 and len(answer.losses.seeds) == 1
    assert all(torch.equal(*pair) for pair in zip(before, module.state_dict().values())), "state is put back"
    assert all(value.grad is None for value in module.parameters())


def test_gradients_of_arguments():
    x = torch.randn(5, 4, requires_grad=True)
    answer = lampwork.verify(lambda x: x.softmax(1).square(), x, backward=True)
    assert answer and any(each.kind == "gradients" and each.elements == 20 for each in answer.compared)


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.yes, self.no = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, self.yes, lambda x: self.no(x).sin(), (x,)).square().sum()


def doubled_while_small(x):
    return torch.while_loop(lambda d: d["x"].sum() < 99, lambda d: ({"x": d["x"].abs() * 2 + 1},), ({"x": x},))[0]["x"]


def decayed(x):
    def turn(c, y):
        return torch.cond(y.sum() > 0, lambda c: torch.tanh(c + 1.5), lambda c: c * 0.5, (c,)), c * y

    return scan(turn, x[0], x, reverse=True)


def parts(x):
    return map_rows(lambda d, w: {"s": d["a"].sin() @ w}, {"a": x}, x.t() @ x)["s"].sum()


@pytest.mark.parametrize("function", [doubled_while_small, decayed, parts, Branches()])
def test_branches_and_loops(function):
    """What is in them is computed in float64, and off by roundings, too."""
    torch.manual_seed(0)
    for x in (torch.randn(3, 4), -torch.ones(3, 4), 1e3 * torch.ones(3, 4)):
        answer = lampwork.verify(function, x)
        assert answer and answer.blame is None and answer.graphs >= 1, str(answer)


def test_what_is_wrong_in_a_branch_is_seen(monkeypatch):
    monkeypatch.setitem(RULES, "aten::sin.default", lambda lowering, self: RULES["aten::cos.default"](lowering, self))
    answer = verified(lambda x: torch.cond(x.sum() > 9, lambda x: x * 2, lambda x: x.sin(), (x,)), -torch.ones(15, 16))
    assert not answer


def test_further_calls_are_served_by_the_same_entries():
    answer = verified(program, torch.randn(5, 6), torch.randn(6, 6), more=[(torch.randn(7, 6), torch.randn(6, 6))])
    assert answer and answer.calls == 2


def test_options_of_something_compiled(monkeypatch):
    seen = []
    monkeypatch.setattr(pipeline, "prepare", lambda region, settings, **rest: seen.append(settings) or prepare.prepare(region, settings, **rest))  # fmt: skip
    assert verified(lampwork.compile(program, options={"freeze": True}))
    assert seen and all(settings.options.freeze for settings in seen)


def test_a_program_that_runs_eagerly_says_so():
    answer = verified(lambda x, y: x + y.tolist()[0][0])
    assert answer and any("Not compiled" in note for note in answer.notes)


def test_arguments_are_checked():
    with pytest.raises(OptionError, match="steps must be a number"):
        lampwork.verify(program, steps=-1)
    with pytest.raises(TypeError):
        lampwork.verify(3)


# Blame ----------------------------------------------------------------------------------------------------------------


def test_a_pass_over_the_graph(monkeypatch):
    def remove_no_ops(functional):
        for node in functional.graph.nodes:
            if node.target is torch.ops.aten.cos.default:
                node.target = torch.ops.aten.sin.default
        return functional

    monkeypatch.setattr(prepare, "remove_no_ops", remove_no_ops)
    answer = verified()
    assert not answer and len(answer.wrong) == 2
    blame = answer.blame
    assert (blame.stage, blame.name) == ("graph", "remove_no_ops")
    assert blame.origin.node == "cos" and blame.origin.location.line == line_of("torch.cos")
    assert blame.where.startswith(__file__)


def test_a_rule_of_lowering(monkeypatch):
    monkeypatch.setitem(RULES, "aten::cos.default", lambda lowering, self: RULES["aten::sin.default"](lowering, self))
    blame = verified().blame
    assert (blame.stage, blame.name) == ("lower", "lower")
    assert blame.origin.op == "aten::cos.default" and blame.origin.location.line == line_of("torch.cos")


def test_the_rule_of_a_view_is_told_from_that_of_its_reader(monkeypatch):
    rule = RULES["aten::slice.Tensor"]
    wrong = lambda lowering, self, dim=0, start=None, end=None, step=1: rule(lowering, self, dim, 0, end - start, step)
    monkeypatch.setitem(RULES, "aten::slice.Tensor", wrong)

    def reads(x, y):
        a = torch.exp(x)
        return a[3:9].cos() * 2, y + 1

    blame = verified(reads).blame
    assert (blame.stage, blame.origin.op) == ("lower", "aten::slice.Tensor")
    assert (
        blame.origin.location.line == line_of("3:9", reads) and "test_verify" in blame.files[0]
    )  # the rule of this test


def test_the_order_of_nests(monkeypatch):
    def writes(x, y):
        total = x.sum(1)
        x.add_(1)
        return total, y * 2

    def backwards(items, *rest):
        return list(range(len(items)))[::-1]

    monkeypatch.setattr(schedule_stage, "find_levels", backwards)
    monkeypatch.setattr(pipeline, "_verify_program", lambda *arguments: None)  # which sees it, too
    blame = verified(writes).blame
    assert (blame.stage, blame.name) == ("schedule", "levels")
    assert "schedule/dependences.py" in blame.files


def test_places_in_memory(monkeypatch):
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
    blame = verified().blame
    assert (blame.stage, blame.name, blame.files) == ("schedule", "places", ("schedule/plan.py",))


def test_machine_code_of_one_kernel(monkeypatch):
    def folded(x):
        return (x * 2).cos() + 1, (x - 1).amax(1)

    literal = arithmetic.Arithmetic.identity
    monkeypatch.setattr(
        arithmetic.Arithmetic, "identity",
        lambda self, op, dtype, *rest: self.constant(0, dtype) if "max" in op else literal(self, op, dtype, *rest),
    )  # fmt: skip
    answer = verified(folded, -torch.rand(6, 50) - 1)
    assert [each.difference.name for each in answer.wrong] == ["result[1]"]
    blame = answer.blame
    assert (blame.stage, blame.name, blame.files) == ("generate", "kernel", ("codegen/llvm",))
    assert blame.kernel and blame.origin.op.startswith("aten::amax")
    assert blame.origin.location.line == line_of("amax", folded)


def test_the_function_that_runs_the_kernels(monkeypatch):
    def wrong(*args):
        text = host_source(*args)
        assert "return (r0, r1, )" in text
        return text.replace("return (r0, r1, )", "return (r0, r0, )")

    host_source = pipeline.host_source
    monkeypatch.setattr(pipeline, "host_source", wrong)
    answer = verified(lambda x, y: (x.exp() + 1, x.cos() * 2))
    assert not answer
    assert (answer.blame.stage, answer.blame.name) == ("host", "host")


def test_the_backward_half(monkeypatch):
    lower = pipeline.lower

    def wrong(functional, settings):
        for node in functional.graph.nodes:
            if "tanh_backward" in str(node.target):
                node.args = (node.args[1], node.args[0])
        return lower(functional, settings)

    monkeypatch.setattr(pipeline, "lower", wrong)
    x = torch.randn(5, 4, requires_grad=True)
    answer = lampwork.verify(lambda x: x.tanh().exp(), x, backward=True)
    assert not answer and answer.wrong[0].difference.name.startswith("gradient of argument 0")
    assert answer.blame.half == "backward" and answer.blame.stage == "lower"


def test_what_capture_got_wrong(monkeypatch):
    from lampwork.capture.record import recording

    dispatch = recording._Mode.__torch_dispatch__

    def wrong(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.cos.default:
            func = torch.ops.aten.sin.default
        return dispatch(self, func, types, args, kwargs)

    monkeypatch.setattr(recording._Mode, "__torch_dispatch__", wrong)
    blame = verified().blame
    assert (blame.stage, blame.name) == ("capture", "capture")
    assert "aten.cos.default" in blame.what and blame.origin.location.line == line_of("torch.cos")


def test_an_entry_that_served_a_call_it_was_not_made_for(monkeypatch):
    from lampwork.runtime.guards.tests.equality import EqualsRule

    def scaled(x, factor):
        return x * factor

    monkeypatch.setattr(EqualsRule, "emit", lambda self, writer, test, source: None)
    answer = verified(scaled, torch.ones(3), 2, more=[(torch.ones(3), 3)])
    assert answer.wrong[0].call == 1
    assert (answer.blame.stage, answer.blame.name) == ("capture", "guards")


def test_memory_of_a_result_that_is_taken_for_another(monkeypatch):
    @lampwork.disable
    def outside():
        pass

    def in_two_parts(x):
        first = x * 2
        outside()
        return first, first + 1

    monkeypatch.setattr(_torch, "storage_use_count_at", lambda pointer: 1)  # as if nobody used it
    blame = verified(in_two_parts, torch.randn(600, 600)).blame
    assert (blame.stage, blame.name, blame.files) == ("host", "memory", ("runtime/launch",))


def test_wrong_losses_are_outside_of_eagers_noise(monkeypatch):
    rule = RULES["aten::mul.Tensor"]
    scaled = lambda lowering, self, other: rule(lowering, self, other * 1.001 if other == 0.5 else other)
    monkeypatch.setitem(RULES, "aten::mul.Tensor", scaled)

    def step(x, w):
        loss = ((x @ w) * 0.5).square().mean()
        w.sub_(loss * 0.01)
        return loss

    torch.manual_seed(0)
    with torch.no_grad():
        answer = lampwork.verify(step, torch.randn(6, 5), torch.randn(5, 3), steps=3)
    assert not answer and not answer.losses.inside and answer.losses.outside[0] == 0
    assert answer.blame.stage == "lower" and answer.blame.origin.op == "aten::mul.Tensor"


# The command ----------------------------------------------------------------------------------------------------------

SCRIPT = """
import torch

def right(x):
    return x.softmax(-1) * 2
"""


def test_the_command(tmp_path, capsys):
    script = tmp_path / "script_to_verify.py"
    script.write_text(SCRIPT)
    target = f"{script}::right"
    page, data = tmp_path / "page.html", tmp_path / "data.json"
    arguments = ["verify", target, "--args", "torch.randn(4, 5)", "--html", str(page), "--json", str(data)]
    assert cli.main(arguments) == 0
    assert "right" in capsys.readouterr().out
    assert "Compared" in page.read_text()
    assert json.loads(data.read_text())["right"] is True
    assert cli.main(["verify", f"{script}::missing"]) == 2


def test_the_command_fails_where_numbers_are_wrong(tmp_path, capsys, monkeypatch):
    script = tmp_path / "script_that_is_wrong.py"
    script.write_text(SCRIPT)
    monkeypatch.setitem(RULES, "aten::mul.Tensor", lambda lowering, self, other: RULES["aten::add.Tensor"](lowering, self, other))  # fmt: skip
    assert cli.main(["verify", f"{script}::right", "--args", "torch.randn(4, 5)", "--json", "-"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["blame"]["operator"] == "aten::mul.Tensor" and told["blame"]["line"] == 5


def test_shapes_of_arguments_are_put_back():
    x = torch.randn(3, 4)
    with torch.no_grad():
        answer = lampwork.verify(lambda x: x.t_().mul_(2).unsqueeze_(0), x)
    assert answer and x.shape == (3, 4)
