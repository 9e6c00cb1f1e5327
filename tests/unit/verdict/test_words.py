"""What a verdict says, for searches that are made up."""

from __future__ import annotations

import io
import json
import math
import re
import xml.sax

import pytest
import torch

from lampwork.verdict import words
from lampwork.verdict.candidate import Candidate, Region, Way
from lampwork.verdict.horizon import Measured
from lampwork.verdict.search import EAGER, Found, Tried
from lampwork.verdict.verdict import judge
from lampwork.verdict.verify import compare

SAME = compare(torch.ones(2), torch.ones(2))


def tried(call: float, cost: float, way: Way = Way(), region: Region = Region(), **more) -> Tried:
    measured = Measured((call,) * 20, (cost, cost))
    return Tried(
        Candidate(region, way), rough=call, start=cost, warm=cost / 4, first=cost, measured=measured, compared=SAME,
        **more,
    )  # fmt: skip


def verdict(*candidates: Tried, calls: int | None = None, call: float = 0.010, unit: str = "call", **more):
    eager = Tried(EAGER, rough=call, start=0.0, first=call, measured=Measured((call,) * 20), peak_mib=100.0)
    found = Found(eager, list(candidates), [], 1.0)
    return judge(found, calls, name="Net", variables=("model",), unit=unit, task="infer", seconds=1.0, **more)


def test_it_pays():
    found = verdict(tried(0.004, 3.0, Way("reduce-overhead"), peak_mib=1020.0), calls=1_000_000, price=2.0)
    assert found.pays and found.speedup == pytest.approx(2.5, rel=0.01)
    assert found.sentence == (
        "Compile all of it with `reduce-overhead`: pays after 500 calls (500 to 500), your 1,000,000 calls take "
        "1.11 h instead of 2.78 h, 3.33 less at 2 an hour, peak memory +920%, numbers verified."
    )
    assert found.code == 'model = lampwork.compile(model, mode="reduce-overhead")'


def test_blocks():
    blocks = Region("h.*", tuple(torch.nn.Linear(1, 1) for _ in range(12)))
    found = verdict(tried(0.005, 1.0, Way(options=(("freeze", True),)), blocks))
    assert found.sentence.startswith("Compile the 12 blocks `h.*` with `freeze`: pays after 200 calls")
    assert found.code == (
        'for block in model.h:\n    block.forward = lampwork.compile(block.forward, options={"freeze": True})'
    )


def test_too_few_calls():
    found = verdict(tried(0.0097, 3.0), calls=2_000, unit="step", shares={"waiting for data": 0.007, "the rest": 0.003})
    assert not found.pays and found.speedup == 1.0 and not found.code
    assert found.sentence == (
        "Don't compile: 70% of a step waits for data; the best way (whole: default) gains 3% of a step and pays after "
        "10,000 steps (10,000 to 10,000), you have 2,000."
    )


def test_slower_than_eager():
    assert (
        verdict(tried(0.012, 1.0)).sentence == "Don't compile: the best way (whole: default) is 20% slower than eager."
    )


def test_of_several_the_lowest_total_is_chosen_for_these_calls():
    quick, fast = tried(0.008, 0.1), tried(0.004, 10.0, Way("max-autotune"))
    assert verdict(quick, fast, calls=10).choice.candidate.way.eager
    assert verdict(quick, fast, calls=1_000).choice is quick
    assert verdict(quick, fast, calls=100_000).choice is fast
    assert verdict(quick, fast).choice is fast


def test_noise_is_said():
    eager = Tried(EAGER, rough=0.01, start=0.0, first=0.01, measured=Measured((0.002, 0.03) * 10))
    ours = tried(0.01, 1.0)
    ours.measured = Measured((0.012, 0.028) * 10, (1.0, 1.0))
    found = judge(
        Found(eager, [ours], [], 1.0), None, name="Net", variables=("model",), unit="step", task="infer", seconds=1.0
    )
    assert "could not be told from eager" in found.sentence


def test_what_failed_is_in_the_table():
    broken = Tried(Candidate(Region(), Way()), failure="RuntimeError: no")
    found = verdict(broken)
    assert found.sentence == "Don't compile: nothing could be used; whole: default: RuntimeError: no."
    assert "RuntimeError: no" in str(found)


def test_json_holds_it():
    found = verdict(tried(0.012, 1.0), Tried(Candidate(Region(), Way()), failure="no"))
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["pays"] is False and read["pays_after"]["value"] is None
    assert [each["failure"] for each in read["tried"]] == ["", "no"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.34e-6, "12.3 µs"), (4.564e-3, "4.56 ms"), (0.5, "500 ms"), (7.84, "7.84 s"), (600, "10.0 min"),
     (27_720, "7.70 h"), (276_480, "3.20 days"), (math.inf, "for ever")],
)  # fmt: skip
def test_durations(seconds, text):
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.2, "1"), (40.2, "41"), (9_432, "9,430"), (1e6, "1,000,000"), (math.inf, "never")]
)
def test_counts(value, text):
    assert words.count(value) == text


@pytest.mark.parametrize("calls", [None, 10, 1_000_000])
@pytest.mark.parametrize("candidates", [(), (tried(0.004, 3.0),), (tried(0.02, 3.0),), (tried(0.009, 0.0),)])
def test_pages_are_whole(calls, candidates):
    found = verdict(*candidates, calls=calls, unit="step", shares={"waiting for data": 0.001, "the rest": 0.009})
    text = found.html()
    parser = xml.sax.make_parser()
    for drawing in re.findall(r"<svg.*?</svg>", text, re.S):
        parser.parse(io.StringIO(drawing))  # well-formed, or it raises
        assert "nan" not in drawing and "inf" not in drawing
    assert text.index('class="answer"') < text.index("What was tried")
    assert ("Break-even" in text) == bool(candidates)


@pytest.mark.parametrize(
    ("ours", "eager", "text"),
    [(43.2, 163.2, "43.2 s instead of 163 s"), (109, 197.4, "1.82 min instead of 3.29 min"),
     (4004, 10000, "1.11 h instead of 2.78 h"), (87.8e-6, 6.19e-3, "87.8 µs instead of 6.19 ms")],
)  # fmt: skip
def test_two_durations(ours, eager, text):
    assert words._instead(ours, eager) == text


def test_all_modules_of_a_loop_are_named():
    candidate = Candidate(Region("", (torch.nn.Identity(), torch.nn.Identity())), Way())
    assert candidate.code(("g", "d")) == "g = lampwork.compile(g)\nd = lampwork.compile(d)"


def test_frozen_weights_are_told_of():
    found = verdict(tried(0.004, 3.0, Way(options=(("freeze", True),))))
    assert any("lampwork.reset()" in line for line in found.reasons)
