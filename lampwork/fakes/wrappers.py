"""What stands for tensors of subclasses, those among them that have no memory and hold others.

A `Wrapper` has the size, type and device of such a tensor and goes through PyTorch as it does: past autograd, which it
has a history in, and through the decompositions of composite operators. What arrives at its `__torch_dispatch__` is
told to the recorder (`Recording.wrapped`), which has the program's own method interpreted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lampwork import _torch
from lampwork.fakes.fake import DataDependent, Unsupported


class Wrapper(torch.Tensor):
    """A tensor of the program's class `real_class`. One Python class for each of the program's: see `wrapper_class`.

    The instance dict is that of the tensor it stands for, nothing of ours is in it.
    """

    __torch_function__ = _torch.no_torch_function
    real_class: type = torch.Tensor
    # So `super()` in methods of the real class takes one for an instance of it.
    __class__ = property(lambda self: type(self).real_class)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        if _torch.is_choosing_overload():
            return type(self).real_class.__name__
        raise DataDependent("the text of a tensor")

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return self.__repr__()

    def __deepcopy__(self, memo: dict) -> Any:
        raise Unsupported("copy.deepcopy of a tensor inside a compiled region")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Unsupported("pickling a tensor inside a compiled region")


def _refuse_dispatch(cls: type, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
    raise Unsupported(f"{func} met a tensor of a captured region outside of its recording", id="fake-escaped")


# Set after the class exists: `__init_subclass__` would wrap it in something that imports Dynamo.
Wrapper.__torch_dispatch__ = classmethod(_refuse_dispatch)


def wrapper_class(real: type, base: type[Wrapper], overloads: Callable | None, flattens: bool) -> type[Wrapper]:
    """The class of what stands for tensors of `real`; `base`: that of a base of `real`.

    `overloads(function, classes, args=(), kwargs=None)` is its `__torch_function__`; None: it has none. `flattens`:
    whether the class says what it holds, which PyTorch's helpers ask.
    """
    made: Any = type(real.__name__, (base,), {"real_class": real})
    if overloads is None:
        made.__torch_function__ = _torch.no_torch_function
    else:
        made.__torch_function__ = classmethod(lambda cls, *args: overloads(*args))
    if flattens:
        made.__tensor_flatten__ = made.__tensor_unflatten__ = _refuse_dispatch
    return made


__all__ = ["Wrapper", "wrapper_class"]
