"""Random operators give eager's very draws, whatever layout they draw into, and leave the generator as eager does.

A draw's place in memory decides which number it is: `bernoulli_` goes through a transposed tensor as it lies in memory,
`normal_` draws contiguous tensors of 16 elements or more by an algorithm of its own.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
#: One below and one above the 16 elements from which ATen draws vectors of normal numbers.
SHAPES = ((3, 4), (5, 7))


def _sliced(shape, dtype):
    return torch.zeros(shape[0], 2 * shape[1], dtype=dtype)[:, ::2]


def _narrowed(shape, dtype):
    return torch.zeros(shape[0], shape[1] + 3, dtype=dtype)[:, 1:-2]


def _permuted(shape, dtype):
    return torch.zeros(2, shape[1], shape[0], dtype=dtype).permute(2, 0, 1)


def _channels_last(shape, dtype):
    return torch.zeros(2, 3, *shape, dtype=dtype).contiguous(memory_format=torch.channels_last)


#: Name -> a function that makes a tensor of a shape and type that lies in memory so.
LAYOUTS = {
    "contiguous": lambda shape, dtype: torch.zeros(shape, dtype=dtype),
    "transposed": lambda shape, dtype: torch.zeros(shape[::-1], dtype=dtype).t(),
    "permuted": _permuted,
    "channels last": _channels_last,
    "every other": _sliced,
    "narrowed": _narrowed,
    "a column": lambda shape, dtype: torch.zeros(shape[0] * shape[1], 3, dtype=dtype)[:, 1],
    "one element": lambda shape, dtype: torch.zeros((), dtype=dtype),
    "no element": lambda shape, dtype: torch.zeros(0, 3, dtype=dtype),
}

IN_PLACE = {
    "bernoulli_": lambda x: x.bernoulli_(),
    "bernoulli_ of a number": lambda x: x.bernoulli_(0.3),
    "bernoulli_ of a tensor": lambda x: x.bernoulli_(torch.full_like(x, 0.3, memory_format=torch.contiguous_format)),
    "bernoulli_ of a wider tensor": lambda x: x.bernoulli_(torch.full(x.shape, 0.3, dtype=torch.float64)),
    "uniform_": lambda x: x.uniform_(-1, 2),
    "normal_": lambda x: x.normal_(1, 2),
    "exponential_": lambda x: x.exponential_(0.7),
    "geometric_": lambda x: x.geometric_(0.4),
    "log_normal_": lambda x: x.log_normal_(0.5, 0.25),
    "cauchy_": lambda x: x.cauchy_(1, 2),
    "random_": lambda x: x.random_(),
    "random_ to": lambda x: x.random_(50),
    "random_ from": lambda x: x.random_(-7, 90),
}
FRESH = {
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 3, 60),
    "rand_like, contiguous": lambda x: torch.rand_like(x, memory_format=torch.contiguous_format),
    "bernoulli": lambda x: torch.bernoulli(x + 0.3),
    "bernoulli of a number": lambda x: torch.bernoulli(x, 0.3),
    "normal": lambda x: torch.normal(x, x + 1),
    "normal of a mean": lambda x: torch.normal(x, 2.0),
    "dropout": lambda x: F.dropout(x + 1, 0.4),
    "dropout, in place": lambda x: F.dropout(x + 1, 0.4, inplace=True),
    "feature dropout": lambda x: F.dropout1d(x[None] + 1, 0.4) if x.dim() == 2 else x + 1,
    "alpha dropout": lambda x: F.alpha_dropout(x + 1, 0.4, training=True),
}
INTO = {
    "rand": lambda x: torch.rand(x.shape, out=x),
    "randn": lambda x: torch.randn(x.shape, out=x),
    "randint": lambda x: torch.randint(3, 60, x.shape, out=x),
    "normal": lambda x: torch.normal(torch.ones_like(x), 2.0, out=x),
    "normal of numbers": lambda x: torch.normal(1.0, 2.0, x.shape, out=x),
    "bernoulli": lambda x: torch.bernoulli(torch.full(x.shape, 0.3, dtype=x.dtype), out=x),
}


def _agree(program, arguments, copies, **options):
    compiled = lampwork.compile(program, options={"cache": False, **options})
    for seed in (3, 4):
        torch.manual_seed(seed)
        expected = program(*arguments)
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        found = compiled(*copies)
        assert torch.equal(torch.get_rng_state(), state), "the generator's state"
        for ours, theirs in zip((*found, *copies), (*expected, *arguments), strict=True):
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    stats = lampwork.stats(compiled)
    assert not stats["fallbacks"] and not stats["breaks"]


def _made(layout, dtypes=FLOATS):
    return [LAYOUTS[layout](shape, dtype) for dtype in dtypes for shape in SHAPES]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operator", IN_PLACE)
def test_in_place(operator, layout):
    draw = IN_PLACE[operator]

    def program(*tensors):  # tensors of the caller, and the program's own in the same layout
        for each in tensors:
            draw(each)
        return [draw(torch.empty_like(each)) for each in tensors]

    _agree(program, _made(layout), _made(layout))


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "every other"])
def test_integers(layout):
    def program(large, medium, small):
        for each in (large, medium, small):
            each.random_()
        drawn = [each * 1 for each in (large, medium, small)]
        for each in (large, medium, small):
            each.random_(50)
        drawn += [each * 1 for each in (large, medium, small)]
        return [*drawn, large.random_(-7, 90), medium.bernoulli_(0.3), small.bernoulli_(0.6)]

    for shape in SHAPES:
        tensors, copies = (
            [LAYOUTS[layout](shape, dtype) for dtype in (torch.int64, torch.int32, torch.uint8)] for _ in range(2)
        )
        _agree(program, tensors, copies)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operator", FRESH)
def test_fresh(operator, layout):
    def program(*tensors):
        return [FRESH[operator](each) for each in tensors]

    _agree(program, _made(layout), _made(layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rrelu(layout):
    def program(*tensors):
        return [F.rrelu(x, training=True) for x in tensors], [F.rrelu_(x, training=True) for x in tensors]

    def made():
        tensors = _made(layout, FLOATS[:2])
        return [x.copy_(torch.linspace(-1, 1, x.numel()).view(x.shape)) for x in tensors]

    _agree(lambda *tensors: sum(program(*tensors), []), made(), made())


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if each != "no element"])
@pytest.mark.parametrize("operator", INTO)
def test_into(operator, layout):
    def program(*tensors):
        return [INTO[operator](each) * 1 for each in tensors]

    _agree(program, _made(layout, FLOATS[:2]), _made(layout, FLOATS[:2]))


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "permuted", "channels last"])
def test_gradients(layout):
    """The masks of the forward half are the backward half's, and both roads draw eager's."""

    def program(x, w):
        y = F.dropout(x * w, 0.3)
        return (F.dropout(y, 0.5) * torch.rand_like(y)).square().sum()

    def step(x, w):
        loss = program(x, w)
        loss.backward()
        return loss.detach()

    apart, whole = (lampwork.compile(each, options={"cache": False}) for each in (program, step))
    runs = (step, whole, lambda x, w: (loss := apart(x, w)).backward() or loss.detach())
    results = []
    for run in runs:
        x = LAYOUTS[layout]((5, 7), torch.float32).add_(1.5).requires_grad_()
        w = LAYOUTS[layout]((5, 7), torch.float32).add_(0.5).requires_grad_()
        torch.manual_seed(5)
        results.append((run(x, w), x.grad, w.grad, torch.get_rng_state()))
    for found in results[1:]:
        for ours, theirs in zip(found, results[0]):
            torch.testing.assert_close(ours, theirs)


def test_sizes_that_vary():
    def program(x):
        return F.dropout(x.transpose(0, 1), 0.5), torch.empty_like(x.t()).normal_()

    compiled = lampwork.compile(program, options={"cache": False}, dynamic=True)
    for rows in (3, 5, 9):
        x = torch.ones(rows, 6)
        torch.manual_seed(1)
        expected = program(x)
        torch.manual_seed(1)
        assert all(map(torch.equal, compiled(x), expected))
    assert lampwork.stats(compiled)["captures"] == 1


def test_a_write_that_eager_refuses_is_refused():
    program = lambda x: x.expand(3, 4).uniform_()
    compiled = lampwork.compile(program, options={"cache": False})
    for run in (program, compiled):
        with pytest.raises(RuntimeError, match="single memory location"):
            run(torch.zeros(3, 1))
