"""Whether eager writes several elements to one place: on a GPU threads race there, and which of them is last is chance.

y = x.unfold(0, 3, 1)                                  # neighbours share elements
torch.select_scatter(y, z, 0, 1)                       # a copy with the same strides is written to
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.program import Call, Program
from tests.fuzz.run import run_call

#: More elements are not looked at one by one.
_MOST = 1 << 20


def shares_elements(x: torch.Tensor) -> bool:
    """Whether two elements of `x` lie at one place."""
    if x.layout != torch.strided:
        return False
    reach = 0
    for step, size in sorted((step, size) for size, step in zip(x.shape, x.stride()) if size > 1):
        if step <= reach:
            break
        reach += step * (size - 1)
    else:
        return False
    if x.numel() > _MOST:
        return True
    places = torch.zeros((), dtype=torch.int64)
    for size, step in zip(x.shape, x.stride()):
        places = places[..., None] + torch.arange(size) * step
    return places.unique().numel() < places.numel()


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written = list(args[:1]) if func.overloadpacket.__name__.endswith("_scatter") else []
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written.append(args[index] if index < len(args) else kwargs.get(argument.name))
        self.found |= any(isinstance(each, torch.Tensor) and shares_elements(each) for each in written)
        return func(*args, **kwargs)


def writes_several_to_one_place(program: Program, call: Call, device: str) -> bool:
    with _Watch() as watch:
        run_call(program.function(device=device), program, call, device=device)
    return watch.found
