"""The native share counts what still runs in ATen against the compiler, never for it."""

from __future__ import annotations

import pytest
import torch

from lampwork.verdict.share import OperatorTimes, base_name, native_share, operator_times


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
