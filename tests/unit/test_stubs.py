"""`typings/`, what the checker is told of PyTorch, names nothing that the installed release does not have."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
import torch
import torch.fx

TYPINGS = Path(__file__).parents[2] / "typings"
STUBS = sorted(TYPINGS.rglob("*.pyi"))


def _examples() -> dict[str, object]:
    """An object of each class whose attributes classes do not show."""
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    return {"Graph": graph, "Node": node, "OpOverload": torch.ops.aten.add.Tensor, "Module": torch.nn.Linear(1, 1),
            "GraphModule": torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())}  # fmt: skip


def _module_name(path: Path) -> str:
    parts = path.relative_to(TYPINGS).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def missing(path: Path) -> list[str]:
    """Classes, methods and attributes of a stub that its module does not have. Private names of modules are the stub's
    own, and what is annotated in a class whose objects are not made here is not looked for."""
    module, examples = importlib.import_module(_module_name(path)), _examples()
    found = []
    for part in ast.parse(path.read_text()).body:
        if not isinstance(part, ast.ClassDef) or part.name == "NodeList":
            continue
        if not hasattr(module, part.name):
            found.append(part.name)
            continue
        made = getattr(module, part.name)
        asked = [made, *([examples[part.name]] if part.name in examples else [])]
        for each in part.body:
            if isinstance(each, ast.FunctionDef):
                name = each.name
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                name = each.target.id
                if part.name in ("SymInt", "SymFloat", "SymBool"):
                    continue
            else:
                continue
            if name != "__getattr__" and not any(hasattr(one, name) for one in asked):
                found.append(f"{part.name}.{name}")
    return found


@pytest.mark.parametrize("path", STUBS, ids=lambda path: _module_name(path))
def test_stubs_name_what_there_is(path: Path) -> None:
    assert not missing(path)


def test_what_is_missing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "torch" / "__init__.pyi"
    stub.parent.mkdir()
    stub.write_text(
        "class Tensor:\n    def no_such_method(self) -> None: ...\n    no_such_name: int\nclass NoSuch: ...\n"
    )
    monkeypatch.setitem(globals(), "TYPINGS", tmp_path)
    assert missing(stub) == ["Tensor.no_such_method", "Tensor.no_such_name", "NoSuch"]
