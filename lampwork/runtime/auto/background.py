"""What is compiled beside calls, for one function of mode "auto", its other ways and what follows its breaks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lampwork import _torch, turns
from lampwork.runtime.auto.worker import submit

if TYPE_CHECKING:
    from lampwork.runtime.function import CompiledFunction


class Background:
    """Entries that were asked for, each compiled function's one at a time."""

    def __init__(self) -> None:
        self._asked: set[CompiledFunction] = set()
        self._given_up: set[CompiledFunction] = set()
        self._error: Exception | None = None
        #: Whether calls are kept out while a program is captured: its state moves with every call.
        self.in_one_piece = False

    @property
    def pending(self) -> bool:
        """Whether something is being compiled, or waits for it."""
        return bool(self._asked)

    def raise_error(self) -> None:
        """Raises what a compile has raised for the user: a break where the whole was asked for, a size that varies."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def can_wait(self, args: tuple, kwargs: dict) -> bool:
        """Whether a later capture sees what the call saw: a call uses iterators up that cannot be copied."""
        return _can_wait((args, kwargs), set())

    def asked(self, compiled: CompiledFunction, args: tuple, kwargs: dict) -> Callable[[], None] | None:
        """What asks for an entry for such calls, to be called after this call; None if that was given up.

        The call's own arguments are captured, containers as they are now, while the program may go on with them: what
        capture reads is guarded, and an entry that was made of several states fits no call.
        """
        if compiled in self._given_up:
            return None
        if compiled in self._asked:
            return _nothing
        kept_args, kept_kwargs = _kept((args, kwargs), {})
        job = _torch.in_this_state(lambda: self._compile(compiled, kept_args, kept_kwargs))

        def ask() -> None:
            if compiled not in self._asked:
                self._asked.add(compiled)
                submit(job)

        return ask

    def again(self, compiled: CompiledFunction) -> None:
        """There is room again for entries of a function that was given up."""
        self._given_up.discard(compiled)

    def _compile(self, compiled: CompiledFunction, args: tuple, kwargs: dict) -> None:
        try:
            with turns.captured_in_one_piece(self.in_one_piece):
                if not compiled.prepare(args, kwargs):
                    self._given_up.add(compiled)
        except Exception as error:  # what the user asked to be raised: it is, at the next call
            self._error = error
            self._given_up.add(compiled)
        finally:
            self._asked.discard(compiled)


def _nothing() -> None:
    pass


#: Containers that a call may change, and that are copied so that capture sees them as the call did.
_COPIED = (list, dict, set, tuple)


#: Iterators over what is not used up itself; and those over other iterators, as far as `__reduce__` tells all of them
#: (not of a strict `zip`).
_ITERABLES: tuple[Any, ...] = ([], (), "", range(0), range(1 << 70))
_PLAIN_ITERATORS = tuple([type(iter(each)) for each in _ITERABLES])
_ITERATORS_OF_ITERATORS = (enumerate, zip)


def _can_be_copied(iterator: Any) -> bool:
    if type(iterator) in _PLAIN_ITERATORS:
        return True
    if type(iterator) not in _ITERATORS_OF_ITERATORS:
        return False
    told = iterator.__reduce__()
    return len(told) == 2 and all(_can_be_copied(each) for each in told[1] if hasattr(type(each), "__next__"))


def _copy_of_iterator(iterator: Any) -> Any:
    """One that goes on from the same place, and leaves `iterator` there."""
    if type(iterator) in _PLAIN_ITERATORS:
        return copy.copy(iterator)
    kind, parts = iterator.__reduce__()
    return kind(*[_copy_of_iterator(each) if hasattr(type(each), "__next__") else each for each in parts])


def _kept(value: Any, made: dict[int, Any]) -> Any:
    """`value` with the plain containers and iterators in it copied; one that stands in two places, or in itself, is one
    copy.

    made   the copies so far, by the identity of what was copied
    """
    kind = type(value)
    if kind not in _COPIED and not hasattr(kind, "__next__"):
        return value
    if id(value) in made:
        return made[id(value)]
    if kind not in _COPIED:
        return made.setdefault(id(value), _copy_of_iterator(value) if _can_be_copied(value) else value)
    copied: Any
    if kind is tuple:
        copied = tuple(_kept(each, made) for each in value)
        return made.setdefault(id(value), copied)
    copied = made[id(value)] = kind()
    if kind is dict:
        copied.update((name, _kept(each, made)) for name, each in value.items())
    elif kind is list:
        copied.extend(_kept(each, made) for each in value)
    else:
        copied.update(value)
    return copied


def _can_wait(value: Any, seen: set[int]) -> bool:
    if type(value) not in _COPIED:
        return not hasattr(type(value), "__next__") or _can_be_copied(value)
    if id(value) in seen:
        return True
    seen.add(id(value))
    return all(_can_wait(each, seen) for each in (value.values() if type(value) is dict else value))
