"""Every family of Python values a torch program is made of, in brief."""

from __future__ import annotations

import collections
import contextlib
import copy
import enum
import functools
import itertools
import math
import operator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from tests.python.harness import program


def x4():
    return torch.arange(8.0).reshape(2, 4) - 3


class Point:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def __add__(self, other):
        return Point(self.a + other.a, self.b + other.b)

    def __radd__(self, other):
        return Point(self.a + other, self.b + other)

    def __eq__(self, other):
        return isinstance(other, Point) and self.a is other.a

    __hash__ = None

    def __getitem__(self, index):
        return (self.a, self.b)[index]

    def __len__(self):
        return 2

    def __iter__(self):
        yield self.a
        yield self.b

    def __call__(self, x):
        return x * 2 + self.b

    def __contains__(self, item):
        return item == "a"

    def __bool__(self):
        return False


class Colour(enum.Enum):
    RED = 1
    BLUE = 2

    def mixed(self):
        return self.value * 10


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


@dataclass
class Result:
    first: torch.Tensor
    second: torch.Tensor | None = None
    extra: dict = field(default_factory=dict)

    def total(self):
        return self.first + (0 if self.second is None else self.second)


@dataclass(frozen=True)
class Frozen:
    value: float = 2.0


Pair = collections.namedtuple("Pair", "left right")


class Counter:
    count = 0

    def __init__(self):
        self.calls = 0
        self.history = []
        self.cache = {}

    def step(self, x):
        self.calls += 1
        self.history.append(x * self.calls)
        self.cache["last"] = x
        return x + self.calls


class WithSlots:
    __slots__ = ("value", "other")

    def __init__(self, value):
        self.value = value


class Manager:
    def __init__(self):
        self.log = []

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append("exit" if kind is None else kind.__name__)
        return kind is ValueError


class Descriptor:
    def __get__(self, obj, cls):
        return obj.base * 3

    def __set__(self, obj, value):
        obj.base = value / 3


class WithDescriptor:
    tripled = Descriptor()

    def __init__(self):
        self.base = 2.0


class Base:
    def __init__(self, by):
        self.by = by

    def run(self, x):
        return x * self.by

    @classmethod
    def make(cls, by):
        return cls(by)

    @property
    def by_two(self):
        return self.by * 2


class Child(Base):
    def __init__(self, by):
        super().__init__(by)
        self.extra = 1

    def run(self, x):
        return super().run(x) + self.extra


GLOBAL_LIST = []
GLOBAL_COUNT = 0

# Tensors ---------------------------------------------------------------------------------------------------------------


@program(x4)
def arithmetic(x):
    return (x + 1) * 2 - x / 3 + x**2 - (2 - x) + 1 / (x + 10) + (x % 3) + (x // 2) + -x + abs(x)


@program(x4)
def comparisons(x):
    return (x > 0) & (x <= 2) | ~(x == 1) ^ (x != 3)


@program(x4)
def shapes(x):
    b, n = x.shape
    assert x.ndim == 2 and x.size(0) == b and x.numel() == b * n and len(x) == b
    return x.view(n, b), x.reshape(-1), x.shape, x.size(), x.dtype, x.device


@program(x4)
def indexing(x):
    return x[0], x[:, 1:3], x[..., -1], x[None], x[[0, 1], [1, 2]], x[:, ::2], x[torch.tensor([1, 0])], x[0][1]


@program(x4)
def writing(x):
    y = x.clone()
    y[0] = 5
    y[:, 1] += 2
    y.mul_(2).add_(1)
    z = y.view(-1)
    z[3] = 9
    return y, z


@program(x4)
def writing_arguments(x):
    x.add_(1)
    x[0] = x[1] * 2
    return x.sum()


@program(x4)
def returns_argument(x):
    return x, x.t(), x


@program(x4)
def same_tensor_twice(x):
    y = x + 1
    return y, [y, y.view(-1)], {"y": y}


@program(x4)
def unpacking_tensors(x):
    a, b = x
    c, *d = x.unbind(1)
    return a + b, c + sum(d)


@program(x4)
def iterating_tensors(x):
    total = 0
    for row in x:
        total = total + row
    return total, [row * 2 for row in x], list(zip(x, x))


@program(x4)
def split_and_cat(x):
    parts = torch.split(x, 2, dim=1)
    a, b = torch.chunk(x, 2, dim=1)
    return torch.cat([a, b, *parts], dim=1), torch.stack(tuple(x.unbind(0)))


@program(x4)
def functional(x):
    y = F.gelu(F.layer_norm(x, (4,)))
    y = F.softmax(y, dim=-1) + F.dropout(y, 0.5, training=False)
    return F.pad(y, (1, 1)), F.cross_entropy(x, torch.tensor([0, 1])), F.one_hot(torch.tensor([0, 2]), 4)


@program(x4)
def creation(x):
    return (
        torch.zeros(2, 3), torch.arange(4), torch.full_like(x, 2.0), torch.tensor([1.0, 2.0]), torch.eye(3, dtype=x.dtype),
        x.new_zeros(3), torch.tensor(3), torch.linspace(0, 1, 5),
    )  # fmt: skip


@program(x4)
def max_and_topk(x):
    values, indices = x.max(dim=1)
    result = x.topk(2)
    return values, indices, result.values, result, torch.max(x), x.min(0)


@program(x4)
def types(x):
    return x.to(torch.float64).float(), x.half().dtype, x.long(), x.to(x.device), x.type_as(x), x.type(torch.int32)


@program(x4)
def tensor_questions(x):
    assert isinstance(x, torch.Tensor) and type(x) is torch.Tensor and x.__class__ is torch.Tensor
    assert not isinstance(x, nn.Parameter) and torch.is_tensor(x) and x.is_floating_point()
    assert x.requires_grad is False and x.is_contiguous() and not x.is_cuda and x.grad is None and x.grad_fn is None
    assert hasattr(x, "shape") and not hasattr(x, "nothing") and callable(x.view)
    return x.T, x.mT, x.data, x.detach()


@program(x4)
def einsum(x):
    return torch.einsum("ij,kj->ik", x, x), x @ x.T, torch.matmul(x, x.T)


@program(x4, lambda: nn.Parameter(torch.ones(4)))
def parameter_argument(x, p):
    return x * p if isinstance(p, nn.Parameter) else x


@program(x4)
def no_grad_island(x):
    with torch.no_grad():
        y = x * 2
        assert not torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        z = y + 1
    return z


@torch.no_grad()
def _decorated(x):
    return x * 3


@program(x4)
def no_grad_decorator(x):
    return _decorated(x), torch.is_grad_enabled()


@program(x4)
def inference_island(x):
    with torch.inference_mode():
        y = x * 2
    return y.sum()


@program(x4)
def autocast_island(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
    return y.dtype, y


@program(x4)
def is_compiling_is_true(x):
    return x * 2 if torch.compiler.is_compiling() or True else x


@program(x4)
def out_argument(x):
    y = torch.empty(2, 4)
    torch.add(x, 1, out=y)
    return y


@program(x4)
def tensor_method_by_name(x):
    return getattr(x, "relu")() + getattr(torch, "tanh")(x) + torch.Tensor.exp(x)


# Functions ---------------------------------------------------------------------------------------------------------------


@program(x4)
def closures(x):
    factor = 2

    def scale(y, by=3, *, plus=1):
        nonlocal factor
        factor += 1
        return y * factor * by + plus

    return scale(x) + scale(x, 1, plus=5), factor


@program(x4)
def recursion(x):
    def power(y, n):
        return y if n == 0 else power(y * 2, n - 1)

    return power(x, 4)


@program(x4)
def star_arguments(x):
    def collect(*args, **kwargs):
        return sum(args) + sum(kwargs.values())

    args = [x, x + 1]
    return collect(*args, *(x,), a=x, **{"b": x * 2})


@program(x4)
def lambdas_and_maps(x):
    return list(map(lambda y: y * 2, [x, x + 1])), [*filter(None, [0, 1, 2])], functools.reduce(operator.add, [x, x, x])


@program(x4)
def partials(x):
    add = functools.partial(torch.add, alpha=2)
    mine = functools.partial(lambda a, b, c=1: a * b + c, 2)
    return add(x, x), mine(x), mine(x, c=3)


@program(x4)
def returns_closure(x):
    y = x * 2

    def later(z):
        return z + y

    return later, y


@program(x4)
def returns_partial_and_method(x):
    point = Point(x, 1)
    return functools.partial(torch.mul, x), point.__call__, point


@program(x4)
def returns_partials_with_attributes(x):
    def scaled(a: int, by: "float") -> None:
        return a * by

    named = functools.update_wrapper(functools.partial(scaled, by=x), scaled)
    named.seen = [x + 1]
    return named(x), list(vars(named)), named.seen, named.__name__, named


@program(x4)
def generators(x):
    def produce():
        yield x
        received = yield x + 1
        yield x * received

    generator = produce()
    first, second = next(generator), next(generator)
    third = generator.send(5)
    return first, second, third, list(generator)


@program(x4)
def yield_from(x):
    def inner():
        yield x
        return 3

    def outer():
        result = yield from inner()
        yield x * result

    return [*outer()]


@program(x4)
def comprehension_scopes(x):
    return [y * i for i in range(3) if i != 1 for y in (x, x + 1)], {k: x * v for k, v in {"a": 1}.items()}, {1, 2}


@program(x4)
def decorators(x):
    def twice(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(function(*args))

        return wrapper

    @twice
    def increment(y):
        return y + 1

    return increment(x), increment.__name__


@program(x4)
def walrus_and_ternary(x):
    return (y := x + 1) * 2 if (n := x.shape[0]) > 1 else x, y, n


# Control flow --------------------------------------------------------------------------------------------------------------


@program(x4)
def loops(x):
    for i in range(10):
        if i == 2:
            continue
        if i == 5:
            break
        x = x + i
    else:
        x = x * 100
    n = 0
    while n < 3:
        n += 1
        x = x * n
    return x


@program(x4)
def exceptions(x):
    try:
        try:
            raise ValueError("bad")
        except ValueError as error:
            x = x + len(str(error))
            raise KeyError("k") from error
        finally:
            x = x * 2
    except KeyError as error:
        x = x + (1 if isinstance(error.__cause__, ValueError) else 0)
    else:
        x = x * 1000
    return x


@program(x4)
def exceptions_of_natives(x):
    found = []
    for attempt in (
        lambda: {}["a"],
        lambda: [][1],
        lambda: int("x"),
        lambda: x.nothing,
        lambda: 1 / 0,
        lambda: x + "a",
    ):
        try:
            attempt()
        except (KeyError, IndexError, ValueError, AttributeError, ZeroDivisionError, TypeError) as error:
            found.append(type(error).__name__)
    return found, x


@program(x4)
def context_managers(x):
    manager = Manager()
    with manager as m:
        x = x + 1
        m.log.append("inside")
    with manager:
        raise ValueError
    return x, manager.log


@program(x4)
def contextlib_managers(x):
    @contextlib.contextmanager
    def scaled(y):
        yield y * 2

    with contextlib.ExitStack() as stack:
        y = stack.enter_context(scaled(x))
        with contextlib.suppress(ValueError), contextlib.nullcontext(3) as three:
            y = y * three
            raise ValueError
    return y


@program(x4)
def matching(x):
    def kind(value):
        match value:
            case []:
                return "empty"
            case [first, *rest]:
                return f"list {first} {len(rest)}"
            case {"a": a, **others}:
                return ("dict", a, others)
            case Result(first=f):
                return f
            case int() | float():
                return "number"
            case _:
                return "other"

    return [kind(v) for v in ([], [1, 2, 3], {"a": 1, "b": 2}, Result(x), 3, "s")]


@program(x4)
def asserts_and_strings(x):
    assert x.shape[0] == 2, f"bad {x.shape}"
    name = "x"
    return f"{name!r:>5} {x.shape[1]:03d} {1.5:.2f}", "%s-%d" % ("a", 3), "a,b".split(","), " ".join(["p", "q"]).upper()


# Containers -----------------------------------------------------------------------------------------------------------------


@program(x4)
def lists(x):
    values = [x]
    values.append(x + 1)
    values.extend([x + 2, x + 3])
    values.insert(0, 7)
    values[1:2] = [x * 5, x * 6]
    last = values.pop()
    values.reverse()
    del values[0]
    return values, last, values[::-1], values + [1], values * 2, len(values), sorted([3, 1, 2], key=lambda v: -v)


@program(x4)
def dicts(x):
    table = {"a": x, **{"b": x + 1}}
    table["c"] = table.pop("a") * 2
    table.setdefault("d", []).append(x)
    table.update(e=1)
    table |= {"f": 2}
    merged = dict(table, g=3)
    return table, merged, list(table), [*table.values()], "a" in table, table.get("zz", 5), dict(zip("ab", [1, x]))


@program(x4)
def sets_and_tuples(x):
    s = {1, 2} | {3}
    s.add(4)
    s.discard(1)
    t = (1, x) + (2,)
    a, (b, c) = 1, (2, 3)
    return s, frozenset([1]), t, t[1], a + b + c, (5, 2).index(2), (x,) * 2, 3 in s


@program(x4)
def collections_module(x):
    ordered = collections.OrderedDict(a=x)
    ordered["b"] = x + 1
    ordered.move_to_end("a")
    queue = collections.deque([1, 2], maxlen=2)
    queue.append(x)
    default = collections.defaultdict(list)
    default["k"].append(x)
    pair = Pair(x, right=2)
    return ordered, queue, dict(default), pair, pair.left, pair._replace(right=3), pair._asdict()


@program(x4)
def itertools_module(x):
    return (
        list(itertools.chain([1], [x])), list(itertools.product([1, 2], "a")), list(itertools.islice(itertools.count(), 3)),
        list(itertools.accumulate([1, 2, 3])), list(itertools.zip_longest([1], [2, 3])), list(itertools.repeat(x, 2)),
        [len(list(group)) for _, group in itertools.groupby([1, 1, 2])],
    )  # fmt: skip


@program(x4)
def builtins(x):
    return (
        len([1]), max(1, 5), min([3, 2]), sum([1, 2], 3), abs(-1), round(2.567, 2), divmod(7, 2), pow(2, 3), any([0, 1]),
        all([]), list(enumerate("ab", 1)), list(reversed([1, 2])), sorted("cab"), bool([]), int("3"), float("1.5"), str(4),
        list(range(1, 6, 2)), isinstance(1, (int, str)), callable(len), chr(97), ord("a"), hex(10), type(3).__name__,
        math.sqrt(16), math.pi, hash(3), slice(1, 2), complex(1, 2), tuple(x.shape),
    )  # fmt: skip


@program(x4, lambda: [1.0, [2.0, torch.ones(4)], {"k": torch.zeros(4)}])
def nested_arguments(x, values):
    return x * values[0] + values[1][0] + values[1][1] + values[2]["k"]


@program(x4, lambda: [1, 2], dict, lambda: {3})
def mutated_containers(x, values, table, numbers):
    values.append(x + 1)
    values[0] = "changed"
    table["new"] = x * 2
    table["list"] = values
    numbers.add(4)
    return x


@program(x4, list)
def appended_only(x, values):
    values.append(x)
    values.extend([x + 1, x + 1])


@program(x4, lambda: {"a": 1, "b": 2, "c": 3})
def dict_reordered(x, table):
    table["a"] = table.pop("a")
    del table["b"]
    table["z"] = x
    return list(table)


@program(x4, lambda: collections.deque([1, 2, 3], maxlen=3), lambda: collections.OrderedDict(a=1, b=2))
def mutated_collections(x, queue, ordered):
    queue.append(x)
    queue.rotate(1)
    ordered.move_to_end("a")
    ordered["c"] = x
    return queue[0]


@program(x4, lambda: [3, 1, 2])
def sorts_argument(x, values):
    values.sort()
    values.reverse()
    values.remove(2)
    return values.index(1), values.count(3), values == [3, 1]


# Objects -----------------------------------------------------------------------------------------------------------------


@program(x4)
def operators_of_objects(x):
    p = Point(x, 1) + Point(x, 2)
    q = 5 + Point(1, 2)
    a, b = p
    return p.a, q.b, a, b, p[1], len(p), p(x), "a" in p, not p, p == p, p != Point(1, 2)


@program(x4, Counter)
def methods_with_state(x, counter):
    counter.step(x)
    result = counter.step(x)
    counter.extra = counter.history
    del counter.cache["last"]
    return result


@program(x4, lambda: WithSlots(2.0))
def slots(x, slotted):
    slotted.value = slotted.value + 1
    slotted.other = x
    return x * slotted.value


@program(x4, WithDescriptor)
def descriptors(x, holder):
    holder.tripled = 12.0
    return x * holder.tripled


@program(x4)
def dataclasses(x):
    result = Result(x, second=x * 2)
    result.extra["k"] = 1
    import dataclasses as module

    changed = module.replace(result, second=None)
    names = [f.name for f in module.fields(result)]
    return result, result.total(), changed.total(), names, Frozen().value, Frozen(3.0) == Frozen(3.0)


@program(x4)
def inheritance(x):
    child = Child.make(3)
    return child.run(x), isinstance(child, Base), issubclass(Child, Base), child.by_two, child, Base.run(child, x)


@program(x4)
def enums(x):
    return (
        x * Colour.RED.value,
        Colour(2),
        Colour["RED"],
        Colour.BLUE.mixed(),
        Number.TWO + 1,
        Colour.RED is Colour.RED,
        ([c.name for c in Colour]),
    )


@program(x4)
def class_in_function(x):
    class Local:
        shared = 2

        def __init__(self, value):
            self.value = value

        def run(self):
            return self.value * self.shared

    return Local(x).run()


@program(x4)
def attribute_functions(x):
    p = Point(x, 1)
    setattr(p, "c", 5)
    delattr(p, "b")
    return getattr(p, "c"), getattr(p, "zz", 3), hasattr(p, "b"), vars(p)["c"], p.__dict__.keys() == {"a", "c"}


@program(x4, lambda: Point([1, {"k": 2}], "b"))
def copies(x, point):
    shallow, deep = copy.copy(point), copy.deepcopy(point)
    shallow.b = x
    deep.a[1]["k"] = 3
    seen = {id(point), id(shallow)}
    return shallow, deep, id(point) in seen, id(deep) in seen, shallow.a is point.a


@program(x4)
def cyclic_result(x):
    a, b = Point(x, None), Point(x + 1, None)
    a.b, b.b = b, a
    loop = [a]
    loop.append(loop)
    return a, loop


@program(x4, lambda: [torch.ones(4)])
def stores_argument_in_argument(x, values):
    values.append(values[0])
    values.append(x)
    return values


@program(x4)
def global_state(x):
    global GLOBAL_COUNT
    GLOBAL_COUNT = GLOBAL_COUNT + 1
    GLOBAL_LIST.append(GLOBAL_COUNT)
    return x * GLOBAL_COUNT


@program(x4)
def random_numbers(x):
    return torch.rand_like(x).shape, torch.randn(3).shape


# Modules ---------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.ones(4))
        self.weights = nn.ParameterList([nn.Parameter(torch.full((4,), 2.0))])
        self.register_buffer("steps", torch.zeros(1))
        self.calls = 0
        self.last = None
        self.act = nn.Sequential(nn.ReLU(), nn.Dropout(0.1))

    def forward(self, x, head="a"):
        self.calls += 1
        self.steps += 1
        for index, layer in enumerate(self.layers):
            x = self.act(layer(x)) * self.scale
        x = self.norm(x) * self.weights[0]
        self.last = x
        return {name: module(x) for name, module in self.heads.items()}, self.heads[head](x), self.steps


@program(x4, lambda: Block().eval())
def module_with_everything(x, block):
    return block(x), block(x, head="b"), len(block.layers), "a" in block.heads, [n for n, _ in block.named_children()]


@program(x4, lambda: Block().train(False).requires_grad_(False))
def batch_norm_training(x, block):
    block.norm.train()
    return block.norm(x)


def _hooked():
    block = Block().eval()
    block.layers[0].register_forward_hook(lambda module, args, output: output * 2)
    block.layers[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return block


@program(x4, _hooked)
def hooks(x, block):
    return block(x)


@program(x4, lambda: Block().eval())
def module_introspection(x, block):
    names = [name for name, _ in block.named_parameters()]
    total = sum(p.numel() for p in block.parameters())
    return names, total, [type(m).__name__ for m in block.modules()], block.training, next(block.parameters()).dtype


@program(x4, lambda: Block().eval())
def module_functional(x, block):
    return F.linear(x, block.layers[0].weight, block.layers[0].bias), list(block.state_dict())
