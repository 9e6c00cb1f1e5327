"""Shape rules by family of operators; importing this package fills `fakes.shapes.RULES`."""

from lampwork.fakes.rules import linalg, linear, memory, normalization, pointwise, reduction  # noqa: F401
