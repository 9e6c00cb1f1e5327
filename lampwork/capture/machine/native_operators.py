"""Answers for the functions of the `operator` module: each does what the operator itself does, with its methods."""

from __future__ import annotations

import operator
from typing import Any

from .natives import INTRINSICS, answers
from .operators import COMPARISON_METHODS, IN_PLACE
from .private import keep_builtins

keep_builtins(globals())


def _through(native: Any, operation: str, count: int) -> None:
    @answers(native)
    def answer(world: Any, *args: Any) -> Any:
        return getattr(world, operation)(native, *args) if len(args) == count else native(*args)


_native: Any
for _native in IN_PLACE.values():
    _through(_native, "binary_op", 2)
for _native in IN_PLACE:
    _through(_native, "inplace_op", 2)
for _native in COMPARISON_METHODS:
    _through(_native, "compare_op", 2)
for _native in (operator.neg, operator.pos, operator.invert):
    _through(_native, "unary_op", 1)


@answers(operator.abs)
def _abs(world: Any, *args: Any) -> Any:
    return world.intrinsics[abs](world, *args) if len(args) == 1 else operator.abs(*args)


@answers(operator.is_)
def _is(world: Any, *args: Any) -> Any:
    return world.is_(*args) if len(args) == 2 else operator.is_(*args)


@answers(operator.is_not)
def _is_not(world: Any, *args: Any) -> Any:
    return not world.is_(*args) if len(args) == 2 else operator.is_not(*args)


@answers(operator.truth)
def _truth(world: Any, *args: Any) -> Any:
    return world.truth(*args) if len(args) == 1 else operator.truth(*args)


@answers(operator.not_)
def _not(world: Any, *args: Any) -> Any:
    return not world.truth(*args) if len(args) == 1 else operator.not_(*args)


@answers(operator.contains)
def _contains(world: Any, *args: Any) -> Any:
    return world.contains(args[1], args[0]) if len(args) == 2 else operator.contains(*args)


@answers(operator.getitem)
def _getitem(world: Any, *args: Any) -> Any:
    return world.get_item(*args) if len(args) == 2 else operator.getitem(*args)


@answers(operator.setitem)
def _setitem(world: Any, *args: Any) -> Any:
    return world.set_item(*args) if len(args) == 3 else operator.setitem(*args)


@answers(operator.delitem)
def _delitem(world: Any, *args: Any) -> Any:
    return world.del_item(*args) if len(args) == 2 else operator.delitem(*args)


__all__ = ["INTRINSICS"]
