"""The fuzzer's own tests: a few fixed seeds of each kind are right, and planted mistakes are found and reduced."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
import torch

from tests.fuzz import judge, races, report, worker
from tests.fuzz.check import Eager, Lampwork, check, is_lost
from tests.fuzz.generate import Options, generate
from tests.fuzz.inputs import FLOAT_VALUES, Input, make
from tests.fuzz.program import EXACT, Call, Program, Statement
from tests.fuzz.reduce import reduce

SEEDS = {
    "forward": (Options(), range(60)),
    "gradients": (Options(grad=True), range(30)),
    "dynamic": (Options(dynamic=True), range(30)),
}
#: Seeds whose findings are not repaired yet.
OPEN: dict = {"forward": set(), "gradients": set(), "dynamic": set()}


@pytest.mark.parametrize("kind, first", [(kind, first) for kind, (_, seeds) in SEEDS.items() for first in seeds[::10]])
def test_ten_seeds_are_right(kind, first):
    options = SEEDS[kind][0]
    found = {seed: check(generate(seed, options), Lampwork()).finding for seed in range(first, first + 10)}
    assert {seed: finding for seed, finding in found.items() if finding and seed not in OPEN[kind]} == {}


def test_eager_differs_from_eager_nowhere():
    for options in (Options(), Options(grad=True), Options(dynamic=True)):
        for seed in range(300, 330):
            assert check(generate(seed, options), Eager()).finding is None


class Planted:
    """Eager with a mistake: some text of the program replaced."""

    name = "planted"

    def __init__(self, pattern: str, replacement: str, **names) -> None:
        self.pattern, self.replacement, self.names = pattern, replacement, names

    def compile(self, program, device="cpu"):
        statements = [re.sub(self.pattern, self.replacement, each.text) for each in program.statements]
        changed = [
            Statement(old.targets, text, old.kind, old.writes) for old, text in zip(program.statements, statements)
        ]
        return Program(**{**program.__dict__, "statements": tuple(changed)}).function(names=self.names)

    def facts(self, compiled):
        return (), 0


def planted_program(*texts, results=("v9",), inputs=(Input((3, 4), "float32"), Input((3, 4), "float32")), **options):
    statements = []
    for text in texts:
        target, _, expression = text.partition(" = ")
        statements.append(Statement((target,), expression))
    return Program(0, inputs, tuple(statements), results, (Call(1), Call(2)), **options)


LONG = ("v0 = torch.sin(x0)", "v1 = v0 + x1", "v2 = torch.exp(v1)", "v3 = v2.sum(0)", "v9 = v3 * 2")


@pytest.mark.parametrize(
    "pattern, replacement, kind",
    [
        (r"sin", "cos", judge.WRONG_VALUES),
        (r"torch.exp\((\w+)\)", r"torch.exp(\1) * (1 + 2e-5)", judge.WRONG_VALUES),
        (r"v3 \* 2", "(v3 * 2).double()", judge.METADATA),
        (r"v3 \* 2", "(v3[None].expand(2, -1) * 2).T.contiguous().T[0]", judge.STRIDES),
        (r"v3 \* 2", "v3.mul_(2)[:]", judge.WRONG_VALUES),
        (r"v0 \+ x1", "x0.add_(1) * 0 + v0 + x1", judge.WRONG_VALUES),
        (r"v3 \* 2", "v3[9]", judge.ADDED),
    ],
)
def test_planted_mistakes_are_found(pattern, replacement, kind):
    program = planted_program(*LONG, results=("v9", "v3"))
    finding = check(program, Planted(pattern, replacement)).finding
    assert finding is not None and finding.kind == kind


def test_one_wrong_small_element_is_found():
    """Beside elements a million times as large, it is nothing to the root of the mean square error."""

    def spoiled(x):
        y = x * 1
        y.view(-1)[0] = y.view(-1)[0] * 1.001
        return y

    inputs = (Input((64,), "float32", "plain", "large"),)
    program = planted_program("v9 = torch.cat([x0 * 1e-9, x0])", inputs=inputs)
    finding = check(program, Planted(r"torch.cat\((.*)\)$", r"spoiled(torch.cat(\1))", spoiled=spoiled)).finding
    assert finding is not None and "1 of 128 elements" in finding.detail


def test_a_lost_exception_and_a_wrong_gradient_are_found():
    program = planted_program("v9 = x0 @ x1")
    assert check(program, Planted(r"x0 @ x1", "x0 @ x1.T")).finding.kind == judge.LOST
    inputs = (Input((3, 4), "float32", leaf="leaf"), Input((4,), "float32", leaf="leaf"))
    program = planted_program("v9 = x0 * x1", inputs=inputs, grad=True)
    assert check(program, Planted(r"x0 \* x1", "x0 * x1.detach() + x1 * 0")).finding.kind == judge.WRONG_GRADIENTS


def test_what_rounding_explains_is_no_finding():
    """The sum in another order, and what a comparison of it decides."""
    inputs = (Input((40, 33), "float32"),)
    for statements in (
        ["v9 = x0.sum(0)"],
        ["v1 = x0.sum(0)", "v9 = v1 - v1.round()"],
        ["v1 = x0.sum()", "v9 = x0.flip(0).sum() > v1"],
    ):
        program = planted_program(*statements, inputs=inputs)
        assert (
            check(
                program, Planted(r"x0\.sum\(", "x0.flip(0).contiguous().double().flip(0).float().flip(0).sum(")
            ).finding
            is None
        )


def test_parts_of_complex_numbers_are_judged_beside_each_other():
    """x / x is 1 with an imaginary part that is rounding alone; an imaginary part of its own that is off is found."""
    program = planted_program("v9 = x0 * 1", inputs=(Input((8,), "complex64"),))
    off = lambda size: Planted(r"x0 \* 1", f"torch.complex(x0.real, x0.imag + {size} * x0.abs())")
    assert check(program, off(1e-7)).finding is None
    assert check(program, off(1e-5)).finding.kind == judge.WRONG_VALUES


def test_half_types_may_be_as_in_double_precision():
    """0 times infinity is NaN; in float16 eager's layer norm of one element is not 0, but rounding."""
    inputs = (Input((4, 1), "float16"), Input((1,), "float16", "plain", "unit"))
    text = "F.layer_norm(x0, (1,), x1 + inf)"
    assert check(planted_program(f"v9 = {text}", inputs=inputs), Planted(r"x0, \(1", "x0 * 0, (1")).finding is None
    found = check(planted_program("v9 = x0 + x1", inputs=inputs), Planted(r"x0 \+ x1", "x0 + x1 * nan")).finding
    assert found.kind == judge.WRONG_VALUES


def test_a_sign_of_zero_is_a_class_of_its_own():
    inputs = (Input((8,), "float32", "plain", "zeros"),)
    program = planted_program("v9 = torch.neg(x0)", inputs=inputs)
    program = replace(
        program, statements=(replace(program.statements[0], kind=EXACT),), calls=(Call(1), Call(3), Call(4))
    )
    assert check(program, Planted(r"torch.neg\(x0\)", "0 - x0")).finding.kind == judge.SIGN_OF_ZERO


def test_which_zero_is_the_larger_is_left_open():
    """And no more than that: where both are -0, 0 is found."""
    inputs = (Input((64,), "float32", "plain", "zeros"), Input((64,), "float32", "plain", "zeros"))
    program = planted_program("v9 = torch.maximum(x0, x1)", inputs=inputs)
    program = replace(program, statements=(replace(program.statements[0], kind=EXACT),))
    assert check(program, Planted(r"\(x0, x1\)", "(x1, x0)")).finding is None
    assert check(program, Planted(r"(.*)", r"\1 + 0.0")).finding.kind == judge.SIGN_OF_ZERO


def test_what_is_written_in_place_may_be_computed_in_another_layout():
    inputs = (Input((3, 16), "float32", "plain", "special"),)
    written = Statement((), "x0 %= -0.5", "rounds", "x0")
    program = Program(0, inputs, (written,), ("x0",), (Call(1), Call(2)))
    apart = "x0.copy_(torch.stack([x0, x0], -1)[..., 0] % -0.5)"
    assert check(program, Planted(r"x0 %= -0.5", apart)).finding is None
    assert check(program, Planted(r"-0.5", "-0.25")).finding.kind == judge.WRONG_VALUES


def test_a_sum_whose_sign_is_rounding_may_be_zero():
    program = planted_program("v1 = (x0 - x0.mean()).sum()", "v9 = v1.bool()", inputs=(Input((40, 33), "float32"),))
    assert check(program, Planted(r"\.sum\(\)", ".sum() * 0")).finding is None
    program = planted_program("v1 = x0.sum()", "v9 = v1.bool()", inputs=(Input((40, 33), "float32"),))
    assert check(program, Planted(r"\.sum\(\)", ".sum() * 0")).finding.kind == judge.WRONG_VALUES


def test_sums_that_overflow_may_do_so_in_another_order():
    program = planted_program("v9 = x0.sum(1)", inputs=(Input((40, 33), "float32", "plain", "special"),))
    in_order = lambda x: sum(x.unbind(1)[1:], x[:, 0])
    assert check(program, Planted(r"x0\.sum\(1\)", "in_order(x0)", in_order=in_order)).finding is None
    assert check(program, Planted(r"(.*)", r"\1.nan_to_num(1.0)")).finding.kind == judge.WRONG_VALUES


def test_where_a_running_mean_overflows_there_is_another_answer():
    """Where the row has a NaN, there is none; nor where its squares are in range, nor where all steps of the mean are."""
    text = "F.layer_norm(x0, (4,), None, x1)"
    finite = Input((4,), "float64", "plain", "unit")

    def found(row, replacement):
        program = planted_program(f"v0 = x0 * 0 + torch.tensor({row}, dtype=x0.dtype)", f"v9 = {text}", inputs=(Input((2, 4), "float64", "plain", "unit"), finite))  # fmt: skip
        assert program.function()(torch.ones(2, 4).double(), torch.ones(4).double())
        program = replace(program, statements=(program.statements[0], replace(program.statements[1], text=text.replace("x0", "v0"))))  # fmt: skip
        return check(program, Planted(r"F.layer_norm(.*)", replacement)).finding

    assert found([1.0, 1.5e308, 2.0, -1.5e308], r"(v0 * 0 + x1)") is None
    assert found([1.0, 1.5e308, 2.0, -1.5e308], r"(v0 * float('nan'))") is None
    assert (
        found([1.0, 1e308, 1e308, 2.0], r"(v0 * float('nan'))").kind == judge.WRONG_VALUES
    )  # of means, no sum is taken
    assert found([1.0, 1.5e308, float("nan"), -1.5e308], r"(v0.nan_to_num() * 0 + x1)").kind == judge.WRONG_VALUES
    for other in (r"(v0 * 0 + x1)", r"(v0 * float('nan'))"):
        assert found([1.0, 1e153, 2.0, -1e153], other).kind == judge.WRONG_VALUES


def test_how_many_elements_there_are_may_be_a_matter_of_order():
    """Nonzero elements of a row that overflows; and no more than that."""
    row = "torch.tensor([1.0, 1.5e308, 2.0, -1.5e308], dtype=torch.float64)"
    inputs = (Input((2, 4), "float64", "plain", "unit"),)
    program = planted_program("v9 = torch.nonzero(F.layer_norm(x0 * 0 + ROW, (4,)))".replace("ROW", row), inputs=inputs)
    small = r"torch.nonzero(\1.nan_to_num(0.0))"
    assert check(program, Planted(r"torch.nonzero(.*)", small)).finding is None
    program = planted_program("v9 = torch.nonzero(F.layer_norm(x0, (4,)))", inputs=inputs)
    assert check(program, Planted(r"torch.nonzero(.*)", r"torch.nonzero(\1 > 0)")).finding.kind == judge.METADATA


def test_operators_on_nothing_do_not_end_the_disturbed_runs():
    inputs = (Input((3, 4), "float32"), Input((1, 0, 2), "float32"))
    program = planted_program("v1 = F.log_softmax(x1, 1)", "v9 = (x0 * 4096).sum(1) % 0.5", inputs=inputs)
    other = r"(x0.flip(1) * 4096).double().sum(1).float() % 0.5"
    assert check(program, Planted(r"\(x0 \* 4096\)\.sum\(1\) % 0\.5", other)).finding is None
    wrong = r"((x0 * 4096).sum(1) + 0.1) % 0.5"
    assert check(program, Planted(r"\(x0 \* 4096\)\.sum\(1\) % 0\.5", wrong)).finding.kind == judge.WRONG_VALUES


def test_sums_of_whole_numbers_are_rounded():
    inputs = (Input((4, 40), "int64", "plain", "unit"),)
    large = "torch.tensor([2, 2**62, 3, -(2**62)] * 10)"
    program = planted_program(f"v9 = (x0 * 0 + {large}).sum(1, dtype=torch.float64)", inputs=inputs)
    assert check(program, Planted(r"\)\.sum", ").view(-1, 10, 4).transpose(1, 2).flatten(1).sum")).finding is None
    assert check(program, Planted(r"(.+)", r"\1 + 1e9")).finding.kind == judge.WRONG_VALUES
    program = planted_program("v9 = (x0 * 0 + 3).sum(1, dtype=torch.float64)", inputs=inputs)
    assert check(program, Planted(r"(.+)", r"\1 + 1e-9")).finding.kind == judge.WRONG_VALUES


def test_products_in_another_order():
    inputs = (Input((2, 40), "float32", "plain", "unit"),)
    program = planted_program("v9 = (x0 * 0 + torch.tensor([1e30] * 20 + [0.0] * 20)).prod(1)", inputs=inputs)
    assert check(program, Planted(r"(.+)", r"\1.nan_to_num(0.0)")).finding is None
    program = planted_program("v9 = (x0 * 0 + torch.tensor([1.5] * 20 + [0.0] * 20)).prod(1)", inputs=inputs)
    for other in ("1", "torch.nan"):
        assert check(program, Planted(r"(.+)", rf"\1 + {other}")).finding.kind == judge.WRONG_VALUES


def test_sparse_results_are_compared():
    program = planted_program("v9 = x0.to_sparse()")
    assert check(program, Eager()).finding is None
    assert check(program, Planted(r"x0\.", "(x0 * 2).")).finding.kind == judge.WRONG_VALUES
    assert check(program, Planted(r"to_sparse", "to_sparse_csr")).finding.kind == judge.METADATA


def test_a_finding_is_reduced_and_printed_as_a_script(tmp_path):
    """To the one statement that is wrong; the script runs by itself."""
    compiler = Planted(r"torch.exp\(", "torch.exp2(")
    program = planted_program(*LONG)
    fails = lambda each: (found := check(each, compiler).finding) is not None and found.kind == judge.WRONG_VALUES
    small = reduce(program, fails, 60)
    assert [each.text for each in small.statements] == ["torch.exp(x0)"]
    assert len(small.calls) == 1
    text = report.script(small, check(small, compiler).finding)
    space: dict = {}
    exec(compile(text, "script", "exec"), space)
    assert torch.allclose(space["results"][0], space["x0"].exp())


def test_an_error_in_the_fuzzer_itself_is_a_finding_and_other_seeds_go_on(monkeypatch):
    def generated(seed, options):
        return generate(seed, options) if seed else 1 // seed

    monkeypatch.setattr(worker, "generate", generated)
    job = worker.Job(Options(), "eager", "cpu", 0.0)
    found = {each.seed: each.finding for each in worker.run(job, iter((1, 0, 2)), 1, time.monotonic() + 60)}
    assert list(found) == [1, 0, 2] and found[1] is None and found[2] is None
    assert found[0].kind == judge.BROKEN and "ZeroDivisionError" in found[0].detail


def test_an_error_in_the_judge_is_told_with_the_program(monkeypatch):
    """Which the seed does not tell where another release of PyTorch has other samples."""
    monkeypatch.setattr(worker, "check", lambda *args: 1 // 0)
    job = worker.Job(Options(), "eager", "cpu", 0.0)
    (result,) = worker.run(job, iter((3,)), 1, time.monotonic() + 60)
    assert result.finding.kind == judge.BROKEN
    assert result.program.text() == generate(3, Options()).text()


LOST = (
    "CUDA error: an illegal memory access was encountered",
    "CUDA refused to launch kernel 1 of a compiled program: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access",
)


@pytest.mark.parametrize("words", LOST)
def test_a_compiled_program_that_ends_the_use_of_the_gpu_is_a_finding(words):
    """Nothing is asked after it: what the judge asks would raise, too."""

    def lost(x):
        raise RuntimeError(words)

    program = planted_program(*LONG)
    finding = check(program, Planted(r"torch\.exp", "lost", lost=lost)).finding
    assert (finding.kind, finding.call) == (judge.CRASH, 0) and is_lost(finding.detail)
    assert not is_lost("CUDA refused to launch kernel 1 of a compiled program: CUDA_ERROR_INVALID_VALUE: no")


def test_guard_zones_notice_writes_and_hold_no_numbers():
    argument = make(Input((4,), "float32"), {}, 1)
    assert argument.memory.is_intact()
    beyond = torch.frombuffer(argument.memory._block, dtype=torch.float32)
    assert bool(beyond[:64].isnan().all()) and bool(beyond[-64:].isnan().all())
    beyond[-64] = 1
    assert not argument.memory.is_intact()


@pytest.mark.parametrize("kind", FLOAT_VALUES)
def test_runs_in_double_precision_have_the_same_inputs(kind):
    for dtype in ("float16", "float32"):
        spec = Input((40,), dtype, values=kind)
        plain = make(spec, {}, 7).tensor
        torch.set_default_dtype(torch.float64)
        try:
            wide = make(spec, {}, 7, wide=True).tensor
        finally:
            torch.set_default_dtype(torch.float32)
        assert torch.equal(plain.double().nan_to_num(5.0), wide.nan_to_num(5.0))


def test_the_same_seed_gives_the_same_program():
    for options in (Options(), Options(grad=True), Options(dynamic=True)):
        assert generate(5, options).text() == generate(5, options).text()
        assert len({generate(seed, options).text() for seed in range(20)}) > 15


def test_statements_that_keep_numbers_are_not_disturbed():
    statement = Statement(("v0",), "torch.flip(x0, (0,))", EXACT)
    assert statement.lines("noisy") == ["v0 = torch.flip(x0, (0,))"]


def test_how_many_elements_are_found_may_depend_on_rounding():
    program = planted_program("v1 = x0 * 3 - x0 - x0 - x0", "v9 = v1.nonzero()", inputs=(Input((40,), "float32"),))
    assert program.function()(torch.linspace(0.1, 1, 40))[0].shape != (0, 1)
    assert check(program, Planted(r"x0 \* 3 - x0 - x0 - x0", "x0 * 0")).finding is None
    assert check(program, Planted(r"v1\.nonzero", "v1.nonzero()[1:].clone")).finding.kind == judge.METADATA


@pytest.mark.parametrize("eager_ends", [False, True])
def test_programs_at_which_eager_never_ends_are_left_out(monkeypatch, eager_ends):
    """`matrix_exp` of infinities on a GPU."""
    monkeypatch.setattr(worker, "PATIENCE", 1.5)
    monkeypatch.setattr(
        worker, "_result", lambda job, seed, *rest: time.sleep(60) if seed == 1 else worker.Result(seed, None)
    )
    monkeypatch.setattr(worker, "_check_eager", lambda seed, job: None if eager_ends else time.sleep(60))
    monkeypatch.setattr(worker, "_reduced_outside", lambda *args: None)
    job = worker.Job(Options(), "eager", "cpu", 0.0)
    found = {each.seed: each for each in worker.run(job, iter((0, 1, 2)), 1, time.monotonic() + 60)}
    assert list(found) == [0, 1, 2] and found[2].finding is None
    assert found[1].left_out is not eager_ends
    assert (found[1].finding is not None) is eager_ends and (not eager_ends or found[1].finding.kind == judge.STUCK)


def test_writes_of_several_elements_to_one_place_are_noticed():
    x = torch.arange(12.0)
    for each in (x.unfold(0, 3, 1), x[:1].expand(3), x.as_strided((2, 2, 3), (3, 2, 1))):
        assert races.shares_elements(each)
    for each in (x, x.view(3, 4).t(), x[::2], x[:0].expand(3, 0), x.unfold(0, 3, 4), x.as_strided((2, 3), (1, 4))):
        assert not races.shares_elements(each)
    for text, expected in (
        ("v1 = torch.select_scatter(x0.unfold(0, 3, 1), x0[:6], 1, 0)", True),
        ("v1 = x0.unfold(0, 3, 1).mul_(2)", True),
        ("v1 = x0.unfold(0, 3, 1) * 2", False),
        ("v1 = torch.select_scatter(x0.view(4, 2), x0[:4], 1, 0)", False),
        ("v1 = x0.mul_(2)", False),
        ("x0[torch.tensor([1, 1])] = x0[:2].clone()", True),
        ("x0[torch.tensor([1, 1])] = 3", False),
        ("x0[torch.tensor([1, 2])] = x0[:2].clone()", False),
        ("x0[x0 > 0] = x0[x0 > 0] * 2", False),
        ("v1 = x0.index_put((torch.tensor([1, 1]),), x0[:2], accumulate=True)", False),
        ("v1 = x0.scatter(0, torch.tensor([1, 1]), x0)", True),
        ("v1 = x0.scatter(0, torch.tensor([1, 1]), x0, reduce='add')", False),
        ("v1 = x0.scatter(0, torch.tensor([1, 1]), 3)", False),
        ("v1 = x0.index_copy(0, torch.tensor([1, 1]), x0[:2])", True),
        ("v1 = x0.put(torch.tensor([1, -7]), x0[:2])", True),
    ):
        program = planted_program(text, "v9 = x0 + 1", inputs=(Input((8,), "float32"),))
        assert races.writes_several_to_one_place(program, program.calls[0], "cpu") is expected, text


def test_constants_are_copied():
    """`atleast_2d` of a constant is the constant: what is written to it is seen by no other run of the program."""
    constant = torch.ones(2, 2)
    statements = (Statement(("v0",), "torch.atleast_2d(constant0)"), Statement((), "v0.mul_(3)", writes="v0"))
    program = Program(0, (), statements, ("v0",), (Call(0),), names={"constant0": constant})
    for _ in range(2):
        assert program.function()()[0].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert constant.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_what_a_later_call_writes_to_is_found():
    """Each result is right when it is given, and lies in memory that the next call uses again."""
    memory = torch.empty(3, 4)
    program = planted_program("v9 = torch.sin(x0)")
    found = check(program, Planted(r"^(.*)$", r"again(\1)", again=memory.copy_)).finding
    assert found is not None and (found.kind, found.where, found.call) == (judge.WRONG_VALUES, "result 0", 0)
    found = check(program, Planted(r"^(.*)$", r"again(\1)", again=lambda x: memory.copy_(x).clone())).finding
    assert found is None


def test_on_a_cpu_all_that_a_program_moves_stays_there():
    statements = (Statement(("v0",), "torch.arange(3).to(constant0)"),)
    program = Program(0, (), statements, ("v0",), (Call(0),), names={"constant0": torch.device("meta")})
    assert program.function()()[0].device.type == "cpu"
