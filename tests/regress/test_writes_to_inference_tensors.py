"""A tensor that was made in inference mode may be written to there alone; a compiled function wrote to it anywhere."""

import pytest
import torch

import lampwork


def made():
    with torch.inference_mode():
        return torch.ones(2)


def within(x):
    with torch.inference_mode():
        x.add_(1)
    return x * 1


def without_gradients(x):
    with torch.no_grad():
        x.add_(1)
    return x * 1


REFUSED = [
    lambda x: x.add_(1), lambda x: x[0].add_(1), lambda x: torch.add(torch.ones(2), 1, out=x), without_gradients,
    lambda x: x.__setitem__(0, 5),
]  # fmt: skip


@pytest.mark.parametrize("program", REFUSED)
def test_writes_outside_of_inference_mode(program):
    x, y, compiled = made(), made(), lampwork.compile(program)
    for _ in range(2):
        for function, argument in ((compiled, x), (program, y)):
            with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
                function(argument)
        assert torch.equal(x, y)  # which eager has written to all the same


@pytest.mark.parametrize("program", [within, lambda x: x.data.add_(1), lambda x: x.clone().add_(1)])
def test_writes_that_eager_makes(program):
    x, y, compiled = made(), made(), lampwork.compile(program)
    for _ in range(2):
        assert torch.equal(compiled(x), program(y)) and torch.equal(x, y)
