"""Architectures of `transformers` give eager's result; all but those named below in one graph."""

from __future__ import annotations

import pytest
import torch

import lampwork
from bench.architecture_check import check
from bench.architectures import BY_NAME

#: One of each kind; the others take a second or two each and are left to `make test-slow`.
QUICK = ("modernbert", "llama", "mixtral", "mamba2", "t5", "wav2vec2", "swin", "clip")
#: Those that branch on the contents of tensors, and how the reason begins.
BREAKS = {
    "longformer": "data-dependent",  # global attention, where any token asks for it
    "led": "data-dependent",  # the same
    "vilt": "data-dependent",  # the sizes of images are counted in their masks
    "reformer": "data-dependent",  # hashing chooses buckets by the smallest and largest index
    "switch-transformers": "data-dependent",  # experts gather their tokens by `nonzero`
    "encodec": "data-dependent",  # padding is computed in tensors
    "qwen2-vl": "data-dependent",  # sizes of images come in a tensor
    "nllb-moe": "data-dependent",  # experts gather their tokens by `nonzero`
    "mimi": "data-dependent",  # padding is computed in tensors
}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BY_NAME]
)
def test_architecture(name):
    lampwork.reset()
    result = check(name)
    if result["status"] == "missing":
        pytest.skip(result["reasons"][0])
    assert result["status"] == "ok", result["reasons"]
    if name in BREAKS:
        assert BREAKS[name] in {each["id"] for each in result["breaks"]}
    else:
        assert not result["fallbacks"] and result["graphs"] == 1, result["fallbacks"]
        assert result["kernels"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "llama", "t5", "swin", "mixtral"])
def test_as_a_back_end_of_torch_compile(name):
    from lampwork.runtime.backend import lampwork_backend
    from lampwork.verdict.verify import compare

    torch._dynamo.reset()
    module, inputs = BY_NAME[name].build()
    with torch.no_grad():
        expected = module(**inputs)
        compiled = torch.compile(module, backend=lampwork_backend)
        for _ in range(2):
            verdict = compare(compiled(**inputs), expected)
            assert verdict.accepted, verdict.reasons
