"""A release of PyTorch that lacks a private name: what needs it runs eagerly, all else is compiled, `doctor` tells."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch

from lampwork._torch.private import MissingName, _Missing, is_missing, private
from tests.processes import plain_environment, run_python

ROOT = Path(__file__).parents[2]


def names_read_when_loaded() -> list[str]:
    found = set()
    for file in sorted((ROOT / "lampwork/_torch").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "private":
                assert isinstance(node.args[0], ast.Constant), f"{file.name}: {ast.unparse(node)}"
                found.add(node.args[0].value)
    return sorted(found)


def test_private_names_are_there():
    assert not [name for name in names_read_when_loaded() if is_missing(private(name))]


def test_one_that_is_missing_matches_nothing():
    gone = _Missing("torch._C._gone", (), {})
    assert is_missing(gone) and not is_missing(torch.relu)
    assert not isinstance(torch.zeros(1), gone) and not issubclass(torch.Tensor, gone)
    assert torch.relu not in {gone: 1, gone.more: 2} and is_missing(gone.more)
    with pytest.raises(MissingName, match=re.escape(f"PyTorch {torch.__version__} has no torch._C._gone.more, on")):
        gone.more(1, a=2)


PROGRAM = """
import sys, warnings
import torch
*place, name = sys.argv[1].split(".")
owner = torch
for each in place:
    owner = getattr(owner, each)
if name in vars(owner):
    delattr(owner, name)
else:  # it comes from elsewhere when it is first asked for
    print("eager")
    sys.exit()

def program(x, w):
    y = torch.nn.functional.layer_norm(x @ w, (4,)).relu()
    return y * 2 + torch.nn.functional.softmax(y, -1)

x, w = torch.randn(3, 5), torch.randn(5, 4, requires_grad=True)
try:
    expected = program(x, w)
    expected.sum().backward()
    with torch.no_grad():
        program(x, w)
except Exception as error:  # PyTorch itself cannot do without the name
    print("eager", error)
    sys.exit()
gradient, w.grad = w.grad, None
import lampwork
fast = lampwork.compile(program)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found = fast(x, w)
    found.sum().backward()
    with torch.no_grad():
        assert torch.allclose(fast(x, w), expected, atol=1e-5)
assert torch.allclose(found, expected, atol=1e-5) and torch.allclose(w.grad, gradient, atol=1e-5)
stats = lampwork.stats(fast)
from lampwork.commands.doctor import check_torch
told = " ".join(each.found for each in check_torch())
assert "torch." + sys.argv[1] in told, told
fallbacks = [str(each.message) for each in said if issubclass(each.category, lampwork.LampworkWarning)]
assert all("has no torch." in each for each in fallbacks), fallbacks
print("compiled" if stats["entries"] and not stats["fallbacks"] else "fell back", stats["fallbacks"])
"""


def without(name: str) -> str:
    done = run_python(
        ["-c", PROGRAM, name], cwd=ROOT, env=plain_environment(PATH="", PYTHONPATH=str(ROOT), LAMPWORK_CACHE="0")
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["_C._SDPBackend", "_C._group_tensors_by_device_and_dtype", "_disable_dynamo"])
def test_programs_that_do_not_need_it_are_compiled(name):
    assert without(name).startswith("compiled")


@pytest.mark.slow
@pytest.mark.parametrize("name", names_read_when_loaded())
def test_no_name_is_in_the_way_of_others(name):
    assert without(name).startswith(("compiled", "fell back", "eager"))
