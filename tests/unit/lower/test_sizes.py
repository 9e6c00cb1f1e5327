"""Programs lowered once, with symbols for sizes, and interpreted at several sizes: values and shapes are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lampwork.capture.capture import capture
from lampwork.config import Settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.graph.prepare import prepare
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower
from tests.unit.lower.graphs import _flatten


def written(x, *place):
    y = x * 2
    y[place] = y[place] + 1
    return y


PROGRAMS = {
    "from far before the first": lambda x: x[:, -9:] * 2,
    "from before the first, written": lambda x: written(x, slice(None), slice(-9, None)),
    "up to the last but one": lambda x: x[1:, :-1] * 2,
    "from the last but one": lambda x: x[-2:, -2:] * 2,
    "beyond the last": lambda x: x[:9] * 2,
    "beyond the last, written": lambda x: written(x, slice(0, 9, 2)),
    "every second": lambda x: x[::2, 1::2] * 2,
    "half": lambda x: x[: x.shape[0] // 2, x.shape[1] // 2 :] * 2,
    "variances": lambda x: (x.var(0), x.var(1, correction=0), x.var(correction=3), torch.var_mean(x, 1)),
    "means": lambda x: (x.mean(), x.mean(0), x.mean(1, keepdim=True), F.layer_norm(x, (x.shape[1],))),
    "merged": lambda x: x.reshape(-1) * 2,
    "taken apart": lambda x: x.reshape(-1)[:, None].expand(-1, 3).reshape(x.shape[0], -1) * 2,
    "turned": lambda x: x.t().reshape(x.shape) * 2,
    "joined": lambda x: torch.cat([x[1:], x, x[:1]]),
    "padded": lambda x: F.pad(x, (2, 1, 1, 0), value=3.0),
    "reflected": lambda x: F.pad(x, (1, 1), "reflect"),
    "rolled": lambda x: x.roll((1, -1), (0, 1)),
    "repeated": lambda x: x.repeat(2, 3),
    "flipped": lambda x: x.flip(0, 1),
    "positions": lambda x: x.argmax(1) + torch.arange(x.shape[0]),
    "from the end": lambda x: x[torch.arange(x.shape[0]) - x.shape[0]] * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_at_several_sizes(name):
    function, settings, generator = PROGRAMS[name], Settings(dynamic=True), torch.Generator().manual_seed(0)
    lowered = None
    for shape in ((5, 6), (7, 4), (4, 8), (8, 7)):
        x = torch.randn(shape, generator=generator)
        with torch.no_grad():
            if lowered is None:
                lowered = lower(prepare(capture(function, (x,), {}, settings), settings), settings)
                verify_lowered(lowered)
            found = interpret_lowered(lowered, (x,))
            torch.testing.assert_close(tuple(found), _flatten(function(x)))
