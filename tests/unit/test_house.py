"""Rules of the house that no import contract can say."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lampwork
from lampwork import _torch

ROOT = Path(lampwork.__file__).parents[1]
PRIVATE = re.compile(r"torch\._[a-zA-Z]|torch\.fx\.experimental")


def private_uses(tree):
    """Lines of `tree` that import a private module of torch or reach into one; strings and comments do not count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        if any(PRIVATE.match(name) for name in names):
            yield node.lineno


def test_private_names_of_torch_stay_in_one_folder():
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in (ROOT / "lampwork").rglob("*.py")
        if path.parent.name != "_torch"
        for line in private_uses(ast.parse(path.read_text()))
    }
    assert not found, "\n".join(sorted(found))


#: Files of `lampwork/capture` that read dicts of objects themselves: those that the program made, and those of classes
#: and functions of which they ask what no program changes.
READ_DICTS = {
    "flow/changes.py", "leave/made_classes.py", "leave/object_reconstruction.py", "leave/output.py",
    "leave/reconstruction.py", "natives/answers.py", "natives/caches.py", "natives/effect_classes.py", "natives/library.py", "natives/optimizers.py",
    "natives/perform.py", "natives/rules.py", "natives/standard_values.py", "natives/thread_locals.py", "values/data.py",
    "values/scalar.py", "world.py",
}  # fmt: skip


def outside_reads(tree):
    """Lines that read `.raw` of something other than decoded code, or add a guard of their own making."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "raw" and not ast.unparse(node.value).endswith("code"):
            yield node.lineno
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("guards.add"):
            yield node.lineno


def dict_reads(tree):
    """Lines in functions that read the dict of an object or a class past what the class has of that name."""
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.Lambda)):
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr == "__dict__":
                    yield node.lineno
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if called in ("vars", "getattr_dict", "type.__getattribute__", "object.__getattribute__"):
                    yield node.lineno


def files_of_capture():
    """(path within `lampwork/capture`, syntax tree) of what answers the program, and may not look at the world itself."""
    folder = ROOT / "lampwork" / "capture"
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if name.parts[0] not in ("outside", "machine", "bytecode"):
            yield name.as_posix(), ast.parse(path.read_text())


def test_objects_from_outside_are_read_in_one_folder():
    stray = [f"{name}:{line}" for name, tree in files_of_capture() for line in outside_reads(tree)]
    assert not stray, "ask capture/outside/facts.py: " + ", ".join(stray)


def test_classes_from_outside_are_read_in_one_folder():
    found = {name: sorted(set(dict_reads(tree))) for name, tree in files_of_capture()}
    assert {name for name, lines in found.items() if lines} == READ_DICTS


def test_every_private_name_is_listed():
    folder = ROOT / "lampwork" / "_torch"
    listed = {
        (node.module.rpartition(".")[2], alias.name)
        for node in ast.walk(ast.parse((folder / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("lampwork._torch.")
        for alias in node.names
    }
    assert {file for file, _ in listed} == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    for file, name in listed:
        assert getattr(_torch, name) is getattr(importlib.import_module(f"lampwork._torch.{file}"), name)


def test_importing_lampwork_loads_neither_compiler_stages_nor_the_peers():
    program = (
        "import sys, torch; before = set(sys.modules); import lampwork; lampwork.compile; lampwork.stats\n"
        "print(' '.join(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    forbidden = (
        "lampwork.capture",
        "lampwork.graph",
        "lampwork.lower",
        "lampwork.schedule",
        "lampwork.codegen",
        "lampwork.pipeline",
        "llvmlite",
        "sympy",
        "torch._dynamo",
        "torch._inductor",
    )
    loaded = [name for name in done.stdout.split() if name.startswith(forbidden)]
    assert not loaded


#: What only training, control flow, kernels that users write, or a GPU needs: a cold start of inference does without.
_LATE = (
    "lampwork.capture.autograd.differentiate", "lampwork.capture.flow.operators",
    "lampwork.capture.natives.kernel_launches", "lampwork.fakes.rules.backward", "lampwork.graph.freeze",
    "lampwork.graph.layout", "lampwork.graph.partition", "lampwork.graph.recompute", "lampwork.graph.relaid",
    "lampwork.graph.replay", "lampwork.lower.activation_backward", "lampwork.lower.normalization_backward",
)  # fmt: skip


def test_inference_loads_neither_peers_nor_what_others_need():
    program = (
        "import sys, torch, lampwork\n"
        "from lampwork.benchmark import zoo\n"
        "workload = zoo.build('mlp', size='tiny')\n"
        "before = set(sys.modules)\n"
        "with torch.no_grad(): lampwork.compile(workload.function, options={'cache': False})(*workload.args)\n"
        "print(' '.join(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert all(importlib.util.find_spec(name) for name in _LATE)
    unwanted = {"sympy", "torch._dynamo", "torch._inductor", *_LATE}
    assert [name for name in done.stdout.split() if name in unwanted] == []


def test_training_convolutions_loads_neither_sympy_nor_the_peers():
    program = (
        "import sys, torch, lampwork\n"
        "model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 1))\n"
        "before = set(sys.modules)\n"
        "lampwork.compile(model, options={'cache': False})(torch.ones(2, 3, 6, 6)).sum().backward()\n"
        "assert model[0].weight.grad is not None\n"
        "print(' '.join(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert [name for name in done.stdout.split() if name in ("sympy", "torch._dynamo", "torch._inductor")] == []


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project and project["dynamic"] == ["version"]
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["dynamic"]["version"]
    assert written == {"attr": "lampwork.__version__"}
    released = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released[0] == "Unreleased" and all(version <= lampwork.__version__ for version in released[1:])


def test_the_map_of_files_names_every_file_and_none_that_is_gone():
    page = (ROOT / "docs" / "architecture.md").read_text().partition("## Where things are")[2]
    named: dict[str, set[str]] = {}
    for title, text in re.findall(r"^\*\*(.*?)\*\*(.*?)(?=^\*\*|\Z)", page, re.S | re.M):
        folder = re.match(r"`(.*)/`", title)
        named[folder.group(1) if folder else "."] = set(re.findall(r"`(\w+\.py)`", text))
    there: dict[str, set[str]] = {}
    for path in (ROOT / "lampwork").rglob("*.py"):
        if path.name == "__init__.py":
            continue
        folders = path.relative_to(ROOT / "lampwork").parent.as_posix()
        while folders not in named:  # `codegen/llvm` is part of the paragraph on `codegen`
            folders = folders.rpartition("/")[0]
        there.setdefault(folders, set()).add(path.name)
    assert {folder: names ^ there[folder] for folder, names in named.items() if names != there[folder]} == {}


DOCS = sorted((ROOT / "docs").rglob("*.md"))


@functools.cache
def paths_of_modules():
    return [path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/*.py") if ".venv" not in path.parts]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_paths_of_the_docs_lead_somewhere(page):
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        assert "://" in link or (page.parent / link).exists(), link
    if page.name == "capture_values.md":  # a plan, which names files that are to be
        return
    for name in re.findall(r"`((?:\w+/)+\w+\.py)", text):
        assert any(path.endswith(f"/{name}") or path == name for path in paths_of_modules()), name


def test_the_readme_opens_with_commands_that_ci_runs():
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"```sh\n(.*?)\n```", readme, re.S)
    assert commands[0].endswith("lampwork bench bert") and commands[1].endswith("python -m pytest -n auto")
    install = "-m venv .venv && .venv/bin/pip install -q -c constraints.txt -e "
    assert all(install in command for command in commands[:2])
    script = (ROOT / ".ci" / "run").read_text()
    assert "pip\" install -q -c constraints.txt -e '.[dev]'" in script and "-m pytest -n auto" in script
