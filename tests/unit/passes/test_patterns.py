"""`lampwork.Pattern`: what is found, what is put in its place, and what is left alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import lampwork
from lampwork.runtime.cache.operators import declaration
from lampwork.runtime.wrappers import compiled_of


@torch.library.custom_op("test_patterns::norm", mutates_args=())
def fused_norm(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return norm(x, w, eps)


@torch.library.custom_op("test_patterns::into", mutates_args={"out"})
def into(out: Tensor, x: Tensor) -> None:
    out.copy_(x.sigmoid())


@torch.library.custom_op("test_patterns::both", mutates_args=())
def both(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.cos()


fused_norm.register_fake(lambda x, w, eps: torch.empty_like(x))
both.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))


def norm(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def norm_pattern(**more):
    example = (torch.randn(2, 8), torch.randn(8), 0.12345)
    return lampwork.Pattern(norm, lambda x, w, eps: torch.ops.test_patterns.norm(x, w, eps), example, **more)


def calls(function, pattern, *args, stage="forward", **settings):
    """How often each operator is called in place of what the pattern looks for; results are eager's."""
    made = lampwork.compile(function, options={"passes": {stage: [pattern]}, "cache": False}, **settings)
    torch.testing.assert_close(made(*args), function(*args))
    stats = lampwork.stats(made)
    assert stats["fallbacks"] == () and stats["breaks"] == ()
    return {name.partition("::")[2].removesuffix(".default"): count for name, count in stats["extern_calls"].items()}


@pytest.mark.parametrize("stage", ["joint", "forward"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_match_of_any_size_and_number(stage, dynamic):
    def program(x, w):
        return norm(norm(x + 1, w, 1e-5), w, 0.5).relu()

    for shape in ((4, 16), (2, 3, 16)):
        found = calls(program, norm_pattern(), torch.randn(shape), torch.randn(16), stage=stage, dynamic=dynamic)
        assert found == {"norm": 2}


def test_stored_entries_depend_on_operators_that_are_put_in():
    made = lampwork.compile(norm, options={"passes": {"forward": [norm_pattern()]}, "cache": False})
    made(torch.randn(4, 16), torch.randn(16), 1e-5)
    (entry,) = compiled_of(made).entries
    assert entry.artifact.operators == {"test_patterns::norm": declaration("test_patterns::norm")}


def test_factors_in_another_order():
    def program(x, w):
        return w * (torch.rsqrt(1e-5 + x.pow(2).mean(-1, keepdim=True)) * x)

    assert calls(program, norm_pattern(), torch.randn(4, 16), torch.randn(16)) == {"norm": 1}


@pytest.mark.parametrize(
    "program",
    [
        lambda x, w: x * torch.rsqrt(x.pow(4).mean(-1, keepdim=True) + 1e-5) * w,  # another power
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-5) * w,  # of other rows
        lambda x, w: (x + 1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w,  # of two values
        lambda x, w: (norm(x, w, 1e-5), torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)),  # read elsewhere, too
    ],
)
def test_what_is_no_match(program):
    assert calls(program, norm_pattern(), torch.randn(4, 16), torch.randn(16)) == {}


def test_a_number_twice_is_the_same_number():
    def scaled(x, s):
        return (x * s).sin() * s

    def program(x):
        return scaled(x, 2.0), scaled(x, 0.5), (x * 3.0).sin() * 4.0

    pattern = lampwork.Pattern(scaled, lambda x, s: torch.ops.test_patterns.norm(x, x, s), (torch.randn(4), 0.777))
    seen = []
    graph_of = lampwork.GraphPass(lambda graph: seen.append(pattern(graph)))
    lampwork.compile(program, options={"passes": {"forward": [graph_of]}, "cache": False})(torch.randn(8))
    assert seen == [2]


def test_a_replacement_may_write_to_what_it_makes():
    def replacement(x):
        out = torch.empty_like(x)
        torch.ops.test_patterns.into(out, x)
        return out

    pattern = lampwork.Pattern(torch.sigmoid, replacement, (torch.randn(3),))
    found = calls(lambda x: torch.sigmoid(x + 1) * 2, pattern, torch.randn(4, 5))
    assert len(found) == 1 and "into" in next(iter(found))


def test_several_results():
    pattern = lampwork.Pattern(
        lambda x: (x.sin(), x.cos()), lambda x: torch.ops.test_patterns.both(x), (torch.randn(3),)
    )
    assert calls(lambda x: (x + 1).sin() - (x + 1).cos(), pattern, torch.randn(4)) == {"both": 1}
    assert calls(lambda x: x.sin() + 1, pattern, torch.randn(4)) == {}


def test_nothing_is_found_that_would_be_read_too_early():
    """The second result needs the first: in place of both there is no one call."""
    pattern = lampwork.Pattern(
        lambda x, y: (x.sin(), y.cos()), lambda x, y: (y.cos(), y.cos()), (torch.randn(3), torch.randn(3))
    )
    assert calls(lambda x: x.sin().cos(), pattern, torch.randn(3)) == {}


def test_views_and_calls_that_pytorch_has_in_terms_of_others():
    def program(x, w, b):
        return F.gelu(F.linear(x.reshape(2, -1), w, b)).view(-1)

    pattern = lampwork.Pattern(
        lambda x, w, b: F.gelu(F.linear(x, w, b)), lambda x, w, b: F.gelu(torch.addmm(b, x, w.t())).clone(),
        (torch.randn(3, 4), torch.randn(5, 4), torch.randn(5)),
    )  # fmt: skip
    counted = []
    made = lampwork.GraphPass(lambda graph: counted.append(pattern(graph)))
    calls(program, made, torch.randn(4, 3), torch.randn(7, 6), torch.randn(7))
    assert counted == [1]


def test_sizes_that_a_pattern_does_not_take_are_no_match():
    pattern = lampwork.Pattern(
        lambda x, w: F.layer_norm(x, (8,), w), lambda x, w: torch.ops.test_patterns.norm(x, w, 0.5),
        (torch.randn(2, 8), torch.randn(8)), check=lambda x, w: x.shape[0] > 1,
    )  # fmt: skip
    assert calls(lambda x, w: F.layer_norm(x, (16,), w), pattern, torch.randn(2, 16), torch.randn(16)) == {}


def test_a_check_decides():
    asked = []

    def check(x, w, eps):
        asked.append((tuple(x.shape), x.dtype, eps))
        return x.shape[0] > 4

    pattern = norm_pattern(check=check)
    assert calls(lambda x, w: norm(x, w, 1e-5), pattern, torch.randn(4, 16), torch.randn(16)) == {}
    assert calls(lambda x, w: norm(x, w, 1e-5), pattern, torch.randn(5, 16), torch.randn(16)) == {"norm": 1}
    assert asked == [((4, 16), torch.float32, 1e-5), ((5, 16), torch.float32, 1e-5)]


@pytest.mark.parametrize(
    ("pattern", "replacement", "text"),
    [
        (torch.sigmoid, lambda x: x.double(), "gives float64[4][1]cpu as result 0, in place of float32[4][1]cpu"),
        (torch.sigmoid, lambda x: (x, x), "has 1 results, and its replacement 2"),
        (torch.sigmoid, lambda x: x.numpy(), "the replacement of pattern"),
        (torch.sigmoid, lambda x: x.add_(1), "it writes to an argument"),
        (torch.sigmoid, lambda x: 3, "it returns 3, and not tensors alone"),
        (lambda x: x, torch.sigmoid, "returns one of its arguments"),
    ],
)
def test_mistakes_name_the_pattern(pattern, replacement, text):
    made = lampwork.compile(
        torch.sigmoid, options={"passes": {"forward": [lampwork.Pattern(pattern, replacement, (torch.randn(3),))]}}
    )
    with pytest.raises(lampwork.PassError) as caught:
        made(torch.randn(4))
    assert text in str(caught.value)


def test_the_backward_half_has_patterns():
    def gelu_backward(gradient, x):
        return torch.ops.aten.gelu_backward(gradient, x)

    counted = []
    pattern = lampwork.Pattern(gelu_backward, lambda g, x: g * 0 + 7.0, (torch.randn(3), torch.randn(3)))
    made = lampwork.compile(
        lambda x: F.gelu(x * 2),
        options={"passes": {"backward": [lambda graph: counted.append(pattern(graph))]}, "cache": False},
    )
    x = torch.randn(4, requires_grad=True)
    made(x).sum().backward()
    assert counted == [1]
    torch.testing.assert_close(x.grad, torch.full((4,), 14.0))
