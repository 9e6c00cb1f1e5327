"""`lampwork.Pattern`: a part of a program, and what takes its place, both as functions of torch.

    def slow(x, w):                                 %pow = pow(%x, 2);  %mean = mean(%pow, [-1], True);  ...
        return x * x.pow(2).mean(-1, True) * w      %mul_1 = mul(%mul, %w)

    def fast(x, w):                         ->
        return torch.ops.mine.fast(x, w)            %fast = mine.fast(%x, %w)

A pattern is found in two steps. With the example inputs it gives the operators that are looked for, whatever numbers
they are called with: sizes, most of all. Where these are found, both functions are traced again, on what the program
has in place of the examples. The pattern must be exactly what is there; then the replacement is put in its place, if
it gives results with the same metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.errors import OptionError, PassError
from lampwork.ir.passes import name_of

#: Operators whose first two arguments may come the other way round.
_COMMUTATIVE = frozenset({"aten::add.Tensor", "aten::mul.Tensor", "aten::maximum", "aten::minimum"})

#: What a match has in place of nodes of the pattern, and of numbers among its arguments (by position).
_Bound = dict[Any, Any]


class Pattern:
    """A pass that replaces what `pattern` computes, wherever it is computed, by `replacement`.

    pattern, replacement   functions of the same arguments that return a tensor, or as many; both are traced
    example_inputs         arguments that `pattern` can be called with: tensors of the type that programs have there, of
                           any size, and numbers. A number stands for whatever number the program has in its place;
                           choose one that nothing else in the pattern is
    check                  called with the arguments of a match, tensors without memory and numbers: whether to replace
    name, digest           as for `lampwork.GraphPass`

    Called with a graph it replaces all it finds, and returns how often. Values that are computed inside of a match, and
    read elsewhere, keep it from being one. Raises `PassError` where the functions cannot be traced, or do not return
    the same.
    """

    def __init__(
        self,
        pattern: Callable[..., Any],
        replacement: Callable[..., Any],
        example_inputs: Sequence[Any],
        *,
        check: Callable[..., bool] | None = None,
        name: str = "",
        digest: str | bytes | None = None,
    ) -> None:
        for each in (pattern, replacement):
            if not callable(each):
                raise OptionError(f"a pattern and its replacement are functions, not {each!r}")
        if not isinstance(example_inputs, (tuple, list)):
            raise OptionError(f"example_inputs are a tuple of arguments, not {example_inputs!r:.100}")
        self.pattern, self.replacement, self.check = pattern, replacement, check
        self.example_inputs = tuple(example_inputs)
        self.name = name or name_of(pattern)
        self.digest = digest
        self._looked_for: Any = None

    def __repr__(self) -> str:
        return f"<pattern {self.name}>"

    def __call__(self, graph: torch.fx.Graph) -> int:
        from lampwork.passes.copies import copy_into

        looked_for = self._traced(self.pattern, self.example_inputs)
        count = 0
        gone: set[Node] = set()
        for anchor in list(graph.nodes):
            if anchor in gone:
                continue
            for bound in _matches(looked_for, anchor, self._numbers(), None):
                match = self._exact(bound, anchor)
                if match is None or not self._may_be_replaced(match, anchor):
                    continue
                arguments = [match[place] for place in range(len(self.example_inputs))]
                made = self._traced(self.replacement, list(map(_value, arguments)))
                results = [match[node] for node in match["results"]]
                self._check_results(results, made.results)
                last = max(results, key=list(graph.nodes).index)
                new = copy_into(graph, last.next, made, arguments, last)
                for old, each in zip(results, new):
                    old.replace_all_uses_with(each)
                gone |= _erased(graph, [match[node] for node in match["inside"]])
                count += 1
                break
        return count

    # A match --------------------------------------------------------------------------------------------------------

    def _numbers(self) -> dict[int, Any]:
        """Those among the example inputs, by position."""
        return {place: each for place, each in enumerate(self.example_inputs) if not isinstance(each, torch.Tensor)}

    def _exact(self, bound: _Bound, anchor: Node) -> _Bound | None:
        """The match of the pattern as it is for the arguments that were found; None where that is something else."""
        arguments = []
        for place, each in enumerate(self.example_inputs):
            if place not in bound and isinstance(each, torch.Tensor):
                return None  # an argument that the pattern does not read
            arguments.append(bound.get(place, each))
        if self.check is not None and not self.check(*map(_value, arguments)):
            return None
        try:
            exact = self._traced(self.pattern, list(map(_value, arguments)))
        except PassError:
            return None  # it is of other sizes than the pattern takes
        for found in _matches(exact, anchor, {}, arguments):
            found.update(enumerate(arguments))
            found["results"] = exact.results
            found["inside"] = [node for node in exact.graph.nodes if node.op in ("call_function", "get_attr")]
            return found
        return None

    def _may_be_replaced(self, match: _Bound, anchor: Node) -> bool:
        """Whether nothing but the results is read from outside, and nothing reads these too early."""
        inside = {match[node] for node in match["inside"]}
        results = [match[node] for node in match["results"]]
        arguments = [match[place] for place in range(len(self.example_inputs))]
        if any(each not in inside for each in results) or len(set(results)) < len(results):
            return False
        if any(isinstance(each, Node) and each in inside for each in arguments):
            return False  # one result is needed for another
        if any(user.target is torch.ops.aten.as_strided.default for each in results for user in each.users):
            return False  # which counts from where memory begins
        for node in inside:
            if node not in results and node.op != "get_attr" and any(user not in inside for user in node.users):
                return False
        order = {node: place for place, node in enumerate(anchor.graph.nodes)}
        last = max(order[each] for each in results)
        return all(order[user] > last for each in results for user in each.users if user not in inside)

    def _check_results(self, old: Sequence[Node], new: Sequence[Node]) -> None:
        from lampwork.fakes.fake import describe
        from lampwork.graph.build import same_metadata

        if len(old) != len(new):
            raise PassError(f"pattern {self.name} has {len(old)} results, and its replacement {len(new)}")
        for place, (left, right) in enumerate(zip(old, new)):
            before, after = left.meta["val"], right.meta["val"]
            if not same_metadata(before, after) or before.device != after.device:
                raise PassError(
                    f"the replacement of pattern {self.name} gives {describe(after)} as result {place}, in place of "
                    f"{describe(before)}. Convert it, or copy it into that layout; or refuse such matches by check=..."
                )

    def _traced(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        from lampwork.passes.trace import traced

        is_example = function is self.pattern and arguments is self.example_inputs
        if is_example and self._looked_for is not None:
            return self._looked_for
        try:
            found = traced(function, arguments)
        except Exception as error:
            what = "pattern" if function is self.pattern else "the replacement of pattern"
            raise PassError(
                f"{what} {self.name} cannot be traced on {', '.join(map(_described, arguments))}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if is_example:
            if any(node.op == "placeholder" for node in found.results):
                raise PassError(f"pattern {self.name} returns one of its arguments: there is nothing to look for")
            self._looked_for = found
        return found


def _value(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, Node) else argument


def _described(argument: Any) -> str:
    from lampwork.fakes.fake import describe

    return describe(argument) if isinstance(argument, torch.Tensor) else repr(argument)


def _erased(graph: torch.fx.Graph, nodes: Sequence[Node]) -> set[Node]:
    """Those of `nodes`, which are in order, that nobody reads any more, removed."""
    gone = set()
    for node in sorted(set(nodes), key=list(graph.nodes).index, reverse=True):
        if not node.users:
            graph.erase_node(node)
            gone.add(node)
    return gone


# Finding --------------------------------------------------------------------------------------------------------------


def _matches(
    looked_for: Any, anchor: Node, numbers: dict[int, Any], arguments: Sequence[Any] | None
) -> Iterator[_Bound]:
    """Ways to read `anchor` as the last result of what is looked for. `numbers`: arguments that stand for any number;
    with them numbers in the program may be any. `arguments`: those that it has, which makes everything exact."""
    results = looked_for.results
    places = {node: place for place, node in enumerate(looked_for.inputs) if node is not None}
    start: _Bound = {}
    if arguments is not None:
        start = {place: each for place, each in enumerate(arguments) if isinstance(each, Node)}
    finder = _Finder(places, numbers, arguments is not None)
    found: Iterator[_Bound] = finder.node(results[-1], anchor, start)
    for other in results[:-1]:
        found = _with_result(finder, other, anchor, found)
    yield from found


def _with_result(finder: _Finder, result: Node, anchor: Node, found: Iterator[_Bound]) -> Iterator[_Bound]:
    """`found`, with another result of the pattern found before the anchor or after it."""
    for bound in found:
        candidates = (
            [bound[result]] if result in bound else [each for each in anchor.graph.nodes if each.op == "call_function"]
        )
        for each in candidates:
            yield from finder.node(result, each, bound)


class _Finder:
    """Finds nodes of a pattern in a graph. Bound are nodes of the pattern, and its arguments by position."""

    def __init__(self, places: dict[Node, int], numbers: dict[int, Any], exact: bool) -> None:
        self.places, self.numbers, self.exact = places, numbers, exact

    def node(self, wanted: Node, node: Any, bound: _Bound) -> Iterator[_Bound]:
        """Ways in which `node` is what the pattern has in `wanted`, each as what is bound by then."""
        if not isinstance(node, Node):
            return
        key: Any = self.places.get(wanted, wanted)
        if key in bound:
            if bound[key] is node:
                yield bound
            return
        if wanted.op == "placeholder":
            yield {**bound, key: node}
            return
        if wanted.op != node.op or wanted.target is not node.target and wanted.op != "get_attr":
            return
        if wanted.op == "get_attr":
            if _same_tensor(wanted.meta["constant"], node.meta.get("constant")):
                yield {**bound, key: node}
            return
        for left, right in _orders(wanted, node):
            for found in self.value(left, right, bound):
                yield {**found, key: node}

    def value(self, wanted: Any, value: Any, bound: _Bound) -> Iterator[_Bound]:
        """The same for arguments."""
        if isinstance(wanted, Node):
            yield from self.node(wanted, value, bound)
        elif isinstance(wanted, (tuple, list)):
            if isinstance(value, (tuple, list)) and len(value) == len(wanted):
                yield from self.values(list(wanted), list(value), bound)
        elif _is_number(wanted) and _is_number(value):
            yield from self.number(wanted, value, bound)
        elif not isinstance(value, Node) and type(value) is type(wanted) and value == wanted:
            yield bound

    def values(self, wanted: list[Any], values: list[Any], bound: _Bound) -> Iterator[_Bound]:
        if not wanted:
            yield bound
            return
        for found in self.value(wanted[0], values[0], bound):
            yield from self.values(wanted[1:], values[1:], found)

    def number(self, wanted: Any, value: Any, bound: _Bound) -> Iterator[_Bound]:
        if self.exact:
            if _key(wanted) == _key(value):
                yield bound
            return
        place = next((place for place, each in self.numbers.items() if _key(each) == _key(wanted)), None)
        if place is None:
            yield bound
        elif place not in bound:
            yield {**bound, place: value}
        elif _key(bound[place]) == _key(value):
            yield bound


def _orders(wanted: Node, node: Node) -> Iterator[tuple[list[Any], list[Any]]]:
    """The arguments of two calls of one operator, side by side."""
    if not _torch.is_operator(node.target):
        yield [*wanted.args], [*node.args]
        return
    left, right = _arguments(wanted), _arguments(node)
    yield left, right
    if node.target.name() in _COMMUTATIVE and all(isinstance(each, Node) for each in right[:2]):
        yield left, [right[1], right[0], *right[2:]]


def _arguments(node: Node) -> list[Any]:
    """All arguments of a call in the order of the schema, defaults among them."""
    given = list(node.args)
    for argument in node.target._schema.arguments[len(given) :]:
        if argument.name in node.kwargs:
            given.append(node.kwargs[argument.name])
        else:
            given.append(argument.default_value if argument.has_default_value() else None)
    return given


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, torch.SymInt))


def _key(value: Any) -> Any:
    """Equal for equal numbers of one kind, symbols among them; asks no symbol for its number."""
    if isinstance(value, torch.SymInt):
        from lampwork.fakes.symbolic import size_of

        return int, size_of(value)
    return type(value), value.hex() if isinstance(value, float) else value


def _same_tensor(left: torch.Tensor, right: Any) -> bool:
    return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
