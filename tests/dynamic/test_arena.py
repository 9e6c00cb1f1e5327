"""Memory of unknown size: slots of an arena are shared by what is never alive together and never larger."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.ir.kernel_verify import verify_program
from lampwork.ir.size import Symbol, add, mul
from lampwork.ir.verify import VerifyError
from lampwork.schedule.plan import never_larger


def chain(x, w):
    for _ in range(6):
        x = torch.relu(x @ w) + 1
    return x


def entry():
    compiled = lampwork.compile(chain, options={"cache": False})
    x, w = torch.randn(4, 16), torch.randn(16, 16)
    lampwork.mark_dynamic(x, 0)
    with torch.no_grad():
        for rows in (4, 9, 100, 3, 100):
            x = torch.randn(rows, 16) if rows != 4 else x
            torch.testing.assert_close(compiled(x, w), chain(x, w))
    assert lampwork.stats(compiled)["captures"] == 1
    return compiled.__lampwork__.entries[0]


def test_a_chain_needs_few_slots():
    program = entry().artifact.program
    users = [place.index for place in program.placements.values() if place.kind == "arena"]
    assert len(users) >= 6 and len(program.arena) <= 3


def test_the_verifier_refuses_slots_that_are_shared_or_too_small():
    from dataclasses import replace

    program = entry().artifact.program
    verify_program(program)
    together = {
        name: replace(place, index=0) if place.kind == "arena" else place for name, place in program.placements.items()
    }
    with pytest.raises(VerifyError, match="slot 0 of the arena|one slot"):
        verify_program(replace(program, placements=together))
    with pytest.raises(VerifyError, match="may be larger than slot"):
        verify_program(replace(program, arena=tuple(64 for _ in program.arena)))


def test_never_larger():
    n, m = Symbol("s0", 2, 1 << 40), Symbol("s1", 2, 1 << 40)
    assert never_larger(mul(n, 64), mul(n, 64)) and never_larger(mul(n, 64), mul(n, 256))
    assert never_larger(mul(n, 4), mul(mul(n, m), 4)) and never_larger(mul(n, 4), add(mul(n, 4), 60))
    assert not never_larger(mul(n, 64), mul(m, 64)) and not never_larger(mul(mul(n, m), 4), mul(n, 4))


def test_calls_of_one_size_make_pointers_and_views_once():
    source = entry().artifact.host_source
    assert "if lease.key != (s0, ):" in source and "d = lease.sized" in source
