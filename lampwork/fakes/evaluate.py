"""What one node of a graph computes, on fakes."""

from __future__ import annotations

from typing import Any

import torch

from lampwork import _torch
from lampwork.fakes import rules  # noqa: F401  (fills the table of shape rules)
from lampwork.fakes.fake import Unsupported, fake_like_view
from lampwork.fakes.operators import operator
from lampwork.fakes.shapes import infer
from lampwork.fakes.views import has_symbols, view


def evaluate(overload: Any, args: tuple, kwargs: dict) -> Any:
    """The results of a view operator (sharing the argument's storage) or of an operator with fresh results.

    Raises eager's error for arguments that eager refuses, and `Unsupported` for in-place and data-dependent operators.
    """
    kind = operator(overload).kind
    if kind == "view":
        if has_symbols(args):
            return view(overload, args, kwargs)
        with _torch.below_autograd(), _torch.kernels_only():
            plain = overload(*args, **kwargs)
        if isinstance(plain, torch.Tensor):
            return fake_like_view(plain, args[0])
        return [fake_like_view(each, args[0]) for each in plain]
    if kind in ("functional", "composite"):  # the latter where it was recorded as it is, being a kernel
        return infer(overload, args, kwargs)
    raise Unsupported(f"{overload} ({kind}) in a functional graph")
