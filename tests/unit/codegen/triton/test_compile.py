"""Triton text to machine code: what is compiled, how often, and where."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

from lampwork.codegen.triton import compile as compiling
from lampwork.codegen.triton import pool, stored, worker
from lampwork.config import use_cache_dir
from lampwork.errors import CompileError
from lampwork.ir.program import DeviceKernel

pytestmark = pytest.mark.skipif(not compiling.available(), reason="triton is not installed")

TEXT = """import triton
import triton.language as tl
@triton.jit
def scale(b0, b1, s0, XBLOCK: tl.constexpr):
    x = tl.program_id(0).to(tl.int64) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(b1 + x, tl.load(b0 + x, x < s0) * 3.0, x < s0)
"""
KERNEL = DeviceKernel("scale", TEXT, ("*fp32", "*fp32", "i64"), (0, 1), (("XBLOCK", 1024),))


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    environment = dataclasses.replace(compiling.environment, cache=True, compile_workers=2)
    monkeypatch.setattr(compiling, "environment", environment)
    monkeypatch.setattr(compiling, "_known", {})
    # The interpreter, which other tests run kernels in, takes the place of the compiler.
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with use_cache_dir(str(tmp_path)):
        yield
    pool.stop()
    pool._failed = False


def jobs_seen(monkeypatch):
    """The jobs of each call of `compile_all`, as they come."""
    seen = []
    compile_all = pool.compile_all
    monkeypatch.setattr(pool, "compile_all", lambda jobs, workers: seen.append(jobs) or compile_all(jobs, workers))
    return seen


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_machine_code(arch):
    (made,) = compiling.compile_kernels([dataclasses.replace(KERNEL, arch=arch)])
    assert made.binary[:4] == b"\x7fELF" and made.entry == "scale" and made.num_warps == 4
    assert made.hidden == 2 and made.shared_bytes == 0
    assert made.source == KERNEL.source


def test_equal_kernels_are_compiled_once(monkeypatch):
    seen = jobs_seen(monkeypatch)
    other = dataclasses.replace(KERNEL, num_warps=8)
    renamed = dataclasses.replace(KERNEL, source="# from another line\n" + KERNEL.source)
    made = compiling.compile_kernels([KERNEL, other, KERNEL, renamed])
    assert [len(jobs) for jobs in seen] == [2]
    assert [each.num_warps for each in made] == [4, 8, 4, 4] and made[0].binary == made[2].binary == made[3].binary
    compiling.compile_kernels([KERNEL])
    assert len(seen) == 1
    compiling._known.clear()
    assert compiling.compile_kernels([KERNEL, other]) == (made[0], made[1])
    assert len(seen) == 1, "found on disk"


def test_what_decides_the_machine_code():
    changes = [
        {"signature": ("*fp32", "*fp32", "i32")}, {"aligned": (0,)}, {"constants": (("XBLOCK", 512),)}, {"num_warps": 2},
        {"num_stages": 3}, {"arch": "sm_80"}, {"source": TEXT.replace("3.0", "4.0")},
    ]  # fmt: skip
    digests = {compiling.digest(dataclasses.replace(KERNEL, **change)) for change in [{}, *changes]}
    assert len(digests) == len(changes) + 1
    assert compiling.digest(dataclasses.replace(KERNEL, grid=(7,))) == compiling.digest(KERNEL)


def test_nothing_is_contracted_or_approximate():
    """`numerics="eager"` takes sums, products, quotients and roots for those of IEEE-754."""
    text = TEXT.replace("tl.load(b0 + x, x < s0) * 3.0,", "tl.sqrt_rn(tl.div_rn(y * y + y, y + 2.0)),")
    text = text.replace("    tl.store", "    y = tl.load(b0 + x, x < s0)\n    tl.store")
    ptx = worker.compile_text({name: getattr(KERNEL, name) for name in compiling._JOB} | {"source": text})["ptx"]
    assert "mul.rn.f32" in ptx and "add.rn.f32" in ptx and "fma" not in ptx
    assert "div.rn.f32" in ptx and "sqrt.rn.f32" in ptx and ".ftz" not in ptx


def test_alignment_widens_loads():
    text = TEXT.replace(", x < s0", "")
    job = {name: getattr(KERNEL, name) for name in compiling._JOB} | {"source": text}
    plain, wide = (worker.compile_text({**job, "aligned": aligned})["ptx"] for aligned in ((), (0, 1)))
    assert ".v4" in wide and ".v4" not in plain


def test_damaged_files_are_not_used(monkeypatch, tmp_path):
    seen = jobs_seen(monkeypatch)
    (made,) = compiling.compile_kernels([KERNEL])
    compiling._known.clear()
    (path,) = (tmp_path / "v1" / "kernels").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert compiling.compile_kernels([KERNEL]) == (made,) and len(seen) == 2


def test_files_that_others_could_have_written_are_not_used(monkeypatch, tmp_path):
    seen = jobs_seen(monkeypatch)
    (made,) = compiling.compile_kernels([KERNEL])
    compiling._known.clear()
    (tmp_path / "v1").chmod(0o777)
    assert compiling.compile_kernels([KERNEL]) == (made,) and len(seen) == 2


@pytest.mark.parametrize("damage", [{"hidden": "2"}, {"entry": None}, {"more": 1}])
def test_stored_answers_are_verified(damage):
    answer = {"binary": b"\x7fELF\n", "entry": "f", "num_warps": 4, "shared_bytes": 0, "hidden": 2}
    assert stored.answer_of(b"".join(worker.to_bytes(answer))) == answer
    line = json.dumps({name: value for name, value in {**answer, **damage}.items() if name != "binary"})
    assert stored.answer_of(line.encode() + b"\nbinary") is None
    assert stored.answer_of(pickle.dumps(answer)) is None


def test_text_that_triton_refuses():
    bad = dataclasses.replace(KERNEL, source=TEXT.replace("* 3.0", "* nonsense"))
    with pytest.raises(CompileError, match="(?s)Triton refused scale.*nonsense"):
        compiling.compile_kernels([bad])
    (made,) = compiling.compile_kernels([KERNEL])
    assert made.binary


def test_threads_where_processes_cannot_be_had(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (made,) = compiling.compile_kernels([KERNEL])
    assert made.binary and pool._failed


def test_processes_that_died_are_started_again():
    compiling.compile_kernels([KERNEL])
    first = pool._pool
    os.kill(first._process.pid, signal.SIGKILL)
    first._process.wait()
    (made,) = compiling.compile_kernels([dataclasses.replace(KERNEL, num_warps=2)])
    assert made.binary and pool._pool is not first


def test_processes_end_with_the_program():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from lampwork.codegen.triton import pool\n"
        "pool.start(2, 'sm_90'); p = pool._pool\n"
        "while not p.ready: p._socket.setblocking(True); p._receive({}, {})\n"
        "print(p._process.pid, flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60)
    server = int(ended.stdout)
    until = time.monotonic() + 10
    while os.path.exists(f"/proc/{server}/cmdline") and time.monotonic() < until:
        with open(f"/proc/{server}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                break
        time.sleep(0.05)
    assert time.monotonic() < until


def test_arguments_that_triton_appends():
    text = ".visible .entry scale(\n .param .u64 .ptr a,\n .param .u64 b,\n .param .u64 .ptr c,\n .param .u64 .ptr d\n)"
    assert worker.hidden_arguments(text, "scale", 2) == 2
    with pytest.raises(worker.Refused):
        worker.hidden_arguments(text, "scale", 5)
    with pytest.raises(worker.Refused):
        worker.hidden_arguments(text.replace(".u64 .ptr d", ".b32 d"), "scale", 2)
