"""Long lists of cases of which an ordinary run takes a part: the others are slow tests (`make test-slow`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_of(count: int, cases: Iterable[Any]) -> list[Any]:
    """The cases, of which each first of `count` is in an ordinary run. A tuple is a case of several arguments."""
    return [
        each
        if index % count == 0
        else pytest.param(*(each if type(each) is tuple else (each,)), marks=pytest.mark.slow)
        for index, each in enumerate(cases)
    ]
