"""Strides of results whose sizes the contents of a tensor decide: eager's, also where such a size is 0 or 1.

    %index = index(%x, [%places])           f32[u0][1]
    %stack = stack([%index, %index])        f32[2, u0][u0, 1]       of 0 places eager gives f32[2, 0][1, 1]
    results: FromGraph(0)       ->          results: FromGraph(0, view ((2, u0), (max(u0, 1), 1), 0))

While a program is captured such a size counts as more than 1 where nothing but a layout depends on it. So memory may
lie in eager's order with other strides of dimensions that step over nothing, which the caller sees in `stride()`. Here
the operators that a result is made of are asked again for their shapes, with 0 and 1 in the symbol's place; and with
what was learnt since they were recorded (halves that turned out equal). What differs is said by the result alone:
kernels go on with the layout that they have.

Guarantees: a result's elements stay where they are. Non-goals: a case in which eager would order dimensions otherwise
that do step over something keeps our order; of more than two such sizes in one result the others count as more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.evaluate import evaluate
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.symbolic import found_symbol, size_of, sizes_of
from lampwork.ir.region import FromGraph, FunctionalGraph, Region
from lampwork.ir.size import Size, Symbol, add, bounds, maximum, minimum, mul, substitute, symbols

#: Sizes found in contents that a result's layout is looked at for.
_MOST_SIZES = 2

_Strides = tuple[Size, ...]


def with_exact_layouts(region: Region, functional: FunctionalGraph) -> FunctionalGraph:
    """`functional`, made of `region` (or its forward half), whose first results are those of the region in order. What
    a forward half returns after them is for its backward half, and the region's outputs after them are gradients."""
    sizes = region.sizes
    if sizes is None or not sizes.contents:
        return functional
    *nodes, output = region.graph.nodes
    returned: Sequence[Node] = output.args[0]
    if region.joint is not None:
        returned = returned[: region.joint.results + region.joint.hidden]
    found = _made_of_contents(nodes)
    cases = _Cases(nodes, found, sizes)
    results = list(functional.results)
    for position, node in enumerate(returned[: len(results)]):
        result = results[position]
        if node in found and isinstance(result, FromGraph) and result.dtype is None:
            fake = node.meta["val"]
            strides = cases.strides(node) if isinstance(fake, Fake) and fake.dim() else None
            if strides is not None and strides != sizes_of(fake.stride()):
                offset = result.view[2] if result.view is not None else 0
                view = (tuple(fake.size()), tuple(map(sizes.wrap, strides)), offset)
                results[position] = replace(result, view=view)
    return replace(functional, results=tuple(results))


def _made_of_contents(nodes: Sequence[Node]) -> set[Node]:
    """Nodes whose result has a size found in contents, and what is computed of those."""
    found: set[Node] = set()
    for node in nodes:
        value = node.meta.get("val")
        results = value if isinstance(value, (list, tuple)) else (value,)
        if any(each in found for each in node.all_input_nodes) or any(
            found_symbol(size) for each in results if isinstance(each, Fake) for size in each.size()
        ):
            found.add(node)
    return found


class _Cases:
    """Answers about `nodes` in order, of which `found` depend on sizes that contents decide."""

    def __init__(self, nodes: Sequence[Node], found: set[Node], sizes: Any) -> None:
        self.nodes, self.found, self.sizes = nodes, found, sizes
        #: What nodes give, for each choice of numbers.
        self.answers: dict[tuple[tuple[str, int], ...], dict[Node, Any]] = {}

    def strides(self, wanted: Node) -> _Strides:
        """Eager's strides of a result, as expressions that hold for each of its sizes."""
        shape = sizes_of(wanted.meta["val"].size())
        names = sorted({name for size in shape for name in symbols(size)} & self.sizes.contents.keys())
        return self._piecewise(wanted, {}, names[:_MOST_SIZES])

    def _piecewise(self, wanted: Node, given: dict[str, int], names: Sequence[str]) -> _Strides:
        if not names:
            return self._of_case(wanted, given)
        name = names[0]
        symbol = self.sizes.left(name)
        low, high = bounds(symbol)
        pieces = {
            number: self._piecewise(wanted, {**given, name: number}, names[1:])
            for number in (0, 1)
            if low <= number <= high
        }
        if high > 1:
            pieces[max(low, 2)] = self._piecewise(wanted, given, names[1:])
        return tuple(
            _joined(symbol, {number: strides[dim] for number, strides in pieces.items()}, max(low, 2))
            for dim in range(len(next(iter(pieces.values()))))
        )

    def _of_case(self, wanted: Node, given: Mapping[str, int]) -> _Strides:
        """Strides where these sizes are those numbers; as recorded, where eager's lie in another order."""
        fake = wanted.meta["val"]
        shape = self._sizes(fake.size(), given)
        recorded = self._sizes(fake.stride(), given)
        answer = self._answers(wanted, given)[wanted]
        asked = sizes_of(answer.stride())
        if 0 not in shape and any(
            size != 1 and one != other for size, one, other in zip(shape, recorded, asked, strict=True)
        ):
            return recorded
        return asked

    def _answers(self, wanted: Node, given: Mapping[str, int]) -> dict[Node, Any]:
        answers = self.answers.setdefault(tuple(given.items()), {})
        needed = self._needed(wanted, answers)
        with self.sizes.nothing_noted():
            for node in self.nodes:
                if node in needed:
                    answers[node] = self._answer(node, given, answers)
        return answers

    def _needed(self, wanted: Node, answers: Mapping[Node, Any]) -> set[Node]:
        needed: set[Node] = set()
        pending = [wanted]
        while pending:
            node = pending.pop()
            if node in self.found and node not in needed and node not in answers:
                needed.add(node)
                pending.extend(node.all_input_nodes)
        return needed

    def _answer(self, node: Node, given: Mapping[str, int], answers: Mapping[Node, Any]) -> Any:
        """What the node gives in this case: asked of its operator where that makes something new, or a view."""
        recorded = self._in_case(node.meta["val"], given)

        def argument(value: Any) -> Any:
            if isinstance(value, Node):
                return answers[value] if value in answers else self._in_case(value.meta["val"], given)
            if isinstance(value, (list, tuple)):
                return type(value)(map(argument, value))
            return self._in_case(value, given)

        if node.target is _torch.getitem:
            return argument(node.args[0])[node.args[1]]
        if node.op != "call_function" or not _torch.is_operator(node.target):
            return recorded
        what = operator(node.target)
        if what.kind == "inplace" and what.written == (0,) and what.returns_written == [True]:
            return argument(node.args[0])
        if what.kind not in ("functional", "view") or what.is_random:
            return recorded
        try:
            kwargs = {name: argument(value) for name, value in node.kwargs.items()}
            asked = evaluate(node.target, tuple(map(argument, node.args)), kwargs)
        except Exception:
            return recorded  # eager raises there as well, or more is asked than is known of other sizes
        return asked if _same_kinds(asked, recorded) else recorded

    def _in_case(self, value: Any, given: Mapping[str, int]) -> Any:
        """A result or an argument, with numbers for sizes."""
        if isinstance(value, Fake):
            shape, strides = (
                [*map(self.sizes.wrap, self._sizes(each, given))] for each in (value.size(), value.stride())
            )
            return _torch.tensor_without_memory(Fake, tuple(shape), tuple(strides), value.dtype, value.device)
        if isinstance(value, torch.SymInt):
            return self.sizes.wrap(substitute(size_of(value), given))
        if isinstance(value, (list, tuple)):
            return type(value)([self._in_case(each, given) for each in value])
        return value

    def _sizes(self, values: Any, given: Mapping[str, int]) -> tuple[Size, ...]:
        return tuple([substitute(each, given) for each in sizes_of(values)])


def _same_kinds(asked: Any, recorded: Any) -> bool:
    """Whether two results are tensors of the same types and sizes."""
    if isinstance(asked, (list, tuple)):
        return (
            isinstance(recorded, (list, tuple))
            and len(asked) == len(recorded)
            and all(map(_same_kinds, asked, recorded))
        )
    if not isinstance(asked, Fake) or not isinstance(recorded, Fake):
        return asked is recorded
    return asked.dtype == recorded.dtype and sizes_of(asked.size()) == sizes_of(recorded.size())


def _joined(symbol: Symbol, pieces: Mapping[int, Size], general: int) -> Size:
    """The expression that is `pieces[number]` where the symbol is that number, or from `general` on any number."""
    last = pieces.get(general)
    if last is not None:
        for guess in (last, substitute(last, {symbol.name: maximum(symbol, 1)})):
            if all(
                substitute(guess, {symbol.name: number}) == each for number, each in pieces.items() if number < general
            ):
                return guess
    numbers = sorted(pieces)
    value = pieces[numbers[0]]
    for before, number in zip(numbers, numbers[1:]):
        is_more = add(minimum(symbol, number), mul(minimum(symbol, number - 1), -1))  # 1 from `number` on
        value = add(value, mul(is_more, add(pieces[number], mul(pieces[before], -1))))
    return value
