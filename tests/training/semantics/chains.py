"""Longer chains of what the other files have one by one: writes and views and grad mode and modules, in combination."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.training.semantics.cases import backward, case, data, leaf


@case
def view_of_written_view_of_input():
    def function(x, w):
        v = x.view(-1)
        v[2:5].mul_(w)
        u = v[1:7].view(2, 3)
        u[0].add_(1)
        return u, x.sum(), v[0]

    return function, (data(3, 4), leaf(3, seed=1))


@case
def written_detached_result():
    def function(x):
        y = x * 2
        d = y.detach()
        d.add_(1)
        return y, d

    return function, (leaf(3),)


@case
def result_aliases_written_input_detached():
    def function(x, w):
        x.mul_(w)
        return x.detach(), x + 1

    return function, (data(3), leaf(3, seed=1))


@case
def input_detached_in_place():
    def function(x, w):
        x.detach_()
        return (x * w).sum(), x.requires_grad

    return function, (leaf(3) * 1, leaf(3, seed=1))


@case
def input_made_not_to_require_grad():
    def function(x, w):
        y = (x * w).sum()
        w.requires_grad_(False)
        return y + (x * w).sum()

    return function, (leaf(3), leaf(3, seed=1))


@case
def parameters_updated_before_the_loss():
    model = nn.Linear(3, 2)

    def function(x):
        with torch.no_grad():
            for each in model.parameters():
                each.mul_(0.9)
        return model(x).square().sum()

    def use(results, inputs):
        backward(results)
        return list(model.parameters()), [each.grad for each in model.parameters()]

    return function, (data(4, 3),), use


@case
def parameters_updated_after_the_loss():
    model = nn.Linear(3, 2)

    def function(x):
        loss = model(x).square().sum()
        with torch.no_grad():
            model.bias.add_(1)
        return loss

    def use(results, inputs):
        backward(results)
        return list(model.parameters()), [each.grad for each in model.parameters()]

    return function, (data(4, 3),), use


@case
def buffer_with_a_history():
    model = nn.Linear(3, 3)
    state = {"hidden": torch.zeros(2, 3)}

    def function(x):
        state["hidden"] = torch.tanh(model(x) + state["hidden"])
        return state["hidden"]

    def use(results, inputs):
        backward(results)
        state["hidden"] = state["hidden"].detach()
        return model.weight.grad

    return function, (data(2, 3),), use


@case
def module_called_twice_with_batch_norm():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

        def forward(self, x):
            return self.m(self.m(x) + x)

    return Model(), (leaf(5, 3),)


@case
def list_of_inputs_written():
    def function(xs, w):
        torch._foreach_mul_(xs, 2.0)
        for x in xs:
            x.add_(w)
        return sum(x.sum() for x in xs)

    return function, ((data(3), data(3, seed=1)), leaf(3, seed=2))


@case
def pieces_written_in_place():
    def function(x):
        y = x * 1
        first, second = y.split(2, 1)[0], y[:, 2:]
        second.mul_(3)
        y.add_(first.sum())
        return y, second

    return function, (leaf(3, 4),)


@case
def chunk_of_an_input_written():
    def function(x, w):
        a, b = x.chunk(2)
        with torch.no_grad():
            a.add_(1)
        return (a * w).sum() + b.sum(), b

    return function, (data(4), leaf(2, seed=1))


@case
def transposed_view_written():
    def function(x, w):
        y = x.clone()
        t = y.t()
        t[0] = w
        y.diagonal().zero_()
        return y.sin(), t

    return function, (leaf(3, 3), leaf(3, seed=1))


@case
def expanded_then_cloned_and_written():
    def function(x):
        y = x.expand(3, 4).clone()
        y[1] += x
        y[:, 0] *= 2
        return y

    return function, (leaf(4),)


@case
def scatter_and_gather_written():
    def function(x, i, v):
        y = torch.zeros(3, 4).scatter_(1, i, v)
        y.scatter_add_(1, i, x.gather(1, i))
        return y.masked_scatter(y > 0, x), y.index_select(0, i[0, :1])

    return function, (leaf(3, 4), torch.tensor([[0, 1], [2, 3], [1, 1]]), leaf(3, 2, seed=1))


@case
def results_as_strided():
    def function(x):
        y = x * 2
        return y.as_strided((2, 2), (1, 2)), y.unfold(0, 2, 1), y

    return function, (leaf(6),)


@case
def views_by_a_type():
    def function(x):
        y = x * 2
        return y.view(torch.int32), y.sum()

    return function, (leaf(4),)


@case
def gradient_by_hand_in_the_middle():
    def function(x, w):
        h = (x @ w).tanh()
        (g,) = torch.autograd.grad(h.sum(), w, retain_graph=True)
        return (h - g.mean()).square().sum(), g

    return function, (data(3, 4), leaf(4, 2))


@case
def some_inputs_frozen_by_detach():
    def function(x, w):
        teacher = (x @ w).detach().softmax(-1)
        student = (x @ w * 1.1).log_softmax(-1)
        return F.kl_div(student, teacher, reduction="batchmean")

    return function, (data(3, 4), leaf(4, 5))


@case
def loop_that_stops_by_a_number():
    def function(x, n):
        for k in range(n):
            x = x * (k + 1)
            if k == 2:
                x = x.detach()
        return x.sum()

    return function, (leaf(3), 2)


@case
def mixture_of_experts():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(4, 3)
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            weights, chosen = self.gate(x).softmax(-1).topk(2)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                share = (weights * (chosen == number)).sum(-1, keepdim=True)
                out = out + share * expert(x)
            return out, chosen

    return Model(), (leaf(5, 4),)


@case
def routed_by_indices():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

        def forward(self, x):
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = torch.where((x[:, 0] > 0) == bool(number))[0]
                out.index_add_(0, rows, expert(x[rows]))
            return out

    return Model(), (leaf(5, 4),)


@case
def quantised_straight_through():
    def function(x, scale):
        q = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
        y = x / scale
        return q, (y.round().clamp(-8, 7) - y).detach() + y

    return function, (leaf(6), leaf(seed=1))


@case
def norms_of_zero():
    def function(x):
        z = x * 0
        return z.norm(), z.norm(dim=1), torch.linalg.vector_norm(z, 1), (z * z).sum().sqrt()

    return function, (leaf(3, 4),)


@case
def ties_in_reductions():
    def function(x):
        y = x.round()
        return (
            y.max(),
            y.amax(1),
            y.min(1).values,
            y.median(1).values,
            y.relu(),
            y.abs(),
            y.clamp(0, 1),
            torch.maximum(y, y),
        )

    return function, (leaf(3, 4),)


@case
def powers_and_products_of_zero():
    def function(x):
        y = x.clone()
        y[0] = 0
        return y.prod(), y**2, y.abs() ** 0.5, torch.atan2(y, y), torch.hypot(y, y), y.cumprod(0)

    return function, (leaf(4),)


@case
def integer_and_boolean_results_beside():
    def function(x, i):
        i.add_(1)
        m = x > 0
        return (x[None] * m).sum(), m.any(), i * 2, m.sum(), m.int().argmax()

    return function, (leaf(4), torch.arange(4))


@case
def error_after_a_write():
    def function(x, w):
        x.add_(1)
        return x @ w

    return function, (data(3), leaf(4))


@case
def double_to_float_and_back():
    def function(x):
        y = x.float() * 2
        z = y.double()
        z += x
        return z, y.half().float()

    return function, (leaf(4, dtype=torch.float64),)


@case
def same_parameter_under_two_names():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = self.a
            self.c = nn.Linear(3, 3)
            self.c.weight = self.a.weight

        def forward(self, x):
            return self.a(self.b(self.c(x)))

    return Model(), (leaf(2, 3),)


@case
def function_of_a_list_of_tensors():
    class Total(torch.autograd.Function):
        @staticmethod
        def forward(ctx, scale, *xs):
            ctx.save_for_backward(*xs)
            ctx.scale = scale
            return torch.stack([x.exp() for x in xs]).sum(0) * scale

        @staticmethod
        def backward(ctx, g):
            return (None, *[g * x.exp() * ctx.scale for x in ctx.saved_tensors])

    def function(a, b, c):
        return Total.apply(2.0, a, b, c)

    return function, (leaf(3), data(3, seed=1), leaf(3, seed=2))


@case
def function_that_saves_results():
    class Root(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.abs().sqrt()
            ctx.save_for_backward(y, x.sign())
            return y, y * 2

        @staticmethod
        def backward(ctx, g, h):
            y, sign = ctx.saved_tensors
            return (g + 2 * h) * sign / (2 * y)

    def function(x):
        a, b = Root.apply(x)
        a2, _ = Root.apply(b)
        return a + a2

    return function, (leaf(3),)


@case
def function_with_attributes_of_its_context():
    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, dim):
            ctx.dim, ctx.shape, ctx.device = dim, x.shape, x.device
            ctx.mask = x > 0
            return (x * ctx.mask).sum(dim)

        @staticmethod
        def backward(ctx, g):
            return g.unsqueeze(ctx.dim).expand(ctx.shape) * ctx.mask, None

    def function(x):
        return Kept.apply(x, 1) + Kept.apply(x.t(), 0)

    return function, (leaf(3, 4),)


@case
def gradients_into_strided_leaves():
    def function(x, y):
        return (x * y).sum(), x.sum(0)

    x = data(6, 4)[::2].t().requires_grad_()
    y = data(3, 4, seed=1).t().contiguous().t().t().requires_grad_()
    return function, (x, y)


@case
def existing_gradients_of_other_strides():
    def function(x):
        return (x * x).sum()

    x = leaf(3, 4)
    x.grad = torch.ones(4, 3).t()
    return function, (x,)


@case
def upcast_loss_of_half_parameters():
    model = nn.Linear(4, 3).bfloat16()

    def function(x):
        return F.cross_entropy(model(x.bfloat16()).float(), torch.tensor([0, 2]))

    def use(results, inputs):
        backward(results)
        return model.weight.grad, model.bias.grad

    return function, (data(2, 4),), use
