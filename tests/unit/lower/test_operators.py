"""Small programs, one for each thing that an operator's rule could get wrong: values, types and strides are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lampwork.ir.program import Extern
from tests.unit.lower.graphs import assert_like_eager

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")


def tensor(*shape, dtype=torch.float32, seed=0):
    """Elements all differ, none is zero, both signs."""
    count = torch.Size(shape).numel()
    values = torch.randperm(count, generator=torch.Generator().manual_seed(seed)) * 2 - count + (count + 1) % 2
    return (values.to(torch.float64) / 4).reshape(shape).to(dtype)


#: Results are read by a kernel of ours, and by a call of ATen, which is handed memory with strides.
VIEWS = {
    "reshape into more": lambda x: x.reshape(2, 3, 2, 2),
    "reshape into other sizes": lambda x: x.reshape(4, 3, 2),
    "reshape of rows and columns": lambda x: x.reshape(3, 8),
    "reshape across a gap": lambda x: x[:, :2].reshape(4, 4),
    "reshape beside a gap": lambda x: x[:, :2].reshape(2, 2, 2, 2),
    "reshape of a permuted": lambda x: x.permute(2, 0, 1).reshape(4, 6),
    "permute by a cycle": lambda x: x.permute(1, 2, 0),
    "permute twice": lambda x: x.permute(2, 0, 1).permute(1, 0, 2),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "expand in front": lambda x: x.expand(3, 2, 3, 4)[:, 1],
    "rows from the second": lambda x: x[1:, 1:],
    "every second": lambda x: x[:, ::2, 1::2],
    "a step that leaves a rest": lambda x: x[:, :, ::3],
    "bounds beyond": lambda x: x[:7, -9:2, 2:99],
    "a row": lambda x: x[-1, 1],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_views(name, layout):
    x = tensor(2, 3, 4) if layout == "rows" else tensor(4, 2, 3).permute(1, 2, 0)
    assert_like_eager(lambda x: VIEWS[name](x) * 2, x)
    assert_like_eager(lambda x: VIEWS[name](x).cumsum(0), x)


OTHERS = {
    "cat": lambda x: torch.cat([x[:, :1], x, x[:, 1:]], 1),
    "cat of types": lambda x: torch.cat([x.long(), x]),
    "stack": lambda x: torch.stack([x, x + 1, x * 2], 1),
    "pad by different widths": lambda x: F.pad(x, (1, 2, 0, 3, 2, 0), value=9.0),
    "pad and cut": lambda x: F.pad(x, (-1, 2, 1, -2), value=9.0),
    "reflect": lambda x: F.pad(x, (3, 2), "reflect"),
    "reflect rows": lambda x: F.pad(x[None], (1, 2, 2, 1), "reflect"),
    "replicate": lambda x: F.pad(x, (3, 2), "replicate"),
    "roll": lambda x: x.roll((1, -1), (2, 1)),
    "roll all": lambda x: x.roll(5),
    "flip": lambda x: x.flip(0, 2),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "a slice written": lambda x: aten.slice_scatter(x, x[:, :2] * 2, 1, 1, 3),
    "every second written": lambda x: aten.slice_scatter(x, x[..., :2] * 2, 2, 0, 4, 2),
    "every second from the second": lambda x: aten.slice_scatter(x, x[..., :2] * 2, 2, 1, 4, 2),
    "a row written": lambda x: aten.select_scatter(x, x[:, 0] * 2, 1, -1),
    "a diagonal written": lambda x: aten.diagonal_scatter(x, x[:, :, 0] * 2, 1, 1, 2),
    "add with a factor": lambda x: torch.add(x, x[0], alpha=3),
    "sub with a factor": lambda x: torch.sub(x, x[0], alpha=3),
    "rsub": lambda x: torch.rsub(x, x[0]),
    "rsub with a factor": lambda x: torch.rsub(x, x[0], alpha=3),
    "negative integers": lambda x: (x.to(torch.int32) * -3 + x.to(torch.int8) * -7).to(torch.int64) - (1 << 40),
    "true and true": lambda x: (x > 0) + (x > 1),
    "true and a number": lambda x: (x > 0) + True,
    "groups": lambda x: F.group_norm(x.reshape(2, 6, 2), 2, x[0, :, 0].repeat(2), x[0, :, 1].repeat(2), 0.5),
    "a large epsilon": lambda x: F.layer_norm(x, (4,), None, None, 0.5),
    "batches": lambda x: F.batch_norm(x, x[0, :, 0].clone(), x[1, :, 1].abs() + 1, eps=0.5),
    "average with what is padded": lambda x: F.avg_pool2d(x, 2, 1, 1),
    "average without": lambda x: F.avg_pool2d(x, 2, 1, 1, count_include_pad=False),
    "positions of maxima": lambda x: F.max_pool2d(x.reshape(1, 4, 6), 2, 1, 1, return_indices=True),
    "positions with gaps": lambda x: F.max_pool2d(x.reshape(1, 4, 6), 3, 2, 1, 2, return_indices=True),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others(name):
    assert_like_eager(OTHERS[name], tensor(2, 3, 4))


I = torch.tensor([1, 0, 2, 1])
INDEXED = {
    "rows": lambda x, i: x[:, i],
    "from the end": lambda x, i: x[:, i - 3],
    "adjacent indices": lambda x, i: x[:, i[:3], i[1:]],
    "adjacent indices of different shapes": lambda x, i: x[:, i[:, None], i[1:]],
    "indices apart": lambda x, i: x[i[1:] // 2, :, i[:3]],
    "first": lambda x, i: x[i // 2],
    "select": lambda x, i: x.index_select(1, i),
    "gather": lambda x, i: x.gather(2, i.expand(2, 3, 4)),
    "take": lambda x, i: x.take(i - 2),
    "put": lambda x, i: x.index_put((i[1:] // 2, i[:3]), x[0, :3]),
    "put and add": lambda x, i: x.index_put((i[:2] // 2,), x * 2, accumulate=True),
    "put and add to one place": lambda x, i: x.index_put((i * 0, i), x[0, :1], accumulate=True),
    "scatter": lambda x, i: x.scatter(1, i.expand(2, 1, 4), x[:, :1] * 2),
    "scatter into zeros": lambda x, i: torch.zeros_like(x).scatter(1, i.expand(2, 1, 4), x[:, :1]) + 1,
    "scatter and add": lambda x, i: x.scatter_add(2, i.expand(2, 3, 4), x),
    "add rows": lambda x, i: x.index_add(1, i, x[:, [0, 0, 1, 2]], alpha=2),
    "fill rows": lambda x, i: x.index_fill(1, i[:2], 3.0),
    "embed": lambda x, i: F.embedding(i, x[0]),
    "loss": lambda x, i: F.cross_entropy(x[0], i[:3], ignore_index=0),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEXED)
def test_indices(name):
    assert_like_eager(INDEXED[name], tensor(2, 3, 4), I)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_half_types_are_rounded_as_eagers(dtype):
    """After every addition: a thousand times the last place of 256 is nothing."""
    x, i = torch.full((1,), 256.0, dtype=dtype), torch.zeros(1000, dtype=torch.int64)
    small = torch.full((1000,), 0.5 if dtype == torch.bfloat16 else 0.0625, dtype=dtype)
    assert_like_eager(lambda x, i, y: x.scatter_add(0, i, y), x, i, small, rtol=0, atol=0)
    assert_like_eager(lambda x, i, y: x.index_put((i,), y, accumulate=True), x, i, small, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_beside_half_types(dtype):
    """They are rounded to the type first, as tensors without dimensions are."""
    x = torch.tensor([0.3, 0.1, 1.0]).to(dtype)
    assert_like_eager(lambda x: (x == 0.3, x * 0.1, torch.where(x > 0.3, x, x + 0.7)), x, rtol=0, atol=0)
    assert_like_eager(lambda x, y: (x == y, x * y), x, torch.tensor(0.3), rtol=0, atol=0)


REDUCED = {
    "sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin, "argmax": torch.argmax,
    "max": torch.max, "any": lambda x, *a, **k: torch.any(x > 0, *a, **k), "prod": torch.prod,
    "all": lambda x, *a, **k: torch.all(x > -2, *a, **k), "var": torch.var, "logsumexp": torch.logsumexp,
    "max of booleans": lambda x, *a, **k: torch.amax(x > 2, *a, **k),
    "min of booleans": lambda x, *a, **k: torch.amin(x > -2, *a, **k),
}  # fmt: skip


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name, keepdim):
    for dim in (0, 1, 2):
        assert_like_eager(lambda x, dim=dim: REDUCED[name](x, dim, keepdim=keepdim), tensor(2, 3, 4))
    if name in ("sum", "mean", "amax", "var", "logsumexp"):
        assert_like_eager(lambda x: REDUCED[name](x, (0, 2), keepdim=keepdim), tensor(2, 3, 4))


def test_types_of_sums():
    x = tensor(3, 5) * 1.3 + 0.125
    for dtype in (torch.int64, torch.float16, torch.float64):
        assert_like_eager(lambda x, dtype=dtype: x.sum(1, dtype=dtype), x, rtol=0, atol=0)
    assert_like_eager(lambda x: (x.long().sum(0), (x > 0).sum(), x.half().sum(1), x.int().prod(0)), x)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("correction", [0, 1, 2, 5, 7])
def test_corrections_of_variances(correction):
    assert_like_eager(lambda x: torch.var(x, 1, correction=correction), tensor(3, 5))
    assert_like_eager(lambda x: torch.var_mean(x, (0, 1), correction=correction), tensor(3, 5))


def test_reductions_of_nothing():
    for function in (
        torch.sum,
        torch.prod,
        lambda x, d: torch.any(x > 0, d),
        lambda x, d: torch.all(x > 0, d),
        torch.mean,
    ):
        assert_like_eager(lambda x, function=function: function(x, 1), torch.zeros(3, 0))


def test_rows_of_infinities():
    x = torch.tensor([[INF, 1.0], [-INF, -INF], [-INF, 1.0], [INF, INF], [INF, -INF], [NAN, INF]])
    assert_like_eager(lambda x: (x.logsumexp(1), x.logsumexp(0), x.amax(1), x.argmax(1), x.min(1)), x)


def test_writes_into_constants_are_read():
    """What is known of each element of zeros is not, once there was a write."""

    def program(x, i):
        zeros = torch.zeros(2, 3)
        return zeros.index_put((i,), x) * 2, zeros + 1, torch.ones(2, 3).scatter(0, i[:, None].expand(2, 3), x) + zeros

    assert_like_eager(program, tensor(2, 3), torch.tensor([1, 0]))


def test_an_operator_that_atens_own_code_runs_reads_what_views_say():
    lowered = assert_like_eager(lambda x: x[1:].t().cumsum(0), tensor(4, 3))
    assert sum(isinstance(item, Extern) for item in lowered.items) == 1
