"""Programs over the operator families, compiled once and called at several sizes: eager's results, no recompile."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.dynamic.support import check

PROGRAMS: dict = {}


def program(*shapes, captures=1):
    """Registers a program. `shapes`: for each argument a function from (n, m) to its shape, or the argument itself."""

    def register(function):
        PROGRAMS[function.__name__] = (function, shapes, captures)
        return function

    return register


def matrix(n, m):
    return n, m


@program(matrix)
def pointwise(x):
    return torch.relu(x) * 2 + x.sin()


@program(matrix, lambda n, m: (m,))
def broadcast(x, y):
    return x + y, x * y[None], y.unsqueeze(0) - 1


@program(matrix, matrix)
def two_of_a_size(x, y):
    return (x - y).abs().clamp(max=2.0)


@program(matrix)
def reductions(x):
    return x.sum(), x.mean(0), x.amax(1, keepdim=True), x.var(1), x.argmax(0), x.sum((0, 1))


@program(matrix)
def normalised(x):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)


@program(matrix)
def softmaxes(x):
    return x.softmax(0), x.log_softmax(1), x.logsumexp(1)


@program(matrix, lambda n, m: torch.randn(24, 40))
def layer_norm_fixed(x, w):
    y = F.linear(x[:, :1].expand(x.shape[0], 40), w)
    return F.layer_norm(y, (24,))


@program(matrix)
def layer_norm_dynamic(x):
    return F.layer_norm(x, (x.shape[-1],))


@program(matrix)
def size_as_number(x):
    return x.sum(0) / x.shape[0], x * x.size(1) + x.numel()


@program(matrix)
def transposed(x):
    return x.t() + 1, x.t().contiguous(), (x.t() @ x)


@program(matrix)
def reshaped(x):
    return x.reshape(-1) * 2, x.view(x.shape[0], 1, x.shape[1]) + 1, x.flatten().relu(), x.unsqueeze(-1).squeeze(-1) + 1


@program(lambda n, m: (n, m, 24))
def heads(x):
    b, t, c = x.shape
    q = x.view(b, t, 4, c // 4).transpose(1, 2)
    return (q @ q.transpose(-2, -1)).softmax(-1) @ q


@program(lambda n, m: (n, m, 24))
def heads_merged(x):
    b, t, c = x.shape
    q = x.view(b, t, 4, c // 4).transpose(1, 2).relu()
    return q.transpose(1, 2).reshape(b, t, c) + 1


@program(lambda n, m: (n, 4, m, 8))
def attention(q):
    return F.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q, q, q, is_causal=True)


@program(matrix)
def slices(x):
    return x[1:] + 1, x[:, :-1].relu(), x[-1] * 2, x[0] + 1, x[:, 1] * 3


@program(matrix)
def slices_by_size(x):
    n = x.shape[0]
    return x[: n - 1] + x[1:], x[n // 2 :].sum(0)


@program(matrix)
def joined(x):
    return torch.cat([x, x * 2], 0), torch.cat([x, x.relu()], 1), torch.stack([x, x + 1]), torch.cat([x[:1], x, x[1:]])


@program(matrix)
def padded(x):
    return F.pad(x, (1, 2)), F.pad(x, (0, 0, 3, 0), value=1.0)


@program(matrix)
def expanded(x):
    return x.expand(3, -1, -1) + 1, x[:, None].expand(-1, 2, -1).reshape(-1, x.shape[1]) * 2, x.repeat(2, 1) + 1


@program(matrix)
def factories(x):
    n, m = x.shape
    return torch.zeros(n, m) + x, torch.ones_like(x) * 2, torch.arange(n) + 1, torch.full((m,), 3.0), x.new_zeros(n + 1)


@program(matrix)
def positions(x):
    n, m = x.shape
    return x + torch.arange(m)[None] + torch.arange(n, dtype=x.dtype)[:, None]


@program(matrix)
def triangles(x):
    return x.tril(), x.triu(1), torch.ones(x.shape[0], x.shape[0]).tril()


@program(lambda n, m: (n, n))
def causal_mask(x):
    t = x.shape[0]
    mask = torch.arange(t)[:, None] >= torch.arange(t)[None]
    return x.masked_fill(~mask, float("-inf")).softmax(-1)


@program(matrix)
def scans(x):
    return x.cumsum(0), x.cumsum(1)


@program(lambda n, m: torch.randint(0, 50, (n, m)), lambda n, m: torch.randn(50, 16))
def embedded(ids, table):
    return F.embedding(ids, table), table[ids].sum(1)


@program(lambda n, m: torch.randn(n, m), lambda n, m: torch.randint(0, n, (m,)))
def gathered(x, index):
    return x[index], x.index_select(0, index), x.gather(0, index[None])


@program(lambda n, m: (n, 3, 8 + n, 8 + m), lambda n, m: torch.randn(5, 3, 3, 3))
def convolved(x, w):
    return F.conv2d(x, w, padding=1).relu(), F.conv2d(x, w, stride=2)


@program(lambda n, m: (n, 3, 8 + 2 * n, 8 + 2 * m))
def pooled(x):
    return F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 1, 1), F.adaptive_avg_pool2d(x, (1, 1))


@program(lambda n, m: (n, 6, m))
def group_normed(x):
    return F.group_norm(x, 3)


@program(lambda n, m: (n, 6, m), lambda n, m: torch.randn(6), lambda n, m: torch.rand(6) + 1)
def batch_normed(x, mean, var):
    return F.batch_norm(x, mean, var)


@program(matrix)
def split_columns(x):
    y = torch.cat([x, x], 1).t()
    left, right = y.chunk(2, 0)
    return left + right, [each * 2 for each in torch.randn(4, 6).to(x).mul(0).split(2, 1)]


@program(lambda n, m: (n, 64))
def chunks_of_fixed(x):
    a, b, c, d = x.chunk(4, -1)
    return a * b + c * d


@program(matrix)
def where_mask(x):
    return torch.where(x > 0, x, torch.zeros(())), (x > 0).sum(), x.masked_fill(x < 0, 0.0)


@program(matrix)
def sorted_rows(x):
    values, order = x.sort(-1)
    return values, order, x.topk(2, -1)[0], x.argsort(0)


@program(matrix)
def written(x):
    x.add_(1)
    x[0] = 0
    x[:, 1:].mul_(2)
    return x.sum()


@program(matrix)
def buffer_written(x):
    out = torch.zeros(x.shape[0] + 1, x.shape[1])
    out[1:] = x
    out[:1] = 7
    return out


@program(matrix, lambda n, m: (m, 5))
def products(x, w):
    return x @ w, torch.mm(x, w).relu(), torch.einsum("ij,jk->ik", x, w)


@program(lambda n, m: (n, m, 6), lambda n, m: (n, 6, 4))
def batched_products(x, y):
    return torch.bmm(x, y), x @ y + 1


@program(matrix)
def branches(x):
    if x.shape[0] > 1:
        x = x + 1
    if x.shape[1] >= 1000:
        x = x * 0
    return x * (2 if x.shape[0] == x.shape[0] else 3)


@program(matrix)
def sizes_returned(x):
    return x.shape, x.shape[0], x.size(1) * 2 + 1, len(x), x.numel(), {"n": x.shape[0] // 2}


@program(matrix)
def half_types(x):
    return x.to(torch.bfloat16).softmax(-1), x.half().sum(0), x.double() + 1


@program(lambda n, m: torch.randint(0, 9, (n, m)))
def integers(x):
    return x // 2, x % 3, x.float().mean(), x.to(torch.bool).any(1)


@program(matrix)
def losses(x):
    return (
        F.mse_loss(x, x * 2),
        F.smooth_l1_loss(x, x + 1),
        F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long)),
    )


@program(matrix)
def gated(x):
    return F.glu(torch.cat([x, x], -1)), F.silu(x) * x, F.gelu(x)


@program(matrix)
def flipped(x):
    return x.flip(0), x.roll(1, 0), x.roll(2, 1)


@program(lambda n, m: (n, m, 4))
def permuted(x):
    return x.permute(2, 0, 1) * 2, x.permute(1, 0, 2).contiguous(), x.movedim(-1, 0).sum(1)


@program(lambda n, m: (n, m, 4, 6))
def merged(x):
    return x.flatten(0, 1) + 1, x.flatten(2) * 2, x.reshape(x.shape[0] * x.shape[1], -1).sum(1), x.view(-1, 24).relu()


@program(lambda n, m: (n, 3, 4 + n, 4 + m))
def upsampled(x):
    doubled = F.interpolate(x, scale_factor=2.0), F.interpolate(x, scale_factor=(2, 3), mode="bilinear")
    return *doubled, F.interpolate(x, size=(9, 9), mode="bilinear", align_corners=True), F.interpolate(x, x.shape[2:])


@program(lambda n, m: (n, 3, 8, 10))
def upsampled_by_fractions(x):
    return F.interpolate(x, scale_factor=1.5), torch.nn.Upsample(scale_factor=0.7, mode="bicubic")(x)


SIZES = [(4, 6), (5, 9), (17, 6), (3, 33), (12, 12), (64, 40)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compile_serves_all_sizes(name):
    function, shapes, captures = PROGRAMS[name]
    calls = []
    torch.manual_seed(0)
    for n, m in SIZES:
        made = [each(n, m) for each in shapes]
        calls.append([each if isinstance(each, torch.Tensor) else torch.randn(each) for each in made])
    check(function, calls, captures)
