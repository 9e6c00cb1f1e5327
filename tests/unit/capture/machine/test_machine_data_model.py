"""Classes, attributes, descriptors, operators, patterns: every program runs natively and in the machine."""

# The programs use names before and after their lives on purpose.
# ruff: noqa: F821

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import typing
import unittest
from fractions import Fraction

from tests.unit.capture.machine.machine_harness import cases

# -- attributes


def program_instances():
    class A:
        shared = [1]

        def __init__(self, x):
            self.x = x

        def method(self, y):
            return self.x + y

        @classmethod
        def make(cls, x):
            return cls(x)

        @staticmethod
        def static(x):
            return x * 2

    a = A.make(3)
    a.z = 1
    del a.z
    return a.method(4), A.method(a, 5), A.static(2), a.static(3), a.shared, hasattr(a, "z"), sorted(vars(a))


def program_missing_attribute():
    class A:
        pass

    return A().missing


def program_missing_class_attribute():
    class A:
        pass

    return A.missing


def program_missing_module_attribute():
    return abc.no_such_name


def program_missing_on_builtin():
    return (5).missing


def program_set_on_builtin():
    (5).x = 1


def program_property():
    class A:
        @property
        def x(self):
            return self._x * 2

        @x.setter
        def x(self, value):
            self._x = value + 1

        @x.deleter
        def x(self):
            del self._x

        @property
        def fixed(self):
            return 1

    a = A()
    a.x = 5
    before = a.x
    del a.x
    try:
        a.fixed = 2
    except AttributeError as error:
        return before, vars(a), str(error)


def program_property_raises():
    class A:
        @property
        def x(self):
            return self.y

    return A().x


def program_getattr_fallback():
    class A:
        def __getattr__(self, name):
            if name == "bad":
                raise AttributeError(name)
            return name.upper()

        @property
        def broken(self):
            raise AttributeError("inner")

    a = A()
    return a.foo, a.broken, getattr(a, "bad", "default"), hasattr(a, "bad")


def program_getattr_raises():
    class A:
        def __getattr__(self, name):
            raise AttributeError(f"no {name} here")

    return A().x


def program_getattribute():
    log = []

    class A:
        y = 1

        def __getattribute__(self, name):
            log.append(name)
            return object.__getattribute__(self, name)

        def __getattr__(self, name):
            return "fallback " + name

    a = A()
    return a.y, a.z, log


def program_setattr_delattr():
    log = []

    class A:
        def __setattr__(self, name, value):
            log.append((name, value))
            super().__setattr__(name, value)

        def __delattr__(self, name):
            log.append(name)
            object.__delattr__(self, name)

    a = A()
    a.x = 1
    setattr(a, "y", 2)
    del a.x
    delattr(a, "y")
    return log, vars(a)


def program_descriptors():
    class Data:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, cls=None):
            return self if obj is None else getattr(obj, self.name, "unset")

        def __set__(self, obj, value):
            setattr(obj, self.name, value * 2)

        def __delete__(self, obj):
            delattr(obj, self.name)

    class Plain:
        def __get__(self, obj, cls):
            return (obj is None, cls.__name__)

    class A:
        d = Data()
        p = Plain()

    a = A()
    out = [a.d, a.p, A.p, type(A.d).__name__]
    a.d = 4
    a.__dict__["p"] = "instance wins"
    a.__dict__["d"] = "instance loses"
    out += [a.d, a.p]
    del a.d
    return out, a.d


def program_cached_property():
    calls = []

    class A:
        @functools.cached_property
        def x(self):
            calls.append(1)
            return 42

    a = A()
    return a.x, a.x, calls


def program_slots():
    class A:
        __slots__ = ("x", "y")

        def __init__(self):
            self.x = 1

    a = A()
    out = [a.x, hasattr(a, "y"), hasattr(a, "__dict__")]
    try:
        a.z = 1
    except AttributeError as error:
        out.append(str(error))
    return out


def program_instance_dict():
    class A:
        pass

    a = A()
    a.__dict__["k"] = 1
    a.__dict__.update(m=2)
    return a.k, a.m, a.__dict__, a.__class__.__name__


def program_super():
    class A:
        def f(self):
            return ["A"]

        @classmethod
        def c(cls):
            return ["A", cls.__name__]

        @property
        def p(self):
            return ["pA"]

    class B(A):
        def f(self):
            return ["B", *super().f()]

        @classmethod
        def c(cls):
            return ["B", *super().c()]

        @property
        def p(self):
            return ["pB", *super().p]

    class C(A):
        def f(self):
            return ["C", *super().f()]

    class D(B, C):
        def f(self):
            def nested():
                return super(D, self).f()

            return ["D", *nested()]

    d = D()
    return d.f(), D.c(), d.p, super(D, d).f.__qualname__, [k.__name__ for k in D.__mro__]


def program_super_missing():
    class A:
        def f(self):
            return super().missing

    return A().f()


def program_super_without_class():
    def f(x):
        return super()

    return f(1)


def program_super_setattr():
    class A:
        def __init__(self):
            super().__setattr__("x", 1)
            super().__init__()

    return vars(A())


def program_module_getattr():
    import types

    m = types.ModuleType("made")
    m.__getattr__ = lambda name: "made " + name
    m.real = 1
    return m.real, m.other


# -- construction


def program_new():
    log = []

    class A:
        def __new__(cls, *args, **kwargs):
            log.append(("new", cls.__name__, args, kwargs))
            return super().__new__(cls)

        def __init__(self, *args, **kwargs):
            log.append(("init", args, kwargs))

    class Other:
        def __new__(cls):
            return 5

        def __init__(self):
            log.append("never")

    return type(A(1, k=2)).__name__, Other(), log


def program_init_returns_value():
    class A:
        def __init__(self):
            return 5

    A()


def program_init_mismatch():
    class A:
        def __init__(self, x):
            pass

    A()


def program_object_takes_no_arguments():
    class A:
        pass

    A(1)


def program_native_subclasses():
    class D(dict):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.extra = 1

        def __missing__(self, key):
            return "missing " + key

    class T(tuple):
        def __new__(cls, *items):
            return super().__new__(cls, items)

        @property
        def first(self):
            return self[0]

    class S(str):
        def shout(self):
            return self.upper() + "!"

    d = D(a=1)
    t = T(1, 2)
    return d["a"], d["zzz"], d.get("q"), d.extra, t, t.first, len(t), S("hi").shout(), S("a") + "b", d


def program_class_body():
    class A:
        x = 1
        y = [x for _ in range(2)] if False else x + 1

        for i in range(3):
            pass

        def f(self):
            return __class__.__name__

        n: int = 3
        unset: str

    return A.y, A.i, A().f(), A.__annotations__, A.__qualname__, A.__module__, A.__doc__


def program_class_closure():
    value = "outer"

    class A:
        copy = value
        value = "inner"

        def f(self):
            return value

    return A.copy, A.value, A().f()


def program_metaclass():
    log = []

    class Meta(type):
        @classmethod
        def __prepare__(mcs, name, bases, **kwargs):
            log.append(("prepare", name, kwargs))
            return {"prepared": True}

        def __new__(mcs, name, bases, namespace, **kwargs):
            return super().__new__(mcs, name, bases, namespace)

        def __init__(cls, name, bases, namespace, **kwargs):
            super().__init__(name, bases, namespace)

        def __call__(cls, *args):
            log.append(("call", args))
            return super().__call__(*args)

        def __getattr__(cls, name):
            return "meta " + name

        def __instancecheck__(cls, obj):
            return obj == "magic"

        def __iter__(cls):
            return iter([cls.__name__])

        def __contains__(cls, item):
            return item == 3

        def __len__(cls):
            return 9

        @property
        def prop(cls):
            return cls.__name__ + " prop"

    class A(metaclass=Meta, flag=1):
        def __init__(self, x):
            self.x = x

    return (
        A(3).x,
        A.unknown,
        A.prop,
        A.prepared,
        isinstance("magic", A),
        isinstance(5, (int, A)),
        list(A),
        3 in A,
        len(A),
        log,
    )


def program_metaclass_conflict():
    class M(type):
        pass

    class N(type):
        pass

    class A(metaclass=M):
        pass

    class B(metaclass=N):
        pass

    class C(A, B):
        pass


def program_init_subclass():
    made = []

    class Base:
        def __init_subclass__(cls, tag=None, **kwargs):
            super().__init_subclass__(**kwargs)
            made.append((cls.__name__, tag))

    class A(Base, tag="t"):
        pass

    class B(A):
        pass

    return made


def program_class_getitem():
    class A:
        def __class_getitem__(cls, item):
            return cls.__name__, item

    return A[int], A["x", 1], list[int], typing.Optional[int]


def program_mro_entries():
    class Proxy:
        def __mro_entries__(self, bases):
            return (dict,)

    class A(Proxy()):
        pass

    return A.__bases__, type(A.__orig_bases__[0]).__name__


# -- operators


class Number:
    def __init__(self, value, log=None):
        self.value = value

    def __repr__(self):
        return f"N({self.value})"

    def _other(self, other):
        return other.value if isinstance(other, Number) else other

    def __add__(self, other):
        return Number(self.value + self._other(other)) if isinstance(other, (int, Number)) else NotImplemented

    def __radd__(self, other):
        return Number(("r", other, self.value))

    def __iadd__(self, other):
        self.value += self._other(other)
        return self

    def __sub__(self, other):
        return Number(self.value - self._other(other))

    def __matmul__(self, other):
        return "matmul"

    def __pow__(self, other, modulo=None):
        return ("pow", other, modulo)

    def __rpow__(self, other):
        return ("rpow", other)

    def __neg__(self):
        return Number(-self.value)

    def __invert__(self):
        return "inverted"

    def __abs__(self):
        return abs(self.value)

    def __eq__(self, other):
        return isinstance(other, Number) and self.value == other.value

    def __lt__(self, other):
        return self.value < self._other(other)

    def __hash__(self):
        return hash(self.value)

    def __bool__(self):
        return bool(self.value)

    def __index__(self):
        return self.value

    def __call__(self, *args, **kwargs):
        return self.value, args, kwargs

    def __format__(self, spec):
        return f"<{self.value}:{spec}>"


def program_operators():
    a, b = Number(3), Number(4)
    c = a
    c += 1
    d = 2
    d -= 0
    return a + b, a + 1, 1 + a, a - b, a @ b, -a, ~a, abs(a), c is a, c, 2**a, a**2, pow(a, 2, 5), [1] * 2


def program_comparisons():
    a, b = Number(3), Number(4)
    return a == b, a != b, a < b, a > b, a == 3, a != 3, a == Number(3), sorted([b, a]), max(a, b), a in [b, Number(3)]


def program_unsupported_operand():
    return Number(1) + "text"


def program_unsupported_comparison():
    return Number(1) >= Number(2)


def program_unsupported_in_place():
    a = Number(1)
    a *= 2


def program_truth():
    class L:
        def __len__(self):
            return 0

    class Bad:
        def __bool__(self):
            return 5

    out = [bool(Number(0)), not Number(1), Number(0) or "or", Number(2) and "and", bool(L()), 1 if L() else 2]
    try:
        if Bad():
            pass
    except TypeError as error:
        out.append(str(error))
    return out


def program_callable_and_format():
    n = Number(3)
    return n(1, k=2), f"{n:x}", f"{n!r}", format(n, "y"), str(n), "%s" % n, [10, 20, 30, 40][n], n == 3


def program_reflected_priority():
    class Base:
        def __add__(self, other):
            return "Base.add"

        def __radd__(self, other):
            return "Base.radd"

    class Same(Base):
        pass

    class Derived(Base):
        def __radd__(self, other):
            return "Derived.radd"

    class Lister(list):
        def __radd__(self, other):
            return "Lister.radd"

    return Base() + Same(), Base() + Derived(), Same() + Base(), 1 + Base(), [1] + Base(), [1] + Lister(), "a" + Base()


def program_not_implemented_falls_through():
    class A:
        def __eq__(self, other):
            return NotImplemented

        def __lt__(self, other):
            return NotImplemented

    class B:
        def __gt__(self, other):
            return "B.gt"

    return A() == A(), A() != 5, A() < B()


def program_containers():
    class Box:
        def __init__(self):
            self.data = {}

        def __getitem__(self, key):
            return self.data[key]

        def __setitem__(self, key, value):
            self.data[key] = value

        def __delitem__(self, key):
            del self.data[key]

        def __contains__(self, key):
            return key in self.data

        def __len__(self):
            return len(self.data)

        def __iter__(self):
            return iter(self.data)

        def __reversed__(self):
            return "reversed"

    b = Box()
    b["x"] = 1
    b[1:2] = "slice" if False else 2
    b["y"] = 3
    del b["y"]
    return b["x"], "x" in b, "q" in b, len(b), [k for k in b if isinstance(k, str)], reversed(b), b[1:2]


def program_container_key_error():
    class Box:
        def __getitem__(self, key):
            raise KeyError(key)

    return Box()["k"]


def program_not_subscriptable():
    return (5)[0]


def program_sequence_protocol():
    class Squares:
        def __getitem__(self, i):
            if i > 4:
                raise IndexError
            return i * i

    s = Squares()
    a, *rest = s
    return list(s), 9 in s, 10 in s, [x for x in s], a, rest, tuple(zip(s, "ab"))


def program_iterators():
    class Countdown:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n <= 0:
                raise StopIteration
            self.n -= 1
            return self.n

    a, b, c = Countdown(3)
    return (
        a,
        b,
        c,
        list(Countdown(3)),
        sum(Countdown(4)),
        [*Countdown(2)],
        next(Countdown(1)),
        max(Countdown(5)),
        dict(enumerate(Countdown(2))),
        2 in Countdown(4),
        list(map(str, Countdown(2))),
    )


def program_bad_iterator():
    class A:
        def __iter__(self):
            return 5

    for _ in A():
        pass


def program_not_iterable():
    for _ in 5:
        pass


def program_iter_none():
    class A:
        __iter__ = None

    iter(A())


def program_hash_and_equality_in_dict():
    d = {Number(1): "one"}
    return d[Number(1)], Number(2) in d, {Number(1), Number(1)}


def program_repr_and_str():
    class A:
        def __repr__(self):
            return "repr"

    class B:
        def __str__(self):
            return 5

    out = [str(A()), repr(A()), f"{A()}", "%r" % A(), [A()]]
    try:
        str(B())
    except TypeError as error:
        out.append(str(error))
    return out


def program_instance_dunder_is_ignored():
    class A:
        def __len__(self):
            return 1

    a = A()
    a.__len__ = lambda: 99
    return len(a), a.__len__()


def program_length_checked():
    class A:
        def __len__(self):
            return -1

    len(A())


# -- the standard library on top


def program_dataclass():
    @dataclasses.dataclass(order=True)
    class P:
        x: int
        y: int = 2
        z: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.total = self.x + self.y

    p = P(1)
    return p, p == P(1), p < P(2), p.total, dataclasses.asdict(p), dataclasses.replace(p, y=5)


def program_enum():
    class Colour(enum.Enum):
        RED = 1
        GREEN = enum.auto()

        @property
        def nice(self):
            return self.name.title()

    class Flag(enum.IntFlag):
        A = 1
        B = 2

    return Colour.RED, Colour(2), Colour["RED"].nice, list(Colour), Flag.A | Flag.B, Colour.RED in Colour


def program_namedtuple():
    P = collections.namedtuple("P", "x y", defaults=[5])

    class Q(typing.NamedTuple):
        a: int
        b: str = "b"

    return P(1), P(1)._replace(y=2), Q(1), Q(1).b, P.__module__


def program_ordered_and_default_dict():
    d = collections.defaultdict(lambda: [0])
    d["x"].append(1)
    c = collections.Counter("hello")
    return dict(d), c.most_common(1), collections.OrderedDict(a=1), collections.ChainMap({"a": 1}, {"b": 2})["b"]


def program_abstract_class():
    class Base(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    class Derived(Base):
        def f(self):
            return 1

    @Base.register
    class Virtual:
        pass

    out = [Derived().f(), isinstance(Virtual(), Base), issubclass(int, Base)]
    try:
        Base()
    except TypeError as error:
        out.append("abstract" in str(error))
    return out


def program_total_ordering_and_singledispatch():
    @functools.total_ordering
    class V:
        def __init__(self, v):
            self.v = v

        def __eq__(self, other):
            return self.v == other.v

        def __lt__(self, other):
            return self.v < other.v

    @functools.singledispatch
    def show(x):
        return "object"

    @show.register
    def _(x: int):
        return "int"

    @show.register(list)
    def _(x):
        return "list"

    return V(1) <= V(2), V(2) >= V(3), show(1), show([]), show("s")


def program_lru_cache():
    calls = []

    @functools.lru_cache(maxsize=None)
    def f(x):
        calls.append(x)
        return x * 2

    return f(1), f(1), f(2), calls


# -- match


@dataclasses.dataclass
class Point:
    x: int
    y: int


def _classify(value):
    match value:
        case 0 | 1:
            return "small"
        case int(n) if n > 100:
            return "big", n
        case int():
            return "int"
        case "a" | "b" as letter:
            return "letter", letter
        case str(text):
            return "text", text
        case []:
            return "empty"
        case [x]:
            return "one", x
        case [first, *rest] if first == "head":
            return "head", rest
        case (a, b):
            return "pair", a, b
        case {"kind": "k", "n": n, **rest}:
            return "mapping", n, rest
        case {}:
            return "any mapping"
        case Point(0, y=0):
            return "origin"
        case Point(x=0, y=y) | Point(x=y, y=0):
            return "axis", y
        case Point(x, y):
            return "point", x, y
        case None:
            return "none"
        case _:
            return "other"


def program_match():
    values = [
        0, 1, 5, 500, "a", "zz", [], [7], ["head", 1, 2], (3, 4), {"kind": "k", "n": 2, "m": 3}, {"x": 1},
        Point(0, 0), Point(0, 3), Point(4, 0), Point(1, 2), None, 2.5, True, b"bytes", range(2), [1, 2, 3],
    ]  # fmt: skip
    return [_classify(value) for value in values]


def program_match_too_many_positions():
    match Point(1, 2):
        case Point(1, 2, 3):
            return "no"


def program_match_not_a_class():
    thing = 5
    match 1:
        case thing():
            return "no"


def program_registered_classes_are_not_asked_first():
    log = []

    class Abstract(abc.ABC):
        def __eq__(self, other):
            log.append("left ==")
            return NotImplemented

        def __add__(self, other):
            log.append("left +")
            return NotImplemented

    class Registered:
        def __eq__(self, other):
            log.append("right ==")
            return NotImplemented

        def __radd__(self, other):
            log.append("right +")
            return 1

    Abstract.register(Registered)
    return Abstract() == Registered(), Abstract() + Registered(), log


def program_sums_of_generators():
    tenths, whole = [0.1] * 10, [1, True, 2]
    return (
        sum(x for x in tenths),
        sum((x for x in tenths), 1),
        sum((x for x in whole + tenths), 0.5),
        sum(x for x in tenths + whole),
        sum((x for x in tenths), 1j),
        sum(complex(x, -x) for x in tenths),
        sum((x for x in [*tenths, Fraction(1, 3), *tenths]), 0),
        sum(x for x in whole),
        sum(([x] for x in whole), []),
        sum(x for x in ()),
    )


def program_sum_of_a_generator_error():
    return sum(x for x in [0.1, "a"])


ProgramTests = cases(globals())

if __name__ == "__main__":
    unittest.main()
