"""A program that only reads was compiled again for each way in which its inputs overlapped in memory."""

from __future__ import annotations

import copy

import torch

import lampwork


def test_a_row_of_a_matrix_at_any_place():
    def program(row, table):
        return (table - row).abs().sum(1), row[1:]

    compiled = lampwork.compile(program, fullgraph=True)
    table = torch.randn(6, 4)
    for each in (table[0], table[3], table[5], torch.randn(4)):
        found, part = compiled(each, table)
        torch.testing.assert_close(found, program(each, table)[0])
        assert part.data_ptr() == each[1:].data_ptr()
    assert lampwork.stats(compiled)["captures"] == 1


def test_tensors_that_begin_to_share_memory_with_what_is_written():
    def program(x, y):
        x.add_(1)
        return y * 2

    compiled = lampwork.compile(program, fullgraph=True)
    for start in (4, 2, 0, 1):
        memory = torch.arange(8.0)
        x, y = memory[:4], memory[start : start + 4]
        wanted = memory.clone()
        wanted[:4] += 1
        torch.testing.assert_close(compiled(x, y), wanted[start : start + 4] * 2)
        torch.testing.assert_close(memory, wanted)


def test_copies_share_memory_as_the_originals_do():
    compiled = lampwork.compile(copy.deepcopy)
    for pair in ([torch.ones(3), torch.ones(3)], [torch.ones(3)] * 2, [each := torch.ones(3), each.view(3)]):
        first, second = compiled(pair)
        first.zero_()
        shared = pair[0].data_ptr() == pair[1].data_ptr()
        assert second.tolist() == ([0.0] * 3 if shared else [1.0] * 3)
