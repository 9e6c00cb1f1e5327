"""Hooks on saved tensors that a program sets around parts of itself."""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from tests.training.semantics.cases import backward, case, leaf


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@case
def packed_as_half():
    m = small()

    def function(x):
        with saved_tensors_hooks(lambda t: (t.dtype, t.half()), lambda p: p[1].to(p[0])):
            y = m(x).exp()
        return (y * y).sum()

    return function, (leaf(2, 3),)


@case
def packed_nested():
    def function(x):
        with saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            y = x * x
            with saved_tensors_hooks(lambda t: t + 1, lambda t: t - 1):
                y = y * y
            z = y.sin()
        return z.cos()

    return function, (leaf(3),)


@case
def packed_counted_forward_only():
    log = []

    def function(x):
        with saved_tensors_hooks(lambda t: (log.append(t.numel()), t)[1], lambda t: t):
            y = (x * x).exp()
        return y

    return function, (leaf(3),), lambda results, inputs: (backward(results), list(log))[1]


@case
def packed_by_name():
    store = {}

    def pack(t):
        name = f"t{len(store)}"
        store[name] = t.clone()
        return name

    def function(x):
        with saved_tensors_hooks(pack, lambda n: store.pop(n)):
            y = (x * x).exp()
        return y

    return function, (leaf(3),), lambda results, inputs: (backward(results), list(store))[1]


@case
def packed_wrong():
    def function(x):
        with saved_tensors_hooks(lambda t: t, lambda t: None):
            y = (x * x).exp()
        return y

    def use(results, inputs):
        try:
            backward(results)
        except Exception as e:
            return type(e).__name__

    return function, (leaf(3),), use


@case
def packed_and_break():
    def function(x):
        with saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            y = x * x
            if y.sum() > 0:
                y = y * 3
            z = y.exp()
        return z

    return function, (leaf(3),)


@case
def packed_function():
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    def function(x):
        with saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
            y = F.apply(x)
        return y

    return function, (leaf(3),)


@case
def on_cpu_model():
    m = small()

    def function(x):
        with torch.autograd.graph.save_on_cpu():
            return m(x)

    return function, (leaf(2, 3),)


@case
def packed_no_grad():
    def function(x):
        with torch.no_grad(), saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            y = x * x
        return y + x

    return function, (leaf(3),)


@case
def hooks_disabled():
    def function(x):
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            try:
                with saved_tensors_hooks(lambda t: t, lambda t: t):
                    return x * x
            except RuntimeError as e:
                return str(e), x + 1

    return function, (leaf(3),)


@case
def spent_histories():
    def function(x):
        with saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            y = (x * x).exp()
            y.sum().backward()
            z = (x * x).sin()
        return y, z

    return function, (leaf(3),), lambda results, inputs: backward(results[1])


@case
def allow_mutation():
    def function(x):
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            y = x * 2
            z = y.sin()
            y.mul_(3)
            z.sum().backward()
        return z.detach()

    return function, (leaf(3),), lambda results, inputs: None
