"""`lampwork.warmup`: entries before calls, without effects on the program."""

from __future__ import annotations

import os
import sys

import pytest
import torch

import lampwork
from lampwork.config import use_cache_dir
from lampwork.errors import OptionError
from lampwork.warming import warm
from tests.processes import run_python

SOURCE = """
import torch, lampwork

calls = []

def plain(x, scale=2.0):
    calls.append(1)
    return torch.relu(x) * scale

fast = lampwork.compile(plain)

def breaks(x):
    y = x * 2
    if y.sum() > 0:
        return torch.relu(y) + 1
    return y - 1

def factory():
    print("noise on standard output")
    return plain, (torch.ones(3),)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "warmed.py").write_text(SOURCE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    import warmed

    with use_cache_dir(str(tmp_path / "cache")), torch.no_grad():
        yield warmed
    sys.modules.pop("warmed", None)


def states(made):
    return [each.state for each in made.calls]


def test_calls_are_compiled_once_stored_and_not_made(module):
    inputs = [("float32[4]",), {"x": "float32[2,3]", "scale": 3.0}, (("float32[4]",), {}), torch.ones(4)]
    made = lampwork.warmup(module.fast, inputs)
    assert states(made) == ["compiled", "compiled", "ready", "ready"] and made and made.is_stored
    assert module.calls == []
    stats = lampwork.stats(module.fast)
    assert stats["calls"] == 0 and stats["captures"] == 2
    assert torch.equal(module.fast(torch.ones(4)), torch.full((4,), 2.0))
    assert lampwork.stats(module.fast)["captures"] == 2 and len(module.calls) == 1

    again = lampwork.warmup("warmed:factory", [("float32[4]",)])
    assert states(again) == ["loaded"] and again.is_stored
    text = str(made)
    assert "float32[4]" in text and "compiled" in text and made.to_dict()["calls"][0]["state"] == "compiled"


def test_state_of_the_program_stays(module):
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    with torch.enable_grad():
        made = lampwork.warmup(lampwork.compile(model), [("float32[8,4]",)])
    assert made and all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random) and model[0].weight.grad is None


def test_what_breaks_is_told_and_compiled_to_its_end_where_calls_are_made(module):
    compiled = lampwork.compile(module.breaks)
    made = lampwork.warmup(compiled, [("float32[4]",)])
    assert states(made) == ["breaks"] and not made
    assert "data-dependent" in made.calls[0].why and "What follows is compiled when" in made.calls[0].why
    made = lampwork.warmup(compiled, ["float32[4]"], run=True)
    assert states(made) == ["compiled"] and made and lampwork.stats(compiled)["continuations"] == 1
    assert states(lampwork.warmup(compiled, ["float32[4]"], run=True)) == ["ready"]


def test_what_runs_eagerly_is_told(module):
    made = lampwork.warmup(module.breaks, ["float32[4]"], fullgraph=True)
    assert states(made) == ["eager"] and "data-dependent" in made.calls[0].why and not made
    made = lampwork.warmup(module.plain, [("float32[4]", 1, 2, 3)])
    assert states(made) == ["eager"] and "TypeError" in made.calls[0].why


def test_what_is_not_stored_is_told(module):
    made = lampwork.warmup(module.plain, ["float32[4]"], options={"cache": False})
    assert made and not made.is_stored and "cache is off" in made.calls[0].why and "not stored" in str(made)


BY_OTHERS = """
import torch, lampwork, warmed

with torch.no_grad():
    made = lampwork.warmup(warmed.fast, [("float32[4]",), ("float32[2,3]",), ("float32[2,3,4]",)], jobs=2)
assert [each.state for each in made.calls] == ["compiled"] * 3 and made.jobs == 2 and made and made.is_stored, made
stats = lampwork.stats(warmed.fast)
assert stats["captures"] == 0 and stats["cache_hits"] == 3 and warmed.calls == [], stats
"""


def test_other_processes_compile_where_the_name_is_known(module, tmp_path):
    """In a process of its own: one in which tests have replaced functions of PyTorch has other keys than its jobs."""
    here = [str(tmp_path), os.path.dirname(os.path.dirname(lampwork.__file__)), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, here)),
        "LAMPWORK_CACHE_DIR": str(tmp_path / "c"),
    }
    done = run_python(["-c", BY_OTHERS], env=environment)
    assert done.returncode == 0, done.stderr


def test_nothing_is_imported_here_where_others_do_it(module, tmp_path):
    """A build step that names what it warms up pays for no import of its own."""
    (tmp_path / "only_there.py").write_text(SOURCE + "print('imported')")
    made = lampwork.warmup("only_there:fast", [("float32[4]",), ("float32[2,3]",)], jobs=2)
    assert states(made) == ["compiled"] * 2 and made.is_stored and "only_there" not in sys.modules


def test_a_process_that_fails_is_replaced_by_this_one(module, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'killed for memory' >&2\nexit 137\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    made = lampwork.warmup(module.fast, [("float32[4]",), ("float32[2,3]",)], jobs=2)
    assert made and states(made) == ["compiled"] * 2 and lampwork.stats(module.fast)["captures"] == 2
    assert all("killed for memory" in each.why for each in made.calls)


@pytest.mark.parametrize(
    ("inputs", "more", "told"),
    [
        ([], {}, "give inputs"),
        ([3], {}, "not 3"),
        ([{1: 2}], {}, "keywords"),
        (["float32[4]"], {"jobs": 0}, "jobs"),
        (["float32[4]"], {"jobs": True}, "jobs"),
        (["float32[4]"], {"mode": "auto"}, "compiled already"),
        ((each for each in ["float32[4]"]), {"mode": "auto"}, "compiled already"),
    ],
)
def test_what_is_no_input_and_no_option(module, inputs, more, told):
    with pytest.raises(OptionError, match=told):
        lampwork.warmup(module.fast, inputs, **more)


@pytest.mark.parametrize("value", [3, torch.nn.Linear])
def test_what_cannot_be_compiled(value):
    with pytest.raises(TypeError, match="lampwork.warmup takes a "):
        lampwork.warmup(value, ["float32[4]"])


def test_calls_that_nobody_waits_for_are_not_made(module):
    with pytest.raises(OptionError, match="run=True"):
        lampwork.warmup(lampwork.compile(module.plain, mode="auto"), ["float32[4]"], run=True)


@pytest.mark.parametrize(
    ("item", "call"),
    [
        ((1, 2), ((1, 2), {})),
        ([1, 2], ((1, 2), {})),
        ({"a": 1}, ((), {"a": 1})),
        (((1,), {"a": 2}), ((1,), {"a": 2})),
        ("float32[2]", (("float32[2]",), {})),
        ((), ((), {})),
    ],
)
def test_forms_of_a_call(item, call):
    assert warm.as_call(item) == call
