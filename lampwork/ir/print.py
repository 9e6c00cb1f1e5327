"""Readable text of nests and lowered programs, for golden tests and `explain`.

input x: f32[8, 64]
relu: f32[8, 64] = aten::relu.default
  for i0<8, i1<64: relu[i0, i1] = maximum(x[i0, i1], 0.0)
return relu
"""

from __future__ import annotations

from typing import Any

from lampwork.ir.attention import Attention
from lampwork.ir.dtype import SHORT
from lampwork.ir.loops import Axis, Buffer, Compute, Constant, Expr, Index, Load, LoopNest
from lampwork.ir.program import (
    Check,
    Extern,
    FromBuffer,
    FromInput,
    Lowered,
    ScalarResult,
    TensorRef,
    TorchConstant,
    ViewOfInput,
)
from lampwork.ir.size import Size
from lampwork.ir.weighted_sums import PRODUCTS, SUM, WeightedSums

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip


def short(dtype: str) -> str:
    return SHORT.get(dtype, dtype)


def size_text(value: Size) -> str:
    text = str(value)
    return text[1:-1] if text.startswith("(") and text.endswith(")") and _closes_last(text) else text


def _closes_last(text: str) -> bool:
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(text) - 1
    return False


def _sizes(values: tuple[Size, ...]) -> str:
    return ", ".join(size_text(value) for value in values)


def _row_major(shape: tuple[Size, ...], strides: tuple[Size, ...]) -> bool:
    step: Any = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step = step * extent
    return True


def type_text(dtype: str, shape: tuple[Size, ...], strides: tuple[Size, ...]) -> str:
    """`f32[8, 64]`, with the strides in brackets after it unless they are row-major: `f32[8, 64][1, 8]`."""
    layout = "" if _row_major(shape, strides) else f"[{_sizes(strides)}]"
    return f"{short(dtype)}[{_sizes(shape)}]{layout}"


def expression_text(value: Expr) -> str:
    if isinstance(value, Constant):
        return (
            repr(value.value)
            if value.dtype in ("float32", "float64", "int64", "bool")
            else f"{value.value}{short(value.dtype)}"
        )
    if isinstance(value, Index):
        return f"index({size_text(value.value)})"
    if isinstance(value, Load):
        text = f"{value.buffer}[{_sizes(value.index)}]"
        details = [f"{name} = {expression_text(bound)}" for name, bound in value.indirect]
        if value.mask is not None:
            details.append(f"if {expression_text(value.mask)} else {value.other!r}")
        return f"{text}{{{'; '.join(details)}}}" if details else text
    if isinstance(value, Compute):
        arguments = [expression_text(argument) for argument in value.args]
        if value.op in _INFIX and len(arguments) == 2:
            return f"({arguments[0]} {_INFIX[value.op]} {arguments[1]})"
        if value.op in ("cast", "bitcast"):
            return f"{'' if value.op == 'cast' else 'bits_'}{short(value.dtype)}({arguments[0]})"
        return f"{value.op}({', '.join(arguments)})"
    return value.name


def _axes(axes: tuple[Axis, ...]) -> str:
    return ", ".join(f"{axis.name}<{size_text(axis.extent)}" for axis in axes)


def nest_text(nest: LoopNest) -> str:
    """`for i0<8: s[i0] = sum(r1<64) x[i0, r1]`"""
    store = nest.store
    target = f"{store.buffer}[{_sizes(store.index)}]"
    if store.indirect:
        bindings = "; ".join(f"{name} = {expression_text(bound)}" for name, bound in store.indirect)
        target += f"{{{bindings}}}"
    value = expression_text(store.value)
    if value.startswith("(") and _closes_last(value):
        value = value[1:-1]
    if nest.reduction is not None:
        value = f"{nest.reduction.op}({_axes(nest.reduction.axes)}) {value}"
    prefix = f"for {_axes(nest.axes)}: " if nest.axes else ""
    sign = "+=" if store.mode == "add" else "="
    return f"{prefix}{target} {sign} {value}" + ("  (partial)" if nest.partial else "")


def attention_text(item: Attention) -> str:
    """`for b0<8, i<128: max(j<128) f(a0 = sum(d<64) q * k); e<64: o = sum(j<128) .. * v`"""
    parts = [
        f"for {_axes((*item.batch, item.row))}: attention",
        f"a0 = sum({_axes((item.inner,))}) {expression_text(item.query)} * {expression_text(item.keys)}",
        f"a1, a2 = softmax({_axes((item.key,))}) {expression_text(item.score)}",
        f"a3 = sum({_axes((item.key,))}) {short(item.weights)}(softmax) * {expression_text(item.values)}",
    ]
    parts += [f"{store.buffer}[{_sizes(store.index)}] = {expression_text(store.value)}" for store in item.stores]
    return "; ".join(parts)


def sums_text(item: WeightedSums) -> str:
    """`for b0<8, i<128: weighted sums; a0 = sum(d<64) q * k; e<64: a2 = sum(j<128) bf16(..) * v; o[..] = a2`"""
    parts = [f"for {_axes((*item.batch, item.row))}: weighted sums"]
    for local, each in zip(PRODUCTS, item.products):
        factors = f"{expression_text(each.left)} * {expression_text(each.right)}"
        parts.append(f"{local.name} = sum({_axes((each.inner,))}) {factors}")
    for sum_ in item.sums:
        weight = f"{short(sum_.dtype)}({expression_text(sum_.weight)})"
        over = f"{_axes((sum_.column,))}: {SUM.name} = sum({_axes((item.key,))})"
        parts.append(f"{over} {weight} * {expression_text(sum_.factor)}")
        store = sum_.result
        parts.append(f"{store.buffer}[{_sizes(store.index)}] = {expression_text(store.value)}")
    return "; ".join(parts)


def _argument(value: object) -> str:
    if isinstance(value, TensorRef):
        offset = f"+{size_text(value.offset)}" if value.offset != 0 else ""
        return f"{value.buffer}{offset}:{type_text(value.dtype, value.shape, value.strides)}"
    if isinstance(value, tuple):
        return f"({', '.join(_argument(item) for item in value)})"
    if isinstance(value, TorchConstant):
        return value.name
    return repr(value) if isinstance(value, (str, float, bool)) or value is None else str(value)


def item_text(item: object) -> str:
    if isinstance(item, LoopNest):
        return nest_text(item)
    if isinstance(item, Attention):
        return attention_text(item)
    if isinstance(item, WeightedSums):
        return sums_text(item)
    if isinstance(item, Extern):
        arguments = [_argument(value) for value in item.args]
        arguments += [f"{name}={_argument(value)}" for name, value in item.kwargs]
        outputs = ", ".join(str(output) if output is not None else "_" for output in item.outputs)
        notes = f"  into {item.out_variant}" if item.out_variant else ""
        notes += f"  writes {', '.join(item.mutates)}" if item.mutates else ""
        return f"{outputs or '_'} = {item.op}({', '.join(arguments)}){notes}"
    if isinstance(item, Check):
        return f"check {item.buffer}: {item.error}({item.message!r})"
    raise TypeError(f"not an item: {item!r}")


def buffer_text(buffer: Buffer) -> str:
    return f"{buffer.name}: {type_text(buffer.dtype, buffer.shape, buffer.strides)}"


def _result(result: object) -> str:
    if isinstance(result, FromInput):
        return f"input {result.input}"
    if isinstance(result, FromBuffer):
        return _argument(result.view)
    if isinstance(result, ViewOfInput):
        offset = f"+{size_text(result.offset)}" if result.offset != 0 else ""
        return f"view of input {result.input}{offset}:{type_text(result.dtype, result.shape, result.strides)}"
    if isinstance(result, ScalarResult):
        return str(result.value)
    raise TypeError(f"not a result: {result!r}")


def lowered_text(lowered: Lowered) -> str:
    """The whole program, one line an item, each fresh buffer declared before the first item that names it."""
    lines = [f"input {buffer_text(lowered.buffers[name])}" for name in lowered.inputs if name in lowered.buffers]
    lines += [f"constant {buffer_text(lowered.buffers[name])}" for name in lowered.constants]
    declared = set(lowered.inputs) | set(lowered.constants)
    origin = None
    for item in lowered.items:
        here = getattr(item, "origin", None)
        if here is not None and here != origin:
            origin = here
            module = f"  ({origin.location.module})" if origin.location.module else ""
            lines.append(f"# {origin.node} = {origin.op}{module}")
        for name in _written(item):
            if name not in declared:
                declared.add(name)
                lines.append(f"  {buffer_text(lowered.buffers[name])}")
        lines.append(f"  {item_text(item)}")
    for write in lowered.writes:
        lines.append(f"write input {write.input} = {_argument(write.source)}")
    lines.append(f"return {', '.join(_result(result) for result in lowered.results)}")
    return "\n".join(lines) + "\n"


def _written(item: object) -> list[str]:
    if isinstance(item, LoopNest):
        return [item.store.buffer]
    if isinstance(item, (Attention, WeightedSums)):
        return list(item.written)
    if isinstance(item, Extern):
        return [output for output in item.outputs if output is not None]
    return []
