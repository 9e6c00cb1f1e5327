"""Text made of a tensor's contents: `f"{mask.sum()} tokens"`.

Nobody knows it while the program is captured, and most of it goes into messages of errors that are never raised. So it
may be made and handed around; whatever looks at it breaks the graph.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork.capture.fake import TENSOR_KINDS
from lampwork.capture.shadow import Break


def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise Break(
        "data-dependent", "text made of a tensor's contents is used",
        "Make the text outside the compiled function.",
    )  # fmt: skip


class UnknownText(str):
    """A text that cannot be looked at: all that `str` does breaks the graph."""

    __slots__ = ()


def install_text(world: Any) -> None:
    """Registers what gives a tensor's text. PyTorch's own functions must not run on stand-ins for tensors: they stop
    half-way, and what they switched off for the thread stays off while the exception lives."""
    for function in (torch.Tensor.__repr__, torch.Tensor.__format__, torch._tensor_str._str):
        world.add_intrinsic(function, _text_of(function))


def _text_of(function: Any) -> Any:
    def answer(world: Any, tensor: Any, *args: Any, **kwargs: Any) -> str:
        return UnknownText() if type(tensor) in TENSOR_KINDS else function(tensor, *args, **kwargs)

    return answer


_KEPT = frozenset({
    "__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__delattr__", "__init_subclass__",
    "__subclasshook__", "__doc__", "__dir__",
})  # fmt: skip
for _name in dir(str):
    if _name not in _KEPT:
        setattr(UnknownText, _name, _refuse)
