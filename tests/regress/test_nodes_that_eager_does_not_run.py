"""Nodes of autograd that a result does not lead to are not run when it is differentiated alone.

One node stood for a whole region: eager's engine reached all that is before any of its inputs, and ran it with
undefined gradients. Hooks were called with None, backward methods with zeros, and what has no derivative raised.
"""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import lampwork


class Doubled(torch.autograd.Function):
    """Tells what its backward method is given."""

    seen: list[float] = []

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        Doubled.seen.append(float(gradient.sum()))
        return gradient * 2


def two_heads(x, y):
    return torch.sin(x) * 2, torch.cos(y) * 3


def shared(x, y):
    trunk = torch.exp(x)
    return trunk * 2, trunk * torch.tanh(y), y.sin() + 1


def leaves(count=2):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, generator=generator, requires_grad=True) for _ in range(count)]


def in_both(function):
    """Eager's function, and the compiled one."""
    return function, lampwork.compile(function)


def of_each(function, run):
    expected, found = (run(each) for each in in_both(function))
    torch.testing.assert_close(found, expected)
    return expected


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("kind", ["leaf", "after", "computed", "of a node", "function"])
def test_hooks_and_methods_are_called_for_what_a_result_leads_to(used, kind):
    def run(function):
        given, told = leaves(), []
        x, y = given
        if kind == "leaf":
            y.register_hook(lambda gradient: told.append(gradient) or gradient * 2)
        elif kind == "after":
            y.register_post_accumulate_grad_hook(lambda leaf: told.append(leaf.grad.clone()))
        elif kind == "computed":
            y = y * 3
            y.register_hook(lambda gradient: told.append(gradient))
        elif kind == "of a node":
            y = y * 3
            y.grad_fn.register_prehook(lambda gradients: told.append(gradients))
        else:
            Doubled.seen.clear()
            y, told = Doubled.apply(y), Doubled.seen
        results = function(x, y)
        torch.autograd.backward([results[each].sum() for each in used])
        return [each.grad for each in given], list(told)

    gradients, told = of_each(shared, run)
    assert bool(told) == (used != (0,)) == (gradients[1] is not None)


def test_what_has_no_derivative_raises_where_it_is_differentiated_alone():
    def run(function):
        (x,) = leaves(1)
        results = function(x)
        torch.autograd.backward(results[1].sum())
        with pytest.raises(NotImplementedError, match="unique"):
            torch.autograd.backward(results[0].sum())
        return x.grad

    of_each(lambda x: (torch.acosh(torch.unique_consecutive(x, dim=0)), torch.stack([x[1:], x[1:]])), run)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 8)
        self.head, self.other = nn.Linear(8, 3), nn.Linear(8, 2)

    def forward(self, x):
        x = F.gelu(self.trunk(x))
        return self.head(x), self.other(x)


@pytest.mark.parametrize("steps", [1, 3])
def test_gradients_that_are_clipped_by_hooks_where_a_head_is_not_trained(steps):
    def run(compiles):
        torch.manual_seed(0)
        model = Classifier()
        for each in model.parameters():
            each.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        function = lampwork.compile(model) if compiles else model
        optimizer = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1)
        for step in range(steps):
            function(torch.arange(8.0).view(2, 4) + step)[0].square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [each.detach() for each in model.parameters()]

    torch.testing.assert_close(run(True), run(False))


def of_one_leaf(x, y):
    """Whose nodes share nothing but the leaf."""
    return torch.sin(x), torch.cos(x), x * y, x * 2


@pytest.mark.parametrize("function", [two_heads, shared, of_one_leaf])
@pytest.mark.parametrize("retain", [False, True])
def test_one_result_after_the_other(function, retain):
    """With what the first pass freed, the second raises, where it needs that; else gradients are added up."""

    def run(function):
        given = leaves()
        results = function(*given)
        told = []
        for each in results:
            try:
                each.sum().backward(retain_graph=retain)
                told.append("ran")
            except RuntimeError as error:
                told.append("second time" if "second time" in str(error) else str(error))
        return told, [each.grad for each in given]

    expected, found = (run(each) for each in in_both(function))
    assert found[0] == expected[0]
    if "second time" not in expected[0]:  # before it raises, eager has run some nodes
        torch.testing.assert_close(found[1], expected[1])


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_gradients_of_some_inputs(wanted):
    def run(function):
        given = leaves()
        x, y = (each * 1.5 for each in given)
        results = function(x, y)
        inputs = [(x, y)[each] for each in wanted]
        weights = [torch.arange(4.0) + index for index in range(len(results))]
        found = [torch.autograd.grad(results, inputs, weights, retain_graph=True)]
        found += [
            torch.autograd.grad(each, inputs, weights[0], retain_graph=True, allow_unused=True) for each in results
        ]
        return found

    of_each(shared, run)


def test_second_derivatives():
    def run(function):
        given = leaves()
        results = function(*given)
        first = torch.autograd.grad([each.sum() for each in results], given, create_graph=True)
        return [first, torch.autograd.grad(first[0].sum() + first[1].square().sum(), given)]

    of_each(shared, run)


def test_a_batch_of_tangents():
    def run(function):
        given = leaves()
        results = function(*given)
        return torch.autograd.grad(
            results[1], given, torch.eye(4), is_grads_batched=True, retain_graph=True
        ), torch.autograd.grad(results[2], given, torch.eye(4), is_grads_batched=True, allow_unused=True)

    of_each(shared, run)


def test_a_result_that_another_of_them_leads_to_outside():
    """Nodes of the region run at different times."""

    def run(function):
        given = leaves()
        first, second, third = function(*given)
        ((first * second.exp()).sum() + (third.sigmoid() * first).sum() * second.sum()).backward()
        return [each.grad for each in given]

    of_each(shared, run)


def test_the_backward_program_runs_once(monkeypatch):
    from lampwork.runtime.autograd.differentiate import Differentiated

    runs = []
    plain = Differentiated.gradients
    monkeypatch.setattr(Differentiated, "gradients", lambda self, *args: runs.append(1) or plain(self, *args))
    x, y = leaves()
    results = lampwork.compile(shared)(x, y)
    torch.autograd.backward([each.sum() for each in results])
    assert len(runs) == 1


def test_writes_to_what_is_saved_are_noticed():
    def run(function):
        x, y = leaves()
        first, second, third = function(x, y)
        with torch.no_grad():
            second.mul_(2)
            first.mul_(2)
        third.sum().backward(retain_graph=True)
        return y.grad

    of_each(shared, run)
    x, y = leaves()
    root, other = lampwork.compile(lambda x, y: (torch.sqrt(x.exp()), y.sin()))(x, y)
    with torch.no_grad():
        root.mul_(2)
    other.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        root.sum().backward()


def test_hooks_on_saved_tensors_are_called_once_for_each():
    packed = []
    x, y = leaves()
    function = lampwork.compile(shared)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        results = function(x, y)
    count = len(packed)
    torch.autograd.backward([each.sum() for each in results])
    gradients = [x.grad, y.grad]
    x.grad = y.grad = None
    results = shared(x, y)
    torch.autograd.backward([each.sum() for each in results])
    torch.testing.assert_close(gradients, [x.grad, y.grad])
    assert 0 < count <= 8


@pytest.mark.parametrize("differentiated", [(), (0,), (0, 1, 2)])
def test_nothing_is_kept_once_results_are_gone(differentiated):
    function = lampwork.compile(shared)
    gc.collect()
    gc.disable()
    try:
        x, y = (each * 1.0 for each in leaves())
        gone = [weakref.ref(each) for each in (x, y)]
        results = function(x, y)
        gone += [weakref.ref(each) for each in results]
        if differentiated:
            torch.autograd.backward([results[each].sum() for each in differentiated])
        del x, y, results
        assert [each() for each in gone] == [None] * len(gone)
    finally:
        gc.enable()


def test_what_a_pass_has_read_is_freed_with_a_result_alive():
    """Whose node has not run: eager, too, has freed what both need."""
    function = lampwork.compile(lambda x, y: ((hidden := torch.sqrt(x.exp())).sum() * 1.0, (hidden * y).sum()))
    x, y = torch.randn(1000, requires_grad=True), torch.randn(1000, requires_grad=True)
    kept, other = function(x, y)
    saved = kept.grad_fn.run.saved.grad_fn
    assert saved.saved_tensors
    kept.backward()
    with pytest.raises(RuntimeError, match="second time"):
        _ = saved.saved_tensors
    with pytest.raises(RuntimeError, match="second time"):
        other.backward()


def test_a_result_that_needs_nothing_keeps_nothing():
    """It is differentiated after what was saved is gone, and once more."""

    def run(function):
        given = leaves()
        loss, doubled = function(*given)
        loss.backward()
        saved = getattr(loss.grad_fn, "run", None)
        if saved is not None:
            with pytest.raises(RuntimeError, match="second time"):
                _ = saved.saved.grad_fn.saved_tensors
        for _ in range(2):
            doubled.sum().backward()
        return [each.grad for each in given]

    of_each(lambda x, y: ((x.exp() * y.sin()).sum(), -y), run)
