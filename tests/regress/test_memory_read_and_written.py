"""Operators that read memory which they write give what eager gives, or raise what it raises: all but elementwise ones,
which read each element where they write it, run natively. Compiled, they read all before they wrote."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import lampwork
from lampwork.fakes.shared_memory import share_elements

WHOLE = torch.tensor([True, False, True, True])
PROGRAMS = {
    "addmm_": lambda x, y: x.addmm_(x, y), "addmv_": lambda x, y: x[0].addmv_(y, x[1]),
    "addmv_ of itself": lambda x, y: x[0].addmv_(y, x[0]), "addr_": lambda x, y: x.addr_(x[0], y[0]),
    "baddbmm_": lambda x, y: x[None].baddbmm_(y[None], x[None]), "addbmm_": lambda x, y: x.addbmm_(x[None], y[None]),
    "masked_scatter_": lambda x, y: x.masked_scatter_(WHOLE, x), "index_put_": lambda x, y: x.index_put_((WHOLE,), x[:3]),
    "scatter_": lambda x, y: x.scatter_(0, torch.zeros(1, 4, dtype=torch.int64), x),
    "index_add_": lambda x, y: x.index_add_(0, torch.tensor([2, 0, 1, 3]), x),
    "index_copy_": lambda x, y: x.index_copy_(0, torch.tensor([2, 0]), x[:2]), "put_": lambda x, y: x.put_(WHOLE.long(), x[1]),
    "shifted": lambda x, y: x[:, 1:].add_(x[:, :-1]), "shifted rows": lambda x, y: x[1:].mul_(x[:-1]),
    "copied columns": lambda x, y: x[:, 1:].copy_(x[:, :-1]), "transposed": lambda x, y: x.add_(x.t()),
    "halves": lambda x, y: x[:, :2].mul_(x[:, 2:]), "itself": lambda x, y: x.mul_(x), "even": lambda x, y: x[::2].add_(x[1::2]),
    "out": lambda x, y: torch.log(x[:3], out=x[1:]), "out of itself": lambda x, y: torch.exp(x, out=x),
    "out, transposed": lambda x, y: torch.maximum(x.t(), y, out=x), "lists": lambda x, y: torch._foreach_add_([x, y], [y, x]),
}  # fmt: skip
COMPILED = ("halves", "itself", "even", "out of itself")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_as_in_eager(name, dynamic):
    program = PROGRAMS[name]
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    outcomes = []
    for function in (program, compiled, compiled):
        x, y = torch.arange(1.0, 17.0).view(4, 4) / 16, torch.eye(4) * 2 + 0.5
        try:
            function(x, y)
            outcomes.append(torch.cat([x, y]))
        except RuntimeError as error:
            outcomes.append(str(error).splitlines()[0])
    for each in outcomes[1:]:
        if isinstance(outcomes[0], str) or isinstance(each, str):
            assert each == outcomes[0]
        else:
            torch.testing.assert_close(each, outcomes[0])
    if name in COMPILED:
        stats = lampwork.stats(compiled)
        assert not stats["breaks"] and not stats["fallbacks"]


@pytest.mark.parametrize("dynamic", [None, True])
def test_gaps_between_elements(dynamic):
    """`x` is not dense, and the same tensor all the same."""

    def program(x):
        x[torch.tensor([0, 0])] = x

    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for function in (program, compiled, compiled):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            function(torch.arange(5.0).as_strided((2, 1), (2, 2)))


def test_elements_in_common():
    """Compared with sets of places."""
    made = random.Random(1)
    memory = {dtype: torch.zeros(200, dtype=dtype) for dtype in (torch.float32, torch.uint8)}
    answers = []
    for _ in range(3000):
        kind, views, places = made.choice(list(memory)), [], []
        for _ in range(2):
            size = [made.choice([0, 1, 2, 3, 4, 4]) for _ in range(made.randint(0, 3))]
            strides = [made.choice([0, 1, 1, 2, 3, 4, 8, 12]) for _ in size]
            offset = made.randint(0, 12)
            views.append(memory[kind].as_strided(size, strides, offset))
            indices = itertools.product(*map(range, size))
            places.append({offset + sum(map(int.__mul__, index, strides)) for index in indices})
        answers.append(not places[0].isdisjoint(places[1]))
        assert share_elements(*views) is answers[-1]
    assert 300 < sum(answers) < 2700
