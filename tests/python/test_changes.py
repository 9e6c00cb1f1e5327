"""What a compiled program looked at changes between calls: the next call must see it.

Each case is a program, and changes that are made one after the other; after each, compiled and eager must agree.
"""

from __future__ import annotations

import functools
import operator
import re
import types
import typing
import warnings
import weakref

import pytest
import torch

import lampwork

X = torch.arange(4.0)
CASES: dict[str, tuple] = {}


def case(*changes):
    def register(function):
        CASES[function.__name__] = (function, changes)
        return function

    return register


class Thing:
    kind = "thing"

    def __init__(self, value=1):
        self.value = value

    def __hash__(self):
        return hash(self.value)

    def __eq__(self, other):
        return isinstance(other, Thing) and self.value == other.value

    def __lt__(self, other):
        return self.value < other.value

    def __index__(self):
        return self.value

    def __repr__(self):
        return f"Thing({self.value})"


class Stack(list):
    factor = 1


class Plain:
    pass


@typing.runtime_checkable
class Runs(typing.Protocol):
    def run(self): ...


FLAG = 1
PATTERN = re.compile("a+")
GETTER = operator.itemgetter(0)
THING, OTHER = Thing(1), Thing(2)
STACK = Stack([1.0, 2.0])
TABLE = {1: 10.0}
FACTOR = 2.0
PLAIN = Plain()
REFERENCE = weakref.ref(PLAIN)
SPACE = types.SimpleNamespace(a=1)


@functools.cache
def cached(n):
    return n * FACTOR


@functools.lru_cache(maxsize=2)
def cached_tensor(n):
    return torch.full((4,), FACTOR * n)


@functools.singledispatch
def dispatched(value):
    return 1.0


def put(name, value):
    return lambda: globals().__setitem__(name, value)


@case(put("FLAG", 2), put("ADDED", 5), lambda: globals().pop("ADDED"))
def globals_by_name(x):
    names = globals()
    return x * names["FLAG"] + names.get("ADDED", 0), "ADDED" in names


@case(put("FLAG", 3), put("FLAG", 4.0))
def evaluated(x):
    return eval("x * FLAG", globals(), {"x": x})


@case(lambda: setattr(Thing, "kind", "other"), lambda: setattr(Thing, "more", 1), lambda: delattr(Thing, "more"))
def class_dict(x):
    return x, Thing.__dict__["kind"], "more" in vars(Thing), [name for name in vars(Thing) if name == "more"]


@case(lambda: setattr(THING, "extra", 1), lambda: setattr(Thing, "shared", 1), lambda: delattr(THING, "extra"))
def listed_names(x):
    return x, [name for name in dir(THING) if name in ("extra", "shared", "value")]


@case(lambda: setattr(Plain, "run", lambda self: 1), lambda: setattr(Plain, "run", None), lambda: delattr(Plain, "run"))
def protocol(x):
    return x + 1 if isinstance(PLAIN, Runs) else x - 1


@case(put("PATTERN", re.compile("b+")), put("PATTERN", re.compile("b+", re.IGNORECASE)))
def pattern(x):
    return x, bool(PATTERN.search("BBB")), PATTERN.sub("-", "aabb")


@case(put("GETTER", operator.itemgetter(1)), put("GETTER", operator.attrgetter("real")))
def getter(x):
    return x * float(GETTER([2.0, 3.0]) if isinstance(GETTER, operator.itemgetter) else GETTER(7.0))


@case(lambda: setattr(THING, "value", 5), lambda: setattr(Thing, "__hash__", lambda self: 7))
def objects_as_keys(x):
    table = {THING: 1, OTHER: 2}
    return x * table[Thing(2)], THING in {Thing(5)}, len({Thing(1), THING})


@case(lambda: setattr(THING, "value", 2), lambda: setattr(OTHER, "value", 0))
def objects_ordered(x):
    ordered = sorted([OTHER, THING])
    return x, [each.value for each in ordered], min(THING, OTHER).value, f"{ordered}", ["a", "b", "c"][THING.value % 3]


@case(lambda: setattr(THING, "value", 3), lambda: setattr(Thing, "__index__", lambda self: 0))
def object_as_index(x):
    return x[THING], [10, 20, 30, 40][THING], int(THING)


@case(
    lambda: STACK.append(3.0),
    lambda: STACK.__setitem__(0, 9.0),
    lambda: setattr(STACK, "factor", 2),
    lambda: STACK.clear(),
)
def list_of_a_class(x):
    return x * sum(STACK) * STACK.factor, len(STACK)


@case(cached.cache_clear, put("FACTOR", 3.0), cached.cache_clear, put("cached", functools.cache(lambda n: 1.0)))
def cached_number(x):
    return x * cached(3)


@case(put("FACTOR", 4.0), cached_tensor.cache_clear, lambda: [cached_tensor(n) for n in range(5)])
def cached_tensors(x):
    return x + cached_tensor(2), cached_tensor(2) is cached_tensor(2)


@case(lambda: dispatched.register(int, lambda value: 2.0), lambda: dispatched.register(bool, lambda value: 3.0))
def generic_function(x):
    return x * dispatched(True) + dispatched(5)


@case(lambda: warnings.simplefilter("error"), lambda: warnings.simplefilter("ignore"))
def filtered_warning(x):
    try:
        warnings.warn("careful")
    except UserWarning as error:
        return x, str(error)
    return x + 1


@case(put("SPACE", types.SimpleNamespace(a=2)), lambda: setattr(SPACE, "a", 3.0), lambda: setattr(SPACE, "b", 1))
def namespace_object(x):
    return x * SPACE.a, hasattr(SPACE, "b"), vars(SPACE)


@case(put("PLAIN", Plain()), lambda: setattr(PLAIN, "mark", 1))
def weak_reference(x):
    return x, REFERENCE() is PLAIN, hasattr(REFERENCE() or PLAIN, "mark")


@case(lambda: TABLE.__setitem__(1, 11.0), lambda: TABLE.__setitem__(2, 1.0), lambda: TABLE.clear())
def text_of_a_container(x):
    return x, f"{TABLE}", str([THING]), repr({"k": OTHER})


@case(put("isinstance", lambda value, kind: False), lambda: globals().pop("isinstance"))
def builtin_hidden_in_evaluated_code(x):
    space = {"x": x}
    exec("y = x + 1 if isinstance(x, object) else x - 1", space)
    return space["y"], isinstance(x, object)


@pytest.mark.parametrize("name", CASES)
def test_change(name):
    function, changes = CASES[name]
    before = dict(globals())
    kinds = {cls: dict(vars(cls)) for cls in (Thing, Plain, Stack)}
    compiled = lampwork.compile(function, options={"cache": False})
    objects = [(each, dict(vars(each))) for each in (THING, OTHER, STACK, SPACE)]
    contents, table = list(STACK), dict(TABLE)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for change in (lambda: None, lambda: None, *changes):
                change()
                assert _told(compiled) == _told(function)
    finally:
        globals().update(before)
        for each in set(globals()) - set(before):
            del globals()[each]
        for cls, was in kinds.items():
            for each in set(vars(cls)) - set(was):
                delattr(cls, each)
            for each, value in was.items():
                if vars(cls)[each] is not value:
                    setattr(cls, each, value)
        for each, attributes in objects:
            vars(each).clear()
            vars(each).update(attributes)
        STACK[:] = contents
        TABLE.clear()
        TABLE.update(table)
        cached.cache_clear()
        cached_tensor.cache_clear()


def _told(function):
    """The result in comparable form, or the exception."""
    try:
        return _plain(function(X))
    except Exception as error:
        return type(error), str(error)


def _plain(value):
    if type(value) is torch.Tensor:
        return value.tolist()
    if type(value) in (tuple, list):
        return [_plain(each) for each in value]
    return value
