"""Errors of eager's kernels for a GPU, and numbers that Triton's literals do not hold."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import lampwork

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def on_gpu(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device="cuda")


REFUSED = {
    "two devices": (lambda x: x * torch.ones(3), (on_gpu, 3)),
    "two devices, products": (lambda x: x @ torch.ones(3, 3), (on_gpu, 3, 3)),
    "too many scalars of a CPU": (lambda x: torch.addcmul(x, torch.tensor(2.0), torch.tensor(2.0)), (on_gpu, 3)),
    "an end on the CPU": (lambda x: torch.lerp(x, torch.tensor(2.0), 0.25), (on_gpu, 3)),
    "angle of a half type": (lambda x: torch.angle(x.half()), (on_gpu, 3)),
    "products of bytes": (lambda x: torch.addmm(x.byte(), x.byte(), x.byte()), (on_gpu, 2, 2)),
    "dot of whole numbers": (lambda x: torch.dot(x.long(), x.long()), (on_gpu, 3)),
    "a mask on the CPU": (lambda x: torch.masked_select(x, torch.ones(x.shape) > 0), (on_gpu, 1, 1)),
    "a mask without dimensions on the CPU": (lambda x: torch.masked_select(x, torch.tensor(True)), (on_gpu, 3)),
    "selected on the CPU": (lambda x: torch.masked_select(torch.ones(3), x > 0), (on_gpu, 3)),
    "weights on the CPU": (lambda x: torch.bincount(x.long(), weights=torch.ones(3)), (on_gpu, 3)),
    "products of two types": (lambda x: x @ x.long(), (on_gpu, 2, 2)),
    "channels": (lambda x: F.conv_transpose1d(x, torch.ones(3, 3, 3, device="cuda")), (on_gpu, 1, 1, 4)),
    "a pool of nothing": (lambda x: F.adaptive_avg_pool2d(x[..., :0], 3), (on_gpu, 1, 2, 9, 4)),
    "nothing enlarged": (lambda x: F.interpolate(x[..., :0], scale_factor=2, mode="bicubic"), (on_gpu, 2, 1, 3, 3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_refused(name):
    function, (make, *shape) = REFUSED[name]
    x = make(*shape)
    with pytest.raises(Exception) as expected:
        function(x)
    with pytest.raises(expected.type) as found:
        lampwork.compile(lambda x: function(x) + 1)(x)
    assert type(found.value) is expected.type


def _same(ours, expected):
    assert ours.dtype == expected.dtype and ours.stride() == expected.stride()
    torch.testing.assert_close(ours, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(ours.signbit() & (ours == 0), expected.signbit() & (expected == 0))


NUMBERS = {
    "a double beside a mask": lambda x, n: F.pad(x, (1, 2), value=7.7),
    "a double that varies": lambda x, n: F.pad(x, (1, 2), value=n),
    "bounds of doubles": lambda x, n: x.clamp(-0.1, 0.1),
    "a double of a choice": lambda x, n: torch.where(x > 0, 0.1, x),
    "minus zero times": lambda x, n: torch.copysign(torch.ones_like(x), x * -0.0),
    "minus zero written": lambda x, n: x.clone().fill_(-0.0),
    "minus zero chosen": lambda x, n: torch.where(x > 0, -0.0, x),
    "minus zero padded": lambda x, n: F.pad(x, (1, 1), value=-0.0),
    "nothing is divided by nothing": lambda x, n: F.mse_loss(x[:0], x[:0]).long() + x[:0].mean().int(),
    "negated zeros": lambda x, n: -(x * 0.0),
    "compared with infinity": lambda x, n: torch.isneginf(x.clone().fill_(n)),
    "compared with NaN": lambda x, n: x.clone().fill_(n).lt_(math.nan),
    "gelu": lambda x, n: F.gelu(x - math.inf),
    "gelu of zeros": lambda x, n: F.gelu(x * 0.0),
    "minus zero or one": lambda x, n: torch.where(x.bool(), -0.0, 1).to(x.dtype) + 0 * x,
    "softshrink": lambda x, n: F.softshrink(torch.where(x > 1, math.nan, x), 1.0),
    "a limit that is NaN": lambda x, n: x.clamp(min=math.nan),
    "two limits, one NaN": lambda x, n: x.clamp(min=math.nan, max=1.0),
    "a limit that varies": lambda x, n: x.clamp(min=n / n),
    "two limits, one varies": lambda x, n: x.clamp(n / n, 1.0),
    "two limits, one varies, one is NaN": lambda x, n: x.clamp(math.nan, n),
    "sums of negative zeros": lambda x, n: (x * 0.0).abs().neg().sum(1) + 0,
    "means of negative zeros": lambda x, n: (x * 0.0).abs().neg().mean(0),
    "sums of no numbers": lambda x, n: (x * math.nan).nansum(1),
    "a number without dimensions": lambda x, n: x * torch.full((), 1e30, device=x.device),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_literals_do_not_hold(name, dtype):
    function = NUMBERS[name]
    compiled = lampwork.compile(function)
    x = torch.tensor([[-1.5, 0.0, -0.0, 0.25], [2.0, -0.25, 0.75, -3.0]], dtype=dtype, device="cuda")
    for n in (0.001, 0.3, math.inf, 0.0):
        if n == 0.0 and "varies" in name and "limit" in name:
            continue  # 0 / 0
        _same(compiled(x, n), function(x, n))
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_between_images_of_one_channel(dtype):
    """With channels last the library read the image in the wrong order."""
    x = torch.tensor([-0.75, -0.25, -0.25, -0.25, 0.5, -0.0], dtype=dtype, device="cuda").view(1, 3, 1, 2)
    tangent = torch.tensor([-0.5, -0.6], dtype=dtype, device="cuda").view(1, 1, 1, 2)
    found = []
    for function in (F.conv_transpose2d, lampwork.compile(lambda x, w: F.conv_transpose2d(x, w))):
        weight = torch.tensor([0.25, 0.75, -0.0], dtype=dtype, device="cuda").view(3, 1, 1, 1).requires_grad_()
        function(x, weight).backward(tangent)
        found.append(weight.grad)
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 2, 8, 16)])
def test_flash_attention_with_gradients(shape):
    """Planned was another type for what it returns and nobody uses."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    query = torch.randn(*shape, dtype=torch.float16, device="cuda")
    found = []
    for function in (F.scaled_dot_product_attention, lampwork.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))):  # fmt: skip
        leaf = query.clone().requires_grad_()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            function(leaf, leaf, leaf).sum().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[1], found[0])


MOVED = {
    "written to a CPU": lambda x: torch.zeros(3).copy_(x) + 1,
    "a slice of a CPU": lambda x: torch.zeros(2, 3).index_fill_(0, torch.tensor([0]), 1.0)[0].copy_(x),
    "written to a GPU": lambda x: torch.zeros(3, device=x.device).copy_(torch.arange(3)),
}


@pytest.mark.parametrize("name", MOVED)
def test_what_is_written_stays_where_it_is(name):
    function = MOVED[name]
    x = torch.tensor([1.5, -2.0, 3.0], device="cuda")
    ours, expected = lampwork.compile(function)(x), function(x)
    assert ours.device == expected.device and torch.equal(ours, expected)


def test_a_tensor_on_a_cpu_is_not_written_from_a_gpu():
    program = lambda x: torch.tensor(2.0).sub_(x)
    for function in (program, lampwork.compile(program)):
        with pytest.raises(RuntimeError, match="same device"):
            function(torch.ones((), device="cuda"))


def test_channels_that_stay_are_not_copied():
    x = torch.randn(1, 1, 3, device="cuda")
    assert lampwork.compile(lambda x: torch.channel_shuffle(x, 1))(x).data_ptr() == x.data_ptr()
    spread = torch.randn(8, device="cuda").as_strided((1, 2, 2, 2), (1, 2, 1, 4))
    with pytest.raises(RuntimeError, match="view size"):
        lampwork.compile(lambda x: torch.channel_shuffle(x, 2))(spread)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.25])
@pytest.mark.parametrize("name", ["fft", "rfft", "ihfft", "ifft"])
def test_transforms_of_infinities(name, value):
    """Their `out=` variants multiply by 1, as complex numbers."""
    function = getattr(torch.fft, name)
    x = torch.tensor([[1.25, -0.5, -0.5, value, 1.0, -0.75]], device="cuda")
    ours, expected = lampwork.compile(lambda x: function(x))(x), function(x)
    torch.testing.assert_close(*(torch.view_as_real(each.resolve_conj()) for each in (ours, expected)), equal_nan=True)


NORMS = {
    "layer": lambda x: F.layer_norm(x, x.shape[1:]),
    "group": lambda x: F.group_norm(x, 2),
    "instance": lambda x: F.instance_norm(x),
    "batch": lambda x: F.batch_norm(x, None, None, training=True),
    "variance": lambda x: torch.var_mean(x, (1, 2, 3)),
}


@pytest.mark.parametrize("name", NORMS)
def test_rows_far_from_zero(name):
    """A mean is rounded: of equal elements it was another number than they are."""
    function = NORMS[name]
    torch.manual_seed(0)
    compiled = lampwork.compile(function)
    for x in (torch.full((6, 4, 7, 5), 1000.1), 1000 + 0.25 * torch.randn(6, 4, 7, 5)):
        exact, found = function(x.double()), compiled(x.cuda())
        for wide, ours in zip(exact, found) if isinstance(exact, tuple) else [(exact, found)]:
            torch.testing.assert_close(ours.cpu().double(), wide, rtol=1e-3, atol=2e-3)


def test_places_of_nothing():
    for shape in ((0,), (5, 0, 0), (3, 2)):
        x = torch.zeros(shape, device="cuda")
        for dynamic in (None, True):
            assert lampwork.compile(torch.nonzero, dynamic=dynamic)(x).stride() == torch.nonzero(x).stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_of_a_narrower_type_round_first(dtype):
    x = torch.tensor([[-3.1, -3.4e38, 3.4e38, 0.3, 1.2], [1.001, 2.003, 3.007, 4.01, 5.02]], device="cuda")
    function = lambda x: x.mean(1, dtype=dtype)
    assert torch.equal(lampwork.compile(function)(x).isnan(), function(x).isnan())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_ranges_round_once(dtype):
    """ATen's kernels multiply and add in one instruction: arange(-2, 7, 0.1) has 2.98e-8 where others have 0."""

    def ranges():
        options = {"dtype": dtype, "device": "cuda"}
        return torch.arange(-2, 7, 0.1, **options), torch.arange(3, -2, -0.07, **options)

    for ours, expected in zip(lampwork.compile(ranges)(), ranges()):
        if dtype == torch.float64:
            torch.testing.assert_close(ours, expected)
        else:
            _same(ours, expected)


def test_a_row_of_unknown_stride_is_read_and_written():
    def remainder(x, y):
        x.remainder_(torch.tensordot(y, y, 1))
        return x

    compiled = lampwork.compile(remainder)
    y = on_gpu(2) * 0.5
    for strides in ((2, 2, 2, 1), (4, 4, 4, 2), (9, 9, 9, 3)):
        rows = [torch.arange(1.0, 9.0, device="cuda").as_strided((1, 1, 1, 2), strides) for _ in range(2)]
        _same(compiled(rows[0], y), remainder(rows[1], y))


def test_a_gradient_that_is_missing_on_another_device():
    def moved(x):
        wide = x.to("cpu", torch.float64)
        return wide.chunk(2)[0].clone(), wide

    x = on_gpu(2, 3).requires_grad_()
    for used in ((0,), (1,), (0, 1)):
        gradients = []
        for function in (moved, lampwork.compile(moved)):
            results = function(x)
            torch.autograd.backward([results[k] for k in used], [torch.ones_like(results[k]) for k in used])
            gradients.append(x.grad)
            x.grad = None
        _same(gradients[1], gradients[0])


FIRST_ZEROS = {
    "few windows": (lambda x: F.max_pool2d(x, 2, 1), (1, 1, 3, 3)),
    "one window": (lambda x: F.max_pool2d(x, 3), (1, 1, 3, 3)),
    "windows with padding": (lambda x: F.max_pool2d(x, 2, 2, 1), (1, 1, 3, 3)),
    "windows in one dimension": (lambda x: F.max_pool1d(x, 2, 1), (1, 2, 9)),
    "long windows": (lambda x: F.max_pool1d(x, 43, 1), (1, 1, 200)),
    "rows": (lambda x: torch.stack([x.max(1)[0], x.min(1)[0]]), (3, 50)),
    "columns": (lambda x: torch.stack([x.max(0)[0], x.min(0)[0]]), (50, 3)),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FIRST_ZEROS)
def test_the_first_of_zeros_of_both_signs(name, dtype):
    """The threads that share a window fold in no order."""
    function, shape = FIRST_ZEROS[name]
    compiled = lampwork.compile(lambda x: function(x))
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        zeros = torch.zeros(shape).copysign(torch.randn(shape, generator=generator))
        x = zeros.to(dtype).cuda()
        _same(compiled(x), function(x))


#: Kernels that are given a number as an element of the tensor, rounded to its type; the last as it is.
BESIDE_HALVES = {
    "remainder": lambda x: x % 0.001,
    "remainder of a number": lambda x: torch.remainder(7.001, x),
    "fmod": lambda x: torch.fmod(x, 0.001),
    "less": lambda x: x < 0.3,
    "less or equal": lambda x: x <= 0.3,
    "equal": lambda x: x == 0.3,
    "where a remainder is zero": lambda x: x % 0.3 == 0,
    "products": lambda x: x * 0.001,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", BESIDE_HALVES)
def test_numbers_beside_half_types(name, dtype):
    function = BESIDE_HALVES[name]
    x = torch.cat([torch.linspace(0.1, 9, 500), torch.tensor([1.130859375, 0.3, -0.3, 0.6])]).to(dtype).cuda()
    ours, expected = lampwork.compile(lambda x: function(x))(x), function(x)
    assert ours.dtype == expected.dtype
    assert torch.equal(ours, expected)


@pytest.mark.parametrize(("dtype", "base"), [(torch.float16, 1.003), (torch.bfloat16, 1.01)])
def test_powers_round_a_number_beside_half_types(dtype, base):
    """Its 60th power tells it from the rounded one."""
    x = torch.linspace(0.1, 60, 500).to(dtype).cuda()
    ours, expected = lampwork.compile(lambda x: base**x)(x), base**x
    torch.testing.assert_close(ours, expected)
    assert not torch.allclose(expected.double(), base ** x.double(), rtol=2e-3 if dtype == torch.float16 else 1.6e-2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(("mode", "shape"), [("linear", (1, 2, 5)), ("bilinear", (1, 2, 1, 5)), ("trilinear", (1, 1, 1, 2, 5))])  # fmt: skip
def test_where_nothing_is_resampled_elements_are_copied(mode, shape, align, dtype):
    x = torch.tensor([-0.75, 0.25, -1.25, -0.75, -0.25, -0.5, 0.0, -0.0, 0.0, -0.75], dtype=dtype, device="cuda")
    function = lambda x: F.interpolate(x, size=shape[2:], mode=mode, align_corners=align)
    _same(lampwork.compile(function)(x.view(shape)), function(x.view(shape)))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("sizes", [(5, 7), (9, 30), (40, 13)])
def test_means_of_images_are_nested(sizes, memory_format):
    """Zeros have eager's signs, and other means its last digit."""
    torch.manual_seed(1)
    x = torch.randn(2, 8, sizes[0], sizes[0])
    x = torch.where(torch.rand_like(x) < 0.5, -0.0, x).cuda().contiguous(memory_format=memory_format)
    function = lambda x: F.interpolate(x, size=sizes[1], mode="bilinear")
    ours, expected = lampwork.compile(function)(x), function(x)
    assert torch.equal(ours, expected) and torch.equal(ours.signbit(), expected.signbit())


ROWS_OF_RMS_NORM = [
    ((1, 2), (1, 1)), ((1, 1, 1, 33), (1, 33, 33, 1)), ((0, 1), (1, 1)), ((2, 1, 0), (1, 2, 2)), ((1, 1, 2), (2, 1, 1)),
    ((2, 1, 1, 1), (1, 2, 2, 2)), ((3, 4), (1, 3)), ((2, 3, 4, 5), (60, 1, 15, 3)), ((2, 1, 4, 4), (16, 1, 4, 1)),
]  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("shape", "strides"), ROWS_OF_RMS_NORM)
def test_strides_of_rms_norm(shape, strides, weighted):
    memory = torch.randn(128, device="cuda")
    weight = torch.randn(shape[-1:], device="cuda") if weighted else None
    norm = lambda x: F.rms_norm(x, shape[-1:], weight)
    x = memory.as_strided(shape, strides)
    for dynamic in (False, True):
        ours = lampwork.compile(norm, dynamic=dynamic)(x)
        assert ours.stride() == norm(x).stride()
        torch.testing.assert_close(ours, norm(x))
    gradients = []
    for function in (norm, lampwork.compile(norm)):
        leaf = memory.as_strided(shape, strides).detach().requires_grad_()
        function(leaf).backward(torch.ones(shape, device="cuda"))
        gradients.append(leaf.grad)
    assert gradients[1].stride() == gradients[0].stride()
    torch.testing.assert_close(gradients[1], gradients[0])


IMAGES = [
    ((1, 2, 1, 1, 1), (2, 1, 2, 2, 2), (1, 2, 1, 1, 1)), ((1, 2, 1, 1, 1), (2, 1, 1, 1, 1), (1, 2, 1, 1, 1)),
    ((2, 3, 4, 4, 4), (192, 1, 48, 12, 3), (2, 3, 2, 2, 2)), ((2, 3, 4, 4), (48, 1, 12, 3), (2, 3, 2, 2)),
    ((1, 2, 1, 1), (2, 1, 2, 2), (1, 2, 1, 1)), ((1, 2, 1), (2, 1, 2), (1, 2, 1)), ((2, 3, 4), (12, 1, 3), (2, 3, 2)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("shape", "strides", "kernel"), IMAGES)
def test_strides_of_gradients_of_convolutions(shape, strides, kernel, dtype):
    convolution = (F.conv1d, F.conv2d, F.conv3d)[len(shape) - 3]
    memory = torch.randn(math.prod(shape), dtype=torch.float64).to(dtype).cuda()
    found = []
    for function in (convolution, lampwork.compile(lambda x, w: convolution(x, w))):
        x = memory.as_strided(shape, strides).detach().requires_grad_()
        weight = torch.ones(kernel, dtype=dtype, device="cuda").requires_grad_()
        result = function(x, weight)
        result.backward(torch.ones_like(result))
        found.append([each.stride() for each in (result, x.grad, weight.grad)])
    assert found[1] == found[0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bias", [-0.0, 0.0])
def test_a_bias_of_negative_zero(training, bias):
    x = torch.tensor([[-1.0, 0.5, 3.0], [0.5, -1.0, 5.0]], device="cuda")
    for scale in (-0.0, 0.0):
        arguments = [
            None if training else on_gpu(3) * 0,
            None if training else on_gpu(3),
            scale * on_gpu(3),
            bias * on_gpu(3),
        ]
        function = lambda x: F.batch_norm(x, *arguments, training)
        _same(lampwork.compile(function)(x), function(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_strides_of_two_types(dynamic):
    """Operands are cast as they are read, not copied."""
    long, short = torch.rand(10, dtype=torch.float64, device="cuda") + 0.5, torch.rand(5, device="cuda")
    one, other = short.as_strided((2, 2), (0, 2)), long.as_strided((1, 1, 2, 2), (1, 2, 1, 2), 4)
    column, bit = short[:2].view(2, 1).as_strided((2, 1), (1, 2)), short[:1].bfloat16().as_strided((2, 1), (0, 1))
    for operands, function in (((one, other), lambda x, y: (torch.remainder(x, y), x * y, y < x)),
                               ((column, bit), lambda x, y: (x + y, y - x, x / y))):  # fmt: skip
        for ours, expected in zip(lampwork.compile(function, dynamic=dynamic)(*operands), function(*operands)):
            assert ours.stride() == expected.stride() and ours.dtype == expected.dtype
            torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("transform", [torch.fft.rfft, torch.fft.ifft, torch.fft.rfft2])
def test_real_numbers_that_begin_between_two_complex_ones(transform):
    """Eager copies them for cuFFT first, which shows in strides."""
    memory = torch.randn(80, device="cuda")
    layouts = (((1, 1, 2, 1), (1, 6, 3, 6)), ((2, 3, 4), (1, 2, 6)), ((2, 3, 4), (4, 8, 1)), ((1, 4), (1, 1)))
    for shape, strides in layouts:
        compiled = lampwork.compile(lambda x: transform(x), dynamic=False)
        for offset in (3, 4, 6, 5, 0):
            x = memory.as_strided(shape, strides, offset)
            assert compiled(x).stride() == transform(x).stride(), (shape, strides, offset)
            torch.testing.assert_close(compiled(x), transform(x))
        assert lampwork.stats(compiled)["captures"] == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("dynamic", [False, True])
def test_zeros_of_normalised_rows(dtype, dynamic):
    compiled = lampwork.compile(lambda x: F.layer_norm(x, (x.size(1),)), dynamic=dynamic)
    for length in (2, 3, 4, 8, 5):
        x = torch.zeros(2, length, dtype=dtype).copysign(torch.tensor([[-1.0], [1.0]])).cuda()
        _same(compiled(x), F.layer_norm(x, (length,)))


def _whole(*values):
    return torch.tensor(values, dtype=torch.int64, device="cuda")


LAID_OUT = {
    "picked from nothing": (lambda x, index: x[index % 1, ..., None], lambda: (on_gpu(1, 1), _whole())),
    "places beside a column": (lambda x, y: torch.nonzero(x) > y, lambda: (on_gpu(2), on_gpu(2, 1))),
    "few places": (lambda x, y: torch.nonzero(x) + y, lambda: (on_gpu(2) * 0, _whole(1))),
    "few rows": (lambda x, y: x[y > 0][:, None] * x, lambda: (on_gpu(1, 3), _whole(0))),
    "known numbers": (lambda x, y: (x.fill_(2) - 3 * x.fill_(2), y.max(1)[0]), lambda: (on_gpu(5, 1), on_gpu(2, 3))),
}


@pytest.mark.parametrize("name", LAID_OUT)
def test_results_of_few_elements(name):
    function, make = LAID_OUT[name]
    ours, expected = lampwork.compile(lambda x, y: function(x, y))(*make()), function(*make())
    for one, other in zip(ours, expected) if isinstance(expected, tuple) else [(ours, expected)]:
        _same(one, other)


@pytest.mark.parametrize("strides", [(1, 1, 0, 1), (1, 1, 1, 1)])
def test_gradients_of_losses_of_one_point(strides):
    found = []
    for function in (F.nll_loss, lampwork.compile(lambda x, target: F.nll_loss(x, target))):
        x = torch.ones(1, device="cuda").as_strided((1, 1, 1, 1), strides).requires_grad_()
        function(x, _whole(0).view(1, 1, 1)).backward()
        found.append(x.grad.stride())
    assert found[0] == found[1]


@pytest.mark.parametrize("strides", [(1, 8, 2, 24), (72, 24, 1, 4), (72, 1, 18, 3)])
def test_windows_of_any_layout(strides):
    """The first of equal elements in a window is the result, whatever their order in memory."""
    zeros = torch.zeros(160).copysign(torch.randn(160, generator=torch.Generator().manual_seed(0)))
    x = zeros.cuda().as_strided((2, 3, 4, 6), strides)
    for window in (2, (2, 3), 3):
        function = lambda x: F.max_pool2d(x, window, 1)
        _same(lampwork.compile(function)(x), function(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8], ids=str)
def test_the_smallest_integer_is_its_own_absolute_value(dtype):
    x = torch.tensor([0, 5, -5, torch.iinfo(dtype).min, torch.iinfo(dtype).max] * 40, dtype=dtype, device="cuda")

    def program(x):
        ways = x.abs(), torch.where(x < 0, -x, x), torch.maximum(x, -x), torch.where(x > 0, x, x * -1)
        return [f(a) for a in ways for f in (abs, lambda a: a < 0, torch.erfc, torch.sign, lambda a: a.clamp(min=-7))]

    for ours, theirs in zip(lampwork.compile(program)(x), program(x)):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape, strides", [((2, 1, 1), (1, 2, 2)), ((1, 1, 6), (7, 7, 1)), ((2, 1, 3, 1), (3, 9, 1, 9)),
                                            ((2, 3, 1, 1), (3, 1, 9, 9)), ((2, 3, 4, 1), (12, 1, 3, 3))], ids=str)  # fmt: skip
def test_strides_of_batch_norms_where_a_dimension_has_one_element(shape, strides):
    x = torch.rand(60, device="cuda").as_strided(shape, strides)
    weight = torch.ones(shape[1], device="cuda")
    function = lambda x: F.batch_norm(x, None, None, weight, weight, training=True)
    ours, expected = lampwork.compile(function)(x), function(x)
    assert ours.stride() == expected.stride()
    torch.testing.assert_close(ours, expected)


def test_the_sign_of_zero_after_a_negative_alpha():
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.nan], device="cuda")
    for function in (lambda x: F.elu(x, -0.5), F.elu, F.selu, lambda x: F.celu(x, -0.5)):
        ours, expected = lampwork.compile(function)(x), function(x)
        torch.testing.assert_close(ours, expected, equal_nan=True)
        assert torch.equal(ours.signbit()[:4], expected.signbit()[:4])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", [2**62 - 1, 2**40 + 3, 1 - 2**33, 2**31, 2**31 - 1, -(2**31), 5, -1050])
def test_exponents_of_ldexp(exponent, dtype):
    x, y = torch.full((40,), 0.75, dtype=dtype, device="cuda"), torch.full((40,), exponent, device="cuda")
    assert torch.equal(lampwork.compile(torch.ldexp, options={"cache": False})(x, y), torch.ldexp(x, y))
