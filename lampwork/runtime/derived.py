"""Derived inputs: values computed from inputs once and kept, such as packed weights. No compiler stage is imported.

A recipe is `(name, input indices, constants)`, as in `Artifact.derived`; `RECIPES[name](*tensors, *constants)` computes
it. `DerivedInputs` keeps the values of one entry. It notices a replaced parameter object and a parameter whose memory
was replaced (`p.data = ...`); it does NOT notice values written in place, which is what the user declares by
`options={"freeze": True}`; `refresh()` computes everything anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Recipe = tuple[str, tuple[int, ...], tuple[Any, ...]]

RECIPES: dict[str, Callable[..., Any]] = {}


def recipe(function: Callable[..., Any]) -> Callable[..., Any]:
    RECIPES[function.__name__] = function
    return function


@recipe
def pack_linear_weight(weight: torch.Tensor, rows: int, is_transposed: bool) -> torch.Tensor:
    """The vendor's packed form of a weight [N, K] ([K, N] if `is_transposed`), best for inputs of `rows` rows."""
    weight = weight.t() if is_transposed else weight
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)


@recipe
def pack_convolution_weight(
    weight: torch.Tensor, padding: tuple, stride: tuple, dilation: tuple, groups: int, input_size: tuple
) -> torch.Tensor:
    """The vendor's packed form of a convolution's weight [O, I / groups, ...] for inputs of `input_size`."""
    return torch.ops.mkldnn._reorder_convolution_weight(
        weight.contiguous(), list(padding), list(stride), list(dilation), groups, list(input_size)
    )


def _scale(gamma: torch.Tensor | None, variance: torch.Tensor, epsilon: float) -> torch.Tensor:
    scale = torch.rsqrt(variance.double() + epsilon)
    return scale if gamma is None else scale * gamma.double()


@recipe
def fold_batch_norm_weight(
    weight: torch.Tensor, variance: torch.Tensor, gamma: torch.Tensor | None, epsilon: float, packing: tuple
) -> torch.Tensor:
    """A convolution's weight times the scale of the batch norm behind it, computed in float64, then packed."""
    scale = _scale(gamma, variance, epsilon)
    folded = (weight.double() * scale.reshape(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)
    return pack_convolution_weight(folded, *packing)


@recipe
def fold_batch_norm_bias(
    mean: torch.Tensor,
    variance: torch.Tensor,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    bias: torch.Tensor | None,
    epsilon: float,
) -> torch.Tensor:
    """The bias of a convolution with the batch norm behind it folded in, in float64 until rounded to `mean`'s type."""
    centre = -mean.double() if bias is None else bias.double() - mean.double()
    folded = centre * _scale(gamma, variance, epsilon)
    return (folded if beta is None else folded + beta.double()).to(mean.dtype)


def derive(what: Recipe, inputs: Sequence[Any]) -> Any:
    """The value of one recipe. An input index of -1 stands for an argument that is None."""
    name, indices, constants = what
    with torch.no_grad(), torch.inference_mode(False):
        tensors = [None if index < 0 else inputs[index].detach() for index in indices]
        return RECIPES[name](*tensors, *constants)


class DerivedInputs:
    """The derived inputs of one entry, shared by its calls. Thread-safe: a new tuple replaces the old one at once."""

    def __init__(self, recipes: Sequence[Recipe]) -> None:
        self.recipes = tuple(recipes)
        self._sources = tuple(sorted({index for _, indices, _ in self.recipes for index in indices if index >= 0}))
        self._made: tuple[tuple[Any, ...], tuple[int, ...], tuple[Any, ...]] | None = None

    def values(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The derived values for `inputs`, computed when a source is another object or lies in other memory."""
        made = self._made
        if made is not None:
            tensors, places, values = made
            for index, tensor, place in zip(self._sources, tensors, places):
                if inputs[index] is not tensor or tensor.data_ptr() != place:
                    break
            else:
                return values
        tensors = tuple(inputs[index] for index in self._sources)
        places = tuple(tensor.data_ptr() for tensor in tensors)
        values = tuple(derive(each, inputs) for each in self.recipes)
        self._made = (tensors, places, values)
        return values

    def refresh(self) -> None:
        """Forget the values: weights were written in place."""
        self._made = None
