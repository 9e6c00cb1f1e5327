"""The native share counts what still runs in ATen against the compiler, never for it."""

from __future__ import annotations

import pytest
import torch

from lampwork.benchmark.share import OperatorTimes, base_name, fused_operators, least, native_share, operator_times
from lampwork.ir.program import Extern


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("aten::add_", "add"),
        ("aten.add.Tensor", "add"),
        ("torch.ops.aten.add_.Scalar", "add"),
        ("aten::native_layer_norm", "layer_norm"),
        ("gelu", "gelu"),
    ],
)
def test_base_name(name, base):
    assert base_name(name) == base


EAGER = OperatorTimes({"mm": 900.0, "gelu": 60.0, "add": 40.0, "view": 5.0}, {})


def test_products_and_views_stand_apart():
    assert native_share(EAGER, OperatorTimes({"mm": 900.0, "view": 1.0}, {}), {"aten.mm.default": 3})["share"] == 1.0


def test_what_the_compiler_says_it_calls_counts_against_it():
    found = native_share(EAGER, OperatorTimes({"mm": 900.0}, {}), {"aten.gelu.default": 1})
    assert found["share"] == pytest.approx(0.4)


def test_what_the_profile_sees_counts_too_even_if_eager_has_no_such_operator():
    compiled = OperatorTimes({"mm": 900.0, "erf": 30.0, "add": 10.0}, {})
    found = native_share(EAGER, compiled, {})
    assert found["still_aten_us"] == {"add": 40.0, "erf": 30.0}
    assert found["share"] == pytest.approx(0.3)


def test_never_below_zero():
    assert native_share(EAGER, OperatorTimes({"sort": 5000.0}, {}), {})["share"] == 0.0


def test_profile_of_a_call():
    x, w = torch.randn(32, 32), torch.randn(32, 32)
    times = operator_times(lambda: torch.nn.functional.gelu(x @ w).t())
    assert {"mm", "gelu"} <= set(times.microseconds)
    assert set(times.others) == {"gelu"}
    assert 0 < times.products_share < 1


def test_calls_that_are_left_weigh_their_part():
    eager = OperatorTimes({"copy": 730.0, "gelu": 270.0}, {"copy": 73, "gelu": 1})
    found = native_share(eager, OperatorTimes({"copy": 12.0}, {"copy": 1}), {})
    assert found["still_aten_us"] == {"copy": 12.0}
    found = native_share(eager, OperatorTimes({"copy": 12.0}, {"copy": 7}), {})
    assert found["still_aten_us"] == {"copy": 70.0}


def test_what_products_do_themselves_is_theirs():
    x, w, b = torch.randn(32, 32), torch.randn(32, 32), torch.randn(32)
    times = operator_times(lambda: torch.addmm(b, x, w).exp())
    assert times.calls_inside["copy"] == 1
    assert set(times.others) == {"exp"}
    assert times.total > sum(times.microseconds.values())


def test_what_composites_consist_of_is_not():
    query = torch.randn(1, 2, 8, 4)

    def call():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(query, query, query)

    assert {"_softmax", "mul"} & set(operator_times(call).others)


def test_copies_that_products_make_beyond_those_of_eager_are_left():
    eager = OperatorTimes({"exp": 100.0}, {"exp": 1}, {"copy": 20.0}, {"copy": 2})
    same = OperatorTimes({}, {}, {"copy": 30.0}, {"copy": 2})
    assert native_share(eager, same, {})["share"] == 1.0
    more = OperatorTimes({}, {}, {"copy": 30.0}, {"copy": 3})
    assert native_share(eager, more, {})["still_aten_us"] == {"copy": 10.0}


def test_activations_fused_into_products_count_neither_way():
    eager = OperatorTimes({"gelu": 60.0, "add": 40.0}, {"gelu": 2, "add": 4})
    found = native_share(eager, OperatorTimes({"add": 10.0}, {"add": 1}), {}, {"gelu": 1})
    assert found["eager_others_us"] == 70.0
    assert found["fused_share"] == pytest.approx(0.3)
    assert found["share"] == pytest.approx(6 / 7)
    found = native_share(OperatorTimes({"gelu": 60.0}, {"gelu": 1}), OperatorTimes({}, {}), {}, {"gelu": 1})
    assert (found["share"], found["fused_share"]) == (1.0, 1.0)


def test_fused_operators_of_a_program():
    arguments = ("x", "w", "b", "gelu", (), "none")
    steps = [
        Extern("mkldnn::_linear_pointwise.default", arguments, (), ("y",)),
        Extern("aten::mm", ("gelu",), (), ("z",)),
    ]
    assert fused_operators(steps) == {"gelu": 1}


def test_the_least_of_the_rounds_counts():
    rounds = [
        OperatorTimes({"mm": 5.0, "add": 9.0}, {"mm": 1, "add": 2}),
        OperatorTimes({"mm": 7.0, "add": 3.0}, {"mm": 1, "add": 2}),
    ]
    assert least(rounds) == OperatorTimes({"mm": 5.0, "add": 3.0}, {"mm": 1, "add": 2})
