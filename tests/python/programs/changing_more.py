"""Calls that differ, once more: what earlier programs of this kind had not tried together."""

from __future__ import annotations

import abc
import bisect
import collections
import contextlib
import enum
import functools
import heapq
import itertools
import operator
import random
import types
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from tests.python.harness import program

LOG: list[Any] = []
STATE = {"count": 0, "last": None}


def vector(length=4):
    return torch.arange(float(length)) + 1


@torch.compiler.disable
def outside(value=None):
    LOG.append(value if not torch.is_tensor(value) else tuple(value.shape))
    return value


class Sized:
    """A sequence written in Python."""

    def __init__(self, *items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, place):
        if isinstance(place, slice):
            return Sized(*self.items[place])
        return self.items[place]

    def __contains__(self, item):
        LOG.append(("in", item))
        return item in self.items

    def __reversed__(self):
        return iter(self.items[::-1])


ITEMS = [lambda: (vector(), Sized(1, 2, 3)), lambda: (vector(), Sized(4.5)), lambda: (vector(), Sized())]


@program(calls=ITEMS)
def sequence_of_its_own(x, items):
    items.items.append(7)
    outside()
    return (
        x * sum(items),
        sorted(items),
        max(items),
        list(zip(items, "ab")),
        [*items],
        list(reversed(items)),
        7 in items,
    )


@program(calls=ITEMS)
def sequence_consumed_natively(x, items):
    items.items.append(5)
    table = dict.fromkeys(items, 1)
    names = ",".join(map(str, items))
    outside()
    queue = collections.deque(items, maxlen=2)
    picked = set(items) | frozenset(items[:1])
    return (
        x + len(picked),
        table,
        names,
        queue,
        tuple(enumerate(items)),
        any(item > 4 for item in items),
        bytes(range(len(items))),
    )


@program(calls=ITEMS)
def heap_and_bisection(x, items):
    heap = list(items)
    heapq.heapify(heap)
    heapq.heappush(heap, 2)
    outside()
    smallest = heapq.heappop(heap)
    ordered = sorted(heap)
    bisect.insort(ordered, 3)
    return x + smallest, ordered, heapq.nlargest(2, heap), bisect.bisect_left(ordered, 3)


@program(calls=[lambda: (vector(), "abc"), lambda: (vector(), ""), lambda: (vector(), "zz")])
def letters_grouped(x, text):
    groups = {key: list(group) for key, group in itertools.groupby(sorted(text))}
    outside(text)
    pairs = list(itertools.combinations(text, 2))
    return x + len(pairs), groups, pairs, list(itertools.permutations(text[:2])), dict(zip(text, itertools.count(1)))


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    @functools.cached_property
    def doubled(self):
        LOG.append(type(self).__name__)
        return self.area() * 2


class Circle(Shape):
    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return 3 * self.radius**2


@runtime_checkable
class HasArea(Protocol):
    def area(self): ...


@program(calls=[lambda: (vector(), Circle(1)), lambda: (vector(), Circle(vector())), lambda: (vector(), Circle(0.5))])
def property_that_is_cached(x, shape):
    first = shape.doubled
    shape.radius = 100
    outside()
    try:
        Shape()
    except TypeError as error:
        LOG.append("abstract" in str(error))
    return x * shape.doubled, first is shape.doubled, isinstance(shape, HasArea), "doubled" in shape.__dict__


class Node:
    def __init__(self, value, parent=None):
        self.value, self.parent, self.children = value, parent, []
        if parent is not None:
            parent.children.append(self)

    def __iter__(self):
        yield self
        for child in self.children:
            yield from child

    def __repr__(self):
        return f"Node({len(self.children)})"


def tree(depth):
    root = Node(1.0)
    for _ in range(depth):
        Node(2.0, Node(3.0, root))
    return root


@program(calls=[lambda: (vector(), tree(0)), lambda: (vector(), tree(1)), lambda: (vector(), tree(3))])
def tree_of_objects(x, root):
    for node in root:
        node.value = node.value + x.sum()
    outside(repr(root))
    Node(x, root)
    return sum(node.value for node in root), len(list(root)), root.children[-1].parent is root


@program(calls=[lambda: (vector(), [3, 1]), lambda: (vector(), [2]), lambda: (vector(), [])])
def objects_that_refer_to_each_other(x, numbers):
    first, second = Node(x), Node(numbers)
    first.other, second.other = second, first
    outside()
    first.other.value.append(len(numbers))
    second.other.value = second.other.value * 2
    return first.value, first.other.other is first, numbers


@dataclass
class Step:
    run: Any
    weight: float = 1.0
    after: list = field(default_factory=list)

    def __call__(self, x):
        y = self.run(x) * self.weight
        for step in self.after:
            y = step(y)
        return y


@program(
    calls=[
        lambda: (vector(), Step(torch.relu)),
        lambda: (vector(), Step(torch.tanh, 2.0, [Step(torch.neg)])),
        lambda: (vector(), Step(nn.Identity(), 0.5, [Step(abs), Step(outside)])),
        lambda: (vector(), Step(functools.partial(torch.pow, exponent=2))),
        lambda: (vector(), Step(operator.neg)),
        lambda: (vector(), Step(operator.methodcaller("sum", 0))),
    ]
)
def callables_of_every_kind(x, step):
    return step(x), step.weight


Made = make_dataclass("Made", [("value", Any), ("count", int, 1)])


@program(calls=[lambda: (vector(), Made(1)), lambda: (vector(), Made(vector(), 3))])
def class_made_by_a_function(x, made):
    made.count += 1
    outside(made.count)
    return (
        made.value * x,
        made == Made(made.value, made.count) if not torch.is_tensor(made.value) else None,
        repr(made)[:12],
    )


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10

    def __str__(self):
        return self.name.lower()


class Mode(str, enum.Enum):
    FAST = "fast"
    SLOW = "slow"


@program(
    calls=[
        lambda: (vector(), Level.LOW, Mode.FAST),
        lambda: (vector(), Level.HIGH, "slow"),
        lambda: (vector(), 1, Mode.SLOW),
    ]
)
def enums_that_are_numbers_and_text(x, level, mode):
    y = x * level
    outside(str(level))
    if mode == Mode.SLOW:
        y = y / 2
    return y, f"{level}", Level(level) > Level.LOW, Mode(mode).value.title(), level + 1


@program(calls=[lambda: (vector(), 0), lambda: (vector(), 1), lambda: (vector(), 2), lambda: (vector(), 3)])
def errors_of_every_kind(x, which):
    done = []
    try:
        try:
            done.append(which)
            if which == 0:
                x[10]
            elif which == 1:
                x @ torch.ones(7)
            elif which == 2:
                outside().missing
            done.append("fine")
        except IndexError:
            done.append("index")
            raise
        except RuntimeError as error:
            done.append("runtime")
            raise ValueError("other") from error
        else:
            done.append("else")
        finally:
            done.append("finally")
    except (IndexError, ValueError, AttributeError) as error:
        done.append((type(error).__name__, type(error.__cause__).__name__))
    return x + len(done), done


@program(calls=[lambda: (vector(), []), lambda: (vector(), [1]), lambda: (vector(), [1, 2])])
def error_from_a_deep_call(x, path):
    def descend(level):
        with contextlib.ExitStack() as stack:
            stack.callback(path.append, level)
            x.add_(level)
            if level >= 3:
                outside(level)
                raise KeyError(tuple(path))
            return descend(level + 1)

    return descend(len(path))


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 2), lambda: (vector(), 0)])
def suppressed_in_a_loop(x, bad):
    for place in range(3):
        with contextlib.suppress(ZeroDivisionError, IndexError):
            LOG.append(place)
            x = x + 6 // (place - bad)
            outside(place)
            x = x + x[place + 2]
    return x


@contextlib.contextmanager
def state_replaced(**values):
    before = dict(STATE)
    STATE.update(values)
    try:
        yield STATE
    finally:
        STATE.clear()
        STATE.update(before)


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 5), lambda: (vector(), -1)])
def global_table_restored(x, number):
    STATE["count"] += 1
    with state_replaced(last=number, extra=x) as state:
        outside(state["last"])
        if number < 0:
            raise ArithmeticError(state["count"])
        x = x * state["extra"] + state["count"]
    STATE["last"] = number
    return x, sorted(STATE)


@program(calls=[lambda: (vector(), 2), lambda: (vector(), 0), lambda: (vector(), 3)])
def stack_handed_over(x, depth):
    stack = contextlib.ExitStack()
    with stack:
        for place in range(depth):
            stack.callback(LOG.append, place)
        kept = stack.pop_all()
    outside(len(LOG))
    with kept, contextlib.closing(types.SimpleNamespace(close=lambda: LOG.append("closed"))):
        x = x + depth
    return x, list(LOG)


@program(calls=[lambda: (vector(), 3), lambda: (vector(), 0), lambda: (vector(), 1)])
def coroutine_by_hand(x, count):
    def worker():
        total = x
        while True:
            command, value = yield total
            if command == "stop":
                return total
            total = total + value if command == "add" else total * value

    def drive(running):
        next(running)
        for place in range(count):
            running.send(("add", place))
            running.send(("scale", 2))
        try:
            running.send(("stop", None))
        except StopIteration as stop:
            return stop.value

    return drive(worker())


@program(calls=[lambda: (vector(), [1, 2, 3]), lambda: (vector(), [5]), lambda: (vector(), [])])
def generator_left_half_way(x, numbers):
    def scaled():
        for number in numbers:
            yield x * number
        LOG.append("end")

    running = scaled()
    first = next(running, None)
    rest = [value.sum() for value in running]
    outside(len(rest))
    return first, rest, next(running, "none")


@program(calls=[lambda: (vector(), (1, (2, [3, 4]))), lambda: (vector(), (5, (vector(), [])))])
def nested_patterns(x, data):
    a, (b, c) = data
    outside()
    match data:
        case (first, (torch.Tensor() as second, [])):
            return x + first, second
        case (int(first), (_, [*rest])) if len(rest) > 1:
            return x * first, rest, (d := a + 1), d, b, c
    return None


@program(calls=[lambda: (vector(), {"a": {"b": [1, 2]}}), lambda: (vector(), {"a": {"b": [vector()], "c": None}})])
def nested_data_written(x, data):
    data["a"]["b"].append(x)
    data["a"].setdefault("d", []).extend([1, 2])
    outside(len(data))
    data["z"] = data["a"]["b"].pop(0)
    data |= {"y": x.sum()}
    return [key for key in data], data["z"] * x


@program(
    calls=[lambda: (vector(), [3, 1, 2]), lambda: (vector(), [vector(), vector(2)]), lambda: (vector(), ["b", "a"])]
)
def sorted_by_keys(x, values):
    key = (lambda value: value.numel()) if torch.is_tensor(values[0]) else None
    values.sort(key=key, reverse=True)
    outside(len(values))
    least = min(values, key=key) if key else min(values)
    values[:1] = []
    values.insert(0, least)
    return x + len(values), values


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 2)])
def random_of_python(x, seed):
    rng = random.Random(seed)
    drawn = [rng.randint(0, 9), rng.choice("abc")]
    outside(drawn)
    return x + random.random(), drawn, rng.sample(range(5), 2)


class Lazy:
    def __init__(self, make):
        self.make = make

    def __getattr__(self, name):
        if name == "value":
            self.value = self.make()
            LOG.append("made")
            return self.value
        raise AttributeError(name)


@program(calls=[lambda: (vector(), Lazy(vector)), lambda: (vector(), Lazy(lambda: 3.0))])
def attribute_made_once(x, lazy):
    first = lazy.value
    outside()
    return x + first, lazy.value is first, getattr(lazy, "other", "none"), vars(lazy).keys() >= {"value"}


class Tracked(dict):
    def __setitem__(self, name, value):
        LOG.append(name)
        super().__setitem__(name, value)

    def __missing__(self, name):
        return f"no {name}"


@program(
    calls=[lambda: (vector(), Tracked(a=1)), lambda: (vector(), Tracked()), lambda: (vector(), Tracked(b=vector()))]
)
def dict_of_a_class(x, table):
    table["x"] = x
    table.update(c=2)
    outside(len(table))
    table["d"] = table["nothing"]
    del table["x"]
    return x, dict(table), table.get("nothing"), {**table} == dict(table) if "b" not in table else None


class History(list):
    limit = 2

    def append(self, item):
        super().append(item)
        while len(self) > self.limit:
            LOG.append("dropped")
            self.pop(0)


@program(
    calls=[lambda: (vector(), History()), lambda: (vector(), History([1, 2])), lambda: (vector(), History([vector()]))]
)
def list_of_a_class(x, history):
    history.append(x)
    outside(len(history))
    history.append(x * 2)
    history += [3]
    return sum(history[1:], x), len(history), type(history[:1]).__name__, history.limit


@program(calls=[lambda: (vector(), 5), lambda: (vector(), 2**40), lambda: (vector(), -7)])
def integers_large_and_small(x, number):
    q, r = divmod(number, 3)
    outside(number)
    return (
        x + r,
        q,
        number.bit_length(),
        hex(number),
        number // 2 * 2 == number,
        (number >> 1) & 3,
        pow(number, 2, 7),
        int(str(number)),
    )


@program(
    calls=[
        lambda: (vector(), 0.1),
        lambda: (vector(), float("inf")),
        lambda: (vector(), float("nan")),
        lambda: (vector(), -0.0),
    ]
)
def floats_of_every_kind(x, number):
    outside()
    return x * number, number == number, str(number), number > 1, round(number, 1), torch.tensor(number)


@program(calls=[lambda: (vector(), 0.1), lambda: (vector(), float("nan")), lambda: (vector(), 0.2)])
def number_that_equals_nothing_in_a_list(x, number):
    outside()
    return x * number, [number].count(number), number in (number,)


@program(
    calls=[
        lambda: (vector(), None),
        lambda: (vector(), ()),
        lambda: (vector(), (None, 2)),
        lambda: (vector(), vector()),
    ]
)
def truth_and_identity(x, value):
    outside()
    if value is None or (not torch.is_tensor(value) and not value):
        return x, value or "empty"
    return [x if each is None else x * each for each in value][-1], value is not None, type(value) is tuple


@program(
    calls=[lambda: (vector(), lambda v: v + 1), lambda: (vector(), lambda v: v * 2), lambda: (vector(), torch.sin)]
)
def another_function_each_call(x, function):
    named = {"f": function, "g": lambda value: function(function(value))}
    outside(len(named))
    return named["g"](x), function.__name__, callable(function)


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 4), lambda: (vector(), 2)])
def default_that_is_shared(x, count, seen=[]):
    seen.append(count)
    outside(len(seen))
    return x * len(seen), seen[-1]


@program(calls=[lambda: (vector(), 3), lambda: (vector(), 1)])
def attributes_of_functions(x, number):
    def helper(value):
        helper.calls += 1
        return value + helper.calls

    helper.calls = number
    helper(x)
    outside(helper.calls)
    attributes_of_functions.total = getattr(attributes_of_functions, "total", 0) + number
    return helper(x), helper.__dict__, attributes_of_functions.total
