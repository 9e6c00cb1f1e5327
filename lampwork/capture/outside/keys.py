"""Which `__hash__` and `__eq__` written in Python may run natively, where a dict or set looks up its keys."""

from __future__ import annotations

import builtins
import dis
from types import FunctionType

from lampwork.capture.bytecode.decode import VERSION
from lampwork.ir.code_cache import CodeCache


def only_reads(function: FunctionType) -> bool:
    """Whether a function can do no more than read attributes and call builtin functions that only read: so its bytecode
    stores nothing but local variables, and calls nothing but those."""
    if function.__closure__:
        return False
    found = _only_reads.get(function.__code__)
    if found is None:
        found = True
        for step in dis.get_instructions(function.__code__):
            if step.opname in _WRITING or (step.opname == "LOAD_METHOD"):
                found = False
            elif step.opname == "LOAD_ATTR" and VERSION >= (3, 12) and step.arg is not None and step.arg & 1:
                found = False  # the attribute is called
            elif step.opname == "LOAD_GLOBAL" and step.argval not in _READING and not _is_class(function, step.argval):
                found = False
        _only_reads.put(function.__code__, found)
    return found


def _is_class(function: FunctionType, name: str) -> bool:
    return isinstance(function.__globals__.get(name), type) and name not in vars(builtins)


_only_reads: CodeCache[bool] = CodeCache()
_WRITING = frozenset({
    "STORE_ATTR", "STORE_GLOBAL", "STORE_SUBSCR", "STORE_DEREF", "STORE_NAME", "STORE_SLICE", "DELETE_ATTR",
    "DELETE_GLOBAL", "DELETE_SUBSCR", "DELETE_DEREF", "DELETE_NAME", "IMPORT_NAME", "YIELD_VALUE", "RETURN_GENERATOR",
    "LOAD_BUILD_CLASS", "MAKE_FUNCTION", "BEFORE_WITH", "LOAD_SPECIAL", "LOAD_SUPER_ATTR",
})  # fmt: skip
_READING = frozenset({
    "hash", "isinstance", "tuple", "type", "id", "len", "NotImplemented", "frozenset", "bool", "int", "str",
})  # fmt: skip
