"""The autograd engine on fakes: derivatives are recorded like everything else, gradients land where eager puts them.

    loss.backward()     the engine runs natively on the history that fakes have, and adds to `fake.grad`

A leaf from outside has the gradient that its caller left there: before the engine runs, `fake.grad` is what the program
would read (None, or the fake of that tensor, guarded); afterwards what changed is an effect. An existing gradient is
added to in place, as in eager, which is a write to an input of the graph.

Hooks on tensors are run by the engine through one native hook for each tensor, which has the machine interpret those
that the program knows, in order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.autograd.derivatives import as_of_plain_tensors
from lampwork.capture.autograd.reached import reached_nodes
from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake

#: Attributes of a tensor that hold its hooks: tables by number, or None.
HOOK_TABLES = ("_backward_hooks", "_post_accumulate_grad_hooks")


def run_backward(
    world: Any, outputs: Any, gradients: Any, keep_graph: bool, create_graph: bool, inputs: Any,
    allow_unreachable: bool = True, accumulate_grad: bool = False,
) -> Any:  # fmt: skip
    """The engine's answer (gradients of `inputs`, unless it accumulates). Raises what the engine raises."""
    settings = (keep_graph, create_graph, allow_unreachable, accumulate_grad)
    if not world.data.are_data((outputs, gradients, inputs, *settings), {}):
        what = world.data.describe_arguments((outputs, gradients, inputs), {})
        raise Break("autograd", f"gradients are taken with {what}")
    refuse_anomalies()
    _torch.keep_dynamo_unloaded()
    nodes = reached_nodes(outputs)
    leaves = _leaves(outputs, nodes)
    asked = {id(each) for each in inputs}
    for leaf in leaves:
        if leaf.lampwork_history and (not asked or _lies_behind(world, inputs, leaf)):
            raise Break("autograd", "gradients flow into the history that a tensor has from outside")
    adding = [leaf for leaf in leaves if accumulate_grad and (not asked or id(leaf) in asked)]
    for each in inputs:
        if accumulate_grad and not each.is_leaf and world.loader.origin(each) is not None:
            raise Break("autograd", "gradients are added to a tensor from outside that is no leaf")
        if each.grad_fn is not None:
            _no_hooks_outside(world, each)
    outside = [leaf for leaf in adding if world.loader.origin(leaf) is not None]
    hooked = _install_hooks(world, leaves, adding)
    before = [world.tensor_attributes.load(leaf, "grad") for leaf in outside]
    for leaf, gradient in zip(outside, before):
        leaf.grad = gradient
    world.tensor_attributes.accumulating.update(map(id, outside))
    inside, world.recorder.takes_gradients = world.recorder.takes_gradients, True
    try:
        with as_of_plain_tensors(world.recorder, nodes):
            answer = _torch.run_backward(
                outputs, gradients, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad=accumulate_grad
            )
    finally:
        after = [leaf.grad for leaf in outside]
        world.recorder.takes_gradients = inside
        if not keep_graph:
            world.loader.freed_histories = True
            world.loader.freed_nodes.update(node for node in nodes if type(node).__name__ == "CopySlices")
        world.tensor_attributes.accumulating.difference_update(map(id, outside))
        for leaf in outside:
            leaf.grad = None
        for leaf, name in hooked:
            setattr(leaf, name, None)
        for leaf, old, new in zip(outside, before, after):  # those that came before an error, too
            if new is not old:
                world.tensor_attributes.store(leaf, "grad", new)
    return answer


def refuse_anomalies() -> None:
    """A break where the engine would look at the contents of stand-ins."""
    if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
        raise Break("autograd", "anomaly detection looks at the gradients of every operator for NaN")


def _lies_behind(world: Any, inputs: Iterable[Any], history: Fake) -> bool:
    """Whether one of `inputs` may be part of what a tensor from outside was computed from: any other tensor from
    outside may, since its history is not looked at."""
    others = (each for each in inputs if world.loader.origin(each) is not None)
    return any(each.lampwork_source is not history.lampwork_source for each in others)


def _leaves(outputs: Iterable[Any], nodes: Iterable[Any]) -> list[Any]:
    """The leaves that gradients flow into, each once."""
    found = {id(each): each for each in outputs if type(each) is Fake and each.is_leaf and each.requires_grad}
    for node in nodes:
        if type(node).__name__ == "AccumulateGrad" and type(node.variable) is Fake:
            found[id(node.variable)] = node.variable
    return list(found.values())


def is_spent(tensor: Any, freed: Collection[Any]) -> bool:
    """Whether a `backward()` has freed part of the tensor's history, so that another through it raises. `freed`: nodes
    that were, and do not show it."""
    for node in reached_nodes((tensor,)):
        if node in freed:
            return True
        for name in dir(node):
            if name.startswith("_saved_") or name == "saved_tensors":
                try:
                    with _torch.kernels_only():  # a saved result is detached, which the program did not ask for
                        getattr(node, name)
                except RuntimeError:
                    return True
    return False


def has_new_history(fake: Any) -> bool:
    """Whether the program wrote to an input something that requires grad."""
    written = isinstance(fake, Fake) and fake.requires_grad and not fake.is_leaf
    return written and fake.grad_fn is not fake.lampwork_edge


def has_usable_history(loader: Any, fake: Any) -> bool:
    """The same, and no `backward()` of the program has freed what it depends on."""
    return has_new_history(fake) and not (loader.freed_histories and is_spent(fake, loader.freed_nodes))


# Hooks ----------------------------------------------------------------------------------------------------------------


def _install_hooks(world: Any, leaves: Iterable[Any], adding: Iterable[Any]) -> list[tuple[Any, str]]:
    """Native hooks for one run of the engine, on the leaves that have hooks."""
    installed = []
    for name, tensors in zip(HOOK_TABLES, (leaves, adding)):
        for leaf in tensors:
            table = world.tensor_attributes.load(leaf, name)
            if table:
                run = _gradient_hook(world, table) if name == HOOK_TABLES[0] else _tensor_hook(world, table)
                setattr(leaf, name, OrderedDict({0: run}))
                installed.append((leaf, name))
    return installed


def _gradient_hook(world: Any, table: Any) -> Any:
    """All hooks of a tensor as one: each is given what the one before made of the gradient."""

    def run(gradient: Any) -> Any:
        changed = None
        for hook in list(world.loader.settle(table).values()):
            result = world.machine.call(hook, (gradient,))
            if result is not None:
                if not isinstance(result, Fake):
                    raise Break("autograd", "a hook on a tensor returns something else than a gradient")
                changed = gradient = result
        return changed

    return run


def _tensor_hook(world: Any, table: Any) -> Any:
    def run(tensor: Any) -> None:
        for hook in list(world.loader.settle(table).values()):
            if world.machine.call(hook, (tensor,)) is not None:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")

    return run


def _no_hooks_outside(world: Any, tensor: Any) -> None:
    """Breaks if the caller registered hooks on a tensor that is no leaf: they hang on its history."""
    if world.loader.origin(tensor) is not None and world.tensor_attributes.load(tensor, "_backward_hooks") is not None:
        raise Break("autograd", "a tensor from outside with hooks is differentiated")


def register_hook(world: Any, tensor: Any, hook: Any) -> Any:
    """`tensor.register_hook(hook)`."""
    return _register(world, tensor, hook, "_backward_hooks")


def register_post_accumulate_hook(world: Any, tensor: Any, hook: Any) -> Any:
    """`tensor.register_post_accumulate_grad_hook(hook)`."""
    if isinstance(tensor, Fake) and tensor.requires_grad and tensor.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return _register(world, tensor, hook, "_post_accumulate_grad_hooks")


def _register(world: Any, tensor: Any, hook: Any, name: str) -> Any:
    if type(tensor) is not Fake:
        raise Break("autograd", "a hook is registered on a tensor that a function transform wraps")
    if not tensor.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if tensor.grad_fn is not None:
        leave_hooks_to_eager(world, tensor)
    table = world.tensor_attributes.load(tensor, name)
    if table is None:
        if tensor.grad_fn is not None and world.loader.origin(tensor) is not None:
            raise Break("autograd", "a hook is registered on a tensor from outside that is no leaf")
        table = OrderedDict()
        world.tensor_attributes.store(tensor, name, table)
        if tensor.grad_fn is not None:  # its history knows the hooks from here on; those of leaves are looked up
            world.recorder.own_gradients = "a hook changes gradients in it"
            world.recorder.hook_tables.append(table)
            world.recorder.hooked_nodes.append(tensor.grad_fn)
            tensor._backward_hooks = OrderedDict({0: _gradient_hook(world, table)})
            tensor.grad_fn._register_hook_dict(tensor)
        elif world.loader.origin(tensor) is None:
            world.recorder.hooked_leaves.append(tensor)
    handle = world.intrinsics[torch.utils.hooks.RemovableHandle](world, table)
    world.set_item(table, handle.id, hook)
    return handle


def leave_hooks_to_eager(world: Any, tensor: Any = None) -> None:
    """Breaks where a hook is registered (on the tensor) and some hook is known to do more than compute."""
    if "hooks" in world.natively:
        if tensor is not None:
            world.recorder.watched.append(tensor)
        raise Break("backward-effect", f"a hook is registered, and is left to eager: {world.natively['hooks']}")


def retain_grad(world: Any, tensor: Any) -> None:
    """`tensor.retain_grad()`: for tensors with a history of the program's own, the engine keeps their gradient."""
    if type(tensor) is not Fake or (tensor.grad_fn is not None and world.loader.origin(tensor) is not None):
        raise Break("autograd", "retain_grad() of a tensor whose history is not the program's own")
    tensor.retain_grad()


NATIVES: dict[Any, Answer] = {
    _torch.run_backward: run_backward,
    torch.Tensor.register_hook: register_hook,
    torch.Tensor.register_post_accumulate_grad_hook: register_post_accumulate_hook,
    torch.Tensor.retain_grad: retain_grad,
}
