"""Decoding: one language on every version, with jump targets, exception handlers and lines that fit."""

from __future__ import annotations

import argparse
import collections
import contextlib
import enum
import inspect
import types
import typing
import unittest

from lampwork.capture.bytecode.decode import OP, OPERATIONS, decode

JUMPS = {OP[name] for name in OPERATIONS if "JUMP" in name} | {OP["FOR_ITER"], OP["SEND"]}
ASYNCHRONOUS = 0x380


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def names(function):
    return [OPERATIONS[operation] for operation, _ in decode(function.__code__).instructions]


def program(x):
    total = 0
    for i in range(x):
        try:
            total += i if i % 2 else -i
        except ValueError as error:
            print(f"{error!r:>{x}}", end="")
    return [a for a in (total, x)]


class Decoding(unittest.TestCase):
    def test_library_modules(self):
        """Every function decodes; targets are in range; nothing unsupported outside asynchronous code."""
        for module in (argparse, collections, contextlib, enum, inspect, typing):
            source = inspect.getsource(module)
            for raw in code_objects(compile(source, module.__file__, "exec")):
                code = decode(raw)
                count = len(code.instructions)
                self.assertEqual(len(code.handlers), count)
                self.assertEqual(len(code.offsets), count)
                for operation, argument in code.instructions:
                    if operation in JUMPS:
                        self.assertTrue(0 <= argument < count)
                    if not raw.co_flags & ASYNCHRONOUS:
                        self.assertNotEqual(OPERATIONS[operation], "UNSUPPORTED", (raw, argument))
                for handler in code.handlers:
                    if handler is not None:
                        self.assertTrue(0 <= handler[0] < count and handler[1] >= 0)

    def test_version_differences_are_gone(self):
        used = set(names(program))
        self.assertLessEqual({"FOR_ITER", "INPLACE_OP", "BINARY_OP", "CALL", "CALL_KW", "FORMAT_VALUE"}, used)
        self.assertTrue(used.isdisjoint({"UNSUPPORTED", "INTRINSIC_1"}))

    def test_calls_have_one_form(self):
        def call(f, o):
            return f(1, key=2) + o.method(3)

        wanted = "LOAD_METHOD LOAD_CONST CALL BINARY_OP RETURN_VALUE".split()
        self.assertEqual([name for name in names(call) if name in wanted or name == "CALL_KW"][-5:], wanted)
        self.assertIn("CALL_KW", names(call))

    def test_lines(self):
        code = decode(program.__code__)
        first = program.__code__.co_firstlineno
        lines = {code.line(index) for index in range(len(code.instructions))}
        self.assertLessEqual(lines, set(range(first, first + 8)))
        self.assertGreaterEqual(lines, {first + line for line in (1, 2, 4, 5, 6, 7)})
        self.assertEqual(code.line(10**6), first)

    def test_listing(self):
        text = decode(program.__code__).listing()
        self.assertIn("FOR_ITER", text)
        self.assertEqual(len(text.splitlines()), len(decode(program.__code__).instructions))

    def test_slots(self):
        def outer(a, b):
            c = 1

            def inner():
                return a, c

            return inner

        code = decode(outer.__code__)
        self.assertEqual(code.slots[:2], ("a", "b"))
        self.assertEqual(set(code.slots), {"a", "b", "c", "inner"})

    def test_decoded_once(self):
        self.assertIs(decode(program.__code__), decode(program.__code__))

    def test_extended_arguments(self):
        source = "def f():\n    x = 0\n" + "".join(f"    x += c{i}\n" for i in range(400)) + "    return x\n"
        namespace = {f"c{i}": i for i in range(400)}
        exec(source, namespace)
        code = decode(namespace["f"].__code__)
        loaded = [argument for operation, argument in code.instructions if operation == OP["LOAD_GLOBAL"]]
        self.assertEqual(loaded, [f"c{i}" for i in range(400)])


if __name__ == "__main__":
    unittest.main()
