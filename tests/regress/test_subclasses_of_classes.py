"""`cls.__subclasses__()` broke a call for each class that was asked (einops looks for its back ends so)."""

from __future__ import annotations

import torch

import lampwork


class Scale:
    factor = 1.0


class Double(Scale):
    factor = 2.0


def deepest(cls):
    found, left = [], [cls]
    while left:
        each = left.pop()
        left += each.__subclasses__()
        found.append(each)
    return found


def program(x):
    for cls in deepest(Scale):
        x = x * cls.factor
    return x + len(Scale.__subclasses__())


def test_classes_that_come_and_change(monkeypatch):
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    x = torch.ones(3)
    assert torch.equal(compiled(x), program(x))
    assert torch.equal(compiled(x), program(x)) and lampwork.stats(compiled)["captures"] == 1
    monkeypatch.setattr(Double, "factor", 5.0)
    assert torch.equal(compiled(x), program(x))

    class Triple(Double):
        factor = 3.0

    assert torch.equal(compiled(x), program(x))
    Triple.factor = 4.0
    assert torch.equal(compiled(x), program(x))


def test_classes_of_the_programs_own():
    def made(x):
        class Base:
            factor = 2.0

        class Other(Base):
            factor = 3.0

        return x * sum(each.factor for each in Base.__subclasses__())

    compiled = lampwork.compile(made, options={"cache": False})
    assert torch.equal(compiled(torch.ones(2)), made(torch.ones(2)))


def test_a_class_that_the_program_adds():
    def added(x):
        before = len(Scale.__subclasses__())
        kept = type("Kept", (Scale,), {})
        return x * (len(Scale.__subclasses__()) - before) + len(kept.__name__)

    compiled = lampwork.compile(added, options={"cache": False})
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), added(torch.ones(2)))
