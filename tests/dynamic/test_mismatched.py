"""Operators called with one size changed alone, on what was compiled for other sizes: a few of each kind.
`python -m tests.dynamic.mismatched` takes all."""

from __future__ import annotations

import pytest
import torch

from lampwork.ir.offsets import TALLY
from tests.dynamic.mismatched import failures, wrong_errors
from tests.dynamic.test_operators import OPERATORS

#: Read, written and joined where other tensors say; windows; tiles of long rows.
NAMES = ("select_scatter", "index_add", "gather", "addmv", "cat", "nn.functional.avg_pool1d", "transpose_copy")
CHOSEN = [op for op in OPERATORS if op.name in NAMES]
#: Changes of each sample.
CHANGES = 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", CHOSEN, ids=lambda op: f"{op.name}{op.variant_test_name}")
def test_eager_has_the_last_word(op):
    TALLY.clear()
    with torch.no_grad():
        assert list(failures(op, 1, CHANGES)) == []
        assert list(wrong_errors(op)) == []
    assert not TALLY.open
