"""Graph breaks as continuations: one break costs one native call; values, effects, order and exceptions are eager's."""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings

import pytest
import torch

import lampwork
from tests.python.warm import run_cold_and_warm

PROGRAMS: dict[str, tuple] = {}


def x4():
    return torch.arange(8.0).reshape(2, 4) - 3


def program(*make_args, graphs=None, breaks=None, fallbacks=0):
    """Registers a program. `graphs`, `breaks`: how many are expected after two equal calls (None: not asserted)."""

    def register(function):
        PROGRAMS[function.__name__] = (function, make_args or (x4,), graphs, breaks, fallbacks)
        return function

    return register


def outcome_of(function, make_args):
    """(printed, result or exception, arguments afterwards) of one call on fresh arguments."""
    args = [make() for make in make_args]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            result = ("returned", function(*args))
    except Exception as error:
        lines = [(each.name, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
        mine = [line for line in lines if line[0] in PROGRAM_FUNCTIONS]
        result = ("raised", type(error), str(error), error.args, mine, type(error.__context__), type(error.__cause__))
    return printed.getvalue(), result, args


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, Box):
        return type(left) is type(right) and same(vars(left), vars(right))
    return type(left) is type(right) and (left == right or left is right)


class Box:
    def __init__(self, value=0):
        self.value = value


class Failure(Exception):
    def __init__(self, message, code):
        super().__init__(message, code)
        self.code = code


@lampwork.disable
def say(*values):
    print(*values)


@lampwork.disable
def opaque(value=None):
    print("opaque", value if not isinstance(value, torch.Tensor) else tuple(value.shape))
    return value


@lampwork.disable
def fails(kind=ValueError, message="no"):
    print("fails")
    raise kind(message)


# One break, in every kind of place ----------------------------------------------------------------------------------


@program(graphs=2, breaks=1)
def one_break(x):
    y = x * 2
    say("between")
    return y + 1


def leaf(x):
    y = x * 2
    say("in the leaf")
    return y + 1


def middle(x):
    return leaf(x - 1) * 3


@program(graphs=2, breaks=1)
def a_break_three_levels_down(x):
    return middle(x + 5) / 2


@program(graphs=2, breaks=1)
def the_result_of_the_call_is_used(x):
    return opaque(x * 2) + x


@program(graphs=2, breaks=1)
def a_branch_on_a_tensor(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@program(graphs=2)
def not_and_or_on_tensors(x):
    y = x.sum()
    if not y > 0 and (x.max() > 0 or x.min() > 100):
        return x * 2
    return x * 3


@program(graphs=1, breaks=0)
def item(x):
    n = (x * 2).sum().item()
    return x + n


@program(graphs=1, breaks=0)
def tolist(x):
    values = (x * 2).tolist()
    return x + values[0][1], values


@program(breaks=1)
def numpy_and_back(x):
    return torch.from_numpy((x * 2).numpy(force=True)) + 1


@program()
def in_a_loop_once(x):
    for step in range(4):
        x = x + step
        if step == 2:
            say("step two")
        x = x * 2
    return x


@program(breaks=1)
def in_a_loop(x):
    for step in range(4):
        x = x + step
        say("step", step)
        x = x * 2
    return x


@program(breaks=1)
def in_a_while_loop(x):
    count = 0
    while count < 3:
        x = x * 2
        opaque(count)
        count += 1
    return x


@program(breaks=1)
def in_a_comprehension(x):
    return [opaque(x * each) + 1 for each in (1, 2, 3)]


@program(breaks=1)
def in_a_dict_comprehension(x):
    return {key: opaque(x * 2) + key for key in (1, 2)}


@program(breaks=2)
def in_a_with(x):
    with torch.no_grad():
        y = x * 2
        say(torch.is_grad_enabled())
        y = y + 1
    say(torch.is_grad_enabled())
    return y


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(("exit", kind))
        return kind is ValueError


@program(x4, list)
def in_a_with_of_the_users(x, log):
    with Manager(log) as manager:
        y = x * 2
        manager.log.append("before")
        opaque(len(log))
        manager.log.append("after")
    return y + 1, manager is not None


@program(x4, list)
def a_with_that_swallows(x, log):
    with Manager(log):
        x = x * 2
        fails()
        log.append("not reached")
    return x + 1


@program(x4, list)
def in_try_and_finally(x, log):
    try:
        x = x * 2
        opaque(1)
        x = x + 1
    finally:
        log.append("finally")
        x = x - 3
    return x


@program(x4, list)
def an_except_clause_handles_what_the_call_raises(x, log):
    try:
        x = x * 2
        fails()
        x = x * 100
    except ValueError as error:
        log.append(str(error))
        x = x + 1
    finally:
        log.append("finally")
    return x * 3


@program(x4)
def a_caller_handles_it(x):
    def inner(x):
        y = x * 2
        fails(KeyError, "key")
        return y

    try:
        return inner(x)
    except LookupError as error:
        return x + 1, error.args


@program(x4)
def a_break_in_an_except_clause(x):
    try:
        raise Failure("one", 3)
    except Failure as error:
        opaque(error.code)
        return x + error.code, str(error)


@program(x4)
def a_native_call_sees_the_exception(x):
    try:
        raise ValueError("seen")
    except ValueError:
        opaque()
        import sys

        y = x * 2
        say(type(sys.exception()).__name__, sys.exc_info()[1])
    return y


@program(x4)
def reraised(x):
    try:
        x = x * 2
        fails()
    except ValueError:
        say("again")
        raise


@program(x4)
def raised_from(x):
    try:
        fails()
    except ValueError as error:
        raise Failure("outer", 7) from error


@program(x4)
def raised_while_handling(x):
    try:
        fails()
    except ValueError:
        raise KeyError("second")


@program(x4, graphs=1)
def the_call_raises(x):
    y = x * 2
    fails(RuntimeError, "through")
    return y


def raises_below(x):
    return the_call_raises(x)


PROGRAMS["raises_below"] = (raises_below, (x4,), 1, None, 0)


@program(x4, list, graphs=0, breaks=0, fallbacks=1)  # the call is eager's
def the_program_raises(x, log):
    log.append(x + 1)
    raise ValueError("with state", 5)


@program(x4, list)
def raises_after_a_break(x, log):
    log.append(x + 1)
    say("between")
    log.append(x + 2)
    raise Failure("with state", 5)


@program(x4)
def an_operator_raises(x):
    say("before")
    return x @ x


@program(x4)
def an_operator_raises_and_is_handled(x):
    try:
        return x @ x
    except RuntimeError as error:
        return x.t() @ x, str(error)


@program(x4, dict)
def a_missing_key(x, table):
    opaque()
    return x + table["nothing"]


# Effects -----------------------------------------------------------------------------------------------------------


@program(x4, list, Box)
def effects_come_in_order(x, log, box):
    log.append(1)
    box.value = x * 2
    say(len(log), box.value.sum())
    log.append(2)
    box.value = box.value + 1
    say(len(log), box.value.sum())
    box.other = log
    return box, log


@program(x4)
def in_place_writes_are_seen(x):
    x.add_(1)
    opaque(x)
    x.mul_(2)
    say(x)
    return x


@program(x4)
def own_objects_keep_their_identity(x):
    box = Box(x * 2)
    both = [box, box]
    alias = both
    opaque()
    both[0].value = box.value + 1
    return both, alias is both, both[0] is both[1], box is both[0], box


@program(x4)
def an_own_object_is_changed_by_the_call(x):
    box = Box([x])

    @lampwork.disable
    def change(box):
        box.value.append(1)
        box.name = "changed"

    opaque()
    change(box)
    return box.value[0] + box.value[1], box.name


@program(x4)
def closures(x):
    count = 0

    def add(value):
        nonlocal count
        count += value
        return x * count

    first = add(1)
    opaque(count)
    second = add(2)
    opaque(count)
    return first, second, count


total = 0


@program(x4)
def globals_are_written(x):
    global total
    total = 5
    say(total)
    total = total + 1
    say(total)
    return x + total


@program(x4)
def random_numbers(x):
    torch.manual_seed(3)
    a = torch.rand(4)
    opaque()
    return a, torch.rand(4)


# Live values -------------------------------------------------------------------------------------------------------


@program(x4)
def iterators_go_on(x):
    found = []
    pairs = zip([1, 2, 3], "abc")
    numbers = iter([10, 20, 30])
    for index, (number, letter) in enumerate(pairs):
        found.append((index, letter))
        x = x + number
        opaque(next(numbers))
    return x, found, list(numbers)


@program(x4)
def dict_iterators_go_on(x):
    for key, value in {"a": 1, "b": 2}.items():
        x = x * value
        opaque(key)
    return x


@program(x4)
def nested_loops(x):
    for outer in range(2):
        for inner in range(2):
            x = x + inner
            opaque((outer, inner))
        x = x * 2
    return x


@program(x4)
def the_stack_holds_values(x):
    return [x * 1, opaque(x * 2), x * 3, opaque(x * 4)]


@program(x4)
def methods_and_super(x):
    class Base:
        def go(self, x):
            say("base")
            return x + 1

    class Derived(Base):
        def go(self, x):
            return super().go(x * 2) * 3

    return opaque(x) if x is None else Derived and x * 2


class Parent:
    def __init__(self, x):
        self.x = x * 2
        say("made")
        self.y = self.x + 1


class Child(Parent):
    def __init__(self, x):
        super().__init__(x)
        self.z = self.y * 2


@program(x4)
def in_a_constructor(x):
    made = Child(x)
    return made.x, made.y, made.z


@program(x4)
def with_locals(x):
    a = 1
    opaque()
    found = sorted(name for name in locals() if name != "found")
    return x + a, found


@program(x4)
def default_and_keyword_arguments(x):
    def inner(x, *rest, scale=2, **more):
        opaque(sorted(more))
        return x * scale + len(rest) + more["extra"]

    return inner(x, 1, 2, scale=3, extra=4)


# Rolled back -------------------------------------------------------------------------------------------------------


@program(x4)
def in_a_key_function(x):
    def key(value):
        say("key", value)
        return -value

    return x * sorted([1, 3, 2], key=key)[0]


@program(x4)
def in_a_map(x):
    return x * sum(map(opaque, [1, 2, 3]))


@program(x4)
def in_a_generator_expression(x):
    y = x * 2
    n = sum(opaque(each) for each in [1, 2, 3])
    return y + n


@program(x4)
def in_a_generator(x):
    def numbers():
        yield 1
        say("between yields")
        yield 2

    y = x * 2
    for number in numbers():
        y = y + number
    return y


@program(x4)
def with_a_suspended_generator(x):
    def numbers():
        yield 1
        yield 2

    def inner(x):
        found = numbers()
        x = x + next(found)
        opaque()
        return x + next(found)

    return inner(x * 2) * 3


@contextlib.contextmanager
def named(name):
    say("enter", name)
    yield name
    say("leave", name)


@program(x4)
def in_a_generator_based_context(x):
    with named("ctx") as name:
        y = x * 2
        say(name)
        y = y + 1
    return y


@program(x4)
def in_inference_mode(x):
    y = x * 2
    with torch.inference_mode():
        z = x + 1
        say(z.is_inference())
        z = z * 2
    return y + z.sum()


PROGRAM_FUNCTIONS = {name for name in PROGRAMS} | {"leaf", "middle", "inner", "fails"}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(name):
    function, make_args, graphs, breaks, fallbacks = PROGRAMS[name]
    expected = outcome_of(function, make_args)
    fast = lampwork.compile(function)
    for _ in range(3):
        found = outcome_of(fast, make_args)
        assert found[0] == expected[0]
        assert same(found[1], expected[1]), (found[1], expected[1])
        assert same(found[2], expected[2]), (found[2], expected[2])
    stats = lampwork.stats(fast)
    if graphs is not None:
        assert stats["graphs"] == graphs
    if breaks is not None:
        assert len(stats["breaks"]) == breaks, stats["breaks"]
    if fallbacks is not None and breaks is not None:
        assert len(stats["fallbacks"]) == fallbacks, stats["fallbacks"]


def test_paths_that_meet_share_their_continuations():
    counts = []
    for n in (2, 4):
        source = ["def many(x, flags):"]
        for index in range(n):
            source += [f"    if flags[{index}]:", f"        t{index} = x * {index + 2}", f"        x = t{index} + 1",
                       "    else:", "        x = x - 1", f"    say({index})"]  # fmt: skip
        source.append("    return x")
        namespace: dict = {"say": say}
        exec("\n".join(source), namespace)
        many = namespace["many"]
        fast = lampwork.compile(many, options={"recompile_limit": 1 << n})
        x = x4()
        with contextlib.redirect_stdout(io.StringIO()):
            for bits in range(1 << n):
                flags = [bool(bits >> index & 1) for index in range(n)]
                assert torch.equal(fast(x, flags), many(x, flags))
        stats = lampwork.stats(fast)
        assert stats["continuations"] == n and not stats["fallbacks"]
        counts.append(stats["entries"])
    # Two entries (one for each side of the branch) at the start and behind every break but the last.
    assert counts == [2 * 2 + 1, 2 * 4 + 1]


def test_fullgraph_raises_at_the_first_break():
    with pytest.raises(lampwork.GraphBreak, match="say"):
        lampwork.compile(one_break, fullgraph=True)(x4())


def test_warnings_name_the_users_line():
    def warns(x):
        y = x * 2
        warnings.warn("look here")
        return y

    def where(function):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(x4())
        return [(each.filename, each.lineno, str(each.message)) for each in caught]

    assert where(lampwork.compile(warns)) == where(warns) != []


def test_a_long_loop_does_not_recurse():
    def loops(x, count):
        while count.item() > 0:
            x = x + 1
            count = count - 1
        return x

    fast = lampwork.compile(loops)
    assert torch.equal(fast(x4(), torch.tensor(3000)), x4() + 3000)


WARM = """
import sys
import torch
import lampwork


@lampwork.disable
def say(*values):
    print(*values)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 2)

    def hidden(self, x):
        y = self.first(x).relu()
        say("hidden", tuple(y.shape))
        return y

    def forward(self, x):
        for index in range(2):
            x = self.hidden(x)
        try:
            return self.second(x), len(x)
        finally:
            say("done")


torch.manual_seed(0)
model = Model().eval()
fast = lampwork.compile(model)
x = torch.randn(3, 4)
with torch.no_grad():
    found, expected = fast(x), model(x)
assert torch.allclose(found[0], expected[0], atol=1e-6) and found[1] == expected[1]
stats = lampwork.stats(fast)
loaded = [name for name in sys.modules if name.startswith(("lampwork.capture", "lampwork.lower", "llvmlite"))]
print(stats["captures"], stats["cache_hits"], stats["continuations"], len(stats["fallbacks"]), loaded)
"""


def test_a_warm_start_with_breaks_captures_nothing(tmp_path):
    runs = run_cold_and_warm(tmp_path, WARM)
    cold, warm = [lines[-1].split(maxsplit=4) for lines in runs]
    assert int(cold[0]) > 1 and cold[1] == "0" and cold[3] == "0"
    assert warm[:2] == ["0", cold[0]] and warm[2:4] == cold[2:4] and warm[4] == "[]", runs[1]
    assert runs[0][:-1] == runs[1][:-1]
