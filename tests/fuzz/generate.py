"""`generate(seed)`: a random program, each statement of which eager has run.

Statements that eager refuses are left out, but for a small share, at which the program ends: an exception is an answer
too. The same seed and options give the same program.
"""

from __future__ import annotations

import random
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch

from tests.fuzz import layers, pointwise, samples, shapes
from tests.fuzz.builder import Builder, Skip
from tests.fuzz.inputs import COMPLEX, FLOATS, INTEGERS, LAYOUTS, Input, any_input, make
from tests.fuzz.program import NAMES, VIEW, Call, Program, Statement
from tests.fuzz.run import MODES

#: No tensor of a program has more elements or dimensions.
LARGEST, MOST_DIMENSIONS = 6000, 6
#: The share of statements that eager refuses at which a program ends.
REFUSALS = 0.015

PURE = {**pointwise.OPERATORS, **shapes.OPERATORS, **layers.OPERATORS}
WRITES = {**pointwise.WRITES, **shapes.WRITES}


@dataclass(frozen=True)
class Options:
    grad: bool = False
    dynamic: bool = False
    #: The share of statements that are PyTorch's own operator samples.
    samples: float = 0.0
    longest: int = 12


def generate(seed: int, options: Options = Options()) -> Program:
    """The program of a seed."""
    return _Generator(seed, options).program()


class _Generator:
    def __init__(self, seed: int, options: Options) -> None:
        self.seed, self.options = seed, options
        self.choose = choose = random.Random(f"{seed} {options.grad} {options.dynamic}")
        if options.dynamic:
            n, m = choose.sample([5, 6, 7, 9, 4, 11], 2)
        else:
            n, m = (choose.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 40)) for _ in range(2))
            if 0 in (n, m) and choose.random() < 0.6:
                n, m = n + 3, m + 2
        self.sizes = {"n": n, "m": m}
        family = choose.random()
        dtypes: tuple[str, ...] = ("float32",) * 6 + ("float64", "float16", "bfloat16")
        if options.grad:
            dtypes = ("float32", "float32", "float64", choose.choice(("float16", "bfloat16", "float32")))
        elif family < 0.15:
            dtypes = (*INTEGERS, "int64", "int32", "bool", "float32")
        elif family < 0.2:
            dtypes = (*COMPLEX, "float32")
        elif family < 0.35:
            dtypes = (choose.choice(FLOATS),)
        self.builder = Builder(choose, self.sizes, dtypes, options.grad, options.dynamic)
        self.builder.make = lambda spec, index: make(spec, self.sizes, self.first_seed * 31 + index).tensor
        self.first_seed = choose.randrange(1 << 20)
        self.mode = (
            "enable_grad" if options.grad else choose.choice(("enable_grad", "no_grad", "no_grad", "inference_mode"))
        )
        # In-place writes, and what each statement did to memory before, so that a failed write can be undone.
        self.write_share = choose.choice((0.0, 0.1, 0.3)) if not options.grad else choose.choice((0.0, 0.0, 0.15))
        self.ended = False

    def program(self) -> Program:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), MODES[self.mode]():
            warnings.simplefilter("ignore")
            self._inputs()
            length = self.choose.randint(1, self.options.longest)
            for _ in range(12 * length):
                if len(self.builder.statements) >= length or self.ended:
                    break
                self._statement()
        return self._finished()

    # Inputs and calls -------------------------------------------------------------------------------------------------

    def _inputs(self) -> None:
        b, choose = self.builder, self.choose
        vary = self.options.dynamic
        kinds: list[Any] = [*("nm" if vary else self.sizes.values())] * 2 + [1, 2, 3]
        rank = choose.choice((0, 1, 2, 2, 3, 4))
        whole = [choose.choice(kinds) for _ in range(rank)]
        for _ in range(choose.choice((1, 2, 2, 3))):
            shape = list(whole)
            if choose.random() < 0.3:
                shape = [1 if choose.random() < 0.4 else size for size in shape]
            if choose.random() < 0.2:
                shape = shape[choose.randrange(len(shape) + 1) :]
            if choose.random() < 0.1:
                shape = [choose.choice(kinds) for _ in range(choose.choice((1, 2, 3)))]
            if self._elements(shape) > 3000:
                shape = shape[-1:]
            b.pending.append(any_input(choose, tuple(shape), choose.choice(b.dtypes), b.grad))
            name = f"x{len(b.inputs) + len(b.pending) - 1}"
            b.values[name] = b.make(b.pending[-1], len(b.inputs) + len(b.pending) - 1)
        b.inputs += b.pending
        b.pending = []

    def _elements(self, shape: list[Any]) -> int:
        count = 1
        for size in shape:
            count *= self.sizes.get(size, size) if isinstance(size, str) else size
        return count

    def _calls(self, program: Program) -> tuple[Call, ...]:
        choose = self.choose
        count = choose.choice((3, 3, 4))
        calls = []
        for index in range(count):
            sizes = dict(self.sizes)
            if self.options.dynamic and index:
                sizes = {name: choose.choice((0, 1, 2, 3, size, size + 1, 8, 13)) for name, size in sizes.items()}
            numbers = tuple(each[index % len(each)] for each in self.builder.numbers)
            layouts: tuple[str, ...] = ()
            if index == 2 and choose.random() < 0.4:
                layouts = tuple(choose.choice((each.layout, choose.choice(LAYOUTS))) for each in program.inputs)
            written, unused = -1, 0
            if self.options.grad:
                between = random.Random(f"between the passes of {self.first_seed + index}")
                written = between.randrange(60) if between.random() < 0.4 else -1
                unused = between.randrange(8) if between.random() < 0.3 else 0
            calls.append(Call(self.first_seed + index, tuple(sizes.items()), numbers, layouts, written, unused))
        return tuple(calls)

    def _finished(self) -> Program:
        b, choose = self.builder, self.choose
        made = [name for name in b.values if name.startswith("v")]
        tensors = made or list(b.values)
        results = list(
            dict.fromkeys([*tensors[-2:], *(choose.choice(tensors) for _ in range(choose.choice((0, 1, 2))))])
        )
        if self.write_share and choose.random() < 0.2:
            results.append(choose.choice(list(b.values)))
        program = Program(
            self.seed, tuple(b.inputs), tuple(b.statements), tuple(results), (), self.options.grad,
            choose.choice((True, None)) if self.options.dynamic else choose.choice((None, None, None, False, True)),
            self.mode, dict(b.names),
        )  # fmt: skip
        program = replace(program, calls=self._calls(program))
        return program.live()

    # Statements -------------------------------------------------------------------------------------------------------

    def _statement(self) -> None:
        b, choose = self.builder, self.choose
        b.pending, b.pending_numbers = [], []
        before = dict(b.values)
        names = dict(b.names)
        try:
            if self.options.samples and choose.random() < self.options.samples:
                made = samples.statement(b)
            else:
                table: dict = WRITES if choose.random() < self.write_share else PURE
                made = choose.choices(list(table), list(table.values()))[0](b)
        except Skip:
            b.values, b.names = before, names
            return
        text, kind = made[0], made[1]
        writes = made[2] if len(made) > 2 else ""
        count = made[3] if len(made) > 3 else 1
        text, writes = self._settle(text, writes, before)
        number = sum(name.startswith("v") for name in b.values)
        targets = (
            ()
            if writes and ("=" in text and not text.endswith(")") or choose.random() < 0.7)
            else tuple(f"v{number + index}" for index in range(count))
        )
        statement = Statement(targets, text, kind, writes)
        outcome = self._try(statement)
        if outcome is None:
            b.statements.append(statement)
            return
        self._replay()
        if isinstance(outcome, (RuntimeError, IndexError, ValueError, TypeError)) and choose.random() < REFUSALS:
            b.statements.append(statement)
            self.ended = True

    def _settle(self, text: str, writes: str, before: dict[str, Any]) -> tuple[str, str]:
        """The text with the inputs and numbers that it names; others that came up while choosing are dropped."""
        b = self.builder
        renamed: dict[str, str] = {}
        for index, spec in enumerate(b.pending):
            old = f"x{index + self._known_inputs()}"
            if re.search(rf"\b{old}\b", text):
                renamed[old] = f"x{len(b.inputs) + len(renamed)}"
        values = {new: b.values[old] for old, new in renamed.items()}
        specs = [spec for index, spec in enumerate(b.pending) if f"x{index + self._known_inputs()}" in renamed]
        b.values = {**before, **values}
        # An input's values follow from its number: made again where that has changed.
        for (old, new), spec in zip(renamed.items(), specs):
            if old != new:
                b.values[new] = b.make(spec, int(new[1:]))
        known = len(b.numbers)
        numbers = {}
        for index, each in enumerate(b.pending_numbers):
            if re.search(rf"\bn{known + index}\b", text):
                numbers[f"n{known + index}"] = f"n{len(b.numbers)}"
                b.numbers.append(each)
        b.inputs += specs
        names = {**renamed, **numbers}
        rename = lambda match: names.get(match[0], match[0])
        b.pending, b.pending_numbers = [], []
        return re.sub(r"\b[xn]\d+\b", rename, text), re.sub(r"\bx\d+\b", rename, writes)

    def _known_inputs(self) -> int:
        return len(self.builder.inputs)

    def _try(self, statement: Statement) -> BaseException | None:
        """Runs the statement on what there is; the error if that fails or if it makes too much."""
        b = self.builder
        space = {**_GLOBALS, **b.names, **b.values}
        space.update({f"n{index}": each[0] for index, each in enumerate(b.numbers)})
        try:
            torch.manual_seed(self.first_seed)
            exec("\n".join(statement.lines("plain")), space)
        except Exception as error:
            return error
        for name in statement.targets:
            value = space[name]
            if isinstance(value, torch.Tensor):
                if value.layout != torch.strided or value.numel() > LARGEST or value.dim() > MOST_DIMENSIONS:
                    return MemoryError()
            elif not isinstance(value, (int, float, bool)):
                return MemoryError()
        if statement.writes and _is_undefined(statement, b.values):
            return MemoryError()
        for name in statement.targets:
            b.values[name] = space[name]
        if statement.writes and re.match(r"^\w+ \S+= ", statement.text):
            b.values[statement.writes] = space[statement.writes]
        return None

    def _replay(self) -> None:
        """All values again: a statement that fails may have written something before."""
        b = self.builder
        specs, statements = b.inputs, b.statements
        b.values = {f"x{index}": b.make(spec, index) for index, spec in enumerate(specs)}
        for statement in statements:
            self._try(statement)


def _is_undefined(statement: Statement, values: dict[str, Any]) -> bool:
    """Whether a write reads memory that it partly overwrites, or writes one place twice: eager promises nothing then."""
    target = values[statement.writes]
    if not isinstance(target, torch.Tensor):
        return True
    written = _places(target)
    if len(set(written)) != len(written):
        return True
    for name in NAMES.findall(statement.text):
        other = values.get(name)
        if name != statement.writes and isinstance(other, torch.Tensor):
            places = _places(other)
            if places != written and set(places) & set(written):
                return True
    # A tensor that is written by its own parts, as in `x[1:] = x[:-1]`.
    return statement.text.count(statement.writes) > 1 and "[" in statement.text


def _places(x: torch.Tensor) -> list[int]:
    if not x.numel():
        return []
    size = x.element_size()
    cells = torch.zeros(x.shape, dtype=torch.int64)
    for dim, step in enumerate(x.stride()):
        cells += (torch.arange(x.shape[dim]) * step * size).reshape([-1 if d == dim else 1 for d in range(x.dim())])
    return (cells + x.data_ptr()).flatten().tolist()


_GLOBALS: dict[str, Any] = {
    "torch": torch, "F": torch.nn.functional, "inf": float("inf"), "nan": float("nan"), "math": __import__("math")
}  # fmt: skip
__all__ = ["Input", "Options", "VIEW", "generate"]
