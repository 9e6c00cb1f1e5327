"""Passes of the user's over graphs and programs: what they are given, what the verifier refuses, and what is stored."""

from __future__ import annotations

import operator
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.fx

import lampwork
from lampwork.config import make_settings, use_cache_dir
from lampwork.ir.program import Program

aten = torch.ops.aten


@torch.library.custom_op("test_passes::seen", mutates_args=())
def seen(x: torch.Tensor, name: str) -> None:
    SEEN.append((name, x.sum().item()))


SEEN: list[tuple[str, float]] = []
seen.register_fake(lambda x, name: None)


def program(x, w):
    return torch.relu(x @ w) + 1


def inputs(grad=False):
    torch.manual_seed(0)
    return torch.randn(4, 8), torch.randn(8, 8, requires_grad=grad)


def compiled(passes, function=program, **settings):
    return lampwork.compile(function, options={"passes": passes, "cache": False}, **settings)


def check(passes, grad=False, **settings):
    """The compiled function, after a call that gave eager's results and gradients."""
    made = compiled(passes, **settings)
    ours, theirs = inputs(grad), inputs(grad)
    got, want = made(*ours), program(*theirs)
    torch.testing.assert_close(got, want, check_stride=True)
    if grad:
        got.sum().backward(), want.sum().backward()
        torch.testing.assert_close(ours[1].grad, theirs[1].grad)
    assert lampwork.stats(made)["fallbacks"] == ()
    return made


def error(pass_, stage="forward"):
    made = compiled({stage: [pass_]})
    for _ in range(2):  # nothing is remembered that would run the call eagerly
        with pytest.raises(lampwork.PassError) as caught:
            made(*inputs())
    assert lampwork.stats(made)["fallbacks"] == ()
    return str(caught.value)


def node_of(graph, target):
    return next(node for node in graph.nodes if node.target is target)


def replaced(graph, target, new, *args, **kwargs):
    node = node_of(graph, target)
    with graph.inserting_before(node):
        made = graph.call_function(new, (*node.args, *args), kwargs)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return made


# What passes are given -------------------------------------------------------------------------------------------------


def test_stages_run_in_order_each_on_its_graph():
    told = []

    def note(stage):
        def look(graph):
            told.append((stage, [node.target for node in graph.nodes if node.op == "call_function"]))
            assert all(isinstance(node.meta["val"], torch.Tensor) for node in graph.nodes if node.op == "placeholder")

        return look

    programs = []
    passes = {stage: [note(stage)] for stage in ("backward", "forward", "joint")}
    check({**passes, "fused": [lambda each: programs.append(each)]}, grad=True)
    assert [stage for stage, _ in told] == ["joint", "forward", "backward"]
    joint, forward, backward = (targets for _, targets in told)
    assert joint.count(aten.mm.default) == 2 and forward.count(aten.mm.default) == backward.count(aten.mm.default) == 1
    assert aten.add.Tensor in forward and aten.add.Tensor not in backward
    assert len(programs) == 2 and all(isinstance(each, Program) for each in programs)


def test_a_program_that_is_not_differentiated_has_two_stages():
    told = []
    passes = {stage: [lambda graph, stage=stage: told.append(stage)] for stage in ("joint", "forward", "backward")}
    check(passes)
    assert told == ["joint", "forward"]


@pytest.mark.parametrize("stage", ["joint", "forward"])
@pytest.mark.parametrize("grad", [False, True])
def test_an_edit_is_compiled(stage, grad):
    def sigmoid_for_relu(graph):
        replaced(graph, aten.relu.default, aten.sigmoid.default)

    made = compiled({stage: [sigmoid_for_relu]})
    x, w = inputs(grad)
    torch.testing.assert_close(made(x, w), torch.sigmoid(x @ w) + 1)


def test_values_of_new_nodes_and_of_what_follows_are_made():
    values = []

    def add(graph):
        replaced(graph, aten.relu.default, aten.relu.default)

    def look(graph):
        values.extend(node.meta["val"].shape for node in graph.nodes if node.op == "call_function")

    check({"forward": [add, look]}, dynamic=True)
    assert len(values) == 3


def test_operators_made_of_others_are_written_out():
    def with_composites(graph):
        node = node_of(graph, aten.relu.default)
        with graph.inserting_after(node):
            flat = graph.call_function(aten.reshape.default, (node, [-1]))
        with graph.inserting_after(flat):
            parts = graph.call_function(aten.chunk.default, (flat, 2))
        with graph.inserting_after(parts):
            first = graph.call_function(operator.getitem, (parts, 0))
        with graph.inserting_after(first):
            second = graph.call_function(operator.getitem, (parts, 1))
        with graph.inserting_before(next(iter(user for user in node.users if user is not flat))):
            whole = graph.call_function(aten.cat.default, ([first, second],))
            whole = graph.call_function(aten.reshape.default, (whole, [4, 8]))
        node.replace_all_uses_with(whole, delete_user_cb=lambda user: user is not flat)

    found = []
    check({"forward": [with_composites, lambda graph: found.extend(node.target for node in graph.nodes)]})
    assert aten.reshape.default not in found and aten.chunk.default not in found and aten.cat.default in found


def test_another_graph_may_be_returned():
    def copied(graph):
        other = torch.fx.Graph()
        other.output(other.graph_copy(graph, {}))
        return other

    for stage in ("joint", "forward", "backward"):
        check({stage: [copied]}, grad=True, dynamic=True)


def test_an_operator_with_an_effect_stays():
    def watch(graph):
        node = node_of(graph, aten.relu.default)
        with graph.inserting_after(node):
            graph.call_function(torch.ops.test_passes.seen.default, (node, "relu"))

    SEEN.clear()
    made = check({"forward": [watch]})
    made(*inputs())
    x, w = inputs()
    assert [name for name, _ in SEEN] == ["relu", "relu"] and SEEN[0][1] == pytest.approx(
        torch.relu(x @ w).sum().item()
    )


def test_a_whole_step_is_given_to_passes():
    model, told = torch.nn.Linear(8, 4), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    made = compiled({stage: [lambda graph, stage=stage: told.append(stage)] for stage in ("joint", "forward")}, step)
    made(torch.randn(2, 8)), made(torch.randn(2, 8))
    assert told[:2] == ["joint", "forward"] and lampwork.stats(made)["fallbacks"] == ()


def test_numbers_of_eager_have_passes_too():
    told = []
    passes = {"forward": [lambda graph: told.append(graph)]}
    made = lampwork.compile(program, options={"passes": passes, "cache": False, "numerics": "eager"})
    x, w = inputs()
    assert torch.equal(made(x, w), program(x, w)) and told


def test_a_pass_that_changes_numbers_is_to_blame():
    def sigmoid_for_relu(graph):
        replaced(graph, aten.relu.default, aten.sigmoid.default)

    told = str(
        lampwork.verify(compiled({"forward": [lampwork.GraphPass(sigmoid_for_relu, name="sigmoids")]}), *inputs())
    )
    assert "pass sigmoids" in told


# What is refused -------------------------------------------------------------------------------------------------------


def test_what_a_pass_raises_is_raised_with_its_name():
    def broken(graph):
        raise KeyError("no such node")

    text = error(broken)
    assert "broken (stage 'forward') raised KeyError: 'no such node'" in text and "docs/passes.md" in text
    assert "broken (stage 'fused') raised KeyError" in error(broken, "fused")


def test_no_error_is_swallowed_where_gradients_are_taken():
    def broken(graph):
        raise ValueError("no")

    made = compiled({"backward": [broken]})
    with pytest.raises(lampwork.PassError, match=r"stage 'backward'"):
        made(*inputs(grad=True))


def no_overload(graph):
    replaced(graph, aten.relu.default, aten.relu)


def no_operator(graph):
    replaced(graph, aten.relu.default, torch.sigmoid)


def in_place(graph):
    replaced(graph, aten.relu.default, aten.relu_.default)


def another_type(graph):
    replaced(graph, aten.relu.default, aten._to_copy.default, dtype=torch.float64)


def other_strides(graph):
    node = node_of(graph, aten.add.Tensor)
    with graph.inserting_after(node):
        turned = graph.call_function(aten.t.default, (node,))
    with graph.inserting_after(turned):
        copied = graph.call_function(aten.clone.default, (turned,), {"memory_format": torch.contiguous_format})
    with graph.inserting_after(copied):
        back = graph.call_function(aten.t.default, (copied,))
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not turned)


def wrong_sizes(graph):
    node = node_of(graph, aten.mm.default)
    node.args = (node.args[1], node.args[0])


def wrong_order(graph):
    node = node_of(graph, aten.mm.default)
    node.append(node.args[0])


def no_results(graph):
    list(graph.nodes)[-1].args = ((),)


def fewer_placeholders(graph):
    first = next(iter(graph.nodes))
    with graph.inserting_after(first):
        made = graph.call_function(aten.full.default, ([4, 8], 1.0))
    first.replace_all_uses_with(made)
    graph.erase_node(first)


@pytest.mark.parametrize(
    ("pass_", "text"),
    [
        (lambda graph: "done", "returned 'done'"),
        (no_overload, "Name the overload, such as torch.ops.aten.relu.default"),
        (no_operator, "Name the overload, such as torch.ops.aten.sigmoid.default"),
        (in_place, "writes to its arguments"),
        (another_type, "made result 0 float64"),
        (other_strides, r"made result 0 float32[4, 8][1, 4]cpu, which was float32[4, 8][8, 1]cpu"),
        (wrong_sizes, "does not work"),
        (wrong_order, "left a graph that is none"),
        (no_results, "left other results than the 1"),
        (fewer_placeholders, "left other placeholders than the 2"),
        (lambda graph: graph.create_node("call_method", "relu", ()) and None, "Graphs hold calls of operators"),
    ],
)
def test_the_verifier_refuses(pass_, text):
    found = error(pass_)
    assert text in found and "stage 'forward'" in found and "docs/passes.md" in found


def test_draws_stay():
    def dropped(x):
        return torch.dropout(x, 0.5, True) * 2

    def without(graph):
        for node in graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                node.replace_all_uses_with(next(iter(graph.nodes)))
                graph.erase_node(node)
                return

    made = compiled({"forward": [without]}, dropped)
    with pytest.raises(lampwork.PassError, match="draws random numbers"):
        made(torch.randn(4))


def test_programs_are_verified():
    def fewer_steps(program):
        return replace(program, steps=program.steps[1:])

    def other_results(program):
        return replace(program, results=())

    assert "the verifier refuses" in error(fewer_steps, "fused")
    assert "Leave `results` as they are" in error(other_results, "fused")
    assert "returned 3" in error(lambda program: 3, "fused")
    check({"fused": [lambda program: replace(program)]}, dynamic=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([print], "must be a dict"),
        ({"before": [print]}, "no stage 'before'; stages: program, joint, forward, backward, fused"),
        ({"forward": print}, r"write \[print\]"),
        ({"forward": [3]}, "which cannot be called"),
        ({"forward": [lampwork.GraphPass]}, "give an instance"),
    ],
)
def test_options_are_checked(value, text):
    with pytest.raises(lampwork.OptionError, match=text):
        lampwork.compile(program, options={"passes": value})


def test_other_back_ends_have_no_passes():
    with pytest.raises(lampwork.OptionError, match="leave backend"):
        lampwork.compile(program, backend=lambda module, examples: module, options={"passes": {"forward": [print]}})


# Digests ---------------------------------------------------------------------------------------------------------------


def test_what_a_digest_is_made_of(tmp_path):
    file = tmp_path / "pass.py"
    file.write_text("one")
    before = lampwork.digest(file)
    assert before == lampwork.digest(str(file)) and before != lampwork.digest(file, 1e-5)
    file.write_text("two")
    assert before != lampwork.digest(file)
    assert lampwork.digest("a", "bc") != lampwork.digest("ab", "c")
    assert lampwork.digest(check) == lampwork.digest(Path(__file__))
    with pytest.raises(TypeError):
        lampwork.digest(object())


class OfPyTorch:
    """As PyTorch's `CustomGraphPass`."""

    def __init__(self, told):
        self.told = told

    def __call__(self, graph):
        pass

    def uuid(self):
        return self.told


def test_a_pass_of_pytorch_says_its_digest():
    def digest_of(*told):
        (row,) = make_settings(options={"passes": {"forward": [OfPyTorch(*told)]}}).options.passes.rows()
        return row[2]

    assert digest_of(b"1") == digest_of(b"1") != digest_of(b"2") and digest_of(None) == ""
    with pytest.raises(lampwork.OptionError, match="is no text, bytes or number"):
        digest_of(object())


def count_entries(passes, tmp_path):
    """(captured, taken from the cache) by a compiled function that has seen nothing yet."""
    with use_cache_dir(str(tmp_path)):
        made = lampwork.compile(program, options={"passes": passes})
        torch.testing.assert_close(made(*inputs()), program(*inputs()))
        stats = lampwork.stats(made)
        return stats["captures"], stats["cache_hits"]


def of(digest, name="look"):
    return lampwork.GraphPass(lambda graph: None, name=name, digest=digest)


def test_entries_of_other_passes_are_never_shared(tmp_path):
    for passes in (
        {},
        {"forward": [of("1")]},
        {"forward": [of("2")]},
        {"joint": [of("1")]},
        {"fused": [of("1")]},
        {"forward": [of("1"), of("2")]},
        {"forward": [of("2"), of("1")]},
        {"forward": [of("1", "other")]},
    ):
        assert count_entries(passes, tmp_path) == (1, 0)
        assert count_entries(passes, tmp_path) == (0, 1)


def test_without_a_digest_nothing_is_stored(tmp_path):
    passes = {"forward": [lambda graph: None], "joint": [of("1")]}
    assert count_entries(passes, tmp_path) == count_entries(passes, tmp_path) == (1, 0)
    with use_cache_dir(str(tmp_path)):
        made = lampwork.compile(program, options={"passes": passes})
        made(*inputs())
    assert any("has no digest" in note for note in lampwork.stats(made)["cache_notes"])


def test_saved_files_have_digests(tmp_path):
    path = tmp_path / "program.lamp"
    first = compiled({"forward": [of("1")]})
    first(*inputs())
    lampwork.save(first, path)
    loaded = lampwork.load(path, program)
    loaded(*inputs())
    assert lampwork.stats(loaded)["captures"] == 0
    x, w = inputs()
    with warnings.catch_warnings(), pytest.raises(lampwork.PassError, match=r"look \(stage 'forward'\).*passes="):
        warnings.simplefilter("ignore")
        loaded(x.double(), w.double())
    with pytest.raises(lampwork.ArtifactError, match="made with other passes"):
        lampwork.load(path, program, passes={"forward": [of("2")]})
    again = lampwork.load(path, program, passes={"forward": [of("1")]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again(x, w), again(x.double(), w.double())
    assert lampwork.stats(again)["captures"] == 1


def test_a_pass_without_digest_is_in_no_file(tmp_path):
    made = compiled({"forward": [lambda graph: None]})
    made(*inputs())
    with pytest.raises(lampwork.ArtifactError, match="has no digest"):
        lampwork.save(made, tmp_path / "program.lamp")


def test_packages_name_the_passes_that_they_were_made_with(tmp_path):
    made = compiled({"forward": [of("1")]})
    made(*inputs())
    lampwork.package(made, tmp_path / "program.lamp")
    assert b'"forward", "look"' in (tmp_path / "program.lamp").read_bytes().replace(b'","', b'", "')
    torch.testing.assert_close(lampwork.load(tmp_path / "program.lamp")(*inputs()), program(*inputs()))
