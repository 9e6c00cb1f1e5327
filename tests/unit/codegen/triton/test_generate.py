"""Programs to native code for a GPU: stages put together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lampwork.capture.capture import capture
from lampwork.codegen.generate import generate, make_tuner
from lampwork.codegen.host import host_source
from lampwork.codegen.target import make_cuda_target
from lampwork.codegen.triton import compile as compiling
from lampwork.codegen.triton import generate as generating
from lampwork.codegen.triton import tune
from lampwork.config import make_settings
from lampwork.errors import CompileError
from lampwork.graph.prepare import prepare
from lampwork.ir.program import Launch, NativeCode, Program
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


class Fast:
    """A measurement to which products fused with what follows are ten times as fast as ATen's calls."""

    state = ""

    def kernels(self, kernel, forms):
        return [0.1 for _ in forms]

    def call(self, call):
        return 1.0

    def turns(self, rivals):
        return [1.0 + len(alternative.calls) for alternative, _ in rivals]


def test_a_tuned_program_launches_products(monkeypatch):
    """The tiles that were measured when the product was chosen are those that are generated."""
    monkeypatch.setattr(tune, "environment", replace(tune.environment, cache=False))
    monkeypatch.setattr(tune, "compile_kernels", tuple)
    settings = make_settings(mode="max-autotune")
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).bfloat16()
    with torch.no_grad(), cuda_stand_in():
        x = torch.randn(128, 256).bfloat16()
        lowered = lower(prepare(capture(model, (x,), {}, settings), settings), settings)
    tuner = make_tuner(TARGET, Fast())
    program = schedule(lowered, settings, TARGET, tuner.choose)
    assert [type(step).__name__ for step in program.steps] == ["Launch", "Extern"]  # nothing follows the second one
    monkeypatch.setattr(generating, "compile_kernels", tuple)
    native = generate(program, settings, TARGET, tuner)
    (kernel,) = native.kernels
    assert "tl.dot" in kernel.source and kernel.num_stages > 1
    compile(host_source(program, native), "host", "exec")
    assert tuner.choosing_seconds > tuner.tiling_seconds > 0.0


def test_what_is_normalised_by_channel_is_spread_over_the_device():
    """The last step of a reduction by channel runs in few programs; the rest of a batch norm must not run in them."""
    x = torch.empty(32, 64, 56, 56).to(memory_format=torch.channels_last)
    program = program_of(lambda x: torch.nn.functional.batch_norm(x, None, None, training=True), x)
    (result,) = program.result_storages
    last = [step for step in program.steps if isinstance(step, Launch) and result in step.buffers]
    assert [program.kernels[step.kernel].name.partition("_")[0] for step in last] == ["pointwise"]
