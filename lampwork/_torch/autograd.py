"""The autograd engine and what it saves."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from lampwork._torch.modes import kernels_only
from lampwork._torch.private import is_missing, private

#: What `torch.autograd.grad` and `backward` hand to the engine; and how gradients are taken inside `torch.func`.
run_backward = private("autograd.graph._engine_run_backward")
gradients_of_transform = private("_functorch.eager_transforms._autograd_grad")

#: The node on either side of a module with backward hooks, on which these hang.
BackwardHookFunction = private("nn.modules._functions.BackwardHookFunction")

#: What nodes of functions written in Python are.
FunctionNode = torch.autograd.function.BackwardCFunction

#: `torch.autograd.Function.apply` in Python; None where it is native (from 2.14 on).
FUNCTION_APPLY: Any = getattr(torch.autograd.Function.apply, "__func__", None)

#: Whether forward derivatives are on; switching them.
FORWARD_DERIVATIVES = (private("_C._is_fwd_grad_enabled"), private("_C._set_fwd_grad_enabled"))

#: Why hooks on saved tensors are forbidden; forbidding and allowing them.
saved_hooks_refusal = private("_C._autograd._saved_tensors_hooks_get_disabled_error_message")
REFUSE_SAVED_HOOKS = (
    private("_C._autograd._saved_tensors_hooks_disable"),
    private("_C._autograd._saved_tensors_hooks_enable"),
)

#: Setting hooks on what autograd saves in this thread, and taking the last ones away.
SET_SAVED_HOOKS = (
    private("_C._autograd._push_saved_tensors_default_hooks"), private("_C._autograd._pop_saved_tensors_default_hooks"),
)  # fmt: skip


def is_function_apply(method: Any) -> bool:
    """Whether a native method of a class is `apply` of a `torch.autograd.Function`, where that is native."""
    owner = method.__self__
    if FUNCTION_APPLY is not None or method.__name__ != "apply" or not issubclass(owner, torch.autograd.Function):
        return False
    return method == torch._C._FunctionBase.__dict__["apply"].__get__(None, owner)


#: What autograd says where it refuses a write (torch/csrc/autograd: VariableTypeUtils.h, variable.cpp).
_REFUSED_WRITES = (
    " modified inplace", "requires grad is being used in an in-place operation", "Can't detach views in-place",
)  # fmt: skip


def refuses_write(error: BaseException) -> bool:
    """Whether `error` is autograd's refusal of a write, which the history of what is written decides: it is a leaf,
    or a view that may not be written, such as one of several that one operator gave; or any, where it is detached."""
    return type(error) is RuntimeError and any(words in str(error) for words in _REFUSED_WRITES)


#: What autograd says of a history that it has freed (torch/csrc/autograd/variable.h).
_FREED = "Trying to backward through the graph a second time"


def finds_freed_history(error: BaseException) -> bool:
    """Whether `error` is what the engine raises where it comes to what an earlier run of it has freed."""
    return type(error) is RuntimeError and str(error).startswith(_FREED)


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """What autograd saves in this thread goes to no hook: `saved_tensors_hooks` around a call are not for fakes."""
    state = torch._C._autograd
    hooks = []
    while (top := state._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        state._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            state._push_saved_tensors_default_hooks(pack, unpack)


def are_saved_tensors_hooked() -> bool:
    """Whether `saved_tensors_hooks` (`save_on_cpu` is one) see what autograd saves in this thread."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def release_saved_tensors(ctx: Any) -> None:
    """In a backward: gives up what `ctx` of a `torch.autograd.Function` has saved, unless the graph is retained."""
    ctx.maybe_clear_saved_tensors()


def saved_memory(ctx: Any) -> list[torch.Tensor]:
    """In a backward: what `ctx` of a `torch.autograd.Function` has saved, without a look at whether it was written
    since. Raises AttributeError where this build of PyTorch does not tell."""
    return [each.data for each in ctx._raw_saved_tensors]


def tensors_saved_by(node: Node) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a node of autograd saves, whether they were written since or not, each with the attribute that
    holds it (`_raw_saved_self`). They share the storage of what was saved. What hooks packed is left out: nobody
    compares its version."""
    kind: Any = type(node)
    for name in _saving_attributes(kind):
        for each in _saved_by(node, name):
            yield name, each


@functools.cache
def _saving_attributes(kind: Any) -> tuple[str, ...]:
    """The attributes of a kind of node that hold what it saves."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def _saved_by(node: Node, name: str) -> list[torch.Tensor]:
    try:
        held = getattr(node, name)
        if not hasattr(torch._C._autograd.SavedTensor, "data"):  # unpacked, which compares versions
            with kernels_only():
                held = getattr(node, name.removeprefix("_raw"))
    except RuntimeError:  # freed, or written since
        return []
    each_held = held if isinstance(held, (tuple, list)) else (held,)
    found = [
        each if isinstance(each, torch.Tensor) else getattr(each, "data", None)
        for each in each_held
        if getattr(each, "unpack_hook", None) is None
    ]
    return [each for each in found if isinstance(each, torch.Tensor)]


def keeps_graph() -> bool:
    """In a backward: whether what is saved may be asked for again (`retain_graph`); True where that cannot be told."""
    asked = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return asked is None or bool(asked())


def is_in_backward() -> bool:
    """Whether this thread is one of the autograd engine's, at work for a backward pass."""
    return torch._C._current_graph_task_id() != -1


_key_of = private("_C._parse_dispatch_key")
_BATCHED = () if is_missing(_key_of) else tuple(map(_key_of, ("Batched", "FuncTorchBatched")))


def sequence_number(node: Any) -> int:
    """When the node was made: the engine runs the last ones first."""
    return int(node._sequence_nr())


def next_sequence_number() -> int:
    """What `sequence_number` will be of the next node that is made."""
    return int(torch._C._autograd._get_sequence_nr())


def set_sequence_number(node: Any, number: int) -> None:
    """Has the engine run the node as if it had been made then."""
    node._set_sequence_nr(number)


def is_batched(tensor: torch.Tensor) -> bool:
    """Whether a `vmap` wraps the tensor: that of `torch.func`, or the older one of `is_grads_batched`."""
    keys = torch._C._dispatch_keys(tensor)
    return any(keys.has(key) for key in _BATCHED)


def selective_context(result: object) -> Any:
    """What the policy of a selective checkpoint is told about the call (releases differ in what that is)."""
    from torch.utils.checkpoint import SelectiveCheckpointContext

    try:
        return SelectiveCheckpointContext(is_recompute=False, op_output=result)
    except TypeError:
        return SelectiveCheckpointContext(is_recompute=False)


def backward_pass() -> int:
    """In a backward: the number of the pass that the engine makes; no two have the same."""
    return torch._C._current_graph_task_id()


def is_executed(node: Node) -> bool:
    """In a backward: whether the engine runs `node`; False for the node of a leaf whose gradient it hands out."""
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # it says so of leaves under `torch.autograd.grad`
        return False
