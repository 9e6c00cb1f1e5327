"""Programs that are changed, each in two worlds: those of tests/python/programs, and others that are generated.

A generated program reads a few facts of its world, drawn from a list, and computes with a tensor what they say.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import types
from typing import Any

import torch

import lampwork
from tests.mutation.places import Root, plain_function
from tests.python.harness import Program, Side, all_programs

#: Features whose programs keep threads, files or the process's own state, or whose calls differ on purpose.
_LEFT_OUT = frozenset({"changing_more", "changing_python", "changing_torch", "output", "torch_func"})

_WORLD = """
import collections, functools, math, operator, os, sys, types, enum, dataclasses, abc
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SCALE, OFFSET, NOTHING, NAME, FLAG = 2, 1.0, None, "sum", True
TABLE = {"a": 1, "b": 2.0, "c": None}
ORDER = [3, 1, 2]
PAIR = (1, 2.5)
WEIGHT = torch.ones(4)

class Kind(enum.Enum):
    ONE = 1
    TWO = 2

class Meta(type):
    def total(cls):
        return cls.size

class Base:
    size = 3
    limit = 0.5

    def step(self, x):
        return x * self.size

    def shape(self):
        return self.size + 1

class Part(Base, metaclass=Meta):
    def __init__(self):
        self.weight = torch.full((4,), 2.0)
        self.count = 2
        self.mode = "train"
        self.extra = None
        self.items = [1, 2, 3]
        self.table = {"x": 1.0, "y": 2.0}

    def __len__(self):
        return 4

    def __contains__(self, item):
        return item == self.mode

    @property
    def double(self):
        return self.count * 2

    @staticmethod
    def twice(x):
        return x * 2

    @classmethod
    def make(cls, x):
        return x + cls.size

@dataclasses.dataclass
class Config:
    rate: float = 0.5
    depth: int = 2
    name: str = "relu"

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 0.5))
        self.drop = nn.Dropout(0.0)
        self.steps = 2

    def forward(self, x):
        for _ in range(self.steps):
            x = self.linear(x) * self.scale
        return self.drop(x) if self.training else x

class Point(collections.namedtuple("Point", "left right")):
    pass

class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

class Square(Shape):
    side = 2
    def area(self):
        return self.side ** 2
    def __eq__(self, other):
        return isinstance(other, Square) and self.side == other.side
    def __hash__(self):
        return self.side

class Item:
    def __init__(self, tag):
        self.tag = tag
    def __repr__(self):
        return f"Item({self.tag})"

class Slotted:
    __slots__ = ("a", "b")
    def __init__(self):
        self.a = 1

class First(Exception):
    pass

class Second(Exception):
    pass

def keywords(**options):
    return list(options)

PART, CONFIG, LAYER = Part(), Config(), Layer()
POINT, SQUARE, OTHER, ITEM, ITEM2, SLOTTED = Point(1, 2), Square(), Square(), Item("i"), Item("j"), Slotted()
ALIAS, SAME = SQUARE, ITEM
OBJECTS = [ITEM, ITEM2, SQUARE]
BY_OBJECT = {ITEM: 1, SQUARE: 2}
OPTIONS = {"factor": 2, "shift": 1.0}
NUMBERS = {1, 2, 3}
DEFAULTS = collections.defaultdict(int, a=1)
QUEUE = collections.deque([1, 2, 3], maxlen=4)
TEXT = "some text"

def helper(x, factor=3, *, shift=0.5, option=None):
    y = x * factor + shift
    return y if option is None else y - 1

def make_closure(k):
    state = {"n": k}
    def inner(x):
        return x * k + state["n"]
    return inner

CLOSURE = make_closure(2)
PARTIAL = functools.partial(helper, factor=4)
"""

#: Statements that read a fact; `x` is a float tensor of 4, `p` a Part, `d` a dict, `l` a list.
_READS = (
    "x = x + POINT.left * 2 + POINT.right",
    "x = x + len(POINT._fields) + POINT[0]",
    "a, b = POINT; x = x + a - b",
    "x = x + (1 if isinstance(SQUARE, Shape) else 2) + SQUARE.area()",
    "x = x + (1 if isinstance(ITEM, Shape) else 2)",
    "x = x + (1 if SQUARE == OTHER else 2)",
    "x = x + (1 if SQUARE is OTHER else 2)",
    "x = x + (1 if ITEM == ITEM2 else 2)",
    "x = x + (1 if ITEM in OBJECTS else 2) + OBJECTS.index(ITEM2)",
    "x = x + OBJECTS.count(ITEM)",
    "x = x + len({ITEM, ITEM2, SQUARE, OTHER})",
    "x = x + BY_OBJECT.get(ITEM2, 5) + BY_OBJECT[ITEM]",
    "x = x + len({SQUARE: 1, OTHER: 2})",
    "x = helper(x, **OPTIONS)",
    "x = x + len([k for k, v in sorted(OPTIONS.items(), key=lambda kv: kv[1])][0])",
    "x = x + list(OPTIONS.values())[0]",
    "x = x + len(repr(ITEM)) + len(str(OPTIONS))",
    "x = x + (1 if hasattr(SLOTTED, 'b') else 2) + SLOTTED.a",
    "x = x + sum(NUMBERS) + (1 if 4 in NUMBERS else 0)",
    "x = x + DEFAULTS['a'] + len(DEFAULTS)",
    "x = x + QUEUE[0] + len(QUEUE) + (QUEUE.maxlen or 0)",
    "x = x + len(TEXT.split()) + TEXT.count('e') + len(TEXT.upper())",
    "x = x + len(type(p).__doc__ or '') + len(Part.__qualname__)",
    "x = x + (1 if torch.are_deterministic_algorithms_enabled() else 2)",
    "x = x + (1 if callable(p) else 2)",
    "x = x + (1 if Part in Base.__subclasses__() else 2)",
    "x = x + (helper.__defaults__ or (9,))[0] + len(helper.__kwdefaults__)",
    "x = x + helper.__code__.co_argcount",
    "x = x + len(vars(p)) + len(dir(CONFIG)) % 3",
    "x = x + (1 if Kind(1) is Kind.ONE else 2)",
    "x = x + (1 if p.mode == 'train' else 2) + {'train': 1}.get(p.mode, 3)",
    "match p.count:\n    case 2: x = x + 1\n    case int(): x = x + 2\n    case _: x = x + 3",
    "match d:\n    case {'k': int(v)}: x = x + v\n    case _: x = x + 9",
    "match l:\n    case [1, *rest]: x = x + len(rest)\n    case _: x = x + 9",
    "x = x * dataclasses.replace(CONFIG, depth=3).depth + len(dataclasses.fields(CONFIG))",
    "x = x + len(list(LAYER.parameters())) + sum(1 for _ in LAYER.named_buffers())",
    "x = x + (1 if LAYER.linear.bias is not None else 2)",
    "with torch.no_grad(): x = x * LAYER.linear.weight.sum()",
    "x = torch.nn.functional.linear(x, LAYER.linear.weight, LAYER.linear.bias)",
    "x = x + int(TEXT == 'some text') + bool(d) + bool(l)",
    "x = x + functools.reduce(lambda a, b: a + b, l, 0)",
    "x = x + any(k == 'k' for k in d) + all(v for v in l)",
    "x = x + len([*map(str, l)]) + len([*zip(l, d)])",
    "x = x + (p.count or 5) + (p.extra or 6)",
    "x = x + p.__dict__['count'] + p.__class__.size",
    "x = x + super(Part, p).shape()",
    "x = x + Base.step(p, x) + vars(Base)['size']",
    "x = x + getattr(p, 'shape')() + operator.attrgetter('count')(p)",
    "x = x + p.items[p.count] + p.items[-1]",
    "x = x + (1 if x.shape == (4,) else 2) + x.numel() + x.dim()",
    "x = x + (1 if x.grad is None else 2) + x.element_size()",
    "x = x + (1 if isinstance(x, torch.Tensor) and not isinstance(x, nn.Parameter) else 2)",
    "x = x + (1 if x.storage_offset() == 0 else 2) + (1 if x._is_view() else 2)",
    "x = x + (1 if torch.is_tensor(x) and torch.is_floating_point(x) else 2)",
    "x = x.to(WEIGHT.dtype).expand_as(WEIGHT) + x.new_zeros(4)",
    "x = x * SCALE + OFFSET",
    "x = x + (1 if NOTHING is None else 2)",
    "x = getattr(x, NAME)() + x",
    "x = x if FLAG else -x",
    "x = x * TABLE['a'] + len(TABLE)",
    "x = x + sum(TABLE.get(k, 5) or 0 for k in ('a', 'zz'))",
    "x = x + (3 if 'zz' in TABLE else 4)",
    "x = x * sorted(ORDER)[0] + max(ORDER)",
    "for i, k in enumerate(TABLE): x = x + i * len(k)",
    "x = x + ORDER.index(2) + ORDER.count(1)",
    "x = x + PAIR[0] * PAIR[1]",
    "x = x * WEIGHT",
    "x = x + (1 if x is WEIGHT else 2)",
    "x = x + Kind.ONE.value + len(Kind)",
    "x = PART.step(x) + PART.shape()",
    "x = p.step(x)",
    "x = x * p.double + p.count",
    "x = x + (5 if hasattr(p, 'absent') else 6)",
    "x = x + getattr(p, 'absent', 1.5)",
    "x = x + len(p)",
    "x = x + (1 if p else 2)",
    "x = x + (1 if 'train' in p else 2)",
    "x = p.twice(x) + p.make(x)",
    "x = x + type(p).total()",
    "x = x + (1 if isinstance(p, Base) else 2)",
    "x = x + (1 if issubclass(type(p), Base) else 2)",
    "x = x + (2 if type(p) is Part else 3)",
    "x = x + len(type(p).__mro__)",
    "x = x + len(type(p).__name__)",
    "x = x + (1 if p.extra is None else 2)",
    "x = x + len(Part.__doc__ or '') + len(Part.__module__) + len(Part.__qualname__)",
    "x = x + len(Part.__annotations__) + len(repr(Part))",
    "x = x + len(helper.__name__) + len(helper.__doc__ or '') + len(helper.__qualname__)",
    "x = x + helper.__code__.co_firstlineno",
    "class Made(Base): pass\nx = x + getattr(Made, 'changed', 3) + len(Made.__mro__)",
    "try: x = helper(x) + CLOSURE()\nexcept TypeError: x = x + 1",
    "try:\n    import absent_module; x = x + 1\nexcept ImportError: x = x + 2",
    "import string; x = x + len(string.digits)",
    "try:\n    from string import absent_name; x = x + 1\nexcept ImportError: x = x + 2",
    "x = x + (1 if SQUARE == ALIAS else 2) + [SQUARE, OTHER].count(ALIAS) + (1 if ITEM == SAME else 2)",
    "x = x + len({ITEM: 1, ITEM2: 2, ALIAS: 3}) + (5 if ALIAS in {ITEM} else 6)",
    "x = x + (1 if [ITEM] == [ITEM2] else 2) + (1 if ITEM in (ITEM2, SQUARE) else 2)",
    "x = x + (1 if p.step == PART.step else 2)",
    "x = x + (1 if helper == CLOSURE else 2) + len({helper, CLOSURE, make_closure})",
    "x = x + next(iter(OPTIONS.values())) + len(keywords(**OPTIONS)[0])",
    "x = -x[1:].sum() + x + (x < 2) + 1",
    "x = x + sum(x) + (1 if isinstance(p, (Shape, int)) else 2)",
    "try:\n    raise Second\nexcept First: x = x + 1\nexcept Exception: x = x + 2",
    "x = x * p.weight + p.weight.sum()",
    "p.count += 1; x = x + p.count",
    "p.items.append(4); x = x + len(p.items)",
    "p.table['z'] = x; x = x + len(p.table)",
    "x = x + sum(p.table.values())",
    "x = x + d.get('k', 1) + len(d)",
    "x = x + (1 if 'k' in d else 2)",
    "x = x + sum(v for v in d.values())",
    "x = x * next(iter(d.values()))",
    "x = x + (1 if l == [1, 2] else 2)",
    "x = x + (1 if l is ORDER else 2)",
    "x = x + len(set(l))",
    "x = x + l[-1] * l[0]",
    "x = x + (1 if l and l[0] == 1 else 2)",
    "x = helper(x)",
    "x = helper(x, shift=1.5)",
    "x = PARTIAL(x)",
    "x = CLOSURE(x)",
    "x = LAYER(x)",
    "x = LAYER(x) if LAYER.training else x",
    "x = F.relu(x) + torch.tanh(x)",
    "x = torch.sigmoid(x).clamp(0.1, 0.9)",
    "x = x + math.sqrt(4.0) + abs(-2) + min(3, 4)",
    "x = x + CONFIG.rate * CONFIG.depth",
    "x = getattr(F, CONFIG.name)(x)",
    "x = x + (1 if CONFIG == Config() else 2)",
    "x = x + torch.zeros(4)",
    "x = x + torch.get_default_dtype().itemsize",
    "x = x + (1 if torch.is_grad_enabled() else 2)",
    "x = x + (1 if x.requires_grad else 2)",
    "x = x + (1 if x.is_contiguous() else 2)",
    "x = x + x.stride(0) + x.shape[0]",
    "x = x + (1 if x.dtype == torch.float32 else 2)",
    "x = x + len(os.environ.get('HOME', ''))",
    "x = x + sys.getrecursionlimit() % 7",
    "x = x + (1 if callable(getattr(p, 'forward', None)) else 2)",
    "x = x + len(str(SCALE)) + len(repr(PAIR))",
    "x = x + len(f'{SCALE}-{NAME}')",
    "x = x + hash(SCALE) % 5",
    "x = x + (1 if SCALE == OFFSET else 2)",
    "x = x + (1 if SCALE is NOTHING else 2)",
    "x = x + (1 if p.weight is WEIGHT else 2)",
    "try: x = x + p.absent\nexcept AttributeError: x = x + 1",
    "try: x = x + TABLE['zz']\nexcept KeyError: x = x + 1",
    "x = x + (1 if isinstance(SCALE, int) else 2) + (1 if isinstance(FLAG, bool) else 2)",
    "x = x.add_(1) if x.is_leaf else x",
    "y = x.view(2, 2); y.mul_(2); x = x + 1",
    "x = x + np.float32(2) * np.array([1.0, 2.0]).sum()",
    "x = operator.add(x, functools.reduce(operator.mul, [1, 2, 3]))",
    "x = x + torch.rand(4)",
    "x = x @ torch.eye(4)",
    "x = x + isinstance(x, nn.Parameter)",
    "x = torch.where(x > 0, x, WEIGHT)",
)


class GeneratedSide(Side):
    """A world of a generated program."""

    def __init__(self, name: str, text: str, compiled: bool) -> None:
        self.module = types.ModuleType(f"tests.mutation.{name}")
        self.file = f"<{name}>"
        torch.manual_seed(0)
        sys.modules[self.module.__name__] = self.module
        try:
            exec(compile(text, self.file, "exec"), vars(self.module))
        finally:
            del sys.modules[self.module.__name__]
        module = self.module

        def arguments() -> list[Any]:
            return [torch.arange(4.0) + 1, module.Part(), {"k": 2, "m": 3}, [1, 2]]

        self.program = Program(module.program, (), together=arguments)
        self.function = module.program
        if compiled:
            self.function = lampwork.compile(self.function, options={"cache": False})
        self.arguments = {}
        self.printed = io.StringIO()
        self.next_hook = 0


class Subject:
    """A program that can be made in two worlds. `name`: feature/name, or generated/seed."""

    def __init__(self, name: str, text: str = "") -> None:
        self.name, self.text = name, text

    def side(self, compiled: bool) -> Side:
        feature, _, name = self.name.partition("/")
        if self.text:
            return GeneratedSide(f"generated_{name}", self.text, compiled)
        side = Side(feature, name, False)
        if compiled:
            side.function = lampwork.compile(side.function, options={"cache": False})
        return side


def root_of(side: Side) -> Root:
    return Root(side.program.function, side.arguments[0], side.module)


def generated(seed: int) -> Subject:
    """A program of a few reads."""
    draw = random.Random(seed)
    lines = []
    for read in draw.sample(_READS, draw.randint(1, 4)):
        lines += read.splitlines()
    body = "".join(f"    {line}\n" for line in lines)
    return Subject(f"generated/{seed}", f"{_WORLD}\ndef program(x, p, d, l):\n{body}    return x\n")


def of_reads(name: str, *reads: str) -> Subject:
    """The program of these reads."""
    lines = [line for read in reads for line in read.splitlines()]
    body = "".join(f"    {line}\n" for line in lines)
    return Subject(f"generated/{name}", f"{_WORLD}\ndef program(x, p, d, l):\n{body}    return x\n")


def written() -> list[Subject]:
    """The programs of tests/python/programs whose calls are alike."""
    return [Subject(f"{feature}/{name}") for feature, name in all_programs() if feature not in _LEFT_OUT]


@contextlib.contextmanager
def quiet() -> Any:
    with contextlib.redirect_stderr(io.StringIO()):
        yield


__all__ = ["GeneratedSide", "Subject", "generated", "of_reads", "plain_function", "quiet", "root_of", "written"]
