"""Reshapes of tensors whose sizes may be 1, told in views and copies.

    x[s0, 4, 8].reshape(-1, 8)     ->    x.view(4*s0, 8)                 whatever s0 is
    x[s0, s1, 8].transpose(0, 1).reshape(-1, 8)     asks whether s0 or s1 is 1: eager's result is a view then

PyTorch's own `reshape` asks of each size whether it is 1, where its answer does not depend on that, too; each question
would be a guard, and calls with that size 1 entries of their own.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork.capture.record.saved_instead import saved_instead
from lampwork.fakes.fake import DataDependent, Fake
from lampwork.fakes.strides import at_least_for_all, is_contiguous
from lampwork.fakes.symbolic import by_contents, hint_of
from lampwork.fakes.views import inferred, view_strides

aten = torch.ops.aten


def may_be_one(tensor: torch.Tensor) -> bool:
    """Whether a size of `tensor` is a symbol that is 1 in some calls which pass the guards, and more in others."""
    return any(
        type(size) is torch.SymInt
        and not by_contents(size)
        and at_least_for_all(size, 1)
        and size.node.known(">", 1) is None
        for size in tensor.shape
    )


def reshaped(tensor: torch.Tensor, size: Any) -> torch.Tensor:
    """As `tensor.reshape(size)`."""
    if not may_be_one(tensor):
        return tensor.reshape(size)
    shape = inferred(size, tensor.shape)
    if view_strides(tensor.shape, tensor.stride(), shape) is not None:
        return tensor.view(shape)
    return _copied(tensor, shape)


def rearranged(tensor: torch.Tensor, size: Any) -> torch.Tensor:
    """The elements of `tensor` in a shape of `size`, for those who only read them: a view where it is one whatever the
    sizes are, else a copy. Asks nothing of sizes that may be 1."""
    if not may_be_one(tensor):
        return tensor.reshape(size)
    sizes = next(each.node.sizes for each in tensor.shape if type(each) is torch.SymInt)
    shape = inferred(size, tensor.shape)
    try:
        with sizes.nothing_noted():
            strides = view_strides(tensor.shape, tensor.stride(), shape)
    except DataDependent:
        strides = None
    if strides is not None:
        return tensor.view(shape)
    made = _copied(tensor, shape)
    old, new = (tuple(map(hint_of, sizes)) for sizes in (tensor.shape, shape))
    if isinstance(made, Fake) and view_strides(old, tuple(map(hint_of, tensor.stride())), new) is not None:
        saved_instead(made, tensor)
    return made


def _copied(tensor: torch.Tensor, shape: Any) -> torch.Tensor:
    return aten._unsafe_view(tensor.clone(memory_format=torch.contiguous_format), shape)


def called(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What `function(*args, **kwargs)` gives if that is a reshape, or a question about order, told here; else
    NotImplemented."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.Tensor):  # a bound method
        function, args = getattr(torch.Tensor, function.__name__, None), (owner, *args)
    if kwargs or not args or not isinstance(args[0], torch.Tensor):
        return NotImplemented
    if function in _CONTIGUOUS and len(args) == 1 and may_be_one(args[0]):
        is_so = is_contiguous(args[0].shape, args[0].stride())
        return is_so if function is torch.Tensor.is_contiguous else args[0] if is_so else NotImplemented
    if function not in _RESHAPES or len(args) < 2:
        return NotImplemented
    tensor, size = args[0], args[1] if isinstance(args[1], (tuple, list)) else args[1:]
    if not may_be_one(tensor) or not all(type(each) in (int, torch.SymInt) for each in size):
        return NotImplemented
    return reshaped(tensor, size)


_CONTIGUOUS = frozenset({torch.Tensor.contiguous, torch.Tensor.is_contiguous})
_RESHAPES = frozenset({torch.reshape, torch.Tensor.reshape})
