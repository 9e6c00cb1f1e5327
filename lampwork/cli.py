"""The `lampwork` command: verdict, verify, profile, bench, explain, warmup, cache, doctor."""

from __future__ import annotations

import argparse
import importlib
import sys

from lampwork import __version__

_COMMANDS = {
    "verdict": ("lampwork.commands.verdict", "does compiling pay: for a function, a model, or a script as it is"),
    "verify": ("lampwork.commands.verify", "are compiled numbers right, and what is to blame if not"),
    "profile": ("lampwork.commands.profile", "where the time goes, and what compiling could gain at most"),
    "bench": ("lampwork.benchmark.bench", "eager, torch.compile and lampwork on the same models in one run"),
    "explain": (
        "lampwork.commands.explain",
        "how one function compiles: guards, graph, fusion, code",
    ),
    "record": ("lampwork.commands.record", "what was compiled in a run, and what another run did otherwise"),
    "warmup": ("lampwork.commands.warmup", "fill the on-disk cache for calls that will come, as a step of a build"),
    "cache": ("lampwork.commands.cache", "show, clear, pack or unpack the on-disk cache; why something is not in it"),
    "doctor": ("lampwork.commands.doctor", "check this machine and say what to change"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit status. Usage errors exit with 2 and a message, as argparse does."""
    given = sys.argv[1:] if arguments is None else arguments
    if "" not in sys.path:
        sys.path.insert(0, "")  # `package.module:factory` and scripts are looked up from the current folder
    parser = argparse.ArgumentParser(prog="lampwork", description="A just-in-time compiler for PyTorch programs.")
    parser.add_argument("--version", action="version", version=f"lampwork {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    # Only the command that runs is imported: `--version` and `--help` stay instant.
    wanted = next((word for word in given if not word.startswith("-")), None)
    implementation = None
    for name, (module, help_text) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        if name == wanted:
            implementation = importlib.import_module(module)
            implementation.add_arguments(command)
    after: list[str] = []
    if getattr(implementation, "TAKES_ARGUMENTS_OF_A_SCRIPT", False) and "--" in given:
        given, after = given[: given.index("--")], given[given.index("--") + 1 :]
    parsed = parser.parse_args(given, argparse.Namespace(arguments=after))
    assert implementation is not None  # argparse refuses a command that is not in the table
    return implementation.run(parsed)


if __name__ == "__main__":
    sys.exit(main())
