"""`lampwork verdict`: does compiling pay here, from when on, and what to write."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lampwork.commands import target

if TYPE_CHECKING:
    from lampwork.verdict.verdict import Verdict

#: What stands after `--` is the script's, and is found in `arguments.arguments`.
TAKES_ARGUMENTS_OF_A_SCRIPT = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of `lampwork verdict`."""
    parser.add_argument(
        "target", metavar="TARGET", help="package.module:factory, script.py::function, a model of the zoo, or a script "
        "that is run as it is: `lampwork verdict train.py --steps 60 -- its arguments`"
    )  # fmt: skip
    parser.add_argument("--calls", type=int, metavar="N", help="how many calls, or steps, will be made in all")
    parser.add_argument("--restarts", type=int, default=0, metavar="N", help="how often it starts again, cache filled")
    parser.add_argument("--steps", type=int, default=60, metavar="N", help="of a script: how many steps are tried (60)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a function: then no new way is tried (60)")
    target.add_arguments(parser)
    parser.add_argument("--train", action="store_true", help="of a module: in training mode, with the backward pass")
    parser.add_argument("--price", type=float, metavar="MONEY", help="of an hour: the answer says what is saved")
    parser.add_argument("--dtype", action="append", default=[], choices=["bfloat16", "float16"],
                        help="calculations may be done in this type, by autocast")  # fmt: skip
    parser.add_argument("--no-freeze", action="store_true", help="weights are not constant")
    parser.add_argument("--peer", action="store_true", help="try torch.compile, too")
    parser.add_argument("--require", type=float, metavar="FACTOR", help="exit with status 1 unless all calls together "
                        "are so many times faster than eager's")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict; 2 with a message if there is no such target, 1 if it does not reach `--require`."""
    from lampwork.errors import OptionError

    if not target.can_write(arguments, "verdict"):
        return 2
    # What a script raises is the script's, and is told with its lines; of a function, that its call cannot be made.
    is_script = arguments.target.endswith(".py")
    told = (OptionError,) if is_script else (OptionError, ValueError, TypeError, ImportError, OSError)
    try:
        verdict = _of_script(arguments) if is_script else _of_call(arguments)
    except told as error:
        print(f"lampwork verdict: {error}", file=sys.stderr)
        return 2
    if str(arguments.json) == "-":
        print(json.dumps(verdict.to_dict()))
    else:
        print(verdict)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(verdict.to_dict()))
    if arguments.html is not None:
        arguments.html.write_text(verdict.html())
    if arguments.require is not None and verdict.speedup < arguments.require:
        print(f"lampwork verdict: {verdict.speedup:.2f} times eager, {arguments.require:g} required", file=sys.stderr)
        return 1
    return 0


def _of_script(arguments: argparse.Namespace) -> Verdict:
    from lampwork.errors import OptionError
    from lampwork.verdict.script import assess_script

    path = Path(arguments.target)
    if not path.is_file():
        raise OptionError(f"{path}: no such file")
    return assess_script(
        path, arguments.arguments, arguments.calls, arguments.steps, arguments.price, arguments.peer, None
    )


def _of_call(arguments: argparse.Namespace) -> Verdict:
    import torch

    from lampwork.verdict.assess import assess_call

    if arguments.arguments:
        raise ValueError(f"{' '.join(arguments.arguments)}: only a script that is run as it is takes arguments")
    function, args, kwargs = target.found(arguments.target, arguments)
    with target.prepared(function, arguments.train, gradients=arguments.train):
        return assess_call(
            function, args, kwargs, calls=arguments.calls, restarts=arguments.restarts, seconds=arguments.seconds,
            price=arguments.price, dtypes=[getattr(torch, name) for name in arguments.dtype],
            freeze=not arguments.no_freeze, peer=arguments.peer,
        )  # fmt: skip
