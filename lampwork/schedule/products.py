"""Matrix products as loop nests, so that what follows one can be fused with it.

    %out = addmm(%bias, %x, %w)     ->    sum[m, n] = sum_k x[m, k] * w[k, n]        float32
                                          out[m, n] = sum[m, n] + bias[n]            rounded once, as the vendor does

A product is taken out of its ATen call and put in front of the segment that reads it first. What the segment then makes
of it competes with the call followed by the segment's own kernels (`alternatives`); who is faster only a measurement
can tell, and whoever called `schedule` makes it.

Preconditions: sizes are numbers; factors and result of one type: float16, bfloat16 or float32. Sums are float32 in
another order (licence `reassociates`). Non-goals: products that nothing follows, integer products, products whose
result an ATen call needs before the segment runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from lampwork.ir.alternative import Alternative, Choose
from lampwork.ir.loops import Axis, Buffer, Compute, Constant, Expr, Load, LoopNest, Reduction, Store
from lampwork.ir.program import Extern, Item, TensorRef
from lampwork.ir.record import record
from lampwork.ir.size import Size, product
from lampwork.schedule.dependences import Dependences
from lampwork.schedule.expressions import view_index
from lampwork.schedule.group import loop_symbol
from lampwork.schedule.segment import ScheduledKernel, Segment

#: Operators by the places of what is added, of the left and of the right factor among their arguments.
PRODUCTS: dict[str, tuple[int | None, int, int]] = {
    "aten::mm.default": (None, 0, 1),
    "aten::bmm.default": (None, 0, 1),
    "aten::addmm.default": (0, 1, 2),
    "aten::baddbmm.default": (0, 1, 2),
}
TYPES = ("float16", "bfloat16", "float32")
#: The nests of a product and the buffers between them.
Nests = tuple[list[LoopNest], list[Buffer]]
#: Results and inner elements from which on a tile has work for a multiprocessor's matrix units.
FEWEST_RESULTS, SHORTEST_INNER = 1 << 12, 16
#: Multiplications of float32 from which on the vendor's arithmetic decides (2048x768x3072 on an H100: a third faster).
MOST_FLOAT32 = 1 << 29
#: Products in front of one segment of which every combination is tried; of more, each alone and all together.
MOST_COMBINED = 3


def product_nests(call: Extern, buffers: Mapping[str, Buffer]) -> Nests | None:
    """The nests that compute what `call` returns and the buffers between them; None for other calls."""
    parts = PRODUCTS.get(call.op)
    if parts is None or len(call.outputs) != 1 or call.outputs[0] is None or call.mutates:
        return None
    added, left, right = parts
    if len(call.args) <= right or any(name not in ("alpha", "beta") for name, _ in call.kwargs):
        return None
    a, b = call.args[left], call.args[right]
    out = buffers[call.outputs[0]]
    scale = {"alpha": 1, "beta": 1, **dict(call.kwargs)}
    refs = [a, b] if added is None else [a, b, call.args[added]]
    if not all(isinstance(ref, TensorRef) and _is_plain(ref, buffers, out) for ref in refs):
        return None
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in scale.values()):
        return None
    inner = a.shape[-1]
    results = product(out.shape)
    if not isinstance(results, int) or not isinstance(inner, int):
        return None
    if results < FEWEST_RESULTS or inner < SHORTEST_INNER or out.dtype not in TYPES or out.device:
        return None
    if out.dtype == "float32" and results * inner > MOST_FLOAT32:
        return None
    axes = tuple(Axis(f"p{place}", extent) for place, extent in enumerate(out.shape))
    index = tuple(loop_symbol(axis.name, axis.extent) for axis in axes)
    *batch, m, n = index
    k = loop_symbol("k", inner)
    factors = _load(a, (*batch, m, k), buffers), _load(b, (*batch, k, n), buffers)
    value = Compute("mul", factors, "float32")
    fold = Reduction("sum", (Axis("k", inner),), "float32")
    if added is None and scale["alpha"] == 1:
        return [LoopNest(axes, Store(out.name, index, value), fold, origin=call.origin)], []
    total = Buffer(f"{out.name}_sum", "float32", out.shape, _contiguous(out.shape))
    result: Expr = _scaled(Load(total.name, index, "float32"), scale["alpha"])
    if added is not None and scale["beta"] != 0:
        ref = call.args[added]
        aligned = index[len(index) - len(ref.shape) :]
        place = tuple(0 if extent == 1 else part for extent, part in zip(ref.shape, aligned))
        result = Compute("add", (result, _scaled(_load(ref, place, buffers), scale["beta"])), "float32")
    nests = [
        LoopNest(axes, Store(total.name, index, value), fold, origin=call.origin),
        LoopNest(axes, Store(out.name, index, _cast(result, out.dtype)), origin=call.origin),
    ]
    return nests, [total]


def _is_plain(ref: TensorRef, buffers: Mapping[str, Buffer], out: Buffer) -> bool:
    """Whether kernels can read the operand: numbers for sizes, memory of their device, the result's type."""
    buffer = buffers[ref.buffer]
    known = all(isinstance(value, int) for value in (*ref.shape, *ref.strides, ref.offset, *buffer.shape))
    return known and ref.dtype == buffer.dtype == out.dtype and not buffer.device


def _load(ref: TensorRef, index: tuple[Size, ...], buffers: Mapping[str, Buffer]) -> Expr:
    buffer = buffers[ref.buffer]
    return _cast(Load(ref.buffer, view_index(buffer, ref, index), ref.dtype), "float32")


def _cast(value: Expr, dtype: str) -> Expr:
    return value if value.dtype == dtype else Compute("cast", (value,), dtype)


def _scaled(value: Expr, factor: int | float) -> Expr:
    return value if factor == 1 else Compute("mul", (value, Constant(float(factor), "float32")), "float32")


def _contiguous(shape: Sequence[Size]) -> tuple[Size, ...]:
    return tuple(product(shape[place + 1 :]) for place in range(len(shape)))


# -- Alternatives -----------------------------------------------------------------------------------------------------


@record
class Version:
    """One segment as scheduled.

    `nests`: its own after those of `products`, which are the items that are no ATen calls then. `sums`: places of the
    nests that fold products, `first_own`: of the first that is the segment's own. `made`: buffers between the nests of
    a product.
    """

    nests: list[LoopNest]
    segment: Segment
    products: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()
    first_own: int = 0
    made: tuple[Buffer, ...] = ()

    def product_kernels(self) -> list[ScheduledKernel]:
        return [made for made in self.segment.kernels if any(place in self.sums for place in made.nests)]


def movable_products(
    items: Sequence[Item], levels: Sequence[int], dependences: Dependences, buffers: Mapping[str, Buffer]
) -> dict[int, dict[int, Nests]]:
    """For each segment the products whose result it reads first, by item."""
    read_at: dict[str, list[tuple[int, bool]]] = {}
    for number, item in enumerate(items):
        for name in dependences.reads[number]:
            read_at.setdefault(name, []).append((levels[number], isinstance(item, LoopNest)))
    found: dict[int, dict[int, Nests]] = {}
    for number, item in enumerate(items):
        if not isinstance(item, Extern) or item.op not in PRODUCTS or len(item.outputs) != 1:
            continue
        readers = read_at.get(item.outputs[0] or "", [])
        segments = [level for level, is_nest in readers if is_nest]
        if not segments or any(level < min(segments) for level, _ in readers):
            continue
        touched = {*dependences.reads[number], *dependences.writes[number]}
        made = product_nests(item, buffers) if not touched & dependences.mutable else None
        if made is not None:
            found.setdefault(min(segments), {})[number] = made
    return found


def chosen_versions(
    plain: Mapping[int, Version],
    products: Mapping[int, Mapping[int, Nests]],
    items: Sequence[Item],
    buffers: Mapping[str, Buffer],
    choose: Choose,
    schedule_at: Callable[[int, list[LoopNest], list[Buffer]], Segment],
) -> dict[int, Version]:
    """The version of each segment that `choose` takes, where there is a choice.

    `schedule_at(level, nests, buffers)` schedules a segment with nests and buffers of products in front.
    """
    levels, versions, alternatives = [], [], []
    for level, movable in sorted(products.items()):
        candidates = (_version(plain[level], movable, taken, level, schedule_at) for taken in _choices(list(movable)))
        found = [plain[level], *(version for version in candidates if _is_fused(version))]
        if len(found) > 1:
            levels.append(level)
            versions.append(found)
            alternatives.append([_alternative(version, movable, items, buffers) for version in found])
    taken_of = choose(alternatives) if alternatives else ()
    return {level: found[number] for level, found, number in zip(levels, versions, taken_of, strict=True)}


def _choices(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Which of the products in front of a segment to take out of their calls."""
    sizes = range(1, len(numbers) + 1) if len(numbers) <= MOST_COMBINED else (1, len(numbers))
    for size in sizes:
        yield from combinations(numbers, size)


def _version(
    plain: Version,
    movable: Mapping[int, Nests],
    taken: tuple[int, ...],
    level: int,
    schedule_at: Callable[[int, list[LoopNest], list[Buffer]], Segment],
) -> Version:
    nests: list[LoopNest] = []
    made: list[Buffer] = []
    sums: list[int] = []
    for number in taken:
        sums.append(len(nests))
        nests += movable[number][0]
        made += movable[number][1]
    first_own = len(nests)
    nests += plain.nests
    return Version(nests, schedule_at(level, nests, made), taken, tuple(sums), first_own, tuple(made))


def _is_fused(version: Version) -> bool:
    """Whether every kernel of products has nests of the segment in it."""
    return all(max(made.nests) >= version.first_own for made in version.product_kernels())


def _alternative(
    version: Version, movable: Mapping[int, Nests], items: Sequence[Item], buffers: Mapping[str, Buffer]
) -> Alternative:
    left = [items[number] for number in movable if number not in version.products]
    calls = tuple(item for item in left if isinstance(item, Extern))
    made = [buffers[call.outputs[0] or ""] for call in calls]
    return Alternative(
        tuple(made.kernel for made in version.segment.kernels),
        tuple(made.buffers for made in version.segment.kernels),
        tuple(made.kernel for made in version.product_kernels()),
        calls,
        tuple(TensorRef(buffer.name, buffer.dtype, buffer.shape, buffer.strides) for buffer in made),
    )
