"""Lowering: an ATen graph as loop nests, one rule per operator (`rules.py` holds the table)."""

from lampwork.lower import (  # noqa: F401  (each registers its rules)
    activation,
    activation_backward,
    assertions,
    cat_pad,
    dropout,
    factory,
    gpu_formulas,
    indexing,
    loss_backward,
    normalization,
    normalization_backward,
    pointwise,
    pooling,
    pooling_backward,
    recurrent,
    reduction,
    scatter,
    view,
    view_backward,
    view_copy,
)
from lampwork.lower.lower import lower

__all__ = ["lower"]
