"""Tensor subclasses: tensors without memory, and which storage a tensor lies in."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import torch

from lampwork._torch.private import is_missing, private
from lampwork._torch.tensor_impl import storage_address, tensor_layout

T = TypeVar("T", bound=torch.Tensor)


def tensor_without_memory(
    cls: type[T],
    shape: tuple,
    strides: tuple | None,
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool = False,
    offset: int | None = None,
) -> T:
    """A tensor of subclass `cls` on `device` whose storage has a size but no memory (`Tensor._make_wrapper_subclass`).

    Sizes, strides and `offset` may be `torch.SymInt`. Costs 2 us. Kernels must never run on it; views of it are exact,
    because view kernels only compute metadata.
    """
    made: Any = torch.Tensor._make_wrapper_subclass(
        cls, shape, strides, offset, None, dtype, torch.strided, device, False, requires_grad
    )
    for size in shape if strides is None else (*shape, *strides):
        if type(size) is torch.SymInt:
            made.lampwork_storage = MemoryName()  # its storage has a symbolic size and refuses to be looked at
            break
    return made


def reads_what_is_not_there(error: BaseException) -> bool:
    """Whether `error` is what native code raises that reads a tensor without memory, or that asks one of symbolic sizes
    for numbers, as for a size that is a tensor (c10/core/TensorImpl.h)."""
    told = str(error)
    return type(error) is RuntimeError and (
        "but its data is not allocated yet" in told or "on tensor with symbolic sizes/strides" in told
    )


#: What `isinstance(tensor, nn.Parameter)` and `nn.Buffer` ask tensors of other classes for.
KIND_FLAGS = frozenset({"_is_param", "_is_buffer"})


def is_buffer(tensor: object) -> bool:
    """Whether it is an `nn.Buffer`, which is a plain tensor with a flag."""
    return bool(getattr(tensor, "_is_buffer", False))


def pass_for_parameter(tensor: Any) -> None:
    """`isinstance(tensor, nn.Parameter)` is true from now on, whatever its class."""
    tensor._is_param = True


def pass_for_buffer(tensor: Any) -> None:
    """`isinstance(tensor, nn.Buffer)` is true from now on."""
    tensor._is_buffer = True


class MemoryName:
    """Stands for the storage of tensors whose storage cannot be named."""

    @property
    def _cdata(self) -> int:
        return -id(self)


def copy_lazy_bits(source: torch.Tensor, target: torch.Tensor) -> None:
    """`target` is conjugated or negated when it is read, as `source` is."""
    if source.is_conj():
        torch._C._set_conj(target, True)
    if source.is_neg():
        torch._C._set_neg(target, True)


def zeros_without_memory(cls: type[T], shape: tuple, dtype: torch.dtype, device: torch.device) -> T:
    """As `tensor_without_memory`, known to hold zeros: PyTorch computes with it as with its own zero tensors."""
    return torch.Tensor._make_wrapper_subclass(
        cls, shape, None, None, None, dtype, torch.strided, device, False, False,
        _extra_dispatch_keys=torch._C.DispatchKeySet(torch._C.DispatchKey.ZeroTensor),
    )  # fmt: skip


def as_subclass(cls: type[T], tensor: torch.Tensor, requires_grad: bool = False) -> T:
    """`tensor`'s metadata and storage as a new object of subclass `cls`, with no history (`Tensor._make_subclass`)."""
    return torch.Tensor._make_subclass(cls, tensor, requires_grad)


#: The `__torch_dispatch__` of tensors whose class has none.
no_torch_dispatch = private("_C._disabled_torch_dispatch_impl")


def is_native_subclass(cls: type) -> bool:
    """Whether operators on tensors of a class are answered by native code that knows the class: its
    `__torch_dispatch__` is there for show (`DTensor`, which who has one has loaded)."""
    known = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return isinstance(known, type) and issubclass(cls, known)


#: What subclasses in Python call to have views share memory with what they are views of, and in-place operators give
#: what they wrote.
correct_aliasing = private("utils._python_dispatch.return_and_correct_aliasing")

#: What makes tensors of wrapper subclasses.
make_wrapper = private("Tensor._make_wrapper_subclass")

#: What makes tensors of subclasses over the memory of others.
make_subclass = private("Tensor._make_subclass")

#: `Tensor.__torch_function__`, as a function of the class; and which functions' results it gives as they are.
default_torch_function = torch.Tensor.__torch_function__.__func__
keep_their_results = private("overrides.get_default_nowrap_functions")

#: A context: functions called inside skip the `__torch_function__` of subclasses. Its methods are native.
ENTER_WITHOUT_TORCH_FUNCTION, EXIT_WITHOUT_TORCH_FUNCTION = (
    vars(torch._C.DisableTorchFunctionSubclass)[name] for name in ("__enter__", "__exit__")
)


_has_storage = private("_C._has_storage")


def has_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor from outside lies in a storage: those that `is_grads_batched` batches refuse to be asked."""
    return is_missing(_has_storage) or _has_storage(tensor)


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share one storage, while both are alive (`UntypedStorage._cdata`).

    Fakes of symbolic sizes name the storage that they lie in as `lampwork_storage`.
    """
    named = getattr(tensor, "lampwork_storage", None)
    if named is not None:
        return named._cdata
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor_layout() is not None and storage_address(tensor):
        return storage_address(tensor)  # the Python object of a storage would own it for good
    return tensor.untyped_storage()._cdata
