"""Native code that asks an object for a number, a text, elements or a value, by a special method or a function written
in Python: it ran beside the machine, and nothing guarded what it read. (Formats with `%`, repeated sequences, positions,
iterables of `itertools` and of sets, factories of `defaultdict`, functions given to `re.sub` and `json.loads`.)

And objects of classes that derive from `str`, `bytes` and numbers: native code reads what they hold."""

# ruff: noqa: F401 (the expressions are texts)

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import functools
import heapq
import itertools
import json
import math
import operator
import re
import string
import types
import weakref

import numpy
import pytest
import torch

import lampwork


class O:
    def __init__(s, k):
        s.k = k

    def f(s, *a):
        return s.k

    @property
    def p(s):
        return s.k


class It:
    def __init__(s, o):
        s.o = o

    def __iter__(s):
        return iter([s.o.k] * s.o.k)


class Seq:
    def __init__(s, o):
        s.o = o

    def __len__(s):
        return s.o.k

    def __getitem__(s, i):
        if i >= s.o.k:
            raise IndexError
        return s.o.k


class Mp:
    def __init__(s, o):
        s.o = o

    def keys(s):
        return ["a"]

    def __getitem__(s, k):
        return s.o.k

    def __len__(s):
        return 1

    def __iter__(s):
        return iter(["a"])


class Ix:
    def __init__(s, o):
        s.o = o

    def __index__(s):
        return s.o.k


class Tr:
    def __init__(s, o):
        s.o = o

    def __getitem__(s, c):
        return "z" * s.o.k


class St:
    def __init__(s, o):
        s.o = o

    def __str__(s):
        return "s" * s.o.k

    __repr__ = __str__

    def __format__(s, spec):
        return "q" * s.o.k


class CM:
    def __init__(s, o):
        s.o = o

    def __enter__(s):
        return s.o.k

    def __exit__(s, *a):
        return False


def ext(l, v):
    l.extend(v)
    return l


def iadd(l, v):
    l += v
    return l


def imul(l, v):
    l *= v
    return l


def ins(l, i):
    l.insert(i, 9)
    return l


def upd(d, m):
    d.update(m)
    return d


def dset(d, m):
    d |= m
    return d


def slset(l, v):
    l[0:1] = v
    return l


def dl(l, i):
    del l[i]
    return l


EXPRESSIONS = [
    "float(numpy.array([1, 2, 3, 4])[Ix(o)])",
    "float(numpy.ones((4, 4))[Ix(o), 0])",
    "len({1}.union([1], [2], [3], [4], It(o)))",
    "int('%x' % Ix(o), 16)",
    "len(b'%s' % Ix(o))",
    "len(iadd([0],It(o)))",
    "len(iadd([0],Seq(o)))",
    "len(imul([0],Ix(o)))",
    "len(slset([1,2],It(o)))",
    "ins([1,2,3,4],Ix(o)).index(9)",
    'dset({},Mp(o))["a"]',
    'len("%s"%St(o))',
    'len("%-9s"%St(o))',
    'len("%(x)s %(x)r"%{"x":St(o)})',
    'len("%s %s"%("a",St(o)))',
    'len("%.1s"%St(o))',
    'len("%s"%[[St(o)]])',
    'len("%s"%{"a":St(o)})',
    'len("%s"%((St(o),),))',
    'len(b"%a"%St(o))',
    'len("%c"%Ix(o))',
    'len("%s"%(St(o),)*Ix(o))',
    "len(list(itertools.chain(It(o),[1])))",
    "len(list(itertools.chain([0],Seq(o))))",
    "len(list(itertools.chain.from_iterable([It(o),[1]])))",
    "len(list(itertools.chain.from_iterable(iter([It(o)]))))",
    "len(list(itertools.zip_longest(It(o),[1,2,3,4])))",
    "len(list(itertools.islice(It(o),2)))",
    "len(list(itertools.islice([1,2,3,4],Ix(o))))",
    "len(list(itertools.islice([1,2,3,4],0,Ix(o),Ix(o))))",
    "len(list(itertools.product(It(o),[1,2])))",
    "len(list(itertools.product([1,2],repeat=Ix(o))))",
    "len(list(itertools.combinations(It(o),1)))",
    "len(list(itertools.permutations([1,2,3],Ix(o))))",
    "len(list(itertools.permutations([1,2,3],r=Ix(o))))",
    "len(list(itertools.repeat(1,Ix(o))))",
    "len(list(itertools.repeat(1,times=Ix(o))))",
    "len(list(itertools.compress([1,2,3],It(o))))",
    "len(list(itertools.pairwise(It(o))))",
    "next(itertools.cycle(It(o)))",
    're.sub("a",lambda m:"b"*o.k,"aa").__len__()',
    're.compile("a").sub(lambda m:"b"*o.k,"aa").__len__()',
    'json.loads("{}",object_hook=lambda d:o.k)',
    "len(json.dumps(o,default=lambda v:v.k))",
    'len(json.dumps({"a":o},default=lambda v:v.k*100))',
    'collections.defaultdict(lambda:o.k)["q"]',
    'collections.defaultdict(o.f)["q"]',
    "len(collections.deque(It(o),9))",
    "{1,2}.issuperset(It(o))",
    "{1}.isdisjoint(It(o))",
    "len({1,2,3}.intersection(Seq(o)))",
    "operator.contains(It(o),2)",
    "operator.iadd([0],It(o)).__len__()",
    'len("ab"*Ix(o))',
    'len(Ix(o)*"ab")',
    "len((1,)*Ix(o))",
    'len(b"a"*Ix(o))',
    'len(bytearray(b"a")*Ix(o))',
    "len([1]*Ix(o))",
    "[1,2,3,4].pop(Ix(o))",
    "[1,2,1,2].index(2,Ix(o))",
    "(1,2,1,2).index(2,Ix(o))",
    "collections.deque([1,2,3,4]).__getitem__(Ix(o))",
    "len(collections.deque([1,2])*Ix(o))",
    "x[Seq(o)].sum()",
    "x.repeat(Ix(o)).sum()",
    "torch.stack([x]*Ix(o)).sum()",
]
#: Right before, too.
OTHERS = [
    "len(ext([0],It(o)))",
    "len(ext([0],Seq(o)))",
    "len(iadd(collections.deque([0]),It(o)))",
    "len(ext(collections.deque([0]),It(o)))",
    "sum(dl([1,2,3,4],Ix(o)))",
    'upd({},Mp(o))["a"]',
    'dict(Mp(o))["a"]',
    '{**Mp(o)}["a"]',
    '(lambda **k:k["a"])(**Mp(o))',
    'dict([("a",o.k)])["a"]',
    "dict(zip(It(o),It(o))).__len__()",
    'collections.ChainMap({},Mp(o))["a"]',
    'len("x".translate(Tr(o)))',
    'len("{0}{a}".format(St(o),a=1))',
    'len("{a}".format(**{"a":St(o)}))',
    'len("%s%%"%St(o))',
    'len(f"{St(o)!s:>4}")',
    'len(f"{[St(o)]}")',
    'len(str({"a":St(o)}))',
    'len(" ".join(map(str,[St(o)])))',
    "sum(itertools.accumulate(It(o)))",
    "len(list(itertools.starmap(max,[(o.k,1)])))",
    "len(list(itertools.takewhile(lambda v:v<o.k,[0,1,2,3])))",
    "len(list(itertools.filterfalse(lambda v:v<o.k,[0,1,2,3])))",
    "[len(list(g)) for k,g in itertools.groupby([1,1,2],key=lambda v:v<o.k)][0]",
    "len(itertools.tee(It(o),Ix(o)))",
    "next(itertools.count(o.k))",
    "len(list(zip(It(o),[1,2,3])))",
    "len(list(enumerate(It(o),o.k)))",
    "sorted([1,2,3],key=lambda v:(v*o.k)%3)[0]",
    "max([1,2,3],key=lambda v:(v*o.k)%3)",
    "functools.reduce(lambda a,b:a*o.k+b,[1,2,3])",
    "sorted([3,1,2],key=functools.cmp_to_key(lambda a,b:(a-b)*(o.k-2)))[0]",
    'json.loads("[1.5]",parse_float=lambda t:o.k)[0]',
    "heapq.nlargest(1,[1,2,3],key=lambda v:(v*o.k)%3)[0]",
    "bisect.bisect([1,2,3],2,key=lambda v:v*o.k)",
    "next(iter(o.f,None))",
    "list(map(o.f,[1]))[0]",
    "list(filter(lambda v:v==o.k,[1,2,3]))[0]",
    "functools.partial(o.f)()",
    "functools.partial(lambda a:a*o.k,2)()",
    'operator.methodcaller("f")(o)',
    'operator.attrgetter("k")(o)',
    'operator.attrgetter("p")(o)',
    "operator.itemgetter(0)(Seq(o))",
    "(lambda:o.k)()",
    "any(v==o.k for v in [2])",
    "sum(v*o.k for v in [1,2])",
    "{v:o.k for v in [1]}[1]",
    "functools.lru_cache(lambda a:a*o.k)(2)",
    "copy.copy(o).k",
    "copy.deepcopy(o).k",
    'len(string.Template("$a").substitute({"a":St(o)}))',
    "contextlib.ExitStack().enter_context(CM(o))",
    'getattr(o,"zz",o.k)',
    'o.__dict__["k"]',
    'vars(o)["k"]',
    "types.SimpleNamespace(a=o.k).a",
    "types.MethodType(lambda s:s.k,o)()",
    "O.f(o)",
    "O.p.fget(o)",
    "property(lambda s:s.k).__get__(o)",
    "weakref.ref(o)().k",
    "math.prod(It(o))",
    "math.fsum(It(o))",
    "sum(It(o))",
    "max(It(o))",
    "min(Seq(o))",
    "sorted(Seq(o))[0]",
    "len(set(It(o)))",
    "len(frozenset(Seq(o)))",
    "len(collections.Counter(It(o)))",
    "len(bytes(It(o)))",
    "len(bytearray(Seq(o)))",
    "list(reversed(Seq(o)))[0]",
    "len(dict.fromkeys(It(o),1))",
    "len({1}|set(It(o)))",
    "len({1}.union(It(o)))",
    "(lambda *a:len(a))(*It(o))",
    "(lambda a,*b:a)(*Seq(o))",
    "len([*It(o),*Seq(o)])",
    "len((0,*It(o)))",
    "(2 in It(o))",
    "(2 in Seq(o))",
    "operator.countOf(It(o),2)",
    "operator.indexOf([1,2,3],o.k)",
    "operator.concat([1],[o.k])[1]",
    "operator.mul([1],Ix(o)).__len__()",
    "(1,2,3,4)[Ix(o)]",
    '"abcd"[Ix(o)]=="b"',
    "len([1,2,3,4][:Ix(o)])",
    "range(9)[Ix(o)]",
    "len(range(Ix(o)))",
    "len(range(0,9,Ix(o)))",
    '"abcabc".find("a",Ix(o))',
    '"abc".startswith("b",Ix(o))',
    'len("a".ljust(Ix(o)))',
    'len("a".zfill(Ix(o)))',
    'len("a b c d".split(" ",Ix(o)))',
    'len("aaaa".replace("a","bb",Ix(o)))',
    "round(2.345,Ix(o))",
    '(5).to_bytes(Ix(o),"big").__len__()',
    'int.from_bytes(It(o),"big")',
    "hash((o.k,))",
    "chr(Ix(o)).__len__()",
    "slice(Ix(o)).indices(5)[1]",
    "x[Ix(o)]",
    "x[:Ix(o)].sum()",
    "x[(Ix(o),)]",
    "x[[Ix(o)]].sum()",
    "x.new_zeros(Ix(o)).numel()",
    "torch.zeros(Ix(o)).numel()",
    "torch.ones(2,Ix(o)).sum()",
    "x.roll(Ix(o))[0]",
    "x.unsqueeze(0).expand(Ix(o),4).sum()",
    "torch.tensor([o.k]).sum()",
    "torch.as_tensor(Seq(o)).sum()",
    "torch.tensor(Seq(o)).sum()",
    "torch.arange(Ix(o)).sum()",
    "x.narrow(0,Ix(o),1).sum()",
    "x.select(0,Ix(o))",
    "torch.full((Ix(o),),2.).sum()",
    "x.split(Ix(o))[0].sum()",
    "torch.cat([x,*[x]*o.k]).sum()",
    "x.index_select(0,torch.tensor([o.k])).sum()",
]


def check(
    expression: str, values: tuple, make=lambda o, value: setattr(o, "k", value), of=lambda: O(1), names=None
) -> dict:
    program = eval(f"lambda o, x: x + ({expression})", names or globals())
    compiled = lampwork.compile(program)
    o, x = of(), torch.arange(4.0)
    for value in values:
        make(o, value)
        results = []
        for function in (program, compiled):
            try:
                results.append(function(o, x))
            except Exception as error:
                results.append(type(error))
        expected, found = results
        assert expected is not NameError
        if isinstance(expected, type) or isinstance(found, type):
            assert expected is found, value
        else:
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    return lampwork.stats(compiled)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_objects_are_asked_for(expression):
    check(expression, (1, 2, 3, 1))


@pytest.mark.slow
@pytest.mark.parametrize("expression", OTHERS)
def test_what_objects_are_asked_for_otherwise(expression):
    check(expression, (1, 2, 3, 1))


class Name(str):
    pass


class Number(int):
    pass


class Real(float):
    pass


class Counted(int):
    """Native code asks none of these: it takes what the number holds."""

    def __int__(self):
        return 50

    def __index__(self):
        return 60


class Asked(str):
    def __str__(self):
        return "T" * len(self)

    def __eq__(self, other):
        return len(self) == 2

    def __hash__(self):
        return hash("pp")


DERIVED = [
    (Name, "getattr(o, o.n)", ("p", "q")),
    (Name, "{'p': 2, 'q': 3}[o.n]", ("p", "q")),
    (Name, "o.n in {'p', 'r'}", ("p", "q")),
    (Name, "len('-'.join([o.n, 'b']))", ("p", "qqq")),
    (Name, "sorted([o.n, 'pp']).index('pp')", ("p", "qqq")),
    (Name, "len(min(o.n, 'pp'))", ("p", "qqq")),
    (Name, "hasattr(o, o.n)", ("p", "zz")),
    (Name, "getattr(torch, o.n)(x)", ("sin", "cos")),
    (Name, "torch.einsum(o.n, x[None]).sum(0)[0]", ("ij->ji", "ij->ij")),
    (Name, "len(o.n.split(','))", ("p", "q,q")),
    (Name, "len('%s' % o.n)", ("p", "qqq")),
    (Name, "len(o.n % 3)", ("%d", "%03d")),
    (Number, "x[o.n]", (1, 2)),
    (Number, "[1, 2, 3][o.n]", (1, 2)),
    (Number, "x.reshape(o.n, -1).sum(0)[0]", (1, 2)),
    (Number, "o.n + 1", (1, 2)),
    (Real, "max(o.n, 3.0)", (2.0, 5.0)),
    (Real, "x * o.n", (2.0, 5.0)),
    (Counted, "int('%d%s' % (o.n, ''))", (1, 2)),
    (Counted, "[1, 2, 3][o.n] + len([0] * o.n)", (1, 2)),
    (Counted, "x[o.n] + [5, 6, 7].pop(o.n)", (1, 2)),
    (Number, "len('%d %s' % (o.n, [slice]))", (1, 22)),
    (Asked, "len('%s|' % o.n)", ("p", "qqq")),
    (Asked, "{'pp': 2}.get(o.n, 5)", ("p", "qq")),
    (Asked, "o.n in ['zz']", ("p", "qq")),
]


@pytest.mark.parametrize(("kind", "expression", "values"), DERIVED)
def test_texts_and_numbers_of_classes_of_the_program(kind, expression, values):
    def make(o, value):
        o.p, o.q, o.n = 2.0, 5.0, kind(value)

    stats = check(expression, (*values, values[0]), make, types.SimpleNamespace)
    assert not stats["fallbacks"]
