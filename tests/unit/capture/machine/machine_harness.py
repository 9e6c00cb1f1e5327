"""Runs small programs natively and in the machine and compares what happened.

A program is a function without arguments.  Compared are its value, or the exception with its message, its chain of
causes and contexts, and the functions and lines of its traceback.  No dependency but the standard library.
"""

from __future__ import annotations

import traceback
import types
import unittest
from typing import Any

from lampwork.capture.machine import Machine, World


def describe_error(error: BaseException | None, depth: int = 0) -> Any:
    if error is None or depth > 6:
        return None
    nested = ()
    if isinstance(error, BaseExceptionGroup):
        nested = tuple(describe_error(each, depth + 1) for each in error.exceptions)
    return (
        type(error).__name__,
        str(error),
        error.__suppress_context__,
        describe_error(error.__cause__, depth + 1),
        describe_error(error.__context__, depth + 1),
        nested,
    )


def lines(error: BaseException, filename: str) -> list[tuple[str, int]]:
    """(function, line) of the traceback's entries in the file of the programs."""
    entries = traceback.extract_tb(error.__traceback__)
    return [(entry.name, entry.lineno or 0) for entry in entries if entry.filename == filename]


def outcome(run: Any, filename: str) -> tuple[Any, ...]:
    try:
        value = run()
    except BaseException as error:
        return "raised", describe_error(error), lines(error, filename)
    return "returned", type(value).__name__, repr(value)


def cases(namespace: dict[str, Any], base: type = unittest.TestCase) -> type:
    """A TestCase with one method for every function of the namespace whose name begins with `program_`."""
    made: dict[str, Any] = {}
    for name, function in list(namespace.items()):
        if name.startswith("program_") and isinstance(function, types.FunctionType):

            def method(self: unittest.TestCase, function: Any = function) -> None:
                filename = function.__code__.co_filename
                native = outcome(function, filename)
                machine = Machine(World())
                interpreted = outcome(lambda: machine.call(function), filename)
                self.maxDiff = None
                self.assertEqual(native, interpreted)
                self.assertEqual(machine.frames, [])

            made["test_" + name.removeprefix("program_")] = method
    return type("ProgramTests", (base,), made)
