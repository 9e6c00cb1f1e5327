"""Python's tools around tensors: caches, dispatch, iterators, contexts, generators, exceptions, patterns, text."""

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import datetime
import decimal
import fractions
import functools
import io
import itertools
import json
import math
import operator
import pickle
import random
import re
import statistics
import string
import textwrap
import uuid
import warnings

import torch

from tests.python.harness import program
from tests.python.tensors import values

ROWS = [lambda: (values(2, 3),), lambda: (values(4, 3, seed=1),), lambda: (values(2, 3, seed=2).double(),)]
NUMBERS = [lambda: (values(3), 2), lambda: (values(3), 5), lambda: (values(3), 3), lambda: (values(4), 7)]


# Functions -----------------------------------------------------------------------------------------------------------


def memoize(function):
    kept = {}

    @functools.wraps(function)
    def wrapper(*args):
        if args not in kept:
            kept[args] = function(*args)
        return kept[args]

    wrapper.kept = kept
    return wrapper


@memoize
def binomial(n, k):
    return 1 if k in (0, n) else binomial(n - 1, k - 1) + binomial(n - 1, k)


@program(calls=NUMBERS)
def memoized_recursion(x, n):
    return x * sum(binomial(n, k) for k in range(n + 1)), len(binomial.kept), binomial.__name__


@functools.singledispatch
def describe(value):
    return f"?{type(value).__name__}"


@describe.register
def _(value: int):
    return f"int {value}"


@describe.register(torch.Tensor)
def _(value):
    return f"tensor {list(value.shape)}"


@describe.register(list)
@describe.register(tuple)
def _(value):
    return [describe(each) for each in value]


@program(calls=[lambda: (values(2), 3), lambda: (values(2, 2), [values(1), 2.5]), lambda: (values(2), (1, "a", None))])
def dispatch_with_nested_values(x, other):
    return describe(x), describe(other), x + 1


class retry:
    def __init__(self, times, *errors):
        self.times, self.errors = times, errors or (Exception,)
        self.attempts = []

    def __call__(self, function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            for attempt in range(1, self.times + 1):
                try:
                    return function(*args, attempt=attempt, **kwargs)
                except self.errors as error:
                    self.attempts.append((attempt, str(error)))
                    last = error
            raise RuntimeError(f"{function.__name__} failed {self.times} times") from last

        wrapper.policy = self
        return wrapper


@retry(3, ValueError, ZeroDivisionError)
def fragile(x, need, attempt):
    if attempt < need:
        raise ValueError(f"attempt {attempt} of {need}")
    return x / (need - 2)


@program(calls=[lambda: (values(2), 1), lambda: (values(2), 3), lambda: (values(2), 2), lambda: (values(2), 9)])
def retried_with_a_policy(x, need):
    return fragile(x, need), list(fragile.policy.attempts)


def compose(*functions):
    return functools.reduce(lambda f, g: lambda *a, **k: g(f(*a, **k)), functions)


@program(calls=ROWS)
def composed_functions(x):
    pipeline = compose(torch.sin, functools.partial(torch.sum, dim=-1), operator.methodcaller("mul", 2), operator.neg)
    return pipeline(x), pipeline(x.T)


def counted(function):
    function.calls = 0

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        function.calls += 1
        return function(*args, **kwargs)

    return wrapper


@counted
def scaled(x, *rest, factor=1.0, **options):
    return x * factor + len(rest) + sum(options.values())


@program(
    calls=[
        lambda: (values(2), (), {}),
        lambda: (values(2), (1, 2), {"factor": 2.0}),
        lambda: (values(2), (1,), {"b": 1, "a": 2}),
    ]
)
def arguments_forwarded(x, args, kwargs):
    return scaled(x, *args, **kwargs), scaled.__wrapped__.calls, list(kwargs)


def make_accumulator(start=0.0):
    total = start
    history = []

    def add(value):
        nonlocal total
        total = total + value
        history.append(value)
        return total

    def reset():
        nonlocal total
        total = start
        history.clear()

    add.reset = reset
    return add


ACCUMULATE = make_accumulator()


@program(
    calls=[
        lambda: (values(2), False),
        lambda: (values(2, seed=1), False),
        lambda: (values(2), True),
        lambda: (values(2), False),
    ]
)
def accumulator_of_closures(x, reset):
    if reset:
        ACCUMULATE.reset()
    return ACCUMULATE(x) * 2


@functools.lru_cache(maxsize=2)
def window(kind, size):
    print("made", kind, size)
    return {"hann": torch.hann_window, "hamming": torch.hamming_window}[kind](size, periodic=False)


@program(
    calls=[
        lambda: (values(4), "hann"),
        lambda: (values(6), "hann"),
        lambda: (values(4), "hamming"),
        lambda: (values(4), "hann"),
    ]
)
def windows_in_a_small_cache(x, kind):
    return x * window(kind, len(x))


@program(calls=NUMBERS)
def currying_and_defaults(x, n):
    adders = [lambda v, k=k: v + k for k in range(n)]
    late = [lambda v: v + k for k in range(n)]
    return sum(f(x) for f in adders), sum(f(x) for f in late)


# Iterators and containers -------------------------------------------------------------------------------------------


@program(calls=ROWS)
def iterators_combined(x):
    pairs = list(itertools.pairwise(x))
    batched = [list(itertools.islice(it, 2)) for it in [iter(x)] for _ in range((len(x) + 1) // 2)]
    longest = list(itertools.zip_longest(x, [1], fillvalue=0))
    return [b - a for a, b in pairs], [torch.stack(b) for b in batched], [a * b for a, b in longest]


@program(calls=NUMBERS)
def combinations_of_rows(x, n):
    rows = [x + i for i in range(min(n, 3))]
    products = {f"{i}{j}": a @ b for (i, a), (j, b) in itertools.combinations(enumerate(rows), 2)}
    runs = list(itertools.accumulate(rows, lambda a, b: a * 0.5 + b, initial=torch.zeros_like(x)))
    return (
        products,
        runs[-1],
        list(itertools.chain.from_iterable([[1, 2], (n,)])),
        len(list(itertools.product(range(n), "ab"))),
    )


@program(calls=NUMBERS)
def counters_compared(x, n):
    seen = collections.Counter(int(i) % 3 for i in range(n))
    seen.update({0: 2})
    seen.subtract([1, 1])
    return x * seen[0], +seen, seen.most_common(1), seen.total()


@program(calls=NUMBERS)
def layered_settings(x, n):
    layers = collections.ChainMap({"scale": n}, {"scale": 1, "shift": 0.5})
    inner = layers.new_child({"shift": 2.0})
    inner["new"] = 1
    return x * layers["scale"] + layers["shift"], x + inner["shift"], sorted(inner), "new" in layers


@program(calls=NUMBERS)
def sorted_pairs(x, n):
    keys = sorted(((i * 7) % 5, -i) for i in range(n))
    place = bisect.bisect_left(keys, (2, -10))
    bisect.insort(keys, (1, 1))
    return x[: place % len(x) + 1], keys, max(keys, key=operator.itemgetter(1))


def flatten(nested, prefix=""):
    if isinstance(nested, dict):
        for key, value in nested.items():
            yield from flatten(value, f"{prefix}.{key}" if prefix else key)
    elif isinstance(nested, (list, tuple)):
        for i, value in enumerate(nested):
            yield from flatten(value, f"{prefix}[{i}]")
    else:
        yield prefix, nested


@program(
    calls=[
        lambda: ({"a": values(2), "b": [values(1), {"c": 3}]},),
        lambda: ([values(2), (1, [values(2)])],),
        lambda: (values(2),),
    ]
)
def trees_flattened(tree):
    flat = dict(flatten(tree))
    return {name: value * 2 for name, value in flat.items()}, list(flat)


def windows(iterable, size):
    kept = collections.deque(maxlen=size)
    for item in iterable:
        kept.append(item)
        if len(kept) == size:
            yield tuple(kept)


@program(calls=ROWS)
def sliding_over_a_generator(x):
    return [torch.stack(w).mean(0) for w in windows((row * 2 for row in x), 2)]


def running_mean():
    total, count = 0.0, 0
    mean = None
    while True:
        value = yield mean
        if value is None:
            return total
        total, count = total + value, count + 1
        mean = total / count


@program(calls=ROWS)
def coroutine_of_means(x):
    averager = running_mean()
    next(averager)
    means = [averager.send(row) for row in x]
    try:
        averager.send(None)
    except StopIteration as stop:
        return means, stop.value
    return None


# Contexts and errors -------------------------------------------------------------------------------------------------


class Scope:
    active: list = []

    def __init__(self, name, swallow=()):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        self.active.append(self.name)
        return self

    def __exit__(self, kind, error, trace):
        self.active.pop()
        self.outcome = "ok" if kind is None else kind.__name__
        return kind is not None and issubclass(kind, self.swallow) if self.swallow else False


@program(calls=[lambda: (values(2), "x"), lambda: (values(2), "y"), lambda: (values(2), "z")])
def scopes_nested(x, key):
    table = {"x": 1.0, "y": None}
    with Scope("outer") as outer, Scope("inner", swallow=(KeyError, TypeError)) as inner:
        depth = len(Scope.active)
        x = x * table[key]
    return x, depth, outer.outcome, inner.outcome, Scope.active


@contextlib.contextmanager
def patched(target, name, value):
    before = getattr(target, name)
    setattr(target, name, value)
    try:
        yield before
    finally:
        setattr(target, name, before)


class Knobs:
    gain = 2.0


@program(
    calls=[lambda: (values(2), 3.0), lambda: (values(2), 4.0), lambda: (values(2), "bad"), lambda: (values(2), 3.0)]
)
def attribute_patched_for_a_while(x, gain):
    with patched(Knobs, "gain", gain) as before:
        y = x * Knobs.gain
    return y, before, x * Knobs.gain


@program(calls=NUMBERS)
def stack_of_cleanups(x, n):
    log = []
    with contextlib.ExitStack() as stack:
        for i in range(min(n, 3)):
            stack.callback(log.append, i)
        stack.enter_context(contextlib.suppress(IndexError))
        saved = stack.pop_all()
    with saved:
        x = x[n]
    return x, log


class BadBatch(ValueError):
    def __init__(self, place, reason):
        super().__init__(f"batch {place}: {reason}")
        self.place = place


def check(batches):
    errors = []
    for place, batch in enumerate(batches):
        try:
            if batch.ndim != 1:
                raise BadBatch(place, f"{batch.ndim} dimensions")
            if not batch.is_floating_point():
                raise TypeError(f"batch {place} has {batch.dtype}")
        except (BadBatch, TypeError) as error:
            error.add_note(f"shape {tuple(batch.shape)}")
            errors.append(error)
    if errors:
        raise ExceptionGroup("bad batches", errors)
    return torch.cat(list(batches))


@program(calls=[
    lambda: ([values(2), values(3)],), lambda: ([values(2), values(2, 2)],),
    lambda: ([torch.arange(3), values(1, 1), values(2)],), lambda: ([torch.arange(3)],),
])  # fmt: skip
def groups_of_errors_split(batches):
    try:
        return check(batches)
    except* BadBatch as group:
        handled = [(e.place, e.__notes__) for e in group.exceptions]
        print(handled)


def parse(text, default=None):
    try:
        value = float(text)
    except (TypeError, ValueError) as error:
        if default is None:
            raise LookupError(f"cannot read {text!r}") from error
        return default
    else:
        return value
    finally:
        print("parsed", text)


@program(
    calls=[
        lambda: (values(2), "2.5", None),
        lambda: (values(2), "x", 1.0),
        lambda: (values(2), "x", None),
        lambda: (values(2), None, 3.0),
    ]
)
def errors_with_else_and_finally(x, text, default):
    return x * parse(text, default)


@program(calls=NUMBERS)
def loops_with_finally_and_continue(x, n):
    log = []
    for i in range(n):
        try:
            if i % 2:
                continue
            if i == 4:
                break
            x = x + i
        finally:
            log.append(i)
    else:
        log.append("end")
    return x, log


# Text, dates, numbers ------------------------------------------------------------------------------------------------


@program(calls=ROWS)
def formatted_shapes(x):
    rows, columns = x.shape
    header = f"{'name':<8}|{'shape':^12}|{x.dtype!s:>14}"
    line = "{0:<8}|{1!r:^12}|{2:>8.2f}%".format("x", tuple(x.shape), 100 * rows / columns)
    old = "%s %d x %-4d| %5.1f" % (x.shape, rows, columns, rows / 2)
    return header, line, old, f"{rows=} {rows * columns:05d} {rows:>{columns}}", x * 2


@program(calls=[lambda: (values(2), "w: 0.5, b: 2"), lambda: (values(2), "b: 1"), lambda: (values(2), "w: x")])
def settings_read_by_pattern(x, text):
    found = {m["key"]: float(m["value"]) for m in re.finditer(r"(?P<key>\w+):\s*(?P<value>[\d.]+)", text)}
    return x * found.get("w", 1.0) + found.get("b", 0.0), re.sub(r"\d", "#", text), string.capwords(text)


@program(calls=NUMBERS)
def table_of_text(x, n):
    out = io.StringIO()
    for i in range(min(n, 3)):
        print(i, x.shape[0] * i, sep="|", end=";", file=out)
    wrapped = textwrap.fill("a " * n, width=6)
    return out.getvalue(), wrapped, x + len(out.getvalue()), textwrap.dedent("  a\n  b")


@program(calls=NUMBERS)
def settings_as_json(x, n):
    text = json.dumps({"n": n, "shape": list(x.shape), "nested": {"a": None, "b": [True, 1.5]}}, sort_keys=True)
    back = json.loads(text)
    return x * back["n"], text, back["nested"]["b"]


@program(calls=NUMBERS)
def exact_numbers(x, n):
    third = fractions.Fraction(n, 3)
    price = decimal.Decimal("1.10") * n
    return x * float(third), str(price), third.limit_denominator(2), math.gcd(n, 12), math.isclose(0.1 * 3, 0.3)


@program(calls=NUMBERS)
def statistics_of_python(x, n):
    data = [1.0 * i * i for i in range(1, n + 1)]
    return (
        x - statistics.fmean(data),
        statistics.median(data),
        statistics.pstdev(data),
        math.fsum(data),
        math.prod(data),
    )


@program(calls=NUMBERS)
def dates_computed(x, n):
    day = datetime.date(2024, 2, 27) + datetime.timedelta(days=n)
    return x * day.day, day.isoformat(), day.strftime("%A"), (day - datetime.date(2024, 1, 1)).days


@program(calls=NUMBERS)
def named_by_uuid(x, n):
    name = uuid.uuid5(uuid.NAMESPACE_DNS, f"run-{n}")
    return x + name.int % 7, str(name), name.hex[:4]


@program(calls=NUMBERS)
def imported_by_name(x, n):
    module = __import__("math" if n % 2 else "cmath")
    return (
        x * abs(module.exp(n / 10)),
        module.__name__,
        __import__("collections.abc", fromlist=["Sized"]).Sized is not None,
    )


@program(calls=NUMBERS)
def python_generator_restored(x, n):
    state = random.getstate()
    first = [random.random() for _ in range(2)]
    random.setstate(state)
    again = [random.random() for _ in range(2)]
    random.seed(n)
    return x * first[0], first == again, random.randint(0, 9)


@program(calls=NUMBERS)
def plain_values_pickled(x, n):
    data = pickle.dumps({"n": n, "list": [1, 2.5, "a"]}, protocol=4)
    back = pickle.loads(data)
    return x * back["n"], len(data) > 10, back["list"]


@program(calls=NUMBERS)
def warnings_by_category(x, n):
    if n > 4:
        warnings.warn(f"{n} is much", UserWarning, stacklevel=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("inner", DeprecationWarning, stacklevel=1)
    return x / n, [str(w.message) for w in caught]


@program(calls=NUMBERS)
def structures_compared_and_copied(x, n):
    first = {"a": [1, {"b": (n, n + 1)}], "x": x}
    second = copy.deepcopy(first)
    second["a"][1]["c"] = n
    return (
        second["x"] is x,
        first["a"] == second["a"],
        second["x"] + second["a"][1]["c"],
        copy.copy(first)["a"] is first["a"],
    )


def act(command, x):
    match command.split():
        case ["scale", by]:
            return x * float(by)
        case ["take", *places] if places:
            return x[[int(p) for p in places]]
        case ["flip" | "reverse"]:
            return x.flip(0)
        case []:
            return x
        case [unknown, *_]:
            raise SyntaxError(f"no command {unknown}")


@program(calls=[
    lambda: (values(3), "scale 2.5"), lambda: (values(3), "take 0 2"), lambda: (values(3), "reverse"), lambda: (values(3), ""),
    lambda: (values(3), "take"),
])  # fmt: skip
def commands_matched(x, command):
    return act(command, x)


@program(calls=NUMBERS)
def walrus_in_a_loop(x, n):
    parts = []
    while (half := n // 2) and len(parts) < 3:
        parts.append(x * half)
        n = half
    return parts, [y for i in range(3) if (y := i * n) > 0], (last := parts[-1]) if parts else None


@program(calls=NUMBERS)
def slices_and_ranges(x, n):
    places = range(n)[::-2]
    cut = slice(None, None, max(1, n // 2))
    return x[cut], list(places), places.index(places[-1]), cut.indices(len(x)), x[slice(*cut.indices(3))]


@program(calls=NUMBERS)
def bits_and_bytes(x, n):
    packed = n.to_bytes(2, "big") + bytes([n, 255])
    view = memoryview(packed)[1:3]
    return (
        x * (n << 2 ^ 1),
        packed.hex(),
        bytes(view),
        bin(n).count("1"),
        n.bit_length(),
        int.from_bytes(packed[:2], "big"),
    )
