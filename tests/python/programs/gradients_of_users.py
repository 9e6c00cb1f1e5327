"""Gradients as users take them: own functions, hooks, checkpoints, parametrizations, transforms, modes that mix."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings

import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
from torch import nn
from torch.autograd import Function
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.python.harness import program
from tests.python.tensors import seeded, values

with warnings.catch_warnings():  # which PyTorch gives once in a process, about its own derivatives
    warnings.simplefilter("ignore")
    jacfwd(lambda v: v.prod())(torch.ones(2))

ROWS = [lambda: (values(2, 3),), lambda: (values(4, 3, seed=1),), lambda: (values(2, 3, seed=2),)]
LEAVES = [
    lambda: (values(2, 3).requires_grad_(),), lambda: (values(4, 3, seed=1).requires_grad_(),), lambda: (values(2, 3, seed=2),),
]  # fmt: skip


class Reverse(Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


@program(
    calls=[
        lambda: (values(3).requires_grad_(), 0.5),
        lambda: (values(3).requires_grad_(), 2.0),
        lambda: (values(3), 1.0),
    ],
    grad=True,
)
def gradient_reversed(x, strength):
    y = Reverse.apply(x, strength)
    return (y * 3).sum(), y


class Round(Function):
    @staticmethod
    def forward(ctx, x, bits):
        scale = 2**bits - 1
        ctx.save_for_backward(x)
        return (x.clamp(0, 1) * scale).round() / scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ((x >= 0) & (x <= 1)), None


@program(
    calls=[
        lambda: (values(3).requires_grad_(), 2),
        lambda: (values(3).requires_grad_(), 4),
        lambda: (values(4).requires_grad_(), 2),
    ],
    grad=True,
)
def quantised_straight_through(x, bits):
    loss = Round.apply(x.sigmoid(), bits).pow(2).sum()
    return torch.autograd.grad(loss, x)[0], loss


class Exp(Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y

    @staticmethod
    def vmap(info, in_dims, x):
        return Exp.apply(x), in_dims[0]


@program(calls=LEAVES, grad=True)
def function_differentiated_twice(x):
    y = Exp.apply(x).sum()
    if not x.requires_grad:
        return y, None
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad((first * x).sum(), x)
    return first, second


class SwiGLU(Function):
    @staticmethod
    def forward(ctx, a, b):
        s = torch.sigmoid(a)
        ctx.save_for_backward(a, b, s)
        ctx.mark_non_differentiable(s)
        return a * s * b, s

    @staticmethod
    def backward(ctx, grad, _):
        a, b, s = ctx.saved_tensors
        need_a, need_b = ctx.needs_input_grad
        return (grad * b * (s + a * s * (1 - s)) if need_a else None, grad * a * s if need_b else None)


@program(calls=[
    lambda: (values(3).requires_grad_(), values(3, seed=1)), lambda: (values(3), values(3, seed=1).requires_grad_()),
    lambda: (values(3).requires_grad_(), values(3, seed=1).requires_grad_()), lambda: (values(3), values(3)),
], grad=True)  # fmt: skip
def gradients_needed_differ(a, b):
    out, gate = SwiGLU.apply(a, b)
    return out, gate, out.requires_grad, gate.requires_grad


class Log(Function):
    seen: list = []

    @staticmethod
    def forward(ctx, x, name):
        ctx.name = name
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        Log.seen.append((ctx.name, tuple(grad.shape)))
        return grad, None


@program(calls=LEAVES, grad=True)
def backward_with_effects(x):
    y = Log.apply(Log.apply(x, "first") * 2, "second")
    if y.requires_grad:
        y.sum().backward()
    return y.detach(), list(Log.seen)


@program(calls=LEAVES, grad=True)
def hooks_of_tensors(x):
    seen = []
    y = x * 2
    if y.requires_grad:
        handle = y.register_hook(lambda g: g * 10)
        y.register_hook(lambda g: seen.append(g.sum()))
        y.retain_grad()
        y.pow(2).sum().backward()
        handle.remove()
        return y.grad, x.grad, seen
    return y


NET = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
NORMS: dict = {}


def _keep(name):
    def hook(module, grad_input, grad_output):
        NORMS[name] = grad_output[0].norm()

    return hook


for _name, _module in NET.named_children():
    _module.register_full_backward_hook(_keep(_name))


@program(calls=ROWS, grad=True)
def backward_hooks_of_modules(x):
    NET.zero_grad()
    NET(x).square().mean().backward()
    return dict(NORMS), NET[0].weight.grad


CHECKED = seeded(lambda: nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.GELU()) for _ in range(3)]))


@program(calls=LEAVES, grad=True)
def layers_recomputed(x):
    out = x
    for layer in CHECKED:
        out = checkpoint(layer, out, use_reentrant=False)
    CHECKED.zero_grad()
    out.sum().backward()
    return out.detach(), x.grad, CHECKED[0][0].weight.grad


@program(calls=ROWS, grad=True)
def segments_recomputed(x):
    out = checkpoint_sequential(CHECKED, 2, x, use_reentrant=False, preserve_rng_state=True)
    return out.sum(), out


def _tail(x, scale=1.0, *, shift):
    return torch.sin(x) * scale + shift


@program(calls=LEAVES, grad=True)
def recomputed_with_keywords(x):
    out = checkpoint(_tail, x, 2.0, shift=x.mean(), use_reentrant=False)
    return out, out.requires_grad


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)

    def right_inverse(self, a):
        return a.triu()


SYMMETRIC = seeded(lambda: nn.Linear(3, 3))
parametrize.register_parametrization(SYMMETRIC, "weight", Symmetric())


@program(calls=ROWS, grad=True)
def symmetric_weight(x):
    out = SYMMETRIC(SYMMETRIC(x))
    SYMMETRIC.zero_grad()
    out.sum().backward()
    return (
        out.detach(),
        SYMMETRIC.parametrizations.weight.original.grad,
        parametrize.is_parametrized(SYMMETRIC, "weight"),
    )


NORMED = seeded(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))


@program(calls=ROWS, grad=True)
def weight_norm_trained(x):
    loss = NORMED(x).square().sum()
    grads = torch.autograd.grad(loss, list(NORMED.parameters()))
    with torch.no_grad():
        for p, g in zip(NORMED.parameters(), grads):
            p -= 0.01 * g
    return loss.detach(), NORMED.weight.detach()


@program(calls=ROWS)
def per_sample_norms(x):
    params = {name: p.detach() for name, p in NET.named_parameters()}

    def loss(params, sample):
        return functional_call(NET, params, (sample.unsqueeze(0),)).square().sum()

    grads = vmap(grad(loss), in_dims=(None, 0))(params, x)
    return torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)


@program(calls=ROWS)
def jacobians_three_ways(x):
    def f(v):
        return torch.stack([v.sin().sum(), v.prod(), (v * v.roll(1)).sum()])

    row = x[0]
    return jacrev(f)(row), jacfwd(f)(row), vmap(jacrev(f))(x), hessian(lambda v: v.pow(3).sum())(row)


@program(calls=ROWS)
def forward_and_reverse(x):
    out, tangent = jvp(lambda v: torch.tanh(v).sum(-1), (x,), (torch.ones_like(x),))
    value, pull = vjp(lambda v: (v.exp(), v.sum()), x)
    (back,) = pull((torch.ones_like(value[0]), torch.ones(())))
    return out, tangent, back


ENSEMBLE = [seeded(lambda: nn.Linear(3, 2), seed) for seed in range(3)]


@program(calls=ROWS)
def ensemble_mapped(x):
    params, buffers = stack_module_state(ENSEMBLE)
    base = copy.deepcopy(ENSEMBLE[0]).to("meta")

    def call(p, b, v):
        return functional_call(base, (p, b), (v,))

    return vmap(call, in_dims=(0, 0, None))(params, buffers, x).detach()


@program(calls=ROWS)
def hessian_vector_product(x):
    def f(v):
        return (v.sin() * v).sum()

    _, hv = jvp(grad(f), (x,), (torch.ones_like(x) * 0.5,))
    return hv, grad(lambda v: (grad(f)(v) * 0.5).sum())(x)


@program(calls=ROWS)
def mapped_over_randomness(x):
    def noisy(row):
        return row + torch.randn_like(row)

    return vmap(noisy, randomness="different")(x), vmap(noisy, randomness="same")(x)


@program(calls=ROWS)
def mapped_with_outputs_elsewhere(x):
    def f(a, b):
        return {"sum": a + b, "outer": torch.outer(a, b)}

    return vmap(f, in_dims=(0, None), out_dims={"sum": 1, "outer": 0})(x, x[0]), vmap(torch.dot, in_dims=1)(x, x)


@program(calls=LEAVES, grad=True)
def modes_mixed(x):
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
        with torch.set_grad_enabled(x.requires_grad):
            c = x * 4
    with torch.inference_mode():
        d = x * 5
        kind = d.is_inference()
    return a.requires_grad, b.requires_grad, c.requires_grad, kind, (b + c).sum()


@torch.no_grad()
def _statistics(x):
    return x.mean(), torch.is_grad_enabled()


@torch.enable_grad()
def _penalty(x):
    y = x.detach().requires_grad_()
    return torch.autograd.grad(y.pow(3).sum(), y)[0]


@program(calls=LEAVES, grad=True)
def decorated_modes(x):
    mean, enabled = _statistics(x)
    with torch.no_grad():
        slope = _penalty(x)
    return mean, enabled, slope, (x * mean).sum()


@program(calls=LEAVES, grad=True)
def autocast_inside_of_no_grad(x):
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        a = x @ x.T
        with torch.autocast("cpu", enabled=False):
            b = x @ x.T
        c = F.softmax(a, -1)
    return a.dtype, b.dtype, c.dtype, torch.is_autocast_enabled("cpu"), a.float(), b


@program(calls=LEAVES, grad=True)
def gradients_of_several(x):
    w = torch.ones(3, requires_grad=True)
    unused = torch.ones(3, requires_grad=True)
    y = (x * w).sum(0)
    grads = torch.autograd.grad([y, y.sum()], [w, unused], [torch.ones(3), None], allow_unused=True, retain_graph=True)
    again = torch.autograd.grad(y, w, torch.full((3,), 2.0), is_grads_batched=False)
    return grads, again


@program(calls=LEAVES, grad=True)
def backward_twice_refused(x):
    w = torch.ones(3, requires_grad=True)
    loss = (w.exp() * x).sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)[:60], w.grad
    return w.grad


@program(calls=LEAVES, grad=True)
def detached_parts(x):
    w = torch.full((3,), 0.5, requires_grad=True)
    y = x * w
    target = y.detach() + 1
    loss = (y - target).square().mean() + y.data.sum() * 0 + (y.detach() * w).sum()
    (g,) = torch.autograd.grad(loss, w)
    return g, target.requires_grad, y.is_leaf, target.is_leaf


@program(calls=ROWS, grad=True)
def functional_jacobian(x):
    jac = torch.autograd.functional.jacobian(lambda v: v.pow(2).sum(0), x)
    value, product = torch.autograd.functional.vhp(lambda v: v.pow(3).sum(), x, torch.ones_like(x))
    return jac, value, product


@program(calls=LEAVES, grad=True)
def saved_tensors_packed(x):
    packed = []

    def pack(t):
        packed.append(tuple(t.shape))
        return t.double()

    w = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.float()):
        loss = (x * w).sin().sum()
    loss.backward()
    return packed, w.grad


@program(calls=LEAVES, grad=True)
def parameters_made_and_trained_inside(x):
    layer = nn.Linear(3, 1)
    nn.init.constant_(layer.weight, 0.1)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = layer(x.detach()).square().mean()
        loss.backward()
        optimizer.step()
    return loss.detach(), layer.weight.detach()


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.inner.register_forward_pre_hook(self.before)
        self.inner.register_forward_hook(self.after, with_kwargs=True)
        self.trace = []

    def before(self, module, args):
        self.trace.append(("in", tuple(args[0].shape)))
        return (args[0] * 2,)

    def after(self, module, args, kwargs, output):
        self.trace.append(("out", sorted(kwargs)))
        return output + 1

    def forward(self, x):
        return self.inner(x)


WRAPPED = Wrapper(seeded(lambda: nn.Linear(3, 2)))


@program(calls=ROWS, grad=True)
def hooks_that_are_methods(x):
    return WRAPPED(x).sum(), len(WRAPPED.trace), WRAPPED.trace[-2:]


@program(calls=ROWS, grad=True)
def activations_collected(x):
    kept = {}
    handles = [
        m.register_forward_hook(lambda m, a, o, n=n: kept.__setitem__(n, o)) for n, m in NET.named_modules() if n
    ]
    with contextlib.ExitStack() as stack:
        for handle in handles:
            stack.callback(handle.remove)
        out = NET(x)
    return {n: tuple(o.shape) for n, o in kept.items()}, kept["1"].mean() + out.mean(), len(NET[0]._forward_hooks)


@program(calls=ROWS, grad=True)
def weights_perturbed_for_a_moment(x):
    saved = [p.detach().clone() for p in NET.parameters()]
    with torch.no_grad():
        for p in NET.parameters():
            p.add_(torch.randn_like(p), alpha=0.1)
    noisy = NET(x)
    with torch.no_grad():
        for p, s in zip(NET.parameters(), saved):
            p.copy_(s)
    return noisy.detach() - NET(x).detach()


@program(calls=ROWS, grad=True)
def gradients_as_one_vector(x):
    loss = functools.reduce(torch.add, (NET(x * k).pow(2).mean() for k in (1, 2)))
    grads = torch.autograd.grad(loss, list(NET.parameters()))
    flat = nn.utils.parameters_to_vector(grads)
    weights = nn.utils.parameters_to_vector(NET.parameters()).detach()
    return flat @ weights, flat.norm()
