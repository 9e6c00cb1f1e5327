"""The table of lowering rules, keyed by operator overload name such as "aten::add.Tensor".

A rule is a function `rule(lowering, *args, **kwargs)` with the operator's own argument names and defaults. Tensor
arguments arrive as `TensorValue`, lists as tuples. It returns a `TensorValue`, a tuple of them (None for an output
that nobody reads), or `NotImplemented`: then the operator is called through ATen. Whatever the rule emitted before
declining is discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from lampwork.lower.values import Result

Rule = Callable[..., "Result"]
R = TypeVar("R", bound=Callable)

RULES: dict[str, Rule] = {}
#: Those that take their place on GPUs where numbers are to be eager's bit by bit (`gpu_formulas.py`).
GPU_FORMULAS: dict[str, Rule] = {}
#: Rules that never compute (views): they serve every dtype, complex and float8 included.
VIEWS: set[str] = set()


#: Rules that copy and convert: on a GPU they serve float8 too.
COPIES: set[str] = {f"aten::{name}.default" for name in ("_to_copy", "clone", "contiguous", "copy")}


#: Rules that stand for ATen's operator whatever the types: it counts from the beginning of a storage, which is not
#: where a planned buffer begins.
PLACED: set[str] = {"aten::as_strided_scatter.default"}


def rule_of(name: str) -> Rule | None:
    """The rule of an operator by its full name. Those of backward passes are loaded where the first one is asked for: a
    cold start of inference does without."""
    if name not in RULES and "backward" in name:
        from lampwork.lower import (  # noqa: F401  (each registers its rules)
            activation_backward,
            loss_backward,
            normalization_backward,
            pooling_backward,
            view_backward,
        )
    return RULES.get(name)


def full_name(name: str) -> str:
    return name if "." in name else f"{name}.default"


def rule(*names: str) -> Callable[[R], R]:
    """Registers the function as the rule of operators `names` ("add.Tensor" or "relu", in the namespace aten)."""

    def register(function: R) -> R:
        for name in names:
            key = full_name(name if "::" in name else f"aten::{name}")
            assert key not in RULES, f"two rules for {key}"
            RULES[key] = function
        return function

    return register


def on_gpus(*names: str) -> Callable[[R], R]:
    """As `rule`, for `GPU_FORMULAS`."""

    def register(function: R) -> R:
        GPU_FORMULAS.update((full_name(f"aten::{name}"), function) for name in names)
        return function

    return register


def view_rule(*names: str) -> Callable[[R], R]:
    """As `rule`, for operators that only rearrange: their result is an index map of the argument."""

    def register(function: R) -> R:
        rule(*names)(function)
        VIEWS.update(full_name(f"aten::{name}") for name in names)
        return function

    return register
