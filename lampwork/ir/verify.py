"""The verifier of lowered programs. `verify_lowered` raises `VerifyError` naming the item and the broken invariant.

Programs
  P1  Every buffer that is named exists; `inputs` are buffers of kind input (or inputs that are not tensors).
  P2  A buffer is written before it is read; inputs and constants are written from the start.
  P3  An intermediate has one writer, but for partial nests, which come after it. Inputs may be written by nests; only
      the last items write them, so that nothing reads an input after a part of it changed (P3i).
  P4  A `Check` reads a bool buffer.
  P5  Results and externs view buffers inside their extent where the buffer's strides are known to be dense.
  P6  Only externs touch buffers on another device than the program's, and they make them (no `out_variant`).
Nests
  N1  Axis names are distinct; an extent is not negative. Reductions have at least one axis.
  N2  A store that is not partial covers its buffer exactly once: each index is an axis of the dimension's extent, used
      once, or 0 in a dimension of size 1; every axis is used.
  N3  The value's type is the buffer's; that of a reduction is the accumulator's, which is the buffer's too, but for
      argmax and argmin (int64 buffer).
  N4  Mode `add` and indirect stores are partial.
Expressions
  E1  Operators are in SCALARS with the right number of operands and the types SCALARS promises: one type for all,
      float32/float64 for float functions, no arithmetic on bool or half types.
  E2  A load has one index per dimension and the buffer's type.
  E3  Symbols are axes of the nest, sizes of the program, or bound by the load's `indirect` (integers); the bounds of an
      axis symbol are those of its extent.
  E4  An index lies inside its dimension: by its bounds, or by enumeration, or the load is masked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from lampwork.ir.attention import Attention
from lampwork.ir.dtype import INTEGRAL, ITEM_SIZE_BYTES, NATIVE, STORED
from lampwork.ir.loops import POSITIONS, REDUCTIONS, Buffer, Compute, Constant, Expr, Index, Load, LoopNest
from lampwork.ir.print import expression_text, item_text
from lampwork.ir.program import Check, Extern, FromBuffer, FromInput, Lowered, TensorRef, ViewOfInput, tensor_refs
from lampwork.ir.scalar_operators import SCALARS
from lampwork.ir.size import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol, bounds, evaluate, span, symbols
from lampwork.ir.weighted_sums import WeightedSums, nests_of


class VerifyError(AssertionError):
    """An IR value breaks an invariant of its stage."""


#: What operators of real numbers are computed in.
_COMPUTE_FLOAT = frozenset({"float32", "float64"})
_ENUMERABLE = 1 << 14


def verify_lowered(lowered: Lowered) -> None:
    """Raises `VerifyError` for the first invariant (see the module) that `lowered` breaks."""
    buffers = lowered.buffers
    written = {name for name in lowered.inputs if name in buffers} | set(lowered.constants)
    written |= {name for name, buffer in buffers.items() if buffer.kind == "unwritten"}
    for name in lowered.inputs:
        _require(name not in buffers or buffers[name].kind == "input", None, f"P1: input {name} has another kind")
    changed_inputs: set[str] = set()
    for item in lowered.items:
        reads = item_reads(item)
        for name in reads:
            _require(name in buffers, item, f"P1: no buffer {name}")
            _require(name in written, item, f"P2: {name} is read before it is written")
            partial_target = isinstance(item, LoopNest) and name == item.store.buffer
            _require(
                name not in changed_inputs or partial_target, item, f"P3i: {name} is read after it was overwritten"
            )
        if isinstance(item, LoopNest):
            _verify_nest(item, buffers, lowered.sizes)
            target = item.store.buffer
            for name in (target, *reads):
                _require(not buffers[name].device, item, f"P6: {name} is on {buffers[name].device}")
            if buffers[target].kind == "input":
                changed_inputs.add(target)
            else:
                _require(buffers[target].kind == "intermediate", item, f"P3: {target} is a constant")
                if item.partial:
                    _require(target in written, item, f"P2: partial write of {target} before its contents")
                else:
                    _require(target not in written, item, f"P3: second writer of {target}")
            written.add(target)
        elif isinstance(item, (Attention, WeightedSums)):
            nests, between = nests_of(item, buffers)
            for nest in nests:
                _verify_nest(nest, {**buffers, **between}, lowered.sizes)
            for name in (*item.written, *reads):
                _require(not buffers[name].device, item, f"P6: {name} is on {buffers[name].device}")
            for name in item.written:
                _require(name not in written, item, f"P3: second writer of {name}")
                written.add(name)
        elif isinstance(item, Extern):
            for output in item.outputs:
                if output is not None:
                    _require(output in buffers, item, f"P1: no buffer {output}")
                    own = output not in written or output in item.mutates
                    _require(own, item, f"P3: second writer of {output}")
                    elsewhere = buffers[output].device
                    _require(not (elsewhere and item.out_variant), item, f"P6: {output} is planned on {elsewhere}")
                    written.add(output)
            for ref in tensor_refs(item):
                _verify_ref(ref, buffers, item)
        elif isinstance(item, Check):
            _require(buffers[item.buffer].dtype == "bool", item, "P4: a check reads bool")
    for result in lowered.results:
        if isinstance(result, FromBuffer):
            _require(result.view.buffer in written, None, f"P2: result {result.view.buffer} is never written")
            _verify_ref(result.view, buffers, None)
        elif isinstance(result, (FromInput, ViewOfInput)):
            _require(result.input < len(lowered.inputs), None, "P1: result names no input")
    for write in lowered.writes:
        _require(write.source.buffer in written, None, f"P2: {write.source.buffer} is never written")


def _require(condition: bool, item: object, message: str) -> None:
    if not condition:
        where = ""
        if item is not None:
            origin = getattr(item, "origin", None)
            where = f"\n  in {item_text(item)}" + (f"\n  of {origin.node} = {origin.op}" if origin else "")
        raise VerifyError(message + where)


def loads_of(value: Expr) -> Iterable[Load]:
    """Every load in `value`, those in masks and bindings included."""
    if isinstance(value, Load):
        yield value
        for _, bound in value.indirect:
            yield from loads_of(bound)
        if value.mask is not None:
            yield from loads_of(value.mask)
    elif isinstance(value, Compute):
        for argument in value.args:
            yield from loads_of(argument)


def item_reads(item: Any) -> set[str]:
    """Names of the buffers an item reads; a partial nest reads its target."""
    if isinstance(item, LoopNest):
        reads = {load.buffer for load in loads_of(item.store.value)}
        for _, bound in item.store.indirect:
            reads |= {load.buffer for load in loads_of(bound)}
        return reads | ({item.store.buffer} if item.partial else set())
    if isinstance(item, (Attention, WeightedSums)):
        return set(item.read)
    if isinstance(item, Extern):
        return {ref.buffer for ref in tensor_refs(item)} | set(item.mutates)
    return {item.buffer}


def _verify_ref(ref: TensorRef, buffers: Mapping[str, Buffer], item: object) -> None:
    buffer = buffers[ref.buffer]
    _require(len(ref.shape) == len(ref.strides), item, f"P5: shape and strides of the view of {ref.buffer}")
    values = (*ref.shape, *ref.strides, ref.offset, *buffer.shape, *buffer.strides)
    if buffer.kind == "input" or not all(isinstance(value, int) for value in values) or 0 in ref.shape:
        return  # an input's storage may extend beyond its own shape
    assert isinstance(ref.offset, int)
    end_bytes = (ref.offset + span(ref.shape, ref.strides)) * ITEM_SIZE_BYTES[ref.dtype]
    inside = end_bytes <= span(buffer.shape, buffer.strides) * ITEM_SIZE_BYTES[buffer.dtype]
    _require(ref.offset >= 0 and inside, item, f"P5: view reaches beyond {ref.buffer}")


def _verify_nest(nest: LoopNest, buffers: Mapping[str, Buffer], sizes: tuple[str, ...]) -> None:
    store = nest.store
    _require(store.buffer in buffers, nest, f"P1: no buffer {store.buffer}")
    buffer = buffers[store.buffer]
    reduced = nest.reduction.axes if nest.reduction is not None else ()
    axes = {axis.name: axis.extent for axis in (*nest.axes, *reduced)}
    _require(len(axes) == len(nest.axes) + len(reduced), nest, "N1: two axes of one name")
    for extent in axes.values():
        _require(bounds(extent)[1] >= 0, nest, "N1: negative extent")
    _require(len(store.index) == len(buffer.shape), nest, "E2: rank of the store")
    if store.mode == "add" or store.indirect:
        _require(nest.partial, nest, "N4: adding and indirect stores are partial")
    if not nest.partial:
        used = []
        for index, extent in zip(store.index, buffer.shape):
            if isinstance(index, Symbol):
                _require(
                    index.name in axes and axes[index.name] == extent, nest, f"N2: index {index} of extent {extent}"
                )
                used.append(index.name)
            else:
                _require(index == 0 and extent == 1, nest, f"N2: index {index} of extent {extent}")
        _require(sorted(used) == sorted(axis.name for axis in nest.axes), nest, "N2: each axis indexes one dimension")
    expected = buffer.dtype
    if nest.reduction is not None:
        op = nest.reduction.op
        _require(bool(reduced), nest, "N1: a reduction without axes")
        _require(op in REDUCTIONS, nest, f"N3: no reduction {op}")
        if op in POSITIONS:
            _require(buffer.dtype == "int64", nest, "N3: positions are int64")
        else:
            _require(nest.reduction.dtype == buffer.dtype, nest, "N3: accumulator and buffer differ")
        if op in ("any", "all"):
            _require(nest.reduction.dtype == "bool", nest, "N3: any and all fold bool")
        expected = nest.reduction.dtype
    _require(store.value.dtype == expected, nest, f"N3: value is {store.value.dtype}, wanted {expected}")
    checker = _Expressions(nest, buffers, axes, frozenset(sizes))
    empty = any(extent == 0 for extent in axes.values())
    bound = checker.bindings(store.indirect, {})
    for index, extent in zip(store.index, buffer.shape):
        checker.check_index(index, extent, bound, store.buffer, empty)
    checker.check(store.value, None, empty)


class _Expressions:
    def __init__(
        self, nest: LoopNest, buffers: Mapping[str, Buffer], axes: dict[str, Size], sizes: frozenset[str]
    ) -> None:
        self.nest, self.buffers, self.axes, self.sizes = nest, buffers, axes, sizes
        self.seen: set[int] = set()

    def fail(self, condition: bool, message: str) -> None:
        _require(condition, self.nest, message)

    def bindings(self, indirect: tuple, outer: dict[str, Expr]) -> dict[str, Expr]:
        for name, bound in indirect:
            self.check(bound, None, False)
            self.fail(bound.dtype in INTEGRAL, f"E3: {name} is bound to {bound.dtype}")
        return {**outer, **dict(indirect)}

    def check_index(self, index: Size, extent: Size, bound: Mapping[str, Expr], buffer: str, masked: bool) -> None:
        found: dict[str, Symbol] = {}
        _symbols_of(index, found)
        for name, symbol in found.items():
            known = name in bound or name in self.axes or name in self.sizes
            self.fail(known, f"E3: unknown symbol {name} in an index of {buffer}")
            if name in self.axes and name not in bound:
                self.fail(
                    symbol.lower == 0 and symbol.upper == max(bounds(self.axes[name])[1] - 1, 0),
                    f"E3: bounds of {name} are not those of its axis",
                )
        if masked:
            return
        low, high = bounds(index)
        limit = bounds(extent)[0]
        if low >= 0 and high < limit:
            return
        if not isinstance(extent, int):
            return  # not provable with these bounds; checked where sizes are known
        axes = [name for name in found if name in self.axes and name not in bound]
        for name in axes:
            _symbols_of(self.axes[name], found)
        limits = [
            (name, limit)
            for name in found
            if name in bound
            for limit in _largest(bound[name])
            if symbols(limit) <= found.keys()
        ]
        points = 1
        for symbol in found.values():
            points *= symbol.upper - symbol.lower + 1
        if points > _ENUMERABLE:
            return  # too many to enumerate
        names = list(found)
        ranges = [range(found[name].lower, found[name].upper + 1) for name in names]
        for point in itertools.product(*ranges):
            values = dict(zip(names, point))
            if any(values[name] >= evaluate(self.axes[name], values) for name in axes):
                continue  # the axis ends before
            if any(values[name] > evaluate(limit, values) for name, limit in limits):
                continue  # nor is so large a position loaded
            value = evaluate(index, values)
            self.fail(0 <= value < extent, f"E4: index {index} of {buffer} reaches {value}, extent {extent}")

    def check(self, value: Expr, mask: Expr | None, masked: bool) -> None:
        if id(value) in self.seen:
            return
        self.seen.add(id(value))
        if isinstance(value, Constant):
            self.fail(value.dtype in NATIVE, f"E1: constant of type {value.dtype}")
        elif isinstance(value, Index):
            self.fail(value.dtype == "int64", "E1: an index is int64")
            found: dict[str, Symbol] = {}
            _symbols_of(value.value, found)
            for name in found:
                self.fail(name in self.axes or name in self.sizes, f"E3: unknown symbol {name}")
        elif isinstance(value, Load):
            self.fail(value.buffer in self.buffers, f"P1: no buffer {value.buffer}")
            buffer = self.buffers[value.buffer]
            self.fail(value.dtype == buffer.dtype, f"E2: {value.buffer} holds {buffer.dtype}, not {value.dtype}")
            self.fail(len(value.index) == len(buffer.shape), f"E2: rank of a load of {value.buffer}")
            bound = self.bindings(value.indirect, {})
            if value.mask is not None:
                self.fail(value.mask.dtype == "bool", "E1: a mask is bool")
                self.check(value.mask, None, masked)
            for index, extent in zip(value.index, buffer.shape):
                self.check_index(index, extent, bound, value.buffer, masked or value.mask is not None)
        elif isinstance(value, Compute):
            for argument in value.args:
                self.check(argument, None, masked)
            self.check_operation(value)
        else:
            self.fail(False, f"E1: {type(value).__name__} at nest level")

    def check_operation(self, value: Compute) -> None:
        op, args, dtype = value.op, value.args, value.dtype
        text = lambda: expression_text(value)[:200]
        self.fail(op in SCALARS, f"E1: no operation {op}")
        row = SCALARS[op]
        self.fail(len(args) == row.arity, f"E1: operands of {op}")
        types = [argument.dtype for argument in args]
        if op == "bitcast":
            self.fail(dtype in STORED and types[0] in STORED, f"E1: types of {text()}")
            return
        self.fail(dtype in NATIVE and all(t in NATIVE for t in types), f"E1: types of {text()}")
        if op == "cast":
            return
        if op == "random":
            self.fail(types == ["int64", "int64"] and dtype == "uint32", f"E1: types of {text()}")
            return
        if op == "where":
            self.fail(types[0] == "bool" and types[1] == types[2] == dtype, f"E1: types of {text()}")
            return
        if op in ("asserted", "promised"):
            self.fail(types == [dtype, "bool"], f"E1: types of {text()}")
            return
        operand = types[0]
        self.fail(all(t == operand for t in types), f"E1: operand types of {text()}")
        self.fail(dtype == ("bool" if row.gives_bool else operand), f"E1: type of {text()}")
        if row.domain == "compared":
            allowed = operand == "bool" or operand in INTEGRAL or operand in _COMPUTE_FLOAT
        elif row.domain == "bits":
            allowed = operand == "bool" or operand in INTEGRAL
        elif row.domain == "integer":
            allowed = operand in INTEGRAL
        elif row.domain == "number":
            allowed = operand in INTEGRAL or operand in _COMPUTE_FLOAT
        else:
            allowed = operand in _COMPUTE_FLOAT
        self.fail(allowed, f"E1: {op} on {operand}")


def _largest(position: Expr) -> list[Size]:
    """What a computed position is kept below or at: `minimum(..., n - 1)`."""
    if type(position) is Compute and position.op == "minimum":
        return [each.value for each in position.args if type(each) is Index]
    return []


def _symbols_of(value: Size, found: dict[str, Symbol]) -> None:
    if isinstance(value, Symbol):
        found[value.name] = value
    elif isinstance(value, Sum):
        for _, atom in value.terms:
            _symbols_of(atom, found)
    elif isinstance(value, Product):
        for factor in value.factors:
            _symbols_of(factor, found)
    elif isinstance(value, (FloorDiv, Mod)):
        _symbols_of(value.value, found)
        _symbols_of(value.divisor, found)
    elif isinstance(value, (Min, Max)):
        _symbols_of(value.left, found)
        _symbols_of(value.right, found)
