"""`Alternative`: one of several ways to compute a part of a program, for whoever can measure which is fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lampwork.ir.record import record

if TYPE_CHECKING:
    from lampwork.ir.loops import Kernel
    from lampwork.ir.program import Extern, TensorRef


@record
class Alternative:
    """ATen calls, then kernels, in order.

    `buffers`: what each of `kernels` runs on, by name, in the order of its parameters. `results`: what each of `calls`
    makes. `products`: those of `kernels` that compute a matrix product, which another alternative leaves to an ATen
    call; they are worth running only on matrix units.
    """

    kernels: tuple[Kernel, ...]
    buffers: tuple[tuple[str, ...], ...]
    products: tuple[Kernel, ...] = ()
    calls: tuple[Extern, ...] = ()
    results: tuple[TensorRef, ...] = ()


#: Given the alternatives of each part of a program, the number of the one to take of each. The first of a part is what
#: is taken where nothing is measured.
Choose = Callable[[Sequence[Sequence[Alternative]]], Sequence[int]]
