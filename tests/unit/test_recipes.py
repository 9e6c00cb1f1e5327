"""The recipes of docs/extending.md, each followed once as it is written. (That of a guard: runtime/guards/test_rules.py.)"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

import pytest
import torch

import lampwork
from lampwork.capture.natives.effect_classes import EFFECTS, declare
from lampwork.debug.diagnostics import DIAGNOSTICS, Meaning
from lampwork.fakes import shapes
from lampwork.fakes.rules.pointwise import elementwise
from lampwork.lower import expressions as ex
from lampwork.lower import rules as lowering_rules
from lampwork.schedule import segment
from lampwork.schedule.fuse import RULES, Attempt, Refusal
from tests.processes import run_python

ROOT = Path(lampwork.__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()


def section(title: str) -> str:
    """The text of a recipe."""
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)[1]


@pytest.mark.parametrize("title", ["An operator", "A function in C", "A rule of fusion", "A field of stored entries"])
def test_the_page_names_files_that_are_there(title):
    named = re.findall(r"`((?:lampwork|tests|docs)/[\w/.]*[\w/])`", section(title))
    assert named and all((ROOT / name).exists() for name in named)


# An operator ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library():
    made = torch.library.Library("recipes", "FRAGMENT")
    made.define("softclip(Tensor x, float limit) -> Tensor")
    made.impl("softclip", lambda x, limit: x / (1 + (x / limit).abs()), "CPU")
    made.impl("softclip", lambda x, limit: torch.empty_like(x), "Meta")
    torch.ops.recipes.softclip.default  # which PyTorch makes when it is first looked up
    yield made
    made._destroy()


def test_an_operator(library):
    program = lambda x: torch.ops.recipes.softclip(x.sin(), 2.0) + 1
    x = torch.randn(3, 5).t()
    with torch.no_grad():
        before = lampwork.compile(program, options={"cache": False})
        torch.testing.assert_close(before(x), program(x))
        assert dict(lampwork.stats(before)["extern_calls"]) == {"recipes::softclip.default": 1}

        try:

            @shapes.rule("recipes::softclip")
            def shape_of_softclip(x, limit):
                return elementwise((x,), x.dtype)

            @lowering_rules.rule("recipes::softclip")
            def softclip(lowering, x, limit):
                one = lambda a: ex.constant(1, a.dtype)
                return lowering.pointwise(
                    (x,), lambda a: ex.div(a, ex.add(one(a), ex.unary("abs", ex.div(a, ex.constant(limit, a.dtype)))))
                )

            after = lampwork.compile(program, options={"cache": False})
            found = after(x)
            torch.testing.assert_close(found, program(x))
            assert found.stride() == program(x).stride()
            stats = lampwork.stats(after)
            assert not stats["extern_calls"] and stats["native_kernels"] == 1
        finally:
            shapes.RULES.pop("recipes::softclip", None)
            lowering_rules.RULES.pop("recipes::softclip.default", None)


# A function in C -----------------------------------------------------------------------------------------------------


def test_a_function_in_c():
    program = lambda x, key: x + zlib.crc32(key) % 7
    breaks = lambda: [each.id for each in lampwork.stats(compiled)["breaks"]]
    assert zlib.crc32 not in EFFECTS
    compiled = lampwork.compile(program, options={"cache": False})
    assert torch.equal(compiled(torch.ones(2), b"abc"), program(torch.ones(2), b"abc")) and breaks() == [
        "unknown-native"
    ]
    try:
        declare("data", zlib.crc32)
        compiled = lampwork.compile(program, options={"cache": False})
        for key in (b"abc", b"abd"):  # what it is given is guarded
            assert torch.equal(compiled(torch.ones(2), key), program(torch.ones(2), key))
        assert not breaks()
    finally:
        EFFECTS.pop(zlib.crc32)


# A rule of fusion ----------------------------------------------------------------------------------------------------


def _tanh_alone(attempt: Attempt) -> Refusal | None:
    values = [attempt.operator.value, *(member.operator.value for member in attempt.group.members)]
    if any("tanh" in repr(value) for value in values):
        return Refusal("fusion-tanh", "a tanh keeps a kernel of its own")
    return None


def test_a_rule_of_fusion(monkeypatch):
    def program(x):
        total = x.tanh().sum(-1, keepdim=True)
        return total, total * 2 + x

    kernels = lambda: len(lampwork.explain(program, torch.randn(8, 16)).to_dict()["kernels"])
    segment._memo.clear()
    assert kernels() == 1
    monkeypatch.setattr("lampwork.schedule.fuse.RULES", (*RULES, _tanh_alone))
    monkeypatch.setitem(DIAGNOSTICS, "fusion-tanh", Meaning("fusion", "A tanh keeps a kernel of its own.", "None."))
    segment._memo.clear()
    assert kernels() == 2
    assert "a tanh keeps a kernel of its own [fusion-tanh]" in lampwork.explain(program, torch.randn(8, 16))["fusion"]
    segment._memo.clear()


# A field of stored entries -------------------------------------------------------------------------------------------

FIELD = """
import importlib.util, sys
sys.path.insert(0, ROOT)
from tests.mutants.overlay import install

def edited(module, before, after):
    text = open(importlib.util.find_spec(module).origin).read()
    assert text.count(before) == 1, (module, text.count(before))
    install(module, text.replace(before, after))

if sys.argv[1:] == ["field"]:
    edited("lampwork.ir.artifact", "compare=False)\\n", "compare=False)\\n    note: str = ''\\n")
    edited("lampwork.runtime.cache.schema", "\\n    ),\\n}  # fmt: skip\\n\\n#: Classes of modules", " STR,\\n    ),\\n}  # fmt: skip\\n\\n#: Classes of modules")
    edited("lampwork.pipeline", "        locks=region.locks,\\n", "        locks=region.locks,\\n        note=f'for {region.name}',\\n")

import torch, lampwork

def program(x):
    return x * 2 + 1

compiled = lampwork.compile(program)
compiled(torch.ones(3))
artifact = compiled.__lampwork__.entries[0].artifact
print(lampwork.stats(compiled)["cache_hits"], getattr(artifact, "note", None))
"""


def test_a_field_of_stored_entries(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(FIELD.replace("ROOT", repr(str(ROOT))))
    known = {**os.environ, "LAMPWORK_CACHE": "1", "LAMPWORK_CACHE_DIR": str(tmp_path / "cache")}

    def run(*arguments):
        return run_python([script, *arguments], env=known, check=True).stdout.strip()

    assert run() == "0 None"
    assert run("field") == "0 for program"  # entries without the field are not read
    assert run("field") == "1 for program"
    assert run() in ("0 None", "1 None")
