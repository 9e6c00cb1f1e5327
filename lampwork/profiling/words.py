"""A profile in words: one sentence, where the time goes, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lampwork.profiling.parts import PARTS
from lampwork.verdict.words import digits, duration

if TYPE_CHECKING:
    from lampwork.profiling.profile import Profile

#: Compiling that can gain less than this is not worth a try.
LITTLE = 1.05

EXPLAINED = {
    "waiting": "waits for data",
    "Python": "the program's Python, and what PyTorch does around operators",
    "launches": "what each operator costs however little it computes",
    "memory": "operators that move data",
    "compute": "products, convolutions, attention",
    "other": "operators that take longer than what they move and compute explains",
}


def sentence(profile: Profile) -> str:
    parts, unit = profile.parts, profile.unit
    first, *others = sorted(PARTS, key=lambda part: -parts.seconds[part])
    begin = f"A {unit} takes {duration(parts.call)}: {_share(profile, first)}"
    begin += "".join(f", {_share(profile, part)}" for part in others if parts.share(part) >= 0.1)
    if parts.gain < LITTLE:
        return f"{begin}. Compiling cannot help: it could gain {parts.gain - 1:.0%} at most."
    return f"{begin}. Compiling could make it {digits(parts.gain)} times as fast at most."


def _share(profile: Profile, part: str) -> str:
    return f"{profile.parts.share(part):.0%} {part}"


def rows(profile: Profile) -> list[list[str]]:
    return [
        [part, duration(profile.parts.seconds[part]), f"{profile.parts.share(part):.0%}", EXPLAINED[part]]
        for part in PARTS
    ]


def groups(profile: Profile) -> list[list[str]]:
    return [[each.name, each.line, str(each.calls), duration(each.seconds), each.part] for each in profile.parts.groups]


def advice(profile: Profile) -> list[str]:
    lines = [
        f"{each.what}: {digits(each.gain)} times as fast"
        + (f" ({each.caution})" if each.caution else "")
        + f": `{each.code}`"
        for each in profile.advice
    ]
    if profile.parts.gain >= LITTLE:
        lines.append("Ask whether compiling pays for so many calls: `lampwork.assess(..., calls=N)`")
    return lines or ["Nothing that was tried gained anything."]


GROUP_HEADINGS = ("operator", "line", "calls", "seconds together", "mostly")
PART_HEADINGS = ("part", "seconds", "share", "what it is")


def whole(profile: Profile) -> str:
    from lampwork.benchmark.tables import table

    lines = [profile.sentence, "", table("Where the time goes", PART_HEADINGS, rows(profile)), ""]
    lines.append(f"If a compiler did all that one can, a {profile.unit} would take {duration(profile.parts.bound)}.")
    lines += ["", table("Operators that take longest", GROUP_HEADINGS, groups(profile)), "", "What to do"]
    lines += [f"- {each}" for each in advice(profile)]
    lines += ["", *profile.notes] if profile.notes else []
    return "\n".join(lines)


def as_dict(profile: Profile) -> dict[str, Any]:
    parts = profile.parts
    return {
        "name": profile.name,
        "sentence": profile.sentence,
        "unit": profile.unit,
        "task": profile.task,
        "device": profile.device,
        "call_seconds": parts.call,
        "parts_seconds": parts.seconds,
        "bound_seconds": parts.bound,
        "gain_at_most": parts.gain,
        "operators": parts.operators,
        "groups": [vars(each) for each in parts.groups],
        "advice": [vars(each) for each in profile.advice],
        "notes": list(profile.notes),
    }
