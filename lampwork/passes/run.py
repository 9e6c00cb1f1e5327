"""Runs the user's passes, with a verifier after each: what it refuses is raised, and names the pass and the remedy.

A graph that a pass has edited must satisfy:

1. Placeholders are the same, in the same order.
2. Nodes call operators (`torch.ops.NAMESPACE.NAME.OVERLOAD`), or select one of several results; the graph is in order.
3. No operator writes to its arguments.
4. Operators that draw random numbers are those that were there, in their order; others may be added.
5. As many results as before, each with its type, sizes, strides and device.

What the pass left out, or what no longer fits, is made anew: `meta["val"]` of new nodes and of those that read them.
Operators that PyTorch has in terms of others are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.errors import OffsetError, PassError
from lampwork.fakes.evaluate import evaluate
from lampwork.fakes.fake import Fake, describe
from lampwork.fakes.operators import operator
from lampwork.graph.build import is_random, same_metadata, value_of
from lampwork.ir.kernel_verify import verify_program
from lampwork.ir.location import Location
from lampwork.ir.passes import Passes, UserPass
from lampwork.ir.program import Program
from lampwork.ir.region import FunctionalGraph
from lampwork.ir.size import Size
from lampwork.ir.verify import VerifyError
from lampwork.passes.copies import copy_into, replace_results
from lampwork.passes.trace import traced

Pass = Callable[[FunctionalGraph], FunctionalGraph]


def over_graphs(passes: Passes, stage: str) -> tuple[Pass, ...]:
    """The user's passes of a stage, as passes of the pipeline. Each raises `PassError` for what goes wrong in it."""
    return tuple(_pass(Refusal(each, stage), each) for each in getattr(passes, stage))


def _pass(refusal: Refusal, user: UserPass) -> Pass:
    def run(functional: FunctionalGraph) -> FunctionalGraph:
        return _run(refusal, user, functional)

    run.__name__ = f"pass {user.name}"  # as `lampwork.verify` calls it where it is to blame
    return run


class Refusal:
    """Raises `PassError` for one pass."""

    def __init__(self, user: UserPass, stage: str) -> None:
        self.where = f"pass {user.name} (stage {stage!r})"

    def failed(self, error: Exception) -> NoReturn:
        raise PassError(
            f"{self.where} raised {type(error).__name__}: {error}. Mend the pass, or leave it out of "
            "options={'passes': ...}; see docs/passes.md."
        ) from error

    def refused(self, what: str, remedy: str) -> NoReturn:
        raise PassError(f"{self.where} {what}. {remedy} See docs/passes.md.")


def _run(refusal: Refusal, user: UserPass, functional: FunctionalGraph) -> FunctionalGraph:
    before = _Before(functional.graph)
    try:
        returned = user.function(functional.graph)
    except PassError:
        raise
    except Exception as error:
        refusal.failed(error)
    graph = functional.graph
    if isinstance(returned, torch.fx.GraphModule):
        returned = returned.graph
    if isinstance(returned, torch.fx.Graph):
        graph = returned
    elif returned is not None and not isinstance(returned, int):  # some count what they have found
        refusal.refused(
            f"returned {returned!r:.200}", "A pass edits the graph that it is given, or returns another torch.fx.Graph."
        )
    _Verifier(graph, before, refusal).run()
    return replace(functional, graph=graph)


class _Before:
    """What a pass must leave as it was, and the values of nodes that it does not touch."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        nodes = list(graph.nodes)
        self.graph = graph
        self.placeholders = [node for node in nodes if node.op == "placeholder"]
        self.calls = {node: (node.target, node.args, node.kwargs) for node in nodes}
        self.metas = {node: dict(node.meta) for node in nodes}
        self.draws = [node for node in nodes if is_random(node)]
        self.results = [node.meta["val"] for node in nodes[-1].args[0]]

    def is_unchanged(self, node: Node) -> bool:
        target, args, kwargs = self.calls.get(node, (None, None, None))
        return node.target is target and node.args is args and node.kwargs is kwargs


class _Verifier:
    def __init__(self, graph: torch.fx.Graph, before: _Before, refusal: Refusal) -> None:
        self.graph, self.before, self.refused = graph, before, refusal.refused
        #: Nodes whose value is another one than it was.
        self.changed: set[Node] = set()
        #: Nodes that have been removed meanwhile.
        self.gone: set[Node] = set()

    def run(self) -> None:
        try:
            self.graph.lint()
        except Exception as error:
            self.refused(
                f"left a graph that is none: {str(error).partition(chr(10))[0]}",
                "Add nodes before those that read them, and erase last what is read.",
            )
        self.placeholders()
        for node in list(self.graph.nodes):
            if node in self.gone:
                continue
            if node.op == "call_function":
                self.call(node)
            elif node.op == "get_attr":
                self.literal(node)
            elif node.op not in ("placeholder", "output"):
                self.refused(
                    f"left {node.format_node()}",
                    "Graphs hold calls of operators: write graph.call_function(torch.ops.aten.relu.default, (x,)).",
                )
        self.draws()
        self.results()

    def placeholders(self) -> None:
        before = self.before.placeholders
        after = [node for node in self.graph.nodes if node.op == "placeholder"]
        if len(after) != len(before) or self.graph is self.before.graph and after != before:
            self.refused(
                f"left other placeholders than the {len(before)} that there were",
                "Leave them all, in their order; those that nobody reads cost nothing.",
            )
        for new, old in zip(after, before):
            new.meta = dict(self.before.metas[old])

    def literal(self, node: Node) -> None:
        meta = self.before.metas.get(node, node.meta)
        if not isinstance(meta.get("constant"), torch.Tensor) or not isinstance(meta.get("val"), Fake):
            self.refused(
                f"added {node.format_node()}, which names no tensor of the graph",
                "Make tensors by an operator, such as torch.ops.aten.full.default.",
            )
        node.meta.update(constant=meta["constant"], val=meta["val"])

    # Calls --------------------------------------------------------------------------------------------------------

    def call(self, node: Node) -> None:
        is_unchanged = self.before.is_unchanged(node)
        if is_unchanged and not any(each in self.changed for each in node.all_input_nodes):
            node.meta["val"] = self.before.metas[node]["val"]
            return
        kind = self.kind(node)
        if kind == "composite" and not is_unchanged:
            self.write_out(node)
        elif kind == "data-dependent":
            self.keep(node)
        else:
            self.evaluate(node)

    def kind(self, node: Node) -> str:
        target = node.target
        if target is _torch.getitem or target is _torch.tensor_constant:
            return "literal" if target is _torch.tensor_constant else "item"
        if not _torch.is_operator(target):
            self.refused(
                f"added {node.format_node()}, which is no operator",
                f"Name the overload, such as {_overload_of(target)}.",
            )
        kind = operator(target).kind
        if kind not in ("functional", "view", "composite", "data-dependent"):
            self.refused(
                f"added a call of {target}, which writes to its arguments",
                "Call an operator that returns what it makes; in a lampwork.Pattern it may write to what that made.",
            )
        return kind

    def evaluate(self, node: Node) -> None:
        try:
            args, kwargs = value_of(node.args), {key: value_of(each) for key, each in node.kwargs.items()}
            if node.target is _torch.getitem:
                value = args[0][args[1]]
            elif node.target is _torch.tensor_constant:
                value = node.meta["val"]
            else:
                value = evaluate(node.target, args, kwargs)
        except Exception as error:
            self.refused(f"added {node.format_node()}, which does not work: {error}", "Mend the arguments.")
        node.meta["val"] = value
        _fill(node)
        self.changed.add(node)

    def keep(self, node: Node) -> None:
        """Contents decide the sizes of its results, which have names already."""
        known = self.before.metas.get(node, node.meta).get("val")
        if known is None:
            self.refused(
                f"added a call of {node.target}, whose sizes depend on the contents of a tensor",
                "Call it in the program, where its result has a size.",
            )
        node.meta["val"] = known

    def write_out(self, node: Node) -> None:
        """In place of an operator that PyTorch has in terms of others, these: it may return a view of its argument."""
        leaves = node.all_input_nodes
        try:
            made = traced(
                lambda *tensors: called(node, dict(zip(leaves, tensors))), [value_of(each) for each in leaves]
            )
        except Exception as error:
            self.refused(f"added {node.format_node()}, which does not work: {error}", "Mend the arguments.")
        first = node.prev
        results = copy_into(self.graph, node, made, leaves, node)
        while first.next is not node:
            first = first.next
            self.changed.add(first)
        self.gone.update(each for each in node.users if made.many)
        replace_results(node, results, made.many)

    # What there was -----------------------------------------------------------------------------------------------

    def draws(self) -> None:
        after = [node for node in self.graph.nodes if is_random(node)]
        before: list[Any] = self.before.draws
        if self.graph is not self.before.graph:
            after, before = [node.target for node in after], [node.target for node in before]
        rest = iter(after)
        if not all(any(each is other for other in rest) for each in before):
            self.refused(
                "removed an operator that draws random numbers, or put them in another order",
                "Leave them: what is drawn after it would be other numbers.",
            )

    def results(self) -> None:
        *_, output = self.graph.nodes
        results = output.args[0] if output.op == "output" and output.args else None
        before = self.before.results
        if not isinstance(results, (tuple, list)) or len(results) != len(before):
            self.refused(
                f"left other results than the {len(before)} that there were", "Leave the output node as it is."
            )
        for place, (node, old) in enumerate(zip(results, before)):
            new = node.meta["val"] if isinstance(node, Node) else node
            if not isinstance(old, Fake):
                continue
            if not isinstance(new, Fake) or not same_metadata(new, old) or new.device != old.device:
                self.refused(
                    f"made result {place} {describe(new) if isinstance(new, Fake) else new}, which was {describe(old)}",
                    "Results keep their type, sizes, strides and device: convert or copy what takes their place.",
                )


def called(node: Node, values: dict[Node, Any]) -> Any:
    """The call of `node` with `values` in place of nodes."""
    args = torch.fx.node.map_arg(node.args, values.__getitem__)
    kwargs = torch.fx.node.map_arg(node.kwargs, values.__getitem__)
    return node.target(*_plain(args), **_plain(kwargs))


def _plain(value: Any) -> Any:
    """In lists, tuples and dicts of Python's own: operators do not look into those of `torch.fx`."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        found = [_plain(each) for each in value]
        return found if isinstance(value, list) else tuple(found)
    return value


def _fill(node: Node) -> None:
    """What a new node of the user's lacks: it stands for what its arguments come from."""
    for each in node.all_input_nodes:
        for name in ("location", "grad_enabled"):
            if name in each.meta:
                node.meta.setdefault(name, each.meta[name])
    node.meta.setdefault("location", Location())
    node.meta.setdefault("grad_enabled", False)


def _overload_of(target: object) -> str:
    if hasattr(target, "overloads"):
        return f"torch.ops.{target}.{target.overloads()[0]}"
    return f"torch.ops.aten.{getattr(target, '__name__', 'relu')}.default"


# Programs ------------------------------------------------------------------------------------------------------------


def run_over_program(passes: Sequence[UserPass], program: Program, facts: tuple[Size, ...]) -> Program:
    """The fused program after the user's passes of the stage "fused", each of which looks at it, or returns another one
    that is verified. `facts`: what guards say of sizes. Raises `PassError`."""
    for user in passes:
        refusal = Refusal(user, "fused")
        try:
            returned = user.function(program)
        except PassError:
            raise
        except Exception as error:
            refusal.failed(error)
        if returned is None or returned is program:
            continue
        if not isinstance(returned, Program):
            refusal.refused(
                f"returned {returned!r:.200}", "It returns nothing, or another lampwork.ir.program.Program."
            )
        for name in _KEPT:
            if getattr(returned, name) != getattr(program, name):
                refusal.refused(f"changed what the program's `{name}` are", f"Leave `{name}` as they are.")
        try:
            verify_program(returned, facts)
        except (VerifyError, OffsetError) as error:
            refusal.refused(f"returned a program that the verifier refuses: {error}", "Mend what the pass returns.")
        program = returned
    return program


#: What the host function and the caller rely on.
_KEPT = (
    "inputs", "results", "sizes", "device", "numbers", "written_inputs", "found", "assumed", "raised", "versions",
    "separate", "detached", "inference",
)  # fmt: skip
