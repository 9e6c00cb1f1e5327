"""The nodes of eager's autograd that stand for one call of a region.

    LampworkRegion            one node, where that is as good as eager's own nodes; else
    LampworkRegionResults     one for all results that lead to the same inputs, and free the same by a backward pass,
    LampworkRegionInputs      and one for all inputs that the same results lead to

Eager's engine runs all nodes that it can reach from the results that are differentiated, if need be with undefined
gradients: a hook on a leaf is called with None then, and a backward method of a user with zeros. So it may reach no
more of them by these nodes than by eager's own. And a pass frees what its nodes have saved: results that share no such
node are differentiated one after the other.

The backward program still runs once for all. The nodes of results keep the tangents that they are given. The nodes of
inputs run after them, since the engine takes first what was made last, and the first of these runs the program. Where
the engine runs one sooner (a program of several devices), the program runs for the tangents that there are: all that
lead to its inputs. What it reads is saved once, by a node that the engine does not know (`LampworkRegionSaved`).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch
from lampwork.ir.differentiation import Joint, Tangent
from lampwork.runtime.autograd.freed_history import SECOND_TIME
from lampwork.runtime.autograd.replay import Kept
from lampwork.runtime.launch.host import AssumptionFailed, Rerun

if TYPE_CHECKING:
    from lampwork.runtime.autograd.differentiate import Differentiated
    from lampwork.runtime.graphs.training_graphs import Memory, TrainingGraphs


class Call:
    """One call of the forward program, and what its backward needs beside saved tensors."""

    __slots__ = (
        "owner",
        "values",
        "generation",
        "results",
        "sizes",
        "layouts",
        "devices",
        "hooked",
        "kept",
        "versions",
        "kinds",
        "runner",
        "memory",
        "outputs",
        "saved",
        "freed",
        "input_nodes",
        "result_nodes",
        "passes",
    )

    def __init__(self, owner: Differentiated, values: Sequence[Any], generation: object) -> None:
        self.owner, self.values, self.generation = owner, values, generation
        self.results: Sequence[Any] = ()
        self.sizes: tuple[int, ...] = ()
        self.layouts: tuple[Tangent, ...] = ()
        self.devices: tuple[tuple[torch.dtype, torch.device], ...] = ()
        #: What hooks on saved tensors were handed: they may hand back others.
        self.hooked: tuple[Handed, ...] = ()
        self.kept: Kept | None = None
        #: Of saved tensors, where the backward pass may do without some.
        self.versions: tuple[int, ...] = ()
        #: Of saved tensors, where there are results whose gradients need none: they may be gone then.
        self.kinds: tuple[tuple[torch.dtype, torch.device], ...] = ()
        #: What runs the backward pass, and where its graph reads what the forward graph saved.
        self.runner: TrainingGraphs | None = None
        self.memory: Memory | None = None
        #: Where there are nodes for groups: the results, until these have them; the nodes; backward passes by number.
        self.outputs: Sequence[torch.Tensor] = ()
        #: Leads to what is saved.
        self.saved: torch.Tensor | None = None
        #: The groups of results that were differentiated, or share a node with one: the last pass that freed it.
        self.freed: dict[int, int] = {}
        self.input_nodes: tuple[weakref.ref[Any], ...] = ()
        self.result_nodes: tuple[weakref.ref[Any], ...] = ()
        self.passes: dict[int, Pass] = {}


class LampworkRegion(torch.autograd.Function):
    """One node for a whole region."""

    @staticmethod
    @_torch.hide_from_peer
    def forward(ctx: Any, run: Call, *tracked: torch.Tensor) -> Any:
        ctx.run = run
        owner, values = run.owner, run.values
        if owner.written:
            ctx.mark_dirty(*[values[index] for index in owner.written])
        return tuple(_run(ctx, run))

    @staticmethod
    @_torch.hide_from_peer
    def backward(ctx: Any, *tangents: Any) -> Any:
        run: Call = ctx.run
        owner = run.owner
        if all(each is None for each in tangents):  # eager would not run the nodes: what they saved may be gone
            _torch.release_saved_tensors(ctx)
            return (None,) * (1 + len(owner.tracked))
        found = _gradients(ctx, run, tangents, ctx.next_functions)
        return None, *found, *owner.no_gradients


def _run(ctx: Any, run: Call, for_groups: bool = False) -> list[torch.Tensor]:
    """Runs the forward program; what the backward program reads is saved in `ctx`. Returns the differentiated results.
    `for_groups`: the results get other nodes, which own what `ctx` saves. It may not own a result in turn: an alias of
    the same memory and version is saved in its place.
    """
    owner, values = run.owner, run.values
    joint, link = owner.joint, owner.link
    for index in owner.written:
        if values[index]._is_view():
            raise Rerun from AssumptionFailed("an input that is written, and differentiated, is a view")
    hooked = _torch.are_saved_tensors_hooked()
    token: tuple[torch.Tensor, ...] = ()
    if owner.graphs is None or hooked:
        results = owner.forward(values, run.generation)
    else:
        results, passed = owner.graphs.call(values, run.generation)
        if passed is not None:
            run.runner, run.memory = passed.runner, passed.memory
            token = (passed.token,) if passed.token is not None else ()
            del passed
    outputs = []
    for each in joint.outputs:
        output = values[each.index] if each.written else results[each.index]
        if not each.written and output._is_view():
            # What is saved of it is the same object: a write to the output is noticed by its version.
            output = _alone(output)
            results = [*results[: each.index], output, *results[each.index + 1 :]]
        outputs.append(output)
    run.results = results
    ctx.set_materialize_grads(False)
    run.sizes = tuple([results[index] for index in link.numbers])
    run.devices = tuple([(output.dtype, output.device) for output in outputs])
    if not owner.fixed:
        run.layouts = tuple([_layout(output) for output in outputs])
    saved = [values[index].detach() if index in joint.moved else values[index] for index in link.saved_inputs]
    if run.memory is None:
        saved += [results[index] for index in link.saved_results]
    else:
        saved += [results[index] for index in run.memory.watched]
        saved += token
    for place in link.unnoticed:
        if place < len(link.saved_inputs) or run.memory is None:
            saved[place] = saved[place].data
    if hooked:
        run.hooked = tuple([_handed(tensor) for tensor in saved])
    if link.checked:
        saved += owner.to_be_checked(values, results, outputs)
    if for_groups:
        saved = [each.detach() if any(each is other for other in outputs) else each for each in saved]
    if for_groups and run.memory is None and owner.groups is not None:
        if len(owner.reading) < len(owner.groups.results):
            run.kinds = tuple([(tensor.dtype, tensor.device) for tensor in saved[: len(link.saved)]])
    if owner.partial and run.memory is None and not hooked:
        run.versions = tuple([tensor._version for tensor in saved])
    ctx.save_for_backward(*saved)
    if owner.kept:
        run.kept = Kept([values[index] for index in owner.kept], owner.made_for_call)
    run.values = ()
    return outputs


def _unpacked(ctx: Any, run: Call, tangents: Sequence[Any]) -> list[torch.Tensor]:
    """What `ctx` has saved for the backward program. Raises eager's error where it is gone, or was written since and is
    needed for a tangent that is defined."""
    owner = run.owner
    if run.kinds and not any(tangents[index] is not None for index in owner.readers):
        return owner.zeros(run)  # what is saved may be gone
    try:
        saved = [] if owner.repeats and run.memory is None else list(ctx.saved_tensors)
    except RuntimeError:
        needed = owner.needed(ctx, run, tangents)
        if needed is None:
            raise
        saved = needed
    if owner.checked:
        del saved[-owner.checked :]
    if run.hooked:
        saved = [_handed_back(tensor, handed) for tensor, handed in zip(saved, run.hooked, strict=True)]
    return saved


def _gradients(
    ctx: Any, run: Call, tangents: Sequence[Any], edges: Sequence[Any], is_last: bool = True
) -> Sequence[Any]:
    """The gradients of the inputs that want one, None for undefined ones, from what `ctx` has saved. `edges`: the nodes
    that they go to. `is_last`: no other result will be differentiated with what is saved, unless the graph is
    retained."""
    owner = run.owner
    saved = _unpacked(ctx, run, tangents)
    if is_last:
        _torch.release_saved_tensors(ctx)  # from now on the list alone owns them, and the program empties it
    if any(each is not None and _torch.is_batched(each) for each in tangents):
        return owner.batched_gradients(run, saved, tangents)
    if torch.is_grad_enabled():
        leaves = [node.variable for node, _ in edges if hasattr(node, "variable")]
        return owner.differentiable_gradients(run, saved, tangents, leaves)
    return owner.arranged(owner.gradients(run, saved, tangents, is_last), tangents, run, edges)


@dataclass(frozen=True)
class Groups:
    """Which results lead to which inputs. `results`: groups of differentiated results; `inputs`: groups of places in
    `Joint.wanted`; `reached[k]`: the groups of inputs that group k of results leads to; `freed[k]`: the groups of
    results that cannot be differentiated after a pass for group k, which has freed what they need."""

    results: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[int, ...], ...]
    reached: tuple[tuple[int, ...], ...]
    freed: tuple[tuple[int, ...], ...]


def groups_of(joint: Joint) -> Groups | None:
    """None where one node will do, or a result is an input that is written."""
    if any(each.written for each in joint.outputs):
        return None
    inputs: dict[tuple[int, ...], list[int]] = {}
    for place, depends in enumerate(joint.depends):
        if depends:
            inputs.setdefault(tuple(sorted(depends)), []).append(place)
    results: dict[tuple[Any, Any], list[int]] = {}
    for index in range(len(joint.outputs)):
        leads_to = tuple([group for group, depends in enumerate(inputs) if index in depends])
        frees = frozenset().union(*(each for each in joint.freed if index in each))
        results.setdefault((leads_to, frees), []).append(index)
    if len(results) == 1 and all(joint.depends):
        return None
    return Groups(
        tuple(map(tuple, results.values())), tuple(map(tuple, inputs.values())),
        tuple([leads_to for leads_to, _ in results]),
        tuple([tuple([group for group, members in enumerate(results.values()) if members[0] in frees])
               for _, frees in results]),
    )  # fmt: skip


def apply_by_groups(run: Call, groups: Groups, tracked: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """What `LampworkRegion.apply` returns, with nodes for groups. Nodes that are made later run sooner."""
    anchor = torch.empty(0, device=tracked[0].device, requires_grad=True)
    run.saved = LampworkRegionSaved.apply(run, anchor)
    outputs, run.outputs = run.outputs, ()
    marks = [LampworkRegionInputs.apply(run, group, *[tracked[place] for place in places])
             for group, places in enumerate(groups.inputs)]  # fmt: skip
    run.input_nodes = tuple([weakref.ref(mark.grad_fn) for mark in marks])
    made: list[Any] = [None] * len(outputs)
    nodes = []
    for group, places in enumerate(groups.results):
        own = tuple([outputs[place] for place in places])
        reached = [marks[each] for each in groups.reached[group]] or [anchor]
        found = LampworkRegionResults.apply(run, group, own, *reached)
        for place, each in zip(places, found, strict=True):
            made[place] = each
        nodes.append(weakref.ref(found[0].grad_fn))
    run.result_nodes = tuple(nodes)
    return tuple(made)


def nodes_of(outputs: Sequence[torch.Tensor]) -> list[Any]:
    """The nodes that differentiated results lead to within their region, as they were made."""
    results = dict.fromkeys(each.grad_fn for each in outputs)
    inputs: dict[Any, None] = {}
    for node in results:
        if hasattr(node, "group"):
            inputs.update(dict.fromkeys(each for each, _ in node.next_functions if hasattr(each, "group")))
    return [*inputs, *results]


@dataclass
class Pass:
    """One backward pass through nodes of groups: the tangents that have come, the groups of results that they came
    from, gradients for groups of inputs whose node has not run yet."""

    tangents: list[Any]
    arrived: set[int] = field(default_factory=set)
    found: dict[int, list[Any]] = field(default_factory=dict)


#: Backward passes that are remembered of a call: one that is broken off never ends.
_MOST_PASSES = 8


class LampworkRegionSaved(torch.autograd.Function):
    """Runs the forward program, and saves what the backward program reads. No other node leads to this one, so the
    engine neither runs it nor frees what it has saved: `_gradients` does."""

    @staticmethod
    @_torch.hide_from_peer
    def forward(ctx: Any, run: Call, anchor: torch.Tensor) -> torch.Tensor:
        run.outputs = _run(ctx, run, for_groups=True)
        return torch.empty(0)


class LampworkRegionInputs(torch.autograd.Function):
    """Leads to inputs that the same results lead to. Its result is a mark, without elements."""

    @staticmethod
    @_torch.hide_from_peer
    def forward(ctx: Any, run: Call, group: int, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.run, ctx.group = run, group
        ctx.set_materialize_grads(False)
        return torch.empty(0, device=inputs[0].device)  # on whose stream the engine runs it

    @staticmethod
    @_torch.hide_from_peer
    def backward(ctx: Any, tangent: object) -> Any:
        run: Call = ctx.run
        passing = run.passes[_torch.backward_pass()]
        found = passing.found.pop(ctx.group, None)
        if found is None:
            found = _gradients_of_groups(run, ctx.group, passing)
        return None, None, *found


class LampworkRegionResults(torch.autograd.Function):
    """The node of results that lead to the same inputs."""

    @staticmethod
    @_torch.hide_from_peer
    def forward(
        ctx: Any, run: Call, group: int, outputs: tuple[torch.Tensor, ...], *marks: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.run, ctx.group = run, group
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @_torch.hide_from_peer
    def backward(ctx: Any, *tangents: Any) -> Any:
        run: Call = ctx.run
        groups = run.owner.groups
        assert groups is not None
        number = _torch.backward_pass()
        if run.freed.get(ctx.group, number) != number:
            raise RuntimeError(SECOND_TIME)
        if not _torch.keeps_graph():
            run.freed.update(dict.fromkeys(groups.freed[ctx.group], number))
        passing = run.passes.get(number)
        if passing is None:
            while len(run.passes) >= _MOST_PASSES:
                run.passes.pop(next(iter(run.passes)))
            passing = run.passes[number] = Pass([None] * len(run.owner.joint.outputs))
        given: list[Any] = [None] * len(passing.tangents)
        for place, tangent in zip(groups.results[ctx.group], tangents, strict=True):
            given[place] = tangent
        passing.arrived.add(ctx.group)
        if groups.reached[ctx.group]:
            for place in groups.results[ctx.group]:
                passing.tangents[place] = given[place]
        elif any(each is not None for each in tangents):
            assert run.saved is not None
            _unpacked(run.saved.grad_fn, run, given)  # no node of inputs will look whether it was written
        return (None,) * (3 + max(1, len(groups.reached[ctx.group])))


def _gradients_of_groups(run: Call, group: int, passing: Pass) -> list[Any]:
    """The gradients for that group of inputs, the first whose node runs. Those for others are left in `passing`, as far
    as all tangents that lead to them have come."""
    owner = run.owner
    groups = owner.groups
    assert groups is not None and run.saved is not None
    coming = [index for index, node in enumerate(run.result_nodes) if index not in passing.arrived and _runs(node)]
    others = [
        index
        for index, node in enumerate(run.input_nodes)
        if index != group and _runs(node) and not any(index in groups.reached[each] for each in coming)
    ]
    wanted = len(owner.joint.wanted)
    is_last = not coming and all(
        index in run.freed or index not in owner.reading or node() is None
        for index, node in enumerate(run.result_nodes)
    )  # fmt: skip
    if all(each is None for each in passing.tangents):  # eager would not run the nodes: what they saved may be gone
        if is_last:
            _torch.release_saved_tensors(run.saved.grad_fn)
        found: Sequence[Any] = (None,) * wanted
    else:
        edges: list[Any] = [(None, 0)] * wanted
        for node, places in zip(run.input_nodes, groups.inputs, strict=True):
            if (alive := node()) is not None:
                for place, edge in zip(places, alive.next_functions, strict=True):
                    edges[place] = edge
        found = _gradients(run.saved.grad_fn, run, passing.tangents, edges, is_last)
    for index in others:
        passing.found[index] = [found[place] for place in groups.inputs[index]]
    if not coming:
        passing.tangents = [None] * len(passing.tangents)
    return [found[place] for place in groups.inputs[group]]


def _runs(node: weakref.ref[Any]) -> bool:
    """Whether the engine runs the node in this backward pass."""
    alive = node()
    return alive is not None and _torch.is_executed(alive)


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor`, not as a view of another: autograd refuses to write to views that a function returns."""
    with _torch.below_autograd():
        alone = torch.ops.aten.alias.default(tensor)
    version = _torch.version_of(tensor)
    if version:
        _torch.set_versions((alone,), (version,))
    return alone


def _layout(output: torch.Tensor) -> Tangent:
    """The layout of an output's tangent, as capture assumed it."""
    shape = tuple(output.shape)
    dense = torch.empty_like(output, device="meta")
    strides = output.stride() if dense.stride() == output.stride() else dense.contiguous().stride()
    return Tangent(shape, strides)


#: Shape, strides, element type and device.
Handed = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]


def _handed(tensor: torch.Tensor) -> Handed:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _handed_back(tensor: torch.Tensor, handed: Handed) -> torch.Tensor:
    """What a hook handed back, in the strides and the element type that the backward program was compiled for. Raises
    RuntimeError where it has another shape, or lies on another device, than what the hook was given."""
    shape, strides, dtype, device = handed
    if tensor.shape != shape or tensor.device != device:
        raise RuntimeError(
            f"a hook on saved tensors was given {list(shape)} on {device} and handed back {list(tensor.shape)} on "
            f"{tensor.device}: a backward pass that lampwork compiled does not take that"
        )
    if tensor.stride() == strides and tensor.dtype == dtype:
        return tensor
    with torch.no_grad():
        return torch.empty_strided(shape, strides, dtype=dtype, device=device).copy_(tensor)
