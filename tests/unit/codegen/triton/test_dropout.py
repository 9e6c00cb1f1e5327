"""Dropout drawn in kernels: what masks are like, where they come from, how many kernels there are."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from unittest import mock

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lampwork.codegen.triton import worker
from lampwork.config import Settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.ir.program import Extern, Launch, Lowered
from lampwork.ir.random import random_bits
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower
from lampwork.lower.dropout import DRAW_KEY
from lampwork.lower.lower import Lowering
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import TARGET, compare, run_program, scheduled, sources
from tests.unit.lower.graphs import functional_graph

pytestmark = pytest.mark.skipif(bool(available()), reason=available())


def dropout(x, p=0.25):
    return torch.native_dropout(x, p, True)[0]


def lowered_for_gpu(function, *arguments) -> Lowered:
    """Tensors of the CPU stand for tensors of the program's device."""
    graph = replace(functional_graph(function, arguments), device="cuda:0")
    with mock.patch.object(Lowering, "device_of", lambda self, tensor: ""):
        lowered = lower(graph, Settings())
    verify_lowered(lowered)
    return lowered


def drawn(function, *arguments, seed=0):
    """The program and its results, which must be what its nests say."""
    lowered = lowered_for_gpu(function, *arguments)
    program = scheduled(lowered)
    torch.manual_seed(seed)
    found = run_program(program, arguments)
    torch.manual_seed(seed)
    compare(found, interpret_lowered(lowered, arguments))
    return program, found


def draws(program):
    return [step for step in program.steps if isinstance(step, Extern) and step.op == DRAW_KEY]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_and_scale(p):
    x = torch.full((256, 512), 3.0)
    _, (y, mask) = drawn(lambda x: torch.native_dropout(x, p, True), x)
    assert torch.equal(y != 0, mask)
    torch.testing.assert_close(y[mask], torch.full_like(y[mask], 3.0 / (1 - p)))
    share, deviation = mask.double().mean().item(), (p * (1 - p) / mask.numel()) ** 0.5
    assert abs(share - (1 - p)) < 5 * deviation
    for dim in (0, 1):  # rows and columns are alike
        means = mask.double().mean(dim)
        assert (means - (1 - p)).abs().max() < 6 * (p * (1 - p) / mask.shape[dim]) ** 0.5


def test_draws_follow_the_seed():
    x = torch.ones(4096)
    first, again, other = (drawn(dropout, x, seed=seed)[1][0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert 0.3 < (first != other).double().mean() < 0.45  # 2 * 0.25 * 0.75


def test_dropouts_of_a_program_are_independent():
    x = torch.ones(64, 1024)
    program, (a, b) = drawn(lambda x: (dropout(x, 0.5), dropout(x, 0.5)), x)
    kept = torch.stack([a.flatten(), b.flatten()]) != 0
    assert abs(torch.corrcoef(kept.double())[0, 1]) < 5 / x.numel() ** 0.5
    for shift in (1, 2, 1024):
        assert abs(torch.corrcoef(torch.stack([kept[0, shift:], kept[1, :-shift]]).double())[0, 1]) < 0.02
    assert [step.args for step in draws(program)] == [((x.numel(), x.numel()),)]


def test_bias_dropout_and_residual_are_one_kernel():
    x, residual, bias = torch.randn(96, 256), torch.randn(96, 256), torch.randn(256)
    program, _ = drawn(lambda x, b, r: dropout(x + b) + r, x, bias, residual)
    assert [type(step) for step in program.steps] == [Extern, Launch]
    assert len(program.kernels[0].parameters) == 6  # x, bias, residual, key, number, result: no mask


def test_dropout_joins_what_comes_before_it():
    """A key waits for nothing, so nothing waits for it."""
    x, weight = torch.randn(32, 100), torch.randn(100)
    program, _ = drawn(lambda x, w: dropout(F.layer_norm(x, (100,), w)), x, weight)
    assert [type(step) for step in program.steps] == [Extern, Launch]


def test_layers_share_a_kernel():
    def layers(x, w):
        for _ in range(3):
            x = dropout(x @ w) + x
        return x

    x, w = torch.randn(24, 64), torch.randn(64, 64) / 8
    program, _ = drawn(layers, x, w)
    assert len(draws(program)) == 1
    assert len(program.kernels) == 1 and sum(isinstance(step, Launch) for step in program.steps) == 3


def test_other_random_numbers_keep_their_place():
    def both(x):
        y = dropout(x)
        noise = torch.rand(5)
        return dropout(dropout(x)), noise, y

    x = torch.ones(300)
    program, _ = drawn(both, x)
    random = [step for step in program.steps if isinstance(step, Extern) and step.draws]
    assert [step.op for step in random] == [DRAW_KEY, "aten::rand.default", DRAW_KEY]
    assert [step.args for step in draws(program)] == [((300,),), ((300, 300),)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", [(7, 33), (1,), (3, 5, 6, 4)])
def test_types_and_layouts(dtype, shape):
    x = torch.ones(shape, dtype=dtype)
    if len(shape) == 4:
        x = x.to(memory_format=torch.channels_last)
    _, (y, mask) = drawn(lambda x: torch.native_dropout(x, 0.3, True), x)
    assert (y.dtype, y.stride()) == (x.dtype, x.stride())
    assert torch.equal(y, torch.where(mask, x / (1 - 0.3), torch.zeros_like(x)))


def test_a_broadcast_input_is_drawn_for_each_element():
    _, (y,) = drawn(lambda x: dropout(x.expand(64, 512), 0.5), torch.ones(512))
    assert 0.4 < (y[0] != y[1]).double().mean() < 0.6
    assert 0.4 < (y[:, 0] != y[:, 1]).double().mean() < 0.6


@pytest.mark.parametrize(
    ("p", "train", "drawn_for"),
    [(0.0, True, [((10,),)]), (1.0, True, []), (0.5, False, []), (0.5, None, [((10,),)])],
)
def test_shares_that_are_none_or_all(p, train, drawn_for):
    x = torch.full((10,), 2.0)
    program, (y, mask) = drawn(lambda x: torch.native_dropout(x, p, train), x)
    assert [step.args for step in draws(program)] == drawn_for
    if train is not None:
        expected = torch.zeros(10) if p == 1 else x
        assert torch.equal(y, expected) and torch.equal(mask, expected != 0)


def test_nothing_is_drawn_for_no_elements():
    program, (y,) = drawn(dropout, torch.ones(0, 4))
    assert y.shape == (0, 4) and not draws(program)


def test_infinities_become_nan_as_in_eager():
    _, (y,) = drawn(dropout, torch.full((1000,), float("inf")))
    assert y.isnan().any() and y.isinf().any() and not y.isfinite().any()


def test_a_draw_whose_result_nobody_reads_advances_the_generator():
    graph = functional_graph(lambda x: (x + 1, torch.native_dropout(x, 0.5, True)[0]), [torch.ones(5)])
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    output.args = ((output.args[0][0],),)
    with mock.patch.object(Lowering, "device_of", lambda self, tensor: ""):
        program = scheduled(lower(replace(graph, device="cuda:0", results=graph.results[:1]), Settings()))
    assert [step.args for step in draws(program)] == [((5,),)]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_compiles(arch, tmp_path, monkeypatch):
    from triton.compiler import compiler

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiler, "get_cache_key", lambda source, *rest, **more: source.hash(), raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    target = replace(TARGET, name=arch)
    program = scheduled(lowered_for_gpu(lambda x: dropout(x) + x, torch.empty(64, 1024, dtype=torch.bfloat16)), target)
    (kernel,) = sources(program, target)
    code = worker.compile_text(asdict(kernel))
    each = dict(kernel.constants)["XBLOCK"] // (32 * kernel.num_warps)
    # One multiplication a round for two elements; one of the first round's may be a constant's.
    assert 9 * each // 2 <= len(re.findall(r"mul\.wide\.u32|mul\.hi\.u32", code["ptx"])) <= 10 * each // 2


def test_random_bits_are_philox():
    """Known answers of Random123's Philox2x32-10: two numbers are the two words of a counter."""
    for key, counter, words in (
        (0, 0, (0xFF1DAE59, 0x6CD10DF2)),
        (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
        (0x13198A2E, 0x85A308D3243F6A88, (0xDD7CE038, 0xF62A4C12)),
    ):
        assert (random_bits(key, 2 * counter), random_bits(key, 2 * counter + 1)) == words
    numbers = np.arange(-5, 40)
    assert random_bits(np.int64(-7), numbers).tolist() == [random_bits(-7, int(number)) for number in numbers]


def texts(program):
    return [kernel.source for kernel in sources(program)]


@pytest.mark.parametrize(
    ("function", "shapes", "shared"),
    [
        (dropout, [(7, 33)], True),  # one index over all elements
        (lambda x, b: dropout(x + b), [(48, 256), (256,)], True),
        (lambda x, b: dropout(x + b), [(48, 33), (33,)], True),
        (lambda x, b: dropout(x + b), [(1100, 255), (255,)], False),  # every second row begins at an odd number
        (lambda x: dropout(F.layer_norm(x, (96,))), [(40, 96)], True),
        (lambda x: dropout(F.layer_norm(x, (97,))), [(40, 97)], False),
        (lambda x: dropout(x.softmax(-1)), [(3, 20_002)], True),  # block by block
        (lambda x: dropout(x.t()), [(48, 256)], True),
        (lambda x: dropout(x[:, 1:-1] * 2.0), [(16, 66)], True),
        (lambda x: dropout(x).sum(0), [(64, 66)], False),  # neighbours of a tile are rows apart
    ],
)
def test_neighbours_share_a_counter(function, shapes, shared):
    """Where they lie side by side in a tile; the mask is the same, whichever way it is drawn."""
    program, _ = drawn(function, *(torch.randn(shape) for shape in shapes))
    drawing = [text for text in texts(program) if "random_words" in text]
    assert len(drawing) == 1
    assert ("tl.join(" in drawing[0]) == shared


def test_a_mask_is_the_same_in_kernels_that_draw_pairs_and_single_words():
    """The derivative's kernel folds columns, the other one's tile has neighbours side by side."""
    x, w = torch.randn(64, 66), torch.randn(66, 66)

    def step(x, w):
        y, mask = torch.native_dropout(x, 0.3, True)
        z = y @ w
        return y, torch.ops.aten.native_dropout_backward(z, mask, 1 / 0.7).sum(0), z

    program, (y, sums, z) = drawn(step, x, w)
    assert sorted("tl.join(" in text for text in texts(program)) == [False, True]
    torch.testing.assert_close(sums, torch.where(y != 0, z / 0.7, 0.0).sum(0), rtol=1e-5, atol=1e-4)


def test_the_derivative_draws_its_mask_again():
    """The product between them keeps the two in kernels of their own; no mask is stored."""
    x, w = torch.randn(64, 128), torch.randn(128, 128)

    def step(x, w):
        y, mask = torch.native_dropout(x, 0.3, True)
        z = y @ w
        return y, torch.ops.aten.native_dropout_backward(z, mask, 1 / 0.7), z

    program, (y, gradient, z) = drawn(step, x, w)
    assert not any(buffer.dtype == "bool" for buffer in program.buffers.values())
    torch.testing.assert_close(gradient, torch.where(y != 0, z / 0.7, 0.0))
