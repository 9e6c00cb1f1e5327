"""Native functions that a Python function of the same name calls: `torch.cdist` calls one that `torch` has no name for."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.ir.reference import find, reference

NAMES = ("cdist", "stft", "norm", "meshgrid", "split")


@pytest.mark.parametrize("name", NAMES)
def test_their_names_lead_to_them(name):
    native = getattr(torch._VF, name)
    ref = reference(native)
    assert ref.portable and find(ref.module, ref.qualname) is native


def test_one_at_which_a_call_breaks():
    """It raises for the second call, so the graph ends before it: it leaves the graph as a function to call."""
    program = lambda x, y: torch.cdist(x, y) + 1
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for batch, rows in ((5, 5), (6, 5), (5, 6), (5, 7)):
        x, y = torch.randn(batch, rows, 2), torch.randn(5, 6, 2)
        if batch == 5:
            torch.testing.assert_close(compiled(x, y), program(x, y))
            continue
        with pytest.raises(RuntimeError, match="must match"):
            compiled(x, y)
    stats = lampwork.stats(compiled)
    assert [each.diagnostic.id for each in stats["breaks"]] == ["operator-error"] and not stats["fallbacks"]
