"""Two recordings side by side: a table of what differs by part, and the difference of one program."""

from __future__ import annotations

import difflib
import gzip
import hashlib
import json
import re
from pathlib import Path

from tests.replay.record import PARTS, plain

#: Texts by part, by the name of a program and what it was compiled for.
Recording = dict[str, dict[str, str]]


def write(path: Path, recording: Recording, about: dict[str, str]) -> None:
    """One file of JSON, compressed, in which equal texts are stored once."""
    texts: dict[str, str] = {}
    programs: dict[str, dict[str, str]] = {}
    for name, parts in recording.items():
        programs[name] = {}
        for part, text in parts.items():
            digest = hashlib.sha256(text.encode()).hexdigest()[:20]
            texts[digest] = text
            programs[name][part] = digest
    data = json.dumps({"about": about, "programs": programs, "texts": texts}, indent=0, sort_keys=True)
    path.write_bytes(gzip.compress(data.encode(), mtime=0))


def read(path: Path) -> tuple[Recording, dict[str, str]]:
    """The recording, and what it was made of."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    texts = {digest: plain(text) for digest, text in data["texts"].items()}  # as recordings are made by now
    recording = {name: {part: texts[key] for part, key in parts.items()} for name, parts in data["programs"].items()}
    return recording, data["about"]


#: Names that end in a counter: `add_7`, and single letters but for those of types (`i64`, `f32`) and of symbols (`s0`).
_NUMBERED = re.compile(r"\b([A-Za-z]\w*?_|(?!(?:[fiu](?:8|16|32|64|128)|s\d+)\b)[a-z])(\d+)\b")


def canonical(text: str) -> str:
    """`text` with the numbers at the end of names given anew, in the order in which names appear."""
    given: dict[str, str] = {}
    last: dict[str, int] = {}

    def name(found: re.Match[str]) -> str:
        if found[0] not in given:
            last[found[1]] = last.get(found[1], 0) + 1
            given[found[0]] = f"{found[1]}#{last[found[1]]}"
        return given[found[0]]

    return _NUMBERED.sub(name, text)


def differing_parts(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Part to "differs", or "renamed" where names differ by their counters alone."""
    found = {}
    for part in PARTS:
        one, other = before.get(part, ""), after.get(part, "")
        if one != other:
            found[part] = "renamed" if canonical(one) == canonical(other) else "differs"
    return found


def table(before: Recording, after: Recording) -> tuple[str, bool]:
    """What differs between two recordings, as lines; and whether anything does, beyond numbers in names."""
    lines, counts, renamed = [], dict.fromkeys(PARTS, 0), 0
    common = [name for name in before if name in after]
    for name in common:
        parts = differing_parts(before[name], after[name])
        real = [part for part, how in parts.items() if how == "differs"]
        renamed += bool(parts) and not real
        for part in real:
            counts[part] += 1
        if real:
            marks = " ".join(f"{part if part in real else '-':8}" for part in PARTS)
            lines.append(f"{marks} {name}")
    missing = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    lines += [f"only before: {name}" for name in missing] + [f"only after: {name}" for name in new]
    total = ", ".join(f"{part} {count}" for part, count in counts.items())
    lines.append(
        f"{len(common)} compared; differing: {total}; renamed only: {renamed}; "
        f"only before: {len(missing)}, only after: {len(new)}"
    )
    return "\n".join(lines), any(counts.values()) or bool(missing)


def difference(before: dict[str, str], after: dict[str, str], name: str) -> str:
    """The unified difference of each part of a program that differs."""
    lines: list[str] = []
    for part in differing_parts(before, after):
        one, other = before.get(part, "").splitlines(), after.get(part, "").splitlines()
        lines += difflib.unified_diff(one, other, f"{name}: {part}, before", f"{name}: {part}, after", lineterm="")
    return "\n".join(lines)
