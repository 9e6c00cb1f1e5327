"""Regression: where a guard on a tensor of a subclass failed, saying why read its attributes as the program would, which
called the subclass's `__torch_function__`."""

from __future__ import annotations

from typing import Any

import torch

import lampwork

calls: list[str] = []


class Watching(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        calls.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_only_the_programs_own_calls() -> None:
    compiled = lampwork.compile(lambda x: x + 1)
    for size in (2, 3, 4, 2):
        for dtype in (torch.float32, torch.float64):
            x = torch.ones(size, dtype=dtype).as_subclass(Watching)
            calls.clear()
            compiled(x)
            assert calls == ["add"]
