"""`lower`: an ATen graph as loop nests over buffers.

    %relu = aten.relu(%add)                 for i0<8, i1<64: relu[i0, i1] = maximum(add[i0, i1], 0.0)
    %t = aten.t(%w); aten.mm(%x, %t)        mm = aten::mm(x[8, 64], w[64, 32](1, 64))     (a view is a TensorRef)

Each computing operator becomes one nest, or a few (softmax: maximum, exponentials, sum, quotient), that write fresh
buffers with eager's strides. Views become index arithmetic. What has no rule is called through ATen (`Extern`), so
missing coverage costs speed and never correctness. Fusing nests is the scheduler's work.

Licences of the arithmetic, for every rule unless it says otherwise:
- float16 and bfloat16 are converted to float32 at the load, computed in float32, converted back at the store. Between
  nests that are fused later the conversion pair stays, unless the scheduler drops it (licence `keeps_precision`:
  the result is at least as accurate as eager's, which rounds after every operator).
- Sums and products `reassociate`; statistics of normalisations are computed in two passes in the accumulator type.
- Everything else is `exact` per operation as `ir.scalar_operators` defines it: NaN, infinities and signed zeros as
  ATen.

Random operators stay calls of ATen in program order: the same draws as eager; but dropout on a GPU (`dropout.py`).

With `numerics="eager"` an operator becomes a nest only where `backends/exact.py` knows that its kernels give eager's
bits, and views. All else is a call of ATen, with eager's types and layouts: the licences above are not used then.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.backends import backend_of
from lampwork.backends.exact import Call, is_exact
from lampwork.config import Settings
from lampwork.errors import CompileError
from lampwork.fakes.symbolic import found_symbol, size_of, sizes_of
from lampwork.ir.dtype import ITEM_SIZE_BYTES, NATIVE, STORED
from lampwork.ir.loops import Buffer, Location, LoopNest, Origin, Store
from lampwork.ir.program import (
    Check,
    Extern,
    FromBuffer,
    FromInput,
    Lowered,
    Result,
    ScalarResult,
    TensorRef,
    TorchConstant,
    ViewOfInput,
)
from lampwork.ir.region import AliasOfInput, FromGraph, FunctionalGraph
from lampwork.ir.size import Size, SizeExpr, symbols
from lampwork.lower import expressions as ex
from lampwork.lower.launches import is_unset, launches_into_inputs
from lampwork.lower.mixed_types import are_refused
from lampwork.lower.nests import Nests, dtype_name, meta_of, with_own_memory
from lampwork.lower.rules import COPIES, GPU_FORMULAS, PLACED, VIEWS, Rule, rule_of
from lampwork.lower.values import (
    CannotLoad,
    TensorMeta,
    TensorValue,
    broadcast_index,
    contiguous_strides,
    grid,
)
from lampwork.turns import give_way


class _Operator:
    """What lowering needs to know about an operator overload, looked up once per process."""

    __slots__ = ("name", "is_view", "is_copy", "is_placed", "aliases", "written", "_out", "overload")

    _out: dict[str, str | None]

    def __init__(self, overload: _torch.Overload) -> None:
        self.overload = overload
        self.name = _torch.operator_name(overload)
        self.is_view = self.name in VIEWS
        self.is_copy = self.name in COPIES
        self.is_placed = self.name in PLACED
        self.written = _torch.written_arguments(overload)
        self.aliases = _torch.may_alias_arguments(overload)
        self._out = {}

    @property
    def rule(self) -> Rule | None:
        return rule_of(self.name)  # looked up anew: whoever adds a rule may have called the operator before

    def out_variant(self, device: str) -> str | None:
        """The overload that writes into given memory on `device` ("cpu", "cuda:0")."""
        key = device.partition(":")[0].upper()
        if key not in self._out:
            self._out[key] = _torch.out_variant(self.overload, key)
        return self._out[key]


_operators: dict[int, _Operator] = {}


class Lowering(Nests):
    """The state of lowering one graph; rules get it to build nests with."""

    def __init__(self, functional: FunctionalGraph, exact: bool = False) -> None:
        super().__init__(functional.device)
        self.functional = functional
        #: What kernels may compute, if numbers are to be eager's bit by bit; None: all that they can.
        self.exact = backend_of(functional.device).exact if exact else None
        kind = functional.device.partition(":")[0]
        self.formulas = GPU_FORMULAS if exact and kind == "cuda" else {}
        #: Buffers of nodes that are rematerialised (see `graph/whole_step.py`).
        self.rematerialised: set[str] = set()
        #: Symbols that calls of ATen decide: result and dimension of each.
        self.found: dict[str, tuple[str, int]] = {}
        #: Inputs that launches of kernels, and operators of libraries, write to, by node and result; those of them that
        #: are written at the end after all, as what the node gets lies elsewhere.
        self.into_inputs = launches_into_inputs(functional)
        self.written_last: set[int] = set()
        self.constants: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
        self.values: dict[Node, Any] = {}
        self.inputs: list[str] = []
        #: Where buffers begin in the storages that the graph's values have: inputs, and views that are made by copying.
        self.storage_offsets: dict[str, Size] = {}
        self.sizes: list[str] = []
        #: Inputs that are integers, and what each is in symbols.
        self.numbers: dict[str, Size] = {}

    # Operators through ATen ----------------------------------------

    def extern_argument(self, argument: object) -> Any:
        if type(argument) is TensorValue:
            return argument.used().ref
        if isinstance(argument, (tuple, list)):
            return tuple(self.extern_argument(item) for item in argument)
        if argument is None or isinstance(argument, (bool, int, float, str, complex, SizeExpr)):
            return argument
        if isinstance(argument, torch.dtype):
            return TorchConstant("dtype", dtype_name(argument))
        if isinstance(argument, torch.device):
            return TorchConstant("device", str(argument))
        if isinstance(argument, torch.layout):
            return TorchConstant("layout", str(argument).removeprefix("torch."))
        if isinstance(argument, torch.memory_format):
            return TorchConstant("memory_format", str(argument).removeprefix("torch."))
        raise CompileError("lower", f"argument of type {type(argument).__name__}", self.origin.op, self.origin.location)

    def extern(self, what: _Operator, args: tuple, kwargs: dict) -> Any:
        """Calls `what` through ATen on views of buffers; results get buffers with the strides of the fakes."""
        name, out_variant = what.name, what.out_variant(self.device)
        mutates: list[str] = []
        if any(node is self.node for node, _ in self.into_inputs) and name != _torch.LAUNCH:
            made = self.write_inputs(args, kwargs)
            if made is not NotImplemented:
                return made
        if what.written:
            for key in what.written:
                written = args[key] if isinstance(key, int) and key < len(args) else kwargs.get(key)
                mutates += [value.ref.buffer for value in _tensors(written)]
        elif what.aliases:
            # A view without a rule: its copying form, for no buffer may share memory with another.
            copying = _torch.copying_variant(what.overload)
            if copying is None:
                raise CompileError("lower", "a view operator without a copying form", name, self.origin.location)
            name, out_variant = _torch.operator_name(copying), None
        if name == "aten::native_batch_norm.default" and len(args) > 5 and args[5]:
            # Training mode updates the running statistics in place, though its schema does not say so.
            mutates += [value.ref.buffer for value in _tensors(args[3:5])]
        single = type(self.out) is TensorMeta
        if self.out is None and self.node.users:
            raise CompileError("lower", "an operator whose result is not a tensor", name, self.origin.location)
        metas: tuple = (self.out,) if single else self.out or ()
        if what.aliases:  # a copy has memory for each element
            metas = tuple([meta and with_own_memory(meta) for meta in metas])
        value = self.node.meta.get("val")
        results = value if isinstance(value, (tuple, list)) else (value,) if single else ()
        places = [self.device_of(each) if isinstance(each, torch.Tensor) else "" for each in results]
        finds = self.sizes_found()
        launches = name == _torch.LAUNCH and not any(places)
        into: dict[int, TensorValue] = {}
        if launches:
            into = {place: each for place, each in enumerate(args[1]) if self.is_input_of(place, each)}
            mutates = [each.ref.buffer for each in into.values()]
            args, out_variant = (args[0], self.without_unset(args[1]), *args[2:]), _torch.LAUNCH_OUT
        outputs: list[TensorValue | None] = []
        for position, meta in enumerate(metas):
            if position in into:
                outputs.append(into[position])
            elif meta is None or not (single or launches or self.needed(position) or position in finds):
                outputs.append(None)
            else:
                made = self.new_buffer(meta, "" if single else str(position), places[position])
                outputs.append(made)
                if what.aliases:
                    self.storage_offsets[made.ref.buffer] = size_of(results[position].storage_offset())
                for symbol, axis in finds.get(position, ()):
                    self.found[symbol] = made.ref.buffer, axis
                    self.sizes += [symbol, *sorted(symbols(made.ref.shape[axis]))]
        if finds:
            out_variant = None  # nobody can make room before the size is known
        self.items.append(
            Extern(
                name,
                self.extern_argument(args),
                tuple((key, self.extern_argument(value)) for key, value in kwargs.items()),
                tuple(output.ref.buffer if output is not None else None for output in outputs),
                out_variant if None not in outputs and not any(places) else None,
                tuple(dict.fromkeys(mutates)),
                self.origin,
                _torch.draws_random_numbers(name),
            )
        )
        return outputs[0] if single else tuple(outputs)

    def write_inputs(self, args: tuple, kwargs: dict) -> Any:
        """Calls the operator of a library that the node is the functional form of: all that it writes is an input's."""
        writer = _torch.written_arguments_of(self.node.target)
        assert writer is not None
        name, op, names = writer
        given = dict(zip([each.name for each in op._schema.arguments], args)) | kwargs
        written = [given[each] for each in names]
        first = len(op._schema.returns)
        places = [self.into_inputs.get((self.node, first + place)) for place in range(len(written))]
        if not all(self.is_input_of(first + place, each) for place, each in enumerate(written)):
            self.written_last |= {each for each in places if each is not None}
            return NotImplemented
        metas = (self.out,) if type(self.out) is TensorMeta else self.out
        own = [self.new_buffer(meta, str(place)) for place, meta in enumerate(metas[:first])]
        self.items.append(
            Extern(
                name,
                self.extern_argument(args),
                tuple((key, self.extern_argument(value)) for key, value in kwargs.items()),
                tuple(each.ref.buffer for each in own),
                None,
                tuple(dict.fromkeys(each.ref.buffer for each in written)),
                self.origin,
            )
        )
        results = (*own, *written)
        return results[0] if type(self.out) is TensorMeta else results

    def is_input_of(self, result: int, value: TensorValue) -> bool:
        """Whether `value`, whose new contents are a result of the node, is the memory of the input that is written
        there. A view that is made by copying is not."""
        target = self.into_inputs.get((self.node, result))
        if target is None or target in self.written_last:
            return False
        if value.ref.buffer != self.inputs[target]:
            self.written_last.add(target)
            return False
        return True

    def written_before(self) -> set[int]:
        """Inputs that need no write at the end."""
        return {*self.into_inputs.values()} - self.written_last

    def without_unset(self, written: tuple) -> tuple:
        """What a launch writes to, with None for memory that nobody has written to yet."""
        nodes = self.node.args[1]
        assert isinstance(nodes, (tuple, list))
        return tuple([None if is_unset(node) else value for node, value in zip(nodes, written, strict=True)])

    def sizes_found(self) -> dict[int, list[tuple[str, int]]]:
        """Symbols that the current node's results are the first to have, by result: (name, dimension)."""
        value = self.node.meta.get("val")
        found: dict[int, list[tuple[str, int]]] = {}
        results = value if isinstance(value, (tuple, list)) else (value,)
        if not any(found_symbol(size) for each in results if isinstance(each, torch.Tensor) for size in each.size()):
            return found
        seen = set(self.found)
        for name in self.inputs:  # a backward half gets what the forward one found
            seen |= symbols(self.numbers.get(name, 0))
            if name in self.buffers:
                buffer = self.buffers[name]
                seen |= {each for size in (*buffer.shape, *buffer.strides) for each in symbols(size)}
        for position, each in enumerate(results):
            if isinstance(each, torch.Tensor):
                for axis, size in enumerate(each.size()):
                    symbol = found_symbol(size)
                    if symbol is not None and symbol not in seen:
                        seen.add(symbol)
                        found.setdefault(position, []).append((symbol, axis))
        return found

    # Nodes ----------------------------------------

    def argument(self, argument: Any) -> Any:
        """An fx argument with nodes replaced by their values and lists by tuples."""
        kind = type(argument)
        if kind is Node:
            return self.values[argument]
        if isinstance(argument, (tuple, list)):
            return tuple([self.argument(item) for item in argument])
        if isinstance(argument, torch.SymInt):
            return size_of(argument)
        return argument

    def call(self, node: Node) -> Any:
        # By identity: hashing an overload is a Python call.
        what = _operators.get(id(node.target))
        if what is None:
            what = _operators[id(node.target)] = _Operator(node.target)
        self.node = node
        self.origin = Origin(node.name, what.name, node.meta.get("location") or Location())
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            self.out = meta_of(value)
        elif isinstance(value, (tuple, list)):
            self.out = tuple(meta_of(item) if isinstance(item, torch.Tensor) else None for item in value)
        else:
            self.out = None
        args = tuple([self.argument(argument) for argument in node.args])
        kwargs = {key: self.argument(argument) for key, argument in node.kwargs.items()} if node.kwargs else {}
        is_elsewhere = self.is_elsewhere(value, args, kwargs)
        if not is_elsewhere and self.computes_nothing(what):
            return self.nothing()
        rule = None if are_refused(what.name, args) or self.rounds_otherwise(what, args, kwargs) else self.rule_of(what)
        is_native = not is_elsewhere and (what.is_placed or self.is_native(args, what.is_copy))
        if rule is not None and (what.is_view or is_native):
            items, buffers = len(self.items), len(self.buffers)
            try:
                result = rule(self, *args, **kwargs)
            except CannotLoad:
                result = NotImplemented
            except (TypeError, ValueError):
                if not _mentions_symbols((args, tuple(kwargs.values()))) and not self.makers_mention_symbols(node):
                    raise
                result = NotImplemented  # the rule wants a number where the program has a symbol
            if is_elsewhere and len(self.items) > items:
                result = NotImplemented  # no pure view: kernels do not reach there
            if result is not NotImplemented:
                return result
            del self.items[items:]
            for name in list(self.buffers)[buffers:]:
                del self.buffers[name]
                self.known.pop(name, None)
        return self.extern(what, args, kwargs)

    def makers_mention_symbols(self, node: Node) -> bool:
        """Whether symbols are among the arguments of those operators that made the node's own: a rule may compute them
        with it."""
        makers = [each for each in node.all_input_nodes if each.op == "call_function"]
        return any(_mentions_symbols(self.argument(each)) for maker in makers for each in maker.args)

    @property
    def contracts(self) -> bool:
        """Whether eager's kernels round a sum of a product once. CUDA's compiler contracts: only where bits matter is a
        GPU asked, which takes launches."""
        kind = self.functional.device.partition(":")[0]
        return (kind == "cuda" and self.exact is None) or _torch.contracts_products(kind)

    def rule_of(self, what: _Operator) -> Rule | None:
        return self.formulas.get(what.name) or what.rule

    def rounds_otherwise(self, what: _Operator, args: tuple, kwargs: dict) -> bool:
        """Whether a kernel of the operator might not give eager's bits, which are asked for."""
        if self.exact is None or what.is_view:
            return False
        metas = (self.out,) if type(self.out) is TensorMeta else self.out or ()
        operands = frozenset(value.dtype for value in _tensors((args, tuple(kwargs.values()))))
        call = Call(operands, frozenset(meta.dtype for meta in metas if meta is not None), args, kwargs)
        return not is_exact(self.exact, what.name, call, self.contracts)

    def is_elsewhere(self, value: object, args: tuple, kwargs: dict) -> bool:
        """Whether an operand or a result is on another device than the program's kernels."""
        if isinstance(value, torch.Tensor):
            if self.device_of(value):
                return True
        elif isinstance(value, (tuple, list)):
            if any(self.device_of(each) for each in value if isinstance(each, torch.Tensor)):
                return True
        if not self.elsewhere:
            return False
        return any(each.ref.buffer in self.elsewhere for each in _tensors((args, tuple(kwargs.values()))))

    def computes_nothing(self, what: _Operator) -> bool:
        """Whether no result of a pure operator has elements, so that nothing needs to be called for them.

        Where contents decide a size, zero may be what is left of an assumption, or be claimed by the program: the call
        finds out whether it holds.
        """
        metas = (self.out,) if type(self.out) is TensorMeta else self.out
        return (
            bool(metas)
            and all(meta is not None and 0 in meta.shape and meta.dtype in NATIVE for meta in metas)
            and not (what.is_view or what.written or what.aliases)
            and not _torch.draws_random_numbers(what.name)
            and not _torch.finds_sizes(what.name)
            and not self.sizes_found()
        )

    def nothing(self) -> Any:
        """The results of an operator that `computes_nothing`."""
        if type(self.out) is TensorMeta:
            return self._zeros(self.out, "")
        return tuple(self._zeros(meta, str(position)) for position, meta in enumerate(self.out))

    def _zeros(self, meta: TensorMeta, part: str) -> TensorValue:
        return self.compute(meta, lambda index: ex.constant(0, meta.dtype), part)

    def is_native(self, args: tuple, copies: bool) -> bool:
        """Whether kernels know the element types of all arguments and results; `copies`: and do nothing but convert."""
        out = self.out
        if copies and self.kernels.converts_float8:
            return out.dtype in STORED and all(value.dtype in STORED for value in _tensors(args))
        if type(out) is TensorMeta:
            if out.dtype not in NATIVE:
                return False
        elif out is not None and any(meta is not None and meta.dtype not in NATIVE for meta in out):
            return False
        for argument in args:
            if type(argument) is TensorValue:
                if argument.ref.dtype not in NATIVE:
                    return False
            elif type(argument) is tuple and any(value.dtype not in NATIVE for value in _tensors(argument)):
                return False
        return True

    def placeholder(self, node: Node) -> Any:
        value = node.meta.get("val")
        name = node.name
        self.inputs.append(name)
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (int, torch.SymInt)):
                self.numbers[name] = size_of(value)
                return self.numbers[name]
            if node.users:
                raise CompileError("lower", f"an input of type {type(value).__name__}", name)
            return None
        dtype, shape, strides = meta_of(value)
        self.add_buffer(Buffer(name, dtype, shape, strides, "input", self.device_of(value)))
        self.storage_offsets[name] = size_of(value.storage_offset())
        return TensorValue(TensorRef(name, dtype, shape, strides))

    def literal(self, node: Node, tensor: torch.Tensor) -> TensorValue:
        """A constant tensor of the graph, kept as bytes."""
        if tensor.numel() * tensor.element_size() > 1 << 20:
            raise CompileError("lower", f"constant {node.target} of {tensor.numel()} elements; make it an input")
        tensor = tensor.detach().cpu().contiguous()
        shape = tuple(tensor.shape)
        dtype = dtype_name(tensor.dtype)
        data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        strides = contiguous_strides(shape)
        self.constants[node.name] = (dtype, shape, data)
        self.add_buffer(Buffer(node.name, dtype, shape, strides, "constant", self.device_of(node.meta["val"])))
        return TensorValue(TensorRef(node.name, dtype, shape, strides))

    def run(self) -> Lowered:
        outputs: tuple = ()
        for node in self.functional.graph.nodes:
            give_way()
            kind = node.op
            if kind == "call_function":
                if node.target is operator.getitem:
                    self.values[node] = self.values[node.args[0]][node.args[1]]
                elif _torch.is_operator(node.target):
                    before = len(self.items)
                    self.values[node] = self.call(node)
                    if "rematerialised" in node.meta:
                        self.rematerialised.update(name for item in self.items[before:] for name in _made_by(item))
                else:
                    raise CompileError("lower", f"{node.target} is not an operator", node.name)
            elif kind == "placeholder":
                self.values[node] = self.placeholder(node)
            elif kind == "get_attr":
                tensor = node.meta.get("constant")
                if tensor is None:
                    tensor = operator.attrgetter(str(node.target))(node.graph.owning_module)
                self.values[node] = self.literal(node, tensor)
            elif kind == "output":
                outputs = tuple(node.args[0]) if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
                self.node = node
            else:
                raise CompileError("lower", f"node of kind {kind}", node.name)
            if "of_cpu" in node.meta:
                self.of_cpu.add(self.values[node].ref.buffer)
        return self.finish(outputs)

    # Results ----------------------------------------

    def finish(self, outputs: tuple) -> Lowered:
        returned = {result.index for result in self.functional.results if isinstance(result, FromGraph)}
        written = {source for _, source in self.functional.writes}
        before = {source for target, source in self.functional.writes if target in self.written_before()}
        values: list[Any] = []
        owners: set[str] = set()
        for position, node in enumerate(outputs):
            value = self.values[node] if isinstance(node, Node) else node
            self.origin = Origin(node.name if isinstance(node, Node) else "output", "output")
            if position not in returned and position in before:
                values.append(value)
                continue
            if isinstance(value, TensorValue) and (position in returned or position in written):
                # A result owns its memory, and a write must not read what another write changes.
                kind = self.buffers[value.ref.buffer].kind
                if kind == "input" or (position in returned and (kind != "intermediate" or value.ref.buffer in owners)):
                    value = self.copy_of(value, meta_of(node.meta["val"]), f"{position}")
                if position in returned:
                    owners.add(value.ref.buffer)
            values.append(value)
        beside = {index: group for group in self.functional.overlapping for index in group}
        rows = dict(self.functional.rows)
        for target, source in self.functional.writes:
            if target in self.written_before():
                continue
            self.write_input(target, values[source], beside.get(target, ()), rows.get(target))
        results = tuple(self.result(result, values) for result in self.functional.results)
        results += tuple(ScalarResult(size_of(number)) for number in self.functional.numbers)
        self.drop_unread()
        return Lowered(
            self.buffers, tuple(self.inputs), tuple(self.items), results, (), self.constants, self.all_sizes(),
            self.device, self.numbers, self.found, rematerialised=frozenset(self.rematerialised),
            copies=tuple([tuple([tuple([self.inputs[index] for index in row]) for row in table])
                          for table in self.functional.copies]),
        )  # fmt: skip

    def all_sizes(self) -> tuple[str, ...]:
        """Every symbol: those of the inputs, and what the program reads from tensors."""
        found: dict[str, None] = {}
        for name in self.inputs:
            buffer = self.buffers.get(name)
            dims = (*buffer.shape, *buffer.strides) if buffer is not None else (self.numbers.get(name, 0),)
            for size in dims:
                found.update(dict.fromkeys(sorted(symbols(size))))
        return tuple(dict.fromkeys((*found, *self.sizes)))

    def drop_unread(self) -> None:
        """Removes the nests of known values that nobody reads from memory."""
        checked = {item.buffer for item in self.items if isinstance(item, Check)}  # the host looks at those
        unread = {name for name, known in self.known.items() if not known.buffer_needed and name not in checked}
        if not unread:
            return
        self.items = [item for item in self.items if type(item) is not LoopNest or item.store.buffer not in unread]
        for name in unread:
            self.buffers.pop(name, None)

    def write_input(
        self, target: int, source: TensorValue, beside: tuple[int, ...] = (), row: object | None = None
    ) -> None:
        """Stores `source` into the memory of input `target`, after everything else; with `row` into memory in a row,
        which begins so many elements after its first one.

        `beside`: inputs that share this memory. A kernel that loads from one of them must be done by then, and nothing
        tells from the names of the buffers: so ATen copies, as an operator that writes to all of them.
        """
        buffer = self.buffers[self.inputs[target]]
        self.origin = Origin(buffer.name, "write")
        ref = TensorRef(buffer.name, buffer.dtype, buffer.shape, buffer.strides)
        if row is not None:
            ref = TensorRef(buffer.name, buffer.dtype, source.shape, (1,), size_of(row))
            beside = (*beside, target)
        here = not buffer.device and source.ref.buffer not in self.elsewhere
        converts = self.exact is not None and source.dtype != buffer.dtype
        if here and not beside and not converts and buffer.dtype in NATIVE and source.dtype in NATIVE:
            try:
                axes, index = grid(buffer.shape)
                value = ex.cast(source.load(broadcast_index(index, buffer.shape, source.shape)), buffer.dtype)
                self.items.append(LoopNest(axes, Store(buffer.name, index, value), None, False, self.origin))
                return
            except CannotLoad:
                pass
        written = tuple(dict.fromkeys([buffer.name, *(self.inputs[index] for index in beside)]))
        self.items.append(
            Extern("aten::copy_.default", (ref, source.used().ref), (), (None,), None, written, self.origin)
        )

    def result(self, result: Any, values: list[Any]) -> Result:
        if isinstance(result, AliasOfInput):
            if result.view is None:
                return FromInput(result.input)
            shape, strides, offset = result.view
            buffer = self.buffers[self.inputs[result.input]]
            dtype = result.dtype or buffer.dtype
            return ViewOfInput(
                result.input, dtype, sizes_of(shape), sizes_of(strides), size_of(offset), result.conjugate
            )
        if isinstance(result, FromGraph):
            value = values[result.index]
            ref = value.used().ref
            if result.view is not None:
                shape, strides, offset = result.view
                dtype = result.dtype or ref.dtype
                start = ref.offset
                if dtype != ref.dtype:  # offsets count elements of their own type
                    start = start * ITEM_SIZE_BYTES[ref.dtype] // ITEM_SIZE_BYTES[dtype]
                ref = TensorRef(ref.buffer, dtype, sizes_of(shape), sizes_of(strides), start + size_of(offset))
            return FromBuffer(ref, result.conjugate)
        raise CompileError("lower", f"result of type {type(result).__name__}")


def _mentions_symbols(value: object) -> bool:
    """Whether a symbol is among arguments, or in the shape of a tensor there."""
    if type(value) is TensorValue:
        return any(isinstance(each, SizeExpr) for each in (*value.ref.shape, *value.ref.strides, value.ref.offset))
    return isinstance(value, SizeExpr) or (isinstance(value, tuple) and any(map(_mentions_symbols, value)))


def _made_by(item: Any) -> list[str]:
    """Buffers that an item makes."""
    return [item.store.buffer] if type(item) is LoopNest else [name for name in item.outputs if name is not None]


def _tensors(value: object) -> list[TensorValue]:
    if type(value) is TensorValue:
        return [value]
    if isinstance(value, tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def lower(functional: FunctionalGraph, settings: Settings) -> Lowered:
    """`functional` as nests and calls of ATen, in a valid order.

    Raises `CompileError` naming operator and source line for what neither a rule nor ATen can express (a view operator
    without a copying form).
    """
    return Lowering(functional, settings.options.exact).run()
