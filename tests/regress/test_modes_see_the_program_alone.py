"""A `TorchFunctionMode` around a compiled function that is compiled already saw the attributes of tensors that guards
read, beside what the program does."""

import torch
from torch.overrides import TorchFunctionMode

import lampwork


class Seen(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


def test_guards_are_not_seen():
    compiled, x = lampwork.compile(lambda x: x.relu()), torch.ones(2)
    compiled(x)
    compiled(x)
    with Seen() as seen:
        compiled(x)
    assert seen.names == ["relu"]
