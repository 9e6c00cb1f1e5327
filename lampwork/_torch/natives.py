"""Natives, classes and modules that capture knows by identity or by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from lampwork._torch.private import is_missing, private

#: The class of classes that pybind11 makes: their attributes are C++'s and never change.
pybind_metaclass = type(private("_C._SDPBackend"))

#: What `torch.inference_mode` enters: a class whose `__enter__` and `__exit__` are native.
InferenceModeContext = private("_C._InferenceMode")
ENTER_INFERENCE_MODE, EXIT_INFERENCE_MODE = (
    () if is_missing(InferenceModeContext) else (vars(InferenceModeContext)[name].__func__,)
    for name in ("__enter__", "__exit__")
)

#: Natives whose answer does not depend on anything a program can change, where this release has them.
CONSTANT_ANSWERS: tuple[object, ...] = tuple(
    getattr(torch._C, name)
    for name in (
        "_get_tracing_state", "_is_tracing", "_log_api_usage_once", "_is_torch_function_mode_enabled",
        "_len_torch_function_stack", "_get_privateuse1_backend_name", "_current_graph_task_id",
        "_are_functorch_transforms_active", "_accelerator_getAccelerator",
    )
    if hasattr(torch._C, name)
)  # fmt: skip

#: The classes of `torch.ops.aten.add.Tensor` and `torch.ops.aten.add`.
OPERATOR_TYPES = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def is_choosing_overload() -> bool:
    """Whether the caller's caller is native code that looks for the overload that takes some arguments: of each that
    does not it writes a message, with the text of what it does not take, and drops it where another one does."""
    return sys._getframe(2).f_code is _CHOOSES


_CHOOSES = torch._ops.OpOverloadPacket.__call__.__code__

#: The classes of `torch.ops`, `torch.ops.aten` and `torch.ops.aten.add`, which keep what is first looked up in them.
OPERATOR_SPACES = frozenset({torch._ops._Ops, torch._ops._OpNamespace, torch._ops.OpOverloadPacket})

#: What an operator says of itself: nothing in it changes.
SCHEMA_TYPES = frozenset({private("_C.FunctionSchema"), private("_C.Argument"), private("_C._AliasInfo")})

#: The class of operators that take functions, such as `torch.ops.higher_order.cond`.
HigherOrderOperator = torch._ops.HigherOrderOperator

#: Functions that load and call another compiler: nothing in them is worth interpreting.
_CALL_PEER = frozenset({torch.compile})
#: The same in the module of Dynamo, by name: they take locks, and change what is no program's to see.
_CALL_DYNAMO = frozenset({"reset", "reset_code_caches", "optimize", "export", "explain"})


def calls_peer(function: Callable) -> bool:
    """Whether a call of `function` has the peer compile something, or forget what it has compiled."""
    if function.__module__ in ("torch._dynamo", "torch._dynamo.eval_frame"):
        return function.__qualname__ in _CALL_DYNAMO
    return function in _CALL_PEER


def has_native(name: str) -> bool:
    """Whether `torch` or `torch.nn.functional` has a native function of this name: they show those of `torch._C`,
    `_VariableFunctions` and `_nn`, and keep them when a name of theirs is given to something else."""
    return any(hasattr(place, name) for place in (torch._C, torch._C._VariableFunctions, torch._C._nn))


def look_up_operator(space: object, name: str) -> None:
    """Has `space`, of one of `OPERATOR_SPACES`, keep the attribute `name`, if there is an operator of that name."""
    if name not in vars(space) and not name.startswith("__"):
        try:
            getattr(space, name)
        except AttributeError:
            pass


def plain_implementation(operator: Any) -> Any:
    """The Python function by which eager computes an operator that takes functions, below autograd; None if it has
    none (`py_kernels`)."""
    return operator.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)


def is_collective(function: Callable) -> bool:
    """Whether `function` is one of `torch.distributed` that talks to other processes. Those that gradients flow through
    (`torch.distributed.nn`) refuse a program that is told it is compiled."""
    if function.__module__ == "torch.distributed.nn.functional":
        return True
    name = function.__name__
    if function.__module__ != "torch.distributed.distributed_c10d" or name.startswith(("get_", "is_", "supports_")):
        return False
    return name in sys.modules[function.__module__].__all__


def is_nested_region(function: Callable) -> bool:
    """Whether `function` is what wrappers of `torch.compiler.nested_compile_region` call with a function and its
    arguments: Dynamo has its own way with it, and eager calls the function."""
    return (
        function.__module__ == "torch._higher_order_ops.invoke_subgraph"
        and function.__name__ == "invoke_subgraph_placeholder"
    )


#: Methods that launch kernels of Triton: what `kernel[grid](...)` calls.
_TRITON_LAUNCHES = {
    "triton.runtime.jit": ("JITFunction.run",),
    "triton.runtime.autotuner": ("Autotuner.run", "Heuristics.run"),
    "triton.runtime.interpreter": ("InterpretedFunction.run",),
}
#: The methods of what `torch.library.wrap_triton` gives.
_WRAPPED_KERNEL = (
    "TraceableTritonKernelWrapper.run", "TraceableTritonKernelWrapper.__call__",
    "TraceableTritonKernelWrapper.__getitem__",
)  # fmt: skip


def launches_triton(function: Callable) -> bool:
    """Whether a call of `function` launches a kernel of Triton."""
    return function.__qualname__ in _TRITON_LAUNCHES.get(function.__module__ or "", ())


def is_wrap_triton(function: Callable) -> bool:
    """Whether `function` is `torch.library.wrap_triton`."""
    return function.__module__ == "torch.library" and function.__qualname__ == "wrap_triton"  # as it says of itself


def is_of_wrapped_kernel(function: Callable) -> bool:
    """Whether `function` is a method of what `torch.library.wrap_triton` gives."""
    return function.__module__ == "torch._higher_order_ops.triton_kernel_wrap" and (
        function.__qualname__ in _WRAPPED_KERNEL
    )


#: What gives a tensor's text.
tensor_text = private("_tensor_str._str")

#: What `torch.compiler.is_compiling` and `torch.jit.is_scripting` are in PyTorch's own modules.
is_compiling = private("_utils.is_compiling")
is_scripting = private("_jit_internal.is_scripting")

#: Raises where the kernels find the one element of a tensor to be false, with the text given.
assert_async = private("_assert_async")

#: What `torch._check` and `torch._check_tensor_all`, with their kin, call.
check_with = private("_check_with")
check_tensor_all_with = private("_check_tensor_all_with")

#: How optimizers sort their tensors for one call of a `_foreach` operator.
group_tensors = private("_C._group_tensors_by_device_and_dtype")

#: Operators on lists that take the number in a tensor of one element for their weight.
list_lerps = frozenset({private("_foreach_lerp"), private("_foreach_lerp_")})

#: Private modules whose Python functions take tensors and plain data only, and run as one unit on fakes.
PRIVATE_TENSOR_MODULES = frozenset({
    "torch._tensor", "torch._refs", "torch._refs.nn.functional", "torch._ops", "torch._linalg_utils", "torch._lowrank",
    "torch._functorch.predispatch",
})  # fmt: skip

#: Modules written in C whose functions are operators on tensors.
BUILTIN_MODULES = frozenset({
    "torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special", "torch._C._nested", "torch._C._sparse",
    "torch._C._functorch",
})  # fmt: skip

#: Padded batches of sequences made packed ones and back: they read lengths, and sizes of batches.
PACKING = (private("_VF._pack_padded_sequence"), private("_VF._pad_packed_sequence"))
