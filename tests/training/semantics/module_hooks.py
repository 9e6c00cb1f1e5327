"""Hooks on modules and on nodes of autograd's graph, as users write them: maps of activations, logs of gradients, clipping."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.training.semantics.cases import backward, case, data, leaf


class Two(nn.Module):
    """Two inputs, two results, one of which may be left unused; arguments that are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x, y, scale=1.0):
        return self.left(x) * scale, self.right(y).tanh()


class Outer(nn.Module):
    def __init__(self, used: tuple[int, ...] = (0, 1)) -> None:
        super().__init__()
        self.used = used
        self.first, self.two, self.last = nn.Linear(3, 3), Two(), nn.Linear(4, 2)

    def forward(self, x):
        found = self.two(self.first(x).relu(), x * 2, 3.0)
        return self.last(sum(found[index] for index in self.used))


def shapes(gradients):
    return [None if each is None else tuple(each.shape) for each in gradients]


@case
def module_hook_with_several_gradients():
    model = Outer()
    model.two.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2, *gi[1:]))
    model.two.register_full_backward_pre_hook(lambda m, go: (go[0], go[1] * 3))
    return model, (leaf(2, 3),)


@case
def module_hook_that_is_told_of_an_unused_result():
    model = Outer(used=(1,))
    model.two.register_full_backward_pre_hook(lambda m, go: (go[0], go[1] * (2 if go[0] is None else 5)))
    return model, (leaf(2, 3),)


@case
def module_hooks_in_order():
    model, seen = Outer(), []
    for name, each in model.named_modules():
        each.register_full_backward_hook(lambda m, gi, go, name=name: seen.append((name, shapes(gi), shapes(go))))
        each.register_full_backward_pre_hook(lambda m, go, name=name: seen.append((f"before {name}", shapes(go))))

    def use(results, inputs):
        backward(results)
        return list(seen)

    return model, (leaf(2, 3),), use


@case
def class_activation_map():
    class Convolutional(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.features(x).mean((2, 3)))

    model, kept = Convolutional(), {}
    model.features.register_forward_hook(lambda m, args, out: kept.__setitem__("activation", out))
    model.features.register_full_backward_hook(lambda m, gi, go: kept.__setitem__("gradient", go[0]))

    def use(results, inputs):
        results[:, 1].sum().backward()
        weights = kept["gradient"].mean((2, 3), keepdim=True)
        return F.relu((weights * kept["activation"]).sum(1)).detach()

    return model, (data(2, 2, 5, 5),), use


@case
def gradient_kept_on_the_module():
    model = Outer()
    model.first.register_full_backward_hook(lambda m, gi, go: setattr(m, "norm", go[0].norm().item()))

    def use(results, inputs):
        backward(results)
        return model.first.norm

    return model, (data(2, 3),), use


@case
def gradients_clipped_by_a_module_hook():
    model = Outer()
    model.last.register_full_backward_hook(lambda m, gi, go: tuple(each.clamp(-0.1, 0.1) for each in gi))
    return model, (data(2, 3),)


@case
def module_hook_for_all_modules():
    model, seen = Outer(), []

    def use(results, inputs):
        backward(results)
        return list(seen)

    def function(x):
        from torch.nn.modules.module import register_module_full_backward_hook

        handle = register_module_full_backward_hook(lambda m, gi, go: seen.append(type(m).__name__))
        try:
            return model(x)
        finally:
            handle.remove()

    return function, (leaf(2, 3),), use


@case
def module_hook_removed_by_itself():
    model, handles = Outer(), []

    def once(module, inputs, outputs):
        handles.pop().remove()
        return (inputs[0] * 10,)

    handles.append(model.last.register_full_backward_hook(once))
    return model, (leaf(2, 3),)


@case
def module_hook_removed_by_the_caller():
    model = Outer()
    handle = model.last.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))

    def use(results, inputs):
        backward(results)
        handle.remove()

    return model, (leaf(2, 3),), use


@case
def module_hook_under_no_grad():
    model, seen = Outer(), []
    model.first.register_full_backward_hook(lambda m, gi, go: seen.append(1))

    def function(x):
        with torch.no_grad():
            y = model(x)
        return y + x.sum(), len(seen)

    return function, (leaf(2, 3),)


@case
def module_hook_that_raises():
    model = Outer()

    def refuse(module, inputs, outputs):
        raise ValueError("no gradient here")

    model.first.register_full_backward_hook(refuse)

    def use(results, inputs):
        try:
            backward(results)
        except ValueError as error:
            return str(error)

    return model, (leaf(2, 3),), use


@case
def module_hook_that_decides_by_a_gradient():
    model = Outer()
    model.first.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,) if go[0].sum() > 0 else None)
    return model, (leaf(2, 3),)


@case
def module_hook_with_a_wrong_number_of_gradients():
    model = Outer()
    model.first.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))

    def use(results, inputs):
        try:
            backward(results)
        except RuntimeError as error:
            return str(error)[:40]

    return model, (leaf(2, 3),), use


@case
def module_hook_of_the_older_kind():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    model[1].register_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    return model, (leaf(2, 3),)


@case
def history_walked():
    def function(x, w):
        y = (x * w).sin().sum()
        names, node = [], y.grad_fn
        while node is not None:
            names.append(node.name())
            node = node.next_functions[0][0] if node.next_functions else None
        return y, names, y.grad_fn.next_functions[0][1]

    return function, (leaf(3), leaf(3, seed=1))


@case
def history_leads_to_leaves():
    def function(x, w):
        y = x * w
        found = [node.variable for node, _ in y.grad_fn.next_functions]
        return y, found[0] is x, found[1] is w, hasattr(y.grad_fn, "variable")

    return function, (leaf(3), leaf(3, seed=1))


@case
def history_from_outside_is_compared():
    def function(x, y, z):
        same = x.grad_fn is y.grad_fn, x.grad_fn is z.grad_fn, x.grad_fn is None, x.grad_fn is x.grad_fn
        return x + y + z, same

    base = leaf(4)
    return function, (base * 2, base * 3, base * 4)


@case
def node_hooks_of_both_kinds():
    def function(x):
        y = x.sin()
        y.register_hook(lambda g: g + 1)
        y.grad_fn.register_prehook(lambda go: (go[0] * 2,))
        y.grad_fn.register_hook(lambda gi, go: (gi[0] + go[0],))
        first = y.grad_fn.register_hook(lambda gi, go: (gi[0] * 100,))
        y.grad_fn.register_hook(lambda gi, go: (gi[0] * 3,))
        first.remove()
        return y.exp()

    return function, (leaf(3),)
