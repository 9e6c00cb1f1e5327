"""`is` of equal numbers, texts and tuples was answered once for all calls, and so was whether a NaN is found in a list."""

from __future__ import annotations

import math

import pytest
import torch

import lampwork

X = torch.ones(3)


class Held:
    left: object = None
    right: object = None


HELD = Held()
DATA = {
    "float": lambda: float("1.5"),
    "int": lambda: int("100000"),
    "text": lambda: "".join(["ab", " c"]),
    "tuple": lambda: tuple([1, 2]),
    "nan": lambda: float("nan"),
}
IDENTITY = {
    "is": lambda x: x + (1 if HELD.left is HELD.right else 2),
    "is not": lambda x: x + (1 if HELD.left is not HELD.right else 2),
    "id": lambda x: x + (1 if id(HELD.left) == id(HELD.right) else 2),
}
#: What a NaN equals is itself alone, wherever containers compare.
CONTAINERS = {
    "in": lambda x: x + (1 if HELD.left in [HELD.right] else 2),
    "==": lambda x: x + (1 if [HELD.left] == [HELD.right] else 2),
    "index": lambda x: x + [HELD.right, HELD.left].index(HELD.left),
    "count": lambda x: x + [HELD.left, HELD.right].count(HELD.left),
    "get": lambda x: x + {HELD.right: 5}.get(HELD.left, 7),
    "set": lambda x: x + len({HELD.left, HELD.right}),
    "module": lambda x: x + (1 if HELD.left in (math.nan,) else 2),
}


def followed(program, first, second):
    compiled = lampwork.compile(program, options={"cache": False})
    for HELD.left, HELD.right in (first, second, first):
        assert torch.equal(compiled(X), program(X))
    return compiled


@pytest.mark.parametrize("question", IDENTITY)
@pytest.mark.parametrize("kind", DATA)
def test_equal_data_that_is_one_object_or_two(kind, question):
    one, other = DATA[kind](), DATA[kind]()
    for first, second in (((one, one), (one, other)), ((one, other), (one, one))):
        compiled = followed(IDENTITY[question], first, second)
        assert not lampwork.stats(compiled)["breaks"]


@pytest.mark.parametrize("question", CONTAINERS)
def test_what_is_no_number_in_containers(question):
    one, other = DATA["nan"](), DATA["nan"]()
    pairs = ((math.nan, 0.0), (one, 0.0)) if question == "module" else ((one, one), (one, other))
    for first, second in (pairs, pairs[::-1]):
        compiled = followed(CONTAINERS[question], first, second)
        assert not lampwork.stats(compiled)["breaks"]


def test_a_constant_of_the_program():
    def program(x):
        return x + (1 if HELD.left is constant() else 2)

    def constant():
        return 2.5

    compiled = followed(program, (float("2.5"), None), (constant(), None))
    assert [each.id for each in lampwork.stats(compiled)["breaks"]] == ["data-identity"]


@pytest.mark.parametrize("program", [
    lambda x, n: x + (1 if (n > 4) is True else 2),
    lambda x, n: x + (1 if (x.shape[0] > 4) is not False else 2),
    lambda x, n: x + (1 if bool(x.sum() > 4) is True else 2),
    lambda x, n: x + (1 if (x.sum() > 4).item() is False else 2),
    lambda x, n: x + (1 if n is x.shape[0] else 2),
    lambda x, n: x + (1 if int(x.sum()) is n else 2),
    lambda x, n: x + (1 if n is None else 2),
])  # fmt: skip
def test_numbers_that_vary(program):
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for x, n in ((X, 3), (X * 2, 5), (torch.ones(7), 7), (torch.ones(300), 300)):
        assert torch.equal(compiled(x, n), program(x, n))
