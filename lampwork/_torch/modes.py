"""Modes and function transforms that are active in this thread, and running without them."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.autograd.forward_ad as _forward_ad
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lampwork._torch.private import private

#: How many dispatch modes are active; native.
dispatch_stack_length = private("_C._len_torch_dispatch_stack")


def is_recording() -> bool:
    """Whether a dispatch mode is active in this thread, such as a recording's."""
    return dispatch_stack_length() > 0


#: How many torch function modes are active, such as `with torch.device(...)`; native.
function_modes_length = private("_C._len_torch_function_stack")

#: Entering and leaving a torch function mode; native.
push_function_mode = private("_C._push_on_torch_function_stack")
pop_function_mode = private("_C._pop_torch_function_stack")


class _ItemsAreIndexed(TorchFunctionMode):
    """What `TransformGetItemToIndex` does: items at tensors and integers are `aten.index`, of any tensor."""

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            found = tree_leaves(args[1])
            if all(isinstance(each, (torch.Tensor, int)) for each in found):
                return torch.ops.aten.index(args[0], [_index(each, args[0].device) for each in found])
        return func(*args, **(kwargs or {}))


def _index(index: Any, device: torch.device) -> torch.Tensor:
    return torch.tensor(index, dtype=torch.int64, device=device) if isinstance(index, int) else index


def known_function_mode(kind: type) -> TorchFunctionMode | None:
    """A mode that does what those of class `kind` do, and runs no code of the program's; None where that is not known.

    Dynamo's modes are looked up, not imported: who enters one has loaded Dynamo.
    """
    if kind is BaseTorchFunctionMode:
        return BaseTorchFunctionMode()
    module = sys.modules.get("torch._dynamo._trace_wrapped_higher_order_op")
    return _ItemsAreIndexed() if kind is getattr(module, "TransformGetItemToIndex", object()) else None


def active_modes() -> int:
    """How many torch function modes, dispatch modes and functorch transforms are active in this thread, and whether
    forward derivatives are taken or `torch.jit.trace` watches."""
    return (
        function_modes_length()
        + dispatch_stack_length()
        + (torch._C._functorch.peek_interpreter_stack() is not None)
        + (_forward_ad._current_level >= 0)
        + (torch._C._get_tracing_state() is not None)
    )


def are_stacks_profiled() -> bool:
    """Whether `torch.profiler` notes the Python stacks of this thread (its C object is what `sys.getprofile` shows)."""
    return type(sys.getprofile()).__name__ == "TraceContext"


#: Context manager: operators skip `__torch_dispatch__` and run the device's own kernel.
kernels_only = private("_C._DisableTorchDispatch")

#: The same to a reader who thinks of modes: none (a recording's included) sees what is called inside.
without_modes = kernels_only

#: Context manager of native code: operators called inside skip the `__torch_function__` of subclasses.
without_torch_function = private("_C.DisableTorchFunctionSubclass")

#: The `__torch_function__` of a subclass that wants none.
no_torch_function = private("_C._disabled_torch_function_impl")

#: Dispatch keys above the kernels: what was recorded is already below autograd, view tracking and autocast.
_ABOVE_KERNELS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
for _name in ("AutogradCPU", "AutogradCUDA", "AutogradOther", "AutogradMeta", "AutocastCPU", "AutocastCUDA"):
    if hasattr(torch._C.DispatchKey, _name):
        _ABOVE_KERNELS = _ABOVE_KERNELS | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _name))
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_AUTOCAST = _AUTOCAST | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def below_autograd() -> Any:
    """Context manager: operators called inside skip autograd, view tracking and autocast."""
    return torch._C._ExcludeDispatchKeyGuard(_ABOVE_KERNELS)


def with_autograd() -> Any:
    """Context manager: operators called inside go through autograd and view tracking, though this may be below them."""
    c = torch._C
    excluded = c._dispatch_tls_local_exclude_set() - (_ABOVE_KERNELS - _AUTOCAST)
    return c._ForceDispatchKeyGuard(c._dispatch_tls_local_include_set(), excluded)


def active_transforms() -> int:
    """How many transforms of `torch.func` are active in this thread (`torch._C._functorch`'s stack)."""
    return torch._C._functorch.get_dynamic_layer_stack_depth()


#: Context manager: tensors made inside are wrapped by no transform, whichever are active.
without_transforms = private("_C._DisableFuncTorch")


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a function transform has wrapped the tensor: one that has ended, if this is met outside of any."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def requires_grad_below(tensor: torch.Tensor) -> bool:
    """Whether a tensor requires grad, or one that transforms have wrapped in it: wrappers of `vmap` do not say so."""
    functorch = torch._C._functorch
    while not tensor.requires_grad:
        if not functorch.is_functorch_wrapped_tensor(tensor):
            return False
        tensor = functorch.get_unwrapped(tensor)
    return True


def leave_transforms(depth: int, dual_levels: list[int]) -> None:
    """Leaves the function transforms that were entered beyond `depth`, and these levels of forward derivatives."""
    functorch = torch._C._functorch
    if active_transforms() > depth:
        try:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        except RuntimeError:  # PyTorch 2.11 asserts that there is one more
            while active_transforms() > depth:
                functorch.pop_dynamic_layer_stack()
    while dual_levels:
        torch._C._exit_dual_level(level=dual_levels.pop())


#: Entering and leaving a level of forward derivatives, each under the names it has (PyTorch 2.11 has them in `torch._C`
#: alone).
_predispatch = private("_functorch.predispatch")
_dual_levels = [module for module in (torch._C, _predispatch) if hasattr(module, "_enter_dual_level")]
ENTER_DUAL_LEVEL = tuple(module._enter_dual_level for module in _dual_levels)
EXIT_DUAL_LEVEL = tuple(module._exit_dual_level for module in _dual_levels)

#: Loads, once in a process, what `vmap` needs.
load_decompositions = private("_functorch.predispatch.lazy_load_decompositions")
