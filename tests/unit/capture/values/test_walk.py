"""The one walk through containers: how deep it goes, and into what."""

import collections

import pytest
import torch

from lampwork.capture.values.walk import DEPTH, classes_in, holds

MARK = object()
KINDS = frozenset({object})
Point = collections.namedtuple("Point", "x y")


class Numbers(list):
    def __iter__(self):
        raise AssertionError("code of the program runs")


class Table(dict):
    def values(self):
        raise AssertionError("code of the program runs")


@pytest.mark.parametrize(
    "container",
    [
        [MARK], (1, MARK), Point(1, MARK), Numbers([MARK]), {1: MARK}, Table(a=MARK), collections.OrderedDict(a=MARK),
        collections.defaultdict(int, a=MARK), {MARK}, frozenset({MARK}), collections.deque([MARK]), slice(0, MARK),
        slice(MARK, 1), slice(0, 1, MARK),
    ],
)  # fmt: skip
def test_containers_that_are_looked_into(container):
    assert holds(container, KINDS)
    assert holds([container], KINDS)
    assert classes_in([1, container], KINDS) == {object}


@pytest.mark.parametrize(
    "value", [1, "text", [], {}, [1, "a"], {MARK: 1}, iter([MARK]), {1: MARK}.values(), torch.Size([1])]
)
def test_what_holds_none(value):
    assert not holds(value, KINDS)
    assert classes_in([value], KINDS) == set()


def test_itself():
    assert holds(MARK, KINDS)


def _nested(depth):
    value = MARK
    for _ in range(depth):
        value = [value]
    return value


def test_depth():
    assert holds(_nested(DEPTH), KINDS) and not holds(_nested(DEPTH + 1), KINDS)
    # The values are those of a call: what stands in them is one deep.
    assert classes_in((_nested(DEPTH),), KINDS) and not classes_in((_nested(DEPTH + 1),), KINDS)


def test_a_list_that_holds_itself():
    cyclic = [1]
    cyclic.append(cyclic)
    assert not holds(cyclic, KINDS) and classes_in(cyclic, KINDS) == set()


def test_all_classes_are_found():
    assert classes_in([1, (2.0, {"a": None})], frozenset({int, float, type(None), str})) == {int, float, type(None)}
