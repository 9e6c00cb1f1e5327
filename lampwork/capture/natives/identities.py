"""Numbers that differ from process to process: `id(x)`, `hash("text")`, the thread's number."""

from __future__ import annotations

import _thread
from typing import Any

from lampwork.capture.machine import UNBOUND, Answer
from lampwork.capture.machine.attributes import find_in_class
from lampwork.capture.machine.natives import checked_hash
from lampwork.capture.outside.overlay import Break, IdentityNumber
from lampwork.capture.outside.plain import is_plain
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.scalar import taken_in
from lampwork.capture.values.sizes import number
from lampwork.ir.reference import is_replacement


def _id(world: Any, *args: Any) -> Any:
    if len(args) != 1:
        return id(*args)
    if not world.identified:
        world.identified_at = world.machine.steps
    world.identified[id(args[0])] = args[0]
    number = IdentityNumber(id(args[0]))
    number.subject = args
    return number


def _get_ident(world: Any) -> Any:
    return IdentityNumber(_thread.get_ident())


def _hash(world: Any, *args: Any) -> Any:
    """Hashes of numbers are the same in every process; others depend on addresses or the process's seed."""
    if len(args) != 1:
        return hash(*args)
    value = number(taken_in(args[0]))
    if type(value) is Fake:
        if not is_replacement(world.class_lookup(Fake, "__hash__")[1]):
            return _id(world, value)  # as `Tensor.__hash__` has it
    method = world.python_special(value, "__hash__")
    if method is not UNBOUND and method is not None:
        result = world.call_special(value, method)
        return result if type(result) is IdentityNumber else checked_hash(result)
    if _is_numeric(value):
        return hash(value)
    if isinstance(value, (tuple, frozenset)):
        world.families.container.check_key({}, value)
        return IdentityNumber(hash(value))
    if is_plain(value) or find_in_class(type(value), "__hash__") is object.__hash__ or isinstance(value, type):
        if not world.identified:
            world.identified_at = world.machine.steps
        world.identified[id(value)] = value
        return IdentityNumber(hash(value))
    if find_in_class(type(value), "__hash__") is None:
        return hash(world.families[type(value)].example(value))
    raise Break("hash", f"hash() of a {type(value).__name__} is used")


def _is_numeric(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_numeric, value))
    return type(value) in (int, float, bool, complex) and value == value  # what is no number hashes by its address


NATIVES: dict[Any, Answer] = {hash: _hash, id: _id, _thread.get_ident: _get_ident}
