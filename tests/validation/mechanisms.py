"""Small programs for what passes look at: each holds what one of them could get wrong.

Sizes are small, and none is a multiple of a vector or tile. `small` programs are compiled with thresholds lowered, so
that what scheduling does for large tensors happens to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from lampwork.config import Settings, make_settings
from tests.validation.sources import Program


@dataclass(frozen=True)
class Together:
    """All inputs of a program, where they share memory."""

    tensors: tuple


@dataclass(frozen=True)
class _Row:
    function: Callable
    inputs: Callable[..., tuple]
    sizes: Sequence[tuple[int, ...]]
    gradients: bool
    settings: Settings


TABLE: dict[str, _Row] = {}


def program(
    *inputs: Any, sizes: Sequence[tuple[int, ...]] = ((),), gradients: bool = False, **settings: Any
) -> Callable:
    """Registers a program. `inputs`: for each, a function of the sizes that makes it."""

    def register(function: Callable) -> Callable:
        def make(*numbers: int) -> tuple:
            torch.manual_seed(sum(numbers))
            made = [each(*numbers) if callable(each) else each for each in inputs]
            return made[0].tensors if isinstance(made[0], Together) else tuple(made)

        dynamic = len(sizes) > 1
        chosen = make_settings(dynamic=dynamic or None, **settings)
        TABLE[function.__name__] = _Row(function, make, sizes, gradients, chosen)
        return function

    return register


def mechanism_programs(gradients: bool) -> Iterator[Program]:
    for name, row in TABLE.items():
        if row.gradients == gradients:
            calls = [(row.inputs(*sizes), {}) for sizes in row.sizes]
            yield Program(name, row.function, calls, row.settings, gradients)


# Inputs ---------------------------------------------------------------------------------------------------------------


def normal(*shape: Any, dtype: torch.dtype = torch.float32, grad: bool = False) -> Callable:
    """Normal numbers; an extent that is a string is an expression of the sizes n and m."""

    def make(n: int = 5, m: int = 7) -> torch.Tensor:
        extents = [eval(each, {"n": n, "m": m}) if isinstance(each, str) else each for each in shape]
        made = torch.randn(extents).to(dtype)
        return made.requires_grad_() if grad else made

    return make


def integers(low: int, high: int, *shape: Any, dtype: torch.dtype = torch.int64) -> Callable:
    def make(n: int = 5, m: int = 7) -> torch.Tensor:
        extents = [eval(each, {"n": n, "m": m}) if isinstance(each, str) else each for each in shape]
        return torch.randint(low, high, extents).to(dtype)

    return make


def turned(make: Callable) -> Callable:
    """With dimensions in memory the other way round."""

    def call(*sizes: int) -> torch.Tensor:
        made = make(*sizes)
        return made.permute(*reversed(range(made.dim()))).contiguous().permute(*reversed(range(made.dim())))

    return call


def apart(make: Callable) -> Callable:
    """Every third element of larger memory, from the second on."""

    def call(*sizes: int) -> torch.Tensor:
        made = make(*sizes)
        return torch.full((*made.shape, 3), 99).to(made.dtype)[..., 1].copy_(made)

    return call


def repeated(make: Callable, times: int) -> Callable:
    """The same memory several times, along a new dimension after the first."""

    def call(*sizes: int) -> torch.Tensor:
        made = make(*sizes)
        return made[:, None].expand(made.shape[0], times, *made.shape[1:])

    return call


DYNAMIC = ((5, 7), (2, 3), (9, 33), (64, 17))

# Order: what is read before it is written, and what is written twice --------------------------------------------------


@program(normal(4, 6))
def reads_then_writes(x):
    total = x.sum(1)
    product = x * 2
    x.add_(1)
    again = x.sum(1)
    x.mul_(again[:, None])
    return total, product, again


@program(repeated(normal(2, 2), 2))
def reads_repeated_memory_in_two_orders(x):
    """The mean is a loop over what the memory holds, and one over its repetitions; the distances from it are in order."""
    flat = x.reshape(-1)
    return F.batch_norm(flat.unsqueeze(-1), None, None, training=True), flat.mean(0)


@program(repeated(normal(4, 8), 3))
def sums_repeated_memory(x):
    flat = x.reshape(-1)
    return flat.sum(0), (flat - flat.mean()).square().sum(), x.reshape(x.shape[0], -1).softmax(1)


@program(normal(6, 6))
def swaps_halves(x):
    upper = x[:3].clone()
    x[:3] = x[3:]
    x[3:] = upper
    return x.t() * 2


@program(normal(6, 5))
def shifts_within_itself(x):
    x[1:] = x[:-1].clone() + x[1:]
    return x.sum(0)


@program(normal(5, 5))
def writes_its_own_transpose(x):
    x.copy_(x.t().clone() * 2 + x)
    return x.relu()


@program(normal(4, 4), normal(4, 4))
def writes_between_products(x, y):
    first = x @ y
    x.add_(first)
    second = x @ y
    y.mul_(second)
    third = x @ y
    return first, second, third.relu()


@program(normal(4, 4), normal(4, 4), normal(4, 4))
def calls_read_what_is_written(x, y, z):
    """What is written depends on no call, so nothing but the reads keeps the writes back."""
    a = x @ y
    old = torch.tanh(a @ z) + x
    x.mul_(2)
    y.fill_(1)
    z.copy_(x.t())
    return a, old.sum(1)


@program(normal(4, 4), normal(4, 4), integers(0, 4, 3))
def written_more_than_once(x, y, index):
    """Scatters into one buffer, of which some wait for calls of ATen."""
    a = torch.zeros(4, 4).index_put_((index,), (x @ y)[:3])
    a.index_put_((index[:2],), y[:2] * 3, accumulate=True)
    a.index_fill_(0, index[2:], 7)
    before = a.sum(0)
    a[index[:1]] = (y @ x)[:1]
    x.index_put_((index,), a[:3])
    x.index_copy_(1, torch.tensor([0, 2]), y[:, :2])
    return a, before, x * 1


@program(normal(8, 4), integers(0, 8, 5))
def gathers_then_scatters(x, index):
    rows = x[index] * 2
    x.index_add_(0, index, torch.ones(5, 4))
    after = x[index]
    x[index[:2]] = rows[:2]
    return rows, after, x.sum()


@program(normal(4, 5), normal(4, 5))
def two_writes_one_reader(x, y):
    buffer = torch.zeros(4, 5)
    buffer[:2] = x[:2] + 1
    buffer[2:] = y[2:] * 3
    buffer[:, 1] += x[:, 0]
    copied = buffer * 1.0
    buffer[0] = -1
    return buffer, copied


@program(normal(12))
def overlapping_views(x):
    low, high = x[:8], x[4:]
    low.mul_(2)
    high.add_(low.sum())
    return low + high


@program(normal(3, 4), normal(3, 4))
def write_after_reduction_beside_reader(x, y):
    largest = x.amax(1, keepdim=True)
    shifted = x - largest
    x.copy_(y)
    return shifted.exp().sum(1), x + largest


@program(normal(6, 9), normal(6, 9))
def softmax_written_over_its_input(x, y):
    """What other loops of the kernel compute again is read from memory that is written."""
    largest = x.amax(1, keepdim=True)
    e = torch.exp(x - largest)
    total = e.sum(1, keepdim=True)
    y.copy_(x - y.mean(1, keepdim=True))
    x.copy_(e / total)
    return e, (e * e).sum(1), total, (y + e).amax(1)


@program(normal(6, 4), normal(6, 4))
def out_arguments(x, y):
    result = torch.empty(6, 4)
    torch.add(x, y, out=result)
    torch.mul(result, 2, out=y)
    return result.sum(0), y - result


def _overlapping() -> Together:
    base = torch.arange(24.0) / 7
    return Together((base[:16].view(4, 4), base[6:22].view(4, 4).t(), base[20:]))


@program(_overlapping)
def inputs_that_overlap(x, y, z):
    before = y * 2
    x.mul_(3)
    after = y.sum(0)
    y.sub_(x.clone())
    z.add_(y.sum())
    return before, after, x + y, z * 1


def _same() -> Together:
    x = torch.arange(12.0).view(3, 4) / 5
    return Together((x, x.view(4, 3), x[1:]))


@program(_same)
def inputs_in_one_memory(x, y, z):
    total = z.sum(0)
    y[1:, 1:] = -1
    z.add_(total)
    return x.sum(1), y.t() @ x.view(4, 3), z * total


# A value with several readers -----------------------------------------------------------------------------------------


@program(normal(6, 9))
def reduction_beside_second_reader(x):
    y = x.exp()
    return y / y.sum(1, keepdim=True), y.amax(0), y * 2, y.argmax(1), y.prod(1)


@program(normal(6, 9), normal(9))
def statistics_beside_use(x, w):
    mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True)
    normed = (x - mean) * torch.rsqrt(variance + 1e-5)
    return normed * w, mean, normed.amax(1), (normed * normed).sum(0)


@program(normal(5, 8), normal(5, 8))
def one_value_three_layouts(x, y):
    z = torch.tanh(x) * y
    return z, z.t().contiguous(), z.flatten()[3:30], z.reshape(2, 20).sum(0), z.unfold(1, 3, 2).sum(-1)


@program(normal(4, 6), normal(6, 4))
def products_share_what_they_read(x, y):
    a = torch.sin(x)
    b = a @ y
    c = (a * 2) @ y
    return torch.relu(b) + c, a, b.softmax(0)


@program(normal(4, 6, dtype=torch.bfloat16))
def half_read_twice(x):
    y = x * 3 + 1
    return y.sum(1), y.float().sum(1), (y / 3).softmax(1), y


@program(normal(40, 50))
def chain_of_reductions(x):
    rows = x.sum(1)
    best = rows.argmax()
    return rows.cumsum(0), best, x[best] - rows.mean(), x.var(), x.std(0)


# Reductions -----------------------------------------------------------------------------------------------------------


@program(normal(3, 5, 7))
def folds_of_every_kind(x):
    outside = [x.sum((0, 2)), x.prod(1), x.amax((1, 2)), x.amin(0), x.argmax(1), x.argmin(), x.mean(2), x.sum()]
    return *outside, (x > 0).any(1), (x > -9).all(2), x.norm(dim=0), x.logsumexp(1), (x > 0).sum()


@program(normal(3, 5, 7))
def folds_of_negatives(x):
    """All values on one side of an identity that is wrong."""
    low, high = -x.abs() - 1, x.abs() + 1
    return low.amax(1), low.amax(), high.amin(2), high.amin(), low.sum(1), high.prod(2), low.max(1), high.min(0)


@program(integers(-9, 9, 4, 9), integers(0, 2, 4, 9, dtype=torch.bool), integers(1, 200, 4, 9, dtype=torch.uint8))
def folds_of_integers(x, flags, small):
    folds = [x.sum(1), x.amax(0), x.amin(1), x.prod(1), flags.any(1), flags.all(0), flags.sum(1), small.sum(0)]
    return *folds, small.amax(1), small.amin(0), small.argmax(1), (-x.abs()).amax(1), (x.abs() + 3).amin()


@program(normal(5, 0), normal(0, 4))
def folds_of_nothing(x, y):
    return x.sum(1), x.prod(1), (x > 0).any(1), (x > 0).all(1), y.sum(), y.sum(0), y.mean(0), x + 1


@program(normal(7, 3, 11))
def ties_and_extremes(x):
    y = x.round()
    z = torch.where(x > 1, float("inf"), torch.where(x < -1, float("-inf"), x))
    w = torch.where(x > 1.2, float("nan"), x)
    return y.argmax(2), y.argmin(1), z.amax(1), z.sum(2), w.amax(2), w.amin(0), w.argmax(1), z.softmax(2), y.max(2)


@program(normal(2, 6, 5, 3))
def group_norm_over_parts(x):
    return F.group_norm(x, 3), F.layer_norm(x, (5, 3)), F.instance_norm(x), x.reshape(2, 3, -1).sum(-1)


@program(normal(3, 4, 5), normal(3, 4, 5))
def cross_entropy_and_friends(x, y):
    target = y.argmax(1)
    return F.cross_entropy(x, target), F.nll_loss(x.log_softmax(1), target), F.kl_div(x.log_softmax(0), y.softmax(0))


@program(normal(37, 53), turned(normal(37, 53)))
def sums_down_and_across(x, y):
    return x.sum(0), y.sum(0), x.sum(1), y.sum(1), (x * y).sum(), (x + y).amax(0), (x - y).amin(1)


@program(normal(130, 70))
def long_sums(x):
    return x.sum(), x.sum(0), x.sum(1), (x * x).mean(), x.flatten().softmax(0)[:5]


# Layouts --------------------------------------------------------------------------------------------------------------


@program(normal(19, 35), turned(normal(19, 35)), apart(normal(19, 35)))
def mixed_layouts(x, y, z):
    return x + y, y * z, z - x, (x + y + z).t().contiguous(), y.exp(), z.clone(), y.contiguous(), (z > x) & (y > 0)


@program(turned(normal(2, 3, 4, 5)), normal(5, 4, 3, 2))
def permuted(x, y):
    a = x.permute(2, 0, 3, 1)
    return (
        a + y.permute(1, 3, 0, 2),
        a.reshape(8, 15),
        a.contiguous(),
        x.flatten(1, 2),
        y.transpose(0, 2).flatten(),
        x.movedim(0, 2) * 2,
    )


@program(normal(6, 8))
def chains_of_views(x):
    a = x.view(2, 3, 8).transpose(0, 1).reshape(3, 16)
    b = x[1::2, ::3].t()
    c = x.flip(0)[:, 2:].roll(1, 1)
    d = x.unfold(0, 3, 2).select(1, 4)
    return (
        a * 2,
        b + 1,
        c - 1,
        d.sum(1),
        x.diagonal(1) * 2,
        x.expand(3, 6, 8).sum(0),
        x.as_strided((3, 3), (9, 2), 2) + 0,
    )


@program(normal(6, 8), normal(6, 8))
def writes_to_views(x, y):
    x.view(2, 3, 8).transpose(0, 1)[1] += 2
    x[1::2, ::3].t().mul_(3)
    x.diagonal(-1).copy_(y.diagonal(2)[:5])
    x.select(1, 2).sub_(y[:, 0])
    x.unfold(1, 2, 2)[:, 1, 0].fill_(9)
    return x * 1, y.view(-1)[4:12].zero_()


@program(normal(4, 1, 6), normal(5, 1), normal(1))
def broadcasts(x, y, z):
    return x + y, (x * y).sum(0), x - z, y.expand(5, 6) + x[0], (x + y).amax((0, 2)), z * y * x


@program(normal(2, 3, 5, 4), normal(6, 3, 3, 3), normal(6))
def convolution_with_bias(x, w, b):
    y = F.conv2d(x, w, b, padding=1)
    return y.relu(), F.conv2d(x, w[:, :, :1, :1], b, stride=2), y.mean((2, 3)), F.conv2d(x[:1], w[:, :, 1:2, 1:2], b)


@program(normal(1, 3, 6, 5))
def pools(x):
    a, where = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    return a, where, F.avg_pool2d(x, 2, 1), F.adaptive_avg_pool2d(x, (2, 3)), F.interpolate(x, scale_factor=2.0)


# Masks: what is read only where it is there ---------------------------------------------------------------------------


@program(normal(4, 5), normal(3, 5), normal(4, 2))
def joined(x, y, z):
    a = torch.cat([x, y * 2, x.exp()])
    b = torch.cat([x, z], 1)
    return a + 1, a.sum(0), b.amax(1), torch.stack([x, x * 2], 2), torch.cat([a, a]).mean()


@program(normal(4, 5))
def padded(x):
    a = F.pad(x, (1, 2, 0, 3))
    b = F.pad(x[None], (2, 1), mode="reflect")
    c = F.pad(x[None], (2, 1), mode="replicate")
    return a + 1, a.sum(0), b * c, F.pad(x, (-1, 1), value=3.0).amax(1), F.pad(x[None], (1, 2), mode="circular"), a.t()


@program(normal(5, 5), integers(0, 5, 3), integers(0, 2, 5, 5, dtype=torch.bool))
def chosen(x, index, mask):
    return (
        torch.where(mask, x, x.t()),
        x.masked_fill(mask, -2.0).softmax(1),
        x.tril(-1) + x.triu(2),
        x[index].sum(1),
        x[:, index],
        x[index, index],
        torch.take_along_dim(x, x.argsort(1), 1),
        x.gather(1, index[:, None]),
        F.one_hot(index, 5) * 2,
        x.index_select(1, index) + 1,
    )


@program(normal(7, 4), integers(-7, 7, 6))
def negative_indices(x, index):
    return x[index] * 2, x[-1] + x[-7], x[index[0]], x[index, -1], x[..., index % 4].sum()


@program(normal(6, 3), integers(0, 6, 4), normal(4, 3))
def scatters(x, index, y):
    a = x.index_put((index,), y, accumulate=True)
    b = torch.zeros(6, 3).scatter_add(0, index[:, None].expand(4, 3), y)
    c = x.scatter(0, index[:1, None].expand(1, 3), 5.0)
    d = x.index_fill(0, index[:2], 7.0)
    return a * 2, b.sum(1), c, d, x.scatter_reduce(0, index[:, None].expand(4, 3), y, "amax")


@program(normal(10, 6), integers(0, 10, 3, 4))
def embeddings(w, tokens):
    e = F.embedding(tokens, w)
    return e + 1, F.layer_norm(e, (6,)), e.sum(1), F.embedding(tokens, w, padding_idx=2) * 2


@program(normal(9), normal(4))
def windows(x, y):
    return x.unfold(0, 4, 1) @ y, x.unfold(0, 3, 2).amax(1), x.cumsum(0), x.diff(), x.sort()[0] * 2, x.topk(3)


# Types ----------------------------------------------------------------------------------------------------------------


@program(
    integers(-5, 6, 4, 4), normal(4, 4), integers(0, 3, 4, 4, dtype=torch.uint8), normal(4, 4, dtype=torch.float64)
)
def promotions(i, f, u, d):
    half = f.half()
    scalar = torch.tensor(2.5, dtype=torch.float64)
    return (
        i + f, i / 2, i * 2.5, u + i, u + 300, f + d, half + f, half * scalar, i // 2, i % 3, f // 2, -u, u - 7, i == f,
        f.to(torch.int32) + u, (f > 0) + i, (f > 0).sum(), i ** 2, f**3, torch.div(i, 3, rounding_mode="trunc"), i.bool(),
        half.sum(), u.float().mean(), u.to(torch.int8), (f * 100).to(torch.int8), half.to(torch.bfloat16), ~i, i << 1, i >> 1,
    )  # fmt: skip


@program(normal(5, 33, dtype=torch.bfloat16), normal(5, 33, dtype=torch.float16))
def halves(x, y):
    return x.exp() * x, y.sum(1), x.softmax(1), F.layer_norm(y, (33,)), (x + y), x.sigmoid().log(), y.amax(0), y.t() + 1


@program(integers(0, 100, 33), integers(0, 100, 33, dtype=torch.int32))
def integer_arithmetic(x, y):
    return (
        x * y + 1,
        x // (y + 1),
        x % (y + 1),
        (x - 50) // 7,
        (x - 50) % 7,
        x & y,
        x ^ 5,
        (x - 50).abs(),
        x.clamp(10, 20),
        x.float().long(),
    )


# Sizes that vary ------------------------------------------------------------------------------------------------------


@program(normal("n", "m"), normal("m"), sizes=DYNAMIC)
def sized_norm(x, w):
    y = F.layer_norm(x, (x.shape[1],), w)
    return y, y.sum(0), y.softmax(0), y.amax(1), y.mean(), x.var(1)


@program(normal("n", "m"), normal("n+1", "m"), sizes=DYNAMIC)
def sized_joined(x, y):
    a = torch.cat([x, y * 2])
    return a.sum(0), a[1:-1] + 1, F.pad(a, (1, 2)), a.t().contiguous(), a.reshape(-1)[: x.numel()], a.flatten().amax()


@program(normal("n", "m"), normal("m", "n"), sizes=DYNAMIC)
def sized_products(x, y):
    a = x @ y
    b = torch.tanh(a) @ x
    c = torch.relu(b) + x
    return c, (a + a.t()).sum(1), (c @ y).softmax(1)


@program(normal("2*n", "m"), sizes=DYNAMIC)
def sized_views(x):
    n, m = x.shape[0] // 2, x.shape[1]
    a = x.view(2, n, m).transpose(0, 1).reshape(n, 2 * m)
    low, high = x.chunk(2)
    return a * 2, low + high, x.unfold(0, 2, 2).sum(-1), x[::2] - x[1::2], x.view(-1).flip(0), a.sum(1), x[n:].amax(0)


@program(normal("n", "m"), normal("n", "m"), sizes=DYNAMIC)
def sized_writes(x, y):
    before = x.sum()
    x[1:] += y[:-1]
    x[:, 0] = before
    y.copy_(x * 2)
    return x.t() + before, y.mean(0)


@program(normal("n", 6), integers(0, 2, "n", 6, dtype=torch.bool), sizes=DYNAMIC)
def sizes_by_contents(x, mask):
    found = x[mask]
    return found * 2, found.sum(), mask.nonzero() + 1, x[mask.any(1)].softmax(1)


@program(normal("n", 3, "m"), integers(0, 2, 4), sizes=DYNAMIC)
def sized_gathers(x, index):
    return (
        x[index],
        x.repeat(1, 2, 1).sum(0),
        x.movedim(2, 0).reshape(x.shape[2], -1),
        x.roll(1, 0) + x,
        x.tril(),
        x.cumsum(2),
    )


# Many alike -----------------------------------------------------------------------------------------------------------


@program(tuple(torch.randn(3 + k % 4, 5) for k in range(24)), tuple(torch.randn(3 + k % 4, 5) for k in range(24)))
def steps_of_many(parameters, gradients):
    for parameter, gradient in zip(parameters, gradients):
        parameter.mul_(0.9).add_(gradient, alpha=-0.1)


@program(
    tuple(torch.randn(4, 3) for _ in range(12)),
    tuple(torch.randn(4, 3) for _ in range(12)),
    tuple(torch.zeros(4, 3) for _ in range(12)),
    normal(4, 3),
)
def steps_with_state(parameters, gradients, states, extra):
    for parameter, gradient, state in zip(parameters, gradients, states):
        state.mul_(0.5).addcmul_(gradient, gradient, value=0.5)
        parameter.addcdiv_(gradient, state.sqrt().add_(1e-8), value=-0.01)
    return extra * 2, torch._foreach_norm(list(gradients))


@program(normal(3, 4), normal(4))
def repeated_layers(x, w):
    """Segments that are alike but for one thing."""
    a = torch.relu(x * w + 1)
    b = torch.relu((a @ torch.ones(4, 4)) * w + 2)
    c = torch.relu((b @ torch.ones(4, 4)) * w + 2)
    d = torch.relu((c @ torch.ones(4, 4)) * w.neg() + 2)
    e = torch.where(d > 1, d, 3.0).amax(1)
    return (d @ torch.ones(4, 4)).where(d > 1, torch.tensor(4.0)).amax(1), e, a, c.t().contiguous()


# Memory ---------------------------------------------------------------------------------------------------------------


@program(normal(6, 6), normal(6, 6))
def many_temporaries(x, y):
    """Values of several sizes that live across calls of ATen."""
    a = torch.sin(x)
    b = a @ y
    c = torch.cos(b[:3])
    d = c @ y
    e = torch.tanh(torch.cat([b, d]))
    f = e @ a
    g = f.exp().sum(0)
    h = (f[:2] * g) @ b
    k = (e[:6] + a).sigmoid() @ y
    return h + c[:2], (k * b).sum(1), g, (d + c) @ x


@program(normal("n", "m"), normal("m", "m"), sizes=DYNAMIC)
def sized_temporaries(x, y):
    a = torch.sin(x)
    b = a @ y
    c = torch.cos(b[1:])
    d = c @ y
    e = torch.tanh(torch.cat([b, d]))
    f = e @ y
    g = f.exp().sum(0)
    return (f[:2] * g) @ y + a[:2], (d * c) @ y, (b + a) @ y.t()


@program(normal(8, 8), normal(8, 8))
def donated(x, y):
    """Elementwise after calls whose results nobody reads again, and some that are read again."""
    a = x @ y
    b = a * 2 + 1
    c = b @ y
    d = (c - c.mean(1, keepdim=True)).relu()
    e = d @ x
    f = e.t() * 2
    g = x @ e
    h = g + g.t()
    k = (g * 2).flip(0)
    return b.sum(), d.amax(1), f, h, k, (h @ x) + h[0]


# Derivatives ----------------------------------------------------------------------------------------------------------


def _parameter(*shape: int) -> Callable:
    return normal(*shape, grad=True)


@program(normal(4, 6), _parameter(5, 6), _parameter(5), _parameter(3, 5), gradients=True)
def trained_layers(x, w, b, v):
    h = F.gelu(F.linear(x, w, b))
    return F.linear(F.layer_norm(h, (5,)), v).log_softmax(1).mean()


@program(_parameter(6, 5), _parameter(6, 5), gradients=True)
def several_results(x, y):
    a = torch.tanh(x * y)
    return a.sum(0), (a @ x.t()).softmax(1), a[1:, ::2], x.expand(2, 6, 5) * y, x.view(-1)


@program(_parameter(5, 4), integers(0, 5, 6), gradients=True)
def trained_embedding(w, tokens):
    e = F.embedding(tokens, w)
    return (e * e.sum(0)).logsumexp(1).sum() + w[tokens[:2]].prod() + e.amax(1).sum()


@program(_parameter(2, 3, 6, 6), _parameter(4, 3, 3, 3), _parameter(4), gradients=True)
def trained_convolution(x, w, b):
    y = F.max_pool2d(F.relu(F.conv2d(x, w, b, padding=1)), 2)
    return F.batch_norm(y, None, None, training=True).square().mean()


@program(_parameter(3, 4, 5), gradients=True)
def trained_views(x):
    y = x.transpose(0, 1).reshape(4, 15)[:, ::2]
    z = F.pad(y, (1, 1)).unfold(1, 3, 2)
    return z.std(2), torch.cat([y, y.flip(1)], 1).cumsum(1), y.diagonal() * 2, x.amax((1, 2)), x.tril().prod(2)


@program(normal(4, 5), _parameter(5, 5), gradients=True)
def written_while_trained(x, w):
    y = (x + 1) @ w
    x.mul_(2)
    z = y * 3 + x
    z[0] = 1.5
    return (z @ w).sum(), z.detach() + 1, z[:, 1:]


@program(_parameter("n", "m"), _parameter("m"), sizes=DYNAMIC[:3], gradients=True)
def sized_training(x, w):
    y = F.layer_norm(x, (x.shape[1],), w)
    return (y.softmax(1) @ x.t()).relu().sum(0), y.amax(0), torch.cat([x, y])[1:]


@program(_parameter(6, 8), _parameter(8, 8), gradients=True, options={"memory_budget": 0.3})
def computed_again(x, w):
    a = torch.tanh(x @ w)
    b = torch.sigmoid(a @ w) * a
    c = b + a.exp()
    return (c @ w).softmax(1).sum(0), b.logsumexp(1)


@program(normal(4, 6), gradients=True)
def gradient_inside(x):
    w = x.t().clone().requires_grad_()
    loss = (torch.tanh(x @ w) ** 2).sum()
    (gradient,) = torch.autograd.grad(loss, w)
    return gradient * 2, loss.detach()


class _Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 5)
        with torch.no_grad():
            for each in (self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias):
                each.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(F.relu(self.norm(self.convolution(x))).mean((2, 3)))


torch.manual_seed(3)
_module = _Norm()
_frozen = _Norm().eval()
_attention = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)


@program(normal(2, 3, 6, 5))
def module_with_statistics(x):
    return _module(x)


@program(normal(2, 3, 6, 5), options={"freeze": True})
def frozen_module(x):
    return _frozen(x)


@program(normal(2, 5, 8), gradients=True)
def attention_layer(x):
    return _attention(x).square().mean()


@program(normal("n", "m", 8), sizes=((3, 5), (2, 9)), gradients=True)
def sized_attention_layer(x):
    return _attention(x).amax(1).sum()


@program(normal(64, 40), options={"freeze": True})
def frozen_products(x):
    return F.gelu(_wide(x)), _wide(x[:3]).relu()


_wide = nn.Linear(40, 72)


@program(normal(6, 7))
def draws(x):
    return (
        F.dropout(x, 0.4) * 2,
        torch.rand(3, 4) + x[:3, :4],
        x.bernoulli(0.5),
        torch.randn_like(x).sum(1),
        torch.randint(0, 9, (4,)),
    )


@program(normal(3, 5), integers(0, 5, 3))
def checked_then_written(x, index):
    picked = torch.gather(x, 1, index[:, None])
    x.mul_(2)
    return picked, F.nll_loss(x, index)
