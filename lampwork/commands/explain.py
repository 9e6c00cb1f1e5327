"""`lampwork explain`: how one function of a script, or one model of the zoo, compiles."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of `lampwork explain`."""
    parser.add_argument(
        "target", metavar="TARGET", help="script.py::function, package.module:factory, or a model of the zoo"
    )
    parser.add_argument(
        "--args",
        metavar="PYTHON",
        help="the function's arguments, evaluated among the script's own names: 'torch.ones(4), scale=2'. Without it a "
        "function that takes none is called, and may return (callable, args) to be explained instead",
    )
    parser.add_argument("--calls", type=int, default=0, metavar="N", help="call it N times compiled first, which "
                        "measures what breaks and recompiles cost")  # fmt: skip
    parser.add_argument("--stage", metavar="NAME", help="print one section, or 'all' with every graph and the code")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page that needs nothing beside it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the facts as JSON")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write a file for each stage of each graph, and a "
                        "repro.py that compiles it by itself, with random weights and inputs")  # fmt: skip
    parser.add_argument("--grad-mode", default="no_grad", choices=["no_grad", "inference_mode", "grad"])


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation, or write it; 2 with a message if the target cannot be found or called."""
    import torch

    import lampwork

    try:
        function, args, kwargs = find(arguments.target, arguments.args)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"lampwork explain: {error}", file=sys.stderr)
        return 2
    for path in filter(None, (arguments.html, arguments.json)):
        if not path.resolve().parent.is_dir():
            print(f"lampwork explain: {path}: its folder does not exist; create it first", file=sys.stderr)
            return 2
    modes: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
        "grad": contextlib.nullcontext,
    }
    with modes[arguments.grad_mode]():
        if arguments.calls:
            function = lampwork.compile(function, options={"cache": False})
            for _ in range(arguments.calls):
                function(*args, **kwargs)
        explanation = lampwork.explain(function, *args, **kwargs)
    if arguments.html is not None:
        arguments.html.write_text(explanation.html())
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(explanation.to_dict(), indent=1))
    if arguments.dump is not None:
        try:
            written = explanation.dump(arguments.dump)
        except OSError as error:
            print(f"lampwork explain: --dump: {error}", file=sys.stderr)
            return 2
        print("\n".join(map(str, written)))
    if arguments.stage is not None and arguments.stage != "all":
        if arguments.stage not in explanation:
            print(
                f"lampwork explain: no section {arguments.stage!r}; there are {', '.join(explanation)}", file=sys.stderr
            )
            return 2
        print(explanation[arguments.stage])
    elif arguments.stage == "all":
        print(explanation)
    elif arguments.html is None and arguments.json is None and arguments.dump is None:
        print(explanation.overview())
    paths = [str(path) for path in (arguments.html, arguments.json) if path is not None]
    if paths:
        print(f"{explanation.answer()}\nwritten: {', '.join(paths)}")
    return 0


def find(target: str, arguments: str | None) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]]:
    """The function that `target` names, and the arguments of the call to explain.

    Raises ValueError or TypeError with the remedy if there is no such function or its arguments are not known.
    """
    if "::" not in target:
        if target.endswith(".py"):
            raise ValueError(f"{target}: name a function of it: {target}::function")
        from lampwork.benchmark import zoo

        workload = zoo.build(target)
        return workload.function, workload.args, workload.kwargs
    path, _, name = target.partition("::")
    module = load_script(Path(path))
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise ValueError(f"{path} has no function {name!r}")
    if isinstance(function, type):
        raise TypeError(f"{name} is a class: name a function that returns (callable, args), as ({name}(...), (x,))")
    if arguments is not None:
        return function, *evaluate(arguments, module)
    try:
        made = function()
    except TypeError as error:
        raise TypeError(f"{name}() failed: {error}; give its arguments: --args 'torch.ones(4), scale=2'") from error
    if isinstance(made, tuple) and len(made) in (2, 3) and callable(made[0]) and isinstance(made[1], tuple | list):
        return made[0], tuple(made[1]), dict(made[2]) if len(made) == 3 else {}
    return function, (), {}


def load_script(path: Path) -> ModuleType:
    """The script as a module, imported under its own name so that its functions are found by name later."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def evaluate(arguments: str, module: ModuleType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`"1, x=2"` as ((1,), {"x": 2}), with the names of `module`, and `torch`."""
    names = {"torch": importlib.import_module("torch"), **vars(module)}
    try:
        return eval(f"(lambda *args, **kwargs: (args, kwargs))({arguments})", names)
    except Exception as error:
        raise ValueError(f"--args {arguments!r}: {type(error).__name__}: {error}") from error
