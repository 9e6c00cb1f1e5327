"""Records: dataclasses, enumerations, flags, named tuples, typed dicts."""

from __future__ import annotations

import collections
import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypedDict

import torch

from tests.python.harness import program


def vector():
    return torch.arange(4.0)


@dataclass
class Config:
    width: int = 4
    rate: float = 0.5
    names: list = field(default_factory=list)
    extra: dict = field(default_factory=dict, repr=False)
    count: ClassVar[int] = 0

    def scaled(self, x):
        return x * self.rate


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0

    def moved(self, by):
        return dataclasses.replace(self, x=self.x + by)


@dataclass(order=True)
class Ranked:
    rank: int
    value: Any = field(compare=False)


@dataclass
class Derived(Config):
    depth: int = 2
    doubled: int = field(init=False)

    def __post_init__(self):
        self.doubled = self.width * 2


@dataclass(slots=True)
class Small:
    a: int
    b: Any = None


@dataclass(kw_only=True)
class Named:
    first: int
    second: dataclasses.InitVar[int] = 5
    total: int = 0

    def __post_init__(self, second):
        self.total = self.first + second


@program(vector)
def dataclass_made_and_returned(x):
    config = Config(rate=2.0)
    config.names.append("a")
    config.extra["x"] = x
    return config, config.scaled(x), repr(Config(names=["b"])), Config() == Config(), Config.count


@program(vector, lambda: Config(names=["n"]))
def dataclass_argument_mutated(x, config):
    config.width += 1
    config.names.append(x)
    config.extra = {"k": config.scaled(x)}
    return config.width


@program(vector)
def dataclass_frozen(x):
    point = Point(1.0)
    try:
        point.x = 2.0
    except dataclasses.FrozenInstanceError as error:
        message = str(error)
    return point.moved(3), message, point == Point(1.0), len({point, Point(1.0)}), x * point.x


@program(vector, lambda: Point(1.0, 2.0))
def dataclass_frozen_argument(x, point):
    return x * point.x + point.y, point.moved(1)


@program(vector)
def dataclass_helpers(x):
    config = Config(names=["a"], extra={"k": [1]})
    copied = dataclasses.asdict(config)
    copied["names"].append("b")
    return (
        copied, dataclasses.astuple(Point(1, 2)), [f.name for f in dataclasses.fields(Derived)], config.names,
        dataclasses.is_dataclass(config), dataclasses.replace(config, width=9).width,
    )  # fmt: skip


@program(vector)
def dataclass_with_tensor_asdict(x):
    return dataclasses.asdict(Small(1, x))["b"] * 2


@program(vector)
def dataclass_ordering(x):
    items = [Ranked(3, x), Ranked(1, x + 1), Ranked(2, None)]
    return [item.rank for item in sorted(items)], min(items).value, Ranked(1, 0) < Ranked(2, 0)


@program(vector)
def dataclass_inheritance_and_post_init(x):
    derived = Derived(width=3, depth=1)
    return derived, x * derived.doubled


@program(vector)
def dataclass_slots(x):
    small = Small(1)
    small.b = x
    try:
        small.c = 1
    except AttributeError as error:
        message = str(error)
    return small, message, small == Small(1, x) if small.b is None else None


@program(vector)
def dataclass_keyword_only_and_initvar(x):
    made = Named(first=2, second=7)
    try:
        Named(2)
    except TypeError as error:
        message = str(error)
    return made.total * x, message


@program(vector)
def dataclass_made_inside(x):
    @dataclass
    class Local:
        value: Any
        times: int = 2

        def run(self):
            return self.value * self.times

    return Local(x).run(), Local(x, 5).run()


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1

    @property
    def scale(self):
        return self.value * 10

    @classmethod
    def parse(cls, text):
        return cls[text.upper()]


class Mode(str, enum.Enum):
    TRAIN = "train"
    EVAL = "eval"


class Level(enum.IntEnum):
    LOW = enum.auto()
    HIGH = enum.auto()


class Permission(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    BOTH = READ | WRITE


class Operation(enum.Enum):
    ADD = "+"
    MUL = "*"

    def __call__(self, a, b):
        return a + b if self is Operation.ADD else a * b


@program(vector)
def enum_members(x):
    return (
        x * Colour.RED.value, Colour.GREEN.scale, Colour(2), Colour["RED"], Colour.CRIMSON is Colour.RED, Colour.parse("green"),
        [member.name for member in Colour], len(Colour), Colour.RED in Colour, Colour.RED == 1, repr(Colour.RED),
    )  # fmt: skip


@program(vector, lambda: Colour.GREEN, lambda: Mode.EVAL)
def enum_arguments(x, colour, mode):
    if colour is Colour.GREEN and mode == "eval":
        return x * colour.value, mode.value.upper(), {Colour.RED: 1, colour: 2}[colour]
    return None


@program(vector)
def enum_unknown_value(x):
    found = []
    for attempt in (lambda: Colour(9), lambda: Colour["BLUE"], lambda: Colour.BLUE):
        try:
            attempt()
        except (ValueError, KeyError, AttributeError) as error:
            found.append(type(error).__name__)
    return x, found


@program(vector)
def int_enum_and_str_enum(x):
    return (
        x * Level.HIGH,
        Level.LOW + 1,
        Level(2),
        Mode("train"),
        Mode.EVAL + "!",
        max(Level),
        sorted(Level),
        f"{Level.LOW:03d}",
    )


@program(vector)
def flags(x):
    both = Permission.READ | Permission.WRITE
    return (
        both is Permission.BOTH,
        Permission.READ in both,
        bool(both & Permission.WRITE),
        (~Permission.READ),
        both.value,
    )


@program(vector)
def enum_with_call(x):
    return Operation.ADD(x, 1), Operation("*")(x, 3)


class Pair(NamedTuple):
    left: Any
    right: Any = 2

    def total(self):
        return self.left + self.right


Triple = collections.namedtuple("Triple", "a b c", defaults=[0])


@program(vector)
def named_tuples(x):
    pair = Pair(x)
    a, b = pair
    return (
        pair,
        pair.total(),
        pair[0] is x,
        b,
        pair._replace(right=5),
        pair._asdict(),
        Pair._fields,
        Triple(1, 2),
        Triple._make([1, 2, 3]),
    )


@program(vector, lambda: Pair(torch.ones(4), 3), lambda: [Triple(1, 2, 3)])
def named_tuple_arguments(x, pair, triples):
    (triple,) = triples
    return x * pair.right + pair.left, triple.a + triple.c, isinstance(pair, tuple), len(pair)


@program(vector)
def named_tuple_compared(x):
    return (
        Triple(1, 2) == (1, 2, 0),
        Triple(1, 2) < Triple(1, 3),
        Triple(1, 2)._replace(c=9).index(9),
        repr(Triple(1, 2)),
    )


class Options(TypedDict, total=False):
    scale: float
    name: str


@program(vector)
def typed_dict(x):
    options = Options(scale=2.0)
    options["name"] = "n"
    return x * options["scale"], options, type(options) is dict


@dataclass
class Output(collections.OrderedDict):
    logits: Any = None
    hidden: Any = None

    def __post_init__(self):
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if value is not None:
                self[each.name] = value

    def to_tuple(self):
        return tuple(self[key] for key in self.keys())


@program(vector)
def output_that_is_dataclass_and_dict(x):
    output = Output(logits=x)
    return output, output.to_tuple(), output["logits"] is x, list(output)
