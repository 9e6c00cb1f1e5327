"""How the results of a region are differentiated: data that capture, partitioning and the runtime share.

A region whose results require grad is recorded with its gradients after it, as one joint graph. `Joint` says which
placeholders and outputs are what; after the graph was cut in two, `Backward` says how the runtime ties the halves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lampwork.ir.record import record

if TYPE_CHECKING:
    from lampwork.ir.artifact import Artifact
    from lampwork.ir.replay import Call, EagerBackward, Replay
    from lampwork.ir.size import Size

#: In the `meta` of nodes of a joint graph: a bit for each tangent whose result leads to the derivative that gave this
#: gradient, which is computed from none of them, as that of `x ** 0` is.
ARRIVES = "arrives"


@record
class Made:
    """How result k of the region comes to be what eager returns.

    plain             the program's result, with no tie to autograd
    output            output `index` of the differentiated function
    view              what call `index` of `Joint.views` makes
    view of output    one strided view of that output, made by autograd: it shares its history
    detached output   a view of its memory without its history
    view of input     one strided view of graph input `index`, made by autograd
    detached input    a view of its memory without its history
    """

    kind: Literal["plain", "output", "view", "view of output", "detached output", "view of input", "detached input"]
    index: int = 0


@record
class Output:
    """What a tangent belongs to: graph output `index`; or graph input `index`, which the region writes in place
    (`written`), and which has another history after that."""

    index: int
    written: bool = False


@record
class Views:
    """How results that are views are made above autograd, by eager's own view operators.

    Values are the outputs of the differentiated function, the graph inputs `inputs`, and what `calls` return, in this
    order. The first argument of a call is a value. `symbols`: where each size that varies stands, as in `Replay`.
    `late`: the calls whose gradients autograd's engine adds to an input's after those of the differentiated function.
    `early`: the calls that the program made before it had the input require grad: what they return has no history.
    """

    inputs: tuple[int, ...] = ()
    calls: tuple[Call, ...] = ()
    symbols: tuple[tuple[str, int, int | None], ...] = ()
    late: tuple[int, ...] = ()
    early: tuple[int, ...] = ()


@record
class GradientLayout:
    """How eager lays out a gradient, given the layouts of tangents: its strides. Or it is that tangent, or that earlier
    gradient, as an object; -1: it is not."""

    strides: tuple[Size, ...]
    tangent: int = -1
    same: int = -1


@record
class Checked:
    """What eager's autograd saves and the caller can write to: graph input `index`, or result `index` (`is_result`).
    Eager raises where it was written since, and one of the `tangents` is defined; the backward half may not read it."""

    index: int
    is_result: bool
    tangents: tuple[int, ...]


@record
class Joint:
    """What the graph of a region that is differentiated holds beside its program.

    The placeholders after the region's inputs are tangents, one for each of `outputs`. The graph's outputs are
    `results` tensors that templates name, the bases of views among them that no template names, and one gradient for
    each input of `wanted`. `depends[k]`: the tangents that gradient k depends on; where all of them are undefined, so
    is the gradient. `made`: one for each of `results`. `granted`: inputs that require grad because the program says so.
    `moved`: inputs that are given another shape or memory in place, after the forward program. `views`: how results
    that are views of inputs and of outputs are made. `layouts[k]`: of gradient k, where each tangent is laid out as the
    graph has it. `checked`: what eager's autograd saves of what the caller sees. `saves`: it saves any tensor, so
    that a second backward pass raises. `freed`: for each of its nodes that do, once, the tangents that lead there: a
    pass for one of them frees what one for another needs. `unnoticed`: what it reads without a look at whether it was
    written, through memory that has a version of its own. `held`: what it saves at all, running statistics and inputs
    that are `moved`, too; None where that is not known. (Partitioning alone asks for these two.)
    """

    results: int
    hidden: int
    outputs: tuple[Output, ...]
    made: tuple[Made, ...]
    wanted: tuple[int, ...]
    depends: tuple[tuple[int, ...], ...]
    granted: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    views: Views = Views()
    layouts: tuple[GradientLayout, ...] = ()
    checked: tuple[Checked, ...] = ()
    saves: bool = True
    freed: tuple[tuple[int, ...], ...] = ()
    unnoticed: tuple[Checked, ...] = ()
    held: tuple[Checked, ...] | None = None


@record
class Tangent:
    """The layout that the backward program was compiled for. None: it varies; strides are those of the output itself
    where that is dense, else those of a contiguous tensor."""

    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None


@record
class Saved:
    """A saved tensor as the backward program takes it. `tangents`: those of which some gradient is computed with it.
    Where all of them are undefined, eager's engine does not look at the tensor: zeros will do in its place, or the
    `least` that operators take which look at what they are given."""

    tangents: tuple[int, ...]
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    least: int = 0


@record
class Backward:
    """The backward half of an artifact.

    The forward program's results are those of the region, then hidden bases, then what is saved. The backward program
    (None where nothing is to be computed) takes the inputs `saved_inputs` of the graph, the forward's results
    `saved_results` and `numbers` (sizes that vary), then tangents; it returns the gradients of `joint.wanted`. Behind
    the tangents stands, for each of those `told`, a bool of one element: whether there is that tangent. Where there is
    none and it is among the `optional` ones, its memory is not read.

    `replay`: a `lampwork.ir.replay.Replay`, for second derivatives, which reads the graph inputs `replayed`; where
    `unrepeatable` says why that cannot be, it tells layouts of gradients alone, or is None. In a stored artifact it is
    encoded, and read when it is first needed. `symbols`: the names of the sizes `numbers`. `eager`: what computes
    gradients where the backward program fails; None where eager's operators cannot. It is stored as `replay` is.
    `saved`: of each saved tensor, inputs first, where there are several tangents. `checked`: of `joint.checked`, what
    is not among the saved tensors, or among those of fewer tangents; it is saved for the sake of its version.
    `unnoticed`: places among the saved tensors, inputs first, of those that have versions of their own: the backward
    program reads what the caller wrote there, as eager does.
    `zeros`: of gradients that some results lead to by zeros alone, as that of `sgn` is: the tangents that they are
    computed from, and those of these results. With none but the latter the backward program is not used.
    """

    joint: Joint
    saved_inputs: tuple[int, ...] = ()
    saved_results: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    tangents: tuple[Tangent, ...] = ()
    optional: tuple[int, ...] = ()
    told: tuple[int, ...] = ()
    artifact: Artifact | None = None
    replay: Replay | bytes | None = None
    replayed: tuple[int, ...] = ()
    unrepeatable: str = ""
    symbols: tuple[str, ...] = ()
    eager: EagerBackward | bytes | None = None
    saved: tuple[Saved, ...] = ()
    checked: tuple[Checked, ...] = ()
    unnoticed: tuple[int, ...] = ()
    zeros: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
