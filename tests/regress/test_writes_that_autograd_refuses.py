"""What autograd refuses to write raises as in eager. It is not left to a call between two regions: a view that a region has
returned is not known for one of several that an operator gave."""

from __future__ import annotations

import pytest
import torch

import lampwork


def below_no_grad(x):
    with torch.no_grad():
        part = (x * 1)[0]
    return part.mul_(x[0])


WRITES = {
    "add_": lambda x: torch.sin(x).unbind(1)[0].add_(1),
    "fill_": lambda x: torch.sin(x).split(1, 1)[0].fill_(2.0),
    "a view of one": lambda x: torch.sin(x).chunk(2, 1)[0].view(-1).zero_(),
    "an item": lambda x: torch.sin(x).unbind(1)[0].__setitem__((0, ...), 100.0),
    "a slice": lambda x: torch.sin(x).split(1, 1)[0].__setitem__(slice(0, 1), x[:1, :1]),
    "a row": lambda x: list(torch.sin(x))[0].copy_(x[0]),
    "below no_grad": below_no_grad,
    "a leaf": lambda x: x.add_(1),
    "a view of a leaf": lambda x: x[0].add_(1),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_that_autograd_refuses(name):
    def program(x, counter):
        counter.add_(1)
        return WRITES[name](x), x * 2

    def caught(x, counter):
        try:
            return program(x, counter)
        except RuntimeError as error:
            return str(error).splitlines()[0], x * 3

    compiled, catching = (lampwork.compile(each, options={"cache": False}) for each in (program, caught))
    counter = torch.zeros(1)
    for call in range(2):
        x = torch.tensor([[-1.25, 2.0], [0.5, 1.0]], requires_grad=True)
        with pytest.raises(RuntimeError) as expected:
            program(x, torch.zeros(1))
        with pytest.raises(RuntimeError) as raised:
            compiled(x, counter)
        assert str(raised.value).splitlines()[0] == str(expected.value).splitlines()[0]
        assert counter.item() == 2 * call + 1
        text, result = catching(x, counter)
        assert text == str(expected.value).splitlines()[0] and torch.equal(result, x * 3)
        assert counter.item() == 2 * call + 2
