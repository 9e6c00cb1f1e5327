"""A time-conditioned UNet, the network of image diffusion: residual blocks, group norm, attention, skip connections.

The structure follows Ho, Jain and Abbeel, "Denoising Diffusion Probabilistic Models" (2020), appendix B.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


def embed_time(time: torch.Tensor, width: int) -> torch.Tensor:
    """Sines and cosines of `time` ([N], any number type) at geometric frequencies: f32[N, width]."""
    half = width // 2
    frequencies = torch.exp(-math.log(10000.0) * torch.arange(half, device=time.device, dtype=torch.float32) / half)
    angles = time[:, None].float() * frequencies[None]
    return torch.cat([angles.cos(), angles.sin()], dim=1)


class ResidualBlock(nn.Module):
    """Two normalised 3x3 convolutions with the time added between them, and a shortcut around both."""

    def __init__(self, inputs: int, outputs: int, time_width: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.dropout = nn.Dropout(0.1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(functional.silu(self.norm1(x)))
        hidden = hidden + self.time(functional.silu(time))[:, :, None, None]
        hidden = self.conv2(self.dropout(functional.silu(self.norm2(hidden))))
        return hidden + self.shortcut(x)


class SelfAttention(nn.Module):
    """Attention among the pixels of one feature map, added to it."""

    def __init__(self, channels: int, groups: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(groups, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, 3, self.heads, channels // self.heads, height * width)
        query, key, value = qkv.transpose(-1, -2).unbind(1)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.transpose(-1, -2).reshape(batch, channels, height, width))


class Stage(nn.Module):
    """Two residual blocks at one resolution, each followed by attention where `attention` is set."""

    def __init__(self, widths: list[tuple[int, int]], time_width: int, groups: int, attention: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResidualBlock(i, o, time_width, groups) for i, o in widths)
        self.attentions = nn.ModuleList(SelfAttention(o, groups, 4) if attention else nn.Identity() for _, o in widths)


class UNet(nn.Module):
    """Noise prediction: `UNet()(image, time)` with image f32[N, 4, H, W] and time i64[N] gives f32[N, 4, H, W].

    H and W must be divisible by `2 ** (len(multipliers) - 1)`, all widths by `groups`. Attention runs at every
    resolution but the first.
    """

    def __init__(
        self, channels: int = 64, multipliers: tuple[int, ...] = (1, 2, 4), groups: int = 32, image_channels: int = 4
    ) -> None:
        super().__init__()
        time_width = 4 * channels
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.enter = nn.Conv2d(image_channels, channels, 3, padding=1)

        widths = [channels * m for m in multipliers]
        skips = [channels]
        self.down = nn.ModuleList()
        self.shrink = nn.ModuleList()
        width = channels
        for level, wide in enumerate(widths):
            self.down.append(Stage([(width, wide), (wide, wide)], time_width, groups, level > 0))
            skips += [wide, wide]
            width = wide
            last = level == len(widths) - 1
            self.shrink.append(nn.Identity() if last else nn.Conv2d(width, width, 3, stride=2, padding=1))
            if not last:
                skips.append(width)

        self.middle1 = ResidualBlock(width, width, time_width, groups)
        self.middle_attention = SelfAttention(width, groups, 4)
        self.middle2 = ResidualBlock(width, width, time_width, groups)

        self.up = nn.ModuleList()
        self.grow = nn.ModuleList()
        for level, wide in reversed(list(enumerate(widths))):
            joined = []
            for _ in range(3):
                joined.append((width + skips.pop(), wide))
                width = wide
            self.up.append(Stage(joined, time_width, groups, level > 0))
            self.grow.append(nn.Conv2d(width, width, 3, padding=1) if level > 0 else nn.Identity())

        self.norm = nn.GroupNorm(groups, width)
        self.leave = nn.Conv2d(width, image_channels, 3, padding=1)

    def forward(self, image: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        emb = self.time(embed_time(time, self.channels).to(image.dtype))
        x = self.enter(image)
        kept = [x]
        for level, (stage, shrink) in enumerate(zip(self.down, self.shrink)):
            for block, attention in zip(stage.blocks, stage.attentions):
                x = attention(block(x, emb))
                kept.append(x)
            if level < len(self.down) - 1:
                x = shrink(x)
                kept.append(x)

        x = self.middle2(self.middle_attention(self.middle1(x, emb)), emb)

        for level, (stage, grow) in enumerate(zip(self.up, self.grow)):
            for block, attention in zip(stage.blocks, stage.attentions):
                x = attention(block(torch.cat([x, kept.pop()], dim=1), emb))
            if level < len(self.up) - 1:
                x = grow(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.leave(functional.silu(self.norm(x)))
