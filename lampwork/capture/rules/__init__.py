"""Shape rules by family of operators; importing this package fills `capture.shapes.RULES`."""

from lampwork.capture.rules import linear, memory, normalization, pointwise, reduction  # noqa: F401
