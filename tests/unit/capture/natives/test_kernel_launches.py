"""Launches of the program's own Triton kernels are nodes of the graph, which read and write what eager's do. In Triton's
interpreter, which runs on a CPU; what kernels write is found out as for a GPU."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import pytest
import torch

import lampwork
from tests.processes import run_python
from tests.unit.codegen.triton.interpret import interpreting

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
interpreter = pytest.importorskip("triton.runtime.interpreter")
autotuner = pytest.importorskip("triton.runtime.autotuner")

jit = interpreter.InterpretedFunction


@jit
def scale(x, out, n, by, MODE: tl.constexpr = "", BLOCK: tl.constexpr = 16, beside=None):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside) * by
    if MODE == "plus one":
        value += 1
    if beside is not None:
        value += tl.load(beside + at, mask=inside)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@jit
def add_to(x, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + by, mask=at < n)


@jit
def strided(x, out, cols, x_row, x_col, out_row, out_col, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * x_row + col * x_col, mask=col < cols) + 1
    tl.store(out + row * out_row + col * out_col, value.to(TYPE), mask=col < cols)


@jit
def through_numbers(x, BLOCK: tl.constexpr):
    pointer = tl.load(x).to(tl.pointer_type(tl.float32))
    tl.store(pointer, 1.0)


@jit
def doubled(value):
    return value * 2


@jit
def by_function(x, out, n, function: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, function(tl.load(x + at, mask=at < n)), mask=at < n)


@jit
def of_pairs(pair, out, numbers, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(pair[0] + at) + tl.load(pair[1] + at) * numbers[1])


def times_nothing(kernel, quantiles):
    kernel()
    return [1.0, 1.0, 1.0]


tuned = autotuner.Autotuner(
    add_to, add_to.arg_names, [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32}, num_warps=8)], ["n"], None,
    ["x"], do_bench=times_nothing,
)  # fmt: skip
WIDE = 32
chosen = autotuner.Heuristics(add_to, add_to.arg_names, {"BLOCK": lambda args: WIDE if args["n"] > WIDE else 16})


def over(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


# Programs --------------------------------------------------------------------------------------------------------------


def into_new_memory(x, y):
    x = x + 1
    out = torch.empty_like(x)
    scale[(3,)](x, out, x.numel(), 2.0, BLOCK=16, num_warps=2)
    return out.exp()


def a_chain(x, y):
    z = x * 2 + y
    add_to[over(40)](z, 40, 1.0, BLOCK=16)
    out = torch.empty_like(z)
    scale[over(40)](z, out, 40, 3, "plus one", beside=y)
    add_to[over(40)](out, 40, 1.0, BLOCK=16)
    return out.sin(), z * 1


def inputs(x, y):
    add_to[over(40)](x, 40, 1.5, BLOCK=16)
    scale[over(40)](x, y, 40, 2.0)
    add_to[over(40)](x, 40, 1.5, BLOCK=16)
    return x * 2


def input_as_it_was(x, y):
    z = x * 2
    add_to[over(40)](x, 40, 1.0, BLOCK=16)
    w = x + 1
    add_to[over(40)](x, 40, 1.0, BLOCK=16)
    return z + y, w


def returned(x, y):
    add_to[over(40)](x, 40, 1.0, BLOCK=16)
    return x, x.clone(), x.view(5, 8)


def views(x, y):
    z = torch.zeros(3, 40)
    row = z[1]
    add_to[over(40)](row, 40, 2, BLOCK=16)
    add_to[over(20)](x[10:], 20, 1.0, BLOCK=16)
    x.view(5, 8)[0].add_(1)
    add_to[over(40)](x.detach(), 40, 1.0, BLOCK=16)
    return z, row + 1, x


def beyond_views(x, y):
    add_to[(1,)](x.view(5, 8)[1], 16, 1.0, BLOCK=16)
    z = y * 2
    add_to[(1,)](z[8:16], 16, 1.0, BLOCK=16)
    return z


def parts(x, y):
    qkv = torch.cat([x, y, x])
    q, k, v = qkv.chunk(3)
    scale[over(40)](q, v, 40, 2.0, beside=k)
    a, b = x[:20], x[20:]
    scale[over(20)](a, b, 20, 2.0)
    return qkv, q + v, b


def one_memory_twice(x, y):
    z = x.clone()
    scale[over(40)](z, z, 40, 2.0, beside=z)
    return z


def layouts(x, y):
    a, out, wide = x.view(5, 8).t(), torch.empty(8, 5, dtype=torch.bfloat16), torch.zeros(8, 10)
    strided[(8,)](a, out, 5, *a.stride(), *out.stride(), TYPE=tl.bfloat16, BLOCK=8)
    part = wide[:, 3:8]
    strided[(8,)](a, part, 5, *a.stride(), *part.stride(), TYPE=tl.float32, BLOCK=8)
    strided[(8,)](y.view(8, 5), a, 5, 5, 1, *a.stride(), tl.float32, 8)
    return out.float() * 2, wide + 1


def grids(x, y):
    out = torch.empty_like(x)
    scale[functools.partial(lambda n, meta: (triton.cdiv(n, meta["BLOCK"]),), 40)](x, out, 40, 2.0)

    def grid(meta):
        return triton.cdiv(x.shape[0], meta["BLOCK"]), 1, 1

    launch = scale[grid]
    launch(out, out, x.shape[0], 2.0)
    scale.run(out, y, 40, 2.0, grid=(3, 1), warmup=False)
    return out


def choices(x, y):
    tuned[over(40)](x, 40, 2.0)
    z = x + y
    chosen[over(z.numel())](z, z.numel(), by=3.0)
    return z * 2


def loops(x, y):
    for number in range(3):
        out = torch.empty_like(x)
        torch.library.wrap_triton(scale)[over(x.numel())](x, out, x.numel(), float(number), tl.constexpr("plus one"))
        x = out + 1
    return x


def without_gradients(x, y):
    with torch.inference_mode():
        out = torch.empty_like(x)
        scale[over(40)](x, out, 40, 2.0)
    add_to[over(40)](out, 40, 1.0, BLOCK=16)
    return out.clone()


@torch.library.triton_op("test_kernel_launches::twice", mutates_args={})
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2  # of no kernel: what there is of it on a CPU


def operators_of_kernels(x, y):
    return twice(x + 1) * y


PROGRAMS = [
    into_new_memory, a_chain, inputs, input_as_it_was, returned, views, beyond_views, parts, one_memory_twice, layouts,
    grids, choices, loops, without_gradients, operators_of_kernels,
]  # fmt: skip


def arguments(seed=0, size=40):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator), torch.randn(size, generator=generator)


def check(function, breaks=(), captures=1, **settings):
    """As eager, twice: results and arguments. Gives what was compiled."""
    compiled = lampwork.compile(function, options={"cache": False}, **settings)
    for seed in range(2):
        found, expected = arguments(seed), arguments(seed)
        results = compiled(*found), function(*expected)
        torch.testing.assert_close(results[0], results[1], check_stride=True)
        torch.testing.assert_close(found, expected)
        assert [each._version for each in found] == [each._version for each in expected]
    stats = lampwork.stats(compiled)
    assert sorted({each.id for each in stats["breaks"]}) == list(breaks) and stats["fallbacks"] == ()
    assert stats["captures"] == captures
    return compiled


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_launches_are_part_of_one_graph(program, dynamic):
    if program is loops and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        pytest.skip("wrap_triton takes no kernels that are interpreted")
    check(program, dynamic=dynamic)


def test_sizes_vary():
    def program(x, y):
        out = torch.empty_like(x)
        scale[over(x.numel())](x, out, x.numel(), 2.0)
        add_to[over(x.numel())](x, x.numel(), 1.0, BLOCK=16)
        return out + 1

    compiled = lampwork.compile(program, options={"cache": False}, dynamic=True)
    for size in (40, 45, 70):
        found, expected = arguments(size=size), arguments(size=size)
        torch.testing.assert_close((compiled(*found), found), (program(*expected), expected))
    assert lampwork.stats(compiled)["captures"] == 1


def test_numbers_vary():
    def program(x, by):
        out = torch.empty_like(x)
        scale[over(40)](x, out, 40, by)
        scale[over(40)](out, out, 40, x[0].item())
        return out + 1

    compiled = lampwork.compile(program, options={"cache": False})
    for by in (1.0, 2.0, 3.5, 4.5):
        x, _ = arguments(int(by))
        torch.testing.assert_close(compiled(x, by), program(x, by))
    stats = lampwork.stats(compiled)
    assert stats["captures"] == 2 and stats["breaks"] == stats["fallbacks"] == ()


def functions_and_tuples(x, y):
    out = torch.empty_like(x)
    by_function[(1,)](x, out, 32, doubled, BLOCK=32)
    of_pairs[(1,)]((x, y), y, (2, 3), BLOCK=32)
    return out[:32] + y[:32]


@pytest.mark.parametrize("dynamic", [False, True])
def test_functions_and_tuples_are_arguments(dynamic):
    with interpreting():  # which puts back what calls of functions leave of Triton's language
        check(functions_and_tuples, dynamic=dynamic)


def steps(function, *args):
    """The calls of kernels that the host function makes."""
    compiled = lampwork.compile(function, options={"cache": False}, dynamic=False)
    compiled(*args)
    (entry,) = compiled.__lampwork__.entries
    return [step for step in entry.artifact.program.steps if getattr(step, "op", "") == "lampwork::launch.default"]


def test_nothing_is_copied_that_need_not_be():
    for step in steps(a_chain, *arguments()):
        kept = [each is None or each.buffer == output for each, output in zip(step.args[1], step.outputs, strict=True)]
        assert all(kept), step
    for program in (inputs, returned):
        assert [step.mutates for step in steps(program, *arguments())].count(()) == (program is returned)
    assert all(step.mutates == () for step in steps(input_as_it_was, *arguments()))


# Gradients -------------------------------------------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        scale[over(40)](x, out, 40, 2.0)
        return out

    @staticmethod
    def backward(ctx, gradient):
        out = torch.empty_like(gradient)
        gradient = gradient.contiguous()
        scale[over(40)](gradient, out, 40, 2.0)
        return out


def written_leaf(x, w):
    add_to[over(40)](w, 40, 1.0, BLOCK=16)
    return (x * w).sum()


def read_by_the_derivative(x, w):
    y = (x * w).exp()
    z = (y * 3).sum()
    add_to[over(40)](y, 40, 1.0, BLOCK=16)
    return z


def not_differentiated(x, w):
    y = x * w
    out = torch.empty_like(y)
    scale[over(40)](y, out, 40, 2.0)
    return (y * out).sum()


def with_a_derivative(x, w):
    return (Doubled.apply(x * w) ** 2).sum()


def a_whole_step(x, w):
    loss = (x * w).pow(2).sum()
    loss.backward()
    scale[over(40)](w.grad, w, 40, -0.1, beside=w)
    return loss.detach()


@pytest.mark.parametrize(
    "program", [written_leaf, read_by_the_derivative, not_differentiated, with_a_derivative, a_whole_step]
)
def test_gradients(program):
    compiled, seen = lampwork.compile(program, options={"cache": False}), []
    for function in (compiled, program):
        x, w = arguments()
        loss = function(x, w.requires_grad_())
        version = w._version
        if loss.requires_grad:
            loss.backward()
        seen.append((loss.detach(), w.grad, w.detach(), version))
    torch.testing.assert_close(*seen)
    stats = lampwork.stats(compiled)
    assert stats["breaks"] == stats["fallbacks"] == ()


# What is not known -----------------------------------------------------------------------------------------------------


def test_changes_of_what_a_launch_depends_on(monkeypatch):
    """Another kernel, other choices, and what heuristics and grids read."""
    module = sys.modules[__name__]
    compiled = lampwork.compile(choices, options={"cache": False})

    def compare(captures):
        found, expected = arguments(), arguments()
        torch.testing.assert_close((compiled(*found), found), (choices(*expected), expected))
        assert lampwork.stats(compiled)["captures"] == captures

    compare(1), compare(1)
    monkeypatch.setattr(module, "WIDE", 64)
    compare(2)
    monkeypatch.setattr(module, "chosen", autotuner.Heuristics(add_to, add_to.arg_names, {"BLOCK": lambda args: 4}))
    compare(3)
    monkeypatch.setattr(tuned, "configs", [triton.Config({"BLOCK": 8})])
    compare(4)
    monkeypatch.setattr(module, "over", lambda n: (1,))
    compare(5)


hooked = autotuner.Autotuner(
    add_to, add_to.arg_names, [triton.Config({"BLOCK": 16}, pre_hook=lambda args: args["x"].zero_())], [], None, None
)  # fmt: skip


def with_hooks(x, y):
    hooked[over(40)](x, 40, 2.0)
    return x + 1


def several_types(x, y):
    z = torch.ones(40)
    scale[over(40)](y * y, z.view(torch.int32), 40, 2.0, beside=z)
    return z * 2


def launched_wrongly(x, y):
    try:
        scale[(1,)](x, y)
    except Exception:
        return x + 1


@pytest.mark.parametrize("program", [with_hooks, several_types, launched_wrongly])
def test_what_is_not_known_breaks(program):
    check(program, ["triton-kernel"], captures=2)


def test_kernels_that_make_pointers_break():
    """They write memory that they were not given."""

    def program(addresses):
        through_numbers[(1,)](addresses, BLOCK=1)
        return addresses + 1

    compiled = lampwork.compile(program, options={"cache": False})
    written = torch.zeros(3)
    addresses = torch.tensor([written.data_ptr()])
    torch.testing.assert_close(compiled(addresses), addresses + 1)
    assert written[0] == 1
    assert [each.id for each in lampwork.stats(compiled)["breaks"]] == ["triton-kernel"]


# Stored entries --------------------------------------------------------------------------------------------------------

KERNEL = """
import triton, triton.language as tl

@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * {by}, mask=at < n)
"""
PROGRAM = """
import torch, lampwork, stored_kernel

def named(x):
    out = torch.empty_like(x)
    stored_kernel.scale[(1,)](x, out, 8, BLOCK=8)
    return out + 1

def unnamed(kernel):
    def program(x):
        out = torch.empty_like(x)
        kernel[(1,)](x, out, 8, BLOCK=8)
        return out + 1
    return program

other = type(stored_kernel.scale)(stored_kernel.scale.fn)
for program in (named, unnamed(other)):
    compiled = lampwork.compile(program)
    x = torch.arange(8.0)
    torch.testing.assert_close(compiled(x), program(x))
    stats = lampwork.stats(compiled)
    print(stats["captures"], stats["cache"]["stored"], len(stats["fallbacks"]), len(stats["breaks"]))
"""


def test_stored_entries_find_their_kernels_by_name(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    path = os.pathsep.join([str(tmp_path), str(Path(lampwork.__file__).parents[1])])
    settings = {
        **os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path, "LAMPWORK_CACHE": "1",
        "LAMPWORK_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    seen = []
    for by in (2, 2, 3):  # the third process has another kernel of that name
        (tmp_path / "stored_kernel.py").write_text(KERNEL.format(by=by))
        done = run_python(["program.py"], env=settings, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        seen.append(done.stdout.splitlines())
    assert seen == [["1 1 0 0", "1 0 0 0"], ["0 0 0 0", "1 0 0 0"], ["1 1 0 0", "1 0 0 0"]]
