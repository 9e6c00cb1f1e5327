"""Frames: the state of a running Python function as plain data, and how arguments become local variables."""

from __future__ import annotations

from types import CellType, CodeType, FunctionType
from typing import Any

from ..bytecode.decode import Code, decode
from .private import keep_builtins
from .values import UNBOUND

keep_builtins(globals())


class Frame:
    """One activation of a code object.

    code         the decoded `Code`
    index        the next instruction; `index - 1` is being executed
    stack        the value stack, a list; may hold NULL and UNBOUND
    locals       one entry per slot of `code.slots`: a value, UNBOUND, or the `CellType` of a cell or free variable
    names        the mapping that LOAD_NAME and STORE_NAME use (class bodies, modules, exec), else None
    globals, builtins    dictionaries
    function     the function that was entered, or None
    closure      the cells for COPY_FREE_VARS
    generator    the `MachineGenerator` that owns the frame, while it runs; else None
    constructed  delivered in place of the result (see `Enter`)
    before       a machine's own note of how the instruction being executed began
    kept         after a break: the values of variables that nothing reads again
    """

    __slots__ = (
        "code", "index", "stack", "locals", "names", "globals", "builtins", "function", "closure", "generator",
        "constructed", "before", "kept", "__weakref__",
    )  # fmt: skip

    def __init__(self, code: Code, locals: list[Any], globals: dict[str, Any], builtins: dict[str, Any]) -> None:
        self.code = code
        self.index = 0
        self.stack: list[Any] = []
        self.locals = locals
        self.names: Any = None
        self.globals = globals
        self.builtins = builtins
        self.function: Any = None
        self.closure: tuple[CellType, ...] | None = None
        self.generator: Any = None
        self.constructed: Any = UNBOUND
        self.before: Any = None
        self.kept: Any = None

    @property
    def line(self) -> int:
        return self.code.line(self.index - 1)

    @property
    def filename(self) -> str:
        return self.code.raw.co_filename

    def variables(self) -> dict[str, Any]:
        """The bound local variables by name, cells opened: what `locals()` answers in a function."""
        found: dict[str, Any] = {}
        cells = set(self.code.raw.co_cellvars) | set(self.code.raw.co_freevars)
        for name, value in zip(self.code.slots, self.locals):
            if name in cells and type(value) is CellType:
                try:
                    value = value.cell_contents
                except ValueError:
                    continue
            if value is not UNBOUND:
                found[name] = value
        return found

    def __repr__(self) -> str:
        return f"<Frame {self.code.raw.co_qualname} {self.filename}:{self.line} at {self.index}>"


def bind_arguments(
    function: FunctionType,
    code: Code,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    defaults: tuple[Any, ...] | None,
    keyword_defaults: dict[str, Any] | None,
) -> list[Any]:
    """The local variables (one per slot) of a call.  Raises CPython's own TypeError if the arguments do not fit."""
    positional = code.positional
    given = len(args)
    if not kwargs and code.simple:
        if given == positional:
            slots = [*args]
            slots.extend([UNBOUND] * (code.empty_locals - given))
            return slots
        if defaults and given < positional and given + len(defaults) >= positional:
            slots = [*args]
            slots.extend(defaults[given - positional :])
            slots.extend([UNBOUND] * (code.empty_locals - positional))
            return slots
    raw = code.raw
    flags = raw.co_flags
    slots = [UNBOUND] * code.empty_locals
    names = code.slots
    named = positional + code.keyword_only
    count = min(given, positional)
    slots[:count] = args[:count]
    if flags & 0x04:
        slots[named] = (*args[count:],)  # another tuple than the one that is passed, as CPython makes it
    elif given > positional:
        _raise_mismatch(function, args, kwargs)
    extra: dict[str, Any] | None = None
    if flags & 0x08:
        extra = slots[named + (1 if flags & 0x04 else 0)] = {}
    if kwargs:
        keywords = code.keywords
        for name, value in kwargs.items():
            slot = keywords.get(name, -1)
            if slot >= 0:
                if slots[slot] is not UNBOUND:
                    _raise_mismatch(function, args, kwargs)
                slots[slot] = value
            elif extra is None or not isinstance(name, str):
                _raise_mismatch(function, args, kwargs)
            else:
                extra[name] = value
    if count < positional:
        required = positional - (len(defaults) if defaults else 0)
        for slot in range(count, positional):
            if slots[slot] is UNBOUND:
                if slot < required:
                    _raise_mismatch(function, args, kwargs)
                assert defaults is not None
                slots[slot] = defaults[slot - required]
    for slot in range(positional, named):
        if slots[slot] is UNBOUND:
            if not keyword_defaults or names[slot] not in keyword_defaults:
                _raise_mismatch(function, args, kwargs)
            assert keyword_defaults is not None
            slots[slot] = keyword_defaults[names[slot]]
    return slots


_EMPTY = (lambda: None).__code__


def _raise_mismatch(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    """Raises the TypeError that CPython words: calls a function of the same signature without a body."""
    raw = function.__code__
    # Frees and cells keep their slots, so only the instructions are replaced.
    body: CodeType = raw.replace(
        co_code=_EMPTY.co_code, co_consts=(None, *raw.co_consts), co_exceptiontable=b"",
        co_flags=raw.co_flags & ~0x3A0, co_stacksize=max(raw.co_stacksize, 2),
    )  # fmt: skip
    stand_in = FunctionType(body, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    stand_in.__kwdefaults__ = function.__kwdefaults__
    stand_in.__qualname__ = function.__qualname__
    stand_in(*args, **(kwargs or {}))
    raise AssertionError(f"arguments of {function.__qualname__} fit in CPython but not in the machine")


__all__ = ["Frame", "bind_arguments", "decode"]
