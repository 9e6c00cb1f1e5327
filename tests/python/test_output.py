"""What a compiled program prints, logs and warns of: in eager's order, once, and seen by others as in eager."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings

import pytest
import torch

import lampwork
from tests.python.warm import run_cold_and_warm

X = torch.arange(4.0)
log = logging.getLogger("lampwork_tests.output")
SEEN: list = []
STATE: list = []


class Watching(logging.Handler):
    """A handler that looks at more than the record."""

    def emit(self, record):
        SEEN.append((record.getMessage(), record.lineno, record.funcName, list(STATE)))


@pytest.fixture(autouse=True)
def handler():
    SEEN.clear()
    STATE.clear()
    added = Watching()
    log.addHandler(added)
    log.propagate = False
    yield
    log.removeHandler(added)


def compiled(program):
    return lampwork.compile(program, options={"cache": False})


def both(program, *args):
    """What eager and two compiled calls print; breaks of the compiled function."""
    fast = compiled(program)
    texts = []
    for function in (program, fast, fast):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                function(*[each.clone() for each in args])
            except Exception as error:
                print(f"{type(error).__name__}: {error}")
        texts.append(printed.getvalue())
    assert texts[0] == texts[1] == texts[2]
    return [each.id for each in lampwork.stats(fast)["breaks"]]


def test_a_handler_that_looks_around_sees_what_it_sees_in_eager():
    def before_effects(x):
        log.warning("loss %.2f", x.sum())
        STATE.append(1)
        return x

    def among_effects(x):
        STATE.append(1)
        log.warning("one")
        STATE.append(2)
        return x * 2

    def after_effects(x):
        STATE.extend([1, x.dim()])
        log.warning("two of %s", [x.shape[0]])
        return x

    for program, breaks in ((before_effects, 0), (among_effects, 1), (after_effects, 0)):
        fast = compiled(program)
        found = []
        for function in (program, fast, fast):
            SEEN.clear()
            STATE.clear()
            function(X)
            found.append(list(SEEN))
        assert found[0] == found[1] == found[2] and len(found[0]) == 1
        assert len(lampwork.stats(fast)["breaks"]) == breaks


def test_a_handler_that_looks_at_tensors_sees_them_as_they_are():
    held = X.clone()
    STATE.append(held)

    def writes_later(x):
        log.warning("now")
        x.add_(1)
        return x

    compiled(writes_later)(held)
    assert SEEN[0][3][0] is held and float(held[0]) == 1
    values = []

    class Copying(logging.Handler):
        def emit(self, record):
            values.append(float(held[0]))

    handler = Copying()
    log.addHandler(handler)
    try:
        compiled(writes_later)(held)
    finally:
        log.removeHandler(handler)
    assert values == [1.0]


def test_a_closed_stream_refuses_as_in_eager():
    stream = io.StringIO()
    fast = compiled(lambda x: (print("text", file=STATE[0]), x + 1)[1])
    STATE.append(stream)
    fast(X)
    assert stream.getvalue() == "text\n"
    stream.close()
    for _ in range(2):
        with pytest.raises(ValueError, match="closed"):
            fast(X)


def test_a_stream_without_a_code_for_a_letter_refuses_as_in_eager():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    STATE.append(stream)

    def program(x):
        try:
            print("größer", file=STATE[0])
        except UnicodeEncodeError:
            return x + 1
        return x

    assert torch.equal(compiled(program)(X), X + 1)


def test_a_number_that_cannot_be_computed_prints_once():
    def program(x):
        print("root of", x.sum().item())
        return x * math.sqrt(x.sum().item())

    assert both(program, X) == []
    assert both(program, -X) == []


def test_text_is_what_tensors_held_at_its_line():
    def program(x):
        y = x * 2
        print(y, y[1:], x)
        y.mul_(3)
        x.sub_(1)
        print(y, y[1:], x, [x, (y.sum(),)])
        return y

    assert both(program, X) == []


def test_parts_of_a_line_are_written_up_to_the_value_that_fails():
    class Refuses:
        def __str__(self):
            raise RuntimeError("no text")

    def program(x):
        print("one", 2, Refuses())
        return x

    assert both(program, X) == []


def test_warnings_are_shown_once_for_a_line():
    def program(x):
        for _ in range(2):
            warnings.warn("of this line")
        warnings.warn("of the caller", stacklevel=2)
        return x + 1

    def shown(function):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _ in range(3):
                function(X)
        return [(str(each.message), each.filename, each.lineno) for each in caught]

    fast = compiled(program)
    assert shown(program) == shown(fast) and len(shown(fast)) == 2
    assert not lampwork.stats(fast)["breaks"]


def test_sizes_that_are_printed_stay_symbols():
    fast = lampwork.compile(lambda x: (print("shape", x.shape), x * 2)[1], dynamic=True, options={"cache": False})
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for size in range(2, 9):
            fast(torch.ones(size, 3))
    assert printed.getvalue() == "".join(f"shape torch.Size([{size}, 3])\n" for size in range(2, 9))
    assert lampwork.stats(fast)["captures"] == 1


WARM = """
import logging, sys, torch, lampwork
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(lineno)d %(message)s")

logging.getLogger("a")

def program(x):
    print("sum", x.sum(), f"{x.mean().item():.2f}")
    logging.getLogger("a").warning("shape %s", tuple(x.shape))
    return x * 2

fast = lampwork.compile(program)
fast(torch.ones(3))
found = lampwork.stats(fast)
print(found["captures"], found["cache_hits"], len(found["breaks"]), "lampwork.capture.capture" in sys.modules)
"""


def test_a_stored_entry_prints(tmp_path):
    lines = run_cold_and_warm(tmp_path, WARM)
    assert lines[0][:-1] == lines[1][:-1] == ["sum tensor(3.) 1.00", "WARNING 9 shape (3,)"]
    assert lines[0][-1] == "1 0 0 True" and lines[1][-1] == "0 1 0 False"


def test_counters_are_printed_without_compiling_again():
    def step(x, count):
        count.add_(1)
        now = count.item()
        print(f"step {now:.0f}, rate {0.1 / now:.2e}", now, [now], "%g" % now)
        return x * now

    fast = compiled(step)
    texts = []
    for function in (step, fast):
        count = torch.tensor(0.0)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            for _ in range(12):
                function(X, count)
        texts.append(printed.getvalue())
    assert texts[0] == texts[1]
    stats = lampwork.stats(fast)
    assert stats["captures"] <= 2 and not stats["fallbacks"]
