"""Programs that depend on where in its storage an argument lies: the offset was not guarded."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("dynamic", [False, True])
def test_as_strided_counts_from_the_start_of_the_storage(dynamic):
    def program(x):
        return torch.as_strided(x, (2, 2), (1, 2), 1) + 0

    compiled = lampwork.compile(program, dynamic=dynamic)
    for x in (torch.arange(10.0), torch.arange(15.0)[5:], torch.arange(12.0)[2:]):
        assert torch.equal(compiled(x), program(x))


def test_storage_offset_that_the_program_reads():
    def program(x):
        return x + x.storage_offset()

    compiled = lampwork.compile(program)
    for x in (torch.arange(10.0), torch.arange(15.0)[5:]):
        assert torch.equal(compiled(x), program(x))
