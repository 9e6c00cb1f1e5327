"""`torch.arange(2, 4).tolist()`: numbers out of tensors that the program makes of numbers are known."""

from __future__ import annotations

import torch

import lampwork


def program(x):
    dims = torch.arange(2, x.dim()).tolist()
    written, joined = torch.arange(4), torch.arange(3)
    written[0] = 7
    joined += x[0, 0, 0, :1].long()
    least = torch.tensor(x.shape[-2:]).to(torch.float32).min()
    numbers = (8.0 / least).item(), torch.linspace(0, 1, 5)[3].item(), int(torch.tensor([3, 4]).max())
    return x.sum(dims) * (2.0 if numbers[2] > 3 else 1.0), numbers, written.tolist(), joined.tolist()


def test_one_graph():
    compiled = lampwork.compile(program, fullgraph=True)
    for rows, number in ((4, 1.0), (4, 2.0), (5, 1.0)):
        x = torch.full((2, 3, rows, rows), number)
        found, expected = compiled(x), program(x)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
        assert list(map(type, found[1])) == list(map(type, expected[1]))
