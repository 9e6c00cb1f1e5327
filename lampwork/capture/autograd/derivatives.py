"""Derivatives as eager's formulas give them for tensors with memory, where those for fakes are others.

    x.max()     on the CPU: zeros with `grad / count` where x is the maximum; of fakes: `mask * (grad / count)`, which
                is NaN all over where the gradient is infinite
    x.prod()    `grad * (result / x)` unless an element is zero; of fakes: products of all others, which overflow
                and round in other places

PyTorch's formulas look at the contents of plain tensors, or write in place, and do neither with tensors of other
classes, as fakes are. So while the engine runs on fakes, the nodes with such formulas have a hook that gives what eager
would: both sides of what it looks at, and a choice between them. What the node computed itself, nobody reads then.
Eager's errors where something does not fit in place are raised, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lampwork.capture.autograd.accumulation import note_sums
from lampwork.fakes.shapes import broadcast, same_sizes

if TYPE_CHECKING:
    from lampwork.capture.record.recording import Recording as Recorder


@contextmanager
def as_of_plain_tensors(recorder: Recorder, nodes: Collection[Any]) -> Iterator[None]:
    """While active, those of `nodes` with a formula of their own for plain tensors give what that gives, and the sums
    of what they give are laid out as eager's."""
    handles = []
    for node in nodes:
        formula = _FORMULAS.get(type(node).__name__)
        if formula is not None:
            handles.append(node.register_hook(partial(_replace, formula, node)))
    handles += note_sums(recorder, nodes)  # of what the formulas gave
    try:
        yield
    finally:
        recorder.handed_on = ()
        for handle in handles:
            handle.remove()


def _replace(formula: Callable[..., Any], node: Any, gradients: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    # Formulas that are to be differentiated again look at nothing.
    if tangents[0] is None or all(each is None for each in gradients) or torch.is_grad_enabled():
        return None
    found = formula(node, gradients, *tangents)
    # The engine has converted what the node gave by now.
    return found and tuple(
        [new if new is None or new.dtype == old.dtype else new.to(old.dtype) for new, old in zip(found, gradients)]
    )


def _saved(node: Any, name: str) -> Any:
    return getattr(node, f"_saved_{name}")


def _distributed(node: Any, gradients: tuple[Any, ...], tangent: torch.Tensor) -> Any:
    """Of a maximum, minimum or median of everything: shared by all elements that are it."""
    x, value = _saved(node, "self"), _saved(node, "result")
    if x.is_cuda:
        return None
    mask = torch.where(value.isnan(), x.isnan(), x == value)
    return (torch.masked_fill(tangent.new_zeros(x.size(), dtype=x.dtype), mask, tangent / mask.sum()),)


def _extremes(node: Any, gradients: tuple[Any, ...], least: torch.Tensor, most: torch.Tensor | None) -> Any:
    """Of `aminmax`: the second is added to the first in place, which keeps its strides."""
    x, dim = _saved(node, "self"), _saved(node, "dim")
    if most is None or not x.dim():
        return None
    dims = list(range(x.dim())) if dim is None else [_signed(dim) % x.dim()]

    def shared(tangent: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if not _saved(node, "keepdim"):
            shape = [1 if k in dims else size for k, size in enumerate(x.size())]
            tangent, value = tangent.reshape(shape), value.reshape(shape)
        mask = x == value
        return (tangent / mask.sum(dims, True)) * mask

    return (shared(least, _saved(node, "min")).add_(shared(most, _saved(node, "max"))),)


def _product(node: Any, gradients: tuple[Any, ...], tangent: torch.Tensor) -> Any:
    """Of a product of everything. `gradients` has products of all other elements."""
    x, result = _saved(node, "self").to(tangent.dtype), _saved(node, "result")
    if not x.dim():
        return None
    zeros = (x == 0).sum()
    (others,) = gradients
    return (
        torch.where(zeros == 0, tangent * (result / x).conj(), torch.where(zeros > 1, torch.zeros_like(x), others)),
    )


def _product_along(node: Any, gradients: tuple[Any, ...], tangent: torch.Tensor) -> Any:
    """Of products along a dimension."""
    x, result, dim = _saved(node, "self").to(tangent.dtype), _saved(node, "result"), _saved(node, "dim")
    if not x.dim():
        return None
    if not _saved(node, "keepdim"):
        dim = _signed(dim) % x.dim()
        tangent, result = tangent.unsqueeze(dim), result.unsqueeze(dim)
    (others,) = gradients
    return (torch.where((x == 0).any().logical_not(), tangent * (result / x).conj(), others),)


def _running_product(node: Any, gradients: tuple[Any, ...], tangent: torch.Tensor) -> Any:
    """Of `cumprod`: before the first zero along the dimension, at it, and behind it up to the second."""
    x, result = _saved(node, "self").to(tangent.dtype), _saved(node, "result")
    if not x.dim():
        return None
    dim = _signed(_saved(node, "dim")) % x.dim()
    if not x.size(dim) > 1:
        return None
    x, result = x.conj(), result.conj()
    is_zero = x == 0
    zeros = is_zero.cumsum(dim)
    weighted = (result * tangent).masked_fill(zeros != 0, 0)
    before = weighted.flip(dim).cumsum(dim).flip(dim).div(x)
    is_behind = zeros == 1
    first = is_behind.max(dim, keepdim=True)[1]
    is_first = is_behind & is_zero
    behind = x.masked_fill(~(is_behind & ~is_first), 1).cumprod(dim) * tangent.masked_fill(~is_behind, 0)
    ahead = result.gather(dim, (first - 1).relu()).masked_fill(first == 0, 1)
    at_first = behind.sum(dim, keepdim=True) * ahead
    return (torch.where(zeros == 0, before, torch.where(is_first, at_first, torch.zeros_like(before))),)


def _picked(node: Any, gradients: tuple[Any, ...], tangent: torch.Tensor) -> Any:
    """Of `masked_select`: scattered into zeros in place, which keep their strides."""
    x, mask = _saved(node, "self"), _saved(node, "mask")
    if gradients[0] is None:
        return None
    whole = torch.zeros_like(x.expand(broadcast([x.size(), mask.size()])))
    whole.masked_scatter_(mask, tangent)
    return (whole.sum_to_size(gradients[0].size()), *gradients[1:])


def _clamped(node: Any, gradients: tuple[Any, ...], tangent: torch.Tensor) -> Any:
    """Of `clamp` between tensors: the masks are combined in place, which keeps the strides of the first."""
    x, low, high = (_saved(node, name) for name in ("self", "min", "max"))
    if not isinstance(low, torch.Tensor) or not isinstance(high, torch.Tensor):
        return None
    whole = broadcast([x.size(), low.size(), high.size()])
    zero = torch.scalar_tensor(0.0, dtype=tangent.dtype, device=tangent.device)
    masks = (
        lambda: (x >= low).logical_and_(x <= high),
        lambda: (x < low).logical_and_(low < high),
        lambda: (x > high).logical_or_(high < low),
    )
    found: list[Any] = []
    for gradient, mask, written in zip(gradients, masks, (low, low, high)):
        if gradient is None:
            found.append(None)
            continue
        shape = broadcast([x.size(), written.size()])
        if not same_sizes(shape, whole):
            raise RuntimeError(f"output with shape {list(shape)} doesn't match the broadcast shape {list(whole)}")
        found.append(torch.where(mask(), tangent, zero).sum_to_size(gradient.size()))
    return tuple(found)


def _signed(number: int) -> int:
    """Autograd's nodes give dimensions as unsigned numbers of 64 bits."""
    return number - (1 << 64) if number >= 1 << 63 else number


_FORMULAS: dict[str, Callable[..., Any]] = {
    "MaxBackward1": _distributed,
    "MinBackward1": _distributed,
    "AminmaxBackward0": _extremes,
    "MedianBackward0": _distributed,
    "NanmedianBackward0": _distributed,
    "ProdBackward0": _product,
    "ProdBackward1": _product_along,
    "CumprodBackward0": _running_product,
    "MaskedSelectBackward0": _picked,
    "ClampBackward0": _clamped,
    "ClampBackward1": _clamped,
}
