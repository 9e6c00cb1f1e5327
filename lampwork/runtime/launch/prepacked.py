"""Derived inputs: values computed from inputs once and kept, such as packed weights. No compiler stage is imported.

A recipe is `(name, input indices, constants)`, as in `Artifact.derived`; `RECIPES[name](*tensors, *constants)` computes
it. `DerivedInputs` keeps the values of one entry. It notices a replaced parameter object and a parameter whose memory
was replaced (`p.data = ...`); it does NOT notice values written in place, which is what the user declares by
`options={"freeze": True}`; `refresh()` computes everything anew.

The first call with new weights does not wait for a packing that the vendor's operator can do without. From 64 rows
on, a packed weight of BERT saves 2 to 10 % of its operator's time and costs as much as 5 to 30 calls save, most of it
for memory touched for the first time (430 MB). `UNPACKED[name]` gives what serves in its stead; later calls pack
`BYTES_PACKED_PER_CALL` each until all is packed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

Recipe = tuple[str, tuple[int, ...], tuple[Any, ...]]

RECIPES: dict[str, Callable[..., object]] = {}

#: For recipes that only make an operator faster: what it takes instead, at no cost; None if it takes nothing else.
UNPACKED: dict[str, Callable[..., object]] = {}

#: A call packs weights until their unpacked sizes add up to this: four calls with 0.1 s more each for BERT.
BYTES_PACKED_PER_CALL = 128 << 20


def recipe(function: Callable[..., object]) -> Callable[..., Any]:
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
    """A convolution's weight times the scale of the batch norm after it, computed in float64.

    Then packed with the arguments `packing`, or with channels last for `("channels_last",)`, or left in the layout of
    `weight` if there are none.
    """
    scale = _scale(gamma, variance, epsilon)
    folded = (weight.double() * scale.reshape(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)
    if packing == ("channels_last",):
        return channels_last(folded)
    return pack_convolution_weight(folded, *packing) if packing else folded


@recipe
def fold_batch_norm_bias(
    mean: torch.Tensor,
    variance: torch.Tensor,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    bias: torch.Tensor | None,
    epsilon: float,
) -> torch.Tensor:
    """The bias of a convolution with the batch norm after it folded in, in float64 until rounded to `mean`'s type."""
    centre = -mean.double() if bias is None else bias.double() - mean.double()
    folded = centre * _scale(gamma, variance, epsilon)
    return (folded if beta is None else folded + beta.double()).to(mean.dtype)


@recipe
def pad_rows(weight: torch.Tensor, rows: int) -> torch.Tensor:
    """A weight [N, K] or bias [N] with zeros appended up to `rows` rows."""
    return torch.nn.functional.pad(weight, [0] * (2 * weight.dim() - 1) + [rows - weight.size(0)])


@recipe
def channels_last(weight: torch.Tensor) -> torch.Tensor:
    """A convolution's weight with channels last."""
    return weight.contiguous(memory_format=torch.channels_last)


def unpacked_linear_weight(weight: torch.Tensor, rows: int, is_transposed: bool) -> torch.Tensor | None:
    """The weight [N, K] as the vendor's linear operator takes it too. With one row its rounding may be another."""
    weight = weight.t() if is_transposed else weight
    return weight if rows > 1 and (weight.is_contiguous() or weight.t().is_contiguous()) else None


UNPACKED["pack_linear_weight"] = unpacked_linear_weight


def derive(what: Recipe, inputs: Sequence[object]) -> Any:
    """The value of one recipe. An input index of -1 stands for an argument that is None."""
    return _apply(RECIPES[what[0]], what, inputs)


def _apply(function: Callable[..., object], what: Recipe, inputs: Sequence[Any]) -> Any:
    _, indices, constants = what
    with torch.no_grad(), torch.inference_mode(False):
        tensors = [None if index < 0 else inputs[index].detach() for index in indices]
        return function(*tensors, *constants)


class _Made(NamedTuple):
    """Values, what they were made of, and which of them (`waiting`, positions) are still to be packed."""

    sources: tuple[Any, ...]
    places: tuple[int, ...]
    values: tuple[Any, ...]
    waiting: tuple[int, ...]


class DerivedInputs:
    """The derived inputs of one entry, shared by its calls. Thread-safe: a new `_Made` replaces the old one at once."""

    def __init__(self, recipes: Sequence[Recipe]) -> None:
        self.recipes = tuple(recipes)
        self._sources = tuple(sorted({index for _, indices, _ in self.recipes for index in indices if index >= 0}))
        self._made: _Made | None = None
        self._packing = threading.Lock()

    def values(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The derived values for `inputs`, computed when a source is another object or lies in other memory.

        A value whose recipe is in `UNPACKED` may be unpacked at first.
        """
        made = self._made
        if made is None or not self._made_of(made, inputs):
            made = self._made = self._new(inputs)
        elif made.waiting and self._packing.acquire(blocking=False):  # else another thread is at it
            try:
                further = self._packed_further(made, inputs) if self._made is made else made
                if self._made is made:  # no other thread brought new weights meanwhile
                    self._made = further
                made = further
            finally:
                self._packing.release()
        return made.values

    def is_final(self, values: tuple[object, ...]) -> bool:
        """`values` returned these, and returns them again while the sources stay as they are."""
        made = self._made
        return made is not None and made.values is values and not made.waiting

    def refresh(self) -> None:
        """Forget the values: weights were written in place."""
        self._made = None

    def _made_of(self, made: _Made, inputs: Sequence[Any]) -> bool:
        for index, tensor, place in zip(self._sources, made.sources, made.places):
            if inputs[index] is not tensor or tensor.data_ptr() != place:
                return False
        return True

    def _new(self, inputs: Sequence[Any]) -> _Made:
        tensors = tuple(inputs[index] for index in self._sources)
        places = tuple(tensor.data_ptr() for tensor in tensors)
        values, waiting = [], []
        for position, what in enumerate(self.recipes):
            unpacked = UNPACKED.get(what[0])
            value = None if unpacked is None else _apply(unpacked, what, inputs)
            if value is None:
                value = derive(what, inputs)
            else:
                waiting.append(position)
            values.append(value)
        return _Made(tensors, places, tuple(values), tuple(waiting))

    def _packed_further(self, made: _Made, inputs: Sequence[Any]) -> _Made:
        values, left = list(made.values), BYTES_PACKED_PER_CALL
        done = 0
        for position in made.waiting:
            size = made.values[position].nbytes
            if done and size > left:
                break
            values[position] = derive(self.recipes[position], inputs)
            left -= size
            done += 1
        return made._replace(values=tuple(values), waiting=made.waiting[done:])
