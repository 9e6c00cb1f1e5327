"""The smallest program for each operator that once failed or fell back without need."""

from __future__ import annotations

import operator
import types

import pytest
import torch

import lampwork
from tests.ops.check import check_sample

OPERATOR = types.SimpleNamespace(name="program")


def integers():
    return torch.tensor([1, 2, 3])


def number():
    return torch.tensor(0.5)


def square():
    return torch.tensor([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]])


#: Name: (program, arguments). Each gives eager's answer without falling back.
COMPILED = {
    "linalg checks errors at run time": (torch.linalg.inv, (square(),)),
    "unsafe_split returns views": (lambda x: x.unsafe_split(1, 1), (square(),)),
    "singular vectors are column-major": (lambda x: torch.linalg.svd(x)[2], (square(),)),
    "a Fourier transform in the order of its input": (
        lambda x: torch.fft.hfft2(x, dim=(0, -1)),
        (torch.arange(24.0).reshape(2, 3, 4),),
    ),
    "attention without its weights": (
        lambda x, layer: layer(x, x, x, need_weights=False),
        (torch.ones(2, 3, 4), torch.nn.MultiheadAttention(4, 2, batch_first=True).eval().requires_grad_(False)),
    ),
    "no meta kernel": (torch.geqrf, (square(),)),
    "histogram of edges": (lambda x, edges: torch.histogram(x, edges), (square(), torch.tensor([0.0, 1.0, 2.0]))),
    "default arguments of an in-place operator": (lambda x: x.bernoulli_(), (square(),)),
    "an in-place operator with a fresh result": (
        lambda x: torch.nn.functional.rrelu(x - 2, training=True),
        (square(),),
    ),
    "half-precision batch statistics": (
        lambda x, m, v: torch.native_batch_norm(x, None, None, m, v, True, 0.1, 1e-5),
        (square().bfloat16(), torch.zeros(3).bfloat16(), torch.ones(3).bfloat16()),
    ),
    "batch norm with update": (
        lambda x, m, v: torch.ops.aten._batch_norm_with_update(x, None, None, m, v, 0.1, 1e-5),
        (square().bfloat16(), torch.zeros(3).bfloat16(), torch.ones(3).bfloat16()),
    ),
    "a half-precision product of nothing": (
        torch.addmm,
        (torch.ones(10).bfloat16(), torch.ones(5, 0).bfloat16(), torch.ones(0, 10).bfloat16()),
    ),
    "polygamma in place": (lambda x: (x + 1).polygamma_(1), (square(),)),
    "conj_physical in place": (lambda x, y: (x.conj_physical_(), y.conj_physical_()), (square(), square() * 1j)),
    "lazily conjugated results": (torch.fft.ifft, (square(),)),
    "a conjugated view of an argument": (lambda x: x[0].conj(), (square() * 1j,)),
    "a convolution of transposed sequences": (  # once a segmentation fault
        lambda x, w, b: torch.nn.functional.conv1d(x.transpose(1, 2), w, b, padding=1),
        (torch.arange(24.0).reshape(2, 4, 3), torch.arange(18.0).reshape(2, 3, 3), torch.tensor([1.0, 2.0])),
    ),
    "a class of autograd functions made inside": (lambda x: torch.masked.sum(x, mask=x > 1), (square(),)),
    "half with an imaginary number": (lambda x: x.half() * 1j, (square(),)),
    "covariances, which ask about a number": (lambda x: (x.cov(), x.corrcoef(), x[0].cov(correction=0)), (square(),)),
    "a mask to the power of a truth value": (lambda x: ((x > 1) ** True, (x > 1).pow(False)), (square(),)),
    "equal to a complex number": (lambda x: (x == 1j, x != 2 + 0j, x.int() == 1j, (x > 1) == 1j), (square(),)),
    "neighbours of halves": (
        lambda x: (torch.nextafter(x.half(), x.half().t()), torch.nextafter(x.bfloat16(), -x.bfloat16())),
        (square(),),
    ),
    "a complex number in a tensor": (
        lambda x, y: (x + y, x.bfloat16() * y, x.double() - y),
        (square(), number().double() * 1j),
    ),
    "bytes of complex numbers": (lambda x: x.view(torch.uint8), (square() * 1j,)),
}


def no_rows():
    return torch.ones(0, 3)


ZERO = torch.tensor(0)

#: Name: (program, arguments). No operator of ATen is called.
NATIVE = {
    "softmax of one number": (lambda x: (x.softmax(0), x.log_softmax(0)), (number(),)),
    "softmax of infinity": (lambda x: (x.softmax(0), x.log_softmax(0)), (number() / 0,)),
    "gather from one number": (lambda x, i: x.gather(0, i), (number(), ZERO)),
    "index_select from one number": (lambda x, i: x.index_select(0, i), (number(), ZERO.reshape(1))),
    "scatter_add to one number": (lambda x, i: x.scatter_add(0, i, x), (number(), ZERO)),
    "index_copy to one number": (lambda x, i, y: x.index_copy(0, i, y), (number(), ZERO.reshape(1), number() * 3)),
    "index_fill with a tensor": (lambda x, i, y: x.index_fill(1, i, y), (square(), ZERO.reshape(1), number())),
    "take": (lambda x, i: x.t().take(i), (square(), torch.tensor([[-1, 5], [0, 7]]))),
    "roll of one number": (lambda x: x.roll(3), (number(),)),
    "results without elements": (lambda x: (x.roll(1, 0), x.repeat(2, 1), x.softmax(1)), (no_rows(),)),
    "sums over nothing": (lambda x: (x.sum(0), x.prod(0), x.mean(0), x.norm(dim=0)), (no_rows(),)),
    "variances of nothing": (lambda x: (x.var(0), x.logsumexp(0)), (no_rows(),)),
    "norms of any order": (lambda x: (x.norm(3.5), x.norm(0.5, dim=1, keepdim=True), x.norm(-2)), (square() + 1,)),
    "distance": (lambda x, y: (torch.dist(x, y, 3), torch.dist(x[0], y)), (square(), square().t() * 2)),
    "dot": (lambda x: x[0].dot(x[:, 1]), (square(),)),
    "a loss of logits": (
        lambda x, y: torch.nn.functional.binary_cross_entropy_with_logits(x, y, pos_weight=y[0], weight=x[1]),
        (square() * 20 - 30, square() / 4),
    ),
    "dot of integers": (lambda x: x.dot(x), (integers(),)),
    "linspace of one": (lambda x: torch.linspace(1, 2, 1) + x, (number(),)),
    "threshold of integers": (lambda x: torch.nn.functional.threshold(x, 2, -7), (integers(),)),
    "logsumexp of integers": (lambda x: x.logsumexp(0), (integers(),)),
    "nansum of integers": (lambda x: x.nansum(), (integers(),)),
    "inverse hyperbolic functions of numbers whose square overflows": (
        lambda x: (x.asinh(), x.acosh(), x.double().asinh(), (x.double() * 1e170).acosh(), x.bfloat16().asinh()),
        (torch.tensor([1e19, -1e20, 1e30, -3e38, torch.inf, -torch.inf, torch.nan, 0.5, -0.0]),),
    ),
    "shifts in place": (lambda x: (operator.ilshift(x, 2), operator.irshift(x[1:], torch.tensor(1))), (integers(),)),
    "masks shifted": (lambda x: ((x > 1) << 1, 1 << (x > 1)), (integers(),)),
    "out= that is resized has the result's strides": (
        lambda x: (torch.add(x, 1, out=torch.empty(0)), torch.gt(x, 1, out=torch.empty(0, dtype=torch.bool))),
        (square()[:2].t(),),
    ),
    "numbers that just fit, or wrap": (
        lambda x: (x.half().masked_fill(x > 1, -65504), x.half().clamp(-torch.inf), x.byte().fill_(-1), x.byte() + 300),
        (square(),),
    ),
}

#: Eager raises, and so does the compiled program.
RAISES = {
    "float result into an integer tensor": (lambda x: x.exp_(), (integers(),)),
    "float result into a bool tensor": (lambda x: x.sqrt_(), (integers() > 1,)),
    "an index past one number": (lambda x, i: x.gather(0, i), (torch.tensor(0.5), torch.tensor(1))),
    "take past the end": (torch.take, (torch.ones(2, 2), torch.tensor([4]))),
    "polygamma into integers": (lambda x: x.polygamma_(1), (integers(),)),
    "a singular matrix": (torch.linalg.inv, (torch.zeros(2, 2),)),
    "a mask taken from numbers": (lambda x: x - (x > 1), (square(),)),
    "one less a mask": (lambda x: 1 - (x > 1), (square(),)),
    "a mask taken from numbers in place": (lambda x: x.sub_(x > 1), (square(),)),
    "the largest of nothing": (torch.max, (torch.empty(0, 3),)),
    "the place of the largest in a mask": (lambda x: (x > 1).argmax(), (square(),)),
    "bits of floats": (lambda x: x & 1, (square(),)),
    "bits of floats by a mask": (lambda x: x | (x > 1), (square(),)),
    "bits of floats turned": (torch.bitwise_not, (square(),)),
    "bits of floats by a function": (operator.and_, (square(), 1)),
    "bits of floats in place": (operator.iand, (square(), 1)),
    "bits of floats shifted": (lambda x: x << 1, (square(),)),
    "bits of floats shifted in place": (operator.ilshift, (square(), 1)),
    "a deviation of no integers": (lambda x: x.std(0), (torch.empty(3, 0, dtype=torch.int64),)),
    "a magnitude in the place of a complex number": (lambda x: x.abs_(), (square() * 1j,)),
    "an imaginary number added in place": (lambda x: x.add_(1j), (square(),)),
    "out= of a kind that cannot hold the result": (
        lambda x, y: torch.add(x, 1, out=y),
        (square(), square().int()),
    ),
    "between tensors of two types": (lambda x: x.lerp(x.double(), 0.5), (square(),)),
    "between integers": (lambda x: x.lerp(x, 0.5), (integers(),)),
    "a step of another type": (lambda x: x.heaviside(x.double()), (square(),)),
    "fractions of integers": (torch.frac, (integers(),)),
    "hypotenuse of integers": (lambda x: x.hypot(x), (integers(),)),
    **{
        f"{name}: a number past the type": (program, (square().half(),))
        for name, program in {
            "masked_fill": lambda x: x.masked_fill(x > 1, -1e9),
            "masked_fill_": lambda x: x.masked_fill_(x > 1, -1e9),
            "fill_": lambda x: x.byte().fill_(300),
            "index_fill_": lambda x: x.byte().index_fill_(0, torch.tensor([0]), -0.5),
            "full": lambda x: x.new_full((2,), 70000),
            "clamp": lambda x: x.clamp(max=1e5),
            "pow": lambda x: x.to(torch.int8).pow(300),
            "pad": lambda x: torch.nn.functional.pad(x, (1, 1), value=-1e5),
            "alpha": lambda x: torch.add(x, x, alpha=1e5),
            "an imaginary number": lambda x: x.float().fill_(1j),
        }.items()
    },
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name):
    program, arguments = COMPILED[name]
    outcome = check_sample(OPERATOR, program, arguments, {})
    assert outcome.kind in ("native", "aten"), outcome


@pytest.mark.parametrize("name", NATIVE)
def test_native(name):
    program, arguments = NATIVE[name]
    outcome = check_sample(OPERATOR, program, arguments, {})
    assert outcome.kind == "native", outcome


@pytest.mark.parametrize("name", RAISES)
def test_raises(name):
    program, arguments = RAISES[name]
    outcome = check_sample(OPERATOR, program, arguments, {})
    assert outcome.kind == "raises", outcome


def test_results_are_lazily_conjugated_as_in_eager():
    import lampwork

    x = square() * 1j
    made = lampwork.compile(lambda x: (x.conj(), (x * 2).conj(), x.conj().conj()), options={"cache": False})(x)
    assert [each.is_conj() for each in made] == [True, True, False]
    assert torch.equal(made[0], x.conj()) and torch.equal(made[1], (x * 2).conj()) and torch.equal(made[2], x)
    assert made[0].data_ptr() == x.data_ptr()


def test_the_dimension_that_does_not_fit():
    """Of several that do not, eager names the last."""

    def program(x):
        try:
            return x + x[:2, :2]
        except RuntimeError as error:
            return str(error)

    x = torch.ones(4, 6)
    assert lampwork.compile(program, options={"cache": False})(x) == program(x)


def test_a_sum_of_what_is_known_beside_another_result():
    """What a filled tensor holds is put into the kernels that read it, after other operators were looked at."""

    def program(x, y):
        filled = x.fill_(float("inf"))
        x[...] = torch.sub(filled, x, alpha=3)
        return y.max(1)

    compiled = lampwork.compile(program, options={"cache": False})
    mine, theirs, y = torch.ones(5, 1), torch.ones(5, 1), torch.arange(6.0).view(2, 3)
    for ours, expected in zip(compiled(mine, y), program(theirs, y), strict=True):
        assert torch.equal(ours, expected)
    assert torch.equal(mine, theirs) or bool(mine.isnan().all() and theirs.isnan().all())
    assert not lampwork.stats(compiled)["fallbacks"]
