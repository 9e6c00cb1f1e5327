"""What autograd shows of results and of inputs that were written, in programs that take gradients or set who has them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import lampwork

OPTIONS = {"cache": False}


def leaf(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def test_detached_results_beside_one_whose_history_is_freed():
    """They shared its memory, and got its history."""

    def program(x):
        y = x * 2
        y.sum().backward()
        return y, y.detach(), y[0]

    y, detached, row = lampwork.compile(program, options=OPTIONS)(leaf(3, 4))
    assert y.requires_grad and row.requires_grad and not detached.requires_grad
    assert y.data_ptr() == detached.data_ptr() == row.data_ptr()


@pytest.mark.parametrize("write", [torch.Tensor.add_, torch.Tensor.mul_, torch.Tensor.copy_])
def test_a_written_input_whose_history_is_freed(write):
    """The call ran eagerly: the history was to be differentiated a second time."""

    def program(x, w):
        write(x, w)
        write(x[0], w)
        x.sin().sum().backward()

    compiled = lampwork.compile(program, options=OPTIONS)
    x, w = torch.ones(3, 4), leaf(4)
    compiled(x, w)
    assert x.requires_grad and not x.is_leaf and w.grad is not None and not lampwork.stats(compiled)["fallbacks"]
    with pytest.raises(RuntimeError, match="second time"):
        x.sum().backward()


def test_an_input_requires_grad_from_within():
    """The result had no history."""

    def program(x, w):
        y = x * w
        x.requires_grad_()
        return y + x

    compiled = lampwork.compile(program, options=OPTIONS)
    for _ in range(2):
        x, w = torch.ones(3), leaf(3)
        result = compiled(x, w)
        result.sum().backward()
        assert torch.equal(x.grad, torch.ones(3)) and torch.equal(w.grad, torch.ones(3))
    assert not lampwork.stats(compiled)["fallbacks"]


def test_a_hook_that_can_be_removed_later():
    def program(x):
        y = x * 2
        return y.sin(), y.register_hook(lambda gradient: gradient * 10)

    compiled = lampwork.compile(program, options=OPTIONS)
    for remove in (False, True):
        x = leaf(3)
        result, handle = compiled(x)
        if remove:
            handle.remove()
        result.sum().backward()
        torch.testing.assert_close(x.grad, (x * 2).cos().detach() * (2 if remove else 20))


def test_a_hook_on_a_result_runs_once():
    def program(x):
        y = x * 2
        y.register_hook(lambda gradient: gradient * 10)
        return y

    compiled = lampwork.compile(program, options=OPTIONS)
    x = leaf(3)
    compiled(x).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 20.0)) and not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("alone", [True, False])
def test_a_result_keeps_its_gradient(alone):
    def program(x):
        y = x * 2
        y.retain_grad()
        return y if alone else (y, y.sin().sum())

    compiled = lampwork.compile(program, options=OPTIONS)
    found = compiled(leaf(3))
    y, loss = (found, found.sin().sum()) if alone else found
    loss.backward()
    assert y.retains_grad and torch.allclose(y.grad, y.detach().cos())
    assert bool(lampwork.stats(compiled)["fallbacks"]) is not alone


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        return first * 20 if second is None else first * 2 + second * 3


def test_a_backward_that_tells_missing_gradients_from_zeros():
    compiled = lampwork.compile(lambda x: Pair.apply(x), options=OPTIONS)
    for both in (True, False):
        x = leaf(3)
        first, second = compiled(x)
        (first + second if both else first).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 5.0 if both else 20.0))


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no gradient today")


def test_a_backward_that_raises():
    result = lampwork.compile(lambda x: Failing.apply(x).sum(), options=OPTIONS)(leaf(3))
    with pytest.raises(ValueError, match="no gradient today"):
        result.backward()

    def program(x):
        try:
            Failing.apply(x).sum().backward()
        except ValueError as error:
            return str(error)

    assert lampwork.compile(program, options=OPTIONS)(leaf(3)) == "no gradient today"


def test_gradients_of_a_batch_of_tangents():
    compiled = lampwork.compile(lambda x: x.sin() * 2, options=OPTIONS)
    x = leaf(3)
    result = compiled(x)
    (rows,) = torch.autograd.grad(result, x, torch.eye(3), is_grads_batched=True, retain_graph=True)
    torch.testing.assert_close(rows, (x.cos() * 2).diag().detach())
    found = torch.func.vmap(lambda tangent: torch.autograd.grad(result, x, tangent, retain_graph=True)[0])(torch.eye(3))
    torch.testing.assert_close(found, rows)
    assert {each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]} == {"double-backward"}


def test_second_derivatives_that_cannot_be_had_are_no_zeros():
    """Where there was another way to the input, its gradient lacked what came through the compiled region."""

    def program(x, w):
        x.mul_(w)
        return x.pow(3).sum()

    w = leaf(3)
    result = lampwork.compile(program, options=OPTIONS)(torch.ones(3), w)
    (first,) = torch.autograd.grad(result, w, create_graph=True)
    with pytest.raises(RuntimeError, match="double-backward"):
        torch.autograd.grad((first * w).sum(), w)


def test_complex_factors_in_derivatives():
    """The conjugate of a number was recorded as a view of it."""

    def program(x):
        (torch.view_as_complex(x * 1) * (2 + 1j)).abs().square().sum().backward()
        return x.grad

    x = leaf(3, 2)
    torch.testing.assert_close(lampwork.compile(program, options=OPTIONS)(x), 10 * x.detach())


def test_lazy_modules():
    """The first call, which decides the shapes, raised."""
    model = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2))
    compiled = lampwork.compile(model, options=OPTIONS)
    x = torch.ones(3, 4)
    assert compiled(x).shape == (3, 2)
    torch.testing.assert_close(compiled(x), model(x))


def test_detached_parts_of_a_written_input():
    """They were views of it by autograd, which a write without a gradient makes invalid."""

    def program(x, w):
        x.mul_(w)
        return x.detach(), x[1:].detach(), x + 1

    compiled = lampwork.compile(program, options=OPTIONS)
    x, w = torch.ones(3), leaf(3)
    whole, part, other = compiled(x, w)
    (other.sum() + x.sum()).backward()
    assert not whole.requires_grad and not part.requires_grad and x.requires_grad
    assert whole.data_ptr() == x.data_ptr() and torch.equal(part, x[1:].detach()) and torch.equal(whole, x.detach())
    assert torch.equal(w.grad, torch.full((3,), 2.0)) and not lampwork.stats(compiled)["fallbacks"]


def test_detached_parts_of_a_written_input_whose_history_is_freed():
    def program(x, w):
        x.mul_(w)
        x.exp().sum().backward()
        return x.detach()

    x = torch.ones(3)
    found = lampwork.compile(program, options=OPTIONS)(x, leaf(3))
    assert not found.requires_grad and x.requires_grad and found.data_ptr() == x.data_ptr()


def test_an_input_is_detached_in_place():
    """It was told not to require grad, which only leaves can be told."""

    def program(x, w):
        x.detach_()
        return (x * w).sum()

    x, w = leaf(3) * 2, leaf(3)
    lampwork.compile(program, options=OPTIONS)(x, w).backward()
    assert x.is_leaf and not x.requires_grad and torch.equal(w.grad, x)


def test_views_of_views_that_are_written():
    """Their histories, which autograd makes anew when they are looked at, were looked at outside of the recording."""

    def program(x, w):
        v = x.view(-1)
        v[2:5].mul_(w)
        return v[1:7].view(2, 3), v[0]

    compiled = lampwork.compile(program, options=OPTIONS)
    x, w = torch.ones(3, 4), leaf(3)
    rows, _ = compiled(x, w)
    rows.sum().backward()
    assert torch.equal(w.grad, torch.ones(3)) and not lampwork.stats(compiled)["fallbacks"]


def test_reentrant_checkpoints_are_compiled():
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 4))

    def program(x):
        return checkpoint(model, x * 2, use_reentrant=True).square().sum()

    compiled = lampwork.compile(program, options=OPTIONS)
    found = []
    for function in (program, compiled):
        model.zero_grad()
        torch.manual_seed(1)
        x = leaf(3, 4)
        loss = function(x)
        loss.backward()
        found.append((loss.detach(), x.grad, *[each.grad for each in model.parameters()]))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other)
    assert not lampwork.stats(compiled)["fallbacks"] and not lampwork.stats(compiled)["breaks"]


def test_an_input_turned_in_place_beside_results_with_a_history():
    """Its node expected a gradient of the shape that it had before, and the backward pass raised."""

    def program(x):
        x.transpose_(1, 0)
        return x.mul(2).squeeze(), x.unsqueeze(0)

    found = []
    for function in (program, lampwork.compile(program, options=OPTIONS)):
        given = leaf(1, 2, 4)
        x = given + 1
        results = function(x)
        sum((each * 1.5).sum() for each in (*results, x)).backward()
        found.append((x.shape, given.grad))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[1][1], found[0][1])


def test_a_pass_behind_a_freed_one_whose_result_is_saved():
    """Whether a history was freed was asked by looking at what it saved: a result (tanh's) would not be looked at."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    other = copy.deepcopy(model)

    def program(model, optimizer, x):
        for _ in range(2):
            y = model(x)
            if not torch._is_all_true(y < 1000):
                raise ValueError
            loss = y.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach()

    one, two = (torch.optim.SGD(each.parameters(), 0.05) for each in (model, other))
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(3):
        x = torch.randn(5, 4)
        torch.testing.assert_close(compiled(other, two, x), program(model, one, x))
    for mine, eager in zip(other.parameters(), model.parameters()):
        torch.testing.assert_close(mine, eager)


class View(torch.autograd.Function):
    """Its node is called `ViewBackward`, as those of views are."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.view(-1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.view(ctx.shape) * 3


def test_a_function_that_is_called_view():
    """Its result was taken for a view of the input, which knows nothing of its backward."""
    x = leaf(2, 3)
    lampwork.compile(View.apply, options=OPTIONS)(x).sum().backward()
    assert x.grad.eq(3).all()


class Sine(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


def test_a_function_under_vmap_keeps_the_history():
    """What `vmap` wraps around a tensor does not say that it requires grad: the result had no history."""
    x = leaf(2, 3)
    result = lampwork.compile(lambda x: torch.func.vmap(Sine.apply)(x), options=OPTIONS)(x)
    result.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())
