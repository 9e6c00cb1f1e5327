"""A profile as one page of HTML: the answer, what to do, then what it rests on."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lampwork.debug import markup
from lampwork.profiling import words
from lampwork.profiling.parts import PARTS
from lampwork.verdict.pictures import shares_with_key
from lampwork.verdict.words import duration

if TYPE_CHECKING:
    from lampwork.profiling.profile import Profile


def page(profile: Profile) -> str:
    """The whole file; it needs nothing beside it."""
    parts = profile.parts
    body = [
        f"<h1>Where does the time of {escape(profile.name)} go?</h1>",
        f'<p class="answer">{markup.words(profile.sentence)}</p>',
        markup.heading("What to do"),
        "<ul>" + "".join(f"<li>{markup.words(line)}</li>" for line in words.advice(profile)) + "</ul>",
        markup.facts({
            f"a {profile.unit}": duration(parts.call),
            "with all that a compiler can do": duration(parts.bound),
            "operators": f"{parts.operators:,}",
        }),
        "".join(f"<p>{markup.words(note)}</p>" for note in profile.notes),
        markup.heading("Where the time goes"),
        shares_with_key({part: parts.seconds[part] for part in PARTS if parts.seconds[part] > 0}),
        markup.table(words.PART_HEADINGS, [[escape(cell) for cell in row] for row in words.rows(profile)], (1, 2)),
        markup.heading("Operators that take longest"),
        markup.table(words.GROUP_HEADINGS, [[escape(cell) for cell in row] for row in words.groups(profile)], (2, 3)),
    ]  # fmt: skip
    return markup.document(f"Where does the time of {profile.name} go?", body)
