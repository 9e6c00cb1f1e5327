"""Nodes of autograd's graph that the program looks at: `y.grad_fn`, `node.next_functions`, hooks on nodes.

    y.grad_fn.register_hook(hook)       the engine calls one native hook for each node and kind of hook, which has the
                                        machine interpret those that the program registered, in order

Fakes have a history of eager's own nodes, so these are shown as they are. The history that a tensor has from outside is
the caller's: it can be compared and handed on, nothing else. A node cannot leave the region: eager's would hang on the
history of all that came before, a region has one node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from lampwork.capture.autograd.backward import leave_hooks_to_eager
from lampwork.capture.machine import Answer
from lampwork.capture.outside import facts
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake

if TYPE_CHECKING:
    from lampwork.capture.outside.guards import GuardList
    from lampwork.capture.outside.load import Loader
    from lampwork.capture.record.recorder import Recorder

#: Nodes where gradients arrive at leaves.
_ACCUMULATES = "AccumulateGrad"


def node_name(node: Any) -> Any:
    """What `node.name()` is to capture: answered natively."""
    return node.name()


def register_hook(node: Any, hook: Any) -> Any:
    """What `node.register_hook(hook)` is to capture."""
    raise AssertionError("has an answer")


def register_prehook(node: Any, hook: Any) -> Any:
    """What `node.register_prehook(hook)` is to capture."""
    raise AssertionError("has an answer")


class Histories:
    """The nodes that the program has."""

    def __init__(self, loader: Loader, guards: GuardList, recorder: Recorder) -> None:
        self.loader, self.guards, self.recorder = loader, guards, recorder
        #: By id: the node, and whether it is of the program's own making.
        self.nodes: dict[int, tuple[Any, bool]] = {}
        #: Hooks that the program registered on nodes, by id of the node and kind.
        self.hooks: dict[tuple[int, str], OrderedDict] = {}

    def of(self, tensor: Any) -> Any:
        """`tensor.grad_fn`."""
        if tensor.is_leaf:
            return None
        if type(tensor) is not Fake:
            raise Break("tensor-attribute", "grad_fn of a tensor that a function transform wraps is read")
        node = tensor.grad_fn
        if node is not tensor.lampwork_edge:
            return self._own_node(node)
        origin = self.loader.origin(tensor)
        if origin is None:
            raise Break("tensor-attribute", "grad_fn of a tensor with a history from outside is read")
        raw, source = facts.history(self.loader, origin)
        if id(raw) not in self.nodes:
            nodes = [known for known, own in self.nodes.values() if not own]
            if nodes:
                self.guards.distinct((source, *(self.loader.by_raw[id(known)].source for known in nodes)))
            self.nodes[id(raw)] = (raw, False)
        return self.loader.load_node(raw, source)

    def _own_node(self, node: Any) -> Any:
        self.nodes[id(node)] = (node, True)
        return node

    def load(self, node: Any, name: str) -> Any:
        """`node.name` of one of the `nodes`."""
        if not self.nodes[id(node)][1]:
            raise Break("opaque-value", "the history that a tensor has from outside is looked at")
        if name == "__class__":
            return type(node)
        method = _METHODS.get(name)
        if method is not None:
            return MethodType(method, node)
        value = getattr(node, name)
        if name == "next_functions":
            return tuple([(self._following(each), index) for each, index in value])
        if name == "variable" and type(node).__name__ == _ACCUMULATES and type(value) is Fake:
            return value
        raise Break("tensor-attribute", f"the attribute {name} of a node of autograd's graph is read")

    def _following(self, node: Any) -> Any:
        if node is None:
            return None
        if any(getattr(fake, "lampwork_edge", None) is node for fake in self.recorder.inputs):
            raise Break("tensor-attribute", "the history of a tensor is followed to what it has from outside")
        return self._own_node(node)


_METHODS: dict[str, Callable] = {
    "name": node_name, "register_hook": register_hook, "register_prehook": register_prehook,
}  # fmt: skip


def _register_hook(world: Any, node: Any, hook: Any) -> Any:
    """A hook that gets the gradients of the node's inputs, which it may replace, and of its results."""

    def run(inputs: tuple, outputs: tuple) -> Any:
        _note_undefined(world, outputs)
        changed = None
        for each in list(table.values()):
            result = world.machine.call(each, (inputs, outputs))
            if result is not None:
                changed = inputs = _checked(result, inputs)
        return changed

    table = _table(world, node, "hook", run)
    return _registered(world, table, hook)


def _register_prehook(world: Any, node: Any, hook: Any) -> Any:
    """A hook that gets the gradients of the node's results, and may replace them."""

    def run(outputs: tuple) -> Any:
        _note_undefined(world, outputs)
        changed = None
        for each in list(table.values()):
            result = world.machine.call(each, (outputs,))
            if result is not None:
                changed = outputs = _checked(result, outputs)
        return changed

    table = _table(world, node, "prehook", run)
    return _registered(world, table, hook)


def _table(world: Any, node: Any, kind: str, run: Any) -> OrderedDict:
    """The node's hooks of that kind; the first one makes the engine call `run`."""
    if type(node).__name__ == _ACCUMULATES:
        raise Break("autograd", "a hook is registered where the gradient of a leaf arrives")
    leave_hooks_to_eager(world)
    table = world.histories.hooks.get((id(node), kind))
    if table is None:
        table = world.histories.hooks[id(node), kind] = OrderedDict()
        world.recorder.own_gradients = "a hook changes gradients in it"
        world.recorder.hook_tables.append(table)
        world.recorder.hooked_nodes.append(node)
        (node.register_hook if kind == "hook" else node.register_prehook)(run)
    return table


def _registered(world: Any, table: OrderedDict, hook: Any) -> Any:
    handle = world.intrinsics[torch.utils.hooks.RemovableHandle](world, table)
    world.set_item(table, handle.id, hook)
    return handle


def _checked(result: Any, replaced: tuple) -> tuple:
    """What a hook returned in the place of gradients."""
    if type(result) is not tuple or len(result) != len(replaced):
        raise Break("autograd", f"a hook on a node returns something else than {len(replaced)} gradients in a tuple")
    if not all(each is None or isinstance(each, Fake) for each in result):
        raise Break("autograd", "a hook on a node returns something else than gradients")
    return result


def _note_undefined(world: Any, gradients: tuple) -> None:
    """A hook is given several gradients: it can tell those that are missing from zeros."""
    if sum(each is not None for each in gradients) > 1:
        world.recorder.tells_undefined = True


NATIVES: dict[Any, Answer] = {
    node_name: lambda world, node: node.name(),
    register_hook: _register_hook,
    register_prehook: _register_prehook,
}

__all__ = ["Histories"]
