"""Operators that programs register with `torch.library`: what they write, the sizes that their contents decide, and
views. Results, writes and gradients are eager's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import lampwork

LIBRARY = torch.library.Library("test_libraries", "DEF")
define = torch.library.custom_op


@define("test_libraries::scale_all", mutates_args={"xs"})
def scale_all(xs: list[Tensor], by: float) -> None:
    for each in xs:
        each.mul_(by)


@define("test_libraries::counted", mutates_args={"count"})
def counted(x: Tensor, count: Tensor | None = None) -> Tensor:
    if count is not None:
        count.add_(1)
    return x * 2


counted.register_fake(lambda x, count=None: torch.empty_like(x))


@define("test_libraries::both", mutates_args={"a", "b"})
def both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    a.add_(1), b.mul_(2)
    return a + b, a - b


both.register_fake(lambda a, b: (torch.empty_like(a), torch.empty_like(a)))


@define("test_libraries::positive", mutates_args=())
def positive(x: Tensor) -> tuple[Tensor, Tensor]:
    found = (x > 0).nonzero()[:, 0].contiguous()
    return found, x[found]


@positive.register_fake
def _(x):
    count = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(count, dtype=torch.int64), x.new_empty(count)


@define("test_libraries::first", mutates_args=())
def first(x: Tensor, count: int) -> Tensor:
    return x[:count].clone()


@first.register_fake
def _(x, count):
    found = torch.library.get_ctx().new_dynamic_size(min=1, max=3)
    return x.new_empty((found, *x.shape[1:]))


first.register_autograd(
    lambda ctx, gradient: (F.pad(gradient, (0, 0, 0, ctx.rows - gradient.shape[0])), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "rows", inputs[0].shape[0]),
)


@define("test_libraries::total", mutates_args=())
def total(x: Tensor) -> int:
    return int(x.sum())


@total.register_fake
def _(x):
    return torch.library.get_ctx().new_dynamic_size()


@define("test_libraries::mixed", mutates_args=())
def mixed(xs: Sequence[Tensor], dims: Sequence[int] | None = None, to: torch.dtype | None = None) -> list[Tensor]:
    return [(each if dims is None else each.sum(dims)).to(to or each.dtype, copy=True) for each in xs]


@mixed.register_fake
def _(xs, dims=None, to=None):
    return [torch.empty_like(each if dims is None else each.sum(dims), dtype=to) for each in xs]


LIBRARY.define("add_one_(Tensor(a!) x) -> Tensor(a!)")
LIBRARY.impl("add_one_", lambda x: x.add_(1), "CPU")
LIBRARY.define("into(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
LIBRARY.impl("into", lambda x, *, out: out.copy_(x + 1), "CPU")
LIBRARY.define("flat(Tensor(a) x) -> Tensor(a)")
LIBRARY.impl("flat", lambda x: x.view(-1), "CPU")
torch.library.register_fake("test_libraries::flat", lambda x: x.view(-1), lib=LIBRARY)

ops = torch.ops.test_libraries


def lists_are_written(x, y):
    scale_all([x, y * 2], 3.0)
    z = y + 1
    scale_all([z, x[1]], 0.5)
    scale_all([z], 3.0)
    return x + 1, z


def what_may_be_missing_is_written(x, y):
    return counted(x), counted(x, y), counted(x, count=y[0]), y * 2


def two_are_written(x, y):
    a, b = both(x, y)
    return a * b, x, y + 1


def results_are_arguments(x, y):
    z = x * 2
    w = ops.add_one_(z)
    out = torch.empty(4, 3)
    v = ops.into(y, out=out)
    return w, z is w, v is out, out * 2


def contents_decide_sizes(x, y):
    found, values = positive(x.flatten())
    more, others = positive((y * 2).flatten())
    return found + 1, (values * 2).exp().sum(), values.shape[0] + others.shape[0], torch.cat([values, others]), more


def lists_and_options(x, y):
    return mixed([x, y]), mixed([x, y * 2], [0]), mixed([x], to=torch.float64), mixed((x + 1,), [x.dim() - 1], None)


def calls(function, requires_grad=False):
    torch.manual_seed(0)
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    if requires_grad:
        x.requires_grad_()
    return function(x, y), x, y


def check(function, breaks=(), **settings):
    """Twice, as eager: results and what the arguments are afterwards. Gives the statistics."""
    compiled = lampwork.compile(function, options={"cache": False}, **settings)
    for _ in range(2):
        torch.testing.assert_close(calls(compiled), calls(function), check_stride=True)
    stats = lampwork.stats(compiled)
    assert [each.id for each in stats["breaks"]] == list(breaks) and stats["fallbacks"] == ()
    return stats


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function",
    [
        lists_are_written,
        what_may_be_missing_is_written,
        two_are_written,
        results_are_arguments,
        contents_decide_sizes,
        lists_and_options,
    ],
)
def test_they_are_part_of_one_graph(function, dynamic):
    assert check(function, dynamic=dynamic)["captures"] == 1


def test_sizes_that_a_rule_declares_are_looked_at():
    program = lambda x, y, count: first(x + 1, count) * 2
    compiled = lampwork.compile(program, options={"cache": False}, dynamic=False)
    x = torch.randn(5, 3)
    torch.testing.assert_close(compiled(x, x, 2), program(x, x, 2))
    assert lampwork.stats(compiled)["fallbacks"] == ()
    for _ in range(2):  # of four rows, where the rule has said three at most
        torch.testing.assert_close(compiled(x, x, 4), program(x, x, 4))
    assert [each.id for each in lampwork.stats(compiled)["fallbacks"]] == ["assumption-failed"]


def test_sizes_by_contents_are_differentiated():
    program = lambda x: first(x * 2, 3).sin()
    compiled = lampwork.compile(program, options={"cache": False})
    x, y = (torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    compiled(x).sum().backward()
    program(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    stats = lampwork.stats(compiled)
    assert stats["breaks"] == stats["fallbacks"] == () and stats["captures"] == 1


def test_numbers_by_contents_are_numbers_out_of_tensors():
    check(lambda x, y: x * total(y.abs()))
    check(lambda x, y: x + 1 if total(y.abs()) > 3 else x, ["data-dependent"])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: both(x, x),
        lambda x, y: both(x[:3], x[1:]),
        lambda x, y: (scale_all([y, x, y], 2.0), y + 1)[1],
    ],
)
def test_memory_that_is_written_twice_breaks(function):
    check(function, ["custom-operator"])


def test_parts_of_one_memory_are_written():
    assert check(lambda x, y: (both(x[:2], x[2:]), x + 1))["captures"] == 1


def test_views_break():
    def program(x, y):
        z = ops.flat(x)
        z.add_(1)
        return x + 1, z * 2

    check(program, ["custom-operator"])


@define("test_libraries::nested", mutates_args=())
def nested(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    return x + 1, [x * 2, x * 3]


nested.register_fake(lambda x: (torch.empty_like(x), [torch.empty_like(x), torch.empty_like(x)]))


def test_lists_beside_other_results_break():
    def program(x, y):
        first, (second, third) = nested(x + 1)
        return first + second, third * y

    check(program, ["custom-operator"])
