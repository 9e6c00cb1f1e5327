"""Whether eager itself reads memory that is not its operand's: what it gives then is anything.

x.expand(4, 3).median(0)      # the kernel copies one row, and sorts four (PyTorch 2.11 to 2.13)
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.program import Call, Program
from tests.fuzz.run import run_call

_MEDIANS = (torch.ops.aten.median, torch.ops.aten.nanmedian)


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in _MEDIANS:
            self.found |= any(step == 0 and size > 1 for size, step in zip(args[0].shape, args[0].stride()))
        return func(*args, **(kwargs or {}))


def misreads(program: Program, call: Call, device: str) -> bool:
    """Whether an operator of the program does."""
    if not any("median" in each.text for each in program.statements):
        return False
    with _Watch() as watch:
        run_call(program.function(device=device), program, call, device=device)
    return watch.found
