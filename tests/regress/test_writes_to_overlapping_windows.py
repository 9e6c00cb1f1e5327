"""Elements of a view that are one memory location are written as one, whatever the strides are that make them so: strides
that vary between calls were taken to keep elements where they do not meet."""

from __future__ import annotations

import pytest
import torch

import lampwork


def of_intermediate(x):
    y = x * 1
    y.as_strided((x.shape[0] - 1, 2 * x.shape[1]), (x.shape[1], 1))[0].mul_(3)
    return y


def diagonal(x):
    x.unfold(0, 2, 1).diagonal(dim1=0, dim2=2).zero_()
    return x


def patches(x):
    windows = x.unfold(0, 2, 1).unfold(1, 2, 1)
    for row in range(windows.shape[0]):
        windows[row, 0].copy_(torch.maximum(windows[row, 0], x.new_full((2, 2), 0.25)))
    return x.sum(), x


PROGRAMS = {
    "a window": lambda x: x.unfold(0, 2, 1)[0].zero_(),
    "a window of a turned tensor": lambda x: x.t().unfold(0, 2, 1)[0].add_(1),
    "a window of a detached tensor": lambda x: x.detach().unfold(0, 2, 1)[0].add_(1),
    "all windows": lambda x: x.unfold(0, 2, 1).add_(1),
    "windows that do not meet": lambda x: x.unfold(0, 2, 2).add_(1),
    "rows that meet in wide tensors alone": lambda x: x.as_strided((x.shape[0], 2), (1, x.shape[1])).add_(1),
    "an intermediate": of_intermediate,
    "a diagonal": diagonal,
    "patches": patches,
}
SHAPES = [(3, 3), (3, 4), (5, 3), (3, 5), (6, 2), (2, 6)]


def outcome(function, *arguments):
    try:
        result = function(*arguments)
    except RuntimeError as error:
        return str(error), *arguments
    return *(result if isinstance(result, tuple) else (result,)), *arguments


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_writes(name, dynamic):
    program = PROGRAMS[name]
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for shape in SHAPES:
        x = torch.arange(float(shape[0] * shape[1])).view(shape)
        expected, found = outcome(program, x.clone()), outcome(compiled, x.clone())
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.equal(ours, theirs) if isinstance(theirs, torch.Tensor) else ours == theirs, shape


@pytest.mark.parametrize("dynamic", [None, True])
def test_windows_that_are_given(dynamic):
    def program(windows, whole):
        windows[0].zero_()
        return whole * 2, windows.sum(0)

    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for shape in SHAPES:
        found = []
        for function in (program, compiled):
            x = torch.arange(1.0, 1 + shape[0] * shape[1]).view(shape)
            found.append((*function(x.unfold(0, 2, 1), x), x))
        for ours, theirs in zip(*reversed(found)):
            assert torch.equal(ours, theirs), shape


@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients(dynamic):
    compiled = lampwork.compile(of_intermediate, dynamic=dynamic, options={"cache": False})
    for shape in SHAPES:
        found = []
        for function in (of_intermediate, compiled):
            x = torch.arange(float(shape[0] * shape[1])).view(shape).requires_grad_()
            (function(x) * torch.arange(1.0, 1 + x.numel()).view(shape)).sum().backward()
            found.append(x.grad)
        assert torch.equal(*found), shape


def test_what_is_written_in_place_asks_nothing_of_its_strides():
    """Of contiguous tensors, turned ones and rows of them: one entry for all sizes."""

    def program(x, y, z):
        x.add_(1)
        y.t().mul_(2)
        z[1:, :, 1:].sub_(1)
        return x.sum() + y.sum() + z.sum()

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for size in (5, 3, 9, 4):
        x, y, z = torch.ones(size, size + 1, 7), torch.ones(size + 2, size), torch.ones(size, 4, size + 3)
        compiled(x, y, z)
    assert lampwork.stats(compiled)["captures"] == 1
