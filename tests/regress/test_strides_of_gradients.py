"""Gradients have eager's strides: in `.grad`, from `torch.autograd.grad`, and in hooks.

They were those of the compiled program, which was made for tangents laid out as the outputs are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

randn = torch.randn


def channels_last(*shape):
    return randn(*shape).contiguous(memory_format=torch.channels_last)


COUNTER = torch.zeros(1)
PROGRAMS = {
    "stack": (lambda x, y: torch.stack([x, y], -1), randn(1, 1, 1, 2), randn(2).as_strided((1, 1, 1, 2), (1, 2, 2, 1))),
    "mT": (lambda x: x.mT * 2, randn(3, 4)),
    "mT alone": (lambda x: x.mT, randn(3, 4)),
    "a new dimension": (lambda x: x[None] * 1, randn(4, 1).t()),
    "swapdims": (lambda x: x.swapdims(0, 1) * 1, randn(4, 1)),
    "std": (lambda x: x.std(0), randn(4, 1, 3)),
    "sum": (lambda x: x.sum() * 2, randn(4, 3)),
    "one tangent for both": (lambda x, y: x + y, randn(1, 3), randn(3).as_strided((1, 3), (1, 1))),
    "one gradient for both": (lambda x, y: (x + y) * 2, randn(1, 3), randn(3).as_strided((1, 3), (1, 1))),
    "the tangent itself": (lambda x: x.clone(), randn(1).as_strided((1,), (0,))),
    "a leaf with gaps": (lambda x: x[1:, :1] * 1, randn(5, 3)[:, :2]),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=4), channels_last(2, 4, 6, 6), channels_last(4, 1, 3, 3)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), channels_last(2, 4, 6, 6)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), channels_last(2, 4, 6, 6)),
    "another format": (lambda x: x.contiguous(memory_format=torch.channels_last) * 2, randn(2, 4, 6, 6)),
    "added in place": (lambda x: torch.where(x.bool(), x, x), randn(2).as_strided((1, 1, 2, 1), (1, 2, 1, 2))),
    "the second alone is the engine's own": (
        lambda x: torch.cat([x[1:], x], 0).transpose_(0, -1), randn(8).as_strided((1, 2, 1, 2), (4, 1, 4, 2))
    ),
    "clamp": (lambda x, y: torch.clamp(x, y, x), randn(5, 1), randn(10).as_strided((1, 5), (10, 2)).t()),
    "beside what is written": (
        lambda x, y: (COUNTER.add_(1), torch.addcdiv(x, x, y))[1],
        randn(4).as_strided((1, 2, 1, 2), (4, 1, 4, 2)), randn(1, 2, 1, 2),
    ),
    "one of several results": (lambda x: F.scaled_dot_product_attention(x, x, x), randn(1, 2, 1, 1)),
    "one of several for two": (lambda x, y: F.scaled_dot_product_attention(x, y, y), randn(2, 1, 3, 4), randn(2, 1, 1, 4)),
    "one of several, normalized": (lambda x: F.layer_norm(x, (1,), x.flatten()[:1], x.flatten()[:1]), randn(1, 1)),
    "aminmax": (lambda x: torch.stack(torch.aminmax(x)), randn(2, 1).t()),
    "aminmax along": (lambda x: torch.stack(torch.aminmax(x, dim=1)[::-1]), randn(3, 1).t()),
    "masked_select": (lambda x: torch.masked_select(x, x < 9), randn(2).as_strided((1, 2, 1), (1, 1, 2))),
    "dropout": (lambda x: F.dropout(x.t(), 0.5), randn(5, 1)),
}  # fmt: skip


def strides(function, inputs, spread):
    """What each way of taking gradients shows."""
    seen = []

    def leaves():
        return [each.detach().requires_grad_() for each in inputs]

    def tangent(result):
        return torch.ones(()).expand(result.shape) if spread else torch.ones(result.shape)

    given = leaves()
    result = function(*given)
    seen.append([each.stride() for each in torch.autograd.grad(result, given, tangent(result))])
    given = leaves()
    result = function(*given)
    result.backward(tangent(result))
    seen.append([each.grad.stride() for each in given])
    given = leaves()
    for each in given:
        each.register_hook(lambda gradient: seen.append(gradient.stride()))
    result = function(*given)
    result.backward(tangent(result))
    given = [each * 1 for each in leaves()]
    for each in given:
        each.retain_grad()
    result = function(*given)
    result.backward(tangent(result))
    seen.append([each.grad.stride() for each in given])
    return seen


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_strides(name, spread):
    program, *inputs = PROGRAMS[name]
    compiled = lampwork.compile(program, options={"cache": False})
    try:
        expected = strides(program, inputs, spread)
    except RuntimeError as error:  # of `aminmax`, before PyTorch 2.12
        pytest.skip(str(error))
    for _ in range(2):
        assert strides(compiled, inputs, spread) == expected
    assert not lampwork.stats(compiled)["fallbacks"]


VIEWS = {
    "before": lambda x: (x.mT, x.clone()),
    "behind": lambda x: (x.clone(), x.mT),
    "between": lambda x: (x.clone(), x.mT, x * 2),
    "two": lambda x: (x[:1].mT, x.clone(), x.mT),
    "parts": lambda x: (*x.split(1), x * 2),
    "padded": lambda x: (torch.cumsum(x, 0), F.pad(x, (2, 3)), x.mT),
    "product": lambda x: (torch.tensordot(x, x.new_ones(x.shape[-1], 1), 1), x[..., :1].flip(0)),
    "quotient": lambda x: (x.movedim(0, -1), x / (x + 9)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_results_that_are_views_beside_others(name):
    """The engine adds gradients in the order in which eager made their nodes: a sum is laid out as the first."""
    program = VIEWS[name]
    compiled = lampwork.compile(program, options={"cache": False})
    for shape in ((2, 2, 1), (1, 2, 2), (3, 1)):
        for transposed in (False, True):
            seen = []
            for function in (program, compiled):
                leaf = torch.arange(4.0 if 2 in shape else 3.0).view(shape).clone().requires_grad_()
                results = function(leaf.transpose(0, -1) if transposed else leaf)
                tangents = [torch.arange(float(each.numel())).view(each.shape) for each in results]
                torch.autograd.backward(results, tangents)
                seen.append((leaf.grad.stride(), leaf.grad.tolist()))
            assert seen[0] == seen[1]


def test_sizes_that_vary():
    program = lambda x: x.mT[None] * 2
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for rows, columns in ((3, 4), (5, 2), (7, 9), (5, 2)):
        for spread in (False, True):
            inputs = [randn(rows, columns)]
            assert strides(compiled, inputs, spread) == strides(program, inputs, spread)


def test_a_stored_entry(tmp_path, monkeypatch):
    program = PROGRAMS["mT"][0]
    monkeypatch.setenv("LAMPWORK_CACHE_DIR", str(tmp_path))
    inputs = [randn(3, 1)]
    for _ in range(2):
        lampwork.reset()
        compiled = lampwork.compile(program)
        assert strides(compiled, inputs, False) == strides(program, inputs, False)


def test_inputs_that_are_written():
    def program(x, y):
        return x.mul_(y).mT * 2

    compiled = lampwork.compile(program, options={"cache": False})
    seen = []
    for function in (program, compiled):
        leaves = [torch.ones(3, 1, requires_grad=True), torch.ones(1, 3).t().requires_grad_()]
        result = function(leaves[0] * 1, leaves[1] * 1)
        seen.append([each.stride() for each in torch.autograd.grad(result, leaves, torch.ones(()).expand(1, 3))])
    assert seen[0] == seen[1]
    assert not lampwork.stats(compiled)["fallbacks"]
