"""Recompiles are recorded when they happen: the guard that failed, the line that read the value, the cost."""

from __future__ import annotations

import pytest
import torch

import lampwork


class Scaled(torch.nn.Module):
    scale = 1

    def __init__(self):
        super().__init__()
        self.factor = 2

    def forward(self, x, flag=True):
        return x * self.factor if flag else x


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def recompiles_of(compiled):
    return lampwork.stats(compiled)["recompiles"]


def fresh():
    return lampwork.compile(Scaled(), options={"cache": False})


def test_a_first_compile_and_a_served_call_are_no_recompiles():
    model = fresh()
    model(torch.ones(2)), model(torch.ones(2))
    assert recompiles_of(model) == ()


def test_a_new_size_names_the_parameter_and_the_function():
    model = fresh()
    model(torch.ones(2)), model(torch.ones(3))
    (record,) = recompiles_of(model)
    assert record.id == "recompile" and record.reason.startswith("x shape was [2], is now [3]")
    assert record.location.file == __file__ and record.line == Scaled.forward.__code__.co_firstlineno
    assert "dynamic=True" in record.remedy and record.count == 1 and record.seconds > 0


def test_an_attribute_that_changed_names_the_line_that_read_it():
    model = fresh()
    model(torch.ones(2))
    model.factor = 3
    model(torch.ones(2))
    (record,) = recompiles_of(model)
    assert record.reason == "self.factor was 2, is now 3"
    assert record.line == Scaled.forward.__code__.co_firstlineno + 1


def test_another_way_of_calling_and_another_mode():
    model = fresh()
    model(torch.ones(2))
    model(torch.ones(2), flag=False)
    with torch.inference_mode():
        model(torch.ones(2), flag=False)
    first, second = recompiles_of(model)
    assert "positional arguments and keywords" in first.remedy
    assert "inference" in second.reason


def test_reset_forgets_them():
    model = fresh()
    model(torch.ones(2)), model(torch.ones(3))
    model.__lampwork__.reset()
    assert recompiles_of(model) == ()


def test_a_fall_back_is_recorded_with_the_time_it_took():
    @lampwork.compile(options={"cache": False})
    def program(x):
        return x * torch.ones(2).requires_grad_()

    with torch.enable_grad():
        program(torch.ones(2))
    (record,) = lampwork.stats(program)["fallbacks"]
    assert record.count == 1 and 0 < record.seconds < 10 and "ms each" in str(record)
