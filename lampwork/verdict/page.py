"""A verdict as one page of HTML: the answer, what to do, then what it rests on."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lampwork.debug import markup
from lampwork.verdict import pictures, words

if TYPE_CHECKING:
    from lampwork.verdict.verdict import Verdict


def page(verdict: Verdict) -> str:
    """The whole file; it needs nothing beside it."""
    what = "trained" if verdict.task == "train" else "in inference"
    body = [
        f"<h1>Does compiling {escape(verdict.name)} pay?</h1>",
        f'<p class="answer">{markup.words(verdict.sentence)}</p>',
        _what_to_do(verdict),
        _facts(verdict),
        _break_even(verdict),
        _times(verdict),
        _shares(verdict),
        markup.heading("Reasons"),
        "<ul>" + "".join(f"<li>{markup.words(line)}</li>" for line in verdict.reasons) + "</ul>",
        markup.heading("What was tried"),
        markup.table(
            [each.format(unit=verdict.unit) for each in words.HEADINGS],
            [[escape(cell) for cell in row] for row in words.table(verdict)],
            numbers=(1, 2, 3, 4, 5, 6),
        ),
        f'<p class="place">{escape(verdict.name)} {what}; times are medians, intervals hold 90% of draws from what was '
        "measured.</p>",
    ]
    return markup.document(f"Does compiling {verdict.name} pay?", body)


def _what_to_do(verdict: Verdict) -> str:
    if verdict.code:
        return f"{markup.heading('What to write')}<pre>{escape(verdict.code)}</pre>"
    return f"{markup.heading('What to do')}<p>Leave it as it is.</p>"


def _facts(verdict: Verdict) -> str:
    eager, subject, paid, unit = verdict.found.eager, verdict.subject, verdict.payoff, verdict.unit
    shown = {}
    if eager.measured is not None:
        shown[f"a {unit}, eager"] = words.duration(eager.measured.call)
    if subject is not None and subject.measured is not None and paid is not None:
        shown[f"a {unit}, {subject.candidate.name}"] = words.duration(subject.measured.call)
        shown["times as fast"] = f"{paid.speedup.value:.2f}"
        shown["cost, empty cache"] = words.duration(subject.start)
        shown["pays after"] = words.plural(paid.calls.value, unit) if paid.calls.value < 1e15 else "never"
    if verdict.calls is not None:
        shown[f"your {unit}s"] = f"{verdict.calls:,}"
    return markup.facts(shown)


def _break_even(verdict: Verdict) -> str:
    eager, subject, paid = verdict.found.eager.measured, verdict.subject, verdict.payoff
    if eager is None or subject is None or subject.measured is None or paid is None:
        return ""
    drawn = pictures.break_even(eager, subject.measured, paid, verdict.calls, verdict.unit, subject.candidate.way.name)
    caption = (
        f"All {verdict.unit}s together, the cost included, over their number; both axes count in tens. Where the lines "
        "cross, the cost has come back; the band holds 90% of draws."
    )
    return f"{markup.heading('Break-even')}<figure>{drawn}<figcaption>{caption}</figcaption></figure>"


def _times(verdict: Verdict) -> str:
    rows = [
        ("eager" if each is verdict.found.eager else each.candidate.name, each.measured)
        for each in [verdict.found.eager, *verdict.found.tried]
        if each.measured is not None
    ]
    if not rows:
        return ""
    count = len(rows[0][1].rounds)
    caption = f"Every round is a dot, the box holds the middle half of {count} rounds, the line is their median."
    drawn = pictures.call_times(rows)
    return f"{markup.heading(f'A {verdict.unit}')}<figure>{drawn}<figcaption>{caption}</figcaption></figure>"


def _shares(verdict: Verdict) -> str:
    if not verdict.shares:
        return ""
    return markup.heading("Where the time of an eager step goes") + pictures.shares_with_key(verdict.shares)
