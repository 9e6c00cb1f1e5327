"""A script that compiles one captured graph and needs no file of the user's: `repro.py` of `lampwork explain --dump`.

It holds the graph as Python, and makes random weights and inputs of the same shapes, types and strides, whose numbers
lie about where those of the call lay: integers between the same limits, since they may be indices.
"""

from __future__ import annotations

import textwrap
from typing import Any

import torch

from lampwork.config import Settings
from lampwork.debug.graph_code import NotWritten, graph_code, libraries
from lampwork.debug.recorded import Recorded
from lampwork.ir.differentiation import Joint
from lampwork.ir.region import Region
from lampwork.ir.source import describe
from lampwork.runtime.cache.versions import versions
from lampwork.runtime.guards.recompiles import with_names

#: Integer tensors of so many elements are written as they are.
MOST_LITERALS = 32

_SCRIPT = '''"""{title}

    python {file}                     # compiles the graph, and compares it with eager
    LAMPWORK_DEBUG=4 python {file}    # shows what becomes of it (see docs/debugging.md of Lampwork)

{notes}"""

import torch

import lampwork
import lampwork._torch


{graph}

def tensor(values, shape, strides, dtype, device="cpu"):
    """`values`, one for each element of memory from the first to the last, as a tensor of these strides."""
    return values.to(dtype).to(device).as_strided(shape, strides)


def inputs():
    """Random inputs; the same each time."""
    random = torch.Generator().manual_seed(0)
    normal = lambda count, mean, deviation: torch.randn(count, generator=random) * deviation + mean
    uniform = lambda count, low, high: torch.rand(count, generator=random) * (high - low) + low
    integers = lambda count, low, high: torch.randint(low, high + 1, (count,), generator=random)
    return [
{inputs}
    ]


def run(function):
    """Results, gradients, and those inputs that the call changes, by name."""
    torch.manual_seed(0)
    values, names = inputs(), graph.__code__.co_varnames
{run}
    for name, value, before in zip(names, values, inputs()):
        if isinstance(value, torch.Tensor) and not torch.equal(value.nan_to_num(), before.nan_to_num()):
            found[f"{{name}} afterwards"] = value.detach()
    return found


if __name__ == "__main__":
    compiled = lampwork.compile(graph{settings})
    found, expected = run(compiled), run(graph)
    for name, ours in found.items():
        theirs = expected[name]
        if not isinstance(ours, torch.Tensor):
            print(f"{{name}}: {{ours}}, eager {{theirs}}")
        elif ours.is_floating_point() or ours.is_complex():
            error = (ours.double() - theirs.double()).abs().nan_to_num().max().item() if ours.numel() else 0.0
            print(f"{{name}}: {{str(ours.dtype)[6:]}}{{list(ours.shape)}} differs by at most {{error:.3g}}")
        else:
            wrong = (ours != theirs).sum().item()
            print(f"{{name}}: {{str(ours.dtype)[6:]}}{{list(ours.shape)}} differs in {{wrong}} elements")
    stats = lampwork.stats(compiled)
    print(f"{{stats['native_kernels']}} kernels, {{stats['launches']}} launches, {{dict(stats['extern_calls'])}}")
    for each in (*stats["breaks"], *stats["fallbacks"]):
        print(each)
'''

_PLAIN = """    with torch.no_grad():
        results = function(*values)
    found = {f"result {place}": value for place, value in enumerate(results)}"""

_DIFFERENTIATED = """    results = function(*values)
    taken = [value for value in results if value.requires_grad]
    torch.autograd.backward(taken, [torch.ones_like(value) for value in taken])
    found = {f"result {place}": value.detach() for place, value in enumerate(results)}
    found |= {f"gradient of {name}": value.grad for name, value in zip(names, values) if value.grad is not None}"""


def script(recorded: Recorded, settings: Settings, file: str = "repro.py") -> str:
    """The text. Raises `NotWritten` with the reason where there can be none."""
    region, values = recorded.region, recorded.values
    if region is None or values is None:
        raise NotWritten("the call has no graph, or its inputs could not be read again")
    names = input_names(recorded)
    joint = region.joint
    code = graph_code(region.graph, names, joint.results if joint is not None else None)
    lines = [f"{_input(value, place, joint)},  # {name}" for place, (name, value) in enumerate(zip(names, values))]
    return _SCRIPT.format(
        title=f"One graph of {region.name}, as Lampwork captured it: it needs nothing but PyTorch and Lampwork.",
        file=file,
        notes=_notes(region),
        graph=code,
        inputs=textwrap.indent("\n".join(lines), " " * 8),
        run=_PLAIN if joint is None else _DIFFERENTIATED,
        settings=_settings(settings),
    )


def input_names(recorded: Recorded) -> list[str]:
    """What the program calls each input of the graph."""
    assert recorded.region is not None
    return [with_names(describe(source), recorded.function) for source in recorded.region.inputs]


def _notes(region: Region) -> str:
    lines = [f"{name} {value}" for name, value in versions().items() if name in ("lampwork", "torch", "python")]
    missing = libraries(region.graph)
    if missing:
        lines.append(f"Import what defines the operators of {', '.join(missing)} first.")
    return "\n".join(lines) + "\n"


def _settings(settings: Settings) -> str:
    """The arguments of `lampwork.compile` that are no defaults. The graph is compiled anew each time."""
    default, text = Settings(), ""
    for name in ("dynamic", "mode"):
        if getattr(settings, name) != getattr(default, name):
            text += f", {name}={getattr(settings, name)!r}"
    options: dict[str, Any] = {"cache": False}
    for name in ("freeze", "memory_budget"):
        if getattr(settings.options, name) != getattr(default.options, name):
            options[name] = getattr(settings.options, name)
    return f"{text}, options={options!r}"


def _input(value: object, place: int, joint: Joint | None) -> str:
    if not isinstance(value, torch.Tensor):
        if value is None or type(value) in (bool, int, float, str):
            return repr(value)
        raise NotWritten(f"input {place} is a {type(value).__name__}")
    if value.layout != torch.strided or value.is_conj() or value.is_neg():
        raise NotWritten(f"input {place} has no plain strides")
    made = f"tensor({_numbers(value)}, {tuple(value.shape)}, {value.stride()}, {value.dtype}"
    made += ")" if value.device.type == "cpu" else f', "{value.device}")'
    wants = joint is not None and place in joint.wanted and place not in joint.granted
    return made + ".requires_grad_()" * wants


def _numbers(value: torch.Tensor) -> str:
    """An expression for the numbers of a tensor's memory, drawn as those of `value` are distributed."""
    span = 1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride())) if value.numel() else 0
    plain = value.detach()
    if not span:
        return "torch.empty(0)"
    if plain.dtype is torch.bool:
        return f"integers({span}, {int(plain.all())}, {int(plain.any())})"
    if not plain.is_floating_point() and not plain.is_complex():
        if span <= MOST_LITERALS and span == plain.numel():
            return f"torch.tensor({plain.as_strided((span,), (1,)).tolist()})"
        return f"integers({span}, {plain.min().item()}, {plain.max().item()})"
    if plain.is_complex():
        return f"torch.complex(normal({span}, 0.0, 1.0), normal({span}, 0.0, 1.0))"
    numbers = plain.double()
    numbers = numbers[numbers.isfinite()]
    if not numbers.numel():
        return f"normal({span}, 0.0, 1.0)"
    low, high = numbers.min().item(), numbers.max().item()
    if low == high:
        return f"torch.full(({span},), {low!r})"
    if low >= 0:  # a variance, a probability
        return f"uniform({span}, {low:.6g}, {high:.6g})"
    return f"normal({span}, {numbers.mean().item():.6g}, {numbers.std(correction=0).item():.6g})"
