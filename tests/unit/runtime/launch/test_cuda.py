"""Host functions of programs on a GPU, on the CPU: a stand-in driver runs kernels on the memory it is given.

What a launch means is decided by the number of the function: 100 doubles, 101 adds one in place.
"""

from __future__ import annotations

import ctypes
import gc
import re
from unittest import mock

import pytest
import torch

from lampwork import _torch
from lampwork.codegen.host import host_source
from lampwork.codegen.launch_sequences import launch_sequences
from lampwork.codegen.triton.launch import launch_code
from lampwork.ir.artifact import Artifact
from lampwork.ir.loops import Buffer, Kernel, Parameter
from lampwork.ir.program import (
    DeviceKernel,
    Extern,
    FromBuffer,
    FromInput,
    Launch,
    NativeCode,
    Placement,
    Program,
    storages_of_results,
)
from lampwork.ir.region import Return
from lampwork.ir.template import TensorValue
from lampwork.runtime.cache.entries import _slim
from lampwork.runtime.launch import arenas, cuda, memory
from lampwork.runtime.launch.host import Host, Rerun
from lampwork.runtime.launch.native import LoadedCode
from tests.unit.runtime.handmade import LAUNCH_KERNEL, whole

COUNT = 8
DOUBLE = Kernel("double", (Parameter("b0", "float32", "read", COUNT), Parameter("b1", "float32", "write", COUNT)), ())
BUMP = Kernel("bump", (Parameter("b0", "float32", "readwrite", COUNT),), ())
DEVICE_KERNELS = (DeviceKernel("double", "", ("*fp32", "*fp32"), (0, 1)), DeviceKernel("bump", "", ("*fp32",), (0,)))


class Device:
    """`codes`: what the next launches answer; they do nothing unless it is 0. `stream` is the current one."""

    def __init__(self):
        self.codes, self.stream, self.capturing, self.launches = [], 7, False, 0
        self.function = LAUNCH_KERNEL(self._launch)

    def _launch(self, function, *rest):
        parameters = rest[8]
        code = self.codes.pop(0) if self.codes else 0
        if code:
            return code
        self.launches += 1
        pointers = [ctypes.c_void_p.from_address(parameters[i]).value for i in range(2 if function == 100 else 1)]
        assert all(pointer % 16 == 0 for pointer in pointers)
        arrays = [(ctypes.c_float * COUNT).from_address(pointer) for pointer in pointers]
        for i in range(COUNT):
            arrays[-1][i] = arrays[0][i] * 2 if function == 100 else arrays[0][i] + 1
        return 0

    def load(self, native):
        addresses = {"kernel:0": 100, "kernel:1": 101, "shared:0": 0, "shared:1": 0}
        addresses["cuda:cuLaunchKernel"] = ctypes.cast(self.function, ctypes.c_void_p).value
        return LoadedCode(native, addresses)

    def empty(self, shape, strides, dtype):
        return torch.empty_strided(shape, strides, dtype=dtype)


@pytest.fixture
def device():
    made = Device()
    workspace = memory.new_workspace
    with (
        mock.patch.object(cuda, "load", made.load),
        mock.patch.object(cuda, "check", lambda code, what: None),
        mock.patch.object(cuda, "error_text", lambda code: f"error {code}"),
        mock.patch.object(cuda, "driver", mock.MagicMock()),
        mock.patch.object(cuda, "_context", lambda index: 1),
        mock.patch.object(_torch, "cuda_stream_reader", lambda: lambda index: made.stream),
        mock.patch.object(_torch, "empty_cuda", lambda: made.empty),
        mock.patch.object(_torch, "is_cuda_capturing", lambda: made.capturing),
        mock.patch.object(arenas, "new_workspace", lambda size_bytes, place: workspace(size_bytes)),
        mock.patch.object(arenas, "_devices", {}),
        mock.patch.object(torch.cuda, "device_count", lambda: 1),
    ):
        yield made


def buffer(name):
    return Buffer(name, "float32", (COUNT,), (1,))


X, Y, OUT = buffer("x"), buffer("y"), buffer("out")
PLACES = {"x": Placement("input", 0), "y": Placement("workspace", 0, 0), "out": Placement("result", 0)}


def bound(steps, results, places=PLACES, weights=frozenset(), owns_inputs=False, **fields):
    program = Program(
        (DOUBLE, BUMP), {each.name: each for each in (X, Y, OUT)}, places, tuple(steps), ("x",), tuple(results),
        result_storages=("out",), workspace_bytes=64, device="cuda:0", **fields,
    )  # fmt: skip
    native = launch_code(program, launch_sequences(program), DEVICE_KERNELS)
    source = host_source(program, native, weights, owns_inputs)
    return Host(Artifact("handmade", (), (), (), (), Return(TensorValue(0)), program, native, source))


def doubled_twice(**fields):
    return bound([Launch(0, ("x", "y")), Launch(0, ("y", "out"))], [FromBuffer(whole(OUT))], **fields)


def test_a_sequence(device):
    x = torch.arange(8.0)
    assert torch.equal(doubled_twice().call([x])[0], 4 * x)
    assert device.launches == 2


OWN = {**PLACES, "y": Placement("extern"), "z": Placement("extern")}


def in_turns(freed_bytes):
    """x -> y -> z -> out, where y and z have memory of their own and each is given back after its last use."""
    z = buffer("z")
    steps = (Launch(0, ("x", "y")), Launch(0, ("y", "z")), Launch(0, ("z", "out")))
    made = Program(
        (DOUBLE,), {each.name: each for each in (X, Y, z, OUT)}, OWN, steps, ("x",), (FromBuffer(whole(OUT)),),
        result_storages=("out",), free_after={1: ("y",), 2: ("z",)}, device="cuda:0",
    )  # fmt: skip
    with mock.patch("lampwork.codegen.launch_sequences.FREED_BYTES", freed_bytes):
        native = launch_code(made, launch_sequences(made), DEVICE_KERNELS)
        source = host_source(made, native)
    return Host(Artifact("handmade", (), (), (), (), Return(TensorValue(0)), made, native, source)), source


@pytest.mark.parametrize("freed_bytes, runs", [(16, 2), (1 << 20, 1)])
def test_memory_of_their_own_is_made_when_it_is_needed_and_given_back(device, freed_bytes, runs):
    program, source = in_turns(freed_bytes)
    lines = [line.strip() for line in source.splitlines()]
    assert sum(line.startswith("answer = run") for line in lines) == runs
    starts = {"e0": "e0 = passing(", "r0": "r0 = empty("}
    made = {name: next(i for i, line in enumerate(lines) if line.startswith(start)) for name, start in starts.items()}
    if runs == 2:  # what y held is free before the result is made
        assert lines.index("del e0") < made["r0"]
    assert lines.index("del e0") < lines.index("return (r0, )") and "del e1" in lines
    for _ in range(2):
        assert torch.equal(program.call([torch.arange(8.0)])[0], 8 * torch.arange(8.0))
    assert device.launches == 6


@pytest.mark.parametrize("freed_bytes", [16, 1 << 20])
def test_a_capture_keeps_passing_memory_behind_the_workspace(device, freed_bytes):
    """What is there at once lies apart; nothing of it is a result's memory."""
    program, source = in_turns(freed_bytes)
    starts = [int(each) for each in re.findall(r"e\d = passing\((\d+),", source)]
    assert len(set(starts)) == 2 and program.captured_bytes >= max(starts) + 4 * COUNT
    there = torch.zeros(program.captured_bytes + 64, dtype=torch.uint8)
    with arenas.capturing_with(there):
        (result,) = program.call([torch.arange(8.0)])
    assert torch.equal(result, 8 * torch.arange(8.0))
    for start, factor in zip(starts, (2, 4)):
        assert torch.equal(there[start : start + 32].view(torch.float32), factor * torch.arange(8.0))


def test_results_lie_where_a_capture_has_memory_for_them(device):
    """A graph's other memory is not its results'."""
    program = bound([Launch(0, ("x", "y")), Launch(0, ("y", "out"))], [FromBuffer(whole(OUT))], owns_inputs=True)
    given = {0: torch.empty(8)}
    (memory,) = given.values()
    with arenas.capturing_with(torch.zeros(256, dtype=torch.uint8), results=given):
        (result,) = program.call([torch.arange(8.0)])
    assert result is memory and not given and torch.equal(memory, 4 * torch.arange(8.0))
    assert program.call([torch.ones(8)])[0] is not memory


def test_a_stored_program_knows_where_its_results_lie(device):
    """Nothing else of its buffers is stored; graphs are captured behind a warm start, too."""
    artifact = doubled_twice().artifact
    stored = _slim(artifact).program
    assert not stored.placements and storages_of_results(stored) == storages_of_results(artifact.program)
    ((whole_result,), (number,)) = storages_of_results(stored)
    assert (whole_result.shape, whole_result.strides, whole_result.dtype, number) == ((8,), (1,), "float32", 0)


def test_a_result_that_no_step_touches_is_made_all_the_same(device):
    program = bound([], [FromBuffer(whole(OUT))])
    assert program.call([torch.ones(8)])[0].shape == (8,)


def test_inputs_that_are_not_aligned_are_copied(device):
    base = torch.arange(20.0)
    x = base[1:9]
    assert x.data_ptr() % 16
    program = doubled_twice()
    assert torch.equal(program.call([x])[0], 4 * x)
    assert torch.equal(base, torch.arange(20.0))
    fine = base[4:12]
    assert torch.equal(program.call([fine])[0], 4 * fine)


def test_weights_that_are_not_aligned_are_copied_on_every_call(device):
    base = torch.arange(20.0)
    weight, generation = base[1:9], object()
    program = doubled_twice(weights=frozenset({0}))
    for _ in range(2):
        assert torch.equal(program.call([weight], generation)[0], 4 * weight)
        base += 1


def test_an_input_that_is_written_and_not_aligned_gets_what_was_written(device):
    """x += 1 by a kernel, an ATen call that reads x, x += 1 by another kernel."""
    base = torch.arange(40.0)
    x = base[21:29]
    steps = [Launch(1, ("x",)), Extern("aten::neg", (whole(X),), (), ("y",), "aten::neg.out"), Launch(1, ("x",))]
    program = bound(steps, [FromInput(0), FromBuffer(whole(Y))], written_inputs=(0,))
    before = base.clone()
    same, seen = program.call([x])
    assert same is x and torch.equal(seen, -(before[21:29] + 1))
    before[21:29] += 2
    assert torch.equal(base, before)


def test_what_lies_between_the_elements_of_an_input_is_not_written(device):
    base = torch.arange(40.0)
    x = base[1:17:2]  # the kernel adds one to 8 numbers in a row: four are elements of x
    bound([Launch(1, ("x",))], [FromInput(0)], written_inputs=(0,)).call([x])
    expected = torch.arange(40.0)
    expected[1:9:2] += 1
    assert torch.equal(base, expected)


def test_a_failed_launch_before_and_after_the_commit_point(device):
    program = doubled_twice()
    device.codes = [0, 719]
    with pytest.raises(Rerun) as failure:
        program.call([torch.ones(8)])
    assert "kernel 1" in str(failure.value.__cause__) and "error 719" in str(failure.value.__cause__)
    assert torch.equal(program.call([torch.ones(8)])[0], torch.full((8,), 4.0))
    writing = bound([Launch(1, ("x",))], [FromInput(0)], written_inputs=(0,))
    device.codes = [700]
    with pytest.raises(RuntimeError, match="error 700"):
        writing.call([torch.ones(8)])


def test_a_thread_without_a_context_gets_one(device):
    device.codes = [201]
    x = torch.arange(8.0)
    assert torch.equal(doubled_twice().call([x])[0], 4 * x)
    device.codes = [0, 201]
    with pytest.raises(Rerun):
        doubled_twice().call([x])


def test_workspaces_belong_to_streams(device):
    program = doubled_twice()
    streams, x = program.pool._streams, torch.ones(8)
    for stream in (7, 7, 8, 7):
        device.stream = stream
        assert torch.equal(program.call([x])[0], 4 * x)
    (seven,), (eight,) = streams[7], streams[8]
    assert seven is not eight and seven.memory.data_ptr() != eight.memory.data_ptr()
    device.stream, device.capturing = 7, True
    with mock.patch.object(program.pool, "_make", mock.Mock(side_effect=program.pool._make)) as make:
        for _ in range(2):
            assert torch.equal(program.call([x])[0], 4 * x)
        assert make.call_count == 2
    assert streams[7] == [seven] and len(seven.leases) == 1
    device.capturing = False
    program.release()
    assert not streams[7]
    assert torch.equal(program.call([x])[0], 4 * x)


def test_programs_share_a_workspace(device):
    """The larger one replaces it; each has a lease of its own on it; a program that is gone leaves none behind."""
    x = torch.ones(8)
    first, second = doubled_twice(), doubled_twice()
    second.pool._size_bytes = 1 << 12
    for _ in range(2):
        for program in (first, second):
            assert torch.equal(program.call([x])[0], 4 * x)
    (arena,) = first.pool._streams[7]
    assert arena.memory.numel() == (1 << 12) + 64 and len(arena.leases) == 2
    leases = list(arena.leases.values())
    assert torch.equal(first.call([x])[0], 4 * x) and list(arena.leases.values()) == leases
    del second, program
    gc.collect()
    assert len(arena.leases) == 1 and first.pool._streams[7] == [arena]
    streams = first.pool._streams
    del first
    gc.collect()
    assert not arena.leases and not streams[7]


def test_calls_at_the_same_time_have_workspaces_of_their_own(device):
    program = doubled_twice()
    pool = program.pool
    one = pool.make(7)
    with pytest.raises(LookupError):
        pool.pop(7)
    two = pool.make(7)
    assert one.workspace.data_ptr() != two.workspace.data_ptr()
    pool.give(one)
    pool.give(two)
    assert {pool.pop(7), pool.pop(7)} == {one, two}


def test_a_full_device_is_left_to_eager_whose_error_is_torchs(device):
    program = doubled_twice()
    full = torch.OutOfMemoryError("CUDA out of memory")
    with mock.patch.object(arenas, "new_workspace", side_effect=full), pytest.raises(Rerun) as caught:
        program.call([torch.ones(8)])
    assert caught.value.__cause__ is full
    assert torch.equal(program.call([torch.ones(8)])[0], torch.full((8,), 4.0))


def test_another_current_device_is_switched():
    switched = []

    class Switch:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            switched.append(self.index)

        def __exit__(self, *error):
            switched.append("back")

    call = mock.Mock(return_value=())
    with (
        mock.patch.object(torch.cuda, "device_count", lambda: 2),
        mock.patch.object(_torch, "current_cuda_device", lambda: 1),
        mock.patch.object(torch.cuda, "device", Switch),
    ):
        cuda.on_device(call, "cuda:1")([])
        assert not switched
        cuda.on_device(call, "cuda:0")([])
    assert switched == [0, "back"]


def test_code_for_another_device_is_refused():
    native = NativeCode(b"", (), (), (), (), device="cuda:0", kernels=DEVICE_KERNELS)
    with pytest.raises(Exception, match="no device cuda:0"):
        cuda.load(native)
    with (
        mock.patch.object(torch.cuda, "is_available", lambda: True),
        mock.patch.object(torch.cuda, "device_count", lambda: 1),
        mock.patch.object(torch.cuda, "get_device_capability", lambda index: (8, 0)),
        pytest.raises(Exception, match="sm_80, the code is for sm_90"),
    ):
        cuda.load(native)
