"""What else than compiling may help, tried: each with what it gained here."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from lampwork.ir.record import record
from lampwork.profiling.parts import Parts

#: Gains of less than this are not worth a line.
WORTH = 1.05
ROUNDS = 7
#: A try takes at most about so long.
SECONDS = 2.0


@record
class Advice:
    """`what` to do; `gain`: how many times faster a call, or a sample, was with it; `code` to write."""

    what: str
    gain: float
    code: str
    caution: str = ""


def advise(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    run: Callable[..., Any],
    restore: Callable[[], None],
    parts: Parts,
    device: str,
    trains: bool,
) -> tuple[list[Advice], list[str]]:
    """What was tried and gained something, the most first; and what the program does not take, with its error.

    run       `run(function, args, kwargs)` makes one call
    restore   puts the program's state back
    """
    found, refused = [], []
    for what, make in TRIES.items():
        try:
            found += [each for each in make(function, args, kwargs, run, device, trains) if each.gain >= WORTH]
        except Exception as error:  # the program's own, called otherwise than it was written for
            refused.append(f"{what} could not be tried: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
        finally:
            restore()
    return sorted([*found, *waiting_advice(parts)], key=lambda each: -each.gain), refused


def waiting_advice(parts: Parts) -> list[Advice]:
    """Where a step waits for data."""
    gain = parts.call / max(parts.call - parts.seconds["waiting"], 1e-9)
    if gain < WORTH:
        return []
    code = "DataLoader(..., num_workers=N, pin_memory=True)"
    return [Advice("Load data beside the steps", gain, code, "at most, where there are processors left")]


def _beside(plain: Callable[[], object], other: Callable[[], object], device: str) -> float:
    """How many times faster `other` is, in turns."""
    for call in (plain, other):
        call()
        call()
    ratios, end = [], time.perf_counter() + SECONDS
    for _ in range(ROUNDS):
        times = []
        for call in (plain, other):
            started = time.perf_counter()
            call()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
        ratios.append(times[0] / max(times[1], 1e-9))
        if time.perf_counter() > end and len(ratios) >= 3:
            break
    return statistics.median(ratios)


def _inference(function: Any, args: Any, kwargs: Any, run: Any, device: str, trains: bool) -> Iterator[Advice]:
    if trains or not torch.is_grad_enabled():
        return

    def without() -> None:
        with torch.inference_mode():
            run(function, args, kwargs)

    gain = _beside(lambda: run(function, args, kwargs), without, device)
    yield Advice("Take no gradients", gain, "with torch.inference_mode():", "results cannot be differentiated")


def _autocast(function: Any, args: Any, kwargs: Any, run: Any, device: str, trains: bool) -> Iterator[Advice]:
    if torch.is_autocast_enabled(device):
        return

    def narrower() -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            run(function, args, kwargs)

    gain = _beside(lambda: run(function, args, kwargs), narrower, device)
    yield Advice("Compute products in bfloat16", gain, f'with torch.autocast("{device}", dtype=torch.bfloat16):',
                 "results have three digits")  # fmt: skip


def _channels_last(function: Any, args: Any, kwargs: Any, run: Any, device: str, trains: bool) -> Iterator[Advice]:
    if not isinstance(function, torch.nn.Module):
        return
    if not any(isinstance(each, torch.nn.Conv2d | torch.nn.ConvTranspose2d) for each in function.modules()):
        return
    moved = copy.deepcopy(function).to(memory_format=torch.channels_last)
    images = [_channels_last_of(each) for each in (args, dict(kwargs))]
    gain = _beside(lambda: run(function, args, kwargs), lambda: run(moved, *images), device)
    yield Advice("Keep images channels last", gain, "model, images = (each.to(memory_format=torch.channels_last) ...)")


def _channels_last_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value
    if isinstance(value, tuple | list):
        return type(value)(_channels_last_of(each) for each in value)
    return {name: _channels_last_of(each) for name, each in value.items()} if isinstance(value, dict) else value


def _batch(function: Any, args: Any, kwargs: Any, run: Any, device: str, trains: bool) -> Iterator[Advice]:
    if not isinstance(function, torch.nn.Module):
        return  # of a function's arguments nobody knows which dimension is the batch
    twice = [_twice(each) for each in (args, dict(kwargs))]
    gain = 2 * _beside(lambda: run(function, args, kwargs), lambda: run(function, *twice), device)
    yield Advice("Use batches twice as large", gain, "DataLoader(..., batch_size=2 * N)", "gain for each sample")


def _twice(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.cat([value, value]) if value.dim() else value
    if isinstance(value, tuple | list):
        return type(value)(_twice(each) for each in value)
    return {name: _twice(each) for name, each in value.items()} if isinstance(value, dict) else value


TRIES: dict[str, Callable[..., Iterator[Advice]]] = {
    "Taking no gradients": _inference,
    "bfloat16": _autocast,
    "Images channels last": _channels_last,
    "Batches twice as large": _batch,
}
