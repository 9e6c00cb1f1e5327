"""A tensor that was made in inference mode may be written to there alone; a compiled function wrote to it anywhere. And
what a program makes in an inference mode of its own was an ordinary tensor."""

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


def some_within(x):
    with torch.inference_mode():
        y = x * 2
    return y, x + 1, y[0], x[0]


def all_within(x):
    with torch.inference_mode():
        return x * 2, x[1:], (x.t() @ x).relu_()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", [some_within, all_within, torch.inference_mode()(lambda x: (x * 2, x.view(-1)))])
def test_what_is_made_in_inference_mode(program, grad):
    x, compiled = torch.rand(2, 2, requires_grad=grad), lampwork.compile(program)
    facts = [(each.is_inference(), each.requires_grad, each._is_view()) for each in program(x)]
    for _ in range(2):
        results = compiled(x)
        assert [(each.is_inference(), each.requires_grad, each._is_view()) for each in results] == facts
        assert all(map(torch.equal, results, program(x)))
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        results[0].add_(1)
