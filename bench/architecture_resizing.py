"""Other sizes of an architecture's inputs: what users call a compiled model with after the first call.

A length of text, the sides of images and the batch are changed, each wherever the inputs have it. Which of them a
model takes is eager's to say: a configuration may fix one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from bench.architecture_inputs import BATCH

#: Columns by which texts become shorter. What is cut was not padding alone: no input has more of it than kept columns.
CUT = 5
#: Factor of the sides of images, which are multiples of patches and strides in every configuration.
ENLARGED = 2


def resized(inputs: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pairs of a name of the change and the changed inputs; changes that leave the inputs as they are come not."""
    changes: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
        ("shorter", _shorter(_text_length(inputs))),
        ("larger images", _larger),
        ("larger batch", _more),
    )
    for name, change in changes:
        changed = False

        def apply(tensor: torch.Tensor, change: Callable = change) -> torch.Tensor:
            nonlocal changed
            made = change(tensor)
            changed = changed or made is not tensor
            return made

        made = _mapped(apply, dict(inputs))
        if changed:
            yield name, made


def _mapped(apply: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return apply(value)
    if type(value) in (tuple, list):
        return type(value)(_mapped(apply, item) for item in value)
    return {key: _mapped(apply, item) for key, item in value.items()} if type(value) is dict else value


def _text_length(inputs: Mapping[str, Any]) -> int | None:
    """The number of columns of the first input that holds one whole number a position."""
    for value in inputs.values():
        if isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point():
            return value.shape[1] if value.shape[1] > 2 * CUT else None
    return None


def _shorter(length: int | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """Drops the first columns of texts and all that has one entry a position of them."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if length is None or tensor.dim() < 2 or tensor.dim() > 3 or tensor.shape[1] != length:
            return tensor
        return tensor[:, CUT:].contiguous()

    return change


def _larger(tensor: torch.Tensor) -> torch.Tensor:
    """Images with sides `ENLARGED` times as long."""
    if tensor.dim() not in (4, 5) or not tensor.is_floating_point() or tensor.shape[-1] != tensor.shape[-2]:
        return tensor
    return tensor.repeat_interleave(ENLARGED, -1).repeat_interleave(ENLARGED, -2)


def _more(tensor: torch.Tensor) -> torch.Tensor:
    """One more row of a batch, a copy of the first."""
    return torch.cat([tensor, tensor[:1]]) if tensor.dim() and tensor.shape[0] == BATCH else tensor
