"""What passes between the two halves of a differentiated program: values as they were, drawn once, and no more than needed.

Families of small programs; results, gradients, what they write and the random generator end as in eager.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import lampwork

#: Elements of what kernels go through block by block.
LARGE = 6000


def outcomes(function, make, options=None, steps=2):
    """Results, gradients of inputs, inputs and the generator's next numbers, after each step: eager's, and compiled."""
    found = []
    compiled = lampwork.compile(function, options={"cache": False, **(options or {})})
    for run in (function, compiled):
        torch.manual_seed(0)
        inputs = make()
        for _ in range(steps):
            result = run(*inputs)
            found.append(torch.rand(1))
            loss = result if result.grad_fn is not None and result.dim() == 0 else result.square().mean()
            loss.backward()
            gradients = [each.grad for each in inputs if each.is_leaf]
            found.append([result.detach().clone(), *(g.clone() for g in gradients if g is not None)])
            found.append([each.detach().clone() for each in inputs])
            found.append(torch.rand(1))
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"], [*stats["breaks"], *stats["fallbacks"]]
    half = len(found) // 2
    return found[:half], found[half:]


def check(function, make, options=None, steps=2):
    expected, actual = outcomes(function, make, options, steps)
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=1e-6)


# Buffers that the program writes after it used them --------------------------------------------------------------------

#: What the gradient of `w` needs of a buffer, which eager has computed by the time that the buffer is written.
READS = {
    "a mask": (torch.bool, lambda b: b.float() + 1),
    "small integers": (torch.uint8, lambda b: b.float() * 2),
    "a comparison": (torch.int32, lambda b: (b > 1).float() + 0.5),
    "a sum": (torch.float32, lambda b: b + 1.5),
    "a view": (torch.float32, lambda b: b.view(-1, 2).flip(1).reshape(-1) * 2),
    "a row": (torch.float32, lambda b: b[:1].expand(b.shape[0]) + b),
}
CHANGES = {
    "in place": lambda b: b.logical_not_() if b.dtype == torch.bool else b.add_(1),
    "copied to": lambda b: b.copy_(b.flip(0) + b.flip(0)),
    "filled": lambda b: b.fill_(0),
    "through a view": lambda b: b[::2].fill_(1),
    "out": lambda b: torch.flip(b, (0,)) if b.dtype == torch.bool else torch.add(b, 1, out=b),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("read", READS)
def test_buffers_that_are_written_later(read, change):
    dtype, of = READS[read]

    def program(w, b):
        y = (w * of(b)).sin() * of(b)
        with torch.no_grad():
            CHANGES[change](b)
        return y.sum()

    def make():
        buffer = torch.randint(0, 3, (LARGE,)).to(dtype)
        return torch.randn(LARGE, requires_grad=True), buffer

    check(program, make)


# What is drawn ------------------------------------------------------------------------------------------------------------


class Noisy(torch.autograd.Function):
    """Draws in its backward pass, without a look at the gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * x.exp() + torch.rand(x.shape)


DRAWS = {
    "dropout": lambda x, w: torch.dropout(x * w, 0.5, True).tanh(),
    "rand_like": lambda x, w: (x * torch.rand_like(x)).sin() * w,
    "noise of a view": lambda x, w: (x.view(2, -1) * torch.randn(2, 1)).exp().flatten() * w,
    "bernoulli": lambda x, w: torch.where(torch.bernoulli(torch.full_like(w, 0.3)) > 0, x * w, x).sigmoid(),
    "uniform_": lambda x, w: x * torch.empty(8).uniform_(1, 2) * w.exp(),
    "randint": lambda x, w: x[torch.randint(0, 8, (8,))] * w,
    "in the backward pass": lambda x, w: Noisy.apply(x) * w,
    "twice": lambda x, w: (x * torch.rand(8) + w * torch.rand(8)).sin(),
}


@pytest.mark.parametrize("budget", [1.0, 0.0])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("draw", DRAWS)
def test_what_is_drawn(draw, again, budget):
    """Once, or again as eager does inside of a checkpoint: from where the generator stood."""

    def program(x, w):
        y = x * 1.5
        y = checkpoint(DRAWS[draw], y, w, use_reentrant=False) if again else DRAWS[draw](y, w)
        return (y * y).sum()

    make = lambda: (torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True))
    check(program, make, {"memory_budget": budget})


# What is kept ----------------------------------------------------------------------------------------------------------------


def kept_bytes(result):
    """Of all storages that the history of `result` holds."""
    pending, seen, storages = [result.grad_fn], set(), {}
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for each in getattr(node, "saved_tensors", ()):
            storages[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
        pending.extend(each for each, _ in node.next_functions)
    return sum(storages.values())


PARTS = {
    "rows": lambda y: y[:4].sin(),
    "rows in the middle": lambda y: y[4:9].square() * y[4:9],
    "columns": lambda y: y[:, :4].tanh() * y[:, :4],
    "every other of a few": lambda y: y[:8:2, ::2].sigmoid().sin(),
    "transposed": lambda y: y.t()[3:6].cos(),
}


@pytest.mark.parametrize("part", PARTS)
def test_of_a_part_no_more_is_kept(part):
    """A part of a large product, which nothing else of the backward pass reads."""

    def program(x, w):
        y = x @ w
        return PARTS[part](y).sum(), (y.detach() * 2).sum()

    x, w = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    expected = program(x, w)
    expected[0].backward()
    gradients, x.grad, w.grad = (x.grad, w.grad), None, None
    found = lampwork.compile(program, options={"cache": False})(x, w)
    own = x.untyped_storage().nbytes() + w.untyped_storage().nbytes()
    assert kept_bytes(found[0]) <= own + PARTS[part](x).numel() * 4 * 2
    found[0].backward()
    torch.testing.assert_close((*found, x.grad, w.grad), (*expected, *gradients), rtol=2e-5, atol=2e-5)


def test_what_autograd_computes_for_the_backward_pass_is_done_there():
    """`cos(x)` is no work of a call whose gradient nobody asks for, and nothing is kept beside the input."""
    program = lambda x: x.sin().sum()
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.randn(LARGE, requires_grad=True)
    assert kept_bytes(compiled(x)) <= x.nbytes
    (entry,) = compiled.__lampwork__.entries
    assert not any("cos" in str(kernel.body) for kernel in entry.artifact.program.kernels)


# Inputs that require grad, and are written -------------------------------------------------------------------------------------


def test_an_input_that_the_program_grants_a_gradient():
    def program(x):
        x.requires_grad_()
        return (x * x).sum() + x.sum()

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        x, y = torch.randn(8), None
        y = x.clone()
        compiled(x).backward()
        program(y).backward()
        assert x.requires_grad and x.is_leaf
        torch.testing.assert_close(x.grad, y.grad)


INPUT_WRITES = {
    "mul_": lambda x, w: x.mul_(w),
    "a part": lambda x, w: x[2:].mul_(w[2:]),
    "copy_": lambda x, w: x.copy_(w * 2),
    "twice": lambda x, w: x.add_(w).sin_(),
    "out of a branch": lambda x, w: x.masked_fill_(w > 0, 2.0),
}


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("write", INPUT_WRITES)
def test_written_inputs_get_a_history(write, returned):
    def program(x, w):
        INPUT_WRITES[write](x, w)
        return (x, x * w) if returned else (x * w,)

    found = []
    for run in (program, lampwork.compile(program, options={"cache": False})):
        for _ in range(2):
            leaf, w = torch.arange(6.0).requires_grad_(), torch.linspace(-1, 1, 6).requires_grad_()
            x = leaf * 2
            seen = x.exp()  # keeps `seen`, not `x`
            version = x._version
            results = run(x, w)
            (x.sum() + 3 * results[-1].sum() + seen.sum()).backward()
            facts = x.is_leaf, x.requires_grad, x._version > version, results[0] is x
            found.append([facts, x.detach(), leaf.grad, w.grad])
    for got, want in zip(found[2:], found[:2]):
        assert got[0] == want[0]
        torch.testing.assert_close(got[1:], want[1:])


# What is written between the passes ---------------------------------------------------------------------------------------

BETWEEN = {
    "computed again of an input": (lambda x, w: (torch.nn.functional.gelu(x + 1), x * w), "x"),
    "computed again of a constant": (lambda x, w: (x * (w * 2).cos(), x + 1), "w"),
    "read by a derivative": (lambda x, w: (x * w, x + 1), "w"),
    "a returned copy": (lambda x, w: ((x + w).exp().clone(), x * 2), 0),
    "returned, and kept": (lambda x, w: ((x + w).exp(), x * 2), 0),
    "all of what is kept": (lambda x, w: ((v := (x + w).exp())[..., :LARGE], v.unsqueeze(0)), 0),
    "a view of what is kept": (lambda x, w: ((v := (x + w).exp())[..., :LARGE], v.unsqueeze(0)), 1),
    "not kept": (lambda x, w: ((x + w) * 2, x.exp()), 0),
}


def check_written(program, written, size, used=(0, 1)):
    """`written` (an argument by name, or a result by number) is multiplied between the passes: eager raises as the
    compiled program does, or the gradients are equal."""
    found = []
    for run in (program, lampwork.compile(program, options={"cache": False})):
        leaf, w = torch.linspace(-1, 1, size).requires_grad_(), torch.linspace(1, 2, size)
        x = leaf * 2
        results = run(x, w)
        with torch.no_grad():
            {"x": x, "w": w, 0: results[0], 1: results[1]}[written].mul_(3)
        try:
            sum(results[each].sum() for each in used).backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        found.append(leaf.grad)
    theirs, mine = found
    assert (theirs is None) == (mine is None)
    if theirs is not None:
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("size", [6, LARGE])
@pytest.mark.parametrize("name", BETWEEN)
def test_writes_between_the_passes(name, size):
    """Autograd raises where it keeps what is written, and gradients are those of the values as they were where not."""
    check_written(*BETWEEN[name], size)


UNUSED = {
    "a derivative of zeros": lambda x, w: (torch.angle(x), x * x),
    "read on the way to zeros": lambda x, w: (torch.floor(x * w), x * w),
    "read": lambda x, w: (x * w, x * w * 2),
}


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("written", ["x", "w"])
@pytest.mark.parametrize("name", UNUSED)
def test_writes_where_a_result_is_not_used(name, written, used):
    """Eager looks at what the nodes that it runs have kept, also where they make zeros."""
    check_written(UNUSED[name], written, 5, (used,))


@pytest.mark.parametrize("size", [6, LARGE])
def test_a_leaf_that_the_program_updates_after_its_last_use(size):
    """What is made of it is computed again of what it was."""

    def program(x, w):
        y = torch.nn.functional.gelu(w + 1) + x
        with torch.no_grad():
            w.mul_(0.5)
        return y

    check(program, lambda: (torch.randn(size, requires_grad=True), torch.randn(size, requires_grad=True)))


def test_a_gradient_that_only_a_missing_tangent_has_a_part_in():
    """x / x of no gradient is none, and not 0 / 0; the derivative of `sgn` is there, and is zeros."""
    found = []
    program = lambda x: (torch.sgn(x), x / x)
    for run in (program, lampwork.compile(program, options={"cache": False})):
        x = torch.tensor([-0.5, 0.0, 2.25], requires_grad=True)
        run(x)[0].sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])
