"""Programs of tests/python/programs: each runs as written and compiled, side by side, and everything must come out equal.

    @program(lambda: torch.ones(4), dict)
    def stores_in_argument(x, table):
        table["double"] = x * 2
        return x + 1

A program is a function and makers of its arguments. Every file of `programs/` is a feature. For each program its file is
executed afresh twice, once for each side, so globals, classes, closures and caches of the two sides share nothing and all
of them can be compared as effects.

The calls: twice on fresh arguments, then once more on the arguments of the second call; a program of several `calls`
gets the arguments of each, one after the other, and those of the last once more. After each call both sides must
agree in result or exception (type, args, chain, the lines of the program in its traceback), arguments, globals, printed
text, warnings, log records and random number generators; `compare.py` says what equal means. State outside the arguments
stays from call to call.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils.hooks import RemovableHandle

import lampwork
from lampwork.errors import LampworkError, LampworkWarning
from tests.python.compare import Comparison, Failure, Mismatch

PROGRAMS = Path(__file__).parent / "programs"
#: Calls of a program with one kind of arguments: the index of the arguments each is given.
CALLS = (0, 1, 1)
#: Programs that do not equal eager yet, with the reason.
REMAINING = {
    "weak_references_with_callbacks": "what finishes natively is held by the call until it is over",
    "backward_hooks_of_modules": "a warning given by a hook counts frames of the engine that are not there",
}
#: Entries come from, and go to, the on-disk cache.
CACHED = os.environ.get("LAMPWORK_PROGRAMS_CACHED") == "1"
_PACKAGE = "tests.python.programs"


@dataclass(frozen=True)
class Program:
    """`function(*[make() for make in makers])`, or `function(*together())` where arguments share parts.

    `grad`: it runs with gradients enabled, as only programs about them do. `calls`: makers of the arguments of calls
    that differ.
    """

    function: Callable
    makers: tuple[Callable[[], Any], ...]
    grad: bool = False
    together: Callable[[], Iterable[Any]] | None = None
    calls: tuple[Callable[[], Iterable[Any]], ...] = ()

    def arguments(self, which: int = 0) -> list[Any]:
        """The arguments of a call, made afresh."""
        if self.calls:
            return list(self.calls[which]())
        return [make() for make in self.makers] if self.together is None else list(self.together())

    @property
    def order(self) -> tuple[int, ...]:
        """Which arguments each call gets."""
        return (*range(len(self.calls)), len(self.calls) - 1) if self.calls else CALLS

    @property
    def name(self) -> str:
        return self.function.__name__


_registry: list[Program] = []


def program(
    *makers: Callable[[], Any],
    grad: bool = False,
    together: Callable[[], Iterable[Any]] | None = None,
    calls: Iterable[Callable[[], Iterable[Any]]] = (),
) -> Callable[[Callable], Callable]:
    """Registers a program; each of `makers` gives one argument afresh, `together` gives all of them, and each of
    `calls` gives all of one call."""

    def register(function: Callable) -> Callable:
        _registry.append(Program(function, makers, grad, together, tuple(calls)))
        return function

    return register


def load_feature(feature: str) -> tuple[types.ModuleType, dict[str, Program]]:
    """The file of a feature, executed afresh, with its programs by name. Raises ValueError for a name defined twice."""
    name = f"{_PACKAGE}.{feature}"
    spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{feature}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _registry.clear()
    with _installed(module):
        spec.loader.exec_module(module)
    programs = {each.name: each for each in _registry}
    if len(programs) != len(_registry):
        names = [each.name for each in _registry]
        raise ValueError(f"{feature}.py defines twice: {sorted({each for each in names if names.count(each) > 1})}")
    _registry.clear()
    return module, programs


def features() -> list[str]:
    return sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "__init__")


def all_programs() -> list[tuple[str, str]]:
    """(feature, name) of every program."""
    return [(feature, name) for feature in features() for name in load_feature(feature)[1]]


@contextlib.contextmanager
def _installed(module: types.ModuleType) -> Iterator[None]:
    """`module` is what an import of its name gives."""
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, ...]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("lampwork"):
            self.seen.append((record.name, record.levelno, record.getMessage(), record.funcName, record.lineno))


class Side:
    """One execution of a program: its own module, its own arguments, and what came out of the last call."""

    def __init__(self, feature: str, name: str, compiled: bool) -> None:
        RemovableHandle.next_id = 0  # hooks are numbered in the process: each side counts its own
        self.module, programs = load_feature(feature)
        self.next_hook = RemovableHandle.next_id
        self.program = programs[name]
        self.file = str(PROGRAMS / f"{feature}.py")
        self.function = self.program.function
        if compiled:
            self.function = lampwork.compile(self.function, options={"cache": CACHED})
        self.arguments: dict[int, list[Any]] = {}
        self.printed = io.StringIO()

    def call(self, which: int, seed: int) -> dict[str, Any]:
        """Calls the program on arguments number `which`; everything that can be observed afterwards, by name."""
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed)
        self.printed.seek(0)
        self.printed.truncate()
        records = _Records()
        result: Any
        with contextlib.ExitStack() as stack:
            stack.enter_context(_installed(self.module))
            stack.enter_context(torch.set_grad_enabled(self.program.grad))
            RemovableHandle.next_id = self.next_hook
            if which not in self.arguments:
                self.arguments[which] = self.program.arguments(which)
            stack.enter_context(contextlib.redirect_stdout(self.printed))
            stack.enter_context(contextlib.redirect_stderr(self.printed))
            caught = stack.enter_context(warnings.catch_warnings(record=True))
            warnings.simplefilter("always")
            logging.getLogger().addHandler(records)
            stack.callback(logging.getLogger().removeHandler, records)
            try:
                result = self.function(*self.arguments[which])
            except LampworkError:
                raise
            except BaseException as error:
                result = Failure(error, self.file)
            grad_mode, self.next_hook = torch.is_grad_enabled(), RemovableHandle.next_id
        return {
            "result": result,
            "arguments": self.arguments[which],
            "globals": {name: value for name, value in vars(self.module).items() if not name.startswith("__")},
            "printed": self.printed.getvalue(),
            "warnings": [
                (each.category, str(each.message), *self._place(each.filename, each.lineno))
                for each in caught
                if not issubclass(each.category, LampworkWarning)
            ],
            "log": records.seen,
            "random numbers": (torch.get_rng_state(), random.getstate(), numpy.random.get_state()),
            "grad mode": grad_mode,
        }

    def _place(self, file: str, line: int) -> tuple[str, int]:
        """Where a warning points: a line of the program, or its caller, whoever that is (`stacklevel`)."""
        return (file, line) if file == self.file else ("caller", 0)


@dataclass
class Outcome:
    """How a program came out: `mismatch` is empty where it equals eager, `reasons` where it was captured in one piece."""

    feature: str
    name: str
    mismatch: str = ""
    reasons: list[str] = field(default_factory=list)
    captures: int = 0
    cache_hits: int = 0

    @property
    def captured(self) -> bool:
        return not self.reasons


def run_program(feature: str, name: str) -> Outcome:
    """Runs one program on both sides and compares after each call.

    Raises what the compiler raises under LAMPWORK_STRICT=1; a difference between the sides is reported, not raised.
    """
    torch.manual_seed(0)
    eager, compiled = Side(feature, name, False), Side(feature, name, True)
    outcome = Outcome(feature, name)
    raised = 0
    for number, which in enumerate(eager.program.order):
        expected = eager.call(which, number)
        raised += isinstance(expected["result"], Failure)
        found = compiled.call(which, number)
        try:
            Comparison(eager.module.__name__).compare(expected, found)
        except Mismatch as difference:
            outcome.mismatch = f"call {number + 1}: {difference}"
            break
    stats = lampwork.stats(compiled.function)
    outcome.captures, outcome.cache_hits = stats["captures"], stats["cache_hits"]
    # A call that eager raises in is made eagerly, which left nothing uncaptured; more of them than raise are fall-backs.
    records = [
        each for each in (*stats["fallbacks"], *stats["breaks"]) if each.id != "exception" or each.count > raised
    ]
    outcome.reasons = [f"[{each.id}] {each.reason}" for each in records]
    outcome.reasons = list(dict.fromkeys(outcome.reasons))
    if stats.get("continuations") and not outcome.reasons:
        outcome.reasons.append("it has continuations")
    return outcome
