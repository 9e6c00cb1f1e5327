"""Whatever fails inside Lampwork, a call does what eager does, once: each part is made to fail in turn.

A fault is a function of ours that raises, from its first call on or from a later one. Programs with effects (writes,
appended items, attributes, random numbers, printed text, exceptions, breaks) run with it as users run them, and all
that can be observed must be eager's (see `tests/python/harness.py`). Each fault must be reached by some program, and
what it does to a call is counted and warned of.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import lampwork
from lampwork.config import environment
from lampwork.errors import LampworkWarning
from lampwork.runtime.launch.host import Host
from tests.python.compare import Comparison
from tests.python.harness import Side, load_feature

FEATURE = "effects_in_order"


class Fault(Exception):
    """What a part of Lampwork raises that a test made fail."""


class Failing:
    """`function`, which raises from call number `after` on. `reached`: how often it did."""

    def __init__(self, function: Callable, after: int) -> None:
        self.function, self.after, self.calls, self.reached = function, after, 0, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls > self.after:
            self.reached += 1
            raise Fault("made to fail")
        return self.function(*args, **kwargs)

    def as_method(self) -> Callable:
        return lambda *args, **kwargs: self(*args, **kwargs)


#: Functions that fail, as "module:attribute"; with a number, from their so-many-th call on.
FUNCTIONS = [
    "lampwork.pipeline:capture",
    "lampwork.pipeline:prepare",
    "lampwork.pipeline:prepare_halves",
    "lampwork.pipeline:lower",
    "lampwork.pipeline:schedule",
    "lampwork.pipeline:generate",
    "lampwork.pipeline:host_source",
    "lampwork.pipeline:compile_region",
    "lampwork.pipeline:compile_call",
    "lampwork.pipeline:compile_call 1",
    "lampwork.runtime.function:foreign_device",
    "lampwork.runtime.function:start_gpu_compilers",
    "lampwork.runtime.entry:TemplateWriter",
    "lampwork.runtime.entry:StaticGuards",
    "lampwork.runtime.entry:compile_check",
    "lampwork.runtime.guards.recompiles:recompile",
    "lampwork.runtime.guards.varying:what_varied",
    "lampwork.runtime.leave.continuation:caller",
    "lampwork.runtime.cache.entries:StoredEntries",
    "lampwork.runtime.cache.entries:store",
    "lampwork._torch:active_modes",
]
#: Methods that fail.
METHODS = [
    "lampwork.runtime.function:CompiledFunction.continuation",
    "lampwork.runtime.function:CompiledFunction._serving",
    "lampwork.runtime.function:CompiledFunction._note_what_varied",
    "lampwork.runtime.leave.continuation:BreakPoint._at",
    "lampwork.runtime.stats:Counters.fell_back",
    "lampwork.runtime.stats:Counters.took",
    "lampwork.runtime.stats:Counters.broke",
    "lampwork.runtime.stats:Counters.recompiled",
    "lampwork.runtime.stats:Counters.spent",
]
#: Names of generated text that fail when it runs: in the guards, around the program, in the program.
IN_TEXT = [("check", 0), ("check", 3), ("run", 0), ("run", 1), ("runtime.as_tensor", 0), ("runtime.allocate", 0)]
IN_HOST = ["new_lease", "empty", "operator", "below_autograd", "runs"]
#: Modules that cannot be imported when they are needed.
IMPORTS = [
    "lampwork.pipeline",
    "lampwork.runtime.cache.entries",
    "lampwork.runtime.leave.continuation",
    "lampwork.runtime.guards.recompiles",
    "lampwork.runtime.guards.varying",
    "lampwork.runtime.autograd.differentiate",
    "lampwork.debug.reproducer",
]


def programs() -> list[str]:
    return sorted(load_feature(FEATURE)[1])


def run(name: str) -> lampwork.api.Mapping:
    """Runs the program on both sides and compares after each call; the compiled side's statistics."""
    eager, compiled = Side(FEATURE, name, False), Side(FEATURE, name, True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LampworkWarning)
        for number, which in enumerate(eager.program.order):
            expected = eager.call(which, number)
            found = compiled.call(which, number)
            Comparison(eager.module.__name__).compare(expected, found)
    return lampwork.stats(compiled.function)


@pytest.fixture(autouse=True)
def as_users_run_it(monkeypatch, tmp_path):
    monkeypatch.setitem(vars(environment), "strict", False)
    monkeypatch.setitem(vars(environment), "cache_dir", str(tmp_path))
    monkeypatch.setattr("tests.python.harness.CACHED", True)


#: What a fault runs with, and those that need something else to be reached.
USUAL = ("breaks_in_the_middle", "raises_after_writes")
NEEDED = {
    "prepare_halves": "gives_a_loss",
    "fell_back": "raises_after_writes",
    "took": "raises_after_writes",
    "recompile": "is_compiled_for_several_sizes",
    "recompiled": "is_compiled_for_several_sizes",
    "what_varied": "is_compiled_for_several_sizes",
    "_note_what_varied": "is_compiled_for_several_sizes",
    "compile_call 1": "is_compiled_for_several_sizes",
    "lampwork.runtime.guards.recompiles": "is_compiled_for_several_sizes",
    "lampwork.runtime.guards.varying": "is_compiled_for_several_sizes",
    "lampwork.runtime.autograd.differentiate": "gives_a_loss",
    "as_tensor": "takes_gradients",
}


def everywhere(failing: Failing | None = None, place: str = "") -> None:
    name = place.rpartition(":")[2].rpartition(".")[2] if ":" in place else place
    for name in (NEEDED[name],) if name in NEEDED else USUAL:
        try:
            run(name)
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    assert failing is None or failing.reached, "no program comes by there"


def test_nothing_fails():
    for name in programs():
        assert not [each for each in run(name)["fallbacks"] if each.id in ("compiler-failed", "run-failed")]


@pytest.mark.parametrize("place", FUNCTIONS)
def test_a_function_fails(place, monkeypatch):
    where, _, after = place.partition(" ")
    module, _, attribute = where.partition(":")
    owner = importlib.import_module(module)
    failing = Failing(getattr(owner, attribute), int(after or 0))
    monkeypatch.setattr(owner, attribute, failing)
    everywhere(failing, place)


@pytest.mark.parametrize("place", METHODS)
def test_a_method_fails(place, monkeypatch):
    module, _, path = place.partition(":")
    cls, _, name = path.partition(".")
    owner = getattr(importlib.import_module(module), cls)
    failing = Failing(getattr(owner, name), 0)
    monkeypatch.setattr(owner, name, failing.as_method())
    everywhere(failing, name)


@pytest.mark.parametrize("name, after", IN_TEXT)
def test_generated_text_fails(name, after, monkeypatch):
    """The text of entries calls what its namespace holds: that is replaced when the text is made to a function."""
    from lampwork.runtime import entry
    from lampwork.runtime.leave import reconstruction

    made: list[Failing] = []

    def failing(function: Callable) -> Failing:
        made.append(Failing(function, after))
        return made[-1]

    if name == "check":
        plain = entry.compile_check
        monkeypatch.setattr(entry, "compile_check", lambda guards, reads: failing(plain(guards, reads)))
    elif name == "run":
        plain_init = Host.__init__

        def init(self: Host, artifact: Any) -> None:
            plain_init(self, artifact)
            inner, self.call = self.call, None  # type: ignore[assignment]
            broken = failing(inner)

            def call(*args: Any) -> Any:
                try:
                    return broken(*args)
                except Fault as error:
                    raise entry.Rerun from error

            self.call = call

        monkeypatch.setattr(Host, "__init__", init)
    else:
        helper = name.partition(".")[2]
        broken = failing(getattr(reconstruction._HELPERS, helper))
        monkeypatch.setattr(reconstruction._HELPERS, helper, staticmethod(broken))
        everywhere(None, helper)
        return
    everywhere()
    assert any(each.reached for each in made)


@pytest.mark.parametrize("name", IN_HOST)
def test_what_a_host_function_calls_fails(name, monkeypatch):
    plain = Host._names

    def names(self: Host) -> dict[str, Any]:
        found = plain(self)
        if name == "runs":
            found["runs"] = tuple(Failing(each, 0) for each in found["runs"])
        elif name == "operator":
            found["operator"] = lambda which: Failing(plain(self)["operator"](which), 0)
        else:
            found[name] = Failing(found[name], 0)
        return found

    if name in ("runs", "operator"):  # fails behind the first write, too: then the error is the call's
        monkeypatch.setattr(Host, "_names", names)
        for each in ("draws_numbers",) if name == "operator" else ():
            run(each)
        return
    monkeypatch.setattr(Host, "_names", names)
    everywhere()


@pytest.mark.parametrize("module", IMPORTS)
def test_a_module_cannot_be_imported(module, monkeypatch):
    package, _, name = module.rpartition(".")
    monkeypatch.delattr(importlib.import_module(package), name, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    everywhere(None, module)


def test_a_reproducer_fails(monkeypatch):
    monkeypatch.setattr("lampwork.pipeline.lower", Failing(None, 0))
    failing = Failing(None, 0)
    monkeypatch.setattr("lampwork.debug.reproducer.write_reproducer", failing)
    everywhere(failing)


def test_showing_a_warning_fails(monkeypatch):
    """As where standard error is closed."""
    monkeypatch.setattr("lampwork.pipeline.lower", Failing(None, 0))
    plain = warnings.warn

    def warn(message: Any, category: Any = None, *rest: Any, **kwargs: Any) -> None:
        if category is LampworkWarning:
            raise OSError("standard error is closed")
        plain(message, category, *rest, **kwargs)

    monkeypatch.setattr("lampwork.runtime.function.warnings.warn", warn)
    everywhere()


def test_a_failure_is_counted_and_warned_of_once(monkeypatch):
    monkeypatch.setattr("lampwork.runtime.entry.compile_check", lambda guards, reads: Failing(None, 0))
    compiled = lampwork.compile(lambda x: x + 1, options={"cache": False})
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(5):
            assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))
    assert [each.category for each in seen] == [LampworkWarning] and "stage guards" in str(seen[0].message)
    assert sum(each.count for each in lampwork.stats(compiled)["fallbacks"]) == 5


def test_strict_mode_raises(monkeypatch):
    monkeypatch.setitem(vars(environment), "strict", True)
    compiled = lampwork.compile(lambda x: x + 1, options={"cache": False})
    compiled(torch.zeros(2))
    entry = compiled.__lampwork__.entries[0]
    entry.serve.__globals__["check"] = Failing(None, 0)
    with pytest.raises(lampwork.LampworkError, match="stage guards"):
        compiled(torch.zeros(2))
