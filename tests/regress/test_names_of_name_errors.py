"""`NameError.name`: CPython leaves it None for an UnboundLocalError."""

from __future__ import annotations

import torch

import lampwork


def _local(x, k):
    if k:
        z = 1
    try:
        return x + z, ""
    except NameError as error:
        return x + 1, error.name


def _deleted(x, k):
    try:
        z = 1
        del z
        return x + z, ""
    except NameError as error:
        return x + 1, error.name


def _cell(x, k):
    def read():
        return z

    try:
        return x + read(), ""
    except NameError as error:
        return x + 1, error.name
    z = 1


def _global(x, k):
    try:
        return x + nowhere, ""
    except NameError as error:
        return x + 1, error.name


def test_unbound_variables_name_what_cpython_names():
    for function in (_local, _deleted, _cell, _global):
        expected = function(torch.ones(1), False)
        assert lampwork.compile(function)(torch.ones(1), False) == expected, function
