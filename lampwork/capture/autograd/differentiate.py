"""Differentiates what a region returns, while it is recorded: the joint graph of results and gradients.

    y = x * w            y = mul(x, w)
                         gradient of w = mul(tangent of y, x)

Fakes have eager's own autograd above the recorder, so eager's engine is run on tangents without memory, and the
derivatives that it calls are recorded after the program. Gradients go to the graph inputs that require grad and stop
there: hooks and accumulation on the caller's tensors are eager's.

Raises `Unsupported` (id "needs-grad") for results whose history cannot be tied to the caller's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from lampwork import _torch
from lampwork.capture.autograd.backward import has_new_history
from lampwork.capture.autograd.derivatives import as_of_plain_tensors
from lampwork.capture.autograd.gradient_layouts import layouts_of
from lampwork.capture.autograd.reached import Arrivals, reached_nodes, reaching
from lampwork.capture.autograd.refused import refused
from lampwork.capture.autograd.result_views import ResultViews
from lampwork.capture.autograd.saved_values import kept_by_eager
from lampwork.capture.record.recorder import Recorder
from lampwork.errors import GraphBreak
from lampwork.fakes.fake import Fake
from lampwork.fakes.shapes import is_dense
from lampwork.fakes.strides import surely_same
from lampwork.ir.differentiation import ARRIVES, Joint, Made, Output, Views


def differentiate(
    recorder: Recorder, outputs: list[Fake], spent: Collection[int] = (), written: Sequence[int] = ()
) -> Joint | None:
    """Records the gradients of `outputs`, and of inputs that were written, with respect to the recorder's inputs.

    `spent`: indices of outputs whose history the program has used up itself. `written`: indices of inputs that have
    another history than at the start.

    Tensors that must leave the graph for that (bases of views, gradients) are appended to `outputs`. None where no
    result needs to be differentiated.
    """
    return _Differentiation(recorder, outputs, spent).run(written)


class _Differentiation:
    def __init__(self, recorder: Recorder, outputs: list[Fake], spent: Collection[int]) -> None:
        self.recorder = recorder
        self.outputs = outputs
        self.spent = spent
        self.results = len(outputs)
        self.inputs: list[Any] = list(recorder.inputs)
        #: What tangents belong to, and the fakes they are the tangents of.
        self.targets: list[Output] = []
        self.target_fakes: list[Fake] = []
        self.hidden: list[Fake] = []
        #: Results without a history, in memory of inputs that require grad: (position, input).
        self.bare: list[tuple[int, int]] = []
        self.arrivals = Arrivals()

    def run(self, written: Sequence[int]) -> Joint | None:
        self.find_written_inputs(written)
        made = self.find_outputs()
        views = self.views(made)
        if not self.targets and all(each.kind == "plain" for each in made):
            return None
        self.outputs += self.hidden
        if not self.targets:
            return Joint(self.results, 0, (), tuple(made), (), (), views=views)
        candidates = self.candidates()
        self.check_leaves()
        self.check_kept_gradients()
        moved = self.moved_inputs()
        kept = kept_by_eager(
            self.recorder, self.outputs[: self.results], made, self.targets, self.target_fakes, moved
        )  # the engine frees what is saved
        tangents = [self.tangent(fake) for fake in self.target_fakes]
        found = self.gradients(tangents, [edge for _, edge in candidates])
        if len(self.targets) > 1 and self.recorder.tells_undefined:
            raise refused("a backward method may make something else of gradients that are missing than of zeros")
        pairs = [(index, each) for (index, _), each in zip(candidates, found) if each is not None]
        wanted = tuple(index for index, _ in pairs)
        if not wanted:
            raise refused("the results depend on no tensor from outside that requires grad")
        if any(self.is_replaced(index) for index in wanted if index in moved):
            raise refused("an input is given data of another size or type, and differentiated")
        depends = self.dependences(tangents, pairs)
        self.check_overwritten(dict(zip(wanted, depends)))
        self.outputs += [each for _, each in pairs]
        layouts = layouts_of([each for _, each in pairs], tangents)
        return Joint(
            self.results, len(self.hidden), tuple(self.targets), tuple(made), wanted, depends, moved=moved, views=views,
            layouts=layouts, checked=kept.checked, saves=kept.saves, freed=kept.freed, unnoticed=kept.unnoticed,
            held=kept.held,
        )  # fmt: skip

    # What is differentiated -----------------------------------------------------------------------

    def find_written_inputs(self, written: Sequence[int]) -> None:
        """Inputs whose history the program changed by writing to them."""
        for index in written:
            fake = self.inputs[index]
            if sum(isinstance(each, Fake) and _same_memory(each, fake) for each in self.inputs) > 1:
                raise refused("an input that shares memory with another is written and differentiated")
            if tuple(fake.lampwork_placeholder.meta["val"].size()) != tuple(fake.size()):
                raise refused("an input is given another shape in place, and differentiated")
            self.targets.append(Output(index, written=True))
            self.target_fakes.append(fake)

    def moved_inputs(self) -> tuple[int, ...]:
        """Inputs that the program gave another shape or memory in place (`x.t_()`, `x.data = y`)."""
        node_of = self.recorder.node_of
        return tuple(
            index
            for index, fake in enumerate(self.inputs)
            if isinstance(fake, Fake) and node_of(fake) is not fake.lampwork_placeholder
        )

    def is_replaced(self, index: int) -> bool:
        """Whether an input has another size or type than the caller's tensor, whose gradient the region gives."""
        fake = self.inputs[index]
        passed = fake.lampwork_placeholder.meta["val"]
        return passed.dtype is not fake.dtype or not surely_same(passed.size(), fake.size())

    def find_outputs(self) -> list[Made]:
        """How each result is made; new targets for those in memory of the region's own."""
        made = [Made("plain")] * self.results
        owners = {_torch.storage_key(fake): index for index, fake in enumerate(self.inputs) if isinstance(fake, Fake)}
        groups: dict[int, list[int]] = {}
        for position, fake in enumerate(self.outputs):
            key = _torch.storage_key(fake)
            if key not in owners:
                groups.setdefault(key, []).append(position)
            elif self.is_differentiated(position):
                made[position] = Made("view of input", self.viewed_input(fake))
            elif not fake.requires_grad and has_new_history(self.inputs[owners[key]]):
                made[position] = Made("detached input", owners[key])
            elif fake is not self.inputs[owners[key]] and self.inputs[owners[key]].requires_grad:
                self.bare.append((position, owners[key]))
        for members in groups.values():
            differentiated = [each for each in members if self.is_differentiated(each)]
            if len(members) == 1 and differentiated:
                made[members[0]] = self.target(members[0])
            elif differentiated:
                self.share_base(members, differentiated, made)
        return made

    def is_differentiated(self, position: int) -> bool:
        return position not in self.spent and _is_differentiated(self.outputs[position])

    def viewed_input(self, fake: Fake) -> int:
        """The input that `fake` is a view of by autograd."""
        for index, each in enumerate(self.inputs):
            if isinstance(each, Fake) and _same_memory(each, fake) and each.dtype == fake.dtype:
                if each is fake or self.is_view_of(fake, each):
                    return index
        raise refused("a result shares the memory of an input, but not through views that autograd knows")

    def is_view_of(self, fake: Fake, base: Fake) -> bool:
        """Whether the history of `fake` leads to `base` through differentiable views alone, so that a strided view of
        `base` has the same gradient. No hook is on the way: what is not part of the graph does not call it."""
        node: Any = fake.grad_fn
        end = base.grad_fn
        while node is not None:
            if node is end or (end is None and getattr(node, "variable", None) is base):
                return True
            if not type(node).__name__.startswith(_VIEW_NODES) or len(node.next_functions) != 1:
                return False
            if isinstance(node, _torch.FunctionNode):  # of a user's function, which may be called `View`
                return False
            if any(each is node for each in self.recorder.hooked_nodes):
                return False
            node = node.next_functions[0][0]
        return False

    def may_reach_outside(self, fake: Fake, base: Fake) -> bool:
        """Whether `fake` is an `as_strided` of a view of `base`: it gives no gradient to elements outside of that view,
        as an `as_strided` of `base` would."""
        node, end = fake.grad_fn, base.grad_fn
        while node is not None and node is not end:
            following = node.next_functions[0][0] if node.next_functions else None
            is_of_base = following is end or getattr(following, "variable", None) is base
            if type(node).__name__.startswith("AsStridedBackward") and not is_of_base:
                return True
            node = following
        return False

    def is_late(self, fake: Fake, base: Fake) -> bool:
        """Whether the gradient of `base`, through its view `fake`, comes after one through other operators: the engine
        runs the nodes that were made last first."""
        if has_new_history(base):
            return False
        end = base.grad_fn if base.grad_fn is not None else base
        node: Any = fake.grad_fn
        while node is not None and not _leads_to(node, end):
            node = node.next_functions[0][0]
        if node is None:
            return False
        made = _torch.sequence_number(node)
        others = reached_nodes(self.target_fakes)
        return any(_torch.sequence_number(each) > made for each in others if _leads_to(each, end))

    def target(self, position: int) -> Made:
        self.targets.append(Output(position))
        self.target_fakes.append(self.outputs[position] if position < self.results else self.hidden[-1])
        return Made("output", len(self.targets) - 1)

    def share_base(self, members: list[int], differentiated: list[int], made: list[Made]) -> None:
        """Results in one memory: the tensor that they are views of is the output, and they are views of it again."""
        roots = [each for each in differentiated if self.outputs[each]._base is None]
        base = self.outputs[roots[0]] if roots else self.outputs[differentiated[0]]._base
        assert base is not None
        if len(roots) > 1 or not _is_differentiated(base) or type(base) is not Fake:
            raise refused("several results share memory, but not as views of one tensor that autograd knows")
        if roots:
            output = self.target(roots[0])
        else:
            self.hidden.append(base)
            output = self.target(self.results + len(self.hidden) - 1)
        for position in members:
            fake = self.outputs[position]
            if fake is base:
                made[position] = output
            elif fake.dtype != base.dtype or fake.is_conj() != base.is_conj():
                raise refused("a result is a view of another of another element type")
            elif position not in differentiated:
                made[position] = Made("detached output", output.index)
            elif self.is_view_of(fake, base):
                made[position] = Made("view of output", output.index)
            else:
                raise refused("several results share memory, but not as views of one tensor that autograd knows")

    def views(self, made: list[Made]) -> Views:
        """How results that are views of inputs and outputs come about; what is `made` of them names a call there.

        Where the program's views cannot be called again, one strided view does if no two elements share memory."""
        found = ResultViews(self.recorder, len(self.targets))
        for position, each in enumerate(made):
            if each.kind in ("plain", "output"):
                continue
            source = "input" if each.kind.endswith("input") else "output"
            base = self.inputs[each.index] if source == "input" else self.target_fakes[each.index]
            fake = self.outputs[position]
            if fake is base:
                continue
            late = source == "input" and each.kind.startswith("view") and self.is_late(fake, base)
            call = found.find(fake, base, source, each.index, late)
            if call is not None:
                made[position] = Made("view", call)
            elif each.kind.startswith("view") and not _is_surely_distinct(base):
                raise refused("a result is a view of a tensor whose elements share memory, by unknown operators")
            elif each.kind.startswith("view") and self.may_reach_outside(fake, base):
                raise refused("a result is an as_strided of a view, and may have elements outside of that view")
        for position, index in self.bare:  # views that autograd knows, made where gradients were off; detached tensors
            call = found.find(self.outputs[position], self.inputs[index], "input", index)
            if call is not None:
                made[position] = Made("view", call)
            elif not self.outputs[position].requires_grad and self.outputs[position].dtype == self.inputs[index].dtype:
                made[position] = Made("detached input", index)
        return found.finish()

    # Gradients ------------------------------------------------------------------------------------

    def candidates(self) -> list[tuple[int, Any]]:
        """Inputs that required grad when the call began, each with where its gradient arrives. Left out are histories
        that no result leads to, of an input that was detached in place: PyTorch 2.11's engine crashes when asked."""
        found: list[tuple[int, Any]] = []
        nodes = set(reached_nodes(self.target_fakes))
        for index, fake in enumerate(self.inputs):
            if not isinstance(fake, Fake):
                continue
            if fake.lampwork_edge is not None:
                if fake.lampwork_edge in nodes:
                    found.append((index, torch.autograd.graph.GradientEdge(fake.lampwork_edge, 0)))
            elif fake.requires_grad and fake.is_leaf:
                found.append((index, fake))
        return found

    def edges(self) -> set[Any]:
        """The nodes that stand for histories of inputs."""
        return {fake.lampwork_edge for fake in self.inputs if isinstance(fake, Fake) and fake.lampwork_edge}

    def check_leaves(self) -> None:
        """Refuses leaves that the program made and that the caller gets, and those with hooks: somebody would see their
        gradient, and a region computes none for them. The gradient of a leaf that nothing holds after the call is
        never seen, and is not computed."""
        known = {id(fake) for fake in self.inputs}
        kept = {id(fake) for fake in (*self.outputs, *self.recorder.hooked_leaves)}
        kept |= {id(fake._base) for fake in self.outputs}
        pending = [fake.grad_fn for fake in self.target_fakes]
        ends = self.edges()
        seen = set(pending)
        while pending:
            node = pending.pop()
            if node is None or node in ends:
                continue
            variable = getattr(node, "variable", None)
            is_leaf = variable is not None and not node.next_functions
            if is_leaf and id(variable) not in known and (id(variable) in kept or type(variable) is not Fake):
                raise refused("a result depends on a tensor made in the region that requires grad itself")
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    pending.append(following)

    def check_overwritten(self, depends: dict[int, tuple[int, ...]]) -> None:
        """Every result depends on what a written input was, if that has a history. Eager does not run that history for
        another result, and may not: it may have saved what was overwritten. The node of a region leads to it."""
        for target in self.targets:
            history = self.inputs[target.index].lampwork_edge if target.written else None
            if history is not None and len(depends.get(target.index, ())) < len(self.targets):
                raise refused("a written input has a history, which not every result depends on")

    def check_kept_gradients(self) -> None:
        """No result that keeps its gradient (`retain_grad()`), or that eager's hooks will be on, is what another is
        computed from: all results are those of one node, and no gradient flows from one to another."""
        for fake in self.target_fakes:
            others = [each for each in self.target_fakes if each is not fake]
            kept = fake.retains_grad or any(each is fake for each in self.recorder.watched)
            if kept and others and fake.grad_fn in reached_nodes(others):
                raise refused("a result keeps its gradient, and others are computed from it")

    def tangent(self, fake: Fake) -> Fake:
        """The placeholder of what autograd hands in for `fake`: in its strides, if they are dense."""
        size = tuple(fake.size())
        strides = tuple(fake.stride()) if is_dense(size, fake.stride()) else None
        if strides is None:
            strides = _contiguous(size)
        with self.recorder._paused():
            made = _torch.tensor_without_memory(Fake, size, strides, fake.dtype, fake.device)
        return self.recorder.tangent(made)

    def gradients(self, tangents: list[Fake], edges: list[Any]) -> Sequence[Any]:
        """The gradients that arrive at `edges`; None where none does."""
        if not edges:
            raise refused("the results depend on no tensor from outside that requires grad")
        if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
            raise refused("anomaly detection looks at the gradients of every operator for NaN")
        _torch.keep_dynamo_unloaded()
        recorder = self.recorder
        before, recorder.written, recorder.differentiating = recorder.written, set(), True
        try:
            nodes = reached_nodes(self.target_fakes)
            several = len(tangents) > 1
            with (
                torch.no_grad(),
                _torch.without_autocast(),
                as_of_plain_tensors(recorder, nodes),
                self.arrivals.noted(nodes if several else ()),
            ):
                found = _torch.run_backward(
                    tuple(self.target_fakes), tuple(tangents), True, False, tuple(edges), allow_unreachable=True,
                    accumulate_grad=False,
                )  # fmt: skip
        except RuntimeError as error:
            raise refused(f"autograd refuses to differentiate the results: {error}") from error
        except Exception as error:
            if not recorder.own_gradients or isinstance(error, GraphBreak):
                raise
            raise refused(f"a hook or a backward method raises {type(error).__name__}: {error}") from error
        if recorder.written:
            self.check_writes(recorder.written)
            recorder.written |= before
        return [self.recorded(each) for each in found]

    def dependences(self, tangents: list[Fake], gradients: list[tuple[int, Any]]) -> tuple[tuple[int, ...], ...]:
        """The tangents that each gradient is made of, by the index of its input: those that it is computed from, and
        those of results that it is reached from. Eager's engine runs the nodes in between, one that makes zeros of
        nothing, too, as the derivative of `sgn` does."""
        masks = masks_of(self.recorder.graph, tangents)
        computed = [tangents_of(each, masks, len(tangents)) for _, each in gradients]
        if len(tangents) < 2:
            return tuple(computed)
        reached = reaching(self.target_fakes, self.arrivals.undefined, self.edges())
        for node, gradient in self.arrivals.given:
            if not masks.get(_torch.storage_key(gradient)):
                meta = self.recorder.node_of(gradient).meta
                if meta.get("backward"):
                    meta.setdefault(ARRIVES, reached[node])
        leaves = {id(node.variable): bits for node, bits in reached.items() if type(node).__name__ == "AccumulateGrad"}
        found = []
        for (index, _), numbers in zip(gradients, computed, strict=True):
            fake = self.inputs[index]
            bits = leaves.get(id(fake), 0) if fake.lampwork_edge is None else reached.get(fake.lampwork_edge, 0)
            depends = tuple(each for each in range(len(tangents)) if each in numbers or bits >> each & 1)
            found.append(depends or tuple(range(len(tangents))))
        return tuple(found)

    def recorded(self, gradient: Any) -> Any:
        """`gradient` as a tensor of the graph: what PyTorch makes of zeros without memory nobody was told about."""
        if gradient is None or isinstance(gradient, Fake) or not gradient._is_zerotensor():
            return gradient
        options = {"dtype": gradient.dtype, "device": gradient.device}
        return self.recorder.call(torch.ops.aten.zeros.default, (list(gradient.size()),), options)

    def check_writes(self, written: Collection[int]) -> None:
        """The backward pass writes to no memory of the program, whose results would be seen to change."""
        own = {
            _torch.storage_key(fake)
            for node in self.recorder.graph.nodes
            if not node.meta.get("backward")
            for fake in _fakes(node.meta["val"])
        }
        if own & set(written):
            raise refused("the backward pass writes to tensors of the program")


def _is_differentiated(fake: torch.Tensor) -> bool:
    return fake.requires_grad and not fake.is_leaf


def _is_surely_distinct(tensor: torch.Tensor) -> bool:
    """Whether no two elements of the tensor share memory, whatever the sizes that vary are."""
    size, strides = tuple(tensor.size()), tuple(tensor.stride())
    if is_dense(size, strides):
        return True
    end = 1
    for stride, extent in sorted(zip(strides, size, strict=True), key=lambda each: int(each[0])):
        if not isinstance(extent, int) or not isinstance(stride, int):
            return False
        if extent > 1:
            if stride < end:
                return False
            end = stride * (extent - 1) + end
    return True


def _leads_to(node: Any, end: Any) -> bool:
    """Whether the node hands a gradient to `end`: another node, or a leaf."""
    return any(each is end or getattr(each, "variable", None) is end for each, _ in node.next_functions)


def _same_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    return _torch.storage_key(left) == _torch.storage_key(right)


def _contiguous(size: tuple) -> tuple:
    strides: list[Any] = []
    step: Any = 1
    for extent in reversed(size):
        strides.append(step)
        step = step * (extent if not isinstance(extent, int) else max(extent, 1))
    return tuple(reversed(strides))


#: Names of the nodes that autograd gives to views.
_VIEW_NODES = (
    "ViewBackward", "UnsafeViewBackward", "ReshapeAliasBackward", "TBackward", "TransposeBackward", "PermuteBackward",
    "ExpandBackward", "SqueezeBackward", "UnsqueezeBackward", "SliceBackward", "SelectBackward", "AsStridedBackward",
    "AliasBackward", "DiagonalBackward", "SplitBackward", "SplitWithSizesBackward", "UnbindBackward", "UnfoldBackward",
    "ViewAsBackward",
)  # fmt: skip


def dependences(graph: torch.fx.Graph, tangents: list[Fake], gradients: list[Fake]) -> tuple[tuple[int, ...], ...]:
    """The tangents that each gradient is computed from, none for zeros."""
    masks = masks_of(graph, tangents)
    return tuple([tangents_of(gradient, masks, len(tangents)) for gradient in gradients])


def tangents_of(gradient: Fake, masks: Mapping[int, int], count: int) -> tuple[int, ...]:
    """The tangents, of `count`, that a gradient is computed from."""
    mask = masks.get(_torch.storage_key(gradient), 0) if count > 1 else 1
    return tuple(number for number in range(count) if mask >> number & 1)


def masks_of(graph: torch.fx.Graph, tangents: list[Fake]) -> dict[int, int]:
    """By memory of the backward half: a bit for each tangent that its contents are computed from. Memory that is
    written holds what was written, too."""
    masks: dict[int, int] = {}
    for number, tangent in enumerate(tangents):
        masks[_torch.storage_key(tangent)] = 1 << number
    if len(tangents) > 1:
        for node in graph.nodes:
            if node.op == "call_function" and node.meta.get("backward"):
                mask = 0
                for each in node.all_input_nodes:
                    for fake in _fakes(each.meta["val"]):
                        mask |= masks.get(_torch.storage_key(fake), 0)
                for fake in _fakes(node.meta["val"]):
                    key = _torch.storage_key(fake)
                    masks[key] = masks.get(key, 0) | mask
    return masks


def _fakes(value: Any) -> list[Fake]:
    if isinstance(value, Fake):
        return [value]
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in _fakes(item)]
    return []
