"""What to save for the backward pass and what to compute again there: a minimum cut over time and memory.

Each forward value that the backward half may need is saved, which costs what its bytes take to be read (and written,
where no kernel of the forward would write them otherwise) and the memory they occupy meanwhile; or it is computed
again, which costs its arithmetic and needs its arguments. The cheapest choice is a minimum cut: an edge for saving
between the two halves of a node, an edge from the source for computing it again.

        source --recompute(v)--> v_in --save(v)--> v_out --infinite--> u_in      for each u that is computed from v
        v_out --infinite--> sink                                             where the backward half reads v

With a memory budget, bytes cost more until the plan fits (a Lagrange multiplier, by bisection). Layers that are alike
would all change sides at once: later ones count a little more, so that they go one by one.

What a checkpointed function computes for itself alone is not saved, if it can be computed again.

Costs are in bytes that the memory moves in the same time. Random operators are never computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.backends import backend_of
from lampwork.backends.exact import Call, Table, is_exact
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.strides import is_dense
from lampwork.fakes.symbolic import hint_of
from lampwork.graph.build import is_random
from lampwork.graph.min_cut import INFINITE, Network
from lampwork.graph.partition import Joined, is_free
from lampwork.graph.simplify import COPIED
from lampwork.ir.record import record

aten = torch.ops.aten

#: How much more the last value of a program counts than the first.
_SLOPE = 0.3
_STEPS = 16


@record
class Plan:
    """`saved`: forward nodes; `bytes`: what those occupy that are no inputs; `cost`: time, in bytes moved."""

    saved: frozenset[Node]
    bytes: int
    cost: int


class Costs:
    """What it costs to save each forward value and to compute it again."""

    def __init__(self, joined: Joined, device: str, exact: bool = False) -> None:
        self.joined = joined
        backend = backend_of(device)
        #: What kernels may compute, if numbers are to be eager's bit by bit; None: all that they can.
        self.exact = backend.exact if exact else None
        costs = backend.costs
        self.flops_per_byte, self.cheapness = costs.flops_per_byte, costs.cheapness
        self._fused = _FUSED | _FUSED_WITH_SUMS if costs.fuses_sums else _FUSED
        if exact:
            self._fused = set()
        self.required = required(joined)
        self.returned = set(joined.outputs)
        #: What autograd reads itself. The caller may write to other results, which are not saved for that.
        self.read = _with_bases(self.required)
        #: What results are views of: the caller gets that memory, so it is saved as a copy.
        self.handed_out = _with_bases(joined.outputs) - self.returned
        #: What the caller may write to unnoticed: eager reads there what was written, and keeps what it computed of it.
        self.changing = _with_views(
            node for node, kept in joined.kept.items() if kept.unnoticed and not self.is_saved_as_copy(node)
        )
        self._bytes: dict[Node, int] = {}
        self._save: dict[Node, int] = {}
        self._recomputed: dict[Node, int] = {}

    def is_pointwise(self, node: Node) -> bool:
        """Whether kernels compute the node, each element from those at its place."""
        return is_pointwise(node) and (self.exact is None or _is_exact(self.exact, node))

    def size(self, node: Node) -> int:
        """Bytes of the node's value."""
        if node not in self._bytes:
            self._bytes[node] = sum(map(size_bytes, _tensors(node.meta.get("val"))))
        return self._bytes[node]

    def memory(self, node: Node) -> int:
        """Bytes that stay occupied until the backward pass because the node is saved."""
        if node.op == "placeholder":
            return self.size(node) if node in self.joined.copied else 0
        return self.size(node)

    def save(self, node: Node) -> int:
        """The time that saving takes."""
        if node not in self._save:
            self._save[node] = self._time_to_save(node)
        return self._save[node]

    def recompute(self, node: Node) -> int:
        """The time that computing it again takes, its arguments given."""
        if node not in self._recomputed:
            self._recomputed[node] = self._recompute_time(node)
        return self._recomputed[node]

    def _time_to_save(self, node: Node) -> int:
        size = self.size(node)
        if node.op == "placeholder":
            return 1 + size * (3 if node in self.joined.copied else 1)
        value = node.meta.get("val")
        if not isinstance(value, Fake):
            return INFINITE
        wanted_again = self.is_inside_checkpoint(node) and "kept" not in node.meta
        unwanted = wanted_again or (node in self.returned and node not in self.read)
        if unwanted and self.can_be_computed(node):
            return INFINITE
        as_copy = self.is_saved_as_copy(node)
        if node in self.joined.given and not as_copy:
            return 1 + size
        if is_free(node):  # a view has no memory of its own: it would be copied
            base = node.all_input_nodes[0] if node.all_input_nodes else None
            if base is None or _is_read_by_place(node):
                return INFINITE
            if 2 * size > self.size(base) and not self.is_of_a_copy(node):
                return INFINITE
            if self.exact is not None and not is_dense(value.size(), value.stride()):
                return INFINITE  # the copy would be, and what is called might add up in another order
            return 1 + 3 * size
        if node in self.handed_out or as_copy:
            return 1 + 3 * size
        return 1 + size * (1 if self.is_stored(node) else 2)

    def _recompute_time(self, node: Node) -> int:
        if node.op == "get_attr":
            return 0
        if node.op == "placeholder" or is_random(node) or not _can_run_again(node) or self.is_of_a_copy(node):
            return INFINITE
        if is_free(node) or node.target is _torch.getitem:
            return 0
        if "checkpoint" not in node.meta and not self.changing.isdisjoint(node.all_input_nodes):
            return INFINITE
        size = self.size(node)
        if self.is_pointwise(node):
            # What a product reads must be in memory.
            readers = [user for user in node.users if user in self.joined.backward]
            stored = 2 * size if any(map(self.reads_memory, readers)) else 0
            return 1 + size * _ARITHMETIC.get(node.target, 1) // (4 * self.cheapness) + stored
        read = sum(self.size(each) for each in node.all_input_nodes)
        return 1 + read + 2 * size + _flops(node) // self.flops_per_byte

    def can_be_computed(self, node: Node) -> bool:
        """Whether the node can be computed again: what it is a part or a view of, if it is one."""
        while (is_free(node) or node.target is _torch.getitem) and node.all_input_nodes:
            node = node.all_input_nodes[0]
        return self.recompute(node) < INFINITE

    def is_of_a_copy(self, node: Node) -> bool:
        """Whether the node counts from the beginning of the memory of what would be saved as a copy, which begins
        elsewhere."""
        if node.target is not aten.as_strided.default:
            return False
        base = node.all_input_nodes[0]
        while is_free(base) and base.all_input_nodes:
            base = base.all_input_nodes[0]
        return self.is_saved_as_copy(base)

    def is_saved_as_copy(self, node: Node) -> bool:
        """Whether the node is saved as a copy, if it is saved: the program or its caller has its memory to write to."""
        return bool(node.meta.get(COPIED)) or node in self.joined.copied or node in self.joined.copied_results

    def is_inside_checkpoint(self, node: Node) -> bool:
        """Whether only a checkpointed function that computes the node reads it: the program wants it computed again."""
        number = node.meta.get("checkpoint")
        if number is None:
            return False
        readers = (user for user in node.users if user not in self.joined.backward and user.op != "output")
        return all(user.meta.get("checkpoint") == number for user in readers)

    def reads_memory(self, node: Node) -> bool:
        """A call of ATen, which takes its arguments from memory."""
        if (
            node.op != "call_function"
            or not _torch.is_operator(node.target)
            or is_free(node)
            or self.is_pointwise(node)
        ):
            return False
        return node.target not in self._fused

    def is_stored(self, node: Node) -> bool:
        """Whether the forward half writes the value to memory in any case."""
        if node in self.returned or not self.is_pointwise(node):
            return True
        readers = [user for user in users_through_views(node) if user not in self.joined.backward]
        if any(self.reads_memory(user) for user in readers):
            return True
        return len(readers) > 1 and not _widens(node) and any(not self.is_pointwise(user) for user in readers)


def required(joined: Joined) -> list[Node]:
    """Forward nodes that the backward half reads, in order."""
    found: set[Node] = set()
    for node in joined.needed():
        found.update(each for each in node.all_input_nodes if each not in joined.backward)
    for result in joined.gradient_results:
        node = joined.gradient_node(result)
        if node not in joined.backward:
            found.add(node)
    return [node for node in joined.nodes if node in found]


def _with_bases(nodes: Iterable[Node]) -> set[Node]:
    """The nodes, and what they are views of."""
    return _reachable(nodes, lambda node: node.all_input_nodes if is_free(node) else ())


def _with_views(nodes: Iterable[Node]) -> set[Node]:
    """The nodes, and the views of them."""
    return _reachable(nodes, lambda node: [user for user in node.users if user.op == "call_function" and is_free(user)])


def _reachable(nodes: Iterable[Node], after: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """The nodes, those `after` them, those after these, and so on."""
    found: set[Node] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(after(node))
    return found


def cheapest(joined: Joined, budget: float = 1.0, exact: bool = False) -> set[Node]:
    """The forward nodes to save: those of the fastest plan, or of the fastest that keeps `budget` of its memory.
    `exact`: kernels compute only what they give eager's bits of."""
    costs = Costs(joined, joined.functional.device, exact)
    plan = plan_for(costs, 0.0)
    if budget < 1.0 and plan.bytes:
        plan = within(costs, int(budget * plan.bytes))
    return set(plan.saved)


@record
class Point:
    """What a memory budget means: bytes that are kept, and the bytes moved in the time that keeping and computing
    again take (both beside what the program does in any case)."""

    budget: float
    bytes: int
    cost: int


def curve(joined: Joined, budgets: Iterable[float] = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)) -> list[Point]:
    """Memory against estimated time."""
    costs = Costs(joined, joined.functional.device)
    fastest = plan_for(costs, 0.0)
    found = []
    for budget in budgets:
        plan = fastest if budget >= 1.0 else within(costs, int(budget * fastest.bytes))
        found.append(Point(budget, plan.bytes, plan.cost))
    return found


def within(costs: Costs, limit: int) -> Plan:
    """The fastest plan found that saves at most `limit` bytes; the smallest there is where none does."""
    low, high = 1e-2, 1e4
    best = plan_for(costs, high)
    if best.bytes > limit:
        return best
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        tried = plan_for(costs, middle)
        if tried.bytes <= limit:
            best, high = (tried if tried.cost <= best.cost else best), middle
        else:
            low = middle
        if high < 1.01 * low:
            break
    return best


def plan_for(costs: Costs, price: float) -> Plan:
    """The cheapest plan where each byte that stays occupied costs `price` bytes moved."""
    reached = _reached(costs, price)
    number = {node: 2 * position for position, node in enumerate(reached)}
    source, sink = 2 * len(reached), 2 * len(reached) + 1
    network = Network(sink + 1)
    for position, node in enumerate(reached):
        network.connect(number[node], number[node] + 1, _priced(costs, node, price, position / len(reached)))
        network.connect(source, number[node], costs.recompute(node))
        for each in node.all_input_nodes:
            if each in number:
                network.connect(number[each] + 1, number[node], INFINITE)
    for node in costs.required:
        network.connect(number[node] + 1, sink, INFINITE)
    side = network.source_side(source, sink)
    saved = frozenset(node for node in reached if number[node] in side and number[node] + 1 not in side)
    recomputed = [node for node in reached if number[node] not in side]
    return Plan(
        saved,
        sum(costs.memory(node) for node in saved),
        sum(costs.save(node) for node in saved) + sum(costs.recompute(node) for node in recomputed),
    )


def _reached(costs: Costs, price: float) -> list[Node]:
    """The forward nodes that may be needed, in order: none before one that is cheaper saved than computed."""
    found: set[Node] = set()
    pending = list(costs.required)
    while pending:
        node = pending.pop()
        if node in found:
            continue
        found.add(node)
        if costs.recompute(node) <= _priced(costs, node, price, 1.0):  # equal costs may be cut on either side
            pending.extend(node.all_input_nodes)
    return [node for node in costs.joined.nodes if node in found]


def _priced(costs: Costs, node: Node, price: float, place: float) -> int:
    save = costs.save(node)
    if save >= INFINITE or not price:
        return save
    return min(save + int(price * costs.memory(node) * (1 + _SLOPE * place)), INFINITE // 4)


# Operators ------------------------------------------------------------------------------------------------------------


def _is_read_by_place(node: Node) -> bool:
    """Whether a view of the node counts from the beginning of its memory, which a copy has not got."""
    pending = [node]
    while pending:
        users = [user for user in pending.pop().users if user.op == "call_function" and is_free(user)]
        if any(user.target is aten.as_strided.default for user in users):
            return True
        pending.extend(users)
    return False


def is_pointwise(node: Node) -> bool:
    """Whether kernels compute each element from those at its place, so that it can be fused with what reads it."""
    if node.op != "call_function" or not _torch.is_operator(node.target):
        return False
    return torch.Tag.pointwise in node.target.tags or node.target in _LIKE_POINTWISE


def _is_exact(table: Table, node: Node) -> bool:
    """Whether a kernel of ours computes the node with eager's bits."""
    operands = [each for argument in node.all_input_nodes for each in _tensors(argument.meta.get("val"))]
    call = Call(_type_names(operands), _type_names(_tensors(node.meta["val"])), node.args, node.kwargs)
    kind = next((each.device.type for each in _tensors(node.meta["val"])), "cpu")
    return is_exact(table, _torch.operator_name(node.target), call, _torch.contracts_products(kind))


def _type_names(tensors: Iterable[torch.Tensor]) -> frozenset[str]:
    return frozenset(str(each.dtype).removeprefix("torch.") for each in tensors)


def users_through_views(node: Node) -> Iterable[Node]:
    """Who reads the node's memory."""
    pending = list(node.users)
    seen: set[Node] = set()
    while pending:
        user = pending.pop()
        if user in seen:
            continue
        seen.add(user)
        if user.op == "call_function" and is_free(user):
            pending.extend(user.users)
        else:
            yield user


def _widens(node: Node) -> bool:
    """Whether the node is a value in a wider type: kernels rather store the value."""
    if node.target is not aten._to_copy.default:
        return False
    return node.meta["val"].dtype.itemsize > node.args[0].meta["val"].dtype.itemsize


def _can_run_again(node: Node) -> bool:
    if node.target in (_torch.getitem, _torch.tensor_constant, _torch.promised()):
        return True
    if not _torch.is_operator(node.target) or node.target.namespace not in ("aten", "prims", _torch.GIVEN_NUMBERS):
        return False
    return bool(node.target._schema.returns) and operator(node.target).kind in ("functional", "view", "composite")


def size_bytes(fake: torch.Tensor) -> int:
    return int(math.prod(hint_of(each) for each in fake.size())) * fake.element_size()


def _tensors(value: object) -> list[Fake]:
    if isinstance(value, Fake):
        return [value]
    return [each for each in value if isinstance(each, Fake)] if isinstance(value, (list, tuple)) else []


def _numel(node: Node) -> int:
    return sum(size_bytes(each) // each.element_size() for each in _tensors(node.meta["val"]))


def _flops(node: Node) -> int:
    """Additions and multiplications, for operators that have more of them than elements."""
    arguments = [each for each in node.args if isinstance(each, Node)]
    if node.target in _PRODUCTS:
        left = arguments[_PRODUCTS[node.target]]
        return 2 * _numel(node) * hint_of(left.meta["val"].size()[-1])
    if node.target is aten.convolution.default:
        weight = arguments[1].meta["val"]
        return 2 * _numel(node) * size_bytes(weight) // weight.element_size() // max(hint_of(weight.size()[0]), 1)
    if "attention" in str(node.target):
        query, key = arguments[0].meta["val"], arguments[1].meta["val"]
        return 4 * size_bytes(query) // query.element_size() * hint_of(key.size()[-2])
    return 8 * _numel(node)


_PRODUCTS = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
_LIKE_POINTWISE = {
    aten._to_copy.default, aten.clone.default, aten.where.self, aten.gelu.default, aten.silu.default, aten.cat.default,
    aten.constant_pad_nd.default, aten.copy.default,
}  # fmt: skip
#: Reductions that kernels of our own compute, together with what they read.
_FUSED = {
    aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.amax.default,
    aten.var_mean.correction, aten._softmax.default, aten._log_softmax.default, aten.native_layer_norm.default,
    aten.native_group_norm.default,
    aten.native_layer_norm_backward.default, aten.native_group_norm_backward.default,
    aten._softmax_backward_data.default, aten._safe_softmax.default, aten.gelu_backward.default,
    aten._log_softmax_backward_data.default, aten.threshold_backward.default, aten.silu_backward.default,
    aten.embedding.default, aten.rsqrt.default, aten.nll_loss_forward.default, aten.nll_loss_backward.default,
}  # fmt: skip
_FUSED_WITH_SUMS = {
    aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default,
    aten.max_pool3d_with_indices.default, aten.max_pool3d_with_indices_backward.default,
}  # fmt: skip
#: Cost of an element of four bytes in bytes moved, where it is more than 1.
_ARITHMETIC = {
    aten.exp.default: 8, aten.tanh.default: 10, aten.erf.default: 10, aten.gelu.default: 12, aten.silu.default: 10,
    aten.sigmoid.default: 10, aten.log.default: 8, aten.sin.default: 10, aten.cos.default: 10, aten.log1p.default: 10,
    aten.pow.Tensor_Scalar: 4, aten.pow.Tensor_Tensor: 16, aten.div.Tensor: 2, aten.sqrt.default: 3,
    aten.rsqrt.default: 3,
}  # fmt: skip
