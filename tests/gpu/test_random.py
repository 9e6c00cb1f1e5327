"""Dropout drawn in kernels: the generator is left as eager leaves it, draws are new on each call and come again."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from lampwork.ir.random import random_bits
from lampwork.runtime.launch.randomness import mixed
from tests.gpu.support import assert_compiled, compiled_of

CALLS = 7
MODES = ["default", "reduce-overhead"]


def layers(x, residual, bias):
    """Three dropouts of two sizes."""
    x = F.dropout(F.gelu(x + bias), 0.1) + residual
    return F.dropout(x, 0.5), F.dropout(x[:3], 0.25)


@pytest.fixture
def inputs(device, cuda):
    return (
        torch.randn(3000, 1031, device=device),
        torch.randn(3000, 1031, device=device),
        torch.ones(1031, device=device),
    )


def state():
    return torch.cuda.get_rng_state().tolist()


@pytest.mark.parametrize("mode", MODES)
def test_generator_is_left_as_eager_leaves_it(inputs, mode):
    compiled = compiled_of(layers, mode)
    with torch.no_grad():
        for call in range(CALLS):
            torch.cuda.manual_seed(call // 2)
            torch.rand(call * 1000, device="cuda")
            before = torch.cuda.get_rng_state()
            layers(*inputs)
            expected = state()
            torch.cuda.set_rng_state(before)
            compiled(*inputs)
            assert state() == expected, call
    assert_compiled(compiled)


@pytest.mark.parametrize("shape", [(1,), (255,), (1 << 20,), (1 << 20, 3), (1 << 27,)])
def test_of_every_size(device, cuda, shape):
    x = torch.ones(shape, device=device, dtype=torch.bfloat16)
    compiled = compiled_of(lambda x: F.dropout(x, 0.5))
    torch.manual_seed(5)
    F.dropout(x, 0.5)
    expected = state()
    torch.manual_seed(5)
    with torch.no_grad():
        compiled(x)
    assert state() == expected


@pytest.mark.parametrize("mode", MODES)
def test_draws_come_again_with_the_seed_and_only_then(inputs, mode):
    """A graph draws what plain calls draw."""
    compiled = compiled_of(layers, mode)
    torch.manual_seed(5)
    with torch.no_grad():
        first = [compiled(*inputs) for _ in range(CALLS)]
        torch.manual_seed(5)
        again = [compiled(*inputs) for _ in range(CALLS)]
    for ours, theirs in zip(first, again):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs))
    for earlier, later in zip(first, first[1:]):
        share = ((earlier[0] == 0) != (later[0] == 0)).double().mean()
        assert 0.45 < share < 0.55  # 2 * 0.5 * 0.5, and what the first dropout adds


def test_kernels_draw_what_the_interpreter_does(device, cuda):
    x = torch.ones(700, 129, device=device)
    compiled = compiled_of(lambda x: torch.native_dropout(x, 0.3, True))
    generator = torch.cuda.default_generators[0]
    key = mixed(generator.initial_seed(), generator.get_offset())
    with torch.no_grad():
        y, mask = compiled(x)
    numbers = torch.arange(x.numel()).numpy()
    bits = torch.from_numpy(random_bits(torch.full((x.numel(),), key).numpy(), numbers)).view_as(mask)
    kept = torch.tensor(0.7, dtype=torch.float32).double().item()
    assert torch.equal(mask.cpu(), bits < round(kept * 2**32))
    assert torch.equal(y != 0, mask)
    torch.testing.assert_close(y[mask], torch.full_like(y[mask], 1 / 0.7))


def test_what_aten_draws_in_between_is_eagers(inputs):
    def noisy(x, residual, bias):
        y = F.dropout(x + bias, 0.1)
        noise = torch.rand(5, device=x.device)
        y, z = y + noise.sum(), torch.bernoulli(x.sigmoid())
        return F.dropout(y, 0.2), noise, z

    compiled = compiled_of(noisy)
    torch.manual_seed(5)
    with torch.no_grad():
        _, noise, z = noisy(*inputs)
        expected = state()
        torch.manual_seed(5)
        _, ours, our_z = compiled(*inputs)
    assert torch.equal(noise, ours)
    assert (z != our_z).double().mean() < 1e-3  # `sigmoid` may differ in its last bit
    assert state() == expected


@pytest.mark.parametrize("mode", MODES)
def test_attention_with_dropout_of_its_own(device, cuda, mode):
    def block(q, w):
        y = F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
        return F.dropout(y @ w, 0.1) + q

    q, w = torch.randn(2, 4, 64, 64, device=device).half(), torch.randn(64, 64, device=device).half()
    compiled = compiled_of(block, mode)
    with torch.no_grad():
        for _ in range(CALLS):
            before = torch.cuda.get_rng_state()
            block(q, w)
            expected = state()
            torch.cuda.set_rng_state(before)
            compiled(q, w)
            assert state() == expected


def test_in_a_graph_of_the_programs_own(inputs):
    compiled = compiled_of(layers)
    with torch.no_grad():
        compiled(*inputs)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            compiled(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = compiled(*inputs)
        seen = []
        for _ in range(3):
            graph.replay()
            seen.append(outputs[0].clone())
        torch.cuda.manual_seed(9)
        graph.replay()
        ninth = outputs[0].clone()
        torch.cuda.manual_seed(9)
        graph.replay()
        assert torch.equal(ninth, outputs[0])
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2])


@pytest.mark.parametrize("mode", MODES)
def test_two_streams(inputs, mode):
    """Calls of two streams in turn draw what calls of one would."""
    compiled = compiled_of(layers, mode)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.manual_seed(5)
    with torch.no_grad():
        expected = [compiled(*inputs) for _ in range(2 * CALLS)]
        torch.cuda.synchronize()
        torch.manual_seed(5)
        found = []
        for call in range(2 * CALLS):
            with torch.cuda.stream(streams[call % 2]):
                found.append(compiled(*inputs))
        torch.cuda.synchronize()
    for ours, theirs in zip(found, expected):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs))


def test_a_module_in_training(device, cuda):
    block = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Dropout(0.5)).to(device).train()
    compiled = compiled_of(block)
    x = torch.randn(512, 64, device=device)
    with torch.no_grad():
        plain = block.eval()(x)
        block.train()
        y = compiled(x)
        share = ((y == 0) & (plain != 0)).double().mean()
        assert 0.48 < share < 0.52
        torch.testing.assert_close(y[y != 0], 2 * plain[y != 0], rtol=1e-3, atol=1e-3)
    assert_compiled(compiled)
