"""The zoo in small sizes: one graph, no fall-back, accepted numbers, in each mode."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.benchmark import zoo
from lampwork.verdict.verify import compare
from tests.gpu.support import assert_close, compiled_of, in_double


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_model(name, dtype, device):
    workload = zoo.build(name, device=device, dtype=dtype, size="tiny")
    with torch.no_grad():
        expected = workload.function(*workload.args)
        reference = in_double(workload.function, *workload.args)
        compiled = compiled_of(workload.function)
        for call in range(2):
            verdict = compare(compiled(*workload.args), expected, reference)
            assert verdict.accepted, f"call {call}: {verdict.reasons}"
            assert not verdict.notes, f"call {call}: {verdict.notes}"
    stats = lampwork.stats(compiled)
    assert list(stats["breaks"]) == [] and list(stats["fallbacks"]) == []
    assert stats["captures"] == stats["entries"] == 1
    assert stats["native_kernels"] > 0 or name == "mlp"  # its activations may be the products' own


@pytest.mark.parametrize("name", ["mlp", "bert", "llama", "unet"])
def test_every_output_kept_under_reduce_overhead(name, device):
    """The naive loop: each output stays in a list, each input is new."""
    workload = zoo.build(name, device=device, dtype=torch.bfloat16, size="tiny")
    (first, *rest) = workload.args
    inputs = [first * (1 - n / 8) if first.is_floating_point() else first.roll(n, -1) for n in range(6)]
    with torch.no_grad():
        compiled = compiled_of(workload.function, "reduce-overhead")
        kept = [compiled(x, *rest) for x in inputs]
        for x, output in zip(inputs, kept):
            assert_close(output, workload.function(x, *rest), in_double(workload.function, x, *rest))
    assert list(lampwork.stats(compiled)["fallbacks"]) == []


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_autotuned_modes(mode, device):
    workload = zoo.build("bert", device=device, dtype=torch.bfloat16, size="tiny")
    with torch.no_grad():
        compiled = compiled_of(workload.function, mode)
        for _ in range(4):
            output = compiled(*workload.args)
        expected = workload.function(*workload.args)
        assert_close(output, expected, in_double(workload.function, *workload.args))


def test_inference_mode_and_channels_last(device):
    workload = zoo.build("resnet", device=device, dtype=torch.bfloat16, size="tiny")
    module = workload.function.to(memory_format=torch.channels_last)
    x = workload.args[0].to(memory_format=torch.channels_last)
    with torch.inference_mode():
        expected = module(x)
        compiled = compiled_of(module)
        for _ in range(2):
            assert_close(compiled(x), expected, in_double(module, x))
    assert list(lampwork.stats(compiled)["fallbacks"]) == []


def test_a_stored_entry_serves_a_fresh_function(device):
    """What the disk cache gives back runs the same: code, launches, constants."""
    workload = zoo.build("bert", device=device, dtype=torch.bfloat16, size="tiny")
    with torch.no_grad():
        first = lampwork.compile(workload.function)
        expected = first(*workload.args)
        lampwork.reset()
        second = lampwork.compile(workload.function)
        output = second(*workload.args)
        assert torch.equal(output.logits, expected.logits)
    stats = lampwork.stats(second)
    assert stats["cache_hits"] == 1 and stats["captures"] == 0, list(stats["cache_notes"])
