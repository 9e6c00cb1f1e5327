"""Where terms leave the range of their type any answer is right; each with a mistake that is still found beside it."""

from __future__ import annotations

import pytest
import torch

from tests.fuzz import inside, judge, terms
from tests.fuzz.check import check
from tests.fuzz.inputs import Input
from tests.fuzz.overflow import Overflow
from tests.fuzz.program import EXACT, Call, Program, Statement
from tests.fuzz.run import Noise
from tests.fuzz.spellings import spellings
from tests.fuzz.test_fuzz import Planted, planted_program
from tests.sampled import one_of

#: Each takes four rows of four elements and gives something of each. Sums:
SUMS = [
    "v1.sum(1)", "torch.mean(v1, dim=1)", "torch.nansum(v1, 1)", "v1.cumsum(1)[:, 2:].clone()", "torch.trapezoid(v1)",
    "v1 @ torch.ones(4, 2, dtype=v1.dtype)", "F.linear(v1, v1[1:2] * 0 + 1, v1[1, :1])", "v1.mv(v1[1])",
    "torch.addmm(v1[1, :1], v1, v1[1:2].T, alpha=2)", "torch.einsum('ij,j->i', v1, v1[1])",
    "torch.einsum('ij->i', v1)", "torch.tensordot(v1, v1[1], 1)", "torch.bmm(v1[:, None], v1[1].expand(4, 1, 4).mT)",
    "F.conv1d(v1[:, None], v1[1].view(1, 1, 4), v1[1, :1])", "F.conv2d(v1[:, None, None], v1[1].view(1, 1, 1, 4))",
    "F.conv_transpose1d(v1[:, None], v1[1].view(1, 1, 4))[..., 3].clone()", "F.bilinear(v1[:, :1] * 0 + 1, v1, v1[1].view(1, 1, 4))",
    "F.avg_pool1d(v1, 4)", "F.avg_pool2d(v1[:, None], (1, 3), 1)", "F.adaptive_avg_pool1d(v1, 1)",
    "F.avg_pool3d(v1[:, None, None, None], (1, 1, 4), divisor_override=-3)", "F.adaptive_avg_pool2d(v1[:, None], 1)",
    "F.interpolate(v1[:, None], size=1, mode='area')", "F.interpolate(v1[:, None, None], size=(1, 1), mode='bicubic')",
    "torch.zeros(4, 1, dtype=v1.dtype).scatter_add_(1, torch.zeros(4, 4, dtype=torch.long), v1)",
    "torch.zeros(4, 1, dtype=v1.dtype).index_add_(1, torch.zeros(4, dtype=torch.long), v1)",
    "torch.stack([F.nll_loss(row[:, None], torch.zeros(4, dtype=torch.long)) for row in v1])",
]  # fmt: skip
#: Roots and quotients of sums of squares.
SQUARES = [
    "v1.std(1)", "torch.std_mean(v1, 1)[0]", "F.layer_norm(v1, (4,))", "F.group_norm(v1[:, None], 1)[:, 0]", "F.instance_norm(v1[None])[0]",
    "F.batch_norm(v1.T, None, None, training=True).T",
]  # fmt: skip
NORMS = ["v1.norm(dim=1)", "torch.linalg.vector_norm(v1, 2, 1)", "F.pairwise_distance(v1, v1[1:2])", "F.normalize(v1)"]


def rows_of(dtype, large):
    """A row with partial sums that overflow, one in range, one that is infinite in every order, one with NaN."""
    return f"torch.tensor([[{large}, {large}, -{large}, 1], [1, 2, 3, 5], [{large}] * 4, [1, torch.nan, 2, 3]], dtype={dtype})"


def finding(program, pattern, replacement, **names):
    return check(program, Planted(pattern, replacement, **names)).finding


def in_row(place, other):
    """A function that spoils the part of a tensor that is made of that row."""

    return in_rows((place,), other, 4)


def in_rows(places, other, count):
    def spoiled(x):
        rows = x.clone().view(count, -1)
        for place in places:
            rows[place] = other(rows[place])
        return rows.view(x.shape)

    return spoiled


@pytest.mark.parametrize("number, call", one_of(2, enumerate(SUMS + SQUARES + NORMS)))
def test_only_rows_that_leave_the_range_are_open(number, call):
    mode, dtype = ("enable_grad", "no_grad", "inference_mode")[number % 3], (torch.float32, torch.float64)[number % 2]
    largest = torch.finfo(dtype).max
    rows = rows_of(dtype, largest**0.75 if call in NORMS else largest)
    program = planted_program(
        f"v1 = torch.where(x0 < 2, {rows}, 0)", f"v8 = {call}", "v9 = torch.atan(v8) + 1",
        results=("v8", "v9"), inputs=(Input((4, 4), str(dtype)[6:], values="unit"),), mode=mode,
    )  # fmt: skip
    pattern = r"^(?!torch\.where|torch\.atan)(.*)$"
    root = lambda row: torch.full_like(row, largest**0.75 * 3**0.5) if "ormal" not in call else row
    spoiled = in_row(0, root if call in NORMS else lambda row: row * torch.nan)
    assert finding(program, pattern, r"spoiled(\1)", spoiled=spoiled) is None
    spoiled = in_row(1, lambda row: row * 1.001 + 0.001)
    assert finding(program, pattern, r"spoiled(\1)", spoiled=spoiled).kind == judge.WRONG_VALUES
    if "nansum" not in call:
        spoiled = in_row(3, lambda row: row.nan_to_num(1.0))
        assert finding(program, pattern, r"spoiled(\1)", spoiled=spoiled).kind == judge.WRONG_VALUES


@pytest.mark.parametrize("call", SQUARES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squares_that_overflow_leave_no_nan_where_deviations_are_in_range(call, dtype):
    """Sixteen to a row: a whole vector."""
    large = torch.finfo(dtype).max ** 0.75
    rows = f"torch.tensor([[{large}, {large}, -{large}, 1] * 4] * 4, dtype={dtype})"
    specs = (Input((4, 16), str(dtype)[6:], values="unit"),)
    text = call.replace("(4,)", "(16,)")
    program = planted_program(f"v1 = torch.where(x0 < 2, {rows}, 0)", f"v9 = {text}", inputs=specs)
    pattern = r"^(?!torch\.where)(.*)$"
    if not program.function()(torch.ones(4, 16, dtype=dtype))[0].isnan().any():  # some begin with the mean of nothing
        assert finding(program, pattern, r"\1 * torch.nan").kind == judge.WRONG_VALUES
    assert finding(program, pattern, r"\1.nan_to_num() * 0 + 7").kind == judge.WRONG_VALUES
    other = "torch.inf" if "std" in call else "0"
    assert finding(program, pattern, rf"torch.full_like(\1, {other})") is None


@pytest.mark.parametrize(
    "call", ["v1.norm(dim=1)", "torch.linalg.vector_norm(v1, 2, 1)", "torch.linalg.vector_norm(v1, 3, 1)"]
)
def test_powers_that_are_too_small(call):
    """1e-30 ** 2 is no number of single precision: so is the norm 0, or what it is. 1e-22 ** 2 is rounded, not lost."""
    specs = (Input((4, 4), "float32", values="unit"),)
    for size, factor, kind in ((1e-30, 0.0, None), (1e-30, 1.0, None), (1e-30, 30.0, judge.WRONG_VALUES),
                               (1e-10, 0.0, judge.WRONG_VALUES)):  # fmt: skip
        program = planted_program(f"v1 = torch.where(x0 < 2, {size}, 0.0)", f"v9 = {call}", inputs=specs)
        found = finding(
            program,
            r"^(?!torch\.where)(.*)$",
            rf"(v1.double() ** 2).sum(1).sqrt().float() * {factor}"
            if "3" not in call
            else rf"(v1.double() ** 3).sum(1).pow(1 / 3).float() * {factor}",
        )
        assert (found and found.kind) == kind


def test_interpolations_and_sums_of_products_on_their_way():
    """A factor that is out of range in between has the sign of the product; the other infinity is none of its answers."""
    big = 3e38
    for text, mine, kind in (
        (f"torch.addcmul(v1, v1 * {big}, v1 * 10, value=-0.1)", "-inf", None),
        (f"torch.addcmul(v1, v1 * {big}, v1 * 10, value=-0.1)", "inf", judge.WRONG_VALUES),
        (f"torch.addcdiv(v1, v1 * {big}, v1 * -10, value=9.0)", "-inf", None),
        (f"torch.addcdiv(v1, v1 * {big}, v1 * -10, value=9.0)", "inf", judge.WRONG_VALUES),
        (f"torch.addcdiv(v1, v1 * {big}, v1 * -10, value=9.0)", "nan", judge.WRONG_VALUES),
        (f"torch.lerp(v1 * {big}, v1 * -{big}, 0.25)", "-inf", None),
        ("torch.lerp(v1 * 1e38, v1 * -1e38, 0.25)", "-inf", judge.WRONG_VALUES),
    ):
        program = planted_program("v1 = torch.where(x0 < 2, 1.0, 0.0)", f"v9 = {text}",
                                  inputs=(Input((4,), "float32", values="unit"),))  # fmt: skip
        found = finding(
            program, r"^(?!torch\.where)(.*)$", f"torch.full_like(v1, {mine})", inf=float("inf"), nan=float("nan")
        )
        assert (found and found.kind) == kind, (text, mine)


@pytest.mark.parametrize(
    "call", ["v1.sum(1)", "v1.mean(1)", "F.avg_pool1d(v1, 4)", "F.linear(v1, v1[1:2])", "v1 @ v1[1]"]
)
@pytest.mark.parametrize("other", [1e38, torch.nan])
def test_what_overflows_in_every_order_is_infinite(call, other):
    rows = rows_of(torch.float32, torch.finfo(torch.float32).max)
    specs = (Input((4, 4), "float32", values="unit"),)
    program = planted_program(f"v1 = torch.where(x0 < 2, {rows}, 0)", f"v9 = {call}", inputs=specs)
    spoiled = in_row(2, lambda row: torch.full_like(row, other))
    assert finding(program, r"^(?!torch\.where)(.*)$", r"spoiled(\1)", spoiled=spoiled).kind == judge.WRONG_VALUES


@pytest.mark.parametrize(
    "call, dtype, power",
    [
        ("v1.prod(1)", "float32", 100),
        ("v1.prod(1)", "float64", 800),
        ("torch.cumprod(v1, 1)[:, -1].clone()", "float32", 100),
    ],
)
def test_products(call, dtype, power):
    """A partial product may overflow, or vanish, in the first row; in the second, none does; the third is infinite."""
    large, small = f"2.0 ** {power}", f"2.0 ** -{power}"
    factors = f"torch.tensor([[{large}] * 2 + [{small}] * 2, [1, 2, 3, -5], [{large}] * 4, [{large}] * 3 + [0]], dtype=x0.dtype)"
    specs = (Input((4, 4), dtype, values="unit"),)
    program = planted_program(f"v1 = torch.where(x0 < 2, {factors}, 0)", f"v9 = {call}", inputs=specs)
    pattern = r"^(?!torch\.where)(.*)$"
    for place, other in ((0, torch.inf), (0, 0.0), (0, torch.nan), (0, 1.0), (3, torch.nan), (3, 0.0)):
        assert (
            finding(program, pattern, r"spoiled(\1)", spoiled=in_row(place, lambda row: torch.full_like(row, other)))
            is None
        )
    for place, other in ((1, -30.1), (1, torch.nan), (2, 1.0)):
        spoiled = in_row(place, lambda row: torch.full_like(row, other))
        assert finding(program, pattern, r"spoiled(\1)", spoiled=spoiled).kind == judge.WRONG_VALUES


def test_how_many_elements_are_found_of_what_is_open():
    """A mean of B, B and -B is B, infinite or NaN; which numbers are found in between is told by it."""
    large = torch.finfo(torch.float32).max
    row = f"torch.tensor([{large}, {large}, -{large}, 1, 1, 1, 2, 2, 2, {large}, {large}, -{large}])"
    specs = (Input((12,), "float32", values="unit"),)
    program = planted_program(
        f"v1 = torch.where(x0 < 2, {row}, 0)", "v2 = v1.view(1, 12)", "v3 = F.avg_pool1d(v2, 3)[0]",
        "v9 = v3[v3 < 3e38]", inputs=specs,
    )  # fmt: skip
    pattern = r"^v3\[v3 < 3e38\]"
    assert finding(program, pattern, f"torch.cat([torch.tensor([{large} / 3]), v3[1:3]])") is None
    assert finding(program, pattern, "v3[1:2]").kind == judge.METADATA
    assert finding(program, pattern, "torch.cat([v3[1:3], v3[1:2] + 5])").kind == judge.METADATA


def test_results_are_eagers_where_nothing_overflows():
    torch.manual_seed(3)
    v1 = torch.randn(4, 4)
    names = {"torch": torch, "F": torch.nn.functional, "v1": v1}
    for call in SUMS + SQUARES + NORMS:
        with Overflow(Noise(0, 2.0)):
            found = eval(call, dict(names))
        torch.testing.assert_close(found, eval(call, dict(names)), rtol=0, atol=0)


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


@pytest.mark.parametrize(
    "call",
    [
        "F.group_norm(v1, 1)", "F.layer_norm(v1, (v1.size(-1),))", "F.batch_norm(v1, None, None, training=True)",
        "v1.sum(1)", "v1 @ v1.mT", "v1.norm(dim=1)", "v1.logsumexp(1)", "v1.cumprod(1)", "F.avg_pool1d(v1, 1)",
        "torch.cdist(v1, v1)", "F.normalize(v1)", "F.conv1d(v1, v1[:0].new_ones(1, v1.size(1), 1))", "v1.softmax(1)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(0, 2, 3), (0, 1, 1)])
def test_tensors_without_elements_have_no_terms(call, shape):
    """A rule that divides by what there is none of was an error of the fuzzer."""
    with Overflow(Noise(0, 2.0)):
        eval(call, {"torch": torch, "F": torch.nn.functional, "v1": torch.empty(shape)})


@pytest.mark.parametrize("call", ["F.linear(v1, v2, v3)", "F.conv1d(v1[..., None], v2[..., None], v3)[..., 0]",
                                  "torch.addmm(v3, v1, v2.T)"])  # fmt: skip
def test_products_that_are_all_minus_zero(call):
    """-0 if the bias comes first, else 0 where the library begins with one. Beside a term that is 0 nothing is -0."""
    zeros = "x0 * 0 + torch.tensor([[0.0, 0.0], [0.0, -0.0], [-0.0, 3.0]])"
    texts = "v2 = x1 * 0 - 0.25", "v3 = x1[:, 0] * -0.0", f"v9 = {call}"
    inputs = (Input((3, 2), "float32", values="unit"), Input((4, 2), "float32", values="unit"))
    program = planted_program(
        f"v1 = ({zeros}).abs() * torch.tensor([[1.0, 1], [1, -1], [-1, 1]])", *texts, inputs=inputs
    )
    pattern = r"^(?=F\.|torch\.addmm)(.*)$"
    with_sign = lambda sign: in_rows((0,), lambda row: torch.zeros_like(row).copysign(torch.tensor(sign)), 3)
    assert finding(program, pattern, r"spoiled(\1)", spoiled=with_sign(1.0)) is None
    assert finding(program, pattern, r"spoiled(\1)", spoiled=with_sign(-1.0)) is None
    minus = in_rows((1,), lambda row: torch.zeros_like(row).neg(), 3)
    assert finding(program, pattern, r"spoiled(\1)", spoiled=minus).kind == judge.SIGN_OF_ZERO
    twice = in_rows((0, 2), lambda row: row + 1e-3, 3)
    assert finding(program, pattern, r"spoiled(\1)", spoiled=twice).kind == judge.WRONG_VALUES


def test_a_bias_of_minus_zero_beside_no_product():
    """Where a window lies in the padding alone libraries give the bias, or add it to 0."""
    inputs = (Input((1, 1, 2), "float32", values="unit"),)
    texts = "v1 = x0 * 0 + 0.5", "v2 = v1[..., :1]", "v3 = v1[0, :, 0] * -0.0", "v9 = F.conv1d(v1, v2, v3, padding=1)"
    program = planted_program(*texts, inputs=inputs)
    spoiled = lambda x: torch.where(x == 0, torch.zeros_like(x).copysign(torch.tensor(sign)), x)
    for sign in (1.0, -1.0):
        assert finding(program, r"^(F\..*)$", r"spoiled(\1)", spoiled=spoiled) is None
    assert finding(program, r"^(F\..*)$", r"\1 + 1e-3").kind == judge.WRONG_VALUES


@pytest.mark.parametrize(
    "call", ["v1.amax(1)", "v1.amin((0, 1))", "v1.max()", "torch.aminmax(v1, dim=1)[0]", "v1.amax(1, True)"]
)
def test_extremes_among_zeros_of_both_signs(call, monkeypatch):
    """On a GPU either zero is right; on a CPU, and where a row has zeros of one sign, eager's is."""
    x = torch.tensor([[-0.0, 0.0, -0.0], [-0.0, -0.0, -0.0]])
    names = {"torch": torch, "v1": x}

    def signs():
        found = set()
        for seed in range(12):
            with Overflow(Noise(seed, 2.0)):
                found.add(tuple(eval(call, names).signbit().view(-1).tolist()))
        return found

    assert len(signs()) == 1
    monkeypatch.setattr(terms, "_folds_in_no_order", lambda x: True)
    found = signs()
    assert len(found) > 1 and (len(next(iter(found))) == 1 or {each[1] for each in found} == {True})
    with Overflow(Noise(1, 2.0)):
        assert bool(x.max(1)[0].signbit()[0])  # the first, whose place is given, too


@pytest.mark.parametrize(
    "call", ["torch.var_mean(v1, 1)[1]", "v1.mean(1)", "v1.sum(1)", "F.adaptive_avg_pool1d(v1, 1)", "v1.mv(v1[1])"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_large_terms_leave_where_they_cancel(call, dtype):
    """Eager says inf, or nothing of the small terms: another order gives any number that is small beside the large ones."""
    largest = torch.finfo(dtype).max
    rows = f"torch.tensor([[{largest}, {largest}, -{largest}, -{largest}], [1, 1, 1, 1]], dtype={dtype})"
    specs = (Input((2, 4), str(dtype)[6:], values="unit"),)
    program = planted_program(f"v1 = torch.where(x0 < 2, {rows}, 0)", f"v9 = {call}", inputs=specs)
    pattern = r"^(?!torch\.where)(.*)$"
    for row, kind in ((0, None), (1, judge.WRONG_VALUES)):
        spoiled = in_rows((row,), lambda row: torch.full_like(row, 0.5), 2)
        found = finding(program, pattern, r"spoiled(\1)", spoiled=spoiled)
        assert (found and found.kind) == kind, row


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_within_an_operator_are_rounded(dtype):
    """An area whose pieces are large and cancel, but for the last one: in another order it is lost. One beside it whose
    pieces are whole numbers is not."""
    large = 2.0 ** (40 if dtype == torch.float32 else 80)
    rows = f"torch.tensor([[0, 1e6, {large}, 0, 1.178568959236145], [0, 1, 2, 5, 3]], dtype={dtype})"
    specs = (Input((2, 5), str(dtype)[6:], values="unit"),)
    program = planted_program(f"v1 = torch.where(x0 < 2, {rows}, 0)", "v9 = torch.trapezoid(v1, v1)", inputs=specs)
    pattern = r"^(?!torch\.where)(.*)$"
    for row, kind in ((0, None), (1, judge.WRONG_VALUES)):
        spoiled = in_rows((row,), lambda row: row + 0.25, 2)
        found = finding(program, pattern, r"spoiled(\1)", spoiled=spoiled)
        assert (found and found.kind) == kind, row


@pytest.mark.parametrize("call", ["v1.mean(1)", "F.avg_pool1d(v1, 5)", "v1 @ v0[0]", "v1.sum(1)"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_small_terms_leave_where_large_ones_cancel(call, dtype):
    """Any of them may be lost beside the large ones, or all, where a function of the sum tells how many. None is lost of
    a row without large terms, or whose large terms do not cancel."""
    large = torch.finfo(dtype).max
    rows = (
        f"torch.tensor([[1, 0.5, -{large}, {large}, 2], [1, 0.5, -1, 2, 1], [1, 1, {large / 16}, 1, 1]], dtype={dtype})"
    )
    specs = (Input((3, 5), str(dtype)[6:], values="unit"),)
    texts = "v0 = x0 * 0 + 1", f"v1 = torch.where(x0 < 2, {rows}, 0)", f"v8 = ({call}).view(-1)", "v9 = torch.log(v8)"
    program = planted_program(*texts, inputs=specs)
    count = 5 if "mean" in call or "avg" in call else 1
    for place, total, kind in ((0, 0.0, None), (0, 2.0, None), (0, 2.5, None), (1, 2.5, judge.WRONG_VALUES),
                               (2, 4.0, judge.WRONG_VALUES)):  # fmt: skip
        spoiled = in_rows((place,), lambda row: torch.full_like(row, total / count), 3)
        found = finding(program, r"^(\(.*\)\.view\(-1\))$", r"spoiled(\1)", spoiled=spoiled)
        assert (found and found.kind) == kind, (place, total)


@pytest.mark.parametrize(
    "call",
    ["F.batch_norm(v1, None, None, weight=v2, training=True)", "F.group_norm(v1, 3, v2)", "F.layer_norm(v1.T, (3,), v2).T"],
)  # fmt: skip
def test_weights_by_which_a_deviation_overflows(call):
    """(x - mean) * weight is out of range in the first channel, and not the whole; in the second no product is."""
    specs = (Input((2, 3), "float32", values="unit"),)
    if "group" in call:
        rows, weight = "torch.tensor([[9.0, -9, 4, 3, 1, 2], [1, 2, 4, 5, 9, 8]]).view(2, 3, 2)", "[1.5e38, 2.0, 1.0]"
    elif "layer" in call:
        rows, weight = "torch.tensor([[9.0, -9, 9], [1, -9, 1], [-10, 18, 10]])", "[1.5e38, 2.0, 1.0]"
    else:
        rows, weight = "torch.tensor([[9.0, 4, 1], [-9, 3, 3]])", "[1.5e38, 2.0, 1.0]"
    program = planted_program(f"v1 = x0[0, 0] * 0 + {rows}", f"v2 = x0[0, 0] * 0 + torch.tensor({weight})", f"v9 = {call}",
                              inputs=specs)  # fmt: skip
    pattern = r"^(F\..*)$"
    large = lambda other: lambda x: torch.where(x.abs() > 1e37, other(x), x)
    infinite = large(lambda x: torch.full_like(x, torch.inf).copysign(x))
    assert finding(program, pattern, r"spoiled(\1)", spoiled=infinite) is None
    opposite = large(lambda x: torch.full_like(x, torch.inf).copysign(-x))
    assert finding(program, pattern, r"spoiled(\1)", spoiled=opposite).kind == judge.WRONG_VALUES
    others = lambda x: torch.where(x.abs() < 1e37, torch.full_like(x, torch.inf).copysign(x), x)
    assert finding(program, pattern, r"spoiled(\1)", spoiled=others).kind == judge.WRONG_VALUES


@pytest.mark.parametrize("call", ["torch.fmod(v1, v2)", "torch.remainder(v1, v2)"])
def test_remainders_of_numbers_whose_units_are_larger_than_the_divisor(call):
    """They are any number in range, and zero, of which there is an inverse; those of small numbers are what they are."""
    texts = (
        "v1 = (x0 + 1) * 0 + torch.tensor([1e27, 7.0])",
        "v2 = x0 * 0 + 1.5",
        f"v3 = {call}",
        "v9 = torch.reciprocal(v3)",
    )
    program = planted_program(*texts, results=("v3", "v9"), inputs=(Input((2,), "float32", values="unit"),))
    for place, other, kind in ((0, 0.0, None), (0, 0.75, None), (0, 1.0, None), (0, 30.0, judge.WRONG_VALUES),
                               (1, 0.0, judge.WRONG_VALUES), (1, 0.5, judge.WRONG_VALUES)):  # fmt: skip
        spoiled = in_rows((place,), lambda row: torch.full_like(row, other), 2)
        found = finding(program, r"^(torch\.(?:fmod|remainder)\(.*\))$", r"spoiled(\1)", spoiled=spoiled)
        assert (found and found.kind) == kind, (place, other)


@pytest.mark.parametrize(
    "call",
    ["v1.index_put((x1,), v2, accumulate=True)", "v1.scatter_add(0, x1, v2)", "v1.index_add(0, x1, v2)"],
)  # fmt: skip
def test_small_numbers_that_are_added_in_memory(call, monkeypatch):
    """A GPU loses what is smaller than the smallest normal number there; larger numbers stay, and all do on a CPU."""
    inputs = (Input((3,), "float32", values="unit"), Input((3,), "int64", values="indices"))
    texts = "v1 = x0 * 0 + torch.tensor([8e-39, 1.0, 8e-30])", "v2 = x0 * 0", f"v9 = {call}"
    program = planted_program(*texts, inputs=inputs)
    program = Program(**{**program.__dict__, "statements": (Statement(("x1",), "x1 * 0", EXACT), *program.statements)})
    for loses in (True, False):
        monkeypatch.setattr(terms, "_loses_small_numbers", lambda x, loses=loses: loses)
        for place, kind in (
            (0, None if loses else judge.WRONG_VALUES),
            (1, judge.WRONG_VALUES),
            (2, judge.WRONG_VALUES),
        ):
            spoiled = in_rows((place,), torch.zeros_like, 3)
            found = finding(program, r"^(v1\.(?:index|scatter).*)$", r"spoiled(\1)", spoiled=spoiled)
            assert (found and found.kind) == kind, (loses, place)


def test_exponents_that_vectors_round():
    """Eager's kernels for the CPU take an exponent as float32 in vectors, and as it is in the rest."""
    found = set()
    for seed in range(8):
        with Overflow(Noise(seed, 2.0)):
            found |= {*torch.full((4,), 100.0).pow(7.7).tolist(), *torch.full((4,), 100.0).pow(7.5).tolist()}
    vectors = torch.full((64,), 100.0)
    assert found == {*vectors.pow(7.7).tolist(), *vectors[:4].pow(7.7).tolist(), *vectors.pow(7.5).tolist()}


def test_what_float64_refuses_is_empty():
    """A transposed convolution without results, which the kernels for float32 make and those for float64 refuse."""
    program = planted_program(
        "v1 = F.conv_transpose2d(x0, x1, padding=1)", "v9 = x0 * 3",
        inputs=(Input((3, 1, 8, 1), "float32"), Input((1, 2, 2, 2), "float32")), results=("v1", "v9"),
    )  # fmt: skip
    for replacement, kind in (("x0 * 3", None), ("x0 * 3.001", judge.WRONG_VALUES)):
        found = check(program, Planted(r"x0 \* 3", replacement)).finding
        assert (found and found.kind) == kind


def test_a_variance_that_is_infinite_whatever_is_added_to_it():
    """Less a half it is infinite as well: the row vanishes, but for the bias. That of a row in range is as it is."""
    large = "3e38"
    rows = f"torch.tensor([[{large}, -{large}, 0.5, 1], [4.0, 2, 3, 5]])[:, None]"
    program = planted_program(f"v1 = {rows} + x0[0, 0] * 0", "v9 = F.group_norm(v1, 1, eps=-0.5)",
                              inputs=(Input((2, 3), "float32", values="unit"),))  # fmt: skip
    vanishes = lambda place: lambda x: torch.where(torch.arange(2).view(2, 1, 1) == place, 0.0, x)
    for place, kind in ((0, None), (1, judge.WRONG_VALUES)):
        found = finding(program, r"(F\.group_norm\(.*\))", r"vanishes(\1)", vanishes=vanishes(place))
        assert (found and found.kind) == kind
