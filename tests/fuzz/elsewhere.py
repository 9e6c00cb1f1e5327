"""Eager's own other answers: the same numbers in memory of other layouts, and on a machine with narrower vectors.

Where lanes of a vector are folded in another order, a zero has another sign; where a kernel computes element by element,
its library functions are others. Of such an element eager says one thing of a contiguous
tensor and another of one with gaps, or one thing with AVX-512 and another with AVX2. Each of its answers is right.

    conv2d with an infinite weight      NaN at the border where cuDNN takes channels last, else what lies inside
    amax([0, -0])                       -0 element by element, 0 in vectors of eight
    softshrink(-0.25)                   -0 element by element, 0 in vectors
    remainder(3e38, 0.4)                a number by the C library, NaN by the vector one
    layer_norm of [-1e30, 1e30, ...]    -0 on a GPU where rows begin at whole vectors, 0 at other addresses

What becomes of sums and products in another order is in `overflow.py`.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch

from tests.fuzz.program import Call, Program

#: Ways to lay out operands: with gaps, dimensions in reverse, in order from the beginning of an allocation, and there
#: with the channels of images last.
LAYOUTS = ("gaps", "reversed", "contiguous", "channels last")
#: Vectors of the machine that is asked, by those of this one.
_NARROWER = {"AVX512": "avx2", "AVX2": "default"}
_SECONDS = 60.0


class _Spread(torch.autograd.Function):
    """Elements in memory of another layout. Their gradient is not added to zeros: zeros keep their signs."""

    @staticmethod
    def forward(ctx: Any, layout: str, value: torch.Tensor) -> torch.Tensor:
        return spread(layout, value.detach())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, gradient


def spread(layout: str, value: Any) -> Any:
    """The same elements in memory of another layout; what is no dense tensor as it is."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or not value.dim():
        return value
    if value.requires_grad and torch.is_grad_enabled():
        return _Spread.apply(layout, value)
    if layout == "contiguous":
        return value.clone(memory_format=torch.contiguous_format)
    if layout == "channels last":
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        return value.clone(memory_format=formats.get(value.dim(), torch.contiguous_format))
    if layout == "gaps":
        return torch.stack([value, value], -1)[..., 0]
    order = tuple(range(value.dim()))[::-1]
    return value.permute(order).contiguous().permute(order)


def spread_in_place(layout: str, value: torch.Tensor, write: Callable[[torch.Tensor], Any]) -> Any:
    """What `write` returns of `value`, to which it writes. It is given a copy in memory of another layout, unless
    elements of `value` share memory: what is expanded takes no copy back."""
    if value.requires_grad or not value.dim() or value.layout != torch.strided or _is_expanded(value):
        return write(value)
    copy = spread(layout, value.clone())
    result = write(copy)
    value.copy_(copy)
    return value if result is copy else result


def _is_expanded(value: torch.Tensor) -> bool:
    return any(step == 0 and size > 1 for step, size in zip(value.stride(), value.shape))


class Narrower:
    """A process in which eager's kernels have narrower vectors. It lives as long as this one."""

    def __init__(self, capability: str) -> None:
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
        command = [sys.executable, "-m", "tests.fuzz.elsewhere"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        atexit.register(self.process.kill)

    def values(self, program: Program, call: Call) -> dict[str, Any]:
        """What eager gives there, by label; nothing where it does not answer."""
        names = {name: each if isinstance(each, torch.Tensor) else None for name, each in program.names.items()}
        fields = {name: value for name, value in program.__dict__.items() if name != "names"}
        try:
            question = pickle.dumps((fields, names, call))
            stdin, stdout = self.process.stdin, self.process.stdout
            assert stdin is not None and stdout is not None
            stdin.write(len(question).to_bytes(8, "little") + question)
            stdin.flush()
            if not select.select([stdout], [], [], _SECONDS)[0]:
                self.process.kill()
                return {}
            return pickle.loads(stdout.read(int.from_bytes(stdout.read(8), "little")))
        except (OSError, EOFError, pickle.PicklingError, AttributeError, TypeError):
            return {}


_process: list[Any] = []


def narrower() -> Narrower | None:
    """The process with narrower vectors; None where eager has none."""
    if not _process or _process[0] is not None and _process[0].process.poll() is not None:
        capability = _NARROWER.get(torch.backends.cpu.get_cpu_capability())
        _process[:] = [Narrower(capability) if capability else None]
    return _process[0]


def _answer() -> None:
    """Runs the programs that come in, and writes what they give, until the input ends."""
    from tests.fuzz.run import run_call
    from tests.fuzz.samples import functions

    torch.set_num_threads(1)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no answer
    while size := source.read(8):
        fields, names, call = pickle.loads(source.read(int.from_bytes(size, "little")))
        try:
            names = {name: each if each is not None else functions()[name] for name, each in names.items()}
            program = Program(**fields, names=names)
            found = run_call(program.function(), program, call).values
            values = {
                label: each for label, each in found.items() if isinstance(each, (torch.Tensor, int, float, bool))
            }
            answer = pickle.dumps({label: each.detach().clone() if isinstance(each, torch.Tensor) else each
                                   for label, each in values.items()})  # fmt: skip
        except Exception:
            answer = pickle.dumps({})
        target.write(len(answer).to_bytes(8, "little") + answer)
        target.flush()


if __name__ == "__main__":
    _answer()
