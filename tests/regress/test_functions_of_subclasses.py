"""What a subclass of tensors does to functions runs as often as in eager: reading a tensor's type to decide how to serve the
call is no call of the program's."""

from __future__ import annotations

import torch

import lampwork


class Counted(torch.Tensor):
    calls: list[str] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Counted.calls.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


def of_an_argument(x):
    return torch.sin(x) + 1


def of_an_item(table):
    return table["x"][0].sin().shape


def test_calls():
    x = torch.ones(3).as_subclass(Counted)
    for program, argument in ((of_an_argument, x), (of_an_item, {"x": [x]})):
        compiled = lampwork.compile(program, options={"cache": False})
        Counted.calls = []
        program(argument)
        expected = Counted.calls
        for _ in range(3):
            Counted.calls = []
            compiled(argument)
            assert Counted.calls == expected
