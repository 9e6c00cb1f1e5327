"""Every operator of a call: what it takes, what it moves and computes, and which line of the program made it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from lampwork import _torch
from lampwork.ir.location import Location
from lampwork.ir.record import record

#: Operators that give memory and write nothing.
_ALLOCATIONS = frozenset({"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"})

_ROOTS = tuple(os.path.dirname(os.path.abspath(module.__file__ or "")) + os.sep for module in (torch,))
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@record(frozen=False)
class Operator:
    """One operator of the call. `seconds`: the least of several rounds. `read` are the tensors' storages that it reads,
    `written` those that it makes or writes, by identity, with their bytes."""

    name: str
    location: Location
    seconds: float
    moved_bytes: int
    flops: int
    dtype: torch.dtype
    is_view: bool
    read: dict[int, int]
    written: dict[int, int]


class Recording(_torch.EagerMode):
    """Notes the operators that run in the block, those of a backward pass, too. `on_gpu`: waits for each of them."""

    def __init__(self, on_gpu: bool, lines: bool = True) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self._on_gpu, self._lines = on_gpu, lines
        self._alive: list[torch.Tensor] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._alive.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._on_gpu:
            torch.cuda.synchronize()
        started = time.perf_counter()
        result = func(*args, **kwargs)
        if self._on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        inputs, outputs = list(_tensors((args, kwargs))), list(_tensors(result))
        # Storages are known by address: none may be freed, and its address used again, before the end.
        self._alive += [*inputs, *outputs]
        read = {_storage(each): _bytes(each) for each in inputs}
        is_view = bool(outputs) and not func._schema.is_mutable and all(_storage(each) in read for each in outputs)
        name = func._schema.name.removeprefix("aten::")
        written = {} if is_view else {_storage(each): _bytes(each) for each in outputs}
        moves = not is_view and name not in _ALLOCATIONS
        count = flop_registry.get(func._overloadpacket)
        try:
            flops = int(count(*args, **kwargs, out_val=result)) if count is not None else 0
        except (TypeError, AssertionError, IndexError, RuntimeError):
            flops = 0  # a form of the operator whose arithmetic nobody counts
        floating = next((each.dtype for each in (*outputs, *inputs) if each.is_floating_point()), torch.float32)
        self.operators.append(
            Operator(
                name,
                _line() if self._lines else Location(),
                seconds,
                sum(read.values()) + sum(written.values()) if moves else 0,
                flops,
                floating,
                is_view,
                read,
                written,
            )
        )
        return result


def least(rounds: list[list[Operator]]) -> list[Operator]:
    """The first round's operators with the least seconds of all rounds that made the same ones."""
    first = rounds[0]
    alike = [each for each in rounds if [one.name for one in each] == [one.name for one in first]]
    for place, operator in enumerate(first):
        operator.seconds = min(each[place].seconds for each in alike)
    return first


def outside_bytes(operators: list[Operator]) -> int:
    """What a program of these operators must read and write at least: each tensor that it is given once, and each that
    nothing in it reads again."""
    made: dict[int, int] = {}
    given: dict[int, int] = {}
    read_later: set[int] = set()
    for each in operators:
        if each.is_view:
            continue
        for storage, size in each.read.items():
            if storage in made:
                read_later.add(storage)
            else:
                given[storage] = max(size, given.get(storage, 0))
        made.update(each.written)
    return sum(given.values()) + sum(size for storage, size in made.items() if storage not in read_later)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided and value.device.type != "meta":
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _bytes(tensor: torch.Tensor) -> int:
    """Of its elements, those that are stretched over a dimension once."""
    count = 1
    for size, stride in zip(tensor.size(), tensor.stride()):
        count *= size if stride else min(size, 1)
    return count * tensor.element_size()


def _line() -> Location:
    """The innermost line outside of PyTorch and of this package."""
    frame = sys._getframe(2)
    found = frame
    while found is not None:
        name = found.f_code.co_filename
        if not name.startswith((*_ROOTS, _HERE)) and not name.startswith("<"):
            return Location(name, found.f_lineno)
        if found.f_back is None:
            break
        found = found.f_back
    return Location()
