"""What rules build nests with: buffers, the nests that write them, and what a node's operands are at an index.

    lowering.pointwise((x, y), maximum)     for i0<8, i1<64: out[i0, i1] = maximum(x[i0, i1], y[i1])

`Nests` knows one node at a time. Which node, and what becomes of all of them, says `lower.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import Node

from lampwork.backends import backend_of
from lampwork.fakes.symbolic import sizes_of
from lampwork.ir.dtype import FLOATING, NATIVE, compute_dtype
from lampwork.ir.loops import (
    POSITIONS,
    Buffer,
    BufferKind,
    Compute,
    Expr,
    Index,
    LoopNest,
    Origin,
    Reduction,
    Store,
)
from lampwork.ir.program import Check, CheckError, Extern, TensorRef
from lampwork.ir.record import record
from lampwork.ir.size import Size, SizeExpr
from lampwork.lower import expressions as ex
from lampwork.lower.values import (
    CannotLoad,
    IndexTuple,
    Known,
    TensorMeta,
    TensorValue,
    broadcast_index,
    contiguous_strides,
    grid,
    is_closed,
    reduction_grid,
)

#: What folding no elements gives, for the operations that eager allows to.
IDENTITIES: dict[str, Any] = {"sum": 0, "prod": 1, "any": False, "all": True}

HALVES = frozenset({"float16", "bfloat16"})

#: All of their values are values of the half types.
EXACT_IN_HALVES = ("bool", "int8", "uint8")


@record
class _Rounded:
    """An operand that is converted to the common type of the operands before it is to their compute type."""

    value: TensorValue | SizeExpr


def is_number(value: object) -> bool:
    """Whether eager's kernels take `value` as a number: so they do with tensors without dimensions."""
    return type(value) is not TensorValue or not value.ref.shape


_dtype_names: dict[torch.dtype, str] = {}


def dtype_name(dtype: torch.dtype) -> str:
    name = _dtype_names.get(dtype)
    if name is None:
        name = _dtype_names[dtype] = str(dtype).removeprefix("torch.")
    return name


def meta_of(value: Any) -> TensorMeta:
    """Metadata of a (fake) tensor."""
    return TensorMeta(dtype_name(value.dtype), sizes_of(value.size()), sizes_of(value.stride()))


def with_own_memory(meta: TensorMeta) -> TensorMeta:
    """`meta`; contiguous, where it is that of an expanded tensor, which has no memory for each element."""
    if any(step == 0 and extent != 1 for extent, step in zip(meta.shape, meta.strides)):
        return TensorMeta(meta.dtype, meta.shape, contiguous_strides(meta.shape))
    return meta


#: (value, index) -> the value, asserting on a GPU that it is one the operator takes.
Checked = Callable[[Expr, IndexTuple], Expr]


def _as_it_is(value: Expr, index: IndexTuple) -> Expr:
    return value


class Nests:
    """The nests and buffers of one program so far, and what the current node adds to them.

    `out` is the metadata of the current node's result (a tuple of them for operators with several).
    """

    def __init__(self, device: str) -> None:
        self.device = device
        backend = backend_of(device)
        self.numerics, self.kernels = backend.numerics, backend.kernels
        #: Buffers on another device than the program's, and the device of each.
        self.elsewhere: dict[str, str] = {}
        #: Buffers on a GPU with what the program has on a CPU.
        self.of_cpu: set[str] = set()
        self.buffers: dict[str, Buffer] = {}
        self.items: list[Any] = []
        self.known: dict[str, Known] = {}
        #: How many indices rules have named themselves.
        self.symbol_count = 0
        self.node: Node
        self.origin = Origin("", "")
        self.out: Any = None

    def needed(self, position: int) -> bool:
        """Whether result `position` of the current (multi-result) node is read."""
        for user in self.node.users:
            if user.target is not operator.getitem or user.args[1] == position:
                return True
        return False

    def new_buffer(
        self, meta: TensorMeta, part: str = "", device: str = "", kind: BufferKind = "intermediate"
    ) -> TensorValue:
        """A fresh buffer, named after the node (and `part`), as a value; on the program's device unless named."""
        name = f"{self.node.name}.{part}" if part else self.node.name
        if name in self.buffers:
            number = 1
            while f"{name}.{number}" in self.buffers:
                number += 1
            name = f"{name}.{number}"
        dtype, shape, strides = meta
        self.add_buffer(Buffer(name, dtype, shape, strides, kind, device))
        return TensorValue(TensorRef(name, dtype, shape, strides))

    def add_buffer(self, buffer: Buffer) -> None:
        self.buffers[buffer.name] = buffer
        if buffer.device:
            self.elsewhere[buffer.name] = buffer.device

    def device_of(self, tensor: torch.Tensor) -> str:
        """Where a tensor is, if that is not the program's device; else empty."""
        device = str(tensor.device)
        return "" if device == self.device else device

    def compute(self, meta: TensorMeta, body: Callable[[IndexTuple], Expr], part: str = "") -> TensorValue:
        """One pointwise nest: `out[index] = body(index)` of `meta`; the body's value is cast to its dtype."""
        axes, index = grid(meta.shape)
        value = ex.cast(body(index), meta.dtype)
        target = self.new_buffer(meta, part)
        self.items.append(LoopNest(axes, Store(target.ref.buffer, index, value), None, False, self.origin))
        if is_closed(value):
            self.remember(target, lambda index: ex.cast(body(index), meta.dtype))
        return target

    def remember(self, target: TensorValue, at: Callable[[IndexTuple], Expr]) -> None:
        """The elements of the fresh `target` are `at(index)`, which loads nothing; its nest goes if nobody reads it."""
        target.known = self.known[target.ref.buffer] = Known(at)

    def compute_fresh(
        self, shape: tuple[Size, ...], dtype: str, body: Callable[[IndexTuple], Expr], part: str
    ) -> TensorValue:
        """As `compute`, into a contiguous helper buffer."""
        return self.compute(TensorMeta(dtype, shape, contiguous_strides(shape)), body, part)

    def reduce(
        self,
        op: str,
        shape: tuple[Size, ...],
        dims: Iterable[int],
        body: Callable[[IndexTuple], Expr],
        dtype: str,
        part: str = "",
        meta: TensorMeta | None = None,
    ) -> TensorValue:
        """One reduction nest: folds `body(index)` of type `dtype` over dimensions `dims` of the space `shape`.

        Without `meta` the result is a contiguous helper of the dimensions that stay. With it, the result has that
        metadata: the same dimensions, or all of them with 1 for the reduced (keepdim). Its dtype is `dtype`
        (int64 for those of POSITIONS: the row-major position in the reduced dimensions).
        """
        axes, reduced, index, kept = reduction_grid(shape, frozenset(dims))
        result_dtype = "int64" if op in POSITIONS else dtype
        if meta is None:
            kept_shape = tuple(extent for k, extent in enumerate(shape) if k not in set(dims))
            meta = TensorMeta(result_dtype, kept_shape, contiguous_strides(kept_shape))
        elif len(meta.shape) == len(shape):
            chosen = set(dims)
            kept = tuple(0 if k in chosen else symbol for k, symbol in enumerate(index))
        if op in IDENTITIES and any(axis.extent == 0 for axis in reduced):
            # Nothing is folded.
            identity = ex.constant(IDENTITIES[op], dtype)
            return self.compute(TensorMeta(dtype, meta.shape, meta.strides), lambda index: identity, part)
        value = ex.cast(body(index), dtype)
        target = self.new_buffer(TensorMeta(result_dtype, meta.shape, meta.strides), part)
        # Folding a single value gives that value: a pointwise nest. A sum begins at 0, so that of -0 is 0.
        reduction = Reduction(op, reduced, dtype) if reduced else None
        if reduction is None and op == "sum" and dtype in FLOATING:
            value = ex.add(value, ex.constant(0, dtype))
        if reduction is None and op in POSITIONS:
            value = ex.constant(0, "int64")
        self.items.append(LoopNest(axes, Store(target.ref.buffer, kept, value), reduction, False, self.origin))
        return target

    def operand(self, value: Any, index: IndexTuple, shape: tuple[Size, ...], dtype: str) -> Expr:
        """`value` (tensor broadcast to `shape`, or number) at `index`, as `dtype`."""
        if type(value) is TensorValue:
            return ex.cast(value.load(broadcast_index(index, shape, value.ref.shape)), dtype)
        if isinstance(value, SizeExpr):
            return ex.cast(Index(value), dtype)
        return ex.constant(value, dtype)

    def pointwise(
        self,
        inputs: Sequence[object],
        function: Callable[..., Expr],
        dtype: str | None = None,
        wide_numbers: Sequence[int] = (),
        as_elements: bool = False,
    ) -> TensorValue:
        """One nest for the node's result: `function` of the broadcast inputs, each in the compute type of `dtype`
        (by default the result's), rounded to `dtype` itself first, but for numbers at the places `wide_numbers`.
        `as_elements`: eager's kernel for a GPU takes numbers as elements of that type, too."""
        meta = self.out
        shape = meta.shape
        axes, index = grid(shape)
        common = dtype or meta.dtype
        dtype = compute_dtype(common)
        values = [
            value
            if self.numerics.rounds_numbers and place in wide_numbers and is_number(value)
            else self.rounded(value, common, as_elements)
            for place, value in enumerate(inputs)
        ]

        def operand(value: object, index: IndexTuple, shape: tuple[Size, ...], dtype: str) -> Expr:
            if type(value) is _Rounded:
                return ex.cast(self.operand(value.value, index, shape, common), dtype)
            return self.operand(value, index, shape, dtype)

        value = ex.cast(function(*[operand(value, index, shape, dtype) for value in values]), meta.dtype)
        target = self.new_buffer(meta)
        self.items.append(LoopNest(axes, Store(target.ref.buffer, index, value), None, False, self.origin))
        if is_closed(value):
            self.remember(
                target,
                lambda index: ex.cast(function(*[operand(v, index, shape, dtype) for v in values]), meta.dtype),
            )
        return target

    def rounded(self, value: object, dtype: str, as_elements: bool = False) -> Any:
        """The operand `value` as eager's kernels for `dtype` are given it: in half types it is rounded before they
        compute (`x == 0.3` holds in bfloat16 for the number that is nearest to 0.3). Kernels on a GPU take numbers, and
        tensors that lie on a CPU, as they are, unless they take them as elements of a tensor (`as_elements`).
        """
        if dtype not in HALVES:
            return value
        if (
            not self.numerics.rounds_numbers
            and not as_elements
            and (type(value) is not TensorValue or value.ref.buffer in self.of_cpu)
        ):
            return value
        if type(value) is TensorValue:
            return value if value.dtype in (dtype, *EXACT_IN_HALVES) else _Rounded(value)
        if isinstance(value, SizeExpr):
            return _Rounded(value)
        return torch.tensor(value).to(getattr(torch, dtype)).item()

    def check(
        self,
        shape: tuple[Size, ...],
        failed: Callable[[IndexTuple], Expr],
        message: str,
        error: CheckError,
        in_kernels: bool = True,
    ) -> Checked:
        """The host raises `error(message)` if `failed(index)` is true anywhere in `shape`.

        A GPU asserts it where the value is used, as eager's kernels do, and nobody waits for the answer: the function
        returned makes (value, index) a value that asserts. `in_kernels` False: eager does not there.
        """
        if 0 in shape:
            return _as_it_is
        if self.kernels.asserts:
            if not in_kernels:
                return _as_it_is
            return lambda value, index: Compute("asserted", (value, ex.unary("not", failed(index))), value.dtype)
        flag = self.reduce("any", shape, range(len(shape)), failed, "bool", "check")
        self.items.append(Check(flag.ref.buffer, message, error, self.origin))
        return _as_it_is

    def copy_of(self, value: TensorValue, meta: TensorMeta, part: str = "copy") -> TensorValue:
        """A fresh buffer of `meta` with the elements of `value` (same shape and dtype)."""
        meta = with_own_memory(meta)
        device = self.elsewhere.get(value.ref.buffer, "")
        if value.dtype in NATIVE and not device:
            try:
                return self.compute(meta, value.load, part)
            except CannotLoad:
                pass
        target = self.new_buffer(meta, part, device)
        self.items.append(
            Extern("aten::clone.default", (value.used().ref,), (), (target.ref.buffer,), None, (), self.origin)
        )
        return target
