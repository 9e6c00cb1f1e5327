"""The recorder: calling torch functions on fakes grows one `torch.fx.Graph` of ATen operators.

    x = torch.ones(2, 3)
    recorder = Recorder()
    fake = recorder.input(x)
    with recorder.recording():
        result = torch.relu(fake + 1)
    print(recorder.finish([result]))

    graph():
        %input_1 = placeholder[target=input_1]
        %add = call_function[target=torch.ops.aten.add.Tensor](args = (%input_1, 1))
        %relu = call_function[target=torch.ops.aten.relu.default](args = (%add,))
        return (relu,)

Guarantees. Operators land in program order, in-place operators and views as they are called; operators written in terms
of others are decomposed on every road, so that `no_grad`, `inference_mode` and grad mode give the same graph. Every
value in the graph is a placeholder, computed in it, or a literal (`_torch.tensor_constant`). Nodes carry `meta["val"]`
(the fake, or a list of them), `meta["location"]` and `meta["grad_enabled"]`.

A fake has one node for life: an in-place operator writes to the memory that the node names, later readers name the same
node. In-place changes of metadata (`x.t_()`) are recorded as the view they make, and the fake moves on to that node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode

from lampwork import _torch
from lampwork.capture.contents import Contents
from lampwork.capture.writes import call_inplace, call_metadata, change_storage
from lampwork.fakes import rules  # noqa: F401  (fills the table of shape rules)
from lampwork.fakes.fake import (
    Fake,
    FakeStorage,
    Unsupported,
    fake_like_view,
    make_fake,
    spec_of,
)
from lampwork.fakes.numbers import mentions_numbers
from lampwork.fakes.operators import Operator, operator
from lampwork.fakes.shapes import exact_device, infer
from lampwork.fakes.symbolic import SymbolicSizes
from lampwork.fakes.views import has_symbols, view
from lampwork.ir.loops import Location
from lampwork.ir.region import Region, Return
from lampwork.ir.source import Argument
from lampwork.ir.template import ConstantValue, NewTuple, NewValue, Template, TensorValue

#: Literals are stored in the artifact; larger tables belong in a buffer.
LARGEST_LITERAL_BYTES = 1 << 20


class _Mode(TorchDispatchMode):
    """Hands every operator to the recorder."""

    recorder: Recorder

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder


def _dispatch(self: _Mode, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    return self.recorder.call(func, args, kwargs or {})


# Set after the class exists: `__init_subclass__` would wrap it in something that imports Dynamo.
_Mode.__torch_dispatch__ = _dispatch  # type: ignore[method-assign]


class Recorder:
    """Records one region. Not shared between threads.

    `location_hook()` says which line of the user's program is running; the bytecode machine supplies it.
    `inputs`: the fakes of the placeholders, in order. `written`: storage keys of everything written to so far.
    `writes`: how many writes that was.
    `sizes`: the symbols for sizes that are not fixed. `sizes_by_contents`: those that contents decide are among them.
    `uses_cuda`: whether a tensor on a CUDA device was met or made, so that the state of CUDA's libraries matters.
    """

    def __init__(self, location_hook: Callable[[], Location] | None = None, sizes_by_contents: bool = True) -> None:
        self.graph = torch.fx.Graph()
        self.inputs: list[Fake] = []
        self.location_hook = location_hook
        self.sizes = SymbolicSizes(self._location)
        self.written: set[int] = set()
        self.writes = 0
        self.contents = Contents(self, sizes_by_contents)
        self.uses_cuda = False
        #: Why eager would compute other gradients than the graph's operators have: a function or hook of the user's.
        self.own_gradients = ""
        #: A backward method of the program is told which of several gradients there are.
        self.tells_undefined = False
        #: Hooks on tensors with a history of the program's own, a table for each tensor.
        self.hook_tables: list[Any] = []
        #: Tensors whose whole gradient a hook of eager's is to see.
        self.watched: list[Fake] = []
        #: What is recorded from now on belongs to the backward pass; and to which checkpointed function, 0 for none.
        self.differentiating = False
        #: What is recorded from now on belongs to a backward pass that the program itself runs.
        self.takes_gradients = False
        self._checkpoint = self._checkpoints = 0
        self._keeps: Callable[..., bool] | None = None
        self._written_in_checkpoint: set[int] = set()
        #: Is told of every `fake.data = other`, whoever caused it.
        self.data_hook: Callable[[Fake, Fake], None] | None = None
        #: Is told of every write to a tensor: (operator, target, other arguments, keywords).
        self.write_hook: Callable[[str, Fake, tuple, dict], None] | None = None
        #: What knows the numbers that operators were called with and capture does not know, if there are any.
        self.numbers: Any = None
        self._storages: dict[int, FakeStorage] = {}
        self._tangents: list[torch.fx.Node] = []
        self._mode = _Mode(self)
        self._handlers: dict[str, Callable] = {
            "functional": self._call_functional,
            "composite": self._call_composite,
            "view": self._call_view,
            "inplace": partial(call_inplace, self),
            "metadata": partial(call_metadata, self),
            "lift": self._call_lift,
            "identity": lambda op, args, kwargs: args[0],
            "device": lambda op, args, kwargs: args[0].device,
            "data-dependent": self._call_data_dependent,
            "storage": partial(change_storage, self),
        }

    # Inputs ---------------------------------------------------------------------------------------

    def placeholder(self, fake: Fake) -> Fake:
        """Makes `fake` the next input of the graph. Call it outside `recording()` or inside; it is the same."""
        node = self.graph.create_node("placeholder", f"input_{len(self.inputs) + 1}")
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

    def tangent(self, fake: Fake) -> Fake:
        """A placeholder behind all inputs, those that are met later among them: the gradient of a result."""
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
        with self._paused():
            key = _torch.storage_key(tensor)
            storage = self._storages.get(key)
            if storage is None:
                storage = self._storages[key] = FakeStorage(_torch.storage_bytes(tensor), tensor.device)
            spec: Any = tensor
            if layout is not None:
                spec = replace(spec_of(tensor), shape=layout[0], strides=layout[1])
            fake = make_fake(spec, storage=storage, source=source)
            if layout is not None and getattr(tensor, "_is_buffer", False):
                fake._is_buffer = True  # type: ignore[attr-defined]
        if fake.is_cuda:
            self.uses_cuda = True
        return self.placeholder(fake)

    def forget_input(self, fake: Fake) -> None:
        """Takes back an input that no node reads."""
        self.inputs = [each for each in self.inputs if each is not fake]
        self.graph.erase_node(fake.lampwork_placeholder)  # type: ignore[attr-defined]

    def integer(self, symbol: torch.SymInt) -> None:
        """Makes a symbolic integer the next input of the graph; nodes name it as what it is, an argument."""
        self.placeholder(symbol)  # type: ignore[arg-type]

    # Recording ------------------------------------------------------------------------------------

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
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
        try:
            yield self._written_in_checkpoint
        finally:
            before |= self._written_in_checkpoint
            self._checkpoint, self._written_in_checkpoint, self._keeps = outer, before, kept_outside

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Operators run as usual again: for making fakes in the middle of a recording."""
        with _torch.without_modes(), torch.inference_mode(False):
            yield

    def call(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Records one operator call and returns what it returns, as fakes."""
        question = _QUESTIONS.get(func)
        if question is not None:
            return question(args[0])
        op = operator(func)
        if op.base.startswith("_foreach_"):
            from lampwork.capture.lists import on_each

            done = on_each(self, op, args, kwargs)
            if done is not NotImplemented:
                return done
        if self.numbers is not None and (mentions_numbers(args) or (kwargs and mentions_numbers(kwargs))):
            from lampwork.capture.scalars import Scalars

            return Scalars(self).call(op, args, kwargs)
        if kwargs:
            device = kwargs.get("device")
            if device is not None and device.type == "cuda":
                self.uses_cuda = True
                if device.index is None:  # the current device is guarded, so that the graph may name it
                    kwargs = {**kwargs, "device": exact_device(device)}
        if self._keeps is None or op.kind == "composite":
            return self._handlers[op.kind](op, args, kwargs)
        before = self.graph._root._prev
        result = self._handlers[op.kind](op, args, kwargs)
        if self._keeps(func, args, kwargs, result):
            node = self.graph._root._prev
            while node is not before:
                node.meta["kept"] = True
                node = node._prev
        return result

    def _call_functional(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        if op.base in _CHANGED_BEFORE_RECORDING:
            changed = _CHANGED_BEFORE_RECORDING[op.base](args, kwargs)
            if changed is not None:
                return self.call(*changed)
        elif op.overload in _INDEXING and any(each is not None and each.dtype in _MASKS for each in args[1]):
            args = args[0], self.contents.without_masks(*args)
        elif op.base == "cudnn_batch_norm":
            return self._call_cudnn_batch_norm(*args, **kwargs)
        elif op.base == "_to_copy" and type(args[0]) in _NUMBER_TYPES:
            return self._copy_of_number(op, *args, **kwargs)
        elif op.base == "_efficientzerotensor":
            return self._call_zero_tensor(*args, **kwargs)
        first = args[0] if args else None
        if type(first) in _NUMBERS and _takes_tensor(op) and not any(isinstance(each, Fake) for each in args):
            return self._call_on_numbers(op, args, kwargs)
        inputs = self.to_nodes(args), self.to_nodes(kwargs) if kwargs else {}
        result = infer(op.overload, args, kwargs)
        self._record(op, *inputs, result)
        if type(first) is Fake and first.constant is not None and type(result) is Fake:
            result.constant = self._folded(op, args, kwargs)
        return result

    def _call_on_numbers(self, op: Operator, args: tuple, kwargs: dict) -> Fake:
        """`torch.div(7, 2, rounding_mode="trunc")`: a tensor whose value is known."""
        if op.is_random:
            raise Unsupported(f"{op.overload} of plain numbers")
        plain = [int(each) if type(each) is torch.SymInt else each for each in args]
        with self._paused():
            made = op.overload(*plain, **kwargs).resolve_conj()
        return self.constant(made)

    def _folded(self, op: Operator, args: tuple, kwargs: dict) -> torch.Tensor | None:
        """What an operator makes of literals of one element; None where something else takes part."""
        if op.is_random or kwargs or op.overload.namespace != "aten":
            return None
        values = []
        for each in args:
            if isinstance(each, Fake):
                if each.constant is None or each.numel() != 1 or _torch.storage_key(each) in self.written:
                    return None
                each = each.constant
            elif type(each) not in _NUMBER_TYPES:
                return None
            values.append(each)
        with self._paused(), torch.no_grad():
            made = op.overload(*values)
        return made if made.numel() == 1 else None

    def _call_cudnn_batch_norm(self, x: Fake, *rest: Any) -> Any:
        """Recorded as the operator that other batch norms are: the library's says neither that training writes the
        running statistics, nor what it reserves for the backward pass."""
        results = self.call(torch.ops.aten.native_batch_norm.default, (x, *rest), {})
        options = {"dtype": torch.uint8, "device": x.device}
        return *results, self.call(torch.ops.aten.empty.memory_format, ([0],), options)

    def _copy_of_number(self, op: Operator, number: Any, **options: Any) -> Any:
        """Function transforms convert the numbers that meet their tensors; a number is seen as such here."""
        with self._paused():
            made = op.overload(torch.tensor(number, dtype=_NUMBER_TYPES[type(number)]), **options)
        return self.constant(made)

    def _call_zero_tensor(self, size: Any, **options: Any) -> Any:
        """The zeros of forward derivatives, which have no memory and stay zero times infinity: torch computes with them
        before anything is recorded. What does reach the graph are ordinary zeros."""
        options = {name: value for name, value in options.items() if name in ("dtype", "device") and value is not None}
        plain = infer(torch.ops.aten.zeros.default, (list(size),), options)
        result = _torch.zeros_without_memory(Fake, tuple(size), plain.dtype, plain.device)
        self._record(operator(torch.ops.aten.zeros.default), (list(size),), options, result)
        return result

    def _call_composite(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        with self._mode:
            return _torch.decompose(op.overload, args, kwargs)

    def note_offset(self, tensor: Fake) -> None:
        """The program's meaning depends on where in its storage `tensor` lies: guards that of the inputs there."""
        key = _torch.storage_key(tensor)
        for fake in self.inputs:
            if isinstance(fake, Fake) and fake.lampwork_source is not None and _torch.storage_key(fake) == key:
                self.sizes.require(fake.lampwork_source, "offset", 0, int(fake.storage_offset()))

    def _call_view(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        if type(args[0]) in _NUMBERS:  # the conjugate of a factor, in derivatives
            return self._call_on_numbers(op, args, kwargs)
        if op.base == "as_strided" and (len(args) > 3 or "storage_offset" in kwargs):
            self.note_offset(args[0])
        inputs = self.to_nodes(args), self.to_nodes(kwargs) if kwargs else {}
        result: Any
        if self.sizes and has_symbols((args, kwargs)):
            result = view(op.overload, args, kwargs)
            self._record(op, *inputs, result)
            return result
        with _torch.kernels_only():
            plain = op.overload(*args, **kwargs)
        if isinstance(plain, torch.Tensor):
            result = plain if isinstance(plain, Fake) else fake_like_view(plain)
        else:
            result = [fake_like_view(each) for each in plain]
        self._record(op, *inputs, result)
        return result

    def _call_lift(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        tensor = args[0]
        if isinstance(tensor, Fake):
            return tensor
        return self.constant(tensor)

    def _call_data_dependent(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        first = args[0] if args else None
        if isinstance(first, Fake) and first.constant is not None and op.base == "_local_scalar_dense":
            if _torch.storage_key(first) not in self.written:
                return first.constant.item()
        return self.contents.call(op, args, kwargs)

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
        if self.differentiating:
            meta["backward"] = True
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
                    each.node = (node, index)  # type: ignore[assignment]

    def node_of(self, fake: Fake) -> torch.fx.Node:
        """The node that names `fake`. Raises `Unsupported` for a fake of another recording."""
        node = fake.node
        if type(node) is tuple:
            parent, index = node
            node = _torch.append_node(self.graph, "getitem", _torch.getitem, (parent, index), {})
            node.meta = {**parent.meta, "val": fake}
            if parent.next is not node:  # right behind its tuple, so that it is there wherever the tuple is
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
        self._written_in_checkpoint.add(key)

    # The end --------------------------------------------------------------------------------------

    def finish(self, outputs: Sequence[Fake]) -> torch.fx.Graph:
        """Ends the graph with `outputs` as one flat tuple and returns it. `detach` nobody reads is dropped: autograd's
        bookkeeping makes them in grad mode only."""
        self.graph.output(tuple(self.node_of(fake) for fake in outputs))
        for node in reversed(list(self.graph.nodes)):
            if not node.users and node.op == "call_function" and node.target in _BOOKKEEPING:
                self.graph.erase_node(node)
        return self.graph


#: What native code asks where it can take numbers only: symbolic sizes are specialised.
_QUESTIONS: dict[Any, Callable[[Fake], Any]] = {
    torch.ops.aten.size.default: lambda fake: [int(each) for each in fake.size()],
    torch.ops.aten.stride.default: lambda fake: [int(each) for each in fake.stride()],
    torch.ops.aten.numel.default: lambda fake: int(fake.numel()),
    torch.ops.aten.storage_offset.default: lambda fake: int(fake.storage_offset()),
}
_BOOKKEEPING = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default, _torch.getitem})


#: What PyTorch makes of a Python number that it wraps as a tensor.
_NUMBER_TYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_NUMBERS = frozenset({*_NUMBER_TYPES, torch.SymInt})


def _takes_tensor(op: Operator) -> bool:
    """Whether the operator's first argument is a tensor, or a number that stands for one."""
    return str(op.overload._schema.arguments[0].type) == "Tensor"


_INDEXING = frozenset({torch.ops.aten.index.Tensor, torch.ops.aten._unsafe_index.Tensor})
_MASKS = (torch.bool, torch.uint8)


def _batch_norm_writes_statistics(args: tuple, kwargs: dict) -> Any:
    """`native_batch_norm` does not say in its schema that training updates running statistics; its twin does."""
    arguments = list(args)
    if len(arguments) == 8 and not kwargs and arguments[5] and arguments[3] is not None and arguments[4] is not None:
        return torch.ops.aten._native_batch_norm_legit.default, tuple(arguments), {}
    return None


def _views_instead(view: Any) -> Callable[[tuple, dict], Any]:
    """`unsafe_split` returns views that autograd does not know as such; to memory they are those of `split`."""
    return lambda args, kwargs: (view, args, kwargs)


_CHANGED_BEFORE_RECORDING: dict[str, Callable[[tuple, dict], Any]] = {
    "native_batch_norm": _batch_norm_writes_statistics,
    "unsafe_split": _views_instead(torch.ops.aten.split.Tensor),
    "unsafe_split_with_sizes": _views_instead(torch.ops.aten.split_with_sizes.default),
}


def record(fn: Callable, example_tensors: Iterable[torch.Tensor], name: str = "recorded") -> Region:
    """The region of `fn(*tensors)` recorded without the bytecode machine: for tests and graphs that are torch-level.

    `fn` may return a tensor, None, or a flat tuple or list of tensors; it must touch Python state of its own only.
    The program runs under the modes in force (grad mode, autocast). Nothing is computed or written.
    """
    recorder = Recorder()
    fakes = [recorder.input(tensor, Argument(index)) for index, tensor in enumerate(example_tensors)]
    with recorder.recording():
        result = fn(*fakes)
    many = isinstance(result, (tuple, list))
    results = list(result) if many else [result]
    tensors = [each for each in results if isinstance(each, Fake)]
    graph = recorder.finish(tensors)
    templates: list[Template] = []
    for each in results:
        if isinstance(each, Fake):
            position = next(index for index, other in enumerate(tensors) if other is each)
            templates.append(TensorValue(position, requires_grad=each.requires_grad))
        else:
            templates.append(ConstantValue(each))
    return Region(
        name=name,
        graph=graph,
        inputs=tuple(Argument(index) for index in range(len(fakes))),
        guards=(),
        objects=(NewTuple(tuple(templates)),) if many else (),
        effects=(),
        outcome=Return(NewValue(0) if many else templates[0]),
        requires_grad_outputs=any(each.requires_grad for each in tensors),
        input_values=tuple(fakes),
    )
