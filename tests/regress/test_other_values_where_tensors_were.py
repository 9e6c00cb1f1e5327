"""An attribute is None, a tensor, and None again beside a buffer that is written: guards of earlier entries, taken anew,
read the memory of None."""

from __future__ import annotations

import torch
from torch import nn

import lampwork


class Averaging(nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.mean = torch.zeros(()), None
        self.layers = nn.ModuleList([nn.Tanh()])

    def forward(self, x):
        self.count += 1
        self.mean = x.mean(0) if self.mean is None else self.mean + x.mean(0)
        for layer in self.layers:
            x = layer(x)
        return x


def test_none_where_a_tensor_was():
    model = Averaging()
    compiled = lampwork.compile(model, options={"cache": False})
    x = torch.ones(2, 3)
    compiled(x)
    for layers in ([nn.Linear(3, 3)], [nn.Tanh(), nn.Linear(3, 3)]):
        model.layers = nn.ModuleList(layers)
        compiled(x)
    assert model.mean.tolist() == [3.0] * 3
    model.mean = None
    expected = model.layers[1](x.tanh())
    torch.testing.assert_close(compiled(x), expected)
    assert model.mean.tolist() == [1.0] * 3 and model.count == 4
    assert not lampwork.stats(compiled)["fallbacks"]
