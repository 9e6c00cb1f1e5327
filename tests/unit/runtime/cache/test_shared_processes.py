"""The shared cache and its notes, from call to call, in fresh processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import lampwork
from tests.processes import run_python

ROOT = Path(lampwork.__file__).parents[1]

PROGRAM = """
import json, sys, warnings, torch, lampwork

def f(x):
    return torch.relu(x) * 2 + 1

with warnings.catch_warnings(record=True) as caught, torch.no_grad():
    warnings.simplefilter("always")
    compiled = lampwork.compile(f)
    right = torch.equal(compiled(torch.ones(4)), torch.full((4,), 3.0))
    if "varies" in sys.argv:
        right &= torch.equal(compiled(torch.ones(9)), torch.full((9,), 3.0))
stats = lampwork.stats(compiled)
loaded = sorted(name for name in sys.modules if name.startswith("lampwork.runtime.cache."))
print(json.dumps({
    "right": right, "captures": stats["captures"], "hits": stats["cache_hits"], "cache": dict(stats["cache"]),
    "notes": stats["cache_notes"], "warnings": [str(each.message) for each in caught], "loaded": loaded,
    "fsspec": "fsspec" in sys.modules, "warming": "lampwork.warming" in sys.modules,
}))
"""


def run(folder, *arguments, **variables):
    settings = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    settings = {**settings, "LAMPWORK_VERIFY": "0", "LAMPWORK_CACHE_DIR": str(folder), **variables}
    done = run_python(["-c", PROGRAM, *arguments], env=settings, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_machines_share_what_one_has_compiled(tmp_path):
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    place = {"LAMPWORK_CACHE_URL": f"file://{tmp_path}/place", "LAMPWORK_CACHE_KEY_FILE": str(key)}
    first = run(tmp_path / "a", **place)
    assert first["right"] and first["captures"] == 1 and not first["warnings"]
    assert first["cache"] == {"stored": 1, "fetched": 0, "refused": 0, "sent": 1, "waited": 0}
    second = run(tmp_path / "b", "varies", **place)
    assert second["right"] and second["captures"] == second["hits"] == second["cache"]["fetched"] == 1
    assert any("1 fetched from file://" in note for note in second["notes"])
    third = run(tmp_path / "b", "varies")  # the place is gone, what came from it stays
    assert third["right"] and third["captures"] == 0 and third["cache"]["fetched"] == 0
    assert not {"shared", "places", "packs", "ranks", "misses"} & {name.rpartition(".")[2] for name in third["loaded"]}
    assert not third["fsspec"] and not third["warming"]


def test_a_place_that_is_not_there_costs_one_warning_and_no_call(tmp_path):
    (tmp_path / "file").write_text("")
    variables = {"LAMPWORK_CACHE_URL": str(tmp_path / "file"), "LAMPWORK_CACHE_TRUST": "1", "LAMPWORK_STRICT": "1"}
    made = run(tmp_path / "a", **variables)
    assert made["right"] and made["captures"] == 1 and made["cache"]["sent"] == 0
    kinds = [text.partition(" cannot be ")[2][:7] for text in made["warnings"]]
    assert kinds == ["read (N", "written"]
