"""Many entries: the table names the one that serves, whatever tells them apart, and decides nothing."""

from __future__ import annotations

import random
import threading
import warnings
from types import SimpleNamespace

import pytest
import torch

import lampwork
from lampwork.runtime.guards import dispatch
from lampwork.runtime.wrappers import compiled_of

OPTIONS = {"cache": False, "recompile_limit": 64}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.inner.bonus = 0

    def forward(self, x):
        return self.inner(x) + self.inner.bonus


def shaped(x, y):
    return x * 2 + y


def chosen(x, *args, **kwargs):
    names = {"one": 1.5, "two": -2.0, None: 3.0, 1: 4.0, (1, 2): 5.0, (1, "a"): 6.0}
    for value in (*args, *kwargs.values()):
        x = x * names[value] + len(kwargs)
    return x


def listed(values):
    total = values[0]
    for each in values[1:]:
        total = total * each + 1
    return total


def optional(x, y=None, flag=False):
    if y is None:
        return x + 1
    return x * y if flag else x - y


def of_sizes(x):
    return x.reshape(-1) * 2 if x.size(0) % 3 == 0 else x.flatten() + 1


def of_types(x, thing):
    return x + thing.value if isinstance(thing, SimpleNamespace) else x * thing


T = torch.arange
CASES = {
    "shapes": (shaped, [((T(n) * 1.0, T(n) * 1.0), {}) for n in range(2, 22)]),
    "shapes of the second": (shaped, [((T(6) * 1.0, torch.ones(n, 6)), {}) for n in range(2, 22)]),
    "types of tensors": (shaped, [((T(6).to(a), T(6).to(b)), {}) for a in (torch.int32, torch.float32, torch.float64)
                                  for b in (torch.int32, torch.float32, torch.float64)]),
    "strides and gradients": (shaped, [((torch.ones(n, n).t().requires_grad_(g), torch.ones(n, 2 * n)[:, ::s][:, :n]), {})
                                       for n in (3, 4) for g in (False, True) for s in (1, 2)]),
    "values": (chosen, [((T(4) * 1.0, each), {}) for each in ("one", "two", None, 1, 1.0, True, (1, 2), (1, "a"))]),
    "keywords": (chosen, [((T(4) * 1.0,), dict.fromkeys(names, "two")) for names in ("a", "b", "ab", "abc", "ba", "", "c")]),
    "lengths": (listed, [(([T(4) * 1.0] * n,), {}) for n in range(1, 12)]),
    "absent": (optional, [((T(3) * 1.0,), {}), ((T(3) * 1.0, T(3) * 1.0), {}), ((T(3) * 1.0, T(3) * 1.0, True), {}),
                          ((T(3) * 1.0,), {"y": T(3) * 1.0}), ((T(3) * 1.0, None, True), {}), ((T(5).double(),), {})]),
    "relations": (of_sizes, [((torch.ones(n, 2),), {}) for n in range(1, 14)]),
    "classes": (of_types, [((T(3) * 1.0, SimpleNamespace(value=n)), {}) for n in (1, 2.5, 3)]
                + [((T(3) * 1.0, each), {}) for each in (2, 2.5, True, T(3))]),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, None])
@pytest.mark.parametrize("name", CASES)
def test_the_table_names_what_serves(name, dynamic):
    function, calls = CASES[name]
    fast = lampwork.compile(function, dynamic=dynamic, options=OPTIONS)
    compiled = compiled_of(fast)
    shuffled = random.Random(0)
    for turn in range(8):
        for args, kwargs in shuffled.sample(calls, len(calls)):
            expected, found = function(*args, **kwargs), fast(*args, **kwargs)
            assert (
                torch.equal(found, expected) and found.stride() == expected.stride() and found.dtype == expected.dtype
            )
    assert not lampwork.stats(fast)["fallbacks"]
    if len(compiled.serves) <= 3:
        return
    named = 0
    for args, kwargs in calls:
        _, serve = compiled._dispatch.first(function, args, kwargs)
        named += serve is not None and compiled._entries[serve].holds(function, args, kwargs)
    assert named == len(calls)


def test_attributes_of_a_model():
    model = Model().eval()
    fast = lampwork.compile(model, dynamic=False, options=OPTIONS)
    x = torch.randn(2, 3)
    shuffled = random.Random(0)
    with torch.no_grad():
        for turn in range(4):
            for bonus in shuffled.sample(range(12), 12):
                model.inner.bonus = bonus
                torch.testing.assert_close(fast(x), model(x))
    compiled = fast.__lampwork__
    assert len(compiled.serves) == 12
    with torch.no_grad():
        for bonus in range(12):
            model.inner.bonus = bonus
            _, serve = compiled._dispatch.first(model, (x,), {})
            assert compiled._entries[serve].holds(model, (x,), {})


def test_a_stale_row_decides_nothing():
    fast = lampwork.compile(shaped, dynamic=False, options=OPTIONS)
    compiled = compiled_of(fast)
    calls = [(torch.ones(n), torch.ones(n)) for n in range(2, 10)]
    for call in calls * 3:
        fast(*call)
    places = [compiled._dispatch.first(shaped, call, {})[0] for call in calls]
    for place, other in zip(places, compiled.serves):
        compiled._dispatch.served(place, other)  # most of them wrong
    for call in calls:
        assert fast(*call).shape == call[0].shape
    captures = lampwork.stats(fast)["captures"]
    compiled.reset()
    assert compiled._dispatch is None and fast(*calls[0]).shape == (2,)
    assert captures == 8


def test_rows_and_features_are_bounded(monkeypatch):
    monkeypatch.setattr(dispatch, "MOST_ROWS", 16)
    fast = lampwork.compile(of_sizes, dynamic=True, options=OPTIONS)
    for turn in range(2):
        for n in range(1, 60):
            for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
                fast(torch.ones(n, 2, dtype=dtype))
    table = compiled_of(fast)._dispatch
    features, rows = table._state
    assert len(rows) <= 16 and len(features) <= dispatch.MOST_FEATURES


def test_reading_features_runs_no_code_of_the_program():
    ran = []

    class Loud:
        def __init__(self, value):
            self.value = value

        def __eq__(self, other):
            ran.append("eq")
            return self is other

        def __hash__(self):
            ran.append("hash")
            return id(self)

        def __getattribute__(self, name):
            ran.append(name)
            return object.__getattribute__(self, name)

    def f(x, thing):
        return x + 1 if thing is None else x * thing if isinstance(thing, (int, float)) else x - 1

    fast = lampwork.compile(f, dynamic=False, options=OPTIONS)
    things = [None, 1, 2.5, True, "a", 7, Loud(1)]
    for thing in things * 3:
        assert torch.equal(fast(torch.ones(2), thing), f(torch.ones(2), thing))
    ran.clear()
    f(torch.ones(2), things[-1])
    alone = list(ran)
    ran.clear()
    fast(torch.ones(2), things[-1])
    assert len(ran) <= len(alone)


def test_threads():
    fast = lampwork.compile(shaped, dynamic=False, options=OPTIONS)
    calls = [(torch.full((n,), 1.0 * n), torch.ones(n)) for n in range(2, 14)]
    wrong = []

    def work(seed):
        shuffled = random.Random(seed)
        for _ in range(150):
            x, y = shuffled.choice(calls)
            if not torch.equal(fast(x, y), shaped(x, y)):
                wrong.append(len(x))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong and lampwork.stats(fast)["captures"] == 12


@pytest.mark.parametrize("broken", ["first", "missed"])
def test_what_fails_in_the_table_is_not_the_calls(broken, monkeypatch):
    from lampwork.config import environment

    def fail(*args):
        raise RuntimeError("no table today")

    monkeypatch.setattr(dispatch.Dispatch, broken, fail)
    monkeypatch.setitem(environment.__dict__, "strict", False)
    fast = lampwork.compile(shaped, dynamic=False, options=OPTIONS)
    calls = [(torch.ones(n), torch.ones(n)) for n in range(2, 8)]
    for x, y in calls * 2:
        assert torch.equal(fast(x, y), shaped(x, y))
    assert lampwork.stats(fast)["captures"] == 6 and not lampwork.stats(fast)["fallbacks"]


def test_what_nothing_serves_for_long_is_not_looked_at_each_time(monkeypatch):
    """Counted all the same; and what an entry serves is found again soon."""
    looks, first = [], dispatch.Dispatch.first
    monkeypatch.setattr(dispatch.Dispatch, "first", lambda *call: looks.append(0) or first(*call))
    options = {"recompile_limit": 5, "cache": False}
    compiled = lampwork.compile(lambda x, number: x * number, dynamic=False, options=options)
    x = torch.ones(3)

    def fallbacks():
        return sum(each.count for each in lampwork.stats(compiled)["fallbacks"])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lampwork.LampworkWarning)
        for number in range(300):
            assert torch.equal(compiled(x, number), x * number)
    assert dispatch.UNSERVED < len(looks) < 3 * dispatch.UNSERVED and fallbacks() == 295
    for _ in range(dispatch.MOST_UNLOOKED + 1):
        assert torch.equal(compiled(x, 3), x * 3)
    before = fallbacks()
    for _ in range(dispatch.MOST_UNLOOKED):
        compiled(x, 3)
    assert fallbacks() == before
