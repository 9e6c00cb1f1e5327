"""Products made wider for GPUs. The pass itself names no device, so that it can be run on the CPU."""

from __future__ import annotations

import pytest
import torch

from lampwork import _torch
from lampwork.capture.record.recorder import record
from lampwork.config import make_settings
from lampwork.debug.interpret.graphs import run_functional
from lampwork.graph import convolutions, padding
from lampwork.graph.functionalize import functionalize
from lampwork.graph.prepare import prepare
from tests.cuda_stand_in import cuda_stand_in

X = torch.randn(2, 3, 16, dtype=torch.bfloat16)
WEIGHT = torch.randn(13, 16, dtype=torch.bfloat16)
BIAS = torch.randn(13, dtype=torch.bfloat16)


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("bias", [BIAS, None])
def test_padded_products_compute_the_same(monkeypatch, freeze, bias):
    monkeypatch.setattr(padding, "padding_pays", lambda rows, inner, columns, frozen: columns % 8 != 0)
    inputs = [X, WEIGHT] if bias is None else [X, WEIGHT, bias]

    def call(x, *parameters):
        return torch.nn.functional.linear(x, *parameters).exp()

    with torch.no_grad():
        region = record(call, inputs)
        padded = padding.pad_products(functionalize(region), make_settings(options={"freeze": freeze}))
        padded.graph.lint()
        products = [n for n in padded.graph.nodes if str(n.target) in ("aten.mm.default", "aten.addmm.default")]
        assert [tuple(n.meta["val"].shape) for n in products] == [(6, 16)]
        assert [recipe[0] for recipe in padded.derived] == ["pad_rows"] * (len(inputs) - 1 if freeze else 0)
        (result,) = run_functional(padded, inputs)
        expected = call(*inputs)
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_derivatives_of_odd_products_share_a_wide_factor(monkeypatch, dtype):
    monkeypatch.setattr(padding, "_gains", lambda width, products, copied: width % 8 != 0)
    inputs = [each.to(dtype) for each in (torch.randn(24, 13), torch.randn(13, 16), torch.randn(24, 16))]

    def call(tangent, weight, x):
        tangent = tangent * 2
        return tangent @ weight, tangent.t() @ x, (x.t() @ x).exp()

    with torch.no_grad():
        padded = padding.pad_products(functionalize(record(call, inputs)), make_settings())
        padded.graph.lint()
        shapes = [tuple(n.meta["val"].shape) for n in padded.graph.nodes if n.target is torch.ops.aten.mm.default]
        assert shapes == [(24, 16), (16, 16), (16, 16)]
        pads = [n for n in padded.graph.nodes if n.target is torch.ops.aten.constant_pad_nd.default]
        assert sorted(tuple(n.meta["val"].shape) for n in pads) == [(16, 16), (24, 16)]
        for result, expected in zip(run_functional(padded, inputs), call(*inputs)):
            torch.testing.assert_close(result, expected)
            assert result.stride() == expected.stride()


def test_what_pays_was_measured():
    pays = padding.padding_pays
    assert pays(8192, 768, 30522, False) and pays(8192, 768, 50257, False) and pays(8192, 4096, 4095, False)
    assert pays(2048, 2048, 32001, False)
    assert not pays(128, 768, 30522, False) and not pays(128, 768, 50257, False) and not pays(128, 768, 30522, True)
    assert pays(128, 768, 50257, True)
    assert not pays(8192, 768, 30720, False) and not pays(8192, 1023, 4095, False)


def test_only_large_products_on_gpus_are_padded():
    inputs = [torch.empty(4096, 512, dtype=torch.bfloat16), torch.empty(30001, 512, dtype=torch.bfloat16)]

    def widths(function, tensors):
        with torch.no_grad():
            graph = prepare(record(function, tensors), make_settings()).graph
        return [n.meta["val"].shape[1] for n in graph.nodes if n.target is torch.ops.aten.mm.default]

    with cuda_stand_in():
        assert widths(lambda x, w: x @ w.t(), inputs) == [30008]
        assert widths(lambda x, w: x[:8] @ w.t(), inputs) == [30001]
        assert widths(lambda x, w: x.float() @ w.t().float(), inputs) == [30001]


def test_biases_of_convolutions_are_added_apart(monkeypatch):
    monkeypatch.setattr(_torch, "convolution_adds_bias_last", lambda *args: True)
    for layout in (torch.contiguous_format, torch.channels_last):
        inputs = [torch.randn(2, 4, 6, 6).to(memory_format=layout), torch.randn(5, 4, 3, 3), torch.randn(5)]
        with torch.no_grad():
            apart = convolutions.split_biases(functionalize(record(torch.nn.functional.conv2d, inputs)))
            (node,) = [n for n in apart.graph.nodes if n.target is torch.ops.aten.convolution.default]
            assert node.args[2] is None
            (result,) = run_functional(apart, inputs)
            expected = torch.nn.functional.conv2d(*inputs)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
        assert result.stride() == expected.stride()
