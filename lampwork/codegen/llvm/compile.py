"""LLVM IR text to object code. The only module that calls llvmlite to compile."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Thread
from typing import Any

import llvmlite.binding as llvm

from lampwork.config import environment
from lampwork.errors import CompileError
from lampwork.ir.target import Target

#: The processor whose features each level may use: the x86-64 psABI levels.
PROCESSOR = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "sse4": "x86-64-v2"}
TRIPLE = "x86_64-unknown-linux-gnu"


@lru_cache(8)
def _target_machine(name: str, level: int) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=PROCESSOR[name], opt=level, reloc="pic", codemodel="small")


#: The generator shares common subexpressions and hoists invariants itself, so LLVM is only asked to put accumulators
#: into registers. Neither more passes (instcombine) nor level 2 made any of our benchmark kernels faster, while they
#: cost 5 to 20% more time (measured on a Zen 4 machine, LLVM 22).
PASSES = ("sroa",)
LEVEL = 1


#: LLVM ends the process where it gets no memory. The address space grew by 64 MiB for a first, small text, and by 202
#: bytes a character for one of 870 kB (LLVM 22 on x86-64; of these 22 were touched).
ROOM_BYTES, ROOM_PER_CHARACTER = 64 << 20, 210


def _check_room(text: str) -> None:
    """Raises MemoryError where the address space has no room for what LLVM may need. Nothing is touched (15 us)."""
    size = ROOM_BYTES + ROOM_PER_CHARACTER * len(text)
    try:
        mmap.mmap(-1, size).close()
    except (OSError, ValueError) as error:
        raise MemoryError(f"no room for LLVM to compile in ({size >> 20} MiB): {error}") from error


#: Object code of this process by what it was made of, the newest last: equal blocks of a model, and programs that are
#: compiled again for other inputs, have kernels in common. And the bytes of it that are kept at most.
_made: dict[tuple[bytes, str], bytes] = {}
KEPT_BYTES = 2 << 20


def object_code(text: str, target: Target) -> bytes:
    """The relocatable object of LLVM assembly `text`. Raises `CompileError` when LLVM refuses the text."""
    return emitting(text, target)()


def emitting(text: str, target: Target) -> Callable[[], bytes]:
    """As `object_code`, by a thread: what is returned waits for it. LLVM takes as long as capture to emit code, and
    holds no lock of the interpreter meanwhile. Raises at once where LLVM refuses the text."""
    key = hashlib.sha256(text.encode()).digest(), target.name
    known = _made.pop(key, None)
    if known is not None:
        _keep(key, known)
        return lambda: known
    emission = _Emission(*_optimized(text, target))
    emission.begin()

    def code() -> bytes:
        made = emission.code()
        _keep(key, made)
        return made

    return code


def _keep(key: tuple[bytes, str], code: bytes) -> None:
    _made[key] = code
    while sum(map(len, list(_made.values()))) > KEPT_BYTES:
        _made.pop(next(iter(_made)), None)


def _optimized(text: str, target: Target) -> tuple[Any, Any]:
    """The module of `text` after all passes, and what emits its code."""
    _check_room(text)
    machine = _target_machine(target.name, LEVEL)
    with _refusals():
        module = llvm.parse_assembly(text)
        if environment.verify:
            module.verify()
        with llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(1)) as builder:
            manager = llvm.create_new_module_pass_manager()
            for name in PASSES:
                getattr(manager, f"add_{name}_pass")()
            manager.run(module, builder)
    return module, machine


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise CompileError("generate", f"LLVM refused the code: {error}") from error


class _Emission(Thread):
    """Code emission for one module, beside the thread that goes on with the compile and waits at its end. A fork waits
    for that one, or for LLVM's lock (`forks.py`)."""

    def __init__(self, module: Any, machine: Any) -> None:
        super().__init__(name="lampwork-emits-code", daemon=True)
        self._module, self._machine = module, machine
        self._code: bytes | BaseException | None = None

    def begin(self) -> None:
        try:
            self.start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self.run()

    def run(self) -> None:
        try:
            with _refusals():
                self._code = bytes(self._machine.emit_object(self._module))
        except BaseException as error:  # for the thread that waits
            self._code = error
        finally:
            self._module = None

    def code(self) -> bytes:
        if self._code is None:
            self.join()
        if isinstance(self._code, bytes):
            return self._code
        raise self._code or CompileError("generate", "the process was forked while LLVM emitted code")
