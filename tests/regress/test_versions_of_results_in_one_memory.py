"""Results in one memory share versions as eager's do: `x.data` and a view of it had that of `x`, so a write to either by
the caller made the gradient of `x` raise."""

from __future__ import annotations

import pytest
import torch

import lampwork


def data_first(x):
    root = torch.sqrt(x)
    data = root.data
    return data, data[:, None], root


def view_of_data_first(x):
    root = torch.sqrt(x)
    data = root.data
    return data[:, None], data, root


def parts_of_data(x):
    root = torch.sqrt(x)
    data = root.data
    return root, data[0], data[1:], data.view(torch.int32)


def two_kinds_of_data(x):
    root = torch.sqrt(x)
    data, other = root.data, root.data
    return root, data, data[:1], other, other[:1], root[1]


def data_of_an_input(x):
    data = x.data
    return data, data[:1], x.detach(), x * 1


def data_alone(x):
    data = (x * 1).data
    return data, data[0], x * 2


PROGRAMS = [data_first, view_of_data_first, parts_of_data, two_kinds_of_data, data_of_an_input, data_alone]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_write_to_one(program, requires_grad):
    compiled = lampwork.compile(program)
    count = len(program(torch.ones(2, 2)))
    for written in range(count):
        answers = []
        for each in (program, compiled):
            x = torch.tensor([[0.5, 2.0], [1.0, 3.0]]).requires_grad_(requires_grad)
            results = each(x)
            with torch.no_grad():
                results[written].add_(1)
            answer = [x._version, *(result._version for result in results), [result.tolist() for result in results]]
            if requires_grad:
                loss = sum((result * result).sum() for result in results if result.requires_grad)
                try:
                    answer.append(torch.autograd.grad(loss, x)[0].tolist())
                except RuntimeError as error:
                    answer.append("modified by an inplace operation" in str(error))
            answers.append(answer)
        assert answers[1] == answers[0], written
