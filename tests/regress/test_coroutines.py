"""A coroutine function is called natively, never while capturing: what it made there was awaited by nobody."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest
import torch

import lampwork


async def doubled(x):
    return x * 2


def makes_one(x):
    return doubled(x + 1)


async def numbers(x):
    yield x * 3


@pytest.mark.parametrize("program", [doubled, makes_one])
def test_a_coroutine_is_made_once(program):
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.arange(3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert torch.equal(asyncio.run(compiled(x)), asyncio.run(program(x)))
        gc.collect()
    assert {each.diagnostic.id for each in lampwork.stats(compiled)["breaks"]} == {"result"}


def test_an_asynchronous_generator():
    async def collected(generator):
        return [each async for each in generator]

    compiled = lampwork.compile(numbers, options={"cache": False})
    (found,) = asyncio.run(collected(compiled(torch.ones(2))))
    assert torch.equal(found, torch.full((2,), 3.0))
