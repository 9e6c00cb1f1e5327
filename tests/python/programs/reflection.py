"""Programs that look at themselves: inspect, typing, names, identities, hashes, weak references, exec."""

from __future__ import annotations

import abc
import collections.abc
import copy
import functools
import inspect
import numbers
import sys
import types
import typing
import weakref
from typing import Any, Generic, Optional, Protocol, TypeVar, cast, runtime_checkable

import torch

from tests.python.harness import program

T = TypeVar("T")
FLAG = 3


def vector():
    return torch.arange(4.0)


def _documented(a, b: int = 2, *args, c: str = "x", **kwargs) -> float:
    """First line."""
    return a * b


class Thing:
    """A thing."""

    kind = "thing"

    def __init__(self, value=1):
        self.value = value

    def run(self, x):
        return x * self.value


@program(vector)
def signatures(x):
    signature = inspect.signature(_documented)
    return list(signature.parameters), signature.parameters["b"].default, str(signature), x


@program(vector)
def signatures_of_partials(x):
    def scaled(a, b, *, by, and_then=2):
        return a * b * by + and_then

    found = []
    for partial in (functools.partial(scaled, by=x), functools.partial(scaled, x), functools.partial(_documented, b=4)):
        parameters = inspect.signature(partial).parameters.values()
        found.append([(each.name, each.kind, each.default is inspect.Parameter.empty) for each in parameters])
    return found, inspect.signature(functools.partial(scaled, by=x)).parameters["by"].default + 1


@program(vector)
def arguments_bound_by_signature(x):
    bound = inspect.signature(_documented).bind(x, b=3)
    bound.apply_defaults()
    return _documented(*bound.args, **bound.kwargs), bound.arguments["c"]


@program(vector)
def arguments_filtered_by_signature(x):
    options = {"b": 4, "unknown": 5}

    def accepts(a, b=1):
        return a * b

    accepted = inspect.signature(accepts).parameters
    return accepts(x, **{name: value for name, value in options.items() if name in accepted})


@program(vector)
def inspect_questions(x):
    return (
        inspect.isfunction(_documented), inspect.isclass(Thing), inspect.ismethod(Thing().run), inspect.isgeneratorfunction(_documented),
        inspect.isbuiltin(len), inspect.ismodule(torch), inspect.getdoc(_documented), callable(Thing), inspect.isfunction(Thing.run), x,
    )  # fmt: skip


@program(vector)
def function_facts(x):
    code = _documented.__code__
    return (
        _documented.__name__, _documented.__defaults__, _documented.__kwdefaults__, code.co_varnames[:2], code.co_argcount,
        _documented.__doc__, _documented.__annotations__, _documented.__module__.rpartition(".")[2], Thing.run.__qualname__, x,
    )  # fmt: skip


@program(vector)
def class_facts(x):
    return (
        Thing.__name__, Thing.__doc__, Thing.__mro__[-1] is object, Thing.__bases__, type(Thing()) is Thing, Thing().__class__ is Thing,
        Thing.__module__ == __name__, issubclass(Thing, object), "run" in vars(Thing), Thing.__dict__["kind"], x,
    )  # fmt: skip


@program(vector, Thing)
def object_facts(x, thing):
    names = [name for name in dir(thing) if not name.startswith("_")]
    vars(thing)["added"] = x
    thing.__dict__["value"] = 5
    return names, thing.run(x), sorted(thing.__dict__), getattr(thing, "kind"), thing.added


@program(vector)
def local_names(x):
    y = x + 1
    names = sorted(locals())
    return y, names, locals()["y"] is y


@program(vector)
def global_names(x):
    return x * globals()["FLAG"], "Thing" in globals(), "nothing" in globals()


@program(vector)
def global_names_written(x):
    globals()["ADDED"] = 7
    return x * ADDED


@program(vector)
def evaluated_text(x):
    return eval("x * 2 + FLAG", {"x": x, "FLAG": FLAG}), eval("1 + 2")


@program(vector)
def executed_text(x):
    space = {"x": x}
    exec("y = x * 2\nfor i in range(3):\n    y = y + i", space)
    return space["y"]


@program(vector)
def executed_definition(x):
    space = {}
    exec("def scale(v, by=2):\n    return v * by", space)
    return space["scale"](x), space["scale"](x, by=3)


@program(vector)
def identities(x):
    y = x
    thing = Thing()
    return id(x) == id(y), id(thing) == id(Thing), {id(x): "x"}[id(y)], thing is thing, id(x) in {id(y)}


@program(vector)
def hashes(x):
    return (
        hash(5),
        hash(True),
        hash(2.5),
        hash((1, 2)) == hash((1, 2)),
        hash("a") == hash("a"),
        hash(x) == hash(x),
        hash(None) == hash(None),
    )


@program(vector, Thing)
def weak_reference(x, thing):
    reference = weakref.ref(thing)
    return x * reference().value, reference() is thing


@program(vector)
def weak_reference_dies(x):
    thing = Thing(2)
    reference = weakref.ref(thing)
    y = x * reference().value
    del thing
    return y, reference() is None


@program(vector, lambda: weakref.WeakKeyDictionary(), Thing)
def weak_dictionary(x, table, thing):
    table[thing] = x * 2
    return table[thing], len(table)


@program(vector)
def weak_method_and_set(x):
    thing = Thing(3)
    method = weakref.WeakMethod(thing.run)
    group = weakref.WeakSet([thing])
    return method()(x), thing in group, len(group)


class Stack(Generic[T]):
    def __init__(self) -> None:
        self.items: list[T] = []

    def push(self, item: T) -> Stack[T]:
        self.items.append(item)
        return self


@runtime_checkable
class Runs(Protocol):
    def run(self, x): ...


@program(vector)
def generic_classes(x):
    stack: Stack[torch.Tensor] = Stack()
    typed = Stack[int]()
    return (
        stack.push(x).push(x + 1).items,
        typed.push(1).items,
        Stack[int].__origin__ is Stack,
        Stack.__parameters__ == (T,),
    )


@program(vector)
def protocols(x):
    return isinstance(Thing(), Runs), isinstance(5, Runs), issubclass(Thing, Runs), x


@program(vector)
def typing_helpers(x):
    value = cast("int", x.numel())
    hints = Optional[int]
    return (
        value,
        typing.get_origin(list[int]) is list,
        typing.get_args(dict[str, int]),
        hints == (int | None),
        typing.TYPE_CHECKING,
        x,
    )


@program(vector)
def annotations_run_nothing(x):
    y: Any = x + 1
    z: undefined_name
    return y


@program(vector)
def abstract_base_classes(x):
    class Sized:
        def __len__(self):
            return 3

        def __iter__(self):
            return iter([1, 2, 3])

        def __contains__(self, value):
            return value == 1

    sized = Sized()
    return (
        isinstance(sized, collections.abc.Sized), isinstance(sized, collections.abc.Collection), isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping), isinstance(5, numbers.Number), isinstance(x, collections.abc.Iterable),
        isinstance(len, collections.abc.Callable), issubclass(bool, numbers.Integral), isinstance("a", collections.abc.Hashable),
    )  # fmt: skip


@program(vector)
def abstract_mapping_of_ones_own(x):
    class Squares(collections.abc.Mapping):
        def __init__(self, n):
            self.n = n

        def __getitem__(self, key):
            if not 0 <= key < self.n:
                raise KeyError(key)
            return key * key

        def __len__(self):
            return self.n

        def __iter__(self):
            return iter(range(self.n))

    squares = Squares(4)
    return (
        squares[3],
        squares.get(9, "no"),
        list(squares.items()),
        2 in squares,
        dict(squares),
        squares == {0: 0, 1: 1, 2: 4, 3: 9},
        x,
    )


@program(vector)
def registered_virtual_subclass(x):
    class Marker(abc.ABC):
        pass

    Marker.register(Thing)
    return isinstance(Thing(), Marker), x


@program(vector)
def modules_by_name(x):
    module = sys.modules["math"]
    import math

    return module is math, x * math.pi, getattr(torch, "sin")(x), torch.__name__, hasattr(math, "nothing")


@program(vector)
def imported_inside(x):
    import json
    from collections import OrderedDict as Ordered

    return json.dumps({"n": x.numel()}), Ordered(a=1), json.loads("[1, 2]")


@program(vector)
def methods_by_name(x):
    thing = Thing(2)
    return (
        [getattr(thing, name)(x) for name in ("run",)],
        getattr(thing, "v" + "alue"),
        functools.partial(getattr, thing)("kind"),
    )


@program(vector)
def method_made_and_attached(x):
    thing = Thing(4)
    thing.twice = types.MethodType(lambda self, y: self.run(y) * 2, thing)
    return thing.twice(x), type(thing.twice).__name__


@program(vector)
def namespace_of_a_class_built_by_hand(x):
    made = types.new_class("Made", (Thing,), {}, lambda space: space.update(kind="made"))
    return made(3).run(x), made.kind


@program(vector, lambda: Thing([1, {"a": 2}]))
def object_copied(x, thing):
    shallow, deep = copy.copy(thing), copy.deepcopy(thing)
    deep.value[1]["a"] = x
    return shallow, deep, shallow.value is thing.value


@program(vector)
def frames_and_callers(x):
    def who():
        return sys._getframe(1).f_code.co_name

    return who(), inspect.currentframe() is not None, x
