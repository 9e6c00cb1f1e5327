"""What results are: those that no gradient reaches, of other types, in containers, and blocks that switch grad mode."""

from __future__ import annotations

import collections
import dataclasses
from typing import NamedTuple

import torch
from torch import nn

from tests.training.semantics.cases import backward, case, data, leaf, raised


@case
def results_without_gradient():
    def function(x):
        y = x * 2
        return y, y.detach(), (y > 0), y.argmax(), torch.ones(3), y.round().int(), None, 3, "text"

    return function, (leaf(3),)


@case
def results_in_a_dataclass():
    @dataclasses.dataclass
    class Found:
        loss: torch.Tensor
        other: dict
        missing: object = None

    def function(x):
        return Found((x * x).sum(), {"a": [x + 1, (x.detach(),)], 3: None})

    return function, (leaf(3),)


class Pair(NamedTuple):
    first: torch.Tensor
    second: object


@case
def results_in_named_tuples_and_ordered_dicts():
    def function(x):
        return Pair(x.sin(), collections.OrderedDict(b=x.cos(), a=torch.max(x, 0)))

    return function, (leaf(3, 4),)


@case
def some_results_unused():
    def function(x, w, v):
        return x * w, (v * 2).sum(), w.exp()

    def use(results, inputs):
        results[0].sum().backward()

    return function, (leaf(3), leaf(3, seed=1), leaf(3, seed=2)), use


@case
def results_used_one_after_another():
    def function(x, w):
        y = x * w
        return y.sin(), y.cos(), w.exp()

    def use(results, inputs):
        results[2].sum().backward()
        seen = inputs[0].grad, inputs[1].grad.clone()
        results[0].sum().backward(retain_graph=True)
        results[1].sum().backward()
        return seen

    return function, (leaf(3), leaf(3, seed=1)), use


@case
def undefined_gradients():
    def function(x, w):
        return x.clamp(0), w.sign() * x

    def use(results, inputs):
        return torch.autograd.grad(results[0].sum(), inputs, allow_unused=True)

    return function, (leaf(3), leaf(3, seed=1)), use


@case
def unused_input_raises():
    def function(x, w):
        return x * 2

    def use(results, inputs):
        return raised(lambda: torch.autograd.grad(results.sum(), inputs))

    return function, (leaf(3), leaf(3, seed=1)), use


@case
def materialized_gradients():
    def function(x, w):
        return x * 2, w * 1

    def use(results, inputs):
        return torch.autograd.grad(results[0].sum(), inputs, materialize_grads=True)

    return function, (leaf(3), leaf(3, seed=1)), use


@case
def is_grads_batched():
    def function(x):
        return x.sin() * 2

    def use(results, inputs):
        return torch.autograd.grad(results, inputs[0], torch.eye(3), is_grads_batched=True)

    return function, (leaf(3),), use


@case
def backward_twice_raises():
    def function(x):
        return (x * x).sum()

    def use(results, inputs):
        results.backward()
        return raised(results.backward)

    return function, (leaf(3),), use


@case
def backward_of_what_needs_no_grad_raises():
    def function(x):
        return (x * 2).detach().sum()

    return function, (leaf(3),), lambda results, inputs: raised(results.backward)


@case
def backward_of_a_matrix_raises():
    def function(x):
        return x * 2

    return function, (leaf(3),), lambda results, inputs: raised(results.backward)


@case
def backward_with_a_wrong_shape_raises():
    def function(x):
        return x * 2

    return function, (leaf(3),), lambda results, inputs: raised(lambda: results.backward(torch.ones(4)))


@case
def gradient_is_the_same_object():
    def function(x):
        return (x * 3).sum()

    def use(results, inputs):
        inputs[0].grad = kept = torch.ones(3)
        results.backward()
        return inputs[0].grad is kept, kept

    return function, (leaf(3),), use


@case
def gradient_strides_follow_the_leaf():
    def function(x, y):
        return (x @ y.t()).sin()

    return function, (data(4, 3).t().requires_grad_(), data(3, 8)[:, ::2].requires_grad_())


@case
def channels_last_gradients():
    def function(x, w):
        return torch.nn.functional.conv2d(x, w).relu()

    x = data(2, 3, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
    return function, (x, leaf(4, 3, 3, 3, seed=1))


@case
def channels_last_module():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return model.to(memory_format=torch.channels_last), (data(2, 3, 6, 6).to(memory_format=torch.channels_last),)


@case
def expanded_and_non_dense_inputs():
    def function(x, y, z):
        return x * y + z

    return function, (leaf(3, 1).expand(3, 4), leaf(6, 8)[::2, ::2], leaf(4))


@case
def zero_dimensional_and_empty():
    def function(x, e, s):
        return (x * s).sum() + e.sum(), e * 2, s * s

    return function, (leaf(3), leaf(0, 3), leaf())


@case
def no_grad_block():
    def function(x):
        with torch.no_grad():
            y = x * 2
            z = y.sin()
        return y.requires_grad, z, (x * z).sum()

    return function, (leaf(3),)


@case
def grad_mode_toggled():
    def function(x):
        previous = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        y = x * 2
        torch.set_grad_enabled(True)
        z = x * 3
        torch.set_grad_enabled(previous)
        return y, z, y.requires_grad, z.requires_grad

    return function, (leaf(3),)


@case
def grad_mode_left_off():
    def function(x):
        torch.set_grad_enabled(False)
        return x * 2

    def use(results, inputs):
        found = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return found

    return function, (leaf(3),), use


@case
def grad_mode_decorators():
    @torch.no_grad()
    def scale(x):
        return x.abs().max()

    @torch.enable_grad()
    def loss(x):
        return (x * x).sum()

    def function(x):
        return loss(x / scale(x)), torch.is_grad_enabled()

    return function, (leaf(3),)


@case
def enable_grad_in_no_grad():
    def function(x):
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
            c = b * 2
        return a, b, c

    return function, (leaf(3),)


@case
def inference_mode_block():
    def function(x):
        with torch.inference_mode():
            y = (x * 2).sum().item()
        return x * y

    return function, (leaf(3),)


@case
def requires_grad_set_inside():
    def function(x):
        y = x.detach().clone().requires_grad_()
        (y * y).sum().backward()
        return y.grad + x, y

    return function, (leaf(3),), lambda results, inputs: backward(results[0])


@case
def requires_grad_set_on_an_input():
    def function(x):
        x.requires_grad_()
        return (x * 2).sum()

    return function, (data(3),)


@case
def requires_grad_taken_from_a_detached():
    def function(x):
        y = (x * 2).detach_()
        return y, y.requires_grad, x.sum()

    return function, (leaf(3),)


@case
def a_leaf_made_inside_and_returned():
    def function(x):
        y = torch.ones(3, requires_grad=True)
        return (x * y).sum(), y

    return function, (leaf(3),)


@case
def attributes_of_autograd_are_read():
    def function(x):
        y = x * 2
        return x.is_leaf, y.is_leaf, y.grad_fn is None, x.grad is None, y.retains_grad, y.requires_grad, y

    return function, (leaf(3),)


@case
def branch_on_requires_grad():
    def function(x, y):
        return x * 2 if x.requires_grad and not y.requires_grad else x * 3

    return function, (leaf(3), data(3))


@case
def gradient_read_in_the_region():
    def function(x):
        scale = 1.0 if x.grad is None else x.grad.norm()
        return (x * scale).sum()

    return function, (leaf(3),)


@case
def gradient_set_in_the_region():
    def function(x):
        x.grad = torch.full((3,), 2.0)
        return (x * x).sum()

    return function, (leaf(3),)


@case
def gradient_cleared_in_the_region():
    def function(x, y):
        x.grad = None
        y.grad.zero_()
        return (x * y).sum()

    y = leaf(3, seed=1)
    y.grad = torch.ones(3)
    return function, (leaf(3), y)


@case
def float64_and_mixed():
    def function(x, y):
        return (x * y).sum(), x.float().exp(), y.double().sin()

    return function, (leaf(3, dtype=torch.float64), leaf(3, seed=1))


@case
def half_types():
    def function(x, y):
        return (x @ y.to(x.dtype)).float().softmax(-1), x.sum()

    return function, (leaf(3, 4, dtype=torch.bfloat16), leaf(4, 2, seed=1, dtype=torch.float16))


@case
def complex_gradients():
    def function(x, y):
        z = x * y.conj() + x.abs()
        return z.real.sum() + torch.fft.fft(z).abs().sum(), z, z.angle()

    return function, (leaf(4, dtype=torch.complex64), leaf(4, seed=1, dtype=torch.complex64))


@case
def complex_from_real():
    def function(x, y):
        z = torch.complex(x, y)
        return torch.polar(x.abs(), y), (z * z).imag, z.conj(), z.exp().abs().log()

    return function, (leaf(4), leaf(4, seed=1))


@case
def lazily_conjugated_and_negated():
    def function(x):
        return x.conj(), x.conj().imag, (x * 2).conj()

    return function, (leaf(4, dtype=torch.complex64),)


@case
def sparse_embedding_gradient():
    model = nn.Sequential(nn.Embedding(6, 3, sparse=True), nn.Tanh())
    with torch.no_grad():
        model[0].weight.copy_(data(6, 3))
    return model, (torch.tensor([1, 1, 4]),)


@case
def gradient_of_a_sum_is_expanded():
    def function(x, w):
        return x.sum(), w.mean(0)

    return function, (leaf(3, 4), leaf(3, 4, seed=1))


@case
def gradient_goes_to_both_operands():
    def function(x, y):
        return x + y

    return function, (leaf(3, 4), leaf(3, 4, seed=1))


@case
def nothing_to_differentiate():
    def function(x):
        return x * 2, x.sum()

    return function, (data(3),)


@case
def detach_and_straight_through():
    def function(x):
        return x + (x.round() - x).detach()

    return function, (leaf(3),)


@case
def where_with_infinite_branches():
    def function(x):
        return torch.where(x > 0, x.log(), x * 0), x.clamp(min=0).sqrt()

    return function, (leaf(6),)


@case
def dtype_of_tangent():
    def function(x):
        return x.to(torch.float64)

    return function, (leaf(3),), lambda results, inputs: torch.autograd.grad(results.sum(), inputs[0])[0].dtype


@case
def state_of_a_list_of_the_caller():
    seen = []

    def function(x):
        y = x * 2
        seen.append(y)
        return y.sum()

    def use(results, inputs):
        (results + seen[-1].sum()).backward()
        return seen[-1]

    return function, (leaf(3),), use


@case
def dynamic_shapes_from_contents():
    def function(x):
        y = x * 2
        return y[x > 0].sum(), torch.nonzero(x > 0)

    return function, (leaf(5),)


# What lies behind a result that is not used ------------------------------------------------------------------------------


def second_alone(results, inputs):
    results[1].sum().backward()


@case
def steep_result_unused():
    def function(x):
        return x.sqrt() / x, x.cos(), (x * x).sum().sqrt()

    return function, (torch.zeros(3, requires_grad=True),), second_alone


@case
def steep_result_unused_one_after_another():
    def function(x, w):
        y = x * w
        return y.log().sum(), y.exp(), (y - y).norm()

    def use(results, inputs):
        taken = []
        for each in (results[1:2], results[:2], results[1:], results):
            taken.append(torch.autograd.grad([one.sum() for one in each], inputs, retain_graph=True))
        return taken

    return function, (torch.ones(3, requires_grad=True), leaf(3, seed=1).detach().abs().requires_grad_()), use


@case
def hook_behind_an_unused_result():
    def function(x):
        y, z = x * 2, x * 3
        y.register_hook(lambda g: g + 1)
        return y.sin() + z, z.cos()

    return function, (leaf(3),), second_alone


@case
def function_behind_an_unused_result():
    class Normalised(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g / g.norm()

    def function(x):
        return Normalised.apply(x).sin(), x.cos()

    return function, (leaf(3),), second_alone
