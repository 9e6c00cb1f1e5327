"""Programs to validate: PyTorch's operator samples, generated programs, models and training steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lampwork.config import Settings, make_settings
from tests.fuzz import generate as fuzzing
from tests.fuzz import programs as viewing
from tests.fuzz import sized_programs
from tests.fuzz.run import arguments_of
from tests.ops.check import UNINITIALISED, full_name, samples

#: Types of operator samples.
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float16, torch.uint8, torch.float64)
#: Sizes of generated programs: those that they are compiled for come first.
SIZES = ((5, 6), (7, 9), (2, 3), (13, 8), (33, 17))


@dataclass(frozen=True)
class Program:
    """`calls`: arguments and keyword arguments; the first is compiled, the others run where its guards let them in."""

    name: str
    function: Callable
    calls: Sequence[tuple[tuple, dict]]
    settings: Settings = Settings()
    gradients: bool = False


def strided(value: Any, layout: str) -> Any:
    """Tensors in `value` in another layout: "turned" (dimensions in memory the other way round), "apart" (every second
    element of larger memory)."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or not value.dim() or not value.numel() or layout == "as it is":
            return value
        if layout == "turned":
            made = value.permute(*reversed(range(value.dim()))).contiguous().permute(*reversed(range(value.dim())))
        else:
            wide = torch.empty((*value.shape, 2), dtype=value.dtype)
            made = wide[..., 1].copy_(value.detach())
        made = made.detach()
        return made.requires_grad_(value.requires_grad) if made.is_floating_point() else made
    if type(value) in (list, tuple):
        return type(value)(strided(each, layout) for each in value)
    if type(value) is dict:
        return {key: strided(each, layout) for key, each in value.items()}
    return value


def operator_programs(
    op: Any, dtypes: Sequence[torch.dtype], limit: int | None, layouts: Sequence[str]
) -> Iterator[Program]:
    """Samples of one operator."""
    if op.name in UNINITIALISED or "resize" in op.name:
        return
    for dtype in dtypes:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        name = f"{full_name(op)} {str(dtype).removeprefix('torch.')}"
        for label, function, args, kwargs in samples(op, dtype, limit):

            def program(*args: Any, function: Any = function, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

            for layout in layouts:
                call = (strided(args, layout), strided(kwargs, layout))
                yield Program(f"{name} {label} {layout}", program, [call])


def gradient_programs(op: Any, limit: int | None, layout: str = "as it is") -> Iterator[Program]:
    """Samples of one operator whose inputs require grad."""
    if not op.supports_autograd or torch.float32 not in op.supported_dtypes("cpu") or op.name in UNINITIALISED:
        return
    torch.manual_seed(7)
    for place, sample in enumerate(itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=True), limit)):

        def program(*args: Any, **kwargs: Any) -> Any:
            return op.get_op()(*args, **kwargs)

        args, kwargs = strided((sample.input, *sample.args), layout), strided(dict(sample.kwargs), layout)
        yield Program(f"{full_name(op)} gradient {place} {layout}", program, [(args, kwargs)], gradients=True)


def generated_programs(seeds: Sequence[int], gradients: bool = False) -> Iterator[Program]:
    """Programs of views and writes, and programs over sizes that vary."""
    for seed in seeds:
        program = viewing.generate(seed)
        if not gradients:
            yield Program(f"views {seed}", program, [(tuple(program.make_inputs()), {})])
        sized = sized_programs.generate(seed)
        calls = []
        for n, m in SIZES:
            inputs = sized.make_inputs(n, m)
            if gradients:
                inputs = [each.requires_grad_() if each.is_floating_point() else each for each in inputs]
            calls.append((tuple(inputs), {}))
        for dynamic in (True, False):
            kind = "symbols" if dynamic else "numbers"
            name = f"sizes {seed} {kind}{' gradients' if gradients else ''}"
            yield Program(name, sized, calls if dynamic else calls[:1], make_settings(dynamic=dynamic), gradients)


def fuzzed_programs(seeds: Sequence[int], gradients: bool = False, dynamic: bool = False) -> Iterator[Program]:
    """Programs over the whole operator surface."""
    for seed in seeds:
        made = fuzzing.generate(seed, fuzzing.Options(grad=gradients, dynamic=dynamic, samples=0.1))
        calls = [((*(each.tensor for each in arguments_of(made, call)), *call.numbers), {}) for call in made.calls]
        settings = make_settings(dynamic=True if dynamic else made.dynamic)
        kind = f"{' symbols' if dynamic else ''}{' gradients' if gradients else ''}"
        yield Program(f"fuzz {seed}{kind}", made.function(), calls, settings, gradients)
