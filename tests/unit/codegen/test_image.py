"""Images: linked without loose ends, loaded without LLVM, refused where they cannot run."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from dataclasses import replace

import llvmlite.binding
import pytest
import torch

from lampwork.codegen.llvm import compile as compile_module
from lampwork.codegen.llvm.compile import object_code
from lampwork.codegen.llvm.link import link
from lampwork.codegen.target import make_target
from lampwork.errors import CompileError, LampworkError
from lampwork.ir.loops import Axis, Kernel, Load, Loop, Store
from lampwork.runtime.launch.native import LoadedCode
from tests.processes import run_python

from .helpers import TARGETS, compiled, elementwise, execute, f32, parameter, run, symbol

HEADER = 'target triple = "x86_64-unknown-linux-gnu"\n'


def test_unresolved_symbols_are_refused():
    text = HEADER + "declare void @somewhere()\ndefine void @run_0() {\n  call void @somewhere()\n  ret void\n}\n"
    with pytest.raises(CompileError, match="somewhere"):
        link(object_code(text, make_target("sse4", 1)))


def test_bad_assembly_is_a_compile_error():
    with pytest.raises(CompileError, match="LLVM refused"):
        object_code("define nonsense", make_target("sse4", 1))


def test_constants_and_calls_between_functions_are_linked():
    text = HEADER + (
        "define internal double @half(double %x) noinline {\n  %y = fmul double %x, 0.5\n  ret double %y\n}\n"
        "define double @run_0(double %x) {\n  %y = call double @half(double %x)\n  %z = fadd double %y, 3.25\n  ret double %z\n}\n"
    )
    from lampwork.runtime.launch.native import ExecutableMemory

    image, entries = link(object_code(text, make_target("sse4", 1)))
    memory = ExecutableMemory(image)
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(memory.address + entries["run_0"])
    assert function(8.0) == 7.25


def test_missing_features_are_named():
    native = replace(compiled(elementwise("neg", ["float32"], "float32", 8), "sse4"), features=("sse4.2", "imaginary"))
    with pytest.raises(LampworkError, match="imaginary"):
        LoadedCode(native)


def test_missing_externals_are_named():
    native = compiled(elementwise("neg", ["float32"], "float32", 8), "sse4")
    with pytest.raises(LampworkError, match="no_such_function"):
        LoadedCode(replace(native, externals=(*native.externals, "torch_cpu:no_such_function")))


def test_both_entries_agree_and_keep_the_code_alive():
    native = compiled(elementwise("neg", ["float32"], "float32", 8), TARGETS[0])
    for calls in (native.calls, ()):
        source, result = torch.arange(8.0), torch.zeros(8)
        pointers = (ctypes.c_void_p * 2)(source.data_ptr(), result.data_ptr())
        call = LoadedCode(replace(native, calls=calls)).runs[0]
        gc.collect()
        call(ctypes.addressof(pointers), 0, 1)
        assert torch.equal(result, -source)


def test_loading_needs_no_compiler(tmp_path):
    """A process that has the code as data runs it without llvmlite or any stage of the compiler."""
    import pickle

    native = compiled(elementwise("exp", ["float32"], "float32", 33), TARGETS[-1])
    (tmp_path / "code").write_bytes(pickle.dumps(native))
    script = (
        "import ctypes, pickle, sys, torch\n"
        "from lampwork.runtime.launch.native import LoadedCode\n"
        "code = LoadedCode(pickle.load(open(sys.argv[1], 'rb')))\n"
        "x, y = torch.randn(33), torch.zeros(33)\n"
        "pointers = (ctypes.c_void_p * 2)(x.data_ptr(), y.data_ptr())\n"
        "code.runs[0](ctypes.addressof(pointers), 0, 1)\n"
        "torch.testing.assert_close(y, x.exp())\n"
        "assert not any(name.startswith(('llvmlite', 'lampwork.codegen', 'lampwork.schedule')) for name in sys.modules)\n"
    )
    done = run_python(["-c", script, tmp_path / "code"], env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.returncode == 0, done.stderr


def test_one_buffer_given_twice_is_written_in_order():
    """A launch may pass the same memory to two parameters; then nothing is assumed of either."""
    from lampwork.codegen.generate import generate
    from lampwork.config import Settings
    from lampwork.ir.loops import Buffer
    from lampwork.ir.program import Launch, Placement, Program

    count = 100
    i = symbol("i0", count)
    first = Load("b0", (0,), "float32")
    body = (Loop(Axis("i0", count), (Store("b1", (i,), f32("add", Load("b0", (i,), "float32"), first)),), "serial"),)
    kernel = Kernel("twice", (parameter("b0", "float32", count), parameter("b1", "float32", count, "write")), body)
    buffer = Buffer("x", "float32", (count,), (1,), "input")
    program = Program((kernel,), {"x": buffer}, {"x": Placement("input", 0)}, (Launch(0, ("x", "x")),), ("x",), ())
    x = torch.ones(count)
    execute(generate(program, Settings(), make_target(TARGETS[-1], 1)), {"x": x})
    # The first element doubles, and every later one then reads the doubled value.
    assert x[0] == 2 and torch.equal(x[1:], torch.full((count - 1,), 3.0))


def test_thread_counts_do_not_change_results():
    kernel = elementwise("exp", ["float32"], "float32", 1000)
    results = []
    for threads in (1, 2, 3):
        result = torch.zeros(1000)
        run(kernel, {"b0": torch.linspace(-5, 5, 1000), "b1": result}, TARGETS[-1], threads)
        results.append(result)
    assert all(torch.equal(result, results[0]) for result in results)


def test_code_is_emitted_beside_what_goes_on(monkeypatch):
    """Machine code is waited for where its bytes are read, and what goes wrong is raised there, each time."""
    go_on, emitted = threading.Event(), compile_module._Emission.run

    def late(self):
        assert go_on.wait(60)
        emitted(self)

    monkeypatch.setattr(compile_module._Emission, "run", late)
    native = compiled(elementwise("neg", ["float32"], "float32", 24), "sse4")
    assert native.buffer_order and "image" not in vars(native)
    go_on.set()
    assert replace(native, source="").image == native.image and len(native.runs) == len(native.calls) == 1
    assert not any(thread.name == "lampwork-emits-code" for thread in threading.enumerate())

    def refused(self, module):
        raise RuntimeError("no registers")

    monkeypatch.setattr(llvmlite.binding.TargetMachine, "emit_object", refused)
    native = compiled(elementwise("abs", ["float32"], "float32", 24), "sse4")
    for _ in range(2):
        with pytest.raises(CompileError, match="no registers"):
            native.image


def test_code_is_emitted_where_no_thread_can_be_started(monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(compile_module._Emission, "start", refused)
    native = compiled(elementwise("neg", ["float32"], "float32", 40), "sse4")
    assert native.image and not hasattr(native, "no_such_field")
