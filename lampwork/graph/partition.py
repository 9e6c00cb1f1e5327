"""Cuts a joint graph into a forward and a backward one.

    %x, %w, %tangent                     forward                      backward
    %mm = mm(%x, %w)                     %mm = mm(%x, %w)             %x, %relu, %tangent
    %relu = relu(%mm)                    %relu = relu(%mm)            %mask = le(%relu, 0)
    %mask = le(%relu, 0)       ->        return (%relu, %relu)        %grad = where(%mask, 0, %tangent)
    %grad = where(%mask, 0, %tangent)                                 %t = t(%x)
    %t = t(%x)                           saved: input %x,             %mm_1 = mm(%t, %grad)
    %mm_1 = mm(%t, %grad)                result %relu                 return (%mm_1)
    return (%relu, %mm_1)

What the backward graph reads of the forward one is saved, or computed again: `choose` says which (views, constants and
`full` are always made anew). Inputs are saved as they are; where the program writes to them, as a copy of what they
held. So are inputs, and results, that eager's autograd would not hold on to for the same gradients, and the caller may
write to before the backward pass: those of which it keeps a copy or a conversion, and those that are read only to
compute something again. What it reads through memory with a version of its own, the backward half reads so, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.errors import CompileError
from lampwork.fakes.evaluate import evaluate
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.strides import contiguous, same_sizes
from lampwork.fakes.symbolic import SymbolicSizes, size_of, sizes_of
from lampwork.fakes.views import inferred, view_strides
from lampwork.graph.build import emit, is_random, place, same_metadata, value_of
from lampwork.graph.found_sizes import find_before, found_before
from lampwork.graph.missing import Missing, on_device
from lampwork.graph.simplify import COPIED
from lampwork.ir.differentiation import ARRIVES, Backward, Joint, Saved, Tangent
from lampwork.ir.record import record
from lampwork.ir.region import AliasOfInput, FromGraph, FunctionalGraph
from lampwork.ir.size import SizeExpr, Symbol, symbols

aten = torch.ops.aten

#: Which forward values to save, of those that the backward graph reads.
Choose = Callable[["Joined"], set[Node]]


@record(frozen=False)
class Kept:
    """The tangents for whose gradients eager's autograd reads something that the caller can write to: it raises where
    that was `noticed`, and reads what was written where it was not."""

    noticed: set[int] = field(default_factory=set)
    unnoticed: set[int] = field(default_factory=set)


@record(frozen=False)
class Halves:
    """The two graphs, and how they fit together. `backward` is None where there is nothing to compute. `joined`: the
    graph that they were cut from."""

    forward: FunctionalGraph
    backward: FunctionalGraph | None
    link: Backward
    joined: Joined


class Joined:
    """A joint graph with its nodes classified.

    `backward`: nodes of the backward half, in order: what follows from tangents, and what autograd computed for it.
    `gradients`: the nodes of the graph's outputs that are gradients, by output. `written`: placeholders that the
    program writes to.
    """

    #: What nodes of the backward half have in `meta`.
    mark = "backward"

    def __init__(self, functional: FunctionalGraph, joint: Joint, inputs: int) -> None:
        self.functional, self.joint, self.inputs = functional, joint, inputs
        self.nodes = list(functional.graph.nodes)
        self.output = self.nodes[-1]
        self.outputs: list[Node] = list(self.output.args[0])
        self.placeholders = [node for node in self.nodes if node.op == "placeholder"]
        self.tangents = self.placeholders[inputs:]
        self.written = {self.placeholders[index] for index, _ in functional.writes}
        self.forward_results = functional.results[: joint.results + joint.hidden]
        #: What is read for gradients that eager computes without it.
        self.lost: set[Node] = set()
        self.gradient_results = functional.results[joint.results + joint.hidden :]
        self.backward: set[Node] = set(self.tangents)
        for node in self.nodes:
            if node.op in ("call_function", "get_attr"):
                if node.meta.get(self.mark) or any(each in self.backward for each in node.all_input_nodes):
                    self.backward.add(node)
        # What a write left was perhaps made into a tensor where the backward half first reads it.
        pending: list[Node] = []
        if self.tangents:
            pending += [self.outputs[index] for _, index in functional.writes]
            pending += [self.outputs[each.index] for each in self.forward_results if isinstance(each, FromGraph)]
        while pending:
            node = pending.pop()
            if node in self.backward:
                self.backward.discard(node)
                pending.extend(node.all_input_nodes)

    def needed(self) -> set[Node]:
        """Nodes of the backward half that some gradient needs, or that draw random numbers."""
        pending = [self.gradient_node(result) for result in self.gradient_results]
        pending += [node for node in self.backward if node.op == "call_function" and is_random(node)]
        found: set[Node] = set()
        while pending:
            node = pending.pop()
            if node in self.backward and node not in found:
                found.add(node)
                pending.extend(node.all_input_nodes)
        return found

    @cached_property
    def given(self) -> set[Node]:
        """Views of all of what they are views of that the caller gets as they are: nothing more lives as long."""
        found = set()
        for result in self.forward_results:
            if not isinstance(result, FromGraph) or result != FromGraph(result.index):
                continue
            node = self.outputs[result.index]
            if node.op == "call_function" and is_free(node):
                base = node.all_input_nodes[0].meta.get("val") if node.all_input_nodes else None
                if isinstance(base, Fake) and base.numel() == node.meta["val"].numel():
                    found.add(node)
        return found

    @cached_property
    def copied(self) -> set[Node]:
        """Placeholders that are saved as a copy of what they held, if they are saved.

        Autograd raises where the caller has written to what it keeps. The rest the caller may write to: statistics, a
        tensor that a result is added to, what is converted first. Leaves that want a gradient (parameters) are written
        between steps.
        """
        return self.written | {
            node
            for node in self.placeholders[: self.inputs]
            if node.meta.get(COPIED) or not (node in self.kept or _stays_between_steps(node)) or node in self.lost
        }

    @cached_property
    def copied_results(self) -> set[Node]:
        """Nodes whose memory the caller gets, and that are saved as a copy, if they are saved: as `copied`."""
        is_told = self.joint.held is not None
        return {node for node in self.result_nodes if (is_told and node not in self.kept) or node in self.lost}

    @cached_property
    def result_nodes(self) -> dict[Node, list[int]]:
        """The results that are made of each output of the graph."""
        found: dict[Node, list[int]] = {}
        for index, result in enumerate(self.forward_results):
            if isinstance(result, FromGraph):
                found.setdefault(self.outputs[result.index], []).append(index)
        return found

    @cached_property
    def kept(self) -> dict[Node, Kept]:
        """Of inputs and results: for which tangents eager's autograd keeps them."""
        found = {node: Kept({*range(len(self.tangents))}) for node in self._read(self._checkpointed())}
        nodes = {(index, False): node for index, node in enumerate(self.placeholders[: self.inputs])}
        nodes |= {(index, True): node for node, indices in self.result_nodes.items() for index in indices}
        if self.joint.held is None:
            seen = set(nodes.values())
            for node, tangents in self._read_by_derivatives().items():
                if node in seen:
                    found.setdefault(node, Kept()).noticed.update(tangents)
        for each in (*self.joint.checked, *(self.joint.held or ())):
            if (kept := nodes.get((each.index, each.is_result))) is not None:
                found.setdefault(kept, Kept()).noticed.update(each.tangents)
        for each in self.joint.unnoticed:
            if (kept := nodes.get((each.index, each.is_result))) is not None:
                found.setdefault(kept, Kept()).unnoticed.update(each.tangents)
        return found

    def lose(self, nodes: Iterable[Node]) -> None:
        """The nodes turn out to be read for gradients that eager computes without them."""
        self.lost.update(nodes)
        for name in ("copied", "copied_results"):
            self.__dict__.pop(name, None)

    def _checkpointed(self) -> list[Node]:
        """What checkpointed functions compute, which are called again with what they read."""
        return [node for node in self.nodes if "checkpoint" in node.meta]

    def _read_by_derivatives(self) -> dict[Node, set[int]]:
        """Forward nodes that derivatives read as they are or by views, and the tangents of those derivatives."""
        needed = self.needed()
        nodes = [node for node in self.nodes if node in needed]
        found = self._read(nodes)
        if len(self.tangents) < 2:
            return {node: {0} for node in found}
        sources = [node for node in self.nodes if node in found]
        bits = dict(zip(sources, _tangents_that_read(nodes, sources, self.tangents), strict=True))
        for node in reversed(sources):
            if is_free(node):
                for each in node.all_input_nodes:
                    bits[each] |= bits[node]
        return {node: _places(bits[node]) for node in sources}

    def _read(self, pending: list[Node]) -> set[Node]:
        """Forward nodes that others read as they are or by views."""
        needed = self.needed()
        found: set[Node] = set()
        while pending:
            for each in pending.pop().all_input_nodes:
                if each not in found and each not in needed:
                    found.add(each)
                    if is_free(each):
                        pending.append(each)
        return found

    def gradient_node(self, result: Any) -> Node:
        return self.placeholders[result.input] if isinstance(result, AliasOfInput) else self.outputs[result.index]


def is_free(node: Node) -> bool:
    """Made anew rather than saved: views of something, constants, tensors of one number."""
    if node.op == "get_attr":
        return True
    if node.op != "call_function" or is_random(node):
        return False
    if node.target is _torch.getitem:
        return is_free(node.args[0]) and operator(node.args[0].target).kind == "view"
    if not _torch.is_operator(node.target):
        return node.target is _torch.tensor_constant
    return operator(node.target).kind == "view" or node.target in _FREE


_FREE = {
    aten._unsafe_view.default, aten.full.default, aten.zeros.default, aten.ones.default, aten.scalar_tensor.default,
    aten.arange.default, aten.arange.start, aten.arange.start_step, aten.empty_strided.default,
    aten.empty.memory_format,
}  # fmt: skip


def _stays_between_steps(node: Node) -> bool:
    """A number, or a leaf that wants a gradient."""
    value = node.meta.get("val")
    return not isinstance(value, Fake) or (value.requires_grad and value.is_leaf)


def is_copied(joined: Joined, node: Node) -> bool:
    """Whether the backward half gets a copy of the saved node: of what an input held (`Joined.copied`), of a result
    that autograd does not keep, of what the program returns a copy of, and of a view, which would keep all that it is a
    view of. The copy is dense."""
    if node.op == "placeholder" or node.meta.get(COPIED) or node in joined.copied_results:
        return True
    return is_free(node) and node not in joined.given


def partition(
    functional: FunctionalGraph, joint: Joint, inputs: int, sizes: SymbolicSizes | None, choose: Choose
) -> Halves:
    """The halves of `functional`, whose placeholders are `inputs` inputs, then tangents.

    Guarantees: random operators keep their order in each half; each result of the region is computed by the forward
    half alone. Raises `GraphBreak` where the backward half would have to check sizes that it finds.
    """
    joined = Joined(functional, joint, inputs)
    if sizes is not None and joint.wanted:
        find_before(joined, sizes)
    if not joint.wanted:
        return Halves(_forward(joined, [], ())[0], None, Backward(joint), joined)
    joint = replace(_with_layouts(joint, sizes), held=None, unnoticed=())
    while True:
        halves, lost = _cut(joined, joint, sizes, choose(joined))
        if not lost:
            return halves
        if joined.lost.issuperset(lost):
            raise CompileError("partition", "what is to be saved as a copy is saved as it is")
        joined.lose(lost)


def _cut(
    joined: Joined, joint: Joint, sizes: SymbolicSizes | None, chosen: Collection[Node]
) -> tuple[Halves, list[Node]]:
    """The halves that save `chosen`; and those among them that must be saved as copies instead (`Joined.lost`)."""
    saved = [node for node in joined.nodes if node in chosen]
    kept_inputs = [node for node in saved if node.op == "placeholder" and node not in joined.copied]
    computed = [node for node in saved if node.op != "placeholder" or node in joined.copied]
    names = dict.fromkeys((*_symbols(joined.nodes), *found_before(joined))) if sizes is not None else ()
    numbers = tuple(sizes.wrap(Symbol(name)) for name in names) if sizes is not None else ()
    forward, places = _forward(joined, computed, numbers)
    optional = tuple(place for place, node in enumerate(joined.tangents) if _may_be_missing(joined, node))
    missing = Missing(joined.nodes, joined.backward, joined.tangents if len(joined.tangents) > 1 else ())
    gradients = [joined.gradient_node(each) for each in joined.gradient_results]
    parts = {node for node, depends in zip(gradients, joint.depends, strict=True) if missing.is_part(node, depends)}
    zeros = {missing.by_zeros(node, depends) for node, depends in zip(gradients, joint.depends) if node in parts}
    told = tuple(sorted({*optional, *missing.told(joined.needed(), parts)}))
    backward = _backward(joined, kept_inputs, computed, numbers, optional, told, missing, parts)
    facts = _saved(backward.graph, len(saved), len(numbers), len(joined.tangents))
    owners = [*((joined.placeholders.index(node), False) for node in kept_inputs), *((place, True) for place in places)]
    #: The tangents that each saved tensor is read for. There are no facts of a single one.
    readers = [{*each.tangents} for each in facts] if facts else [{0} for _ in owners]
    lost, unnoticed = [], []
    for position, (node, tangents) in enumerate(zip((*kept_inputs, *computed), readers, strict=True)):
        kept = joined.kept.get(node)
        if kept is None or (position >= len(kept_inputs) and is_copied(joined, node)) or tangents <= kept.noticed:
            continue
        if tangents <= kept.noticed | kept.unnoticed:
            unnoticed.append(position)
        elif not _stays_between_steps(node):
            lost.append(node)
    watched = {owner: each for position, (owner, each) in enumerate(zip(owners, readers)) if position not in unnoticed}
    link = Backward(
        joint,
        saved_inputs=tuple(joined.placeholders.index(node) for node in kept_inputs),
        saved_results=places,
        numbers=tuple(range(len(forward.results), len(forward.results) + len(numbers))),
        tangents=tuple(_tangent(node.meta["val"]) for node in joined.tangents),
        optional=optional,
        told=told,
        symbols=names if isinstance(names, tuple) else tuple(names),
        saved=facts,
        checked=tuple(
            each
            for each in joint.checked
            if not watched.get((each.index, each.is_result), set()).issuperset(each.tangents)
        ),
        unnoticed=tuple(unnoticed),
        zeros=tuple(sorted(zeros)),
    )
    return Halves(forward, backward, link, joined), lost


def _saved(graph: torch.fx.Graph, saved: int, numbers: int, tangents: int) -> tuple[Saved, ...]:
    """What reads the first `saved` placeholders of the backward half; nothing where there is one tangent."""
    if tangents < 2:
        return ()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    first, nodes = saved + numbers, [node for node in graph.nodes if node.op != "output"]
    readers = _tangents_that_read(nodes, placeholders[:saved], placeholders[first : first + tangents])
    return tuple(
        Saved(
            tuple(sorted(_places(bits))), sizes_of(node.meta["val"].size()), sizes_of(node.meta["val"].stride()),
            int(any(_counts_from_one(user, node) for user in node.users)),
        )
        for node, bits in zip(placeholders, readers)
    )  # fmt: skip


def _counts_from_one(user: Node, node: Node) -> bool:
    """Whether an operator reads `node` as the pivots of a matrix, as LAPACK counts them: it refuses a 0."""
    if not _torch.is_operator(user.target):
        return False
    names = [each.name for each in user.target._schema.arguments]
    given = dict(zip(names, user.args)) | user.kwargs
    return any("pivots" in name and value is node for name, value in given.items())


def _tangents_that_read(nodes: Iterable[Node], sources: Sequence[Node], tangents: Sequence[Node]) -> list[int]:
    """For each of `sources`, the tangents whose derivatives are computed with it, as bits. `nodes`: those of the
    backward half, in order."""
    #: Bits of the tangents that a value depends on; of a value that depends on none, of the sources.
    depends = {node: 1 << number for number, node in enumerate(tangents)}
    reads = {node: 1 << number for number, node in enumerate(sources)}
    readers = [0] * len(sources)
    for node in nodes:
        if node in depends:
            continue
        bits = read = 0
        for each in node.all_input_nodes:
            bits |= depends.get(each, 0)
            read |= reads.get(each, 0)
        bits = bits or node.meta.get(ARRIVES, 0)
        if not bits:
            if read and node.op != "placeholder":
                reads[node] = read
            continue
        depends[node] = bits
        for number in _places(read):
            readers[number] |= bits
    return readers


def _places(bits: int) -> set[int]:
    return {place for place in range(bits.bit_length()) if bits >> place & 1}


def _with_layouts(joint: Joint, sizes: SymbolicSizes | None) -> Joint:
    """`joint` with the symbols that are left by now in the layouts of gradients."""
    if sizes is None:
        return joint
    return replace(
        joint,
        layouts=tuple(
            [replace(each, strides=tuple([sizes.resolve(size) for size in each.strides])) for each in joint.layouts]
        ),
    )


def _symbols(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Names of the symbols in the inputs."""
    names: dict[str, None] = {}
    for node in nodes:
        if node.op == "placeholder":
            value = node.meta["val"]
            dims = (*value.size(), *value.stride()) if isinstance(value, Fake) else (value,)
            for size in sizes_of(dims):
                names.update(dict.fromkeys(sorted(symbols(size))))
    return tuple(names)


def _tangent(fake: Any) -> Tangent:
    shape, strides = sizes_of(fake.size()), sizes_of(fake.stride())
    if any(isinstance(each, SizeExpr) for each in (*shape, *strides)):
        return Tangent(None, None)
    return Tangent(tuple(map(int, fake.size())), tuple(map(int, fake.stride())))


#: Zeros in place of smaller tangents cost less than asking whether there are any.
_OPTIONAL_NUMEL = 1 << 14


def _may_be_missing(joined: Joined, tangent: Node) -> bool:
    """Whether the backward half does without zeros where a large tangent is undefined, as that of logits is which a
    model returns beside its loss: only kernels of ours read it, and it is not all that there is."""
    value = tangent.meta["val"]
    if len(joined.tangents) < 2 or not value.dtype.is_floating_point or _tangent(value).shape is None:
        return False
    if value.numel() < _OPTIONAL_NUMEL or any(
        joined.gradient_node(each) is tangent for each in joined.gradient_results
    ):
        return False
    needed = joined.needed()
    pending: list[Node] = [tangent]
    readers: list[Node] = []
    while pending:
        for user in pending.pop().users:
            if user in needed:
                (pending if is_free(user) else readers).append(user)
    return bool(readers) and all(
        _torch.is_operator(each.target) and torch.Tag.pointwise in each.target.tags for each in readers
    )


def _forward(
    joined: Joined, computed: list[Node], numbers: tuple[object, ...]
) -> tuple[FunctionalGraph, tuple[int, ...]]:
    """The forward half, whose results after the region's are `computed` and `numbers`; where it returns `computed`.

    What the region returns as it is comes once: autograd notices what the caller writes to it.
    """
    functional = joined.functional
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in joined.nodes:
        if node.op == "output" or node in joined.backward:
            continue
        copies[node] = copied(graph, node, copies)
    outputs: list[Node] = []
    places: dict[int, int] = {}

    def output(index: int) -> int:
        if index not in places:
            places[index] = len(outputs)
            outputs.append(copies[joined.outputs[index]])
        return places[index]

    results: list[Any] = []
    owned: dict[Node, int] = {}  # nodes whose memory is a result's as it is
    given: dict[Node, int] = {}  # results that are all of such a node
    for result in joined.forward_results:
        if isinstance(result, FromGraph):
            result = FromGraph(output(result.index), result.view, result.dtype, result.conjugate)
            owned.setdefault(outputs[result.index], result.index)
            if result == FromGraph(result.index):
                given.setdefault(outputs[result.index], len(results))
        results.append(result)
    writes = tuple((target, output(source)) for target, source in functional.writes)
    saved: list[int] = []
    for node in computed:
        copy = copies[node]
        if is_copied(joined, node):
            copy = emit(graph, aten.clone.default, (copy,), {}, copy)
        if copy not in owned:
            owned[copy] = len(outputs)
            outputs.append(copy)
        if copy not in given:
            given[copy] = len(results)
            results.append(FromGraph(owned[copy]))
        saved.append(given[copy])
    graph.output(tuple(outputs))
    made = FunctionalGraph(
        graph,
        tuple(results),
        writes,
        device=functional.device,
        numbers=numbers,
        overlapping=functional.overlapping,
        rows=functional.rows,
    )
    return made, tuple(saved)


def _backward(
    joined: Joined,
    kept_inputs: list[Node],
    computed: list[Node],
    numbers: tuple[object, ...],
    optional: tuple[int, ...],
    told: tuple[int, ...],
    missing: Missing,
    parts: Collection[Node],
) -> FunctionalGraph:
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    placeholders: list[Node] = []
    for node in (*kept_inputs, *computed):
        copies[node] = _placeholder(graph, node.name, node.meta)
        if node in computed and is_copied(joined, node):  # copies are dense
            copies[node].meta["val"] = evaluate(aten.clone.default, (node.meta["val"],), {})
        placeholders.append(copies[node])
    for number in numbers:
        placeholders.append(_placeholder(graph, "size", {"val": number}))
    for node in joined.tangents:
        copies[node] = _placeholder(graph, node.name, node.meta)
        placeholders.append(copies[node])
    given: dict[int, Node] = {}
    for index in told:
        flag = _torch.tensor_without_memory(Fake, (), (), torch.bool, torch.device(joined.functional.device))
        given[index] = _placeholder(graph, "given", {"val": flag})
    for index in optional:
        node = joined.tangents[index]
        value = node.meta["val"]
        fake = _torch.tensor_without_memory(Fake, tuple(value.size()), value.stride(), value.dtype, value.device)
        where = on_device(graph, given[index], value.device, node)
        copies[node] = place(graph, _torch.if_given(), (copies[node], where), {}, fake, node)
    needed = joined.needed()
    for node in joined.nodes:
        if node in needed:
            met = {each: missing.masked(graph, each, copies[each], given) for each in missing.met(node)}
            plain = {each: copies[each] for each in met}
            copies.update(met)
            _emit(graph, node, copies)
            copies.update(plain)
    outputs: list[Node] = []
    results: list[Any] = []
    taken: dict[Node, Any] = {}
    for result in joined.gradient_results:
        origin = joined.gradient_node(result)
        node = _emit(graph, origin, copies)
        if origin in parts:
            node = missing.masked(graph, origin, node, given)
        layout = (result.view, result.dtype, result.conjugate)
        made = taken.get(node)
        if made is None:
            if isinstance(result, AliasOfInput) or (node in placeholders and result.view is None):
                made = AliasOfInput(placeholders.index(node), *layout)
            else:
                made = FromGraph(len(outputs), *layout)
                outputs.append(node)
            taken[node] = made
        elif layout != (None, None, False) or made.view is not None or made.conjugate:
            # Autograd may keep each gradient as it is: two of them, if they are not one object, never share memory.
            made = FromGraph(len(outputs))
            outputs.append(_view_of(graph, node, result))
        results.append(made)
    graph.output(tuple(outputs))
    return FunctionalGraph(graph, tuple(results), device=joined.functional.device)


def _emit(graph: torch.fx.Graph, node: Node, copies: dict[Node, Node]) -> Node:
    """The node's copy. What it needs of the forward half and is not saved is computed again right before it."""
    pending = [node]
    while pending:
        last = pending[-1]
        missing = [each for each in last.all_input_nodes if each not in copies] if last not in copies else []
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        if last not in copies:
            if any(_differs(copies[each].meta.get("val"), each.meta.get("val")) for each in last.all_input_nodes):
                copies[last] = copied(graph, last, _divided(graph, last, copies))
                copies[last].meta["val"] = _evaluated(copies[last])
            else:
                copies[last] = copied(graph, last, copies)
    return copies[node]


#: Views that some layouts of their operand have not.
_DIVIDE = frozenset({aten.view.default, aten._unsafe_view.default, aten.view.dtype, aten.view_as_complex.default})


def _divided(graph: torch.fx.Graph, node: Node, copies: dict[Node, Node]) -> dict[Node, Node]:
    """The copies of the node's operands; a contiguous one where the operand's layout has no such view."""
    if node.target not in _DIVIDE:
        return copies
    operand = node.all_input_nodes[0]
    value = copies[operand].meta["val"]
    if node.target in (aten.view.default, aten._unsafe_view.default):
        shape = inferred([value_of(each) for each in node.args[1]], value.size())
        is_view = view_strides(value.size(), value.stride(), shape) is not None
    else:
        is_view = same_sizes(value.stride(), contiguous(value.size()))
    if is_view:
        return copies
    options = {"memory_format": torch.contiguous_format}
    return {**copies, operand: emit(graph, aten.clone.default, (copies[operand],), options, node)}


def _differs(new: Any, old: Any) -> bool:
    """Whether a value of the backward half has another layout than the joint graph's, being made of a dense copy."""
    if isinstance(old, (list, tuple)):
        return any(map(_differs, new, old))
    if new is old or not isinstance(old, Fake):
        return False
    return not same_metadata(new, old) or size_of(new.storage_offset()) != size_of(old.storage_offset())


def _evaluated(node: Node) -> Any:
    if node.target is aten.as_strided.default:
        raise CompileError("partition", "what is saved is decomposed by its place in memory")
    args = value_of(node.args)
    if node.target is _torch.getitem:
        return args[0][args[1]]
    return evaluate(node.target, args, {key: value_of(each) for key, each in node.kwargs.items()})


#: The types of the parts of complex numbers.
_PARTS = {torch.complex64: "float32", torch.complex128: "float64"}


def _view_of(graph: torch.fx.Graph, node: Node, result: Any) -> Node:
    """A copy of the part of `node` that `result` is."""
    value = node.meta["val"]
    if result.dtype is not None:
        # The real and the imaginary parts of a gradient, as `torch.complex` has them.
        if value.dtype not in _PARTS or result.dtype != _PARTS[value.dtype] or value.is_conj():
            raise CompileError("partition", "two gradients share memory as different element types")
        node = emit(graph, aten.view_as_real.default, (node,), {}, node)
        value = node.meta["val"]
    if result.view is not None:
        shape, strides, offset = result.view
        start = offset + value.storage_offset()
        node = emit(graph, aten.as_strided.default, (node, list(shape), list(strides), start), {}, node)
    return emit(graph, aten.clone.default, (node,), {}, node)


def _placeholder(graph: torch.fx.Graph, name: str, meta: dict) -> Node:
    node = graph.create_node("placeholder", name)
    node.meta = dict(meta)
    return node


def copied(graph: torch.fx.Graph, node: Node, copies: dict[Node, Node]) -> Node:
    """`node` at the end of `graph`, with its arguments as `copies` has them."""
    if node.op != "call_function":
        copy = graph.create_node(node.op, node.target, node.args, node.kwargs, node.name)
        copy.meta = dict(node.meta)
        return copy
    args, kwargs = _mapped(node.args, copies), {key: _mapped(each, copies) for key, each in node.kwargs.items()}
    return place(graph, node.target, args, kwargs, node.meta["val"], node)


def _mapped(value: object, copies: dict[Node, Node]) -> Any:
    if isinstance(value, Node):
        return copies[value]
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(each, copies) for each in value)
    return value
