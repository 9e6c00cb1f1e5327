"""A quick part of program mutation, the same on every run; `python -m tests.mutation` makes as many changes as asked."""

from __future__ import annotations

import random

import pytest

from tests.mutation.known import EXAMPLES, NOTICED, class_of
from tests.mutation.run import Report, run_subject
from tests.mutation.subjects import Subject, generated, of_reads, written

#: Changes of each program, and programs.
EACH, GENERATED, WRITTEN = 10, 12, 8


def test_entries_notice_changes():
    draw = random.Random(19)
    total = Report()
    for subject in [*map(generated, range(GENERATED)), *draw.sample(written(), WRITTEN)]:
        total.add(run_subject(subject, EACH, draw))
    stale = [
        f"python -m tests.mutation --subject {each.subject.name} --change '{each.change}': {each.difference[:200]}"
        for each in total.findings
        if class_of(each) is None
    ]
    assert not stale, "\n".join(stale)
    assert total.made > EACH * GENERATED and total.missed > 50 and total.served > 50, total


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_what_is_known_to_be_stale_still_is(name):
    """The smallest program of each known class: when it begins to pass, it leaves the list."""
    reads, change = EXAMPLES[name]
    report = run_subject(of_reads(name, *reads), 1000, random.Random(0), change)
    assert report.made, "the change is not made: the example does not show anything"
    assert report.findings, f"{name} is noticed now: take it out of tests/mutation/known.py"


@pytest.mark.parametrize("name", sorted(NOTICED))
def test_what_was_stale_once_is_noticed(name):
    reads, change = NOTICED[name]
    report = run_subject(of_reads(name, *reads), 1000, random.Random(0), change)
    assert report.made, "the change is not made: the example does not show anything"
    assert not report.findings, report.findings


def test_a_guard_that_is_lost_is_found(monkeypatch):
    """The net itself: without the guards on constants, entries are stale."""
    from lampwork.ir.guard import Equals
    from lampwork.runtime import entry

    plain = entry.compile_check
    lost = lambda guards, reads: plain([each for each in guards if not isinstance(each.test, Equals)], reads)
    monkeypatch.setattr(entry, "compile_check", lost)
    report = run_subject(
        of_reads("lost", "x = x * SCALE + OFFSET"), 10, random.Random(0), "int plus 1 @ function.global['SCALE']"
    )
    assert report.findings and class_of(report.findings[0]) is None


def test_a_subject_is_the_same_program_each_time():
    assert generated(5).text == generated(5).text and isinstance(generated(5), Subject)
