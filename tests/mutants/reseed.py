"""Seeds a fault in modules that are imported already: the code of their functions is exchanged."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import CodeType, FunctionType

from tests.mutants.fault import Fault


def reseed(fault: Fault) -> int:
    """How many functions have other code now: all that the fault changes, whoever holds them.

    Raises ValueError where the fault is not in the body of a function, or changes what one closes over: then the module
    has to be imported anew.
    """
    path = str(fault.path)
    before = _by_name(compile(fault.path.read_text(), path, "exec", dont_inherit=True))
    after = _by_name(compile(fault.source(), path, "exec", dont_inherit=True))
    both = before.keys() & after.keys()  # the others are made by functions that change, too
    changed = {name: after[name] for name in both if _content(after[name]) != _content(before[name])}
    # Of nested functions that change, the outer one changes, too; it makes them.
    wanted = {_content(before[name]): code for name, code in changed.items() if name[0] != "<module>"}
    count = 0
    gc.unfreeze()  # what is frozen is not among the objects
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == path:
            made = wanted.get(_content(each.__code__))
            if made is not None:
                each.__code__ = made
                count += 1
    if not count:
        raise ValueError(f"{fault.name}: no function changes")
    return count


def _by_name(module: CodeType) -> dict[tuple[str, int], CodeType]:
    """All code below a module's by its qualified name and which of that name it is."""
    found: dict[tuple[str, int], CodeType] = {}
    for code in _inside(module):
        number = 0
        while (code.co_qualname, number) in found:
            number += 1
        found[code.co_qualname, number] = code
    return found


def _inside(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _inside(each)


def _content(code: CodeType) -> tuple[object, ...]:
    """What tells code from other code, wherever it stands in the file."""
    constants = tuple(
        _content(each) if isinstance(each, CodeType) else (type(each), repr(each)) for each in code.co_consts
    )
    return (
        code.co_qualname,
        code.co_code,
        constants,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
    )
