"""Sizes inside of containers and exceptions cross into native code as numbers: their text is that of eager."""

import collections
import re
import string

import pytest
import torch

import lampwork


class Own(Exception):
    pass


def caught(kind, *args):
    try:
        raise kind(*args)
    except kind as error:
        return str(error), repr(error)


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(lambda n, rate: "{}".format({n: n}), id="format"),
        pytest.param(lambda n, rate: "{} {a}".format({n: [n]}, a={"k": (n,)}), id="format-nested"),
        pytest.param(lambda n, rate: "{}".format(collections.OrderedDict(k=n)), id="format-ordered"),
        pytest.param(lambda n, rate: "%s" % (n,), id="percent"),
        pytest.param(lambda n, rate: "%s %r" % ({n: n}, [n]), id="percent-nested"),
        pytest.param(lambda n, rate: "%(a)s" % {"a": n}, id="percent-dict"),
        pytest.param(lambda n, rate: caught(KeyError, n), id="key-error"),
        pytest.param(lambda n, rate: caught(ValueError, n), id="value-error"),
        pytest.param(lambda n, rate: caught(ValueError, {n: n}), id="value-error-dict"),
        pytest.param(lambda n, rate: caught(ValueError, rate), id="value-error-float"),
        pytest.param(lambda n, rate: caught(KeyError, rate, n), id="key-error-two"),
        pytest.param(lambda n, rate: caught(Own, rate), id="own-error"),
        pytest.param(lambda n, rate: caught(Own, rate, n), id="own-error-two"),
    ],
)
def test_text_of_what_holds_sizes(show):
    def program(x, rate):
        return x * 2, show(len(x), rate)

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for n, rate in ((4, 0.25), (5, 0.5), (6, 0.75)):
        x = torch.ones(n)
        assert compiled(x, rate)[1] == program(x, rate)[1]


def test_a_replacement_that_is_not_known_yet():
    def program(x, rate):
        return x * 2, re.sub("r", lambda found: str(rate), "r and r"), string.Template("$n $r").substitute(n=1, r=rate)

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for rate in (0.25, 0.5, 0.75):
        x = torch.ones(4)
        assert compiled(x, rate)[1:] == program(x, rate)[1:]
