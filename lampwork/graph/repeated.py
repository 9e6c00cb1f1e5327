"""What a region does over and over: components that are alike, of which one is enough to be compiled.

    p1 += -lr * g1;  p2 += -lr * g2;  ...     (300 parameters)   ->   p1 += -lr * g1,  and a table: p1 g1 | p2 g2 | ...

An optimizer's step is hundreds of components: operators over memory that no other operator touches. Those that consist
of the same operators on tensors of the same types, shapes and strides differ in their inputs alone. The stages after
capture see the first of each kind; scheduling makes rows of one launch of it and of the others
(`schedule/copies.py`).

Components share what nothing writes: numbers, and what is computed of them. A component that returns something, draws,
or holds anything but elementwise operators is left as it is.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.ir.region import Region
from lampwork.ir.source import Numbers

aten = torch.ops.aten

#: Fewer components that are alike are compiled one by one: they make no launch of their own.
FEWEST = 8

#: For each kind of component: the inputs (by number) of the one that is compiled, then those of each of the others.
Tables = tuple[tuple[tuple[int, ...], ...], ...]

#: Views that a number is taken out of a list by.
_PICKS = frozenset({aten.select.int})

_FRESH, _WRITES_FIRST, _VIEW, _OTHER = range(4)
#: By id of the target: (what becomes of memory, whether a component may hold the operator, the target).
_facts: dict[int, tuple[int, bool, object]] = {}


def repeated(region: Region) -> tuple[Tables, frozenset[Node]]:
    """The tables of a region's repeated components, and the nodes of all but the first of each: what is left is the
    region's program once what it does to the first inputs of each table is done to the others, too."""
    nodes = list(region.graph.nodes)
    if region.joint is not None or region.sizes is not None or len(nodes) < 2 * FEWEST:
        return (), frozenset()
    if any("gradient" in node.meta for node in nodes):
        return (), frozenset()  # a whole step: gradients are made by what is no component
    found = _Components(region, nodes)
    found.join()
    return found.tables()


class _Component:
    """Nodes in program order. `tokens`: what equal components have in common, `layouts`: and those of one shape."""

    __slots__ = ("inputs", "layouts", "members", "numbers", "storages", "tokens")

    def __init__(self) -> None:
        self.members: list[Node] = []
        self.inputs: list[int] = []
        self.numbers: dict[Node, int] = {}
        self.storages: dict[int, int] = {}
        self.tokens: list[object] = []
        self.layouts: list[Any] = []


class _Components:
    """The components of one region, by number of a storage in each; storages that nothing writes and that hold no
    tensors of a component's own are shared."""

    def __init__(self, region: Region, nodes: list[Node]) -> None:
        self.region, self.nodes = region, nodes
        #: Which storage a node's result is in.
        self.storage: dict[Node, int] = {}
        self.parents: list[int] = []
        self.places: dict[Node, int] = {}
        self.written: set[int] = set()
        #: Storages of components; and one of each that is not to be repeated.
        self.own: set[int] = set()
        self.single: set[int] = set()
        self.device: torch.device | None = None

    def root(self, number: int) -> int:
        parents = self.parents
        while parents[number] != number:
            parents[number] = number = parents[parents[number]]
        return number

    def new_storage(self) -> int:
        self.parents.append(len(self.parents))
        return len(self.parents) - 1

    # Which nodes belong together ----------------------------------------------------------------------

    def join(self) -> None:
        self.find_storages()
        parents, storage, own = self.parents, self.storage, self.own
        for node in self.nodes:
            if node.op != "call_function":
                continue
            mine = storage[node]
            touched = [storage[each] for each in node.all_input_nodes if storage[each] in own]
            if not touched and mine not in self.written:
                continue  # computed of what all share
            own.add(mine)
            root = self.root(mine)
            for each in touched:
                parents[self.root(each)] = root
            if not _fact(node.target)[1] or len(node.meta) > 3 or type(node.meta["val"]) is not Fake:
                self.single.add(mine)
        for each in self.nodes[-1].args[0]:
            if isinstance(each, Node):
                self.single.add(storage[each])
        self.single = {self.root(each) for each in self.single}

    def find_storages(self) -> None:
        """Numbers the storages; which are written, and which of the inputs' belong to components."""
        storage, written = self.storage, self.written
        keys: dict[int, int] = {}
        large = []
        for node in self.nodes:
            if node.op == "placeholder":
                place = self.places[node] = len(self.places)
                value = node.meta["val"]
                if type(value) is not Fake:
                    storage[node] = self.new_storage()
                    continue
                key = _torch.storage_key(value)
                number = keys.get(key)
                if number is None:
                    number = keys[key] = self.new_storage()
                storage[node] = number
                if type(self.region.inputs[place]) is not Numbers:
                    if value.numel() != 1:
                        large.append(number)
                    if value.is_cuda:
                        self.device = value.device
            elif node.op == "call_function":
                kind = _fact(node.target)[0]
                first = node.args[0] if node.args else None
                if kind == _FRESH:
                    storage[node] = self.new_storage()
                elif kind != _OTHER and type(first) is Node:
                    number = storage[node] = storage[first]
                    if kind == _WRITES_FIRST:
                        written.add(number)
                else:  # may write to whatever it is given
                    storage[node] = self.new_storage()
                    written.add(storage[node])
                    written.update([storage[each] for each in node.all_input_nodes])
        self.own.update(large, written)

    def belonging(self) -> dict[Node, int]:
        """Nodes and the components they are in. What is computed of shared values for one component is its own."""
        storage, own, single, root = self.storage, self.own, self.single, self.root
        found: dict[Node, int] = {}
        for node in reversed(self.nodes):
            if node.op == "output":
                continue
            mine = storage[node]
            if mine in own:
                place = root(mine)
            else:
                place = -1
                for user in node.users:
                    theirs = found.get(user, -1)
                    if theirs < 0 or (place >= 0 and theirs != place):
                        place = -1
                        break
                    place = theirs
                if place < 0:
                    continue
                if node.op == "call_function" and not (_fact(node.target)[1] or node.target in _PICKS):
                    single.add(place)
            found[node] = place
        return found

    # Which of them are alike --------------------------------------------------------------------------

    def tables(self) -> tuple[Tables, frozenset[Node]]:
        belonging = self.belonging()
        components: dict[int, _Component] = {}
        for node in self.nodes:
            place = belonging.get(node, -1)
            if place < 0 or place in self.single or node.op != "call_function":
                continue
            component = components.get(place)
            if component is None:
                component = components[place] = _Component()
            self.describe(node, component, place, belonging)
        kinds: dict[tuple, list[_Component]] = {}
        counts: Counter[tuple] = Counter()
        for place, component in components.items():
            if place not in self.single and component.inputs:
                tokens = tuple(component.tokens)
                counts[tokens] += 1
                kinds.setdefault((tokens, tuple(component.layouts)), []).append(component)
        alike = [found for (tokens, _), found in kinds.items() if len(found) > 1 and counts[tokens] >= FEWEST]
        left_out = [node for found in alike for component in found[1:] for node in component.members]
        return tuple([tuple([tuple(each.inputs) for each in found]) for found in alike]), frozenset(left_out)

    def describe(self, node: Node, component: _Component, place: int, belonging: dict[Node, int]) -> None:
        """Adds what a node does to its component's description."""
        made = [id(node.target), *[self.token(each, component, place, belonging) for each in node.args]]
        if node.kwargs:
            made += [(name, self.token(each, component, place, belonging)) for name, each in node.kwargs.items()]
        made.append(node.meta["val"].dtype)
        component.tokens.append(tuple(made))
        component.members.append(node)
        component.numbers[node] = len(component.numbers)

    def token(self, value: Any, component: _Component, place: int, belonging: dict[Node, int]) -> Any:
        """An argument: equal for equal ones, and for nodes of the same number in their components."""
        # Not a closure that calls itself: asked for each node of an optimizer, it is a cycle of garbage each.
        kind = type(value)
        if kind is Node:
            number = component.numbers.get(value)
            if number is not None:
                return number
            if belonging.get(value) != place:
                return "shared", id(value)
            component.numbers[value] = len(component.numbers)
            return self.input_token(value, component, place)
        if kind is float:
            return kind, value.hex()
        if kind is tuple or kind is list:
            return tuple([self.token(each, component, place, belonging) for each in value])
        return kind, value

    def input_token(self, node: Node, component: _Component, place: int) -> Any:
        """An input that a component meets; its shape goes to the component's layouts."""
        value = node.meta["val"]
        if type(value) is not Fake or (self.device is not None and value.device != self.device):
            self.single.add(place)
            return "input"
        storages = component.storages
        number = storages.setdefault(self.storage[node], len(storages))
        component.inputs.append(self.places[node])
        component.layouts.append((tuple(value.size()), value.stride(), value.storage_offset()))
        return "input", number, value.dtype, value.device, value.numel() == 1


def _fact(target: object) -> tuple[int, bool, object]:
    found = _facts.get(id(target))
    if found is None:
        found = _facts[id(target)] = (*_fact_of(target), target)
    return found


def _fact_of(target: Any) -> tuple[int, bool]:
    if target is _torch.getitem:
        return _VIEW, False
    if target is _torch.tensor_constant:
        return _FRESH, False
    if not _torch.is_operator(target):
        return _OTHER, False
    op = operator(target)
    if op.kind == "inplace" and op.written == (0,) and op.returns_written == [True]:
        return _WRITES_FIRST, op.elementwise
    if op.kind == "view":
        return _VIEW, False
    if op.kind == "functional" and target.namespace in ("aten", _torch.GIVEN_NUMBERS):
        return _FRESH, op.elementwise
    return _OTHER, False
