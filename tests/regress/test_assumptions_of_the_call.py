"""Of a size that contents decide nothing is assumed that cannot hold in the call at hand. `masked_select` of one element
has at most one, so that it fitted no row but one; the guard that the row has one element failed for its own call."""

import pytest
import torch

import lampwork


def product(x, y):
    return torch.masked_select(x, x > 0) @ y


def added(x, y):
    return x[x > 0] + y


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [product, added])
def test_operands_that_cannot_fit(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic)
    x = torch.tensor([[0.25]])
    for rows in (4, 13, 5, 1):
        y = torch.ones(rows, 1) if program is product else torch.ones(rows)
        try:
            expected = program(x, y)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                compiled(x, y)
            assert str(raised.value) == str(error)
        else:
            assert torch.equal(compiled(x, y), expected)


def split_by_number(x, chosen):
    return torch.split(x[chosen], [int(chosen.sum())])[0].sum(0)


def test_a_number_that_says_what_a_mask_picks():
    """That both are 1 was looked at when the second was known; the first, which is none, failed in its operator."""
    x, nothing = torch.rand(1, 1, 2, requires_grad=True), torch.zeros(1, 1, dtype=torch.bool)
    compiled = lampwork.compile(split_by_number)
    for chosen in (nothing, ~nothing, nothing):
        assert torch.equal(compiled(x, chosen), split_by_number(x, chosen))
