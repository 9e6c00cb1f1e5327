"""Numbers that vary from call to call and are put into dicts: a counter, the rate that a schedule makes of it."""

from __future__ import annotations

import collections
import typing

import pytest
import torch

import lampwork


def rate(log):
    log["count"] += 1
    return 0.1 / (1 + log["count"])


def by_keyword(log):
    log.update(rate=rate(log), twice=2 * log["count"])


def by_pairs(log):
    log.update([("rate", rate(log)), ["twice", 2 * log["count"]]])


def by_class(log):
    dict.update(log, rate=rate(log))


def by_default(log):
    made = {}
    made.setdefault("rate", rate(log))
    log["inner"] = made, made.get("other", log["count"]), made.pop("another", made["rate"])


def into_another(log):
    made = collections.OrderedDict()
    made.update({"count": 0}, rate=rate(log))
    made.setdefault(key="count", default=3)
    log["inner"] = made


@pytest.mark.parametrize("program", [by_keyword, by_pairs, by_class, by_default, into_another])
def test_a_dict_keeps_them(program):
    compiled = lampwork.compile(program, options={"cache": False})
    expected, found = {"count": 0}, {"count": 0}
    for _ in range(7):
        program(expected)
        compiled(found)
        assert found == expected and list(found) == list(expected)
        assert {key: type(each) for key, each in found.items()} == {key: type(each) for key, each in expected.items()}
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 3 and not stats["breaks"] and not stats["fallbacks"], stats["recompiles"]


def test_a_key_is_a_number():
    """What is hashed must be known: an entry each."""

    def program(seen, number):
        seen.update([(number, number + 1)])
        return seen.setdefault(number + 10, number), seen.pop(number + 10), dict.get(seen, number, 0)

    compiled = lampwork.compile(program, options={"cache": False})
    for number in (3, 4, 5, 6, 4):
        expected, found = {}, {}
        assert compiled(found, number) == program(expected, number)
        assert found == expected


def test_tuples_of_them_are_replaced():
    """A tuple of numbers that is written where one of numbers was: the betas of an optimizer, a pair of averages."""

    def program(log, x):
        log["count"] += 1
        log["betas"] = (0.9 - 0.01 * log["count"], 0.99)
        log["nested"] = (log["count"], (rate(log), "text"))
        log["same"] = (1.0, "text")
        log["mean"] = (x.mean().item(), 2)

    compiled = lampwork.compile(program, options={"cache": False})
    expected, found = ({"count": 0, **dict.fromkeys(("betas", "nested", "same", "mean"), (0.5, 1))} for _ in range(2))
    for number in range(7):
        x = torch.full((3,), float(number))
        program(expected, x)
        compiled(found, x)
        assert found == expected and list(found) == list(expected)
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 4 and not stats["breaks"] and not stats["fallbacks"], stats["recompiles"]


class Average(typing.NamedTuple):
    value: float
    count: int


def test_named_tuples_are_made_of_them():
    def program(log):
        log["count"] += 1
        log["average"] = Average(log["average"].value + 0.1 / log["count"], count=log["count"])
        return log["average"], tuple.__new__(Average, (log["count"], 2))

    compiled = lampwork.compile(program, options={"cache": False})
    expected, found = ({"count": 0, "average": Average(0.5, 0)} for _ in range(2))
    for _ in range(7):
        results = compiled(found), program(expected)
        assert results[0] == results[1] and found == expected
        assert [type(each) for each in results[0]] == [Average, Average]
        assert type(found["average"]) is Average and type(found["average"].value) is float
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 3 and not stats["breaks"] and not stats["fallbacks"], stats["recompiles"]
