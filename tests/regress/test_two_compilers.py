"""Functions of `torch.compile` inside of ours and the reverse: Dynamo traced this package's runtime, and capture Dynamo's."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch import nn

import lampwork


@pytest.fixture(autouse=True)
def new_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def inner(x):
    return x.sin() * 2 + 1


def outer(function):
    return lambda x: function(x + 1).cos() + function(x)


def ours(function, **settings):
    return lampwork.compile(function, options={"cache": False}, **settings)


def peer(function, backend="eager", **settings):
    return torch.compile(function, backend=backend, **settings)


def agree(compiled, function, x):
    expected = function(x)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), expected)


CASES = list(itertools.product(("eager", "aot_eager"), (False, True), (False, True)))


@pytest.mark.parametrize(("backend", "fullgraph", "warm"), CASES)
def test_theirs_inside_of_ours(backend, fullgraph, warm):
    part, x = peer(inner, backend, fullgraph=fullgraph), torch.randn(5)
    if warm:
        part(x)
    whole = ours(outer(part), fullgraph=True)
    agree(whole, outer(inner), x)
    agree(part, inner, x)
    torch._dynamo.reset()
    agree(whole, outer(inner), x)
    assert lampwork.stats(whole)["captures"] == 1


@pytest.mark.parametrize(("backend", "fullgraph", "warm"), CASES)
def test_ours_inside_of_theirs(backend, fullgraph, warm):
    part, x = ours(inner, fullgraph=True), torch.randn(5)
    if warm:
        part(x)
    whole = peer(outer(part), backend, fullgraph=fullgraph)
    agree(whole, outer(inner), x)
    agree(part, inner, x)
    lampwork.reset()
    agree(whole, outer(inner), x)


@pytest.mark.parametrize("first", [ours, peer])
def test_three_deep_with_breaks_and_gradients(first):
    second = peer if first is ours else ours
    weight = torch.randn(4, requires_grad=True)

    def divided(x):
        y = (x * weight).sin()
        torch._dynamo.graph_break()
        return y * 2

    def gradient(function, x):
        weight.grad = None
        function(x).sum().backward()
        return weight.grad.clone()

    part = first(divided)
    whole, x = first(outer(second(outer(part)))), torch.randn(4)
    expected = gradient(outer(outer(divided)), x)
    for _ in range(3):
        torch.testing.assert_close(gradient(whole, x), expected)
        part(x)


@pytest.mark.parametrize("again", [ours, peer])
def test_compiled_twice(again):
    x = torch.randn(3, 3)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    for once in (ours, peer):
        agree(again(once(inner), fullgraph=True), inner, x)
        agree(again(once(model)), model, x)
        agree(again(nn.Sequential(once(model[0]), model[1]), fullgraph=True), model, x)
    model.compile(backend="eager")
    agree(again(model), nn.Sequential(*model), x)


@pytest.mark.parametrize("once", [ours, peer])
@pytest.mark.parametrize("again", [ours, lambda function: ours(lambda x: function(x))])
def test_wrappers_have_the_attributes_of_what_they_wrap(once, again):
    """`functools.wraps` copies them: the compiled function inside was called in place of the wrapper."""
    function = once(inner)

    @functools.wraps(function)
    def wrapper(x):
        return function(x) * 100

    agree(again(wrapper), lambda x: inner(x) * 100, torch.randn(3))


def test_wrappers_of_ours_inside_of_theirs():
    function = ours(inner)

    @functools.wraps(function)
    def wrapper(x):
        return function(x) * 100

    agree(peer(lambda x: wrapper(x), fullgraph=True), lambda x: inner(x) * 100, torch.randn(3))
    agree(peer(wrapper, fullgraph=True), lambda x: inner(x) * 100, torch.randn(3))


@pytest.mark.parametrize("once", [ours, peer])
def test_methods_compiled_again(once):
    class Scale:
        by = 3

        @once
        def scaled(self, x):
            return x * self.by

    scale = Scale()
    for again in (ours, peer) if once is ours else (ours,):  # torch.compile refuses methods of its own
        agree(again(scale.scaled), lambda x: x * 3, torch.randn(3))
        agree(again(lambda x: scale.scaled(x), fullgraph=True), lambda x: x * 3, torch.randn(3))


def lazily_compiled(**settings):
    """A decorator that compiles when the function is first called, as `torchvision.ops.roi_align` has one."""

    def decorate(function):
        compiled = None

        @functools.wraps(function)
        def hook(*args, **kwargs):
            nonlocal compiled
            if compiled is None:
                compiled = torch.compile(function, **settings)
            return compiled(*args, **kwargs)

        return hook

    return decorate


def test_compiled_at_the_first_call():
    def plain(x, scale):
        return x[:, :2] * scale + torch.arange(x.shape[0])[:, None]

    lazy = lazily_compiled(dynamic=True, backend="aot_eager")(plain)
    whole = ours(lambda x: lazy(x.relu(), 0.5) + 1)
    for rows in (3, 3, 5, 4):
        agree(whole, lambda x: plain(x.relu(), 0.5) + 1, torch.randn(rows, 4))
    breaks = lampwork.stats(whole)["breaks"]
    assert [(each.reason, each.count) for each in breaks] == [("compile is called", 1)]


def test_nested_regions():
    region = torch.compiler.nested_compile_region(inner)
    whole = ours(lambda x: region(x) + region(x * 2), fullgraph=True)
    agree(whole, lambda x: inner(x) + inner(x * 2), torch.randn(3))


def attention(implementation):
    def function(query, key):
        return implementation(query * 2, key, key, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1) + 1

    return function


def test_attention_with_a_function():
    from torch.nn.attention.flex_attention import flex_attention

    query, key = torch.randn(2, 1, 2, 128, 16)
    expected = attention(flex_attention)(query, key)
    whole = ours(attention(flex_attention))
    for _ in range(2):
        torch.testing.assert_close(whole(query, key), expected)
    kept = peer(flex_attention)
    whole = ours(attention(kept))
    for _ in range(2):
        torch.testing.assert_close(whole(query, key), expected)
    reasons = [each.reason for each in lampwork.stats(whole)["breaks"]]
    assert reasons == ["flex_attention, made by torch.compile, is called: in it, flex_attention takes functions"]


def test_classes_with_arguments_are_made():
    def function(x):
        table = dict[str, torch.Tensor](x=x)
        return table["x"] + len(list[int]((1, 2)))

    agree(ours(function, fullgraph=True), function, torch.randn(3))


def test_dynamo_sees_none_of_our_frames():
    weight, ends = torch.randn(4, requires_grad=True), lampwork.compile(lambda x: x + 1, options={"cache": False})
    loss = ours(lambda x: (x * weight).sin().sum())

    def step(x):
        torch._dynamo.skip_frame("what it calls is looked at all the same")
        loss(x).backward()
        return ends(weight.grad)

    x = torch.randn(4)
    seen = torch._dynamo.convert_frame.input_codes.seen
    for _ in range(3):
        weight.grad = None
        torch.testing.assert_close(peer(step)(x), x * torch.cos(x * weight.detach()) + 1)
        names = [code.co_filename for code in (each() for each in seen) if code is not None]
        assert names and not [name for name in names if "lampwork/" in name or name.startswith("<lampwork")], names


@pytest.mark.parametrize("whole", [ours, peer])
def test_functions_of_this_package_in_a_program(whole):
    def function(x):
        made = lampwork.compile(inner, options={"cache": False})
        return made(x) + lampwork.stats(made)["calls"] * 0

    agree(whole(function), inner, torch.randn(3))
