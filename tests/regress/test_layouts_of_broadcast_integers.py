"""`addcmul` of integers at sizes that vary has eager's strides, where a dimension is one long and operands have others."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("types", [(torch.int64,) * 3, (torch.int32, torch.int64, torch.bool)], ids=str)
def test_addcmul(types, dynamic):
    compiled = lampwork.compile(torch.addcmul, dynamic=dynamic)
    for size in (33, 5, 7):
        x = torch.arange(size).to(types[0]).as_strided((1, size), (1, 1))
        a, b = torch.arange(size).to(types[1]), torch.arange(size).to(types[2])
        ours, expected = compiled(x, a, b), torch.addcmul(x, a, b)
        assert torch.equal(ours, expected) and ours.dtype == expected.dtype and ours.stride() == expected.stride()


@pytest.mark.parametrize("program", [
    lambda x: torch.addcmul(x, x, x, value=1.5), lambda x: torch.addcdiv(x, x + 1, x + 1),
    lambda x: torch.addcmul(x, x, x, value=1j), lambda x: torch.addcmul(x > 0, x > 0, x > 0),
])  # fmt: skip
def test_numbers_and_types_that_eager_refuses(program):
    for size in (3, 20_000):
        x = torch.arange(size)
        answers = []
        for each in (program, lampwork.compile(program, dynamic=True)):
            try:
                answers.append(each(x).tolist())
            except Exception as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1]
