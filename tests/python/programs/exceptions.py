"""Exceptions: the program's own, chained, in groups, half-way through effects; finally in every order."""

from __future__ import annotations

import torch

from tests.python.harness import program

EVENTS = []


def vector():
    return torch.arange(4.0)


class ModelError(Exception):
    pass


class ShapeError(ModelError):
    def __init__(self, expected, found):
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found


class Box:
    def __init__(self):
        self.value = 0
        self.log = []


@program(vector)
def own_exception_caught(x):
    try:
        raise ShapeError(3, x.shape[0])
    except ModelError as error:
        return x * error.expected, str(error), error.args


@program(vector)
def own_exception_leaves(x):
    y = x * 2
    raise ShapeError(3, y.shape[0])


@program(vector, Box)
def effects_before_an_exception_stay(x, box):
    box.value += 1
    box.log.append(x * 2)
    EVENTS.append("before")
    if box.value:
        raise ModelError("half-way", box.value)
    box.value = 100


@program(vector)
def builtin_exception_leaves_from_a_callee(x):
    def inner(table):
        return table["missing"]

    return x + inner({})


@program(vector)
def shape_error_leaves(x):
    return x @ torch.ones(3)


@program(vector)
def shape_error_caught(x):
    try:
        return x + torch.ones(3)
    except RuntimeError as error:
        return x, str(error)


@program(vector)
def explicit_cause(x):
    try:
        try:
            {}["k"]
        except KeyError as error:
            raise ModelError("lookup failed") from error
    except ModelError as error:
        return x, type(error.__cause__).__name__, error.__suppress_context__


@program(vector)
def implicit_context_leaves(x):
    try:
        [][1]
    except IndexError:
        raise ModelError("while handling")


@program(vector)
def context_suppressed_leaves(x):
    try:
        int("x")
    except ValueError:
        raise ModelError("clean") from None


@program(vector)
def reraise_keeps_the_exception(x):
    seen = []

    def inner():
        try:
            raise ModelError("again")
        except ModelError as error:
            seen.append(error)
            raise

    try:
        inner()
    except ModelError as error:
        return x, error is seen[0], error.args


@program(vector)
def finally_order(x):
    order = []

    def run(kind):
        for _ in range(1):
            try:
                order.append(("try", kind))
                if kind == "return":
                    return kind
                if kind == "break":
                    break
                if kind == "raise":
                    raise ModelError(kind)
            except ModelError:
                order.append("except")
            else:
                order.append("else")
            finally:
                order.append("finally")
        return "end"

    return x, [run(kind) for kind in ("return", "break", "raise", "none")], order


@program(vector)
def finally_overrides_return(x):
    def run():
        try:
            return 1
        finally:
            return 2

    def swallow():
        try:
            raise ModelError("lost")
        finally:
            return 3

    return x * run(), swallow()


@program(vector)
def nested_try_blocks(x):
    order = []
    try:
        try:
            order.append("a")
            raise KeyError("k")
        except ValueError:
            order.append("wrong")
        finally:
            order.append("b")
    except LookupError:
        order.append("c")
    return x, order


@program(vector)
def exception_name_is_unbound_after(x):
    try:
        raise ModelError("x")
    except ModelError as error:
        pass
    try:
        error
    except NameError as problem:
        return x, type(problem).__name__


@program(vector)
def tuple_of_exceptions_and_else(x):
    found = []
    for value in ("3", "x", None):
        try:
            number = int(value)
        except (ValueError, TypeError) as error:
            found.append(type(error).__name__)
        else:
            found.append(number)
    return x, found


@program(vector)
def exception_groups_split(x):
    found = []
    try:
        raise ExceptionGroup("many", [ValueError(1), KeyError("k"), ExceptionGroup("inner", [ValueError(2)])])
    except* ValueError as group:
        found.append([str(error) for error in group.exceptions])
    except* KeyError as group:
        found.append(len(group.exceptions))
    return x, found


@program(vector)
def exception_group_leaves(x):
    raise ExceptionGroup("leaving", [ModelError("a"), ShapeError(1, 2)])


@program(vector)
def exception_with_notes(x):
    try:
        error = ModelError("noted")
        error.add_note("first")
        raise error
    except ModelError as caught:
        caught.add_note("second")
        return x, caught.__notes__


@program(vector)
def exception_as_value(x):
    error = ShapeError(1, 2)
    return x, error, repr(error), isinstance(error, ModelError)


@program(vector)
def exceptions_from_operators(x):
    found, number = [], 5
    attempts = (
        lambda: 1 + "a", lambda: [] < 1, lambda: None.shape, lambda: (1, 2)[5], lambda: "a" @ 1, lambda: len(3), lambda: number(),
        lambda: {[]: 1}, lambda: iter(3), lambda: x.missing, lambda: int([]), lambda: float("z"), lambda: "x".join([1]),
    )  # fmt: skip
    for attempt in attempts:
        try:
            attempt()
        except (TypeError, AttributeError, IndexError, ValueError) as error:
            found.append((type(error).__name__, str(error)))
    return x, found


@program(vector)
def exception_raised_in_del_and_iter(x):
    class Fragile:
        def __iter__(self):
            raise ModelError("no iteration")

        def __len__(self):
            return -1

    found = []
    for action in (lambda: list(Fragile()), lambda: len(Fragile()), lambda: bool(Fragile())):
        try:
            action()
        except (ModelError, ValueError) as error:
            found.append(str(error))
    return x, found


@program(vector)
def raise_of_a_class_and_of_a_non_exception(x):
    found = []
    for thing in (ModelError, 5, int):
        try:
            raise thing
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return x, found


@program(vector)
def retry_loop(x):
    attempts = 0
    while True:
        try:
            attempts += 1
            if attempts < 3:
                raise ConnectionError(attempts)
            return x * attempts
        except ConnectionError as error:
            last = error
    return last


@program(vector)
def deep_traceback_leaves(x):
    def first(n):
        return second(n - 1) + 1

    def second(n):
        if n < 0:
            raise ModelError("deep")
        return first(n)

    return first(2)


@program(vector)
def system_exit_leaves(x):
    EVENTS.append("leaving")
    raise SystemExit(3)


@program(vector)
def keyboard_interrupt_is_no_exception(x):
    try:
        raise KeyboardInterrupt
    except Exception:
        return "wrong"
    except BaseException as error:
        return x, type(error).__name__


@program(vector)
def stop_iteration_in_a_generator(x):
    def leaky():
        yield 1
        raise StopIteration(2)

    try:
        list(leaky())
    except RuntimeError as error:
        return x, str(error), type(error.__cause__).__name__
