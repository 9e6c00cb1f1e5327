"""A verdict in words: one sentence, the reasons in milliseconds, and a table of what was tried."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lampwork.verdict.horizon import Estimate
from lampwork.verdict.spread import SEEDS

if TYPE_CHECKING:
    from lampwork.verdict.search import Tried
    from lampwork.verdict.verdict import Verdict

#: Ends of an interval in a larger ratio than this, with eager between them, say that the machine was too noisy.
SPREAD = 1.2

#: Peak memory that differs by less is not spoken of: a library's workspace is as large.
WORTH_A_WORD_MIB = 64.0


def sentence(verdict: Verdict) -> str:
    """The answer to "should I compile this?", in one sentence."""
    subject, paid = verdict.subject, verdict.payoff
    if subject is None or paid is None:
        return f"Don't compile: {_why_nothing(verdict)}."
    unit = verdict.unit
    if not verdict.pays:
        return f"Don't compile: {_why_not(verdict, subject)}."
    parts = [f"Compile {subject.candidate.region.words} with {_way(subject)}"]
    if paid.calls.value < 1:
        told = f"pays from the first {unit} on"
    else:
        told = f"pays after {plural(paid.calls.value, unit)} ({interval(paid.calls)})"
    parts.append(told)
    eager, ours = verdict.found.eager.measured, subject.measured
    assert eager is not None and ours is not None
    if verdict.calls is not None:
        before, after = verdict.calls * eager.call, ours.total(verdict.calls)
        parts.append(f"your {plural(verdict.calls, unit)} take {_instead(after, before)}")
        if verdict.price is not None:
            parts.append(f"{money((before - after) / 3600 * verdict.price)} less at {verdict.price:g} an hour")
    else:
        parts.append(f"a {unit} takes {_instead(ours.call, eager.call)}")
    memory = _memory(verdict, subject)
    parts += [memory] if memory else []
    if subject.compared is not None:
        parts.append("numbers inside eager's own spread" if subject.compared.spread else "numbers verified")
    return f"{parts[0]}: {', '.join(parts[1:])}."


def _why_nothing(verdict: Verdict) -> str:
    left_out = verdict.found.left_out
    if verdict.found.tried:
        first = verdict.found.tried[0]
        return f"nothing could be used; {first.candidate.name}: {first.failure}"
    total = verdict.horizon * verdict.found.eager.rough
    if left_out and not math.isinf(total):
        return f"your {plural(verdict.calls or 0, verdict.unit)} take {duration(total)} in all, and {left_out[0][1]}"
    return left_out[0][1] if left_out else "nothing was there to be compiled"


def _why_not(verdict: Verdict, subject: Tried) -> str:
    paid, unit = verdict.payoff, verdict.unit
    assert paid is not None
    waiting = verdict.shares.get("waiting for data", 0.0) / (sum(verdict.shares.values()) or 1.0)
    start = f"{waiting:.0%} of a {unit} waits for data; " if waiting >= 0.3 else ""
    best = f"the best way ({subject.candidate.name})"
    speed = paid.speedup
    if speed.lower < 1 < speed.upper and speed.upper > SPREAD * speed.lower:
        told = f"{speed.lower:.2f} to {speed.upper:.2f} times as fast"
        return f"{start}{best} could not be told from eager ({told}); more {unit}s or a quieter machine may"
    gain = 1 - 1 / speed.value
    if gain <= 0.005 or math.isinf(paid.calls.value):
        how = "as fast as eager" if abs(gain) < 0.02 else f"{1 / speed.value - 1:.0%} slower than eager"
        return f"{start}{best} is {how}"
    told = f"{start}{best} gains {gain:.0%} of a {unit}"
    if verdict.calls is None or paid.calls.value <= verdict.calls:
        return f"{told}, which is too little to tell from noise"
    after = f"{plural(paid.calls.value, unit)} ({interval(paid.calls)})"
    return f"{told} and pays after {after}, you have {verdict.calls:,}"


def _way(tried: Tried) -> str:
    return f"`{tried.candidate.way.name}`"


def _memory(verdict: Verdict, tried: Tried) -> str:
    """The change of peak memory, where it is worth a word."""
    before, after = verdict.found.eager.peak_mib, tried.peak_mib
    if not before or not after or abs(after - before) < max(WORTH_A_WORD_MIB, 0.05 * before):
        return ""
    return f"peak memory {after / before - 1:+.0%}".replace("-", "−")


def reasons(verdict: Verdict) -> list[str]:
    """What the sentence rests on, a line each."""
    lines = []
    eager, subject, unit = verdict.found.eager, verdict.subject, verdict.unit
    total = sum(verdict.shares.values())
    if total:
        told = [f"{name} {duration(each)} ({each / total:.0%})" for name, each in verdict.shares.items()]
        lines.append(f"A {unit} in eager: {', '.join(told)}.")
    if subject is not None and subject.measured is not None and eager.measured is not None and verdict.payoff:
        speedup = verdict.payoff.speedup
        lines.append(
            f"A {unit} takes {duration(subject.measured.call)} with {subject.candidate.name}, "
            f"{duration(eager.measured.call)} in eager: {speedup.value:.2f} times as fast "
            f"({speedup.lower:.2f} to {speedup.upper:.2f})."
        )
        lines.append(
            f"Until {unit}s run at that speed, {duration(subject.start)} are spent in a new process with an empty cache"
            + (f", {duration(subject.warm)} with a filled one" if subject.warm else "")
            + f"; the first {unit} takes {duration(subject.first)}."
        )
        if verdict.calls is not None and verdict.payoff.likelihood is not None:
            lines.append(f"In {verdict.payoff.likelihood:.0%} of draws from what was measured, it saves time.")
        if subject.breaks or subject.fallbacks:
            lines.append(
                f"{plural(subject.breaks, 'break')} and {plural(subject.fallbacks, 'fall-back')} divide it: "
                "`lampwork.explain` says where, and what to do."
            )
        if verdict.pays and ("freeze", True) in subject.candidate.way.options:
            lines.append("`freeze` takes the weights as constant: after an edit in place, call `lampwork.reset()`.")
        if subject.compared is not None and subject.compared.spread:
            lines.append(
                f"Random numbers are drawn otherwise than eager's: the results of {SEEDS} seeds were compared with "
                f"eager's of as many, and are inside their spread."
            )
        elif subject.compared is not None:
            what = "Results, gradients and buffers" if unit == "call" else "The first outputs"
            lines.append(
                f"{what} are eager's, to {subject.compared.error:.1e} "
                f"where the largest value is {subject.compared.scale:.3g}."
            )
        if subject.why_not_compared:
            lines.append(f"Numbers were not compared: {subject.why_not_compared}.")
    lines += verdict.notes
    lines.append(f"This assessment took {duration(verdict.seconds)}.")
    return lines


def table(verdict: Verdict) -> list[list[str]]:
    """What was tried, a row each: name, a call, times eager, cost cold, cost warm, pays after, peak memory, remark."""
    from lampwork.verdict.horizon import payoff

    eager = verdict.found.eager
    rows = []
    for each in [eager, *verdict.found.tried]:
        if each.measured is None or eager.measured is None:
            rough = "" if math.isnan(each.rough) else f"about {duration(each.rough)}"
            rows.append([_short(each), rough, "", "", "", "", "", each.failure])
            continue
        speed, pays = "", ""
        if each is not eager:
            paid = payoff(eager.measured, each.measured, verdict.calls)
            speed = f"{paid.speedup.value:.2f}"
            pays = "never" if math.isinf(paid.calls.value) else f"{count(paid.calls.value)} ({interval(paid.calls)})"
        breaks = plural(each.breaks, "break") if each.breaks else ""
        peak = f"{each.peak_mib:,.0f} MiB" if each.peak_mib else ""
        cold = duration(each.start) if each is not eager else ""
        warm = duration(each.warm) if each.warm else ""
        rows.append([_short(each), duration(each.measured.call), speed, cold, warm, pays, peak, breaks])
    rows += [[name, "", "", "", "", "", "", f"not tried: {why}"] for name, why in verdict.found.left_out]
    return rows


HEADINGS = ("", "a {unit}", "times eager", "cost, empty cache", "filled cache", "pays after", "peak memory", "")


def _short(tried: Tried) -> str:
    return "eager" if tried.candidate.way.eager and not tried.candidate.way.autocast else tried.candidate.name


def whole(verdict: Verdict) -> str:
    """All of a verdict as plain text."""
    from lampwork.benchmark.tables import table as columns

    lines = [verdict.sentence, ""]
    if verdict.code:
        lines += [*(f"    {line}" for line in verdict.code.splitlines()), ""]
    lines += [*verdict.reasons, ""]
    headings = [each.format(unit=verdict.unit) for each in HEADINGS]
    lines.append(columns("What was tried", headings, table(verdict)))
    return "\n".join(lines)


def as_dict(verdict: Verdict) -> dict[str, Any]:
    def estimate(each: Estimate | None) -> dict[str, float | None] | None:
        return None if each is None else {key: _finite(value) for key, value in vars(each).items()}

    def tried(each: Tried) -> dict[str, Any]:
        return {
            "name": _short(each),
            "call_seconds": each.measured.call if each.measured else None,
            "rounds_seconds": list(each.measured.rounds) if each.measured else [],
            "cost_cold_seconds": _finite(each.start),
            "cost_warm_seconds": each.warm,
            "first_call_seconds": _finite(each.first),
            "peak_mib": each.peak_mib,
            "breaks": each.breaks,
            "fallbacks": each.fallbacks,
            "accepted": each.compared.accepted if each.compared else None,
            "failure": each.failure,
        }

    paid = verdict.payoff
    return {
        "name": verdict.name,
        "sentence": verdict.sentence,
        "pays": verdict.pays,
        "choice": _short(verdict.choice),
        "code": verdict.code,
        "reasons": verdict.reasons,
        "unit": verdict.unit,
        "task": verdict.task,
        "calls": verdict.calls,
        "speedup_in_total": verdict.speedup,
        "pays_after": estimate(paid.calls if paid else None),
        "speedup": estimate(paid.speedup if paid else None),
        "likelihood": paid.likelihood if paid else None,
        "saved_seconds": estimate(paid.saved if paid else None),
        "shares_seconds": verdict.shares,
        "eager": tried(verdict.found.eager),
        "tried": [tried(each) for each in verdict.found.tried],
        "left_out": [list(each) for each in verdict.found.left_out],
        "assessment_seconds": verdict.seconds,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# Numbers --------------------------------------------------------------------------------------------------------------


_UNITS = (
    (1e-3, 1e6, "µs"), (1, 1e3, "ms"), (120, 1, "s"), (7200, 1 / 60, "min"), (172800, 1 / 3600, "h"),
    (math.inf, 1 / 86400, "days"),
)  # fmt: skip


def duration(seconds: float) -> str:
    """As people say it, with three digits: 12.3 µs, 4.56 ms, 7.80 s, 12.0 min, 7.70 h, 3.20 days."""
    factor, unit = _unit(seconds)
    return "for ever" if math.isinf(seconds) else f"{digits(seconds * factor)} {unit}"


def _instead(seconds: float, before: float) -> str:
    """Two durations in one unit, where both can be read in it: that of the longer, or else of the shorter one."""
    for factor, unit in (_unit(max(seconds, before)), _unit(min(seconds, before))):
        if 1 <= min(seconds, before) * factor and max(seconds, before) * factor < 1000:
            return f"{digits(seconds * factor)} {unit} instead of {digits(before * factor)} {unit}"
    return f"{duration(seconds)} instead of {duration(before)}"


def _unit(seconds: float) -> tuple[float, str]:
    return next(((factor, unit) for limit, factor, unit in _UNITS if seconds < limit), (1 / 86400, "days"))


def digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def count(value: float) -> str:
    """A number of calls to two or three digits: nobody counts further."""
    if math.isinf(value):
        return "never"
    rounded = math.ceil(value) if value < 100 else round(value, 2 - int(math.log10(value)))
    return f"{int(rounded):,}"


def plural(value: float, noun: str) -> str:
    told = count(value)
    return f"{told} {noun}{'' if told == '1' else 's'}"


def interval(estimate: Estimate) -> str:
    return f"{count(estimate.lower)} to {count(estimate.upper)}"


def money(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
