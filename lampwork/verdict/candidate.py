"""The ways to run a program that are compared, and what to write for each."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import lampwork
from lampwork.ir.record import record


@record
class Way:
    """How something is compiled: by us or by `torch.compile`, with these settings; under autocast to `autocast`."""

    mode: str = "default"
    options: tuple[tuple[str, Any], ...] = ()
    autocast: torch.dtype | None = None
    peer: bool = False
    eager: bool = False

    @property
    def name(self) -> str:
        """As it stands in tables: `default`, `freeze`, `reduce-overhead, freeze`, `torch.compile`."""
        words = [] if self.mode == "default" else [self.mode]
        words += [key if value is True else f"{key}={value}" for key, value in self.options]
        words = ["eager"] if self.eager else words
        words += [str(self.autocast).removeprefix("torch.")] if self.autocast else []
        if self.peer:
            return "torch.compile" + (f" {', '.join(words)}" if words else "")
        return ", ".join(words) or "default"

    def call(self, what: str) -> str:
        """The expression that compiles `what`."""
        arguments = [what]
        arguments += [] if self.mode == "default" else [f'mode="{self.mode}"']
        if self.options:
            listed = ", ".join(f'"{key}": {value!r}' for key, value in self.options)
            arguments.append(f"options={{{listed}}}")
        return f"{'torch' if self.peer else 'lampwork'}.compile({', '.join(arguments)})"

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self.eager:
            return function
        mode = None if self.mode == "default" else self.mode
        options = dict(self.options) or None
        if self.peer:
            return torch.compile(function, mode=mode, options=options)
        return lampwork.compile(function, mode=mode, options=options)

    @contextlib.contextmanager
    def around(self, device: str) -> Iterator[None]:
        """The context that calls are made in."""
        if self.autocast is None:
            yield
        else:
            with torch.autocast(device, dtype=self.autocast):
                yield


@dataclass(frozen=True, eq=False)
class Region:
    """The part of a program that is compiled: all of it (`path` is empty), or some modules of it, each by itself.

    path      what the modules are in the user's program: `h.*`, `backbone`
    modules   the modules, in order
    """

    path: str = ""
    modules: tuple[torch.nn.Module, ...] = ()

    @property
    def words(self) -> str:
        if not self.path:
            return "all of it"
        count = len(self.modules)
        return f"the {count} blocks `{self.path}`" if count > 1 else f"`{self.path}`"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A region compiled in a way."""

    region: Region
    way: Way

    @property
    def name(self) -> str:
        return f"{self.region.path or 'whole'}: {self.way.name}"

    def code(self, variables: Sequence[str], holder: str = "") -> str:
        """What to write in a program that holds the function, or the models that it calls, as `variables`.

        Blocks and children are those of `holder`, or of the first one.
        """
        lines, variable = [], holder or variables[0]
        if self.region.path.endswith(".*"):
            blocks = f"{variable}.{self.region.path[:-2]}"
            lines += [f"for block in {blocks}:", f"    block.forward = {self.way.call('block.forward')}"]
        elif self.region.path:
            forward = f"{variable}.{self.region.path}.forward"
            lines.append(f"{forward} = {self.way.call(forward)}")
        elif not self.way.eager:
            lines += [f"{each} = {self.way.call(each)}" for each in variables]
        if self.way.autocast is not None:
            lines.append(f"with torch.autocast(DEVICE, dtype={self.way.autocast}):  # around the calls")
        return "\n".join(lines)


class Arm:
    """A candidate put into a program: `call` is one call of it, made while it is `entered`."""

    def __init__(self, candidate: Candidate, run: Callable[[Callable[..., Any]], Any], function: Callable[..., Any],
                 device: str) -> None:  # fmt: skip
        self.candidate = candidate
        self.compiled: list[Callable[..., Any]] = []
        self._forwards: list[tuple[torch.nn.Module, Callable[..., Any]]] = []
        self._around = functools.partial(candidate.way.around, device)
        self._run = run
        way, region = candidate.way, candidate.region
        if region.modules:
            self.function = function
            self._forwards = [(each, way.compile(each.forward)) for each in region.modules]
            self.compiled = [forward for _, forward in self._forwards]
        else:
            self.function = way.compile(function)
            self.compiled = [self.function]

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The compiled forwards stand in their modules meanwhile."""
        before = [vars(module).get("forward") for module, _ in self._forwards]
        for module, forward in self._forwards:
            module.forward = forward
        try:
            with self._around():
                yield
        finally:
            for (module, _), own in zip(self._forwards, before):
                if own is None:
                    del module.forward
                else:
                    module.forward = own

    def call(self) -> Any:
        return self._run(self.function)


@record
class Allowed:
    """What the user lets the search try beyond settings that change no result: other types, and the peer."""

    dtypes: tuple[torch.dtype, ...] = ()
    peer: bool = False
    freeze: bool = True


def regions(root: torch.nn.Module | None) -> list[Region]:
    """The whole, and the repeated blocks: the list of most parameters whose modules are of one class, and their
    children where there is none."""
    found = [Region()]
    if root is None:
        return found
    blocks = repeated_blocks(root)
    if blocks is not None:
        return [*found, blocks]
    for name, child in root.named_children():
        if next(child.children(), None) is not None and next(child.parameters(), None) is not None:
            found.append(Region(name, (child,)))
    return found


def repeated_blocks(root: torch.nn.Module) -> Region | None:
    """The modules of one class in one list of `root`, if there are two or more; of several lists the heaviest."""
    best, weight = None, 0
    for path, holder in root.named_modules():
        if not path or not isinstance(holder, torch.nn.ModuleList | torch.nn.Sequential):
            continue
        members = list(holder)
        alike = {type(each) for each in members}
        if len(members) < 2 or len(alike) != 1 or next(members[0].children(), None) is None:
            continue
        size = sum(each.numel() for member in members for each in member.parameters())
        if size > weight:
            best, weight = Region(f"{path}.*", tuple(members)), size
    return best


def ways(task: str, device: str, allowed: Allowed) -> list[Way]:
    """In the order in which they are tried: what is cheap to try and often best comes first."""
    found = [Way()]
    if device == "cuda":
        found += [Way("reduce-overhead"), Way("max-autotune")]
    if task == "infer" and allowed.freeze:
        found += [Way(each.mode, (("freeze", True),)) for each in found if each.mode != "max-autotune"]
    for dtype in allowed.dtypes:
        found += [Way(autocast=dtype, eager=True), *(Way(each.mode, each.options, dtype) for each in found[:2])]
    if allowed.peer:
        found.append(Way(peer=True))
    return found


def candidates(root: torch.nn.Module | None, task: str, device: str, allowed: Allowed) -> list[Candidate]:
    """All that are worth thinking of. The search drops those that cannot pay before it tries them."""
    whole, *parts = regions(root)
    every = ways(task, device, allowed)
    found = [Candidate(whole, each) for each in every]
    found += [Candidate(part, each) for part in parts for each in every[:2] if not each.eager]
    return found


def tables(compiled: Iterable[Callable[..., Any]]) -> Sequence[Mapping[str, Any]]:
    """`lampwork.stats` of what we compiled among `compiled`."""
    found = []
    for each in compiled:
        with contextlib.suppress(TypeError):
            found.append(lampwork.stats(each))
    return found
