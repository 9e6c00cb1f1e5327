"""`Region`: a captured stretch of a program, and `FunctionalGraph`, the same after functionalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from lampwork.ir.continuation import BreakReason, Place, Resumption
from lampwork.ir.differentiation import Joint
from lampwork.ir.guard import Guard
from lampwork.ir.location import Location
from lampwork.ir.record import record
from lampwork.ir.source import Source
from lampwork.ir.template import Effect, HostCall, NewThing, Template

if TYPE_CHECKING:
    import torch.fx

    from lampwork.errors import Diagnostic


@record
class Return:
    """The region ends by returning this value to the caller."""

    value: Template


@record
class Raise:
    """The region ends by raising this exception (an object of `Region.objects`, or one from outside)."""

    exception: Template


@record
class Continue:
    """The region ends at a break: `callable(*args, **kwargs)` runs natively, then frames go on with `live` values.

    `delivery`: what becomes of the call's result: "push" (one value), "drop" (none), "spread" (its items), "iterate"
    and "jump" (`otherwise` goes on if it is `ir.operations.EXHAUSTED`; else one value, or none). `raised`: goes on if
    the call raises; None: no frame handles that, and the exception leaves the whole call. With `after.handled` the call
    runs while the last live value is being handled. `places`: the lines of the frames, outermost first.
    """

    callable: Template
    args: tuple[Template, ...]
    kwargs: tuple[tuple[str, Template], ...]
    live: tuple[Template, ...]
    delivery: str
    after: Resumption
    otherwise: Resumption | None
    raised: Resumption | None
    places: tuple[Place, ...]
    reason: BreakReason


@record
class RunEagerly:
    """Under the entry's guards the whole call runs eagerly, counted as a fall-back: what the program does there is not
    compiled (a break that cannot be resumed yet, results that need differentiation). `id`, `reason`, `location` and
    `remedy` are those of the `Diagnostic`. Nothing of the entry's graph runs."""

    id: str
    reason: str
    location: Location = Location()
    remedy: str = ""
    is_break: bool = False


Outcome = Return | Raise | Continue | RunEagerly


@record(frozen=False)
class Region:
    """A graph of ATen operators with the guards under which it is the program, and what follows it.

    `graph`: placeholders in the order of `inputs`; nodes call `torch.ops.*` overloads, in program order, in-place
    operators and views included, exactly as recorded. `node.meta["val"]`: fake tensor (tuple of them);
    `node.meta["location"]`: `Location`; `node.meta["grad_enabled"]`: bool. The output node lists the tensors
    that templates name by `TensorValue(index)`, as one flat tuple.
    `requires_grad_outputs`: some result would require grad in eager. Then `joint` says how the graph goes on with the
    gradients (its placeholders and outputs after those named above are the joint's); or `undifferentiated` why not.
    `own_gradients`: why these are not those of the graph's operators, empty if they are.
    `optimizers`: ids of those whose step is part of the region. `locks`: those that the program takes, in its order.
    `host_calls`: what the entry calls before the graph runs.
    `code_digests`: digests of every function whose bytecode was interpreted, by "module:qualname".
    `vouched`: the libraries of functions that ran natively, on the word of whoever marked them; "" for one that may
    call anything.
    `raised`, `versions`, `separate`, `detached`, `inference`: as in `ir.program.Program`.
    `sizes`: the symbols in the graph (`fakes.symbolic.SymbolicSizes`), None without any. Its guards are not in
    `guards`: later stages may ask questions that add to them. An input of the graph may be a symbolic integer.
    """

    name: str
    graph: torch.fx.Graph
    inputs: tuple[Source, ...]
    guards: tuple[Guard, ...]
    objects: tuple[NewThing, ...]
    effects: tuple[Effect, ...]
    outcome: Outcome
    code_digests: Mapping[str, str] = field(default_factory=dict)
    vouched: frozenset[str] = frozenset()
    requires_grad_outputs: bool = False
    input_values: tuple[object, ...] = ()
    location: Location = Location()
    sizes: Any = None
    joint: Joint | None = None
    undifferentiated: Diagnostic | None = None
    own_gradients: str = ""
    optimizers: frozenset[int] = frozenset()
    locks: tuple[Source, ...] = ()
    host_calls: tuple[HostCall, ...] = ()
    raised: tuple[tuple[int, int], ...] | None = None
    versions: tuple[tuple[int, int], ...] = ()
    separate: tuple[tuple[int, int], ...] = ()
    detached: tuple[tuple[int, int], ...] = ()
    inference: tuple[int, ...] = ()


@record
class AliasOfInput:
    """Result is (a view of) input `input`. `view` None: the very tensor; else (shape, strides, offset relative to the
    input's own storage offset, in elements of `dtype`). `conjugate`: lazily conjugated, as `x.conj()` is."""

    input: int
    view: tuple[tuple, tuple, Any] | None = None
    dtype: str | None = None
    conjugate: bool = False


@record
class FromGraph:
    """Result is `graph output[index]`, or a strided view of it (several results may share storage this way).
    `conjugate`: lazily conjugated."""

    index: int
    view: tuple[tuple, tuple, Any] | None = None
    dtype: str | None = None
    conjugate: bool = False


@record(frozen=False)
class FunctionalGraph:
    """A pure graph: no in-place operators, no aliasing to think about.

    `graph`: placeholders as in `Region.inputs` followed by `derived` inputs; views remain as ordinary operators;
    the output node is one flat tuple of fresh values. `results[k]`: what `TensorValue(k)` is. `writes`: (input
    index, graph output index) to copy into the input's memory at the end, in order. `rows`: the inputs among these
    whose output is memory in a row, and how many elements after the input's first one it begins: that of inputs which
    overlap themselves, and what a program reaches outside of them. `derived`: recipes for inputs computed from other
    inputs once and cached (packed weights), as (operator name, input indices, constants).
    `numbers`: integers computed from sizes (`torch.SymInt`), which are results after the others. `overlapping`: inputs
    that share memory which is written; what is stored into one of them changes the others.
    Random operators keep program order. `device`: the one that kernels and planned memory are on ("cpu", "cuda:0").
    `copies`: tables of inputs, by index: what the graph does to those of a table's first row, the program does to those
    of each other row.
    """

    graph: torch.fx.Graph
    results: tuple[AliasOfInput | FromGraph, ...]
    writes: tuple[tuple[int, int], ...] = ()
    derived: tuple[tuple[str, tuple[int, ...], tuple[Any, ...]], ...] = ()
    device: str = "cpu"
    numbers: tuple[Any, ...] = ()
    overlapping: tuple[tuple[int, ...], ...] = ()
    rows: tuple[tuple[int, Any], ...] = ()
    copies: tuple[tuple[tuple[int, ...], ...], ...] = ()
