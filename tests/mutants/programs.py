"""Programs that seeded faults change the numbers of: those of `tests/validation/mechanisms.py`, generated ones, and what
these leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from tests.validation.mechanisms import integers, mechanism_programs, normal, turned
from tests.validation.sources import Program, generated_programs

#: Seeds of generated programs: a quarter of those that run for faults of graph passes.
SEEDS = range(0, 200, 20)

_OWN: list[Program] = []


def program(*calls: tuple[Any, ...], gradients: bool = False) -> Callable:
    """Registers a program with its calls: tuples of arguments, or of what makes them."""

    def register(function: Callable) -> Callable:
        torch.manual_seed(0)
        made = [(tuple(each() if callable(each) else each for each in call), {}) for call in calls]
        _OWN.append(Program(function.__name__, function, made, gradients=gradients))
        return function

    return register


def every_program() -> Iterator[Program]:
    yield from mechanism_programs(False)
    yield from mechanism_programs(True)
    yield from _OWN
    yield from generated_programs(SEEDS)


#: The names of those that are here.
def own_names() -> set[str]:
    return {each.name for each in _OWN}


# Machine code ---------------------------------------------------------------------------------------------------------


@program((normal(3, 37), integers(-9, 9, 3, 37)))
def extremes_of_negatives(x, n):
    x = -x.abs() - 1
    n = n.abs() + 1
    return x.amax(1), x.amax(), n.amin(1), (x * -1).amin(0), n.amin(), (-n).amax(0)


@program((normal(3, 37),))
def products(x):
    return (1 + x / 8).prod(1), (1 + x[:, :3] / 8).prod(0)


def _with_nan() -> torch.Tensor:
    made = torch.randn(4, 35)
    made[1, 7] = made[3, 34] = torch.nan
    return made


@program((_with_nan, normal(4, 35)))
def nan_beside_numbers(x, y):
    return torch.maximum(x, y), torch.minimum(x, y), torch.maximum(y, x), x.argmax(1), x.argmin(0), x.amax(1), x.max()


@program((integers(-50, 50, 4, 33), integers(1, 7, 33), normal(4, 33), normal(33)))
def divisions(n, m, x, y):
    return n // m, n % m, n // -m, x % y, x % 3, torch.remainder(x, -2.5), torch.fmod(x, y), n // 4, x // y


@program((integers(0, 256, 4, 33, dtype=torch.uint8), integers(0, 256, 33, dtype=torch.uint8)))
def unsigned_extremes(a, b):
    return torch.maximum(a, b), torch.minimum(a, b), a.amax(1), a.amin(0), a.clamp(20, 200)


@program((integers(0, 3, 5, 37),))
def positions_of_equals(n):
    return n.argmax(1), n.argmin(1), n.float().argmax(1), n.argmax(), n.float().argmin(0)


@program((normal(5, 37), normal(3, 130)))
def sums_with_a_rest(x, y):
    return x.exp().sum(1), y.exp().sum(1), (x * x).mean(), y.sigmoid().sum(), x.cos().sum(0)


@program((normal(6, 50), normal(6, 37)))
def stores_beside_others(x, y):
    x[:, 3:40] = y.exp()
    x[1:5, 41:50].mul_(2)
    return x.sum()


@program((normal(5, 67),))
def turned_round(x):
    return x.flip(1) + 1, x.flip(0, 1).cumsum(1), (x.exp()).flip(1) * x


def _into_reverse() -> torch.Tensor:
    return torch.zeros(4, 67)


@program((_into_reverse, normal(4, 67)))
def written_in_reverse(x, y):
    x.copy_(y.exp().flip(1))
    return x * 2


@program((normal(40, 5), integers(0, 40, 37), normal(37, 5), integers(0, 9, 37)))
def additions_at_indices(x, index, y, where):
    totals = torch.zeros(9).index_add(0, where, y[:, 0])
    return x.index_add(0, index, y), totals, x[index].exp() + y, x.index_put((index,), y, accumulate=True)


@program((normal(41), integers(-3, 44, 37)))
def loads_where_allowed(x, index):
    inside = (index >= 0) & (index < 41)
    return torch.where(inside, x[index.clamp(0, 40)], 0.5), F.pad(x, (3, 5), value=2.0).exp()


# Lowering -------------------------------------------------------------------------------------------------------------


@program((normal(6, 4, 5), turned(normal(6, 4, 5))))
def reshaped(x, y):
    z = x * 2
    strided = z[:, ::2]
    return z.reshape(8, 15) + 1, z.reshape(3, 2, 20).sum(1), strided.reshape(12, 5) * 3, y.reshape(24, 5) - 1


@program((normal(3, 4, 5), normal(4, 3, 5)))
def permuted_and_multiplied(x, y):
    a, b = x * 2, y + 1
    turned_a = a.permute(2, 0, 1)
    return turned_a + 1, torch.bmm(turned_a, b.permute(2, 0, 1).contiguous()), torch.bmm(a.permute(1, 2, 0), b), turned_a @ b.permute(2, 0, 1)  # fmt: skip


@program((normal(4, 1), normal(1, 5), normal(5, 5)))
def expanded(x, y, w):
    a, b = (x * 2).expand(4, 5), (y + 1).expand(4, 5)
    return a @ w, torch.mm(b, w), a + b


@program((normal(9, 6), normal(6, 3)))
def slices(x, w):
    a = x.exp()
    return a[2:7] @ w, a[1::2] * 2, a[:, 1::2] + 1, a[::3] @ w, a[-4:] @ w


@program((normal(9, 4), integers(-9, 9, 6)), (normal(7, 4), integers(-7, 7, 6)), (normal(3, 4), integers(-3, 3, 6)))
def ends_of_varying_sizes(x, index):
    return x[-5:] + 1, x[:-8].sum(0), x[-20:-2] * 2, x[index]


@program((normal(7, 5, 6), integers(-7, 7, 4), integers(-5, 5, 4), integers(0, 6, 3)))
def indexed(x, i, j, k):
    return x[i], x[i, j], x[:, j[:3], k], x[i[:3], :, k], x.index_select(2, k), x[i + 0] * 2


@program((normal(4, 5), normal(4, 3), normal(4, 2)))
def joined_and_padded(x, y, z):
    made = torch.cat([x * 2, y.exp(), z + 1], 1)
    return made * 2, F.pad(x.exp(), (1, 2, 3, 0)) + 1, torch.cat([x, x * 3]), F.pad(x * 2, (-1, 2))


@program((normal(2, 3, 6, 7),))
def padded_otherwise(x):
    a = x * 2
    reflected = F.pad(a, (2, 3, 1, 2), mode="reflect")
    return reflected + 1, F.pad(a, (1, 1, 2, 2), mode="replicate") * 2, F.pad(a, (1, 2, 0, 1), mode="circular"), a.roll((1, 2), (2, 3)) + 1, a.roll(3, 1) * 2, a.roll((-2,), (3,))  # fmt: skip


@program((normal(8, 6), normal(4, 6)))
def every_second_row(x, y):
    z = x * 1
    z[::2] = y.exp()
    z[1::3, 1::2] = 5
    return z * 2


@program((integers(0, 7, 5), normal(5)))
def scattered_into_constants(index, y):
    flags = torch.zeros(7)
    flags[index] = 1.0
    more = flags * 2
    table = torch.ones(7).scatter(0, index, y)
    return more + flags, table, torch.zeros(7).index_put_((index,), y, accumulate=True)


@program((normal(300, 3, dtype=torch.bfloat16), integers(0, 4, 300), normal(300, 3, dtype=torch.float16)))
def half_sums_at_indices(x, index, y):
    totals = torch.zeros(4, 3, dtype=torch.bfloat16).index_add(0, index, x)
    return totals, torch.zeros(4, 3, dtype=torch.float16).index_put((index,), y, accumulate=True)


@program((integers(0, 2, 4, 9, dtype=torch.bool), integers(0, 100, 4, 9), normal(4, 9)))
def folds_of_booleans(flags, n, x):
    return flags.amax(1), flags.amin(0), flags.any(1), flags.all(0), flags + flags, flags.sum(), flags | (x > 0), (x > 0) + flags  # fmt: skip


@program((normal(4, 40, dtype=torch.float16), integers(0, 120, 4, 9, dtype=torch.uint8), normal(4, 40)))
def sums_in_other_types(h, n, x):
    return h.sum(1, dtype=torch.float32), (x * 3).sum(1, dtype=torch.int64), n.sum(0, dtype=torch.uint8), x.sum(dtype=torch.float64), x.sum(0, dtype=torch.float16)  # fmt: skip


@program((normal(4, 9, 3),))
def statistics(x):
    return x.mean(1), x.mean((0, 2)), x.var(1), x.var(1, correction=0), x.std(2, correction=2), torch.var_mean(x, 0), x.var((0, 1), keepdim=True)  # fmt: skip


@program((normal(7, 5),), (normal(9, 5),), (normal(4, 5),))
def statistics_of_varying_sizes(x):
    return x.var(0), x.var(0, correction=0), x.mean(0), x.std(), x.var(0, correction=3)


@program((lambda: torch.full((3, 4), -torch.inf), normal(3, 4)))
def infinities(x, y):
    return x.logsumexp(1), y.logsumexp(0), torch.cat([x, y]).logsumexp(1), torch.cat([-x, y]).logsumexp(1)


@program((normal(3, 4, 5),))
def dimensions_kept(x):
    return x.sum(1, keepdim=True) * 2, x.amax((0, 2), keepdim=True) + x, x.mean(0, keepdim=True), x.sum((1, 2), True)


@program((normal(4, 0), normal(0, 3)))
def folds_without_elements(x, y):
    return x.sum(1), y.prod(0), x.prod(1), y.sum(), (x + 1).all(1), (y > 0).any(0), y.logsumexp(0)


@program((normal(4, 9), normal(9)))
def scaled_operands(x, y):
    return torch.add(x, y, alpha=2.5), torch.sub(x, y, alpha=3), 3 - x, torch.rsub(x, y), torch.rsub(x, y, alpha=2), torch.rsub(x, 1)  # fmt: skip


@program((normal(4, 9, dtype=torch.bfloat16), normal(4, 9, dtype=torch.float16)))
def numbers_beside_halves(x, y):
    return x * 1.001, y + 0.1234567, x / 3.3, (x + 0.3) * 1.7, y * 1.00012, x.add(0.7, alpha=1.3)


@program((integers(-9, 9, 33), integers(-9, 9, 33, dtype=torch.int8), integers(0, 99, 33, dtype=torch.int32)))
def negative_literals(a, b, c):
    return torch.where(a > 0, a, -3), b.clamp(-5, 3), c * -7, torch.full_like(b, -2) + b, a.masked_fill(a > 2, -1), b * -1  # fmt: skip


@program((normal(2, 6, 4, 4), normal(6), lambda: torch.randn(3, 7) * 1e-3))
def normalised(x, w, y):
    return F.group_norm(x, 3, w, w), F.layer_norm(x, (4, 4)), F.layer_norm(y, (7,)), F.group_norm(x, 2), F.instance_norm(x), F.batch_norm(x, w, w.abs() + 1e-4)  # fmt: skip


@program((normal(2, 3, 9, 8),))
def pooled(x):
    values, places = F.max_pool2d(x, 2, dilation=2, return_indices=True)
    return values, places, F.avg_pool2d(x, 3, padding=1), F.avg_pool2d(x, 3, padding=1, count_include_pad=False), F.max_pool2d(x, 3, 2, 1)  # fmt: skip


# The graph ------------------------------------------------------------------------------------------------------------


@program((normal(4, 5), normal(5)))
def work_with_keywords(x, y):
    return torch.add(x, y, alpha=2) * torch.add(x, y, alpha=3), x.sum(1, keepdim=True) + x.sum(1)[:, None], torch.add(x, 1) * torch.add(x, True), x.to(torch.float64) + x.to(torch.bfloat16)  # fmt: skip


@program((normal(6, 10),))
def pieces(x):
    z = x * 1
    a, b, c = z.split([2, 5, 3], 1)
    b.mul_(3)
    c.add_(a[:, :1])
    return z, b + 1


@program((normal(3, 4, 5),))
def written_through_permutations(x):
    z = x * 1
    z.permute(2, 0, 1).add_(torch.arange(5.0)[:, None, None])
    z.permute(1, 2, 0)[1] *= 2
    return z, z.permute(2, 1, 0) + 1


@program((normal(4, 5),))
def views_before_writes(x):
    z = x.exp()
    row, column = z[1], z[:, 2]
    before = row * 1
    z.mul_(2)
    column.add_(1)
    return row + column[1], before, z.view(20)[3:9] * 2


@program((lambda: torch.randn(60)[7:47].view(8, 5),))
def inputs_inside_of_memory(x):
    part = x.as_strided((3, 4), (5, 1), x.storage_offset() + 6)
    part.mul_(2)
    return x[2:5] + part[:, :1], x.as_strided((2, 2), (1, 5), x.storage_offset() + 3) * 3, x[1:]


@program((lambda: torch.randn(12, 6), normal(6, 4)))
def results_that_share(x, w):
    z = x @ w
    return z, z[1:], z.t(), x[2:], z.view(-1)[3:]


@program((normal(4, 6), normal(4, 6), lambda: torch.zeros(4, 6)))
def written_by_keyword(x, y, z):
    torch.add(x, y, out=z)
    torch.mul(z, 2, out=x)
    return z + x


@program((normal(6, 5, grad=True), normal(5, 5, grad=True)), gradients=True)
def trained_with_dropout(x, w):
    h = F.dropout(torch.tanh(x @ w), 0.4)
    return (F.dropout(h @ w, 0.3).sin() * h).sum()


@program((normal(6, 5, grad=True), normal(6, 5)), gradients=True)
def written_before_use(x, y):
    y.mul_(0.5)
    a = x * y
    b = a.exp() * y.sin()
    return (b * a).sum()


@program((normal(4, 6),))
def filled(x):
    n = torch.zeros(4, 6, dtype=torch.int64)
    n.fill_(2.7)
    z = x * 1
    z[:, 1:3].fill_(3)
    return n + 1, z, torch.ones_like(x).fill_(True)


@program((normal(5, 6),))
def random_numbers(x):
    a, b = torch.rand_like(x), torch.rand_like(x)
    torch.rand(3)
    return (
        a - b,
        torch.randn(4),
        F.dropout(x, 0.5),
        torch.randint(0, 9, (5,)),
        x + torch.bernoulli(torch.full((6,), 0.3)),
    )


# Types and sizes ------------------------------------------------------------------------------------------------------


@program((normal(4, dtype=torch.float16), lambda: torch.tensor(2.5), integers(0, 5, 4, dtype=torch.int32), lambda: torch.tensor(3)))  # fmt: skip
def operands_without_dimensions(h, d, n, m):
    return h * d, n + m, n * d, h + m, torch.maximum(n, m), d + m


@program((normal(6, 3),), (normal(8, 3),), (normal(5, 3),), (normal(12, 3),))
def sizes_in_relations(x):
    n = x.shape[0]
    half = x[: n // 2]
    if n > 5:
        half = half * 2
    return half.sum(0), x.view(-1)[n : 2 * n] + n, x[n % 4 :] - 1, torch.arange(n) * n


@program((normal(4, 6), normal(24)), (normal(5, 6), normal(30)), (normal(7, 6), normal(42)))
def multiples_of_sizes(x, y):
    return x.reshape(-1) + y, y.view(-1, 6) * 2 + x, y.view(-1, 3).sum(0), torch.cat([x.reshape(-1), y])[1:]


@program((normal(3, 40),), (normal(90, 40),), (normal(200, 40),), (normal(5, 40),))
def growing(x):
    a = x.softmax(1)
    b = (a @ a.t()).relu()
    return (b @ x).cos() @ x.t(), b.sum(1)


# Calls of ATen and results --------------------------------------------------------------------------------------------


@program((normal(6, 6), normal(6, 6)))
def products_of_views(x, y):
    a = x.exp()
    b = a * y
    return a[1:5] @ b, a.t() @ b, torch.mm(b, a.t()).relu(), (b[:, 2:] @ a[:4]).sin()


@program((lambda: torch.randn(4, 3, dtype=torch.complex64), normal(4, 3)))
def complex_results(z, x):
    return (z * 2).conj(), z.conj(), torch.view_as_real(z * 2) + x[..., None], (z @ z.conj().t()).real


@program((normal(5, 7), normal(7, 4)), (lambda: turned(normal(5, 7))(), normal(7, 4)), (normal(5, 7, dtype=torch.float64), normal(7, 4, dtype=torch.float64)))  # fmt: skip
def other_layouts_and_types(x, w):
    return (x * 2).flatten() + 1, x @ w, x.t() + 1, x.view(35) if x.is_contiguous() else x.sum()


@program((normal(4, 4), 1), (normal(4, 4), True), (normal(4, 4), 1.5), (normal(4, 4), 2))
def numbers_as_arguments(x, n):
    return x * n, x + n if isinstance(n, float) else x / n, 3 if n is True else 4


def _overlapping_pair() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.randn(30)
    return base[:20], base[10:]


@program((lambda: (torch.randn(20), torch.randn(20)),), (_overlapping_pair,), (_overlapping_pair,))
def overlapping_arguments(pair):
    x, y = pair
    x.add_(1)
    return y * 2 + x


@program((lambda: torch.randn(50)[3:43].view(5, 8), normal(8, 8)))
def views_of_inner_inputs(x, w):
    return x[1:], x.view(40)[5:] * 2, (x @ w)[2:], x.t()


@program((normal(2, 3, 8, 8), normal(4, 3, 3, 3)))
def calls_with_other_strides(x, w):
    y = F.conv2d(x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last))
    z = torch.linalg.inv(x[0] + 9 * torch.eye(8))
    return y.relu() + 1, z @ z.mT, torch.linalg.qr(x[0])[1].abs() * 2
