"""What a write left in an argument is made into a tensor where it is first read: a derivative may be the only reader,
and the write still belongs to the forward half."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import lampwork


def test_write_that_is_read_to_scatter():
    def program(x, source):
        x.scatter_reduce_(0, torch.zeros(1, dtype=torch.int64), source, "prod")
        return source

    left = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        x, source = torch.arange(1.0, 7.0).double()[::2], torch.full((1,), 2.0, dtype=torch.float64, requires_grad=True)
        function(x, source)
        left.append(x.detach().clone())
    assert torch.equal(left[1], left[0])


def test_write_to_nothing():
    compiled = lampwork.compile(lambda x: F.elu(x, inplace=True), options={"cache": False})
    x = torch.empty(3, 0, 1, requires_grad=True)
    assert compiled(x * 2).shape == x.shape
