"""One kernel's Triton text to machine code, in the process that calls it; and a program that does only that.

Imports nothing of Lampwork but a file beside it, and no torch, so that processes of compilers start in the time
`import triton` takes. Run as a program (`worker.py SOCKET WORKERS ARCH`) it serves the other end of a socket: see
`serve`, and `pool.py`.

A job is a dict with the fields of `DeviceKernel` that compilation reads; the answer has those that it fills in.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import itertools
import json
import linecache
import os
import re
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

#: Null pointers that a release appends to a kernel's arguments: global_scratch since 3.3, profile_scratch since 3.5.
#: The PTX text is counted for every release; this table says what we know, and a difference is an error.
HIDDEN_ARGUMENTS = {(3, 3): 1, (3, 4): 1, (3, 5): 2, (3, 6): 2, (3, 9): 2}
#: Sizes of the memory that these pointers lead to. Our kernels use no feature that needs any.
_SCRATCH = ("global_scratch_size", "profile_scratch_size")
#: The largest message: what a socket takes by default, with room for the kernel's bookkeeping.
MESSAGE_BYTES = 96 << 10
#: A process of compilers that had nothing to do for so long ends.
IDLE_SECONDS = 120.0
#: The number of the message that says that the compilers are ready.
READY = -1

#: What the answer to a job holds beside the machine code's text, with types.
ANSWER = (("entry", str), ("num_warps", int), ("shared_bytes", int), ("hidden", int), ("binary", bytes))

_numbers = itertools.count()


def to_bytes(answer: dict[str, Any]) -> tuple[bytes, bytes]:
    """An answer as a line of JSON and the machine code."""
    line = json.dumps({name: answer[name] for name, kind in ANSWER if kind is not bytes})
    return line.encode() + b"\n", answer["binary"]


def from_bytes(data: bytes) -> dict[str, object]:
    """The answer of its bytes."""
    line, _, binary = data.partition(b"\n")
    return {**json.loads(line), "binary": binary}


class Refused(Exception):
    """Triton compiled the kernel to something that our launcher cannot start."""


def compile_text(job: dict[str, Any]) -> dict[str, object]:
    """The machine code of one kernel: `binary`, `entry`, `num_warps`, `shared_bytes`, `hidden`, and the text `ptx`.

    Raises what Triton raises for text it refuses, and `Refused`.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_source

    function = _function(job["source"], job["name"])
    names = list(function.arg_names)
    constants = dict(job["constants"])
    plain = [name for name in names if name not in constants]
    if len(plain) != len(job["signature"]):
        raise Refused(f"{job['name']} takes {len(plain)} arguments, its signature has {len(job['signature'])}")
    types = dict(zip(plain, job["signature"]))
    source = ASTSource(
        function,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(plain[i]),): [["tt.divisibility", 16]] for i in job["aligned"]},
    )
    options = {
        "num_warps": job["num_warps"],
        "num_stages": job["num_stages"],
        # Each operation is rounded as eager rounds it: no product is contracted with the sum that takes it, and the
        # vendor's functions keep denormal numbers.
        "enable_fp_fusion": False,
        "enable_reflect_ftz": False,
        # Triton leaves assertions out unless it is debugging, and adds some of its own where it is.
        "debug": "tl.device_assert(" in job["source"],
        "sanitize_overflow": False,
    }
    target = GPUTarget("cuda", int(job["arch"].removeprefix("sm_")), 32)
    with _assembled_rightly():
        compiled = compile_source(source, target=target, options=options)
    metadata, ptx = compiled.metadata, compiled.asm["ptx"]
    if any(getattr(metadata, name, 0) for name in _SCRATCH):
        raise Refused("the kernel needs scratch memory, which the launcher does not provide")
    if "wgmma" in ptx:
        assembled = _beside("assembled")
        if registers := assembled.unwritten(assembled.disassembled(compiled.asm["cubin"])):
            raise Refused(f"the assembler reads uniform registers {sorted(registers)}, which nothing writes")
    return {
        "binary": compiled.asm["cubin"],
        "entry": metadata.name,
        "num_warps": metadata.num_warps,
        "shared_bytes": metadata.shared,
        "hidden": hidden_arguments(ptx, metadata.name, len(plain)),
        "ptx": ptx,
    }


#: Sums of packed 16-bit numbers. LLVM narrows whole numbers that are known to be small (indices of small tensors) and
#: packs pairs of them, the upper half undefined where there is but one. Of `{x, undefined} + {2, 0}` CUDA 12.8's
#: assembler makes `{x, undefined} + 0` for sm_90: windows of pools began an element too early
#: (tests/regress/test_packed_sums.py).
_PACKED = re.compile(r"\b(add|sub)\.[su]16x2\s+(%\w+),\s*(%?\w+),\s*(%?\w+);")


def unpacked(ptx: str) -> str:
    """`ptx` with a sum of each half in place of sums and differences of packed 16-bit numbers."""

    def halves(found: re.Match[str]) -> str:
        operation, result, left, right = found.groups()
        return (
            "{ .reg .b32 a, b; .reg .b16 a0, a1, b0, b1; "
            f"mov.b32 a, {left}; mov.b32 b, {right}; mov.b32 {{a0, a1}}, a; mov.b32 {{b0, b1}}, b; "
            f"{operation}.s16 a0, a0, b0; {operation}.s16 a1, a1, b1; mov.b32 {result}, {{a0, a1}}; }}"
        )

    return _PACKED.sub(halves, ptx)


#: Choices of which one side is -0. Of `x != 0 ? -0 : 1` the same assembler makes a comparison that gives 0 or 1.
_CHOICE = re.compile(r"\bselp\.f(32|64)(\s+%\w+,\s*)([^,]+),(\s*)([^,]+),(\s*%\w+;)")
_NEGATIVE_ZERO = ("0f80000000", "0d8000000000000000")


def chosen_as_bits(ptx: str) -> str:
    """`ptx` with choices between numbers of which one is -0 as choices between their bits."""

    def rewritten(found: re.Match[str]) -> str:
        bits, result, left, gap, right, rest = found.groups()
        if left not in _NEGATIVE_ZERO and right not in _NEGATIVE_ZERO:
            return found[0]
        left, right = (re.sub("^0[fd]", "0x", each) for each in (left, right))
        return f"selp.b{bits}{result}{left},{gap}{right},{rest}"

    return _CHOICE.sub(rewritten, ptx)


#: Sums of 64 bits with a constant that has some in the upper half: with descriptors of matrices (`assembled.py`).
_WIDE_SUM = re.compile(r"\badd\.s64\s+(%\w+),\s*(%\w+),\s*(-?\d{10,});")


def added_by_halves(ptx: str) -> str:
    """`ptx` with two sums of 32 bits in place of one of 64 with a wide constant."""

    def halves(found: re.Match[str]) -> str:
        result, left, number = found[1], found[2], int(found[3]) % (1 << 64)
        return (
            f"{{ .reg .b32 a, b; mov.b64 {{a, b}}, {left}; add.cc.u32 a, a, {number % (1 << 32)}; "
            f"addc.u32 b, b, {number >> 32}; mov.b64 {result}, {{a, b}}; }}"
        )

    return _WIDE_SUM.sub(halves, ptx)


#: Absolute values of integers, which LLVM makes of any choice between a number and its negative. The same assembler
#: assumes that the result is never negative and drops comparisons of it, but the smallest integer stays negative.
_ABSOLUTE = re.compile(r"\babs\.s(16|32|64)\s+(%\w+),\s*(-?%?\w+);")


def absolute_by_sign(ptx: str) -> str:
    """`ptx` with `(x ^ s) - s`, where s is x's sign in each bit, in place of absolute values of integers."""

    def rewritten(found: re.Match[str]) -> str:
        bits, result, x = found.groups()
        return (
            f"{{ .reg .b{bits} s, a; shr.s{bits} s, {x}, {int(bits) - 1}; xor.b{bits} a, {x}, s; "
            f"sub.s{bits} {result}, a, s; }}"
        )

    return _ABSOLUTE.sub(rewritten, ptx)


def _assembled_as_written(ptx: str) -> str:
    """`ptx` with other instructions in place of those that CUDA 12.8's assembler gets wrong."""
    return absolute_by_sign(added_by_halves(chosen_as_bits(unpacked(ptx))))


@contextlib.contextmanager
def _assembled_rightly() -> Iterator[None]:
    """While active, what Triton hands to the assembler has none of the instructions that it gets wrong."""
    from triton.backends.nvidia.compiler import CUDABackend

    make_ptx = CUDABackend.make_ptx
    CUDABackend.make_ptx = lambda self, *args, **kwargs: _assembled_as_written(make_ptx(self, *args, **kwargs))
    try:
        yield
    finally:
        CUDABackend.make_ptx = make_ptx


@functools.cache
def _beside(name: str) -> Any:
    """The module in the file beside this one, which may be run as a program and be part of no package."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(os.path.dirname(__file__), f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _function(text: str, name: str) -> Any:
    """The `triton.jit` function `name` of module `text`. Triton looks the text up in `linecache`."""
    place = f"<lampwork {name} {next(_numbers)}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    namespace: dict[str, Any] = {"__name__": place}
    try:
        exec(compile(text, place, "exec"), namespace)
    finally:
        linecache.cache.pop(place, None)
    return namespace[name]


def hidden_arguments(ptx: str, entry: str, declared: int) -> int:
    """How many null pointers follow the `declared` arguments of `entry`. Raises `Refused` where others follow."""
    head = re.search(rf"\.visible\s+\.entry\s+{re.escape(entry)}\s*\(([^)]*)\)", ptx)
    parameters = [] if head is None else re.findall(r"\.param\s+\.(\w+)", head.group(1))
    hidden = parameters[declared:]
    if len(parameters) < declared or any(type not in ("u64", "b64") for type in hidden):
        raise Refused(f"{entry} takes the parameters {parameters}, of which {declared} were declared")
    import triton

    major, minor = triton.__version__.split(".")[:2]
    known = HIDDEN_ARGUMENTS.get((int(major), int(minor)))
    if known is not None and known != len(hidden):
        raise Refused(f"Triton {triton.__version__} appends {len(hidden)} arguments; {known} were expected")
    return len(hidden)


# The program ----------------------------------------------------------------------------------------------------------

_WARM_UP = """
import triton
import triton.language as tl
@triton.jit
def warm_up(b0, n):
    x = tl.arange(0, 128)
    tl.store(b0 + x, tl.load(b0 + x, x < n) + 1, x < n)
"""


def serve(connection: socket.socket, workers: int, arch: str) -> None:
    """Compile what arrives on `connection`, in `workers` processes, until the other end is closed or nothing arrives.

    One process loads Triton and compiles a kernel; the workers are forked from it, and each takes the next message. A
    job is one message [number, job], its answer one message [number, path of the file with the answer, error text],
    both JSON.
    """
    parent = os.getppid()
    with tempfile.TemporaryDirectory(prefix="lampwork-triton-") as folder:
        _leave_no_cache(folder)
        compile_text({
            "name": "warm_up", "source": _WARM_UP, "signature": ("*fp32", "i64"), "aligned": (0,), "constants": (),
            "num_warps": 4, "num_stages": 1, "arch": arch,
        })  # fmt: skip
        busy, done = os.pipe()
        children = []
        for _ in range(workers):
            child = os.fork()
            if not child:
                _work(connection, folder, done)
            children.append(child)
        try:
            connection.send(json.dumps((READY, "", "")).encode())
            _watch(connection, busy, parent)
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)  # nobody has waited for it: the number is still its own


def _leave_no_cache(folder: str) -> None:
    """Triton's own cache goes to `folder`, and the digest of all of Triton, 0.3 s, is not computed for it."""
    os.environ["TRITON_CACHE_DIR"] = folder
    os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "1")  # half of the machine code's size
    os.environ.setdefault("TRITON_BACKENDS_IN_TREE", "1")  # no search through all that is installed
    from triton.compiler import compiler

    if hasattr(compiler, "get_cache_key"):
        compiler.get_cache_key = lambda source, backend, options, env_vars: f"{source.hash()} {options.hash()}"


def _watch(connection: socket.socket, busy: int, parent: int) -> None:
    """Returns when the other end is gone, a worker has died, or none has finished anything for `IDLE_SECONDS`."""
    poll = select.poll()
    poll.register(connection, 0)  # hang-up alone
    poll.register(busy, select.POLLIN)
    idle = 0.0
    while idle < IDLE_SECONDS and os.getppid() == parent:
        events = dict(poll.poll(1000))
        if connection.fileno() in events:
            return
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        if busy in events:
            os.read(busy, 1 << 12)
            idle = 0.0
        else:
            idle += 1.0


def _work(connection: socket.socket, folder: str, done: int) -> None:
    """One worker: never returns."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the process that forked it
    while True:
        message = connection.recv(MESSAGE_BYTES)
        if not message:
            os._exit(0)
        number, job = json.loads(message)
        path, error = "", ""
        try:
            answer = compile_text(job)
            handle, path = tempfile.mkstemp(dir=folder, prefix="answer-")
            with os.fdopen(handle, "wb") as file:
                file.writelines(to_bytes(answer))
        except BaseException as failure:
            error = f"{type(failure).__name__}: {failure}"[:8192]
        os.write(done, b".")
        try:
            connection.send(json.dumps((number, path, error)).encode())
        except OSError:
            os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3])
