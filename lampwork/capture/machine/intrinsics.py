"""Instructions for which Python has no spelling: numbered intrinsics (type variables, type aliases), annotations.

A function of one or two arguments is assembled around the instruction, so CPython itself executes it.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import FunctionType
from typing import Any


def _assemble(argument_count: int, instruction: str, number: int) -> Any:
    template = (lambda a: a) if argument_count == 1 else (lambda a, b: (a, b))
    body = [(dis.opmap["RESUME"], 0)]
    body += [(dis.opmap["LOAD_FAST"], slot) for slot in range(argument_count)]
    body += [(dis.opmap[instruction], number), (dis.opmap["RETURN_VALUE"], 0)]
    raw = bytes(byte for pair in body for byte in pair)
    return FunctionType(template.__code__.replace(co_code=raw, co_stacksize=4), {})


@lru_cache(None)
def intrinsic_1(number: int) -> Any:
    return _assemble(1, "CALL_INTRINSIC_1", number)


@lru_cache(None)
def intrinsic_2(number: int) -> Any:
    return _assemble(2, "CALL_INTRINSIC_2", number)


@lru_cache(None)
def set_annotate() -> Any:
    """`set_annotate()(annotate, function)`: the function, whose annotations `annotate` computes when asked for them.

    Unlike `function.__annotate__ = annotate`, it gives `annotate` its qualified name.
    """
    return _assemble(2, "SET_FUNCTION_ATTRIBUTE", 16)
