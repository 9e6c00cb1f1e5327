"""Parts of a recording that become graphs of their own: branches, and what a loop does once.

    %s = sin(%x)              <- recorded while the branch is interpreted          Body:  %a, %b = placeholders
    %m = mm(%s, %w)                                                                       %s = sin(%a)
                              -> cut out: what it reads is an input                       %m = mm(%s, %b)
    %c = cond(%p, [%x, %w], Body, ..)                                                     return (%m,)

What a branch reads needs no list: the nodes outside that its nodes name are its inputs, tensors from closures among
them. What a graph cannot hold for a part that may run never, or many times, is refused: writes to tensors outside of
it, random numbers, sizes that contents decide, checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.fakes.operators import CONTROL_FLOW, operator
from lampwork.fakes.shapes import contiguous
from lampwork.fakes.symbolic import size_of, sizes_of
from lampwork.ir.body import Body
from lampwork.ir.size import Symbol, symbols

aten = torch.ops.aten


class Refused(Break):
    """What the part does is no graph of its own."""

    def __init__(self, reason: str) -> None:
        super().__init__("control-flow", reason)


class Part:
    """The nodes that were recorded for one body, which are still in the recording's graph.

    `parameters`: nodes among them that stand for what is given anew each time; `results`: nodes. `differentiates`: it
    is what autograd does, which detaches what it saves: those are the same tensors to second derivatives."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.nodes: list[Node] = []
        self.parameters: list[Node] = []
        self.results: list[Node] = []
        self.differentiates = False

    def parameter(self, like: Any) -> Fake:
        """A tensor with this metadata that is given anew each time the body runs."""
        options = {"dtype": like.dtype, "device": like.device}
        layout = (list(like.size()), list(like.stride()))
        with torch.no_grad():
            made: Fake = self.recorder.call(aten.empty_strided.default, layout, options)
        self.parameters.append(self.recorder.node_of(made))
        return made

    def take(self, last: Node) -> None:
        """Its nodes are what was recorded after `last`."""
        self.nodes = _since(last)

    def returns(self, results: Sequence[Any]) -> None:
        self.results = [self.recorder.node_of(each) for each in results]

    def outside(self) -> list[Node]:
        """What the nodes read that is not theirs."""
        own = set(self.nodes)
        found = (each for node in self.nodes for each in node.all_input_nodes)
        return list(dict.fromkeys(each for each in (*found, *self.results) if each not in own))

    def body(self, inputs: Sequence[Node]) -> Body:
        """The nodes as a graph of the parameters and then of these `inputs`. Raises `Refused`."""
        given = [*self.parameters, *inputs]
        known = _known_symbols(self.nodes, given)
        graph = torch.fx.Graph()
        made: dict[Node, Node] = {}
        for index, node in enumerate(given):
            made[node] = _torch.append_placeholder(graph, f"input_{index + 1}")
            made[node].meta = {"val": node.meta["val"], "location": node.meta["location"], "grad_enabled": True}
        for node in self.nodes:
            if node.target is aten.detach.default and _OWN not in node.meta and self.differentiates:
                made[node] = made[node.args[0]]
            if node not in made:
                base = operator(node.target).base if _torch.is_operator(node.target) else node.target.__name__
                kwargs = {key: _mapped(each, made, known) for key, each in node.kwargs.items()}
                args = tuple(_mapped(each, made, known) for each in node.args)
                made[node] = _torch.append_node(graph, base, node.target, args, kwargs)
                made[node].meta = {name: each for name, each in node.meta.items() if name in _KEPT}
        graph.output(tuple(made[node] for node in self.results))
        return Body(_digest(graph), graph)

    def discard(self) -> None:
        """Takes the nodes out of the recording."""
        self.recorder.taken_out += self.nodes
        for node in reversed(self.nodes):
            self.recorder.graph.erase_node(node)
            node.graph = _TAKEN_OUT  # whoever kept a tensor of theirs breaks the graph


#: Where nodes belong that were taken out.
_TAKEN_OUT = torch.fx.Graph()
#: In the `meta` of a node that detaches because the program does.
_OWN = "own detach"
_KEPT = frozenset({"val", "location", "grad_enabled", "replayed", _OWN})


@contextmanager
def recorded(recorder: Any) -> Iterator[Part]:
    """A part whose nodes are what is recorded inside; checked at the end. Raises `Refused`; whatever is raised, the
    nodes are taken out again."""
    part = Part(recorder)
    contents = recorder.contents
    kept = contents.allowed, dict(contents._places), dict(contents._numbers), dict(contents.batches)
    contents.allowed = False
    last = recorder.graph._root._prev
    written = {key: len(each) for key, each in recorder.writes_to.items()}
    try:
        try:
            yield part
        finally:
            contents.allowed, contents._places, contents._numbers, contents.batches = kept
            part.take(last)
        _check(part, {key for key, each in recorder.writes_to.items() if len(each) > written.get(key, 0)})
    except BaseException:
        part.discard()
        raise


def _since(last: Node) -> list[Node]:
    """The operators after `last`, but for parts of its result, whose nodes are added when they are first asked for."""
    found: list[Node] = []
    own: set[Node] = set()
    node = last._next
    while node.op != "root":
        if node.op == "call_function" and (node.target is not _torch.getitem or node.args[0] in own):
            found.append(node)
            own.add(node)
        node = node._next
    return found


def _check(part: Part, written: set[int]) -> None:
    own = set(part.nodes)
    for node in part.nodes:
        if not _torch.is_operator(node.target):
            continue
        op = operator(node.target)
        name = node.target.name()
        if op.is_random:
            raise Refused(f"{node.target} draws random numbers")
        if name.startswith("aten::_assert"):
            raise Refused("something is assumed of the contents of tensors")
        if op.kind in ("data-dependent", "metadata", "storage") or op.has_effect:
            raise Refused(f"{node.target} is called")
        if op.base in _BY_PLACE:
            raise Refused(f"{node.target} reads wherever it is told to")
        if not _is_plain((node.args, tuple(node.kwargs.values()))):
            raise Refused(f"{node.target} is given something else than tensors and plain data")
    outside = {each for node in part.nodes for each in node.all_input_nodes if each not in own}
    for node in (*outside, *part.results):
        if not isinstance(node.meta.get("val"), Fake):
            raise Refused("a number of another kind than tensors is read")
    if written & {_torch.storage_key(node.meta["val"]) for node in (*outside, *part.parameters)}:
        raise Refused("it writes to a tensor from outside of it")
    memory = [_torch.storage_key(node.meta["val"]) for node in (*outside, *part.parameters)]
    for node in part.results:
        key = _torch.storage_key(node.meta["val"])
        if node not in own or key in memory:
            raise Refused("a result shares memory with something else")
        memory.append(key)


#: Operators that count from the beginning of a storage.
_BY_PLACE = frozenset({"as_strided", "as_strided_scatter", "as_strided_copy"})
_PLAIN = (
    Node, type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch.SymInt,
)  # fmt: skip


def _is_plain(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _values(node: Node) -> tuple:
    value = node.meta.get("val")
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _mapped(value: Any, made: dict[Node, Node], known: set[str]) -> Any:
    if isinstance(value, Node):
        return made[value]
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(each, made, known) for each in value)
    if isinstance(value, torch.SymInt) and not symbols(size_of(value)) <= known:
        return int(value)
    return value


def layout_of(tensor: Any) -> tuple:
    """Sizes, strides, type and device, equal where these are for all sizes that the program serves."""
    return sizes_of(tensor.size()), sizes_of(tensor.stride()), tensor.dtype, tensor.device


def _known_symbols(nodes: Sequence[Node], given: Sequence[Node]) -> set[str]:
    """The sizes that a body finds in the tensors that it is given. Others that its nodes name become numbers, which
    guards hold. Raises `Refused` where that is not enough, and for such tensors that are not row-major: what runs a
    body knows the rest of them."""
    known: set[str] = set()
    for node in given:
        sizes, strides, *_ = layout_of(node.meta["val"])
        known |= {each.name for each in sizes if isinstance(each, Symbol)}
        if any(type(each) is not int for each in strides) and strides != sizes_of(contiguous(node.meta["val"].size())):
            raise Refused("a tensor whose sizes vary is not row-major")
    for node in (*nodes, *given):
        tensors = [each for each in _values(node) if isinstance(each, Fake)]
        extents = [each for tensor in tensors for each in (*tensor.size(), *tensor.stride())]
        for each in _sizes_in((node.args, tuple(node.kwargs.values()), extents)):
            if not symbols(size_of(each)) <= known:
                int(each)
        if any(not symbols(size) <= known for tensor in tensors for size in _sizes_of(tensor)):
            raise Refused("a size varies that no tensor has which it reads")
    return known


def _sizes_of(tensor: Any) -> tuple:
    sizes, strides, *_ = layout_of(tensor)
    return (*sizes, *strides)


def _sizes_in(value: object) -> Iterator[Any]:
    if isinstance(value, torch.SymInt):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _sizes_in(each)


def _digest(graph: torch.fx.Graph) -> str:
    """Equal for graphs that compute the same of the same."""
    numbers: dict[Node, int] = {}
    lines: list[Any] = []

    def told(value: Any) -> Any:
        if isinstance(value, Node):
            return f"%{numbers[value]}"
        if isinstance(value, (tuple, list)):
            return [told(each) for each in value]
        if isinstance(value, bytes):
            return hashlib.sha256(value).hexdigest()
        if isinstance(value, torch.SymInt):
            return str(size_of(value))
        return value.hex() if isinstance(value, float) else repr(value)

    for node in graph.nodes:
        layouts = [list(map(str, layout_of(each))) for each in _values(node) if isinstance(each, torch.Tensor)]
        kwargs = {key: told(each) for key, each in node.kwargs.items()}
        grad = node.meta.get("grad_enabled")
        lines.append((node.op, str(node.target) if node.op == "call_function" else "", told(node.args), kwargs))
        lines.append((layouts, grad))
        numbers[node] = len(numbers)
    return hashlib.sha256(repr(lines).encode()).hexdigest()[:32]


# Running a body in the recording -----------------------------------------------------------------------------------


def replayed(recorder: Any, body: Body, inputs: Sequence[Any], run: Callable[..., Any]) -> list[Any]:
    """The results of a body of these inputs, its operators recorded where they are called. They are differentiated as
    the program's are. `run(operator name, args)`: what an operator gives that runs graphs itself."""
    values: dict[Node, Any] = {}
    given = iter(inputs)
    enabled = torch.is_grad_enabled()

    def value(argument: Any) -> Any:
        if isinstance(argument, Node):
            return values[argument]
        if isinstance(argument, (tuple, list)):
            return [value(each) for each in argument]
        return argument

    with _torch.without_autocast():
        for node in body.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "output":
                return [values[each] for each in node.args[0]]
            elif node.target is _torch.getitem:
                values[node] = values[node.args[0]][node.args[1]]
            elif node.target is _torch.tensor_constant:
                with recorder._paused():
                    literal = _torch.tensor_constant(*node.args)
                values[node] = recorder.constant(literal)
            else:
                args = [value(each) for each in node.args]
                kwargs = {key: value(each) for key, each in node.kwargs.items()}
                with torch.set_grad_enabled(enabled and node.meta["grad_enabled"]):
                    name = node.target.name()
                    is_flow = name.partition(".")[0] in CONTROL_FLOW
                    values[node] = run(name, args) if is_flow else node.target(*args, **kwargs)
                if node.target is aten.detach.default:
                    recorder.node_of(values[node]).meta[_OWN] = True
    raise AssertionError("a body has an output")
