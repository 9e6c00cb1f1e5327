"""The arithmetic of profiles, on times that are made up."""

from __future__ import annotations

import pytest
import torch

from lampwork.ir.location import Location
from lampwork.profiling import words
from lampwork.profiling.machine import Machine
from lampwork.profiling.operators import Operator, outside_bytes
from lampwork.profiling.parts import GUARDS_SECONDS, PARTS, parts_of
from lampwork.profiling.profile import Profile


class Even(Machine):
    """A machine whose memory moves 1 GB a second, whatever the size."""

    def memory_seconds(self, moved_bytes):
        return moved_bytes / 1e9


MACHINE = Even("cpu", {torch.float32: 1e9}, 1e-6)


def operator(name="add", seconds=1e-3, moved=0, flops=0, read=(), written=(), view=False):
    return Operator(
        name, Location("model.py", 7), seconds, moved, flops, torch.float32, view,
        {each: 1000 for each in read}, {each: 1000 for each in written},
    )  # fmt: skip


def test_parts_add_up():
    found = parts_of(10e-3, 2e-3, [operator(moved=10**6), operator("mm", 3e-3, 1000, 10**6)], MACHINE)
    assert sum(found.seconds.values()) == pytest.approx(found.call)
    assert found.seconds["waiting"] == 2e-3 and found.seconds["launches"] == pytest.approx(2e-6)
    assert found.seconds["memory"] == pytest.approx(1e-3 - 1e-6)
    assert found.seconds["compute"] == pytest.approx(3e-3 - 1e-6)
    assert found.seconds["Python"] == pytest.approx(4e-3)
    assert [each.part for each in found.groups] == ["compute", "memory"] and found.groups[0].line == "model.py:7"


def test_operators_that_take_longer_alone_are_scaled():
    found = parts_of(1e-3, 0.0, [operator(seconds=1e-3, moved=10**6), operator("mm", 3e-3, 0, 10**7)], MACHINE)
    assert sum(found.seconds.values()) == pytest.approx(1e-3) and found.seconds["Python"] == pytest.approx(0, abs=1e-9)
    assert found.seconds["compute"] / found.seconds["memory"] == pytest.approx(3, rel=1e-2)


def test_the_bound_keeps_what_waits_computes_and_must_move():
    chain = [operator(moved=2000, read=[1], written=[2]), operator(moved=2000, read=[2], written=[3])]
    assert outside_bytes(chain) == 2000, "1 is read, 3 is left; 2 stays inside"
    product = operator("mm", 5e-3, 10, 10**8, read=[3], written=[4])
    found = parts_of(20e-3, 1e-3, [*chain, product], MACHINE)
    assert found.bound == pytest.approx(1e-3 + (5e-3 - 1e-6) + 2000 / 1e9 + GUARDS_SECONDS)
    assert found.gain == pytest.approx(20e-3 / found.bound)


def test_what_nothing_explains_is_told_apart():
    found = parts_of(10e-3, 0.0, [operator("sort", 8e-3, moved=1000)], MACHINE)
    assert found.seconds["other"] > 7e-3 and found.groups[0].part == "other"
    assert sum(found.seconds.values()) == pytest.approx(found.call)


def test_views_move_nothing():
    assert outside_bytes([operator(read=[1], view=True), operator(read=[1], written=[2])]) == 2000


def test_a_bound_is_no_more_than_the_call():
    found = parts_of(1e-6, 0.0, [], MACHINE)
    assert found.bound == found.call and found.gain == 1.0


def test_words():
    profile = Profile("f", "step", "train", parts_of(10e-3, 9e-3, [operator()], MACHINE), "cpu")
    assert profile.sentence.startswith("A step takes 10.0 ms: 90% waiting")
    assert "Compiling could make it 1.11 times as fast at most." in profile.sentence
    profile = Profile("f", "step", "train", parts_of(10e-3, 9.9e-3, [], MACHINE), "cpu")
    assert profile.sentence.endswith("Compiling cannot help: it could gain 1% at most.")
    assert [row[0] for row in words.rows(profile)] == list(PARTS)
