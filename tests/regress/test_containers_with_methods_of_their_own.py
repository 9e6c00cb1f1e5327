"""Classes derived from `dict` and `tuple` whose methods are written in Python, which capture ran itself when it looked at
what they hold: reads without guards, and errors of its own."""

from __future__ import annotations

import types

import pytest
import torch

import lampwork

factor = 1


class Shown(dict):
    """Has fewer keys than it holds."""

    def __iter__(self):
        return iter(list(dict.__iter__(self))[: self.o.k])

    def keys(self):
        return ["a"][: self.o.k]

    def items(self):
        return [("a", self.o.k)]

    def __len__(self):
        return dict.__len__(self) + self.o.k

    def __getitem__(self, key):
        return dict.__getitem__(self, key) * self.o.k


class Scaled(tuple):
    def __len__(self):
        return factor

    def __iter__(self):
        return iter([each * factor for each in tuple.__iter__(self)])

    def __getitem__(self, index):
        return tuple.__getitem__(self, index) * factor


PROGRAMS = {
    "dict": lambda o, x: x + dict(o.d)["a"],
    "unpacked": lambda o, x: x + {**o.d}["a"],
    "contains": lambda o, x: x + ("a" in o.d) + ("q" in o.d),
    "read": lambda o, x: x + o.d["a"],
    "length": lambda o, x: x + len(o.d),
    "keywords": lambda o, x: x + (lambda **kwargs: kwargs["a"])(**o.d),
    "written": lambda o, x: (o.d.__setitem__("z", 5), x + dict.__getitem__(o.d, "z"))[1],
    "tuple": lambda o, x: x + o.t[0] + len(o.t),
    "sum": lambda o, x: x + sum(o.t),
    "starred": lambda o, x: x + [*o.t][1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_they_hold_is_read_by_methods_in_c(name):
    global factor
    program = PROGRAMS[name]
    compiled = lampwork.compile(program)
    x = torch.arange(4.0)
    for value in (1, 2, 3, 1):
        results = []
        for function in (program, compiled):
            factor = value
            o = types.SimpleNamespace(k=value, d=Shown(a=1, b=2), t=Scaled((1, 2)))
            o.d.o = o
            results.append((function(o, x), list(dict.items(o.d))))
        assert torch.equal(results[0][0], results[1][0]) and results[0][1] == results[1][1], value
    assert not lampwork.stats(compiled)["fallbacks"]
