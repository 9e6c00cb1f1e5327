"""Generated programs of views: a tensor, two views, changes of their shapes in place, writes through any of them, also by
functions that are not compiled, and what is returned.

    y = x * 1.5; v = y[1:]; v.t_(); u = v.detach(); u.add_(x.sum()); return y, v

`generate(seed)` returns the lines of such a function of `x`, a matrix of doubles of any of `SHAPES`. They are compared by
their gradients, too: writes through a view reach its base, through what is detached they do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

SHAPES = ((4, 6), (4, 6), (6, 4), (8, 3), (4, 9))
BASES = (
    "y = x * 1.5", "y = x.clone()", "y = x.t() * 1.0; y = y.t()", "y = torch.zeros(x.shape, dtype=x.dtype)",
    "y = torch.zeros(x.shape, dtype=x.dtype); y.copy_(x)", "y = x.detach().clone()", "x = x * 1.25; y = x",
    "with torch.no_grad(): y = x * 2.0",
)  # fmt: skip
VIEWS = (
    "{0}[:]", "{0}.view(2, -1)", "{0}.t()", "{0}[1:]", "{0}[:, 1:]", "{0}.unsqueeze(0)", "{0}.diagonal()",
    "{0}.view(-1)", "{0}[0]", "{0}.chunk(2)[1]", "{0}.transpose(0, 1)", "{0}.expand(2, *{0}.shape)[1]",
    "{0}.unfold(1, 2, 2)", "{0}.detach()", "{0}.data", "{0}.permute(1, 0)[::2]",
    "{0}.unbind(0)[1]", "{0}.split(3, 1)[0]", "{0}.narrow(0, 1, 2)", "{0}.select(1, 2)", "{0}.flatten()",
    "{0}.reshape(3, -1)", "{0}.movedim(0, 1)", "{0}.squeeze()", "{0}.unfold(0, 2, 1)", "{0}.unfold(-1, 3, 2)",
    "{0}.unfold(0, 2, 1)[0]", "{0}.as_strided((2, 3), (1, {0}.shape[-1]))", "{0}.as_strided((3, 2), ({0}.shape[0], 1))",
)  # fmt: skip
SHAPES_IN_PLACE = ("t_()", "transpose_(0, 1)", "unsqueeze_(0)", "squeeze_()", "swapaxes_(0, -1)", "detach_()")
WRITES = (
    "{0}.sin_()", "{0}.mul_(2.5)", "{0}.mul_({1}.detach().sum())", "{0}.mul_({1}.sum())", "{0}.fill_(0.5)",
    "{0}.copy_({0}.detach().cos())", "{0}.masked_fill_({0}.detach() > 0, 1.5)", "{0}.zero_()", "{0}.add_(x.sum())",
    "{0}.exp_()", "{0}.clamp_(-1, 1)", "{0}.add_({0})", "{0}[0].mul_(3)", "{0}[..., 0] = x.mean()", "{0}.relu_()",
    "{0}.index_fill_(0, torch.tensor([0]), 2.0)", "{0}.pow_(2)", "{0}.addcmul_({0}.detach(), {0}.detach())",
    "{0}.cumsum_(0)", "{0}.data.mul_(2)", "with torch.no_grad(): {0}.mul_(2)", "{0}.sub_({1}.flatten()[0])",
    "outside({0}, {1})", "outside({0}, x)",
)  # fmt: skip
RESULTS = (
    "y", "v", "u", "y.sum() + v.sum() * 2", "y, v", "y, u", "y * y, v.sum()", "(v * u.sum()).sum() + y.sum()",
    "y.sin(), v.cos()", "v.clone(), y",
)  # fmt: skip


def generate(seed: int) -> list[str]:
    draw = random.Random(seed)
    lines = [draw.choice(BASES), f"v = {draw.choice(VIEWS).format('y')}"]
    if draw.random() < 0.6:
        lines.append(f"v.{draw.choice(SHAPES_IN_PLACE)}")
    lines.append(f"u = {draw.choice(VIEWS).format(draw.choice('yvv'))}")
    if draw.random() < 0.3:
        lines.append(f"{draw.choice('uvy')}.{draw.choice(SHAPES_IN_PLACE)}")
    results = draw.choice(RESULTS)
    for _ in range(draw.choice((1, 1, 2, 3))):
        lines.append(draw.choice(WRITES).format(draw.choice("yvu"), draw.choice("yvux")))
        if draw.random() < 0.2 and "z" not in results:
            lines.append("z = y.sum() * v.sum()")
            results += ", z"
    return [*lines, f"return {results}"]


@torch.compiler.disable
def outside(written: torch.Tensor, factor: torch.Tensor) -> None:
    """What only eager does, after a break."""
    written.mul_(factor.sum())


def function_of(lines: list[str]) -> Callable[[torch.Tensor], Any]:
    namespace: dict[str, Any] = {"torch": torch, "outside": outside}
    exec("def program(x):\n" + "".join(f"    {line}\n" for line in lines), namespace)
    return namespace["program"]


def observed(function: Callable[[torch.Tensor], Any], seed: int, shape: tuple[int, ...]) -> list[Any]:
    """What a call gives that the program's caller can see, gradients included. Raises what the call raises."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()
    results = function(x)
    results = results if isinstance(results, tuple) else (results,)
    seen: list[Any] = [(each.detach().clone(), each.requires_grad, each.is_leaf) for each in results]
    seen.append([(one is other, _shares(one, other)) for one in results for other in results])
    roots = [each for each in results if each.requires_grad]
    draw = torch.Generator().manual_seed(seed + 1)
    if roots:
        torch.autograd.backward(roots, [torch.randn(each.shape, generator=draw, dtype=each.dtype) for each in roots])
    return [*seen, x.grad, x.detach(), x._version]


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.allclose(one, other, 1e-9, 1e-9, equal_nan=True)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
