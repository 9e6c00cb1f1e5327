"""Matrix products with what follows them as one kernel, in Triton's interpreter on CPU tensors, must equal eager."""

from __future__ import annotations

import random
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from lampwork.codegen.triton import worker
from lampwork.codegen.triton.product import MOST_TILINGS, product_tilings, read_product
from lampwork.codegen.triton.source import kernel_source
from lampwork.codegen.triton.tiles import Tiling, read_form
from lampwork.errors import CompileError
from lampwork.ir.program import Extern
from lampwork.schedule import products
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import (
    TARGET,
    compare,
    copied,
    fused_program,
    product_sources,
    program_of,
    run_kernels,
)

interpreted = pytest.mark.skipif(bool(available()), reason=available())
half = torch.bfloat16


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def randn(*shape, dtype=half):
    """Values whose products sum up to about 1."""
    return (torch.randn(shape) / shape[-1] ** 0.25).to(dtype)


def assert_fused(function, *arguments, place=0, target=TARGET):
    """One kernel does it all, with eager's values."""
    program = fused_program(function, arguments, target)
    assert not any(isinstance(step, Extern) for step in program.steps)
    kernels = product_sources(program, target, place)
    assert sum("tl.dot" in kernel.source for kernel in kernels) == 1
    found = run_kernels(program, kernels, [copied(argument) for argument in arguments])
    with torch.no_grad():
        expected = function(*arguments)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if expected.dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    compare(found, [expected], **tolerance)
    return program


def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


PROGRAMS = {
    "gelu": (linear_gelu, lambda m, n, k, t: (randn(m, k, dtype=t), randn(n, k, dtype=t), randn(n, dtype=t))),
    "two_operations": (
        lambda x, w, r: torch.relu(F.linear(x, w)) * 0.5 + r,
        lambda m, n, k, t: (randn(m, k, dtype=t), randn(n, k, dtype=t), randn(m, n, dtype=t)),
    ),
    "both_transposed": (
        lambda x, w, r: (x.t() @ w.t()) - r,
        lambda m, n, k, t: (randn(k, m, dtype=t), randn(n, k, dtype=t), randn(m, 1, dtype=t)),
    ),
    "plain_factors": (
        lambda x, w, b: torch.sigmoid(torch.addmm(b, x, w, alpha=0.5, beta=2)),
        lambda m, n, k, t: (randn(m, k, dtype=t), randn(k, n, dtype=t), randn(m, 1, dtype=t)),
    ),
    "masked": (
        lambda x, w, mask: torch.where(mask > 0, F.linear(x, w), -1.0),
        lambda m, n, k, t: (randn(m, k, dtype=t), randn(n, k, dtype=t), randn(m, n, dtype=t)),
    ),
    "to_other_type": (
        lambda x, w: F.linear(x, w).double() + 1,
        lambda m, n, k, t: (randn(m, k, dtype=t), randn(n, k, dtype=t)),
    ),
    "side_by_side": (
        lambda x, w, b: torch.tanh(torch.baddbmm(b, x, w)),
        lambda m, n, k, t: (randn(3, m, k, dtype=t), randn(3, k, n, dtype=t), randn(3, 1, n, dtype=t)),
    ),
    "shared_factor": (
        lambda x, w: torch.bmm(x.unsqueeze(0).expand(3, *x.shape), w).abs(),
        lambda m, n, k, t: (randn(m, k, dtype=t), randn(3, k, n, dtype=t)),
    ),
}  # fmt: skip


@interpreted
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", [(64, 64, 64), (75, 70, 50), (200, 33, 100)], ids=str)
def test_like_eager(name, shape):
    function, arguments = PROGRAMS[name]
    assert_fused(function, *arguments(*shape, half))


@interpreted
@pytest.mark.parametrize("name", ["gelu", "both_transposed", "plain_factors"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_types(name, dtype):
    function, arguments = PROGRAMS[name]
    assert_fused(function, *arguments(75, 70, 50, dtype))


@interpreted
@pytest.mark.parametrize("place", range(MOST_TILINGS))
def test_tilings(place):
    assert_fused(linear_gelu, randn(300, 72), randn(200, 72), randn(200), place=place)


@interpreted
@pytest.mark.parametrize("group", [1, 2, 3, 8])
@pytest.mark.parametrize("shape", [(150, 150), (31, 200), (200, 31), (1, 4200)], ids=str)
def test_every_tile_is_computed_once(group, shape):
    """Whatever the order of programs: groups that do not divide the tiles, one row or column of tiles."""
    m, n = shape
    x, w, b = randn(m, 32), randn(n, 32), randn(n)
    program = fused_program(linear_gelu, (x, w, b))
    tiling = Tiling(32, 32, 16, num_warps=2, num_stages=2, group=group)
    found = run_kernels(program, [kernel_source(program.kernels[0], TARGET, tiling=tiling)], [x, w, b])
    compare(found, [linear_gelu(x, w, b)], rtol=2e-2, atol=2e-2)


@interpreted
def test_the_product_is_rounded_where_eager_rounds_it():
    """256 and 1 add up in float32, not in bfloat16: the difference of the rounded product to 256 is 0."""
    x = torch.ones(64, 32, dtype=half)
    w = torch.zeros(64, 32, dtype=half)
    w[:, 0], w[:, 1] = 256, 1

    def function(x, w):
        return F.linear(x, w) - 256

    assert function(x, w).abs().max() == 0
    program = fused_program(function, (x, w))
    (found,) = run_kernels(program, product_sources(program), [x, w])
    assert found.abs().max() == 0


@interpreted
@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu", "tanh_gelu", "softplus", "reciprocal"])
def test_what_is_rounded_may_be_coarse(name):
    """Functions behind a product, over the whole range of a type that keeps 11 bits; in float32 they are as exact as in
    other kernels."""
    function = {
        "exp": torch.exp, "sigmoid": torch.sigmoid, "silu": F.silu, "softplus": F.softplus, "reciprocal": torch.reciprocal,
        "tanh_gelu": lambda x: F.gelu(x, approximate="tanh"),
    }[name]  # fmt: skip
    x = torch.cat([torch.linspace(-100, 100, 4096), torch.logspace(-7, 4.5, 1024), -torch.logspace(-7, 4.5, 1024)])
    for dtype, steps in ((torch.float16, 2), (torch.float32, 8)):
        if dtype == torch.float32 and name not in ("exp", "sigmoid", "reciprocal"):
            continue  # differences of large numbers: eager is no better
        eye, values = torch.eye(96, dtype=dtype), x.view(96, 64).to(dtype)
        program = fused_program(lambda eye, values: function(eye @ values), (eye, values))
        (kernel,) = product_sources(program)
        assert "tl.dot" in kernel.source
        (found,) = run_kernels(program, [kernel], [eye, values])
        expected = function(values.double()).to(dtype)
        info = torch.finfo(dtype)
        torch.testing.assert_close(found, expected, rtol=steps * info.eps, atol=2 * info.smallest_normal)


@interpreted
def test_heads_are_taken_apart():
    """Columns are two loops of the kernel, rows are two."""
    x, w, b = randn(2, 40, 48), randn(96, 48), randn(96)
    program = assert_fused(lambda x, w, b: F.linear(x, w, b).view(2, 40, 3, 32).transpose(1, 2).contiguous(), x, w, b)
    product = read_product(read_form(program.kernels[0]))
    assert (len(product.rows), len(product.columns)) == (2, 2)


@interpreted
@pytest.mark.parametrize("calls", [0, 1])
def test_two_products_of_one_factor(calls):
    """Both in one loop, or one of them with what follows both."""
    x, w, v = randn(2, 40, 48), randn(96, 48), randn(96, 48)

    def function(x, w, v):
        return F.silu(F.linear(x, w)) * F.linear(x, v)

    def choose(parts):
        return [next(n for n, each in enumerate(part) if len(each.calls) == calls) for part in parts]

    program = fused_program(function, (x, w, v), choose=choose)
    (kernel,) = product_sources(program)
    assert kernel.source.count("tl.dot(") == 2 - calls and kernel.source.count("p0_now = tl.load") == 1
    compare(run_kernels(program, [kernel], [x, w, v]), [function(x, w, v)], rtol=2e-2, atol=2e-2)


@interpreted
def test_a_product_that_is_read_again_is_stored_as_well():
    x, w = randn(64, 64), randn(64, 64)

    def function(x, w):
        product = F.linear(x, w)
        return F.gelu(product) + product.sum(), product

    program = fused_program(function, (x, w))
    found = run_kernels(program, product_sources(program), [x, w])
    compare(found, function(x, w), rtol=3e-2, atol=6e-2)


@interpreted
def test_float32_is_multiplied_as_float32():
    x, w, b = randn(64, 64, dtype=torch.float32), randn(64, 64, dtype=torch.float32), randn(64, dtype=torch.float32)
    (kernel,) = product_sources(fused_program(linear_gelu, (x, w, b)))
    assert 'input_precision="ieee"' in kernel.source


# -- What is a product ------------------------------------------------------------------------------------------------

OTHERS = {
    "integers": (lambda x: (x[:, :, None] * x[None]).sum(1), torch.ones(64, 64, dtype=torch.int32)),
    "half_products_are_rounded": (lambda x: (x[:, :, None] * x[None]).sum(1), torch.ones(64, 64, dtype=half)),
    "row_sum": (lambda x: x.sum(-1), torch.ones(64, 64)),
    "softmax": (lambda x: x.softmax(-1), torch.ones(64, 64)),
    "squares": (lambda x: (x * x).sum(-1), torch.ones(64, 64)),
    "largest": (lambda x: (x[:, :, None] * x[None]).amax(1), torch.ones(64, 64)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_are_no_products(name):
    function, x = OTHERS[name]
    for kernel in program_of(function, (x,)).kernels:
        assert product_tilings(kernel, TARGET) == ()
        with pytest.raises(CompileError, match="no matrix product"):
            kernel_source(kernel, TARGET, tiling=Tiling(16, 16, 16, group=8))


def test_tilings_fit():
    """Shared memory, and no tile much larger than the result."""
    x, w, b = torch.empty(40, 4096, dtype=half), torch.empty(4096, 4096, dtype=half), torch.empty(4096, dtype=half)
    (kernel,) = fused_program(linear_gelu, (x, w, b)).kernels
    small = replace(TARGET, l1_bytes=99 << 10)
    for target in (TARGET, small):
        found = product_tilings(kernel, target)
        assert 1 < len(found) <= MOST_TILINGS
        for each in found:
            assert each.num_stages * each.r_block * 2 * (each.x_block + each.y_block) <= target.l1_bytes
            assert each.y_block <= 64


# -- Texts ------------------------------------------------------------------------------------------------------------


@interpreted
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["gelu", "both_transposed", "side_by_side"])
@pytest.mark.parametrize("dtype", [half, torch.float16], ids=str)
def test_compiles(name, arch, dtype, tmp_path, monkeypatch):
    """To the instructions of the matrix units, with 16-byte copies to shared memory."""
    from triton.compiler import compiler

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiler, "get_cache_key", lambda source, *rest, **more: source.hash(), raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    target = replace(TARGET, name=arch)
    function, arguments = PROGRAMS[name]
    monkeypatch.setitem(globals(), "randn", torch.empty)
    program = fused_program(function, arguments(2048, 2048, 512, dtype), target)
    (kernel,) = product_sources(program, target)
    code = worker.compile_text(asdict(kernel))
    assert code["binary"].startswith(b"\x7fELF")
    assert ("wgmma.mma_async" if arch == "sm_90" else "mma.sync") in code["ptx"]
    assert re.search(r"cp\.async\.cg\.shared\.global.*0x10", code["ptx"])


GOLDEN = Path(__file__).parents[3] / "golden" / "codegen" / "triton_product.txt"


def test_golden(request):
    """Rewritten with --update-golden; review the difference as code."""
    x, w, b, r = randn(4, 50, 96), randn(192, 96), randn(192), randn(4, 50, 192)
    program = fused_program(lambda x, w, b, r: F.relu(F.linear(x, w, b)) + r, (x, w, b, r))
    (kernel,) = program.kernels
    text = kernel_source(kernel, TARGET, tiling=Tiling(64, 32, 64, num_stages=4, group=8)).source
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


# -- Whole programs ---------------------------------------------------------------------------------------------------


def attention(x, w, heads):
    """Products in front of changes of layout, of a scaled softmax, and side by side."""
    rows, length, width = x.shape
    q, k, v = (F.linear(x, w[i]).view(rows, length, heads, -1).transpose(1, 2).reshape(rows * heads, length, -1)
               for i in range(3))  # fmt: skip
    scores = torch.bmm(q, k.transpose(1, 2)) * 0.25
    mixed = torch.bmm((scores.relu() + 0.1) / length, v)
    return mixed.view(rows, heads, length, -1).transpose(1, 2).reshape(rows, length, width)


def block(x, w, f, g):
    x = x + F.linear(attention(x, w, 2), w[3])
    hidden = F.layer_norm(x, x.shape[-1:])
    gated = F.silu(F.linear(hidden, f)) * F.linear(hidden, f.flip(0))
    return x + F.gelu(F.linear(gated, g)), hidden


@interpreted
@pytest.mark.parametrize("seed", range(6))
def test_any_choice_computes_the_same(seed, monkeypatch):
    """Whichever alternatives are taken: what other kernels, calls and the caller read is there in time."""
    monkeypatch.setattr(products, "FEWEST_RESULTS", 1)
    pick = random.Random(seed)
    taken = []

    def choose(parts):
        taken.extend(pick.randrange(len(part)) for part in parts)
        return taken

    x, w, f, g = randn(2, 24, 32), randn(4, 32, 32), randn(80, 32), randn(32, 80)
    program = fused_program(block, (x, w, f, g), choose=choose)
    assert len(taken) >= 4
    found = run_kernels(program, product_sources(program, place=seed), [x, w, f, g])
    wide = [each.float() for each in (x, w, f, g)]
    for ours, eager, exact in zip(found, block(x, w, f, g), block(*wide)):
        assert (ours - exact).abs().mean() <= 1.5 * (eager - exact).abs().mean()
