"""Iterations that meet in memory."""

from __future__ import annotations

from lampwork.ir.loops import Axis, Buffer, Compute, Load, LoopNest, Reduction, Store
from lampwork.ir.size import Symbol, add
from lampwork.verification.hazards import hazard_of_group, hazard_of_nest

I, J = Symbol("i", 0, 5), Symbol("j", 0, 5)
BUFFERS = {name: Buffer(name, "float32", (6,), (1,)) for name in ("x", "y", "s", "t")}


def nest(target, index, *loads, extent=6, axis="i"):
    value = Compute("add", tuple(Load(name, place, "float32") for name, place in loads), "float32")
    return LoopNest((Axis(axis, extent),), Store(target, index, value))


def test_an_element_that_another_iteration_writes():
    assert "read where another iteration" in hazard_of_nest(nest("x", (add(I, 1),), ("x", (I,)), extent=5), BUFFERS)
    assert not hazard_of_nest(nest("x", (I,), ("x", (I,)), ("y", (I,))), BUFFERS)


def test_elements_that_no_iteration_writes():
    assert not hazard_of_nest(nest("x", (I,), ("x", (add(I, 3),)), extent=3), BUFFERS)


def test_members_of_one_loop():
    writer = nest("x", (I,), ("y", (I,)))
    assert not hazard_of_group([writer, nest("s", (I,), ("x", (I,)))], BUFFERS)
    assert "x is read" in hazard_of_group([writer, nest("s", (I,), ("x", (add(I, 1),)), extent=5)], BUFFERS)


def test_reductions_over_different_axes():
    def reduced(target, kept, over):
        value = Load("y", (Symbol(kept, 0, 5),), "float32")
        reduction = Reduction("sum", (Axis(over, 6),), "float32")
        return LoopNest((Axis(kept, 6),), Store(target, (Symbol(kept, 0, 5),), value), reduction)

    assert "different axes" in hazard_of_group([reduced("s", "i", "j"), reduced("t", "j", "i")], BUFFERS)
    assert not hazard_of_group([reduced("s", "i", "j"), reduced("t", "i", "j")], BUFFERS)
