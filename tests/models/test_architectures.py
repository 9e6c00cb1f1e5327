"""Architectures of `transformers` give eager's result; all but those named below in one graph."""

from __future__ import annotations

import pytest

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
        assert {each["id"] for each in result["breaks"]} == {BREAKS[name]}
    else:
        assert not result["fallbacks"] and result["graphs"] == 1, result["fallbacks"]
        assert result["kernels"] > 0
