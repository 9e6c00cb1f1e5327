"""What the judge accepts beside eager's own answer, each with a mistake of the same kind that it still finds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.fuzz import judge
from tests.fuzz.check import check
from tests.fuzz.inputs import Input
from tests.fuzz.inside import WithSlope
from tests.fuzz.program import EXACT, Call, Program, Statement
from tests.fuzz.run import Noise, Oracle
from tests.fuzz.test_fuzz import Planted, planted_program

LEAF = {"grad": True}


def quarters(x):
    """Refuses what a disturbed operand is."""
    if not torch.equal(4 * x.detach(), (4 * x.detach()).round()):
        raise RuntimeError("no quarters")
    return x * 1


def test_operators_that_refuse_disturbed_operands_leave_the_rest_to_be_disturbed():
    """Where a disturbed run raised, no element had another right answer than eager's."""
    inputs = (Input((8,), "float32", values="quarters"), Input((40, 33), "float64"))
    program = planted_program("v1 = quarters(x0)", "v9 = x1.sum(0)", results=("v1", "v9"), inputs=inputs)
    program.names["quarters"] = quarters
    pattern = r"x1\.sum\(0\)"
    other_order = Planted(pattern, "x1.flip(0).contiguous().sum(0)", quarters=quarters)
    assert check(program, other_order).finding is None
    wrong = Planted(pattern, "x1.sum(0) * (1 + 1e-12)", quarters=quarters)
    assert check(program, wrong).finding.kind == judge.WRONG_VALUES


def test_derivatives_that_begin_with_zeros_without_memory_are_disturbed():
    """The derivative of `sgn` is such a tensor, and that of the sum takes it three times: under a dispatch mode PyTorch
    reads its memory."""
    texts = "v0 = torch.add(x0, x0, alpha=3)", "v1 = torch.sgn(v0)", "v9 = torch.exp(x0)"
    inputs = (Input((), "float64", leaf="leaf"),)
    program = planted_program(*texts, results=("v1", "v9"), inputs=inputs, **LEAF)
    assert check(program, Planted(r"torch\.exp\((.*)\)", r"(torch.exp(\1) * (1 + 1e-12))")).finding is not None


def test_what_is_read_by_strides_is_not_disturbed():
    inputs = (Input((9,), "float32", "offset"), Input((5,), "float64", leaf="leaf"))
    texts = "v1 = torch.as_strided(x0, (2, 2), (1, 2), 5)", "v8 = torch.einsum('i,j->ij', x1, x1)", "v9 = v8.sum(1)"
    program = planted_program(*texts, results=("v1", "v9"), inputs=inputs, **LEAF)
    assert check(program, Planted(r"v8\.sum\(1\)", "(x1 * x1.sum())")).finding is None
    assert check(program, Planted(r"v8\.sum\(1\)", "(x1 * x1.sum() * (1 + 1e-13))")).finding is not None


@pytest.mark.parametrize("function, names", [("F.softmax", "softmax"), ("F.log_softmax", "log_softmax")])
def test_derivatives_of_softmax_cancel(function, names):
    """(g - sum(g * s)) * s, where s is 1 but for rounding: computed from another s, a unit off, it is another number."""
    inputs = (Input((6, 5), "float64", leaf="leaf"),)
    program = planted_program(f"v9 = {function}(x0 * 16, 1)", inputs=inputs, **LEAF)

    def composed(x, error):
        powers = (x - x.detach().amax(1, True)).exp()
        found = powers / powers.sum(1, True) * (1 + error)
        return found if names == "softmax" else x - x.detach().amax(1, True) - powers.sum(1, True).log() * (1 + error)

    pattern = rf"{function}\((.*), 1\)"
    assert check(program, Planted(pattern, r"composed(\1, 0.0)", composed=composed)).finding is None
    assert check(program, Planted(pattern, r"composed(\1, 1e-11)", composed=composed)).finding is not None


def test_a_logarithm_of_a_sum_that_cancels():
    inputs = (Input((16,), "float32"),)
    ones = "torch.ones_like(x0)"
    program = planted_program(f"v1 = torch.logaddexp2(-{ones}, -{ones})", "v9 = v1 * 1e8", inputs=inputs)
    assert check(program, Planted(r"torch\.logaddexp2.*", "x0 * 0")).finding is None
    assert check(program, Planted(r"torch\.logaddexp2.*", "x0 * 0 + 1e-3")).finding.kind == judge.WRONG_VALUES


def test_quotients_by_what_vanishes():
    """The divisor is a matter of rounding, and zero in some order: so is the quotient an infinity. One whose divisor is
    not is none."""
    minus = "x0 * 0 + torch.tensor([-1.0, -2.0], dtype=torch.float64)"
    texts = f"v1 = {minus}", "v8 = torch.logaddexp2(v1, v1.view(-1))", "v9 = v1 // v8"
    program = planted_program(*texts, inputs=(Input((2,), "float64"),))
    for where, kind in (("v1 == -1", None), ("v1 == -2", judge.WRONG_VALUES)):
        infinite = Planted("v1 // v8", f"torch.where({where}, -math.inf, v1 // v8)", math=math)
        finding = check(program, infinite).finding
        assert (finding and finding.kind) == kind
    seen = torch.tensor([-1.0, -1.0]), torch.tensor([1.0, 1.0])
    vanishing = Noise(0, 2.0, {1: seen}, is_whole=True).rounded(torch.tensor([-math.inf, 2.0]))
    assert vanishing.tolist() == [-math.inf, 0.0]  # the quotient is seen as it is, where its divisor has vanished


@pytest.mark.parametrize("leaf", ["", "leaf"])
def test_ties_of_zeros_of_both_signs(leaf):
    """Either is the least; that of numbers is told by its sign."""
    inputs = (Input((9,), "float32", values="zeros", leaf=leaf),)
    statements = (Statement(("v1",), "x0.abs() * torch.tensor([1.0, -0.0, 1, 0, 1, 1, -0.0, 1, 0])", EXACT),
                  Statement(("v9",), "v1.amin()", EXACT))  # fmt: skip
    program = Program(0, inputs, statements, ("v9",), (Call(1), Call(2)), grad=bool(leaf))
    other = lambda zero: WithSlope.apply(zero, -zero.detach(), torch.ones_like(zero))
    assert check(program, Planted(r"v1\.amin\(\)", "other(v1.amin())", other=other)).finding is None
    assert check(program, Planted(r"v1\.amin\(\)", "v1.amin() - 1.0")).finding is not None
    statements = (Statement(("v9",), "x0.abs().amin() * 0.0", EXACT),)
    program = Program(0, inputs, statements, ("v9",), (Call(1), Call(2)), grad=bool(leaf))
    assert check(program, Planted(r"\* 0\.0", "* -0.0")).finding.kind == judge.SIGN_OF_ZERO


def test_zeros_that_a_norm_makes():
    """Elements less their mean, and a negative zero: the sign hangs on how the mean was summed up. Other values do not."""
    norm = "torch.nn.functional.batch_norm(x0 * -0.0, None, None, bias=torch.tensor([-0.0, 1.0]), training=True)"
    inputs = (Input((3, 2), "float32", values="quarters"),)
    program = planted_program(f"v1 = {norm}", "v9 = 2.0 / v1", inputs=inputs)
    assert check(program, Planted(r"2\.0 / v1", "2.0 / torch.where(v1 == 0, -v1, v1)")).finding is None
    assert check(program, Planted(r"2\.0 / v1", "2.0 / -v1")).finding.kind == judge.WRONG_VALUES


def test_ties_that_rounding_decides():
    """Which of two numbers that agree but for rounding is the greatest, no right program promises."""
    inputs = (Input((40, 33), "float32"),)
    program = planted_program(
        "v1 = x0.sum(0)", "v2 = x0.flip(0).sum(0)", "v9 = torch.stack([v1, v2]).argmax(0)", inputs=inputs
    )
    other_order = Planted(r"x0\.sum\(0\)", "x0.double().sum(0).float()")
    assert check(program, other_order).finding is None
    assert check(program, Planted(r"argmax\(0\)", "argmax(0) * 0 + 2")).finding.kind == judge.WRONG_VALUES


def test_numbers_that_are_equal_but_for_rounding():
    """Kernels round the last elements in another way than those of full vectors; in double precision they are equal."""
    statements = (
        Statement(("v1",), "x0.mT"),
        Statement((), "x0.atan2_(x0)", writes="x0"),
        Statement(("v2",), "x0 != v1"),
        Statement(("v3",), "x0 > 1e9"),
    )
    program = Program(
        0, (Input((3, 5, 5), "float32", "permuted", values="quarters"),), statements, ("v2", "v3"), (Call(1),)
    )
    exact = "x0.copy_(torch.atan2(x0.double(), x0.double()))"
    assert check(program, Planted(r"x0\.atan2_\(x0\)", exact)).finding is None
    assert check(program, Planted(r"x0 > 1e9", "x0 < 1e9")).finding.kind == judge.WRONG_VALUES


def test_a_product_that_overflows_in_another_order():
    """In vectors, one lane multiplies what is large, another what is small: it overflows there alone. What does not is found."""
    inputs = (Input((64,), "float32", values="unit"),)
    factors = "torch.tensor([2.0 ** 100, 2.0 ** -100] * 32)"
    program = planted_program(f"v1 = x0 * 0 + {factors}", "v9 = v1.prod()", inputs=inputs)
    with_gaps = "torch.stack([v1, v1], -1)[..., 0].prod()"
    contiguous = torch.tensor([2.0**100, 2.0**-100] * 32)
    assert not torch.equal(contiguous.prod(), torch.stack([contiguous, contiguous], -1)[..., 0].prod())
    assert check(program, Planted(r"v1\.prod\(\)", with_gaps)).finding is None
    program = planted_program("v1 = x0 + 0.5", "v9 = v1.prod()", inputs=inputs)
    assert check(program, Planted(r"v1\.prod\(\)", with_gaps)).finding is None
    assert check(program, Planted(r"v1\.prod\(\)", "v1.prod() * 1.001")).finding.kind == judge.WRONG_VALUES


def test_where_a_result_begins_in_memory_of_its_own_is_left_open():
    """And that it lies in memory of its own is not."""
    inputs = (Input((4, 3), "float32"),)
    program = planted_program("v1 = x0 * 2", "v9 = v1[1:]", results=("v1", "v9"), inputs=inputs)
    moved = "torch.cat([v1[:1] * 0, v1])[1:]"
    assert check(program, Planted(r"v1\[1:\]$", "v1[1:].clone()")).finding.kind == judge.ALIASING
    program = planted_program("v9 = x0[1:]", results=("v9",), inputs=inputs)
    assert check(program, Planted(r"x0\[1:\]$", "x0[:3] * 0 + x0[1:]")).finding.kind == judge.ALIASING
    program = planted_program("v9 = x0 * 2", inputs=inputs)
    assert check(program, Planted(r"x0 \* 2", moved.replace("v1", "(x0 * 2)"))).finding is None


def test_products_of_factors_in_another_order():
    inputs = (Input((8,), "float32", values="unit"),)
    factors = "torch.tensor([1e30, 1e-30, 1e30, 1e-30, 1e30, 1e-30, 1e30, 1e-30])"
    program = planted_program(f"v1 = x0 * 0 + {factors}", "v8 = v1.prod()", "v9 = v8.tan()", inputs=inputs)
    for order in ("v1.sort()[0].prod()", "v1.sort(descending=True)[0].prod()"):
        assert check(program, Planted(r"v1\.prod\(\)", order)).finding is None
    program = planted_program("v8 = (x0 + 1).prod()", "v9 = v8.tan()", inputs=inputs)
    assert check(program, Planted(r"\.prod\(\)", ".prod() * 0")).finding.kind == judge.WRONG_VALUES


def test_functions_written_in_python_that_cancel():
    """The first element of the window is 4e-4, of parts of 0.5."""
    window = torch.signal.windows.nuttall
    program = planted_program("v8 = op_window(5)", "v9 = v8 * x0", inputs=(Input((5,), "float32", values="unit"),))
    program.names["op_window"] = window
    other = Planted("xx", "", op_window=lambda size: window(size, dtype=torch.float64).float() + 3e-8)
    assert check(program, other).finding is None
    other = Planted("xx", "", op_window=lambda size: window(size) + 3e-5)
    assert check(program, other).finding.kind == judge.WRONG_VALUES


def test_which_nan_it_is_is_left_open():
    """As whole numbers they differ; whether an element is one does not."""
    inputs = (Input((8,), "float32", values="unit"),)
    program = planted_program("v8 = torch.acosh(x0)", "v9 = v8.view(torch.int16)", inputs=inputs)
    ones = "torch.full((8,), -1, dtype=torch.int32).view(torch.float32)"
    assert check(program, Planted(r"torch\.acosh\(x0\)", ones)).finding is None
    assert check(program, Planted(r"torch\.acosh\(x0\)", "x0 * 1")).finding.kind == judge.WRONG_VALUES


def test_deviations_of_rows_whose_squares_overflow():
    """They are NaN by a running mean and inf by two sums. That a row has a NaN is no such matter."""
    assert torch.tensor([1.7e308, -1.7e308] * 4, dtype=torch.float64).std().isnan()
    inputs = (Input((8,), "float64", values="unit"),)
    for row, kind in (("1.7e308, -1.7e308", None), ("math.nan, 1.0", judge.WRONG_VALUES)):
        text = f"v1 = x0 * 0 + torch.tensor([{row}] * 4, dtype=torch.float64)"
        program = planted_program(text, "v8 = v1.std()", results=("v8",), inputs=inputs)
        program.names["math"] = math
        finding = check(program, Planted(r"v1\.std\(\)", "v1.std().nan_to_num() + math.inf", math=math)).finding
        assert (finding and finding.kind) == kind


def test_which_bits_of_rounded_numbers_are_zero_depends_on_rounding():
    """No other run finds just the same places."""
    program = planted_program("v1 = F.rms_norm(x0, (4,))", "v9 = v1.view(torch.bool).nonzero()",
                              inputs=(Input((72, 4), "float32"),))  # fmt: skip
    shifted = Planted(r"F\.rms_norm\(x0, \(4,\)\)", "F.rms_norm(x0, (4,)).nextafter(x0 * 0 + 9)")
    assert check(program, shifted).finding is None
    assert check(program, Planted(r"\.nonzero\(\)", ".nonzero()[1:]")).finding.kind == judge.METADATA
    assert check(program, Planted(r"\.nonzero\(\)", ".nonzero().flip(0)")).finding is not None


def test_bits_of_rounded_numbers_seen_as_truth():
    """A byte of one number in 256 is 0, and no run disturbs just that number so."""
    inputs = (Input((64, 10), "float16", values="unit"),)
    program = planted_program("v1 = torch.sin(x0 * 3)", "v9 = v1.view(torch.bool)", inputs=inputs)
    shifted = Planted(r"torch\.sin\(x0 \* 3\)", "torch.sin(x0 * 3).nextafter(x0 * 0 + 9)")
    assert check(program, shifted).finding is None
    whole = planted_program("v1 = x0 + 1", "v9 = v1.view(torch.bool)", inputs=(Input((64, 10), "int16"),))
    assert check(whole, Planted(r"x0 \+ 1", "(x0 * 0)")).finding is not None


def test_a_row_of_one_large_number_has_no_variance_or_that_of_a_rounded_mean():
    """1e30, nine times, has a mean that is 1e30 or a unit off, beside which the square root of `eps` is nothing."""
    inputs = (Input((4, 9), "float64", leaf="leaf"),)
    program = planted_program("v1 = x0 * 1 - 1e30", "v9 = F.layer_norm(v1, (9,))", inputs=inputs, **LEAF)
    pattern = r"F\.layer_norm\(v1, \(9,\)\)"
    shifted = Planted(pattern, "F.layer_norm(v1 - v1[:, :1].detach(), (9,))")
    assert check(program, shifted).finding is None
    wrong = Planted(pattern, "F.layer_norm(v1 - v1[:, :1].detach(), (9,)) * 100")
    assert check(program, wrong).finding is not None


ROW = "v1 = torch.tensor([1, 2, 3, 4, 5.0]) + x0 * 0"


@pytest.mark.parametrize("shift", ["1e-7", "-1e-7"])
@pytest.mark.parametrize("norm", [
    "F.layer_norm(v1, (5,))", "F.group_norm(v1[:, None], 1)[:, 0]", "F.batch_norm(v1.T, None, None, training=True).T",
])  # fmt: skip
def test_an_element_less_the_mean_that_it_is(norm, shift):
    """It is 0, or what the mean is rounded by, which has a sign."""
    program = planted_program(ROW, f"v2 = {norm}", "v9 = 1 / v2", inputs=(Input((3, 5), "float32"),))
    pattern = r"^F\..*norm.*$"
    shifted = norm.replace("v1", f"(v1 + {shift} * (v1 == 3))")
    assert check(program, Planted(pattern, shifted)).finding is None
    assert check(program, Planted(pattern, f"1.01 * {shifted}")).finding.kind == judge.WRONG_VALUES
    shifted = norm.replace("v1", f"(v1 + 1e4 * {shift} * (v1 == 3))")
    assert check(program, Planted(pattern, shifted)).finding.kind == judge.WRONG_VALUES


@pytest.mark.parametrize("shift", ["1e-7", "-1e-7"])
def test_an_element_less_the_mean_that_it_is_times_infinity(shift):
    weight = "torch.full((5,), inf)"
    program = planted_program(ROW, f"v9 = F.layer_norm(v1, (5,), {weight})", inputs=(Input((3, 5), "float32"),))
    shifted = f"F.layer_norm(v1 + {shift} * (v1 == 3), (5,), {weight})"
    assert check(program, Planted(r"^F\..*norm.*$", shifted)).finding is None
    assert check(program, Planted(r"^F\..*norm.*$", f"-{shifted}")).finding.kind == judge.WRONG_VALUES


def test_shares_stay_shares():
    """A sigmoid of 1 that is disturbed is no share, which the loss of disturbed runs would refuse."""
    inputs = (Input((40, 33), "float32"), Input((40, 33), "float32", values="unit"))
    texts = "v1 = (x0 * 0 + 40).sigmoid()", "v2 = x1.sigmoid()", "v9 = F.binary_cross_entropy(v1, v2).sin()"
    program = planted_program(*texts, inputs=inputs)
    double = Planted(r"F\.binary_cross_entropy\(v1, v2\)", "F.binary_cross_entropy(v1.double(), v2.double()).float()")
    assert check(program, double).finding is None
    oracle = Oracle(program, program.calls[0], "cpu")
    assert not any(isinstance(each.error, RuntimeError) for each in oracle.noisy(judge.MANY))


def test_medians_that_eager_reads_elsewhere_are_left_out():
    """Of a dimension of stride 0 eager gives what happens to lie in memory."""
    program = planted_program("v9 = x0.expand(4, 3, 2).median(0)[0]", inputs=(Input((3, 2), "float32"),))
    for text in ("x0 * 1", "x0 * 2"):
        report = check(program, Planted(r"x0\..*$", text))
        assert report.finding is None and report.left_out
    program = planted_program("v9 = x0.median(0)[0]", inputs=(Input((3, 2), "float32"),))
    assert check(program, Planted(r"(x0\..*)$", r"\1 * 2")).finding.kind == judge.WRONG_VALUES


def test_a_remainder_that_overflows_in_vectors_may_be_exact():
    """Of a float and a bfloat16: eager's kernel sees vectors, whatever the layouts."""
    inputs = (Input((38,), "bfloat16", values="unit"), Input((1,), "float32", values="unit"))
    program = planted_program("v1 = torch.fmod(x1 + 1000, x0 * 0 + 2.0**-126)", "v9 = v1 * 1", inputs=inputs)
    pattern = r"torch\.fmod\((.*), (x0 .*)\)$"
    assert check(program, Planted(pattern, r"torch.fmod((\1).double(), (\2).double()).float()")).finding is None
    assert check(program, Planted(pattern, r"(torch.fmod(\1, \2).nan_to_num() + 1)")).finding.kind == judge.WRONG_VALUES


def test_what_is_made_a_float_where_it_is_read_is_disturbed_as_a_float():
    """-0.75 + 0.3 * 2.5 is 0 or 3e-8, of doubles that are made floats."""
    inputs = (Input((4,), "float64", values="unit"),)
    program = planted_program("v1 = torch.stack([x0 * 0 - 0.75, x0 * 0 + 1.75], -1)",
                              "v9 = torch.quantile(v1.float(), 0.3, 1)", inputs=inputs)  # fmt: skip
    assert check(program, Planted(r"torch\.quantile(.*)$", r"(torch.quantile\1 * 0)")).finding is None
    assert (
        check(program, Planted(r"torch\.quantile(.*)$", r"(torch.quantile\1 + 1e-5)")).finding.kind
        == judge.WRONG_VALUES
    )


def test_what_an_argument_makes_a_float_is_disturbed_as_a_float():
    """Where a number is by far the greatest, what is left of it is the logarithm of a sum that is 1 but for little."""
    inputs = (Input((50, 5), "complex128"),)
    program = planted_program("v9 = F.log_softmax(x0 * 4, 1, dtype=torch.float64)", inputs=inputs)
    pattern = r"F\.log_softmax\((.*), 1, dtype=torch\.float64\)"
    same = r"F.log_softmax((\1).real, 1)"
    assert check(program, Planted(pattern, f"{same} - 6e-16")).finding is None
    assert check(program, Planted(pattern, f"{same} - 6e-12")).finding.kind == judge.WRONG_VALUES


def test_halves_of_rounded_numbers_begin_again_after_the_last():
    """The low half of a float counts on from -32768 where it was 32767."""
    inputs = (Input((64, 32), "float32"),)
    program = planted_program("v1 = F.layer_norm(x0, (32,))", "v9 = v1.view(torch.int16)", inputs=inputs)
    rounded = Planted(r"F\.layer_norm\((.*), \(32,\)\)", r"F.layer_norm((\1).flip(1), (32,)).flip(1)")
    assert check(program, rounded).finding is None
    wrong = Planted(r"(v1\.view\(torch\.int16\))", r"(\1 + 16384)")
    assert check(program, wrong).finding.kind == judge.WRONG_VALUES


def test_which_rounded_numbers_are_zero_depends_on_rounding():
    """Rows of one number, less their mean: as many zeros as eager finds, elsewhere."""
    program = planted_program("v1 = F.instance_norm(torch.atan2(x0, x0))", "v9 = v1.nonzero()",
                              inputs=(Input((5, 10, 5), "float32"),))  # fmt: skip
    assert check(program, Planted(r"\.nonzero\(\)", ".nonzero().flip(0)")).finding is not None
    turned = r"F.instance_norm(torch.atan2(x0, x0).flip(2)).flip(2)"
    assert check(program, Planted(r"F\.instance_norm\(.*\)$", turned)).finding is None


def test_what_is_read_of_a_tensor_that_is_written_to_is_disturbed():
    """x + x * x cancels where x is almost -1: the product is rounded, or not."""
    inputs = (Input((8,), "float32", values="unit"),)
    statements = (Statement(("v1",), "x0 * 0.01 - 1"), Statement((), "v1.addcmul_(v1, v1)", writes="v1"))
    program = Program(0, inputs, statements, ("v1",), (Call(1), Call(2)))
    exact = "v1.copy_((v1.double() + v1.double() ** 2).float())"
    assert check(program, Planted(r"v1\.addcmul_.*", exact)).finding is None
    wrong = r"\1 * (1 + 1e-3)"
    assert check(program, Planted(r"(x0 \* 0\.01 - 1)", wrong)).finding.kind == judge.WRONG_VALUES
    assert statements[1].lines("noisy")[0] == "v1.addcmul_(NOISE(v1), NOISE(v1))"
    assert Statement((), "torch.sin(v1, out=v1)", writes="v1").lines("noisy")[0] == "torch.sin(NOISE(v1), out=v1)"


def test_whole_numbers_without_signs_are_compared():
    """A hash of rounded numbers is any; one of others is itself."""
    program = planted_program("v1 = torch.sin(x0)", "v9 = torch.hash_tensor(v1)", inputs=(Input((8,), "float32"),))
    other = Planted(r"torch\.sin\((\w+)\)", r"torch.sin(\1.double()).float().nextafter(torch.ones(()))")
    assert check(program, other).finding is None
    statements = (Statement(("v9",), "torch.hash_tensor(x0)", EXACT),)
    program = Program(0, (Input((8,), "float32"),), statements, ("v9",), (Call(1), Call(2)))
    assert check(program, Planted(r"\(x0\)", "(x0 * 2)")).finding.kind == judge.WRONG_VALUES


def test_a_sum_whose_fraction_is_rounding_may_be_a_whole_number():
    """There a gamma function has a pole, and a negative number a power. What has a fraction in every order has none."""
    ends = "torch.where(v1 > 0, nan, torch.digamma(-v1))"
    for text, kind in (("x0.sum() * 0 + (x0 * 9e4).abs().sum()", None), ("x0.sum() * 0 + 2.3", judge.WRONG_VALUES)):
        program = planted_program(f"v1 = {text}", "v9 = torch.digamma(-v1)", inputs=(Input((40,), "float32"),))
        found = check(program, Planted(r"torch\.digamma\(-v1\)", ends, nan=math.nan)).finding
        assert (found and found.kind) == kind
    program = planted_program("v1 = x0.sum() * 0 + (x0 * 9e4).abs().sum()", "v9 = torch.pow((-x1.abs()).clamp(-0.9, -0.1), v1)",
                              inputs=(Input((40,), "float32"), Input((3,), "float32")))  # fmt: skip
    assert check(program, Planted(r"torch\.pow.*", "x1 * 0")).finding is None
    assert check(program, Planted(r"torch\.pow.*", "x1.abs() + 1")).finding.kind == judge.WRONG_VALUES


def test_the_derivative_where_a_sum_may_be_zero():
    """Of a logarithm it is infinite."""
    row = "x0 * 0 + torch.tensor([-1.0, 0.1, 0.2, 0.7])"
    program = planted_program(f"v1 = {row}", "v8 = v1.mean()", "v9 = torch.log10(v8)",
                              inputs=(Input((4,), "float32", values="unit", leaf="leaf"),), **LEAF)  # fmt: skip
    steep = lambda x: WithSlope.apply(x, torch.full_like(x, -math.inf), torch.full_like(x, math.inf))
    assert check(program, Planted(r"torch\.log10\(v8\)", "steep(v8)", steep=steep)).finding is None
    program = planted_program(f"v1 = {row} + 1", "v8 = v1.mean()", "v9 = torch.log10(v8)",
                              inputs=(Input((4,), "float32", values="unit", leaf="leaf"),), **LEAF)  # fmt: skip
    steep = lambda x: WithSlope.apply(x, torch.log10(x), torch.full_like(x, math.inf))
    found = check(program, Planted(r"torch\.log10\(v8\)", "steep(v8)", steep=steep)).finding
    assert found.kind == judge.WRONG_GRADIENTS


def test_zeros_of_other_layouts_reach_gradients():
    """softshrink(-0.25) is -0 element by element and 0 in vectors; hardshrink(-0.25) is 0 in both."""
    inputs = tuple(Input((32,), "float32", values="quarters", leaf="leaf") for _ in range(2))
    elementwise = {"other": lambda function, x: torch.stack([function(each[None])[0] for each in x])}
    program = planted_program("v1 = F.softshrink(x0)", "v9 = v1 * x1", inputs=inputs, **LEAF)
    assert check(program, Planted(r"F\.softshrink\(x0\)", "other(F.softshrink, x0)", **elementwise)).finding is None
    program = planted_program("v1 = F.hardshrink(x0)", "v9 = v1 * x1", inputs=inputs, **LEAF)
    turned = Planted(r"(F\.hardshrink\(x0\))", r"turned(\1)", turned=lambda x: torch.where(x == 0, -x, x))
    assert check(program, turned).finding.kind == judge.SIGN_OF_ZERO


def test_a_remainder_by_little_is_told_by_every_bit():
    """In vectors it is NaN; element by element any of a few small numbers, and none that is larger."""
    inputs = (Input((32,), "float32", values="unit"),)
    program = planted_program("v1 = F.gelu(x0 + 0.5)", "v9 = torch.remainder(v1, x0 * 0 + 2.75e-40)", inputs=inputs)
    for other, kind in (("9.2e-41", None), ("1.85e-40", None), ("1e-38", judge.WRONG_VALUES)):
        found = check(program, Planted(r"torch\.remainder.*", f"x0 * 0 + {other}")).finding
        assert (found and found.kind) == kind


def test_a_range_that_passes_zero():
    """Its twentieth number is 0 or a rounding error; the others are what they are."""
    inputs = (Input((), "float32", values="unit"),)
    program = planted_program(
        "v1 = torch.arange(-2, 6.5, 0.1)", "v8 = (x0 * 0 + 1) / v1", results=("v8",), inputs=inputs
    )
    exact = "torch.arange(-2, 6.5, 0.1, dtype=torch.float64).float()"
    assert check(program, Planted(r"torch\.arange\([^)]*\)", exact)).finding is None
    assert check(program, Planted(r"torch\.arange\([^)]*\)", f"({exact} + 1e-3)")).finding.kind == judge.WRONG_VALUES
    program = planted_program(
        "v1 = torch.arange(-2, 6.5, 0.5)", "v8 = (x0 * 0 + 1) / v1", results=("v8",), inputs=inputs
    )
    wrong = "(torch.arange(-2, 6.5, 0.5) + 1e-9)"
    assert check(program, Planted(r"torch\.arange\([^)]*\)", wrong)).finding.kind == judge.WRONG_VALUES


def test_a_sum_in_a_narrower_type_that_cancels():
    """Its terms are rounded to that type, and their sum is nothing but rounding; one of another size is no such sum."""
    inputs = (Input((1, 7), "float64"),)
    program = planted_program("v1 = F.group_norm(x0, 1)", "v9 = v1.nansum((1,), dtype=torch.float32)", inputs=inputs)
    for other, kind in (("v1.flip(1).float().sum(1)", None), ("v1.float().sum(1) + 1e-4", judge.WRONG_VALUES)):
        found = check(program, Planted(r"v1\.nansum\(.*", other)).finding
        assert (found and found.kind) == kind


def test_halves_that_overflow_where_others_do_not():
    """What is meant is what a type of as few digits gives that has no largest number."""
    inputs = (Input((40,), "float16", values="unit"),)
    program = planted_program("v1 = x0 * 3 + 250", "v2 = v1 * v1 * 2", "v9 = v2 * 0.25", inputs=inputs)
    for other, kind in (("(v1.float() ** 2 * 0.5).half()", None), ("v1 * v1 * 0.8", judge.WRONG_VALUES)):
        planted = check(program, Planted(r"v2 \* 0\.25", other)).finding
        assert (planted and planted.kind) == kind


def test_exponents_of_a_sum_that_cancels():
    inputs = (Input((8, 3), "float32", values="unit"),)
    for large, other, kind in (
        ("3e8", "v1.flip(0).sum(0)", None),
        ("0", "v1.flip(0).sum(0)", None),
        ("0", "v1.sum(0) * 64", judge.WRONG_VALUES),
    ):
        program = planted_program(
            f"v1 = torch.cat([x0, x0 * 0 + {large}, x0 * 0 - {large}])", "v2 = v1.sum(0)", "v9 = torch.frexp(v2)[1]",
            inputs=inputs,
        )  # fmt: skip
        found = check(program, Planted(r"v1\.sum\(0\)", other)).finding
        assert (found and found.kind) == kind


def test_sums_of_complex_numbers_in_a_real_type_leave_the_rest_to_be_disturbed():
    inputs = (Input((4, 4, 4), "float32"), Input((1, 1), "complex128"))
    program = planted_program(
        "v1 = x1.sum(0, dtype=torch.float16)", "v9 = F.poisson_nll_loss(x0, x1)", results=("v1", "v9"), inputs=inputs
    )
    for other, kind in (("", None), (" * 1.0001", judge.WRONG_VALUES)):
        planted = Planted(r"F\.poisson_nll_loss\(.*", f"(x0.double().exp() - x1 * x0).mean(){other}")
        found = check(program, planted).finding
        assert (found and found.kind) == kind


def test_how_many_rounded_numbers_there_are():
    """`unique` keeps one of those that are rounded alike: later elements are at other places."""
    inputs = (Input((64,), "float32"),)
    program = planted_program("v1 = torch.cat([x0 * 3 / 3, x0])", "v9 = torch.unique(v1)", inputs=inputs)
    found = check(program, Planted(r"torch\.unique\(v1\)", "torch.unique(v1 * 1.0000001)")).finding
    assert found is None
    found = check(program, Planted(r"torch\.unique\(v1\)", "torch.unique(v1) + 0.01")).finding
    assert found.kind == judge.WRONG_VALUES
    found = check(program, Planted(r"torch\.unique\(v1\)", "torch.unique(torch.cat([x0 * 1.0000001, x0]))")).finding
    assert found is None
    found = check(program, Planted(r"torch\.unique\(v1\)", "torch.unique(v1)[::2]")).finding
    assert found.kind in (judge.WRONG_VALUES, judge.METADATA)


def test_sums_that_cancel_are_one_number_or_several():
    """Where rows add up to 0 one way and to their rounding another, there are fewer numbers, or more."""
    rows = "torch.tensor([[0.75, -0.5, -0.25], [-0.5, 1.5, -1.0], [1.0, 0.5, -1.5], [1.0, 2.0, 3.0]])"
    program = planted_program(f"v1 = {rows} * (x0 * 0 + 1)", "v9 = torch.unique(v1.std(1) * 0 + v1.mean(1) / 3)",
                              inputs=(Input((3,), "float32"),))  # fmt: skip
    for other, kind in (("", None), ("[1:]", judge.METADATA), (".clone().fill_(0.5)", judge.WRONG_VALUES)):
        planted = Planted(r"torch\.unique\(.*", f"torch.unique((v1 * 4).round().sum(1) / 36){other}")
        found = check(program, planted).finding
        assert (found and found.kind) == kind, other


def test_where_a_part_begins_of_what_has_another_size():
    inputs = (Input((64,), "float32"),)
    program = planted_program(
        "v1 = torch.cat([x0 * 3 / 3, x0])", "v2 = torch.unique(v1)", "v3 = v2[-2:]", results=("v2", "v3"), inputs=inputs
    )
    other = "torch.unique(torch.cat([x0 * 1.0000001, x0]))"
    assert check(program, Planted(r"torch\.unique\(v1\)", other)).finding is None
    found = check(program, Planted(r"v2\[-2:\]", "v2[-2:].clone()")).finding
    assert found.kind == judge.ALIASING


def test_the_derivative_of_a_mean_beside_a_deviation_that_is_not_a_number():
    inputs = (Input((2, 1), "float64", leaf="leaf"),)
    program = planted_program(
        "v1 = F.normalize(x0, p=3, dim=0)", "v2 = torch.std_mean(v1, -1)", "v9 = v2[1] * 1", inputs=inputs, **LEAF
    )
    for other, kind in (("v1.mean(-1) * (1 + 2e-15)", None), ("v1.mean(-1) * (1 + 1e-9)", judge.WRONG_VALUES)):
        found = check(program, Planted(r"v2\[1\] \* 1", other)).finding
        assert (found and found.kind) == kind


def test_what_other_layouts_show_where_an_expanded_tensor_is_written_to():
    """Its elements share memory, to which nothing of another layout is copied back."""
    inputs = (Input((32,), "float32", values="quarters"), Input((4,), "float32", "expanded"))
    statements = (Statement(("v1",), "F.softshrink(x0)"), Statement((), "x1.fill_(2)", writes="x1"))
    program = Program(0, inputs, statements, ("v1",), (Call(1), Call(2)))
    other = lambda function, x: torch.stack([function(each[None])[0] for each in x])
    assert check(program, Planted(r"F\.softshrink\(x0\)", "other(F.softshrink, x0)", other=other)).finding is None
    turned = Planted(r"(F\.softshrink\(x0\))", r"turned(\1)", turned=lambda x: torch.where(x == 0, -x, x))
    assert check(program, turned).finding.kind == judge.SIGN_OF_ZERO


def test_numbers_of_one_magnitude_are_disturbed_alike():
    """In every second run: what cancels does so in those."""
    numbers = torch.tensor([3e38, -3e38, 1.3, -1.3])
    for seed in range(8):
        made = Noise(seed, 8.0)(numbers)
        if seed % 2:
            assert torch.equal(made[::2], -made[1::2])


def test_derivatives_of_products_are_computed_by_other_formulas_under_a_mode():
    """Where two factors are 0 it is 0, whatever it is multiplied by: by the formula that always holds, infinity times 0."""
    inputs = (Input((2, 3), "float32", leaf="leaf", values="quarters"),)
    program = planted_program(
        "v1 = torch.cat([x0 * 0, x0]).prod()", "v8 = torch.special.ndtri(v1)", "v9 = F.layer_norm(x0 * 3, (3,))",
        results=("v8", "v9"), inputs=inputs, **LEAF
    )  # fmt: skip
    pattern = r"F\.layer_norm\((.*), \(3,\)\)"
    deviation = "(\\1 - (\\1).mean(1, True))"
    composed = rf"{deviation} * ({deviation}.square().mean(1, True) + 1e-5).rsqrt()"
    assert check(program, Planted(pattern, composed)).finding is None
    found = check(program, Planted(pattern, f"({composed}) * 1.001")).finding
    assert found is not None and found.kind == judge.WRONG_VALUES
    doubled = Planted(
        pattern, r"doubled(F.layer_norm(\1, (3,)))", doubled=lambda x: WithSlope.apply(x, x, 1.01 + 0 * x)
    )
    assert check(program, doubled).finding.kind == judge.WRONG_GRADIENTS


def test_a_deviation_of_equal_numbers_is_a_matter_of_rounding():
    """It is multiplied by infinity, where the variance counts the elements of no dimension."""
    inputs = (Input((1,), "float64", leaf="leaf", values="quarters"),)
    program = planted_program("v1 = (x0 * 0.7).expand(6) * 1", "v9 = torch.var(v1, ())", inputs=inputs, **LEAF)
    turned = Planted(
        r"torch\.var\(v1",
        "torch.var(turned(v1)",
        turned=lambda x: WithSlope.apply(x, x.detach(), -x.detach() / x.detach()),
    )
    assert check(program, turned).finding is None
    finite = Planted(r"torch\.var\(v1, \(\)\)", "(torch.var(v1.detach(), ()) + 0 * v1.sum())")
    assert check(program, finite).finding.kind == judge.WRONG_GRADIENTS


def test_a_sum_of_powers_of_a_number_and_a_truth_value():
    """The disturbed runs subtracted them, which raises, and disturbed nothing."""
    inputs = (Input((6,), "float32"), Input((6,), "bool"), Input((40, 33), "float64"))
    texts = "v1 = torch.logaddexp2(x0, x1)", "v9 = x2.sum(0)"
    program = planted_program(*texts, results=("v1", "v9"), inputs=inputs)
    pattern = r"x2\.sum\(0\)"
    assert check(program, Planted(pattern, "x2.flip(0).contiguous().sum(0)")).finding is None
    assert check(program, Planted(pattern, "x2.sum(0) * (1 + 1e-12)")).finding.kind == judge.WRONG_VALUES


def test_derivatives_of_what_is_not_a_number():
    """Vectors hand on none of the gradient, the rest of a tensor all of it; the noise on what is read hands on all."""
    inputs = (Input((8,), "float64", leaf="leaf"),)
    program = planted_program("v1 = x0 + math.nan", "v9 = F.softshrink(v1)", inputs=inputs, **LEAF)
    program.names["math"] = math
    slope = lambda x, by: WithSlope.apply(x, torch.nn.functional.softshrink(x.detach()), torch.full_like(x, by))
    for by, kind in ((1.0, None), (0.0, None), (20.0, judge.WRONG_GRADIENTS)):
        planted = Planted(r"F\.softshrink\(v1\)", f"slope(v1, {by})", slope=slope, math=math)
        found = check(program, planted).finding
        assert (found and found.kind) == kind, by


def test_numbers_of_few_digits_before_wider_ones():
    """A product of 16 bits vanishes, and infinity times nothing is NaN: in more digits it is infinite."""
    row = "torch.tensor([6e-5, 2e-7, math.inf, 1.0], dtype=torch.float16)"
    inputs = (Input((3,), "float32", values="quarters"),)
    program = planted_program(f"v1 = {row}.prod() + x0 * 0", "v2 = x0 * 0 + 1", "v9 = v2 // v1", inputs=inputs)
    program.names["math"] = math
    for other, kind in (("v2 * 0", None), ("v2 * 0 + 3", judge.WRONG_VALUES)):
        found = check(program, Planted(r"v2 // v1", other, math=math)).finding
        assert (found and found.kind) == kind, other


def test_infinities_that_another_formula_subtracts():
    """At a pole that disturbed runs miss."""
    answers = judge._Answers(*[torch.tensor([1.0, 1.0, 1.0])] * 4, *map(torch.tensor, (
        [True, True, False], [True, False, True], [False] * 3, [False] * 3, [False] * 3)), None)  # fmt: skip
    assert answers.has(torch.tensor([-math.inf] * 3), torch.zeros(3)).tolist() == [True, False, False]


def test_hyperbolic_functions_beside_the_end_of_their_range():
    inputs = (Input((1,), "float32", values="quarters"),)
    for number, kind in (("89.1", None), ("88.5", judge.WRONG_VALUES)):
        program = planted_program(f"v1 = x0 * 0 + {number}", "v9 = torch.sinh(v1)", inputs=inputs)
        found = check(program, Planted(r"torch\.sinh\(v1\)", "(v1 * math.inf)", math=math)).finding
        assert (found and found.kind) == kind, number


def test_a_variance_in_double_precision_that_is_more_exact_than_eagers():
    def variance(x, factor=1.0):
        exact = float(np.var(x.detach().numpy().astype(np.longdouble), ddof=1))
        return torch.tensor(exact * factor, dtype=torch.float64) + 0 * x.sum()

    inputs = (Input((17, 3, 3, 17), "float64", values="normal"),)
    program = planted_program("v1 = F.relu(x0)", "v9 = torch.var(v1)", inputs=inputs)
    for factor, kind in ((1.0, None), (1 - 1e-12, judge.WRONG_VALUES)):
        planted = Planted(r"torch\.var\(v1\)", f"variance(v1, {factor!r})", variance=variance)
        found = check(program, planted).finding
        assert (found and found.kind) == kind, factor


def test_products_that_end_below_the_smallest_half():
    """In one place or another on the way they are rounded to it, or to nothing."""
    inputs = (Input((3,), "float32", values="quarters"),)
    text = "((x0 * 0 + 2.0**-12).half() * 2.0**-14).float()"
    for other, kind in (("x0 * 0 + 2.0**-24", None), ("x0 * 0 + 2.0**-21", judge.WRONG_VALUES)):
        program = planted_program(f"v9 = {text}", inputs=inputs)
        found = check(program, Planted(r"\(\(x0.*float\(\)", other)).finding
        assert (found and found.kind) == kind, other


def test_what_is_right_on_a_cpu_is_right_on_a_gpu():
    inputs = (Input((3,), "float32", values="quarters"),)
    program = planted_program("v9 = x0.exp()", inputs=inputs)
    oracle = Oracle(program, Call(1))
    right = oracle.on_cpu.values["result 0"]
    oracle.device = "cuda"  # what is asked of it here runs on a CPU
    assert judge._is_right_on_a_cpu("result 0", right, oracle)
    assert not judge._is_right_on_a_cpu("result 0", right + 1e-3, oracle)


def test_doubles_below_the_smallest_normal_one_are_disturbed():
    inputs = (Input((6,), "float64", values="normal"),)
    program = planted_program("v1 = x0.sign() * 1.5e-323", "v9 = v1 * 1000", inputs=inputs)
    for factor, kind in ((4 / 3, None), (100.0, judge.WRONG_VALUES)):
        found = check(program, Planted(r"v1 \* 1000", f"(v1 * 1000) * {factor!r}")).finding
        assert (found and found.kind) == kind, factor


def test_what_is_written_to_memory_of_more_digits_was_rounded_before():
    inputs = (Input((6,), "bool"), Input((6,), "float32", values="normal"), Input((6,), "float64"))
    statement = Statement((), "torch.atan2(x0, x1, out=x2)", writes="x2")
    program = replace(planted_program(inputs=inputs, results=("x1",)), statements=(statement,))
    for factor, kind in ((1 + 2e-7, None), (1 + 2e-5, judge.WRONG_VALUES)):
        found = check(program, Planted(r"(torch\.atan2.*)", rf"\1.mul_({factor!r})")).finding
        assert (found and found.kind) == kind, factor


def test_how_many_there_are_of_a_sum_that_cancels():
    """As many as in a disturbed run; the one that cancels is no number of any run."""
    inputs = (Input((1,), "float16", values="quarters"),)
    texts = "v1 = x0 * 0 + 1.1", "v2 = v1 - v1", "v9 = v2[v2 > 0]"
    program = planted_program(*texts, inputs=inputs)
    for other, kind in (("6e-8", None), ("0.5", judge.METADATA)):
        planted = Planted(r"v2\[v2 > 0\]", f"v2 * 0 + {other}")
        found = check(program, planted).finding
        assert (found and found.kind) == kind, other


def test_what_is_no_number_but_for_rounding():
    """The deviation of equal numbers is 0, by which eager's rounding divides."""
    inputs = (Input((1,), "float32", values="normal"),)
    for addend, kind in (("0", None), ("1", judge.WRONG_VALUES)):
        text = f"v9 = (x0 - x0) / (x0.expand(17).std() + {addend}) / (x0 - x0 + {addend})"
        program = planted_program("v1 = x0 * 0 + 0.1", text.replace("x0", "v1"), inputs=inputs)
        found = check(program, Planted(r"\(v1 - v1\) /.*", "v1 * torch.nan")).finding
        assert (found and found.kind) == kind, addend


def test_what_lies_at_the_mean_of_a_normalized_row():
    """Eager's mean is off by little, and what is left of 0 is multiplied by infinity."""
    inputs = (Input((1, 4), "float64", values="quarters"),)
    row = "torch.tensor([0.0, 1.0, -1.0, 0.0], dtype=torch.float64)"
    weight = "torch.tensor([1.0, 1.0, 1.0, math.inf], dtype=torch.float64)"
    program = planted_program(f"v1 = x0 * 0 + {row}", f"v9 = F.layer_norm(v1, (4,), {weight})", inputs=inputs)
    program.names["math"] = math
    for other, kind in (("math.nan", None), ("3.0", judge.WRONG_VALUES)):
        planted = Planted(r"(F\.layer_norm\(.*\))$", rf"torch.where(torch.arange(4) == 3, {other}, \1)", math=math)
        found = check(program, planted).finding
        assert (found and found.kind) == kind, other


def test_normalized_numbers_at_the_end_of_a_domain():
    """Two numbers are one less and one more than their mean, but for rounding, which leaves `acos` no number."""
    inputs = (Input((40, 2), "float32", values="normal"),)
    program = planted_program("v1 = x0 + 1e4", "v9 = torch.acos(F.layer_norm(v1, (2,)))", inputs=inputs)
    exact = "torch.acos(F.layer_norm(v1.double(), (2,)).float())"
    pattern = r"torch\.acos\(.*\)$"
    assert check(program, Planted(pattern, exact)).finding is None
    assert check(program, Planted(pattern, f"{exact} + 1")).finding.kind == judge.WRONG_VALUES
