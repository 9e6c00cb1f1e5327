"""Functionalisation: a recorded graph with in-place operators and views becomes a pure one.

    before                                  after
      %x = placeholder                        %x = placeholder
      %y = relu(%x)                           %y = relu(%x)
      %row = select(%y, 0, 1)                 %row = select(%y, 0, 1)
      %_ = mul_(%row, 2)                      %mul = mul(%row, 2)
                                              %y_1 = select_scatter(%y, %mul, 0, 1)
      %_ = add_(%x, %row)                     %add = add(%x, %mul)
      return (%y, %x)                         return (%y_1, %add)
                                              results: FromGraph(0), AliasOfInput(0); writes: (input 0, output 1)

Every storage of the recording is one `Memory` with one value, that of its root: the tensor that made the storage, or
the input. All other tensors in it are `View`s, kept as the chain of view operators from the root. A write to a view
makes a new value of the root (through `*_scatter`), and a view that is read later is computed anew from it. Inputs that
overlap, and are written, get a flat root that covers them all, and what `as_strided` reaches outside of them.

Preconditions: nodes carry fakes whose storages tell aliasing; no metadata is changed in place. The recorder sees to
both.

Guarantees: no operator in the result writes to its arguments; values have the strides that eager gives them; random
operators keep their order, and draw what eager draws into memory of the recorded layout. Raises `CompileError` for
writes that cannot be distinguished statically (inputs in one storage whose element types do not fit, views outside of
their input).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.errors import CompileError, OffsetError
from lampwork.fakes.evaluate import evaluate
from lampwork.fakes.fake import Fake, describe
from lampwork.fakes.operators import Operator, operator
from lampwork.fakes.shapes import same_sizes
from lampwork.fakes.shared_memory import is_one_memory, memory_owner
from lampwork.fakes.symbolic import sizes_of
from lampwork.graph.build import drawn, emit, place, same_metadata, select, value_of
from lampwork.graph.in_place import FILLS, SHORTCUTS, functional_of
from lampwork.graph.views import (
    INVERSES,
    PIECES,
    SCATTERS,
    WRITTEN_TO_PARENTS,
    Memory,
    View,
    as_strided,
    covers,
    end_of,
    is_contiguous,
    is_stretched,
    needs_places,
    overlapping_inputs,
    overlaps_itself,
    reaching_views,
    written_storages,
)
from lampwork.ir.region import AliasOfInput, FromGraph, FunctionalGraph, Region
from lampwork.turns import give_way

aten = torch.ops.aten

#: Where operators have an offset that counts from the beginning of the first argument's storage.
_COUNTED_FROM = {aten.as_strided_scatter.default: 4}


def _different_lazy_bits(left: torch.Tensor, right: torch.Tensor) -> tuple[bool, bool]:
    """Whether one of two tensors of one memory is the conjugate of the other, and whether it is the negative."""
    return left.is_conj() != right.is_conj(), left.is_neg() != right.is_neg()


class Functionalizer:
    """One run of `functionalize`."""

    def __init__(self, region: Region, left_out: frozenset[Node] = frozenset()) -> None:
        self.region, self.left_out = region, left_out
        self.graph = torch.fx.Graph()
        #: Old node -> its tensor, for nodes with one tensor result.
        self.views: dict[Node, View] = {}
        #: Old node -> new node (several results) or list of views.
        self.results: dict[Node, Any] = {}
        self.placeholders: list[Node] = []
        #: Keys of the storages that the program writes to.
        self.written: set[int] = set()
        self.node: Node | None = None

    def run(self) -> FunctionalGraph:
        left_out = self.left_out
        nodes = [node for node in self.region.graph.nodes if node not in left_out]
        self.add_placeholders([node for node in nodes if node.op == "placeholder"], nodes)
        for node in nodes:
            give_way()
            self.node = node
            if node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                return self.finish(node)
        raise CompileError("functionalize", "the recorded graph has no output")

    def fail(self, reason: str) -> CompileError:
        node = self.node
        where = {"location": node.meta["location"]} if node is not None and "location" in node.meta else {}
        return CompileError("functionalize", reason, str(node.target) if node is not None else "", **where)

    def emit(self, overload: object, *args: object, **kwargs: object) -> Node:
        return emit(self.graph, overload, args, kwargs, self.node)

    # Inputs ---------------------------------------------------------------------------------------

    def add_placeholders(self, nodes: list[Node], all_nodes: list[Node]) -> None:
        groups: dict[int, list[int]] = {}
        for index, node in enumerate(nodes):
            new = self.graph.create_node("placeholder", node.name)
            new.meta = dict(node.meta)
            self.placeholders.append(new)
            if isinstance(node.meta["val"], Fake):
                groups.setdefault(_torch.storage_key(node.meta["val"]), []).append(index)
        self.written = written_storages(all_nodes)
        reaches = reaching_views(nodes, all_nodes, self.written)
        for key, members in groups.items():
            fakes = [nodes[index].meta["val"] for index in members]
            for cluster in (
                overlapping_inputs(fakes) if key in self.written else [[each] for each in range(len(members))]
            ):
                indices = [members[each] for each in cluster]
                beyond = [view for index in indices for view in reaches.get(nodes[index], ())]
                if beyond and len(cluster) < len(members):
                    raise self.fail("as_strided reaches beyond an input, into memory of another one")
                if beyond or len(indices) > 1 or key in self.written and overlaps_itself(nodes[indices[0]].meta["val"]):
                    self.add_overlapping_inputs(nodes, indices, beyond)
                else:
                    self.add_root(nodes[indices[0]], self.placeholders[indices[0]], tuple(indices))

    def add_root(self, node: Node, value: Node, inputs: tuple[int, ...] = ()) -> View:
        memory = Memory(value, inputs)
        view = View(memory, value.meta["val"], like=node)
        memory.root = view
        self.views[node] = view
        return view

    def add_result(self, node: Node, value: Node) -> None:
        """The result of an operator, in memory of its own. Memory has no lazy bits: what operators give lazily, as
        `lu_solve` from the right does, is resolved after the call (`restride`). No fake of a result has such bits."""
        fake = value.meta["val"]
        if fake.is_conj() or fake.is_neg():
            raise self.fail("an operator gives its result lazily conjugated or negated")
        self.add_root(node, value)

    def add_overlapping_inputs(self, nodes: list[Node], members: list[int], beyond: list[Fake]) -> None:
        """One flat root over inputs of a storage, and over what the program reaches `beyond` them, in the smallest of
        their element types; each input is a strided view of it, or of a part of it as another type."""
        fakes = [nodes[index].meta["val"] for index in members]
        smallest = min(range(len(fakes)), key=lambda each: fakes[each].itemsize)
        unit = fakes[smallest].itemsize
        if any(fake.dtype != fakes[0].dtype for fake in (*fakes, *beyond)):
            if any(type(fake.storage_offset()) is not int for fake in fakes):
                raise OffsetError("inputs of different element types share memory, and begin at places that vary")
            if beyond or not is_one_memory(fakes):
                raise self.fail("inputs of different element types share memory that is written")
        low = min(fake.storage_offset() * (fake.itemsize // unit) for fake in (*fakes, *beyond))
        high = max(end_of(fake) * (fake.itemsize // unit) for fake in (*fakes, *beyond))
        first = self.placeholders[members[smallest]]
        flat = emit(self.graph, aten.as_strided.default, (first, [high - low], [1], low), {}, nodes[members[smallest]])
        memory = Memory(flat, tuple(members), is_flat=True)
        memory.root = View(memory, flat.meta["val"])
        if beyond or any(map(overlaps_itself, fakes)):
            # Each memory location is stored to once: all of them in a row.
            index = min(members, key=lambda index: self.region_fake(index).storage_offset())
            memory.row = (index, low - self.region_fake(index).storage_offset())
        for index, fake in zip(members, fakes):
            if fake.dtype == memory.root.fake.dtype:
                layout = (list(fake.size()), list(fake.stride()), fake.storage_offset() - low)
                view = View(memory, fake, memory.root, aten.as_strided.default, layout, like=nodes[index])
            else:
                view = self.part_of_other_type(memory, fake, low, nodes[index])
            view.node, view.generation = self.placeholders[index], 0
            self.views[nodes[index]] = view

    def part_of_other_type(self, memory: Memory, fake: Fake, low: Any, like: Node) -> View:
        """An input of another element type than the flat root, which begins at element `low` of the storage."""
        view = memory.root
        times = fake.itemsize // view.fake.itemsize
        begin, end = fake.storage_offset() * times - low, end_of(fake) * times - low
        chain: list[tuple[Any, tuple]] = [(aten.slice.Tensor, (0, begin, end)), (aten.view.dtype, (fake.dtype,))]
        if is_contiguous(fake):
            chain.append((aten.view.default, (list(fake.size()),)))
        else:
            chain.append((aten.as_strided.default, (list(fake.size()), list(fake.stride()), 0)))
        for op, args in chain[:-1]:
            made = evaluate(op, (view.fake, *args), {})
            view = View(memory, made, view, op, args, {}, like)
        return View(memory, fake, view, *chain[-1], {}, like)

    # Reading --------------------------------------------------------------------------------------

    def read(self, view: View) -> Node:
        """The node with the view's current contents, in exactly the view's strides."""
        memory = view.memory
        if view.node is not None and view.generation == memory.generation:
            return view.node
        if view.parent is None:
            view.node = self.exact_root(memory)
        else:
            view.node = self.replay(view, self.read(view.parent))
        view.generation = memory.generation
        return view.node

    def replay(self, view: View, parent: Node) -> Node:
        is_same = view.parent is not None and parent.meta["val"] is view.parent.fake
        if not is_same and memory_owner(parent).op == "placeholder":
            if needs_places(view.operator, view.fake, parent.meta["val"]):
                # An input was written to the whole memory, and may begin anywhere in its own storage.
                parent = self.emit(aten.clone.default, parent)
        args, kwargs = view.args, view.kwargs
        if view.operator is aten.as_strided.default:  # kept relative to the root's first element
            args = (args[0], args[1], args[2] + parent.meta["val"].storage_offset())
        like = view.like
        if is_same and like is not None and isinstance(like.meta["val"], Fake):
            return place(self.graph, view.operator, (parent, *args), kwargs, view.fake, like)
        return emit(self.graph, view.operator, (parent, *args), kwargs, like or self.node)

    def exact_root(self, memory: Memory) -> Node:
        """The root's value with the root's strides: as they were for inputs, since views are replayed on it."""
        if not memory.exact:
            if not same_metadata(memory.value.meta["val"], memory.root.fake):
                like = self.initial(memory)
                memory.value = self.emit(aten.copy.default, like, memory.value)
                if not same_metadata(memory.value.meta["val"], memory.root.fake):
                    raise self.fail(
                        f"a write gives {describe(memory.value.meta['val'])} for {describe(memory.root.fake)}"
                    )
            memory.exact = True
        return memory.value

    def initial(self, memory: Memory) -> Node:
        """A node with the root's metadata, for its strides only."""
        for index in memory.inputs:
            if same_metadata(self.placeholders[index].meta["val"], memory.root.fake):
                return self.placeholders[index]
        fake = memory.root.fake
        return self.emit(
            aten.empty_strided.default, list(fake.size()), list(fake.stride()), dtype=fake.dtype, device=fake.device
        )

    def argument(self, value: object) -> Any:
        """An argument of the recorded graph as one of the new graph."""
        if isinstance(value, Node):
            if value in self.views:
                return self.read(self.views[value])
            raise self.fail(f"{value.name} has several results and is used whole")
        if isinstance(value, (list, tuple)):
            return type(value)(self.argument(each) for each in value)
        return value

    # Writing --------------------------------------------------------------------------------------

    def write(self, view: View, new: Node) -> None:
        """`view`'s contents become `new`, a value of its shape and dtype in any strides."""
        memory, current, value = view.memory, view, new
        if any(type(size) is int and size == 0 for size in view.fake.size()):
            return
        if overlaps_itself(memory.root.fake):
            raise self.fail("a write to a result several elements of which are one memory location")
        if is_stretched(view):
            value, current = self.scatter_into_root(view, new), memory.root
        while current.parent is not None:
            value = self.scatter(current, value)
            current = current.parent if current.operator in WRITTEN_TO_PARENTS else memory.root
        memory.value = value
        memory.exact = same_metadata(value.meta["val"], memory.root.fake)
        memory.generation += 1
        if same_metadata(new.meta["val"], view.fake):
            view.node, view.generation = new, memory.generation

    def scatter(self, view: View, new: Node) -> Node:
        """The parent's contents after `view` became `new` (the root's, for operators not in WRITTEN_TO_PARENTS)."""
        parent = view.parent
        assert parent is not None
        op, args, kwargs = view.operator, view.args, view.kwargs
        if op in SCATTERS:
            return self.emit(SCATTERS[op], self.read(parent), new, *args, **kwargs)
        inverse = INVERSES.get(op)
        if inverse is not None:
            return inverse(self, view, new)
        return self.scatter_into_root(view, new)

    def scatter_into_root(self, view: View, new: Node) -> Node:
        """The root's contents after the elements of `view`, wherever they lie, became `new`."""
        root, fake = view.memory.root, view.fake
        for op, differs in zip((aten._conj_physical.default, aten.neg.default), _different_lazy_bits(root.fake, fake)):
            if differs:
                new = self.emit(op, new)
        for dim, stride in enumerate(fake.stride()):
            if stride == 0 and fake.size()[dim] > 1:
                # Only `fill_` writes to repeated elements, the same number to each: one of them will do.
                new = self.emit(aten.slice.Tensor, new, dim, 0, 1)
        span = end_of(fake) - fake.storage_offset()
        if fake.dtype != root.fake.dtype:
            if not root.fake.is_contiguous() or torch.bool in (fake.dtype, root.fake.dtype):
                raise self.fail(f"a write through {view.operator}")
            flat = self.emit(aten.view.default, self.exact_root(view.memory), [root.fake.numel()])
            seen = self.emit(aten.view.dtype, flat, fake.dtype)
            offset = fake.storage_offset() - root.fake.storage_offset() * root.fake.itemsize // fake.itemsize
            if offset < 0 or offset + span > seen.meta["val"].numel():
                raise self.fail("a write through as_strided outside of its tensor")
            changed = self.scatter_into_flat(seen, new, fake, offset, span)
            changed = self.emit(aten.view.dtype, changed, root.fake.dtype)
            return self.emit(aten.view.default, changed, list(root.fake.size()))
        base = self.exact_root(view.memory)
        offset = fake.storage_offset() - root.fake.storage_offset()
        if offset < 0 or offset + span > end_of(root.fake) - root.fake.storage_offset():
            raise self.fail("a write through as_strided outside of its tensor")
        if view.memory.is_flat:
            return self.scatter_into_flat(base, new, fake, offset, span)
        offset += base.meta["val"].storage_offset()
        return self.emit(
            aten.as_strided_scatter.default, base, new, list(new.meta["val"].size()), list(fake.stride()), offset
        )

    def scatter_into_flat(self, base: Node, new: Node, fake: Fake, offset: int, span: int) -> Node:
        """As `scatter_into_root`, for a root in one dimension: over several inputs, or seen as another type.
        `as_strided_scatter` counts from the beginning of the storage, where on other calls inputs may lie elsewhere."""
        sizes = new.meta["val"].size()
        flat = self.flattened(new)
        if is_contiguous(fake) and same_sizes(sizes, fake.size()):
            return self.emit(aten.slice_scatter.default, base, flat, 0, offset, offset + span)
        places = self.emit(aten.arange.default, base.meta["val"].size()[0], device=fake.device)
        places = self.emit(aten.as_strided.default, places, list(sizes), list(fake.stride()), offset)
        return self.emit(aten.scatter.src, base, 0, self.flattened(places), flat)

    def flattened(self, value: Node) -> Node:
        """The elements of `value` in one dimension."""
        fake = value.meta["val"]
        if fake.dim() == 1:
            return value
        value = self.emit(aten.clone.default, value, memory_format=torch.contiguous_format)
        return self.emit(aten.view.default, value, [fake.numel()])

    def converted(self, value: Node, like: Fake) -> Node:
        """`value` cast and expanded to the dtype and shape of `like`, and where that is, as an in-place operator stores
        it."""
        if value.meta["val"].device != like.device:
            value = self.emit(aten._to_copy.default, value, dtype=like.dtype, device=like.device)
        elif value.meta["val"].dtype != like.dtype:
            value = self.emit(aten._to_copy.default, value, dtype=like.dtype)
        if not same_sizes(value.meta["val"].size(), like.size()):
            value = self.emit(aten.expand.default, value, list(like.size()))
        return value

    # Operators ------------------------------------------------------------------------------------

    def call(self, node: Node) -> None:
        target = node.target
        if target is _torch.getitem:
            self.call_getitem(node)
        elif target is _torch.tensor_constant:
            value = place(self.graph, target, node.args, {}, node.meta["val"], node)
            self.add_root(node, value)
        else:
            op = operator(target)
            if op.kind == "view":
                self.call_view(node)
            elif op.kind == "inplace":
                self.call_inplace(node, op)
            else:
                self.call_functional(node)

    def call_functional(self, node: Node) -> None:
        args, kwargs = self.argument(node.args), {key: self.argument(each) for key, each in node.kwargs.items()}
        if node.target in _COUNTED_FROM:
            args, kwargs = self.counted_from(node, args, kwargs)
        new = place(self.graph, node.target, args, kwargs, node.meta["val"], node)
        if isinstance(node.meta["val"], Fake):
            self.add_result(node, new)
        else:
            self.results[node] = new

    def counted_from(self, node: Node, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The offset that counts from the beginning of the first argument's storage, where by now a new value may be in
        that argument's place, which begins elsewhere."""
        place = _COUNTED_FROM[node.target]
        offset = args[place] if len(args) > place else kwargs.get("storage_offset")
        moved = args[0].meta["val"].storage_offset() - node.args[0].meta["val"].storage_offset()
        if offset is None or not moved:
            return args, kwargs
        if isinstance(offset, Node):
            raise self.fail(f"{node.target} of what is written, at an offset that varies")
        if len(args) > place:
            return (*args[:place], offset + moved, *args[place + 1 :]), kwargs
        return args, {**kwargs, "storage_offset": offset + moved}

    def call_getitem(self, node: Node) -> None:
        parent, index = node.args
        found = self.results[parent]
        if isinstance(found, list):
            self.views[node] = found[index]
        else:
            self.add_result(node, select(self.graph, found, index))

    def call_view(self, node: Node) -> None:
        source, *rest = node.args
        parent, value = self.views[source], node.meta["val"]
        if isinstance(value, Fake):
            self.views[node] = self.view(parent, value, node.target, tuple(rest), dict(node.kwargs), node)
            return
        pieces = PIECES.get(node.target)
        views = []
        for index, each in enumerate(value):
            op, args, kwargs = pieces(parent.fake, value, index, *rest, **node.kwargs) if pieces else as_strided(each)
            views.append(self.view(parent, each, op, args, kwargs, node))
        self.results[node] = views

    def view(self, parent: View, fake: Fake, op: Any, args: tuple, kwargs: dict, like: Node) -> View:
        if op is aten.as_strided.default:
            # The offset is one into the storage, whatever view it is called on: make it a view of the root.
            root = parent.memory.root
            if parent.memory.inputs and _torch.storage_key(fake) in self.written and not covers(root.fake, fake):
                raise self.fail("as_strided reaches beyond an input, into memory that is written")
            if fake.dtype != root.fake.dtype:
                if not root.fake.is_contiguous() or not root.fake.dim():
                    raise self.fail("as_strided of a view of another element type")
                seen = evaluate(aten.view.dtype, (root.fake, fake.dtype), {})
                root = self.view(root, seen, aten.view.dtype, (fake.dtype,), {}, like)
            offset = fake.storage_offset() - root.fake.storage_offset()
            layout = (list(args[0]), list(args[1]), offset)
            if not any(_different_lazy_bits(root.fake, fake)):
                return View(parent.memory, fake, root, op, layout, {}, like)
            plain = evaluate(op, (root.fake, *layout[:2], fake.storage_offset()), {})
            return self.with_lazy_bits(View(parent.memory, plain, root, op, layout, {}, like), fake, like)
        if fake.dtype is torch.bool and parent.operator is aten.view.dtype:
            # A view of bytes that were no truths: a write to a part leaves the others as they are, not 0 or 1.
            under = parent.parent
            assert under is not None
            found = {name: value_of(each) for name, each in kwargs.items()}
            seen = evaluate(op, (under.fake, *value_of(args)), found)
            under = self.view(under, seen, op, args, kwargs, like)
            return View(parent.memory, fake, under, aten.view.dtype, (torch.bool,), {}, like)
        if op is aten.view.dtype and fake.dtype is torch.bool and parent.fake.dtype is not torch.uint8:
            seen = evaluate(op, (parent.fake, torch.uint8), {})
            parent = View(parent.memory, seen, parent, op, (torch.uint8,), {}, like)
        return View(parent.memory, fake, parent, op, args, kwargs, like)

    def with_lazy_bits(self, view: View, fake: Fake, like: Node) -> View:
        """`view`, which has the layout of `fake`, as a view with its bits for conjugation and negation."""
        for op, differs in zip((aten._conj.default, aten._neg_view.default), _different_lazy_bits(view.fake, fake)):
            if differs:
                view = View(view.memory, evaluate(op, (view.fake,), {}), view, op, (), {}, like)
        view.fake = fake
        return view

    def region_fake(self, index: int) -> Fake:
        return self.placeholders[index].meta["val"]

    def call_inplace(self, node: Node, op: Operator) -> None:
        names = op.positional
        arguments = dict(zip(names, node.args)) | dict(node.kwargs)
        written = [names[where] if isinstance(where, int) else where for where in op.written]
        if all(isinstance(where, str) for where in op.written):
            self.call_out(node, written)
            return
        shortcut = SHORTCUTS.get(node.target)
        if shortcut is not None and shortcut(self, node):
            self.remember_written(node, [arguments[name] for name in written])
            return
        if op.is_random and op.base in FILLS:
            del arguments[written[0]]
            self.draw(node, self.views[node.args[0]], arguments)
            return
        functional = functional_of(node.target)
        if functional is None:
            raise self.fail("no operator without side effects does the same")
        args, kwargs = self.argument(node.args), {key: self.argument(each) for key, each in node.kwargs.items()}
        given = len(args)
        for argument, plain in zip(node.target._schema.arguments[given:], functional._schema.arguments[given:]):
            if argument.name not in kwargs and argument.has_default_value() and not plain.has_default_value():
                kwargs[plain.name] = argument.default_value  # left out of the call; bernoulli's p = 0.5 is such a one
        new = emit(self.graph, functional, args, kwargs, node)
        targets = [arguments[name] for name in written if arguments.get(name) is not None]
        values = self.new_values(
            new, targets, len(node.meta["val"]) if isinstance(node.meta["val"], (list, tuple)) else 0
        )
        for target, value in zip(targets, values):
            if isinstance(target, (list, tuple)):
                for index, each in enumerate(target):
                    self.write(
                        self.views[each], self.converted(select(self.graph, value, index), self.views[each].fake)
                    )
            else:
                self.write(self.views[target], self.converted(value, self.views[target].fake))
        self.remember_written(node, targets, new)

    def new_values(self, new: Node, targets: list[object], fresh: int) -> list[Node]:
        """The results of a functional operator that are the new contents of `targets`."""
        value = new.meta["val"]
        if isinstance(value, Fake):
            return [new]
        if len(targets) == 1 and isinstance(targets[0], (list, tuple)) and len(value) == len(targets[0]):
            return [new]  # _foreach_*: one list
        first = len(value) - len(targets)
        return [select(self.graph, new, first + index) for index in range(len(targets))]

    def remember_written(self, node: Node, targets: list[Any], new: Node | None = None) -> None:
        """Whoever reads the in-place node itself reads what it wrote to."""
        value = node.meta["val"]
        if isinstance(value, Fake):
            if new is not None and not operator(node.target).returns_written[0]:
                # `rrelu_with_noise` writes the noise and returns something else.
                self.add_root(node, select(self.graph, new, 0))
            else:
                self.views[node] = self.views[targets[0]]
        elif isinstance(value, (list, tuple)) and new is not None:
            returns = operator(node.target).returns_written
            if all(returns):
                self.results[node] = [self.views[each] for each in targets]
            else:
                self.results[node] = new

    def call_out(self, node: Node, written: list[str]) -> None:
        if operator(node.target).is_random and len(written) == 1:
            arguments = dict(zip(operator(node.target).positional, node.args)) | dict(node.kwargs)
            self.draw(node, self.views[arguments.pop(written[0])], arguments)
            return
        functional = _torch.functional_of_out(node.target)
        if functional is None:
            raise self.fail("an out= variant without the plain operator")
        args = self.argument(node.args)
        kwargs = {key: self.argument(each) for key, each in node.kwargs.items() if key not in written}
        new = emit(self.graph, functional, args, kwargs, node)
        targets = [node.kwargs[name] for name in written]
        many = not isinstance(new.meta["val"], Fake)
        for index, target in enumerate(targets):
            value = select(self.graph, new, index) if many else new
            self.write(self.views[target], self.converted(value, self.views[target].fake))
        if many:
            self.results[node] = [self.views[target] for target in targets]
        else:
            self.views[node] = self.views[targets[0]]

    def draw(self, node: Node, target: View, arguments: dict[str, object]) -> None:
        """Random numbers become `target`'s contents: those that are drawn into memory that lies as its does."""
        others = {name: self.argument(each) for name, each in arguments.items()}
        self.write(target, drawn(self.graph, node.target, target.fake, others, node))
        self.views[node] = target

    # The end --------------------------------------------------------------------------------------

    def finish(self, node: Node) -> FunctionalGraph:
        outputs: list[Node] = []
        positions: dict[int, int] = {}
        results: list[AliasOfInput | FromGraph] = []
        for argument in node.args[0]:
            view = self.views[argument]
            if view.fake.is_neg():
                raise self.fail("a lazily negated result")
            if view.memory.inputs:
                results.append(self.input_result(argument, view))
                continue
            memory = view.memory
            if id(memory) not in positions:
                positions[id(memory)] = len(outputs)
                outputs.append(self.exact_root(memory))
            results.append(
                FromGraph(
                    positions[id(memory)],
                    *self.relative(view, memory.root.fake, view is memory.root),
                    conjugate=view.fake.is_conj(),
                )
            )
        uses = Counter(result.index for result in results if isinstance(result, FromGraph))
        results = [self.unviewed(result, outputs, uses) for result in results]
        writes: list[tuple[int, int]] = []
        overlapping: list[tuple[int, ...]] = []
        rows: list[tuple[int, object]] = []
        for memory in {id(view.memory): view.memory for view in self.views.values()}.values():
            if memory.inputs and memory.generation:
                self.finish_writes(memory, outputs, writes)
                if len(memory.inputs) > 1:
                    overlapping.append(memory.inputs)
                if memory.row is not None:
                    rows.append(memory.row)
        self.graph.output(tuple(outputs))
        return FunctionalGraph(
            self.graph, tuple(results), tuple(writes), overlapping=tuple(overlapping), rows=tuple(rows)
        )

    def unviewed(self, result: Any, outputs: list[Node], uses: Mapping[int, int]) -> Any:
        """A view that is all of a value that no other result uses is that value."""
        if isinstance(result, AliasOfInput) or result.view is None or result.dtype is not None:
            return result
        value = outputs[result.index].meta["val"]
        shape, strides, offset = result.view
        sizes = sizes_of((*shape, *strides, offset))
        if len(shape) != value.dim() or sizes != sizes_of((*value.size(), *value.stride(), 0)):
            return result
        return FromGraph(result.index, conjugate=result.conjugate) if uses[result.index] == 1 else result

    def input_result(self, argument: Node, view: View) -> AliasOfInput:
        if argument.op == "placeholder" or view.like is not None and view.like.op == "placeholder":
            index = next(i for i in view.memory.inputs if self.placeholders[i].name == (view.like or argument).name)
            return AliasOfInput(index)
        index = view.memory.inputs[0]
        return AliasOfInput(index, *self.relative(view, self.region_fake(index), False), conjugate=view.fake.is_conj())

    def relative(self, view: View, base: Fake, whole: bool) -> tuple[Any, str | None]:
        """(shape, strides, offset) and the dtype if it is not `base`'s.

        `offset`: from `base`'s first element, in elements of the view's dtype.
        """
        if whole:
            return None, None
        fake = view.fake
        start = base.storage_offset() * base.element_size()
        offset = fake.storage_offset() - start // fake.element_size()
        if start % fake.element_size():
            raise self.fail("a result that starts inside an element of its input")
        dtype = str(fake.dtype)[6:] if fake.dtype != base.dtype else None
        return (tuple(fake.size()), tuple(fake.stride()), offset), dtype

    def finish_writes(self, memory: Memory, outputs: list[Node], writes: list[tuple[int, int]]) -> None:
        if memory.row is not None:
            writes.append((memory.row[0], len(outputs)))
            outputs.append(memory.value)
            return
        for index in memory.inputs:
            if len(memory.inputs) == 1:
                value = memory.value
            else:
                value = self.read(
                    next(
                        v
                        for n, v in self.views.items()
                        if n.op == "placeholder" and n.name == self.placeholders[index].name
                    )
                )
            if value is self.placeholders[index]:
                continue
            writes.append((index, len(outputs)))
            outputs.append(value)


def functionalize(region: Region, left_out: frozenset[Node] = frozenset()) -> FunctionalGraph:
    """The region's program but for the nodes `left_out`, without side effects; see the module's docstring."""
    return Functionalizer(region, left_out).run()
