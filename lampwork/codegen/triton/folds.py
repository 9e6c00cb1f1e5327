"""`FoldWriter`: reductions of a kernel as Triton text.

A tile that holds whole rows is folded at once; rows read block by block are folded element by element into accumulators
of a tile's shape, which are folded after the loop; unrolled rows fold one value at a time.
"""

from __future__ import annotations

from lampwork.codegen.triton.expressions import COMBINE, HALF, TYPES, cast, identity, operation, summed_exp, typed
from lampwork.codegen.triton.online import RESCALED_GROUP
from lampwork.codegen.triton.tiles import Rescaled
from lampwork.codegen.triton.values import NONE, Value, ValueWriter
from lampwork.errors import CompileError
from lampwork.ir.dtype import FLOATING
from lampwork.ir.loops import FIRSTS, Accumulate, Accumulator, Compute, Kernel
from lampwork.ir.target import Target

#: An unrolled fold so far: its value, its position (for folds that have one) and the dimensions they vary along.
Total = tuple[str, str, frozenset[str]]


class FoldWriter(ValueWriter):
    """Lines that fold values along the dimension r, or one by one."""

    def __init__(self, kernel: Kernel, target: Target, index_type: str) -> None:
        super().__init__(kernel, target, index_type)
        self.accumulators: dict[str, Accumulator] = {}
        #: Sums of exponentials of differences from their maximum, which nothing else uses.
        self.summed: frozenset[str] = frozenset()

    def _fold_type(self, stmt: Accumulate) -> tuple[str, str]:
        """The reduction and the type its values are folded in."""
        accumulator = self.accumulators[stmt.name]
        op, dtype = FIRSTS.get(accumulator.op, accumulator.op), accumulator.dtype
        if op in ("any", "all") and dtype != "bool":
            raise CompileError("generate", f"reduction {op} of {dtype}", op)
        if dtype in HALF:
            return op, "float32"
        if dtype == "bool" and op not in ("any", "all"):
            return {"max": "any", "min": "all", "sum": "any", "prod": "all"}.get(op, op), (
                "int32" if op.startswith("arg") else dtype
            )
        if op not in ("any", "all") and dtype in ("int8", "int16", "uint8", "uint16"):
            return op, "int32"
        return op, dtype

    def _operand(self, stmt: Accumulate, dtype: str) -> str:
        """The value to fold, over the whole tile."""
        if stmt.name in self.summed and isinstance(stmt.value, Compute):
            text, dims = self.value(stmt.value.args[0])
            text = summed_exp(self, text)
        else:
            text, dims = self.value(stmt.value)
            text = cast(self, text, stmt.value.dtype, dtype)
        return self._widen((text, dims), self.dims)

    def _position(self, stmt: Accumulate) -> str:
        assert stmt.position is not None
        text, dims = self._size(stmt.position)
        if not dims:
            text = self.name(f"tl.full([], {text}, {self.index_type})")
        return self._widen((text, dims), self.dims)

    def _fold_row(self, stmt: Accumulate) -> None:
        """A fold of a tile that holds the whole row."""
        op, dtype = self._fold_type(stmt)
        value = self._operand(stmt, dtype)
        mask = self.masks.get("r")
        if mask is not None:
            start = self._literal_of(identity(op, dtype), dtype)
            value = self.name(f"tl.where({mask[0]}, {value}, {start})")
        position = ""
        if stmt.position is not None:
            position = self._position(stmt)
            if mask is not None:
                position = self.name(f"tl.where({mask[0]}, {position}, {self._last()})")
        self._result(stmt, op, dtype, value, position)

    def _start(self, stmt: Accumulate) -> tuple[str, ...]:
        """Accumulators of one tile, before a loop over blocks."""
        op, dtype = self._fold_type(stmt)
        shape = self._shape(self.dims)
        names = [stmt.name]
        self._line(f"{stmt.name} = tl.full({shape}, {identity(op, dtype)}, {TYPES[dtype]})")
        if stmt.position is not None:
            names.append(f"{stmt.name}_at")
            self._line(f"{names[1]} = tl.full({shape}, {self._last()}, {self.index_type})")
        return tuple(names)

    def _last(self) -> int:
        """A position after all others."""
        return (1 << 63) - 1 if self.index_type == "tl.int64" else (1 << 31) - 1

    def _fold_block(self, stmt: Accumulate, names: tuple[str, ...]) -> None:
        op, dtype = self._fold_type(stmt)
        value = self._operand(stmt, dtype)
        mask = self.masks.get("r")
        if stmt.position is not None:
            position = self._position(stmt)
            helper = self._helper_of_pairs(op)
            parts = self.block((f"{{0}}, {{1}} = {helper}({names[0]}, {names[1]}, {value}, {position})",), "{0} {1}")
            folded = parts.split()
        else:
            folded = [operation(self, COMBINE[op], dtype, dtype, (names[0], value))]
        for name, new in zip(names, folded):
            self._line(f"{name} = {new}" if mask is None else f"{name} = tl.where({mask[0]}, {new}, {name})")

    def _groups(self) -> str:
        """The shape of a tile with neighbours along r as a dimension of their own, and of a fold of those."""
        return self._shape(self.dims).replace("RBLOCK", f"RBLOCK // {RESCALED_GROUP}")

    def _start_rescaled(self, stmt: Rescaled) -> None:
        self._line(f'{stmt.maximum} = tl.full({self._groups()}, float("-inf"), tl.float32)')
        self._line(f"{stmt.total} = tl.full({self._groups()}, 0.0, tl.float32)")

    def _fold_rescaled(self, stmt: Rescaled) -> None:
        """One more block, a group of neighbours at a time: they share one exponential that scales what was summed.

        Where all so far is -inf, the shift is 0, as -inf less -inf would be NaN.
        """
        value = self._widen(self.value(stmt.value), self.dims)
        mask = self.masks.get("r")
        if mask is not None:
            value = self.name(f'tl.where({mask[0]}, {value}, float("-inf"))')
        axis = len(self.dims)
        value = self.name(f"tl.reshape({value}, {self._groups()[:-1]}, {RESCALED_GROUP}])")
        most = self.name(f"tl.reduce({value}, {axis}, {self._helper('max')})")
        top = operation(self, "maximum", "float32", "float32", (stmt.maximum, most))
        shift = self.name(f'tl.where({top} == float("-inf"), 0.0, {top})')
        scale = summed_exp(self, self.name(f"{stmt.maximum} - {shift}"))
        power = summed_exp(self, self.name(f"{value} - tl.expand_dims({shift}, {axis})"))
        self._line(f"{stmt.total} = {self.name(f'{stmt.total} * {scale}')} + tl.sum({power}, {axis})")
        self._line(f"{stmt.maximum} = {top}")

    def _finish_rescaled(self, stmt: Rescaled) -> None:
        axis = self.dims.index("r")
        suffix, rows = "[:, None]" if axis else "", frozenset(self.dims) - {"r"}
        top = self.name(f"tl.reduce({stmt.maximum}, {axis}, {self._helper('max')}){suffix}")
        scale = summed_exp(self, self.name(f"{stmt.maximum} - {top}"))
        total = self.name(f"tl.sum({self.name(f'{stmt.total} * {scale}')}, {axis}){suffix}")
        self.locals[stmt.maximum], self.locals[stmt.total] = (top, rows), (total, rows)

    def _finish(self, stmt: Accumulate, names: tuple[str, ...]) -> None:
        op, dtype = self._fold_type(stmt)
        self._result(stmt, op, dtype, names[0], names[1] if len(names) > 1 else "")

    def _result(self, stmt: Accumulate, op: str, dtype: str, value: str, position: str) -> None:
        """Fold `value` along r: the row's value of the accumulator."""
        axis = self.dims.index("r")
        suffix = "[:, None]" if axis else ""
        accumulator = self.accumulators[stmt.name]
        rows = frozenset(self.dims) - {"r"}
        if position:
            call = f"{{0}}, {{1}} = tl.reduce(({value}, {position}), {axis}, {self._helper_of_pairs(op)})"
            if op.startswith("arg"):
                text = self.name(f"{self.block((call,), '{1}')}{suffix}.to(tl.int64)")
            else:
                text = cast(self, self.name(f"{self.block((call,), '{0}')}{suffix}"), dtype, accumulator.dtype)
            self.locals[stmt.name] = (text, rows)
            return
        if op in ("any", "all"):
            function = "tl.max" if op == "any" else "tl.min"
            text = self.name(f"{function}({self.name(f'{value}.to(tl.int32)')}, {axis}){suffix}")
            self.locals[stmt.name] = (self.name(f"{text} != 0"), rows)
            return
        if op == "sum":
            call = f"tl.sum({value}, {axis})"
            if dtype in FLOATING:  # a sum begins with 0: of negative zeros alone it is 0
                suffix += " + 0.0"
        elif op == "prod" or dtype in ("float32", "float64"):
            call = f"tl.reduce({value}, {axis}, {self._helper(op)})"
        else:
            call = f"tl.{op}({value}, {axis})"
        text = self.name(f"{call}{suffix}")
        self.locals[stmt.name] = (cast(self, text, dtype, accumulator.dtype), rows)

    def _fold_nothing(self, stmt: Accumulate) -> Value:
        """What a reduction of no elements is."""
        op, dtype = self._fold_type(stmt)
        if op.startswith("arg"):
            return self.name(typed(0, "int64")), NONE
        return self.name(f"tl.full([], {identity(op, dtype)}, {TYPES[dtype]})"), NONE

    def _helper(self, op: str) -> str:
        return self.helper({"max": "maximum_of", "min": "minimum_of", "prod": "product_of"}[op])

    def _helper_of_pairs(self, op: str) -> str:
        """What folds a value and its position. The threads fold theirs in no order, and of 0 and -0 an instruction
        gives either: the position says which came first."""
        names = {
            "max": "first_maximum", "min": "first_minimum", "argmax": "first_maximum", "argmin": "first_minimum",
            "argmax_of_window": "first_maximum_last_nan",
        }  # fmt: skip
        return self.helper(names[op])

    def _literal_of(self, text: str, dtype: str) -> str:
        return self.name(f"tl.full([], {text}, {TYPES[dtype]})") if dtype == "bool" else text

    def _fold_one(self, stmt: Accumulate, total: Total | None) -> Total:
        """`total` with one more element; None: the first."""
        op, dtype = self._fold_type(stmt)
        value, dims = self.value(stmt.value)
        value, position = cast(self, value, stmt.value.dtype, dtype), ""
        in_order = self.accumulators[stmt.name].op == "max_of_window" and dtype in FLOATING
        if stmt.position is not None and not in_order:
            text, varies = self._size(stmt.position)
            position, dims = self.name(f"tl.full([], {text}, {self.index_type})"), dims | varies
        if total is None:
            if op == "sum" and dtype in FLOATING:  # a sum begins with 0: of negative zeros alone it is 0
                value = self.name(f"{value} + 0.0")
            return value, position, dims
        if position:
            call = f"{self._helper_of_pairs(op)}({total[0]}, {total[1]}, {value}, {position})"
            value, position = self.block((f"{{0}}, {{1}} = {call}",), "{0} {1}").split()
        elif in_order:
            # The instruction gives 0 of 0 and -0; eager's loop the one that comes first.
            greater, nan = (self.name(f"{value} {symbol}") for symbol in (f"> {total[0]}", f"!= {value}"))
            value = self.name(f"tl.where({greater} | {nan}, {value}, {total[0]})")
        else:
            value = operation(self, COMBINE[op], dtype, dtype, (total[0], value))
        return value, position, total[2] | dims
