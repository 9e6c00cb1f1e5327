"""The machine's own interface: worlds, locations, frames as data, interruption and resumption."""

from __future__ import annotations

import contextlib
import cProfile
import operator
import sys
import types
import unittest

from lampwork.capture.machine import (
    UNBOUND,
    Enter,
    InPython,
    Interruption,
    Machine,
    MachineGenerator,
    Natives,
    Unsupported,
    World,
)
from tests.unit.capture.machine.machine_harness import lines


class Stop(Interruption):
    pass


@contextlib.contextmanager
def told_by(install):
    """What runs here is told to a function of Python's."""
    kept = []

    def tell(frame, event, argument):
        kept.append((frame, event, frame.f_lineno))
        return tell

    install(tell)
    try:
        yield
    finally:
        install(None)


@contextlib.contextmanager
def monitored():
    """What runs here is told to a function for each event that there is, from Python 3.12 on."""
    monitoring, tool = sys.monitoring, 4
    monitoring.use_tool_id(tool, "tests")
    events = [value for name, value in vars(monitoring.events).items() if name.isupper() and value]
    told = [event for event in events if event not in (monitoring.events.C_RETURN, monitoring.events.C_RAISE)]
    for event in events:
        monitoring.register_callback(tool, event, lambda *what: None)
    monitoring.set_events(tool, sum(told))
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


#: The profilers of the standard library, and functions of the kinds that debuggers and measures of coverage install.
PROFILING = {
    "cProfile": cProfile.Profile,
    "profile": lambda: told_by(sys.setprofile),
    "trace": lambda: told_by(sys.settrace),
}
if sys.version_info >= (3, 12):
    PROFILING["monitoring"] = monitored


def stop(*args):
    raise AssertionError("runs only as an interruption")


class StoppingWorld(World):
    """Interrupts at every call of `stop`."""

    def call(self, function, args, kwargs):
        if function is stop:
            raise Stop(args)
        return super().call(function, args, kwargs)


def in_a_callee(n):
    def inner(x):
        got = stop(x)
        return got + 1

    return inner(n) * 2


def in_a_loop(n):
    out = []
    for i in range(n):
        out.append(stop(i))
    return out


def in_try_and_with(log):
    import contextlib

    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "left")
        try:
            return stop("in try")
        finally:
            log.append("finally")


def in_a_handler():
    try:
        raise KeyError("k")
    except KeyError:
        stop("handling")
        first = sys.exc_info()[0]
        try:
            raise ValueError
        except ValueError as error:
            return first, type(error.__context__)


def in_a_generator():
    def g():
        for i in range(3):
            yield stop(i)

    return [x for x in g()]


def in_a_generator_given_to_a_native():
    def g():
        for i in range(3):
            yield stop(i)

    return sum(g()), any(x > 100 for x in g())


def in_a_property_and_an_operator():
    class A:
        @property
        def p(self):
            return stop("property")

        def __getitem__(self, key):
            return stop(key)

    return A().p, A()["item"]


def in_an_init():
    class A:
        def __init__(self, x):
            self.x = stop(x)

    return A(3).x


def run_with_stops(function, *args):
    """The result, each stop giving ten times its argument (or the text) and counted."""
    count = 0
    machine = Machine(StoppingWorld())

    def answer(interruption):
        (value,) = interruption.args[0]
        return value * 10 if isinstance(value, int) else value

    def step(run):
        nonlocal count, machine
        try:
            return run(), None
        except Stop as interruption:
            count += 1
            assert machine.frames == []
            machine = Machine(StoppingWorld())
            return None, interruption

    result, interruption = step(lambda: machine.call(function, args))
    while interruption is not None:
        pending = interruption
        for frame in pending.frames:
            if frame.generator is not None:
                frame.generator.machine = machine
        result, interruption = step(lambda: machine.resume(pending, answer(pending)))
    return result, count


class Interruptions(unittest.TestCase):
    def test_resumed_where_they_stopped(self):
        log = []
        self.assertEqual(run_with_stops(in_a_callee, 4), (82, 1))
        self.assertEqual(run_with_stops(in_a_loop, 3), ([0, 10, 20], 3))
        self.assertEqual(run_with_stops(in_try_and_with, log), ("in try", 1))
        self.assertEqual(log, ["finally", "left"])
        self.assertEqual(run_with_stops(in_a_handler), ((KeyError, KeyError), 1))
        self.assertEqual(run_with_stops(in_a_generator), ([0, 10, 20], 3))
        self.assertEqual(run_with_stops(in_a_generator_given_to_a_native), ((30, False), 6))
        self.assertEqual(run_with_stops(in_a_property_and_an_operator), (("property", "item"), 2))
        self.assertEqual(run_with_stops(in_an_init), (30, 1))

    def test_resumed_with_an_error(self):
        def f():
            try:
                return stop(1)
            except ValueError as error:
                return str(error)

        machine = Machine(StoppingWorld())
        with self.assertRaises(Stop) as caught:
            machine.call(f)
        self.assertEqual(machine.resume(caught.exception, error=ValueError("from outside")), "from outside")

    def test_native_code_between_frames(self):
        machine = Machine(StoppingWorld())
        with self.assertRaises(Stop) as caught:
            machine.call(lambda: sorted([2, 1], key=lambda x: stop(x)))
        self.assertEqual(len(caught.exception.depths), 2)
        self.assertEqual(machine.frames, [])
        with self.assertRaises(Unsupported):
            machine.resume(caught.exception, 1)

    def test_no_handler_of_the_program_runs(self):
        log = []

        def f():
            try:
                stop()
            except BaseException:
                log.append("except")
            finally:
                log.append("finally")

        with self.assertRaises(Stop):
            Machine(StoppingWorld()).call(f)
        self.assertEqual(log, [])


class Locations(unittest.TestCase):
    def test_location_and_getframe(self):
        seen = []

        def probe():
            seen.append(machine.location())

        class Probing(World):
            def call_native(self, function, args, kwargs):
                if function is len:
                    probe()
                return super().call_native(function, args, kwargs)

        def f():
            return sys._getframe().f_lineno, sys._getframe().f_code.co_name, sys._getframe().f_locals["marker"]

        def g():
            marker = "here"
            return sys._getframe(), marker

        machine = Machine(World())
        self.assertEqual(machine.location(), ("<native>", 0))
        view, _ = machine.call(g)
        self.assertEqual(view.f_code, g.__code__)
        with self.assertRaises(Unsupported):
            machine.call(lambda: sys._getframe(50))

    def test_substitutes(self):
        def double(x):
            return x * 2

        answers = {abs: InPython(double), len: lambda world, value: world.machine.location()[1]}
        machine = Machine(World(Natives(answers)))
        self.assertEqual(machine.call(lambda: abs(-4)), -8)
        first = (lambda: 0).__code__.co_firstlineno
        self.assertEqual(machine.call(lambda: len([])), first + 1)


class Tracebacks(unittest.TestCase):
    def test_frames_of_tracebacks_can_be_inspected(self):
        def outer(a, *rest, key=1):
            b = a

            def inner():
                x = [b, key]
                raise ValueError(x, rest)

            return [inner() for _ in range(2)]

        try:
            Machine(World()).call(outer, (1, 2))
        except ValueError as error:
            entry = error.__traceback__
        seen = []
        while entry is not None:
            frame = entry.tb_frame
            if frame.f_code.co_filename == __file__:
                seen.append((frame.f_code.co_name, dict(frame.f_locals), frame.f_lineno == entry.tb_lineno))
            entry = entry.tb_next
        self.assertEqual(seen[0][0], self.test_frames_of_tracebacks_can_be_inspected.__name__)
        self.assertEqual([name for name, _, _ in seen[1:] if name != "<listcomp>"], ["outer", "inner"])
        for _, names, same_line in seen[1:]:
            self.assertEqual((names, same_line), ({}, True))

    def test_under_profilers_and_tracers(self):
        """They would be told of frames before these are moved into their generators, which ended the process."""

        class Items:
            def __getitem__(self, place):
                if isinstance(place, slice):
                    return Items()
                return [1, 2][place]

        def program():
            return sorted((each for each in Items()), reverse=True)

        def failing():
            try:
                Items()[5]
            except IndexError as error:
                return lines(error, __file__)

        def deeper(levels, function):
            # Frames lie in chunks of memory: what is told of one too early shows where its end is the end of a chunk.
            if levels:
                return deeper(levels - 1, function)
            with profiling():
                return Machine(World()).call(function)

        expected = failing()
        for name, profiling in PROFILING.items():
            with self.subTest(name):
                self.assertEqual(deeper(0, failing), expected)
                for levels in range(200):
                    self.assertEqual(deeper(levels, program), [2, 1])
        self.assertEqual((sys.gettrace(), sys.getprofile()), (None, None))


class Worlds(unittest.TestCase):
    def test_operations_are_the_worlds(self):
        log = []

        class Logged(World):
            def binary_op(self, op, left, right):
                log.append((op, left, right))
                return super().binary_op(op, left, right)

            def load_global(self, frame, name):
                log.append(name)
                return super().load_global(frame, name)

            def instance_lookup(self, obj, name):
                log.append(name)
                return super().instance_lookup(obj, name)

        def f(x):
            return x.imag + len("ab")

        self.assertEqual(Machine(Logged()).call(f, (2,)), 2)
        self.assertEqual(log, ["len", (operator.add, 0, 2)])
        box = types.SimpleNamespace(attribute=5)
        log.clear()
        self.assertEqual(Machine(Logged()).call(lambda b: b.attribute, (box,)), 5)
        self.assertEqual(log, ["attribute"])

    def test_an_operation_may_enter_a_function(self):
        def added(a, b):
            return ("added", a, b)

        class Entering(World):
            def binary_op(self, op, left, right):
                return Enter(added, (left, right))

        self.assertEqual(
            Machine(Entering()).call(lambda: object and (1).__class__ and (lambda a: a + 1)(2)), ("added", 2, 1)
        )

    def test_refused_functions_run_natively(self):
        class Refusing(World):
            def should_interpret(self, function):
                return function.__name__ != "native"

        def native():
            return sys._getframe().f_code.co_name

        self.assertEqual(Machine(Refusing()).call(lambda: native()), "native")

    def test_generators_outlive_the_call(self):
        def g():
            try:
                yield 1
                yield 2
            finally:
                log.append("closed")

        log = []
        machine = Machine(World())
        made = machine.call(g)
        self.assertIs(type(made), MachineGenerator)
        self.assertEqual(next(made), 1)
        frame = made.frame
        self.assertEqual((frame.stack, frame.code.raw), ([], g.__code__))
        del made, frame
        self.assertEqual(log, ["closed"])

    def test_unbound_slots(self):
        def f():
            if stop is None:
                x = 1
            stop(1)
            return x

        machine = Machine(StoppingWorld())
        with self.assertRaises(Stop) as caught:
            machine.call(f)
        frame = caught.exception.frames[-1]
        self.assertIs(frame.locals[frame.code.slots.index("x")], UNBOUND)
        self.assertEqual(frame.variables(), {})

    def test_a_program_may_rebind_builtins(self):
        import builtins

        def f():
            saved = builtins.len, builtins.isinstance, builtins.type
            builtins.len = builtins.isinstance = builtins.type = None
            try:
                return [x + 1 for x in range(3)]
            finally:
                builtins.len, builtins.isinstance, builtins.type = saved

        self.assertEqual(Machine(World()).call(f), [1, 2, 3])


if __name__ == "__main__":
    unittest.main()
