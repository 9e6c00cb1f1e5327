"""`x.requires_grad_()` on a tensor of the caller was lost."""

from __future__ import annotations

import torch

import lampwork


def test_the_callers_tensor_requires_grad_afterwards():
    def program(x, y):
        x.requires_grad_()
        y.requires_grad_(False)
        return x.detach() * 2

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        x, y = torch.ones(2), torch.ones(2, requires_grad=True)
        assert torch.equal(compiled(x, y), torch.full((2,), 2.0))
        assert x.requires_grad and not y.requires_grad


def test_it_is_seen_behind_a_break():
    @lampwork.disable
    def nothing():
        pass

    def program(x):
        x.requires_grad_()
        nothing()
        return x.requires_grad

    assert lampwork.compile(program, options={"cache": False})(torch.ones(2)) is True


def test_the_attribute_is_written():
    """Whole steps that freeze a part for one loss broke there."""
    torch.manual_seed(0)
    judge, model = torch.nn.Linear(3, 1), torch.nn.Linear(4, 3)

    def program(x):
        for parameter in judge.parameters():
            parameter.requires_grad = False
        x.requires_grad = True
        loss = judge(model(x)).sum()
        loss.backward()
        for parameter in judge.parameters():
            parameter.requires_grad = True
        return loss.detach(), judge.weight.grad, x.grad

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for _ in range(2):
        x, y = torch.randn(5, 4), torch.randn(5, 4)
        y.copy_(x)
        found, expected = compiled(x), program(y)
        torch.testing.assert_close(found, expected)
        assert x.requires_grad and x.is_leaf and all(each.requires_grad for each in judge.parameters())


def test_the_attribute_of_what_is_no_leaf_or_no_number():
    def program(x, y):
        found = []
        for tensor, wanted in ((x * 2, False), (y, True), (x * 2, True)):
            try:
                tensor.requires_grad = wanted
            except RuntimeError as error:
                found.append(str(error))
        return found

    x, y = torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.int64)
    assert lampwork.compile(program, fullgraph=True, options={"cache": False})(x, y) == program(x, y)
