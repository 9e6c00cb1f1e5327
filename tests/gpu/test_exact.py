"""`numerics="eager"` on a GPU: each row of its table, and training steps, have eager's bits."""

from __future__ import annotations

import pytest
import torch

import lampwork
from bench.numerics import Run, equal_steps, own_steps
from lampwork.backends import backend_of, exact
from lampwork.benchmark import training, zoo
from tests.numerics.exact_rows import CALLS, MORE, ON_GPUS, computing, differing
from tests.ops.bits import apart, bits
from tests.regress.test_numbers_of_calls import PROGRAMS


@pytest.mark.parametrize("row", sorted(computing(exact.CUDA, exact._MOVES)))
def test_row_has_eagers_bits(row, device):
    types, arity, calls = {**ON_GPUS, **CALLS}[row]
    for dtype in types:
        found, called = differing(calls, dtype, arity, device)
        assert not any(found), (row, dtype, found)
        is_known = any(str(dtype).removeprefix("torch.") in each.types for each in exact.CUDA[row])
        if row != "aten::addcmul.default":  # a row for some of its calls alone
            assert bool(called) != is_known, (row, dtype, called)  # of a type that the table leaves out it is called


UNARY = sorted(name for name in computing(exact.CUDA, exact._MOVES) if {**ON_GPUS, **CALLS}[name][1] == 1
               and torch.float32 in {**ON_GPUS, **CALLS}[name][0])  # fmt: skip


@pytest.mark.parametrize("row", UNARY)
def test_row_of_one_operand_has_eagers_bits_of_every_float32(row, device):
    _, _, calls = {**ON_GPUS, **CALLS}[row]
    step = 1 << 27
    for call in calls:
        compiled = lampwork.compile(call, options={"numerics": "eager", "cache": False})
        for start in range(-(1 << 31), 1 << 31, step):
            x = torch.arange(start, start + step, device=device, dtype=torch.int32).view(torch.float32)
            with torch.no_grad():
                ours, eagers = compiled(x), call(x)
            other = bits(ours) != bits(eagers)
            assert not bool(other.any()), (row, int(other.sum()), x[other][:4], ours[other][:4], eagers[other][:4])
        assert not lampwork.stats(compiled)["extern_calls"]


@pytest.mark.parametrize("number", range(len(MORE)))
def test_more_calls_have_eagers_bits(number, device):
    types, arity, calls = MORE[number]
    for dtype in types:
        found, _ = differing(calls, dtype, arity, device)
        assert not any(found), (dtype, found)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_steps_have_eagers_bits(name, autocast, device):
    workload = training.prepare(name, device=device, size="tiny")
    runs = [Run(workload, numerics, "model", device=device, autocast=autocast) for numerics in (None, "eager")]
    found = equal_steps(*runs, 20)
    if found != (20, []):
        own = own_steps(workload, 20, device=device, autocast=autocast)
        if own[0] < 20:
            pytest.skip(f"eager differs from itself after {own[0]} steps: {own[1][:3]}")
    assert found == (20, [])


@pytest.mark.parametrize("optimizer", ["plain", "foreach"])
@pytest.mark.parametrize("name", ["mlp", "bert"])
def test_whole_steps_have_eagers_bits(name, optimizer, device):
    """What the host computes of a step's count is given to the operators of the optimizer."""
    workload = training.prepare(name, device=device, size="tiny")
    runs = [Run(workload, numerics, "step", device=device, optimizer=optimizer) for numerics in (None, "eager")]
    assert equal_steps(*runs, 20) == (20, [])
    stats = lampwork.stats(runs[1].compiled)
    assert stats["entries"] == 1 and not stats["fallbacks"] and not stats["recompiles"] and not stats["breaks"]


def _with_a_number(function, *arguments):
    compiled = lampwork.compile(function, options={"numerics": "eager", "cache": False})
    for number in (0.3, 0.7, 1.1, 0.2, 2.5):
        assert not apart(compiled(*arguments, number), function(*arguments, number)), number
    stats = lampwork.stats(compiled)
    assert stats["entries"] == 2 and not stats["fallbacks"] and not stats["breaks"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_that_vary(name, dtype, device):
    x, y = (torch.randn(70, 33, device=device).to(dtype) for _ in range(2))
    _with_a_number(PROGRAMS[name], x, y)


def test_numbers_out_of_tensors(device):
    def program(x, y):
        number = y.sum().item()
        return x / number, torch.lerp(x, x * x, number), x * number

    compiled = lampwork.compile(program, options={"numerics": "eager", "cache": False})
    for _ in range(3):
        x, y = torch.randn(70, 33, device=device), torch.rand(4, device=device)
        for found, expected in zip(compiled(x, y), program(x, y), strict=True):
            assert not apart(found, expected)


NORMS = {
    "2d": (torch.nn.BatchNorm2d, (8, 6, 7, 5)), "1d": (torch.nn.BatchNorm1d, (8, 6, 7)),
    "1d of rows": (torch.nn.BatchNorm1d, (8, 6)), "3d": (torch.nn.BatchNorm3d, (2, 6, 3, 4, 5)),
    "of one place": (torch.nn.BatchNorm2d, (8, 6, 1, 1)),
}  # fmt: skip
OPTIONS = [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"eps": 1e-3, "momentum": 0.3}]


#: Of each kind with each option; then of other types, and in another layout.
CASES = [
    *[(kind, options, False, torch.float32) for kind in NORMS for options in OPTIONS],
    *[("2d", {}, last, dtype) for last in (False, True) for dtype in (torch.float16, torch.bfloat16, torch.float64)],
    *[(kind, {}, True, torch.float32) for kind in ("2d", "3d", "of one place")],
]  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("kind", "options", "channels_last", "dtype"), CASES, ids=str)
def test_batch_norms_have_eagers_bits(kind, options, channels_last, dtype, training, device):
    """Of half types with weights of single precision."""
    make, shape = NORMS[kind]
    torch.manual_seed(0)
    batches = [torch.randn(shape, device=device).to(dtype) for _ in range(3)]
    if channels_last:
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        batches = [each.contiguous(memory_format=last) for each in batches]
    found = []
    for compiles in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Sequential(make(6, **options), torch.nn.ReLU(), make(6, **options)).to(device)
        if dtype is torch.float64:
            model = model.double()
        model.train(training)
        run = lampwork.compile(model, options={"numerics": "eager", "cache": False}) if compiles else model
        results = []
        for batch in batches:
            x = batch.clone(memory_format=torch.preserve_format).requires_grad_()
            y = run(x)
            y.float().square().mean().backward()
            results += [y.detach(), x.grad, *[each.grad.clone() for each in model.parameters()]]
            results += [each.clone() for each in model.state_dict().values()]
        if compiles:
            assert not lampwork.stats(run)["fallbacks"]
        found.append(results)
    for mine, eagers in zip(*found, strict=True):
        assert not apart(mine, eagers) and mine.stride() == eagers.stride()


def test_batch_norms_of_cudnn_are_called(device):
    model = torch.nn.BatchNorm2d(6).to(device)
    compiled = lampwork.compile(model, options={"numerics": "eager", "cache": False})
    compiled(torch.randn(8, 6, 7, 5, device=device, requires_grad=True)).sum().backward()
    calls = lampwork.stats(compiled)["extern_calls"]
    assert "lampwork::cudnn_batch_norm.default" in calls and "aten::cudnn_batch_norm_backward.default" in calls


def test_dropout_draws_eagers_numbers(device):
    def program(x):
        return torch.nn.functional.dropout(x, 0.3)

    x = torch.randn(1000, device=device)
    compiled = lampwork.compile(program, options={"numerics": "eager"})
    torch.manual_seed(1)
    expected = program(x)
    torch.manual_seed(1)
    assert torch.equal(compiled(x), expected)


def test_nothing_is_tuned():
    settings = lampwork.config.make_settings(mode="max-autotune", options={"numerics": "eager"})
    from lampwork.pipeline import _tuner

    assert backend_of("cuda").tuner is not None
    assert _tuner(settings, None, "cuda") is None
