"""Compiles an entry's guards into ONE Python function.

    check(function, args, kwargs) -> tuple of the values at `reads` | None when some guard does not hold

Path loads are shared as local variables and made right before their first use; the type of a value is tested before
anything is read through it, so no code of the program runs. The text depends on the guards alone; constants are named
`c0, c1, ...` in order of use. The lines of each guard are those of its rule (`rules.py`), written with a
`CheckWriter`; what the text does not spell out is in `interpreter.py`, under the name `reading`.

Tests whose objects this process does not have (a module is not loaded, a function's code changed) raise `LookupError`
when the check is compiled: the entry cannot serve here.
"""

from __future__ import annotations

from collections.abc import Sequence

from lampwork.ir.guard import Guard
from lampwork.ir.source import Source
from lampwork.runtime.guards.check_writer import Check, CheckWriter
from lampwork.runtime.guards.failures import explain_failure

__all__ = ["Check", "CheckWriter", "compile_check", "explain_failure", "source_text"]


def compile_check(guards: Sequence[Guard], reads: Sequence[Source]) -> Check:
    """The check of `guards` which returns the values at `reads`. Raises `LookupError` as the module says."""
    writer = CheckWriter(guards, reads)
    return writer.function()


def source_text(guards: Sequence[Guard], reads: Sequence[Source]) -> str:
    """The Python text of the check, for `explain`."""
    return CheckWriter(guards, reads).text()
