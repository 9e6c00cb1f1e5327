"""What a compile makes is not walked by the next collection, and what the program has frozen stays so."""

from __future__ import annotations

import gc

import pytest
import torch

import lampwork
from lampwork import collector

pytestmark = pytest.mark.usefixtures("unfrozen")


def many_objects():
    return [[] for _ in range(2 * collector._MANY)]


def test_what_a_pause_leaves_is_old():
    with collector.paused(), collector.paused():
        kept = many_objects()
    assert gc.get_count()[0] < collector._MANY and gc.get_freeze_count() == 0
    assert any(each is kept[-1] for each in gc.get_objects(generation=2))


def test_garbage_of_a_pause_is_found_by_a_full_collection():
    with collector.paused():
        kept = many_objects()
        for each in kept:
            each.append(each)
        del kept, each
    assert gc.collect() >= 2 * collector._MANY


def test_what_the_program_has_frozen_stays_frozen():
    gc.freeze()
    before = gc.get_freeze_count()
    assert before
    with collector.paused():
        kept = many_objects()
    compiled, x = lampwork.compile(lambda x: x.sin() + 1, options={"cache": False}), torch.ones(3)
    assert torch.equal(compiled(x), x.sin() + 1)
    assert before * 0.99 < gc.get_freeze_count() <= before  # some of them were freed
    assert len(kept) == 2 * collector._MANY
