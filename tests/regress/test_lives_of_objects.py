"""When objects die, and what refers to them weakly: finalizers ran on half-built copies of capture's and then never
again, `weakref.WeakMethod` gave objects that stand for the program's to the program, and what stands for a tensor that
the program had let go of lived on."""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import weakref

import pytest
import torch

import lampwork

ONE = torch.ones(1)


def test_finalizers_run_once_for_each_object():
    log = []

    class Resource:
        def __init__(self, key):
            self.key = key
            log.append(("made", key))

        def __del__(self):
            log.append(("freed", self.__dict__.get("key")))

    def program(x, key):
        resource = Resource(key)
        return x * resource.key

    compiled = lampwork.compile(program)
    for key in (1, 1, 2):
        assert compiled(ONE, key).item() == key
    assert log == [(word, key) for key in (1, 1, 2) for word in ("made", "freed")]
    assert "finalizer" in str(lampwork.stats(compiled))


def test_a_finalizer_is_seen_by_what_follows():
    freed = [0]

    class Resource:
        def __del__(self):
            freed[0] += 1

    def made_here(x):
        resource = Resource()
        del resource
        return x * freed[0]

    compiled = lampwork.compile(made_here)
    assert [compiled(ONE).item() for _ in range(3)] == [1, 2, 3]


FREED = [0]


class Freed:
    def __del__(self, freed=FREED):
        freed[0] += 1


class FreedList(list):
    __del__ = functools.partialmethod(Freed.__del__)


kept = Freed()
MADE = {
    "copied": lambda: copy.copy(kept), "copied deeply": lambda: copy.deepcopy(kept),
    "by object": lambda: object.__new__(Freed), "by the class": lambda: Freed.__new__(Freed),
    "a list": lambda: FreedList(), "a list by new": lambda: list.__new__(FreedList),
    "of a class made here": lambda: type("Made", (Freed,), {})(),
}  # fmt: skip


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_objects_with_finalizers_however_made(make):
    def program(x):
        make()
        return x * FREED[0]

    compiled = lampwork.compile(program)
    before = FREED[0]
    assert [compiled(ONE).item() - before for _ in range(3)] == [1, 2, 3]


def test_weak_methods():
    class Listener:
        def __init__(self):
            self.count, self.last = 0, None

        def hear(self, x):
            self.count, self.last = self.count + 1, x
            return x * 2

    listener = Listener()
    method = weakref.WeakMethod(listener.hear)
    compiled = lampwork.compile(lambda x: method()(x))
    for count in (1, 2, 3):
        assert torch.equal(compiled(ONE), 2 * ONE)
        assert listener.count == count and type(listener.last) is torch.Tensor


def test_tensors_that_the_program_has_let_go_of():
    def program(x):
        y = x * 2
        reference = weakref.ref(y)
        y = y + 1
        return y, reference() is None

    assert lampwork.compile(program)(ONE)[1] is True


def test_while_somebody_else_evaluates_frames():
    """CPython leaves arguments on the caller's stack then: as long as `torch.compile` may run, in long processes."""
    frames = pytest.importorskip("torch._C._dynamo.eval_frame")

    def program(x):
        y = x * 2
        reference = weakref.ref(y)
        y = y + 1
        return y, reference() is None

    before = frames.set_eval_frame(False)
    try:
        assert lampwork.compile(program)(ONE)[1] is True
    finally:
        frames.set_eval_frame(before)


def test_bound_methods_in_c_as_class_attributes():
    class Numbered:
        count = itertools.count().__next__

        def __init__(self):
            self.number = self.count()

    compiled = lampwork.compile(lambda x: x + Numbered().number)
    assert [compiled(ONE).item() for _ in range(3)] == [1, 2, 3]


def test_the_text_of_an_exception_is_made_by_nobody():
    texts = []

    class Failure(Exception):
        def __init__(self, tensor):
            super().__init__("failed")
            self.tensor = tensor

        def __str__(self):
            texts.append(1)
            return str(self.tensor.tolist())

    def program(x):
        raise Failure(x * 2)

    compiled = lampwork.compile(program)
    for _ in range(2):
        try:
            compiled(ONE)
        except Failure as error:
            assert torch.equal(error.tensor, 2 * ONE)
    assert not texts


def test_captures_keep_nothing_until_the_collector_comes():
    """The exception that ended a capture led to its frames, these to the program's objects, and to the exception."""

    class Thing:
        pass

    def program(x):
        y, thing = x * 2, Thing()
        tensor, other = weakref.ref(y), weakref.ref(thing)
        _not_compiled()
        y, thing = y + 1, None
        _not_compiled()
        return y, tensor() is None, other() is None

    gc.collect()
    gc.disable()
    try:
        assert lampwork.compile(program)(ONE)[1:] == (True, True)
    finally:
        gc.enable()


@lampwork.disable
def _not_compiled():
    pass
