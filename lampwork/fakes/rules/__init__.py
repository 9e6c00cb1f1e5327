"""Shape rules by family of operators; importing this package fills `fakes.shapes.RULES`."""

from lampwork.fakes.rules import backward, linalg, linear, memory, normalization, pointwise, reduction  # noqa: F401
