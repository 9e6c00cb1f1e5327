"""Expressions of the host function: texts for the tensors, arguments and results of a program's steps.

    input 3                            x3
    a view of it                       view(x3, torch.float32, (4, 2), (1, 4), 0)
    planned memory                     w[5], a view that is made once for each lease
    planned memory of unknown size     planned(lease.arena, torch.float32, (s0, 8), (8, 1), a2 + (0) * 4, a2, ...)

Collected on the way: inputs that are read, and the tables of views and operators that the text begins with.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from lampwork.errors import CompileError
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Buffer, storage_numel
from lampwork.ir.program import (
    FromBuffer,
    FromInput,
    Placement,
    Program,
    Result,
    ScalarResult,
    TensorRef,
    TorchConstant,
    ViewOfInput,
)
from lampwork.ir.size import Size, SizeExpr, bounds, mul, span, symbols


def is_static(ref: TensorRef) -> bool:
    """No size, stride or offset of the view depends on the call."""
    return not any(isinstance(value, SizeExpr) for value in (*ref.shape, *ref.strides, ref.offset))


class Expressions:
    """The texts for one program. `weights`: inputs that stay where they are from call to call."""

    def __init__(self, program: Program, weights: frozenset[int]) -> None:
        self.program, self.weights = program, weights
        self.used_inputs: set[int] = set()
        self.operators: dict[str, str] = {}
        #: Those that write to given tensors, with the names of these arguments: variables of the host function.
        self.out_operators: dict[tuple[str, tuple[str, ...]], str] = {}
        #: Views of planned memory: the text for each, and the rows of the table that makes them.
        self.views: dict[TensorRef, str] = {}
        self.view_rows: list[str] = []
        #: Views whose sizes are known when the call begins, and views of weights: text to place in their tables.
        self.sized_views: dict[str, str] = {}
        self.weight_views: dict[str, int] = {}
        self.symbols: list[str] = []
        #: Buffers that calls of ATen made: their variables.
        self.extern_names: dict[str, str] = {}

    def sized_view(self, text: str) -> str:
        """A view of planned memory that depends on the call's sizes: made once for all calls of the same sizes."""
        return self.sized_views.setdefault(text, f"d[{len(self.sized_views)}]")

    def weight(self, text: str) -> str:
        """A weight, or a view of one, made once per generation."""
        return f"u[{self.weight_views.setdefault(text, len(self.weight_views))}]"

    def first(self, name: str) -> str:
        """Element 0 of a buffer as a 0-dimensional tensor."""
        return self.view(TensorRef(name, self.program.buffers[name].dtype, (), (), 0))

    def argument(self, value: object) -> str:
        """An argument of a call of ATen. Raises `CompileError` for a value that text cannot hold."""
        if isinstance(value, TensorRef):
            return self.view(value)
        if isinstance(value, TorchConstant):
            if value.kind == "device":
                return f"torch.device({value.name!r})"
            return f"torch.{value.name.removeprefix('torch.')}"
        if isinstance(value, (tuple, list)):
            return "[" + ", ".join(self.argument(item) for item in value) + "]"
        if isinstance(value, SizeExpr):
            return str(value)
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if isinstance(value, complex):
            return f"complex({self.argument(value.real)}, {self.argument(value.imag)})"
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        raise CompileError("host", f"an ATen call has an argument of type {type(value).__name__}: {value!r}")

    def operator(self, name: str) -> str:
        if name not in self.operators:
            self.operators[name] = self._operator_variable(name)
        return self.operators[name]

    def out_operator(self, name: str, outs: tuple[str, ...]) -> str:
        """As `operator`, for one whose arguments `outs` are memory for its results."""
        if (name, outs) not in self.out_operators:
            self.out_operators[name, outs] = self._operator_variable(name)
        return self.out_operators[name, outs]

    def _operator_variable(self, name: str) -> str:
        words = "".join(letter if letter.isalnum() else "_" for letter in name.partition("::")[2])
        variable = f"op_{words}"
        while variable in self.operators.values() or variable in self.out_operators.values():
            variable += "_"
        return variable

    def input(self, index: int) -> str:
        if index in self.weights:
            return f"values[{index}]"
        self.used_inputs.add(index)
        return f"x{index}"

    def place(self, name: str) -> Placement:
        place = self.program.placements.get(name)
        if place is None:
            raise CompileError("host", f"buffer {name} has no place")
        return place

    def whole(self, name: str) -> str:
        buffer = self.program.buffers[name]
        return self.view(TensorRef(name, buffer.dtype, buffer.shape, buffer.strides, 0))

    def view(self, ref: TensorRef) -> str:
        """An expression for the strided view `ref`; of planned memory, made once per lease."""
        place = self.place(ref.buffer)
        buffer = self.program.buffers[ref.buffer]
        if place.kind == "input":
            variable = self.input(place.index)
            static = place.index in self.weights
            if is_whole(ref, buffer):
                return self.weight(variable) if static else variable
            if is_static(ref):
                maker = "weight_view" if static else "view"
                made = f"{maker}({variable}, {self._view_arguments(ref)})"
                return self.weight(made) if static else made
            return f"view({variable}, {self._view_arguments(ref)})"
        if place.kind == "result":
            variable = f"r{place.index}"
            return variable if is_whole(ref, buffer) else f"view({variable}, {self._view_arguments(ref)})"
        if place.kind == "extern":
            variable = self.extern_names.get(ref.buffer, "")
            if not variable:
                raise CompileError("host", f"buffer {ref.buffer} is read before the call that makes it")
            return variable if is_whole(ref, buffer) else f"view({variable}, {self._view_arguments(ref)})"
        if place.kind == "arena" or not is_static(ref):
            base, start, end = self._range(place, ref.buffer)
            layout = f"torch.{ref.dtype}, {dims(ref.shape)}, {dims(ref.strides)}"
            offset = f"({ref.offset}) * {ITEM_SIZE_BYTES[ref.dtype]}"
            made = f"planned({base}, {layout}, {start} + {offset}, {start}, {end})"
            return self.sized_view(made) if self._of_inputs(ref) else made
        if ref not in self.views:
            if not is_inside(ref, buffer):
                raise CompileError("host", f"a view reaches out of buffer {ref.buffer}: {ref}")
            offset_bytes = place.offset_bytes + ref.offset * ITEM_SIZE_BYTES[ref.dtype]
            base = "None" if place.kind == "workspace" else repr(ref.buffer)
            if place.kind == "constant":
                offset_bytes -= place.offset_bytes
            self.views[ref] = f"w[{len(self.view_rows)}]"
            self.view_rows.append(f"({base}, {ref.dtype!r}, {dims(ref.shape)}, {dims(ref.strides)}, {offset_bytes})")
        return self.views[ref]

    def _range(self, place: Placement, name: str) -> tuple[str, str, str]:
        """Planned memory, and where in it a buffer begins and ends."""
        buffer = self.program.buffers[name]
        size_bytes = mul(storage_numel(buffer), ITEM_SIZE_BYTES[buffer.dtype])
        size = at_least_nothing(size_bytes)
        if place.kind == "arena":
            known = symbols(size_bytes) <= set(self.symbols)  # else all of the slot, which is a little more
            return "lease.arena", f"a{place.index}", f"a{place.index} + {size if known else f'n{place.index}'}"
        if place.kind == "workspace":
            return "lease.workspace", str(place.offset_bytes), f"{place.offset_bytes} + {size}"
        return f"constant({name!r})", "0", size

    def _of_inputs(self, ref: TensorRef) -> bool:
        """The view depends on symbols that are known when the call begins."""
        named: set[str] = set()
        for value in (*ref.shape, *ref.strides, ref.offset):
            named |= symbols(value)
        return named <= set(self.symbols)

    @staticmethod
    def _view_arguments(ref: TensorRef) -> str:
        return f"torch.{ref.dtype}, {dims(ref.shape)}, {dims(ref.strides)}, {ref.offset}"

    def result(self, result: Result) -> str:
        match result:
            case FromInput(index):
                return self.input(index)
            case FromBuffer(ref, conjugate):
                return self._view_result(ref) + ".conj()" * conjugate
            case ViewOfInput(index, dtype, shape, strides, offset, conjugate):
                variable = self.input(index)
                made = f"view_result({variable}, torch.{dtype}, {dims(shape)}, {dims(strides)}, {offset})"
                return made + ".conj()" * conjugate
            case ScalarResult(value):
                return str(value)
        raise CompileError("host", f"unknown result {type(result).__name__}")

    def results(self, results: Sequence[Result]) -> list[str]:
        """Each result; where one is all of another's memory, it is another object all the same. What shares its memory
        with no other result is no view (`p.grad.detach_()` refuses those)."""
        uses = Counter(result.view.buffer for result in results if isinstance(result, FromBuffer))
        made: list[str] = []
        for result in results:
            text = self.result(result)
            if isinstance(result, FromBuffer):
                if text in made:
                    text = f"alias({text})"
                elif uses[result.view.buffer] == 1 and not is_whole(
                    result.view, self.program.buffers[result.view.buffer]
                ):
                    text += ".detach()"
            made.append(text)
        return made

    def _view_result(self, ref: TensorRef) -> str:
        place = self.place(ref.buffer)
        if place.kind in ("workspace", "arena", "constant"):
            # Planned memory is used again by the next call: what the caller keeps must be a copy.
            return f"{self.view(ref)}.clone()"
        return self.view(ref)


def is_whole(ref: TensorRef, buffer: Buffer) -> bool:
    return ref.dtype == buffer.dtype and ref.offset == 0 and ref.shape == buffer.shape and ref.strides == buffer.strides


def at_least_nothing(size_bytes: Size) -> str:
    """The bytes of a buffer. Rows with gaps between them have less than none by `storage_numel` where they are none."""
    return str(size_bytes) if bounds(size_bytes)[0] >= 0 else f"max({size_bytes}, 0)"


def is_inside(ref: TensorRef, buffer: Buffer) -> bool:
    """Whether a view of known sizes lies inside of its buffer."""
    if 0 in ref.shape:
        return True
    size_bytes = mul(storage_numel(buffer), ITEM_SIZE_BYTES[buffer.dtype])
    if not isinstance(ref.offset, int) or not isinstance(size_bytes, int):
        return False
    end_bytes = (ref.offset + span(ref.shape, ref.strides)) * ITEM_SIZE_BYTES[ref.dtype]
    return ref.offset >= 0 and end_bytes <= size_bytes


def dims(values: Sequence[Size]) -> str:
    return "(" + ", ".join(str(value) for value in values) + ("," if len(values) == 1 else "") + ")"
