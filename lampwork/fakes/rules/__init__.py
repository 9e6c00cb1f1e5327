"""Shape rules by family of operators; importing this package fills `fakes.shapes.RULES`."""

from lampwork.fakes.rules import (  # noqa: F401
    backward,
    control_flow,
    draws,
    linalg,
    linear,
    memory,
    normalization,
    pointwise,
    recurrent,
    reduction,
)
