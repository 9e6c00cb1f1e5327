"""What operations mean for each family of values: the answer is eager's, and a row pins what it costs, in entries for
three calls that differ and in breaks. A row that needs fewer is an improvement, and is changed; one that needs more says
that another family answers than before.

    x, y    tensors of n and of 1 element           n       a size of the call
    lr      a number of the host that varies        u, i    numbers taken out of tensors, a float and an integer
    a       an array over a tensor's memory         text    a text made of `u`
    d, l    a dict and a list from outside, which hold an object of a Python class
    o       an object of a Python class with operators of its own
"""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
import torch

import lampwork


class Vector:
    def __init__(self, size: Any) -> None:
        self.size = size

    def __add__(self, other: Any) -> Any:
        return ("add", self.size, other)

    def __radd__(self, other: Any) -> Any:
        return ("radd", self.size, other)

    def __iadd__(self, other: Any) -> Any:
        self.size = self.size + 1
        return self

    def __eq__(self, other: Any) -> Any:
        return "equal"

    def __len__(self) -> int:
        return 2

    def __getitem__(self, key: Any) -> Any:
        return self.size, key

    def __contains__(self, item: Any) -> bool:
        return item == 3

    def __neg__(self) -> Any:
        return "negative"

    def __repr__(self) -> str:
        return f"Vector({self.size})"

    def __format__(self, spec: str) -> str:
        return f"vector {spec}"

    def __index__(self) -> int:
        return 1


class Values:
    def __init__(self, x: Any, lr: float, d: dict, l: list, o: Any) -> None:
        self.x, self.lr, self.d, self.l, self.o = x, lr, d, l, o
        self.n, self.y = len(x), x[:1]


def iadd(left: Any, right: Any) -> Any:
    left += right
    return left


def imul(left: Any, right: Any) -> Any:
    left *= right
    return left


def itruediv(left: Any, right: Any) -> Any:
    left /= right
    return left


def ipow(left: Any, right: Any) -> Any:
    left **= right
    return left


def imod(left: Any, right: Any) -> Any:
    left %= right
    return left


def ior(left: Any, right: Any) -> Any:
    left |= right
    return left


def put(container: Any, key: Any, value: Any) -> Any:
    container[key] = value
    return container


def without(container: Any, key: Any) -> Any:
    del container[key]
    return container


def changed(target: Any, function: Any, *args: Any) -> Any:
    function(target, *args)
    return target


def tried(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


ROWS: dict[str, str] = {
    # binary
    "v.lr * 2 + v.lr": "1",
    "v.lr * v.x": "1",
    "v.x * v.lr": "1",
    "v.x ** v.lr": "2",
    "v.lr ** v.x": "1",
    "v.x / v.lr": "1",
    "v.lr * v.n": "1",
    "v.n / 2": "1",
    "v.n * 0.5": "1",
    "v.n // 2 + v.n % 3 - 1": "1",
    "v.n ** 2": "1",
    "v.n * v.x": "1",
    "v.x + v.n": "1",
    "v.n & 3": "4",
    "(v.n > 3) & (v.n > 1)": "1",
    "v.n + v.lr": "1",
    "v.u * 2.0 + v.u": "1",
    "v.u * v.x": "1",
    "v.u * v.lr": "1",
    "v.lr / v.u": "1",
    "v.u + v.n": "1",
    "v.u ** 2": "1",
    "v.i * 2 + v.i": "1",
    "v.i // 2": "1",
    "v.a * 2": "1",
    "v.a + v.a": "1",
    "v.a @ v.a": "1",
    "v.a * v.u": "1",
    "v.a * v.lr": "4",
    "v.a % 2": "2 unknown-native",
    '"x" + v.text': "1",
    "v.text + v.text": "1",
    "v.text * 2": "2 data-dependent",
    "v.text % ()": "2 data-dependent",
    '"%s and %.2f" % (v.text, v.u)': "1",
    '"%s" % v.lr': "1",
    '"%d" % v.n': "4",
    '"%s %r" % ({v.n: v.n}, [v.n])': "4",
    '"%s" % v.x': "1",
    "v.x @ v.x": "1",
    "v.x + v.x": "1",
    "v.x + 1": "1",
    "tried(lambda: v.x + None)": "4",
    'tried(lambda: v.lr + "a")': "4",
    'tried(lambda: v.n + "a")': "4",
    'tried(lambda: "a" + v.n)': "4",
    "v.o + v.lr": "4",
    "v.n + v.o": "4",
    "v.o + v.x": "2",
    "v.o + 1": "2",
    "[1] + [v.n]": "1",
    "v.l + [1]": "1",
    "[0] * v.n": "4",
    "tried(lambda: v.l + 1)": "1",
    "tried(lambda: v.d + 1)": "1",
    # in place
    "iadd(v.lr, 1)": "1",
    "imul(v.x.clone(), v.lr)": "1",
    "ipow(v.x.clone(), v.lr)": "2",
    "ipow(v.lr, v.x)": "1",
    "itruediv(v.x.clone(), v.u)": "1",
    "iadd(v.n, 1)": "1",
    "itruediv(v.n, 2)": "1",
    "iadd(v.x.clone(), v.n)": "1",
    "imul([0], v.n)": "4",
    "iadd(v.u, 1)": "1",
    "iadd(v.a, 1)": "1",
    "iadd(v.a[0], 1)": "1",
    'iadd(v.text, "a")': "1",
    'iadd("a", v.text)': "1",
    'imod("%s", v.text)': "1",
    "iadd(v.l, [1])": "1",
    "iadd(v.o, 1)": "2",
    'ior(v.d, {"z": 1})': "1",
    # unary
    "-v.lr, +v.lr": "1",
    "-v.n, +v.n, ~v.n": "4",
    "-v.u, +v.u": "1",
    "-v.i, ~v.i": "1",
    "-v.a": "1",
    "-v.x, ~(v.x > 0)": "1",
    "-v.o": "1",
    "not v.lr": "1",
    "not v.n": "1",
    "not v.l, not v.d, not v.o": "1",
    # comparisons
    "v.lr > 0, v.lr == 0.25": "2",
    "v.lr < v.x": "1",
    'v.lr == "a", v.lr != None': "4",
    "v.lr < v.n": "1",
    "v.n > 3, v.n == 5, 3 < v.n": "2",
    'v.n == "a", v.n != None': "1",
    "v.n < v.x": "1",
    "v.n == 2.5": "1",
    "v.u < v.x": "1",
    "v.u < 2.0": "1",
    "v.i == v.n": "1",
    "v.a > 1": "1",
    "v.a == None": "2 unknown-native",
    'v.text == "a"': "2 data-dependent",
    "v.x == v.x": "1",
    "v.x == None": "1",
    "v.l == [1], v.l == v.l": "1",
    "v.d == {}, v.d == v.d": "1",
    "v.o == 1, 1 == v.o": "1",
    "(v.n, 1) == (4, 1)": "2",
    "[v.n] == [v.n]": "1",
    "(v.n, 1) < (5, 1)": "4",
    "[v.lr] == [0.25]": "2",
    'tried(lambda: v.lr < "a")': "4",
    "tried(lambda: v.l < 1)": "1",
    # branches
    "1 if v.lr else 2": "1",
    "1 if v.n else 2": "1",
    "1 if v.n > 4 else 2": "2",
    "1 if v.u > 3 else 2": "2 data-dependent",
    "1 if v.u else 2": "2 data-dependent",
    "1 if v.y > 0 else 2": "2 data-dependent",
    "1 if v.a[0] else 2": "2 unknown-native",
    "1 if v.l else 2": "1",
    "1 if v.o else 2": "1",
    "1 if v.text else 2": "2 data-dependent",
    # items
    "v.x[0], v.x[1:], v.x[None]": "1",
    "v.x[v.n - 1]": "1",
    "v.x[: v.n - 1]": "1",
    "v.x[v.i - 1]": "1",
    "v.x[: v.i]": "1",
    "v.x[v.x > 2]": "1",
    "v.a[0], v.a[1:]": "1",
    "v.x[(v.a > 4)]": "1",
    "[*range(12)][v.n]": "4",
    "[*range(12)][: v.n]": "4",
    "[*range(12)][v.o]": "1",
    "{4: 1, 5: 2, 6: 3, 8: 4}[v.n]": "4",
    "{(4, 1): 1, (5, 1): 2, (6, 1): 3, (8, 1): 4}[v.n, 1]": "4",
    "{0.25: 1, 0.5: 2, 0.75: 3, 1.5: 4}[v.lr]": "4",
    "[*range(12)][v.i]": "2 data-dependent",
    '"abcdefghijk"[v.n]': "4",
    "range(9)[v.n]": "4",
    "v.l[1], v.l[-1]": "1",
    "v.l[1:]": "1",
    'v.d["k"].size': "2",
    "tried(lambda: v.d[v.n])": "4",
    'tried(lambda: v.d["none"])': "1",
    "tried(lambda: v.l[7])": "1",
    "v.o[v.n], v.o[1:2]": "4",
    "put(v.x.clone(), 0, v.lr)": "1",
    "put(v.x.clone(), 0, v.u)": "1",
    "put(v.x.clone(), 0, v.n)": "1",
    "put(v.x.clone(), v.x > 2, 0.0)": "1",
    "put(v.a, 0, 5.0)": "1",
    "put(v.l, 0, v.n)": "1",
    'put(v.d, "z", v.lr)': "1",
    "put({}, v.n, v.n)": "4",
    "put({}, v.lr, v.lr)": "4",
    "without(v.l, 0)": "1",
    "without(v.d, 5)": "1",
    'tried(lambda: without(v.d, "none"))': "1",
    # questions
    "len(v.x), len(v.l), len(v.d), len(v.o)": "1",
    "len(v.a)": "4",
    "3 in v.o, v.n in v.o": "4",
    "v.n in [4, 5]": "3",
    "v.n in (4, 5)": "3",
    "v.n in {4, 5}": "3",
    "v.n in range(5)": "2",
    "(v.n, 1) in {(4, 1): 0}": "4",
    "v.lr in [0.25]": "2",
    "v.lr in {0.25}": "4",
    '"k" in v.d, "none" in v.d, v.n in v.d': "2",
    "2 in v.l, 7 in v.l": "1",
    "v.u in [1.0]": "2 data-dependent",
    '"a" in v.text': "2 data-dependent",
    "v.x is v.x, v.lr is v.lr, v.o is None": "1",
    # iteration
    "[each for each in v.x]": "4",
    "[each for each in v.l[1:]]": "1",
    "[each for each in v.d]": "1",
    "[each for each in v.a]": "4",
    "[*v.l][1:], [*v.d]": "1",
    "list(v.l)[1:], list(v.d), tuple(v.x)": "4",
    "[*map(str, v.l[1:])]": "1",
    "(lambda a, *b: (a, b))(*v.x)": "4",
    "(lambda a, b, c: (b, c))(*v.l)": "1",
    'dict(v.d)["k"].size, {**v.d}["k"].size': "2",
    "[k for k, _ in v.d.items()]": "1",
    "{v.n: v.lr}": "4",
    "{v.n}": "4",
    "[i for i in range(v.n)]": "4",
    # attributes
    "v.lr.__class__, v.n.__class__, v.x.__class__": "1",
    "v.u.__class__, v.a.__class__, v.text.__class__": "1",
    "v.lr.is_integer()": "4",
    "v.n.bit_length()": "4",
    "v.n.real, v.lr.real": "4",
    "v.u.real": "2 data-dependent",
    "v.a.shape, v.a.ndim, v.a.T": "1",
    "v.a.sum()": "1",
    "v.x.shape, v.x.ndim, v.x.T, v.x.dtype": "1",
    "v.text.upper()": "2 data-dependent",
    "v.o.size": "2",
    'tried(getattr, v.lr, "nothing")': "4",
    'tried(getattr, v.n, "nothing")': "4",
    'tried(getattr, v.o, "nothing")': "1",
    'changed(v.o, setattr, "size", v.n + 1).size': "1",
    'changed(v.o, setattr, "other", v.lr).other': "1",
    'changed(v.o, delattr, "size").__dict__': "1",
    'changed(v.x.clone(), setattr, "mark", 1).mark': "1",
    # conversions
    "bool(v.lr), bool(v.n), bool(v.x[0] > 0)": "1",
    "bool(v.u)": "1",
    "int(v.lr * 8)": "1",
    "int(v.n), float(v.n)": "1",
    "int(v.u), float(v.i), float(v.x[0]), int(v.x[0])": "1",
    "complex(v.lr)": "4",
    "complex(v.n)": "4",
    "complex(v.u)": "2 native-argument",
    "operator.index(v.n)": "1",
    "tried(operator.index, v.lr)": "4",
    "operator.index(v.o), int(v.o)": "1",
    "round(v.lr, 1), round(v.lr)": "3",
    "round(v.u, 1)": "1",
    "abs(v.lr), abs(v.n), abs(v.u), abs(v.x), abs(v.a)": "1",
    "min(v.lr, 0.3), max(v.n, 5), max(v.u, 2.0)": "2",
    "max(1, v.y.sum())": "1",
    "sum([v.lr, 1]), sum([v.n, 1]), sum([v.u, 1])": "1",
    "pow(v.lr, 2), pow(v.n, 2), pow(v.u, 2)": "2 native-argument",
    "divmod(v.lr, 0.3), divmod(v.n, 3)": "4",
    "math.sqrt(v.lr), math.sqrt(v.n), math.sqrt(v.u)": "1",
    "math.floor(v.lr), math.floor(v.n)": "2",
    "str(v.lr), repr(v.lr), str(v.n)": "4",
    "str(v.u), repr(v.u), str(v.x), repr(v.text)": "1",
    "str(v.a)": "1",
    "str([v.lr, v.n, v.u])": "4",
    "str({v.n: v.lr})": "4",
    "hash(v.lr), hash(v.n)": "4",
    "hex(v.n), chr(v.n + 60)": "4",
    "isinstance(v.lr, float), isinstance(v.n, int), isinstance(v.u, float), isinstance(v.text, str)": "1",
    "type(v.lr), type(v.n), type(v.x), type(v.a)": "1",
    # text
    'f"{v.lr}", f"{v.lr:.1e}", f"{v.lr!r:>9}"': "1",
    'f"{v.n}", f"{v.n:03d}", f"{v.n!r}"': "4",
    'f"{v.u:.1f}", f"{v.x}", f"{v.y.sum():.2f}"': "1",
    'f"{v.o}", f"{v.o:>3}"': "1",
    'f"{[v.n]}", f"{[v.u]}", f"{(v.lr,)}"': "4",
    '"{} {:.1f}".format(v.n, v.u)': "4",
    '"{} {:.1f}".format(v.n, v.lr)': "4",
    'format(v.lr, ".2f"), format(v.n), format(v.u, ".2f")': "4",
    '", ".join([v.text, "a"])': "1",
}  # fmt: skip


def outcome(row: str) -> tuple[list, list, str]:
    compute = eval(f"lambda v: ({row})", {**globals(), "math": math, "operator": operator})
    unknown = set(compute.__code__.co_names)

    def program(x: Any, lr: float, d: dict, l: list, o: Any) -> Any:
        v: Any = Values(x, lr, d, l, o)
        if "u" in unknown or "text" in unknown:
            v.u = (x * 3).sum().item()
        if "i" in unknown:
            v.i = (x > 0).sum().item()
        if "a" in unknown:
            v.a = (x * 3).detach().numpy()
        if "text" in unknown:
            v.text = f"{v.u}"
        return compute(v)

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    expected, found = [], []
    for n, lr in ((4, 0.25), (5, 0.5), (6, 0.75), (8, 1.5)):
        for function, results in ((program, expected), (compiled, found)):
            x = torch.arange(1.0, n + 1)
            results.append(function(x, lr, {"k": Vector(n), 5: x}, [Vector(n), 2, 3], Vector(n)))
    stats = lampwork.stats(compiled)
    assert not stats["fallbacks"]
    cost = " ".join([str(stats["captures"]), *sorted({each.id for each in stats["breaks"]})])
    return expected, found, cost


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    expected, found, cost = outcome(row)
    assert repr(found) == repr(expected)
    assert cost == ROWS[row]
