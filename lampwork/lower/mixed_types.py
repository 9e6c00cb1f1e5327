"""Operators whose kernels take operands of one type alone: mixed ones are left to ATen, which says what is wrong.

`layer_norm` of float32 with a weight of float64 raises in eager; a nest would compute it. ATen's normalisations take
half types with parameters of float32.
"""

from __future__ import annotations

from typing import Any

from lampwork.lower.values import TensorValue

_NORMALIZED = {
    "native_layer_norm.default": (0, 2, 3), "native_group_norm.default": (0, 1, 2),
    "native_batch_norm.default": (0, 1, 2, 3, 4), "_native_batch_norm_legit_functional.default": (0, 1, 2, 3, 4),
    "_native_batch_norm_legit_no_training.default": (0, 1, 2, 3, 4), "_native_batch_norm_legit.no_stats": (0, 1, 2),
}  # fmt: skip
_OTHERS = {
    "binary_cross_entropy.default": (0, 1, 2), "index_add.default": (0, 3),
    "nll_loss_forward.default": (0, 2), "nll_loss2d_forward.default": (0, 2),
    "nll_loss_backward.default": (1, 3), "nll_loss2d_backward.default": (1, 3),
}  # fmt: skip
#: Arguments that must be of one type, by operator.
ONE_TYPE = {f"aten::{name}": places for name, places in (_NORMALIZED | _OTHERS).items()}
_HALVES_BESIDE_FLOAT32 = frozenset(f"aten::{name}" for name in _NORMALIZED)


def are_refused(name: str, args: tuple[Any, ...]) -> bool:
    """Whether the kernel of operator `name` takes no operands of these types together."""
    places = ONE_TYPE.get(name)
    if places is None:
        return False
    types = [args[place].dtype for place in places if place < len(args) and type(args[place]) is TensorValue]
    if len(set(types)) < 2:
        return False
    allowed = name in _HALVES_BESIDE_FLOAT32 and types[0] in ("float16", "bfloat16")
    return not (allowed and set(types[1:]) == {"float32"})
