"""C code that compares, hashes, or asks the truth of objects whose special methods are written in Python: heaps, views of
dicts, namespaces, sets, containers within containers. It ran those beside the machine, and nothing guarded what they read.
"""

# ruff: noqa: F401 (the expressions are texts)

from __future__ import annotations

import bisect
import collections
import copy
import dataclasses
import functools
import heapq
import itertools
import math
import operator
import types
import weakref

import pytest
import torch

import lampwork
from tests.sampled import one_of


class T:
    sign = 1
    mod = 2
    kept: tuple = ()

    def __init__(s, v):
        s.v = v

    def __lt__(s, o):
        return s.v * T.sign < o.v * T.sign

    def __eq__(s, o):
        return s.v % T.mod == o.v % T.mod if isinstance(o, T) else NotImplemented

    def __hash__(s):
        return hash(s.v % T.mod)

    def __bool__(s):
        return s.v * T.sign > 0

    def __index__(s):
        return T.mod

    def __iter__(s):
        return iter([s.v] * T.mod)


T.kept = (T(1), T(3))


class U(T):
    def __hash__(s):
        return 1


class D(dict):
    def keys(s):
        return ["a", "b"][: T.mod]

    def __getitem__(s, k):
        return T.mod

    def __iter__(s):
        return iter(["a", "b"][: T.mod])


@dataclasses.dataclass
class P:
    a: object
    b: int = 0


@dataclasses.dataclass(order=True)
class Q:
    a: object
    b: int = 0


Y = collections.UserDict


def hp(l):
    heapq.heapify(l)
    return l[0]


def push(l, o):
    heapq.heappush(l, o)
    return l[0]


def pop(l):
    heapq.heapify(l)
    return heapq.heappop(l)


def do(l, f, *a):
    r = f(l, *a)
    return l if r is None else r


EXPRESSIONS = [
    "hp([T(1),T(2),T(3)]).v",
    "push([T(1)],T(2)).v",
    "heapq.heappushpop([T(1)],T(2)).v",
    "next(heapq.merge([T(1),T(3)],[T(2)])).v",
    "heapq.nlargest(1,[T(1),T(2)])[0].v",
    "hp([(T(1),1),(T(2),2)])[0].v",
    "T(3) in {1:T(1)}.values()",
    '("a",T(3)) in {"a":T(1)}.items()',
    '{"a":T(1)}.items()=={"a":T(3)}.items()',
    "types.SimpleNamespace(a=T(1))==types.SimpleNamespace(a=T(3))",
    'types.MappingProxyType({"a":T(1)})=={"a":T(3)}',
    "len(collections.OrderedDict([(T(1),1),(T(3),2)]))",
    "len(frozenset([T(1),T(3)]))",
    "len(dict([(T(1),1),(T(3),2)]))",
    "len(dict.fromkeys([T(1),T(3)]))",
    "{T(1)}.isdisjoint([T(3)])",
    "{U(1)}==frozenset([U(3)])",
    "len({U(1)}|{U(3)})",
    "len({U(1):1}|{U(3):1})",
    "len({U(1):1}.keys()&{U(3):1}.keys())",
    "len(do({U(1)},set.update,[U(3)]))",
    "len({U(1):1,**{U(3):2}})",
    "len({(U(1),1),(U(3),1)})",
    "collections.Counter([U(1)])==collections.Counter([U(3)])",
    "U(3) in {U(1):1}.keys()",
    "sum(itertools.compress([1,2,3],[T(1),True,T(-1)]))",
    'len(memoryview(b"abcd")[T(1):])',
    "len(do([],list.__setitem__,slice(0,0),T(1)))",
    "len({}|D())",
    "len(D(z=1).copy())",
    "weakref.ref(T.kept[0])==weakref.ref(T.kept[1])",
]
OTHERS = [
    "pop([T(1),T(2),T(3)]).v",
    "heapq.heapreplace([T(1),T(2)],T(3)).v + hp([T(1),T(2),T(3)]).v",
    "[e.v for e in heapq.merge([T(1),T(3)],[T(2)])][0]",
    "heapq.nsmallest(1,[T(1),T(2)])[0].v",
    "hp([[T(1),1],[T(2),2]])[0].v",
    "(T(1),1)<(T(2),2)",
    "((T(1),1),1)<((T(2),2),1)",
    "[[T(1)]]<[[T(2)]]",
    "sorted([(T(1),1),(T(2),2)])[0][0].v",
    "min([(T(1),1),(T(2),2)])[1]",
    "max((T(1),),(T(2),))[0].v",
    "(T(1),)==(T(3),)",
    "[T(1)]==[T(3)]",
    "[(T(1),2)].index((T(3),2)) if T.mod==2 else 0",
    "[(T(1),2)].count((T(3),2))",
    "(T(3),2) in [(T(1),2)]",
    "(T(3),2) in ((T(1),2),)",
    "(T(3),2) in collections.deque([(T(1),2)])",
    "collections.deque([(T(1),2)]).count((T(3),2))",
    '{"a":T(1)}.items()<={"a":T(3)}.items()',
    '{"a":T(1)}=={"a":T(3)}',
    '{"a":[T(1)]}=={"a":[T(3)]}',
    '{"a":{"b":T(1)}}=={"a":{"b":T(3)}}',
    "collections.OrderedDict(a=T(1))==collections.OrderedDict(a=T(3))",
    "collections.defaultdict(int,a=T(1))==collections.defaultdict(int,a=T(3))",
    "types.SimpleNamespace(a=[T(1)])!=types.SimpleNamespace(a=[T(3)])",
    'types.MappingProxyType({"a":T(1)}).values().__len__()',
    "len({T(1):1,T(3):2})",
    "len({T(1),T(3)})",
    "len(set([T(1),T(3)]))",
    "len(collections.Counter([T(1),T(3)]))",
    "len({T(1)}|{T(3)})",
    "len({T(1)}&{T(3)})",
    "len({T(1)}.union([T(3)]))",
    "len({T(1)}.intersection([T(3)]))",
    "{T(1)}.issubset([T(3)])",
    "{T(1)}=={T(3)}",
    "{T(1)}<={T(3)}",
    "{U(1)}=={U(3)}",
    "len({U(1),U(3)})",
    "len({U(1)}&{U(3)})",
    "len({U(1)}-{U(3)})",
    "len({U(1)}^{U(3)})",
    "len(set([U(1),U(3)]))",
    "len(dict.fromkeys([U(1),U(3)]))",
    "{U(1):1}=={U(3):1}",
    "{U(1):1}.keys()=={U(3):1}.keys()",
    "len(do({U(1)},set.difference_update,[U(3)]))",
    "len(do({U(1):1},dict.update,{U(3):1}))",
    "len(set({U(1):1,U(3):1}))",
    "len(set([(U(1),1),(U(3),1)]))",
    "hash((T(1),))",
    "hash(frozenset([T(1)]))",
    "len(list(itertools.compress([1,2,3],[T(1),True,T(-1)])))+10*sum(itertools.compress([1,2,3],[T(1),True,T(-1)]))",
    "len(list(filter(None,[T(1)])))",
    "len(list(itertools.filterfalse(None,[T(1)])))",
    "len(list(itertools.takewhile(T.__bool__,[T(1)])))",
    "len(list(itertools.dropwhile(lambda t:t,[T(1)])))",
    "any([T(1)])",
    "all([T(1)])",
    "any(iter([T(1)]))",
    "len(list(itertools.groupby([T(1),T(3)])))",
    "len(list(itertools.groupby([1,3],key=T)))",
    "len(do([1,2,3],list.__setitem__,slice(T(1),3),[]))",
    "len(do([1,2,3],list.__delitem__,slice(T(1),3)))",
    "len(D().copy())",
    "len(D()|{})",
    "len(dict(D()))",
    "len({**D()})",
    "sum(do({},dict.update,D()).values())",
    "len(collections.OrderedDict(D()))",
    "len(collections.ChainMap({},D()))",
    "len(collections.Counter(D()))",
    "len(do(collections.Counter(),collections.Counter.update,D()))",
    "len(collections.defaultdict(int,D()))",
    "operator.countOf([T(1),T(2)],T(3))",
    "operator.indexOf([T(2),T(1)],T(1))",
    "operator.contains([T(1)],T(3))",
    "operator.eq([T(1)],[T(3)])",
    "bisect.bisect([T(1),T(3)],T(2))",
    "bisect.insort([T(1),T(3)],T(2)) or 1",
    "collections.deque([T(1),T(2)]).index(T(1))",
    "collections.deque([T(1)])==collections.deque([T(3)])",
    "collections.deque([T(1)])<collections.deque([T(3)])",
    "len(do(collections.deque([T(1),T(3)]),collections.deque.remove,T(1)))",
    "T(3) in collections.deque([T(1)])",
    'collections.ChainMap({"a":T(1)})=={"a":T(3)}',
    "collections.Counter(a=T(1))==collections.Counter(a=T(3))",
    "P(T(1))==P(T(3))",
    "P([T(1)])==P([T(3)])",
    "Q(T(1))<Q(T(2))",
    "slice(T(1))==slice(T(3))",
    "slice(0,T(1)).indices(5)[1]",
    "[1,2,3][slice(T(1),None)].__len__()",
    "range(5)[T(1)]",
    "range(T(1))==range(2)",
    '"abc"[T(1):].__len__()',
    'b"abc"[T(1):].__len__()',
    'bytearray(b"abc")[T(1):].__len__()',
    "T(3) in iter([T(1)])",
    "T(3) in (t for t in [T(1)])",
    "T(3) in map(T,[1])",
    "T(3) in reversed([T(1)])",
    "T(3) in itertools.chain([T(1)])",
    "list(map(operator.eq,[T(1)],[T(3)]))[0]",
    "list(map(operator.lt,[T(1)],[T(3)]))[0]",
    "list(map(bool,[T(1)]))[0]",
    "list(map(hash,[T(1)]))[0]",
    "list(map(list,[T(1)]))[0].__len__()",
    "functools.reduce(operator.lt,[T(1),T(3)])",
    "list(itertools.starmap(operator.lt,[(T(1),T(3))]))[0]",
    "functools.partial(operator.lt,T(1))(T(3))",
    "T(1).__lt__(T(3))",
    "(T(1),).__lt__((T(3),))",
    "[T(1)].__eq__([T(3)])",
    "{1:T(1)}.__eq__({1:T(3)})",
    "sum([T(1)].__eq__([T(3)]) for _ in [0])",
    "operator.itemgetter(T(1))([1,2,3])",
    "operator.index(T(1))",
    "operator.truth(T(1))",
    "operator.not_(T(1))",
    "math.gcd(T(1),4)",
    "math.comb(4,T(1))",
    "math.factorial(T(1))",
    "next(itertools.count(T(1)).__class__(1))",
    "bytes(T(1)).__len__()",
    "zip([1],T(1)).__next__()[1]",
    "{T(1):5}[T(3)] if T.mod==2 else 1",
    "{U(1):5}.get(U(3),0)",
    "{U(1):5}.pop(U(3),0)",
    "{U(1):5}.setdefault(U(3),0)",
    "len(do({U(1)},set.discard,U(3)))",
    "len(do({U(1)},set.add,U(3)))",
    "U(3) in {U(1)}",
    "U(3) in {U(1):1}",
    "(U(3),1) in {U(1):1}.items()",
    "types.SimpleNamespace(a=T(1),b=2)==types.SimpleNamespace(b=2,a=T(3))",
    'Y({"a":T(1)})==Y({"a":T(3)})',
    "collections.UserList([T(1)])==[T(3)]",
    '{"a":T(1)}.values().__len__()',
    "copy.copy(D()).__len__()",
    "copy.deepcopy(D()).__len__()",
    "D().values().__len__()",
    "D().items().__len__()",
    'str.join(",",D()).__len__()',
    "len(set(D()))",
    "len(list(D()))",
    "len(sorted(D()))",
    "D()=={}",
    'D().get("a",0)',
    'max(D())=="a"',
    "dict(**D()).__len__()",
    "len(dict(D(),z=1))",
]


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *one_of(40, OTHERS)])
def test_what_special_methods_read_is_guarded(expression, monkeypatch):
    program = eval(f"lambda x: x + ({expression})", globals())
    compiled = lampwork.compile(program)
    x = torch.arange(3.0)
    for sign, mod in ((1, 2), (-1, 2), (1, 3), (-1, 1), (1, 2)):
        monkeypatch.setattr(T, "sign", sign)
        monkeypatch.setattr(T, "mod", mod)
        results = []
        for function in (program, compiled):
            try:
                results.append(function(x).tolist())
            except Exception as error:
                results.append(repr(error))
        assert results[0] == results[1], (sign, mod)
