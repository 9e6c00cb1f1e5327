"""The layout of an argument is changed in place, whose memory another one shares: at sizes that vary, what the other one
held was no longer what was written."""

from __future__ import annotations

import pytest
import torch

import lampwork

CHANGES = {
    "t": lambda y: y.t_(),
    "unsqueeze": lambda y: y.unsqueeze_(0),
    "transpose": lambda y: y.transpose_(0, 1),
    "squeeze": lambda y: y.squeeze_(),
    "as_strided": lambda y: y.as_strided_((y.shape[1],), (1,)),
    "data": lambda y: setattr(y, "data", y.data.t()),
    "other data": lambda y: setattr(y, "data", torch.zeros(2, 2)),
}
PAIRS = {
    "row": lambda x: (x, x[:1]),
    "part": lambda x: (x, x[1:]),
    "view": lambda x: (x, x.view(x.shape)),
    "same": lambda x: (x.detach(), x),
    "base": lambda x: (x[:1], x),
}
PROGRAMS = {
    "after": lambda change, x, y: (change(y), y.mul_(2), x + 0)[-1],
    "before": lambda change, x, y: (y.mul_(2), change(y), x + 0)[-1],
    "other": lambda change, x, y: (change(y), x.mul_(2), y + 0)[-1],
    "both": lambda change, x, y: (change(y), y.mul_(2), change(x), x.add_(1), x + 1, y * 3)[-2:],
    "view": lambda change, x, y: (z := y[:1], change(y), z.mul_(2), x + 0, y + 1)[-2:],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_the_other_one_holds(program, pair, dynamic):
    for name, change in CHANGES.items():
        run = lambda x, y: PROGRAMS[program](change, x, y)
        compiled = lampwork.compile(run, dynamic=dynamic, options={"cache": False})
        for rows, columns in ((2, 3), (3, 4), (4, 5)):
            answers = []
            for each in (run, compiled):
                x, y = PAIRS[pair](torch.arange(rows * columns * 1.0).view(rows, columns))
                answers.append((each(x, y), x, y))
            torch.testing.assert_close(*answers, msg=lambda text: f"{name} of {rows} x {columns}: {text}")
