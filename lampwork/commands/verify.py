"""`lampwork verify`: are compiled numbers right, and which pass or kernel is to blame if not."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from lampwork.commands import target as targets

if TYPE_CHECKING:
    from lampwork.verification.answer import Verification
    from lampwork.verification.call import Call

#: Steps that `--train` makes, where `--steps` does not say it.
STEPS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of `lampwork verify`."""
    parser.add_argument(
        "target", metavar="TARGET", help="script.py::function, package.module:factory, a model of the zoo, or 'zoo': "
        "all seven"
    )  # fmt: skip
    targets.add_arguments(parser)
    parser.add_argument("--train", action="store_true", help="of a module: in training mode, whole steps of AdamW")
    parser.add_argument("--backward", action="store_true", help="gradients of the result are taken and compared")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="so many steps, or calls, from one state on, "
                        f"with the curve of their losses (with --train {STEPS})")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="eager runs with other random numbers that "
                        "loss curves are compared with (2)")  # fmt: skip
    parser.add_argument("--no-blame", action="store_true", help="do not look for what is to blame")


def run(arguments: argparse.Namespace) -> int:
    """Print the answer: 1 if numbers are wrong, 2 with a message if there is no such target."""
    from rich.console import Console

    from lampwork.benchmark import zoo
    from lampwork.errors import OptionError

    if arguments.arguments:
        print(f"lampwork verify: {' '.join(arguments.arguments)}: no script is run that takes these", file=sys.stderr)
        return 2
    if not targets.can_write(arguments, "verify"):
        return 2
    found: list[Verification] = []
    console = Console()
    for target in zoo.ZOO if arguments.target == "zoo" else (arguments.target,):
        try:
            made = _verified(target, arguments)
        except (OptionError, ValueError, TypeError, ImportError, OSError) as error:
            print(f"lampwork verify: {error}", file=sys.stderr)
            return 2
        found.append(made)
        if str(arguments.json) != "-":
            made.print(console)
    told = [each.to_dict() for each in found] if len(found) > 1 else found[0].to_dict()
    if str(arguments.json) == "-":
        print(json.dumps(told))
    elif arguments.json is not None:
        arguments.json.write_text(json.dumps(told))
    if arguments.html is not None:
        arguments.html.write_text("\n".join(each.html() for each in found))
    return 0 if all(found) else 1


def _verified(target: str, arguments: argparse.Namespace) -> Verification:
    import torch

    from lampwork.verification.verify import verify_calls

    steps, backward = arguments.steps, arguments.backward or None
    if arguments.train and "::" not in target:
        return _trained(target, steps or STEPS, arguments)
    function, args, kwargs = targets.found(target, arguments)
    if isinstance(function, torch.nn.Module):
        steps = steps or STEPS * arguments.train
    with targets.prepared(function, arguments.train, gradients=arguments.train or arguments.backward):
        return verify_calls(
            function, [(args, kwargs)], backward=backward, steps=steps, seeds=arguments.seeds,
            blame=not arguments.no_blame, name=target,
        )  # fmt: skip


def _trained(target: str, steps: int, arguments: argparse.Namespace) -> Verification:
    """Whole training steps of a model of the zoo or of a factory: four batches in turns, clipped gradients, AdamW."""
    from lampwork.benchmark import training
    from lampwork.verification.verify import verify_calls

    workload = training.prepare(target, device=arguments.device, size=arguments.size, dropout=True)
    optimizer = training.make_optimizer(workload.module, "foreach")
    parameters = list(workload.module.parameters())
    step = training.make_step(workload.module, parameters, optimizer, workload.loss, arguments.device, None)
    calls: list[Call] = [((batch.args, batch.kwargs, batch.target), {}) for batch in workload.batches]
    return verify_calls(
        step,
        calls[:steps],
        steps=steps,
        seeds=arguments.seeds,
        blame=not arguments.no_blame,
        name=f"{target}, training",
    )
