"""Texts that Triton compiles: for two generations of GPUs, with accesses of 16 bytes where memory lies in order."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from lampwork.codegen.triton import worker
from lampwork.config import Settings
from lampwork.ir.size import Symbol
from lampwork.schedule import schedule
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import TARGET, program_of, sources
from tests.unit.schedule.programs import Graph, op

half = torch.bfloat16
#: name -> (function, inputs, the widest load expected)
PROGRAMS = {
    "gelu": (F.gelu, [torch.empty(64, 3072, dtype=half)], "v4.b32"),
    "layer_norm": (lambda x, w: F.layer_norm(x, (768,), w), [torch.empty(99, 768), torch.empty(768)], "v4.b32"),
    "softmax": (lambda x: x.softmax(-1), [torch.empty(64, 100, dtype=half)], "v2.b32"),
    "long_softmax": (lambda x: x.softmax(-1), [torch.empty(64, 50257)], "b32"),
    "column_sum": (lambda x: x.sum(0), [torch.empty(512, 768)], "v4.b32"),
    "transpose": (lambda x: x.t().contiguous(), [torch.empty(512, 768)], "v4.b32"),
    "argmax": (lambda x: x.argmax(-1), [torch.empty(8, 32000)], "v4.b32"),
    "scatter_add": (
        lambda x, i: torch.zeros(4, 5).scatter_add(0, i, x),
        [torch.empty(7, 5), torch.empty(7, 5, dtype=torch.int64)],
        "b32",
    ),
    "double": (lambda x: torch.sigmoid(x) * (x // 3), [torch.empty(4096, dtype=torch.float64)], "v2.b64"),
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v), [torch.empty(8, 4, 32, 32), *[torch.empty(4)] * 2], "v4.b32"),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), [torch.empty(2, 4, 32, 32)], "b32"),
}  # fmt: skip


def compiled(kernel, tmp_path, monkeypatch):
    from triton.compiler import compiler

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    # The digest of all of Triton's files takes longer than everything else here.
    monkeypatch.setattr(compiler, "get_cache_key", lambda source, *rest, **more: source.hash(), raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    return worker.compile_text(asdict(kernel))


@pytest.mark.skipif(bool(available()), reason=available())
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiles(name, arch, tmp_path, monkeypatch):
    function, inputs, widest = PROGRAMS[name]
    target = replace(TARGET, name=arch)
    loads = set()
    for kernel in sources(program_of(function, inputs, target), target):
        code = compiled(kernel, tmp_path, monkeypatch)
        assert code["binary"].startswith(b"\x7fELF")
        loads |= set(re.findall(r"ld\.global\.(\S+)", code["ptx"]))
    assert widest in loads


@pytest.mark.skipif(bool(available()), reason=available())
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16], ids=str)
def test_the_smallest_integer_stays_below_zero(dtype, tmp_path, monkeypatch):
    """To ptxas nothing that PTX's `abs` gives is."""
    program = program_of(lambda x: x.abs() < 0, [torch.empty(4096, dtype=dtype)], TARGET)
    (kernel,) = sources(program, TARGET)
    ptx = compiled(kernel, tmp_path, monkeypatch)["ptx"]
    assert not re.search(r"\babs\.s", ptx) and re.search(r"setp\.\w+\.s|shr\.[us]|bfe", ptx)


GOLDEN = Path(__file__).parents[3] / "golden" / "codegen"
TEXTS = {
    "softmax": (lambda x: x.softmax(-1), [torch.empty(64, 100)]),
    "long_mean": (lambda x: x.mean(-1), [torch.empty(300, 20000)]),
    "column_max": (lambda x: x.max(0).values, [torch.empty(100, 300)]),
    "transpose": (lambda x: x.t().contiguous(), [torch.empty(100, 300)]),
    "columns_in_parts": (
        lambda x, y: ((z := torch.relu(x) * y), z.sum((0, 1))),
        [torch.empty(8, 1024, 768, dtype=half), torch.empty(8, 1024, 768, dtype=half)],
    ),
    "embedding": (lambda w, i: w[i], [torch.empty(100, 96), torch.empty(40, dtype=torch.int64)]),
    "max_pool": (lambda x: F.max_pool2d(x, 2), [torch.empty(1, 2, 8, 8)]),
    "cross_entropy": (
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
        [torch.empty(8192, 32000, dtype=half), torch.empty(8192, dtype=torch.int64)],
    ),
    "padded_softmax": (
        lambda x, top, total: F.pad((x.float() - top - total.log()).exp().to(half), (0, 7)),
        [torch.empty(8192, 50257, dtype=half), torch.empty(8192, 1), torch.empty(8192, 1)],
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_golden(name, request):
    """Rewritten with --update-golden; review the difference as code."""
    function, inputs = TEXTS[name]
    kernels = sources(program_of(function, inputs))
    text = "\n\n".join(
        f"# {dict(kernel.constants)}, {kernel.num_warps} warps, grid {kernel.grid}, aligned {kernel.aligned}\n{kernel.source}"
        for kernel in kernels
    )
    file = GOLDEN / f"triton_{name}.txt"
    if request.config.getoption("--update-golden"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.skipif(bool(available()), reason=available())
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("columns", "block", "warps"), [(32000, 4096, 8), (50257, 2048, 4), (2000, 2048, 2)])
def test_rows_that_are_only_read(columns, block, warps, arch, tmp_path, monkeypatch):
    """Nothing is stored that would take longer than an element's instructions: exponentials take one and two products,
    and what ends the program is loaded before its loop."""
    inputs = [torch.empty(8192, columns, dtype=half), torch.empty(8192, dtype=torch.int64)]
    target = replace(TARGET, name=arch)
    kernel = next(
        each for each in sources(program_of(TEXTS["cross_entropy"][0], inputs, target), target) if "r = " in each.source
    )
    assert (dict(kernel.constants)["RBLOCK"], kernel.num_warps) == (block, warps)
    if columns > block:
        assert kernel.source.index("tl.load(b1 + x)") < kernel.source.index("for start in")
    ptx = compiled(kernel, tmp_path, monkeypatch)["ptx"]
    assert "ex2.approx.ftz.f32" in ptx and "ex2.approx.f32" not in ptx


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "tile"),
    [
        (8192, 3072, half, (64, 32, 4)),  # many programs: small ones
        (8192, 3072, torch.float32, (32, 64, 4)),
        (65536, 256, half, (64, 64, 8)),
        (512, 3072, half, (32, 256, 16)),  # few programs: large ones
        (512, 768, half, (8, 512, 8)),
    ],
)
def test_tiles_of_columns_are_lines_of_memory(rows, columns, dtype, tile):
    """What is folded in turns lies in rows of 128 bytes, if there are columns enough for all multiprocessors."""
    first, *_ = sources(program_of(lambda x: x.sum(0), [torch.empty(rows, columns, dtype=dtype)]))
    sizes = dict(first.constants)
    assert (sizes["XBLOCK"], sizes["RBLOCK"], first.num_warps) == tile


@pytest.mark.skipif(bool(available()), reason=available())
def test_sizes_known_at_run_time_compile(tmp_path, monkeypatch):
    n, m = Symbol("s0", 1, 1 << 20), Symbol("s1", 0, 1 << 20)
    g = Graph(("s0", "s1"))
    x = g.input((n, m))
    top = g.reduce("max", (n,), (m,), lambda i, r: g.load(x, i, r))
    y = g.pointwise((n, m), lambda i, j: op("sub", g.load(x, i, j), g.load(top, i)))
    z = g.pointwise((m, n), lambda i, j: g.load(x, j, i))
    sums = g.reduce("argmax", (m,), (n,), lambda i, r: g.load(x, r, i))
    kernels = sources(schedule(g.finish(y, z, sums), Settings(), TARGET))
    assert any("i64" in kernel.signature for kernel in kernels)
    for kernel in kernels:
        assert compiled(kernel, tmp_path, monkeypatch)["binary"].startswith(b"\x7fELF")
