"""What Python 3.14 adds to the language: template strings, deferred annotations, `except` without parentheses."""

from __future__ import annotations

import string
import sys
import unittest

from lampwork.capture.machine import Machine, World
from tests.unit.capture.machine.machine_harness import cases

# As text: older versions cannot compile it.
SOURCE = """
import abc, annotationlib, functools, string.templatelib, sys, types

def parts(template):
    return [
        part if type(part) is str else (part.value, part.expression, part.conversion, part.format_spec)
        for part in template
    ]

def program_template():
    name, width = "x", 5
    template = t"a{name!r:>{width}}b{1 + 1}{name!s}{width=}{name!a:{width}.{width}}"
    return template.strings, parts(template), template.values

def program_template_without_fields():
    return parts(t"abc"), parts(t""), parts(t"{1}"), parts(t"{1}" t"a")

def program_template_nested():
    inner = t"{1}"
    return parts(t"a{inner.strings}{t'{2}'.values}")

def program_template_values_are_kept():
    value = [1]
    template = t"{value}"
    value.append(2)
    return template.interpolations[0].value is value, template.values

def program_template_format_is_not_applied():
    class Loud:
        def __format__(self, spec):
            raise AssertionError

        def __repr__(self):
            raise AssertionError

    return len(t"{Loud()!r:x}".interpolations)

def program_template_error():
    return t"a{1 / 0}b"

def program_template_matched():
    match t"{3:d}".interpolations[0]:
        case string.templatelib.Interpolation(value, expression, conversion, spec):
            return value, expression, conversion, spec

def program_template_made():
    interpolation = string.templatelib.Interpolation(1, "x", None, "d")
    return parts(string.templatelib.Template(*["a", interpolation, "b"]))

def program_template_in_generator():
    def fields(values):
        for value in values:
            yield t"<{value}>"

    return [parts(template) for template in fields("ab")]

def program_annotations_of_functions():
    def f(a: int, *b: "text", c: later = 1, **d: list[int]) -> dict:
        x: undefined = 1
        return x

    try:
        f.__annotations__
    except NameError as error:
        return str(error), f(1), annotationlib.get_annotations(f, format=annotationlib.Format.STRING)

def program_annotations_are_deferred():
    log = []
    def f(a: log.append("asked")): pass
    before = list(log)
    return before, f.__annotations__, log, f.__annotations__

def program_annotations_of_closures():
    kind = int
    def f(a: kind, b=2, *, c=3) -> kind:
        return kind, a, b, c

    return f(1), f.__annotations__, f.__defaults__, f.__kwdefaults__, f.__annotate__.__qualname__

def program_annotate_is_called():
    def f(a: int): pass
    try:
        f.__annotate__(annotationlib.Format.STRING)
    except NotImplementedError as error:
        return f.__annotate__(1), repr(error)

def program_annotations_of_classes():
    class A:
        kind = str
        x: int
        y: kind = "y"
        if kind is str:
            z: list[kind]
        else:
            no: int
        def method(self, a: kind) -> int: ...

    return A.__annotations__, A.method.__annotations__, A.__annotate__.__qualname__

def program_annotations_of_classes_loop():
    made = []
    for on in (True, False):
        class A:
            x: int
            for name in "ab":
                if on:
                    y: str
        made.append(A.__annotations__)
    return made

def program_annotations_of_modules():
    names = {}
    exec("x: int = 1\\nif x:\\n    y: str\\nelse:\\n    z: str\\n", names)
    return names["__annotate__"](1), names["x"]

def program_conditional_annotations_rebound():
    exec("__conditional_annotations__ = 0\\nx: int = 1")

def program_generic_annotations():
    def f[T: int](a: T, b: list[T]) -> T:
        return a

    class A[K]:
        field: K
        def method[V](self, a: K, b: V): ...

    return str(f.__annotations__), str(A.__annotations__), str(A.method.__annotations__)

def program_except_without_parentheses():
    found = []
    for error in (ValueError("a"), KeyError("b"), OSError("c")):
        try:
            try:
                raise error
            except ValueError, KeyError:
                found.append("first")
        except OSError, TypeError:
            found.append("second")
    return found

def program_except_star_without_parentheses():
    found = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2), OSError(3)])
    except* ValueError, KeyError:
        found.append(repr(sys.exception()))
    except* OSError, TypeError:
        found.append(repr(sys.exception()))
    return found

def program_with():
    log = []

    class Manager:
        def __init__(self, name, hides=False):
            self.name, self.hides = name, hides

        def __enter__(self):
            log.append(f"enter {self.name}")
            return self.name

        def __exit__(self, kind, error, traceback):
            log.append(f"exit {self.name} {error!r}")
            return self.hides

    with Manager("a") as a, Manager("b") as b:
        log.append(a + b)
    with Manager("c", True):
        with Manager("d"):
            raise ValueError(1)
    for _ in range(3):
        with Manager("e"):
            if len(log) > 11:
                break
            continue

    def leave():
        with Manager("f"):
            return "left"

    return log, leave()

def program_with_looks_up_exit_first():
    log = []

    class Noted:
        def __init__(self, name):
            self.name = name

        def __get__(self, obj, cls):
            log.append(self.name)
            return lambda *args: log.append(f"called {self.name}")

    class Manager:
        __enter__ = Noted("enter")
        __exit__ = Noted("exit")

    with Manager():
        log.append("body")
    return log

def program_with_asynchronous_manager():
    class Manager:
        async def __aenter__(self): ...
        async def __aexit__(self, *args): ...

    with Manager():
        pass

def program_enter_raises():
    class Manager:
        def __enter__(self):
            raise ValueError("enter")
        def __exit__(self, *args):
            raise AssertionError

    with Manager():
        pass

def program_common_constants():
    def raising(x):
        assert x, "no"

    try:
        raising(0)
    except AssertionError as error:
        told = str(error)
    ones = [1, 0, 2]
    return told, all(x for x in ones), any(x for x in ones), tuple(x for x in ones), all(x for x in ()), any(x for x in ())

def program_common_constants_rebound():
    space = {"all": lambda values: ["mine", *values]}
    exec("result = all(x for x in (1, 2))", space)
    return space["result"]

def program_unpacked_calls():
    def f(*args, **kwargs):
        return args, kwargs

    class Callable:
        def __call__(self, *args, **kwargs):
            return args, kwargs

        def method(self, *args, **kwargs):
            return args, kwargs

    values, names = [1, 2], {"a": 3}
    made = Callable()
    return (
        f(*values), f(*values, **names), f(**names), f(0, *values, b=4, **names), f(**{}),
        made(*values), made.method(*values), made.method(0, *values, **names), max(*values),
    )

def program_unpacked_call_repeats_a_keyword():
    def f(**kwargs):
        return kwargs

    return f(a=1, **{"a": 2})

def program_small_integers():
    return [0, 1, 255, 256, 257, -1, 5 + 250], (1,)[0], "abc"[1], [1, 2, 3][1:], [1, 2, 3][0:2]

def program_unpack_counts():
    found = []
    for values in ([1, 2, 3], (1, 2, 3), {1: 1, 2: 2, 3: 3}, "abc", iter([1, 2, 3])):
        try:
            a, b = values
        except ValueError as error:
            found.append(str(error))
    return found

def program_partial_with_placeholders():
    def f(*args, **kwargs):
        return args, kwargs

    hole = functools.Placeholder
    made = functools.partial(f, hole, 2, hole, a=1)
    return made(1, 3), made(1, 3, 4, b=5), functools.partial(made, 0)(9)

def program_partial_without_its_placeholder():
    return functools.partial(lambda *args: args, functools.Placeholder, 1)()

def program_reduce_with_a_keyword():
    return functools.reduce(lambda a, b: a * 10 + b, [1, 2], initial=3)

def program_strict_map():
    try:
        list(map(lambda a, b: (a, b), [1, 2], [1], strict=True))
    except ValueError as error:
        return str(error), list(map(lambda a, b: a + b, [1, 2], [3, 4], strict=True))

def program_generator_of_frame():
    def numbers():
        yield sys._getframe().f_generator is not None

    made = numbers()
    return made.gi_frame.f_generator is made, next(made), sys._getframe().f_generator
"""

NEW = sys.version_info >= (3, 14)
NAMESPACE: dict[str, object] = {"__name__": __name__}
if NEW:
    exec(compile(SOURCE, "<python 3.14>", "exec", dont_inherit=True), NAMESPACE)

ProgramTests = unittest.skipUnless(NEW, "the language of CPython 3.14")(cases(NAMESPACE))


@unittest.skipUnless(NEW, "the language of CPython 3.14")
class Templates(unittest.TestCase):
    def test_a_world_decides_what_makes_them(self):
        """The native classes are called as a world calls natives: so a capture notices them."""
        called = []

        class Watching(World):
            def call_native(self, function, args, kwargs):
                called.append(function.__name__)
                return super().call_native(function, args, kwargs)

        space: dict[str, object] = {}
        exec('def f(x):\n    return t"a{x}b"', space)
        made = Machine(Watching()).call(space["f"], (1,))
        self.assertEqual(made.strings, ("a", "b"))
        self.assertEqual(called, ["Interpolation", "Template"])
        self.assertIs(type(made), string.templatelib.Template)


if __name__ == "__main__":
    unittest.main()
