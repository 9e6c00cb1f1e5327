"""Sizes that the user marked, with our functions and with those of `torch._dynamo`."""

from __future__ import annotations

import pytest
import torch

import lampwork
from tests.dynamic.support import relations
from tests.processes import run_python


def double(x):
    return x.relu() * 2


def call(compiled, *shapes):
    for shape in shapes:
        x = torch.randn(*shape)
        torch.testing.assert_close(compiled(x), double(x))
    return lampwork.stats(compiled)["captures"]


def compiled(function=double, **options):
    return lampwork.compile(function, options={"cache": False}, **options)


def test_a_marked_dimension_is_dynamic_from_the_first_call():
    f = compiled()
    x = torch.randn(4, 6)
    lampwork.mark_dynamic(x, 0)
    f(x)
    assert call(f, (5, 6), (100, 6), (2, 6)) == 1
    assert call(f, (4, 7)) == 2
    assert relations(f)[-1] == ["1 <= s0"]


def test_limits_are_guarded():
    f = compiled()
    x = torch.randn(4, 6)
    lampwork.mark_dynamic(x, -1, min=4, max=16)
    f(x)
    assert call(f, (4, 16), (4, 4)) == 1
    assert relations(f)[-1] == ["4 <= s0 <= 16", "x0 == s0"]
    assert call(f, (4, 17)) == 2


def test_one_is_compiled_apart_where_the_program_asks():
    f = compiled()
    x = torch.randn(4, 6)
    lampwork.mark_dynamic(x, 0)
    f(x)
    assert call(f, (1, 6)) == 1
    squeezed = lampwork.compile(lambda x: x.squeeze(0) * 2, options={"cache": False})
    squeezed(x)
    assert [squeezed(torch.ones(size, 6)).dim() for size in (9, 1, 5, 1)] == [2, 1, 2, 1]
    assert lampwork.stats(squeezed)["captures"] == 2


def test_a_mark_where_the_number_is_needed_is_an_error():
    def program(x):
        for _ in range(x.shape[0]):  # this line needs it
            x = x + 1
        return x

    f = compiled(program)
    x = torch.randn(4, 6)
    lampwork.mark_dynamic(x, 0)
    with pytest.raises(lampwork.DynamicSizeError, match=r"argument 0.size\(0\) is fixed at 4") as caught:
        f(x)
    assert "test_marks.py" in str(caught.value) and "argument 0.size(0) == 4" in str(caught.value)


def test_an_unmarked_size_that_is_needed_is_recorded():
    def program(x):
        return x + [10, 20, 30, 40, 50, 60, 70][x.shape[0]]

    f = compiled(program, dynamic=True)
    f(torch.randn(4, 6))
    (found,) = lampwork.stats(f)["specialised"]
    assert found.id == "size-specialised" and found.location.file.endswith("test_marks.py")
    f(torch.randn(5, 6))
    f(torch.randn(5, 9))
    assert lampwork.stats(f)["captures"] == 2


def test_static_marks_win_over_dynamic_true():
    f = compiled(dynamic=True)
    x = torch.randn(4, 6)
    lampwork.mark_static(x, 1)
    f(x)
    assert call(f, (5, 6), (9, 6)) == 1
    assert call(f, (4, 7)) == 2


def test_marks_are_checked():
    x = torch.randn(4, 6)
    with pytest.raises(lampwork.OptionError, match="no dimension 2"):
        lampwork.mark_dynamic(x, 2)
    with pytest.raises(lampwork.OptionError, match="size 4, which is not between"):
        lampwork.mark_dynamic(x, 0, min=5)
    with pytest.raises(lampwork.OptionError, match="not on a int"):
        lampwork.mark_static(3)


def test_marks_of_the_framework_are_honoured():
    """Their attributes are set by hand: importing `torch._dynamo` takes a second."""
    f = compiled()
    x = torch.randn(4, 6)
    x._dynamo_dynamic_indices = {0}
    f(x)
    assert call(f, (5, 6), (9, 6)) == 1
    g = compiled(dynamic=True)
    y = torch.randn(4, 6)
    y._dynamo_static_indices = {0, 1}
    g(y)
    assert call(g, (5, 6)) == 2
    h = compiled()
    z = torch.randn(4, 6)
    z._dynamo_weak_dynamic_indices = {1}
    h(z)
    assert call(h, (4, 7), (4, 9)) == 1
    for attribute in ("_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices"):
        k = compiled()
        z = torch.randn(4, 6)
        setattr(z, attribute, {1})
        k(z)
        assert call(k, (4, 7), (4, 9)) == 1


PROGRAM = """
import torch, lampwork
from torch import _dynamo

def double(x):
    return x.relu() * 2

def captures(mark, first, shapes, **options):
    compiled = lampwork.compile(double, options={"cache": False}, **options)
    x = torch.randn(first)
    mark(x)
    compiled(x)
    for shape in shapes:
        x = torch.randn(shape)
        assert torch.equal(compiled(x), double(x))
    return lampwork.stats(compiled)["captures"]

print(
    captures(lambda x: _dynamo.mark_dynamic(x, 0, min=3, max=9), (4, 6), [(3, 6), (9, 6), (5, 6)]),
    captures(lambda x: _dynamo.mark_dynamic(x, 0, min=3, max=9), (4, 6), [(10, 6)]),
    captures(lambda x: _dynamo.mark_dynamic(x, [0, 1]), (4, 6), [(5, 9), (100, 3)]),
    captures(lambda x: _dynamo.maybe_mark_dynamic(x, 1), (4, 6), [(4, 9)]),
    captures(lambda x: _dynamo.mark_static(x, 1), (4, 6), [(5, 6), (4, 7)], dynamic=True),
    captures(lambda x: _dynamo.mark_static(x), (4, 6), [(5, 6)], dynamic=True),
    captures(lambda x: _dynamo.decorators.mark_unbacked(x, 0), (4, 6), [(5, 6), (2, 6)]),
)
"""


def test_marks_made_by_the_functions_of_the_framework(tmp_path):
    script = tmp_path / "marks.py"
    script.write_text(PROGRAM)
    run = run_python([script], timeout=200)
    assert run.stdout.split() == ["1", "2", "1", "1", "2", "2", "1"], run.stdout + run.stderr
