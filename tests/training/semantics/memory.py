"""Memory that is written and shared."""

from __future__ import annotations

import torch

from tests.training.semantics.cases import backward, case, data, leaf, raised


@case
def write_to_plain_input():
    def function(x, w):
        x.mul_(2)
        return (x * w).sum()

    return function, (data(3, 4), leaf(3, 4, seed=1))


@case
def write_to_input_with_history():
    def function(x, w):
        x.mul_(w)
        return x.sin()

    return function, (leaf(3, 4) * 1, leaf(3, 4, seed=1))


@case
def write_to_input_and_return_it():
    def function(x, w):
        return x.add_(w).mul_(3)

    return function, (data(3, 4), leaf(3, 4, seed=1))


@case
def write_to_input_and_return_nothing():
    def function(x, w):
        x.add_(w)

    return function, (data(3, 4), leaf(3, 4, seed=1)), lambda results, inputs: backward(inputs[0])


@case
def write_to_leaf():
    def function(x):
        return x.add_(1)

    return function, (leaf(3),), lambda results, inputs: None


@case
def write_to_leaf_without_grad():
    def function(x):
        with torch.no_grad():
            x.add_(1)
        return (x * x).sum()

    return function, (leaf(3),)


@case
def write_through_detach():
    def function(x):
        x.detach().mul_(2)
        return (x * x).sum()

    return function, (leaf(3),)


@case
def write_through_data():
    def function(x):
        x.data.add_(1)
        return (x * x).sum()

    return function, (leaf(3),)


@case
def write_to_view_of_input():
    def function(x, w):
        x[0].mul_(2)
        x.t()[1:].add_(1)
        return (x @ w).sum()

    return function, (data(3, 4), leaf(4, 2, seed=1))


@case
def write_to_view_of_input_with_history():
    def function(x, w):
        x[0].mul_(w)
        return x.sum(), x[1]

    return function, (leaf(3, 4) * 1, leaf(4, seed=1))


@case
def write_to_base_behind_view():
    def function(x):
        y = x.clone()
        v = y[1]
        y.mul_(2)
        v.add_(1)
        return v, y

    return function, (leaf(3, 4),)


@case
def write_to_two_inputs():
    def function(a, b, w):
        a.add_(w)
        b.copy_(a * 2)
        return a + b

    return function, (data(3), data(3, seed=1), leaf(3, seed=2))


@case
def write_a_slice_with_gradient():
    def function(x, w):
        x[:, 1:3] = w
        return x.exp()

    return function, (data(3, 4), leaf(3, 2, seed=1))


@case
def write_by_index_put():
    def function(x, i, w):
        x[i] = w
        x.index_add_(0, i, w)
        return x * 2

    return function, (data(4, 3), torch.tensor([2, 0]), leaf(2, 3, seed=1))


@case
def write_masked():
    def function(x):
        y = x.clone()
        y[y > 0] = 0
        y.masked_fill_(y < -1, 3.0)
        return y * x

    return function, (leaf(3, 4),)


@case
def write_input_twice_between_reads():
    def function(x, w):
        a = x + w
        x.add_(1)
        b = x * 2 + w
        x.zero_()
        return a, b, x * w

    return function, (data(3), leaf(3, seed=1))


@case
def write_to_saved_value_raises():
    def function(w):
        y = w.exp()
        y.add_(1)
        return y.sum()

    return function, (leaf(3),), lambda results, inputs: raised(results.backward)


@case
def same_tensor_twice():
    def function(x, y):
        return (x * y).sum() + x.sum()

    x = leaf(3, 4)
    return function, (x, x)


@case
def same_tensor_twice_written():
    def function(x, y, w):
        x.mul_(2)
        return y * w

    x = data(3, 4)
    return function, (x, x, leaf(3, 4, seed=1))


@case
def input_and_its_view():
    def function(x, v):
        return (x.sum() * v).sum()

    x = leaf(3, 4)
    return function, (x, x[1])


@case
def input_and_its_view_written():
    def function(x, v, w):
        v.mul_(2)
        return x * w

    x = data(3, 4)
    return function, (x, x[1], leaf(3, 4, seed=1))


@case
def two_views_of_one_base_written():
    def function(a, b, w):
        a.add_(1)
        b.mul_(2)
        return (a * w).sum() + (b * w).sum()

    x = data(3, 4)
    return function, (x[0], x[1], leaf(4, seed=1))


@case
def overlapping_views_written():
    def function(a, b, w):
        a.add_(w[:8])
        return b * w[2:10], a

    x = data(10)
    return function, (x[:8], x[2:], leaf(10, seed=1))


@case
def views_of_one_base_with_history():
    def function(a, b):
        a.mul_(2)
        return (a * b).sum()

    x = leaf(3, 4) * 1
    return function, (x[0], x[1])


@case
def detached_alias_beside_leaf():
    def function(x, d):
        return (x * d).sum(), d + 1

    x = leaf(3)
    return function, (x, x.detach())


@case
def detached_alias_written():
    def function(x, d):
        d.add_(1)
        return (x * x).sum()

    x = leaf(3)
    return function, (x, x.detach())


@case
def output_is_input():
    def function(x, w):
        return x, x * w

    return function, (leaf(3), leaf(3, seed=1))


@case
def output_is_view_of_input():
    def function(x):
        return x.view(12), x[1:].t(), x.unsqueeze(0).expand(2, 3, 4)

    return function, (leaf(3, 4),)


@case
def output_is_view_of_written_input():
    def function(x, w):
        x.mul_(w)
        return x.view(12), x[1]

    return function, (data(3, 4), leaf(3, 4, seed=1))


@case
def output_twice():
    def function(x):
        y = x.sin()
        return y, y, [y]

    return function, (leaf(3),)


@case
def outputs_are_views_of_an_intermediate():
    def function(x):
        y = x.sin()
        return y[0], y.t(), y.view(-1)[2:5]

    return function, (leaf(3, 4),)


@case
def outputs_are_an_intermediate_and_its_views():
    def function(x):
        y = x.sin()
        return y, y[0], y.t(), y.detach()

    return function, (leaf(3, 4),)


@case
def outputs_by_unbind_and_split():
    def function(x):
        y = x * 2
        a, b = y.split(2, 1)
        return y.unbind(0), a, b, torch.chunk(x, 3)

    return function, (leaf(3, 4),)


@case
def outputs_written_by_the_caller():
    def function(x):
        y = x * 2
        return y, y[0]

    def use(results, inputs):
        y, first = results
        y.mul_(3)
        backward(first)
        return y, first

    return function, (leaf(3, 4),), use


@case
def view_output_written_by_the_caller():
    def function(x):
        return x.view(-1), (x * 2).sum()

    def use(results, inputs):
        return raised(lambda: results[0].add_(1)), backward(results[1])

    return function, (leaf(3, 4),), use


@case
def view_made_without_grad_written():
    def function(x, w):
        y = x * w
        with torch.no_grad():
            v = y[0]
        v.zero_()
        return y.sum()

    return function, (data(3, 4), leaf(3, 4, seed=1)), lambda results, inputs: raised(results.backward)


@case
def detached_output_shares_memory():
    def function(x):
        y = x.exp()
        return y.detach(), y.sum()

    return function, (leaf(3),)


@case
def set_data():
    def function(x, n, w):
        x.data = n * 2
        return (x * w).sum()

    return function, (leaf(3), data(3, seed=2), leaf(3, seed=1))


@case
def resized_and_transposed_in_place():
    def function(x, w):
        y = x * w
        y.t_()
        y.unsqueeze_(0)
        y.squeeze_(0)
        return y

    return function, (data(3, 4), leaf(3, 4, seed=1))


@case
def complex_views_written():
    def function(x):
        y = torch.view_as_complex(x * 1)
        y.mul_(2j)
        return torch.view_as_real(y), y.real, y.imag

    return function, (leaf(3, 2),)


@case
def copy_of_other_type():
    def function(x, w):
        x.copy_(w.double())
        x.add_(w.half())
        return x.sum()

    return function, (data(3), leaf(3, seed=1))


@case
def out_argument():
    def function(x, o):
        torch.mul(x, 2, out=o)
        return o + 1

    return function, (data(3), torch.empty(3))


@case
def out_argument_with_gradient_raises():
    def function(x, o):
        return raised(lambda: torch.mul(x, 2, out=o))

    return function, (leaf(3), torch.zeros(3))


@case
def written_after_it_was_saved():
    def function(x, b, w):
        y = x * w * b
        b.add_(1)
        return y.sum(), b.sum()

    def use(results, inputs):
        return raised(results[0].backward)

    return function, (data(3), data(3, seed=1), leaf(3, seed=2)), use


@case
def requires_grad_of_written_results():
    def function(x, w):
        y = torch.zeros(3, 4)
        z = y[1]
        before = y.requires_grad, z.requires_grad
        z.add_(w)
        return before, y.requires_grad, z.requires_grad, z.is_leaf, y

    return function, (data(3), leaf(4))
