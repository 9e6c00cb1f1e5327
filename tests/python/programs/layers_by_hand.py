"""Layers as users write them: attention of many kinds, normalisations, recurrences, embeddings, experts, pooling."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import init

from tests.python.harness import program
from tests.python.tensors import frozen, integers, seeded, values

TOKENS = [lambda: (values(2, 5, 8),), lambda: (values(1, 7, 8, seed=1),), lambda: (values(3, 1, 8, seed=2),)]
IMAGES = [lambda: (values(2, 4, 6, 6),), lambda: (values(1, 4, 9, 7, seed=1),), lambda: (values(3, 4, 6, 6, seed=2),)]
ROWS = [lambda: (values(3, 8),), lambda: (values(5, 8, seed=1),), lambda: (values(1, 8, seed=2),)]


class CausalAttention(nn.Module):
    def __init__(self, width=8, heads=2, longest=16):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest))[None, None], persistent=False)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (each.view(b, t, self.heads, c // self.heads).transpose(1, 2) for each in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).contiguous().view(b, t, c))


CAUSAL = frozen(CausalAttention)


@program(calls=TOKENS)
def causal_attention(x):
    return CAUSAL(x)


class KeyValueCache:
    def __init__(self):
        self.keys = None
        self.values = None

    def update(self, k, v):
        if self.keys is None:
            self.keys, self.values = k, v
        else:
            self.keys = torch.cat([self.keys, k], dim=-2)
            self.values = torch.cat([self.values, v], dim=-2)
        return self.keys, self.values

    def __len__(self):
        return 0 if self.keys is None else self.keys.shape[-2]


CACHE = KeyValueCache()


@program(
    calls=[lambda: (values(1, 2, 3, 4),), lambda: (values(1, 2, 1, 4, seed=1),), lambda: (values(1, 2, 1, 4, seed=2),)]
)
def attention_over_a_cache(x):
    past = len(CACHE)
    k, v = CACHE.update(x * 0.5, x + 1)
    mask = torch.ones(x.shape[-2], k.shape[-2], dtype=torch.bool).tril(diagonal=past)
    return F.scaled_dot_product_attention(x, k, v, attn_mask=mask), past


@functools.lru_cache(maxsize=4)
def rotary_table(length, width, base=10000.0):
    inverse = 1.0 / (base ** (torch.arange(0, width, 2).float() / width))
    angles = torch.outer(torch.arange(length).float(), inverse)
    return torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()


@program(calls=TOKENS)
def rotary_positions_cached(x):
    cos, sin = rotary_table(x.shape[1], x.shape[2])
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


@program(calls=TOKENS)
def rotary_as_complex(x):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2).contiguous())
    steps = torch.arange(x.shape[1]).float()[:, None] * 10000 ** -(torch.arange(4).float() / 4)
    turns = torch.polar(torch.ones_like(steps), steps)
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


def slopes(heads):
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    nearest = 2 ** math.floor(math.log2(heads))
    return slopes(nearest) + slopes(2 * nearest)[0::2][: heads - nearest]


@program(calls=TOKENS)
def attention_with_linear_biases(x):
    heads = 3
    t = x.shape[1]
    distance = torch.arange(t)[None, :] - torch.arange(t)[:, None]
    bias = torch.tensor(slopes(heads)).view(heads, 1, 1) * distance.clamp(max=0)
    scores = torch.einsum("bic,bjc->bij", x, x)[:, None] / x.shape[-1] ** 0.5 + bias
    scores = scores + torch.full((t, t), float("-inf")).triu(1)
    return torch.einsum("bhij,bjc->bhic", scores.softmax(-1), x)


@program(calls=TOKENS)
def grouped_queries(x):
    b, t, c = x.shape
    q = x.reshape(b, t, 4, 2).transpose(1, 2)
    kv = x[..., :4].reshape(b, t, 2, 2).transpose(1, 2)
    k = kv[:, :, None].expand(b, 2, 2, t, 2).reshape(b, 4, t, 2)
    v = kv.repeat_interleave(2, dim=1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)


@program(calls=TOKENS)
def window_of_attention(x, *, window=2):
    t = x.size(1)
    i = torch.arange(t)
    near = (i[:, None] - i[None, :]).abs() < window
    scores = (x @ x.mT).masked_fill_(~near, torch.finfo(x.dtype).min)
    return torch.softmax(scores, dim=-1) @ x


@program(calls=TOKENS)
def linear_attention(x):
    q, k, v = F.elu(x) + 1, F.elu(-x) + 1, x
    kv = torch.einsum("btd,bte->btde", k, v).cumsum(1)
    norm = torch.einsum("btd,btd->bt", q, k.cumsum(1)).unsqueeze(-1)
    return torch.einsum("btd,btde->bte", q, kv) / (norm + 1e-6)


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.feed = nn.Sequential(nn.Linear(8, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 8))

    def forward(self, x, context=None, padding=None):
        context = x if context is None else context
        out, weights = self.attention(self.norm1(x), context, context, key_padding_mask=padding, need_weights=True)
        x = x + out
        return x + self.feed(self.norm2(x)), weights


CROSS = frozen(CrossAttention)


@program(
    calls=[
        lambda: (values(2, 3, 8), None, None),
        lambda: (values(2, 3, 8), values(2, 5, 8, seed=1), None),
        lambda: (values(2, 3, 8), values(2, 4, 8), torch.tensor([[False, False, True, True], [False] * 4])),
    ]
)
def context_given_or_not(x, context, padding):
    return CROSS(x, context=context, padding=padding)


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6, unit_offset=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width) * 0.5)
        self.eps, self.unit_offset = eps, unit_offset

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        out = self._norm(x.float()).type_as(x)
        return out * (1 + self.weight) if self.unit_offset else out * self.weight

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.eps}"


RMS = frozen(lambda: RMSNorm(8, unit_offset=True))


@program(calls=[lambda: (values(2, 8),), lambda: (values(2, 8).bfloat16(),), lambda: (values(1, 4, 8).double(),)])
def root_mean_square_norm_in_types(x):
    return RMS(x), repr(RMS)


class GroupNormByHand(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.gain = nn.Parameter(torch.full((channels,), 1.5))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        n, c, *rest = x.shape
        grouped = x.reshape(n, self.groups, -1)
        mean = grouped.mean(-1, keepdim=True)
        var = grouped.var(-1, unbiased=False, keepdim=True)
        out = ((grouped - mean) / (var + 1e-5).sqrt()).view(n, c, *rest)
        shape = (1, c) + (1,) * len(rest)
        return out * self.gain.view(shape) + self.shift.view(*shape)


GROUPS = frozen(lambda: GroupNormByHand(2, 4))


@program(calls=IMAGES)
def group_norm_by_hand(x):
    return GROUPS(x), F.group_norm(x, 2, GROUPS.gain, GROUPS.shift)


class BatchNormByHand(nn.Module):
    def __init__(self, width, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0, correction=0)
            with torch.no_grad():
                n = x.shape[0]
                self.mean += self.momentum * (mean - self.mean)
                self.var.mul_(1 - self.momentum).add_(var * n / max(n - 1, 1), alpha=self.momentum)
                self.seen.add_(1)
        else:
            mean, var = self.mean, self.var
        return (x - mean) * torch.rsqrt(var + 1e-5)


BATCH = BatchNormByHand(8)


@program(calls=[lambda: (values(3, 8), True), lambda: (values(5, 8), True), lambda: (values(2, 8), False)])
def batch_norm_by_hand(x, training):
    BATCH.train(training)
    return BATCH(x), BATCH.seen


@program(calls=IMAGES)
def instance_norm_and_statistics(x):
    var, mean = torch.var_mean(x, dim=(-2, -1), keepdim=True)
    std, again = torch.std_mean(x, dim=(2, 3), correction=0)
    return (x - mean) / (var + 1e-5).sqrt(), std, torch.allclose(mean.squeeze(), again.squeeze()) if False else again


class AdaptiveNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8, elementwise_affine=False)
        self.modulation = nn.Linear(8, 16)
        init.zeros_(self.modulation.weight)

    def forward(self, x, condition):
        shift, scale = self.modulation(F.silu(condition)).unsqueeze(1).chunk(2, dim=-1)
        return torch.addcmul(shift, self.norm(x), 1 + scale)


ADAPTIVE = frozen(AdaptiveNorm)


@program(calls=TOKENS)
def adaptive_norm(x):
    return ADAPTIVE(x, x.mean(1))


class SpectralByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(24.0).view(3, 8) / 10)
        self.register_buffer("u", F.normalize(torch.ones(3), dim=0))

    def forward(self, x):
        with torch.no_grad():
            v = F.normalize(self.weight.t() @ self.u, dim=0)
            self.u.copy_(F.normalize(self.weight @ v, dim=0))
        sigma = self.u @ self.weight @ v
        return F.linear(x, self.weight / sigma)


SPECTRAL = SpectralByHand()


@program(calls=ROWS, grad=True)
def spectral_norm_by_hand(x):
    out = SPECTRAL(x)
    return out, torch.autograd.grad(out.sum(), SPECTRAL.weight)[0]


# Recurrences ---------------------------------------------------------------------------------------------------------


class CellByHand(nn.Module):
    def __init__(self, width=8, hidden=4):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Linear(width + hidden, 4 * hidden)

    def initial(self, batch, like):
        return like.new_zeros(batch, self.hidden), like.new_zeros(batch, self.hidden)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return (h := o.sigmoid() * c.tanh()), (h, c)


CELL = frozen(CellByHand)


@program(calls=TOKENS)
def lstm_by_hand(x):
    state = CELL.initial(x.shape[0], x)
    outputs = []
    for step in x.unbind(1):
        out, state = CELL(step, state)
        outputs.append(out)
    return torch.stack(outputs, dim=1), state


STATEFUL: dict = {"h": None}
GRU_CELL = frozen(lambda: nn.GRUCell(8, 4))


@program(calls=[lambda: (values(2, 8),), lambda: (values(2, 8, seed=1),), lambda: (values(3, 8, seed=2),)])
def hidden_state_kept_between_calls(x):
    h = STATEFUL["h"]
    if h is None or h.shape[0] != x.shape[0]:
        h = torch.zeros(x.shape[0], 4)
    STATEFUL["h"] = GRU_CELL(x, h).detach()
    return STATEFUL["h"] * 2


@program(calls=TOKENS)
def both_directions(x):
    def run(sequence):
        h = torch.zeros_like(sequence[:, 0])
        for t in range(sequence.shape[1]):
            h = torch.tanh(0.5 * sequence[:, t] + 0.5 * h)
            yield h

    forward = list(run(x))
    backward = list(run(x.flip(1)))[::-1]
    return torch.stack([torch.cat(pair, -1) for pair in zip(forward, backward)], 1)


@program(calls=TOKENS)
def selective_scan(x):
    a = -torch.exp(torch.linspace(-1, 0, 4))
    delta = F.softplus(x)
    decay = torch.exp(delta[..., None] * a)
    inputs = delta[..., None] * x[..., None] * 0.5
    h = torch.zeros(x.shape[0], x.shape[2], 4)
    ys = []
    for t in range(x.shape[1]):
        h = decay[:, t] * h + inputs[:, t]
        ys.append(h.sum(-1))
    return torch.stack(ys, 1)


@program(calls=TOKENS)
def gated_scan_by_cumulation(x):
    gates = torch.sigmoid(x)
    log = torch.cumsum(torch.log(gates), dim=1)
    weighted = torch.logcumsumexp(x.abs().log() - log, dim=1)
    return torch.exp(weighted + log)


# Embeddings, experts, blocks -----------------------------------------------------------------------------------------


def sinusoids(length, width):
    position = torch.arange(length).unsqueeze(1)
    step = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * step)
    table[:, 1::2] = torch.cos(position * step)
    return table


@program(calls=TOKENS)
def sinusoidal_positions(x):
    return x + sinusoids(x.shape[1], x.shape[2])[None]


def timestep_embedding(t, width, longest=10000):
    half = width // 2
    freqs = torch.exp(-math.log(longest) * torch.arange(half, dtype=torch.float32) / half)
    args = t[:, None].float() * freqs[None]
    out = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
    if width % 2:
        out = torch.cat([out, torch.zeros_like(out[:, :1])], dim=-1)
    return out


@program(calls=[lambda: (integers(3), 8), lambda: (integers(3), 7), lambda: (integers(1), 8)])
def time_embedded(t, width):
    return timestep_embedding(t, width)


def relative_bucket(distance, buckets=8, longest=16):
    result = 0
    buckets //= 2
    result += (distance > 0).long() * buckets
    n = distance.abs()
    exact = buckets // 2
    small = n < exact
    large = exact + (torch.log(n.float() / exact) / math.log(longest / exact) * (buckets - exact)).long()
    large = torch.min(large, torch.full_like(large, buckets - 1))
    return result + torch.where(small, n, large)


@program(calls=TOKENS)
def relative_buckets(x):
    i = torch.arange(x.shape[1])
    return relative_bucket(i[None, :] - i[:, None])


class Experts(nn.Module):
    def __init__(self, width=8, count=4, top=2):
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, 6))
        self.down = nn.Parameter(torch.randn(count, 6, width))
        self.top = top

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(flat).softmax(-1).topk(self.top, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        hidden = torch.einsum("nd,ndh->nh", flat, self.up[chosen[:, 0]]).relu()
        out = weights[:, :1] * torch.einsum("nh,nhd->nd", hidden, self.down[chosen[:, 0]])
        for slot in range(1, self.top):
            hidden = torch.bmm(flat.unsqueeze(1), self.up[chosen[:, slot]]).relu()
            out = out + weights[:, slot, None] * (hidden @ self.down[chosen[:, slot]]).squeeze(1)
        load = F.one_hot(chosen, 4).sum((0, 1))
        return out.view_as(x), load


EXPERTS = frozen(Experts)


@program(calls=TOKENS)
def experts_chosen_by_a_router(x):
    return EXPERTS(x)


class Residual(nn.Module):
    def __init__(self, inner, drop=0.0):
        super().__init__()
        self.inner = inner
        self.drop = drop

    def forward(self, x, *args, **kwargs):
        return x + F.dropout(self.inner(x, *args, **kwargs), self.drop, self.training)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduce=2):
        super().__init__()
        self.fc = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels // reduce, 1), nn.SiLU(inplace=True),
            nn.Conv2d(channels // reduce, channels, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x):
        return x * self.fc(x)


BLOCK = frozen(lambda: nn.Sequential(
    nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(4), nn.ReLU6(), Residual(SqueezeExcite(4)),
))  # fmt: skip


@program(calls=IMAGES)
def inverted_residual_block(x):
    return BLOCK(x)


@program(calls=IMAGES)
def patches_in_and_out(x):
    n, c, h, w = x.shape
    p = 3
    x = F.pad(x, (0, -w % p, 0, -h % p))
    hh, ww = x.shape[-2] // p, x.shape[-1] // p
    patches = x.unfold(2, p, p).unfold(3, p, p).permute(0, 2, 3, 1, 4, 5).reshape(n, hh * ww, c * p * p)
    back = patches.view(n, hh, ww, c, p, p).permute(0, 3, 1, 4, 2, 5).reshape(n, c, hh * p, ww * p)
    return patches, back[..., :h, :w]


@program(calls=IMAGES)
def pyramid_of_levels(x):
    levels = [x]
    while min(levels[-1].shape[-2:]) > 2:
        levels.append(F.avg_pool2d(levels[-1], 2))
    out = levels.pop()
    while levels:
        skip = levels.pop()
        out = skip - F.interpolate(out, size=skip.shape[-2:], mode="bilinear", align_corners=False)
    return out


@program(calls=IMAGES)
def shifted_windows(x):
    n, c, h, w = x.shape
    x = F.pad(x, (0, -w % 3, 0, -h % 3)).permute(0, 2, 3, 1)
    shifted = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
    windows = shifted.view(n, shifted.shape[1] // 3, 3, shifted.shape[2] // 3, 3, c).transpose(2, 3).flatten(0, 2)
    attended = windows.flatten(1, 2)
    attended = (attended @ attended.transpose(1, 2)).softmax(-1) @ attended
    return attended.shape, attended.sum((0, 1))


class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.book = nn.Embedding(5, 8)
        self.register_buffer("usage", torch.zeros(5))

    def forward(self, z):
        flat = z.reshape(-1, z.shape[-1])
        distances = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.book.weight.t() + self.book.weight.pow(2).sum(1)
        codes = distances.argmin(1)
        self.usage.scatter_add_(0, codes, torch.ones_like(codes, dtype=self.usage.dtype))
        quantized = self.book(codes).view(z.shape)
        loss = F.mse_loss(quantized.detach(), z) + 0.25 * F.mse_loss(quantized, z.detach())
        return z + (quantized - z).detach(), loss, codes.view(z.shape[:-1])


QUANTIZER = seeded(Quantizer)


@program(calls=TOKENS, grad=True)
def codes_of_a_book(z):
    out, loss, codes = QUANTIZER(z)
    loss.backward()
    return out.detach(), codes, QUANTIZER.book.weight.grad.norm()


class LowRank(nn.Module):
    def __init__(self, base, rank=2, alpha=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.full((rank, base.in_features), 0.1))
        self.b = nn.Parameter(torch.full((base.out_features, rank), 0.2))
        self.scaling = alpha / rank
        self.merged = False

    def merge(self):
        if not self.merged:
            self.base.weight.data += self.scaling * self.b.data @ self.a.data
            self.merged = True

    def unmerge(self):
        if self.merged:
            self.base.weight.data -= self.scaling * self.b.data @ self.a.data
            self.merged = False

    def forward(self, x):
        out = self.base(x)
        return out if self.merged else out + (x @ self.a.T @ self.b.T) * self.scaling


LOW_RANK = LowRank(seeded(lambda: nn.Linear(8, 3)))


@program(calls=[lambda: (values(2, 8), "merge"), lambda: (values(2, 8), None), lambda: (values(2, 8), "unmerge")])
def adapter_merged_and_unmerged(x, action):
    if action is not None:
        getattr(LOW_RANK, action)()
    return LOW_RANK(x), LOW_RANK.merged


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.embed(ids)))


TIED = seeded(Tied)


@program(
    calls=[lambda: (integers(2, 3),), lambda: (integers(1, 5, seed=1),), lambda: (integers(2, 3, seed=2),)], grad=True
)
def tied_weights_trained(ids):
    TIED.zero_grad()
    loss = F.cross_entropy(TIED(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    return loss.detach(), TIED.head.weight.grad is TIED.embed.weight.grad, len(list(TIED.parameters()))


class Highway(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 16) for _ in range(depth))
        self.scales = nn.ParameterDict({str(i): nn.Parameter(torch.tensor(0.5 + i)) for i in range(depth)})

    def forward(self, x, upto=None):
        for i, layer in enumerate(self.layers[:upto]):
            h, g = layer(x).chunk(2, -1)
            x = torch.lerp(x, F.mish(h) * self.scales[str(i)], g.sigmoid())
        return x


HIGHWAY = frozen(Highway)


@program(calls=[lambda: (values(2, 8), None), lambda: (values(2, 8), 1), lambda: (values(2, 8), 0)])
def highway_to_a_depth(x, upto):
    return HIGHWAY(x, upto)


class Hyper(nn.Module):
    """Weights that another network makes."""

    def __init__(self):
        super().__init__()
        self.maker = nn.Linear(8, 8 * 2 + 2)

    def forward(self, x):
        made = self.maker(x.mean(0))
        weight, bias = made[:16].view(2, 8), made[16:]
        return F.linear(x, weight, bias)


HYPER = frozen(Hyper)


@program(calls=ROWS)
def weights_made_by_a_network(x):
    return HYPER(x)


@program(calls=ROWS)
def mixture_density(x):
    logits, mean, scale = x[:, :3], x[:, 3:6], F.softplus(x[:, 5:8])
    target = x[:, :1]
    log = -0.5 * ((target - mean) / scale) ** 2 - scale.log() - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(log + logits.log_softmax(-1), -1).mean()


@program(calls=ROWS)
def contrastive_loss(x):
    a = F.normalize(x, dim=-1)
    b = F.normalize(x.roll(1, -1), dim=-1)
    logits = a @ b.t() / 0.07
    labels = torch.arange(len(x), device=x.device)
    accuracy = (logits.argmax(-1) == labels).float().mean()
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2, accuracy


@program(calls=ROWS)
def focal_and_dice(x):
    target = (x > 0.2).to(x.dtype)
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    pt = torch.where(target == 1, p, 1 - p)
    focal = (0.25 * (1 - pt) ** 2.0 * ce).sum() / target.sum().clamp_min(1.0)
    overlap = 2 * (p * target).sum(-1)
    return focal, 1 - (overlap + 1) / (p.sum(-1) + target.sum(-1) + 1)


@program(calls=ROWS)
def boxes_intersected(x):
    boxes = torch.cat([x[:, :2], x[:, :2] + x[:, 2:4].abs() + 0.1], 1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    lt = torch.max(boxes[:, None, :2], boxes[:, :2])
    rb = torch.min(boxes[:, None, 2:], boxes[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    return inter / (area[:, None] + area - inter)


@program(calls=ROWS)
def capsules_routed(x):
    votes = x.reshape(-1, 4, 2)
    logits = torch.zeros(votes.shape[:2])
    for i in range(3):
        weights = logits.softmax(1)
        s = (weights.unsqueeze(-1) * votes).sum(1, keepdim=True)
        square = s.pow(2).sum(-1, keepdim=True)
        v = square / (1 + square) * s / square.sqrt()
        if i < 2:
            logits = logits + (votes * v).sum(-1)
    return v.squeeze(1)


@program(calls=ROWS)
def sinkhorn_iterations(x):
    cost = torch.cdist(x, x.flip(0))
    n = x.shape[0]
    u = torch.zeros(n)
    v = torch.zeros(n)
    for _ in range(4):
        u = -torch.logsumexp(-cost + v[None, :], 1)
        v = -torch.logsumexp(-cost + u[:, None], 0)
    plan = (u[:, None] - cost + v[None, :]).exp()
    return plan, (plan * cost).sum()


@program(calls=ROWS)
def graph_messages_passed(x):
    n = x.shape[0]
    source = torch.arange(n).repeat(2)
    target = (source + torch.tensor([1, 2]).repeat_interleave(n)) % n
    messages = torch.relu(x[source] - x[target])
    gathered = torch.zeros_like(x).index_add_(0, target, messages)
    degree = torch.bincount(target, minlength=n).clamp(min=1).unsqueeze(-1)
    best = torch.full_like(x, float("-inf")).scatter_reduce_(0, target[:, None].expand_as(messages), messages, "amax")
    return gathered / degree, best
