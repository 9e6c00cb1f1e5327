"""The first operator of a stage whose value is wrong. Nodes of graphs and buffers share names: by these values are
compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

import torch
import torch.fx

from lampwork.debug.interpret.graphs import GraphRun, prepacked
from lampwork.debug.interpret.nests import Nests
from lampwork.debug.interpret.steps import Execution, Steps
from lampwork.ir.attention import Attention
from lampwork.ir.location import Location, Origin
from lampwork.ir.loops import Kernel, LoopNest
from lampwork.ir.program import Extern, Launch, Lowered, Step, step_buffers
from lampwork.ir.record import record
from lampwork.ir.region import FunctionalGraph
from lampwork.ir.weighted_sums import WeightedSums
from lampwork.verification.eager import Beside64, Rounded
from lampwork.verification.judge import Allowed, Difference, difference
from lampwork.verification.values import run_on


@record
class Found:
    """The operator where a wrong value was seen first, and the kernel that computes it, if one does."""

    origin: Origin
    what: Difference
    kernel: str = ""


@record(frozen=False)
class Values:
    """What nodes of a graph gave, by name: eager's numbers, the same in float64, and off by roundings."""

    eager: dict[str, Any] = field(default_factory=dict)
    wide: dict[str, Any] = field(default_factory=dict)
    rounded: list[dict[str, Any]] = field(default_factory=list)

    def wrong(self, name: str, value: Any) -> Difference | None:
        if name not in self.eager or not isinstance(value, torch.Tensor):
            return None
        expected = self.eager[name]
        if not isinstance(expected, torch.Tensor) or expected.shape != value.shape or expected.dtype != value.dtype:
            return None
        return difference(name, value, *Allowed(self.eager, self.wide, self.rounded).of(name))


class Noting(GraphRun):
    """Notes the value of each node as it is made, before anything writes to it."""

    def __init__(self, graph: torch.fx.Graph, inputs: Sequence[Any], note: Callable[[str, Any], None]) -> None:
        super().__init__(graph, inputs)
        self.note = note

    def call(self, node: torch.fx.Node) -> Any:
        made = super().call(node)
        self.note(node.name, made)
        return made


def values_of(graph: torch.fx.Graph, inputs: list[Any], derived: Sequence[tuple] = (), rounded: int = 2) -> Values:
    """The values of all nodes of `graph` for `inputs`."""
    found = Values()

    def run(kept: dict[str, Any], mode: Beside64 | Rounded | None) -> None:
        def note(name: str, value: Any) -> None:
            if isinstance(value, torch.Tensor):
                kept[name] = mode.of(value) if isinstance(mode, Beside64) else value.detach().clone()

        def call(own: list[Any]) -> list[Any]:
            return Noting(graph, [*own, *prepacked(derived, own)], note).run()

        run_on(inputs, call, mode)

    run(found.eager, None)
    run(found.wide, Beside64())
    for seed in range(rounded):
        kept: dict[str, Any] = {}
        try:
            run(kept, Rounded(seed))
        except (RuntimeError, ValueError, IndexError):
            continue
        found.rounded.append(kept)
    return found


def origin_of(node: torch.fx.Node) -> Origin:
    target = node.target
    name = getattr(target, "_schema", None)
    operator = f"{name.name}.{name.overload_name or 'default'}" if name is not None else str(target)
    return Origin(node.name, operator, node.meta.get("location") or Location())


def wrong_node(functional: FunctionalGraph, inputs: list[Any], right: Values) -> Found | None:
    """Of a graph that passes left, the first node whose value is not that of the node of the same name before."""
    found: list[Found] = []
    nodes = {node.name: node for node in functional.graph.nodes}

    def note(name: str, value: Any) -> None:
        what = right.wrong(name, value) if not found else None
        if what is not None:
            found.append(Found(origin_of(nodes[name]), what))

    run_on(inputs, lambda own: Noting(functional.graph, [*own, *prepacked(functional.derived, own)], note).run())
    return found[0] if found else None


class _NotingNests(Nests):
    """Looks at the buffer that each item stores to."""

    def __init__(self, lowered: Lowered, inputs: Sequence[Any], look: Callable[[str, Any, Origin], None]) -> None:
        super().__init__(lowered, inputs)
        self.look = look
        last: dict[str, int] = {}
        for number, item in enumerate(lowered.items):
            for name in _stores(item):
                last[name] = number
        self.last, self.number_of = last, {id(item): number for number, item in enumerate(lowered.items)}

    def nest(self, nest: LoopNest) -> None:
        super().nest(nest)
        self._seen(nest, (nest.store.buffer,))

    def extern(self, item: Extern) -> None:
        super().extern(item)
        self._seen(item, tuple(name for name in item.outputs if name is not None))

    def _seen(self, item: Any, names: tuple[str, ...]) -> None:
        for name in names:
            if self.last.get(name) == self.number_of.get(id(item)) and name in self.tensors:
                self.look(name, self.tensors[name], item.origin)


def _stores(item: Any) -> tuple[str, ...]:
    if isinstance(item, LoopNest):
        return (item.store.buffer,)
    if isinstance(item, (Attention, WeightedSums)):
        return item.written
    return tuple(name for name in item.outputs if name is not None) if isinstance(item, Extern) else ()


def wrong_item(
    lowered: Lowered, items: Sequence[Any] | None, buffers: Any, inputs: list[Any], right: Values
) -> Found | None:
    """The first loop nest or call whose buffer is not what the graph's node of that name is. `items` and `buffers`: in
    place of the program's own."""
    found: list[Found] = []

    def look(name: str, value: Any, origin: Origin) -> None:
        what = right.wrong(name, value) if not found else None
        if what is not None:
            found.append(Found(origin, what))

    if items is not None:
        lowered = replace(lowered, items=tuple(items), buffers=buffers, writes=(), copies=())
    try:
        run_on(inputs, lambda own: _NotingNests(lowered, own, look).run())
    except Exception:
        if not found:
            raise
    return found[0] if found else None


class _NotingSteps(Execution):
    """Looks at the buffers of each step after it."""

    def __init__(self, program: Steps, inputs: list[Any], look: Callable[[Step, str, Any], None]) -> None:
        super().__init__(program, inputs)
        self.look = look

    def launch(self, step: Launch) -> None:
        super().launch(step)
        self._seen(step)

    def extern(self, step: Extern) -> None:
        super().extern(step)
        self._seen(step)

    def _seen(self, step: Step) -> None:
        for name in dict.fromkeys(step_buffers(step)):
            if name in self.places and name in self.buffers and self.buffers[name].kind == "intermediate":
                self.look(step, name, self.view(self.whole(name)))


def wrong_step(program: Steps, inputs: list[Any], right: Values) -> Found | None:
    """The first kernel or call after which a buffer is not what the graph's node of that name is."""
    found: list[Found] = []

    def look(step: Step, name: str, value: Any) -> None:
        made = name in _written(step, program.kernels)
        what = right.wrong(name, value) if made and not found else None
        if what is not None:
            found.append(Found(_origin_in(step, name), what, kernel_name(step, program.kernels)))

    try:
        run_on(inputs, lambda own: _NotingSteps(program, own, look).run())
    except Exception:
        if not found:
            raise
    return found[0] if found else None


def kernel_name(step: Step, kernels: Sequence[Kernel]) -> str:
    return kernels[step.kernel].name if isinstance(step, Launch) else ""


def _written(step: Step, kernels: Sequence[Kernel]) -> set[str]:
    if isinstance(step, Launch):
        parameters = kernels[step.kernel].parameters
        wide = len(parameters)
        return {
            name for place, name in enumerate(step.buffers) if parameters[place % wide].access != "read"
        }  # fmt: skip
    return {name for name in step.outputs if name is not None} if isinstance(step, Extern) else set()


def _origin_in(step: Step, name: str) -> Origin:
    """The operator of the step that computes the buffer `name`; else its last one."""
    origins = step.origins if isinstance(step, Launch) else (step.origin,)
    known = [each for each in origins if each.node == name.partition(".")[0]]
    return (known or list(origins) or [Origin("", "")])[-1]
