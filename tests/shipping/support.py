"""Models, and processes that know nothing of this one."""

from __future__ import annotations

import os
from pathlib import Path

import torch

import lampwork
from tests.processes import run_python

ROOT = Path(lampwork.__file__).parents[1]


def fresh(program: str, *arguments: object, **environment: str) -> str:
    """What a new process prints that runs `program`. It has torch and lampwork, and neither tests nor transformers."""
    before = "import sys\nsys.modules['transformers'] = None\nimport torch\ntorch.set_num_threads(1)\n"
    done = run_python(
        ["-c", before + program, *arguments],
        cwd="/",
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LAMPWORK_CACHE": "0", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Block(torch.nn.Module):
    """A residual block with batch norm, as of ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


class ResNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = torch.nn.Sequential(Block(8), Block(8))
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class UNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = torch.nn.GroupNorm(2, 8)
        self.middle = Block(8)
        self.up = torch.nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = torch.nn.Conv2d(11, 3, 1)

    def forward(self, x, time):
        inner = self.norm(self.down(x)) + torch.sin(time)[:, None, None, None]
        inner = torch.nn.functional.interpolate(self.up(torch.nn.functional.silu(self.middle(inner))), size=x.shape[2:])
        return {"sample": self.out(torch.cat([x, inner], 1)), "levels": [inner, 2]}


class Tied(torch.nn.Module):
    """One weight under two names, and buffers that share memory, overlap or have other strides."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(11, 4)
        self.head = torch.nn.Linear(4, 11, bias=False)
        self.head.weight = self.embed.weight
        table = torch.arange(12.0)
        self.register_buffer("early", table[:8].view(2, 4))
        self.register_buffer("late", table[4:].view(2, 4), persistent=False)
        self.register_buffer("row", torch.ones(1, 4).expand(3, 4))
        self.register_buffer("turned", torch.randn(4, 4).t())
        self.plain = torch.full((4,), 0.5)

    def forward(self, ids):
        x = self.embed(ids) @ self.turned + self.early[0] + self.late[1] + self.row[1] + self.plain
        return self.head(x), x


def compiled(model, *args, gradients=False, options=None, dynamic=None, **kwargs):
    """A compiled model that was called once, and what eager gives for that call."""
    fast = lampwork.compile(model, options={"cache": False, **(options or {})}, dynamic=dynamic)
    with torch.set_grad_enabled(gradients):
        fast(*args, **kwargs)
        return fast, model(*args, **kwargs)


def same(left, right) -> bool:
    """Whether two results have the same tensors, numbers and structure, but for the classes of their containers."""
    if isinstance(right, torch.Tensor):
        return left.shape == right.shape and left.dtype == right.dtype and torch.allclose(left, right, atol=1e-5)
    if isinstance(right, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in right)
    if isinstance(right, (tuple, list)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return left == right
