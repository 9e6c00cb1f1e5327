"""Containers of the language and of `collections`: their methods, their order, their aliasing."""

from __future__ import annotations

import collections
import copy
import heapq
from types import MappingProxyType, SimpleNamespace

import torch

from tests.python.harness import program


def vector():
    return torch.arange(4.0)


@program(vector)
def list_methods(x):
    values = [3, 1]
    values.append(2)
    values.extend((5, 4))
    values.insert(1, 9)
    values.remove(1)
    popped = values.pop(0), values.pop()
    values.reverse()
    again = values.copy()
    again.clear()
    return values, popped, again, values.index(9), values.count(2), values + [x], [0] * 3, x


@program(vector)
def dict_methods(x):
    table = dict(a=1, b=x)
    table.update({"c": 3}, d=4)
    return (
        table.get("a"), table.get("z", 0), table.pop("c"), table.pop("zz", None), table.setdefault("e", []), table.popitem(),
        list(table.items()), table.copy(), dict.fromkeys("ab", 0), list(reversed(table)), table | {"q": 1}, len(table), "a" in table,
    )  # fmt: skip


@program(vector)
def dict_views(x):
    table = {"a": 1, "b": 2}
    keys, values, items = table.keys(), table.values(), table.items()
    table["c"] = 3
    return (
        list(keys),
        sum(values),
        ("a", 1) in items,
        keys & {"a", "z"},
        keys - {"a"},
        keys == {"a", "b", "c"},
        len(items),
        x,
    )


@program(vector)
def dict_order_after_changes(x):
    table = {"a": 1, "b": 2, "c": 3}
    del table["a"]
    table["a"] = x
    table["b"] = 5
    return table, next(iter(table)), list(table)[-1]


@program(vector)
def set_methods(x):
    a, b = {1, 2, 3}, {3, 4}
    c = a.copy()
    c.update([7], {8})
    c.discard(100)
    c.remove(1)
    return (
        a | b, a & b, a - b, a ^ b, a <= {1, 2, 3, 4}, a.isdisjoint({9}), c, frozenset(a) == a, len(a), a.union([5], (6,)),
        sorted(a.symmetric_difference(b)), x,
    )  # fmt: skip


@program(vector)
def sets_of_strings_are_sorted(x):
    words = set("hello world".split())
    return sorted(words), "hello" in words, x * len(words)


@program(vector)
def tuples(x):
    values = (1, x, "a")
    return (
        values + (2,),
        values * 2,
        values[1:],
        values.index("a"),
        (1, 1).count(1),
        tuple("ab"),
        (),
        (x,),
        hash((1, 2)) == hash((1, 2)),
    )


@program(vector)
def nested_structures_share(x):
    shared = [x]
    table = {"a": shared, "b": shared, "c": [shared]}
    table["a"].append(1)
    return table, table["b"] is table["c"][0]


@program(vector)
def self_referencing(x):
    values = [x]
    values.append(values)
    table = {}
    table["self"] = table
    return values, table


@program(vector)
def deque_methods(x):
    queue = collections.deque([1, 2, 3], maxlen=4)
    queue.appendleft(0)
    queue.append(x)
    queue.rotate(1)
    left = queue.popleft()
    queue.extendleft([8, 9])
    return queue, left, len(queue), queue[0], list(reversed(queue)), queue.maxlen, 8 in queue


@program(vector)
def counter(x):
    count = collections.Counter("abracadabra")
    count.update("aa")
    count["z"] += 1
    other = collections.Counter(a=1, b=5)
    return (
        count.most_common(2),
        count["missing"],
        (count + other)["b"],
        (other - count),
        sum(count.values()),
        count | other,
        x,
    )


@program(vector)
def default_dict(x):
    groups = collections.defaultdict(list)
    for index, value in enumerate([x, x + 1, x + 2]):
        groups[index % 2].append(value)
    counts = collections.defaultdict(int)
    counts["a"] += 2
    nested = collections.defaultdict(lambda: collections.defaultdict(int))
    nested["p"]["q"] += 1
    return dict(groups), counts["a"], counts["none"], sorted(counts), nested["p"]["q"]


@program(vector)
def default_dict_returned(x):
    groups = collections.defaultdict(list)
    groups["a"].append(x)
    return groups


@program(vector)
def ordered_dict(x):
    table = collections.OrderedDict([("a", 1), ("b", x), ("c", 3)])
    table.move_to_end("a")
    table.move_to_end("c", last=False)
    first = table.popitem(last=False)
    return table, first, list(table.items()), collections.OrderedDict(a=1, b=2) == collections.OrderedDict(b=2, a=1)


@program(vector)
def chain_map(x):
    base, local = {"a": 1, "b": 2}, {"b": x}
    chained = collections.ChainMap(local, base)
    chained["c"] = 5
    return (
        chained["a"],
        chained["b"],
        sorted(chained),
        local["c"],
        chained.new_child({"a": 9})["a"],
        len(chained),
        "zz" in chained,
    )


class History(collections.UserDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.last = key


class Numbers(collections.UserList):
    def total(self):
        return sum(self.data)


@program(vector)
def user_containers(x):
    history = History(a=1)
    history["b"] = x
    numbers = Numbers([1, 2, 3])
    numbers.append(4)
    return (
        history.data,
        history.last,
        "a" in history,
        len(history),
        numbers.total(),
        numbers[1:].data,
        [n * 2 for n in numbers],
    )


@program(vector)
def simple_namespace(x):
    space = SimpleNamespace(a=1, b=x)
    space.c = space.a + 1
    del space.a
    return space, space.c, hasattr(space, "a"), vars(space)


@program(vector, lambda: SimpleNamespace(scale=2.0, log=[]))
def simple_namespace_argument(x, space):
    space.log.append(x)
    space.scale *= 2
    return x * space.scale


@program(vector)
def mapping_proxy(x):
    table = {"a": 1}
    view = MappingProxyType(table)
    table["b"] = x
    try:
        view["c"] = 1
    except TypeError as error:
        message = str(error)
    return view["a"], len(view), list(view), message


@program(vector)
def heap(x):
    values = [5, 1, 4]
    heapq.heapify(values)
    heapq.heappush(values, 0)
    smallest = heapq.heappop(values)
    return smallest, values, heapq.nlargest(2, [1, 5, 2]), heapq.nsmallest(1, [(2, "a"), (1, "b")]), x


@program(vector)
def copies(x):
    original = {"list": [1, [2]], "tensor": x, "tuple": (1, [3])}
    shallow, deep = copy.copy(original), copy.deepcopy(original)
    shallow["list"].append("shared")
    deep["list"][1].append("own")
    return original, deep["list"], deep["tensor"] is x, deep["tuple"], shallow["list"] is original["list"]


@program(vector)
def deepcopy_of_shared_and_cyclic(x):
    shared = [1]
    loop = {"a": shared, "b": shared}
    loop["self"] = loop
    made = copy.deepcopy(loop)
    return made["a"] is made["b"], made["self"] is made, made["a"] is shared, x


class Copied:
    def __init__(self, value):
        self.value = value
        self.parts = [value]

    def __copy__(self):
        made = Copied(self.value)
        made.copied = True
        return made

    def __deepcopy__(self, memo):
        return Copied(copy.deepcopy(self.value, memo))


@program(vector, lambda: Copied(3))
def copies_by_own_methods(x, thing):
    return copy.copy(thing), copy.deepcopy([thing, thing]), x


@program(vector, lambda: {"a": [1], "b": {"c": (2, [3])}})
def deepcopy_of_an_argument(x, table):
    made = copy.deepcopy(table)
    made["a"].append(x)
    made["b"]["c"][1].append(4)
    return made


@program(vector, lambda: [[1], [2]])
def aliased_argument_parts(x, rows):
    first = rows[0]
    rows.append(first)
    first.append(x)
    return rows[2] is rows[0]


@program(vector, lambda: collections.defaultdict(list, {"a": [1]}), lambda: collections.Counter("aab"))
def collections_as_arguments(x, groups, count):
    groups["b"].append(x)
    count["c"] += 1
    count.update("a")
    return len(groups), count.most_common(1)


@program(vector, lambda: {1, 2, 3}, lambda: frozenset({"a"}))
def sets_as_arguments(x, numbers, names):
    numbers.add(7)
    numbers.discard(1)
    return x * len(numbers), "a" in names, names | {"b"}


@program(vector)
def byte_arrays(x):
    data = bytearray(b"abc")
    data.append(100)
    data[0] = 65
    return bytes(data), data.decode(), list(b"xy"), b"a" + b"b", memoryview(b"abc")[1], x


@program(vector)
def ranges(x):
    r = range(2, 20, 3)
    return (
        list(r),
        r[1],
        r[-1],
        len(r),
        5 in r,
        r[1:4],
        r.index(8),
        list(reversed(r)),
        range(0) == range(5, 5),
        x[list(range(2))],
    )


@program(vector)
def slot_by_tensor_identity(x):
    y = x + 1
    table = {x: "x", y: "y"}
    return table[x], table[y], x in table, len({x, y, x})


@program(vector)
def lists_of_tensors_compared_by_identity(x):
    values = [x, None]
    return values[0] is x, None in [None, x], [v is x for v in values]
