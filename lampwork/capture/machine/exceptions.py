"""Raising, matching and chaining of exceptions, as CPython's `raise`, `except` and `except*` define them."""

from __future__ import annotations

import sys
from typing import Any

from .private import keep_builtins
from .values import UNBOUND, is_a

keep_builtins(globals())


def raise_value(world: Any, value: Any, cause: Any) -> None:
    """`raise value from cause`; cause UNBOUND means no `from`.  CPython sets `__context__`: see `loop_handling`."""
    if is_a(value, type) and issubclass(value, BaseException):
        made = world.machine.call(value)
        if not is_a(made, BaseException):
            raise TypeError(f"calling {value!r} should have returned an instance of BaseException, not {type(made)!r}")
        value = made
    elif not is_a(value, BaseException):
        raise TypeError("exceptions must derive from BaseException")
    if cause is not UNBOUND:
        if is_a(cause, type) and issubclass(cause, BaseException):
            made = world.machine.call(cause)
            if not is_a(made, BaseException):
                raise TypeError(
                    f"calling {cause!r} should have returned an instance of BaseException, not {type(made)!r}"
                )
            cause = made
        elif cause is not None and not is_a(cause, BaseException):
            raise TypeError("exception causes must derive from BaseException")
        value.__cause__ = cause
    raise value


def raise_unchanged(error: BaseException) -> None:
    """Raises `error` with its `__context__`, and everybody else's, left as they are."""
    current = link = context = None
    try:
        current = sys.exception()
        if current is None or current is error:
            raise error
        context = error.__context__
        # `raise` sets error.__context__ and cuts the chain of the handled exception where it leads back to error.
        link = current
        seen = set()
        while link is not None and link.__context__ is not error and id(link) not in seen:
            seen.add(id(link))
            link = link.__context__
        if link is not None and link.__context__ is not error:
            link = None
        try:
            raise error
        except BaseException:
            error.__context__ = context
            if link is not None:
                link.__context__ = error
            raise
    finally:
        # The traceback holds this frame, and through it all that the program holds, until the collector runs.
        del error, current, link, context


def chain_context(error: BaseException, handled: BaseException) -> None:
    """Sets `error.__context__` as raising it while `handled` is being handled would."""
    if handled is error:
        return
    link = handled
    seen = set()
    while link.__context__ is not None and id(link) not in seen:
        seen.add(id(link))
        if link.__context__ is error:
            link.__context__ = None
            break
        link = link.__context__
    error.__context__ = handled


_NOT_EXCEPTIONS = "catching classes that do not inherit from BaseException is not allowed"


def check_pattern(pattern: Any) -> None:
    for cls in pattern if is_a(pattern, tuple) else (pattern,):
        if not (is_a(cls, type) and issubclass(cls, BaseException)):
            raise TypeError(_NOT_EXCEPTIONS)


def exception_matches(error: BaseException, pattern: Any) -> bool:
    """Whether `except pattern` catches error; by the real base classes, never by `__subclasscheck__`."""
    if is_a(pattern, tuple):
        check_pattern(pattern)
        return any(exception_matches(error, cls) for cls in pattern)
    if pattern in type(error).__mro__:
        return True
    check_pattern(pattern)
    return False


def match_group(world: Any, error: BaseException, pattern: Any) -> tuple[Any, Any]:
    """(match, rest) for `except* pattern`; match is None if nothing matched."""
    check_pattern(pattern)
    for cls in pattern if is_a(pattern, tuple) else (pattern,):
        if issubclass(cls, BaseExceptionGroup):
            raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    if error is None:
        return None, None
    if exception_matches(error, pattern):
        if is_a(error, BaseExceptionGroup):
            return error, None
        return BaseExceptionGroup("", (error,)), None
    if is_a(error, BaseExceptionGroup):
        pair = world.machine.call(world.attribute(error, "split"), (pattern,))
        if not is_a(pair, tuple):
            raise TypeError(f"{type(error).__name__}.split must return a tuple, not {type(pair).__name__}")
        if len(pair) < 2:
            raise TypeError(f"{type(error).__name__}.split must return a 2-tuple, got tuple of size {len(pair)}")
        return pair[0], pair[1]
    return None, error


def _wrapped_where_it_is_caught() -> bool:
    found = False
    try:
        raise ValueError
    except* ValueError as group:
        found = group.__traceback__ is not None
    return found


#: Whether the group that `except*` puts around a single exception has a traceback, of where it is caught: in later
#: releases of 3.12 and 3.13, and from 3.14 on.
WRAPPED_WHERE_CAUGHT = _wrapped_where_it_is_caught()


def _same_metadata(first: Any, second: Any) -> bool:
    return (
        first.__traceback__ is second.__traceback__
        and first.__context__ is second.__context__
        and first.__cause__ is second.__cause__
        and getattr(first, "__notes__", None) is getattr(second, "__notes__", None)
    )


def _leaves(group: Any, into: set[int]) -> set[int]:
    if is_a(group, BaseExceptionGroup):
        for error in group.exceptions:
            _leaves(error, into)
    elif group is not None:
        into.add(id(group))
    return into


def _project(group: Any, keep: set[int]) -> Any:
    """The part of the group whose leaves are in `keep`, with the structure of the original; None if empty."""
    if not is_a(group, BaseExceptionGroup):
        return group if id(group) in keep else None
    return group.split(lambda error: not is_a(error, BaseExceptionGroup) and id(error) in keep)[0]


def prepare_reraise_star(original: BaseException, errors: list[Any]) -> Any:
    """What leaves a `try` with `except*` clauses, None if nothing does (CPython's _PyExc_PrepReraiseStar)."""
    if not errors:
        return None
    if not is_a(original, BaseExceptionGroup):
        return errors[0]
    raised: list[Any] = []
    unhandled: list[Any] = []
    for error in errors:
        if error is None:
            continue
        if _same_metadata(error, original):
            unhandled.append(error)
        else:
            raised.append(error)
    keep: set[int] = set()
    for error in unhandled:
        _leaves(error, keep)
    rest = _project(original, keep) if unhandled else None
    if not raised:
        return rest
    if rest is not None:
        raised.append(rest)
    return raised[0] if len(raised) == 1 else BaseExceptionGroup("", raised)


def stop_iteration_error(error: BaseException) -> BaseException:
    """What leaves a generator instead of `error`: a StopIteration would end the caller's loop silently."""
    if not is_a(error, StopIteration):
        return error
    replacement = RuntimeError("generator raised StopIteration")
    replacement.__cause__ = error
    replacement.__context__ = error
    return replacement
