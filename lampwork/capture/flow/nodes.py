"""Operators that run graphs, recorded and differentiated.

    cond         the derivative is a cond of the branches' derivatives, each of which runs its branch again
    scan         the derivative is a scan over the rows in reverse: it carries the gradients of what was carried and of
                 what all turns read, and gets what was carried into each turn, which the forward scan gives as rows

A body is differentiated by running its operators on tensors that require grad, with eager's own autograd, and the part
that was recorded so is cut out again. So derivatives are nodes of the same kinds, and are differentiated like them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.flow.bodies import Part, Refused, layout_of, recorded, replayed
from lampwork.fakes.fake import fake_like_view
from lampwork.fakes.shapes import Spec, contiguous, surely_same
from lampwork.ir.body import Body

aten = torch.ops.aten


def _values_of(nodes: Sequence[Node]) -> list[Any]:
    return [node.meta["val"] for node in nodes]


def _is_differentiated(tensors: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(each.requires_grad for each in tensors)


def one_history(recorder: Any, results: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """The results of what was recorded operator by operator, with the history of one operator, as eager has it: each of
    them requires grad where something that was given does, and what a result does not depend on gets zeros."""
    found = list(results)
    sources = [each for each in given if each.requires_grad] if torch.is_grad_enabled() else []
    edges = list(map(_edge, sources))
    missed: dict[int, set[int]] = {}
    for place, each in enumerate(found):
        if sources and _has_gradient(each):
            reached = _reached(each, set(edges))
            missed[place] = {index for index, edge in enumerate(edges) if edge not in reached}
    places = [place for place, others in missed.items() if others]
    others = sorted(set().union(*missed.values()))
    if places:
        made = _Depends.apply(
            recorder, len(places), *(found[place] for place in places), *(sources[each] for each in others)
        )
        for place, each in zip(places, made, strict=True):
            found[place] = each
    return found


def _edge(tensor: Any) -> tuple:
    """Where gradients of a tensor that requires grad go."""
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _reached(result: Any, ends: set[tuple]) -> set[tuple]:
    """Those of `ends` that gradients of the result come to."""
    seen: set[tuple] = set()
    pending = [_edge(result)] if result.requires_grad else []
    while pending:
        edge = pending.pop()
        if edge in seen:
            continue
        seen.add(edge)
        if edge not in ends:
            pending += [each for each in edge[0].next_functions if each[0] is not None]
    return seen & ends


class _Depends(torch.autograd.Function):
    """Copies of the first tensors, which depend on the others, too; these get zeros."""

    @staticmethod
    def forward(ctx: Any, recorder: Any, count: int, *tensors: Any) -> Any:
        ctx.save_for_backward(*tensors[count:])
        with torch.enable_grad():  # so it is written down: gradients flow through it
            return tuple(recorder.call(aten.clone.default, (each,), {}) for each in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        return (None, None, *tangents, *map(torch.zeros_like, ctx.saved_tensors))


def run(recorder: Any, name: str, args: Sequence[Any]) -> list[Any]:
    """What an operator that runs graphs gives of these arguments."""
    kind = name.partition("::")[2].partition(".")[0]
    found: list[Any] = _KINDS[kind](recorder, *args)
    return found


def _call(recorder: Any, kind: str, *args: Any) -> list[Any]:
    found: list[Any] = recorder.call(_torch.control_flow_operators()[kind], args, {})
    return found


class Derivative:
    """The part that gives gradients of a body's results, given tangents, with respect to its inputs."""

    def __init__(self, recorder: Any, body: Body, inputs: Sequence[Any], wanted: Sequence[bool]) -> None:
        self.recorder, self.wanted = recorder, wanted
        #: Whether the gradients are differentiated again.
        self.again = torch.is_grad_enabled()
        self.leaves = [_leaf(recorder, each, is_wanted) for each, is_wanted in zip(inputs, wanted, strict=True)]
        with torch.enable_grad():
            self.results = replayed(recorder, body, self.leaves, lambda name, args: run(recorder, name, args))

    def gradients(self, tangents: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
        """One for each input that is wanted, fresh; zeros where no result depends on it. `sums`: for each input what
        its gradient is added to, or None."""
        asked = [leaf for leaf, is_wanted in zip(self.leaves, self.wanted) if is_wanted]
        pairs = [(each, tangent) for each, tangent in zip(self.results, tangents, strict=True)
                 if tangent is not None and each.requires_grad]  # fmt: skip
        found: Sequence[Any] = [None] * len(asked)
        if pairs and asked:
            results, given = zip(*pairs)
            found = torch.autograd.grad(results, asked, given, allow_unused=True, create_graph=self.again)
        added = [each for each, is_wanted in zip(sums, self.wanted) if is_wanted]
        with torch.set_grad_enabled(self.again):
            return [self._sum(leaf, each, before) for leaf, each, before in zip(asked, found, added, strict=True)]

    def _sum(self, leaf: Any, gradient: Any, before: Any) -> Any:
        if gradient is None:
            return torch.zeros_like(leaf) if before is None else before.clone()
        if before is not None:
            gradient = before + gradient
        if not _is_dense(leaf) or surely_same(gradient.stride(), leaf.stride()):
            return gradient.clone()
        made = torch.empty_like(leaf)
        return made.copy_(gradient)


def _leaf(recorder: Any, tensor: Any, requires_grad: bool) -> Any:
    """The same tensor without a history. That is no operator: it would cut off second derivatives."""
    with recorder._paused():
        leaf = fake_like_view(tensor.detach(), tensor)
        leaf.requires_grad_(requires_grad)
    leaf.node = recorder.node_of(tensor)
    recorder.stand_ins.append(leaf)
    return leaf


def _is_dense(tensor: Any) -> bool:
    return surely_same(torch.empty_like(tensor).stride(), tensor.stride())


# Branches -----------------------------------------------------------------------------------------------------------


def cond(recorder: Any, pred: Any, inputs: Sequence[Any], yes: Body, no: Body) -> list[Any]:
    if not _is_differentiated((pred, *inputs)):
        return _call(recorder, "cond", pred, list(inputs), yes, no)
    return list(_Cond.apply(recorder, torch.is_grad_enabled(), yes, no, pred, *inputs))


class _Cond(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorder: Any, grad: bool, yes: Body, no: Body, pred: Any, *inputs: Any) -> Any:
        ctx.recorder, ctx.bodies = recorder, (yes, no)
        with torch.set_grad_enabled(grad):
            made = _call(recorder, "cond", pred, list(inputs), yes, no)
        ctx.save_for_backward(pred, *inputs)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        recorder = ctx.recorder
        pred, *inputs = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[5:])
        if not any(wanted):  # the predicate alone requires grad
            return (None,) * (5 + len(wanted))
        parts = []
        for body in ctx.bodies:
            with recorded(recorder) as part:
                part.differentiates = True
                found = Derivative(recorder, body, inputs, wanted).gradients(tangents, [None] * len(inputs))
                part.returns(found)
            parts.append(part)
        outside, bodies = cut(parts)
        gradients = iter(cond(recorder, pred, _values_of(outside), *bodies))
        return (None,) * 5 + tuple(next(gradients) if is_wanted else None for is_wanted in wanted)


def cut(parts: Sequence[Part], first: Sequence[Node] = ()) -> tuple[list[Node], list[Body]]:
    """The parts as bodies with the same inputs: those nodes outside that any of them reads."""
    outside = list(dict.fromkeys([*first, *(each for part in parts for each in part.outside())]))
    if any(set(part.nodes).intersection(outside) for part in parts):
        raise Refused("one part of it reads what another one has computed")
    bodies = [part.body(outside) for part in parts]
    for part in reversed(parts):
        part.discard()
    return outside, bodies


# Loops over rows ----------------------------------------------------------------------------------------------------


def scan(recorder: Any, carried: Sequence[Any], rows: Sequence[Any], inputs: Sequence[Any], body: Body) -> list[Any]:
    if not _is_differentiated((*carried, *rows, *inputs)):
        return _call(recorder, "scan", list(carried), list(rows), list(inputs), body)
    counts = len(carried), len(rows)
    return list(_Scan.apply(recorder, torch.is_grad_enabled(), counts, body, *carried, *rows, *inputs))


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorder: Any, grad: bool, counts: tuple[int, int], body: Body, *tensors: Any) -> Any:
        carried, rows, inputs = _split(tensors, counts)
        ctx.recorder, ctx.counts, ctx.body = recorder, counts, body
        with torch.set_grad_enabled(grad):
            made = _call(recorder, "scan", carried, rows, inputs, _with_carried(recorder, body, len(carried)))
        results, before = made[: len(body.results)], made[len(body.results) :]
        ctx.save_for_backward(*before, *carried, *rows, *inputs)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        recorder, body = ctx.recorder, ctx.body
        before, carried, rows, inputs = _split(ctx.saved_tensors, (ctx.counts[0], *ctx.counts))
        if torch.is_grad_enabled():  # what was carried has a history then
            turn = _with_carried(recorder, body, len(carried))
            before = scan(recorder, carried, rows, inputs, turn)[len(body.results) :]
        wants = list(ctx.needs_input_grad[4:])
        return (None,) * 4 + in_reverse(recorder, body, before, rows, inputs, tangents, wants)


def in_reverse(
    recorder: Any, body: Body, before: Sequence[Any], rows: Sequence[Any], inputs: Sequence[Any],
    tangents: Sequence[Any], wants: Sequence[bool],
) -> tuple:  # fmt: skip
    """The gradients of what a loop carries at first, of its rows and of what all turns read, None for those that are
    not wanted. `before`: what was carried into each turn, as rows."""
    count = len(before)
    wants_carried, wants_rows, wants_inputs = _split(wants, (count, len(rows)))
    flows = [_has_gradient(each) for each in before]
    given = [each for each, is_float in zip(tangents, flows) if is_float]
    stacked = list(tangents[count:])
    told = [index for index, each in enumerate(body.results[count:]) if _has_gradient(each)]
    turned = [each.flip(0) for each in (*before, *rows, *(stacked[index] for index in told))]
    starts = [*given, *(torch.zeros_like(each) for each, is_wanted in zip(inputs, wants_inputs) if is_wanted)]
    starts = [each if _is_dense(each) else each.contiguous() for each in starts]
    with recorded(recorder) as part:
        part.differentiates = True
        carried = [part.parameter(each) for each in starts]
        row = [part.parameter(row_of(each)) for each in turned]
        behind = iter(carried)
        flowing = [next(behind) if is_float else None for is_float in flows]
        sums = [next(behind) if is_wanted else None for is_wanted in wants_inputs]
        others: list[Any] = [None] * len(stacked)
        for place, index in enumerate(told):
            others[index] = row[count + len(rows) + place]
        state = [*row[: count + len(rows)], *inputs]
        derivative = Derivative(recorder, body, state, [*flows, *wants_rows, *wants_inputs])
        found = derivative.gradients([*flowing, *others], [*[None] * (count + len(rows)), *sums])
        first = sum(flows)
        of_rows = found[first : first + sum(wants_rows)]
        part.returns([*found[:first], *found[first + len(of_rows) :], *of_rows])
    outside, (turn,) = cut([part])
    _require_same_layouts(turn, len(starts))
    made = scan(recorder, starts, turned, _values_of(outside), turn)
    of_carried, of_inputs = iter(made[:first]), iter(made[first : len(starts)])
    turned_back = iter([each.flip(0) for each in made[len(starts) :]])
    carried_gradients = [next(of_carried) if is_float else None for is_float in flows]
    return (
        *[each if is_wanted else None for each, is_wanted in zip(carried_gradients, wants_carried)],
        *[next(turned_back) if is_wanted else None for is_wanted in wants_rows],
        *[next(of_inputs) if is_wanted else None for is_wanted in wants_inputs],
    )


def _has_gradient(fake: Any) -> bool:
    return bool(fake.dtype.is_floating_point or fake.dtype.is_complex)


def _split(values: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """So many values each, and the rest: what is carried, the rows, what all turns read."""
    rest, found = list(values), []
    for count in counts:
        found.append(rest[:count])
        del rest[:count]
    return [*found, rest]


def row_of(rows: Any) -> Layout:
    """A tensor like one of the rows, which is not recorded."""
    return Layout(tuple(rows.size()[1:]), tuple(rows.stride()[1:]), rows.dtype, rows.device)


class Layout:
    """What a tensor is like."""

    def __init__(self, size: tuple, stride: tuple, dtype: torch.dtype, device: torch.device) -> None:
        self._size, self._stride, self.dtype, self.device = size, stride, dtype, device

    def size(self) -> tuple:
        return self._size

    def stride(self) -> tuple:
        return self._stride


def _with_carried(recorder: Any, body: Body, count: int) -> Body:
    """The body, with what was carried into it as further results."""
    with torch.enable_grad(), recorded(recorder) as part:
        given = [part.parameter(each) for each in body.parameters]
        results = replayed(recorder, body, given, lambda name, args: run(recorder, name, args))
        part.returns([*results, *(each.clone() for each in given[:count])])
    outside, (made,) = cut([part])
    assert not outside, "a body reads nothing but what it is given"
    return made


def _require_same_layouts(body: Body, count: int) -> None:
    """Raises `Refused` where what is carried comes out of a turn otherwise than it goes in."""
    for given, made in zip(body.parameters[:count], body.results[:count], strict=False):
        if not same_layout(given, made):
            raise Refused("what is carried changes its shape, strides or type from turn to turn")


def same_layout(left: Any, right: Any) -> bool:
    return layout_of(left) == layout_of(right)


# Loops while something holds ----------------------------------------------------------------------------------------


def while_loop(recorder: Any, carried: Sequence[Any], inputs: Sequence[Any], test: Body, body: Body) -> list[Any]:
    if not _is_differentiated((*carried, *inputs)):
        return _call(recorder, "while_loop", list(carried), list(inputs), test, body)
    if not recorder.contents.allowed:
        raise Refused("a loop of as many turns as contents decide is differentiated inside of another")
    return list(_While.apply(recorder, torch.is_grad_enabled(), len(carried), test, body, *carried, *inputs))


class _While(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorder: Any, grad: bool, count: int, test: Body, body: Body, *tensors: Any) -> Any:
        carried, inputs = _split(tensors, (count,))
        ctx.recorder, ctx.count, ctx.body = recorder, count, body
        turns = recorder.contents.size()
        specs = [Spec(tuple(each.size()), tuple(each.stride()), each.dtype, each.device) for each in body.results]
        shapes = [(turns, *each.size()) for each in body.results]
        rows = [Spec(shape, contiguous(shape), each.dtype, each.device) for shape, each in zip(shapes, body.results)]
        operator = _torch.control_flow_operators()["while_rows"]
        with torch.set_grad_enabled(grad):
            made = recorder.contents.record(operator, (carried, inputs, test, body), {}, [*specs, *rows])
        ctx.save_for_backward(*made[count:], *inputs)
        return tuple(made[:count])

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        if torch.is_grad_enabled():
            raise Refused("a loop of as many turns as contents decide is differentiated twice")
        before, inputs = _split(ctx.saved_tensors, (ctx.count,))
        wants = list(ctx.needs_input_grad[5:])
        return (None,) * 5 + in_reverse(ctx.recorder, ctx.body, before, [], inputs, tangents, wants)


_KINDS: dict[str, Callable[..., list[Any]]] = {"cond": cond, "scan": scan, "while_loop": while_loop}
