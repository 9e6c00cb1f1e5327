"""Launches of the program's own Triton kernels as one operator of ours, which writes to nothing:

    launch(str launch, Tensor[] written, Tensor[] read, SymInt[] numbers, Tensor[] items) -> Tensor[]

gives what the kernel makes of `written`. `launch` says in words which kernel it is and what each of its arguments is
made of, so that an entry on disk says it, too: JSON of

    kernel    [module, qualified name, digest], or ["", number, ""] for one that no name leads to
    args      the positional arguments, each as below
    kwargs    pairs of a name and an argument
    grids     pairs of a choice of constants ({} where there is one) and the grid's sizes, each as an argument

    ["tensor", 2]              the third of `written` and `read`
    ["view", 2, 1]             of its memory, in a row: as many dimensions, whose sizes, strides and offset are the next
                               of `numbers`
    ["number"]                 the next of `numbers`
    ["constant", 3]            None, a bool, an integer or a text
    ["float", "0x1.8p+0"]
    ["item"]                   the number in the next of `items`, which have one element
    ["dtype", "float32"]       one of PyTorch's; ["type", "fp32"] one of Triton's
    ["kernel", [..]]           a function of `triton.jit` that the kernel calls, named as `kernel` is
    ["tuple", [..]]

Kernels are launched by Triton, as in eager: it compiles them, tunes them, and checks that globals which they use have
not changed.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from lampwork.ir.reference import code_digest, find

SCHEMA = "launch(str launch, Tensor[] written, Tensor[] read, SymInt[] numbers, Tensor[] items) -> Tensor[]"

#: Classes of Triton's kernels, and of what stands for `torch.library.wrap_triton`'s.
_KERNELS = {
    ("triton.runtime.jit", "JITFunction"): "function",
    ("triton.runtime.interpreter", "InterpretedFunction"): "function",
    ("triton.runtime.autotuner", "Autotuner"): "autotuner",
    ("triton.runtime.autotuner", "Heuristics"): "heuristics",
}
#: Kernels that no name leads to.
_unnamed: list[Any] = []


def kernel_kind(kernel: object) -> str:
    """ "function", "autotuner" (`triton.autotune`) or "heuristics" (`triton.heuristics`); empty for anything else."""
    return _KERNELS.get((type(kernel).__module__, type(kernel).__qualname__), "")


def triton_type(value: object) -> bool:
    """Whether `value` is an element type of Triton's, as `tl.float32`."""
    return (type(value).__module__, type(value).__qualname__) == ("triton.language.core", "dtype")


def triton_constant(value: object) -> bool:
    """Whether `value` is a `tl.constexpr`."""
    return (type(value).__module__, type(value).__qualname__) == ("triton.language.core", "constexpr")


def base_function(kernel: Any) -> Any:
    """The function of `triton.jit` that decorators have wrapped."""
    while kernel_kind(kernel) not in ("function", ""):
        kernel = kernel.fn
    return kernel


def kernel_name(kernel: Any) -> list:
    """What names `kernel` in a launch."""
    base = base_function(kernel)
    module, qualname = base.fn.__module__, base.fn.__qualname__
    try:
        if find(module, qualname) is kernel:
            return [module, qualname, kernel_digest(kernel)]
    except LookupError:
        pass
    for number, each in enumerate(_unnamed):
        if each is kernel:
            return ["", number, ""]
    _unnamed.append(kernel)
    return ["", len(_unnamed) - 1, ""]


def kernel_digest(kernel: Any) -> str:
    """A digest of what capture has looked at in a kernel: its text, that of functions it calls, constants, defaults."""
    base = base_function(kernel)
    kinds = f"{type(kernel).__qualname__} {type(base).__qualname__}"
    defaults = base.fn.__defaults__ or ()
    return f"{kinds} {getattr(base, 'cache_key', '')} {code_digest(base.fn.__code__)} {defaults!r}".strip()


def declared_kernel(launch: str) -> str:
    """The digests of the kernels that a launch names, in this process; empty where one is missing, or has no name."""
    said = json.loads(launch)
    digests = []
    for name in _kernels_in([["kernel", said["kernel"]], *said["args"], *[each for _, each in said["kwargs"]]]):
        try:
            kernel = find(name[0], name[1]) if name[0] else None
        except LookupError:
            kernel = None
        if not kernel_kind(kernel):
            return ""
        digests.append(kernel_digest(kernel))
    return " ".join(digests)


def _kernels_in(arguments: Sequence[list]) -> Iterator[list]:
    for kind, *rest in arguments:
        if kind == "kernel":
            yield rest[0]
        elif kind == "tuple":
            yield from _kernels_in(rest[0])


def launched_kernel(launch: str) -> str:
    """The name of the kernel in a launch."""
    module, qualname, _ = json.loads(launch)["kernel"]
    return f"{module}.{qualname}" if module else base_function(_unnamed[qualname]).fn.__qualname__


@functools.cache
def launcher(launch: str) -> Callable[[Sequence[torch.Tensor], Sequence[int], Sequence[torch.Tensor]], None]:
    """A function of tensors, numbers and items that launches what `launch` says. Raises `LookupError` where the kernel
    is not there."""
    said = json.loads(launch)
    kernel = _named(*said["kernel"])
    writer = _Writer()
    arguments = [writer.text(each) for each in said["args"]]
    arguments += [f"{name}={writer.text(each)}" for name, each in said["kwargs"]]
    grids = [(choice, [writer.text(each) for each in sizes]) for choice, sizes in said["grids"]]
    tuples = ["(" + "".join(f"{each}, " for each in grid) + ")" for _, grid in grids]
    if len(grids) == 1:
        grid = tuples[0]
    else:
        choices = writer.name([choice for choice, _ in grids])
        grid = f"chosen({choices}, ({', '.join(tuples)}))"
    text = f"lambda tensors, numbers, items: run({', '.join([*arguments, f'grid={grid}', 'warmup=False'])})"
    names = {"run": kernel.run, "view": torch.as_strided, "chosen": _chosen, **writer.names}
    return eval(text, names)


def _named(module: str, qualname: Any, digest: str) -> Any:
    kernel = find(module, qualname) if module else _unnamed[qualname]
    if module and kernel_digest(kernel) != digest:
        raise LookupError(f"the kernel {module}.{qualname} is another one")
    return kernel


class _Writer:
    """Arguments of a launch as Python text; numbers are taken in their order."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.taken = self.items = 0

    def name(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def number(self) -> str:
        self.taken += 1
        return f"numbers[{self.taken - 1}]"

    def text(self, argument: list) -> str:
        kind, *rest = argument
        if kind == "tensor":
            return f"tensors[{rest[0]}]"
        if kind == "view":
            which, dims = rest
            sizes, strides = [", ".join(self.number() for _ in range(dims)) for _ in range(2)]
            root = f"tensors[{which}]"
            return f"view({root}, [{sizes}], [{strides}], {root}.storage_offset() + {self.number()})"
        if kind == "number":
            return self.number()
        if kind == "item":
            self.items += 1
            return f"items[{self.items - 1}].item()"
        if kind == "float":
            return self.name(float.fromhex(rest[0]))
        if kind == "kernel":
            return self.name(_named(*rest[0]))
        if kind == "dtype":
            return self.name(getattr(torch, rest[0]))
        if kind == "type":
            return self.name(sys.modules["triton.language"].dtype(rest[0]))
        if kind == "tuple":
            return "(" + "".join(f"{self.text(each)}, " for each in rest[0]) + ")"
        return self.name(rest[0])


def _chosen(choices: Sequence[dict[str, Any]], grids: Sequence[tuple]) -> Callable[[Any], tuple]:
    """The grid, as a function of the constants that a tuner has chosen."""

    def grid(meta: Any) -> tuple:
        for choice, found in zip(choices, grids):
            if all(name in meta and meta[name] == value for name, value in choice.items()):
                return found
        raise RuntimeError("a kernel of Triton is tuned over other constants than when it was compiled for")

    return grid


def launch(
    launch: str, written: Sequence[torch.Tensor], read: Sequence[torch.Tensor], numbers: Sequence[int],
    items: Sequence[torch.Tensor],
) -> Any:  # fmt: skip
    """What the kernel makes of `written`, which stays as it is."""
    made = [torch.empty_strided(each.size(), each.stride(), dtype=each.dtype, device=each.device) for each in written]
    launch_out(launch, written, read, numbers, items, **{f"out{place}": each for place, each in enumerate(made)})
    return made


def launch_out(
    launch: str, written: Sequence[torch.Tensor | None], read: Sequence[torch.Tensor], numbers: Sequence[int],
    items: Sequence[torch.Tensor], **out: torch.Tensor,
) -> None:  # fmt: skip
    """The same in given memory, `out0` and so on, which may be that of `written`; None for one whose contents nobody
    knows."""
    for target, value in zip(out.values(), written, strict=True):
        if value is not None and target.data_ptr() != value.data_ptr():
            target.copy_(value)
    launcher(launch)([*out.values(), *read], numbers, items)


def without_memory(launch: str, written: Sequence[torch.Tensor], *_: Any) -> list[torch.Tensor]:
    return [torch.empty_strided(each.size(), each.stride(), dtype=each.dtype, device="meta") for each in written]
