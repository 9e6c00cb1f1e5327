"""Signs of zero, NaN and infinities that came out otherwise than eager's, as the fuzzer found them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.codegen.llvm.external import SLEEF
from lampwork.codegen.llvm.math import INLINE
from lampwork.graph import products

inf, nan = math.inf, math.nan
minus = torch.tensor([-0.0])


def same(program, *arguments):
    """Bit by bit, but for which NaN it is."""
    compiled = lampwork.compile(program, options={"cache": False})
    for mine, theirs in zip(torch.utils._pytree.tree_leaves(compiled(*arguments)), torch.utils._pytree.tree_leaves(program(*arguments)), strict=True):  # fmt: skip
        assert mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=0, equal_nan=True)
        if mine.is_floating_point():
            assert torch.equal(mine.signbit() | mine.isnan(), theirs.signbit() | theirs.isnan())


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.mean(), lambda x: x[:, None].mean(1, keepdim=True),
        lambda x: x.nansum(0), lambda x: x[None].sum((0, 1)), lambda x: torch.var_mean(x[None], 0, correction=0)[1],
        lambda x: F.avg_pool2d(x.view(1, 1, 1), 1), lambda x: F.adaptive_avg_pool3d(x.view(1, 1, 1, 1), (None, None, None)),
        lambda x: F.cross_entropy(x[None] - 0.5, torch.zeros(1, dtype=torch.int64)),
    ],
)  # fmt: skip
def test_the_sum_of_one_zero(program):
    same(program, minus)


def test_between_two_tensors():
    x = torch.tensor([-0.0, 0.0, nan, -1.0, 1.0])
    for low, high in [(0.0, 1.0), (-1.0, -0.0), (-0.0, 0.0), (nan, 1.0), (0.0, nan), (1.0, -1.0)]:
        same(lambda x, a, b: torch.clamp(x, a, b), x, torch.tensor(low), torch.tensor([high]))


@pytest.mark.parametrize("rank, pool", [(1, F.max_pool1d), (2, F.max_pool2d), (3, F.max_pool3d)])
def test_pooling_zeros_and_missing_values(rank, pool):
    """The first of zeros of both signs, the last of NaNs."""
    generator = torch.Generator().manual_seed(0)
    choices = torch.tensor([0.0, -0.0, -1.0, nan, -inf, -2.0, -3.0, -1.0])
    x = choices[torch.randint(0, 8, (2, 3, *[7] * rank), generator=generator)]
    for given in (x, x.half(), x.double(), x.nan_to_num(0.0)):
        same(lambda x: pool(x, 2, 1), given)
        same(lambda x: pool(x, 3, 2, 1, return_indices=True), given)


@pytest.mark.parametrize("order", [(1, 0), (2, 1, 0), (0, 2, 1), (1, 2, 0)])
def test_pooling_where_memory_is_in_another_order(order):
    """Equal ones are taken in the order of the window, not of memory."""
    rank = len(order)
    x = torch.randint(0, 3, (2, 3, *[5, 6, 7][:rank]), generator=torch.Generator().manual_seed(0)) - 1.0
    last = [2 + each for each in order]
    given = x.permute(0, 1, *last).contiguous().permute(0, 1, *[2 + last.index(2 + each) for each in range(rank)])
    pool = F.max_pool2d if rank == 2 else F.max_pool3d
    same(lambda x: pool(x, 2, 1, return_indices=True), given)
    same(lambda x: pool(x, 3, 1, return_indices=True), torch.where(given == 0, -0.0 * given, given))


def test_indices_of_a_number():
    """Of a tensor without dimensions nothing has elements, and the number of rows is found all the same."""
    for value in (0.0, 1.0):
        same(lambda x: torch.nonzero(x) + 1, torch.tensor(value))


def test_the_trace_is_summed_in_double_precision():
    x = torch.diag(torch.tensor([1e8, 1.0, -1e8, 1e-3]))
    same(lambda x: x.trace(), x)


def test_the_extreme_of_zeros_of_both_signs():
    """`amax` and extremes along a dimension give the first, `max` of all elements the last."""
    for zeros in ([0.0, -0.0], [-0.0, 0.0, 0.0], [0.0, -0.0, -0.0, 0.0]):
        x = torch.tensor(zeros)
        for given in (x, x.half(), x.double()):
            same(lambda x: (x.amax(), x.amin(), x.max(), x.min(), x.max(0)[0], x.min(0)[0]), given)
            same(lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=0), x[None].amax(1), x[:, None].amin(0)), given)


def test_a_short_product_is_taken_in_order():
    """-inf meets a denormal number, not the 0 that two of those make."""
    tiny = 1.1754943508222875e-38
    x = torch.ones(40)
    x[8], x[9], x[10], x[25] = -tiny, -inf, -tiny, tiny
    same(lambda x: (x.prod(), x.prod(0), x[None].prod(1), x[:, None].prod(0)), x)


def test_batch_norm_without_a_bias_adds_zero():
    x, one = torch.tensor([[-0.0, 1.0]]), torch.tensor([0.0, 0.0])
    same(lambda x, mean, variance: F.batch_norm(x, mean, variance), x, one, one + 1)


def test_the_norm_of_one_number_takes_no_powers():
    """Its square would overflow."""
    x = torch.tensor([2e24, -3e-30])
    for ord in (2, 3, 0.5, -2):
        same(lambda x: (torch.linalg.vector_norm(x[:1], ord), x[:, None].norm(ord, dim=1), x[0].norm(ord)), x)
    same(lambda x: (torch.dist(x[0], x[1]), torch.linalg.vector_norm(x[:1], 0)), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_elements_are_converted_to_the_type_that_is_asked_for_first(dtype):
    """What is infinite there is so before it is added to others."""
    x = torch.tensor([1e5, -2e5, nan, 1.7, 0.3, 1e39])[:, None].double().repeat(1, 3)
    if dtype is torch.int32:
        x = x[3:5]
    same(lambda x: (x.sum(0, dtype=dtype), x.prod(0, dtype=dtype), x.sum(dtype=dtype)), x)
    if dtype.is_floating_point:
        same(lambda x: (x.nansum(0, dtype=dtype), x[2:5].nansum(0, dtype=dtype), torch.nanmean(x, dtype=dtype)), x)


def test_dropped_integers():
    grad, mask = torch.tensor([-8, 6], dtype=torch.int8), torch.tensor([False, True])
    same(lambda grad, mask: torch.ops.aten.native_dropout_backward(grad, mask, 2.0), grad, mask)


@pytest.mark.parametrize("size", [1e25, 3e37, 1e18])
def test_normalisations_of_huge_numbers(size):
    """Rows shorter than a vector are NaN in eager where the square of their mean overflows; of others the deviation is
    infinite, and its reciprocal 0."""
    x = torch.tensor([[1.5, 2.0, 3.1], [-1.0, -2.0, 0.7]]) * size
    same(lambda x: (F.layer_norm(x, (3,)), F.group_norm(x[None], 2), F.instance_norm(x[None])), x)
    long = torch.linspace(-1, 2, 66).view(2, 33) * size
    mine = lampwork.compile(lambda x: F.group_norm(x[None], 2), options={"cache": False})(long)
    assert torch.equal(mine.isfinite(), F.group_norm(long[None], 2).isfinite())
    normalised = lambda x: F.batch_norm(x, None, None, training=True)
    columns = x.t().contiguous()
    mine = lampwork.compile(normalised, options={"cache": False})(columns)
    torch.testing.assert_close(mine, normalised(columns), rtol=1e-5, atol=1e-5)


def test_rows_of_any_length():
    compiled = lampwork.compile(lambda x: F.layer_norm(x, (x.size(1),)), dynamic=True, options={"cache": False})
    for length in (3, 5, 7, 33):
        x = torch.linspace(1, 2, 2 * length).view(2, length) * 1e25
        assert torch.equal(compiled(x).isnan(), F.layer_norm(x, (length,)).isnan())


def test_the_deviation_of_all_elements_overflows_with_their_sum():
    x = torch.tensor([1.0, 1.5, 2.0, 2.5, 1.0]) * 1e38
    same(lambda x: (x.std(), x.var(), x.std(0), x[:2].std()), x)


def test_means_of_rows_of_varying_length_beside_an_infinity():
    """Eager's running mean is NaN from an infinity on; of too few elements only the variance is."""
    for correction in (0, 1, 0.5):
        program = lambda x, c=correction: torch.var_mean(x, 1, correction=c)
        compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
        for row in ([1.0, inf, 2.0], [inf], [1.0, inf, inf, 3.0, 4.0], [1.0], [1.0, 2.0]):
            x = torch.tensor([row, row])
            for mine, theirs in zip(compiled(x), program(x), strict=True):
                torch.testing.assert_close(mine, theirs, equal_nan=True)


@pytest.mark.parametrize(
    "pool", [lambda x: F.avg_pool2d(x, 1), lambda x: F.avg_pool2d(x, 2), lambda x: F.interpolate(x, size=(5, 5))]
)
def test_derivatives_of_pools_are_added_to_zeros(pool):
    """The sum of negative zeros alone was -0."""
    x = torch.randn(1, 2, 4, 4, requires_grad=True)
    tangent = torch.tensor(-0.0).expand(pool(x).shape)
    (expected,) = torch.autograd.grad(pool(x), x, tangent)
    (found,) = torch.autograd.grad(lampwork.compile(pool, options={"cache": False})(x), x, tangent)
    assert torch.equal(found.signbit(), expected.signbit())


@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last_3d])
def test_resampled_volumes_are_means_of_means(memory_format, channels):
    """A zero of a neighbour of weight 0 is lost in the mean beside it, whose sign a weight of 0 keeps."""
    program = lambda x: F.interpolate(x, (5, 5, 5), mode="trilinear")
    generator = torch.Generator().manual_seed(0)
    choice = torch.randint(0, 8, (2, channels, 3, 3, 3), generator=generator)
    x = torch.tensor([0.0, 0.5, -0.5, -0.0, -0.0, -0.0, -0.0, -0.0])[choice].contiguous(memory_format=memory_format)
    expected = program(x)
    assert int((expected == 0).sum()) > 100
    assert torch.equal(lampwork.compile(program, options={"cache": False})(x).signbit(), expected.signbit())


@pytest.mark.parametrize("name", sorted({*INLINE, *SLEEF, "relu", "silu", "softplus", "mish", "selu"}))
def test_missing_values_of_all_kinds(name):
    """Functions of a NaN are NaN whatever bits it has: those of vendors' functions have all set."""
    bits = [0x7FC00000, -1, 0x7FFFFFFF, 0x7F800001, 0x7FC00001, 0x7FBFFFFF, 0x7F80FFFF, 0x7F807FFF]
    function = getattr(torch, name, None) or getattr(F, name, None) or getattr(torch.special, name)
    inputs = torch.tensor(bits, dtype=torch.int32).view(torch.float32).repeat(5)
    program = function if name not in ("pow", "hypot", "atan2", "fmod") else lambda x: function(x, x + 1)
    compiled = lampwork.compile(lambda x: program(x).isnan(), options={"cache": False})
    for x in (inputs, inputs.double(), inputs.bfloat16()):
        assert bool(compiled(x).all())


def test_exponents_moved_by_more_than_a_power_holds():
    x = torch.tensor([0.0, -0.0, 1.0, -1.5, 2.0**-133, 3e38, inf, nan])
    for by in (1, -3, 127, -149, 200, -200, 257, 300, -300, 5000, -5000):
        exponents = torch.full((8,), by)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            same(torch.ldexp, x.to(dtype), exponents)
    same(torch.ldexp, torch.arange(8), torch.arange(8) * 30)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("value", [nan, inf, -inf, 3e9, -1.5])
def test_floats_copied_into_integers(dtype, value):
    same(lambda x: x.clone().copy_(value), torch.tensor([3, 4], dtype=dtype))


@pytest.mark.parametrize("size", [4, 7, 8, 9, 15, 16, 24])
def test_rows_whose_elements_have_no_square(size):
    for place in range(min(size, 9)):
        x = torch.linspace(-1, 1, size).repeat(2, 1)
        x[0, place] = 1e30
        if size < 17 or place % 8:
            same(lambda x: F.layer_norm(x, (size,)).isnan(), x)
            same(lambda x: F.group_norm(x[..., None], 1).isnan(), x)


def test_remainders_of_quotients_that_overflow():
    """Eager's vectors say NaN, its scalars what is left."""
    x, y = torch.tensor([1e300, 5e10, -1e300, 7.0], dtype=torch.float64), torch.full((4,), 1e-300, dtype=torch.float64)
    expected = torch.tensor([math.fmod(a, b) for a, b in zip(x.tolist(), y.tolist())], dtype=torch.float64)
    for program in (torch.fmod, lambda x, y: torch.fmod(x.repeat(9), y.repeat(9))[:4]):
        assert torch.equal(lampwork.compile(program, options={"cache": False})(x, y), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("correction", [0, 1, 3])
def test_means_of_short_rows_that_end_in_an_infinity(dtype, correction):
    """Eager's running mean is infinite there, and NaN where another element is no number or infinite."""
    rows = [
        [1, 2, inf],
        [1, inf, 2],
        [-inf, 1, -inf],
        [1, 1, -inf],
        [nan, 1, inf],
        [inf, inf, inf],
        [1, 2, nan],
        [1, 2, 3],
    ]
    x = torch.tensor(rows, dtype=dtype)
    same(lambda x: torch.var_mean(x, 1, correction=correction)[1], x)
    same(lambda x: torch.std_mean(x.t(), 0, correction=correction, keepdim=True)[1], x)
    same(lambda x: torch.var_mean(x.view(2, 4, 3), (0, 2), correction=correction)[1], x)


def test_zeros_in_place_of_nan():
    for number in (-0.0, 0.0, None, 2.0):
        same(lambda x: torch.nan_to_num(x, nan=number), torch.tensor([nan, 1.0, inf]))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_one_point(place, reduction):
    same(lambda x, y: F.nll_loss(x, y, reduction=reduction), torch.tensor([-0.0, 0.0]), torch.tensor(place))


@pytest.mark.parametrize("dilation", [1, 2])
def test_convolutions_of_one_channel(dilation):
    """Each result is one product; another algorithm, which dilated ones take, adds it to 0."""
    weight = torch.tensor([0.0, 0.25]).view(2, 1, 1, 1)
    same(lambda x, w: F.conv2d(x, w, dilation=dilation), -torch.ones(1, 1, 2, 1), weight)


@pytest.mark.parametrize("order", [2, 3, -2])
@pytest.mark.parametrize("dim", [None, -1, 0])
def test_norms_of_one_number(order, dim):
    """Of a tensor without dimensions they are taken by powers, where a dimension is named."""
    for number in (5.7e28, -3e-30, 0.5, nan):
        same(lambda x: torch.linalg.vector_norm(x, order, dim), torch.tensor(number))
        same(lambda x: torch.linalg.vector_norm(x, order, dim), torch.tensor([number]))


@pytest.mark.parametrize("dims", [0, -1, (0, 2), None], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_running_means_beside_infinities(dims, dynamic):
    """An infinity is the mean where it comes last, and NaN elsewhere."""
    program = lambda x: torch.std_mean(x, dims)
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    generator = torch.Generator().manual_seed(0)
    for shape in ((2, 3, 4), (3, 5, 2), (9, 2, 3), (2, 3, 11)):
        for _ in range(10):
            x = torch.randn(shape, generator=generator)
            x = torch.where(torch.rand(shape, generator=generator) < 0.1, inf * x.sign(), x)
            torch.testing.assert_close(compiled(x), program(x), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaled_terms_that_are_out_of_range(dtype):
    """Eager adds and scales in one instruction."""
    largest = torch.finfo(dtype).max
    x = torch.tensor([-inf, inf, -largest, -largest, 1.0], dtype=dtype)
    y = torch.tensor([largest, largest, largest / 2, largest, -largest], dtype=dtype)
    same(lambda x, y: torch.add(x, y, alpha=3), x, y)
    same(lambda x, y: torch.sub(x, y, alpha=-3), x, y)
    same(lambda x, y: torch.rsub(y, x, alpha=-3), x, y)
    same(lambda x, y: x.clone().add_(y, alpha=3), x, y)


@pytest.mark.parametrize("shape", [(), (1,), (2, 1), (1, 2), (2, 1, 1)], ids=str)
@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_zeros_as_gradients_of_rows_of_one_element(function, shape):
    for dim in [k for k, size in enumerate(shape or (1,)) if size == 1]:
        for number in (-0.0, 0.0, -1.0, 2.0):

            def program(x, tangent, dim=dim):
                return torch.autograd.grad(function(x, dim) ** 2, x, tangent)

            same(program, torch.full(shape, 0.5, requires_grad=True), torch.full(shape, number))


@pytest.mark.parametrize("size, step", [(3, 1), (2, 1), (3, 2), (2, 2), (2, 3), (5, 1), (1, 1)])
@pytest.mark.parametrize("function", [torch.Tensor.unfold, torch.unfold_copy])
def test_zeros_as_gradients_of_windows(function, size, step):
    """Windows that overlap are added to zeros."""
    for number in (-0.0, 0.0):

        def program(x):
            windows = function(x, 0, size, step) * 1
            return torch.autograd.grad(windows, x, torch.full_like(windows, number))

        same(program, torch.ones(5, 2, requires_grad=True))


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_zeros_as_gradients_of_a_cross_entropy(classes):
    for number in (-0.0, 0.0):
        for reduction in ("none", "mean", "sum"):

            def program(x, reduction=reduction, number=number):
                loss = F.cross_entropy(x, torch.zeros(3, dtype=torch.int64), reduction=reduction)
                return torch.autograd.grad(loss, x, torch.full_like(loss, number))

            same(program, torch.ones(3, classes, requires_grad=True))


NORMS = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer_norm with a weight": lambda x: F.layer_norm(x, x.shape[-1:], -2 * torch.ones(x.shape[-1])),
    "group_norm": lambda x: F.group_norm(x, x.shape[1]),
}


@pytest.mark.parametrize("name", NORMS)
def test_zeros_as_gradients_of_norms_of_one_element(name):
    """Eager's sums begin with a zero in one kernel, and with the first term in the other."""
    for value in (0.0, -0.0, 1.5, -2.0):
        for number in (-0.0, 0.0, 1.0, -3.0):

            def program(x, number=number):
                result = NORMS[name](x)
                return torch.autograd.grad(result, x, torch.full_like(result, number))

            same(program, torch.full((3, 1), value, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("grad", [False, True])
def test_roots_by_an_exponent_that_varies_in_place(dtype, grad):
    """Of -0 and of -inf roots are not what powers are."""

    def program(x, n):
        y = x * 1
        y **= n
        return y, (x * 1).pow_(n)

    x = torch.tensor([-0.0, 0.0, -inf, inf, -1.0, 2.0, nan], dtype=dtype)
    compiled = lampwork.compile(program, options={"cache": False})
    for exponent in (0.3, 0.4, 0.5, -0.5, 1.5, 0.25):
        results = []
        for function in (compiled, program):
            leaf = x.clone().requires_grad_(grad)
            made = function(leaf, exponent)
            results.append([*made, *(torch.autograd.grad(sum(each.sum() for each in made), [leaf]) if grad else [])])
        for mine, theirs in zip(*results):
            torch.testing.assert_close(mine, theirs, equal_nan=True)
            assert torch.equal(mine.signbit() | mine.isnan(), theirs.signbit() | theirs.isnan())


@pytest.mark.parametrize("rows, inner, columns", [(2, 4, 8), (16, 16, 16), (17, 16, 16), (32, 64, 32)])
@pytest.mark.parametrize("freeze", [False, True])
def test_half_products_of_numbers_below_the_smallest_normal_one(rows, inner, columns, freeze):
    """oneDNN takes them for zeros where it has bfloat16 instructions: so does eager, of products that it is given."""
    weight = torch.full((columns, inner), 1e-39, dtype=torch.bfloat16)
    x = torch.full((rows, inner), inf, dtype=torch.bfloat16)
    for program in (lambda x: F.linear(x, weight), lambda x: F.linear(x, weight).sigmoid(), lambda x: x @ weight.T):
        with torch.no_grad():
            compiled = lampwork.compile(program, options={"cache": False, "freeze": freeze})
            torch.testing.assert_close(compiled(x), program(x), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("activation", [F.relu, F.gelu, F.silu, torch.tanh, torch.sigmoid])
def test_activations_of_large_products_keep_what_is_no_number(activation, freeze, dtype, monkeypatch):
    """A linear layer is the vendor's, with its activation: of which relu makes 0 of NaN."""
    monkeypatch.setattr(products, "_is_amd", lambda: True)
    weight, x = torch.zeros(512, 256, dtype=dtype), torch.zeros(256, 256, dtype=dtype)
    weight[:, 0], x[:5, 0] = 1, torch.tensor([nan, inf, -100.0, 2.0, -2.0])
    with torch.no_grad():
        compiled = lampwork.compile(
            lambda x: activation(F.linear(x, weight)), options={"cache": False, "freeze": freeze}
        )
        for _ in range(2):
            mine, theirs = compiled(x), activation(F.linear(x, weight))
            assert torch.equal(mine.isnan()[[0, 2, 3, 4]], theirs.isnan()[[0, 2, 3, 4]])
            torch.testing.assert_close(mine[2:], theirs[2:])
            assert mine[0].isnan().all()


LIMITS = {
    "min": lambda x, n: x.clamp(min=n), "max": lambda x, n: torch.clip(x, None, n), "from": lambda x, n: x.clamp(n, 1.0),
    "to": lambda x, n: x.clamp(-1.0, n), "clamp_min": torch.clamp_min, "clamp_max": torch.clamp_max,
    "in place": lambda x, n: (x * 1).clamp_(min=n), "out of a tensor": lambda x, n: x.clamp(min=torch.tensor([n, 1]).sum().item() - 1),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_limits_that_vary(name, dtype):
    """A value that equals a number stays what it is, -0 and 0 too; beside a tensor it does not."""
    program = LIMITS[name]
    compiled = lampwork.compile(program, options={"cache": False})
    for limit in (0.5, 0.25, 0.0, -0.0, nan):
        results = []
        for function in (compiled, program):
            x = torch.tensor([-0.0, 0.0, 1.0, -1.0, nan, 0.25, inf, -inf], dtype=dtype, requires_grad=True)
            made = function(x, limit)
            results.append((made.detach(), *torch.autograd.grad(made.sum(), [x])))
            with torch.no_grad():
                results[-1] += (function(x, limit),)
        for mine, theirs in zip(*results):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(mine.signbit() | mine.isnan(), theirs.signbit() | theirs.isnan())


@pytest.mark.parametrize("takes", [False, True])
def test_one_limit_that_is_missing(takes, monkeypatch):
    """In some releases it is none, but for `clamp_min` and beside another limit: a kernel is asked."""
    given = torch.zeros(1).clamp(nan).isnan().item()
    assert lampwork._torch.clamp_takes_missing_limits() == given
    monkeypatch.setattr(lampwork._torch, "clamp_takes_missing_limits", lambda: takes)
    x = torch.tensor([-0.5, 0.5])
    for name in ("min", "max", "from", "to", "clamp_min", "clamp_max", "in place"):
        is_one = name in ("min", "max", "in place")
        for program in (LIMITS[name], lambda x, n: LIMITS[name](x, nan)):
            compiled = lampwork.compile(program, options={"cache": False})
            results = [compiled(x, limit) for limit in (0.25, 0.75, nan)]
            assert bool(results[-1].isnan().all()) == (takes or not is_one), name
