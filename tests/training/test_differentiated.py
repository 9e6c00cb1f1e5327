"""Results of compiled functions that require grad: everything that autograd shows of them is eager's."""

from __future__ import annotations

import copy
import dataclasses
import gc
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import lampwork
from lampwork.runtime.backend import lampwork_backend
from tests.training.steps import OPTIONS, close, same_module, tensors, train, whole


def leaf(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * scale).requires_grad_()


def same(function, make, use=None, calls=2, fallbacks=0, breaks=0, **options):
    """Calls `function` as written and compiled on inputs that `make()` returns, then `use(results, inputs)`.

    Results, what `use` returns, and gradients of the inputs that are leaves must be eager's. Returns the statistics.
    """

    def run(each):
        torch.manual_seed(3)
        inputs = make()
        results = each(*inputs)
        made = use(results, inputs) if use is not None else backward(results)
        return tensors(results), made, inputs

    compiled = lampwork.compile(function, options={**OPTIONS, **options})
    for call in range(calls):
        expected, actual = run(function), run(compiled)
        for kind, left, right in zip(("result", "made", "input"), actual, expected):
            left, right = tensors(left), tensors(right)
            assert len(left) == len(right)
            for number, (one, other) in enumerate(zip(left, right)):
                close(one, other, f"{kind} {number} of call {call}")
                if one.is_leaf:
                    close(one.grad, other.grad, f"gradient of {kind} {number} of call {call}")
    stats = lampwork.stats(compiled)
    assert sum(each.count for each in stats["fallbacks"]) == fallbacks * calls, stats["fallbacks"]
    assert len(stats["breaks"]) == breaks, stats["breaks"]
    return stats


def backward(results):
    """Gradients of all results together, with directions that tell elements apart."""
    found = [each for each in tensors(results) if each.requires_grad]
    torch.autograd.backward(found, [torch.arange(1.0, each.numel() + 1).reshape(each.shape) / 7 for each in found])


# Results --------------------------------------------------------------------------------------------------------------


def test_one_result():
    same(lambda x, w: (x * w).tanh(), lambda: (torch.ones(3, 4), leaf(3, 4)))


def test_results_in_containers_and_numbers():
    @dataclasses.dataclass
    class Found:
        loss: torch.Tensor
        parts: dict

    def program(x, w):
        h = torch.relu(x @ w)
        return Found(h.sum(), {"h": h, "n": 3, "mask": h > 0, "index": h.argmax(1)}), [h.mean(), (h.detach(), None)]

    same(program, lambda: (leaf(3, 4), leaf(4, 5, seed=1)))


def test_one_of_several_results_is_used():
    """Inputs that only unused results depend on have no gradient, instead of zeros."""

    def use(results, inputs):
        results[1].sum().backward()

    def program(x, v, w):
        return (x * v).sum(), x * w, v.exp()

    same(program, lambda: (leaf(3), leaf(3, seed=1), leaf(3, seed=2)), use)


def test_a_tangent_of_other_strides():
    def use(results, inputs):
        results.backward(torch.ones(4, 3).t())
        results.sum().backward(inputs=[inputs[0]])

    def make():
        return leaf(3, 4), leaf(3, 4, seed=1)

    def program(x, w):
        return (x * w).sin()

    with pytest.raises(RuntimeError, match="second time"):
        same(program, make, use)
    same(program, make, lambda results, inputs: results.backward(torch.ones(4, 3).t()))
    same(program, make, lambda results, inputs: results.sum().backward())
    same(program, make, lambda results, inputs: results[:, 0].sum().backward())


def test_retained_graph_and_accumulation():
    def use(results, inputs):
        results.sum().backward(retain_graph=True)
        results.pow(2).sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            results.sum().backward()

    same(lambda x, w: (x * w).sin(), lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)


def test_inputs_with_a_history():
    def make():
        x = leaf(3, 4)
        return x, (x * 2).exp(), x.t()

    same(lambda x, y, z: (x * y).sum() + (y @ z).sin(), make)


def test_gradients_by_autograd_grad():
    def use(results, inputs):
        return torch.autograd.grad(results.sum(), inputs[1])

    same(lambda x, w: (x * w).sin(), lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)


def test_hooks_of_outside_tensors():
    seen = []

    def use(results, inputs):
        inputs[0].register_hook(lambda gradient: gradient * 2)
        inputs[1].register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad.sum().item()))
        results.register_hook(lambda gradient: gradient + 1)
        results.retain_grad()
        results.sum().backward()
        return results.grad

    same(lambda x, w: (x * w).sin(), lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)
    assert len(seen) == 4 and seen[0] == pytest.approx(seen[1])


def test_detached_parts():
    def program(x, w):
        y = x * w
        with torch.no_grad():
            scale = y.abs().max()
        return y / scale + (y.round() - y).detach(), y.detach(), scale

    same(program, lambda: (leaf(3, 4), leaf(3, 4, seed=1)))


def test_grad_enabled_inside_a_call_without():
    def program(x, w):
        with torch.enable_grad():
            return (x * w).sin()

    compiled = lampwork.compile(program, options=OPTIONS)
    w = leaf(3)
    with torch.no_grad():
        result = compiled(torch.ones(3), w)
    result.sum().backward()
    close(w.grad, torch.cos(w.detach()))
    whole(lampwork.stats(compiled))


def test_modes_have_entries_of_their_own():
    model = nn.Linear(3, 3)
    compiled = lampwork.compile(model, options=OPTIONS)
    x = torch.ones(2, 3)
    assert compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        assert compiled(x).is_inference()
    assert lampwork.stats(compiled)["entries"] == 3
    assert compiled(x).requires_grad and not lampwork.stats(compiled)["fallbacks"]


# Memory that is shared ------------------------------------------------------------------------------------------------


def test_views_of_inputs():
    def use(results, inputs):
        assert results[0]._base is inputs[0] and results[1]._base is inputs[0]
        assert results[0].data_ptr() == inputs[0].data_ptr()
        backward(results)

    same(lambda x, w: (x.view(-1), x.t()[1:], (x * w).sum()), lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)


def test_views_of_inputs_alone():
    same(lambda x: x.reshape(2, 6)[0], lambda: (leaf(3, 4),))


def test_an_input_as_result():
    def use(results, inputs):
        assert results[0] is inputs[0]
        backward(results)

    same(lambda x, w: (x, x * w), lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)


def test_results_that_are_views_of_each_other():
    def use(results, inputs):
        y, row, transposed, detached = results
        assert row._base is y and transposed._base is y
        assert detached.data_ptr() == y.data_ptr() and not detached.requires_grad
        y.mul_(2)  # seen by the views, and by their history
        backward((row.exp(), transposed))

    def program(x, w):
        y = x * w
        return y, y[0], y.t(), y.detach()

    same(program, lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)


def test_views_whose_base_stays_inside():
    def program(x, w):
        y = x * w + 1
        return y[0], y[1:]

    def use(results, inputs):
        assert results[0]._base is results[1]._base is not None
        backward(results)

    same(program, lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)


def test_pieces():
    same(lambda x, w: (x @ w).chunk(3, -1), lambda: (leaf(2, 4), leaf(4, 6, seed=1)))
    same(lambda x, w: (x @ w).chunk(3, -1)[1], lambda: (leaf(2, 4), leaf(4, 6, seed=1)))


def test_results_are_written_to_afterwards():
    def use(results, inputs):
        results[0].add_(1)
        results[1].mul_(2)
        backward(results)

    same(lambda x, w: ((x * w).sum(0), x + w), lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)


def test_writing_to_what_the_backward_needs_is_noticed():
    def use(results, inputs):
        results.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            results.sum().backward()

    same(lambda x, w: (x * w).exp(), lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)

    def use_input(results, inputs):
        with torch.no_grad():
            inputs[1].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            results.sum().backward()

    same(lambda x, w: x * w, lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use_input)


def test_writing_to_what_eager_does_not_need():
    """A result that is not read by any derivative is not saved, however cheap that would be."""

    def program(x, w):
        y = x @ w + 1
        return y, (y + 1).cos()

    def use(results, inputs):
        with torch.no_grad():
            results[0].add_(1)
        results[1].sum().backward()

    same(program, lambda: (leaf(3, 4), leaf(4, 4, seed=1)), use)


def test_inputs_that_share_memory():
    def make():
        x = leaf(4, 4)
        return x, x[0], x.detach()

    same(lambda x, y, z: (x * y).sin() + z, make)


def test_gradients_share_no_memory():
    def use(results, inputs):
        results.backward(torch.ones(3, 4))
        inputs[0].grad.add_(1)
        return [each.grad for each in inputs]

    same(lambda x, y: x + y, lambda: (leaf(3, 4), leaf(3, 4, seed=1)), use)
    same(lambda x, y: x.t() + y.t(), lambda: (leaf(4, 3), leaf(4, 3, seed=1)), use)


# Inputs that are written ----------------------------------------------------------------------------------------------


def test_buffers_are_written():
    def program(x, w, total):
        y = x * w
        total.add_(y.detach().sum(0))
        return y.sin()

    same(program, lambda: (torch.ones(3, 4), leaf(3, 4, seed=1), torch.zeros(4)))


def test_an_input_gets_a_history():
    """As in eager, the tensor that was written requires grad from then on."""

    def program(x, w):
        x.mul_(w)
        return x.sum()

    def use(results, inputs):
        assert inputs[0].grad_fn is not None
        (results + inputs[0].exp().sum()).backward()

    same(program, lambda: (torch.ones(3, 4), leaf(3, 4, seed=1)), use)


def test_an_input_with_a_history_gets_another():
    def make():
        x = leaf(3, 4)
        return x * 2, leaf(3, 4, seed=1), x

    def program(y, w, x):
        y.mul_(w)
        return y[0] * x[1]

    def use(results, inputs):
        backward((results, inputs[0]))

    same(program, make, use)


def test_an_input_that_is_a_view_is_written():
    """Its base has another history, too: eager writes."""

    def make():
        x = leaf(3, 4)
        base = x * 2
        return base[0], leaf(4, seed=1), base, x

    def program(row, w):
        row.mul_(w)
        return row.sin()

    def use(results, inputs):
        backward((results, inputs[2]))

    same(lambda row, w, base, x: program(row, w), make, use, fallbacks=1)


def test_a_write_without_grad():
    def program(x, w):
        y = x * w
        with torch.no_grad():
            w.add_(1)
        return y, w * 2

    def use(results, inputs):
        results[1].sum().backward()

    same(program, lambda: (torch.ones(3, 4), leaf(3, 4, seed=1)), use)


# Around the call ------------------------------------------------------------------------------------------------------


def test_hooks_on_saved_tensors():
    def program(x, w):
        return (x @ w).sin()

    packed = {}
    for name, each in (("eager", program), ("compiled", lampwork.compile(program, options=OPTIONS))):
        shapes = []
        x, w = leaf(3, 4), leaf(4, 5, seed=1)

        def pack(tensor, shapes=shapes):
            shapes.append(tuple(tensor.shape))
            return tensor.clone()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = each(x, w)
        result.sum().backward()
        packed[name] = (sorted(shapes), x.grad, w.grad)
    assert packed["compiled"][0] == packed["eager"][0] == [(3, 4), (3, 5), (4, 5)]
    close(packed["compiled"][1], packed["eager"][1])


def test_hooks_that_hand_back_other_strides():
    def program(x, w):
        return (x.t() @ w).sin().t().exp()

    def run(each):
        x, w = leaf(4, 3), leaf(4, 5, seed=1)
        turned = w.t().detach().contiguous().t().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.contiguous().clone(), lambda t: t):
            result = each(x, turned)
        result.sum().backward()
        return x.grad, turned.grad

    for one, other in zip(run(lampwork.compile(program, options=OPTIONS)), run(program)):
        close(one, other)


def test_memory_is_freed_as_in_eager():
    """Nothing is in a cycle; what was saved goes with the backward pass, or with the results."""
    gc.collect()
    gc.disable()
    try:
        for each in (
            lambda x, w: (x @ w).sin().exp(),
            lampwork.compile(lambda x, w: (x @ w).sin().exp(), options=OPTIONS),
        ):
            alive = []

            def pack(tensor, alive=alive):
                copy = tensor.clone()
                alive.append(weakref.ref(copy))
                return copy

            for ends_by_backward in (True, False):
                alive.clear()
                x, w = leaf(8, 8), leaf(8, 8, seed=1)
                with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                    result = each(x, w)
                mine = weakref.ref(result)
                if ends_by_backward:
                    result.sum().backward()
                    assert alive and not any(reference() is not None for reference in alive)
                del result
                assert mine() is None and not any(reference() is not None for reference in alive)
    finally:
        gc.enable()


def test_anomaly_mode():
    compiled = lampwork.compile(lambda x: x.sqrt().sum(), options=OPTIONS)
    x = torch.zeros(3, requires_grad=True)
    with pytest.warns(UserWarning), torch.autograd.detect_anomaly():
        loss = compiled(x) * 0
        with pytest.raises(RuntimeError, match="nan"):
            loss.backward()


def test_threads():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    compiled = lampwork.compile(model, options=OPTIONS)
    xs = [torch.randn(4, 8, generator=torch.Generator().manual_seed(n)) for n in range(4)]
    expected = [torch.autograd.grad(model(x).sin().sum(), list(model.parameters())) for x in xs]
    compiled(xs[0])
    wrong = []

    def run(x, wanted):
        for _ in range(20):
            found = torch.autograd.grad(compiled(x).sin().sum(), list(model.parameters()))
            if not all(torch.allclose(one, other, atol=1e-5) for one, other in zip(found, wanted)):
                wrong.append(x)

    threads = [threading.Thread(target=run, args=each) for each in zip(xs, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_autocast_outside_and_inside():
    def inside(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ w).float().sin()

    make = lambda: (leaf(8, 8), leaf(8, 8, seed=1))
    same(inside, make)
    with torch.autocast("cpu", torch.bfloat16):
        same(lambda x, w: x @ w, make, lambda results, inputs: results.float().sum().backward())


def test_regions_between_breaks():
    def program(x, w):
        y = (x * w).sin()
        torch._dynamo.graph_break()
        z = y @ w.t()
        if z.sum() > 0:
            return z.exp(), y
        return z.cos(), y

    same(program, lambda: (leaf(3, 4), leaf(3, 4, seed=1)), breaks=1)


def test_sizes_that_vary():
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    compiled = lampwork.compile(model, options=OPTIONS)
    for rows in (3, 4, 5, 9, 17):
        x = leaf(rows, 6, seed=rows)
        y = x.detach().clone().requires_grad_()
        grads = [torch.autograd.grad(each(v).pow(2).sum(), [v, *model.parameters()])
                 for each, v in ((compiled, x), (model, y))]  # fmt: skip
        for one, other in zip(*grads):
            close(one, other, f"{rows} rows")
    stats = lampwork.stats(compiled)
    assert stats["entries"] == 2 and not stats["fallbacks"], stats


def test_marked_sizes():
    def program(x, w):
        h = x.view(x.shape[0] * 2, -1) @ w
        return h.softmax(-1), h[: x.shape[0]]

    for rows in (4, 6):
        stats = same(program, lambda: (leaf(rows, 8), leaf(4, 5, seed=1)))
        assert not stats["fallbacks"]
    compiled = lampwork.compile(program, dynamic=True, options=OPTIONS)
    for rows in (4, 6, 7):
        x, w = leaf(rows, 8), leaf(4, 5, seed=1)
        y, v = leaf(rows, 8), leaf(4, 5, seed=1)
        backward(compiled(x, w))
        backward(program(y, v))
        close(x.grad, y.grad), close(w.grad, v.grad)
    assert lampwork.stats(compiled)["entries"] == 1


def test_warm_start(tmp_path):
    from lampwork.config import environment

    before = environment.cache, environment.cache_dir
    object.__setattr__(environment, "cache", True)
    object.__setattr__(environment, "cache_dir", str(tmp_path))
    try:
        for run in range(2):
            compiled = lampwork.compile(_stored)
            x, w = leaf(3, 4), leaf(4, 5, seed=1)
            compiled(x, w).sum().backward()
            y, v = leaf(3, 4), leaf(4, 5, seed=1)
            _stored(y, v).sum().backward()
            close(x.grad, y.grad), close(w.grad, v.grad)
            stats = lampwork.stats(compiled)
            assert stats["cache_hits"] == run and stats["captures"] == 1 - run, stats["cache_notes"]
    finally:
        object.__setattr__(environment, "cache", before[0])
        object.__setattr__(environment, "cache_dir", before[1])


def _stored(x, w):
    return F.gelu(x @ w)


# Modules --------------------------------------------------------------------------------------------------------------


def test_batch_norm_in_training():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    model(torch.ones(2, 3, 6, 6))
    whole(train(model, (leaf(2, 3, 6, 6).detach(),), lambda y: y.pow(2).sum()))


def test_dropout_draws_as_eager():
    model = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 2))
    whole(train(model, (leaf(4, 6).detach(),), lambda y: y.pow(2).sum()))


def test_losses_and_embeddings():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 8, padding_idx=0)
            self.out = nn.Linear(8, 11, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, tokens):
            return F.cross_entropy(self.out(self.embed(tokens)).flatten(0, 1), tokens.flatten(), label_smoothing=0.1)

    whole(train(Model(), (torch.randint(0, 11, (3, 5)),), lambda loss: loss))


def test_frozen_parameters():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    model[0].weight.requires_grad_(False)
    whole(train(model, (leaf(4, 6).detach(),), lambda y: y.pow(2).sum()))


def test_parameters_of_a_head_that_is_not_used():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 3)

        def forward(self, x):
            h = self.body(x).relu()
            return self.one(h), self.two(h)

    whole(train(Heads(), (torch.ones(2, 4),), lambda results: results[0].sum()))


def test_checkpointed_blocks():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return x

    model, x = Model(), leaf(64, 4).detach()
    whole(train(model, (x,), lambda y: y.sum()))
    compiled = lampwork.compile(model, options=OPTIONS)
    for each in (model, compiled):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            each(x)
    activations = [each for each in kept if each.shape == (64, 4)]
    assert len(activations) == 3  # of each block its input


def test_checkpointed_functions_that_write():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return checkpoint(self.inner, x * 2, use_reentrant=False).sin()

    stats = train(Model(), (leaf(6, 4).detach(),), lambda y: y.pow(2).sum())
    assert not stats["fallbacks"] and len(stats["breaks"]) == 1


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.exp() * factor

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x * ctx.factor, None


class Written(torch.autograd.Function):
    """Writes its argument in place; separate set-up; materialises nothing."""

    @staticmethod
    def forward(x, y):
        return x.mul_(2), y.abs(), y > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[2])

    @staticmethod
    def backward(ctx, doubled, absolute, mask):
        (mask,) = ctx.saved_tensors
        factor = torch.where(mask, 1.0, -1.0)
        return None if doubled is None else doubled * 2, None if absolute is None else absolute * factor


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient.clamp(-1, 1)


def test_functions_with_a_backward_of_their_own():
    make = lambda: (leaf(3, 4), leaf(3, 4, seed=1))
    stats = same(lambda x, w: (Scaled.apply(x * w, 3.0) + x).sin(), make)
    assert stats["captures"] == 1
    same(lambda x, w: Straight.apply(x * 3) * w, make)
    same(lambda x, w: Written.apply(x * 1, w), make, lambda results, inputs: backward(results[:2]))
    same(lambda x, w: Written.apply(x * 1, w), make, lambda results, inputs: backward(results[:1]))


COUNT = []


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        COUNT.append(1)
        return gradient * 2


def test_a_backward_that_does_more_than_compute():
    """Eager calls it between compiled parts, once for each backward pass; that is a break, not a fall-back."""
    COUNT.clear()
    stats = same(lambda x: Counting.apply(x).sin(), lambda: (leaf(3),), breaks=1)
    assert len(COUNT) == 4
    assert {each.diagnostic.id for each in stats["breaks"]} == {"backward-effect"}


def test_hooks_on_tensors_inside():
    def program(x, w):
        y = x * w
        y.register_hook(lambda gradient: gradient * 3)
        return y.sin()

    same(program, lambda: (leaf(3, 4), leaf(3, 4, seed=1)))


def test_module_hooks():
    seen = []

    def make():
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
        model[1].register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].sum().item()))
        return model

    torch.manual_seed(0)
    eager = make()
    torch.manual_seed(0)
    other = make()
    compiled = lampwork.compile(other, options=OPTIONS)
    x = leaf(3, 4).detach()
    for each in (eager, compiled):
        each(x).pow(2).sum().backward()
    same_module(other, eager)
    assert len(seen) == 2 and seen[0] == pytest.approx(seen[1], rel=1e-4)


# Other front ends -----------------------------------------------------------------------------------------------------


def test_as_a_back_end_of_torch_compile():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.BatchNorm1d(8), nn.Linear(8, 2))
    eager = copy.deepcopy(model)
    compiled = torch.compile(model, backend=lampwork_backend)
    x = leaf(6, 4).detach()
    for _ in range(2):
        for each in (eager, compiled):
            each(x).pow(2).sum().backward()
        same_module(model, eager)


def test_numbers_beside_results():
    def program(x, w):
        loss = (x * w).pow(2).mean()
        return loss, loss.item(), {"n": loss.detach().sqrt().item()}

    stats = same(program, lambda: (leaf(3, 4), leaf(3, 4, seed=1)))
    assert stats["captures"] == 1


def test_results_stored_in_objects_of_the_caller():
    class Log:
        pass

    def program(log, x, w):
        log.hidden = (x * w).sin()
        return log.hidden.sum()

    def use(results, inputs):
        (results + inputs[0].hidden.exp().sum()).backward()

    same(program, lambda: (Log(), leaf(3, 4), leaf(3, 4, seed=1)), use)


def test_optimizer_and_clipping_outside():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.SiLU(), nn.Linear(16, 2))
    eager = copy.deepcopy(model)
    compiled = lampwork.compile(model, options=OPTIONS)
    for each, owner in ((compiled, model), (eager, eager)):
        optimizer = torch.optim.AdamW(owner.parameters(), lr=0.01)
        for step in range(5):
            for part in range(2):  # gradients of two batches add up
                loss = each(leaf(8, 4, seed=2 * step + part).detach()).pow(2).mean()
                loss.backward()
            torch.nn.utils.clip_grad_norm_(owner.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    same_module(model, eager)
    whole(lampwork.stats(compiled))
