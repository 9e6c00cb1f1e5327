"""What entries serve, and why a call is none of that: guards on the call's arguments, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lampwork.ir.dtype import SHORT
from lampwork.ir.guard import ArgumentCount, Equals, Guard, NumberRelation, TensorIs, TypeIs
from lampwork.ir.source import Argument, Keyword, Source, State, describe, root_of
from lampwork.runtime.guards.failures import first_failure, why_not
from lampwork.runtime.guards.interpreter import Scope

#: As many entries are listed, and as many differences told.
MOST_LISTED, MOST_DIFFERENCES = 12, 3
#: Longer relations of sizes say little to a reader.
_LONGEST_RELATION = 60


def serves(guards: Sequence[Guard]) -> str:
    """The calls that an entry with these guards is for: `(input_ids=i64[2, 8], use_cache=False)`."""
    count = next((guard.test for guard in guards if isinstance(guard.test, ArgumentCount)), ArgumentCount(0, ()))
    by_source: dict[Source, list[Guard]] = {}
    for guard in guards:
        by_source.setdefault(guard.source, []).append(guard)
    shown = [_value(by_source.get(Argument(index), [])) for index in range(count.positional)]
    shown += [f"{name}={_value(by_source.get(Keyword(name), []))}" for name in count.keywords]
    parts = [
        f"{describe(guard.source)}: {_value([guard])}"
        for guard in guards
        if isinstance(guard.test, TensorIs)
        and isinstance(root_of(guard.source), (Argument, Keyword))
        and not isinstance(guard.source, (Argument, Keyword))
    ]
    relations = [guard.test.words() for guard in guards if isinstance(guard.test, NumberRelation)]
    parts += [text for text in relations if len(text) <= _LONGEST_RELATION]
    parts += [text for guard in guards if (text := _state(guard))]
    return f"({', '.join(shown)})" + (f" where {'; '.join(parts)}" if parts else "")


def _value(guards: Sequence[Guard]) -> str:
    for guard in guards:
        test = guard.test
        if isinstance(test, TensorIs):
            dtype = SHORT.get(test.dtype, test.dtype)
            sizes = ", ".join("any" if size is None else str(size) for size in test.shape)
            place = "" if test.device == "cpu" else f" on {test.device}"
            return f"{dtype}[{sizes}]{place}" + (" with gradients" if test.requires_grad else "")
        if isinstance(test, Equals):
            return f"{test.value!r:.40}"
    for guard in guards:
        if isinstance(guard.test, TypeIs):
            return f"any {guard.test.ref.qualname}"
    return "anything"


def _state(guard: Guard) -> str:
    if isinstance(guard.source, State) and isinstance(guard.test, Equals):
        if guard.source.name == "grad_mode" and guard.test.value is False:
            return "gradients are off"
        if guard.source.name == "inference_mode" and guard.test.value is True:
            return "in inference mode"
    return ""


def listed(every: Sequence[str]) -> str:
    """What is served, a line each."""
    lines = [f"  {text}" for text in dict.fromkeys(every)]
    more = len(lines) - MOST_LISTED
    return "\n".join(lines[:MOST_LISTED] + ([f"  and {more} more"] if more > 0 else []))


def nearest(every: Sequence[Sequence[Guard]], function: Callable, args: tuple, kwargs: dict) -> str:
    """How this call differs from what the entry nearest to it is for: the first few guards that do not hold."""
    best = [] if every else ["nothing of it was compiled when the file was made"]
    for guards in every:
        scope = Scope(function, args, kwargs)
        found = [text for guard in sorted(guards, key=_rank) if (text := why_not(guard, scope))]
        if any(isinstance(guard.test, ArgumentCount) and why_not(guard, scope) for guard in guards):
            found[1:] = found[:1] * len(found)  # what else differs follows from that
        if not best or len(found) < len(best):
            best = found
    return "; ".join(dict.fromkeys(best[:MOST_DIFFERENCES]))


def _rank(guard: Guard) -> int:
    """The call itself first, then its arguments, then all that is around it."""
    if isinstance(guard.test, ArgumentCount):
        return 0
    return 1 if isinstance(root_of(guard.source), (Argument, Keyword)) else 2


def first_difference(guards: Sequence[Guard], function: Callable) -> str:
    """The first of these guards, which do not look at a call, that does not hold; empty when all hold."""
    found = first_failure(guards, function, (), {})
    return "" if found is None else found[1]
