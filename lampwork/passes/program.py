"""The user's passes over a program before it is differentiated: what they leave is differentiated, by eager's autograd.

    %mul = mul(%x, %w)                          %mine = mine.scale(%x, %w)
    gradient of w = mul(tangent, %x)     ->     gradient of w = what was registered as the derivative of mine.scale

Capture records gradients while the program is recorded. So the program as it is after the passes is recorded once more,
with autograd above it, in place of the region's graph.

Non-goals: programs that return views of their arguments or write to tensors that require grad, and gradients that are
more than those of the program's operators (hooks, functions of the user's, checkpoints). They are refused, with why.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any, NoReturn

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.autograd.differentiate import differentiate
from lampwork.capture.record.recorder import Recorder
from lampwork.errors import GraphBreak, PassError
from lampwork.fakes.fake import Fake, TensorSpec, make_fake
from lampwork.graph.functionalize import functionalize
from lampwork.graph.simplify import (
    embed_literals,
    remove_dead,
    remove_no_ops,
    separate_outputs,
    share_repeated_work,
)
from lampwork.ir.differentiation import Joint
from lampwork.ir.location import Location
from lampwork.ir.passes import Passes
from lampwork.ir.region import FromGraph, FunctionalGraph, Region
from lampwork.passes.run import called, over_graphs

_STAGE = "program"


def before_differentiation(region: Region, passes: Passes, exact: bool) -> Region:
    """`region`, which is differentiated, after the passes of the stage "program". Raises `PassError`."""
    if not passes.program or region.joint is None:
        return region
    names = ", ".join(each.name for each in passes.program)
    why = _why_not(region, region.joint)
    if why:
        _refuse(names, why)
    program = functionalize(_without_gradients(region, region.joint))
    why = _why_not_pure(program)
    if why:
        _refuse(names, why)
    for shorten in (remove_dead, embed_literals, share_repeated_work, remove_no_ops, remove_dead):
        program = shorten(program)
    before = _calls(program)
    for each in over_graphs(passes, _STAGE):
        program = each(program)
    if _are(_calls(program), before):
        return region
    try:
        return _Recorded(region, separate_outputs(remove_dead(program)), exact).region()
    except PassError:
        raise
    except GraphBreak as stop:
        _refuse(names, f"what they leave cannot be differentiated: {stop.diagnostic.reason}")
    except Exception as error:  # of a derivative of the user's
        _refuse(names, f"what they leave raises {type(error).__name__}: {error}")


def _refuse(names: str, why: str) -> NoReturn:
    raise PassError(
        f"passes of the stage {_STAGE!r} ({names}) cannot run before this program is differentiated: {why}. Give them "
        "in the stage 'joint', where gradients are those of the program as it is written. See docs/passes.md."
    )


def _calls(program: FunctionalGraph) -> list[Any]:
    """The same objects as long as nobody edits the graph. Objects, not their ids: those of an edit may have them."""
    return [part for node in program.graph.nodes for part in (node, node.target, node.args, node.kwargs)]


def _are(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _why_not(region: Region, joint: Joint) -> str:
    """Why recording the program once more would leave something out; empty if it does not."""
    if region.own_gradients:
        return region.own_gradients
    if any(each.written for each in joint.outputs) or joint.moved or joint.granted:
        return "it changes tensors from outside that require grad"
    if any(each.kind not in ("plain", "output") for each in joint.made) or joint.hidden:
        return "it returns views"
    keys = [_torch.storage_key(each) for each in _placeholders(region) if isinstance(each, Fake)]
    if len(set(keys)) < len(keys):
        return "some of its arguments share memory"
    for node in region.graph.nodes:
        if node.meta.get("checkpoint"):
            return "it has checkpoints"
        if "gradient" in node.meta:
            return "it takes gradients itself"
    results = list(region.graph.nodes)[-1].args[0][: joint.results]
    return "a result keeps its gradient" if any(each.meta["val"].retains_grad for each in results) else ""


def _why_not_pure(program: FunctionalGraph) -> str:
    if program.rows or program.overlapping or program.derived or program.numbers:
        return "it writes to memory that several tensors share"
    if any(not isinstance(each, FromGraph) or each.view or each.dtype or each.conjugate for each in program.results):
        return "it returns views or arguments"
    return ""


def _placeholders(region: Region) -> list[Any]:
    nodes = [node for node in region.graph.nodes if node.op == "placeholder"]
    return [node.meta["val"] for node in nodes[: len(region.inputs)]]


def _without_gradients(region: Region, joint: Joint) -> Region:
    """The region as it was before its gradients were recorded, in a graph of its own."""
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    places = 0
    for node in region.graph.nodes:
        if node.op == "placeholder":
            places += 1
            if places > len(region.inputs):
                continue  # a tangent
        elif node.op == "output":
            graph.output(tuple(copies[each] for each in node.args[0][: joint.results]))
            break
        elif node.meta.get("backward") or any(each not in copies for each in node.all_input_nodes):
            continue
        copies[node] = graph.node_copy(node, copies.__getitem__)
    return replace(region, graph=graph, joint=None)


class _Recorded:
    """One recording of `program`, which takes the place of the graph of `before`."""

    def __init__(self, before: Region, program: FunctionalGraph, exact: bool) -> None:
        self.before, self.program = before, program
        self.location = Location()
        self.recorder = Recorder(lambda: self.location, exact=exact)
        if before.sizes is not None:
            self.recorder.sizes = before.sizes
        self.values: dict[Node, Any] = {}

    def region(self) -> Region:
        recorder, program, before = self.recorder, self.program, self.before
        nodes = list(program.graph.nodes)
        outputs = nodes[-1].args[0]
        for node in nodes:
            if node.op == "placeholder":
                self.values[node] = self.input(node)
        with recorder.recording(), torch.enable_grad(), _torch.without_autocast():
            for node in nodes:
                if node.op in ("call_function", "get_attr"):
                    self.values[node] = self.call(node)
            results = [self.values[outputs[each.index]] for each in program.results]  # type: ignore[union-attr]
            joint = differentiate(recorder, results)
            with torch.no_grad():  # after it: autograd has saved what such inputs held, as batch norms do
                for index, place in program.writes:
                    torch.ops.aten.copy_.default(recorder.inputs[index], self.values[outputs[place]])
        self.check(joint)
        return replace(
            before, graph=recorder.finish(results), joint=joint, input_values=tuple(recorder.inputs), sizes=before.sizes
        )

    def input(self, node: Node) -> Any:
        value = node.meta["val"]
        self.location = node.meta.get("location", Location())
        if not isinstance(value, Fake):
            self.recorder.integer(value)
            return value
        spec = TensorSpec(
            tuple(value.size()), tuple(value.stride()), value.dtype, value.device, value.requires_grad,
            value.storage_offset(), value.is_leaf, value.real_class,
        )  # fmt: skip
        return self.recorder.placeholder(make_fake(spec, source=value.lampwork_source))

    def call(self, node: Node) -> Any:
        if node.op == "get_attr":
            return self.recorder.constant(node.meta["constant"])
        self.location = node.meta.get("location", Location())
        with torch.set_grad_enabled(bool(node.meta.get("grad_enabled", True))):
            return called(node, self.values)

    def check(self, joint: Joint | None) -> None:
        """The same results are differentiated as before, with respect to the same inputs."""
        old = self.before.joint
        assert old is not None
        if joint is None or joint.made != old.made or joint.outputs != old.outputs:
            raise PassError(
                "passes of the stage 'program' leave results that are not differentiated as before: an operator of "
                "yours needs a derivative, by torch.library.register_autograd. See docs/passes.md."
            )
        if joint.wanted != old.wanted:
            missing = sorted(set(old.wanted) ^ set(joint.wanted))
            raise PassError(
                f"passes of the stage 'program' change which inputs have a gradient (numbers {missing} of the "
                "graph's): let the derivatives of your operators give one for each argument. See docs/passes.md."
            )
