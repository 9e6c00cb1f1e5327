"""Switches of libraries that a program sets while it runs, as `torch.backends.cudnn.flags` and its kin do.

Most operators are chosen under the switches that are in force where the program calls them, so the graph names what
eager runs there, under whatever switches the graph runs. What is left set is set after the graph. Others read the
switches while they run: where the program calls one of those under switches of its own, they are set natively, between
regions (`LeftToEager`).

How exactly float32 is computed is another matter: such a setting is inherited by finer ones, and what was set cannot be
told from what was inherited, so it could not be put back. A program may set what is in force already, as a context
does that is given nothing else; that is done after the graph, too.
"""

from __future__ import annotations

from typing import Any

from lampwork import _torch
from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break, LeftToEager

#: Parts of the names of operators that read cuDNN's switches when they run.
_READ_WHEN_RUN = ("conv", "cudnn", "miopen", "batch_norm")
_REMEDY = "Set it once, outside the compiled function."


def _set_switch(world: Any, writer: Any, value: Any) -> None:
    if "switches" in world.natively:
        raise Break("native-call", f"a switch of cuDNN is set, and {world.natively['switches']}", _REMEDY)
    if type(value) not in (bool, int, str):
        raise Break("native-call", f"a switch of cuDNN is set to a {type(value).__name__}", _REMEDY)
    world.process.read("cudnn")
    world.process.written.add("cudnn")
    writer(value)
    recorder = world.recorder
    changed = _torch.STATE["cudnn"]() != world.process.initial["cudnn"]
    recorder.switched = (lambda op: _check(recorder, op)) if changed else None


def _check(recorder: Any, op: Any) -> None:
    """Raises `LeftToEager` for an operator that would run under other switches than the program has set."""
    if not recorder.uses_cuda or op.kind == "composite":
        return
    if op.overload.namespace not in ("aten", "prims") or any(part in op.base for part in _READ_WHEN_RUN):
        raise LeftToEager("switches", f"{op.overload} reads it when it runs", "native-call")


def _set_precision(world: Any, library: Any, operator: Any, precision: Any) -> None:
    if not all(type(each) is str for each in (library, operator, precision)):
        raise Break("native-call", "how a library computes float32 is set to what is no string", _REMEDY)
    world.process.read("precision")
    now = _torch.get_precision(library, operator)
    if now != precision:
        raise Break("native-call", f"{library} is told to compute float32 ({operator}) as {precision!r}, not {now!r}",
                    _REMEDY)  # fmt: skip
    world.process.touched["precision", (library, operator, precision)] = None


def _set_cudnn_tf32(world: Any, allowed: Any) -> None:
    world.process.read("precision")
    try:
        now = _torch.get_cudnn_tf32()
    except RuntimeError:  # set by newer means
        now = None
    # What is not allowed may have been ruled out in several ways, which this one replaces.
    if allowed is not True or now is not True:
        raise Break("native-call", f"cuDNN's use of TF32 is set to {allowed!r}, where it is {now!r}", _REMEDY)
    world.process.touched["cudnn_tf32", True] = None


def _setting(writer: Any) -> Any:
    return lambda world, value: _set_switch(world, writer, value)


NATIVES: dict[Any, Answer] = {
    **{writer: _setting(writer) for writer in _torch.CUDNN_WRITERS},
    _torch.set_cudnn_tf32: _set_cudnn_tf32,
    **({} if _torch.set_precision is None else {_torch.set_precision: _set_precision}),
}
