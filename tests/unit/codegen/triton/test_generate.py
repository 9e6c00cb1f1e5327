"""Programs to native code for a GPU: stages put together."""

from __future__ import annotations

import pytest
import torch

from lampwork.capture.capture import capture
from lampwork.codegen.generate import generate
from lampwork.codegen.host import host_source
from lampwork.codegen.target import make_cuda_target
from lampwork.codegen.triton import compile as compiling
from lampwork.codegen.triton import generate as generating
from lampwork.config import make_settings
from lampwork.errors import CompileError
from lampwork.graph.prepare import prepare
from lampwork.ir.program import NativeCode, Program
from lampwork.lower import lower
from lampwork.schedule import schedule
from tests.cuda_stand_in import cuda_stand_in

TARGET = make_cuda_target("sm_90", 132, 227 << 10, 50 << 20)


def program_of(function, *args) -> Program:
    settings = make_settings()
    with torch.no_grad(), cuda_stand_in():
        lowered = lower(prepare(capture(function, args, {}, settings), settings), settings)
    return schedule(lowered, settings, TARGET)


def generated(program: Program, monkeypatch) -> NativeCode:
    """`program` generated with kernels that are left as text."""
    monkeypatch.setattr(generating, "compile_kernels", tuple)
    return generate(program, make_settings(), TARGET)


def test_a_program_on_a_gpu(monkeypatch):
    def function(x, y):
        x.mul_(2)
        return torch.relu(torch.softmax(x, -1) @ y)

    program = program_of(function, torch.randn(64, 300), torch.randn(300, 40))
    native = generated(program, monkeypatch)
    assert native.device == program.device == "cuda:0" and len(native.runs) == len(native.calls) == 2
    assert len(native.kernels) == len(program.kernels) and "cuda:cuLaunchKernel" in native.externals
    assert {f"kernel:{i}" for i in range(len(native.kernels))} <= set(native.externals)
    text = host_source(program, native)
    assert "stream = current_stream(0)" in text and "idle(stream)" in text and "threads()" not in text
    assert "if answer: again(answer, run0, lease, stream, ((" in text and "x0, True)" in text
    compile(text, "host", "exec")


def test_small_parameters_may_lie_anywhere(monkeypatch):
    """A slice of a few numbers is at any address; copying it would cost more than narrow loads."""
    program = program_of(lambda x, row: x + row, torch.randn(64, 4096), torch.randn(64, 1))
    (kernel,) = generated(program, monkeypatch).kernels
    bytes_of = [parameter.numel * 4 for parameter in program.kernels[0].parameters]
    assert sorted(bytes_of)[0] == 256
    assert [i for i, size in enumerate(bytes_of) if size > generating.SMALL_BYTES] == list(kernel.aligned)


def test_a_program_without_kernels():
    program = program_of(lambda x, y: x @ y, torch.randn(4, 4), torch.randn(4, 4))
    native = generate(program, make_settings(), TARGET)
    assert not native.runs and native.device == "cuda:0"
    assert "run0" not in host_source(program, native)


def test_without_triton_the_stage_says_so(monkeypatch):
    monkeypatch.setattr(compiling, "available", lambda: False)
    program = program_of(lambda x: x + 1, torch.randn(64))
    with pytest.raises(CompileError, match="Triton is not installed"):
        generate(program, make_settings(), TARGET)
