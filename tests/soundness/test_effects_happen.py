"""What a program does to containers and objects of its caller happens, as often as it is called: generated programs.

Each program is a few statements on one object. It is called with objects of the same kind that differ in what they
hold, some of them in nothing that the program reads; after every call the compiled and the plain program must have left
the same contents behind, types and order of keys included.
"""

from __future__ import annotations

import collections
import random
from typing import Any

import pytest
import torch

import lampwork

X = torch.arange(3.0)


class Thing:
    """An object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slots:
    __slots__ = ("a", "b", "c")

    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)


def table(**changes: Any) -> dict:
    return {"a": 1, "b": 2.0, "c": True, "d": "text"} | changes


def with_gradient() -> torch.Tensor:
    leaf = torch.ones(3).requires_grad_()
    leaf.grad = torch.full((3,), 7.0)
    return leaf


STATES: dict[str, list] = {
    "dict": [
        lambda: table(),
        lambda: table(a=7, c=0),
        lambda: table(a=True, b=2),
        lambda: table(e=3),
        lambda: dict(reversed(table().items())),
        lambda: {"b": 1, "a": 2},
    ],
    "ordered": [
        lambda: collections.OrderedDict(table()),
        lambda: collections.OrderedDict(table(a=7)),
        lambda: collections.OrderedDict(reversed(table().items())),
    ],
    "object": [
        lambda: Thing(a=1, b=2.0, c=True),
        lambda: Thing(a=7, b=2, c=1),
        lambda: Thing(c=True, a=1, b=3.0),
        lambda: Thing(a=1),
    ],
    "slots": [lambda: Slots(a=1, b=2.0, c=True), lambda: Slots(a=7, b=2.0, c=1), lambda: Slots(a=True)],
    "list": [
        lambda: [1, 2.0, True, "text"],
        lambda: [7, 2, 1, "text"],
        lambda: [1, 2.0, True],
        lambda: [True, "text", 2.0, 1, 1, 0],
    ],
    "deque": [
        lambda: collections.deque([1, 2.0, True, "text"], 6),
        lambda: collections.deque([7, 2.0, 1, "text"], 6),
        lambda: collections.deque([1, 2.0], 6),
    ],
    "tensor": [
        lambda: torch.ones(3),
        lambda: torch.ones(3).requires_grad_(),
        lambda: torch.ones(3).requires_grad_() * 2,
        with_gradient,
    ],
    "set": [lambda: {1, 2.0, "text"}, lambda: {1, 2.0, 9}, lambda: set()],
}

_OF_TABLES = [
    "o['a'] = 1", "o['a'] = True", "o['a'] = 1.0", "o['b'] = 2", "o['c'] = 1", "o['d'] = 'text'", "o['e'] = x * 2",
    "o['a'] = o.pop('a')", "o['b'] = o.pop('b', 0)", "del o['c']", "o.pop('d', None)", "o.popitem()", "o.clear()",
    "o.setdefault('a', 5)", "o.setdefault('f', [5])", "o.update(b=2.0, g=1)", "seen.append(o.get('a'))",
    "seen.append('c' in o)", "seen.extend(o)", "o['c'] = not o['c']", "o['a'], o['b'] = o['b'], o['a']",
    "seen.append(list(o.items()))",
]  # fmt: skip
_OF_OBJECTS = [
    "o.a = 1", "o.a = True", "o.b = 2", "o.b = x + 1", "o.c = 1", "del o.c", "o.a, o.b = o.b, o.a", "o.a = o.a",
    "seen.append(getattr(o, 'b', None))", "seen.append(hasattr(o, 'c'))", "o.c = 1.0; del o.c; o.c = True",
]  # fmt: skip
_OF_SEQUENCES = [
    "o[0] = 1", "o[0] = True", "o[1] = 2", "o[-1] = 'text'", "o.pop()", "del o[-1]", "o.append(x)", "o.append(o.pop())",
    "o.insert(1, 'new')", "o.reverse()", "o.extend([1, 2])", "del o[0]", "o[0], o[1] = o[1], o[0]", "o.clear()",
    "o.remove(2.0)", "seen.append(len(o))", "seen.append(o[0])",
]  # fmt: skip
_OF_TENSORS = [
    "o.detach_()", "o.requires_grad_()", "o.requires_grad = True", "o.grad = None", "o.grad = o.detach() * 2",
    "o.data = o.detach() + 1", "o.data = o.detach().double()", "o.note = 'text'", "del o.grad",
    "seen.append(o.detach() + 1)", "(o * x).sum().backward() if o.requires_grad else None",
    "w = x.clone().requires_grad_(); (w * x * 3).sum().backward(); seen.append(w)",
    "w = x.clone().requires_grad_(); v = w * 2; v.retain_grad(); (v * x).sum().backward(); seen.append(v)",
    "w = x.clone().requires_grad_(); w.grad = x * 5; w.note = seen; seen.append(w)",
    "o.detach().mul_(2)", "seen.append(o.requires_grad)", "seen.append(o * 2)", "o.retain_grad()",
    "seen.append(o.is_leaf)", "o.grad.zero_() if o.is_leaf and o.grad is not None else None",
]  # fmt: skip
STATEMENTS = {
    "dict": _OF_TABLES,
    "ordered": [*_OF_TABLES, "o.move_to_end('a')", "o.move_to_end('c', last=False)", "o.popitem(last=False)"],
    "object": [*_OF_OBJECTS, "o.new = 3", "vars(o)['a'] = 4", "vars(o).pop('b', None)", "seen.extend(vars(o))"],
    "slots": _OF_OBJECTS,
    "list": [*_OF_SEQUENCES, "o[1:3] = ['new']", "del o[1:]", "o[:] = o[:2]", "o += [1]", "o *= 2"],
    "deque": [*_OF_SEQUENCES, "o.appendleft(0)", "o.popleft()", "o.rotate(1)"],
    "tensor": _OF_TENSORS,
    "set": [
        "o.add(1)", "o.add(True)", "o.add('new')", "o.discard(2)", "o.remove('text')", "o.clear()", "o |= {5, 6}",
        "o -= {1}", "seen.append(len(o))", "seen.append('text' in o)",
    ],
}  # fmt: skip
#: Programs of each kind; most are of one to four statements.
COUNT = 18


def program(kind: str, seed: int) -> tuple[Any, str]:
    """A function of an object and a tensor, and its text. The first programs are one statement each."""
    chooser = random.Random(f"{kind} {seed}")
    statements = STATEMENTS[kind]
    chosen = [chooser.choice(statements) for _ in range(chooser.randint(2, 4))]
    lines = ["def changes(o, x):", "    seen = []", *(f"    {each}" for each in chosen), "    return seen"]
    space: dict = {}
    exec("\n".join(lines), space)
    return space["changes"], "\n".join(lines)


def told(value: Any) -> Any:
    """`value` in comparable form, in which 1, 1.0 and True differ."""
    if isinstance(value, torch.Tensor):
        gradient = value.grad if value.is_leaf or value.retains_grad else None
        facts = value.dtype, value.requires_grad, value.is_leaf, value.retains_grad, told(vars(value)), told(gradient)
        return "tensor", value.tolist(), facts
    if isinstance(value, dict):
        return type(value), [(told(key), told(each)) for key, each in value.items()]
    if isinstance(value, set):
        return set, sorted(map(repr, value))
    if isinstance(value, Thing):
        return Thing, told(vars(value))
    if isinstance(value, Slots):
        return Slots, [told(getattr(value, name, "missing")) for name in Slots.__slots__]
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value), getattr(value, "maxlen", None), [told(each) for each in value]
    return repr(value)


def outcome(function: Any, target: Any) -> tuple:
    """What a call returns or raises, and what it leaves in its argument."""
    try:
        result = told(function(target, X))
    except Exception as error:
        result = type(error), str(error)
    return result, told(target)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", STATES)
def test_changes_happen(kind, part):
    for seed in range(part, COUNT, 3):
        function, text = program(kind, seed)
        compiled = lampwork.compile(function, options={"cache": False})
        for state in (*STATES[kind], STATES[kind][0]):
            assert outcome(compiled, state()) == outcome(function, state()), f"{text}\non {told(state())}"


@pytest.mark.parametrize("kind", STATES)
def test_each_change_alone_happens(kind):
    for statement in STATEMENTS[kind]:
        space: dict = {}
        exec(f"def changes(o, x):\n    seen = []\n    {statement}\n    return seen", space)
        compiled = lampwork.compile(space["changes"], options={"cache": False})
        for state in STATES[kind]:
            assert outcome(compiled, state()) == outcome(space["changes"], state()), f"{statement}\non {told(state())}"
