"""Calls as programs make them: alignment, streams, devices, types, autocast, memory that runs out."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import lampwork
from tests.gpu.support import Block, assert_close, assert_compiled, compiled_of, in_double

HALVES = [torch.float16, torch.bfloat16]


def pointwise(x, y):
    return functional.gelu(x * y + 1) - y


def rowwise(x, y):
    z = torch.softmax(x + y, -1)
    return z / z.amax(-1, keepdim=True), functional.layer_norm(x, (x.shape[-1],)), x.sum(0)


def pair(device, *shape, dtype=torch.float32):
    return torch.randn(shape, device=device).to(dtype), torch.randn(shape, device=device).to(dtype)


def agrees(program, args, mode="default", calls=2):
    """Compile, call, compare with eager and float64; the compiled function."""
    compiled = compiled_of(program, mode)
    with torch.no_grad():
        expected, reference = program(*args), in_double(program, *args)
        for _ in range(calls):
            assert_close(compiled(*args), expected, reference)
    return compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
@pytest.mark.parametrize("shape", [(7, 33), (64, 256), (3, 4097)], ids=str)
@pytest.mark.parametrize("program", [pointwise, rowwise])
def test_types_and_odd_sizes(program, shape, dtype, device):
    assert_compiled(agrees(program, pair(device, *shape, dtype=dtype)))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_integers_and_truth_values(dtype, device):
    def program(x, y):
        return torch.where(x > y, x, y).sum(-1), (x == y).any(), x.to(torch.float32).mean(0), ~x

    x, y = (torch.randint(0, 2 if dtype == torch.bool else 100, (33, 17), device=device).to(dtype) for _ in range(2))
    assert_compiled(agrees(program, (x, y)))


def test_long_rows_and_long_columns(device):
    """Reductions that take one program many tiles, or that many programs share."""

    def program(x):
        squares = x * x  # sums of which are far from zero: their relative error says something
        return torch.softmax(x, 1), squares.sum(1), x.amax(0), squares.mean(0), squares.sum(), torch.argmax(x, 1)

    for shape in ((2, 200_003), (200_003, 2), (1, 1_000_000)):
        assert_compiled(agrees(program, (torch.randn(shape, device=device),)))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_unaligned_inputs(device, mode):
    """One entry for addresses divisible by 16, another or a slower one for those that are not; both right."""
    compiled = compiled_of(pointwise, mode)
    store = torch.randn(2, 4096 + 8, device=device)
    with torch.no_grad():
        for offset in (0, 1, 3, 0, 4, 2, 1):
            x, y = store[0, offset : offset + 4096], store[1, offset : offset + 4096]
            assert_close(compiled(x, y), pointwise(x, y), in_double(pointwise, x, y))
    assert list(lampwork.stats(compiled)["fallbacks"]) == []


def test_unaligned_after_aligned_in_half_types(device):
    store = torch.randn(2, 1024 * 64 + 1, device=device).to(torch.bfloat16)
    compiled = compiled_of(rowwise)
    with torch.no_grad():
        for offset in (0, 1, 0, 1):
            x, y = (row[offset : offset + 1024 * 64].view(64, 1024) for row in store)
            assert_close(compiled(x, y), rowwise(x, y), in_double(rowwise, x, y))


def test_strided_and_expanded_inputs(device):
    x, y = torch.randn(64, 96, device=device)[:, ::2], torch.randn(1, 48, device=device).expand(64, 48)
    assert_compiled(agrees(pointwise, (x, y)))
    assert_compiled(agrees(pointwise, (x.t(), y.t())))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_the_current_stream_is_used(cuda, device, mode):
    """Work that the program put on its stream before the call is finished before our kernels read it."""
    compiled = compiled_of(pointwise, mode)
    x, y = pair(device, 2048, 2048)
    stream = torch.cuda.Stream()
    with torch.no_grad():
        for _ in range(4):
            compiled(x, y)
        torch.cuda.synchronize()
        expected = pointwise(x * 3, y)
        with torch.cuda.stream(stream):
            for _ in range(6):
                torch.cuda._sleep(20_000_000)  # about 10 ms, so that a launch on another stream would come first
                z = x * 3
                output = compiled(z, y)
                assert torch.cuda.current_stream() == stream
        stream.synchronize()
        assert_close(output, expected, in_double(lambda a, b: pointwise(a * 3, b), x, y))


def test_another_device_than_the_current_one(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x, y = pair("cuda:1", 64, 256)
    assert torch.cuda.current_device() == 0
    assert_compiled(agrees(rowwise, (x, y)))
    assert torch.cuda.current_device() == 0


def test_out_of_memory_leaves_the_program_usable(cuda, device):
    """Eager's error, memory given back, and the next call is right: also of the entry that ran out."""

    def program(x, copies):
        wide = x.repeat(copies, 1)
        return functional.gelu(wide * 2).sum() + (wide + 1).softmax(-1).sum(), wide + 3

    compiled = compiled_of(program)
    x = torch.randn(1024, 1024, device=device)
    free, _ = torch.cuda.mem_get_info()
    too_many = 3 * free // x.nbytes
    with torch.no_grad():
        small = program(x, 2)
        assert_close(compiled(x, 2), small, in_double(lambda t: program(t, 2), x))
        for _ in range(2):
            with pytest.raises(torch.cuda.OutOfMemoryError):
                compiled(x, too_many)
        assert torch.cuda.memory_allocated() < free // 4
        assert_close(compiled(x, 2), small, in_double(lambda t: program(t, 2), x))


def test_out_of_memory_while_a_graph_is_captured(cuda, device):
    """Room for a run but not for a graph's own pool: slower, not wrong."""
    module = Block(1024).to(device).eval()
    compiled = compiled_of(module, "reduce-overhead")
    x = torch.randn(65536, 1024, device=device)
    with torch.no_grad():
        expected, reference = module(x), in_double(module, x[:512])
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        room = torch.cuda.memory_reserved() + 8 * x.nbytes
        torch.cuda.set_per_process_memory_fraction(room / total)
        try:
            for _ in range(5):
                try:
                    output = compiled(x)
                except torch.cuda.OutOfMemoryError:
                    continue
                assert_close(output[:512], expected[:512], reference)
                output = None
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        assert_close(compiled(x)[:512], expected[:512], reference)


def test_cpu_scalars_among_gpu_tensors(device):
    def program(x, scale, number):
        return x * scale + number, functional.gelu(x + scale)

    x, scale = torch.randn(64, 64, device=device), torch.tensor(1.5)
    compiled = agrees(program, (x, scale, 3))
    with torch.no_grad():
        scale.fill_(-2.0)
        assert_close(compiled(x, scale, 3), program(x, scale, 3), in_double(program, x, scale, 3))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_autocast(device, dtype, mode):
    if device == "cpu" and dtype == torch.float16:
        pytest.skip("autocast on a CPU is for bfloat16")
    module = Block().to(device).eval()
    compiled = compiled_of(module, mode)
    x = torch.randn(32, 64, device=device)
    with torch.no_grad(), torch.autocast(device, dtype=dtype):
        expected = module(x)
        for _ in range(4):
            output = compiled(x)
            assert output.dtype == expected.dtype
            difference = (output - expected).abs().max()
            assert difference <= 0.03, difference
    with torch.no_grad():  # and without it, another entry
        assert_close(compiled(x), module(x), in_double(module, x))


def test_tf32_is_honoured(cuda, device):
    """A compiled product is as exact as the program asks for at the time of the call."""
    module = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).to(device)
    compiled = compiled_of(module)
    x = torch.randn(256, 512, device=device)
    exact = in_double(module, x)
    before = torch.backends.cuda.matmul.allow_tf32
    errors = {}
    try:
        for allowed in (False, True, False):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            with torch.no_grad():
                errors[allowed] = float((compiled(x).double() - exact).abs().max())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert errors[False] < 1e-5 < errors[True]


def test_changing_sizes(device):
    compiled = compiled_of(rowwise)
    with torch.no_grad():
        for rows, columns in ((8, 64), (9, 64), (8, 65), (1, 1), (128, 1000), (8, 64)):
            x, y = pair(device, rows, columns)
            assert_close(compiled(x, y), rowwise(x, y), in_double(rowwise, x, y))


def test_in_place_writes_to_arguments(device):
    def program(x, y):
        x.mul_(2).add_(y)
        y[:, 0] = 0
        return x.sum(-1)

    mine, theirs = pair(device, 33, 65), None
    theirs = tuple(t.clone() for t in mine)
    compiled = compiled_of(program)
    with torch.no_grad():
        for _ in range(3):
            assert_close(compiled(*mine), program(*theirs))
            assert_close(mine, theirs)


def test_aliases_of_inputs(device):
    """An argument that overlaps another, and an output that is a view of an input."""

    def program(x, y):
        x.add_(1)
        return y * 2, x.t()

    store = torch.randn(65, 64, device=device)
    mine, theirs = store.clone(), store.clone()
    compiled = compiled_of(program)
    with torch.no_grad():
        for _ in range(2):
            ours, eager = compiled(mine[:64], mine[1:]), program(theirs[:64], theirs[1:])
            assert_close(ours, eager)
            assert ours[1].data_ptr() == mine.data_ptr()


def test_attention_keeps_eager_kernel(device):
    def program(query, key, value):
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True) * 2

    tensors = [torch.randn(2, 4, 128, 64, device=device).to(torch.bfloat16) for _ in range(3)]
    compiled = agrees(program, tensors)
    assert any("scaled_dot_product" in name for name in lampwork.stats(compiled)["extern_calls"])


def test_gather_scatter_and_embedding(device):
    def program(table, index, x):
        rows = functional.embedding(index, table)
        picked = rows.gather(1, (index % 8)[:, :, None].expand(-1, -1, 4).long())
        return rows * 2, picked, torch.cat([rows, rows + 1], -1), x.index_add(0, index[0], rows[0])

    table, index = torch.randn(50, 16, device=device), torch.randint(0, 50, (4, 9), device=device)
    assert_compiled(agrees(program, (table, index, torch.zeros(50, 16, device=device))))


def test_indices_from_the_end(device):
    table = torch.randn(10, 4, device=device)
    assert_compiled(agrees(lambda t, i: t[i] * 2, (table, torch.tensor([9, -1, 0], device=device))))


def test_cross_entropy(device):
    def program(logits, target):
        return functional.cross_entropy(logits, target), functional.cross_entropy(logits, target, reduction="none")

    for dtype in (torch.float32, torch.bfloat16):
        logits = torch.randn(64, 5003, device=device).to(dtype)
        target = torch.randint(0, 5003, (64,), device=device)
        target[3] = -100
        assert_compiled(agrees(program, (logits, target)))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_casts_to_float8(device, cuda, name):
    """Every bfloat16 and what lies between, to float8 and back: eager's bits, by kernels of our own."""
    dtype = getattr(torch, name)
    compiled = compiled_of(lambda x: ((x * 1.0).to(dtype), (x * 1.0).to(dtype).to(torch.bfloat16)))
    for source in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.arange(1 << 16, device=device).to(torch.int32).to(torch.uint16).view(torch.bfloat16).to(source)
        if source == torch.float32:
            x = torch.cat([x, x * 1.0002, x * 0.9998])
        with torch.no_grad():
            narrow, wide = compiled(x)
        expected = x.to(dtype)
        assert torch.equal(narrow.float().nan_to_num(3e30), expected.float().nan_to_num(3e30))
        assert torch.equal(wide.nan_to_num(3e30), expected.to(torch.bfloat16).nan_to_num(3e30))
    assert "aten::_to_copy" not in str(lampwork.stats(compiled)["extern_calls"])
