"""functools, itertools, operator: what programs are glued together with."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator

import torch

from tests.python.harness import program

CALLED = []


def vector():
    return torch.arange(4.0)


@functools.lru_cache(maxsize=None)
def _table(n):
    CALLED.append(n)
    return [i * i for i in range(n)]


@functools.cache
def _mask(n):
    CALLED.append("mask")
    return torch.ones(n, n).tril()


@functools.singledispatch
def _describe(value):
    return "object"


@_describe.register
def _(value: int):
    return "int"


@_describe.register(list)
def _(value):
    return "list of " + ", ".join(_describe(each) for each in value)


@_describe.register(torch.Tensor)
def _(value):
    return "tensor"


class Dispatching:
    @functools.singledispatchmethod
    def run(self, value):
        return value

    @run.register
    def _(self, value: int):
        return value + 1

    @functools.cached_property
    def heavy(self):
        CALLED.append("heavy")
        return 7

    add = functools.partialmethod(lambda self, a, b: a + b, 10)


@program(vector)
def partial_functions(x):
    add = functools.partial(torch.add, x, alpha=2)
    again = functools.partial(add, 5)
    return add(1), again(), again.args, add.keywords, functools.partial(pow, 2)(5), again.func is torch.add


@program(vector)
def partial_returned(x):
    return functools.partial(torch.mul, x + 1)


@program(vector)
def lru_cache_of_plain_data(x):
    return x * _table(4)[3], _table(4) is _table(4)


@program(vector)
def lru_cache_filled_inside(x):
    return x * len(_table(x.numel() + 2))


@program(vector)
def lru_cache_of_a_tensor(x):
    return _mask(4) * x


@program(vector)
def lru_cache_made_inside(x):
    calls = []

    @functools.lru_cache
    def square(n):
        calls.append(n)
        return n * n

    return x * square(3) + square(3), calls, square.cache_info().hits


@program(vector)
def wraps_and_update_wrapper(x):
    def original(y):
        """Doubles."""
        return y * 2

    @functools.wraps(original)
    def wrapper(y):
        return original(y) + 1

    return wrapper(x), wrapper.__name__, wrapper.__doc__, wrapper.__wrapped__ is original


@program(vector)
def single_dispatch(x):
    return _describe(1), _describe([1, x]), _describe(x), _describe("s"), _describe.dispatch(bool)(True)


@program(vector, Dispatching)
def dispatching_methods(x, dispatching):
    return dispatching.run(1), dispatching.run("a"), x * dispatching.heavy, dispatching.heavy, dispatching.add(5)


@program(vector)
def reduce(x):
    return (
        functools.reduce(operator.add, [x, x, x]), functools.reduce(lambda a, b: a * b, range(1, 5)),
        functools.reduce(operator.mul, [], 7), functools.reduce(max, [3, 1, 4]),
    )  # fmt: skip


@program(vector)
def reduce_of_nothing(x):
    try:
        functools.reduce(operator.add, [])
    except TypeError as error:
        return x, str(error)


@program(vector)
def cmp_to_key(x):
    values = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
    return x, values


@program(vector)
def itertools_basic(x):
    return (
        list(itertools.chain([x], (1,), "a")), list(itertools.chain.from_iterable([[1], [2, 3]])),
        list(itertools.islice(itertools.count(5, 2), 3)), list(itertools.islice(itertools.cycle("ab"), 5)),
        list(itertools.repeat(x, 2)), list(itertools.zip_longest([1], [x, 2], fillvalue=0)), list(itertools.pairwise([1, 2, x])),
    )  # fmt: skip


@program(vector)
def itertools_with_functions(x):
    return (
        list(itertools.accumulate([x, x, x])), list(itertools.accumulate([1, 2, 3], operator.mul, initial=1)),
        list(itertools.starmap(lambda a, b: a + b, [(x, 1), (2, 3)])), list(itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 1])), list(itertools.filterfalse(lambda v: v % 2, range(5))),
        [(key, list(group)) for key, group in itertools.groupby([1, 3, 2, 4, 5], key=lambda v: v % 2)],
    )  # fmt: skip


@program(vector)
def itertools_combinatorics(x):
    return (
        list(itertools.product([1, 2], "ab")), list(itertools.product(range(2), repeat=2)), list(itertools.permutations([1, 2, 3], 2)),
        list(itertools.combinations("abc", 2)), list(itertools.combinations_with_replacement([x, 1], 2)),
        list(itertools.compress("abcd", [1, 0, 1, 0])),
    )  # fmt: skip


@program(vector)
def itertools_tee(x):
    first, second = itertools.tee(y * 2 for y in (x, x + 1))
    return next(first), list(second), list(first)


@program(vector)
def operator_functions(x):
    class Holder:
        def __init__(self):
            self.value = x
            self.inner = {"k": [1, 2]}

        def scale(self, by, plus=0):
            return self.value * by + plus

    holder = Holder()
    return (
        operator.attrgetter("value")(holder), operator.itemgetter(1, 0)([10, 20]), operator.methodcaller("scale", 2, plus=1)(holder),
        operator.add(x, 1), operator.matmul(x, x), operator.getitem(x, 2), operator.contains([1], 1), operator.index(5),
        operator.truth([]), operator.is_(x, x), operator.neg(x), operator.itemgetter("k")(holder.inner), operator.concat([1], [2]),
    )  # fmt: skip


@program(vector, lambda: {"a": 1, "b": 2})
def operator_writes(x, table):
    operator.setitem(table, "c", x)
    operator.delitem(table, "a")
    y = x.clone()
    operator.iadd(y, 1)
    return y, operator.countOf([1, 2, 1], 1), operator.indexOf([5, 6], 6)


@program(vector)
def sorting(x):
    words = ["pear", "fig", "apple"]
    return (
        sorted(words), sorted(words, key=len), sorted(words, key=lambda w: (-len(w), w), reverse=True), sorted({3, 1, 2}),
        min(words, key=len), max(3, 7, key=lambda v: -v), min([], default="none"), sorted([(1, "b"), (1, "a")]), sorted("hello"),
    )  # fmt: skip


@program(vector)
def sorting_in_place(x):
    items = [("b", 2), ("a", 2), ("c", 1)]
    items.sort(key=operator.itemgetter(1))
    numbers = [3, 1, 2]
    numbers.sort(reverse=True)
    return items, numbers, list(reversed(numbers))


@program(vector)
def sorting_what_does_not_compare(x):
    try:
        sorted([1, "a"])
    except TypeError as error:
        return x, str(error)


@program(vector)
def map_filter_zip(x):
    return (
        list(map(torch.neg, [x, x + 1])), list(map(lambda a, b: a + b, [1, 2], [x, x])), list(filter(None, [0, 1, "", "a"])),
        list(filter(lambda v: v > 1, [1, 2, 3])), list(zip("ab", [x, x])), dict(zip("ab", range(2))), list(zip(*[(1, 2), (3, 4)])),
    )  # fmt: skip


@program(vector)
def zip_strict(x):
    try:
        list(zip([1, 2], [1], strict=True))
    except ValueError as error:
        return x, str(error)


@program(vector)
def any_all_sum(x):
    return (
        any(v > 2 for v in range(4)),
        all(v < 2 for v in range(4)),
        sum([x, x]),
        sum([[1], [2]], []),
        any([]),
        all([]),
    )


@program(vector)
def mathematics(x):
    return (
        math.sqrt(x.numel()), math.floor(2.7), math.ceil(2.1), math.gcd(12, 18), math.factorial(5), math.isclose(0.1 + 0.2, 0.3),
        math.log2(8), math.prod([1, 2, 3]), math.inf > 1, math.isnan(math.nan), math.hypot(3, 4), math.comb(5, 2), math.copysign(1, -0.0),
    )  # fmt: skip


@program(vector, lambda: itertools.count(10))
def counter_argument_is_advanced(x, numbers):
    return x * next(numbers), next(numbers)


@program(vector, lambda: [1, 3, 3, 7])
def sorted_places(x, places):
    bisect.insort(places, x.numel())
    bisect.insort_left(places, 3.0)
    bisect.insort(places, -9, key=abs)
    found = [bisect.bisect(places, each) for each in (0, 3, 9)], bisect.bisect_left(places, 3, 1, 4)
    try:
        bisect.bisect(places, 0, -1)
    except ValueError as error:
        return x, found, str(error), bisect.bisect_left(["a", "bcd"], 2, key=len)


@program(calls=[lambda: (vector(), 0), lambda: (vector(), 2), lambda: (vector(), 3), lambda: (vector(), 8)])
def milestones(x, epoch):
    return x * 0.1 ** bisect.bisect_right([2, 5], epoch)
