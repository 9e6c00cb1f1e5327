"""`reduce(program, fails)`: the smallest program found that fails in the same way.

Steps, each kept where the smaller program still fails: fewer calls, fewer results, fewer statements, a statement's
result as an input of its own, one variable in another's place, smaller sizes, plainer layouts, values and numbers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from tests.fuzz.inputs import FLOATS, Input
from tests.fuzz.program import NAMES, Call, Program, Statement
from tests.fuzz.run import run_call

Fails = Callable[[Program], bool]


def reduce(program: Program, fails: Fails, seconds: float = 20.0) -> Program:
    deadline = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < deadline:
        changed = False
        for step in (_calls, _results, _statements, _cuts, _merged, _sizes, _inputs, _numbers):
            again = True
            while again and time.monotonic() < deadline:
                again = False
                for candidate in step(program):
                    if time.monotonic() > deadline:
                        break
                    if _cost(candidate) < _cost(program) and _is_valid(candidate) and fails(candidate):
                        program, again, changed = candidate, True, True
                        break
    return program


def _cost(program: Program) -> tuple:
    elements = sum(_elements(each, program.calls[0]) for each in program.inputs)
    plain = sum((each.layout != "plain") + 2 * (each.values != "quarters") + (each.dtype != "float32") + 2 * (each.leaf not in ("", "leaf")) for each in program.inputs)  # fmt: skip
    numbers = sum(len(set(map(str, each))) for each in zip(*(call.numbers for call in program.calls)))
    return (
        len(program.statements), len(program.calls), len(program.results), len(program.inputs),
        len(" ".join(each.text for each in program.statements)), plain + numbers + len(program.numbers), elements,
        sum(size for call in program.calls for _, size in call.sizes), sum(bool(call.layouts) for call in program.calls),
        sum((call.written >= 0) + bool(call.unused) for call in program.calls),
        program.dynamic is not None, program.mode != "no_grad",
    )  # fmt: skip


def _elements(spec: Input, call: Call) -> int:
    count = 1
    for size in spec.sizes(dict(call.sizes)):
        count *= size
    return count


def _is_valid(program: Program) -> bool:
    """Whether names are defined where they are read."""
    known = {f"x{index}" for index in range(len(program.inputs))} | set(program.numbers)
    for statement in program.statements:
        if not set(re.findall(r"\b[xvn]\d+\b", statement.text)) <= known:
            return False
        known |= set(statement.targets)
    return bool(program.results) and set(program.results) <= known and bool(program.calls)


def _calls(program: Program) -> Iterator[Program]:
    for index in range(len(program.calls) if len(program.calls) > 1 else 0):
        yield replace(program, calls=program.calls[:index] + program.calls[index + 1 :])
    for index, call in enumerate(program.calls):
        for plainer in (replace(call, layouts=()), replace(call, written=-1), replace(call, unused=0)):
            if plainer != call:
                yield replace(program, calls=(*program.calls[:index], plainer, *program.calls[index + 1 :]))
    if program.dynamic is not None:
        yield replace(program, dynamic=None)
    if program.mode != "no_grad" and not program.grad:
        yield replace(program, mode="no_grad")


def _results(program: Program) -> Iterator[Program]:
    for index in range(len(program.results)):
        yield replace(program, results=program.results[:index] + program.results[index + 1 :]).live()


def _statements(program: Program) -> Iterator[Program]:
    count = len(program.statements)
    size = max(count // 2, 1)
    while size:
        for start in range(0, count, size):
            rest = program.statements[:start] + program.statements[start + size :]
            known = {f"x{index}" for index in range(len(program.inputs))} | {t for each in rest for t in each.targets}
            results = tuple(each for each in program.results if each in known)
            if results:
                yield replace(program, statements=rest, results=results).live()
        size //= 2
    # A statement's result is one of its operands instead.
    for at, statement in enumerate(program.statements):
        if len(statement.targets) == 1:
            for name in sorted(statement.reads):
                yield _renamed(
                    replace(program, statements=program.statements[:at] + program.statements[at + 1 :]),
                    statement.targets[0],
                    name,
                ).live()
    for at, statement in enumerate(program.statements):
        for text in _simpler(statement.text):
            changed = replace(statement, text=text)
            yield replace(program, statements=(*program.statements[:at], changed, *program.statements[at + 1 :])).live()


def _simpler(text: str) -> Iterator[str]:
    """Without one keyword argument."""
    for match in re.finditer(r", \w+=[^,()\[\]]+(?=[,)])", text):
        yield text[: match.start()] + text[match.end() :]


def _renamed(program: Program, old: str, new: str) -> Program:
    swap = lambda text: re.sub(rf"\b{old}\b", new, text)
    return replace(
        program,
        statements=tuple(replace(each, text=swap(each.text), writes=swap(each.writes)) for each in program.statements),
        results=tuple(map(swap, program.results)),
    )


def _cuts(program: Program) -> Iterator[Program]:
    """What one statement makes becomes an input of the same shape, type and strides."""
    call = program.calls[-1]
    for at in reversed(range(len(program.statements))):
        statement = program.statements[at]
        for target in statement.targets:
            probe = replace(program, statements=program.statements[: at + 1], results=(target,), grad=False)
            value = run_call(probe.function(), probe, call).values.get("result 0")
            if not isinstance(value, torch.Tensor) or value.numel() > 2000 or value.dim() > 6:
                continue
            named = {size: name for name, size in call.sizes} if program.dynamic is not None else {}
            shape = tuple(named.get(size, size) for size in value.shape)
            dtype = str(value.dtype).removeprefix("torch.")
            for values in ("quarters", "normal", "special", "wide") if dtype in FLOATS else ("small",):
                leaf = "leaf" if program.grad and dtype in FLOATS else ""
                spec = Input(shape, dtype, "plain", values, leaf)
                new = f"x{len(program.inputs)}"
                rest = program.statements[:at] + program.statements[at + 1 :]
                others = tuple(each for each in statement.targets if each != target)
                if others:
                    continue
                calls = tuple(
                    replace(each, layouts=(*each.layouts, "plain") if each.layouts else ()) for each in program.calls
                )
                cut = replace(program, inputs=(*program.inputs, spec), statements=rest, calls=calls)
                yield _renamed(cut, target, new).live()


def _merged(program: Program) -> Iterator[Program]:
    """One variable in another's place."""
    names = [f"x{index}" for index in range(len(program.inputs))] + [
        t for each in program.statements for t in each.targets
    ]
    for at, old in reversed(list(enumerate(names))):
        for new in names[:at]:
            if any(old in each.targets for each in program.statements):
                continue
            yield _renamed(program, old, new).live()


def _sizes(program: Program) -> Iterator[Program]:
    # The same size everywhere at once, then one at a time.
    sizes = sorted({size for each in program.inputs for size in each.shape if isinstance(size, int)}, reverse=True)
    for size in sizes:
        for smaller in {1, 2, 3, size // 2, size - 1}:
            if 0 < smaller < size:
                yield replace(
                    program,
                    inputs=tuple(replace(each, shape=tuple(smaller if s == size else s for s in each.shape)) for each in program.inputs),
                )  # fmt: skip
    for index, spec in enumerate(program.inputs):
        for dim, size in enumerate(spec.shape):
            if isinstance(size, int):
                for smaller in sorted({1, 2, 3, size // 2, size - 1}):
                    if 0 < smaller < size:
                        yield _with_input(
                            program, index, replace(spec, shape=(*spec.shape[:dim], smaller, *spec.shape[dim + 1 :]))
                        )
                yield _with_input(program, index, replace(spec, shape=spec.shape[:dim] + spec.shape[dim + 1 :]))
            else:
                known = dict(program.calls[0].sizes)
                if len(program.calls) == 1:
                    yield _with_input(
                        program, index, replace(spec, shape=(*spec.shape[:dim], known[size], *spec.shape[dim + 1 :]))
                    )


def _inputs(program: Program) -> Iterator[Program]:
    for index, spec in enumerate(program.inputs):
        if spec.layout != "plain":
            yield _with_input(program, index, replace(spec, layout="plain"))
        if spec.dtype != "float32" and spec.dtype in FLOATS:
            yield _with_input(program, index, replace(spec, dtype="float32"))
        if spec.values != "quarters" and spec.dtype in FLOATS:
            yield _with_input(program, index, replace(spec, values="quarters"))
        if spec.leaf not in ("", "leaf"):
            yield _with_input(program, index, replace(spec, leaf="leaf"))


def _with_input(program: Program, index: int, spec: Input) -> Program:
    return replace(program, inputs=(*program.inputs[:index], spec, *program.inputs[index + 1 :]))


def _numbers(program: Program) -> Iterator[Program]:
    """A number that varies as a constant of the text; plainer values of it."""
    for index, name in enumerate(program.numbers):
        for value in dict.fromkeys(str(call.numbers[index]) for call in program.calls):
            yield replace(
                program,
                statements=tuple(replace(each, text=re.sub(rf"\b{name}\b", value, each.text)) for each in program.statements),
            ).live()  # fmt: skip


__all__ = ["NAMES", "Statement", "reduce"]
