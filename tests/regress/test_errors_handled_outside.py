"""Programs that raise, or ask what is handled, called while their caller handles an error, and while it does not. That
error is the context of what they raise; what was found at the first call stood for every later one.

And errors that a program returns: in a process where nothing had used our code for tracebacks yet, the call failed.
"""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest
import torch

import lampwork


def asked(x):
    return x + 1, sys.exc_info()[0], repr(sys.exception())


def raised_again(x):
    try:
        raise
    except (RuntimeError, KeyError) as error:
        return x, repr(error)


def context(x):
    try:
        raise ValueError("inner")
    except ValueError as error:
        return x, repr(error.__context__)


def context_of_returned(x):
    try:
        raise ValueError("inner")
    except ValueError as error:
        return x + 1, error


def inner(x):
    try:
        {}["a"]
    except KeyError:
        return x + 1, sys.exc_info()[0]


def described(x):
    try:
        {}["a"]
    except KeyError:
        return x, "outer" in traceback.format_exc()


def beside_a_break(x):
    try:
        {}["a"]
    except KeyError:
        y = x + 1
        torch._dynamo.graph_break()
        return y, sys.exc_info()[0], repr(sys.exception().__context__)


PROGRAMS = [asked, raised_again, context, context_of_returned, inner, described, beside_a_break]


def seen(function, outer):
    def call():
        try:
            tensor, *rest = function(torch.ones(1))
        except Exception as error:
            return repr(error), repr(error.__context__)
        return tensor.tolist(), [
            (repr(each), repr(each.__context__)) if isinstance(each, Exception) else each for each in rest
        ]

    if outer is None:
        return call()
    try:
        raise outer("outer")
    except outer:
        return call()


@pytest.mark.parametrize("order", [(None, KeyError, LookupError, None), (KeyError, None, LookupError, KeyError)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_what_the_caller_handles(program, order):
    compiled = lampwork.compile(program)
    for outer in (*order, *order):
        assert seen(compiled, outer) == seen(program, outer)


RETURNED = """
import torch, lampwork

def program(x):
    try:
        raise ValueError("kept")
    except ValueError as error:
        return x + 1, error

compiled = lampwork.compile(program)
for _ in range(2):
    error = compiled(torch.ones(1))[1]
    print(repr(error), error.__traceback__.tb_frame.f_code.co_name)
"""


def test_an_error_is_returned_in_a_fresh_process(tmp_path):
    (tmp_path / "returned.py").write_text(RETURNED)
    done = subprocess.run([sys.executable, str(tmp_path / "returned.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["ValueError('kept') program"] * 2
