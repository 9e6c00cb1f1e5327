"""Programs scheduled for a GPU, run in Triton's interpreter on CPU tensors, must equal eager."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from lampwork.codegen.triton.source import kernel_source
from lampwork.config import Settings
from lampwork.errors import CompileError
from lampwork.ir.loops import Axis, Kernel, Load, Loop, Parameter, Store
from lampwork.ir.size import Symbol
from lampwork.schedule import schedule
from tests.thresholds import thresholds
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import TARGET, assert_like_eager, compare, program_of, run_program, sources
from tests.unit.schedule.programs import Graph

pytestmark = pytest.mark.skipif(bool(available()), reason=available())


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def kernels(program) -> int:
    return len(program.kernels)


POINTWISE = {
    "gelu": F.gelu,
    "broadcast": lambda x: x * x[:1] + x[:, :1],
    "silu": lambda x: F.silu(x) - torch.sigmoid(x),
    "where": lambda x: torch.where(x > 0, x, torch.exp(x)),
    "clamp": lambda x: x.clamp(-0.5, 0.5).round() + x.floor(),
    "cast": lambda x: (x * 100).to(torch.int32) // 7,
}


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("shape", [(7, 13), (1, 5), (64, 128), (3, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_pointwise(name, shape, dtype):
    program = assert_like_eager(POINTWISE[name], torch.randn(shape).to(dtype))
    assert kernels(program) == 1


REDUCED = {
    "sum": lambda x: x.sum(-1),
    "mean_first": lambda x: x.mean(0),
    "amax": lambda x: x.amax(-1),
    "amin_all": lambda x: x.amin(),
    "argmax": lambda x: x.argmax(-1),
    "argmin_first": lambda x: x.argmin(0),
    "any": lambda x: (x > 1).any(-1),
    "all": lambda x: (x > -2).all(0),
    "prod": lambda x: (1 + 0.01 * x).prod(-1),
    "softmax": lambda x: x.softmax(-1),
    "softmax_first": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], x[0], x[0]),
    "var": lambda x: x.var(-1),
    "rms": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "max_dim": lambda x: x.max(-1),
}


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("shape", [(7, 13), (1, 5), (3, 200), (5, 1)])
def test_reductions(name, shape):
    x = torch.randn(shape)
    if name == "var" and shape[-1] == 1:
        pytest.skip("eager warns")
    assert_like_eager(REDUCED[name], x)


@pytest.mark.parametrize("name", REDUCED)
def test_long_rows_in_blocks(name):
    """A row longer than what one program keeps is folded block by block."""
    if name == "layer_norm":
        assert_like_eager(REDUCED[name], torch.randn(2, 20011), rtol=1e-5, atol=2e-5)
    else:
        assert_like_eager(REDUCED[name], torch.randn(2, 20011), rtol=2e-5, atol=1e-5)


MEMORY = {
    "transpose": lambda x: x.transpose(-1, -2).contiguous(),
    "permute": lambda x: x.permute(2, 0, 1).contiguous() + 1,
    "transpose_add": lambda x: x + x.transpose(0, 1).transpose(0, 1).flip(0),
    "cat": lambda x: torch.cat([x, x * 2, x[:, :1]], 1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=0.5),
    "roll": lambda x: x.roll(1, -1),
    "strided": lambda x: x[:, ::2, 1:] * 2,
    "max_pool": lambda x: F.max_pool2d(x, 2, 1),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "nearest": lambda x: F.interpolate(x[None], scale_factor=2),
    "rope": lambda x: torch.cat([-x[..., 3:], x[..., :3]], -1) * x.cos(),
}


@pytest.mark.parametrize("name", MEMORY)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "gaps"])
def test_memory(name, layout):
    x = torch.randn(3, 9, 6)
    if layout == "transposed":
        x = torch.randn(6, 9, 3).permute(2, 1, 0)
    elif layout == "gaps":
        x = torch.randn(3, 18, 7)[:, ::2, 1:]
    assert_like_eager(MEMORY[name], x)


def test_large_transposes_are_tiled():
    program = assert_like_eager(lambda x: x.t().contiguous(), torch.randn(70, 100))
    (kernel,) = sources(program)
    assert dict(kernel.constants).keys() == {"XBLOCK", "YBLOCK"}
    assert_like_eager(lambda x: x.transpose(1, 2).contiguous(), torch.randn(3, 70, 100).bfloat16())


def test_gather():
    table, rows = torch.randn(11, 70), torch.randint(0, 11, (5, 3))
    assert_like_eager(lambda w, i: F.embedding(i, w) * 2, table, rows)
    assert_like_eager(lambda w, i: w[i], table, rows)
    assert_like_eager(lambda w, i: w[i, :2], table, rows - 5)
    assert_like_eager(lambda w, i: torch.gather(w, 0, i), table, torch.randint(0, 11, (4, 70)))
    assert_like_eager(lambda w, i: F.layer_norm(F.embedding(i, w), (70,)), table, rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32])
def test_scatter_add(dtype):
    x, rows = torch.randint(-9, 9, (7, 5)).to(dtype), torch.randint(0, 4, (7, 5))
    assert_like_eager(lambda x, i: torch.zeros(4, 5, dtype=x.dtype).scatter_add(0, i, x), x, rows)
    assert_like_eager(lambda x, i: x.index_add(0, i[:, 0], x), x, rows)
    assert_like_eager(lambda x, i: x.index_put((i[:, 0],), x, accumulate=True), x, rows)


def test_scatter():
    x = torch.randn(7, 5)
    assert_like_eager(lambda x, i: x.index_copy(0, i, x * 2), x, torch.randperm(7))
    assert_like_eager(lambda x, i: x.scatter(0, i, 1.5), x, torch.randint(0, 7, (2, 5)))


def test_no_atomic_addition():
    with pytest.raises(CompileError, match="scatter_add.*no atomic addition of int8"):
        assert_like_eager(
            lambda x, i: x.scatter_add(0, i, x), torch.ones(4, dtype=torch.int8), torch.zeros(4, dtype=torch.int64)
        )
    i = Symbol("i0", 0, 3)
    store = Store("b1", (0,), Load("b0", (i,), "bfloat16"), "add")
    parameters = (Parameter("b0", "bfloat16", "read", 4), Parameter("b1", "bfloat16", "readwrite", 1))
    kernel = Kernel("adds", parameters, (Loop(Axis("i0", 4), (store,), "parallel"),))
    assert "tl.atomic_add" in kernel_source(kernel, TARGET).source
    with pytest.raises(CompileError, match="no atomic addition of bfloat16 on sm_80"):
        kernel_source(kernel, replace(TARGET, name="sm_80"))


@pytest.mark.parametrize("op", ["max", "min", "amax", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8], ids=str)
def test_nan_and_ties(op, dtype):
    x = torch.randint(0, 3, (40, 50)).to(dtype)
    if dtype.is_floating_point:
        x[::3, 7:9] = float("nan")
        x[1::3] = float("inf") if "min" in op else -float("inf")
    for dim in (0, 1):
        assert_like_eager(lambda x: getattr(torch, op)(x, dim), x)
    if op.startswith("arg"):
        assert_like_eager(lambda x: getattr(torch, op)(x), x)
        assert_like_eager(lambda x: getattr(torch, op)(x, 1), x.repeat(1, 110))


def test_normalisations():
    x = torch.randn(4, 12, 5, 6)
    weight, bias = torch.randn(12), torch.randn(12)
    assert_like_eager(lambda x, w, b: F.group_norm(x, 3, w, b), x, weight, bias)
    assert_like_eager(lambda x, w, b: F.batch_norm(x, w, b.abs(), w, b), x, weight, bias)
    assert_like_eager(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, weight, bias)
    assert_like_eager(lambda x: F.instance_norm(x), x)
    assert_like_eager(lambda x: F.normalize(x, dim=1), x)
    y = x.bfloat16()
    assert_like_eager(lambda y: F.layer_norm(y, y.shape[1:]), y)
    assert_like_eager(lambda x: F.group_norm(x, 3), x.to(memory_format=torch.channels_last))


def test_weights_of_channels_are_loaded_once_for_many_elements():
    x, weight, bias = torch.randn(2, 12, 50, 64), torch.randn(12), torch.randn(12)
    program = assert_like_eager(lambda x, w, b: F.group_norm(x, 2, w, b), x, weight, bias)
    (kernel,) = sources(program)
    assert "range(0, 6)" in kernel.source


def test_what_rows_share_is_loaded_once_for_many():
    """The weights of channels that come last; rows of a width that no block divides."""
    weights = [torch.rand(width) + 0.5 for width in (320, 320, 320, 320)]

    def norm(x, w, b, m, v):
        return F.relu(F.batch_norm(x, m, v, w, b))

    x = torch.randn(1, 320, 45, 35).to(memory_format=torch.channels_last)
    target = replace(TARGET, threads=8)
    program = assert_like_eager(norm, x, *weights, target=target)
    (kernel,) = sources(program, target)
    assert dict(kernel.constants) == {"XBLOCK": 64, "YBLOCK": 16}
    assert_like_eager(lambda x, b: F.gelu(x + b), torch.randn(700, 131).bfloat16(), torch.randn(131), target=target)


@pytest.mark.parametrize("columns", [4097, 8191, 16385, 20417, 20543])
@pytest.mark.parametrize("function", ["sum", "argmax", "cross_entropy", "logsumexp"])
def test_first_and_last_blocks_of_rows_that_begin_anywhere(function, columns):
    """Blocks of 4096 from up to 63 elements before the row: with and without full blocks between first and last."""
    rows = torch.randint(0, columns, (12,))
    programs = {
        "sum": lambda x, t: x.float().sum(-1),
        "argmax": lambda x, t: x.argmax(-1),
        "cross_entropy": lambda x, t: F.cross_entropy(x, t, reduction="none"),
        "logsumexp": lambda x, t: x.float().logsumexp(-1),
    }
    target = replace(TARGET, threads=4, l2_bytes=0)
    x = torch.randn(12, columns).to(torch.bfloat16)
    program = assert_like_eager(programs[function], x, rows, target=target)
    assert any("range(RBLOCK, " in kernel.source for kernel in sources(program, target)) == (columns > 16384)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_rows_that_begin_anywhere_are_read_from_aligned_addresses(dtype):
    x = (torch.randn(5, 20011) * 9).to(dtype)
    program = assert_like_eager(lambda x: (x.amax(1), x.argmin(1)), x)
    (kernel,) = program.kernels
    line = 128 // x.element_size()
    assert f"// {line} * {line}" in kernel_source(kernel, TARGET).source
    assert f"// {line} * {line}" not in kernel_source(kernel, TARGET, aligned_inputs=False).source
    assert_like_eager(lambda x: x[:, 3:20001].amax(1), x)
    assert_like_eager(lambda x: (x[1:, :] > 2).all(1), x)
    few = x.reshape(-1)[: 5 * 20009].reshape(5, 20009)
    assert_like_eager(lambda x: x.amin(1), few)


def test_cross_entropy():
    x, target = torch.randn(20, 33), torch.randint(0, 33, (20,))
    target[3] = -100
    assert_like_eager(lambda x, t: F.cross_entropy(x, t), x, target)
    assert_like_eager(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="none"), x, target)


def test_exponentials_that_are_only_summed_take_one_instruction():
    """Those that are results are as exact as eager's: they come of the vendor's function."""
    x, rows = torch.randn(6, 900), torch.randint(0, 900, (6,))
    x[0], x[1, 3], x[2, 5], x[3, :899] = -float("inf"), float("inf"), float("nan"), torch.finfo(torch.float32).min
    x[4] = torch.finfo(torch.float32).min
    long = replace(TARGET, l2_bytes=0)
    for columns, target in ((900, TARGET), (9000, long), (9001, long)):
        part, picked = x.repeat(1, 11)[:, :columns].clone(), rows
        part[3, -1] = 2.0
        program = assert_like_eager(lambda x, t: F.cross_entropy(x, t, reduction="none"), part, picked, target=target)
        texts = [kernel.source for kernel in sources(program, target)]
        assert any("two_to_the(" in text for text in texts) and not any("libdevice.exp(" in text for text in texts)
    (kernel,) = sources(assert_like_eager(lambda x: x.softmax(-1), x))
    assert "libdevice.exp(" in kernel.source and "two_to_the" not in kernel.source
    (kernel,) = sources(assert_like_eager(torch.exp, x))
    assert "libdevice.exp(" in kernel.source


@pytest.mark.parametrize("columns", [700, 20000])
@pytest.mark.parametrize("spread", [0.0, 3.0, 7.0, 11.0, 40.0, 200.0])
def test_sums_of_exponentials_are_as_exact_as_eagers(columns, spread):
    """Terms far below the largest, which count most where there are many: both are held against float64."""
    target = replace(TARGET, l2_bytes=0)
    x = torch.rand(4, columns) * 0.5 - spread
    x[:, columns // 3] = 0
    x += torch.tensor([0.0, 1e2, -3e3, 1e6])[:, None]
    rows = torch.full((4,), columns // 3)
    (found,) = run_program(
        program_of(lambda x, t: F.cross_entropy(x, t, reduction="none"), (x, rows), target), (x, rows), target
    )
    exact = F.cross_entropy(x.double(), rows, reduction="none")
    eager = F.cross_entropy(x, rows, reduction="none")
    ulp = 2.0**-23 * exact.clamp(min=1.0)
    assert ((found - exact).abs() <= (eager - exact).abs() + ulp).all()


@pytest.mark.parametrize("function", [torch.sum, torch.amax, lambda x, *d: x.to(torch.int32).sum(*d), torch.mean])
@pytest.mark.parametrize("dims", [(), (0,), (1,), ((0, 1),)])
def test_two_stages(function, dims):
    """The result of one element, and columns, by several programs each."""
    x = torch.randn(600, 40, 3) if dims else torch.randn(70001)
    program = assert_like_eager(lambda x: function(x, *dims), x, rtol=1e-5, atol=1e-4)
    assert len(program.kernels) == (1 if dims in ((1,), (0,)) else 2)


@pytest.mark.parametrize("shape", [(2048, 96), (3, 700, 96), (1100, 65), (2099, 40)])
def test_columns_in_parts(shape):
    """With what is stored for every element on the way, in half precision: sums are as exact as of one part."""
    dims = tuple(range(len(shape) - 1))
    x, y = (torch.randn(shape).to(torch.bfloat16) for _ in range(2))
    program = program_of(lambda x, y: ((z := torch.relu(x) * y), z.sum(dims, dtype=torch.float32)), (x, y))
    stored, total = run_program(program, (x, y))
    expected = torch.relu(x) * y
    assert kernels(program) >= 2 and torch.equal(stored, expected)
    torch.testing.assert_close(total, expected.double().sum(dims).float(), rtol=1e-6, atol=1e-5)


def test_written_inputs():
    def step(p, g, m):
        m = m * 0.9 + g
        return p - 0.1 * m / (m.abs() + 1), m

    assert_like_eager(step, torch.randn(33), torch.randn(33), torch.randn(33))


@pytest.mark.parametrize("shape", [(2, 2), (2, 1, 2, 1), (3,)])
def test_written_inputs_beside_short_rows(shape):
    """Every thread goes through a row that it also writes to: iterations have places of their own."""

    def compared(x, y):
        x.lt_(y)
        return torch.prod(y), torch.prod(y, 0)

    def divided(x, y):
        torch.div(y, x, out=x)
        return torch.std_mean(y, 0)

    assert_like_eager(compared, torch.randn(shape), torch.randn(shape))
    assert_like_eager(divided, torch.rand(shape) + 1, torch.randn(shape))


def test_sums_of_negative_zeros_are_zero():
    x = torch.full((3, 5), -0.0)
    for function in (lambda x: x.sum(1), lambda x: x.sum(0), lambda x: F.avg_pool1d(x, 2), lambda x: x[:, :1].mean(1)):
        (found,) = run_program(program_of(function, [x]), [x])
        assert not found.signbit().any() and not function(x).signbit().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_windows_give_the_first_of_zeros_of_both_signs(dtype):
    x = torch.tensor([[[-0.0, 0.0, -0.0, -1.0, 0.0, -0.0, float("nan"), 0.0, -0.0]]], dtype=dtype)
    for function in (
        lambda x: F.max_pool1d(x, 2, 1),
        lambda x: F.max_pool1d(x, 3, 3),
        lambda x: F.max_pool1d(x, 2, 2, 1),
    ):
        (found,) = run_program(program_of(function, [x]), [x])
        compare([found], [function(x)])
        assert torch.equal(found.signbit() & (found == 0), function(x).signbit() & (found == 0))


@pytest.mark.parametrize("strides", [(1, 8, 2, 24), (72, 24, 1, 4), (72, 24, 6, 1), (72, 1, 18, 3)])
@pytest.mark.parametrize("window", [2, (2, 3), 3])
def test_windows_are_folded_in_order_whatever_the_layout(strides, window):
    zeros = torch.zeros(160).copysign(torch.randn(160))
    x = zeros.as_strided((2, 3, 4, 6), strides)
    function = lambda x: F.max_pool2d(x, window, 1)
    found, expected = run_program(program_of(function, [x]), [x])[0], function(x)
    assert torch.equal(found.signbit(), expected.signbit())


def test_windows_in_chunks_whose_last_is_shorter():
    x = torch.randn(27).as_strided((1, 1, 3, 3, 3), (1, 9, 3, 1, 9))
    small = {"split.FEW_RESULTS": 2, "tiles.LONG_ROW": 16}
    with thresholds({f"lampwork.schedule.{name}": value for name, value in small.items()}):
        program = assert_like_eager(lambda x: F.max_pool3d(x, 3, 2, 0), x, rtol=0.0, atol=0.0)
    assert kernels(program) == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_threads_that_share_a_row_give_the_first_of_zeros_of_both_signs(dtype):
    """Of a GPU's threads, which fold in no order of the elements."""
    signs = torch.tensor([-0.0, 0.0, 0.0, 0.0, -0.0, 0.0, -0.0, -0.0, 0.0], dtype=dtype)
    square, line = signs.view(1, 1, 3, 3), torch.cat([signs[k:] for k in range(7)])
    long = torch.cat([line[:1], -line[:1].abs(), line.repeat(200)]).view(1, -1)
    for function, x in (
        (lambda x: F.max_pool2d(x, 2, 1), square),
        (lambda x: F.max_pool2d(x, 3), square),
        (lambda x: F.max_pool3d(x, (1, 3, 3)), square[None]),
        (lambda x: F.max_pool1d(x, 13, 1), line.view(1, 1, -1)),
        (lambda x: (x.max(1)[0], x.min(1)[0]), line.view(3, -1)),
        (lambda x: (x.max(1)[0], x.min(1)[0]), long),
        (lambda x: (x.max(1)[0], x.min(1)[0]), -long),
        (lambda x: x.max(0)[0], long.view(-1, 2)),
    ):
        expected = function(x)
        for ours, each in zip(
            run_program(program_of(function, [x]), [x]), expected if type(expected) is tuple else [expected]
        ):
            compare([ours], [each])
            assert torch.equal(ours.signbit(), each.signbit())


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (), (1, 1, 1)])
def test_empty_and_scalar(shape):
    x = torch.randn(shape)
    assert_like_eager(lambda x: x * 2 + 1, x)
    assert_like_eager(lambda x: x.sum(), x)
    if len(shape) == 2:
        assert_like_eager(lambda x: x.sum(1), x)
        assert_like_eager(lambda x: x.sum(0), x)


def test_large_buffers_take_wide_indices():
    """2**31 elements and more: offsets need 64 bits. (Not run: it would take 16 GiB.)"""
    for rows, wide in ((1 << 16, True), (1 << 10, False)):
        g = Graph()
        x = g.input((rows, 1 << 16))
        y = g.pointwise((rows, 1 << 16), lambda i, j: g.load(x, i, j))
        (kernel,) = sources(schedule(g.finish(y), Settings(), TARGET))
        assert ("tl.program_id(0).to(tl.int64)" in kernel.source) == wide


def test_equal_kernels_have_equal_texts():
    one, other = (program_of(lambda x: x.softmax(-1) * 2, [torch.randn(5, 9)]) for _ in range(2))
    assert [kernel.source for kernel in sources(one)] == [kernel.source for kernel in sources(other)]


def test_alignment_is_the_callers_choice():
    program = program_of(lambda x: x * 2, [torch.randn(64)])
    (kernel,) = program.kernels
    assert kernel_source(kernel, TARGET).aligned == (0, 1)
    assert kernel_source(kernel, TARGET, aligned_inputs=False).aligned == (1,)


def test_positions_larger_than_memory():
    """Offsets fit 32 bits here; the values that positions stand for do not."""
    step = 10**9
    x = torch.zeros(1, dtype=torch.int64)
    assert_like_eager(lambda x: torch.arange(0, 50 * step, step) + x, x)
    assert_like_eager(lambda x: (torch.arange(-50 * step, 50 * step, step) + x) // 7 + torch.arange(100) % 7, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(9, 20011), (2, 9000, 3)])
def test_long_rows_are_read_once_for_their_maximum_and_sum(shape, dtype):
    """Rows that no cache keeps: the sum is scaled as the maximum grows, and infinities and NaN are as in eager."""
    x = (torch.randn(shape) * 5).to(dtype)
    x[0, :5000] = -float("inf")
    if len(shape) == 2:
        x[1] = -float("inf")
        x[2, 7] = float("inf")
        x[3, 8000] = float("nan")
        x[4, :] = 3
        x[5, 20010] = 100
    target = replace(TARGET, l2_bytes=0)
    program = assert_like_eager(lambda x: x.softmax(1), x, target=target)
    assert sources(program, target)[0].source.count("for start") == 2
    assert sources(program)[0].source.count("for start") == 3
    tolerances = {"rtol": 1e-5, "atol": 3e-5} if dtype == torch.float32 else {}  # eager's own sums are no better
    assert_like_eager(lambda x: x.log_softmax(1), x, target=target, **tolerances)
    if len(shape) == 2 and dtype == torch.float32:
        rows = torch.randint(0, 5000, (4,))
        assert_like_eager(lambda x, t: F.cross_entropy(x, t, reduction="none"), x[5:], rows, target=target)


def test_positions_in_unrolled_loops():
    assert_like_eager(lambda x: (x * torch.arange(3)[:, None]).sum(0), torch.randn(3, 100))
    assert_like_eager(lambda x: (x * (torch.arange(3) - 2)[:, None]).argmax(0), torch.randn(3, 100))
    assert_like_eager(lambda x: torch.arange(3)[:, None].expand(3, 5).sum(0) + x, torch.randn(5))
