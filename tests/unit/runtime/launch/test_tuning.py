"""Times of kernels and calls, on a device that only counts: a launch takes what the test says it takes."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from lampwork.ir.alternative import Alternative
from lampwork.ir.loops import Kernel, Parameter
from lampwork.ir.program import DeviceKernel, Extern, TensorRef
from lampwork.runtime.launch import tuning

X, W, Y = (TensorRef(name, "float32", (8, 8), (8, 1)) for name in "xwy")
CALL = Extern("aten::mm.default", (X, W), outputs=("y",), out_variant="aten::mm.out")
KERNEL = Kernel("relu", (Parameter("b0", "float32", "read", 64), Parameter("b1", "float32", "write", 64)), ())
FUSED = Kernel("fused", tuple(Parameter(f"b{i}", "float32", "read", 64) for i in range(3)), ())
FORM = DeviceKernel("relu", "", ("*fp32", "*fp32"), grid=(4,), hidden=2)


class Device:
    """Milliseconds go by when something is launched or called: at once, or when a graph of it is replayed."""

    def __init__(self):
        self.now = 0.0
        self.launch_ms: dict[int, float] = {}  # by handle
        self.call_ms = 1.0
        self.launched: list[tuple[int, list[int]]] = []
        self.out: list[torch.Tensor] = []

    def launch(self, handle, x, y, z, threads, *rest):
        assert (x, y, z, threads) == (4, 1, 1, 128)
        self.now += self.launch_ms[handle.value]
        pointers = rest[4]
        self.launched.append((handle.value, [ctypes.c_uint64.from_address(each).value for each in pointers]))
        return 0

    def operator(self, name):
        real = getattr(torch.ops.aten.mm, "out" if name.endswith("out") else "default")

        def call(*args, **kwargs):
            self.now += self.call_ms
            self.out += [kwargs["out"]] if "out" in kwargs else []
            return real(*args, **kwargs)

        return call


@pytest.fixture
def device(monkeypatch):
    made = Device()

    class Graph:
        def replay(self):
            made.now += self.milliseconds

    @contextmanager
    def graph(into):
        before = made.now
        yield
        into.milliseconds, made.now = made.now - before, before

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = made.now

        def synchronize(self):
            pass

        def elapsed_time(self, other):
            return other.at - self.at

    for name, stand_in in {
        "device": lambda index: nullcontext(), "synchronize": lambda: None, "CUDAGraph": Graph, "graph": graph,
        "Event": Event, "current_stream": lambda: SimpleNamespace(cuda_stream=0),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(tuning, "DEVICE", "cpu")
    monkeypatch.setattr(tuning, "driver", lambda: SimpleNamespace(cuLaunchKernel=made.launch))
    monkeypatch.setattr(tuning, "load_kernels", lambda forms, index: [int(form.entry) for form in forms])
    monkeypatch.setattr(tuning._torch, "overload", made.operator)
    monkeypatch.setattr(tuning._torch, "out_arguments", lambda name: ("out",))
    return made


def form(handle, count=2):
    return replace(FORM, entry=str(handle), signature=("*fp32",) * count)


def test_forms_of_a_kernel(device):
    device.launch_ms = {1: 0.5, 2: 0.25}
    assert tuning.DeviceMeasure(0).kernels(KERNEL, [form(1), form(2)]) == [0.5, 0.25]
    for _, (b0, b1, *hidden) in device.launched:
        assert b0 and b1 and b0 != b1 and hidden == [0, 0]


def test_a_hopeless_form_runs_a_few_times_only(device):
    device.launch_ms = {1: 0.5, 2: 50.0}
    assert tuning.DeviceMeasure(0).kernels(KERNEL, [form(1), form(2)]) == [0.5, 50.0]
    assert sum(handle == 2 for handle, _ in device.launched) == 3


def test_a_form_that_the_device_refuses(device, monkeypatch):
    monkeypatch.setattr(device, "launch", lambda *arguments: 1 / 0)
    assert tuning.DeviceMeasure(0).kernels(KERNEL, [form(1)]) == [float("inf")]


def test_a_call(device):
    device.call_ms = 3.0
    assert tuning.DeviceMeasure(0).call(CALL) == 3.0


def test_turns(device):
    """A call and a kernel against one kernel, on the same memory."""
    device.launch_ms, device.call_ms = {1: 0.5, 2: 1.25}, 1.0
    usual = Alternative((KERNEL,), (("y", "z"),), (), (CALL,), (Y,))
    fused = Alternative((FUSED,), (("x", "w", "z"),), (FUSED,))
    times = tuning.DeviceMeasure(0).turns([(fused, [form(2, 3)]), (usual, [form(1)])])
    assert times == [1.25, 1.5]
    last = dict(device.launched)
    assert {out.data_ptr() for out in device.out} == {last[1][0]}  # the kernel reads what the call wrote
    assert last[1][1] == last[2][2]
    assert {out.shape for out in device.out} == {(8, 8)}


def test_turns_that_the_device_refuses(device, monkeypatch):
    def refused(*arguments):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(tuning, "_filled", refused)
    assert tuning.DeviceMeasure(0).turns([(Alternative((KERNEL,), (("y", "z"),)), [form(1)])]) == [float("inf")]


def test_the_generator_stays_where_it_is(device):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    device.launch_ms = {1: 0.5}
    tuning.DeviceMeasure(0).kernels(KERNEL, [form(1)])
    assert torch.equal(torch.get_rng_state(), state)
