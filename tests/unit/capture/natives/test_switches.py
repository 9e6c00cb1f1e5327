"""Switches of libraries that a program sets: what is recorded under them, what is left set, what is left to eager."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import lampwork
from lampwork import _torch
from lampwork.capture.capture import capture
from lampwork.config import Settings
from lampwork.errors import GraphBreak
from tests.cuda_stand_in import cuda_stand_in

X = torch.randn(5, 2, 7)
cudnn = torch.backends.cudnn


def state() -> tuple:
    return _torch.STATE["cudnn"](), _torch.STATE["precision"](), _torch.STATE["attention_order"]()


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Importing PyTorch's own test suite, as tests of operators do, freezes the switches of a process.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    before = state()
    with contextlib.ExitStack() as stack:
        stack.callback(_torch.SET_STATE["cudnn"], before[0])
        yield
    assert state() == before


def check(program, *args, breaks: int = 0) -> None:
    """Compiled, the program gives and leaves what it does eagerly, twice."""
    compiled = lampwork.compile(program, options={"cache": False})
    start = _torch.STATE["cudnn"]()
    for _ in range(2):
        expected = program(*args), state()
        _torch.SET_STATE["cudnn"](start)
        actual = compiled(*args), state()
        _torch.SET_STATE["cudnn"](start)
        torch.testing.assert_close(actual[0], expected[0])
        assert actual[1] == expected[1]
    stats = lampwork.stats(compiled)
    assert len(stats["breaks"]) == breaks and not stats["fallbacks"]


def ctc(x):
    sizes = torch.tensor([5, 5]), torch.tensor([3, 2])
    return F.ctc_loss(x.log_softmax(-1), torch.ones(2, 3, dtype=torch.long), *sizes)


def test_flags_for_a_while():
    def program(x):
        with cudnn.flags(enabled=False):
            first = ctc(x)
            inside = cudnn.enabled
        with cudnn.flags(enabled=True, benchmark=True):
            second = ctc(x * 2)
        return first, second, inside, cudnn.enabled, cudnn.benchmark

    check(program, X)


def test_nested_flags():
    def program(x):
        with cudnn.flags(enabled=False):
            with cudnn.flags(enabled=True, deterministic=True):
                seen = cudnn.enabled, cudnn.deterministic
            return x * 2, seen, cudnn.enabled

    check(program, X)


def test_left_set():
    def program(x):
        cudnn.benchmark = True
        cudnn.deterministic = not cudnn.deterministic
        return x + cudnn.benchmark

    check(program, X)


def test_an_error_in_between():
    def program(x):
        try:
            with cudnn.flags(enabled=False):
                raise ValueError
        except ValueError:
            return x + cudnn.enabled

    check(program, X)


def test_a_change_outside_is_noticed():
    def program(x):
        with cudnn.flags(enabled=cudnn.deterministic):
            return x + cudnn.enabled

    compiled = lampwork.compile(program, options={"cache": False})
    assert torch.equal(compiled(X), X)
    cudnn.deterministic = True
    assert torch.equal(compiled(X), X + 1)
    assert not lampwork.stats(compiled)["breaks"]


def test_attention_in_an_order():
    def program(x):
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
            return F.scaled_dot_product_attention(x, x, x)

    check(program, torch.randn(2, 3, 8, 16))


@pytest.fixture
def precision_of_a_new_process() -> Iterator[None]:
    """Earlier tests may have called `set_float32_matmul_precision`."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "none"
    yield
    torch.backends.cuda.matmul.fp32_precision = before


@pytest.mark.skipif(_torch.get_precision is None, reason="this PyTorch has no such setting")
def test_precision_that_changes_breaks(precision_of_a_new_process):
    def program(x):
        before = torch.backends.cuda.matmul.fp32_precision
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        seen = torch.backends.cuda.matmul.fp32_precision
        torch.backends.cuda.matmul.fp32_precision = before
        return x * 2, before, seen

    compiled = lampwork.compile(program, options={"cache": False})
    before = state()
    assert compiled(X)[1:] == program(X)[1:] == ("none", "ieee")
    assert state() == before
    assert {each.id for each in lampwork.stats(compiled)["breaks"]} == {"native-call"}


def operators(program, *args) -> set[str]:
    with cuda_stand_in(), torch.no_grad():
        region = capture(program, args, {}, Settings())
    return {str(node.target) for node in region.graph.nodes if node.op == "call_function"}


def test_what_is_chosen_when_recorded_is_recorded():
    def program(x, targets, *sizes):
        with cudnn.flags(enabled=False):
            return F.ctc_loss(x.log_softmax(-1), targets, *sizes)

    sizes = torch.tensor([5, 5]), torch.tensor([3, 2])
    assert "aten._ctc_loss.Tensor" in operators(program, X, torch.ones(2, 3, dtype=torch.long), *sizes)
    assert "aten._ctc_loss.Tensor" in operators(program, X, torch.ones(5, dtype=torch.int32), *sizes)


def test_lengths_of_a_ctc_loss_lie_where_its_operator_wants_them():
    def program(x, targets, *sizes):
        return F.ctc_loss(x.log_softmax(-1), targets, *sizes)

    sizes = torch.tensor([5, 5]), torch.tensor([3, 2])
    targets = torch.ones(2, 3, dtype=torch.long)
    assert "aten._ctc_loss.Tensor" in operators(program, X, targets, *sizes)
    with cuda_stand_in(on_cpu=sizes), torch.no_grad(), pytest.raises(GraphBreak, match="lengths on the CPU"):
        capture(program, (X, targets, *sizes), {}, Settings())


def test_what_reads_switches_when_it_runs_is_not_recorded_under_them():
    weight = torch.randn(3, 2, 3)

    def program(x):
        with cudnn.flags(enabled=False):
            return F.conv1d(x, weight)

    def behind(x):
        with cudnn.flags(enabled=False):
            x = x * 2
        return F.conv1d(x, weight)

    with pytest.raises(GraphBreak, match="reads it when it runs"):
        operators(program, X)
    assert "aten.convolution.default" in operators(behind, X)


def test_convolutions_of_the_cpu_read_no_switches():
    weight = torch.randn(3, 2, 3)

    def program(x):
        with cudnn.flags(enabled=False):
            return F.conv1d(x, weight)

    check(program, X)
