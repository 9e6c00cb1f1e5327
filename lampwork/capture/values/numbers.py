"""Numbers from outside that may be others on the next call, and what the program computes from them.

    group["lr"]                     a `Scalar` with a value: f0, which is the number at its source
    1 - group["lr"] * 0.01          another: (1 - (f0 * 0.01))
    if group["momentum"] != 0:      decided by the number seen, guarded: f1 != 0
    step.item()                     f2.item(), where `step` is a tensor on the CPU that came from outside

The host computes them in Python on each call, so they are exactly what eager computes, and hands those that meet
tensors to the graph in one tensor (`ir.source.Numbers`). Hyper-parameters of an optimizer are such numbers from the
first call on, and its step counters; other floats are, once they have varied.

Whatever cannot be written as an expression (text, keys of dicts, indices) takes the number as it is now and guards
that.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.outside import facts
from lampwork.capture.record.fake import Fake
from lampwork.capture.record.sized_settings import number_of
from lampwork.capture.values.scalar import NUMERIC, Scalar, element, is_backed, taken
from lampwork.fakes.fake import TensorSpec, make_fake
from lampwork.fakes.symbolic import size_of
from lampwork.ir.number import Leaf, NumberExpr, applied, compared, constant, equals, leaf
from lampwork.ir.number_operations import RELATION_OF, operation_of, single
from lampwork.ir.record import record
from lampwork.ir.reference import ObjectRef
from lampwork.ir.source import InstanceDict, Item, Numbers, Source
from lampwork.ir.template import Call, ConstantValue, Effect, NumberValue, SourceValue, Template


@record
class _Unread:
    """The number in a tensor from outside that the program stepped, (operator, operand) each, and asked nobody for.

    Nothing is taken for granted of it, such as that it is the same as another counter's: a moment of an optimizer in
    which there is one element is stepped like a counter before it gets what no host can know.
    """

    origin: Any
    dtype: torch.dtype
    steps: tuple[tuple[Any, Any], ...] = ()


#: Expressions of more parts are taken as the number they are now.
_MOST_NODES = 400
#: How many numbers one graph may take.
_CAPACITY = 1 << 14
_CPU = torch.device("cpu")
_STORE = ObjectRef("function", "lampwork.runtime.leave.post_graph", "store")


def _token(value: Any) -> Any:
    """Equal for numbers that are computed with alike; None where that is not told: zeros have signs."""
    kind = type(value)
    if kind is Scalar:
        return id(value.expression)
    return None if kind is torch.SymInt or not value else (kind, value)


def in_parameter_group(source: Source) -> bool:
    """Whether the value at `source` is a hyper-parameter: in a dict of some object's `param_groups`."""
    while isinstance(source, Item):
        groups = source.base
        if isinstance(groups, Item) and groups.key == "param_groups" and isinstance(groups.base, InstanceDict):
            return True
        source = source.base
    return False


class _Vector:
    """The numbers that a graph is given on one device: the input's fake, and a tensor of each by its expression."""

    __slots__ = ("fake", "scalars")

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        #: None where the tensor is part of another graph: the number keeps its place.
        self.scalars: dict[NumberExpr, Fake | None] = {}


class BackedNumbers:
    """The numbers of one capture: their names, guards on them, and the tensor that takes them to the graph."""

    def __init__(self, recorder: Any, guards: Any, tensors: Any) -> None:
        self.recorder, self.guards, self.tensors = recorder, guards, tensors
        self._values: dict[Leaf, Scalar] = {}
        #: What was computed by now, and the guards are there: an optimizer does the same for each parameter.
        self._computed: dict[tuple, tuple[NumberExpr, float]] = {}
        self._vectors: dict[torch.device, _Vector] = {}
        self._operands: dict[tuple[NumberExpr, torch.dtype, torch.device], Fake] = {}
        #: Expressions for what tensors of single precision or less hold.
        self._singles: set[NumberExpr] = set()
        #: Counters that the program takes for one number, by name, type and value.
        self._counters: dict[tuple, list[Leaf]] = {}
        #: Computations that may fail when the graph has run, and the step of each: they are assumed to succeed.
        self.assumed: dict[NumberExpr, int] = {}
        #: What the program knows to be in tensors of one element on the CPU, by storage: a number, or an expression.
        self.contents: dict[int, Any] = {}

    @contextmanager
    def forgotten(self) -> Iterator[None]:
        """What tensors are made of numbers inside is forgotten: they are part of another graph."""
        operands, scalars = dict(self._operands), {each: dict(held.scalars) for each, held in self._vectors.items()}
        try:
            yield
        finally:
            self._operands = operands
            for device, held in self._vectors.items():
                before = scalars.get(device, {})
                held.scalars = {expression: before.get(expression) for expression in held.scalars}

    # Numbers --------------------------------------------------------------------------------------

    def at(self, source: Source, kind: str, value: float) -> Scalar:
        """The number at a source ("value"), or in the tensor there ("item")."""
        number = leaf(source, kind, 0, type(value).__name__)
        found = self._values.get(number) if kind == "value" else None  # one object, as in the program
        if found is None:
            found = Scalar(number, type(value), value, self)
            if kind == "value":
                self._values[number] = found
        return found

    def relation(self, holds: NumberExpr) -> None:
        """Guards that a comparison is true."""
        self.guards.number_relation(holds)

    def compute(self, op: Any, left: Any, right: Any) -> Any:
        """`op(left, right)` of numbers; guards what would make it raise, or be of another class."""
        key = op, _token(left), _token(right)
        made = self._computed.get(key)
        if made is not None:
            return Scalar(made[0], float, made[1], self)
        (one, a), (two, b) = self._parts(left), self._parts(right)
        try:
            value = op(a, b)
        except ArithmeticError:
            return op(taken(left), taken(right))
        row = operation_of(op)
        assert row is not None, op
        number = applied(row.name, one, two)
        if type(value) is not float or number.nodes > _MOST_NODES:
            return op(taken(left), taken(right))
        if row.raises == "zero":
            self.relation(compared("!=", two, constant(0)))
        elif row.raises != "never":
            self.relation(applied("is_float", number))
        if None not in key:
            self._computed[key] = number, value
        return Scalar(number, float, value, self)

    def compare(self, op: Any, left: Any, right: Any) -> bool:
        """`op(left, right)` of numbers, guarded."""
        (one, a), (two, b) = self._parts(left), self._parts(right)
        value = op(a, b)
        holds = compared(RELATION_OF[op], one, two)
        self.relation(holds if value else applied("not", holds))
        return value

    def function(self, function: Any, args: tuple) -> Any:
        """`function(*args)` of numbers, for functions that expressions have."""
        row = operation_of(function)
        assert row is not None, function
        parts = [self._parts(each) for each in args]
        try:
            value = function(*[each for _, each in parts])
        except (ArithmeticError, ValueError):
            return function(*map(taken, args))
        number = applied(row.name, *[each for each, _ in parts])
        if type(value) is not float or number.nodes > _MOST_NODES:
            is_size = number.kind == "int" and type(value) is int and number.nodes <= _MOST_NODES
            symbol = self.tensors.computed_integer(number, value) if is_size else None
            if symbol is None:
                self.relation(equals(number, value))
            return value if symbol is None else symbol
        if row.raises != "never":
            self.relation(applied("is_float", number))  # it does not raise
        return Scalar(number, type(value), value, self)

    def _parts(self, value: Any) -> tuple[NumberExpr, Any]:
        if is_backed(value):
            return value.expression, value.value
        if type(value) is torch.SymInt:
            size = size_of(value)
            if isinstance(size, int):
                return constant(size), size
            return value.node.sizes.expression(value.node.value), value.node.hint
        return constant(value), value

    # In the graph ---------------------------------------------------------------------------------

    def unbacked(self, number: Scalar) -> Scalar:
        """The number as one that the graph computes with."""
        return element(self.tensor(number), float)

    def tensor(self, number: Scalar, device: torch.device = _CPU) -> Fake:
        """A float64 tensor of no dimensions with the number, on `device`."""
        vector = self._vectors.get(device)
        if vector is None:
            vector = self._vectors[device] = self._new_vector(device)
        found = vector.scalars.get(number.expression)
        if found is not None:
            return found
        has_place = number.expression in vector.scalars
        index = list(vector.scalars).index(number.expression) if has_place else len(vector.scalars)
        if index == _CAPACITY:
            raise AssertionError("more numbers than a graph takes")
        made = self.recorder.call(torch.ops.aten.select.int, (vector.fake, 0, index), {})
        vector.scalars[number.expression] = made
        return made

    def _new_vector(self, device: torch.device) -> _Vector:
        with self.recorder._paused():
            fake = make_fake(TensorSpec((_CAPACITY,), (1,), torch.float64, device))
        self.recorder.placeholder(fake)
        self.tensors.inputs.append(None)
        self.tensors.fakes.append(fake)
        return _Vector(fake)

    def operand(self, number: Scalar, dtype: torch.dtype, device: torch.device) -> Fake:
        """The number in a tensor of no dimensions and of `dtype` on `device`, which nothing writes to."""
        if dtype is torch.float64:
            return self.tensor(number, device)
        key = number.expression, dtype, device
        found = self._operands.get(key)
        if found is None:
            tensor = self.tensor(number, device)
            found = self._operands[key] = self.recorder.call(
                torch.ops.aten._to_copy.default, (tensor,), {"dtype": dtype}
            )
        return found

    def finish(self) -> None:
        """Makes the inputs of the graph that have all numbers."""
        for device, vector in self._vectors.items():
            position = next(index for index, each in enumerate(self.tensors.fakes) if each is vector.fake)
            self.tensors.inputs[position] = Numbers(tuple(vector.scalars), "" if device == _CPU else str(device))
            with self.recorder._paused():
                exact = make_fake(TensorSpec((len(vector.scalars),), (1,), torch.float64, device))
            exact.node = vector.fake.node
            exact.node.meta["val"] = exact
            self.tensors.fakes[position] = exact

    # Counters beside a program for a GPU ---------------------------------------------------------------

    def counted_by_host(self, outputs: Sequence[Any]) -> list[Effect]:
        """Takes what the program writes to counters on the CPU out of a graph for a GPU: effects that store what the
        host computes anyway. Eager counts on the host, too; and a CUDA graph holds nothing that a CPU does.

        A counter is a tensor of one element from outside of which the graph needs nothing, and which it does not
        return. Call it when all else is recorded, and before `finish`."""
        if not self.recorder.uses_cuda:
            return []
        results = {id(each) for each in outputs}
        stores: dict[Any, tuple[Template, list[Template]]] = {}
        forgotten: list[Fake] = []
        for position in range(len(self.tensors.fakes) - 1, -1, -1):
            fake = self.tensors.fakes[position]
            source = self.tensors.inputs[position]
            if type(fake) is not Fake or source is None or fake.is_cuda or id(fake) in results:
                continue
            key = _torch.storage_key(fake)
            node = fake.node
            if key not in self.recorder.written or not _only_stored_to(node):
                continue
            known = self._known(key)
            if known is None:
                continue
            for user in list(node.users):
                user.graph.erase_node(user)
            forgotten.append(fake)
            del self.tensors.inputs[position], self.tensors.fakes[position]
            named = is_backed(known)
            value = NumberValue(known.expression) if named else ConstantValue(known)
            _, targets = stores.setdefault(known.expression if named else known, (value, []))
            targets.append(SourceValue(source))
        self.recorder.forget_inputs(forgotten)
        return [Call(_STORE, (value, *reversed(targets))) for value, targets in stores.values()]

    # Tensors of one element -----------------------------------------------------------------------

    def item(self, tensor: Any, origin: Any) -> Any:
        """The number in a tensor of one element on the CPU, where the host can tell; None: only the graph can."""
        if tensor.device.type != "cpu" or not tensor.is_floating_point() or not _has_one(tensor):
            return None
        key = _torch.storage_key(tensor)
        if key in self.contents:
            return self._known(key)
        if key in self.recorder.written:
            return None
        if origin is None:
            return self._made(tensor)
        if not facts.is_whole(origin):
            return None
        self.contents[key] = _Unread(origin, tensor.dtype)
        return self._known(key)

    def _known(self, key: Any) -> Any:
        """What the host knows to be in the storage `key`; None where it cannot tell. What was not read yet is, now."""
        known = self.contents.get(key)
        if type(known) is _Unread:
            value = facts.element(self.recorder, known.origin)
            found = self._like_others(known.origin.source, value, known.dtype)
            if known.dtype is not torch.float64:
                self._singles.add(found.expression)
            for step, operand in known.steps:
                found = self._stored(self._applied(step, found, operand), known.dtype)
            known = self.contents[key] = found
        return known

    def decided(self, tensor: Any, origin_of: Callable[[Any], Any]) -> bool | None:
        """The truth of a tensor of one element, guarded: of a comparison of a counter with a number, and of what the
        program computes from its settings (`held`); None for any other tensor. `origin_of`: as `Loader.origin`."""
        answer = self._compared_counter(tensor, origin_of)
        if answer is None and (not tensor.dim() or tensor.numel() == 1):
            value = self.held(tensor, origin_of)
            with self.recorder._paused():
                answer = None if value is None else bool(value)  # of symbols, guarded
        return answer

    def held(self, tensor: Any, origin_of: Callable[[Any], Any]) -> Any:
        """What a tensor holds that is computed from settings: integers that the model, or whatever else is no argument
        of the call, keeps in tensors of one element on the CPU (`self.stride` of a convolution). Guards that they are
        what they are, unless they were seen to change. A symbol where sizes that vary take part, too; None for tensors
        that anything else takes part in."""
        constants = self.recorder.constants
        inputs = constants.inputs_of(tensor.node)
        if inputs is None:
            return None
        found = []
        for node in inputs:
            fake = node.meta["val"]
            origin = origin_of(fake) if type(fake) is Fake else None
            if origin is None or not self._is_setting(fake, origin):
                return None
            found.append((node, self.at(origin.source, "item", facts.element(self.recorder, origin))))
        for node, number in found:
            fake = node.meta["val"]
            with self.recorder._paused():
                constants.hold(node, torch.full(tuple(fake.size()), number.value, dtype=fake.dtype))
        value: Any = constants.exact_value(tensor.node)
        if value is None and tensor.device.type == "cpu" and not tensor.dim() and not constants.is_written(tensor.node):
            numbers = {node: number.value for node, number in found}
            with self.recorder._paused():
                value = number_of(tensor.node, lambda node: numbers.get(node, constants.held_number(node)))
        for node, number in found:
            if value is None:
                constants.release(node)
            else:
                number.take()
        return value

    def _is_setting(self, fake: Fake, origin: Any) -> bool:
        if fake.device.type != "cpu" or fake.is_floating_point() or fake.is_complex():
            return False
        return facts.is_whole(origin) and self.tensors.policy.is_setting(origin.source)

    def _compared_counter(self, tensor: Any, origin_of: Callable[[Any], Any]) -> bool | None:
        """The answer of a comparison of a counter (a tensor of one integer on the CPU, from outside, as it came) with a
        number."""
        node: Any = tensor.node
        if type(node) is not torch.fx.Node or node.target not in _DECISIONS or tensor.dim():
            return None
        counter, number = node.args[0].meta["val"], node.args[1]
        if type(counter) is not Fake or type(number) is not int or counter.device.type != "cpu":
            return None
        if counter.dtype is not torch.int64 or _torch.storage_key(counter) in self.recorder.written:
            return None
        origin = origin_of(counter)
        if origin is None or not facts.is_whole(origin):
            return None
        value = facts.element(self.recorder, origin)
        return self.compare(_DECISIONS[node.target], self.at(origin.source, "item", value), number)

    def _like_others(self, source: Source, value: float, dtype: torch.dtype) -> Scalar:
        """The number in a tensor from outside. Counters of one name that stand at the same number (`state[p]["step"]`
        of every parameter) are one number to the program, guarded to be equal: what is computed of it is computed once.
        """
        if type(source) is not Item or type(source.key) is not str or math.isnan(value):
            return self.at(source, "item", value)
        counters = self._counters.setdefault((source.key, dtype, value), [])
        found = self.at(counters[0].source if counters else source, "item", value)
        if not counters or source is not counters[0].source:
            counters.append(leaf(source, "item", 0, type(value).__name__))
        return found

    def guard_equal(self) -> None:
        """Guards that counters which the program took for one number are one. Call it when capture ends."""
        for counters in self._counters.values():
            if len(counters) > 1:
                self.relation(compared("==", *counters))

    def _made(self, tensor: Any) -> Any:
        """The number in a tensor that the program made and wrote to never since, told from how it was made."""
        node = tensor.node
        if type(node) is not torch.fx.Node or node.op != "call_function":
            return None
        if node.target in _FACTORIES:
            number = _FACTORIES[node.target]
            value = float(node.args[1]) if number is None and type(node.args[1]) in NUMERIC else number
            return None if value is None else self._stored(value, tensor.dtype)
        if node.target in _COPIES:
            source = node.args[0].meta["val"]
            if _has_one(source) and source.device == tensor.device:
                known = self._content(source, None)
                return None if known is None else self._stored(known, tensor.dtype)
        return None

    def note_write(self, op: str, tensor: Any, args: tuple, origin: Any) -> None:
        """The program writes to `tensor` with the in-place operator `op`."""
        key = _torch.storage_key(tensor)
        known = None
        if tensor.device.type == "cpu" and len(args) == 1 and (op in _STEPS or op in _STORES) and _has_one(tensor):
            operand = args[0]
            if type(operand) is Fake:
                operand = self._content(operand, None) if _has_one(operand) else None
            if type(operand) in NUMERIC or is_backed(operand):
                operand = known = self._stored(operand, tensor.dtype)
            if operand is not None and op in _STEPS:
                known = self._stepped(_STEPS[op], tensor, origin, operand)
        if known is None:
            self.contents.pop(key, None)
        else:
            self.contents[key] = known

    def _stepped(self, step: Any, tensor: Any, origin: Any, operand: Any) -> Any:
        """What is in a tensor after an in-place operator, `operand` being of the tensor's type."""
        key = _torch.storage_key(tensor)
        known = self.contents.get(key)
        unwritten = known is None and key not in self.recorder.written
        if unwritten and origin is not None and tensor.is_floating_point() and facts.is_whole(origin):
            known = _Unread(origin, tensor.dtype)
        if type(known) is _Unread:
            return replace(known, steps=(*known.steps, (step, operand)))
        known = self._content(tensor, origin)
        return None if known is None else self._stored(self._applied(step, known, operand), tensor.dtype)

    def _content(self, tensor: Any, origin: Any) -> Any:
        key = _torch.storage_key(tensor)
        if key not in self.contents and tensor.constant is not None and key not in self.recorder.written:
            with self.recorder._paused():
                return tensor.constant.item()
        return self.item(tensor, origin)

    def made_tensor(self, number: Scalar, dtype: torch.dtype) -> Fake:
        """`torch.tensor(number, dtype=dtype)`."""
        tensor = self.tensor(number)
        made = self.recorder.call(torch.ops.aten._to_copy.default, (tensor,), {"dtype": dtype})
        known = self._stored(number, dtype)
        if known is not None:
            self.contents[_torch.storage_key(made)] = known
        return made

    def _applied(self, step: Any, known: Any, operand: Any) -> Any:
        if not is_backed(known) and not is_backed(operand):
            return step(known, operand)
        return self.compute(step, known, operand)

    def _stored(self, value: Any, dtype: torch.dtype) -> Any:
        """What a tensor of `dtype` makes of a number; sums and products of single precision are rounded once."""
        if dtype is torch.float64:
            return value
        if dtype is not torch.float32:
            return None
        if not is_backed(value):
            return single(value)
        if value.expression in self._singles:
            return value
        rounded = applied("single", value.expression)
        self._singles.add(rounded)
        return Scalar(rounded, float, single(value.value), self)


#: In-place operators whose results on one element the host computes as well: two numbers of single precision, added or
#: multiplied in double precision and then rounded, are rounded once.
_FACTORIES = {
    torch.ops.aten.zeros.default: 0.0, torch.ops.aten.ones.default: 1.0, torch.ops.aten.full.default: None,
    torch.ops.aten.zeros_like.default: 0.0, torch.ops.aten.ones_like.default: 1.0,
}  # fmt: skip
_DECISIONS = {
    torch.ops.aten.eq.Scalar: operator.eq, torch.ops.aten.ne.Scalar: operator.ne,
    torch.ops.aten.lt.Scalar: operator.lt, torch.ops.aten.le.Scalar: operator.le,
    torch.ops.aten.gt.Scalar: operator.gt, torch.ops.aten.ge.Scalar: operator.ge,
}  # fmt: skip
_COPIES = frozenset({
    torch.ops.aten.clone.default, torch.ops.aten._to_copy.default, torch.ops.aten.detach.default,
    torch.ops.aten.alias.default,
})  # fmt: skip
_STORES = frozenset({"copy_", "fill_"})
_STEPS = {"add_": operator.add, "sub_": operator.sub, "mul_": operator.mul}


def _only_stored_to(node: Any) -> bool:
    """Whether the graph does nothing with an input but write to it, with operators whose results the host knows."""
    return type(node) is torch.fx.Node and all(
        user.op == "call_function"
        and _torch.is_operator(user.target)
        and user.target._schema.name.removeprefix("aten::") in _STEPS.keys() | _STORES
        and not user.users
        and user.args[0] is node
        and node not in user.args[1:]
        for user in node.users
    )


def _has_one(tensor: Any) -> bool:
    """Whether the tensor has one element; a symbolic size is not asked."""
    return all(type(size) is int and size == 1 for size in tensor.size())
