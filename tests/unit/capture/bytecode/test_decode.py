"""Decoding: one language on every version, with jump targets, exception handlers and lines that fit."""

from __future__ import annotations

import argparse
import collections
import contextlib
import enum
import inspect
import sys
import types
import typing
import unittest

from lampwork.capture.bytecode.decode import OP, OPERATIONS, decode

JUMPS = {OP[name] for name in OPERATIONS if "JUMP" in name} | {OP["FOR_ITER"], OP["SEND"]}
ASYNCHRONOUS = 0x380
UNPACKED_CALL = OP["CALL_FUNCTION_EX"]


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

    def test_unpacked_calls_say_whether_they_have_keywords(self):
        def call(f, a, k):
            return f(*a), f(*a, **k), f(**k), f.g(*a)

        found = [argument for operation, argument in decode(call.__code__).instructions if operation == UNPACKED_CALL]
        self.assertEqual(found, [False, True, True, False])

    def test_with_has_one_form(self):
        def enter(a, b):
            with a as c, b:
                return c

        code = decode(enter.__code__)
        entered = [argument for operation, argument in code.instructions if operation == OP["BEFORE_WITH"]]
        self.assertEqual(len(entered), 2)
        # From 3.14 on, a null lies below the exit.
        self.assertEqual(set(map(bool, entered)), {sys.version_info >= (3, 14)})
        self.assertNotIn("UNSUPPORTED", names(enter))
        for index, (operation, _) in enumerate(code.instructions):
            if operation == OP["BEFORE_WITH"]:
                handler = code.handlers[index + 1]
                self.assertIsNotNone(handler)
                self.assertEqual(OPERATIONS[code.instructions[handler[0]][0]], "PUSH_EXC_INFO")

    def test_subscripts_and_constants_have_one_form(self):
        spaces: dict = {}  # a text, as pytest writes `assert` otherwise
        exec("def subscripts(x, i):\n    assert x\n    return x[i], x[1], x[i:], -i\n", spaces)
        subscripts = spaces["subscripts"]
        code = decode(subscripts.__code__)
        self.assertEqual(names(subscripts).count("BINARY_SUBSCR"), 3)
        constants = [argument for operation, argument in code.instructions if operation == OP["LOAD_CONST"]]
        self.assertIn(1, constants)
        self.assertIn(AssertionError, constants)

    def test_loops_leave_their_iterator(self):
        """Where a loop is exhausted its iterator is gone; a `break` pops it."""

        def loop(values):
            for value in values:
                if value:
                    break
            return values

        code = decode(loop.__code__)
        (target,) = [argument for operation, argument in code.instructions if operation == OP["FOR_ITER"]]
        self.assertNotEqual(OPERATIONS[code.instructions[target][0]], "POP_TOP")
        self.assertEqual(names(loop)[:target].count("POP_TOP") >= 1, True)

    @unittest.skipUnless(sys.version_info >= (3, 14), "template strings are of CPython 3.14")
    def test_template_strings(self):
        namespace = {}
        exec('def f(x):\n    return t"{x}{x!r}{x:>4}{x!a:>4}"', namespace)
        made = [
            argument
            for operation, argument in decode(namespace["f"].__code__).instructions
            if operation == OP["BUILD_INTERPOLATION"]
        ]
        self.assertEqual(made, [(0, False), (2, False), (0, True), (3, True)])
        self.assertIn("BUILD_TEMPLATE", names(namespace["f"]))

    @unittest.skipUnless(sys.version_info >= (3, 14), "annotations are deferred from CPython 3.14 on")
    def test_deferred_annotations(self):
        namespace = {}
        source = "def f(x: int, *, y: str = 1): ...\nclass A:\n    x: int\n    if f:\n        y: str"
        raw = compile(source, "<annotations>", "exec", dont_inherit=True)
        for each in code_objects(raw):
            for operation, argument in decode(each).instructions:
                self.assertNotEqual(OPERATIONS[operation], "UNSUPPORTED", (each, argument))
        exec(raw, namespace)
        annotate = namespace["f"].__annotate__
        self.assertIn((OP["LOAD_CONST"], NotImplementedError), decode(annotate.__code__).instructions)

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
