"""Whether eager writes several elements to one place: on a GPU threads race there, and which of them is last is chance.

y = x.unfold(0, 3, 1)                                  # neighbours share elements
torch.select_scatter(y, z, 0, 1)                       # a copy with the same strides is written to
x[torch.tensor([0, 0])] = z                            # an index comes twice
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
        places = _PLACES.get(func.overloadpacket.__name__.rstrip("_"))
        if places is not None and not self.found:
            given = {each.name: value for each, value in zip(func._schema.arguments, args)} | kwargs
            found = places(given)
            self.found = found is not None and found.unique().numel() < found.numel()
        return func(*args, **kwargs)


def _numbered(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.numel(), device=x.device).view(x.shape)


def _put(given: dict[str, Any]) -> torch.Tensor | None:
    if given.get("accumulate") or given["values"].numel() == 1:
        return None
    return torch.ops.aten.index.Tensor(_numbered(given["self"]), given["indices"])


def _scattered(given: dict[str, Any]) -> torch.Tensor | None:
    if "src" not in given or given.get("reduce") is not None:
        return None
    return _numbered(given["self"]).gather(given["dim"], given["index"]) if given["index"].dim() else None


#: By the name of an operator without the mark of one in place: the places that it writes to, in the order of its
#: elements; None where it adds to them, or writes one number.
_PLACES = {
    "index_put": _put,
    "_index_put_impl": _put,
    "scatter": _scattered,
    "index_copy": lambda given: given["index"],
    "put": lambda given: None if given.get("accumulate") else given["index"] % max(given["self"].numel(), 1),
}


def writes_several_to_one_place(program: Program, call: Call, device: str) -> bool:
    with _Watch() as watch:
        run_call(program.function(device=device), program, call, device=device)
    return watch.found
