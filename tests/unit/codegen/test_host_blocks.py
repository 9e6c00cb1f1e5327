"""The peak that a host function's text tells of."""

from __future__ import annotations

from lampwork.codegen.host_blocks import SMALL_BYTES, Blocks


def test_results_stay_and_small_ones_lie_elsewhere():
    blocks = Blocks()
    blocks.take("small", SMALL_BYTES)
    assert blocks.peak == 0
    blocks.take("a", 3 << 20)
    blocks.take("result", 5 << 20, is_result=True)
    blocks.give_back("a")
    blocks.give_back("small")
    blocks.give_back("result")  # which is the caller's
    blocks.take("b", (2 << 20) + 1)
    assert blocks.peak == 3 << 20 and blocks.peak_with_results == 8 << 20
    blocks.take("c", 2 << 20)
    assert blocks.peak == (4 << 20) + 512 and blocks.peak_with_results == (9 << 20) + 512
