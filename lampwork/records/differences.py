"""What differs between two records: the run, then compile by compile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lampwork.records.record import Event

#: Times that differ by less than this factor are level.
LEVEL = 1.25
#: Of the run, what is another one each time.
_NEVER_THE_SAME = ("time", "variables.LAMPWORK_CACHE_DIR", "variables.LAMPWORK_CACHE_URL")


def differences(first: Sequence[Event], second: Sequence[Event]) -> list[str]:
    """Lines in words, what was run first; those of `times` are not among them."""
    lines = [*_of_runs(first[0], second[0])]
    ours, theirs = _compiles(first), _compiles(second)
    for key in dict.fromkeys((*ours, *theirs)):
        name, number = key
        what = f"{name}, compile {number + 1}"
        if key not in theirs:
            lines.append(f"{what}: only in the first")
        elif key not in ours:
            lines.append(f"{what}: only in the second")
        else:
            lines += [f"{what}: {line}" for line in _of_compiles(ours[key], theirs[key])]
    for event in ("recompiled", "fell back"):
        before, after = _notes(first, event), _notes(second, event)
        lines += [f"{name} {event} only in the first: {why}" for name, why in before if (name, why) not in after]
        lines += [f"{name} {event} only in the second: {why}" for name, why in after if (name, why) not in before]
    return lines


def _of_runs(first: Event, second: Event) -> Iterator[str]:
    for path, before, after in changes(first, second):
        if path not in _NEVER_THE_SAME:
            yield f"run: {path}: {_shown(before)}, then {_shown(after)}"


def _compiles(events: Sequence[Event]) -> dict[tuple[str, int], Event]:
    """Entries that were made or loaded, by function and their number."""
    found: dict[tuple[str, int], Event] = {}
    for event in events:
        if event["event"] in ("compiled", "loaded"):
            number = sum(name == event["function"] for name, _ in found)
            found[event["function"], number] = event
    return found


def _of_compiles(first: Event, second: Event) -> Iterator[str]:
    shared = [name for name in first if name in second]  # what was loaded holds less than what was compiled
    for path, before, after in changes({name: first[name] for name in shared}, {name: second[name] for name in shared}):
        if not path.startswith("seconds"):
            yield f"{path}: {_shown(before)}, then {_shown(after)}"


def times(first: Sequence[Event], second: Sequence[Event]) -> list[str]:
    """Lines on compiles that took longer or less long, by more than chance."""
    ours, theirs = _compiles(first), _compiles(second)
    lines = []
    for name, number in ours:
        seconds = [_seconds(each.get((name, number), {})) for each in (ours, theirs)]
        if min(seconds) and max(seconds) / min(seconds) > LEVEL:
            lines.append(f"{name}, compile {number + 1}: took {seconds[0]:.2f} s, then {seconds[1]:.2f} s")
    return lines


def _seconds(event: Event) -> float:
    return float(event.get("seconds", {}).get("all", 0.0))


def _notes(events: Sequence[Event], kind: str) -> list[tuple[str, str]]:
    return [(event["function"], event["reason"]) for event in events if event["event"] == kind]


def changes(first: Any, second: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(where, before, after) for everything in which two values of JSON differ; None stands for what is not there."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in dict.fromkeys((*first, *second)):
            yield from changes(first.get(name), second.get(name), f"{path}.{name}" if path else name)
    elif isinstance(first, list) and isinstance(second, list) and path not in ("command",):
        gone, new = [each for each in first if each not in second], [each for each in second if each not in first]
        if gone or new:
            yield path, gone or None, new or None
    elif first != second:
        yield path, first, second


def _shown(value: Any, limit: int = 160) -> str:
    text = "nothing" if value is None else " ".join(value) if _is_words(value) else f"{value}"
    return text if len(text) <= limit else f"{text[:limit]}..."


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
