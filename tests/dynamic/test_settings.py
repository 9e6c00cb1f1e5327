"""Integers that a model keeps in tensors on the CPU (`nn.Buffer(torch.tensor(stride))`, as audio codecs do), and what it
computes from them: guarded to be what they are, unless they change."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lampwork


class Padded(nn.Module):
    """Pads to whole windows, as the convolutions of EnCodec."""

    def __init__(self):
        super().__init__()
        self.stride = nn.Buffer(torch.tensor(2), persistent=False)
        self.window = nn.Buffer(torch.tensor(5), persistent=False)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        length = x.shape[-1]
        windows = torch.ceil((length - self.window + 3) / self.stride + 1).to(torch.int64) - 1
        extra = windows * self.stride + self.window - length
        if length <= max(self.window - self.stride, extra):
            x = x + 1
        x = F.pad(self.linear(x), (self.window // 2, extra))
        return x[..., : x.shape[-1] - extra]


def _alike(compiled, model, *args):
    torch.testing.assert_close(compiled(*args), model(*args))


def test_what_is_computed_from_settings_is_part_of_the_graph():
    model = Padded()
    compiled = lampwork.compile(model)
    for _ in range(3):
        _alike(compiled, model, torch.randn(3, 8))
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and stats["graphs"] == stats["entries"] == 1


def test_settings_that_change():
    model = Padded()
    compiled = lampwork.compile(model)
    entries = []
    for window in (5, 7, 9, 3, 6, 11, 13, 15, 17, 19):
        model.window.fill_(window)
        _alike(compiled, model, torch.randn(3, 8))
        entries.append(lampwork.stats(compiled)["entries"])
    assert entries[0] == 1 and entries[-1] == entries[5]


@pytest.mark.parametrize("period", [2, 5])
def test_a_counter_that_somebody_else_steps(period):
    class Scheduled(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = nn.Buffer(torch.tensor(0))

        def forward(self, x):
            if self.step % period == 0:
                return x.sin() * 2
            return x.cos() * 3

    model = Scheduled()
    compiled = lampwork.compile(model)
    for step in range(20):
        model.step.fill_(step)
        _alike(compiled, model, torch.randn(4))
    assert lampwork.stats(compiled)["entries"] <= 4


def test_settings_that_the_program_writes_first():
    class Stepped(Padded):
        def forward(self, x):
            self.stride.add_(1)
            if self.stride * 2 > 7:
                return super().forward(x) * 2
            return super().forward(x)

    ours, theirs = Stepped(), Stepped()
    theirs.load_state_dict(ours.state_dict())
    compiled = lampwork.compile(ours)
    for _ in range(4):
        x = torch.randn(3, 8)
        torch.testing.assert_close(compiled(x), theirs(x))
        assert ours.stride == theirs.stride


def test_arguments_are_no_settings():
    def program(x, n):
        return x.sin() if (n * 2 > 4).all() else x.cos()

    compiled = lampwork.compile(program)
    for n in (1, 5, 2, 9, 3):
        _alike(compiled, program, torch.ones(3), torch.tensor([n]))
    assert lampwork.stats(compiled)["breaks"]


def test_settings_share_no_memory_with_what_is_written():
    memory = torch.tensor([2, 3])
    model = Padded()
    model.stride = memory[0]
    compiled = lampwork.compile(lambda x, other: (other.add_(0), model(x))[1])
    for stride in (2, 3, 2):
        memory[0] = stride
        x = torch.randn(3, 8)
        torch.testing.assert_close(compiled(x, memory), model(x))
