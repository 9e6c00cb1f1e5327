"""What commands are asked about: `script.py::function`, `package.module:factory`, or a model of the zoo."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: A call: a function, its arguments and its keywords.
Found = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is needed to find a call, and where the answer is written to."""
    parser.add_argument("--args", metavar="PYTHON", help="of a function: its arguments, such as 'torch.ones(4)'")
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="of a model of the zoo (cpu)")
    parser.add_argument("--size", default="full", help="of a model of the zoo (full)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page that needs nothing beside it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the answer as JSON; '-' prints it")


def can_write(arguments: argparse.Namespace, command: str) -> bool:
    """Whether the folders of `--json` and `--html` exist; says which does not."""
    for path in filter(None, (arguments.json, arguments.html)):
        if not path.resolve().parent.is_dir():
            print(f"lampwork {command}: {path}: its folder does not exist; create it first", file=sys.stderr)
            return False
    return True


def found(target: str, arguments: argparse.Namespace) -> Found:
    """The call that `target` names. Raises ValueError, TypeError, ImportError or OSError where there is none."""
    from lampwork.benchmark import zoo
    from lampwork.commands.explain import find

    if "::" in target:
        return find(target, arguments.args)
    workload = zoo.build(target, device=arguments.device, size=arguments.size)
    return workload.function, workload.args, workload.kwargs


@contextlib.contextmanager
def prepared(function: Callable[..., Any], trains: bool, gradients: bool) -> Iterator[None]:
    """A module is put in training or evaluation mode, and gradients are on or off for it; functions are left alone."""
    import torch

    if not isinstance(function, torch.nn.Module):
        yield
        return
    function.train(trains)
    with torch.set_grad_enabled(gradients):
        yield
