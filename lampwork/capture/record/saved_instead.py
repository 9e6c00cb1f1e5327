"""Which tensor eager's autograd saves, where the operators recorded here are not those that eager runs.

    x.reshape(-1), copied    eager may have a view of x, and notices writes to x
    n ** x, copied           eager's result has the strides of the copy, and eager notices writes to the copy

`capture/autograd/saved_values.py` reads what is noted here.
"""

from __future__ import annotations

from typing import TypeVar

import torch

from lampwork.fakes.fake import Fake

_Tensor = TypeVar("_Tensor", bound=torch.Tensor)

#: The key in a node's `meta`: the tensor that eager saves where the recorded operators save the node's.
SAVED_BY_EAGER = "saved by eager"


def saved_instead(recorded: torch.Tensor, tensor: _Tensor) -> _Tensor:
    """`tensor`, after it was noted that eager saves it where the recorded operators save `recorded`."""
    if isinstance(recorded, Fake):
        recorded.node.meta[SAVED_BY_EAGER] = tensor
    return tensor
