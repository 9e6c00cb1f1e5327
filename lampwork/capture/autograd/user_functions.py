"""A user's `torch.autograd.Function` inside a region: forward and backward are interpreted and recorded.

Where something is differentiated, eager's engine gets a node of ours in the place of the user's. Its two halves have
the machine run the user's methods, on a context of Python's own; so the backward lands wherever the engine calls it: in
a region that takes gradients, or in the backward half of one whose results require grad.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from lampwork import _torch
from lampwork.capture.autograd.differentiate import dependences
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake


def apply(world: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
    """`cls.apply(*args)`."""
    if _torch.is_plain_indexing(cls) and not kwargs:
        return torch.ops.aten.index(*args)
    call = _Call(world, cls)
    if call.has_setup:
        args = _with_defaults(world, world.attribute(cls, "forward"), args)
    if torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and _torch.requires_grad_below(each) for each in args
    ):
        if kwargs:
            remedy = "Give the arguments by position."
            raise Break("autograd-function", f"{cls.__qualname__}.apply is called with arguments by name", remedy)
        if "functions" in world.natively:
            why = world.natively["functions"]
            raise Break("backward-effect", f"{cls.__qualname__} is applied, and is left to eager: {why}")
        if _torch.active_transforms():
            raise Break("autograd-function", f"{cls.__qualname__} is applied inside of a function transform")
        world.recorder.own_gradients = f"it applies {cls.__qualname__}, whose backward is the user's"
        return _node_class(world, cls).apply(call, *args)
    if _torch.active_transforms() and not call.may_be_batched():
        raise Break("autograd-function", f"{cls.__qualname__} is applied inside of a function transform")
    enabled = torch.is_grad_enabled()
    _torch.SET_STATE["grad_mode"](False)
    try:
        return call.forward(args, kwargs, tuple(False for _ in args))
    finally:
        _torch.SET_STATE["grad_mode"](enabled)


def _with_defaults(world: Any, forward: Any, args: tuple) -> tuple:
    """The arguments of a forward that leaves the context to `setup_context`: eager gives that the defaults as well."""
    if type(forward) is not FunctionType:
        return args
    missing = forward.__code__.co_argcount - len(args)
    defaults = world.function_parts(forward)[0] or ()
    return (*args, *defaults[len(defaults) - missing :]) if 0 < missing <= len(defaults) else args


class _Call:
    """One application of a user's function."""

    def __init__(self, world: Any, cls: Any) -> None:
        self.world, self.cls = world, cls
        self.context: Any = FunctionCtx()
        self.materializes = True
        #: Whether the context is filled by a method of its own.
        self.has_setup = world.attribute(cls, "setup_context") is not torch.autograd.Function.setup_context

    def may_be_batched(self) -> bool:
        """Whether `vmap` runs the forward as it is: else it runs a method of the user's in its place, or raises."""
        is_overridden = self.world.attribute(self.cls, "vmap") is not torch.autograd.Function.vmap
        return self.has_setup and not is_overridden and self.world.attribute(self.cls, "generate_vmap_rule") is True

    def forward(self, args: tuple, kwargs: dict[str, Any], wanted: tuple[bool, ...]) -> Any:
        """What the user's forward returns."""
        world, context = self.world, self.context
        context.needs_input_grad = wanted
        run = world.machine.call
        forward = world.attribute(self.cls, "forward")
        if not self.has_setup:
            return run(forward, (context, *args), kwargs)
        result = run(forward, args, kwargs)
        run(world.attribute(self.cls, "setup_context"), (context, args, result))
        return result

    def told(self, name: str) -> Any:
        """What the forward told the context by one of its methods."""
        return self.world.attribute_or(self.context, name, None)

    def backward(self, saved: tuple, gradients: tuple, wanted: tuple[bool, ...]) -> tuple:
        """The gradients that the user's backward returns, one for each argument."""
        world = self.world
        world.instance_store(self.context, "saved_tensors", saved)
        world.instance_store(self.context, "needs_input_grad", wanted)
        found = world.machine.call(world.attribute(self.cls, "backward"), (self.context, *gradients))
        found = found if type(found) is tuple else (found,)
        if len(found) > len(wanted) and all(each is None for each in found[len(wanted) :]):
            found = found[: len(wanted)]
        given, made = ([each for each in values if isinstance(each, Fake)] for values in (gradients, found))
        if not self.materializes and len(given) > 1:
            if any(len(each) != 1 for each in dependences(world.recorder.graph, given, made)):
                world.recorder.tells_undefined = True
        return found

    def feeding_results(self, found: Any, gradients: tuple) -> tuple[int, ...]:
        """The results of this call whose gradients an argument's is made of. Where eager gives zeros for gradients that
        are missing, those are all of them."""
        if found is None:
            return ()
        there = [place for place, each in enumerate(gradients) if isinstance(each, Fake)]
        if self.materializes or not isinstance(found, Fake):
            return tuple(range(len(gradients)))
        (numbers,) = dependences(self.world.recorder.graph, [gradients[place] for place in there], [found])
        return tuple(there[number] for number in numbers) or tuple(range(len(gradients)))


def _node_class(world: Any, cls: Any) -> Any:
    """`_Node` by the name of the user's function, which errors and `grad_fn.name()` show."""
    found = world.function_nodes.get(cls)
    if found is None:
        found = world.function_nodes[cls] = type(cls.__name__, (_Node,), {})
    return found


class _Node(torch.autograd.Function):
    """What eager's engine knows of it."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *args: Any) -> Any:
        result = call.forward(args, {}, ctx.needs_input_grad[1:])
        ctx.call = call
        #: The argument that each of `next_functions` is that of.
        ctx.lampwork_places = [place for place, each in enumerate(args) if isinstance(each, torch.Tensor)]
        saved = call.told("to_save")
        if saved is not None:
            ctx.save_for_backward(*saved)
        for name, mark in (("dirty_tensors", ctx.mark_dirty), ("non_differentiable", ctx.mark_non_differentiable)):
            marked = call.told(name)
            if marked:
                mark(*marked)
        if call.told("materialize_grads") is False:
            ctx.set_materialize_grads(False)
            call.materializes = False
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        found = ctx.call.backward(ctx.saved_tensors, gradients, ctx.needs_input_grad[1:])
        ctx.lampwork_flows = [
            ctx.call.feeding_results(found[place], gradients) if place < len(found) else ()
            for place in ctx.lampwork_places
        ]
        return None, *found


__all__ = ["apply"]
