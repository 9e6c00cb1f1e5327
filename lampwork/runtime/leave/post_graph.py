"""What an entry does after its graph for the program: computes with numbers out of tensors, writes, logs, warns.

Capture describes these as calls (`capture/values/unbacked_numbers.py`, `capture/leave/output.py`); they run in the
program's order.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from lampwork import _torch, signals
from lampwork.runtime.launch.host import AssumptionFailed, Rerun

_OWN_DIRECTORY = __file__.removesuffix("runtime/leave/post_graph.py")


def attempt(function: Callable, *args: object) -> Any:
    """`function(*args)`, which capture has assumed to succeed. Raises `Rerun`: nothing has been written yet."""
    try:
        return function(*args)
    except Exception as error:
        if signals.raised_by_handler(error):
            raise
        name = getattr(function, "__name__", function)
        raise Rerun from AssumptionFailed(f"{name} of numbers taken out of tensors fails: {error}")


def array_of(tensor: torch.Tensor, scalar: bool) -> Any:
    """The numpy array over the tensor's memory; with `scalar`, the number in it."""
    array = tensor.numpy()
    return array[()] if scalar else array


def wrapper(
    cls: type, sizes: tuple, strides: tuple, offset: int, dtype: torch.dtype, device: torch.device, requires_grad: bool,
    version: int, names: tuple, *values: object,
) -> torch.Tensor:  # fmt: skip
    """A tensor of a wrapper subclass, which holds `values` under `names`, and was written `version` times."""
    options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
    made = _torch.make_wrapper(cls, sizes, strides=strides, storage_offset=offset, **options)
    made.__dict__.update(zip(names, values, strict=True))
    raise_version(made, version)
    return made


def over_memory(cls: type, plain: Any, requires_grad: bool, names: tuple, *values: object) -> torch.Tensor:
    """A tensor of a subclass over the memory of a plain one, which holds `values` under `names`."""
    made = _torch.make_subclass(cls, plain, True) if requires_grad else plain.as_subclass(cls)
    made.__dict__.update(zip(names, values, strict=True))
    return made


def with_attributes(made: Any, names: tuple, *values: object) -> Any:
    """`made`, which holds `values` under `names` as well."""
    object.__getattribute__(made, "__dict__").update(zip(names, values, strict=True))
    return made


def raise_version(tensor: torch.Tensor, writes: int) -> None:
    """Autograd is told that a tensor of a wrapper subclass was written."""
    for _ in range(writes):
        _torch.increment_version(tensor)


def spend(tensor: torch.Tensor) -> None:
    """Gives a tensor of the caller, which was written, a history that a `backward()` has freed."""
    from lampwork.runtime.autograd.freed_history import spend

    spend(tensor)


def delete_past(target: Any, name: str) -> None:
    """`del target.name`, but not through a `__delattr__` of the program's, which has run."""
    (type if isinstance(target, type) else object).__delattr__(target, name)


def store(value: float, *targets: torch.Tensor) -> None:
    """Writes a number to tensors of one element on the CPU."""
    with torch.no_grad():
        if len(targets) > 1:
            _torch.copy_to_each(targets, torch.tensor(value, dtype=torch.float64, device="cpu"))
        else:
            targets[0].fill_(value)


def set_context_value(variable: Any, value: Any) -> None:
    variable.set(value)


def write(stream: Any, text: str) -> None:
    """`stream.write(text)` of a stream implemented in C."""
    stream.write(text)


def flush(stream: Any) -> None:
    stream.flush()


def putenv(name: bytes, value: bytes) -> None:
    os.putenv(name, value)


def unsetenv(name: bytes) -> None:
    os.unsetenv(name)


def log(
    logger: Any, level: int, message: object, args: tuple, place: tuple[str, int, str], extra: dict | None = None
) -> None:
    """What `logger.log(level, message, *args, extra=extra)` does at `place` (file, line, function) once the level is
    known to be on."""
    file, line, function = place
    logger.handle(logger.makeRecord(logger.name, level, file, line, message, args, None, function, extra, None))


def warn(message: str, category: type, place: tuple[str, int, str]) -> None:
    """`warnings.warn` at `place` (file, line, module)."""
    file, line, module = place
    names = sys.modules[module].__dict__
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, line, module, registry, names)


def warn_caller(message: str, category: type, depth: int) -> None:
    """`warnings.warn` that points at whoever called the compiled function (depth 0), or further out."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    while frame is not None and depth:
        frame = frame.f_back
        depth -= 1
    if frame is None:
        names, file, line = sys.__dict__, "<sys>" if sys.version_info >= (3, 12) else "sys", 1
    else:
        names, file, line = frame.f_globals, frame.f_code.co_filename, frame.f_lineno
    module = names.get("__name__", "<string>")
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, line, module, registry, names)


def _is_own(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith((_OWN_DIRECTORY, "<lampwork "))
