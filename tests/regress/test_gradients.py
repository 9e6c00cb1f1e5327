"""What a sweep over the gradients of operators brought up: the smallest programs that went wrong."""

from __future__ import annotations

import torch

import lampwork


def compiled(function):
    lampwork.reset()
    return lampwork.compile(function, options={"cache": False})


def test_several_results_in_planned_memory():
    """`linalg_qr` left the lower triangle of its second result unwritten where both lie in one storage."""

    def program(x, y):
        q, r = torch.linalg.qr(x)
        return y @ r.t() - q.t() @ y

    x, y = torch.randn(5, 5), torch.randn(5, 5).t()
    for _ in range(3):  # planned memory is not all zeros forever
        torch.testing.assert_close(compiled(program)(x, y), program(x, y))


def test_gradients_through_a_history_from_outside():
    """`narrow` with a tensor as its start breaks: what it gives has a history behind the next region, in which the
    leaf lies. Gradients were taken as if it had none."""

    def program(x, start):
        leaf = x.detach().requires_grad_()
        result = leaf.narrow(0, start, 2) * 2
        return torch.autograd.grad([result], [leaf], [torch.ones(2, 3)], allow_unused=True)

    arguments = torch.randn(4, 3), torch.tensor(1)
    torch.testing.assert_close(compiled(program)(*arguments), program(*arguments))


def test_gradients_of_an_argument_through_another():
    def program(leaf, result):
        return torch.autograd.grad((result * 2).sum(), leaf, retain_graph=True)

    leaf = torch.randn(3, requires_grad=True)
    result = leaf.exp()
    torch.testing.assert_close(compiled(program)(leaf, result), program(leaf, result))


def test_reshaped_results_without_elements():
    """The reshaped result of a product without elements named a buffer that nothing made."""

    def program(x):
        return x @ (x * 2)

    x = torch.empty(1, 1, 0, 0)
    assert compiled(program)(x).shape == program(x).shape


def test_bags_of_rows():
    """Sums of bags of rows leave out which bag each index is in; the meta kernel says otherwise."""

    def program(weight, indices):
        leaf = weight.detach().requires_grad_()
        result = torch.nn.functional.embedding_bag(indices, leaf, mode="sum")
        return torch.autograd.grad(result.square().sum(), leaf)

    arguments = torch.randn(5, 3), torch.randint(0, 5, (2, 4))
    function = compiled(program)
    torch.testing.assert_close(function(*arguments), program(*arguments))
    assert not lampwork.stats(function)["fallbacks"]


def test_values_without_elements_cost_the_same_saved_or_computed():
    """`polar` of nothing was computed again in the backward half, which had not been given its arguments."""
    magnitude, angle = torch.empty(0, 1, requires_grad=True), torch.empty(5, requires_grad=True)

    def gradients(function):
        result = function(magnitude, angle)
        return torch.autograd.grad(result, (magnitude, angle), torch.ones_like(result))

    expected, found = gradients(torch.polar), gradients(compiled(lambda x, y: torch.polar(x, y)))
    assert [each.shape for each in found] == [each.shape for each in expected]


def test_parts_of_one_complex_gradient():
    """The gradients of `torch.complex`'s arguments are the two parts of one tensor: such a region ran eagerly."""
    lampwork.reset()
    compiled = lampwork.compile(torch.complex, options={"cache": False})
    weight = torch.randn(2, 3, dtype=torch.complex64)
    gradients = []
    for function in (torch.complex, compiled):
        torch.manual_seed(0)
        parts = [torch.randn(2, 3, requires_grad=True) for _ in range(2)]
        (function(*parts) * weight).abs().sum().backward()
        gradients.append([part.grad for part in parts])
    torch.testing.assert_close(gradients[1], gradients[0])
    mine, other = gradients[1]
    assert mine.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
    stats = lampwork.stats(compiled)
    assert not stats["fallbacks"] and not stats["breaks"], [*stats["fallbacks"], *stats["breaks"]]


def test_hardsigmoid_s_slope_in_double_precision():
    """ATen has a sixth in single precision there, too."""
    x = torch.linspace(-4, 4, 7, dtype=torch.float64, requires_grad=True)
    found = [
        torch.autograd.grad(function(x).sum(), x)[0]
        for function in (torch.nn.functional.hardsigmoid, compiled(torch.nn.functional.hardsigmoid))
    ]
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=0)
