"""What `module:factory` names."""

from __future__ import annotations

import sys

import pytest
import torch

import lampwork
from lampwork.warming import named

SOURCE = """
import torch, lampwork
def double(x, scale=2): return x * scale
compiled = lampwork.compile(double)
model = torch.nn.Linear(2, 2)
class Model(torch.nn.Module): pass
def factory(): return Model()
def with_args(): return double, (torch.ones(2),), {"scale": 5}
def of_compiled(): return compiled, [torch.ones(2)]
def nothing(): return 3
def a_class(): return Model
def fails(): raise KeyError("inside")
number = 3
class Holder:
    inner = staticmethod(double)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "warmed_module.py").write_text(SOURCE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path / "warmed_module.py"
    sys.modules.pop("warmed_module", None)


@pytest.mark.parametrize("separator", [":", "::"])
def test_what_is_found(module, separator):
    prefix = f"{module}::" if separator == "::" else "warmed_module:"

    def found(name):
        return named.found(prefix + name)

    double = found("double")[0]
    assert double(3) == 6 and found("Holder.inner")[0](3) == 6 and found("double")[1] is None
    assert isinstance(found("model")[0], torch.nn.Linear) and found("model")[1] is None
    assert type(found("factory")[0]).__name__ == "Model"
    function, (args, kwargs) = found("with_args")
    assert function(*args, **kwargs).tolist() == [5, 5]
    assert lampwork.stats(found("compiled")[0])["calls"] == lampwork.stats(found("of_compiled")[0])["calls"] == 0
    assert found("of_compiled")[1][1] == {}


@pytest.mark.parametrize(
    ("target", "error", "told"),
    [
        ("warmed_module", ValueError, "package.module:factory"),
        (":x", ValueError, "package.module:factory"),
        ("warmed_module:absent", ValueError, "no 'absent'"),
        ("warmed_module:Model", TypeError, "is a class"),
        ("warmed_module:number", TypeError, "is int"),
        ("warmed_module:nothing", TypeError, "returned int"),
        ("warmed_module:a_class", TypeError, "a factory returns"),
        ("warmed_module:fails", KeyError, "inside"),
        ("no_such_module:x", ImportError, "no_such_module"),
        ("nowhere.py::x", ValueError, "no such file"),
    ],
)
def test_what_is_not_found(module, target, error, told):
    with pytest.raises(error, match=told):
        named.found(target)


def test_names_that_lead_back(module):
    compiled = named.found("warmed_module:compiled")[0]
    assert named.name_of(named.found("warmed_module:double")[0]) == "warmed_module:double"
    assert named.name_of(compiled) == "warmed_module:compiled"
    assert named.name_of(lambda x: x) is None and named.name_of(torch.nn.Linear(1, 1)) is None
    assert named.name_of(test_names_that_lead_back) == f"{__name__}:test_names_that_lead_back"
