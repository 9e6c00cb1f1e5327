"""Classes around tensors as users write them: registries, configurations, descriptors, metaclasses, proxies, mixins."""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import enum
import functools
import types
import typing
import weakref
from typing import Any, ClassVar

import torch
from torch import nn

from tests.python.harness import program
from tests.python.tensors import frozen, values

ROWS = [lambda: (values(2, 3),), lambda: (values(4, 3, seed=1),), lambda: (values(2, 3, seed=2).double(),)]


class Registry:
    _entries: ClassVar[dict[str, type]] = {}

    @classmethod
    def register(cls, *names):
        def wrap(target):
            for name in names or (target.__name__.lower(),):
                if name in cls._entries:
                    raise KeyError(f"{name} twice")
                cls._entries[name] = target
            return target

        return wrap

    @classmethod
    def build(cls, spec):
        name, *args = spec if isinstance(spec, (list, tuple)) else (spec,)
        try:
            return cls._entries[name](*args)
        except KeyError as error:
            raise ValueError(f"unknown layer {name!r}; have {sorted(cls._entries)}") from error


@Registry.register("scale", "mul")
class Scale:
    def __init__(self, by=2.0):
        self.by = by

    def __call__(self, x):
        return x * self.by


@Registry.register()
class Shift:
    def __init__(self, by=1.0):
        self.by = by

    def __call__(self, x):
        return x + self.by


@program(calls=[
    lambda: (values(2), ["scale", ("shift", 3.0)]), lambda: (values(2), [("mul", 0.5)]), lambda: (values(2), ["nothing"]),
    lambda: (values(3), []),
])  # fmt: skip
def layers_built_from_a_registry(x, specs):
    return functools.reduce(lambda value, layer: layer(value), map(Registry.build, specs), x)


class Config(dict):
    """A dict with attributes, nested."""

    def __getattr__(self, name):
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name) from None
        return Config(value) if type(value) is dict else value

    def __setattr__(self, name, value):
        self[name] = value


SETTINGS = Config(model={"scale": 2.0, "layers": 2}, name="base")


@program(
    calls=[
        lambda: (values(2), {}),
        lambda: (values(2), {"scale": 3.0}),
        lambda: (values(2), {"layers": 1, "scale": 0.5}),
    ]
)
def settings_merged(x, changes):
    merged = Config({**SETTINGS.model, **changes})
    merged.total = merged.scale * merged.layers
    for _ in range(merged.layers):
        x = x * merged.scale
    return x, merged, getattr(merged, "missing", "none")


class Validated:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, self.low)

    def __set__(self, instance, value):
        if not self.low <= value <= self.high:
            raise ValueError(f"{self.name[1:]} must be in [{self.low}, {self.high}], not {value}")
        setattr(instance, self.name, value)


class Augmentation:
    strength = Validated(0.0, 1.0)
    copies = Validated(1, 4)

    def __init__(self):
        self.log = []

    def __call__(self, x):
        self.log.append((self.strength, self.copies))
        return torch.cat([x * (1 + self.strength * i) for i in range(self.copies)])


AUGMENT = Augmentation()


@program(
    calls=[
        lambda: (values(2), 0.5, 2),
        lambda: (values(2), 2.0, 1),
        lambda: (values(2), 0.25, 9),
        lambda: (values(2), 1, 1),
    ]
)
def descriptors_validate(x, strength, copies):
    try:
        AUGMENT.strength = strength
        AUGMENT.copies = copies
    except ValueError as error:
        return AUGMENT(x), str(error)
    return AUGMENT(x), Augmentation.strength.high


class Lazy:
    """Computes on first use and then is out of the way."""

    def __init__(self, function):
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.function(instance)
        return value


class Statistics:
    made: ClassVar[int] = 0

    def __init__(self, data):
        self.data = data
        type(self).made += 1

    @Lazy
    def mean(self):
        return self.data.mean(0)

    @Lazy
    def centered(self):
        return self.data - self.mean

    @functools.cached_property
    def covariance(self):
        return self.centered.T @ self.centered / (len(self.data) - 1)


@program(calls=ROWS)
def attributes_made_lazily(x):
    stats = Statistics(x)
    first = stats.covariance
    return first is stats.covariance, sorted(vars(stats)), stats.covariance, Statistics.made


KEPT = Statistics(values(4, 2))


@program(calls=ROWS)
def lazy_attribute_of_a_global(x):
    return x.sum() + KEPT.mean.sum(), "mean" in vars(KEPT)


class Shape(enum.Enum):
    RELU = "relu"
    GELU = "gelu"
    ID = "identity"

    @classmethod
    def _missing_(cls, value):
        return next((each for each in cls if each.value == str(value).lower()), None)

    def __call__(self, x):
        match self:
            case Shape.RELU:
                return x.relu()
            case Shape.GELU:
                return torch.nn.functional.gelu(x)
            case _:
                return x


@program(
    calls=[
        lambda: (values(3), "RELU"),
        lambda: (values(3), "gelu"),
        lambda: (values(3), "Identity"),
        lambda: (values(3), "tanh"),
    ]
)
def enum_that_is_called(x, name):
    kind = Shape(name)
    return kind(x), kind, kind.name


class Mode(enum.IntFlag):
    TRAIN = enum.auto()
    NOISY = enum.auto()
    LOUD = enum.auto()
    ALL = TRAIN | NOISY | LOUD


@program(
    calls=[
        lambda: (values(3), Mode.TRAIN),
        lambda: (values(3), Mode.TRAIN | Mode.LOUD),
        lambda: (values(3), Mode(0)),
        lambda: (values(3), Mode.ALL),
    ]
)
def flags_decide(x, mode):
    if mode & Mode.NOISY:
        x = x + torch.randn_like(x)
    if Mode.LOUD in mode:
        print(mode, len(x))
    return x * int(mode), mode & ~Mode.LOUD, [each.name for each in Mode if each in mode]


class CountingMeta(type):
    def __new__(mcs, name, bases, namespace, **options):
        cls = super().__new__(mcs, name, bases, {k: v for k, v in namespace.items() if not k.startswith("drop_")})
        cls.options = options
        return cls

    def __call__(cls, *args, **kwargs):
        instance = super().__call__(*args, **kwargs)
        cls.instances = getattr(cls, "instances", 0) + 1
        return instance

    def __len__(cls):
        return getattr(cls, "instances", 0)

    def __getitem__(cls, factor):
        return functools.partial(cls, factor)


class Gain(metaclass=CountingMeta, bias=0.5):
    drop_me = 1

    def __init__(self, factor, x):
        self.out = x * factor + self.options["bias"]


@program(calls=ROWS)
def metaclass_counts_and_indexes(x):
    return Gain[3](x).out, len(Gain), hasattr(Gain, "drop_me"), Gain(2, x).out.shape


class Timestamped:
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.stamps = []

    def mark(self, what):
        self.stamps.append(what)
        return self


class Named:
    def __init__(self, name="?", **kwargs):
        super().__init__(**kwargs)
        self.name = name

    def __repr__(self):
        return f"<{type(self).__name__} {self.name} {', '.join(c.__name__ for c in type(self).__mro__[1:-1])}>"


class Pipeline(Timestamped, Named):
    def __init__(self, *stages, **kwargs):
        super().__init__(**kwargs)
        self.stages = stages

    def __call__(self, x):
        for place, stage in enumerate(self.stages):
            x = stage(x)
            self.mark((place, tuple(x.shape)))
        return x

    def __or__(self, other):
        return Pipeline(*self.stages, other, name=f"{self.name}+")


@program(calls=ROWS)
def mixins_with_keywords(x):
    line = Pipeline(torch.relu, name="p") | (lambda value: value[:1]) | torch.neg
    return line(x), repr(line), line.stamps


class Proxy:
    def __init__(self, target):
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_seen", [])

    def __getattr__(self, name):
        self._seen.append(name)
        return getattr(self._target, name)

    def __setattr__(self, name, value):
        self._seen.append("=" + name)
        setattr(self._target, name, value)

    def __delattr__(self, name):
        delattr(self._target, name)

    def __call__(self, *args):
        return self._target(*args)


PROXIED = Proxy(frozen(lambda: nn.Linear(3, 2)))


@program(calls=[lambda: (values(2, 3),), lambda: (values(4, 3),), lambda: (values(1, 3),)])
def module_behind_a_proxy(x):
    PROXIED.note = len(x)
    out = PROXIED(x) + PROXIED.bias
    return out, PROXIED.out_features, list(PROXIED._seen)


class Units:
    """A number with a unit that mixes with tensors."""

    __array_priority__ = 1000

    def __init__(self, value, unit):
        self.value, self.unit = value, unit

    def __mul__(self, other):
        if isinstance(other, Units):
            return Units(self.value * other.value, "*".join(sorted((self.unit, other.unit))))
        return Units(self.value * other, self.unit)

    __rmul__ = __mul__

    def __add__(self, other):
        if not isinstance(other, Units) or other.unit != self.unit:
            return NotImplemented
        return Units(self.value + other.value, self.unit)

    def __eq__(self, other):
        return isinstance(other, Units) and self.unit == other.unit

    def __hash__(self):
        return hash(self.unit)

    def __str__(self):
        return f"{tuple(self.value.shape)} {self.unit}"

    def __bool__(self):
        return self.value.numel() > 0


@program(calls=[lambda: (values(2), "m"), lambda: (values(3), "s"), lambda: (values(0), "m")])
def quantities_with_units(x, unit):
    length = Units(x, unit)
    area = length * Units(x + 1, "m") * 2.0
    try:
        length + area
    except TypeError as error:
        message = str(error)
    return (
        (length + Units(x, unit)).value,
        str(area),
        area.value,
        message,
        bool(length),
        len({length, area, Units(x, unit)}),
    )


@dataclasses.dataclass(frozen=True)
class Spec:
    width: int
    scale: float = 1.0
    tags: tuple[str, ...] = ()
    extra: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "doubled", self.width * 2)

    def widened(self, **changes):
        return dataclasses.replace(self, width=self.width + 1, **changes)


LAYERS_BY_SPEC: dict[Spec, torch.Tensor] = {}


@program(
    calls=[
        lambda: (values(3), Spec(2)),
        lambda: (values(3), Spec(2, tags=("a",))),
        lambda: (values(3), Spec(2)),
        lambda: (values(3), Spec(4, 0.5)),
    ]
)
def frozen_specs_as_keys(x, spec):
    if spec not in LAYERS_BY_SPEC:
        LAYERS_BY_SPEC[spec] = x * spec.scale * spec.doubled
    wide = spec.widened(scale=9.0)
    return LAYERS_BY_SPEC[spec] + 1, len(LAYERS_BY_SPEC), wide, dataclasses.astuple(wide)[:2]


@dataclasses.dataclass
class TrainState:
    weights: dict[str, torch.Tensor]
    step: int = 0
    log: list[str] = dataclasses.field(default_factory=list, repr=False)

    def apply(self, **updates):
        for name, change in updates.items():
            self.weights[name] = self.weights[name] + change
        self.step += 1
        self.log.append(f"{self.step}: {', '.join(sorted(updates))}")
        return self


STATE = TrainState({"w": torch.ones(3), "b": torch.zeros(3)})


@program(
    calls=[lambda: (values(3), "w"), lambda: (values(3), "b"), lambda: (values(3), "missing"), lambda: (values(3), "w")]
)
def state_of_a_dataclass(x, name):
    return STATE.apply(**{name: x}).weights[name] * 2, STATE.step, STATE.log[-1]


class Base(abc.ABC):
    registry: ClassVar[list] = []

    def __init_subclass__(cls, /, tag="", **kwargs):
        super().__init_subclass__(**kwargs)
        cls.registry.append((cls.__name__, tag))

    @property
    @abc.abstractmethod
    def factor(self): ...

    @abc.abstractmethod
    def forward(self, x): ...

    def __call__(self, x):
        return self.forward(x) * self.factor


class Doubles(Base, tag="two"):
    factor = 2

    def forward(self, x):
        return x + 1


class Halves(Base, tag="half"):
    @property
    def factor(self):
        return 0.5

    def forward(self, x):
        return super().forward(x) if False else x - 1


class Unfinished(Base):
    factor = 1


@program(
    calls=[
        lambda: (values(3), Doubles),
        lambda: (values(3), Halves),
        lambda: (values(3), Unfinished),
        lambda: (values(3), Doubles),
    ]
)
def abstract_classes_made(x, cls):
    try:
        return cls()(x), Base.registry
    except TypeError as error:
        return str(error), cls.__abstractmethods__


class Stack(collections.UserList):
    def push(self, item):
        self.append(item)
        return self

    def __matmul__(self, other):
        return [a @ other for a in self]


@program(calls=ROWS)
def user_list_with_an_operator(x):
    stack = Stack([x]).push(x + 1)
    return stack @ x.T, len(stack), stack[1:] == Stack([x + 1]) if False else type(stack[1:]).__name__


class Table(collections.UserDict):
    def __missing__(self, key):
        self[key] = value = torch.full((2,), float(len(key)))
        return value


TABLE = Table()


@program(calls=[lambda: (values(2), "ab"), lambda: (values(2), "xyz"), lambda: (values(2), "ab")])
def user_dict_that_fills_itself(x, key):
    return x + TABLE[key], list(TABLE), key in TABLE


class Ring:
    def __init__(self, size, width):
        self.data = torch.zeros(size, width)
        self.head = 0
        self.full = False

    def push(self, row):
        self.data[self.head] = row
        self.head = (self.head + 1) % len(self.data)
        self.full |= self.head == 0

    def ordered(self):
        if not self.full:
            return self.data[: self.head]
        return torch.cat([self.data[self.head :], self.data[: self.head]])

    def __len__(self):
        return len(self.data) if self.full else self.head


RING = Ring(3, 2)


@program(calls=[lambda: (values(2, seed=i),) for i in range(5)])
def ring_buffer(x):
    RING.push(x)
    return RING.ordered().mean(0), len(RING), RING.full


class Observed:
    def __init__(self):
        self._observers = weakref.WeakSet()
        self.value = None

    def subscribe(self, observer):
        self._observers.add(observer)

    def publish(self, value):
        self.value = value
        return [observer.notify(value) for observer in self._observers]


class Listener:
    def __init__(self):
        self.heard = []

    def notify(self, value):
        self.heard.append(value.sum())
        return len(self.heard)


OBSERVED, LISTENER = Observed(), Listener()
OBSERVED.subscribe(LISTENER)


@program(calls=ROWS)
def observers_held_weakly(x):
    return OBSERVED.publish(x), x * 2


class Handler:
    handlers: ClassVar[dict[type, str]] = {
        int: "number",
        float: "number",
        str: "text",
        torch.Tensor: "tensor",
        list: "many",
    }

    def handle(self, value):
        for cls in type(value).__mro__:
            if cls in self.handlers:
                return getattr(self, "on_" + self.handlers[cls])(value)
        raise NotImplementedError(type(value).__name__)

    def on_number(self, value):
        return torch.tensor(float(value))

    def on_text(self, value):
        return torch.tensor([float(ord(c)) for c in value])

    def on_tensor(self, value):
        return value.flatten()

    def on_many(self, value):
        return torch.cat([self.handle(each).reshape(-1) for each in value])


@program(
    calls=[
        lambda: ([1, "ab", values(2)],),
        lambda: (True,),
        lambda: (values(2, 2),),
        lambda: ({1},),
        lambda: ([2.5, [3]],),
    ]
)
def handled_by_type(value):
    return Handler().handle(value) * 2


class Immutable:
    __slots__ = ("_hash", "parts")

    def __init__(self, *parts):
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, name, value):
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __hash__(self):
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(self.parts))
        return self._hash

    def __eq__(self, other):
        return isinstance(other, Immutable) and self.parts == other.parts


BY_KEY = {Immutable("a", 1): 2.0}


@program(
    calls=[
        lambda: (values(2), Immutable("a", 1)),
        lambda: (values(2), Immutable("b")),
        lambda: (values(2), Immutable("a", 1)),
    ]
)
def immutable_keys(x, key):
    found = BY_KEY.get(key, 10.0)
    try:
        key.parts = ()
    except AttributeError as error:
        return x * found, str(error)
    return x


Scalar = typing.TypeVar("Scalar")


class Box(typing.Generic[Scalar]):
    def __init__(self, value: Scalar):
        self.value = value

    def map(self, function):
        return type(self)(function(self.value))

    def __class_getitem__(cls, item):
        return super().__class_getitem__(item)

    def __iter__(self):
        yield self.value


@program(calls=ROWS)
def boxes_mapped(x):
    box = Box[torch.Tensor](x).map(torch.sin).map(lambda v: v[0])
    (inner,) = box
    return inner, typing.get_args(Box[int]), box.__orig_class__ if hasattr(box, "__orig_class__") else None


class Frozen(nn.Module):
    """A module whose attributes are limited."""

    allowed: ClassVar[set[str]] = {"weight", "calls", "training"}

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]), requires_grad=False)
        self.calls = 0

    def __setattr__(self, name, value):
        if not name.startswith("_") and name not in self.allowed:
            raise AttributeError(f"no {name} here")
        super().__setattr__(name, value)

    def forward(self, x, name):
        self.calls += 1
        setattr(self, name, self.calls)
        return x * self.weight


FROZEN = Frozen()


@program(calls=[lambda: (values(2), "calls"), lambda: (values(2), "other"), lambda: (values(2), "calls")])
def module_that_limits_its_attributes(x, name):
    try:
        return FROZEN(x, name)
    except AttributeError as error:
        return str(error), FROZEN.calls


class Delegating(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.names = []

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            self.__dict__["names"].append(name)
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return x @ self.weight.T + self.inner.bias


DELEGATING = frozen(Delegating)


@program(calls=[lambda: (values(2, 3),), lambda: (values(4, 3),), lambda: (values(1, 3),)])
def attributes_delegated_by_a_module(x):
    return DELEGATING(x), DELEGATING.in_features, DELEGATING.names, hasattr(DELEGATING, "nothing")


class Cloned:
    def __init__(self, x, notes):
        self.x, self.notes = x, notes

    def __copy__(self):
        return Cloned(self.x, self.notes)

    def __deepcopy__(self, memo):
        made = Cloned(self.x.clone(), copy.deepcopy(self.notes, memo))
        memo[id(self)] = made
        return made


@program(calls=ROWS)
def copies_shallow_and_deep(x):
    first = Cloned(x, ["a"])
    shallow, deep = copy.copy(first), copy.deepcopy([first, first])
    deep[0].notes.append("b")
    shallow.x.add_(1)
    return x, shallow.x is x, deep[0] is deep[1], deep[0].x, first.notes, deep[1].notes


@program(calls=ROWS)
def namespace_updated(x):
    space = types.SimpleNamespace(x=x, n=len(x))
    space.__dict__.update(y=x * space.n)
    del space.n
    return space.y, "n" in vars(space), sorted(vars(space))


class Expression:
    """Operators that build a tree, evaluated at the end."""

    def __init__(self, op, *args):
        self.op, self.args = op, args

    @staticmethod
    def wrap(value):
        return value if isinstance(value, Expression) else Expression("const", value)

    def __add__(self, other):
        return Expression("add", self, self.wrap(other))

    def __rsub__(self, other):
        return Expression("sub", self.wrap(other), self)

    def __pow__(self, power, modulo=None):
        return Expression("pow", self, self.wrap(power))

    def __neg__(self):
        return Expression("neg", self)

    def __lt__(self, other):
        return Expression("lt", self, self.wrap(other))

    def __getitem__(self, index):
        return Expression("getitem", self, self.wrap(index))

    def run(self, env):
        if self.op == "const":
            return self.args[0]
        if self.op == "var":
            return env[self.args[0]]
        import operator

        return getattr(operator, self.op)(*(each.run(env) for each in self.args))


@program(calls=[lambda: (values(3), 2), lambda: (values(4), 3), lambda: (values(3), 0.5)])
def expressions_built_lazily(x, n):
    v = Expression("var", "x")
    tree = (1 - (-v + n)) ** 2
    return tree.run({"x": x}), (tree < 1).run({"x": x}), tree[1:].run({"x": x}), tree.args[1].args


class Event:
    __match_args__ = ("kind", "payload")

    def __init__(self, kind, payload):
        self.kind, self.payload = kind, payload


def react(event, x):
    match event:
        case Event("scale", float() | int() as by) if by > 0:
            return x * by
        case Event("slice", (start, stop)):
            return x[start:stop]
        case Event("add", {"value": value, **rest}):
            return x + value, rest
        case Event(kind, [first, *others]):
            return x * first, kind, others
        case Event(kind=other):
            raise ValueError(f"no event {other!r}")


@program(calls=[
    lambda: (values(4), Event("scale", 2)), lambda: (values(4), Event("slice", (1, 3))),
    lambda: (values(4), Event("add", {"value": 1.5, "note": 1})), lambda: (values(4), Event("many", [3, 4, 5])),
    lambda: (values(4), Event("scale", -1)),
])  # fmt: skip
def events_matched(x, event):
    return react(event, x)
