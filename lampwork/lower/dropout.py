"""Dropout on a GPU: the mask is drawn by the kernel that uses it.

    y, mask = native_dropout(x, 0.1)     ->     key = draw_key([numel])
                                                mask[i] = random(key + number, i) < 0.9 * 2**32
                                                y[i] = x[i] * mask[i] * (1 / 0.9)

The derivative draws its mask again: a mask is stored only where it is a result, or given to ATen. Draws are not
eager's, the generator's state afterwards is (`runtime/launch/randomness.py`). On the CPU, and for every other random
operator, ATen draws: eager's very numbers.
"""

from __future__ import annotations

from dataclasses import replace

from lampwork.ir.dtype import FLOATING, compute_dtype
from lampwork.ir.loops import Buffer, Compute, Expr, Index, Load
from lampwork.ir.program import Extern
from lampwork.ir.size import Size, add, bounds, mul, product
from lampwork.lower import expressions as ex
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, TensorMeta, TensorValue, contiguous_strides

#: The operator that draws a key; ours.
DRAW_KEY = "lampwork::draw_key.default"
#: Keys of one draw are so far apart that neither half of one is near another's.
_STEP = 0x9E3779B97F4A7C15

_true = ex.constant(True, "bool")


@rule("native_dropout")
def _native_dropout(
    lowering: Lowering, input: TensorValue, p: float, train: bool | None
) -> tuple[TensorValue | None, ...]:
    if not lowering.kernels.draws or input.dtype not in FLOATING or not 0 <= p <= 1:
        return NotImplemented
    meta, mask_meta = lowering.out
    if 0 in meta.shape:
        return lowering.nothing()
    if train is not None and not train:
        return lowering.copy_of(input, meta, "0"), lowering.compute(mask_meta, lambda index: _true, "1")
    if p == 1:
        return (
            lowering.compute(meta, lambda index: ex.constant(0, meta.dtype), "0"),
            lowering.compute(mask_meta, lambda index: ex.constant(False, "bool"), "1"),
        )
    compute = compute_dtype(input.dtype)
    kept = float(ex.constant(1.0 - p, compute).value)
    input.load(tuple(0 for _ in meta.shape))  # raises what loads raise before a key is drawn
    key = _key(lowering, product(meta.shape))

    def is_kept(index: IndexTuple) -> Expr:
        threshold = round(kept * (1 << 32))
        if threshold >> 32:
            return _true
        bits = Compute("random", (key, Index(_position(index, meta))), "uint32")
        return ex.compare("lt", bits, ex.constant(threshold, "uint32"))

    mask = None
    if lowering.needed(1):
        mask = lowering.compute(mask_meta, is_kept, "1")
        lowering.remember(mask, is_kept)  # derivatives draw it once more instead of loading it
    if not lowering.needed(0):
        return None, mask

    def body(index: IndexTuple) -> Expr:
        drawn = is_kept(index) if mask is None else mask.load(index)
        value = ex.mul(ex.cast(input.load(index), compute), ex.cast(drawn, compute))
        return ex.mul(value, ex.constant(1.0 / kept, compute))

    return lowering.compute(meta, body, "0"), mask


def _key(lowering: Lowering, numel: Size) -> Expr:
    """The key of one more dropout, of `numel` elements.

    Dropouts share a draw, with a number of their own, unless ATen draws in between: what it draws then is eager's. The
    number is read from memory, so that the kernels of all layers are one.
    """
    last = next((place for place, item in reversed(list(enumerate(lowering.items))) if _draws(item)), None)
    if last is not None and lowering.items[last].op == DRAW_KEY:
        draw = lowering.items[last]
        (numels,) = draw.args
        lowering.items[last] = replace(draw, args=((*numels, numel),))
        name, number = draw.outputs[0], len(numels)
    else:
        name, number = lowering.new_buffer(TensorMeta("int64", (), ()), "key").ref.buffer, 0
        lowering.items.append(
            Extern(DRAW_KEY, ((numel,),), (), (name,), "lampwork::draw_key.out", (), lowering.origin, draws=True)
        )
    step = f"dropout.{number}"
    if step not in lowering.constants:
        lowering.constants[step] = ("int64", (), (number * _STEP & (1 << 64) - 1).to_bytes(8, "little"))
        lowering.add_buffer(Buffer(step, "int64", (), (), "constant"))
    return Compute("add", (Load(name, (), "int64"), Load(step, (), "int64")), "int64")


def _draws(item: object) -> bool:
    return type(item) is Extern and item.draws


def _position(index: IndexTuple, meta: TensorMeta) -> Size:
    """A number of its own for each element: where it lies in memory, which is how kernels go through it."""
    strides = meta.strides
    if any(step == 0 and bounds(extent)[1] > 1 for step, extent in zip(strides, meta.shape)):
        strides = contiguous_strides(meta.shape)
    position: Size = 0
    for part, step in zip(index, strides):
        position = add(position, mul(part, step))
    return position
