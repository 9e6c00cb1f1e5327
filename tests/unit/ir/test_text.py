"""The verifier of generated Python."""

from __future__ import annotations

import pytest

from lampwork.ir.text import UnboundName, verify_text

GOOD = [
    "def f(x):\n    y = x\n    return y + k\n",
    "def f(x):\n    if x:\n        y = 1\n    else:\n        return None\n    return y\n",
    "def f(x):\n    try:\n        y = g(x)\n    except LookupError:\n        y = 2\n    return y\n",
    "def f(x):\n    try:\n        y = g(x)\n    except LookupError as error:\n        raise ValueError from error\n    return y\n",
    "def f(x):\n    with g(x) as y:\n        return [each for each in y]\n",
    "a, = k\ndef f(x):\n    return a, (lambda b: b + x)\n",
    "def f(x):\n    try:\n        return x\n    finally:\n        g(x)\n",
]
BAD = [
    ("def f(x):\n    return m0\n", "m0"),
    ("def f(x):\n    if x:\n        y = 1\n    return y\n", "y"),
    ("def f(x):\n    try:\n        y = g(x)\n    except LookupError:\n        pass\n    return y\n", "y"),
    ("def f(x):\n    y = z\n    z = y\n", "z"),
    ("def f(x):\n    del x\n    return x\n", "x"),
    ("def f(x):\n    try:\n        y = g(x)\n    finally:\n        g(y)\n", "y"),
    ("def f(x):\n    return [each for each in x], each\n", "each"),
]


@pytest.mark.parametrize("text", GOOD)
def test_names_that_are_bound(text):
    verify_text(text, ("g", "k"))


@pytest.mark.parametrize("text, name", BAD)
def test_names_that_may_be_unbound(text, name):
    with pytest.raises(UnboundName, match=repr(name)):
        verify_text(text, ("g", "k"))
