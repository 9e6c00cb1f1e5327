"""State and iterators that are there before the call: context variables, threads' own, iterators begun outside, copies."""

from __future__ import annotations

import collections
import contextvars
import copy
import enum
import itertools
import pickle
import struct
import threading

import torch

from tests.python.harness import program
from tests.python.tensors import values

VARIABLE = contextvars.ContextVar("variable", default=2.0)
LOCAL = threading.local()
Point = collections.namedtuple("Point", "x y", defaults=(1,))


def _x():
    return values(3, 4)


class Registered(type):
    names = []

    def create(cls, scale):
        cls.names.append(cls.__name__)
        return cls(scale)

    @property
    def label(cls):
        return cls.__name__.lower()

    def __len__(cls):
        return 3

    def __getitem__(cls, key):
        return (cls.__name__, key)

    def __contains__(cls, key):
        return key in cls.names


class Scaled(metaclass=Registered):
    def __init__(self, scale):
        self.scale = scale


class Key:
    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, Key) and self.name == other.name


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@program(_x)
def context_variable_set_and_reset(x):
    token = VARIABLE.set(3.0)
    y = x * VARIABLE.get()
    VARIABLE.reset(token)
    return y, VARIABLE.get()


@program(_x)
def context_variable_left_set(x):
    before = VARIABLE.get()
    VARIABLE.set(before + 1)
    return x * before


@program(_x)
def context_variable_in_a_manager(x):
    class Doubled:
        def __enter__(self):
            self.token = VARIABLE.set(VARIABLE.get() * 2)

        def __exit__(self, *exc):
            VARIABLE.reset(self.token)

    with Doubled():
        y = x * VARIABLE.get()
    return y, VARIABLE.get()


@program(_x)
def thread_local_read_and_written(x):
    LOCAL.count = getattr(LOCAL, "count", 0) + 1
    return x * LOCAL.count


@program(_x)
def thread_local_made_inside(x):
    local = threading.local()
    local.scale = 2
    return x * local.scale


@program(_x, lambda: itertools.count(3))
def counter_from_outside(x, counter):
    return x + next(counter), next(counter)


@program(_x, lambda: itertools.cycle([1, 2, 3]))
def cycle_from_outside(x, cycle):
    return x * next(cycle) + next(cycle)


@program(_x, lambda: enumerate(["a", "b", "c", "d", "e", "f", "g"]))
def enumeration_from_outside(x, pairs):
    index, name = next(pairs)
    return x + index, name


@program(_x, lambda: reversed([1, 2, 3, 4, 5, 6]))
def reversed_from_outside(x, numbers):
    return x * next(numbers)


@program(_x, lambda: zip([1, 2, 3, 4, 5, 6], "abcdef"))
def zip_from_outside(x, pairs):
    number, name = next(pairs)
    return x * number, name


@program(_x, lambda: map(abs, [-1, -2, -3, -4, -5]))
def map_from_outside(x, numbers):
    return x * next(numbers)


def _averages():
    total, count = 0.0, 0
    average = None
    while True:
        value = yield average
        total, count = total + value, count + 1
        average = total / count


@program(_x)
def generator_sent_numbers(x):
    running = _averages()
    next(running)
    first = running.send(x.sum())
    return running.send(x.mean()), first


def _begun():
    generator = _averages()
    next(generator)
    return generator


@program(_x, _begun)
def generator_from_outside_sent_to(x, running):
    return x + running.send(2.0)


@program(_x, lambda: Point(2, 3))
def named_tuple_replaced(x, point):
    moved = point._replace(x=5)
    return x * moved.x, moved._asdict(), Point._fields, Point._make([1, 2])


@program(_x)
def named_tuple_of_tensors_replaced(x):
    point = Point(x, x + 1)
    return point._replace(y=x * 2), point._asdict()


@program(_x)
def metaclass_methods_called(x):
    made = Scaled.create(3.0)
    return x * made.scale, Scaled.label, len(Scaled), Scaled["k"], "Scaled" in Scaled


@program(_x)
def keys_with_a_hash_in_python(x):
    table = {Key("a"): 1, Key("b"): 2}
    table[Key("a")] = 3
    return x * table[Key("a")], Key("b") in table, table.get(Key("c")), len({Key("a"), Key("a")})


@program(_x, lambda: {Key("a"): 2.0, Key("b"): 3.0})
def keys_with_a_hash_in_python_from_outside(x, table):
    y = x * table[Key("a")]
    table[Key("d")] = 1.0
    return y, Key("b") in table


@program(_x)
def plain_data_pickled(x):
    data = pickle.loads(pickle.dumps({"a": [1, 2], "b": (3.0, "c")}))
    return x * data["a"][1], len(pickle.dumps([1, 2, 3]))


@program(_x, lambda: {"a": [1, 2], "b": {"c": 3}})
def structures_copied_deeply(x, config):
    other = copy.deepcopy(config)
    other["a"].append(3)
    other["b"]["c"] = 4
    return x * sum(other["a"]), other


@program(_x, lambda: torch.nn.Linear(4, 4))
def module_copied_deeply(x, layer):
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.weight.mul_(2)
    return other(x), layer(x)


@program(_x)
def bytes_packed(x):
    packed = struct.pack("<if", 3, 0.5)
    number, fraction = struct.unpack("<if", packed)
    return x * number + fraction, packed


@program(_x)
def members_of_an_enum(x):
    return x * Colour(2).value, Colour["RED"].name, [each.value for each in Colour]
