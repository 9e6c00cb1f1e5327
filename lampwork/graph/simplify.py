"""Passes that shorten a functional graph: literals, no-op views and copies, repeated work, dead work.

Each edits the graph of the `FunctionalGraph` that it is given and returns it; `results` and `writes` stay as they are
because outputs are never removed.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.shared_memory import memory_owner
from lampwork.fakes.strides import surely_same
from lampwork.fakes.symbolic import hint_of, size_of, sizes_of
from lampwork.graph.build import emit, place, same_metadata
from lampwork.graph.constant_checks import is_known_to_fit
from lampwork.graph.views import needs_places, overlaps_itself
from lampwork.ir.differentiation import ARRIVES
from lampwork.ir.dtype import is_in_range
from lampwork.ir.region import FromGraph, FunctionalGraph

aten = torch.ops.aten

#: In the `meta` of operators that raise where contents do not fit.
CHECKED = "checked"
#: In the `meta` of placeholders of which the program made a copy: that holds, whatever becomes of them. And in that of
#: what it returns, or returns a copy of: the caller may write to one, and the backward pass read the other.
COPIED = "copied"


def embed_literals(functional: FunctionalGraph) -> FunctionalGraph:
    """Literals become `full` where they hold one number, else `get_attr` nodes with the tensor in `meta["constant"]`.

        %literal = tensor_constant("float32", (), b"...")   ->   %full = full([], 0.5, dtype=float32)

    Guarantees: no node calls `_torch.tensor_constant` any more. Exact: numbers are those of the literal.
    """
    graph = functional.graph
    for node in list(graph.nodes):
        if node.target is not _torch.tensor_constant:
            continue
        tensor = _torch.tensor_constant(*node.args)
        with graph.inserting_before(node):
            if tensor.numel() == 1 and not tensor.is_complex():
                options = {"dtype": tensor.dtype, "layout": torch.strided, "device": tensor.device, "pin_memory": False}
                new = place(
                    graph, aten.full.default, (list(tensor.shape), tensor.item()), options, node.meta["val"], node
                )
            else:
                new = graph.create_node("get_attr", node.name)
                new.meta = {**node.meta, "constant": tensor}
        node.replace_all_uses_with(new)
        graph.erase_node(node)
    return functional


def _ids(*overloads: object) -> frozenset[int]:
    """Sets of operators are by id, since the hash of an overload is computed in Python."""
    return frozenset(map(id, overloads))


_MAY_BE_NOTHING = _ids(
    aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.expand.default, aten.alias.default,
    aten.detach.default, aten.slice.Tensor, aten.permute.default, aten.transpose.int, aten.as_strided.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.clone.default, aten._to_copy.default,
)  # fmt: skip

_COPIES = _ids(aten.clone.default, aten._to_copy.default)

_VIEWS_BY_SHAPE = _ids(
    aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.unsqueeze.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
)  # fmt: skip


def remove_no_ops(functional: FunctionalGraph) -> FunctionalGraph:
    """Views and copies whose result is the argument itself go; a reshape of a reshape is one.

        %a = view(%x, [6])                            %b = view(%x, [3, 2])
        %b = view(%a, [3, 2])          ->
        %c = clone(%b)                                return (%b,)
        return (%c,)

    Precondition: the graph is pure, so that a copy and its source are the same value. Exact. Two outputs may end up in
    one memory: `separate_outputs` comes after.
    """
    graph = functional.graph
    # Some operators count from the start of a storage: copies at another offset than their source must stay then, and
    # those of inputs, which begin elsewhere on other calls.
    offsets_matter = any(
        node.op == "call_function" and needs_places(node.target, node.meta["val"], node.args[0].meta["val"])
        for node in graph.nodes
        if node.args and isinstance(node.args[0], Node)
    )
    for node in list(graph.nodes):
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
            continue
        source = node.args[0]
        if id(node.target) in _VIEWS_BY_SHAPE and id(source.target) in _VIEWS_BY_SHAPE:
            origin = source.args[0]
            if _is_row_major(origin) and _is_row_major(node):
                node.target = aten.view.default
                node.args = (origin, list(node.meta["val"].size()))
                node.kwargs = {}
                source = origin
        if id(node.target) in _MAY_BE_NOTHING and _is_same(node, source):
            if offsets_matter and node.meta["val"].storage_offset() != source.meta["val"].storage_offset():
                continue
            if id(node.target) in _COPIES:
                owner = memory_owner(source)
                if owner.op == "placeholder":
                    if offsets_matter:
                        continue
                    owner.meta[COPIED] = True
                elif any(user.op == "output" for each in (node, source, owner) for user in each.users):
                    source.meta[COPIED] = owner.meta[COPIED] = True
            node.replace_all_uses_with(source)
            graph.erase_node(node)
    return functional


def separate_outputs(functional: FunctionalGraph) -> FunctionalGraph:
    """Results own their memory: an output that lies in an input, a literal or another result gets a copy, and so does
    one that is a small part of a value, all of which would stay in memory.

        return (%x, %y, view(%y))     ->     return (clone(%x), %y, clone(view(%y)))

    Only outputs that `results` names; those for `writes` are copied into inputs anyway.
    """
    graph = functional.graph
    output = next(iter(reversed(graph.nodes)))
    returned = {result.index for result in functional.results if isinstance(result, FromGraph)}
    laid_out = {each.index for each in functional.results if isinstance(each, FromGraph) and each.view is not None}
    owners: set[Node] = set()
    arguments = list(output.args[0])
    for index in sorted(returned):
        node = arguments[index]
        owner = memory_owner(node)
        if owner in owners or owner.op != "call_function" or _is_small_part(node, owner):
            with graph.inserting_before(output):
                arguments[index] = _copied(graph, node, index not in laid_out)
        else:
            owners.add(owner)
    output.args = (tuple(arguments),)
    return functional


def _copied(graph: torch.fx.Graph, node: Node, exact: bool) -> Node:
    """A copy of a value. `exact`: its strides are those that the caller sees, with their gaps, which a clone closes."""
    copy = emit(graph, aten.clone.default, (node,), {}, node)
    value = node.meta["val"]
    is_same = sizes_of(copy.meta["val"].stride()) == sizes_of(value.stride())
    if not exact or is_same or value.is_conj() or value.is_neg() or overlaps_itself(value):
        return copy
    graph.erase_node(copy)
    sizes, strides = list(value.size()), list(value.stride())
    options = {"dtype": value.dtype, "device": value.device}
    memory = emit(graph, aten.empty_strided.default, (sizes, strides), options, node)
    return emit(graph, aten.copy.default, (memory, node), {}, node)


def _is_small_part(node: Node, owner: Node) -> bool:
    """Whether a node has at most half of the elements of the value that it is a view of."""
    if node is owner:
        return False
    part, whole = (prod(map(hint_of, each.meta["val"].size())) for each in (node, owner))
    return 2 * part <= whole


def _is_row_major(node: Node) -> bool:
    """Whether strides are those that a reshape of dense memory has: those of dimensions of size 1 count, too."""
    value = node.meta["val"]
    step: Any = 1
    for size, stride in zip(reversed(sizes_of(value.size())), reversed(sizes_of(value.stride()))):
        if stride != step:
            return False
        step = step * size
    return True


def _is_same(node: Node, source: Node) -> bool:
    """Same contents in the same layout: the operators in question only move elements."""
    new, old = node.meta["val"], source.meta["val"]
    if not isinstance(old, Fake) or not same_metadata(new, old) or new.device != old.device:
        return False
    if node.target in (aten.permute.default, aten.transpose.int):
        moved = [dim % old.dim() for dim in node.args[1]] if node.target is aten.permute.default else None
        return moved == list(range(old.dim())) if moved is not None else node.args[1] == node.args[2]
    if node.target is aten.as_strided.default:
        return len(node.args) < 4 or node.args[3] is None or node.args[3] == old.storage_offset()
    return True


def share_repeated_work(functional: FunctionalGraph) -> FunctionalGraph:
    """Two calls of one operator with equal arguments become one (common subexpressions).

        %a = exp(%x);  %b = exp(%x);  %c = add(%a, %b)   ->   %a = exp(%x);  %c = add(%a, %a)

    Not for random operators, nor where both are outputs (results own their memory), nor across the halves of a joint
    graph or into checkpointed functions: what the backward half computes again is not to be kept. Exact.
    """
    graph = functional.graph
    output = next(iter(reversed(graph.nodes)))
    owned = set(output.args[0])
    seen: dict[object, Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or node in owned or _must_stay(node):
            continue
        half = "backward" in node.meta, "gradient" in node.meta, node.meta.get("checkpoint"), node.meta.get(ARRIVES)
        key = (id(node.target), _key(node.args), _key(node.kwargs), *half)
        try:
            first = seen.setdefault(key, node)
        except TypeError:  # an argument that cannot be a key
            continue
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
    return functional


def _key(value: object) -> Any:
    """Equal for equal arguments: 1, 1.0 and True differ, as do 0.0 and -0.0; NaN equals NaN."""
    kind = type(value)
    if kind is Node:
        return value
    if kind is int or kind is bool or value is None:
        return (kind, value)
    if isinstance(value, (list, tuple)):
        return tuple([_key(each) for each in value])
    if isinstance(value, dict):
        return tuple([(name, _key(each)) for name, each in sorted(value.items())]) if value else ()
    if isinstance(value, float):
        return (float, value.hex())
    if isinstance(value, torch.SymInt):
        return (int, size_of(value))
    return (kind, value)


def _must_stay(node: Node) -> bool:
    """Whether a call does more than give a result: it draws, has an effect, or finds a size."""
    target = node.target
    if not _torch.is_operator(target):
        return target is not _torch.getitem and target is not _torch.tensor_constant
    op = operator(target)
    return op.is_random or op.has_effect or op.kind == "data-dependent"


def finds_size(node: Node) -> bool:
    """Whether contents decide sizes of the operator's results: those that use the sizes need not use the results."""
    return _torch.is_operator(node.target) and operator(node.target).kind == "data-dependent"


def remove_dead(functional: FunctionalGraph) -> FunctionalGraph:
    """Nodes that nobody reads go, last first; random operators stay (they advance the generator), and so do operators
    without results and of unknown libraries, and those of `CHECKED`."""
    graph = functional.graph
    for node in reversed(list(graph.nodes)):
        if node.op in ("call_function", "get_attr") and not node.users:
            if node.op == "get_attr" or not _must_stay(node) and CHECKED not in node.meta:
                graph.erase_node(node)
            elif _is_assertion(node):
                graph.erase_node(node)
    return functional


def keep_checks(functional: FunctionalGraph) -> FunctionalGraph:
    """Operators that raise where contents do not fit (an index out of range, an integer divided by zero) stay, read or
    not, as the program wrote them: eager raises all the same. Derivatives do not: what they index, the program did."""
    for node in functional.graph.nodes:
        if node.op == "call_function" and _torch.is_operator(node.target) and may_raise(node):
            if not node.meta.get("backward") and not is_known_to_fit(node):
                node.meta[CHECKED] = True
    return functional


def may_raise(node: Node) -> bool:
    """Whether contents decide that an operator raises."""
    name = node.target._schema.name.removeprefix("aten::")
    if name in _DIVISIONS:
        fake = node.meta["val"]
        return isinstance(fake, Fake) and not fake.is_floating_point() and not isinstance(node.args[1], (int, float))
    if name.startswith(_SOLVERS) and not name.startswith(_TOTAL):
        return True
    if name in ("linspace", "logspace"):  # a result of whole numbers, between numbers out of tensors
        return bool(node.all_input_nodes) and not node.meta["val"].is_floating_point()
    if name in ("masked_fill", "index_fill") and _may_overflow(node.args[-1], node):
        return True
    return name in _BOUNDED or name in _INDEXED and any(_may_be_refused(each, node) for each in _places(node))


def _may_overflow(value: object, node: Node) -> bool:
    """Whether `value` is a tensor whose number may not fit into the element type of the result."""
    if not isinstance(value, Node):
        return False
    held, wanted = (str(each.meta["val"].dtype).removeprefix("torch.") for each in (value, node))
    return not is_in_range(held, wanted)


def _places(node: Node) -> list[Node]:
    """The operands of an operator of `_INDEXED` that say where something is."""
    names = [each.name for each in node.target._schema.arguments]
    found: list[Node] = []
    for name, each in (*zip(names, node.args), *node.kwargs.items()):
        if name in _PLACES:
            found += [part for part in (each if isinstance(each, (tuple, list)) else [each]) if isinstance(part, Node)]
    return found


def _may_be_refused(places: Node, node: Node) -> bool:
    """Whether a kernel may refuse what an operand holds, or its element type, whichever that is. One value fits
    wherever a mask of the right shape is true."""
    if places.meta["val"].dtype is not torch.bool or not node.target._schema.name.endswith("index_put"):
        return True
    return not surely_same(node.args[2].meta["val"].size(), (1,) * node.args[2].meta["val"].dim())


_DIVISIONS = frozenset({"floor_divide", "remainder", "fmod", "div"})
#: What operators of `_INDEXED` call operands of places, classes and lengths.
_PLACES = frozenset({"index", "indices", "target", "targets", "offsets", "lengths", "input_lengths", "target_lengths"})
#: Operators that refuse matrices: singular ones, and those that are not finite.
_SOLVERS = ("linalg_", "_linalg_", "cholesky", "lu_", "pinverse")
#: Those that take every matrix.
_TOTAL = (
    "linalg_vector_norm", "linalg_cross", "linalg_diagonal", "linalg_vecdot", "linalg_matmul", "linalg_multi_dot",
    "linalg_vander", "linalg_householder_product", "linalg_solve_triangular", "linalg_matrix_exp", "_linalg_det",
    "linalg_det", "_linalg_slogdet", "linalg_slogdet", "_linalg_check_errors",
    "cholesky_solve",
)  # fmt: skip
_BOUNDED = frozenset({
    "binary_cross_entropy", "histc", "histogram", "_histogramdd_bin_edges", "histogramdd", "masked_scatter",
    # They may reach out of a storage that is not known here.
    "as_strided_scatter", "as_strided_copy",
})  # fmt: skip
_INDEXED = frozenset({
    "index", "index_put", "index_select", "index_add", "index_copy", "index_fill", "index_reduce", "gather", "scatter",
    "scatter_add", "scatter_reduce", "take", "put", "embedding", "nll_loss_forward", "nll_loss2d_forward",
    "multi_margin_loss", "multilabel_margin_loss_forward", "max_unpool2d", "max_unpool3d", "_ctc_loss",
    "_embedding_bag", "_embedding_bag_forward_only", "segment_reduce",
})  # fmt: skip


def _is_assertion(node: Node) -> bool:
    """Assertions on metadata held when the region was recorded, and its guards hold them ever after."""
    return node.target is aten._assert_tensor_metadata.default


def pure(functional: FunctionalGraph) -> FunctionalGraph:
    """The graph, after checking that every operator in it is pure (LAMPWORK_VERIFY=1)."""
    for node in functional.graph.nodes:
        if node.op == "call_function" and _torch.is_operator(node.target):
            kind = operator(node.target).kind
            assert kind in ("functional", "view", "composite", "data-dependent"), f"{node.format_node()} is {kind}"
            assert "val" in node.meta, f"{node.format_node()} has no value"
    functional.graph.lint()
    return functional
