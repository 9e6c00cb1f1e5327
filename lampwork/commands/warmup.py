"""`lampwork warmup`: fill the on-disk cache for calls that will come, as a step of a build."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lampwork.config import MODES, environment

if TYPE_CHECKING:
    from lampwork.warming.report import Warmup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of `lampwork warmup`."""
    parser.add_argument("target", metavar="TARGET", help="package.module:factory or script.py::factory, which returns "
                        "a callable, or (callable, args); or a function, or what is compiled, by its name")  # fmt: skip
    parser.add_argument("--shapes", action="append", default=[], metavar="CALL", help="the arguments of a call, "
                        "such as 'float32[1,128] int64[1,128] scale=2'; given again, of one more. Without it those of "
                        "the factory")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="compile in so many processes (1)")
    parser.add_argument(
        "--run", action="store_true", help="make the calls, so that what follows breaks is compiled, too"
    )
    parser.add_argument("--grad-mode", default="no_grad", choices=["no_grad", "inference_mode", "grad"],
                        help="in which the calls will be made (no_grad)")  # fmt: skip
    parser.add_argument("--mode", choices=MODES, help="of what is not compiled yet: as lampwork.compile takes it")
    parser.add_argument("--dynamic", action=argparse.BooleanOptionalAction, default=None, help="the same")
    parser.add_argument("--fullgraph", action="store_true", help="the same")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="the same: freeze=True")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the answer as JSON; '-' prints it")


def run(arguments: argparse.Namespace) -> int:
    """Print what became of each call. 1 where one would run eagerly, or other processes will not find its entry; 2 with
    a message if there is no such target or call."""
    from lampwork.errors import OptionError

    if not environment.cache:
        print("lampwork warmup: the on-disk cache is switched off by LAMPWORK_CACHE=0: unset it", file=sys.stderr)
        return 2
    try:
        made = _warmed(arguments)
    except (OptionError, ValueError, TypeError, ImportError, OSError) as error:
        print(f"lampwork warmup: {error}", file=sys.stderr)
        return 2
    if str(arguments.json) == "-":
        print(json.dumps(made.to_dict()))
    else:
        _print(made)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(made.to_dict()))
    return 0 if made and made.is_stored else 1


def _warmed(arguments: argparse.Namespace) -> Warmup:
    import contextlib

    import torch

    import lampwork
    from lampwork.warming import shapes

    modes: dict[str, Any] = {
        "no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "grad": contextlib.nullcontext,
    }  # fmt: skip
    calls = [shapes.call(text) for text in arguments.shapes]
    with modes[arguments.grad_mode]():
        return lampwork.warmup(arguments.target, calls, jobs=arguments.jobs, run=arguments.run, **_options(arguments))


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `lampwork.compile` is to be given: only what was said, as something may be compiled already."""
    given: dict[str, Any] = {}
    if arguments.mode is not None:
        given["mode"] = arguments.mode
    if arguments.dynamic is not None:
        given["dynamic"] = arguments.dynamic
    if arguments.fullgraph:
        given["fullgraph"] = True
    for text in arguments.option:
        name, _, value = text.partition("=")
        try:
            given.setdefault("options", {})[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            given.setdefault("options", {})[name] = value
    return given


def _print(made: Warmup) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=None, padding=(0, 1))
    for title in ("call", "state", "seconds", "stored", "why"):
        table.add_column(title, justify="right" if title == "seconds" else "left", overflow="fold")
    for each in made.calls:
        colour = "green" if each.is_warm and each.stored else "yellow" if each.is_warm else "red"
        cells = (each.call, each.state, f"{each.seconds:.2f}", "yes" if each.stored else "no", each.why)
        table.add_row(*(cell.replace("[", r"\[") for cell in cells), style=colour)
    console.print(table)
    processes = "1 process" if made.jobs == 1 else f"{made.jobs} processes"
    console.print(f"{made.name}: {len(made.calls)} calls in {made.seconds:.1f} s, {processes}", markup=False)
