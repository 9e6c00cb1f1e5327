"""Dates, digests, pickles and modules by name stay in the graph, and are what eager has."""

from __future__ import annotations

import datetime
import hashlib
import importlib
import pickle
import uuid

import pytest
import torch

import lampwork


def dates(x, n):
    day = datetime.date(2024, 2, 27) + datetime.timedelta(days=n)
    at = datetime.datetime(2024, 1, 1, 3).replace(hour=n)
    return x * day.day, day.isoformat(), f"{day:%d %A}", (day - datetime.date(2024, 1, 1)).days, day, at, {day: str(at)}


def digests(x, n):
    text = f"run-{n}".encode()
    digest = hashlib.sha1(text)
    digest.update(b"more")
    return x + n, digest.hexdigest(), hashlib.new("md5", text).digest(), str(uuid.uuid5(uuid.NAMESPACE_DNS, "a" * n))


def pickles(x, n):
    data = pickle.dumps({"n": n, "list": [1, 2.5, "a"]}, protocol=4)
    return x * pickle.loads(data)["n"], data


def modules(x, n):
    module = __import__("math" if n % 2 else "cmath")
    return x, module.__name__, __import__("os.path").sep, importlib.import_module("json").dumps([n])


def refused(x, n):
    try:
        pickle.loads(b"junk" * n)
    except pickle.UnpicklingError as error:
        return x, str(error)
    return x


@pytest.mark.parametrize("program", [dates, digests, pickles, modules, refused])
def test_whole(program):
    compiled = lampwork.compile(program)
    for n in (1, 2, 3):
        assert str(compiled(torch.ones(2), n)) == str(program(torch.ones(2), n))
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"]


def from_outside(x, day):
    return x + day.day, day + datetime.timedelta(days=1), pickle.loads(pickle.dumps(day))


def test_left_to_eager():
    compiled = lampwork.compile(from_outside)
    for day in (datetime.date(2020, 1, 1), datetime.date(2021, 3, 4)):
        assert str(compiled(torch.ones(2), day)) == str(from_outside(torch.ones(2), day))


def test_packages_that_load_parts_of_themselves_when_asked(tmp_path, monkeypatch):
    """By a `__getattr__` of the module: the part is loaded while capturing, as an import statement loads one."""
    (tmp_path / "lazily").mkdir()
    (tmp_path / "lazily" / "__init__.py").write_text(
        "import importlib\n\n\ndef __getattr__(name):\n    return importlib.import_module(f'.{name}', __name__)\n"
    )
    (tmp_path / "lazily" / "part.py").write_text("FACTOR = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    lazily = importlib.import_module("lazily")

    def program(x):
        return x * lazily.part.FACTOR

    compiled = lampwork.compile(program, options={"cache": False}, fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    assert not lampwork.stats(compiled)["fallbacks"]
    lazily.part.FACTOR = 4
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]


def test_a_module_that_is_not_there(tmp_path):
    def program(x):
        try:
            importlib.import_module("no_module_of_this_name")
        except ModuleNotFoundError as error:
            return x, error.name
        return x, None

    compiled = lampwork.compile(program, options={"cache": False}, fullgraph=True)
    assert compiled(torch.ones(2))[1] == "no_module_of_this_name"
