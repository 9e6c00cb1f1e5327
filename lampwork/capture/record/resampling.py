"""`F.interpolate` on symbolic sizes: in terms of the operators that take the output's size.

The function's own way is an operator that computes the output's size from plain numbers, which would specialise every
size of the image, its batch included.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

#: (mode, dimensions of the image) -> operator, and whether it takes `align_corners`.
_OPERATORS: dict[tuple[str, int], tuple[Any, bool]] = {
    ("nearest", 1): (aten.upsample_nearest1d.default, False),
    ("nearest", 2): (aten.upsample_nearest2d.default, False),
    ("nearest", 3): (aten.upsample_nearest3d.default, False),
    ("nearest-exact", 1): (aten._upsample_nearest_exact1d.default, False),
    ("nearest-exact", 2): (aten._upsample_nearest_exact2d.default, False),
    ("nearest-exact", 3): (aten._upsample_nearest_exact3d.default, False),
    ("linear", 1): (aten.upsample_linear1d.default, True),
    ("bilinear", 2): (aten.upsample_bilinear2d.default, True),
    ("bicubic", 2): (aten.upsample_bicubic2d.default, True),
    ("trilinear", 3): (aten.upsample_trilinear3d.default, True),
}

#: The same where each pixel of a smaller image is a mean of all that it covers.
_ANTIALIASED: dict[tuple[str, int], tuple[Any, bool]] = {
    ("bilinear", 2): (aten._upsample_bilinear2d_aa.default, True),
    ("bicubic", 2): (aten._upsample_bicubic2d_aa.default, True),
}

#: Halves, quarters and so on, of sizes of which floats hold all multiples.
_MOST_PARTS = 64


def _scaled(size: Any, factor: Any) -> Any:
    """`size * factor`, rounded down: in whole numbers where floats do not round, as for 0.5 and 1.75."""
    times, parts = float(factor).as_integer_ratio()
    return size * times // parts if parts <= _MOST_PARTS and times < 1 << 20 else int(int(size) * factor)


def interpolate(
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """As `torch.nn.functional.interpolate`; NotImplemented where that should be called itself: for other modes, and to
    word errors."""
    dims = input.dim() - 2
    operator, takes_corners = (_ANTIALIASED if antialias else _OPERATORS).get((mode, dims), (None, False))
    if operator is None or (size is None) == (scale_factor is None):
        return NotImplemented
    if align_corners is not None and not takes_corners:
        return NotImplemented
    if size is not None and recompute_scale_factor:
        return NotImplemented
    factors: Any = [None] * dims
    if size is None:
        factors = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * dims
        if len(factors) != dims:
            return NotImplemented
        sizes = zip(input.size()[2:], factors)
        size = [_scaled(each, factor) for each, factor in sizes]
        if recompute_scale_factor:
            factors = [None] * dims
    else:
        size = list(size) if isinstance(size, (list, tuple)) else [size] * dims
        if len(size) != dims:
            return NotImplemented
    corners = (bool(align_corners),) if takes_corners else ()
    return operator(input, size, *corners, *[None if each is None else float(each) for each in factors])
