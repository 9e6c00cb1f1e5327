"""Context managers: the program's own and those of `contextlib`."""

from __future__ import annotations

import contextlib
import io

import torch

from tests.python.harness import program

EVENTS = []


def vector():
    return torch.arange(4.0)


class Scope:
    def __init__(self, name="scope", swallow=()):
        self.name = name
        self.swallow = swallow
        self.log = []

    def __enter__(self):
        self.log.append("enter " + self.name)
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append("exit " + self.name + ("" if kind is None else " " + kind.__name__))
        return kind is not None and issubclass(kind, self.swallow)


@contextlib.contextmanager
def _logged(name):
    EVENTS.append("enter " + name)
    try:
        yield name.upper()
    except KeyError as error:
        EVENTS.append("caught " + str(error))
    finally:
        EVENTS.append("exit " + name)


@contextlib.contextmanager
def _scaled(holder, by):
    before = holder["scale"]
    holder["scale"] = by
    yield
    holder["scale"] = before


@program(vector)
def own_manager(x):
    with Scope() as scope:
        y = x * 2
    return y, scope.log


@program(vector, Scope)
def own_manager_as_argument(x, scope):
    with scope as entered:
        y = x + len(entered.log)
    return y


@program(vector)
def several_managers(x):
    with Scope("a") as a, Scope("b") as b:
        b.log.extend(a.log)
        y = x * 3
    return y, a.log, b.log


@program(vector)
def manager_swallows(x):
    with Scope(swallow=ValueError) as scope:
        raise ValueError("gone")
    return x, scope.log


@program(vector, Scope)
def exception_passes_a_manager(x, scope):
    with scope:
        raise KeyError("passes")


@program(vector)
def return_and_break_inside(x):
    scope = Scope()

    def early():
        with scope:
            return x + 1

    for _ in range(2):
        with scope:
            break
    return early(), scope.log


@program(vector)
def exit_raises(x):
    class Bad:
        def __enter__(self):
            return self

        def __exit__(self, *exc):
            raise RuntimeError("from exit")

    try:
        with Bad():
            raise ValueError("inside")
    except RuntimeError as error:
        return x, str(error), type(error.__context__).__name__


@program(vector)
def generator_manager(x):
    with _logged("one") as name:
        y = x * len(name)
    return y, name


@program(vector)
def generator_manager_with_exception(x):
    with _logged("two"):
        {}["missing"]
    return x


@program(vector, lambda: {"scale": 1.0})
def generator_manager_restores(x, holder):
    with _scaled(holder, 5.0):
        y = x * holder["scale"]
    return y + holder["scale"]


@program(vector)
def manager_as_decorator(x):
    @_logged("decorated")
    def run(y):
        return y + 1

    return run(x), run(x)


@program(vector)
def exit_stack(x):
    order = []
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Scope("first"))
        stack.callback(order.append, "callback")
        stack.push(lambda *exc: order.append("pushed"))
        y = x * 2
    return y, order, first.log


@program(vector)
def exit_stack_conditional(x):
    with contextlib.ExitStack() as stack:
        if x.numel() > 2:
            stack.enter_context(torch.no_grad())
        y = x + 1
    return y, torch.is_grad_enabled()


@program(vector)
def suppress(x):
    with contextlib.suppress(KeyError, IndexError):
        [][3]
    with contextlib.suppress(KeyError):
        x = x + 1
    return x


@program(vector)
def null_context(x):
    with contextlib.nullcontext(5) as n, contextlib.nullcontext():
        return x * n


@program(vector)
def closing(x):
    class Resource:
        closed = False

        def close(self):
            self.closed = True

    resource = Resource()
    with contextlib.closing(resource) as same:
        y = x + same.closed
    return y, resource.closed


@program(vector)
def redirect_stdout(x):
    buffer = io.StringIO()
    with contextlib.redirect_stdout(buffer):
        print("hidden", x.numel())
    return x, buffer.getvalue()


@program(vector)
def context_decorator_class(x):
    class Timed(contextlib.ContextDecorator):
        def __init__(self):
            self.entered = 0

        def __enter__(self):
            self.entered += 1
            return self

        def __exit__(self, *exc):
            return False

    timed = Timed()

    @timed
    def run(y):
        return y * 2

    with timed:
        y = run(x)
    return y, timed.entered


@program(vector)
def not_a_manager(x):
    try:
        with x.numel():
            pass
    except TypeError as error:
        return x, str(error)


@program(vector)
def abstract_context_manager(x):
    class Own(contextlib.AbstractContextManager):
        def __exit__(self, *exc):
            return True

    with Own() as own:
        raise ValueError
    return x, isinstance(own, contextlib.AbstractContextManager)
