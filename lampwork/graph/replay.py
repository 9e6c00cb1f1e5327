"""Makes what eager runs of a region that is differentiated: its `Replay`, where second derivatives are taken, and its
`EagerBackward`, where the compiled backward program fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import REPEATABLE, operator
from lampwork.fakes.symbolic import size_of, sizes_of
from lampwork.graph.build import is_random
from lampwork.ir.body import Body
from lampwork.ir.region import AliasOfInput, FunctionalGraph, Region
from lampwork.ir.replay import Call, EagerBackward, Expression, Gradient, InputLayout, Replay, Value
from lampwork.ir.size import Symbol, symbols


def replay_of(region: Region) -> tuple[Replay | None, str]:
    """The replay of `region`, whose graph is as it was recorded, and why what it does cannot be run again, if so: it is
    good for fakes alone, then, or there is none.

    Guarantees: running it changes nothing that the caller can see, and gives the results that the region gave.
    """
    if region.own_gradients:
        return None, region.own_gradients
    try:
        writer = _Writer(region)
        return writer.write(), writer.unrepeatable
    except _Unrepeatable as stop:
        return None, str(stop)


def eager_backward_of(functional: FunctionalGraph) -> EagerBackward | None:
    """The backward half `functional` as eager's operators, and before any pass changes it; None where it is none."""
    try:
        return _BackwardWriter(functional).write()
    except _Unrepeatable:
        return None


class _Unrepeatable(Exception):
    """What the region does cannot be run again."""


class _Calls:
    """Nodes as data."""

    def __init__(self) -> None:
        self.numbers: dict[Node, int] = {}
        #: Where each size that varies stands.
        self.symbols: dict[str, tuple[int, int | None]] = {}

    def find_symbols(self, placeholders: list[Node]) -> None:
        for index, node in enumerate(placeholders):
            value = node.meta["val"]
            if isinstance(value, Fake):
                for dimension, extent in enumerate(value.size()):
                    self.find_symbol(extent, index, dimension)
            elif isinstance(value, torch.SymInt):
                self.find_symbol(value, index, None)

    def find_symbol(self, extent: object, index: int, dimension: int | None) -> None:
        if isinstance(extent, torch.SymInt):
            size = size_of(extent)
            if isinstance(size, Symbol):
                self.symbols.setdefault(size.name, (index, dimension))

    def call(self, node: Node, name: str, arguments: Sequence[object] | None = None) -> Call:
        """`name`: of the operator that the node calls, with the `arguments` in the place of its own."""
        grad = bool(node.meta.get("grad_enabled", True)) or _has_history_of_its_own(node)
        if node.target is _torch.getitem:
            return Call("", (self.argument(node.args[0]),), (), node.args[1], grad)
        args = tuple(self.argument(each) for each in (node.args if arguments is None else arguments))
        kwargs = tuple((key, self.argument(each)) for key, each in node.kwargs.items())
        return Call(name, args, kwargs, None, grad)

    def argument(self, value: object) -> Any:
        if isinstance(value, Node):
            return Value(self.numbers[value])
        if isinstance(value, torch.SymInt):
            return Expression(size_of(value))
        if isinstance(value, (list, tuple)):
            return [self.argument(each) for each in value]
        if isinstance(value, Body):
            raise _Unrepeatable("it has branches or loops that are nodes of its graph")
        if isinstance(value, _PLAIN):
            return value
        raise _Unrepeatable(f"an operator takes a {type(value).__name__}")

    def known_symbols(self) -> tuple[tuple[str, int, int | None], ...]:
        return tuple((name, index, dimension) for name, (index, dimension) in self.symbols.items())


#: Norms that update running statistics where they take those of the batch, and what they are without any.
_NORMS = {
    "aten::native_batch_norm": "aten::native_batch_norm",
    "aten::_native_batch_norm_legit": "aten::native_batch_norm",
    "aten::_batch_norm_with_update": "aten::native_batch_norm",
    "aten::cudnn_batch_norm": "aten::cudnn_batch_norm",
}


def _is_of_the_batch(node: Node) -> bool:
    """Whether the operator is a norm that updates running statistics."""
    if not _torch.is_operator(node.target) or node.target.name() not in _NORMS or node.kwargs:
        return False
    is_of_batch = len(node.args) == 7 or node.args[5] is True
    return is_of_batch and isinstance(node.args[3], Node) and isinstance(node.args[4], Node)


def _storage(value: object) -> Any:
    """The memory of a node's value; None where it has none."""
    fake = value.meta.get("val") if isinstance(value, Node) else None
    return _torch.storage_key(fake) if isinstance(fake, Fake) else None


def _written_storages(node: Node) -> Iterator[Any]:
    """The memory that an operator writes to."""
    if not _torch.is_operator(node.target):
        return
    for position in operator(node.target).written:
        written = node.args[position] if isinstance(position, int) else node.kwargs.get(position)
        for each in written if isinstance(written, (list, tuple)) else (written,):
            if isinstance(each, Node):
                yield _torch.storage_key(each.meta["val"])


def _has_history_of_its_own(node: Node) -> bool:
    """Whether a derivative that is registered in Python gave the operator's results their history. It was recorded
    inside of that, where none is made; run again, the operator is called as the program calls it."""
    if not _torch.is_operator(node.target):
        return False
    if not _torch.has_python_derivative(node.meta.get("replayed", node.target).name()):
        return False  # its results are not asked: views made without gradients and written since refuse to answer
    results = node.meta.get("val")
    made = results if isinstance(results, (list, tuple)) else (results,)
    return any(isinstance(each, Fake) and each.requires_grad and not each.is_leaf for each in made)


class _Writer(_Calls):
    def __init__(self, region: Region) -> None:
        super().__init__()
        assert region.joint is not None
        self.joint = region.joint
        self.count = len(region.inputs)
        nodes = list(region.graph.nodes)
        self.placeholders = [node for node in nodes if node.op == "placeholder"][: self.count]
        self.outputs: tuple[Any, ...] = nodes[-1].args[0]
        self.nodes = [node for node in nodes if node.op == "call_function" and not node.meta.get("backward")]
        #: The memory of the region's inputs.
        self.outside = {
            _torch.storage_key(node.meta["val"]) for node in self.placeholders if isinstance(node.meta["val"], Fake)
        }
        #: Norms of the batch, which read no running statistics, while nothing reads those that they write: they are run
        #: again without.
        self.without_statistics = {node for node in self.nodes if _is_of_the_batch(node)}
        #: Why operators may run again on fakes alone, if so: they draw random numbers, or read what they write for
        #: others to see.
        self.unrepeatable = ""

    def write(self) -> Replay:
        if any(each.written for each in self.joint.outputs):
            raise _Unrepeatable("it writes to tensors that require grad")  # what they hold is no output of the region
        if self.joint.moved:
            raise _Unrepeatable("it gives a tensor from outside another shape or other memory")
        self.find_symbols(self.placeholders)
        wanted = [self.outputs[each.index] for each in self.joint.outputs]
        used = self.needed(wanted)
        inputs = [(index, node) for index, node in enumerate(self.placeholders) if node in used]
        literals: list[tuple[str, tuple[int, ...], bytes]] = []
        for _, node in inputs:
            self.numbers[node] = len(self.numbers)
        calls = [node for node in self.nodes if node in used]
        for node in calls:
            if node.target is _torch.tensor_constant:
                self.numbers[node] = len(self.numbers)
                literals.append(node.args)
        placed = any(node.target is torch.ops.aten.as_strided.default for node in calls)
        made = []
        for node in calls:
            if node not in self.numbers:
                made.append(self.call_again(node))
                self.numbers[node] = len(self.numbers)
        return Replay(
            tuple(index for index, _ in inputs),
            tuple(literals),
            tuple(made),
            tuple(self.numbers[node] for node in wanted),
            # Those that it needs stand at inputs that it reads. The call's others may stand anywhere.
            tuple(each for each in self.known_symbols() if self.placeholders[each[1]] in used),
            tuple(_layout(node.meta["val"], placed) for _, node in inputs),
        )

    def needed(self, wanted: list[Any]) -> set[Node]:
        """The nodes that the outputs need: those that they name, and all that write to memory of the region. What is
        written to memory of others is not written again, so nothing may read that; and nothing may be drawn."""
        writes = {node: storages for node in self.nodes if (storages := set(_written_storages(node)))}
        while True:
            writing = [node for node, storages in writes.items() if node not in self.without_statistics]
            found = self.led_to([*wanted, *(node for node in writing if not writes[node] & self.outside)])
            read = {_storage(each) for node in found for each in self.read_by(node)}
            read_after_all = {node for node in self.without_statistics if (writes[node] - self.outside) & read}
            if not read_after_all:
                break
            self.without_statistics -= read_after_all
        if any(storages & self.outside & read for storages in writes.values()):
            self.unrepeatable = "it reads tensors from outside that it writes to"
            found = self.led_to([*wanted, *writing])
        for node in found:
            if is_random(node):
                self.unrepeatable = f"it draws random numbers ({node.target})"
        for name in {name for node in found for name in _names(node)}:
            if name not in self.symbols:
                raise _Unrepeatable("contents of tensors decide its sizes")
            found.add(self.placeholders[self.symbols[name][0]])
        return found

    def led_to(self, ends: list[Any]) -> set[Node]:
        """The nodes that `ends` are computed from, with them."""
        found: set[Node] = set()
        pending = [*ends]
        while pending:
            node = pending.pop()
            if node not in found:
                found.add(node)
                pending.extend(self.read_by(node))
        return found

    def call_again(self, node: Node) -> Call:
        name = self.name(node)
        if node not in self.without_statistics:
            return self.call(node, name)
        training = (True,) if len(node.args) == 7 else ()
        return self.call(node, _NORMS[name], (*node.args[:3], None, None, *training, *node.args[5:]))

    def read_by(self, node: Node) -> list[Node]:
        """What a node reads when it is run again."""
        if node in self.without_statistics:
            return [each for each in (*node.args[:3], *node.args[5:]) if isinstance(each, Node)]
        return list(node.all_input_nodes)

    def name(self, node: Node) -> str:
        if node.target is _torch.getitem:
            return ""
        if not _torch.is_operator(node.target):
            raise _Unrepeatable(f"it calls {node.target}")
        name: str = node.meta.get("replayed", node.target).name()
        if name.startswith("lampwork") and name not in REPEATABLE and not name.startswith(_torch.GIVEN_NUMBERS):
            raise _Unrepeatable(f"it calls {name}")
        return name


class _BackwardWriter(_Calls):
    def __init__(self, functional: FunctionalGraph) -> None:
        super().__init__()
        self.functional = functional
        nodes = list(functional.graph.nodes)
        self.placeholders = [node for node in nodes if node.op == "placeholder"]
        self.nodes = [node for node in nodes if node.op in ("call_function", "get_attr")]
        self.outputs: tuple[Any, ...] = nodes[-1].args[0]

    def write(self) -> EagerBackward:
        self.find_symbols(self.placeholders)
        if any(not self.symbols.keys() >= _names(node) for node in self.nodes):
            raise _Unrepeatable("contents of tensors decide its sizes")
        for node in self.placeholders:
            self.numbers[node] = len(self.numbers)
        literals = [node for node in self.nodes if node.op == "get_attr"]
        for node in literals:
            self.numbers[node] = len(self.numbers)
        calls = []
        for node in self.nodes:
            if node.op == "get_attr":
                continue
            if node.target is not _torch.getitem and not _torch.is_operator(node.target):
                raise _Unrepeatable(f"it calls {node.target}")
            name = "" if node.target is _torch.getitem else node.target.name()
            calls.append(self.call(node, name))
            self.numbers[node] = len(self.numbers)
        return EagerBackward(
            len(self.placeholders),
            tuple(map(_literal, literals)),
            tuple(calls),
            tuple(map(self.gradient, self.functional.results)),
            self.known_symbols(),
        )

    def gradient(self, result: Any) -> Gradient:
        node = self.placeholders[result.input] if isinstance(result, AliasOfInput) else self.outputs[result.index]
        if result.view is None:
            return Gradient(self.numbers[node], None, result.dtype, result.conjugate)
        shape, strides, offset = result.view
        view = (tuple(map(self.extent, shape)), tuple(map(self.extent, strides)), self.extent(offset))
        return Gradient(self.numbers[node], view, result.dtype, result.conjugate)

    def extent(self, value: object) -> Any:
        size = size_of(value)
        if isinstance(size, int):
            return size
        if not self.symbols.keys() >= set(symbols(size)):
            raise _Unrepeatable("contents of tensors decide its sizes")
        return Expression(size)


def _literal(node: Node) -> tuple[str, tuple[int, ...], bytes]:
    constant: torch.Tensor = node.meta["constant"]
    if node.meta["val"].device.type != "cpu":
        raise _Unrepeatable("it reads a constant on another device")
    data = constant.reshape(-1).view(torch.uint8).numpy().tobytes() if constant.numel() else b""
    return str(constant.dtype).removeprefix("torch."), tuple(constant.shape), data


def _layout(value: Any, placed: bool) -> InputLayout:
    if not isinstance(value, Fake):
        return InputLayout("", (size_of(value),))
    place = (0, 0)
    if placed:
        offset, room = value.storage_offset(), _torch.storage_bytes(value)
        fixed = all(type(each) is int for each in (*value.size(), *value.stride(), offset, room))
        place = (offset, room) if fixed else (0, _ROOM)
    return InputLayout(
        str(value.dtype).removeprefix("torch."), sizes_of(value.size()), sizes_of(value.stride()), str(value.device),
        value.requires_grad, value.is_leaf, *place,
    )  # fmt: skip


#: Bytes of the storage of a tensor that varies: layouts do not depend on it, so it is larger than what a view reaches.
_ROOM = 1 << 50


def _names(node: Node) -> set[str]:
    """The symbols among a node's arguments."""
    found: set[str] = set()

    def look(value: object) -> None:
        if isinstance(value, torch.SymInt):
            found.update(symbols(size_of(value)))
        elif isinstance(value, (list, tuple)):
            for each in value:
                look(each)

    look((node.args, tuple(node.kwargs.values())))
    return found


_PLAIN = (
    type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
