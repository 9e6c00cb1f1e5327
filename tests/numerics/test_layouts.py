"""`numerics="eager"`: what is called gets operands in eager's layouts, forward and backward, so that it adds up in eager's
order. Small programs of modules that care, on inputs in many layouts, trained for a step."""

from __future__ import annotations

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import lampwork
from tests.ops.bits import apart

CHANNELS = 6


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class LastNorm(nn.Module):
    """A layer norm of the channels, which are not last."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Heads(nn.Module):
    """Attention among the places, with two heads, transposed as usual."""

    def __init__(self, fused):
        super().__init__()
        self.fused = fused
        self.qkv, self.out = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x):
        n, c, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = (each.view(n, h * w, 2, c // 2).transpose(1, 2) for each in self.qkv(tokens).chunk(3, -1))
        if self.fused:
            found = F.scaled_dot_product_attention(q, k, v)
        else:
            found = (q @ k.transpose(-1, -2) * 0.5).softmax(-1) @ v
        return self.out(found.transpose(1, 2).reshape(n, h * w, c)).transpose(1, 2).reshape(n, c, h, w)


def _mixed(x):
    return x * x.mean((0, 2), keepdim=True) + x.transpose(2, 3).contiguous().transpose(2, 3)


#: Modules from (n, 6, h, w) to the same.
PARTS = {
    "conv": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), "point": lambda: nn.Conv2d(CHANNELS, CHANNELS, 1),
    "deep": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False),
    "batch norm": lambda: nn.BatchNorm2d(CHANNELS), "group norm": lambda: nn.GroupNorm(2, CHANNELS),
    "instance norm": lambda: nn.InstanceNorm2d(CHANNELS, affine=True),
    "relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "hardswish": nn.Hardswish,
    "max pool": lambda: nn.MaxPool2d(3, 1, 1), "mean pool": lambda: nn.AvgPool2d(3, 1, 1),
    "residual": lambda: Residual(nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 1), nn.BatchNorm2d(CHANNELS), nn.ReLU())),
    "last norm": LastNorm, "heads": lambda: Heads(False), "fused heads": lambda: Heads(True),
    "softmax": lambda: Of(lambda x: x.softmax(1)), "log softmax": lambda: Of(lambda x: x.log_softmax(2)),
    "rows": lambda: Of(lambda x: x.flip(2).roll(1, 3)), "last": lambda: Of(lambda x: x.contiguous(memory_format=torch.channels_last)),
    "first": lambda: Of(lambda x: x.contiguous()), "mixed": lambda: Of(_mixed),
    "sides": lambda: Of(lambda x: x.transpose(2, 3) + x), "sum": lambda: Of(lambda x: x - x.sum((1, 3), keepdim=True) * 0.1),
    "cat": lambda: Of(lambda x: torch.cat([x[:, :2], x[:, 2:].relu()], 1)), "square": lambda: Of(lambda x: x * x),
    "up": lambda: Of(lambda x: F.interpolate(x, scale_factor=2)[..., ::2, ::2]), "std": lambda: Of(lambda x: x / (x.std(1, keepdim=True) + 1)),
    "expand": lambda: Of(lambda x: x + x[:, :1].expand(-1, CHANNELS, -1, -1)), "norm": lambda: Of(lambda x: F.normalize(x, dim=1)),
    "pad": lambda: Of(lambda x: F.pad(x, (1, 1, 1, 1))[..., 1:-1, 1:-1] * 2), "index": lambda: Of(lambda x: x[:, [1, 0, 3, 2, 5, 4]]),
    "cumsum": lambda: Of(lambda x: x.cumsum(1) * 0.3), "mask": lambda: Of(lambda x: torch.where(x > 0, x, x.mean(1, keepdim=True))),
}  # fmt: skip
LAYOUTS = {
    "contiguous": lambda x: x, "last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "turned": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "reversed": lambda x: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "gaps": lambda x: torch.cat([x, x], 3)[..., ::2], "batch last": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
}  # fmt: skip
LOSSES = {
    "sum": lambda y: y.sum(), "squares": lambda y: y.float().square().mean(), "pooled": lambda y: y.mean((2, 3)).square().sum(),
    "target": lambda y: F.mse_loss(y, torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype)),
    "turned": lambda y: (y.transpose(1, 3).contiguous() * torch.linspace(-1, 1, CHANNELS)).sum(),
    "tokens": lambda y: F.cross_entropy(y.float(), (torch.arange(y.numel() // CHANNELS) % CHANNELS).view(y.shape[0], *y.shape[2:])),
}  # fmt: skip


def steps(names, layout, loss, dtype, whole, weights_last=False, shape=(4, CHANNELS, 5, 5), count=2, device="cpu"):
    """What training steps leave, compiled and by eager: [(name, tensor)] of each."""
    torch.manual_seed(len(names))
    model = nn.Sequential(*[PARTS[each]() for each in names]).to(device, dtype)
    if weights_last:
        model = model.to(memory_format=torch.channels_last)
    batches = [LAYOUTS[layout](torch.randn(shape).to(dtype).to(device)) for _ in range(count)]
    found = []
    for compiles in (True, False):
        trained = copy.deepcopy(model)
        of = LOSSES[loss]

        def step(x, trained=trained):
            y = trained(x)
            of(y).backward()
            return y

        options = {"numerics": "eager", "cache": False}
        run = (
            (lampwork.compile(step if whole else trained, options=options))
            if compiles
            else (step if whole else trained)
        )
        results = []
        for batch in batches:
            trained.zero_grad()
            x = batch.detach().requires_grad_()
            y = run(x)
            if not whole:
                of(y).backward()
            results += [("y", y.detach()), ("x", x.grad)]
            results += [(name, each.grad.clone()) for name, each in trained.named_parameters() if each.grad is not None]
            results += [(name, each.clone()) for name, each in trained.named_buffers()]
        if compiles:
            stats = lampwork.stats(run)
            assert not stats["fallbacks"] and not stats["breaks"], (stats["fallbacks"], stats["breaks"])
        found.append(results)
    return found


def differing(*case, **settings):
    mine, eagers = steps(*case, **settings)
    assert [name for name, _ in mine] == [name for name, _ in eagers]
    return [
        name
        for (name, one), (_, other) in zip(mine, eagers, strict=True)
        if apart(one, other) or _strides(one) != _strides(other)
    ]


def _strides(tensor):
    """Of the dimensions that step over something."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size != 1]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=4), st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from(sorted(LOSSES)), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_steps_have_eagers_bits(names, layout, loss, dtype, whole, weights_last):
    assert not differing(names, layout, loss, dtype, whole, weights_last)
