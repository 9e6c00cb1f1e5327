"""What a kernel takes from a buffer before it stores to it was written before, or the program is refused."""

from __future__ import annotations

import pytest

from lampwork.ir.loops import Axis, Compute, Constant, If, Kernel, Let, Load, Local, Loop, Parameter, Store
from lampwork.ir.order import loaded_before_stored
from lampwork.ir.size import Symbol

I = Symbol("i", 0, 7)
ZERO = Constant(0.0, "float32")


def load(mask=None, index=I):
    return Load("b0", (index,), "float32", mask=mask)


def store(value, mode="write"):
    return Store("b0", (I,), value, mode)


def kernel(*body, access="readwrite"):
    loop = Loop(Axis("i", 8), body)
    return Kernel("k", (Parameter("b0", "float32", access, 8), Parameter("b1", "bool", "read", 8)), (loop,))


flag = Load("b1", (I,), "bool")
BEFORE = {
    "loaded by what is stored": (store(Compute("neg", (load(),), "float32")),),
    "loaded into a local": (Let("t0", load()), store(Local("t0", "float32"))),
    "added to": (store(ZERO, "add"),),
    "loaded by a condition": (If(Compute("gt", (load(), ZERO), "bool"), (store(ZERO),)),),
    "loaded for an index": (Store("b2", (I,), ZERO, "write", (("j", load()),)),),
}
AFTER = {
    "stored first": (store(ZERO), store(Compute("neg", (load(),), "float32"))),
    "filled, then added to": (store(ZERO), store(ZERO, "add")),
    "masked": (store(load(mask=flag)),),
    "under a condition": (If(flag, (store(load()),)),),
    "never loaded": (store(ZERO),),
}


@pytest.mark.parametrize("body", BEFORE.values(), ids=BEFORE)
def test_loaded_before_stored(body):
    assert loaded_before_stored(kernel(*body)) == {"b0"}


@pytest.mark.parametrize("body", AFTER.values(), ids=AFTER)
def test_stored_first_or_perhaps_not_loaded(body):
    assert loaded_before_stored(kernel(*body)) == set()


def test_parameters_that_are_only_read_are_known_to_be():
    assert loaded_before_stored(kernel(Let("t0", load()), access="read")) == set()
