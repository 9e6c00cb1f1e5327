"""Host calls of an entry: random numbers of the host, clocks, and what is computed of them, before its graph runs.

    taken = states((values[2],))              what generators stand at
    try:
        host0 = call_method(values[2], "random")
        host1 = mul(host0, 2.0)
        values[5] = number_input(host1, "float64", "")
        results = run(values)
    except Rerun:
        put_back(taken)                       eager draws again
        raise

They come after the guards, in the program's order, and once: where the entry gives the call to eager, generators go
back to where they stood.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from lampwork import _torch
from lampwork.ir.artifact import Artifact
from lampwork.ir.source import HostInput
from lampwork.ir.template import HostCall, SourceValue
from lampwork.runtime.guards.interpreter import array_memory
from lampwork.runtime.launch.unbacked_sizes import AssumptionFailed
from lampwork.runtime.leave.reconstruction import TemplateWriter

#: How to put a generator back to where it stood.
_Taken = tuple[Callable[[Any], Any], Any]


def around_host_calls(
    artifact: Artifact, writer: TemplateWriter, places: dict[int, str], lines: Sequence[str]
) -> list[str]:
    """`lines`, which may raise `Rerun`, with the host calls before them. `places`: as for `TemplateWriter`."""
    constant = writer.constant
    calls = [writer.host_call(call) for call in artifact.host_calls]
    inputs = {index: source for index, source in enumerate(artifact.inputs) if isinstance(source, HostInput)}
    if inputs:
        calls.append("values = list(values)")  # that of the static guards belongs to all calls
    for index, source in inputs.items():
        make = constant(number_input if source.dtype else array_input)
        told = f", {source.dtype!r}, {source.device!r}" if source.dtype else ""
        calls.append(f"values[{index}] = {make}(host{source.index}{told})")
    made = ["try:", *[f"    {line}" for line in calls]]
    made += ["except Exception as error:", "    raise Rerun() from error", *lines]
    objects = _objects(artifact.host_calls, places)
    if not objects:
        return made
    return [
        f"taken = {constant(states)}(({', '.join(objects)}, ))",
        "try:", *[f"    {line}" for line in made],
        "except Rerun:", f"    {constant(put_back)}(taken)", "    raise",
    ]  # fmt: skip


def _objects(calls: Sequence[HostCall], places: dict[int, str]) -> list[str]:
    """Where the objects are whose methods are called."""
    found = [places[id(each.source)] for call in calls for each in call.args[:1] if isinstance(each, SourceValue)]
    return list(dict.fromkeys(found))


def number_input(value: object, dtype: str, device: str) -> torch.Tensor:
    """The number as a graph's input. Raises where the type does not hold it."""
    with torch.inference_mode(False):
        return torch.tensor(value, dtype=getattr(torch, dtype), device=device or "cpu")


def array_input(array: object) -> torch.Tensor:
    """A tensor, or the memory of an array or of a number of numpy's, as a graph's input."""
    if isinstance(array, torch.Tensor):
        return array
    with torch.inference_mode(False):
        return array_memory(numpy.asarray(array))


def drawn(
    generator: torch.Generator, name: str, before: tuple, dtype: torch.dtype, device: str, *sizes: int
) -> torch.Tensor:
    """`torch.randn(sizes, generator=generator)` and the like. `before`: arguments before the sizes."""
    _require_own(generator)
    given = sizes[0] if name == "randperm" else sizes
    with torch.inference_mode(False), torch.no_grad():
        return getattr(torch, name)(*before, given, dtype=dtype, device=device, generator=generator)


def filled(
    generator: torch.Generator, name: str, args: tuple, kwargs: tuple, dtype: torch.dtype, device: str, *sizes: int
) -> torch.Tensor:
    """`torch.empty(sizes).normal_(*args, **kwargs, generator=generator)` and the like."""
    _require_own(generator)
    with torch.inference_mode(False), torch.no_grad():
        memory = torch.empty(sizes, dtype=dtype, device=device)
        return getattr(memory, name)(*args, generator=generator, **dict(kwargs))


def _require_own(generator: torch.Generator) -> None:
    """Other operators draw from the default generators, too, in an order that only the program has."""
    if _torch.is_default_generator(generator):
        raise AssumptionFailed("a default generator is passed where none was before")


def states(generators: Sequence[object]) -> list[_Taken]:
    """What each of the generators stands at; nothing for objects of other kinds."""
    return [taken for each in generators if (taken := _state(each)) is not None]


def put_back(taken: Sequence[_Taken]) -> None:
    for put, state in taken:
        put(state)


def _state(generator: object) -> _Taken | None:
    if isinstance(generator, random.Random):
        return generator.setstate, generator.getstate()
    if isinstance(generator, torch.Generator):
        return generator.set_state, generator.get_state()
    if isinstance(generator, numpy.random.RandomState):
        return generator.set_state, generator.get_state(legacy=False)
    if isinstance(generator, numpy.random.Generator):
        bits = generator.bit_generator
        return lambda state: setattr(bits, "state", state), bits.state
    return None
