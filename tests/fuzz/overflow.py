"""What operators give in a disturbed run where the terms that they add or multiply leave the range of their type.

Wherever eager adds or multiplies terms, its order is its own affair, and so is whether it makes them smaller first. Where
a partial sum, in some order, leaves the range, the element that is made of it is open (`terms.py`). In each disturbed
run another of its possible values takes its place, and in what is computed of it. What is not finite `judge.py` takes
only where one of these runs gives it, and numbers within their range. Elements whose terms stay in range are eager's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.terms import RULES, Call, Found, Open
from tests.fuzz.zero_tensors import call


class RuleFailed(BaseException):
    """A rule for terms raised, and the operator did not: an error of the fuzzer, which no disturbed run may hide."""


class Overflow(TorchDispatchMode):
    """While it is on, open elements of results are one of their possible values each: in every other call of an
    operator all the same one, in the others at random."""

    def __init__(self, noise: Any) -> None:
        super().__init__()
        self.noise = noise
        self.has_replaced = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_plain = isinstance(func, torch._ops.OpOverload)
        if is_plain and torch.is_inference_mode_enabled() and _is_made_of_others(func):
            with self:
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        rule = RULES.get(_plain_name(func)) if is_plain else None
        if rule is None:
            return call(func, args, kwargs)
        schema = func._schema.arguments
        arguments = {each.name: each.default_value for each in schema if each.has_default_value()}
        arguments |= {each.name: value for each, value in zip(schema, args)} | kwargs
        failed: Exception | None = None
        found = {}
        try:
            found = self._open(func, rule, arguments)
        except Exception as error:
            failed = error
        result = call(func, args, kwargs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        # Of nothing, too, float64 has other kernels than float32: some raise.
        if failed is not None and any(each.numel() for each in results):
            raise RuleFailed(f"{func}: {failed!r}") from failed
        for place, each in found.items():
            self._replace(results[place] if isinstance(place, int) else arguments[place], each)
        if _plain_name(func) in _SUMS:
            self._round(results[-1], _SUMS[_plain_name(func)], arguments)
        return result

    def _round(self, result: torch.Tensor, func: Any, arguments: dict[str, Any]) -> None:
        """Adds the rounding of partial sums where a sum cancels. Disturbed operands do not show it where an operator adds
        up what it has computed itself: `trapezoid(x, x)` is a sum of products, of which only the ends remain. All of it
        may be lost, or next to nothing: `mean([1, B, -B])` is 1 / 3 or 0."""
        if not result.is_floating_point():
            return
        terms = arguments["self"].detach()
        terms = terms.real if terms.is_complex() else terms  # the rest is left out by a sum in another type
        dtype = torch.float32 if result.dtype.itemsize < 4 else result.dtype
        given = {name: each for name, each in arguments.items() if name in ("dim", "keepdim") and each is not None}
        size = func(terms.abs().double(), **given)  # in single precision it might be infinite
        is_exact = (size < 1 / torch.finfo(dtype).eps) & (func((terms != terms.round()).to(dtype), **given) == 0)
        cancels = (result.abs() < size / 8) & size.isfinite() & ~is_exact
        share = 2.0 ** -(4.0 * self.noise.choice(40, size)).to(size)
        lost = size * (self.noise.units * torch.finfo(dtype).eps) * self.noise.sign_like(size) * share
        result.copy_(torch.where(cancels, result + lost.to(result.dtype), result))

    def _open(self, func: Any, rule: Any, arguments: dict[str, Any]) -> Found:
        first = next((each for each in arguments.values() if isinstance(each, torch.Tensor)), None)
        if first is not None and not first.numel():
            return {}  # there are no terms
        dtype = first.dtype if first is not None else torch.int64
        asked = arguments.get("dtype")
        dtype = asked if isinstance(asked, torch.dtype) else dtype
        if not dtype.is_floating_point:
            return {}
        given = {name: value for name, value in arguments.items() if name not in _written(func)}
        return rule(Call(getattr(torch.ops.aten, _plain_name(func)), given, dtype, self.noise))

    def _replace(self, result: torch.Tensor, found: Open) -> None:
        rises, falls, is_lost, vanishes, differs, any_zero = (
            torch.as_tensor(each, device=result.device).broadcast_to(result.shape)
            for each in (found.rises, found.falls, found.is_lost, found.vanishes, found.differs, found.any_zero)
        )
        any_zero = any_zero & (result == 0)
        if bool(any_zero.any()):
            result.copy_(torch.where(any_zero, torch.zeros_like(result).copysign(self.noise.sign_like(result)), result))
        is_open = rises | falls | is_lost | vanishes | differs
        for definition in found.others[:1]:  # what is NaN by its definition has a NaN, or infinities of both signs
            known = ~definition.isnan()
            rises, falls, is_lost, vanishes, is_open = (
                each & known for each in (rises, falls, is_lost, vanishes, is_open)
            )
        if not bool(is_open.any()):
            return
        self.has_replaced = True
        numbers = ((rises, torch.inf), (falls, -torch.inf), (is_lost, torch.nan), (vanishes, 0.0))
        choices = [(mask, torch.full_like(result, number)) for mask, number in numbers if bool(mask.any())]
        choices += [(is_open, other.to(result.dtype).broadcast_to(result.shape)) for other in found.others]
        chosen = self.noise.choice(len(choices) + 1, result)
        made = result.clone()
        for place, (mask, other) in enumerate(choices):
            made = torch.where(mask & (chosen == place), other, made)
        result.copy_(made)


#: Operators whose last result is a sum, and what adds up magnitudes as they do.
_SUMS = {
    "sum": torch.sum, "nansum": torch.nansum, "mean": torch.mean, "trace": torch.trace, "var_mean": torch.mean,
    "std_mean": torch.mean,
}  # fmt: skip
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def _is_made_of_others(func: Any) -> bool:
    """Whether the operator calls others, and has no derivative of its own: with autograd only those come here."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE)


def _plain_name(func: Any) -> str:
    """The operator's name, without the mark of one in place; empty if it is none of ATen's."""
    namespace, _, name = func._schema.name.partition("::")
    if namespace != "aten":
        return ""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _written(func: Any) -> set[str]:
    """The names of arguments that hold results alone."""
    return {each.name for each in func._schema.arguments if each.kwarg_only and each.is_write}
