"""Generated programs as data: inputs, numbers, statements, results and calls; their source text in several variants.

    def program(x0, x1, n0):
        v0 = torch.add(x0, n0)
        v0.mul_(x1)
        return (v0,)

Every statement is a line of Python, so a program prints as what a user would write and is compiled as such. More
variants of the same text tell what a result may be: `WIDE` runs in double precision, `NOISY` multiplies what operators
that round read and return by 1 plus a few units in the last place, `NOISY_WIDE` does so in double precision, `SPREAD`
gives operators the same numbers in memory of another layout.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.fuzz.inputs import Input

PLAIN, WIDE, NOISY, NOISY_WIDE, SPREAD = "plain", "wide", "noisy", "noisy and wide", "spread"

NAMES = re.compile(r"\b[xv]\d+\b")
#: Operands: variables, and values of operator samples.
_OPERANDS = re.compile(r"\b(?:[xv]|constant)\d+\b")
_AUGMENTED = re.compile(r"(?:(\w+)( (?:[-+*/%]|//|\*\*)= ))?(.*)")
#: A method that writes to its tensor.
_IN_PLACE = re.compile(r"(\w+)\.(\w+_\(.*\))$", re.DOTALL)
#: Methods that write no elements, but change the shape.
_TURNS = re.compile(r"\.(unsqueeze|squeeze|t|transpose|swapaxes|swapdims|as_strided|resize|resize_as|detach)_\(")
_AUGMENTED_SYMBOL = re.compile(r"(\w+) ([-+*/%]|//|\*\*)= (.*)$", re.DOTALL)
_AUGMENTED_FUNCTIONS = {"+": "iadd", "-": "isub", "*": "imul", "/": "itruediv", "//": "ifloordiv", "%": "imod",
                        "**": "ipow"}  # fmt: skip
#: Folds of which IEEE 754 leaves open which of two zeros they give: eager's answer depends on its lanes.
_EXTREMES = re.compile(r"\b(?:a?max|a?min|aminmax)\(")
#: What shows the sign of a NaN, which IEEE 754 leaves open.
_SHOWS_SIGNS = re.compile(r"copysign|signbit")
_NARROW_TYPES = re.compile(r"torch\.(float16|bfloat16|float32|half|float)\b")

#: What makes tensors on a device of its own.
_FACTORIES = ("tensor", "as_tensor", "scalar_tensor", "full", "zeros", "ones", "empty", "eye", "arange", "linspace",
              "logspace", "rand", "randn", "randint", "randperm", "tril_indices", "hann_window")  # fmt: skip
_MAKES = re.compile(rf"\btorch\.({'|'.join(_FACTORIES)})\(")

#: What a statement does to numbers: nothing new is rounded; results are rounded; memory is shared.
EXACT, ROUNDS, VIEW = "exact", "rounds", "view"
#: An operand that is made a float where it is read: one of a wider type is disturbed there, too.
_CONVERTED = re.compile(r"(NOISE\(\w+\)\.float\(\))")
#: The same by an argument: `softmax(x, 1, dtype=torch.float64)` of whole numbers rounds as one of doubles does.
_CONVERTED_FIRST = re.compile(
    r"^([\w.]+\()(?:ZEROS\()?NOISE\((\w+)\)(.*\bdtype=(torch\.(?:b?float\d+|complex\d+)))", re.DOTALL
)


@dataclass(frozen=True)
class Statement:
    """`targets = text`, or just `text`. `writes` names the variable that the statement writes to in place."""

    targets: tuple[str, ...]
    text: str
    kind: str = ROUNDS
    writes: str = ""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(NAMES.findall(self.text))

    def _written_at(self, text: str) -> int:
        """Where the text names what it writes to; what it reads of the same tensor is elsewhere (`x0.addcmul_(x0, x0)`)."""
        if not self.writes:
            return -1
        places = [match.start() for match in _OPERANDS.finditer(text) if match[0] == self.writes]
        return next((each for each in places if not each or text[:each].endswith("out=")), places[0] if places else -1)

    def _operands_of_out(self) -> list[str]:
        """What a call with `out=` computes from, if that is as it is named: its type is the one that is rounded in."""
        if "out=" not in self.text or "dtype=" in self.text or re.search(r"\b[xv]\d+[.\[]", self.text):
            return []
        return sorted(self.reads - {self.writes})

    def lines(self, variant: str) -> list[str]:
        if variant == NOISY_WIDE:
            return [_widened(line) for line in self.lines(NOISY)]
        text = _widened(self.text) if variant == WIDE else self.text
        after = []
        if variant == NOISY and self.kind == ROUNDS:
            operand = "ZEROS(NOISE({}))" if _EXTREMES.search(text) else "NOISE({})"
            place = self._written_at(text)
            text = _OPERANDS.sub(lambda m: m[0] if m.start() == place else operand.format(m[0]), text)
            text = _CONVERTED.sub(r"NOISE(\1)", text)
            text = _CONVERTED_FIRST.sub(
                lambda m: text[: m.start(2)] + f"{m[2]}.to({m[4]})" + text[m.end(2) : m.end()], text
            )
            if self.writes:
                after = [f"NOISE_IN_PLACE({', '.join([self.writes, *self._operands_of_out()])})"]
            elif self.targets:
                text = f"EITHER(lambda: ROUNDED({text}), lambda: {self.text})"
        elif variant == NOISY and (_EXTREMES.search(text) or _SHOWS_SIGNS.search(text)):
            disturbed = "ZEROS" if _EXTREMES.search(text) else "SIGNED"
            text = _OPERANDS.sub(lambda m: m[0] if m[0] == self.writes else f"{disturbed}({m[0]})", text)
        in_place = _IN_PLACE.match(text) if variant == SPREAD and self.writes and not _TURNS.search(text) else None
        augmented = _AUGMENTED_SYMBOL.match(text) if variant == SPREAD and self.writes else None
        if in_place is not None and in_place[1] == self.writes:
            rest = _OPERANDS.sub(lambda match: f"SPREAD({match[0]})", in_place[2])
            text = f"SPREAD_IN_PLACE({self.writes}, lambda written: written.{rest})"
        elif augmented is not None and augmented[1] == self.writes:
            rest = _OPERANDS.sub(lambda match: f"SPREAD({match[0]})", augmented[3])
            function = f"operator.{_AUGMENTED_FUNCTIONS[augmented[2]]}"
            text = f"SPREAD_IN_PLACE({self.writes}, lambda written: {function}(written, {rest}))"
        elif variant == SPREAD and self.kind != VIEW:
            target, operator, rest = _AUGMENTED.match(text).groups("")  # type: ignore[union-attr]
            kept = self.writes if not target else ""  # `x0 += x0` reads it, too
            text = target + operator + _OPERANDS.sub(lambda m: m[0] if m[0] == kept else f"SPREAD({m[0]})", rest)
        return [f"{', '.join(self.targets)} = {text}" if self.targets else text, *after]


def _widened(text: str) -> str:
    return _NARROW_TYPES.sub("torch.float64", text).replace("torch.complex64", "torch.complex128")


@dataclass(frozen=True)
class Call:
    """Sizes by name and values of numbers of one call; `seed` chooses what tensors hold. `layouts`, if any, take the
    place of the inputs' own. `written`: of the arguments and, after these, the results, the one that the caller writes
    to between the passes (modulo their number); below 0: none. `unused`: a bit for each result that the backward pass
    does not begin at."""

    seed: int
    sizes: tuple[tuple[str, int], ...] = ()
    numbers: tuple[Any, ...] = ()
    layouts: tuple[str, ...] = ()
    written: int = -1
    unused: int = 0


@dataclass(frozen=True)
class Program:
    seed: int
    inputs: tuple[Input, ...] = ()
    statements: tuple[Statement, ...] = ()
    results: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    grad: bool = False
    dynamic: bool | None = None
    mode: str = "enable_grad"
    #: Values that the text names: callables of operator samples.
    names: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @property
    def numbers(self) -> tuple[str, ...]:
        return tuple(f"n{index}" for index in range(len(self.calls[0].numbers))) if self.calls else ()

    def input_of(self, index: int, call: Call) -> Input:
        spec = self.inputs[index]
        return replace(spec, layout=call.layouts[index]) if call.layouts else spec

    def text(self, variant: str = PLAIN) -> str:
        arguments = [f"x{index}" for index in range(len(self.inputs))] + list(self.numbers)
        lines = [f"def program({', '.join(arguments)}):"]
        for statement in self.statements:
            lines += ["    " + line for line in statement.lines(variant)]
        lines.append(f"    return ({', '.join(self.results)}{',' if len(self.results) == 1 else ''})")
        return "\n".join(lines) + "\n"

    def function(self, variant: str = PLAIN, names: dict[str, Any] | None = None, device: str = "cpu") -> Callable:
        """The program as a Python function with globals of its own, its constants on that device. On a CPU, all that it
        moves stays there.

        Constants are copies: an operator may return one as it is (`atleast_2d`), and what comes after write to it.
        """
        import math

        import torch

        known = {"torch": torch, "F": torch.nn.functional, "inf": math.inf, "nan": math.nan, "math": math}
        known.update({name: deepcopy(each) if isinstance(each, torch.Tensor) else each
                      for name, each in self.names.items()})  # fmt: skip
        known.update({"operator": operator, **(names or {})})
        text = self.text(variant)
        if device != "cpu":
            if self.seed % 2:  # of every second program, what it makes lies where its arguments do
                known.update({f"made_{name}": partial(getattr(torch, name), device=device) for name in _FACTORIES})
                text = _MAKES.sub(r"made_\1(", text)
            known = {name: each.to(device) if isinstance(each, torch.Tensor) else each for name, each in known.items()}
        else:
            known = {name: torch.device("cpu") if type(each) is torch.device else each for name, each in known.items()}
        file = f"<fuzz {self.seed} {variant}>"
        exec(compile(text, file, "exec"), known)
        return known["program"]

    def operators(self) -> tuple[str, ...]:
        """The names of what is called, for telling findings from each other."""
        found: set[str] = set()
        for statement in self.statements:
            names = re.findall(r"(?:\.|\b)([A-Za-z_]\w*)\(", statement.text)
            if not names:
                symbols = re.findall(r"(\*\*|//|<<|>>|[<>=!]=|[-+*/%@&|^<>~]=?)", NAMES.sub("", statement.text))
                names = symbols or (["getitem"] if "[" in statement.text else [])
                if re.match(r"\w+\[.*\] =", statement.text):
                    names = ["setitem"]
            found.update(names)
        return tuple(sorted(found))

    def live(self) -> Program:
        """Without statements whose results nothing reads, and without inputs and numbers that nothing reads."""
        wanted = set(self.results)
        kept: list[Statement] = []
        # A write counts where what it writes to, or anything that it may share memory with, is read: kept always.
        for statement in reversed(self.statements):
            if statement.writes or not statement.targets or wanted & set(statement.targets):
                kept.append(statement)
                wanted |= statement.reads
        return replace(self, statements=tuple(reversed(kept)))._renumbered(wanted)

    def _renumbered(self, wanted: set[str]) -> Program:
        texts = " ".join([*(each.text for each in self.statements), *self.results])
        inputs = [index for index in range(len(self.inputs)) if f"x{index}" in wanted]
        numbers = [index for index in range(len(self.numbers)) if re.search(rf"\bn{index}\b", texts)]
        if len(inputs) == len(self.inputs) and len(numbers) == len(self.numbers):
            return self
        new = {f"x{old}": f"x{at}" for at, old in enumerate(inputs)} | {f"n{old}": f"n{at}" for at, old in enumerate(numbers)}  # fmt: skip
        renamed = lambda text: re.sub(r"\b[xn]\d+\b", lambda match: new.get(match[0], match[0]), text)
        calls = tuple(
            replace(
                each,
                numbers=tuple(each.numbers[at] for at in numbers),
                layouts=tuple(each.layouts[at] for at in inputs) if each.layouts else (),
            )
            for each in self.calls
        )
        return replace(
            self,
            inputs=tuple(self.inputs[at] for at in inputs),
            statements=tuple(
                replace(
                    each,
                    text=renamed(each.text),
                    writes=renamed(each.writes),
                    targets=tuple(map(renamed, each.targets)),
                )
                for each in self.statements
            ),  # fmt: skip
            results=tuple(map(renamed, self.results)),
            calls=calls,
        )
