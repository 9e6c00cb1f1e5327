"""Functions: closures, arguments of every kind, defaults, decorators, recursion, names written and deleted."""

from __future__ import annotations

import functools

import torch

from tests.python.harness import program

CALLS = []
TOTAL = 0
SCALES = {"a": 2.0, "b": 3.0}


def vector():
    return torch.arange(4.0)


def _make_counter():
    count = 0

    def step(by=1):
        nonlocal count
        count += by
        return count

    return step


_counter = _make_counter()


@program(vector)
def closure_over_a_tensor(x):
    doubled = x * 2

    def add(y):
        return y + doubled

    return add(x), add(doubled)


@program(vector)
def closure_cell_written_by_two_functions(x):
    state = x

    def grow():
        nonlocal state
        state = state + 1

    def read():
        return state

    grow()
    grow()
    return read() * 2, state


@program(vector)
def closure_from_outside_counts(x):
    return x * _counter(), _counter(by=2)


@program(vector)
def closures_in_a_loop_share_the_variable(x):
    functions = []
    for factor in (1, 2, 3):
        functions.append(lambda y: y * factor)
    return [function(x) for function in functions]


@program(vector)
def lambda_defaults_keep_the_value(x):
    functions = [lambda y, factor=factor: y * factor for factor in (1, 2, 3)]
    return [function(x) for function in functions]


@program(vector)
def returned_function_counts_on(x):
    count = 0

    def step(y):
        nonlocal count
        count += 1
        return y * count

    step(x)
    return step


@program(vector)
def two_returned_functions_share_a_cell(x):
    held = x + 1

    def get():
        return held

    def put(value):
        nonlocal held
        held = value

    return get, put


def _every_kind(a, b=2, /, c=3, *rest, d, e=5, **named):
    return a, b, c, rest, d, e, named


@program(vector)
def every_kind_of_parameter(x):
    return (
        _every_kind(x, d=4),
        _every_kind(x, 1, 2, 3, 4, d=x, f=6),
        _every_kind(*[x, 1], c=7, **{"d": 8, "b": 9}),
        _every_kind(x, *(1, 2), *[3], d=0, **{"g": x}, **{"h": 1}),
    )


@program(vector)
def wrong_arguments_raise(x):
    messages = []
    for call in (
        lambda: _every_kind(),
        lambda: _every_kind(x),
        lambda: _every_kind(a=x, d=1),
        lambda: closure_over_a_tensor(x, x),
        lambda: closure_over_a_tensor(y=x),
        lambda: _every_kind(x, **{"d": 1}, **{"d": 2}),
    ):
        try:
            call()
        except TypeError as error:
            messages.append(str(error))
    return messages, x + 1


def _remembers(value, seen=[]):
    seen.append(value)
    return len(seen)


@program(vector)
def mutable_default_remembers(x):
    _remembers(x)
    return x * _remembers(1)


@program(vector)
def mutable_default_of_an_inner_function(x):
    def keep(value, seen={}):
        seen[len(seen)] = value
        return dict(seen)

    keep(x)
    return keep(x + 1)


@program(vector)
def defaults_are_evaluated_once(x):
    made = []

    def make():
        made.append(1)
        return x * 2

    def use(value=make()):
        return value

    return use(), use(), made


def counted(function):
    """A decorator with state."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return function(*args, **kwargs)

    wrapper.calls = 0
    return wrapper


def scaled(by):
    def decorate(function):
        def wrapper(*args):
            return function(*args) * by

        return wrapper

    return decorate


class Memo:
    def __init__(self, function):
        self.function = function
        self.table = {}

    def __call__(self, key):
        if key not in self.table:
            self.table[key] = self.function(key)
        return self.table[key]


@counted
def _tripled(x):
    """Three times x."""
    return x * 3


@scaled(2)
@scaled(5)
def _stacked(x):
    return x + 1


@Memo
def _fibonacci(n):
    return n if n < 2 else _fibonacci(n - 1) + _fibonacci(n - 2)


@program(vector)
def decorator_with_a_counter(x):
    return _tripled(x), _tripled(x), _tripled.calls, _tripled.__name__, _tripled.__doc__


@program(vector)
def stacked_decorators_with_arguments(x):
    return _stacked(x)


@program(vector)
def class_as_decorator_memoizes(x):
    return x * _fibonacci(12), len(_fibonacci.table)


@program(vector)
def decorated_inside(x):
    @counted
    @scaled(3)
    def inner(y):
        return y - 1

    return inner(x), inner.calls


@program(vector)
def function_attributes(x):
    def tagged(y):
        tagged.uses = getattr(tagged, "uses", 0) + 1
        return y * tagged.uses

    tagged.unit = "metre"
    tagged(x)
    return tagged(x), tagged.uses, tagged.unit, vars(tagged)


@program(vector)
def mutual_recursion(x):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    return x if even(10) else -x


@program(vector, lambda: {"left": {"value": 1.0}, "right": {"left": {"value": 2.0}, "right": {"value": 3.0}}})
def recursion_over_a_tree(x, tree):
    def total(node):
        if "value" in node:
            return x * node["value"]
        return total(node["left"]) + total(node["right"])

    return total(tree)


@program(vector)
def recursion_too_deep(x):
    def down(n):
        return down(n + 1)

    try:
        down(0)
    except RecursionError:
        return x + 1


@program(vector)
def global_written(x):
    global TOTAL
    TOTAL += 1
    CALLS.append(TOTAL)
    return x * TOTAL


@program(vector)
def global_tensor_kept(x):
    global LAST
    try:
        previous = LAST
    except NameError:
        previous = None
    LAST = x * 2
    return previous


@program(vector)
def global_deleted(x):
    global SCRATCH
    SCRATCH = 3
    y = x * SCRATCH
    del SCRATCH
    try:
        SCRATCH
    except NameError as error:
        return y, str(error)


@program(vector)
def global_dict_written(x):
    SCALES["c"] = SCALES["a"] + SCALES.get("c", 0.0)
    return x * SCALES["c"]


@program(vector)
def local_deleted(x):
    y = x + 1
    z = y * 2
    del y
    try:
        return y
    except UnboundLocalError as error:
        return z, type(error).__name__


@program(vector)
def unbound_local_raises(x):
    if len(x) > 100:
        y = x
    return y


@program(vector)
def builtin_shadowed(x):
    len = lambda value: 7
    return x * len(x)


@program(vector)
def functions_in_a_table(x):
    table = {"sin": torch.sin, "cos": torch.cos, "own": lambda y: y * y}
    return {name: function(x) for name, function in table.items()}


@program(vector)
def higher_order(x):
    def compose(*functions):
        def run(value):
            for function in functions:
                value = function(value)
            return value

        return run

    return compose(torch.exp, lambda y: y + 1, torch.log)(x)


@program(vector)
def conditional_function_definition(x):
    if x.dim() == 1:

        def apply(y):
            return y.sum()
    else:

        def apply(y):
            return y

    return apply(x)


@program(vector)
def keyword_names_of_any_kind(x):
    def collect(**named):
        return named

    return collect(**{"with space": x, "class": 1}), sorted(collect(b=1, a=2))


@program(vector, lambda: lambda y: y + 1)
def function_as_argument(x, function):
    return function(x) * 2


@program(vector, lambda: functools.partial(lambda a, b, c=0: a * b + c, 3, c=1))
def partial_as_argument(x, function):
    return function(x), function.args, function.keywords


@program(vector, _make_counter)
def closure_as_argument_is_advanced(x, step):
    step()
    return x * step(5)
