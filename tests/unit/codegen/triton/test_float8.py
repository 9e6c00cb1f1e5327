"""Conversions of float8 in kernels: PyTorch's for every number there is."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from lampwork.ir.program import Extern, Launch
from lampwork.lower import float8
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import run_program, scheduled
from tests.unit.codegen.triton.test_dropout import drawn, lowered_for_gpu

pytestmark = pytest.mark.skipif(bool(available()), reason=available())

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def numbers(dtype):
    """Every number of a 16-bit type; of float32 those, their neighbours, and what lies between float8 numbers."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16)
    if dtype != torch.float32:
        return every.view(dtype)
    values = torch.cat([every.view(torch.float16).float(), every.view(torch.bfloat16).float()])
    bits = values.view(torch.int32)
    return torch.cat([values, (bits + 1).view(torch.float32), (bits - 1).view(torch.float32)])


def assert_same(ours, theirs):
    """Bit by bit, but for the kind of NaN."""
    ours, theirs = ours.float(), theirs.float()
    assert torch.equal(ours.isnan(), theirs.isnan())
    known = ~theirs.isnan()
    assert torch.equal(ours[known].view(torch.int32), theirs[known].view(torch.int32))


@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("target", FLOAT8)
def test_rounds_as_eager(source, target):
    x = numbers(source)
    program = scheduled(lowered_for_gpu(lambda x: x.to(target), x))
    assert [type(step) for step in program.steps] == [Launch]
    (found,) = run_program(program, [x])
    assert found.dtype == target
    assert_same(found, x.to(target))


@pytest.mark.parametrize("target", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("source", FLOAT8)
def test_widens_as_eager(source, target):
    x = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(source)
    program = scheduled(lowered_for_gpu(lambda x: x.to(target), x))
    assert [type(step) for step in program.steps] == [Launch]
    (found,) = run_program(program, [x])
    assert found.dtype == target
    assert_same(found, x.to(target))


def test_beyond_the_largest_number():
    """Later releases of PyTorch saturate where earlier ones give NaN."""
    x = torch.tensor([464.0, 464.1, 480.0, 1e9, float("inf"), float("-inf"), float("nan")])
    for saturates, large in ((True, 448.0), (False, float("nan"))):
        with mock.patch.object(float8, "_saturates", lambda saturates=saturates: saturates):
            program = scheduled(lowered_for_gpu(lambda x: x.to(torch.float8_e4m3fn), x))
        (found,) = run_program(program, [x])
        expected = torch.tensor([448.0, large, large, large, large, -large, float("nan")])
        assert torch.equal(found.float().nan_to_num(7.0), expected.nan_to_num(7.0))


def test_conversions_fuse():
    def quantized(x, scale):
        y = (x.float() * scale).to(torch.float8_e4m3fn)
        return y, y.to(torch.bfloat16) / scale, y.t().contiguous()

    x, scale = torch.randn(40, 33).bfloat16(), torch.tensor(3.0)
    program, found = drawn(quantized, x, scale)
    assert all(type(step) is Launch for step in program.steps)
    for ours, theirs in zip(found, quantized(x, scale)):
        assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())
        assert torch.equal(ours.float(), theirs.float())


def test_other_float8_types_go_through_aten():
    x = torch.randn(5)
    program = scheduled(lowered_for_gpu(lambda x: x.to(torch.float8_e4m3fnuz).float() + 1, x))
    assert [step.op for step in program.steps if isinstance(step, Extern)] == ["aten::_to_copy.default"] * 2
    (found,) = run_program(program, [x])
    assert torch.equal(found, x.to(torch.float8_e4m3fnuz).float() + 1)
