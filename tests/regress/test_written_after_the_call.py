"""What eager's autograd saves must not change before the backward pass: it raises there, whoever wrote, and whatever
the compiled backward pass reads."""

from __future__ import annotations

import sys

import pytest
import torch

import lampwork

OPERATORS = {
    "exp": torch.exp, "sgn": torch.sgn, "sqrt": torch.sqrt, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "relu": torch.relu, "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1), "norm": lambda x: x.norm(dim=0, keepdim=True), "pow": lambda x: x**1.5,
    "mul": lambda x: x * 2.0, "square": lambda x: x * x, "add": lambda x: x + 1, "cumprod": lambda x: x.cumprod(1),
    "elu": torch.nn.functional.elu, "gelu": torch.nn.functional.gelu, "amax": lambda x: x.amax(0, keepdim=True),
    "cumsum": lambda x: x.cumsum(1), "logsumexp": lambda x: x.logsumexp(0, keepdim=True), "clamp": lambda x: x.clamp(0, 1),
    "prod": lambda x: x.prod(0, keepdim=True), "expm1": torch.expm1, "layer_norm": lambda x: torch.layer_norm(x, (2,)),
}  # fmt: skip
WRITES = {
    "squeeze_": lambda y: y.squeeze_(0), "unsqueeze_": lambda y: y.unsqueeze_(0), "t_": lambda y: y.t_(),
    "transpose_": lambda y: y.transpose_(0, 1), "swapaxes_": lambda y: y.swapaxes_(0, 1),
    "as_strided_": lambda y: y.as_strided_((1,), (1,)), "add_": lambda y: y.add_(1),
    "part": lambda y: y[0].zero_(), "plain": lambda y: y.detach().add_(1),
    "reads": lambda y: y.add(1), "squeezed part": lambda y: y[:1].squeeze_(0),
}  # fmt: skip


def inside(operator, write):
    def program(x):
        y = operator(x)
        z = y * 1.0
        write(y)
        return z, y

    return program


def after_a_break(operator, write):
    def program(x):
        y = operator(x)
        z = y * y.cos()
        sys.getsizeof(x)
        write(y)
        return z, y * 2

    return program


def after_the_call(operator, write):
    def program(x):
        y = operator(x)
        return y.clamp(-1.0, 0.5), y

    return program


def outcome(function, write):
    """The gradient, or the kind of error and where it came from."""
    x = torch.tensor([[0.5, 1.5]]).requires_grad_()
    try:
        results = function(x)
        if write is not None:
            write(results[1])
    except RuntimeError as error:
        return f"call: {str(error)[:20]}"
    try:
        torch.autograd.backward([each.sum() for each in results])
    except RuntimeError as error:
        return f"backward: {str(error)[:100]}"
    return (x.grad + 0).tolist()  # zeros may have no memory


def agree(make, name, write, dynamic):
    program = make(OPERATORS[name], WRITES[write])
    late = WRITES[write] if make is after_the_call else None
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    expected = outcome(program, late)
    for _ in range(2):
        found = outcome(compiled, late)
        if isinstance(expected, str) or isinstance(found, str):
            assert found == expected, (name, write)
        else:
            torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), equal_nan=True)
    return isinstance(expected, str)


PAIRS = [(name, write) for name in OPERATORS for write in WRITES]


@pytest.mark.parametrize("make", [inside, after_a_break, after_the_call])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("share", range(2))
def test_eager_raises_or_not(make, dynamic, share):
    """Each run takes some of the pairs: all of them belong to `slow`."""
    pairs = PAIRS[share::25]
    raised = [agree(make, name, write, dynamic) for name, write in pairs]
    assert any(raised) and not all(raised)


@pytest.mark.slow
@pytest.mark.parametrize("make", [inside, after_a_break, after_the_call])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator(make, dynamic, name):
    for write in WRITES:
        agree(make, name, write, dynamic)
