"""What was noted of an object under its id was found for another one, which got the id when the first was gone: whether
it was depended on where memory was free."""

from __future__ import annotations

import gc
import itertools
import weakref
from contextlib import suppress
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch

import lampwork
from lampwork import regions
from lampwork.passes import program
from lampwork.runtime.siblings import known_of

OPTIONS = {"cache": False}
OPTIONS_OF_PARTS = {"options": {"freeze": True}}
#: How many objects are made until one has the id that is looked for.
TRIES = 4096

aten = torch.ops.aten


class Thing:
    pass


def reasons(compiled):
    return [each.diagnostic.reason for each in lampwork.stats(compiled)["breaks"]]


def made_at(places, make, part=lambda made: made):
    """What `make` gives, of which the `part` has one of the ids `places`; the last one if none has. All stay until
    then."""
    made = [make()]
    while id(part(made[-1])) not in places and len(made) < TRIES:
        made.append(make())
    return made[-1]


def test_a_dict_that_an_object_has_no_longer():
    """It was taken for the one that the object has now."""

    def program(x):
        thing = Thing()
        thing.first = 1
        before = thing.__dict__
        thing.__dict__ = {"second": 2}
        return thing, before, x + 1

    thing, before, _ = lampwork.compile(program, options=OPTIONS)(torch.ones(2))
    assert before == {"first": 1} and vars(thing) == {"second": 2}


def test_a_dict_that_an_object_has_is_that_very_dict():
    def program(x):
        thing = Thing()
        thing.first = 1
        return thing, thing.__dict__, x + 1

    thing, names, _ = lampwork.compile(program, options=OPTIONS)(torch.ones(2))
    assert vars(thing) is names and names == {"first": 1}


def test_attributes_of_tensors_that_a_branch_replaces():
    """The list of the branch that was not taken was there, where it came to lie in the place of the first one."""

    def program(x):
        y = x * 2
        y.tag = [x.dim()]

        def yes(x):
            y.tag = None
            y.tag = [x.dim() + 5]
            return x + 1

        return torch.cond(x.sum() > 0, yes, torch.neg, (x,)), y.tag

    compiled = lampwork.compile(program, options=OPTIONS)
    with suppress(Exception):  # PyTorch refuses it, too
        compiled(-torch.ones(2))
    assert len(reasons(compiled)) == 1 and "it changes what a tensor is like" in reasons(compiled)[0]


def test_copies_with_memos_of_their_own():
    """The second memo was often taken for the first one, which was gone, and the graph broke."""

    def program(x):
        return x.__deepcopy__({}), x.__deepcopy__({}), x.__deepcopy__({})

    compiled = lampwork.compile(program, options=OPTIONS)
    x = torch.arange(3.0)
    results = compiled(x)
    assert all(each.equal(x) and each is not x for each in results)
    assert not reasons(compiled)


def test_errors_that_were_let_go_of():
    """The `KeyError` was taken for PyTorch's own `IndexError`, which capture knows less of, and the graph broke."""

    def program(x, names):
        try:
            x[5]
        except IndexError:
            pass
        return names["missing"]

    compiled = lampwork.compile(program, options=OPTIONS)
    with pytest.raises(KeyError):
        compiled(torch.ones(2, 3), {})
    assert not reasons(compiled)


def test_an_edit_whose_arguments_lie_where_those_before_lay():
    """It was not noticed, and the program stayed as it had been."""
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    node = graph.call_function(aten.sub.Tensor, (x, y))
    graph.output((node,))
    functional: Any = SimpleNamespace(graph=graph)
    before = program._calls(functional)
    assert program._are(program._calls(functional), before)
    for _ in range(TRIES):
        node.args = (y, x)
        assert not program._are(program._calls(functional), before)


def test_what_is_known_of_code_that_a_class_has_no_longer():
    numbers = itertools.count()

    class Model(torch.nn.Module):
        forward = None

    def forward():
        names: dict[str, FunctionType] = {}
        exec(f"def forward(self, x): return x + {next(numbers)}", names)
        return names["forward"]

    settings = lampwork.compile(Model(), options=OPTIONS).__lampwork__.settings
    Model.forward = forward()
    known, place = known_of(Model(), settings), id(Model.forward.__code__)
    assert known_of(Model(), settings) is known
    Model.forward = None
    Model.forward = made_at({place}, forward, lambda made: made.__code__)
    assert known_of(Model(), settings) is not known


def test_what_is_known_of_code_goes_with_who_uses_it():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x + 1

    compiled = lampwork.compile(Model(), options=OPTIONS)
    known = weakref.ref(known_of(Model(), compiled.__lampwork__.settings))
    gc.collect()
    assert known() is None


def test_modules_of_another_model_stay_compiled():
    """Where the part that a model had had was gone, what was compiled of another model's was forgotten with it."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ModuleList([torch.nn.Identity() for _ in range(64)])

        def forward(self, x):
            return self.parts[0](x) + 1

    def compiled(model):
        return lampwork.compile(model, options=OPTIONS, regions={"parts.0": OPTIONS_OF_PARTS})

    first, other = compiled(model := Model()), Model()
    gc.collect()
    places = set(map(id, model.parts))
    model.parts = None
    part = made_at(places, torch.nn.Identity)
    other.parts[0] = part
    second = compiled(other)
    second(torch.ones(2))
    tables = list(regions._tables.values())
    assert sum(id(part) in each.compiled for each in tables) == 1
    del first, model
    gc.collect()
    assert sum(id(part) in each.compiled for each in tables) == 1
