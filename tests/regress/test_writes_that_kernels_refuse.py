"""What eager refuses to compute in place, for want of a kernel or of a type that holds it, is refused in capture."""

from __future__ import annotations

import pytest
import torch

import lampwork

ALONE = ("trunc_", "sign_", "relu_", "rad2deg_", "lgamma_", "logit_", "round_")
BESIDE = ("remainder_", "lt_", "nextafter_", "xlogy_", "heaviside_", "atan2_", "fmod_", "copysign_", "hypot_")


def refused(program, *made):
    """Whether eager raises; the compiled program does the same, twice."""
    arguments = lambda: [torch.ones(2, 2, dtype=each) if isinstance(each, torch.dtype) else each for each in made]
    compiled = lampwork.compile(program)
    try:
        expected = program(*arguments())
    except Exception as error:
        for _ in range(2):
            with pytest.raises(type(error)) as raised:
                compiled(*arguments())
            assert str(raised.value).splitlines()[0] == str(error).splitlines()[0]
        return True
    for _ in range(2):
        ours = compiled(*arguments())
        torch.testing.assert_close(ours, expected)
    return False


@pytest.mark.parametrize("name", ALONE)
def test_alone(name):
    assert refused(lambda x: getattr(x, name)(), torch.complex64)


@pytest.mark.parametrize("name", BESIDE)
def test_beside_another(name):
    program = lambda x, y: getattr(x, name)(y)
    types = (torch.float32, torch.float16, torch.complex64)
    answers = [refused(program, x, y) for x in types for y in (*types, torch.int64)]
    assert any(answers) and not all(answers)


INDEXED = {
    "index_put_": lambda x, y: x.index_put_((torch.tensor([0]),), y),
    "index_copy_": lambda x, y: x.index_copy_(0, torch.tensor([0]), y),
    "index_add_": lambda x, y: x.index_add_(0, torch.tensor([0]), y),
    "scatter_": lambda x, y: x.scatter_(0, torch.tensor([[0, 0]]), y),
    "scatter_add_": lambda x, y: x.scatter_add_(0, torch.tensor([[0, 0]]), y),
    "scatter_reduce_": lambda x, y: x.scatter_reduce_(0, torch.tensor([[0, 0]]), y, "sum"),
    "put_": lambda x, y: x.put_(torch.tensor([0, 1]), y[0]),
    "addr_": lambda x, y: x.addr_(torch.ones(3), y[0]),
    "setitem": lambda x, y: x.__setitem__(torch.tensor([0]), y),
}


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_is_read_lies_in_the_memory_that_is_written(name, dynamic):
    """It raised in eager, and did not when compiled."""
    program = INDEXED[name]
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for shares in (True, False):
        outcomes = []
        for function in (program, compiled):
            x = torch.arange(6.0).view(3, 2)
            try:
                function(x, x[:1] if shares else torch.ones(1, 2))
                outcomes.append(x.tolist())
            except RuntimeError as error:
                outcomes.append(str(error).splitlines()[0])
        assert outcomes[0] == outcomes[1]
        assert isinstance(outcomes[0], str) == shares


@pytest.mark.parametrize("size", [0, 2])
def test_types_that_differ(size):
    """Of tensors of several types, or a complex number, what a kernel says is asked while the call is captured."""
    make = lambda dtype: torch.ones(size, dtype=dtype)
    assert refused(lambda x: x.le_(1 + 2j), make(torch.float32))
    answers = [
        refused(program, make(torch.float32), make(other))
        for program in (lambda x, y: x.lerp_(y, 0.5), lambda x, y: x.addcmul_(y, y), lambda x, y: x.heaviside_(y))
        for other in (torch.float32, torch.float64, torch.int64)
    ]
    assert any(answers) and not all(answers)
