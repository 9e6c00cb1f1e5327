"""The graph that a recording grows: its inputs, nodes and literals, and the modes in which operators are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode

from lampwork import _torch
from lampwork.capture.autograd.view_writes import ViewWrites
from lampwork.capture.record.constants import Constants
from lampwork.capture.record.unbacked_sizes import Contents
from lampwork.fakes.fake import Fake, FakeStorage, Unsupported, make_fake, spec_of
from lampwork.fakes.operators import Operator, operator
from lampwork.fakes.symbolic import SymbolicSizes
from lampwork.fakes.wrappers import Wrapper
from lampwork.ir.loops import Location

#: Literals are stored in the artifact; larger tables belong in a buffer.
LARGEST_LITERAL_BYTES = 1 << 20


class _Mode(TorchDispatchMode):
    """Hands every operator to the recorder."""

    recorder: Recording

    def __init__(self, recorder: Recording) -> None:
        super().__init__()
        self.recorder = recorder


def _dispatch(self: _Mode, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    kwargs = kwargs or {}
    if self.recorder.wrapped is not None and any(issubclass(each, Wrapper) for each in types):
        return self.recorder.wrapped(func, types, args, kwargs)
    if self.recorder.takes_values_alone and func in _WITH_VECTORS:
        args, kwargs = _WITH_VECTORS[func](*args, **kwargs)
    return self.recorder.call(func, args, kwargs)


#: Arguments with which decompositions compute no vectors. Those are computed of subclasses of tensors, which fakes are.
_WITH_VECTORS: dict[Any, Callable[..., tuple[tuple, dict]]] = {
    torch.ops.aten._linalg_eigh.default: lambda A, UPLO="L", compute_v=True: ((A, UPLO, False), {}),
    torch.ops.aten._linalg_svd.default: lambda A, full_matrices=False, compute_uv=True, *, driver=None: (
        (A, False, False), {"driver": driver},
    ),
}  # fmt: skip


# Set after the class exists: `__init_subclass__` would wrap it in something that imports Dynamo.
_Mode.__torch_dispatch__ = _dispatch  # type: ignore[method-assign]


class Recording:
    """The graph of one region while it grows. Not shared between threads.

    `location_hook()` says which line of the user's program is running; the bytecode machine supplies it.
    `inputs`: the fakes of the placeholders, in order. `written`: storage keys of everything written to so far.
    `writes`: how many writes that was.
    `sizes`: the symbols for sizes that are not fixed. `sizes_by_contents`: those that contents decide are among them.
    `uses_cuda`: whether a tensor on a CUDA device was met or made, so that the state of CUDA's libraries matters.
    `exact`: numbers are to be eager's bit by bit, so operators are recorded as eager calls them unless the bits are
    equal.
    """

    def __init__(
        self,
        location_hook: Callable[[], Location] | None = None,
        sizes_by_contents: bool = True,
        exact: bool = False,
    ) -> None:
        self.exact = exact
        #: The default type that the program of this graph runs under.
        self.default_dtype = torch.get_default_dtype()
        self.graph = torch.fx.Graph()
        self.inputs: list[Fake] = []
        self.location_hook = location_hook
        self.sizes = SymbolicSizes(self._location)
        self.written: set[int] = set()
        self.writes = 0
        #: The writes to each storage, as numbers of `writes`; how many there were before each node, if there were any.
        self.writes_to: dict[int, list[int]] = {}
        #: Views whose gradients go by their place in memory after writes to it: steps in which a view, or what has
        #: views, was changed in shape, in place, or `as_strided` took a view of a view, by the key of the storage. The
        #: first one after which that memory was written, and gradients go there. And what counts steps.
        self.views_by_memory: dict[int, int] = {}
        self.view_by_memory_written: int | None = None
        self.steps: Callable[[], int] = int
        self.writes_before: dict[torch.fx.Node, int] = {}
        #: Through which tensor each was, and the number that autograd's next node would have had.
        self.writes_through: dict[int, list[tuple[int, Fake]]] = {}
        self.contents = Contents(self, sizes_by_contents)
        self.constants = Constants(self)
        #: What a tensor holds that is computed from settings of the model and from sizes, guarded: a tensor or a
        #: symbol; None for others.
        self.settings: Callable[[Fake], Any] = lambda fake: None
        self.uses_cuda = False
        #: Eager reads the values of a decomposition alone, in an operator that is made of others.
        self.takes_values_alone = False
        #: Is told of every operator before it is recorded, while there are switches set that some of them read.
        self.switched: Callable[[Any], None] | None = None
        #: Why eager would compute other gradients than the graph's operators have: a function or hook of the user's.
        self.own_gradients = ""
        #: A backward method of the program is told which of several gradients there are.
        self.tells_undefined = False
        #: Hooks on tensors with a history of the program's own, a table for each tensor.
        self.hook_tables: list[Any] = []
        #: Nodes that hooks of the program hang on.
        self.hooked_nodes: list[Any] = []
        #: Leaves that the program made and registered a hook on.
        self.hooked_leaves: list[Fake] = []
        #: Tensors whose whole gradient a hook of eager's is to see.
        self.watched: list[Fake] = []
        #: What is recorded from now on belongs to the backward pass; and to which checkpointed function, 0 for none.
        self.differentiating = False
        #: What is recorded from now on belongs to a backward pass that the program itself runs.
        self.takes_gradients = False
        #: What a node of autograd has just given, if the engine may add it to other gradients.
        self.handed_on: tuple[Any, ...] = ()
        self._checkpoint = self._checkpoints = 0
        self._keeps: Callable[..., bool] | None = None
        self._written_in_checkpoint: set[int] = set()
        #: Sequence numbers of the nodes of autograd that were made inside of checkpointed functions.
        self.checkpointed: list[range] = []
        #: And of those of operators that were given a tensor where the program has a number.
        self.given_numbers: list[range] = []
        #: What autograd saves of operators that write to views.
        self.view_writes = ViewWrites()
        #: Is told of every `fake.data = other`, whoever caused it.
        self.data_hook: Callable[[Fake, Fake], None] | None = None
        #: What the program calls at present, or called last, was given these arguments.
        self.called_with: tuple[Any, ...] = ()
        #: Is told of every write to a tensor: (operator, target, other arguments, keywords).
        self.write_hook: Callable[[str, Fake, tuple, dict], None] | None = None
        #: Kinds of operators that are left to eager for what the program does with their results, and why; and how one
        #: more becomes that: capture starts again.
        self.left: Mapping[str, str] = {}
        self.leave: Callable[[str, str], None] | None = None
        #: What a call of an operator on tensors of wrapper subclasses gives: (operator, classes, arguments, keywords).
        #: None as long as there are none.
        self.wrapped: Callable[[Any, Any, tuple, dict], Any] | None = None
        #: In a tensor: what the batch norm that is called now takes as its momentum, in place of a number.
        self.momentum: Fake | None = None
        #: What knows the numbers that operators were called with and capture does not know, if there are any.
        self.numbers: Any = None
        #: Inputs that were made in inference mode.
        self.made_in_inference: list[Fake] = []
        #: Tensors beside the one that a node makes, which are named by it as well.
        self.stand_ins: list[Fake] = []
        #: Nodes that were taken out of the graph: storages are known by their addresses, which stay in use.
        self.taken_out: list[Any] = []
        self._storages: dict[int, FakeStorage] = {}
        self._tangents: list[torch.fx.Node] = []
        self._named = 0
        self._mode = _Mode(self)

    def call(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Records one operator call and returns what it returns, as fakes."""
        raise NotImplementedError

    # Inputs ---------------------------------------------------------------------------------------

    def placeholder(self, fake: Fake) -> Fake:
        """Makes `fake` the next input of the graph. Call it outside `recording()` or inside; it is the same."""
        node = _torch.append_placeholder(self.graph, self._input_name())
        after = self.inputs[-1].lampwork_placeholder if self.inputs else None
        if after is not None and after.next is not node:  # inputs met late: placeholders come first
            after.append(node)
        elif after is None and self.graph._root.next is not node:
            self.graph._root.append(node)
        node.meta = {"val": fake, "location": self._location(), "grad_enabled": torch.is_grad_enabled()}
        fake.lampwork_placeholder = node
        if isinstance(fake, Fake):
            fake.node = node
        self.inputs.append(fake)
        return fake

    def _input_name(self) -> str:
        """A name for the next input. One that was forgotten leaves its name."""
        self._named += 1
        return f"input_{self._named}"

    def tangent(self, fake: Fake) -> Fake:
        """A placeholder after all inputs, those that are met later among them: the gradient of a result."""
        node = self.graph.create_node("placeholder", f"tangent_{len(self._tangents) + 1}")
        after = self._tangents[-1] if self._tangents else self.inputs[-1].lampwork_placeholder
        after.append(node)
        node.meta = {"val": fake, "location": self._location(), "grad_enabled": False}
        fake.node = node
        self._tangents.append(node)
        return fake

    def input(self, tensor: torch.Tensor, source: Any = None, layout: tuple[tuple, tuple] | None = None) -> Fake:
        """The placeholder for a real tensor; tensors that share a storage get fakes that share one.

        `layout`: sizes and strides to take in place of the tensor's, symbols among them.

        The caller keeps `tensor` alive while recording and calls this once per tensor object. Raises `Unsupported` as
        `make_fake` does.
        """
        if _torch.is_wrapped(tensor):
            raise Unsupported("a tensor that a function transform wraps", id="tensor-subclass")
        if not _torch.has_storage(tensor):
            raise Unsupported("a tensor without a storage, as those are that `vmap` batches", id="tensor-subclass")
        with self._paused(), _torch.without_transforms():  # the program may meet the tensor inside of one
            key = _torch.storage_key(tensor)
            storage = self._storages.get(key)
            if storage is None:
                storage = self._storages[key] = FakeStorage(_torch.storage_bytes(tensor), tensor.device)
            spec: Any = tensor
            if layout is not None:
                spec = replace(spec_of(tensor), shape=layout[0], strides=layout[1])
            fake = make_fake(spec, storage=storage, source=source)
            if layout is not None and _torch.is_buffer(tensor):
                _torch.pass_for_buffer(fake)
            _torch.set_versions((fake,), (0,))  # from here on it counts the program's writes
        if fake.is_cuda:
            self.uses_cuda = True
        if tensor.is_inference():
            self.made_in_inference.append(fake)
        return self.placeholder(fake)

    def forget_inputs(self, fakes: Sequence[Fake]) -> None:
        """Takes back inputs that no node reads."""
        gone = {id(each) for each in fakes}
        self.inputs = [each for each in self.inputs if id(each) not in gone]
        for fake in fakes:
            self.graph.erase_node(fake.lampwork_placeholder)

    def integer(self, symbol: torch.SymInt) -> None:
        """Makes a symbolic integer the next input of the graph; nodes name it as what it is, an argument."""
        self.placeholder(symbol)  # type: ignore[arg-type]

    # Recording ------------------------------------------------------------------------------------

    @contextmanager
    def recording(self) -> Iterator[Self]:
        """While active in this thread, operators on fakes are recorded instead of run.

        The autocast cache is off inside (casts of fakes would outlive the region), and autograd stays in this thread.
        """
        cache = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        try:
            with torch.autograd.set_multithreading_enabled(False), _torch.literals_start_on_cpu(), self._mode:
                yield self
        finally:
            torch.set_autocast_cache_enabled(cache)

    def settle_history(self, value: torch.Tensor) -> None:
        """After a write to the memory of a view, autograd makes its history anew when that is first looked at, with
        operators: they are recorded here, so that the history can be looked at outside of the recording."""
        if value.requires_grad and value._is_view():
            with self.recording():
                value.grad_fn  # noqa: B018

    @contextmanager
    def checkpoint(self, keeps: Callable[..., bool] | None = None) -> Iterator[set[int]]:
        """What is recorded inside is computed again by the backward pass (`meta["checkpoint"]`, a number), unless
        `keeps(operator, arguments, keywords, result)` (`meta["kept"]`). Gives the set of storages that are written
        inside, which is complete at the end."""
        outer, before, kept_outside = self._checkpoint, self._written_in_checkpoint, self._keeps
        self._keeps = keeps
        self._checkpoints += 1
        self._checkpoint, self._written_in_checkpoint = self._checkpoints, set()
        first = _torch.next_sequence_number()
        try:
            yield self._written_in_checkpoint
        finally:
            before |= self._written_in_checkpoint
            self.checkpointed.append(range(first, _torch.next_sequence_number()))
            self._checkpoint, self._written_in_checkpoint, self._keeps = outer, before, kept_outside

    @contextmanager
    def taking_number(self) -> Iterator[None]:
        """What operators are called with inside stands for a number of the program's."""
        first = _torch.next_sequence_number()
        try:
            yield
        finally:
            self.given_numbers.append(range(first, _torch.next_sequence_number()))

    @contextmanager
    def computed_again(self, number: int = 0) -> Iterator[int]:
        """As `checkpoint`, where eager's autograd saves what is read all the same; `number`: of the function that goes
        on, which is what it gives. In a checkpointed function all is computed again that belongs to it."""
        outer = self._checkpoint
        if not outer:
            self._checkpoints += not number
            self._checkpoint = number or self._checkpoints
        try:
            yield self._checkpoint
        finally:
            self._checkpoint = outer

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Operators run as usual again: for making fakes in the middle of a recording."""
        with _torch.without_modes(), torch.inference_mode(False):
            yield

    # Literals -------------------------------------------------------------------------------------

    def constant(self, tensor: torch.Tensor) -> Fake:
        """A literal with a copy of `tensor`'s contents: a fresh tensor on every run, as `torch.tensor([1, 2])` is.

        For tensors made in the region from Python data. Raises `Unsupported` past LARGEST_LITERAL_BYTES.
        """
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise Unsupported("a literal that is not a plain CPU tensor", id="tensor-subclass")
        if tensor.numel() * tensor.element_size() > LARGEST_LITERAL_BYTES:
            raise Unsupported(
                f"a literal of {tensor.numel()} elements", "Make large tables once and register them as buffers.",
                "large-literal",
            )  # fmt: skip
        with self._paused():
            tensor = tensor.detach().contiguous()
            data = bytes(tensor.reshape(-1).view(torch.uint8).numpy().tobytes()) if tensor.numel() else b""
            fake = _torch.tensor_without_memory(
                Fake, tuple(tensor.size()), tensor.stride(), tensor.dtype, tensor.device
            )
        arguments = (str(tensor.dtype)[6:], tuple(tensor.size()), data)
        node = _torch.append_node(self.graph, "literal", _torch.tensor_constant, arguments, {})
        node.meta = {"val": fake, "location": self._location(), "grad_enabled": torch.is_grad_enabled()}
        fake.node, fake.constant = node, tensor
        return fake

    def effect(self, op: Any, args: tuple, shape: tuple | None = None, dtype: torch.dtype | None = None) -> Fake | None:
        """Records a call of an operator with an effect outside of tensors, which must not run now.

        Its result is a fresh CPU tensor of `shape` and `dtype`, or None.
        """
        result = None
        if shape is not None:
            assert dtype is not None
            with self._paused():
                result = _torch.tensor_without_memory(Fake, shape, None, dtype, torch.device("cpu"))
        self._record(operator(op), self.to_nodes(args), {}, result)
        return result

    # Nodes ----------------------------------------------------------------------------------------

    def _location(self) -> Location:
        return self.location_hook() if self.location_hook is not None else Location()

    def record(self, op: Operator, args: tuple, kwargs: dict, result: Any, rebind: bool = False) -> None:
        """Adds the node of an operator whose results are known. `rebind`: a result that has a node moves on to it."""
        self._record(op, self.to_nodes(args), self.to_nodes(kwargs) if kwargs else {}, result, rebind)

    def _record(self, op: Operator, args: Any, kwargs: Any, result: Any, rebind: bool = False) -> None:
        node = _torch.append_node(self.graph, op.base, op.overload, args, kwargs)
        meta = node.meta  # setting the attribute would go through `Node.__setattr__`
        meta["val"], meta["location"], meta["grad_enabled"] = result, self._location(), torch.is_grad_enabled()
        if self.writes:
            self.writes_before[node] = self.writes
        if self.differentiating:
            meta["backward"] = True
            if op.base == "_assert_async":  # a backward half is what its gradients need, and has no error of its own
                raise Unsupported("a gradient decides whether a hook or a backward method goes on as assumed")
        elif self._checkpoint:
            meta["checkpoint"] = self._checkpoint
        if self.takes_gradients:
            meta["gradient"] = True
        if type(result) is Fake:
            if result.node is None or rebind:
                result.node = node
        elif isinstance(result, (tuple, list)):
            for index, each in enumerate(result):
                if type(each) is Fake and each.node is None:
                    # Made when first used: most results of multi-result operators never are.
                    each.node = (node, index)

    def node_of(self, fake: Fake) -> torch.fx.Node:
        """The node that names `fake`. Raises `Unsupported` for a fake of another recording."""
        node = fake.node
        if type(node) is tuple:
            parent, index = node
            node = _torch.append_node(self.graph, "getitem", _torch.getitem, (parent, index), {})
            node.meta = {**parent.meta, "val": fake}
            if parent.next is not node:  # right after its tuple, so that it is there wherever the tuple is
                after = parent
                while after.next.target is _torch.getitem and after.next.args[0] is parent:
                    after = after.next
                after.append(node)
            fake.node = node
        if node is None or node.graph is not self.graph:
            raise Unsupported("a tensor of another captured region", id="fake-escaped")
        return node

    def to_nodes(self, value: Any) -> Any:
        kind = type(value)
        if kind is tuple:
            return tuple([self.to_nodes(each) for each in value])
        if kind is Fake:
            node = value.node
            return node if type(node) is torch.fx.Node and node.graph is self.graph else self.node_of(value)
        if kind is list:
            return [self.to_nodes(each) for each in value]
        if kind is dict:
            return {key: self.to_nodes(each) for key, each in value.items()}
        if isinstance(value, torch.Tensor):
            raise Unsupported(
                f"a tensor that the program did not get from its arguments, globals, closures or attributes "
                f"({kind.__qualname__} of shape {list(value.size())})",
                id="foreign-tensor",
            )
        if isinstance(value, torch.Generator):
            raise Unsupported("a random generator of the program's own", id="foreign-generator")
        return value

    def note_written(self, target: Fake) -> None:
        """The program writes to the memory of `target`."""
        key = _torch.storage_key(target)
        self.writes += 1
        self.written.add(key)
        self.writes_to.setdefault(key, []).append(self.writes)
        self._written_in_checkpoint.add(key)
        self.writes_through.setdefault(key, []).append((_torch.next_sequence_number(), target))

    # The end --------------------------------------------------------------------------------------

    def finish(self, outputs: Sequence[Fake]) -> torch.fx.Graph:
        """Ends the graph with `outputs` as one flat tuple and returns it. `detach` nobody reads is dropped: autograd's
        bookkeeping makes them in grad mode only."""
        self.graph.output(tuple(self.node_of(fake) for fake in outputs))
        for node in reversed(list(self.graph.nodes)):
            if not node.users and node.op == "call_function" and node.target in _BOOKKEEPING:
                self.graph.erase_node(node)
        return self.graph

    def release(self, is_used: bool) -> None:
        """Cuts what leads from tensors to the graph, and back to them where the graph is not used.

        What autograd has saved for a backward pass that nobody runs is out of the garbage collector's sight: tensors
        among it would keep the graph for good, whose nodes keep the history that they are saved in.
        """
        made = [node.meta.get("val") for node in (*self.graph.nodes, *self.taken_out)]
        for value in (*made, *self.inputs, *self.stand_ins):
            for each in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(each, Fake):
                    each.node = None
                    if hasattr(each, "lampwork_placeholder"):
                        del each.lampwork_placeholder
        if not is_used:
            for node in self.graph.nodes:
                node.meta.clear()
        self.writes_through.clear()  # written tensors have histories, which lead here by hooks
        line = self._location()
        self.sizes.location_hook = lambda: line  # sizes are part of tensors, and lead here


_BOOKKEEPING = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default, _torch.getitem})
