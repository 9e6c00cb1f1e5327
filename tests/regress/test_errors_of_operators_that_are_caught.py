"""Contents decide that an operator raises, and the program catches it: no failure of the compiler, in strict mode
either."""

from __future__ import annotations

import sys

import pytest
import torch

import lampwork


def indexed(x, i):
    try:
        return x[i] + 1
    except IndexError:
        return x - 1


def divided(x, i):
    try:
        return x // i
    except RuntimeError:
        return x - 1


def drawn(x, i):
    try:
        return torch.multinomial(x, 2)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("program", [indexed, divided, drawn])
def test_as_eager(program):
    compiled = lampwork.compile(program, options={"cache": False})
    traced = sys.gettrace()
    for number in (1, 9, 0, 2):
        call = torch.arange(4), torch.tensor([number])
        assert str(compiled(*call)) == str(program(*call))
        assert sys.gettrace() is traced
    if traced is None:
        assert [each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]] == ["assumption-failed"]
