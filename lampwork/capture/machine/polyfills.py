"""Built-in consumers of iterables as Python functions, interpreted when they are given an interpreted generator.

`any(p.isnan() for p in ps)` run natively would resume the generator from C, in a nested run for every element.
Interpreted, the generator's frame lies on the same stack as its consumer's, so the state of the program stays
plain data all the way down.  Each function does exactly what the native one does with a generator.
"""

from __future__ import annotations

import builtins
from typing import Any

from ..bytecode.decode import VERSION, decode

_NUMBERS = (int, bool, float, complex)
# Of these, sums are corrected.
_CORRECTED: Any = (float,) if VERSION < (3, 14) else (float, complex)


def any(iterable: Any, /) -> Any:
    for value in iterable:
        if value:
            return True
    return False


def all(iterable: Any, /) -> Any:
    for value in iterable:
        if not value:
            return False
    return True


def sum(iterable: Any, /, start: Any = 0) -> Any:
    if isinstance(start, (str, bytes, bytearray)):
        return builtins.sum((), start)  # which refuses it
    total = start
    for value in iterable:
        total = total + value
    return total


def corrected_sum(iterable: Any, /, start: Any = 0) -> Any:
    """`sum` from 3.12 on, which corrects what the rounding of floats loses. Of real numbers: stand-ins have none."""
    if isinstance(start, (str, bytes, bytearray)):
        return builtins.sum((), start)
    total = start
    plain = type(start) in _CORRECTED or type(start) is int  # so far, all are numbers
    numbers: Any = None  # what the native adds with a correction for what rounding loses
    for value in iterable:
        if numbers is not None:
            if type(value) in _NUMBERS:
                numbers.append(value)
                continue
            total, numbers, plain = builtins.sum(numbers, total), None, False
        elif plain and type(value) in _CORRECTED:
            numbers = [value]
            continue
        elif plain:
            plain = type(value) is int or type(value) is bool
        total = total + value
    return total if numbers is None else builtins.sum(numbers, total)


def list(iterable: Any, /) -> Any:
    return [value for value in iterable]


def tuple(iterable: Any, /) -> Any:
    return builtins.tuple([value for value in iterable])


def set(iterable: Any, /) -> Any:
    return {value for value in iterable}


def frozenset(iterable: Any, /) -> Any:
    return builtins.frozenset({value for value in iterable})


def sorted(iterable: Any, /, **options: Any) -> Any:
    return builtins.sorted([value for value in iterable], **options)


def join(separator: Any, iterable: Any, /) -> Any:
    return separator.join([value for value in iterable])


def extend(target: Any, iterable: Any, /) -> Any:
    for value in iterable:
        target.append(value)


# native callable -> (its interpreted form, position of the iterable)
POLYFILLS: builtins.dict[Any, builtins.tuple[Any, int]] = {
    builtins.any: (any, 0),
    builtins.all: (all, 0),
    builtins.sum: (sum, 0),
    builtins.list: (list, 0),
    builtins.tuple: (tuple, 0),
    builtins.set: (set, 0),
    builtins.frozenset: (frozenset, 0),
    builtins.sorted: (sorted, 0),
    str.join: (join, 1),
    builtins.list.extend: (extend, 1),
}


def _mark(raw: Any) -> None:
    code = decode(raw)
    code.hidden = True
    code.is_native = False
    for constant in raw.co_consts:
        if hasattr(constant, "co_code"):
            _mark(constant)  # comprehensions are functions of their own on 3.11


for _function in [*(each for each, _ in POLYFILLS.values()), corrected_sum]:
    _mark(_function.__code__)
