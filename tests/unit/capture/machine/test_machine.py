"""Control flow, exceptions, functions, generators: every program runs natively and in the machine."""

# The programs use names before and after their lives on purpose.
# ruff: noqa: F821, F401

from __future__ import annotations

import contextlib
import functools
import sys
import unittest

from tests.unit.capture.machine.machine_harness import cases

GLOBAL = 10


# -- expressions, loops


def program_arithmetic():
    return 7 // 2, 7 % 3, 2**10, 7 / 2, -3, ~5, +True, 1 << 4, 256 >> 2, 6 & 3, 6 | 3, 6 ^ 3


def program_in_place():
    a = 5
    a += 2
    a -= 1
    a *= 3
    a //= 2
    a **= 2
    a %= 50
    b = [1]
    c = b
    b += (2, 3)
    b *= 2
    return a, b, c is b


def program_comparison_chain():
    out = []
    for x in range(6):
        out.append((1 < x < 4, 1 < x != 3, not x, x and 7, x or 8, None if x > 2 else x))
    return out


def program_while_else():
    out = []
    for limit in (3, 10):
        n = 0
        while n < 6:
            n += 1
            if n == 2:
                continue
            if n == limit:
                break
        else:
            out.append("no break")
        out.append(n)
    return out


def program_for_else():
    for x in ():
        pass
    else:
        y = "empty"
    for x in [1, 2, 3]:
        if x == 2:
            break
    else:
        y = "bad"
    return x, y


def program_none_tests():
    return [(v is None, v is not None, "n" if v is None else "s") for v in (None, 0, "")]


def program_slices():
    data = list(range(10))
    data[2:4] = "ab"
    del data[:1]
    data[::3] = [0] * len(data[::3])
    return data, data[1:5], data[::-1], "hello"[1:-1], data[-1]


def program_many_locals_and_long_jumps():
    total = 0
    for i in range(3):
        if i % 2:
            total += 1
            total += i * 2 + (i * 3 if i else 4) + len(str(i)) + (i or 5) + (i and 6)
        else:
            total += sum([i, i, i]) + max(i, 2) + min(i, 2) + (i or 5) + (i and 6)
    return total


def program_fstrings():
    x, y, width = 3.14159, "é", 10
    return f"{x:.2f} {y!r:>{width}} {y!a} {x!s:8} {x=} {1 + 1 = } {{}}"


def program_walrus():
    if (n := len("four")) > 3:
        return n, [m for v in range(5) if (m := v * n) > 4], m


def program_containers():
    a, b = [1, 2], (3, 4)
    return [*a, *b], (*a, 9), {*a, *b} == {1, 2, 3, 4}, {**{"k": 1}, "m": 2, **{"k": 3}}, {1: "a", 2: "b"}


def program_unpacking():
    a, b = 1, 2
    a, b = b, a
    (c, d), *e, f = [(1, 2), 3, 4, 5]
    *g, h = "xyz"
    [i, [j]] = 1, [2]
    return a, b, c, d, e, f, g, h, i, j


def program_unpack_too_many():
    a, b = 1, 2, 3


def program_unpack_too_few():
    a, b, c = iter([1, 2])


def program_unpack_starred_too_few():
    a, *b, c, d = [1, 2]


def program_unpack_not_iterable():
    a, b = 5


def program_unpack_dict_not_mapping():
    return {**[1]}


def program_list_star_not_iterable():
    return [*5]


def program_comprehensions():
    x = "outer"
    squares = [x * x for x in range(4)]
    pairs = [(a, b) for a in range(3) if a for b in range(a)]
    nested = [[i * j for j in range(3)] for i in range(2)]
    return x, squares, pairs, nested, {k: v for k, v in zip("ab", (1, 2))}, sorted({c for c in "hello"})


def program_comprehension_closure():
    functions = [lambda: i for i in range(3)]
    return [f() for f in functions], [(lambda: j)() for j in range(3)]


def program_comprehension_raises():
    a = 1
    try:
        [1 // (2 - a) for a in range(5)]
    except ZeroDivisionError:
        return a


def program_conditional_delete():
    a = [1, 2, 3]
    b = {"x": 1}
    del a[0], b["x"]
    c = 1
    del c
    return a, b, c


def program_unbound():
    if GLOBAL < 0:
        value = 1
    return value


def program_name_error():
    return no_such_name


def program_globals_statement():
    global GLOBAL
    before = GLOBAL
    GLOBAL = 11
    try:
        return before, GLOBAL
    finally:
        GLOBAL = 10


def program_delete_missing_global():
    global missing_global
    del missing_global


def program_assert():
    assert True, "never"
    assert 1 + 1 == 3, f"sum {1 + 1}"


def program_import():
    import os.path as path
    import xml.etree.ElementTree
    from math import floor
    from math import pi as constant

    return path.join("a", "b"), xml.etree.ElementTree.__name__, floor(2.5), constant


def program_import_missing_name():
    from math import no_such_thing


def program_import_missing_module():
    import no_such_module_at_all


def program_set_ops():
    s = {1, 2}
    s |= {3}
    return s, s & {1}, 1 in s, 5 not in s, {1} <= s


# -- functions


def program_arguments():
    def f(a, b=2, /, c=3, *args, d, e=5, **kwargs):
        return a, b, c, args, d, e, kwargs

    return f(1, d=4), f(1, 2, 3, 4, 5, d=6, z=7), f(*[1, 2], **{"c": 8, "d": 9}), f(0, d=1, a=2, b=3)


def _mismatch(*args, **kwargs):
    def f(a, b, /, c, *, d, e=1):
        return a

    return f(*args, **kwargs)


def program_mismatch_missing():
    return _mismatch(1)


def program_mismatch_keyword_only():
    return _mismatch(1, 2, 3)


def program_mismatch_too_many():
    return _mismatch(1, 2, 3, 4, d=5)


def program_mismatch_repeated():
    return _mismatch(1, 2, 3, c=4, d=5)


def program_mismatch_unexpected():
    return _mismatch(1, 2, 3, d=5, q=6)


def program_mismatch_positional_only():
    return _mismatch(1, b=2, c=3, d=4)


def program_star_not_iterable():
    return _mismatch(*5)


def program_star_not_mapping():
    return _mismatch(**5)


def program_repeated_keyword():
    return _mismatch(1, 2, 3, **{"d": 4}, **{"d": 5})


def program_not_callable():
    return 5()


def program_defaults_are_shared():
    def f(x, into=[]):
        into.append(x)
        return into

    return f(1), f(2), f.__defaults__


def program_annotations():
    def f(a: int, *b: str, c: float = 1.0) -> list:
        return a

    return f.__annotations__, f.__kwdefaults__, f.__qualname__, f.__name__, f.__module__


def program_closures():
    def counter():
        n = 0

        def step(by=1):
            nonlocal n
            n += by
            return n

        return step

    a, b = counter(), counter()
    return a(), a(), b(5), a(10), a.__closure__[0].cell_contents


def program_free_variable_unbound():
    def inner():
        return later

    if GLOBAL < 0:
        later = 1
    return inner()


def program_delete_cell():
    x = 1

    def read():
        return x

    first = read()
    del x
    try:
        read()
    except NameError as error:
        return first, str(error)


def program_recursion():
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    return fibonacci(12)


def program_deep_recursion():
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    return down(400)


def program_endless_recursion():
    def forever():
        return forever()

    try:
        forever()
    except RecursionError as error:
        return str(error)[:32]


def program_decorators():
    def twice(f):
        @functools.wraps(f)
        def wrapper(*args):
            return f(*args) * 2

        return wrapper

    @twice
    @twice
    def g(x):
        "doc"
        return x

    return g(3), g.__name__, g.__doc__, g.__wrapped__(1)


def program_partial():
    def f(a, b, c=0, **rest):
        return a, b, c, rest

    p = functools.partial(f, 1, c=5)
    q = functools.partial(p, 2, d=6)
    return p(2), q(), q(c=7), functools.partial(int, base=2)("101")


def program_lambda_default():
    return (lambda x, y=lambda: 4: x + y())(1)


def program_locals():
    a = 1

    def inner():
        b = a
        return locals()

    c = inner()
    del a, inner
    return sorted(locals().items()), c


def program_native_callbacks():
    data = [3, -1, 2]

    def key(x):
        return -x

    return (
        sorted(data, key=key),
        max(data, key=abs),
        min(data, key=key),
        list(map(lambda a, b: a + b, data, [1, 1, 1])),
        list(filter(lambda x: x > 0, data)),
        functools.reduce(lambda a, b: a * b, data, 2),
        data.sort(key=key),
        data,
    )


def program_native_callback_raises():
    return sorted([1, 0], key=lambda x: 1 // x)


def program_map_is_lazy():
    seen = []
    m = map(lambda x: seen.append(x) or x, [1, 2, 3])
    before = list(seen)
    first = next(m)
    return before, first, seen, type(m)


def program_next_default():
    return next(iter([]), "none"), next(iter([1]), "none")


def program_iter_sentinel():
    values = iter([1, 2, 0, 3])
    return list(iter(lambda: next(values), 0))


# -- exceptions


def program_try_finally_order():
    log = []
    for n in range(3):
        try:
            log.append("try")
            if n == 0:
                continue
            if n == 1:
                1 / 0
        except ZeroDivisionError as error:
            log.append(repr(error))
        else:
            log.append("else")
        finally:
            log.append("finally")
    return log


def program_return_in_finally():
    def f():
        try:
            return 1
        finally:
            log.append(2)

    def g():
        for _ in range(2):
            try:
                raise ValueError
            finally:
                break
        return "swallowed"

    log = []
    return f(), g(), log


def program_uncaught():
    def middle():
        return lowest() + 1

    def lowest():
        raise KeyError("deep")

    return middle()


def program_context():
    try:
        1 / 0
    except ZeroDivisionError:
        raise ValueError("second")


def program_cause():
    try:
        [][0]
    except IndexError as error:
        raise RuntimeError("why") from error


def program_from_none():
    try:
        {}["k"]
    except KeyError:
        raise RuntimeError("clean") from None


def program_native_error_in_handler():
    try:
        {}["k"]
    except KeyError:
        int("x")


def program_native_error_in_callee_of_handler():
    def fail():
        return [].pop()

    try:
        {}["k"]
    except KeyError:
        try:
            fail()
        except IndexError as error:
            return type(error.__context__)


def program_nested_handlers():
    try:
        try:
            raise ValueError(1)
        except ValueError:
            try:
                raise TypeError(2)
            except TypeError:
                inner = sys.exc_info()[1]
            outer = sys.exc_info()[1]
            raise
    except ValueError as error:
        return repr(inner), repr(outer), repr(error), error.__context__


def program_reraise_keeps_lines():
    def fail():
        raise ValueError("once")

    try:
        fail()
    except ValueError:
        raise


def program_bare_raise_without_exception():
    raise


def program_raise_class_and_bad():
    out = []
    for value in (ValueError, ValueError("x"), 5, "str", int):
        try:
            raise value
        except Exception as error:
            out.append(repr(error))
    return out


def program_raise_with_bad_cause():
    raise ValueError from 5


def program_except_tuple_and_order():
    out = []
    for error in (KeyError(1), ValueError(2), TypeError(3)):
        try:
            raise error
        except (KeyError, TypeError) as caught:
            out.append(("pair", repr(caught)))
        except Exception as caught:
            out.append(("other", repr(caught)))
    return out


def program_except_not_a_class():
    try:
        1 / 0
    except "not a class":
        pass


def program_variable_cleared_after_except():
    try:
        1 / 0
    except ZeroDivisionError as error:
        pass
    return error


def program_exception_with_init():
    class Trouble(Exception):
        def __init__(self, code, *, why="because"):
            super().__init__(code, why)
            self.code = code

        def __str__(self):
            return f"trouble {self.code}"

    try:
        raise Trouble(7)
    except Trouble as error:
        return str(error), error.args, repr(error)


def program_exc_info_restored():
    def callee():
        try:
            raise KeyError
        except KeyError:
            pass
        return sys.exc_info()[0]

    try:
        raise ValueError
    except ValueError:
        inside = callee()
    return inside, sys.exc_info()[0], sys.exception()


def program_error_in_finally():
    try:
        raise ValueError("first")
    finally:
        raise TypeError("second")


def program_unrelated_context_cycle():
    error = ValueError("a")
    try:
        try:
            raise error
        except ValueError:
            raise KeyError("b")
    except KeyError:
        raise error


def program_except_star():
    out = []
    try:
        raise ExceptionGroup("eg", [ValueError(1), TypeError(2), ExceptionGroup("in", [ValueError(3), OSError(4)])])
    except* ValueError as group:
        out.append(repr(group))
    except* TypeError as group:
        out.append(repr(group))
    except* OSError as group:
        out.append(repr(group))
    return out


def program_except_star_rest():
    try:
        raise ExceptionGroup("eg", [ValueError(1), TypeError(2)])
    except* ValueError:
        pass


def program_except_star_raises():
    try:
        raise ExceptionGroup("eg", [ValueError(1), TypeError(2)])
    except* ValueError:
        raise KeyError("new")


def program_except_star_naked():
    try:
        raise ValueError("naked")
    except* ValueError as group:
        caught = repr(group)
    return caught


def program_recursion_error_caught_deep():
    def down(n):
        try:
            return down(n + 1)
        except RecursionError:
            return "caught"

    return down(0)


# -- with


class Manager:
    def __init__(self, log, suppress=False):
        self.log, self.suppress = log, suppress

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(("exit", kind, repr(value), trace is not None))
        return self.suppress


def program_with():
    log = []
    with Manager(log) as m, Manager(log):
        log.append(m.suppress)
    with Manager(log, True):
        1 / 0
    for _ in range(2):
        with Manager(log):
            continue
    return log


def program_with_return():
    log = []

    def f():
        with Manager(log):
            return "value"

    return f(), log


def program_with_raises():
    with Manager([]):
        {}["missing"]


def program_with_not_a_manager():
    with 5:
        pass


def program_with_no_exit():
    class Half:
        def __enter__(self):
            return 1

    with Half():
        pass


def program_contextmanager():
    log = []

    @contextlib.contextmanager
    def managed(name):
        log.append("in " + name)
        try:
            yield name.upper()
        except ValueError as error:
            log.append(repr(error))
        finally:
            log.append("out " + name)

    with managed("a") as a, managed("b"):
        log.append(a)
        raise ValueError("inside")
    return log


def program_exit_stack():
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "callback")
        stack.enter_context(Manager(log))
        stack.enter_context(contextlib.suppress(KeyError))
        {}["k"]
    return log


# -- generators


def program_generator():
    def count(n):
        i = 0
        while i < n:
            got = yield i
            i = i + 1 if got is None else got

    g = count(10)
    return next(g), g.send(None), g.send(7), list(g), next(g, "end")


def program_generator_return():
    def g():
        yield 1
        return "done"

    it = g()
    next(it)
    try:
        next(it)
    except StopIteration as stop:
        return stop.value


def program_yield_from():
    def inner():
        try:
            got = yield 1
            yield got
        except ValueError as error:
            yield repr(error)
        return "inner result"

    def outer():
        result = yield from inner()
        yield result
        yield from (x * x for x in range(3))
        yield from [7, 8]

    g = outer()
    return next(g), g.send("sent"), list(g)


def program_yield_from_throw():
    def inner():
        try:
            yield 1
        except ValueError:
            yield "handled"

    def outer():
        yield from inner()
        yield "after"

    g = outer()
    next(g)
    return g.throw(ValueError("x")), next(g)


def program_yield_from_throw_returns():
    def inner():
        try:
            yield 1
        except ValueError:
            return "returned"

    def outer():
        yield (yield from inner())

    g = outer()
    next(g)
    return g.throw(ValueError("x"))


def program_generator_close():
    log = []

    def g():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    it = g()
    next(it)
    it.close()
    it.close()
    return log, next(it, "end")


def program_generator_ignores_exit():
    def g():
        try:
            yield
        except GeneratorExit:
            yield

    it = g()
    next(it)
    try:
        it.close()
    except RuntimeError as error:
        return str(error)


def program_generator_throw_uncaught():
    def g():
        yield 1

    it = g()
    next(it)
    it.throw(KeyError("thrown"))


def program_generator_throw_unstarted():
    def g():
        yield 1

    it = g()
    try:
        it.throw(KeyError("early"))
    except KeyError as error:
        return str(error), next(it, "end")


def program_stop_iteration_inside():
    def g():
        yield 1
        next(iter([]))

    return list(g())


def program_generator_reentered():
    def g():
        yield next(it)

    it = g()
    try:
        next(it)
    except ValueError as error:
        return str(error)


def program_send_to_unstarted():
    def g():
        yield

    g().send(1)


def program_generator_error_lines():
    def g():
        yield 1
        raise ValueError("in generator")

    for _ in g():
        pass


def program_generator_consumers():
    def g(n):
        yield from range(n)

    a, *b = g(4)
    return (
        a,
        b,
        sum(g(4)),
        list(g(3)),
        tuple(g(3)),
        set(g(3)),
        max(g(3)),
        any(x > 1 for x in g(3)),
        all(x > 1 for x in g(3)),
        dict(zip(g(2), g(3))),
        list(enumerate(g(2), 5)),
        sorted(-x for x in g(3)),
        ",".join(str(x) for x in g(3)),
        2 in g(3),
        [*g(2), *g(2)],
    )


def program_generator_exception_state():
    def g():
        try:
            raise KeyError("inside")
        except KeyError:
            yield sys.exc_info()[0]
        yield sys.exc_info()[0]

    it = g()
    try:
        raise ValueError("outside")
    except ValueError:
        return next(it), sys.exc_info()[0], next(it), sys.exc_info()[0]


def program_error_drops_a_suspended_generator():
    def inner():
        try:
            yield "missing"
        finally:
            log.append("inner closed")

    def outer():
        for key in inner():
            yield {}[key]

    log = []
    try:
        list(map(str, outer()))
    except KeyError as error:
        log.append(repr(error))
    return log


def program_generator_is_generator():
    import inspect
    import types

    def g():
        yield 1

    it = g()
    state = inspect.getgeneratorstate(it)
    next(it)
    return (
        isinstance(it, types.GeneratorType),
        state,
        inspect.getgeneratorstate(it),
        it.__name__,
        inspect.isgenerator(it),
    )


def program_generator_expression_scope():
    n = 3
    g = (i * n for i in range(n))
    n = 10
    return list(g)


def program_eval_and_exec():
    namespace = {}
    exec("def f(x):\n    return x + y\ny = 4", namespace)
    a = 5
    return namespace["f"](1), eval("a * 2"), eval("[a for _ in range(2)]", {"a": 1})


def program_exec_error():
    exec("x = 1\nx / 0")


def program_coroutine_runs_natively():
    async def f(x):
        return x + 1

    async def g():
        return await f(1) + await f(2)

    try:
        g().send(None)
    except StopIteration as stop:
        return stop.value


def program_group_around_one_exception():
    def places(traceback):
        found = []
        while traceback is not None:
            found.append(traceback.tb_lineno)
            traceback = traceback.tb_next
        return found

    def raising():
        try:
            raise ValueError(1)
        except* ValueError as group:
            here = places(group.__traceback__), places(group.exceptions[0].__traceback__)
        try:
            raise ValueError(here)
        except* ValueError:
            raise

    try:
        raising()
    except ExceptionGroup as group:
        return repr(group), places(group.__traceback__)


ProgramTests = cases(globals())

if __name__ == "__main__":
    unittest.main()
