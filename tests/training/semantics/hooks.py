"""Hooks on tensors, on leaves after accumulation, on modules, on what is saved, and gradients that are retained."""

from __future__ import annotations

import torch
from torch import nn

from tests.training.semantics.cases import backward, case, data, leaf


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@case
def hook_on_a_value_inside():
    def function(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return y.sin()

    return function, (leaf(3),)


@case
def hook_that_records_gradients():
    seen = []

    def function(x):
        y = x * 2
        y.register_hook(seen.append)
        return y.sin()

    def use(results, inputs):
        backward(results)
        return list(seen)

    return function, (leaf(3),), use


@case
def hook_that_is_removed():
    def function(x):
        y = x * 2
        first = y.register_hook(lambda g: g * 10)
        y.register_hook(lambda g: g + 1)
        first.remove()
        return y.sin()

    return function, (leaf(3),)


@case
def hook_on_an_input_inside():
    def function(x):
        x.register_hook(lambda g: g * 3)
        return (x * x).sum()

    return function, (leaf(3),)


@case
def hook_on_an_input_that_is_no_leaf():
    def function(x, base):
        x.register_hook(lambda g: g * 3)
        return (x * x).sum() + base.sum()

    base = leaf(3)
    return function, (base * 2, base)


@case
def hook_handle_returned():
    def function(x):
        y = x * 2
        return y.sin(), y.register_hook(lambda g: g * 3)

    def use(results, inputs):
        results[1].remove()
        backward(results[0])

    return function, (leaf(3),), use


@case
def hook_inside_on_a_result():
    def function(x):
        y = x.sin()
        y.register_hook(lambda g: g * 3)
        return y, y * 2

    return function, (leaf(3),)


@case
def hook_inside_on_a_result_removed_outside():
    handles = []

    def function(x):
        y = x.sin()
        handles.append(y.register_hook(lambda g: g * 3))
        return y.exp()

    def use(results, inputs):
        handles.pop().remove()
        backward(results)

    return function, (leaf(3),), use


@case
def hook_on_a_result_outside():
    def function(x):
        return x.sin(), x.cos()

    def use(results, inputs):
        results[0].register_hook(lambda g: g * 2)
        results[1].retain_grad()
        backward(results)
        return results[1].grad

    return function, (leaf(3),), use


@case
def hook_after_accumulation():
    model = small()
    seen = []
    for each in model.parameters():
        each.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))

    def use(results, inputs):
        backward(results)
        return len(seen)

    return model, (data(2, 3),), use


@case
def hook_after_accumulation_updates():
    model = small()

    def update(parameter):
        with torch.no_grad():
            parameter.sub_(0.1 * parameter.grad)
        parameter.grad = None

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(update)
    return model, (data(2, 3),)


@case
def hook_after_accumulation_registered_inside():
    def function(x):
        x.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2).numel() < 0 or None)
        return (x * x).sum()

    return function, (leaf(3),)


@case
def forward_hooks():
    model = small()
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return model, (leaf(2, 3),)


@case
def forward_hook_that_stores_activations():
    model = small()
    stored = {}
    model[0].register_forward_hook(lambda module, args, output: stored.__setitem__("first", output))

    def use(results, inputs):
        (results.sum() + stored["first"].square().sum()).backward()
        return stored["first"]

    return model, (data(2, 3),), use


@case
def forward_hook_with_keywords():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 2)
            self.inner.register_forward_pre_hook(lambda m, a, k: ((a[0] * 2,), k), with_kwargs=True)
            self.inner.register_forward_hook(lambda m, a, k, out: out + 1, with_kwargs=True, prepend=True)

        def forward(self, x):
            return self.inner(x)

    return Model(), (leaf(2, 3),)


@case
def full_backward_hook():
    model = small()
    seen = []
    model[0].register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].shape, go[0].sum().item())))

    def use(results, inputs):
        backward(results)
        return len(seen)

    return model, (leaf(2, 3),), use


@case
def full_backward_hook_that_changes_gradients():
    model = small()
    model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    model[0].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    return model, (leaf(2, 3),)


@case
def backward_hook_on_the_outer_module():
    model = small()
    model.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    return model, (leaf(2, 3),)


@case
def backward_hook_on_the_outer_module_without_input_gradient():
    model = small()
    seen = []
    model.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].shape)))

    def use(results, inputs):
        backward(results)
        return list(seen)

    return model, (data(2, 3),), use


@case
def module_hook_removed_between_calls():
    model = small()
    handle = model[0].register_forward_hook(lambda module, args, output: output * 2)

    def use(results, inputs):
        backward(results)
        handle.remove()

    return model, (data(2, 3),), use


@case
def hook_on_grad_fn():
    def function(x):
        y = x.sin()
        y.grad_fn.register_hook(lambda gi, go: (gi[0] * 2,))
        return y.sum()

    return function, (leaf(3),)


@case
def prehook_on_grad_fn():
    def function(x):
        y = x.sin()
        y.grad_fn.register_prehook(lambda go: (go[0] * 2,))
        return y.sum()

    return function, (leaf(3),)


@case
def multi_grad_hook():
    seen = []

    def function(x, y):
        a, b = x * 2, y * 3
        torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: seen.append(len(gs)))
        return a.sum() + b.sum()

    def use(results, inputs):
        backward(results)
        return list(seen)

    return function, (leaf(3), leaf(3, seed=1)), use


@case
def saved_tensor_hooks_inside():
    def function(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            y = x * x
        return y.exp()

    return function, (leaf(3),)


@case
def saved_tensor_hooks_outside():
    def function(x):
        return (x * x).exp()

    def whole(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
            return function(x)

    return whole, (leaf(3),)


@case
def saved_on_cpu():
    def function(x):
        with torch.autograd.graph.save_on_cpu():
            return (x * x).exp()

    return function, (leaf(3),)


@case
def retained_gradient_inside():
    def function(x):
        y = x * 2
        y.retain_grad()
        y.sin().sum().backward()
        return y.grad

    return function, (leaf(3),), lambda results, inputs: None


@case
def retained_gradient_of_a_result():
    def function(x):
        y = x * 2
        y.retain_grad()
        return y, y.sin().sum()

    def use(results, inputs):
        results[1].backward()
        return results[0].grad, results[0].retains_grad

    return function, (leaf(3),), use


@case
def parameter_hook_registered_before():
    model = small()
    model[0].weight.register_hook(lambda g: g.clamp(-0.1, 0.1))
    return model, (data(2, 3),)


@case
def anomaly_mode():
    def function(x):
        with torch.autograd.detect_anomaly(check_nan=False):
            return (x * x).sum()

    return function, (leaf(3),)
