"""One operator sample through `lampwork.compile` and through eager: everything a caller can see must be equal."""

from __future__ import annotations

import copy
import itertools
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import torch

import lampwork
from lampwork.verdict.verify import compare, leaves

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)

# Their values are whatever was in memory, in eager too.
UNINITIALISED = frozenset("empty empty_like new_empty new_empty_strided empty_strided empty_permuted".split())

# Resizing leaves new elements unset.
RESIZING = frozenset("resize_ resize_as_".split())

#: How a sample ran, best first. The worst of its samples stands for an operator.
OUTCOMES = ("raises", "native", "aten", "fallback", "failed")

#: A worker's exit status when an operator has left the GPU unusable for its process: a new one goes on with the rest.
DEVICE_LOST = 75


@dataclass(frozen=True)
class Outcome:
    """How one sample ran: `kind` is one of OUTCOMES, `detail` says which ATen operators, which reason or what differed.

    "raises" means that eager raised and lampwork raised an exception of the same type.
    """

    kind: str
    detail: str = ""


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def leave_seeding_to_the_check() -> None:
    """PyTorch's samples of random operators keep the generator's state, seed it and set it back around each call, in
    functions of its test suite. `check_sample` seeds by itself and compares the state afterwards: so the operator alone
    is compiled, and what it draws is seen."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = call_as_it_is  # type: ignore[attr-defined]


def call_as_it_is(op: Any, *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def samples(op: Any, dtype: torch.dtype, limit: int | None, device: str = "cpu") -> list[tuple[str, Any, tuple, dict]]:
    """Up to `limit` samples, spread evenly over the first 40, as (label, function, arguments, keyword arguments).

    The in-place variant of the operator, if it has one, runs on the first sample besides.
    """
    leave_seeding_to_the_check()
    torch.manual_seed(7)
    found = op.sample_inputs(device, dtype, requires_grad=False)
    every = list(found if limit is None else itertools.islice(found, 40))
    cases = [
        (str(index), op.get_op(), (sample.input, *sample.args), dict(sample.kwargs))
        for index, sample in enumerate(spread(every, limit))
    ]
    inplace = op.get_inplace()
    if inplace is not None and cases:
        _, _, args, kwargs = cases[0]
        cases.append(("in-place", inplace, args, kwargs))
    return cases


def spread(every: list[Any], limit: int | None) -> list[Any]:
    """`limit` of the given, evenly spread from the first to the last; all if `limit` is None."""
    if limit is None or len(every) <= limit:
        return every
    return [every[(index * (len(every) - 1)) // max(1, limit - 1)] for index in range(limit)]


def check_sample(
    op: Any, function: Any, args: tuple, kwargs: dict, compiler: Any = lampwork, strides: str = "all"
) -> Outcome:
    """Run one sample both ways on equal copies of its arguments, and compare. Never raises.

    `strides`: which must be equal, "all", "significant" (of dimensions that have more than one place) or "none"; then
    it does not matter either which results share memory.
    `compiler` has `compile`, `reset` and `stats`: lampwork, or a stand-in in tests of this check.
    """

    def program(*args, **kwargs):
        return function(*args, **kwargs)

    eager_arguments, our_arguments = _copy((args, kwargs)), _copy((args, kwargs))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, eager_error = _call(program, eager_arguments)
        eager_state = _generators()
        compiler.reset()
        compiled = compiler.compile(program, options={"cache": False})
        ours, our_error = _call(compiled, our_arguments)
        our_state = _generators()
        if eager_error is not None:
            if our_error is None:
                return Outcome("failed", f"no exception; eager raised {_told(eager_error)}")
            if type(our_error) is not type(eager_error):
                return Outcome("failed", f"raised {_told(our_error)}; eager {_told(eager_error)}")
            return Outcome("raises")
        if our_error is not None:
            return Outcome("failed", f"raised {_told(our_error)}")
        # Draws on a GPU may differ in value; they advance the generator as eager's do.
        random = "cuda" in eager_state and not torch.equal(eager_state["cuda"], _fresh_cuda_state())
        try:
            difference = differences(
                op, ours, expected, our_arguments, eager_arguments, (args, kwargs), function, not random, strides
            )
        except Exception as error:
            return Outcome("failed", f"comparing raised {_told(error)}")
    if difference:
        return Outcome("failed", difference)
    if any(not torch.equal(eager_state[name], our_state[name]) for name in eager_state):
        return Outcome("failed", "the random generator is in another state than after eager")
    return _how(compiler.stats(compiled))


def _copy(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """`value` with new tensors that share storage where the old ones did; other objects stay themselves."""
    memo = {} if memo is None else memo
    if isinstance(value, torch.Tensor):
        return copy.deepcopy(value, memo) if value.layout == torch.strided else value.clone()
    if type(value) in (tuple, list):
        return type(value)(_copy(item, memo) for item in value)
    if type(value) is dict:
        return {key: _copy(item, memo) for key, item in value.items()}
    return value


def _call(function: Any, arguments: tuple[tuple, dict]) -> tuple[Any, Exception | None]:
    torch.manual_seed(11)
    try:
        result = function(*arguments[0], **arguments[1])
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # what goes wrong on the GPU is told here
        return result, None
    except Exception as error:
        return None, error


def _generators() -> dict[str, torch.Tensor]:
    """The state of the random generators that a call may draw from."""
    found = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def _fresh_cuda_state() -> torch.Tensor:
    """The state of the GPU's generator from which `_call` starts."""
    generator = torch.Generator("cuda")
    generator.manual_seed(11)
    return generator.get_state()


def _told(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def _how(stats: Any) -> Outcome:
    for key in ("fallbacks", "breaks"):
        if stats[key]:
            return Outcome("fallback", f"{key}: {stats[key][0]}"[:300])
    if stats["extern_calls"]:
        return Outcome("aten", " ".join(sorted(stats["extern_calls"])))
    return Outcome("native")


def differences(
    op: Any,
    ours: Any,
    expected: Any,
    our_arguments: Any,
    eager_arguments: Any,
    original: Any,
    function: Any,
    values: bool = True,
    strides: str = "all",
) -> str:
    """What a caller could tell apart, in words; empty if nothing: values, types, strides, aliasing, mutation.

    Without `values` what tensors hold may differ.
    """
    if values and op.name not in UNINITIALISED | RESIZING:
        reference = _reference(function, original)
        for label, first, second, third in (
            ("", ours, expected, reference),
            ("arguments after the call: ", our_arguments, eager_arguments, None),
        ):
            verdict = compare(_dense(first), _dense(second), _dense(third))
            if not verdict.accepted:
                return label + "; ".join(verdict.reasons)[:400]
            if verdict.notes and (strides == "all" or (strides == "significant" and _laid_out_apart(first, second))):
                return label + "; ".join(verdict.notes)[:400]
    else:
        mine, theirs = ([_outline(leaf) for _, leaf in leaves(value)] for value in (ours, expected))
        if mine != theirs:
            return f"{mine} instead of {theirs}"
    mine, theirs = ([_is_lazy(leaf) for _, leaf in leaves(value)] for value in (ours, expected))
    if mine != theirs:
        return f"lazily conjugated or negated: {mine} instead of {theirs}"
    if strides == "none":
        return ""
    mine, theirs = aliasing(ours, our_arguments), aliasing(expected, eager_arguments)
    return "" if mine == theirs else f"aliasing {mine} instead of {theirs}"


def _laid_out_apart(ours: Any, expected: Any) -> bool:
    """Whether strides of dimensions with more than one place differ."""
    for (_, our), (_, their) in zip(leaves(ours), leaves(expected)):
        if isinstance(our, torch.Tensor) and our.layout == their.layout == torch.strided and our.numel():
            if any(our.stride(k) != their.stride(k) for k, size in enumerate(our.shape) if size > 1):
                return True
    return False


def _reference(function: Any, original: Any) -> Any:
    """The sample computed in float64, or None: half-precision results are judged by their distance from it too."""

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.double() if value.is_floating_point() else value.clone()
        if isinstance(value, torch.dtype):
            return torch.float64 if value.is_floating_point else value
        if type(value) in (tuple, list):
            return type(value)(wide(item) for item in value)
        if type(value) is dict:
            return {key: wide(item) for key, item in value.items()}
        return value

    torch.manual_seed(11)
    try:
        args, kwargs = wide(original)
        return function(*args, **kwargs)
    except Exception:
        return None


def _dense(value: Any) -> Any:
    """`value` with sparse tensors as dense ones, so that they compare."""
    if isinstance(value, torch.Tensor):
        return value if value.layout == torch.strided else value.to_dense()
    if type(value) in (tuple, list):
        return type(value)(_dense(item) for item in value)
    if type(value) is dict:
        return {key: _dense(item) for key, item in value.items()}
    return value


def _outline(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
        return (str(leaf.dtype), tuple(leaf.shape), leaf.stride())
    return type(leaf).__name__


def _is_lazy(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and (leaf.is_conj() or leaf.is_neg())


def aliasing(outputs: Any, arguments: Any) -> list[tuple[Any, ...]]:
    """For each output tensor: the argument that it is, else the first argument or output whose storage it shares."""
    found: list[tuple[Any, ...]] = []
    tensors = [leaf for _, leaf in leaves(arguments) if isinstance(leaf, torch.Tensor)]
    known = len(tensors)
    for _, leaf in leaves(outputs):
        if not isinstance(leaf, torch.Tensor):
            continue
        same = next((f"is {_label(i, known)}" for i, other in enumerate(tensors) if other is leaf), None)
        shared = None
        if leaf.layout == torch.strided and leaf.numel() and not leaf._is_zerotensor():
            address = leaf.untyped_storage().data_ptr()
            shared = next(
                (
                    f"views {_label(i, known)} at {leaf.storage_offset()}"
                    for i, other in enumerate(tensors)
                    if other.layout == torch.strided
                    and other.numel()
                    and not other._is_zerotensor()
                    and other.untyped_storage().data_ptr() == address
                ),
                None,
            )
        found.append((same or shared or "fresh",))
        tensors.append(leaf)
    return found


def _label(index: int, arguments: int) -> str:
    return f"argument {index}" if index < arguments else f"output {index - arguments}"
