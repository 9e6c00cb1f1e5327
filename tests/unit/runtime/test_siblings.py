"""Modules of one class share what is compiled (`runtime/siblings.py`), and integers that choose what they read."""

from __future__ import annotations

import threading

import pytest
import torch

import lampwork


@pytest.fixture(autouse=True)
def _anew():
    lampwork.reset()


class Block(torch.nn.Module):
    def __init__(self, index, width=4):
        super().__init__()
        self.index = index
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


class Numbered(Block):
    def forward(self, x, rows):
        return super().forward(x) * (self.index + 1) + rows[self.index]


@lampwork.disable
def not_compiled():
    pass


class Breaking(Block):
    def forward(self, x):
        y = self.linear(x)
        not_compiled()
        return y * 2


def compiled_each(blocks, **options):
    return [lampwork.compile(each, options={"cache": False}, **options) for each in blocks]


def captures(blocks):
    return sum(lampwork.stats(each)["captures"] for each in blocks)


def test_equal_blocks_are_captured_once():
    blocks = [Block(number) for number in range(6)]
    ours = compiled_each(blocks)
    x = torch.randn(3, 4)
    for block, each in zip(blocks, ours):
        torch.testing.assert_close(each(x), block(x))
    assert captures(ours) == 1
    assert [lampwork.stats(each)["cache_hits"] for each in ours] == [0, 1, 1, 1, 1, 1]
    wide = compiled_each([Block(0, 5)])
    torch.testing.assert_close(wide[0](torch.ones(3, 5)), wide[0].__lampwork__.function(torch.ones(3, 5)))
    assert captures(wide) == 1


def test_training():
    blocks = [Block(number) for number in range(3)]
    x = torch.randn(3, 4)
    ours = compiled_each(blocks)
    for block, each in zip(blocks, ours):
        each(x).sum().backward()
        mine = [parameter.grad for parameter in block.parameters()]
        block.zero_grad()
        block(x).sum().backward()
        for one, parameter in zip(mine, block.parameters()):
            torch.testing.assert_close(one, parameter.grad)
    assert captures(ours) == 1


def test_a_number_that_differs_and_what_it_chooses():
    """0 and 1 are numbers of their own; all above them are one."""
    blocks = [Numbered(number) for number in range(8)]
    rows = [torch.randn(4) for _ in blocks]
    ours = compiled_each(blocks)
    x = torch.randn(3, 4)
    for block, each in zip(blocks, ours):
        torch.testing.assert_close(each(x, rows), block(x, rows))
    assert captures(ours) == 3
    table = {number: torch.randn(4) for number in range(8)}
    for block, each in zip(blocks, ours):
        torch.testing.assert_close(each(x, table), block(x, table))
    assert captures(ours) <= 6


def test_an_element_that_is_not_there():
    blocks = [Numbered(number) for number in range(5)]
    rows = [torch.randn(4) for _ in blocks]
    ours = compiled_each(blocks)
    x = torch.randn(3, 4)
    for each in ours:
        each(x, rows)
    blocks[3].index = 17
    with pytest.raises(IndexError):
        ours[3](x, rows)
    blocks[3].index = -2
    torch.testing.assert_close(ours[3](x, rows), blocks[3](x, rows))
    blocks[4].index = 2
    torch.testing.assert_close(ours[4](x, rows), blocks[4](x, rows))
    rows[2] = torch.randn(3, 4)
    torch.testing.assert_close(ours[4](x, rows), blocks[4](x, rows))


def test_what_is_chosen_is_written():
    class Cache:
        def __init__(self):
            self.kept = None

    class Caching(Block):
        def forward(self, x, caches):
            mine = caches[self.index]
            mine.kept = x if mine.kept is None else torch.cat([mine.kept, x])
            return super().forward(mine.kept)

    blocks = [Caching(number) for number in range(6)]
    ours = compiled_each(blocks)
    caches, others = ([Cache() for _ in blocks] for _ in range(2))
    for _ in range(3):
        x = torch.randn(2, 4)
        for block, each in zip(blocks, ours):
            torch.testing.assert_close(each(x, caches), block(x, others))
        for one, other in zip(caches, others):
            torch.testing.assert_close(one.kept, other.kept)
    assert captures(ours) <= 9


def test_one_element_for_all():
    """Which of the elements are one object is a fact of its own."""

    class Compared(Block):
        def forward(self, x, rows):
            return x * 2 if rows[self.index] is rows[0] else x + rows[self.index]

    blocks = [Compared(number) for number in range(5)]
    row = torch.ones(4)
    x = torch.randn(3, 4)
    ours = compiled_each(blocks)
    for rows in ([torch.ones(4) for _ in blocks], [row] * 5, [row, torch.ones(4), row, torch.ones(4), row]):
        for block, each in zip(blocks, ours):
            torch.testing.assert_close(each(x, rows), block(x, rows))


def test_breaks_and_other_settings():
    blocks = [Breaking(number) for number in range(4)]
    ours = compiled_each(blocks)
    x = torch.randn(3, 4)
    for block, each in zip(blocks, ours):
        torch.testing.assert_close(each(x), block(x))
    assert captures(ours) == 2  # the block, and what follows its break
    others = compiled_each([Block(0), Block(1)], dynamic=False)
    for each in (*compiled_each([Block(0)]), *others):
        each(x)
    assert captures(others) == 1


def test_a_method_that_is_replaced():
    blocks = [Block(number) for number in range(3)]
    ours = compiled_each(blocks)
    x = torch.randn(3, 4)
    ours[0](x)
    blocks[1].linear.forward = lambda x: x * 0
    blocks[2].linear = torch.nn.Identity()
    for block, each in zip(blocks, ours):
        torch.testing.assert_close(each(x), block(x))


def test_threads_that_compile_equal_blocks_at_once():
    blocks = [Block(number) for number in range(8)]
    ours = compiled_each(blocks)
    x = torch.randn(3, 4)
    results: dict[int, torch.Tensor] = {}

    def run(place):
        results[place] = ours[place](x)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for place, block in enumerate(blocks):
        torch.testing.assert_close(results[place], block(x))


def test_nothing_outlives_the_blocks():
    from lampwork.runtime import siblings

    before = len(siblings._shared)
    ours = compiled_each([Block(0), Block(1)])
    for each in ours:
        each(torch.randn(3, 4))
    assert len(siblings._shared) == before + 1
    del ours, each
    import gc

    gc.collect()
    assert len(siblings._shared) == before


class Convolving(torch.nn.Module):
    def __init__(self, width, stride, p):
        super().__init__()
        self.convolution, self.p = torch.nn.Conv2d(3, width, 3, stride=stride), p

    def forward(self, x):
        return torch.nn.functional.dropout(self.convolution(x), self.p, self.training)


def test_blocks_of_other_kinds_are_compiled_for_their_sizes():
    kinds = [(4, 1, 0.1), (8, 1, 0.1), (8, 2, 0.1), (4, 1, 0.2), (4, 1, 0.3), (8, 2, 0.1)]
    ours = compiled_each([Convolving(*each) for each in kinds])
    for each in ours:
        x = torch.randn(1, 3, 8, 8)
        torch.manual_seed(1)
        expected = each.__lampwork__.function(x)
        torch.manual_seed(1)
        torch.testing.assert_close(each(x), expected)
        (entry,) = each.__lampwork__.entries
        assert not entry.artifact.program.sizes
    assert [lampwork.stats(each)["captures"] for each in ours] == [1, 1, 1, 1, 0, 0]


def test_a_derivative_that_is_registered_anew():
    @torch.library.custom_op("siblings::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)

    class Twice(torch.nn.Module):
        def forward(self, x):
            return twice(x)

    kept = []
    doubled, fivefold = (lambda context, gradient: gradient * 2), (lambda context, gradient: gradient * 5)
    for backward, factor, captured in ((doubled, 2.0, 1), (fivefold, 5.0, 1), (fivefold, 5.0, 0)):
        twice.register_autograd(backward)
        x = torch.ones(3, requires_grad=True)
        kept.append(lampwork.compile(Twice(), options={"cache": False}))
        kept[-1](x).sum().backward()
        torch.testing.assert_close(x.grad, torch.full((3,), factor))
        assert lampwork.stats(kept[-1])["captures"] == captured


def test_artifacts_that_do_not_fit_are_not_made_ready():
    """Hooks have numbers, so blocks with hooks share nothing: each looks at what all others have made."""
    blocks = [Block(number) for number in range(4)]
    for block in blocks:
        block.register_forward_hook(lambda module, args, result: result * 2)
    ours = compiled_each(blocks)
    for x in (torch.randn(3, 4), torch.randn(3, 4, dtype=torch.float64).float().requires_grad_(), torch.randn(2, 3, 4)):
        for block, each in zip(blocks, ours):
            torch.testing.assert_close(each(x), block(x))
    waiting = [each for one in ours for each in one.__lampwork__.stored.waiting]
    assert waiting and not any(each.entry for each in waiting)
