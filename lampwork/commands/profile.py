"""`lampwork profile`: where the time goes, what compiling could gain at most, and what else would help."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lampwork.commands import target

if TYPE_CHECKING:
    from lampwork.profiling.profile import Profile

#: What stands after `--` is the script's, and is found in `arguments.arguments`.
TAKES_ARGUMENTS_OF_A_SCRIPT = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of `lampwork profile`."""
    parser.add_argument(
        "target", metavar="TARGET", help="package.module:factory, script.py::function, a model of the zoo, or a script "
        "that is run as it is: `lampwork profile train.py --steps 20 -- its arguments`"
    )  # fmt: skip
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="of a script: how many are timed (20)")
    target.add_arguments(parser)
    parser.add_argument("--train", action="store_true", help="of a module: in training mode, with the backward pass")


def run(arguments: argparse.Namespace) -> int:
    """Print the profile; 2 with a message if there is no such target."""
    from lampwork.errors import OptionError

    if not target.can_write(arguments, "profile"):
        return 2
    # What a script raises is the script's, and is told with its lines; of a function, that its call cannot be made.
    is_script = arguments.target.endswith(".py")
    told = (OptionError,) if is_script else (OptionError, ValueError, TypeError, ImportError, OSError)
    try:
        profile = _of_script(arguments) if is_script else _of_call(arguments)
    except told as error:
        print(f"lampwork profile: {error}", file=sys.stderr)
        return 2
    if str(arguments.json) == "-":
        print(json.dumps(profile.to_dict()))
    else:
        print(profile)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(profile.to_dict()))
    if arguments.html is not None:
        arguments.html.write_text(profile.html())
    return 0


def _of_script(arguments: argparse.Namespace) -> Profile:
    from lampwork.errors import OptionError
    from lampwork.profiling.script import profile_script

    path = Path(arguments.target)
    if not path.is_file():
        raise OptionError(f"{path}: no such file")
    if arguments.steps < 1:
        raise OptionError(f"steps must be 1 or more, not {arguments.steps}")
    return profile_script(path, arguments.arguments, arguments.steps)


def _of_call(arguments: argparse.Namespace) -> Profile:
    from lampwork.profiling.profile import profile_call

    if arguments.arguments:
        raise ValueError(f"{' '.join(arguments.arguments)}: only a script that is run as it is takes arguments")
    function, args, kwargs = target.found(arguments.target, arguments)
    with target.prepared(function, arguments.train, gradients=arguments.train):
        return profile_call(function, args, kwargs, None)
