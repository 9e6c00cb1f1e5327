"""The loop IR: what lowering produces, scheduling rearranges and code generation consumes. No torch, no LLVM.

Two levels share one expression language.

    LoopNest   one operator: a value for every point of its axes, stored once. Loads are multi-dimensional, so a
               producer is inlined by substituting the consumer's index for its axes.
    Kernel     one generated function: a tree of loops and statements over flat buffers (one index each).

    expr    Constant(value, dtype)               literal
          | Index(value)                         a SizeExpr as an int64 value
          | Load(buffer, index, dtype, ...)      element of a buffer, optionally masked, optionally indirect
          | Local(name, dtype)                   kernel level: a Let or an accumulator
          | Compute(op, args, dtype)             scalar operator of `scalar_operators.SCALARS`
    stmt    Let(name, value)                     kernel level: name a value inside the innermost loop
          | Loop(axis, body, kind)               kind: serial | parallel | vector | unroll
          | Accumulator(name, op, dtype)         start a reduction with the identity of op
          | Accumulate(name, value)              fold value in; POSITIONS also take the position
          | Scratch(name, dtype, numel)          thread-local row buffer, addressed like any buffer
          | Store(buffer, index, value, mode)    mode: write | add (atomic where loops are parallel)
          | If(condition, body)

Integer arithmetic wraps. Floats follow IEEE-754 per operation; nothing is reassociated but `sum`/`prod` accumulators
(licence `reassociates`, as ATen's own reductions do).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import cached_property
from typing import Final, Literal, final

from lampwork.ir.location import Location as Location
from lampwork.ir.location import Origin as Origin
from lampwork.ir.record import record
from lampwork.ir.size import Size, add, mul

# ---------------------------------------------------------------------------------------------------------------------
# Expressions


@final
@record
class Constant:
    """A literal of type `dtype`. Python bool/int/float; floats may be inf or nan."""

    value: bool | int | float
    dtype: str


@final
@record
class Index:
    """An index expression used as a value (`arange`, position masks). dtype is int64."""

    value: Size
    dtype: str = "int64"


@final
@record
class Load:
    """Element `index` of `buffer`.

    At nest level `index` has one entry per dimension of the buffer's shape; at kernel level exactly one (flat offset
    in elements, relative to the buffer's first byte). `indirect` binds symbols used in `index` to integer expressions
    (embedding rows); values are already wrapped and checked. Where `mask` is false nothing is read and the value
    is `other`.
    """

    buffer: str
    index: tuple[Size, ...]
    dtype: str
    indirect: tuple[tuple[str, Expr], ...] = ()
    mask: Expr | None = None
    other: bool | int | float = 0


@final
@record
class Local:
    name: str
    dtype: str


@final
@record
class Compute:
    """`op` of `scalar_operators.SCALARS` on `args`. `dtype` is the result's type.

    All operands have one type, except as the table says.
    """

    op: str
    args: tuple[Expr, ...]
    dtype: str


Expr = Constant | Index | Load | Local | Compute


def children(expr: Expr) -> tuple[Expr, ...]:
    """Operands of a computation; the mask and the bound integers of a load."""
    if type(expr) is Compute:
        return expr.args
    if type(expr) is Load and (expr.indirect or expr.mask is not None):
        bound = tuple(value for _, value in expr.indirect)
        return bound if expr.mask is None else (*bound, expr.mask)
    return ()


def nodes(roots: Iterable[Expr]) -> list[Expr]:
    """Every distinct node object below `roots`, operands before users."""
    order: list[Expr] = []
    seen: set[int] = set()
    for root in roots:
        _visit(root, seen, order)
    return order


def _visit(expr: Expr, seen: set[int], order: list[Expr]) -> None:
    # Not a closure that calls itself: asked for each nest of an optimizer, it is a cycle of garbage each.
    if id(expr) in seen:
        return
    seen.add(id(expr))
    for child in expr.args if type(expr) is Compute else children(expr):
        _visit(child, seen, order)
    order.append(expr)


#: Reduction operators that give a position: the first of equal ones (NaN wins); of NaNs in a pooling window the last.
POSITIONS: Final[frozenset[str]] = frozenset({"argmax", "argmin", "argmax_of_window"})
#: Reductions that give the first of zeros of both signs, and which others they are but for that. Lanes of a vector are
#: folded side by side; max_of_window is not divided into lanes. Threads of a GPU fold values with their positions.
FIRSTS: Final[dict[str, str]] = {"first_max": "max", "first_min": "min", "max_of_window": "max"}
#: Reductions of pooling windows, whose elements are folded in the order of the reduced axes.
OF_WINDOWS: Final[frozenset[str]] = frozenset({"argmax_of_window", "max_of_window"})
#: Reduction operators. max/min carry NaN.
REDUCTIONS: Final[frozenset[str]] = POSITIONS | FIRSTS.keys() | {"sum", "prod", "max", "min", "any", "all"}

# ---------------------------------------------------------------------------------------------------------------------
# Nest level: one operator


@record
class Axis:
    """A loop index `name` running over [0, extent)."""

    name: str
    extent: Size


@record
class Reduction:
    """Fold `op` over `axes`. The accumulator has type `dtype`."""

    op: str
    axes: tuple[Axis, ...]
    dtype: str


@final
@record
class Store:
    """Write `value` to element `index` of `buffer`. mode `add` accumulates (scatter_add, index_put(accumulate))."""

    buffer: str
    index: tuple[Size, ...]
    value: Expr
    mode: Literal["write", "add"] = "write"
    indirect: tuple[tuple[str, Expr], ...] = ()


@record
class LoopNest:
    """For every point of `axes`: `store.buffer[store.index] = reduce(value)`; pointwise when `reduction` is None.

    `store.value` is the value reduced (over `reduction.axes`) or stored. Each nest writes one buffer. A nest whose
    store does not cover its buffer (scatter, slice writes) says so with `partial`, and names in `store.buffer` a buffer
    that an earlier nest filled.
    """

    axes: tuple[Axis, ...]
    store: Store
    reduction: Reduction | None = None
    partial: bool = False
    origin: Origin = Origin("", "")

    @cached_property
    def parts(self) -> tuple[Expr, ...]:
        """Every distinct node object of what is stored and of the integers that say where, operands before users."""
        return tuple(nodes([self.store.value, *[value for _, value in self.store.indirect]]))

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The buffers that the nest reads, each once; the one that it adds to, or writes a part of, is among them."""
        found = dict.fromkeys([part.buffer for part in self.parts if type(part) is Load])
        if self.partial or self.store.mode == "add":
            found.setdefault(self.store.buffer)
        return tuple(found)


BufferKind = Literal["input", "intermediate", "constant", "unwritten"]


@record
class Buffer:
    """A tensor's storage: `dtype`, logical `shape`, element `strides`. `kind` input: the program's caller owns it;
    unwritten: nobody asks what is in it.

    `device`: where it is, if that is not the program's device; kernels never touch such a buffer.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    kind: BufferKind = "intermediate"
    device: str = ""


def storage_numel(buffer: Buffer) -> Size:
    """Elements from the first to the last of a strided buffer."""
    if any(extent == 0 for extent in buffer.shape):
        return 0
    last: Size = 1
    for extent, stride in zip(buffer.shape, buffer.strides):
        last = add(last, mul(add(extent, -1), stride))
    return last


# ---------------------------------------------------------------------------------------------------------------------
# Kernel level: one generated function


@final
@record
class Let:
    name: str
    value: Expr


@final
@record
class Accumulator:
    """Starts (or restarts) accumulator `name` at the identity of `op`. Visible in the rest of the enclosing body.

    For argmax/argmin, `Local(name)` afterwards is the position (int64).
    """

    name: str
    op: str
    dtype: str


@final
@record
class Accumulate:
    """Fold `value` into accumulator `name`; `position` is the flat position of argmax/argmin."""

    name: str
    value: Expr
    position: Size | None = None


@final
@record
class Scratch:
    """Thread-local buffer of `numel` elements, 64-byte aligned, living for the enclosing body."""

    name: str
    dtype: str
    numel: int


@final
@record
class If:
    condition: Expr
    body: tuple[Stmt, ...]


LoopKind = Literal["serial", "parallel", "vector", "unroll"]


@final
@record
class Loop:
    """Run `body` for `axis` in order (`serial`), or in any order.

    parallel  iterations are independent and may run on several threads. Parallel loops are outermost; directly nested
              ones are one iteration space. `grain` is the smallest number of iterations worth a thread.
    vector    iterations are independent but for accumulators declared outside the loop, which are combined across
              lanes. Each lane is one iteration; serial loops inside run in lock step with one accumulator per lane.
    unroll    a serial loop of small constant extent to unroll fully.
    """

    axis: Axis
    body: tuple[Stmt, ...]
    kind: LoopKind = "serial"
    grain: int = 1


Stmt = Let | Loop | Accumulator | Accumulate | Scratch | Store | If


@record
class Parameter:
    """A buffer a kernel is called with.

    `numel` bounds the flat offsets; `aligned`: base is 64-byte aligned for sure.
    """

    name: str
    dtype: str
    access: Literal["read", "write", "readwrite"]
    numel: Size
    aligned: bool = False


@record
class Kernel:
    """One generated function `void name(void** buffers, int64* sizes)`. Parameters in call order.

    Names inside are canonical (b0.., i0.., t0..), so that equal kernels compare and hash equal whatever layer they came
    from; `sizes` are the symbols passed at run time. No two parameters overlap unless they are the same buffer.

    A `horizontal` kernel is one parallel loop, launched for any number of rows at once: each row has buffers and sizes
    of its own, and is one run. No row writes what another one reads or writes.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Stmt, ...]
    sizes: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = field(default=(), compare=False)
    horizontal: bool = False
