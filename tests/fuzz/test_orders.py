"""Sums and products in other orders are right, each with a mistake of the same kind that is still found."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.fuzz import inside, judge, orders
from tests.fuzz.check import check
from tests.fuzz.inputs import Input
from tests.fuzz.program import EXACT, Call, Program, Statement
from tests.fuzz.run import Noise
from tests.fuzz.spellings import spellings
from tests.fuzz.test_fuzz import Planted, planted_program

B = torch.finfo(torch.float32).max
INF = float("inf")


def finding(program, pattern, replacement, **names):
    return check(program, Planted(pattern, replacement, **names)).finding


@pytest.mark.parametrize(
    "call",
    ["F.avg_pool2d(v1, 2)", "F.avg_pool2d(v1, 2, 1, 1, count_include_pad=False)", "F.adaptive_avg_pool2d(v1, 2)",
     "F.interpolate(v1, size=2, mode='area')", "F.avg_pool1d(v1[0], 2)", "F.avg_pool3d(v1[None], 2, divisor_override=3)"],
)  # fmt: skip
def test_windows(call):
    """B + B is infinite, B - inf + B is not."""
    image = (
        f"torch.tensor([[-1, {B}, 2, 3], [{B}, -torch.inf, {B}, {B}], [1, 2, 3, 4], [5, 6, 7, 8]]).expand(2, 2, 4, 4)"
    )
    program = planted_program(
        f"v1 = x0 * 0 + {image}", f"v9 = {call}", inputs=(Input((2, 2, 4, 4), "float32", values="unit"),)
    )
    for order in orders.ORDERS:

        def other(text, order=order):
            with orders.Rows(order):
                return text()

        assert finding(program, r"^F\.(.*)$", r"other(lambda: F.\1)", other=other) is None
    larger = lambda x: torch.where(x.isfinite(), x * 1.0001, x)
    assert finding(program, r"^F\.(.*)$", r"larger(F.\1)", larger=larger).kind == judge.WRONG_VALUES
    number = lambda x: torch.where(x.isfinite(), x, 1.0)
    assert finding(program, r"^F\.(.*)$", r"number(F.\1)", number=number).kind == judge.WRONG_VALUES


def test_a_mean_that_overflows_in_every_order():
    program = planted_program(
        f"v1 = x0 * 0 + {B}", "v9 = F.avg_pool2d(v1, 2)", inputs=(Input((1, 1, 2, 2), "float32", values="unit"),)
    )
    assert (
        finding(program, r"F\.avg_pool2d\(v1, 2\)", "F.avg_pool2d(v1 / 4, 2, divisor_override=1)").kind
        == judge.WRONG_VALUES
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "call",
    [
        "v1 @ x1",
        "F.linear(v1, x1.T, x1[0])",
        "torch.addmm(x1[:1], v1, x1, alpha=2)",
        "torch.einsum('ij,jk->ik', v1, x1)",
    ],
)
def test_matrix_products(call, dtype):
    large = f"torch.tensor([[1, {B}, {B}, -torch.inf], [1, {B}, {B}, -{B}], [1, 2, 3, 4]], dtype=torch.{dtype})"
    huge = large.replace(str(B), str(torch.finfo(getattr(torch, dtype)).max))
    specs = (Input((3, 4), dtype, values="unit"), Input((4, 2), dtype, values="unit"))
    program = planted_program(
        f"v1 = x0 * 0 + {huge}", "v2 = x1.abs() + 1", f"v9 = {call.replace('x1', 'v2')}", inputs=specs
    )
    pattern = r"^(.*v1.*v2.*)$"
    for order in orders.ORDERS:

        def other(text, order=order):
            with orders.Rows(order):
                return text()

        assert finding(program, pattern, r"other(lambda: \1)", other=other) is None
    larger = lambda x: torch.where(x.isfinite(), x * 2, x)
    assert finding(program, pattern, r"larger(\1)", larger=larger).kind == judge.WRONG_VALUES
    number = lambda x: torch.where(x.isfinite(), x, 1.0)
    assert finding(program, pattern, r"number(\1)", number=number).kind == judge.WRONG_VALUES


def test_channels_whose_sum_overflows():
    """B - 1 + B overflows in single precision, in which one thread adds it up."""
    column = f"torch.tensor([[{B}, 1], [1, 2], [{B}, 3]])"
    specs = (Input((3, 2), "float32", values="unit"),)
    program = planted_program(
        f"v1 = x0 * 0 + {column}", "v9 = F.batch_norm(v1, None, None, training=True)", inputs=specs
    )
    zero = lambda x: torch.where(x.isnan(), 0.0, x)
    assert finding(program, r"^(F\.batch_norm.*)$", r"zero(\1)", zero=zero) is None
    one = lambda x: torch.where(x.isnan(), 1.0, x) + (x == 0)
    assert finding(program, r"^(F\.batch_norm.*)$", r"one(\1)", one=one).kind == judge.WRONG_VALUES
    larger = lambda x: torch.where(x.isnan(), 0.0, x * 1.001)
    assert finding(program, r"^(F\.batch_norm.*)$", r"larger(\1)", larger=larger).kind == judge.WRONG_VALUES


def test_products_without_overflow_in_between():
    factors = "torch.tensor([2.0 ** 100, 2.0 ** 100, 2.0 ** -100, 2.0 ** -100] * 32)"
    program = planted_program(
        f"v1 = x0 * 0 + {factors}", "v9 = v1.prod()", inputs=(Input((128,), "float32", values="unit"),)
    )
    assert finding(program, r"v1\.prod\(\)", "v1.prod().isnan().float()") is None
    assert finding(program, r"v1\.prod\(\)", "v1.prod().isnan() * 1.5").kind == judge.WRONG_VALUES


def test_sums_are_what_they_are_where_nothing_overflows():
    """Every order gives eager's result but for rounding, of every function that is computed in another order."""
    torch.manual_seed(3)
    x, image, weight = torch.randn(4, 6), torch.randn(2, 4, 6, 5), torch.randn(6, 4, 3, 2)
    calls = [
        lambda: x.sum(1), lambda: x.mean(), lambda: torch.nansum(x, 0), lambda: x.abs().prod(1), lambda: x @ x.T,
        lambda: F.linear(x, x, x[:, 0]), lambda: torch.bmm(image[0], image[0].mT), lambda: torch.dot(x[0], x[1]),
        lambda: torch.addmm(x[:, :4], x, x.T, beta=0.5, alpha=2), lambda: torch.einsum("ij,kj->ik", x, x),
        lambda: torch.einsum("ij,kl->ik", x, x), lambda: torch.tensordot(x, x.T, 1), lambda: torch.inner(x, x),
        lambda: F.conv2d(image, weight, weight[:, 0, 0, 0], padding=1, stride=2),
        lambda: F.conv2d(image, weight[:4, :1], groups=4, dilation=2), lambda: F.conv_transpose2d(image, weight[:4]),
        lambda: F.avg_pool2d(image, 3, 2, 1, ceil_mode=True), lambda: F.avg_pool1d(x, 2), lambda: F.lp_pool2d(image, 2, 2),
        lambda: F.avg_pool3d(image, 2, 1, divisor_override=-3), lambda: F.adaptive_avg_pool2d(image, (4, 3)),
    ]  # fmt: skip
    for order in orders.ORDERS:
        for call in calls:
            with orders.Rows(order):
                found = call()
            torch.testing.assert_close(found, call(), rtol=1e-4, atol=1e-5)


def test_disturbed_zeros_keep_their_signs():
    zeros = torch.tensor([-0.0, 0.0, 1e-40, 1.0])
    for seed in range(4):
        assert Noise(seed, 2.0)(zeros).signbit().tolist()[:2] == [True, False]


def test_what_becomes_of_the_sign_of_a_zero_that_is_the_greatest():
    specs = (Input((5,), "float32", values="unit"),)
    signs = "torch.tensor([-0.0, 0, -0.0, -1, 0])"
    statements = (Statement(("v1",), f"x0.abs() * {signs}", EXACT), Statement(("v2",), "v1.max()", EXACT),
                  Statement(("v3",), "v2.rsqrt()"), Statement(("v9",), "F.mish(v3)"))  # fmt: skip
    program = Program(0, specs, statements, ("v9",), (Call(1), Call(2)))
    assert finding(program, r"v1\.max\(\)", "v1.max() * -1") is None
    program = Program(
        0, specs, (Statement(("v1",), "x0.abs() * 0.0", EXACT), *statements[1:]), ("v9",), (Call(1), Call(2))
    )
    assert finding(program, r"v1\.max\(\)", "v1.max() * -1").kind == judge.WRONG_VALUES


@pytest.mark.parametrize(
    "call",
    ["torch.log_softmax(x0, 1)", "x0.log_softmax(1)", "torch.special.log_softmax(x0, 1)", "F.log_softmax(x0, dim=1)",
     "torch.log_softmax(input=x0, dim=1)", "torch.log_softmax(x0.int(), 1, dtype=torch.float32)"],
)  # fmt: skip
def test_every_spelling_of_a_formula_that_cancels(call):
    """log(1 + 1.1e-7) is 0 or 1.2e-7."""
    text = call.replace("x0", "v1")
    rows = "torch.tensor([[0.0, -16.0, -40.0]]).expand(2, 3)"
    specs = (Input((2, 3), "float32", values="unit"),)
    program = planted_program(f"v1 = x0 * 0 + {rows}", f"v9 = {text}", inputs=specs)
    zero = lambda x: torch.where(x > -1, 0.0, x)
    assert finding(program, r"^(.*log_softmax.*)$", r"zero(\1)", zero=zero) is None
    wrong = lambda x: torch.where(x > -1, -1e-4, x)
    assert finding(program, r"^(.*log_softmax.*)$", r"wrong(\1)", wrong=wrong).kind == judge.WRONG_VALUES


def test_no_spelling_is_forgotten():
    """PyTorch's own list of functions has none of these names that is not computed by its formula."""
    every = {each for functions in torch.overrides.get_overridable_functions().values() for each in functions}
    known = {"torch", "torch.Tensor", "torch.nn.functional", "torch.special", "torch.linalg"}
    for name in inside._BY_NAME:
        assert spellings(name) <= inside._FORMULAS.keys()
    for function in every:
        owner, _, name = (torch.overrides.resolve_name(function) or "").rpartition(".")
        if name in inside._BY_NAME and owner in known:
            assert function in inside._FORMULAS, (owner, name)
