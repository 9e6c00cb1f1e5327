"""Gradients through `torch.cond`, `scan`, `map` and `while_loop`: those of what each stands for."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils._pytree import tree_leaves

import lampwork
from tests.python import test_control_flow as programs
from tests.python.test_control_flow import MEANT, TORCH, same, whole

W, B = torch.randn(3, 3, generator=torch.Generator().manual_seed(1)) * 0.5, torch.tensor([0.1, -0.2, 0.3])
ROWS = torch.linspace(-1, 1, 192).view(64, 3)


def branches(flow, x, w, b):
    return flow.cond(x.sum() > 0, lambda x: (x @ w).sin() + b, lambda x: (x * b).cos() @ w, (x,))


def unused_in_one_branch(flow, x, w, b):
    return flow.cond(x.sum() > 0, lambda x, w: x * 2, lambda x, w: w.sum() * torch.ones(4, 3), (x, w)) + b


def one_that_is_constant(flow, x, w, b):
    return flow.cond(x.sum() > 0, lambda x: torch.ones(3), lambda x: x.sum(0), (x,))


def an_index_in_a_branch(flow, x, w, b):
    return flow.cond(x.sum() > 0, lambda x: x[torch.tensor([2, 0, 2])] @ w, lambda x: x[:3] * b, (x,))


def gradients_off_in_a_branch(flow, x, w, b):
    def yes(x):
        with torch.no_grad():
            scale = x.norm()
        return x @ w / scale

    return flow.cond(x.sum() > 0, yes, lambda x: x.detach() * b, (x,))


def branches_in_branches(flow, x, w, b):
    inner = lambda x: flow.cond(x.max() > 1, lambda x: x @ w, lambda x: x * b, (x,))
    return flow.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))


def rows_few(flow, x, w, b):
    return flow.scan(lambda c, y: (torch.tanh(c @ w + y), c * y + b), x[0], x)


def rows_many(flow, x, w, b):
    return flow.scan(lambda c, y: (torch.tanh(c @ w + y), c * y + b), x[0], ROWS * x.mean())


def rows_in_reverse(flow, x, w, b):
    return flow.scan(lambda c, y: (torch.tanh(c @ w + y), c * y), b * 1, ROWS * x.mean(), reverse=True)


def only_the_rows(flow, x, w, b):
    return flow.scan(lambda c, y: (torch.tanh(c * 0.5 + y), c * y), torch.zeros(3), ROWS * x.mean() * b @ w)


def only_what_all_turns_read(flow, x, w, b):
    return flow.scan(lambda c, y: (torch.tanh(c @ w + b), c * y), x.detach()[0], ROWS)


def counts_beside(flow, x, w, b):
    turn = lambda c, y: ((torch.tanh(c[0] @ w + y), c[1] + 1), c[0] * b)
    (state, count), rows = flow.scan(turn, (x[0], torch.zeros((), dtype=torch.int64)), ROWS * x.mean())
    return state, rows, count


def branch_in_a_loop(flow, x, w, b):
    def turn(c, y):
        return flow.cond(y.sum() > 0, lambda c: torch.tanh(c @ w), lambda c: c * b, (c,)), c * y

    return flow.scan(turn, x[0], ROWS * x.mean())


def maps_few(flow, x, w, b):
    return flow.map(lambda a, b: (a.sin() @ w, a * b), x, b)


def maps_many(flow, x, w, b):
    return flow.map(lambda a: a.sin() @ w + b, ROWS * x.mean())


def few_turns(flow, x, w, b):
    return flow.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, torch.tanh(x @ w) + b), (torch.tensor(0), x))[1]


def many_turns(flow, x, w, b):
    turn = lambda i, x: (i + 1, torch.tanh(x @ w) + b)
    return flow.while_loop(lambda i, x: i < 50, turn, (torch.tensor(0), x))[1]


def as_often_as_contents_say(flow, x, w, b):
    """Not once where the sum is positive."""
    turn = lambda x, y: (x.abs() * 1.2 + 0.1, torch.tanh(y @ w + x))
    return flow.while_loop(lambda x, y: x.sum() < 0.5, turn, (x * b.sum(), x * 1))


def loop_after_loop(flow, x, w, b):
    (x,) = flow.while_loop(lambda x: x.norm() < 9, lambda x: (x * 1.3,), (x,))
    return flow.while_loop(lambda y: y.norm() > 1, lambda y: (torch.tanh(y @ w * 0.5) + b * 0.1,), (x,))


ALL = [
    branches, unused_in_one_branch, one_that_is_constant, an_index_in_a_branch, gradients_off_in_a_branch,
    branches_in_branches, rows_few, rows_many, rows_in_reverse, only_the_rows, only_what_all_turns_read, counts_beside,
    branch_in_a_loop, maps_few, maps_many, few_turns, many_turns,
    as_often_as_contents_say, loop_after_loop,
]  # fmt: skip


def gradients(program, x):
    """The results, and gradients of the three."""
    leaves = [each.clone().requires_grad_() for each in (x, W, B)]
    results = program(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    loss = sum((each * torch.linspace(1, 2, each.numel()).view(each.shape)).sum() for each in results
               if each.dtype.is_floating_point)  # fmt: skip
    if loss.requires_grad:
        loss.backward()
    return [each.detach() for each in results], list(map(gradient_of, leaves))


def gradient_of(leaf):
    """Zeros where there is none: an operator that takes functions gives them for what one of these does not read."""
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


@pytest.mark.parametrize("program", ALL, ids=lambda each: each.__name__)
def test_gradients(program):
    compiled = lampwork.compile(lambda *each: program(TORCH, *each), options={"cache": False})
    for x in (*programs.inputs(), *programs.inputs()):
        found, expected = gradients(compiled, x), gradients(lambda *each: program(MEANT, *each), x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    whole(compiled)


def test_results_require_grad_whichever_branch_is_taken():
    """As in eager, where the operator has one history."""
    program = lambda x: torch.cond(
        x.sum() > 0, lambda x: (torch.ones(3), x.argmax()), lambda x: (x[0] * 1, x.argmin()), (x,)
    )
    compiled = lampwork.compile(program, options={"cache": False})
    for x in programs.inputs():
        found, index = compiled(x.clone().requires_grad_())
        assert found.requires_grad and not index.requires_grad


def test_a_closure_keeps_its_gradient_where_the_call_is_left_to_eager():
    """The operator alone, called natively, knows nothing of what functions read from closures."""
    w = W.clone().requires_grad_()

    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x @ w + torch.zeros(3).bernoulli_(0.0), lambda x: x * 2, (x,))

    compiled = lampwork.compile(program, options={"cache": False})
    x = programs.inputs()[0]
    compiled(x).sum().backward()
    torch.testing.assert_close(w.grad, x.sum(0)[:, None].expand(3, 3))
    assert "[control-flow]" in str(lampwork.stats(compiled)["breaks"][0])


@pytest.mark.parametrize("program", [branches, rows_few, rows_many, branch_in_a_loop], ids=lambda each: each.__name__)
def test_second_derivatives_inside(program):
    def penalty(flow, x, w, b):
        results = program(flow, x, w, b)
        first = results if isinstance(results, torch.Tensor) else results[0]
        (gradient,) = torch.autograd.grad(first.sum(), w, create_graph=True)
        return gradient.square().sum()

    compiled = lampwork.compile(lambda *each: penalty(TORCH, *each), options={"cache": False})
    x = programs.inputs()[0]
    found, expected = gradients(compiled, x), gradients(lambda *each: penalty(MEANT, *each), x)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    whole(compiled)


def test_a_whole_step():
    """Backward pass and optimizer in the same graph as the branch and the loop."""

    def made(flow):
        torch.manual_seed(1)
        model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            h = flow.cond(x.sum() > 0, model[0], lambda x: model[0](x).sin(), (x,))
            state, _ = flow.scan(lambda c, y: (torch.tanh(model[1](c) + y), c * 1), h[0], ROWS)
            loss = state.square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, step

    (one, step), (other, expected) = made(TORCH), made(MEANT)
    compiled = lampwork.compile(step, options={"cache": False})
    for x in (*programs.inputs(), *programs.inputs()):
        torch.testing.assert_close(compiled(x), expected(x), rtol=1e-4, atol=1e-5)
    for left, right in zip(one.parameters(), other.parameters()):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_eagers_own_gradients():
    """What eager says of the operators themselves."""
    for program in (branches, rows_few):
        compiled = lampwork.compile(lambda *each, program=program: program(TORCH, *each), options={"cache": False})
        for x in programs.inputs():
            torch._dynamo.reset()
            expected = gradients(lambda *each, program=program: program(TORCH, *each), x)
            torch.testing.assert_close(gradients(compiled, x), expected, rtol=1e-4, atol=1e-5)


def _without_gradients(y, w):
    with torch.no_grad():
        return y @ w


#: What results depend on, and on what they do not: each has one history, as in eager.
DEPENDING = {
    "a closure without gradients": lambda x, w, b: scan(lambda c, y: (c + _without_gradients(y, w), c * y), b, x),
    "rows that are not read": lambda x, w, b: scan(lambda c, y: (c * 0.5, c * 2), b, x),
    "a state that is not read": lambda x, w, b: scan(lambda c, y: (y * 0.5, torch.ones(2)), b, x),
    "rows of constants": lambda x, w, b: map_rows(lambda y: (y.sin(), torch.ones(2), _without_gradients(y, w)), x),
    "turns": lambda x, w, b: while_loop(
        lambda n, x, y: n < 3, lambda n, x, y: (n + 1, torch.tanh(x * b), torch.ones(3)), (torch.tensor(0), x, w[0] * 1)
    )[1:],
}


@pytest.mark.parametrize("name", DEPENDING)
def test_short_loops_have_the_history_of_one_operator(name):
    """None, zeros or numbers, of each result and input; the loops are recorded turn by turn."""
    told = []
    program = DEPENDING[name]
    for run in (program, lampwork.compile(program, options={"cache": False})):
        torch.manual_seed(0)
        leaves = [torch.randn(*shape, requires_grad=True) for shape in ((3, 3), (3, 3), (3,))]
        results = tree_leaves(run(*leaves))
        assert all(each.requires_grad for each in results)
        told += [[torch.autograd.grad(each.sum(), leaves, allow_unused=True, retain_graph=True) for each in results]]
    for expected, found in zip(*told, strict=True):
        assert [each is None for each in expected] == [each is None for each in found]
        torch.testing.assert_close(
            [each for each in found if each is not None], [each for each in expected if each is not None]
        )


def test_gradients_flow_through_a_short_loop_in_a_long_one():
    """Results that depend on some of what they might."""

    def turn(flow, c, y, w):
        state, rows = flow.scan(lambda c, z: (z * w, torch.tanh(c + z)), c, torch.stack([y, y * 2, c]))
        return state + rows.sum(0), rows.sum(0)

    program = lambda flow, x, w, b: flow.scan(lambda c, y: turn(flow, c, y, w[0]), b, torch.cat([x] * 20))
    compiled = lampwork.compile(lambda *each: program(TORCH, *each), options={"cache": False})
    x = programs.inputs()[0]
    found, expected = gradients(compiled, x), gradients(lambda *each: program(MEANT, *each), x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    whole(compiled)


def test_a_branch_that_is_not_taken_adds_no_nan():
    """Both are computed, and so are both derivatives."""

    def program(x, w):
        return torch.cond(x.sum() > 0, lambda x: x.sqrt() / w, lambda x: x * w, (x,)).sum()

    compiled = lampwork.compile(program, options={"cache": False})
    x, w = torch.full((3,), -4.0, requires_grad=True), torch.zeros(3, requires_grad=True)
    compiled(x, w).backward()
    assert x.grad.tolist() == [0, 0, 0] and w.grad.tolist() == [-4, -4, -4]
    entry = whole(compiled)
    assert not entry.artifact.bodies and not entry.artifact.backward.artifact.bodies


def test_what_costs_is_computed_in_one_branch_alone():
    program = lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    for count, bodies in ((100, 0), (1 << 20, 2)):
        compiled = lampwork.compile(program, options={"cache": False})
        x = torch.ones(count)
        torch.testing.assert_close(compiled(x), x.sin())
        assert len(whole(compiled).artifact.bodies) == bodies


def test_results_are_as_without_gradients():
    compiled = lampwork.compile(lambda *each: rows_many(TORCH, *each), options={"cache": False})
    x = programs.inputs()[0]
    with torch.no_grad():
        same(compiled(x, W, B), rows_many(MEANT, x, W, B))


def test_gradients_taken_in_a_loop():
    """They are part of the loop; those that are differentiated again are left to eager."""

    def program(flow, again, x):
        def turn(c, y):
            z = (c * y).detach().requires_grad_()
            (gradient,) = torch.autograd.grad((z**3).sum(), z, create_graph=again)
            return torch.tanh(c + gradient), y * 1

        return flow.scan(turn, x[0], ROWS)[0]

    x = programs.inputs()[0]
    compiled = lampwork.compile(lambda x: program(TORCH, False, x), options={"cache": False})
    leaf, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(leaf).sum().backward()
    program(MEANT, False, other).sum().backward()
    torch.testing.assert_close(leaf.grad, other.grad)


SIZED = {
    "branches": lambda flow, x, w: flow.cond(x.sum() > 0, lambda x: (x @ w).sin(), lambda x: x.cos() @ w, (x,)),
    "picked": lambda flow, x, w: flow.cond(x.sum() > 0, lambda x: x.sin() * w[0], lambda x: x.cos(), (x,)),
    "a part": lambda flow, x, w: flow.cond(x.sum() > 0, lambda x: x[1:] @ w, lambda x: x[:-1] * 2, (x,)),
    "rows": lambda flow, x, w: flow.scan(lambda c, y: (torch.tanh(c @ w + y), c * y), w[0], x)[1],
    "columns": lambda flow, x, w: flow.scan(lambda c, y: (torch.tanh(c + y), c * y), x[:, 0] * 1, x.t() * w[0, 0])[1],
    "a map": lambda flow, x, w: flow.map(lambda y: y.sin() @ w, x),
    "turns": lambda flow, x, w: flow.while_loop(lambda x: x.norm() < 9, lambda x: ((x @ w).abs() + x + 0.1,), (x,))[0],
}


@pytest.mark.parametrize("name", SIZED)
def test_sizes_that_vary(name):
    """Two entries serve them all: that of the first call, and one for every size."""
    program = SIZED[name]
    compiled = lampwork.compile(lambda *each: program(TORCH, *each), options={"cache": False})
    for count in (60, 61, 64, 70, 75):
        x = torch.linspace(-0.8, 1, 3 * count).view(count, 3) * (-1) ** count
        found = []
        for run in (compiled, lambda *each: program(MEANT, *each)):
            leaves = x.clone().requires_grad_(), W.clone().requires_grad_()
            result = run(*leaves)
            result.square().sum().backward()
            found.append((result.detach(), *map(gradient_of, leaves)))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"] and stats["entries"] == 2, stats
