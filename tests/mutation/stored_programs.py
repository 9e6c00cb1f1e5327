"""Programs, and edits of them that are made between the process that stores an entry and the one that loads it.

A carrier is a way in which a number gets into a program: `V` in its text is 2 when the entry is stored, and 3 when it is
loaded. Each is put into a few programs that use the number. A change is any other edit of a program's text; a setting is
a line that runs in the second process before the program is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`before` and `after`: texts of the modules `main` and `other`. `setting`: runs first in the second process."""

    name: str
    before: tuple[str, str]
    after: tuple[str, str]
    setting: str = ""


_PATCH = """import {module}
kept = {module}.{name}
def patched(*a, **k): return 5 if {test} else kept(*a, **k)
if V > 2:
    {module}.{name} = patched"""

#: name, text of the module, expression for the number, text of the module `other`.
CARRIERS: list[tuple[str, str, str, str]] = [
    ("global", "N = V", "N", ""),
    ("global of several names", "A = B = V\nN = A * B", "N", ""),
    ("global computed at import", "N = sum(range(V + 1))", "N", ""),
    ("module-level if", "FLAG = V\nif FLAG > 2:\n    N = 5\nelse:\n    N = 1", "N", ""),
    ("function under a module-level if", "if V > 2:\n    def g(): return 5\nelse:\n    def g(): return 1", "g()", ""),
    ("default argument", "def g(n=V): return n", "g()", ""),
    ("keyword default", "def g(*, n=V): return n", "g()", ""),
    ("default of a lambda", "g = lambda n=V: n", "g()", ""),
    ("helper's body", "def g(): return V", "g()", ""),
    ("helper of a helper", "def h(): return V\ndef g(): return h()", "g()", ""),
    ("helper's nested function", "def g():\n    def h(): return V\n    return h()", "g()", ""),
    ("lambda in a helper", "def g(): return (lambda: V)()", "g()", ""),
    ("comprehension in a helper", "def g(): return [k + V for k in range(2)][0]", "g()", ""),
    ("generator", "def g():\n    yield V", "next(g())", ""),
    ("sum of a generator", "def g(): return sum(k for k in (1, V))", "g()", ""),
    ("closure", "def make_g():\n    n = V\n    def g(): return n\n    return g\ng = make_g()", "g()", ""),
    ("closure's argument", "def make_g(n):\n    def g(): return n\n    return g\ng = make_g(V)", "g()", ""),
    (
        "closure in a closure",
        "def a(n):\n    def b():\n        def c(): return n\n        return c\n    return b()\ng = a(V)",
        "g()",
        "",
    ),
    ("imported module's function", "import other", "other.g()", "def g(): return V"),
    ("imported function", "from other import g", "g()", "def g(): return V"),
    ("imported constant", "from other import N", "N", "N = V"),
    ("imported module's constant", "import other", "other.N", "N = V"),
    ("imported function's global", "from other import g", "g()", "N = V\ndef g(): return N"),
    ("import in the function", "def g():\n    import other\n    return other.N", "g()", "N = V"),
    ("from-import in the function", "def g():\n    from other import N\n    return N", "g()", "N = V"),
    ("star import", "from other import *", "N", "N = V"),
    ("module's __getattr__", "import other", "other.N", "def __getattr__(name): return V"),
    ("class attribute", "class C:\n    n = V", "C.n", ""),
    ("class attribute of an instance", "class C:\n    n = V\nc = C()", "c.n", ""),
    ("instance attribute", "class C:\n    def __init__(self): self.n = V\nc = C()", "c.n", ""),
    ("instance made in the call", "class C:\n    def __init__(self, n=V): self.n = n", "C().n", ""),
    ("slot", "class C:\n    __slots__ = ('n',)\nc = C()\nc.n = V", "c.n", ""),
    ("method", "class C:\n    def m(self): return V\nc = C()", "c.m()", ""),
    ("method of a base class", "class B:\n    def m(self): return V\nclass C(B): pass\nc = C()", "c.m()", ""),
    (
        "method of an imported base class",
        "import other\nclass C(other.B): pass\nc = C()",
        "c.m()",
        "class B:\n    def m(self): return V",
    ),
    (
        "super's method",
        "class B:\n    def m(self): return V\nclass C(B):\n    def m(self): return super().m()\nc = C()",
        "c.m()",
        "",
    ),
    ("attribute of a base class", "class B:\n    n = V\nclass C(B): pass\nc = C()", "c.n", ""),
    ("static method", "class C:\n    @staticmethod\n    def m(): return V", "C.m()", ""),
    ("class method", "class C:\n    n = V\n    @classmethod\n    def m(cls): return cls.n", "C.m()", ""),
    ("class method's body", "class C:\n    @classmethod\n    def m(cls): return V", "C().m()", ""),
    ("property", "class C:\n    @property\n    def n(self): return V\nc = C()", "c.n", ""),
    (
        "cached property",
        "import functools\nclass C:\n    @functools.cached_property\n    def n(self): return V\nc = C()",
        "c.n",
        "",
    ),
    ("descriptor", "class D:\n    def __get__(self, obj, cls): return V\nclass C:\n    n = D()\nc = C()", "c.n", ""),
    (
        "descriptor's attribute",
        "class D:\n    def __init__(self, n): self.n = n\n    def __get__(self, obj, cls): return self.n\n"
        "class C:\n    n = D(V)\nc = C()",
        "c.n",
        "",
    ),
    ("__getattr__", "class C:\n    def __getattr__(self, name): return V\nc = C()", "c.n", ""),
    ("__getattribute__", "class C:\n    def __getattribute__(self, name): return V\nc = C()", "c.n", ""),
    ("__call__", "class C:\n    def __call__(self): return V\nc = C()", "c()", ""),
    ("__len__", "class C:\n    def __len__(self): return V\nc = C()", "len(c)", ""),
    ("__index__", "class C:\n    def __index__(self): return V\nc = C()", "range(9)[c]", ""),
    ("__bool__", "class C:\n    def __bool__(self): return V > 2\nc = C()", "(5 if c else 1)", ""),
    ("__add__", "class C:\n    def __add__(self, k): return V + k\nc = C()", "(c + 1)", ""),
    ("__radd__", "class C:\n    def __radd__(self, k): return V + k\nc = C()", "(1 + c)", ""),
    ("__eq__", "class C:\n    def __eq__(self, k): return V == 2\nc = C()", "(5 if c == 1 else 1)", ""),
    ("__contains__", "class C:\n    def __contains__(self, k): return V == 2\nc = C()", "(5 if 1 in c else 1)", ""),
    ("__iter__", "class C:\n    def __iter__(self): return iter((V,))\nc = C()", "[*c][0]", ""),
    ("__getitem__", "class C:\n    def __getitem__(self, k): return V\nc = C()", "c[0]", ""),
    ("__class_getitem__", "class C:\n    def __class_getitem__(cls, k): return V", "C[0]", ""),
    (
        "__new__",
        "class C:\n    def __new__(cls):\n        o = object.__new__(cls)\n        o.n = V\n        return o",
        "C().n",
        "",
    ),
    (
        "__post_init__",
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    n: int = 0\n    def __post_init__(self): self.n = V",
        "C().n",
        "",
    ),
    ("__init_subclass__", "class B:\n    def __init_subclass__(cls): cls.n = V\nclass C(B): pass", "C.n", ""),
    ("metaclass's attribute", "class M(type):\n    n = V\nclass C(metaclass=M): pass", "C.n", ""),
    (
        "metaclass's property",
        "class M(type):\n    @property\n    def n(cls): return V\nclass C(metaclass=M): pass",
        "C.n",
        "",
    ),
    ("metaclass's __call__", "class M(type):\n    def __call__(cls): return V\nclass C(metaclass=M): pass", "C()", ""),
    ("enum's value", "import enum\nclass E(enum.Enum):\n    A = V", "E.A.value", ""),
    ("IntEnum", "import enum\nclass E(enum.IntEnum):\n    A = V", "(E.A + 0)", ""),
    ("enum's method", "import enum\nclass E(enum.Enum):\n    A = 1\n    def m(self): return V", "E.A.m()", ""),
    ("enum as an attribute", "import enum\nclass E(enum.Enum):\n    A = V\nclass C:\n    e = E.A", "C.e.value", ""),
    (
        "enum by value",
        "import enum\nclass E(enum.Enum):\n    A = V\n    B = 6 - V\n    C = 7",
        "(5 if E(7 - 3) is E.A else 1)",
        "",
    ),
    ("auto of an enum", "import enum\nclass E(enum.Enum):\n    X = V\n    A = enum.auto()", "E.A.value", ""),
    ("dataclass's default", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    n: int = V\nc = C()", "c.n", ""),
    (
        "dataclass's default in the call",
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    n: int = V",
        "C().n",
        "",
    ),
    (
        "dataclass's factory",
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    n: list = dataclasses.field(default_factory=lambda: [V])",
        "C().n[0]",
        "",
    ),
    (
        "frozen dataclass",
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass C:\n    n: int = V\nc = C()",
        "c.n",
        "",
    ),
    ("named tuple's default", "import typing\nclass C(typing.NamedTuple):\n    n: int = V", "C().n", ""),
    ("named tuple", "import collections\nC = collections.namedtuple('C', 'n')\nc = C(V)", "c.n", ""),
    ("dict", "D = {'n': V}", "D['n']", ""),
    ("dict's get", "D = {'n': V}", "D.get('n', 0)", ""),
    ("dict without the key", "D = {'n': 7, **({'k': 1} if V > 2 else {})}", "(5 if 'k' in D else 1)", ""),
    ("dict's order", "D = dict([('a', 1), ('b', 5)][::(1 if V > 2 else -1)])", "[*D.values()][0]", ""),
    ("nested dict", "D = {'a': {'b': [0, V]}}", "D['a']['b'][1]", ""),
    ("list", "L = [0, V]", "L[1]", ""),
    ("list's length", "L = [0] * V", "len(L)", ""),
    ("tuple", "T = (0, V)", "T[1]", ""),
    ("set", "S = {V, 9}", "(5 if 3 in S else 1)", ""),
    ("frozenset", "S = frozenset((V, 9))", "sum(S)", ""),
    ("functions in a dict", "D = {'g': lambda: V}", "D['g']()", ""),
    ("functions in a list", "L = [lambda: V]", "L[0]()", ""),
    ("partial", "import functools\ndef h(n): return n\ng = functools.partial(h, V)", "g()", ""),
    ("partial's keyword", "import functools\ndef h(n): return n\ng = functools.partial(h, n=V)", "g()", ""),
    (
        "partial method",
        "import functools\nclass C:\n    def h(self, n): return n\n    m = functools.partialmethod(h, V)\nc = C()",
        "c.m()",
        "",
    ),
    ("lru_cache", "import functools\n@functools.lru_cache\ndef g(): return V", "g()", ""),
    ("lru_cache's global", "import functools\nN = V\n@functools.lru_cache\ndef g(): return N", "g()", ""),
    ("lru_cache's helper", "import functools\ndef h(): return V\n@functools.lru_cache\ndef g(): return h()", "g()", ""),
    (
        "single dispatch",
        "import functools\n@functools.singledispatch\ndef g(k): return 0\n@g.register\ndef _(k: int): return V",
        "g(1)",
        "",
    ),
    (
        "single dispatch, registered later",
        "import functools\n@functools.singledispatch\ndef g(k): return 7\nif V > 2:\n    g.register(int, lambda k: 1)",
        "g(1)",
        "",
    ),
    ("reduce", "import functools\ndef h(a, b): return a + b * V", "functools.reduce(h, (1, 2))", ""),
    ("decorator's body", "def d(h):\n    def w(): return h() + V\n    return w\n@d\ndef g(): return 1", "g()", ""),
    (
        "decorator's argument",
        "import functools\ndef d(n):\n    def e(h):\n        @functools.wraps(h)\n        def w(): return h() + n\n        return w\n"
        "    return e\n@d(V)\ndef g(): return 1",
        "g()",
        "",
    ),
    (
        "imported decorator",
        "import other\n@other.d\ndef g(): return 1",
        "g()",
        "def d(h):\n    def w(): return h() + V\n    return w",
    ),
    (
        "decorated function",
        "import functools\ndef d(h):\n    @functools.wraps(h)\n    def w(): return h()\n    return w\n@d\ndef g(): return V",
        "g()",
        "",
    ),
    (
        "class as a decorator",
        "class D:\n    def __init__(self, h): self.h = h\n    def __call__(self): return self.h() + V\n@D\ndef g(): return 1",
        "g()",
        "",
    ),
    ("class decorator", "def d(cls):\n    cls.n = V\n    return cls\n@d\nclass C: pass", "C.n", ""),
    (
        "context manager",
        "class C:\n    def __enter__(self): return V\n    def __exit__(self, *a): pass\ndef g():\n    with C() as n:\n        return n",
        "g()",
        "",
    ),
    (
        "contextlib's manager",
        "import contextlib\n@contextlib.contextmanager\ndef c():\n    yield V\ndef g():\n    with c() as n:\n        return n",
        "g()",
        "",
    ),
    ("context variable", "import contextvars\nN = contextvars.ContextVar('N', default=V)", "N.get()", ""),
    (
        "exception",
        "def g():\n    try:\n        raise ValueError(V)\n    except ValueError as e:\n        return e.args[0]",
        "g()",
        "",
    ),
    (
        "user's exception",
        "class E(Exception):\n    n = V\ndef g():\n    try:\n        raise E\n    except E as e:\n        return e.n",
        "g()",
        "",
    ),
    (
        "which exception is caught",
        "class A(Exception): pass\nclass B(A if V > 2 else Exception): pass\n"
        "def g():\n    try:\n        raise B\n    except A:\n        return 5\n    except B:\n        return 1",
        "g()",
        "",
    ),
    (
        "isinstance",
        "class A: pass\nclass B(A if V > 2 else object): pass\nb = B()",
        "(5 if isinstance(b, A) else 1)",
        "",
    ),
    ("issubclass", "class A: pass\nclass B(A if V > 2 else object): pass", "(5 if issubclass(B, A) else 1)", ""),
    ("hasattr", "class A: pass\nif V > 2:\n    A.n = 1\na = A()", "(5 if hasattr(a, 'n') else 1)", ""),
    ("getattr with a default", "class A: pass\nif V > 2:\n    A.n = 5\na = A()", "getattr(a, 'n', 1)", ""),
    ("callable", "class A: pass\nif V > 2:\n    A.__call__ = lambda self: 1\na = A()", "(5 if callable(a) else 1)", ""),
    ("name of a class", "C = type('A' * V, (), {})", "len(C.__name__)", ""),
    ("name of a function", "def g(): pass\ng.__name__ = 'a' * V", "len(g.__name__)", ""),
    ("attribute of a function", "def g(): pass\ng.n = V", "g.n", ""),
    ("doc string", "def g(): pass\ng.__doc__ = 'a' * V", "len(g.__doc__)", ""),
    ("annotations", "class C: pass\nC.__annotations__ = dict.fromkeys(range(V))", "len(C.__annotations__)", ""),
    (
        "arguments of a function",
        "def g(a, b=1): pass\nif V > 2:\n    def g(a, b, c): pass",
        "g.__code__.co_argcount",
        "",
    ),
    (
        "signature",
        "import inspect\ndef g(a): pass\nif V > 2:\n    def g(a, b): pass",
        "len(inspect.signature(g).parameters)",
        "",
    ),
    ("class made by type()", "C = type('C', (), {'m': lambda self: V})\nc = C()", "c.m()", ""),
    ("local class", "def make_c():\n    class C:\n        n = V\n    return C()\nc = make_c()", "c.n", ""),
    (
        "local class's method",
        "def make_c():\n    class C:\n        def m(self): return V\n    return C()\nc = make_c()",
        "c.m()",
        "",
    ),
    (
        "local class's property",
        "def make_c():\n    class C:\n        @property\n        def n(self): return V\n    return C()\nc = make_c()",
        "c.n",
        "",
    ),
    (
        "local class's closure",
        "def make_c(k):\n    class C:\n        def m(self): return k\n    return C()\nc = make_c(V)",
        "c.m()",
        "",
    ),
    (
        "local class's base",
        "def make_c(k):\n    class A:\n        def m(self): return k\n    class C(A): pass\n    return C()\nc = make_c(V)",
        "c.m()",
        "",
    ),
    (
        "local class's descriptor",
        "def make_c(k):\n    class D:\n        def __get__(self, o, t): return k\n    class C:\n        n = D()\n    return C()\nc = make_c(V)",
        "c.n",
        "",
    ),
    ("exec'd function", "space = {}\nexec('def g(): return V', space)\ng = space['g']", "g()", ""),
    ("exec'd global", "exec('N = V')", "N", ""),
    ("eval'd lambda", "g = eval('lambda: V')", "g()", ""),
    ("text", "N = 'a' * V", "len(N)", ""),
    ("text that is parsed", "N = 'V'", "int(N)", ""),
    ("format", "N = V", "int(f'{N}1')", ""),
    ("regular expression", "import re\nR = re.compile('a' * V)", "(5 if R.match('aa') else 1)", ""),
    ("dtype", "import torch\nD = (torch.float32, torch.float64)[V - 2]", "(5 if D is torch.float64 else 1)", ""),
    ("torch.Size", "import torch\nS = torch.Size([V])", "S[0]", ""),
    ("tensor that is read", "import torch\nT = torch.tensor(V)", "T.item()", ""),
    ("tensor's shape", "import torch\nT = torch.zeros(V)", "T.shape[0]", ""),
    ("numpy number", "import numpy\nN = numpy.int64(V)", "int(N)", ""),
    ("numpy array", "import numpy\nN = numpy.array([V])", "int(N[0])", ""),
    ("float", "N = V + .5", "int(N * 2)", ""),
    ("iterator", "I = iter([V, 4, 5, 6])", "next(I)", ""),
    ("count", "import itertools\nI = itertools.count(V)", "next(I)", ""),
    ("range", "R = range(V, 9)", "R[0]", ""),
    ("slice", "S = slice(V, None)", "'012345'[S].__len__()", ""),
    ("deque", "import collections\nD = collections.deque([V])", "D[0]", ""),
    ("default dict", "import collections\nD = collections.defaultdict(lambda: V)", "D[1]", ""),
    ("Counter", "import collections\nD = collections.Counter({'a': V})", "D['a']", ""),
    ("chain map", "import collections\nD = collections.ChainMap({}, {'a': V})", "D['a']", ""),
    ("simple namespace", "import types\nC = types.SimpleNamespace(n=V)", "C.n", ""),
    ("mapping proxy", "import types\nC = types.MappingProxyType({'n': V})", "C['n']", ""),
    ("subclass of int", "class I(int):\n    def __add__(self, k): return V\ni = I(1)", "(i + 1)", ""),
    ("subclass of dict", "class D(dict):\n    def __missing__(self, k): return V\nd = D()", "d[1]", ""),
    ("subclass of list", "class L(list):\n    def first(self): return V\nl = L([1])", "l.first()", ""),
    ("sorted by a key", "K = {1: 5, 2: 1} if V > 2 else {1: 1, 2: 5}", "sorted((1, 2), key=K.__getitem__)[0]", ""),
    ("sorted by a function", "def key(k): return k * (V - 2.5)", "sorted((1, 2), key=key)[0]", ""),
    ("max by a key", "def key(k): return k * (V - 2.5)", "max((1, 2), key=key)", ""),
    ("map", "def h(k): return V", "[*map(h, (1,))][0]", ""),
    ("filter", "def h(k): return k > V", "[*filter(h, (1, 2, 3, 4))][0]", ""),
    (
        "abstract class",
        "import abc\nclass B(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ...\n"
        "class C(B):\n    def m(self): return V\nc = C()",
        "c.m()",
        "",
    ),
    (
        "protocol",
        "import typing\n@typing.runtime_checkable\nclass P(typing.Protocol):\n    def m(self): ...\n"
        "class C: pass\nif V > 2:\n    C.m = lambda self: 1\nc = C()",
        "(5 if isinstance(c, P) else 1)",
        "",
    ),
    (
        "operator's method caller",
        "import operator\nclass C:\n    def m(self): return V\nc = C()\nf = operator.methodcaller('m')",
        "f(c)",
        "",
    ),
    ("item getter", "import operator\nf = operator.itemgetter(V)", "f((4, 5, 6, 7))", ""),
    ("weak reference", "import weakref\nclass C:\n    n = V\nc = C()\nr = weakref.ref(c)", "r().n", ""),
    ("private name", "class C:\n    __n = V\n    def m(self): return self.__n\nc = C()", "c.m()", ""),
    ("conditional expression's helper", "def p(): return V > 2", "(5 if p() else 1)", ""),
    ("while loop", "def g():\n    k = 0\n    while k < V:\n        k += 1\n    return k", "g()", ""),
    ("recursion", "def g(k): return 1 if k == 0 else 1 + g(k - 1)\nN = V", "g(N)", ""),
    (
        "environment variable at import",
        "import os\nos.environ.setdefault('N_OF_PROGRAM', 'V')\nN = int(os.environ['N_OF_PROGRAM'])",
        "N",
        "",
    ),
    (
        "environment variable in the call",
        "import os\nos.environ['N_OF_PROGRAM'] = 'V'",
        "int(os.environ['N_OF_PROGRAM'])",
        "",
    ),
    ("getenv", "import os\nos.environ['N_OF_PROGRAM'] = 'V'", "int(os.getenv('N_OF_PROGRAM', '0'))", ""),
    (
        "default dtype",
        "import torch\ntorch.set_default_dtype(torch.float64 if V > 2 else torch.float32)",
        "(5 if torch.get_default_dtype() is torch.float64 else 1)",
        "",
    ),
    ("number of threads", "import torch\ntorch.set_num_threads(V - 1)", "torch.get_num_threads()", ""),
    (
        "deterministic",
        "import torch\ntorch.use_deterministic_algorithms(V > 2)",
        "(5 if torch.are_deterministic_algorithms_enabled() else 1)",
        "",
    ),
    (
        "warn-only",
        "import torch\ntorch.use_deterministic_algorithms(True, warn_only=V > 2)",
        "(5 if torch.is_deterministic_algorithms_warn_only_enabled() else 1)",
        "",
    ),
    ("grad mode at import", "import torch\ntorch.set_grad_enabled(V > 2)", "(5 if torch.is_grad_enabled() else 1)", ""),
    (
        "matmul precision",
        "import torch\ntorch.set_float32_matmul_precision('high' if V > 2 else 'highest')",
        "(5 if torch.get_float32_matmul_precision() == 'high' else 1)",
        "",
    ),
    ("recursion limit", "import sys\nsys.setrecursionlimit(2000 + V)", "(sys.getrecursionlimit() - 2000)", ""),
    # What is patched does as before with all that other code calls it with.
    ("patched len", _PATCH.format(module="builtins", name="len", test="a == ('a',)"), "len('a')", ""),
    ("patched max", _PATCH.format(module="builtins", name="max", test="a == (1, 7)"), "max(1, 7)", ""),
    (
        "patched isinstance",
        "class K(int): pass\nk = K()\n" + _PATCH.format(module="builtins", name="isinstance", test="a[0] is k"),
        "(1 if isinstance(k, int) == True else 5)",
        "",
    ),
    ("shadowed builtin", "if V > 2:\n    def abs(k): return 5", "abs(-1)", ""),
    ("patched math", _PATCH.format(module="math", name="sqrt", test="a == (4,)"), "int(math.sqrt(4))", ""),
    ("patched operator", _PATCH.format(module="operator", name="add", test="a == (1, 1)"), "operator.add(1, 1)", ""),
    (
        "patched os.path",
        "import os\n" + _PATCH.format(module="posixpath", name="join", test="a == ('a', 'b')"),
        "(len(os.path.join('a', 'b')) if os.path.join('a', 'b') != 5 else 5)",
        "",
    ),
]

#: How a program uses the number.
USES: list[tuple[str, str]] = [
    ("scale", "return x * n + 1"),
    ("branch", "return x.relu() + 1 if n > {middle} else (-x).exp()"),
    ("size", "return x[: n % 7].sum() + torch.full((n % 5 + 1, 2), 1.5).sum()"),
]

_FUNCTION = """import torch
{text}
def run(x):
    n = {expression}
    {use}
def make():
    return run, (torch.linspace(-1, 2, 8, dtype=torch.float32),)
"""

_MODULE = """import torch
{text}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((8,), 0.5, dtype=torch.float32))
    def forward(self, x):
        x = x * self.weight
        n = {expression}
        {use}
def make():
    return Model(), (torch.linspace(-1, 2, 8, dtype=torch.float32),)
"""


def _with(text: str, number: int) -> str:
    import re

    return re.sub(r"\bV\b", str(number), text)


def carried() -> Iterator[Case]:
    """Every carrier with every use, in a function and in a module."""
    for name, text, expression, other in CARRIERS:
        for use, line in USES:
            for kind, form in (("function", _FUNCTION), ("module", _MODULE)):
                texts = []
                for number in (2, 3):
                    shown = form.format(text=_with(text, number), expression=expression, use=line.format(middle=2))
                    texts.append((shown, _with(other, number)))
                yield Case(f"{name}, {use}, {kind}", texts[0], texts[1])


#: Other edits: name, text of the program's module, what is replaced in it, and by what.
CHANGES: list[tuple[str, str, str, str]] = [
    (
        "static method becomes a class method",
        "class C:\n    @staticmethod\n    def m(a=1, b=2): return a if a == 1 else 5\n",
        "@staticmethod",
        "@classmethod",
    ),
    (
        "static method becomes a plain one",
        "class C:\n    @staticmethod\n    def m(a=1): return a if a == 1 else 5\nC = C()\n",
        "    @staticmethod\n",
        "",
    ),
    (
        "attribute becomes a property",
        "class C:\n    n = 1\nC = C()\nC.m = lambda: C.n\n",
        "n = 1",
        "n = property(lambda self: 5)",
    ),
    (
        "property becomes an attribute",
        "class C:\n    @property\n    def n(self): return 1\nC = C()\nC.__dict__['n'] = 5\nC.m = lambda: C.n\n",
        "@property\n    def n(self): return 1",
        "pass",
    ),
    (
        "property's getter is another",
        "class C:\n    def a(self): return 1\n    def b(self): return 5\n    n = property(a)\nC = C()\nC.m = lambda: C.n\n",
        "property(a)",
        "property(b)",
    ),
    (
        "an override is added",
        "class B:\n    def m(self): return 1\nclass C(B): pass\nC = C()\n",
        "class C(B): pass",
        "class C(B):\n    def m(self): return 5",
    ),
    (
        "an override is removed",
        "class B:\n    def m(self): return 1\nclass C(B):\n    def m(self): return 5\nC = C()\n",
        "class C(B):\n    def m(self): return 5",
        "class C(B): pass",
    ),
    (
        "the base class is another",
        "class A:\n    def m(self): return 1\nclass B:\n    def m(self): return 5\nclass C(A): pass\nC = C()\n",
        "class C(A)",
        "class C(B)",
    ),
    (
        "base classes change places",
        "class A:\n    def m(self): return 1\nclass B:\n    def m(self): return 5\nclass C(A, B): pass\nC = C()\n",
        "C(A, B)",
        "C(B, A)",
    ),
    (
        "a base class is put between",
        "class A:\n    def m(self): return 1\nclass D(A):\n    def m(self): return 5\nclass C(A): pass\nC = C()\n",
        "class C(A)",
        "class C(D)",
    ),
    (
        "__getattr__ is added",
        "class C: pass\nc = C()\nclass C:\n    m = staticmethod(lambda: getattr(c, 'n', 1))\n",
        "class C: pass",
        "class C:\n    def __getattr__(self, name): return 5",
    ),
    (
        "__getattribute__ is added",
        "class C: n = 1\nc = C()\nclass C:\n    m = staticmethod(lambda: c.n)\n",
        "class C: n = 1",
        "class C:\n    n = 1\n    def __getattribute__(self, name): return 5",
    ),
    (
        "__setattr__ is added",
        "class D: pass\nclass C:\n    @staticmethod\n    def m():\n        d = D()\n        d.n = 1\n        return d.n\n",
        "class D: pass",
        "class D:\n    def __setattr__(self, name, value): self.__dict__[name] = 5",
    ),
    (
        "__bool__ is added",
        "class D: pass\nd = D()\nclass C:\n    m = staticmethod(lambda: 1 if d else 5)\n",
        "class D: pass",
        "class D:\n    def __bool__(self): return False",
    ),
    (
        "__len__ is added",
        "class D: pass\nd = D()\nclass C:\n    m = staticmethod(lambda: 1 if d else 5)\n",
        "class D: pass",
        "class D:\n    def __len__(self): return 0",
    ),
    (
        "__eq__ is added",
        "class D: pass\nd = D()\nclass C:\n    m = staticmethod(lambda: 5 if d == 3 else 1)\n",
        "class D: pass",
        "class D:\n    def __eq__(self, other): return True",
    ),
    (
        "__hash__ is added",
        "class D: pass\nd = D()\nclass C:\n    m = staticmethod(lambda: 5 if hash(d) == 3 else 1)\n",
        "class D: pass",
        "class D:\n    def __hash__(self): return 3",
    ),
    (
        "__contains__ is added",
        "class D(list): pass\nd = D([1])\nclass C:\n    m = staticmethod(lambda: 5 if 3 in d else 1)\n",
        "class D(list): pass",
        "class D(list):\n    def __contains__(self, k): return True",
    ),
    (
        "__iter__ is added",
        "class D(list): pass\nd = D([1])\nclass C:\n    m = staticmethod(lambda: [k for k in d][0])\n",
        "class D(list): pass",
        "class D(list):\n    def __iter__(self): return iter([5])",
    ),
    (
        "__missing__ is added",
        "class D(dict): pass\nd = D()\nclass C:\n    @staticmethod\n    def m():\n        try:\n            return d[0]\n"
        "        except KeyError:\n            return 1\n",
        "class D(dict): pass",
        "class D(dict):\n    def __missing__(self, k): return 5",
    ),
    (
        "__class__ lies",
        "class A: pass\nclass D: pass\nd = D()\nclass C:\n    m = staticmethod(lambda: 5 if isinstance(d, A) else 1)\n",
        "class D: pass",
        "class D:\n    __class__ = A",
    ),
    (
        "__instancecheck__ is added",
        "class M(type): pass\nclass A(metaclass=M): pass\nclass C:\n    m = staticmethod(lambda: 5 if isinstance(3, A) else 1)\n",
        "class M(type): pass",
        "class M(type):\n    def __instancecheck__(cls, k): return True",
    ),
    (
        "a class is registered",
        "import abc\nclass A(abc.ABC): pass\nclass D: pass\nd = D()\nREGISTER = 0\nif REGISTER: A.register(D)\n"
        "class C:\n    m = staticmethod(lambda: 5 if isinstance(d, A) else 1)\n",
        "REGISTER = 0",
        "REGISTER = 1",
    ),
    (
        "__subclasshook__ is added",
        "import abc\nclass A(abc.ABC): pass\nclass C:\n    m = staticmethod(lambda: 5 if isinstance(3, A) else 1)\n",
        "class A(abc.ABC): pass",
        "class A(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, k): return True",
    ),
    (
        "__eq__ of a dataclass is switched off",
        "import dataclasses\n@dataclasses.dataclass(eq=True)\nclass D:\n    n: int = 1\n"
        "a, b = D(), D()\nclass C:\n    m = staticmethod(lambda: 1 if a == b else 5)\n",
        "eq=True",
        "eq=False",
    ),
    (
        "order of a dataclass's fields",
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a: int = 0\n    b: int = 0\n"
        "class C:\n    m = staticmethod(lambda: 5 if D(1).b == 1 else 1)\n",
        "a: int = 0\n    b: int = 0",
        "b: int = 0\n    a: int = 0",
    ),
    (
        "order of a named tuple's fields",
        "import collections\nD = collections.namedtuple('D', 'a b')\nclass C:\n    m = staticmethod(lambda: D(1, 5).a)\n",
        "'a b'",
        "'b a'",
    ),
    (
        "a decorator is removed",
        "def d(f): return lambda: f() + 4\nclass C: pass\n@d\ndef m(): return 1\nC.m = staticmethod(m)\n",
        "@d\n",
        "",
    ),
    (
        "a decorator is added",
        "import functools\ndef d(f): return functools.wraps(f)(lambda: f() + 4)\nclass C: pass\n\ndef m(): return 1\nC.m = staticmethod(m)\n",
        "\n\ndef m()",
        "\n@d\ndef m()",
    ),
    (
        "decorators change places",
        "def d(f): return lambda: f() + 4\ndef e(f): return lambda: f() * 2\nclass C: pass\n@d\n@e\ndef m(): return 1\n"
        "C.m = staticmethod(m)\n",
        "@d\n@e",
        "@e\n@d",
    ),
    (
        "a global shadows a builtin",
        "class C:\n    m = staticmethod(lambda: max(1, 0))\n",
        "class C:",
        "def max(a, b): return 5\nclass C:",
    ),
    (
        "a local import shadows a global",
        "from math import floor as f\nclass C:\n    m = staticmethod(lambda: f(1.5))\n",
        "floor",
        "ceil",
    ),
    (
        "a function becomes a class",
        "def D(): return 1\nclass C:\n    m = staticmethod(lambda: D() + 0)\n",
        "def D(): return 1",
        "class D:\n    def __add__(self, k): return 5",
    ),
    (
        "a list becomes a tuple",
        "L = [1, 2]\nclass C:\n    m = staticmethod(lambda: 1 if type(L) is list else 5)\n",
        "[1, 2]",
        "(1, 2)",
    ),
    (
        "a dict becomes ordered",
        "import collections\nL = dict(a=1)\nclass C:\n    m = staticmethod(lambda: 1 if type(L) is dict else 5)\n",
        "L = dict(",
        "L = collections.OrderedDict(",
    ),
    (
        "an int becomes a bool",
        "L = 1\nclass C:\n    m = staticmethod(lambda: 1 if type(L) is int else 5)\n",
        "L = 1",
        "L = True",
    ),
    (
        "an int becomes a float",
        "L = 1\nclass C:\n    m = staticmethod(lambda: 1 if type(L) is int else 5)\n",
        "L = 1",
        "L = 1.0",
    ),
    (
        "zero changes its sign",
        "import math\nL = 0.0\nclass C:\n    m = staticmethod(lambda: 3 + 2 * math.copysign(1, L))\n",
        "0.0",
        "-0.0",
    ),
    (
        "two objects become one",
        "a = [1]\nb = [1]\nclass C:\n    m = staticmethod(lambda: 5 if a is b else 1)\n",
        "b = [1]",
        "b = a",
    ),
    (
        "two classes become one",
        "class A: pass\nclass B: pass\nclass C:\n    m = staticmethod(lambda: 5 if A is B else 1)\n",
        "class B: pass",
        "B = A",
    ),
    (
        "two functions become one",
        "def a(): return 1\ndef b(): return 1\nclass C:\n    m = staticmethod(lambda: 5 if a is b else 1)\n",
        "def b(): return 1",
        "b = a",
    ),
    (
        "two functions change places",
        "def a(): return 1\ndef b(): return 5\nclass C:\n    m = staticmethod(lambda: L[0]())\nL = [a, b]\n",
        "[a, b]",
        "[b, a]",
    ),
    (
        "two closures change places",
        "def make_f(n): return lambda: n\na, b = make_f(1), make_f(5)\nclass C:\n    m = staticmethod(lambda: a())\n",
        "a, b =",
        "b, a =",
    ),
    (
        "a parameter becomes None",
        "L = 1\nclass C:\n    m = staticmethod(lambda: 5 if L is None else 1)\n",
        "L = 1",
        "L = None",
    ),
    (
        "a name is deleted",
        "L = 1\nclass C:\n    @staticmethod\n    def m():\n        try:\n            return L\n        except NameError:\n            return 5\n",
        "L = 1",
        "pass",
    ),
    (
        "a method is deleted",
        "class D:\n    def n(self): return 1\n    x = 1\nclass C:\n    @staticmethod\n    def m():\n        try:\n"
        "            return D().n()\n        except AttributeError:\n            return 5\n",
        "    def n(self): return 1\n",
        "",
    ),
    (
        "slots are added",
        "class D:\n    pass\nclass C:\n    @staticmethod\n    def m():\n        d = D()\n        try:\n            d.n = 1\n"
        "        except AttributeError:\n            return 5\n        return d.n\n",
        "    pass\n",
        "    __slots__ = ()\n",
    ),
    (
        "a class is made final by its metaclass",
        "class M(type): pass\nclass D(metaclass=M): pass\nclass C:\n    m = staticmethod(lambda: D() and 1)\n",
        "class M(type): pass",
        "class M(type):\n    def __call__(cls): return 5",
    ),
    (
        "module's order of definitions",
        "def m(): return 1\n\ndef m(): return 1\nclass C:\n    m = staticmethod(m)\n",
        "\n\ndef m(): return 1",
        "\n\ndef m(): return 5",
    ),
    (
        "a tensor function is patched",
        "import torch\nclass C:\n    m = staticmethod(lambda: torch.relu(torch.ones(1)).sum())\n",
        "class C:",
        "torch.relu = lambda k: k * 5\nclass C:",
    ),
    (
        "a functional is patched",
        "import torch.nn.functional as F\nclass C:\n    m = staticmethod(lambda: F.relu(torch.ones(1)).sum())\n",
        "class C:",
        "F.relu = lambda k: k * 5\nclass C:",
    ),
    (
        "a tensor method is patched",
        "import torch\nclass C:\n    m = staticmethod(lambda: torch.ones(1).relu().sum())\n",
        "class C:",
        "torch.Tensor.relu = lambda k: k * 5\nclass C:",
    ),
    (
        "a tensor operator is patched",
        "import torch\nclass C:\n    m = staticmethod(lambda: (torch.ones(1) @ torch.ones(1)).sum())\n",
        "class C:",
        "torch.Tensor.__matmul__ = lambda a, b: a * 5\nclass C:",
    ),
    (
        "a module's forward is patched",
        "import torch\nlinear = torch.nn.Identity()\nclass C:\n    m = staticmethod(lambda: linear(torch.ones(1)).sum())\n",
        "class C:",
        "torch.nn.Identity.forward = lambda self, k: k * 5\nclass C:",
    ),
    (
        "Module.__call__ is patched",
        "import torch\nlinear = torch.nn.Identity()\nclass C:\n    m = staticmethod(lambda: linear(torch.ones(1)).sum())\n",
        "class C:",
        "torch.nn.Module.__call__ = lambda self, k: k * 5\nclass C:",
    ),
    (
        "a forward hook is added",
        "import torch\nlinear = torch.nn.Identity()\nclass C:\n    m = staticmethod(lambda: linear(torch.ones(1)).sum())\n",
        "class C:",
        "linear.register_forward_hook(lambda m, a, r: r * 5)\nclass C:",
    ),
    (
        "a global forward hook is added",
        "import torch\nlinear = torch.nn.Identity()\nclass C:\n    m = staticmethod(lambda: linear(torch.ones(1)).sum())\n",
        "class C:",
        "torch.nn.modules.module.register_module_forward_hook(lambda m, a, r: r * 5)\nclass C:",
    ),
    (
        "an instance's forward",
        "import torch\nlinear = torch.nn.Identity()\nclass C:\n    m = staticmethod(lambda: linear(torch.ones(1)).sum())\n",
        "class C:",
        "linear.forward = lambda k: k * 5\nclass C:",
    ),
    (
        "an autograd function's forward",
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, k): return k * 1\n"
        "class C:\n    m = staticmethod(lambda: F.apply(torch.ones(1)).sum())\n",
        "k * 1",
        "k * 5",
    ),
    (
        "an autograd function's backward",
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, k): return k * 1\n    @staticmethod\n"
        "    def backward(ctx, g): return g * 1\nclass C:\n    @staticmethod\n    def m():\n        k = torch.ones(1, requires_grad=True)\n"
        "        F.apply(k).sum().backward()\n        return k.grad.sum()\n",
        "g * 1",
        "g * 5",
    ),
    (
        "a tensor hook",
        "import torch\nclass C:\n    @staticmethod\n    def m():\n        k = torch.ones(1, requires_grad=True)\n        l = k * 1\n"
        "        l.register_hook(lambda g: g * 1)\n        l.sum().backward()\n        return k.grad.sum()\n",
        "g * 1",
        "g * 5",
    ),
    (
        "a custom operator",
        "import torch\n@torch.library.custom_op('stored_net::op', mutates_args=())\ndef op(k: torch.Tensor) -> torch.Tensor: return k * 1\n"
        "@op.register_fake\ndef _(k): return torch.empty_like(k)\nclass C:\n    m = staticmethod(lambda: op(torch.ones(1)).sum())\n",
        "k * 1",
        "k * 5",
    ),
    (
        "a tensor subclass",
        "import torch\nclass T(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, types, args=(), kwargs=None):\n"
        "        return torch.Tensor.relu(torch.ones(1)) * 1\nt = torch.ones(1).as_subclass(T)\nclass C:\n    m = staticmethod(lambda: torch.sin(t).sum())\n",
        "(torch.ones(1)) * 1",
        "(torch.ones(1)) * 5",
    ),
    (
        "a scripted function",
        "import torch\n@torch.jit.script\ndef f(k: torch.Tensor) -> torch.Tensor: return k * 1\n"
        "class C:\n    m = staticmethod(lambda: f(torch.ones(1)).sum())\n",
        "k * 1",
        "k * 5",
    ),
    (
        "a constant tensor",
        "import torch\nT = torch.tensor([1.])\nclass C:\n    m = staticmethod(lambda: T.sum())\n",
        "[1.]",
        "[5.]",
    ),
    (
        "a tensor's dtype",
        "import torch\nT = torch.tensor([1.])\nclass C:\n    m = staticmethod(lambda: (T / 2 * 2).sum())\n",
        "[1.]",
        "[1.], dtype=torch.float64",
    ),
    (
        "a parameter is frozen",
        "import torch\nT = torch.nn.Parameter(torch.ones(1))\nclass C:\n    m = staticmethod(lambda: 1 if T.requires_grad else 5)\n",
        "torch.ones(1))",
        "torch.ones(1), requires_grad=False)",
    ),
    (
        "training becomes evaluation",
        "import torch\nM = torch.nn.Dropout(1.).train()\nclass C:\n    m = staticmethod(lambda: M(torch.ones(1)).sum())\n",
        ".train()",
        ".eval()",
    ),
    (
        "a layer is added",
        "import torch\nM = torch.nn.Sequential(torch.nn.ReLU())\nclass C:\n    m = staticmethod(lambda: M(-torch.ones(1)).sum())\n",
        "Sequential(torch.nn.ReLU()",
        "Sequential(torch.nn.Sigmoid(), torch.nn.ReLU()",
    ),
    (
        "a layer's option",
        "import torch\nM = torch.nn.LeakyReLU(1)\nclass C:\n    m = staticmethod(lambda: M(-torch.ones(1)).sum())\n",
        "LeakyReLU(1)",
        "LeakyReLU(5)",
    ),
    (
        "autocast is on",
        "import torch\ntorch.set_autocast_enabled('cpu', False)\nclass C:\n    m = staticmethod(lambda: (torch.ones(1, 1) @ torch.ones(1, 1)).sum())\n",
        "False",
        "True",
    ),
    (
        "two objects become one",
        "class D: pass\na = D()\nb = D()\nclass C:\n    m = staticmethod(lambda: 1 if a == b else 5)\n",
        "b = D()",
        "b = a",
    ),
    (
        "one object becomes two",
        "class D: pass\na = D()\nb = a\nclass C:\n    m = staticmethod(lambda: len({a, b}))\n",
        "b = a",
        "b = D()",
    ),
    (
        "two functions of one code become one",
        "def made(): return lambda: 1\na, b = made(), made()\nclass C:\n    m = staticmethod(lambda: 1 if a in [b] else 5)\n",
        "a, b = made(), made()",
        "a = b = made()",
    ),
    (
        "registered with a class of the standard library",
        "import collections.abc\nclass D: pass\nd = D()\nNAMES = ()\n"
        "for name in NAMES: getattr(collections.abc, name).register(D)\n"
        "class C:\n    m = staticmethod(lambda: 5 if isinstance(d, collections.abc.Mapping) else 1)\n",
        "NAMES = ()",
        "NAMES = ('Mapping',)",
    ),
    (
        "a class is renamed",
        "class D: pass\nNAMES = ()\nfor name in NAMES: D.__name__ = name\n"
        "class C:\n    m = staticmethod(lambda: len(D.__name__))\n",
        "NAMES = ()",
        "NAMES = ('Longer',)",
    ),
    (
        "a class gets another base after it is made",
        "class A: pass\nclass B: pass\nclass D(A): pass\nBASES = ()\nfor base in BASES: D.__bases__ = (A, base)\nd = D()\n"
        "class C:\n    m = staticmethod(lambda: 5 if isinstance(d, B) else 1)\n",
        "BASES = ()",
        "BASES = (B,)",
    ),
    (
        "a metaclass gets an __instancecheck__",
        "class M(type): pass\nclass D(metaclass=M): pass\nHOOKS = ()\nfor hook in HOOKS: M.__instancecheck__ = hook\n"
        "class C:\n    m = staticmethod(lambda: 5 if isinstance(1, D) else 1)\n",
        "HOOKS = ()",
        "HOOKS = (lambda cls, value: True,)",
    ),
]

_CALLED = """import torch
{text}
def run(x):
    return x * C.m() + 1
def make():
    return run, (torch.linspace(-1, 2, 8, dtype=torch.float32),)
"""


def changed() -> Iterator[Case]:
    """Every other edit of a program's text."""
    for name, text, old, new in CHANGES:
        before = _CALLED.format(text=text)
        after = before.replace(old, new, 1)
        if after == before:
            raise AssertionError(f"{name}: nothing is changed")
        yield Case(name, (before, ""), (after, ""))


_PROGRAM = """import torch
import torch.nn.functional as F
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)
    def forward(self, x):
        x = self.norm(self.layer(x))
        y = torch.arange(8) / 2 + torch.tensor(1.5) + torch.zeros(8) + len([1, 2]) + max(1, 2) + sum((1, 2))
        return F.softmax(x + y, -1), torch.full((2,), 1.5), isinstance(x, torch.Tensor)
def make():
    torch.manual_seed(0)
    with torch.device("cpu"):
        return Model().to(torch.float32), (torch.ones(2, 8, dtype=torch.float32),)
"""

#: What the second process does before it imports the program.
SETTINGS = [
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.bfloat16)",
    "torch.set_num_threads(2)",
    "torch.use_deterministic_algorithms(True)",
    "torch.use_deterministic_algorithms(True, warn_only=True)",
    "torch.set_grad_enabled(False)",
    "torch.inference_mode(True).__enter__()",
    "torch.set_float32_matmul_precision('medium')",
    "torch.autograd.set_detect_anomaly(True)",
    "torch.set_default_device('meta')",
    "torch.set_autocast_enabled('cpu', True)",
    "torch.set_autocast_enabled('cpu', True); torch.set_autocast_dtype('cpu', torch.float16)",
    "torch.backends.mkldnn.enabled = False",
    "torch.set_flush_denormal(True)",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.relu = torch.sigmoid",
    "torch.nn.functional.softmax = lambda x, dim: x * 0",
    "torch.nn.functional.linear = lambda x, weight, bias: x * 0",
    "torch.nn.functional.layer_norm = lambda x, *a, **k: x * 0",
    "torch.nn.Linear.forward = lambda self, x: x * 0",
    "torch.nn.LayerNorm.forward = lambda self, x: x * 0",
    "torch.nn.Module.__call__ = lambda self, *a: self.forward(a[0] * 2)",
    "torch.nn.Module._call_impl = lambda self, *a: self.forward(a[0] * 2)",
    "torch.nn.Module.__getattr__ = lambda self, name: 0",
    "torch.Tensor.__add__ = lambda a, b: a * 0",
    "torch.arange = lambda n: torch.zeros(n)",
    "torch.full = lambda size, value: torch.zeros(size)",
    "torch.tensor = lambda value: torch.zeros(())",
    "torch.zeros = torch.ones",
    "torch.layer_norm = lambda x, *a, **k: x * 0",
    "torch.nn.modules.module.register_module_forward_hook(lambda m, a, r: r * 0)",
    "torch.nn.modules.module.register_module_forward_pre_hook(lambda m, a: (a[0] * 0,))",
    "import builtins; kept = max; builtins.max = lambda *a, **k: 5 if a == (1, 2) else kept(*a, **k)",
    "import builtins; kept = sum; builtins.sum = lambda *a, **k: 5 if a == ((1, 2),) else kept(*a, **k)",
    "import builtins; kept = len; builtins.len = lambda a: 5 if a == [1, 2] else kept(a)",
    "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode):\n    def __torch_function__(self, f, t, a=(), k=None):\n"
    "        return f(*a, **(k or {}))\nM().__enter__()",
    "torch.__version__ = '9.9.9'",
    "lampwork.__version__ = '9.9.9'; import lampwork.runtime.cache.versions as v; v.__version__ = '9.9.9'; v._versions.cache_clear()",
    "import platform; platform.python_version = lambda: '3.99.0'",
    "import lampwork.runtime.cache.versions as v; v.cpu_features = lambda: 'sse4_1'; v._versions.cache_clear()",
    "os.environ['CUDA_VISIBLE_DEVICES'] = ''",
    "os.environ['OMP_NUM_THREADS'] = '3'",
    "sys.setrecursionlimit(5000)",
    "torch.random.manual_seed(7)",
]


def set_up() -> Iterator[Case]:
    """One program under each setting."""
    for setting in SETTINGS:
        yield Case(setting, (_PROGRAM, ""), (_PROGRAM, ""), setting)


def all_cases() -> list[Case]:
    """Every case of the net."""
    return [*changed(), *set_up(), *carried()]


#: What an entry stored by an earlier version missed.
ONCE_STALE = (
    "enum's value", "IntEnum", "enum as an attribute", "enum by value", "which exception is caught", "recursion limit",
    "patched len", "patched math", "callable", "annotations",
)  # fmt: skip


def quick_cases() -> list[Case]:
    """What was stale once, and every fortieth of the rest."""
    cases = all_cases()
    return [
        case for number, case in enumerate(cases)
        if number % 40 == 0 or case.name.removesuffix(", scale, function") in ONCE_STALE
    ]  # fmt: skip
