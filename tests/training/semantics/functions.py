"""Functions with a backward of the user's own, and gradients taken by functions: `grad`, `torch.func`, second derivatives."""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.training.semantics.cases import backward, case, data, leaf, raised


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.factor = 3.0
        return x * w * ctx.factor

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * ctx.factor, (g * x * ctx.factor).sum_to_size(w.shape)


@case
def function_saves_tensors():
    def function(x, w):
        return Scaled.apply(x, w).sin()

    return function, (leaf(3, 4), leaf(4, seed=1))


@case
def function_twice_differentiated():
    def function(x, w):
        return Scaled.apply(x, w).sin().sum()

    def use(results, inputs):
        (first,) = torch.autograd.grad(results, inputs[0], create_graph=True)
        first.square().sum().backward()

    return function, (leaf(3, 4), leaf(4, seed=1)), use


@case
def function_twice_differentiated_inside():
    def function(x, w):
        (first,) = torch.autograd.grad(Scaled.apply(x, w).sin().sum(), x, create_graph=True)
        return first.square().sum()

    return function, (leaf(3, 4), leaf(4, seed=1))


@case
def function_marks_dirty():
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def function(x):
        y = x * 1
        z = Doubled.apply(y)
        return z.sum(), z is y

    return function, (leaf(3),)


@case
def function_marks_dirty_input():
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x, w):
            x.mul_(w)
            ctx.mark_dirty(x)
            ctx.save_for_backward(w)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], g * 0

    def function(x, w):
        Doubled.apply(x, w)
        return x.sum()

    return function, (data(3), leaf(3, seed=1))


@case
def function_with_non_differentiable_result():
    class Sorted(Function):
        @staticmethod
        def forward(ctx, x):
            values, order = x.sort()
            ctx.mark_non_differentiable(order)
            ctx.save_for_backward(order)
            return values, order

        @staticmethod
        def backward(ctx, g, _):
            (order,) = ctx.saved_tensors
            return torch.zeros_like(g).scatter(0, order, g)

    def function(x):
        return Sorted.apply(x)

    return function, (leaf(5),)


@case
def function_needs_input_grad():
    seen = []

    class Product(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g * w if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[1] else None

    def function(x, w):
        return Product.apply(x, w)

    return function, (leaf(3), data(3, seed=1))


@case
def function_without_materialized_gradients():
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            if a is None:
                return b * 3
            if b is None:
                return a * 20
            return a * 2 + b * 3

    def function(x):
        return Both.apply(x)

    return function, (leaf(3),), lambda results, inputs: results[0].sum().backward()


@case
def function_without_materialized_gradients_inside():
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 20 if b is None else a * 2 + b * 3

    def function(x):
        return Both.apply(x)[0].sin()

    return function, (leaf(3),)


@case
def function_with_setup_context():
    class Power(Function):
        @staticmethod
        def forward(x, n):
            return x**n

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.n * x ** (ctx.n - 1), None

    def function(x):
        return Power.apply(x, 3)

    return function, (leaf(3),)


@case
def function_once_differentiable():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.exp()

    def function(x):
        return Once.apply(x).sum()

    return function, (leaf(3),)


@case
def function_that_reverses_gradients():
    class Reverse(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.weight = weight
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.weight * g, None

    def function(x):
        return Reverse.apply(x, 0.5)

    return function, (leaf(3),)


@case
def function_that_returns_its_input():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    def function(x):
        y = Same.apply(x)
        return y, y is x

    return function, (leaf(3),)


@case
def function_with_none_and_numbers():
    class Mixed(Function):
        @staticmethod
        def forward(ctx, x, flag, missing, *rest):
            ctx.count = len(rest)
            return x * (2 if flag else 3), None, 7

        @staticmethod
        def backward(ctx, g, *other):
            return (g * 2, None, None, *[None] * ctx.count)

    def function(x):
        return Mixed.apply(x, True, None, 1, "a")

    return function, (leaf(3),)


@case
def function_with_a_wrong_number_of_gradients_raises():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    def function(x, y):
        return Wrong.apply(x, y).sum()

    return function, (leaf(3), leaf(3, seed=1)), lambda results, inputs: raised(results.backward)


@case
def function_whose_backward_raises():
    class Failing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("no gradient today")

    def function(x):
        return Failing.apply(x).sum()

    return function, (leaf(3),), lambda results, inputs: raised(results.backward)


@case
def function_that_counts_backward_calls():
    seen = []

    class Counted(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append(g.shape)
            return g * 2

    def function(x):
        return Counted.apply(x).sum()

    def use(results, inputs):
        results.backward()
        return len(seen)

    return function, (leaf(3),), use


@case
def function_with_gradient_mode_inside():
    class Solved(Function):
        @staticmethod
        def forward(ctx, x):
            assert not torch.is_grad_enabled()
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                z = (y**3).sum()
                (ctx.slope,) = torch.autograd.grad(z, y)
            return z.detach()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.slope

    def function(x):
        return Solved.apply(x)

    return function, (leaf(3),)


@case
def function_called_under_vmap():
    class Cubed(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    def function(x):
        return torch.func.vmap(lambda each: Cubed.apply(each).sum())(x), torch.func.grad(
            lambda y: Cubed.apply(y).sum()
        )(x)

    return function, (data(3, 4),)


# Gradients by functions ----------------------------------------------------------------------------------------------


@case
def grad_inside():
    def function(x, w):
        (g,) = torch.autograd.grad((x * w).sin().sum(), x)
        return g, g.requires_grad, w * g

    return function, (leaf(3), leaf(3, seed=1))


@case
def grad_inside_allow_unused():
    def function(x, w):
        found = torch.autograd.grad((x * x).sum(), [x, w], allow_unused=True)
        return found, raised(lambda: torch.autograd.grad((x * x).sum(), [x, w]))

    return function, (leaf(3), leaf(3, seed=1))


@case
def grad_of_grad_inside():
    def function(x):
        y = (x**4).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        (third,) = torch.autograd.grad(second.sum(), x, retain_graph=True)
        return first, second, third

    return function, (leaf(3),)


@case
def grad_of_grad_outside():
    def function(x, w):
        return ((x @ w) ** 3).sum()

    def use(results, inputs):
        (first,) = torch.autograd.grad(results, inputs[0], create_graph=True)
        return torch.autograd.grad(first.square().sum(), inputs), first

    return function, (leaf(3, 4), leaf(4, 2, seed=1)), use


@case
def gradient_penalty_outside():
    model = nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Linear(6, 1))

    def use(results, inputs):
        (gradient,) = torch.autograd.grad(results.sum(), inputs[0], create_graph=True)
        (results.square().mean() + (gradient.norm(dim=1) - 1).square().mean()).backward()

    return model, (leaf(5, 4),), use


@case
def second_derivative_of_a_written_input():
    def function(x, w):
        x.mul_(w)
        return x.pow(3).sum()

    def use(results, inputs):
        (first,) = torch.autograd.grad(results, inputs[1], create_graph=True)
        return torch.autograd.grad(first.sum(), inputs[1])

    return function, (data(3), leaf(3, seed=1)), use


@case
def hessian_vector_product():
    def function(x, v):
        (first,) = torch.autograd.grad(x.sin().prod(), x, create_graph=True)
        (product,) = torch.autograd.grad(first, x, v)
        return product

    return function, (leaf(4), data(4, seed=1))


@case
def func_grad_and_value():
    def function(x, w):
        loss = lambda w, x: (x * w).tanh().sum()
        return torch.func.grad_and_value(loss)(w, x), torch.func.grad(loss, argnums=(0, 1))(w, x)

    return function, (data(3), leaf(3, seed=1))


@case
def func_vmap_of_grad():
    def function(w, x):
        return torch.func.vmap(torch.func.grad(lambda w, x: (w @ x).sin()), in_dims=(None, 0))(w, x)

    return function, (leaf(4), data(5, 4, seed=1))


@case
def func_jvp_and_vjp():
    def function(x, v):
        value, tangent = torch.func.jvp(torch.sin, (x,), (v,))
        other, pull = torch.func.vjp(torch.cos, x)
        return value, tangent, other, pull(v)[0]

    return function, (leaf(4), data(4, seed=1))


@case
def func_jacobians():
    def function(x):
        f = lambda x: (x.outer(x)).sum(0) ** 2
        return torch.func.jacrev(f)(x), torch.func.jacfwd(f)(x), torch.func.hessian(lambda x: f(x).sum())(x)

    return function, (data(3),)


@case
def functional_jacobian():
    def function(x):
        return torch.autograd.functional.jacobian(lambda x: x.sin() * x.sum(), x)

    return function, (data(3),)


@case
def functional_call_of_a_module():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def function(x, scale):
        changed = {name: each * scale for name, each in model.named_parameters()}
        return torch.func.functional_call(model, changed, (x,)).sum()

    def use(results, inputs):
        backward(results)
        return [each.grad for each in model.parameters()]

    return function, (data(2, 3), leaf()), use


@case
def ensemble_by_stacked_modules():
    models = [nn.Linear(3, 2) for _ in range(3)]
    params, buffers = torch.func.stack_module_state(models)

    def function(x):
        one = lambda p, b, x: torch.func.functional_call(models[0], (p, b), (x,))
        return torch.func.vmap(one, in_dims=(0, 0, None))(params, buffers, x)

    def use(results, inputs):
        backward(results)
        return [each.grad for each in params.values()]

    return function, (data(4, 3),), use


@case
def inner_loop_of_meta_learning():
    def function(w, x, y):
        fast = w
        for _ in range(3):
            loss = (x @ fast - y).square().mean()
            (gradient,) = torch.autograd.grad(loss, fast, create_graph=True)
            fast = fast - 0.1 * gradient
        return (x @ fast - y).square().mean()

    return function, (leaf(4, 2), data(5, 4, seed=1), data(5, 2, seed=2))


@case
def forward_mode_dual_numbers():
    import torch.autograd.forward_ad as forward_ad

    def function(x, v):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, v)
            return forward_ad.unpack_dual(dual.sin() * 2).tangent

    return function, (data(3), data(3, seed=1))


@case
def backward_inside():
    def function(x, w):
        y = x * w
        y.sum().backward()
        return x.grad * 2

    return function, (leaf(3), leaf(3, seed=1)), lambda results, inputs: None


@case
def backward_inside_with_inputs():
    def function(x, w):
        (x * w).sum().backward(inputs=[w])
        return x.grad is None

    return function, (leaf(3), leaf(3, seed=1)), lambda results, inputs: None


@case
def backward_inside_keeps_the_graph():
    def function(x):
        y = x.sin().sum()
        y.backward(retain_graph=True)
        return y

    return function, (leaf(3),)


@case
def backward_inside_and_a_result_with_history():
    def function(x, w):
        (x * x).sum().backward()
        return (w * 2).sum() + x.grad.sum()

    return function, (leaf(3), leaf(3, seed=1))
