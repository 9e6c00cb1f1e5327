"""Shape rules by family of operators; importing this package fills `fakes.shapes.RULES`, but for those of backward
passes (`fakes.shapes.rule_of`)."""

from lampwork.fakes.rules import (  # noqa: F401
    control_flow,
    draws,
    images,
    linalg,
    linear,
    memory,
    normalization,
    pointwise,
    recurrent,
    reduction,
)
