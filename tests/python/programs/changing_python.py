"""Calls that differ: objects, containers and control flow whose kind, length or path is another in the next call."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import operator
import string
import struct
import types
import typing
import warnings
import weakref
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from tests.python.harness import program

LOG: list[Any] = []
COUNTS: dict[str, int] = {}
TOTAL = 0


def vector(length=4):
    return torch.arange(float(length)) + 1


@torch.compiler.disable
def outside(value):
    LOG.append(("outside", value))
    return value


def break_here():
    outside(0)


# Queues and dicts across breaks ---------------------------------------------------------------------------------------


@program(calls=[lambda: (vector(), collections.deque([1, 2, 3])), lambda: (vector(), collections.deque([4, 5]))])
def deque_walked_across_a_break(x, queue):
    seen = []
    for number in queue:
        seen.append(outside(number))
        x = x + number
    return x, seen


@program(vector)
def deque_of_the_region_walked_across_a_break(x):
    queue = collections.deque([1, 2, 3], maxlen=3)
    seen = []
    for number in queue:
        seen.append(outside(number))
        x = x * number
    return x, seen


@program(vector)
def deque_that_changes_while_it_is_walked(x):
    queue = collections.deque([1, 2, 3])
    seen = []
    try:
        for number in queue:
            break_here()
            seen.append(number)
            queue.append(number)
    except RuntimeError as error:
        seen.append(str(error))
    return x + len(seen), seen, queue


@program(calls=[lambda: (vector(), collections.deque([1, 2, 3])), lambda: (vector(), collections.deque([3, 2]))])
def deque_walked_backwards(x, queue):
    seen = []
    for number in reversed(queue):
        break_here()
        seen.append(number)
    return x.sum(), seen


@program(vector)
def deque_emptied_from_both_ends(x):
    queue = collections.deque(range(6))
    while queue:
        x = x + queue.popleft()
        if queue:
            break_here()
            x = x * queue.pop()
    return x


@program(
    calls=[
        lambda: (vector(), {"a": 1, "b": 2}),
        lambda: (vector(), {"c": 3}),
        lambda: (vector(), {}),
        lambda: (vector(), {"d": 1, "e": 2, "f": 3}),
        lambda: (vector(), {"g": 1.5, "h": vector()}),
    ]
)
def items_of_another_dict_behind_a_break(x, table):
    break_here()
    for name, value in table.items():
        x = x + value
        LOG.append(name)
    return x


@program(
    calls=[
        lambda: (vector(), {"a": vector(), "b": vector(2).sum()}),
        lambda: (vector(), {"b": vector(), "a": vector(2).sum()}),
        lambda: (vector(), {"z": vector()}),
    ]
)
def breaks_for_each_item(x, table):
    found = {}
    for name, value in table.items():
        found[name] = x * value
        outside(name)
    return found


@program(vector)
def dict_that_grows_while_it_is_walked(x):
    table = {"a": 1}
    try:
        for name in table:
            break_here()
            table[name + "x"] = 2
    except RuntimeError as error:
        return x + len(table), str(error)
    return x


@program(vector)
def views_of_a_dict_across_a_break(x):
    table = {"a": 1, "b": 2}
    keys, values = table.keys(), table.values()
    break_here()
    table["c"] = 3
    return x + sum(values), list(keys), "c" in keys, keys & {"a", "z"}


@program(calls=[lambda: (vector(), [3, 1, 2]), lambda: (vector(), [2]), lambda: (vector(), [])])
def sorted_and_counted(x, numbers):
    counts = collections.Counter(numbers)
    break_here()
    most = counts.most_common(1)
    return x + sum(sorted(numbers)), most, counts.total(), +counts


@program(vector)
def chain_map_layers(x):
    base = {"a": 1, "b": 2}
    layers = collections.ChainMap({"a": 10}, base)
    layers["c"] = 3
    break_here()
    base["b"] = 20
    del layers["a"]
    return x * layers["a"] + layers["b"], dict(layers), len(layers)


@program(vector)
def ordered_dict_moved(x):
    table = collections.OrderedDict(a=1, b=2, c=3)
    table.move_to_end("a")
    break_here()
    table.move_to_end("c", last=False)
    first = table.popitem(last=False)
    return x + first[1], list(table)


@program(vector)
def default_dict_of_lists(x):
    table = collections.defaultdict(list)
    for place, letter in enumerate("abac"):
        table[letter].append(x[place])
        if letter == "b":
            break_here()
    return {name: sum(values) for name, values in table.items()}, table.default_factory is list


@program(calls=[lambda: (vector(), {3, 1}), lambda: (vector(), {1}), lambda: (vector(), set())])
def sets_combined(x, numbers):
    rest = numbers ^ {1, 2}
    break_here()
    rest |= {7}
    return x + sum(sorted(rest)), numbers <= {1, 2, 3}, numbers.isdisjoint(rest)


# Classes --------------------------------------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("__weakref__", "left", "right")

    def __init__(self, left, right):
        self.left, self.right = left, right


class Halved(Slotted):
    __slots__ = ("half",)

    def __init__(self, left, right):
        super().__init__(left, right)
        self.half = (left + right) / 2


@program(calls=[lambda: (vector(), Halved(1, 2)), lambda: (vector(), Halved(vector(), 1.0))])
def slots_inherited(x, pair):
    pair.left = pair.left * x
    break_here()
    try:
        pair.other = 1
    except AttributeError as error:
        LOG.append(type(error).__name__)
    del pair.right
    return pair.half + pair.left, hasattr(pair, "right")


class Checked:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, kind=None):
        return self if owner is None else getattr(owner, self.name, 0)

    def __set__(self, owner, value):
        if isinstance(value, (int, float)) and value < 0:
            raise ValueError(f"{self.name} is {value}")
        COUNTS[self.name] = COUNTS.get(self.name, 0) + 1
        setattr(owner, self.name, value)


class Account:
    balance = Checked()
    limit = Checked()


@program(
    calls=[lambda: (vector(), Account(), 1), lambda: (vector(), Account(), -1), lambda: (vector(), Account(), 2.5)]
)
def descriptor_refuses(x, account, amount):
    account.limit = 7
    try:
        account.balance = amount
    except ValueError as error:
        LOG.append(str(error))
        account.balance = x
    break_here()
    account.limit = account.balance * 2
    return account.limit + account.balance


class Counting(type):
    made = 0

    def __call__(cls, *args, **kwargs):
        Counting.made += 1
        return super().__call__(*args, **kwargs)

    def __getitem__(cls, name):
        return f"{cls.__name__}[{name}]"

    def __len__(cls):
        return cls.made

    def __contains__(cls, item):
        return item == "thing"


class Made(metaclass=Counting):
    def __init__(self, value):
        self.value = value


@program(vector)
def metaclass_counts(x):
    first = Made(x)
    break_here()
    second = Made(first.value * 2)
    return second.value + len(Made), Made["a"], "thing" in Made, type(second) is Made


class Chained:
    def __init__(self, value, log):
        self.value, self.log = value, log

    def __getattr__(self, name):
        self.log.append(name)
        if name.startswith("no_"):
            raise AttributeError(name)
        return Chained(self.value + len(name), self.log)

    def __call__(self, other):
        return Chained(self.value * other, self.log)


@program(calls=[lambda: (vector(), []), lambda: (vector(3), [1])])
def attributes_made_on_demand(x, log):
    thing = Chained(x, log)
    result = thing.alpha.beta(2).c
    break_here()
    return result.value, getattr(thing, "no_such", 5), hasattr(thing, "yes"), log


class Money:
    def __init__(self, amount):
        self.amount = amount

    def __add__(self, other):
        return Money(self.amount + (other.amount if isinstance(other, Money) else other))

    def __radd__(self, other):
        return self + other

    def __iadd__(self, other):
        self.amount = self.amount + other
        return self

    def __matmul__(self, other):
        return Money(self.amount * other)

    def __eq__(self, other):
        return isinstance(other, Money) and bool((self.amount == other.amount).all())

    __hash__ = None  # type: ignore[assignment]

    def __format__(self, spec):
        return f"<{spec}>"

    def __bool__(self):
        return True


@program(vector)
def operators_of_a_class(x):
    money = Money(x)
    alias = money
    money += 2
    total = 1 + (money @ 3) + Money(x)
    try:
        {money}
    except TypeError as error:
        LOG.append(str(error))
    return total.amount, alias is money, f"{total:abc}", alias.amount, bool(total)


class Singleton:
    _made = None

    def __new__(cls, *args):
        if cls._made is None:
            cls._made = super().__new__(cls)
        return cls._made

    def __init__(self, value):
        self.value = value


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 2), lambda: (vector(), 3.5)])
def one_instance_for_all(x, value):
    one, two = Singleton(value), Singleton(x)
    break_here()
    return one is two, one.value * value


class Base:
    registered: list = []

    def __init_subclass__(cls, tag="none", **rest):
        super().__init_subclass__(**rest)
        cls.tag = tag
        Base.registered.append(tag)

    def area(self):
        return 1

    @classmethod
    def made(cls, *args):
        return cls(*args)

    @staticmethod
    def unit():
        return 2


class Square(Base, tag="square"):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side * super().area()

    @property
    def size(self):
        return self.side

    @size.setter
    def size(self, value):
        self.side = value

    @size.deleter
    def size(self):
        self.side = 0


class Cube(Square, tag="cube"):
    def area(self):
        return 6 * super().area()


@program(calls=[lambda: (vector(), Square(2)), lambda: (vector(), Cube(2)), lambda: (vector(), Cube(vector()))])
def another_class_each_time(x, shape):
    shape.size = shape.size + 1
    area = shape.area()
    break_here()
    other = type(shape).made(x)
    del shape.size
    return area * x, other.area(), shape.unit(), shape.side, Base.registered


@dataclasses.dataclass(order=True)
class Item:
    rank: int
    name: str = dataclasses.field(default="none", compare=False)
    parts: list = dataclasses.field(default_factory=list, compare=False)
    double: Any = dataclasses.field(init=False, compare=False)
    scale: dataclasses.InitVar[float] = 2.0

    def __post_init__(self, scale):
        self.double = self.rank * scale


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    x: Any
    y: int = 1


@program(
    calls=[
        lambda: (vector(), Item(2)),
        lambda: (vector(), Item(1, "b", scale=3.0)),
        lambda: (vector(), Item(5, parts=[1])),
    ]
)
def data_classes_compared(x, item):
    other = Item(2, parts=[x])
    other.parts.append(item.rank)
    break_here()
    bigger = max(item, other)
    return x * bigger.rank + item.double, item < other, item == Item(2), dataclasses.asdict(item)["name"]


@program(
    calls=[lambda: (vector(), Fixed(vector())), lambda: (vector(), Fixed(2.0, 3)), lambda: (vector(), Fixed(1, 2))]
)
def frozen_class_replaced(x, fixed):
    try:
        fixed.y = 5
    except dataclasses.FrozenInstanceError as error:
        LOG.append(str(error))
    changed = dataclasses.replace(fixed, y=fixed.y + 1)
    break_here()
    return changed.x * x, changed.y, [each.name for each in dataclasses.fields(fixed)], dataclasses.is_dataclass(fixed)


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    ALSO_GREEN = 2

    @property
    def warm(self):
        return self is Colour.RED

    @classmethod
    def _missing_(cls, value):
        return cls.GREEN


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2
    RUN = 4


@program(
    calls=[
        lambda: (vector(), Colour.RED, 1),
        lambda: (vector(), Colour.GREEN, 2),
        lambda: (vector(), Colour.ALSO_GREEN, 9),
    ]
)
def enums_change(x, colour, number):
    made = Colour(number)
    break_here()
    scale = {Colour.RED: 2.0, Colour.GREEN: 3.0}[colour]
    return x * scale, made.warm, colour.name, made is colour, len(Colour), list(Colour.__members__)


@program(
    calls=[lambda: (vector(), Rights.READ), lambda: (vector(), Rights.READ | Rights.RUN), lambda: (vector(), Rights(0))]
)
def flags_change(x, rights):
    more = rights | Rights.WRITE
    break_here()
    if Rights.RUN in rights:
        x = x * 2
    return x + int(more), ~rights & Rights.READ, [each.name for each in more], bool(rights)


class Pair(NamedTuple):
    first: Any
    second: Any = 2

    def swapped(self):
        return Pair(self.second, self.first)


@program(
    calls=[lambda: (vector(), Pair(1)), lambda: (vector(), Pair(vector(), 3)), lambda: (vector(), Pair(0.5, 0.25))]
)
def named_tuples_change(x, pair):
    first, second = pair.swapped()
    break_here()
    changed = pair._replace(second=x)
    return (
        x * first + second,
        changed,
        changed._asdict()["second"],
        pair[:1],
        Pair._fields,
        pair.index(pair.first) if not torch.is_tensor(pair.first) else None,
    )


T = TypeVar("T")


class Box(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item

    def map(self, function: typing.Callable[[T], T]) -> Box[T]:
        return Box[Any](function(self.item))


@program(vector)
def generic_class(x):
    box = Box[torch.Tensor](x).map(lambda value: value + 1)
    break_here()
    hints = typing.get_type_hints(Box.__init__)
    return box.item, typing.get_origin(list[int]), typing.get_args(dict[str, int]), list(hints), box.__orig_class__


# Functions ------------------------------------------------------------------------------------------------------------


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 2.0), lambda: (vector(), True), lambda: (vector(), None)])
def none_a_number_or_a_bool(x, option):
    break_here()
    if option is None:
        return x
    if option is True:
        return x * 3
    return x + option, type(option).__name__


@program(
    calls=[lambda: (vector(), None), lambda: (vector(), vector()), lambda: (vector(), None), lambda: (vector(), 3)]
)
def none_becomes_a_tensor(x, bias):
    y = x * 2 if bias is None else x * 2 + bias
    break_here()
    return y if bias is None else (y, bias)


@functools.singledispatch
def measured(value):
    return -1.0


@measured.register
def _(value: int):
    return value * 2.0


@measured.register(str)
def _(value):
    return float(len(value))


@measured.register
def _(value: torch.Tensor):
    return value.sum()


@program(
    calls=[lambda: (vector(), 1), lambda: (vector(), "abc"), lambda: (vector(), vector()), lambda: (vector(), [1])]
)
def dispatched_by_kind(x, value):
    result = x * measured(value)
    break_here()
    return result - measured("ab")


@functools.lru_cache(maxsize=None)
def remembered(number):
    LOG.append(number)
    return number * number


@program(calls=[lambda: (vector(), 2), lambda: (vector(), 2), lambda: (vector(), 3)])
def cached_across_calls(x, number):
    first = remembered(number)
    break_here()
    return x * first + remembered(number + 1), remembered.cache_info().currsize


SCALE: contextvars.ContextVar[float] = contextvars.ContextVar("SCALE", default=2.0)
LIMIT: contextvars.ContextVar[Any] = contextvars.ContextVar("LIMIT")


@torch.compiler.disable
def set_context(scale, limit):
    SCALE.set(scale)
    LIMIT.set(limit)


@program(calls=[lambda: (vector(),)] * 2)
def context_variables_without_values(x):
    return x * SCALE.get(), x * SCALE.get(3.0), x * LIMIT.get(5.0)


@program(calls=[lambda: (vector(), 1.0, [1]), lambda: (vector(), 4.0, [1]), lambda: (vector(), 4.0, [])])
def context_variables_that_change(x, scale, limit):
    set_context(scale, limit)
    LIMIT.get().append(SCALE.get())
    return x * SCALE.get(7.0) + len(LIMIT.get(None)), limit


@program(calls=[lambda: (vector(),)])
def context_variable_is_missing(x):
    try:
        return x * contextvars.ContextVar("NOTHING").get()
    except LookupError:
        return x


@program(calls=[lambda: (vector(), b"\x00\x00\x80?"), lambda: (vector(), struct.pack("<f", 3.5))])
def bytes_that_are_numbers(x, data):
    return x * struct.unpack("<f", data)[0], struct.pack("<if", len(x), 2.0), struct.calcsize("<if")


@program(calls=[lambda: (vector(),), lambda: (vector(5),)])
def iterators_shown(x):
    numbers, pair = itertools.count(len(x), 2), itertools.repeat(2.0)
    shown = repr(numbers), f"{pair}", str(itertools.repeat("a", 3)), bool(numbers)
    try:
        int(iter([1]))
    except TypeError as error:
        shown = *shown, str(error)
    return x + next(numbers), shown


def traced(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        COUNTS[function.__name__] = COUNTS.get(function.__name__, 0) + 1
        return function(*args, **kwargs)

    return wrapper


@traced
def decorated(x, *rest, scale=1, **more):
    """Its text."""
    return x * scale + sum(rest) + len(more)


@program(
    calls=[lambda: (vector(), (1,), {}), lambda: (vector(), (1, 2), {"scale": 3}), lambda: (vector(), (), {"b": 1})]
)
def star_arguments_change(x, args, options):
    first = decorated(x, *args, **options)
    break_here()
    return decorated(first, *args[::-1], **{**options, "z": 0}), decorated.__doc__, decorated.__wrapped__.__name__


@program(vector)
def signature_is_inspected(x):
    signature = inspect.signature(decorated)
    bound = signature.bind(x, 1, 2, scale=3, other=4)
    bound.apply_defaults()
    break_here()
    return decorated(*bound.args, **bound.kwargs), list(signature.parameters), str(signature.parameters["scale"].kind)


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 5)])
def partials_change(x, number):
    add = functools.partial(operator.add, number)
    nested = functools.partial(functools.partial(decorated, scale=2), x)
    break_here()
    return add(x), nested(number), nested.keywords, functools.reduce(operator.mul, [1, 2, number], x)


def make_counter():
    count = 0

    def step(by=1):
        nonlocal count
        count += by
        return count

    def value():
        return count

    return step, value


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 3)])
def nonlocal_across_breaks(x, by):
    step, value = make_counter()
    step(by)
    break_here()
    x = x + step(by)
    break_here()
    return x * value(), step()


@program(calls=[lambda: (vector(), 2), lambda: (vector(), 0), lambda: (vector(), 5)])
def globals_written_in_a_loop(x, times):
    global TOTAL
    for place in range(times):
        TOTAL += place
        COUNTS[f"at{place}"] = TOTAL
        if place == 1:
            break_here()
    LOG.append(TOTAL)
    return x + TOTAL


@program(vector)
def recursion_with_breaks(x):
    def walk(depth, value):
        if depth == 0:
            break_here()
            return value
        return walk(depth - 1, value + depth) * 2

    return walk(3, x)


@program(calls=[lambda: (vector(), 0), lambda: (vector(), 1), lambda: (vector(), 2)])
def closures_made_in_a_loop(x, which):
    functions = [lambda value, place=place: value * place for place in range(3)]
    late = [lambda value: value + place for place in range(3)]
    break_here()
    return functions[which](x), late[which](x)


# Generators -----------------------------------------------------------------------------------------------------------


@program(vector)
def generator_driven_by_hand(x):
    def averages():
        total, count = 0.0, 0
        received = yield
        while received is not None:
            total, count = total + received, count + 1
            received = yield total / count
        return total

    running = averages()
    next(running)
    first = running.send(x)
    second = running.send(x * 3)
    try:
        running.send(None)
    except StopIteration as stop:
        return first, second, stop.value
    return None


@program(vector)
def generator_thrown_into(x):
    def patient():
        while True:
            try:
                value = yield
                LOG.append(value)
            except ValueError as error:
                LOG.append(str(error))
                yield "caught"
            finally:
                LOG.append("finally")

    running = patient()
    next(running)
    running.send(1)
    told = running.throw(ValueError("no"))
    running.close()
    return x + len(LOG), told


@program(calls=[lambda: (vector(), 2), lambda: (vector(), 0), lambda: (vector(), 4)])
def delegated_generators(x, count):
    def inner(number):
        for place in range(number):
            yield x * place
        return number

    def outer():
        got = yield from inner(count)
        yield x + got
        got = yield from [1, 2]
        LOG.append(got)

    return list(outer())


@program(vector)
def generator_with_a_break_inside(x):
    def values():
        for place in range(3):
            break_here()
            yield x + place

    return sum(values())


@program(vector)
def generator_closed_early(x):
    def values():
        try:
            yield from (x * place for place in itertools.count())
        finally:
            LOG.append("closed")

    found = []
    for value in values():
        found.append(value)
        if len(found) == 3:
            break
    return found


# Context managers and exceptions --------------------------------------------------------------------------------------


class Swallows:
    def __init__(self, *kinds):
        self.kinds = kinds

    def __enter__(self):
        LOG.append("enter")
        return self

    def __exit__(self, kind, error, traceback):
        LOG.append(("exit", None if kind is None else kind.__name__))
        return kind is not None and issubclass(kind, self.kinds)


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 0), lambda: (vector(), "a")])
def swallowed_half_way(x, divisor):
    done = []
    with Swallows(ZeroDivisionError, TypeError):
        done.append("before")
        break_here()
        x = x + 1 / divisor
        done.append("after")
    return x, done


@program(calls=[lambda: (vector(), 2), lambda: (vector(), 0), lambda: (vector(), 7)])
def exit_stack_of_changing_depth(x, depth):
    order = []
    with contextlib.ExitStack() as stack:
        for place in range(depth):
            stack.callback(order.append, place)
        stack.enter_context(Swallows(KeyError))
        break_here()
        x = x * depth
        if depth == 7:
            raise KeyError(depth)
    return x, order


@contextlib.contextmanager
def scaled(factor):
    LOG.append(("in", factor))
    try:
        yield factor * 2
    except ArithmeticError:
        LOG.append("arithmetic")
        raise ValueError("from the manager") from None
    finally:
        LOG.append(("out", factor))


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 3), lambda: (vector(), 0)])
def manager_turns_one_error_into_another(x, number):
    try:
        with scaled(number) as factor:
            break_here()
            return x * factor + 6 // number
    except ValueError as error:
        return x, str(error), error.__suppress_context__


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 0)])
def finally_overrides(x, number):
    for place in range(3):
        try:
            x = x + 1 // number
            if place == 1:
                break
        except ZeroDivisionError:
            LOG.append(place)
            continue
        finally:
            break_here()
            LOG.append("finally")
    else:
        return "ended", x
    return x


@program(calls=[lambda: (vector(), [1, 2]), lambda: (vector(), ["a"]), lambda: (vector(), [])])
def groups_of_exceptions(x, parts):
    errors = [ValueError(part) if isinstance(part, int) else TypeError(part) for part in parts]
    try:
        if errors:
            raise ExceptionGroup("several", errors)
    except* ValueError as group:
        LOG.append(("values", [each.args for each in group.exceptions]))
        x = x * 2
    except* TypeError as group:
        LOG.append(("types", group.message))
        x = x * 3
    return x


@program(calls=[lambda: (vector(), {"a": 1}), lambda: (vector(), {})])
def chained_errors(x, table):
    try:
        try:
            return x * table["a"]
        except KeyError as error:
            raise RuntimeError("no a") from error
    except RuntimeError as error:
        return x, repr(error.__cause__), error.__context__ is error.__cause__


@program(calls=[lambda: (vector(), 3, []), lambda: (vector(), -1, []), lambda: (vector(), 12, [])])
def error_after_partial_effects(x, limit, log):
    for place in range(10):
        log.append(place)
        COUNTS["steps"] = COUNTS.get("steps", 0) + 1
        x.add_(1)
        if place == limit:
            raise LookupError(f"at {place}")
    return x


class Refused(Exception):
    def __init__(self, code, *, detail=None):
        super().__init__(code)
        self.code, self.detail = code, detail


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 2)])
def own_exception_with_notes(x, code):
    try:
        error = Refused(code, detail=x)
        error.add_note("first")
        break_here()
        error.add_note(f"second {code}")
        raise error
    except Refused as caught:
        return caught.detail * caught.code, caught.__notes__, caught.args


# Matching, unpacking and text -----------------------------------------------------------------------------------------


@program(
    calls=[
        lambda: (vector(), [1, 2, 3]),
        lambda: (vector(), {"kind": "scale", "by": 2.0}),
        lambda: (vector(), Pair(1, 5)),
        lambda: (vector(), Fixed(3)),
        lambda: (vector(), "text"),
        lambda: (vector(), None),
        lambda: (vector(), ("add", vector())),
    ]
)
def matched_by_shape(x, what):
    match what:
        case Pair(first=1, second=other) if other > 2:
            return x + other
        case ("add", amount):
            return x + amount
        case [first, *rest]:
            return x * first, rest
        case {"kind": "scale", "by": factor, **more}:
            return x * factor, more
        case Fixed(value, y=1):
            return x - value
        case str() as text:
            return x, text.upper()
        case None | False:
            return None
    return "nothing"


@program(calls=[lambda: (vector(), [1, 2, 3]), lambda: (vector(), (4, 5)), lambda: (vector(), range(6))])
def starred(x, values):
    first, *middle, last = values
    head, tail = (first, *middle), [*middle, *[last], *{"k": 1}]
    break_here()
    return x * first + last, head, tail, max(*values, 0)


@program(calls=[lambda: (vector(), "a", 1.0), lambda: (vector(), "b", 12345.678), lambda: (vector(), "", -0.5)])
def formatted(x, name, value):
    text = f"{name!r:>6}|{value:8.2f}|{value:+.1e}|{x.shape[0]:03d}|{name or 'none':*^9}"
    break_here()
    more = (
        "%s=%05.1f" % (name, value)
        + "{0}{1[0]}{2.real}".format(name, [1], value)
        + string.Template("$a!").substitute(a=name)
    )
    return x * value, text, more


@program(calls=[lambda: (vector(), "a,b,c"), lambda: (vector(), ""), lambda: (vector(), "x")])
def text_taken_apart(x, text):
    parts = text.split(",")
    break_here()
    joined = "-".join(part.upper().ljust(3, ".") for part in parts)
    return x + len(parts), joined, text.partition(","), text.encode().hex(), text.translate(str.maketrans("abc", "123"))


# Copies, weak references, tools ---------------------------------------------------------------------------------------


@program(vector)
def copied_deeply(x):
    inner = [x, {"a": x}]
    inner.append(inner)
    other = copy.deepcopy({"inner": inner})["inner"]
    break_here()
    other[0].add_(1)
    return x, other[0] is other[1]["a"], other[2] is other, other[1]["a"]


class Copies:
    def __init__(self, value):
        self.value, self.copies = value, 0

    def __copy__(self):
        made = Copies(self.value)
        made.copies = self.copies + 1
        return made

    def __deepcopy__(self, memo):
        made = Copies(copy.deepcopy(self.value, memo))
        made.copies = self.copies + 10
        return made


@program(calls=[lambda: (vector(), Copies([1])), lambda: (vector(), Copies([1, 2, 3]))])
def copies_in_its_own_way(x, thing):
    shallow, deep = copy.copy(thing), copy.deepcopy(thing)
    thing.value.append(9)
    break_here()
    return x * shallow.copies + deep.copies, shallow.value, deep.value


@program(vector)
def weak_reference_to_what_is_let_go(x):
    lost = Slotted(2, x)
    reference = weakref.ref(lost)
    break_here()
    del lost
    return reference() is None, x + 1


@program(vector)
def weak_references_with_callbacks(x):
    kept, lost = Slotted(1, x), Slotted(2, x)
    table = weakref.WeakValueDictionary(kept=kept)
    reference = weakref.ref(lost, lambda _: LOG.append("gone"))
    break_here()
    del lost
    return reference() is None, table["kept"].right + 1


@program(calls=[lambda: (vector(), 3), lambda: (vector(), 1), lambda: (vector(), 0)])
def tools_of_iteration(x, count):
    pairs = list(itertools.pairwise(range(count)))
    blocks = list(itertools.zip_longest(range(count), "ab", fillvalue=None))
    running = list(itertools.accumulate([x] * count, operator.add))
    break_here()
    groups = [(key, list(group)) for key, group in itertools.groupby(range(count), key=lambda n: n // 2)]
    mixed = list(itertools.chain.from_iterable([[1], range(count)])) + list(
        itertools.islice(itertools.cycle("xy"), count)
    )
    return running, pairs, blocks, groups, mixed, list(itertools.product(range(2), repeat=min(count, 2)))


@program(calls=[lambda: (vector(), [2, 1]), lambda: (vector(), [5]), lambda: (vector(), [3, 3, 3])])
def iterator_shared_by_two_loops(x, numbers):
    numbers = iter(numbers)
    for number in numbers:
        x = x + number
        break_here()
        for other in numbers:
            x = x * other
            break
    return x, list(numbers)


@program(calls=[lambda: (vector(), 1), lambda: (vector(), 2)])
def warned_and_printed_in_order(x, number):
    print("first", number)
    warnings.warn(f"number {number}", UserWarning, stacklevel=1)
    print("second", x.shape)
    break_here()
    print("third", end="")
    warnings.warn("deprecated", DeprecationWarning, stacklevel=1)
    return x + number


@program(vector)
def module_made_in_the_region(x):
    space = types.SimpleNamespace(a=x)
    made = type("Point", (), {"norm": lambda self: self.value.norm(), "value": x})
    break_here()
    space.b = made().norm()
    return space.a + space.b, sorted(vars(space))


# Sizes and numbers in texts --------------------------------------------------------------------------------------------


@program(calls=[lambda: (vector(4), 0.25), lambda: (vector(5), 0.5), lambda: (vector(6), 0.75)])
def text_of_containers_of_sizes_and_numbers(x, rate):
    n = len(x)
    return x * 2, "{}".format({n: [n]}), "%s %r" % ({n: n}, [n, rate]), f"{ {n: rate} }", repr(collections.deque([n]))


@program(calls=[lambda: (vector(4), 0.25), lambda: (vector(5), 0.5), lambda: (vector(6), 0.75)])
def text_of_errors_of_sizes_and_numbers(x, rate):
    found = []
    for error in (KeyError(len(x)), ValueError({len(x): rate}), ValueError("bad", len(x), rate), RuntimeError(rate)):
        try:
            raise error
        except Exception as caught:
            found += [str(caught), repr(caught)]
    return x * 2, found


@program(calls=[lambda: (vector(4), 0.25), lambda: (vector(5), 0.5), lambda: (vector(6), 0.75)])
def error_of_a_size_raised_to_the_caller(x, rate):
    if rate < 0.6:
        return x * rate
    raise KeyError(len(x))
