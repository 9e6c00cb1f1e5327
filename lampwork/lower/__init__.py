"""Lowering: an ATen graph as loop nests, one rule per operator (`rules.py` holds the table)."""

from lampwork.lower import (  # noqa: F401  (each registers its rules; see `rules.rule_of` for others)
    activation,
    assertions,
    cat_pad,
    dropout,
    factory,
    gpu_formulas,
    indexing,
    normalization,
    pointwise,
    pooling,
    recurrent,
    reduction,
    scatter,
    view,
    view_copy,
)
from lampwork.lower.lower import lower

__all__ = ["lower"]
