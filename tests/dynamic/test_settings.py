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


class Windows(Padded):
    """The same along the first dimension, whose size varies."""

    def forward(self, x):
        length = x.shape[0]
        windows = torch.ceil((length - self.window + 3) / self.stride + 1).to(torch.int64) - 1
        extra = windows * self.stride + self.window - length
        if length <= max(self.window - self.stride, extra):
            x = x + 1
        x = F.pad(self.linear(x), (0, 0, self.window // 2, extra))
        return x[: x.shape[0] - extra]


@pytest.mark.parametrize("stride, window", [(1, 5), (2, 5), (3, 7), (4, 4), (7, 3)])
def test_sizes_that_vary(stride, window):
    model = Windows()
    model.stride.fill_(stride)
    model.window.fill_(window)
    compiled = lampwork.compile(model)
    for length in (30, 31, 40, 41, 47, 52, 53, 61, 64, 66, 70, 71, 90, 91, 107):
        _alike(compiled, model, torch.randn(length, 8))
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and stats["entries"] <= 2 * stride + 2


NUMBERS = {
    "sum": lambda n, k: k + n - 2 * k, "quotient": lambda n, k: (k + n) // 3, "rest": lambda n, k: (k + n) % 5,
    "ceil": lambda n, k: torch.ceil((n - k) / k).long(), "floor": lambda n, k: torch.floor((k + n) / 3 + 2).long(),
    "rest of a product": lambda n, k: (k * n) % 4, "negated": lambda n, k: -(k - n),
    "ceil twice": lambda n, k: torch.ceil(torch.ceil((n - k) / k).long() / 2 + 1).long(),
    "below": lambda n, k: (k * 7 < n) * 2, "rounded": lambda n, k: torch.round((n - k) / k).long(),
    "cut off": lambda n, k: ((n - k) / k).long(), "in double precision": lambda n, k: torch.ceil((k.double() + n) / k).long(),
    "negative": lambda n, k: torch.ceil((k - n) / k).long() + 60, "floor of negative": lambda n, k: (k - n) // k + 60,
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_each_operator_on_settings_and_sizes(name):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = nn.Buffer(torch.tensor(3))

        def forward(self, x):
            number = NUMBERS[name](x.shape[0], self.k)
            return x.new_zeros(4, 80)[:, :number] + x[0]

    model = Counts()
    compiled = lampwork.compile(model)
    for length in (5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 21, 22, 29, 30, 31, 47):
        x = torch.randn(length, 1)
        _alike(compiled, model, x)
        assert compiled(x).shape == model(x).shape


def test_quotients_of_few_digits():
    """In bfloat16 the quotient rounds to another whole number."""

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = nn.Buffer(torch.tensor(3))

        def forward(self, x):
            number = torch.ceil(x.shape[0] / self.k).long()
            return x.new_zeros(4, 500)[:, :number] + 1

    model = Counts()
    compiled = lampwork.compile(model)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        for length in (1001, 1003, 1004, 1006, 1010):
            assert compiled(torch.zeros(length)).shape == model(torch.zeros(length)).shape
    finally:
        torch.set_default_dtype(before)
