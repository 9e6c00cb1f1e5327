"""An error that a kernel raised was kept, to be raised again, and with it all frames of the capture that asked: the first
optimizer of a process stayed alive as long as the process."""

from __future__ import annotations

from tests.processes import run_python

PROGRAM = """
import gc
import weakref

import torch
import torch.nn.functional as F

import lampwork


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.embedding = torch.nn.Linear(4, 4), torch.nn.Embedding(5, 4)

    def forward(self, x, index, scale):
        y = F.relu(self.linear(x) * scale + self.embedding(index)).clamp(0.1, 3)
        y = y.masked_fill(y > 1, 2.0)
        try:
            y.view(3, 7)
        except RuntimeError:
            y = y + 1
        z = y.clone()
        z.add_(2)
        return F.dropout(z, 0.1)


def refused(x):
    return x @ x


def train():
    net = Net()
    compiled = lampwork.compile(net, dynamic=True)
    optimizer = torch.optim.AdamW(net.parameters())
    step = lampwork.compile(optimizer.step)
    for rows in (3, 4, 5):
        compiled(torch.randn(rows, 4), torch.arange(rows) % 5, 0.5 + rows).sum().backward()
        step()
        optimizer.zero_grad()
    try:
        lampwork.compile(refused)(torch.ones(2, 3))
    except RuntimeError:
        pass
    return weakref.ref(net), weakref.ref(optimizer)


net, optimizer = train()
gc.collect()
assert net() is None and optimizer() is None
for each in gc.get_objects():
    if issubclass(type(each), BaseException):
        assert each.__traceback__ is None and each.__context__ is None, repr(each)
"""


def test_no_frames_are_kept():
    run_python(["-c", PROGRAM], check=True)
