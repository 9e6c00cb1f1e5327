"""`lampwork.explain`: what kept a call from being one piece, in the user's lines, with its cost; as text, data and page."""

from __future__ import annotations

import html.parser
import json
import time

import pytest
import torch

import lampwork
from lampwork import cli
from lampwork.debug.bars import bars
from lampwork.debug.cost import copy_bytes_a_second, memory_seconds
from lampwork.debug.diagnostics import DIAGNOSTICS


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.scale = 2

    def forward(self, x):
        return self.linear(x).relu() * self.scale


def breaks(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def two_axes(x):
    return x.softmax(1).mean(0)


def test_one_graph_is_compiled_and_not_run():
    ran = []

    def program(x):
        y = x.exp()
        ran.append(1)
        return y

    explanation = lampwork.explain(program, torch.ones(4))
    assert ran == [] and "one graph, nothing refused" in explanation["summary"]
    assert {"graph", "kernels", "host", "llvm"} <= set(explanation)


def test_a_break_is_told_with_its_line_its_remedy_its_page_and_its_cost():
    explanation = lampwork.explain(breaks, torch.ones(4))
    (found,) = [each for each in explanation.to_dict()["issues"] if each["kind"] == "break"]
    line = breaks.__code__.co_firstlineno + 1
    assert (found["id"], found["file"], found["line"]) == ("data-dependent", __file__, line)
    assert found["source"] == "if x.sum() > 0:" and found["remedy"]
    assert found["count"] == 1 and 0 < found["each_ms"] < 10_000
    text = explanation["breaks"]
    assert f"{__file__}:{line}: if x.sum() > 0:" in text and "docs/diagnostics/data-dependent.md" in text
    assert "cost: once, " in text


def test_what_happened_so_far_is_told_of_something_compiled():
    model = lampwork.compile(Scaled(), options={"cache": False, "recompile_limit": 2}, dynamic=False)
    with pytest.warns(lampwork.LampworkWarning, match="docs/diagnostics/recompile-limit.md"):
        for size in (2, 3, 4):
            model(torch.ones(size, 8))
    facts = lampwork.explain(model, torch.ones(2, 8)).to_dict()
    assert facts["history"]["calls"] == 3 and facts["history"]["entries"] == 2
    recompile, fallback = (
        next(each for each in facts["issues"] if each["kind"] == kind) for kind in ("recompile", "fallback")
    )
    assert recompile["reason"].startswith("x shape was [2, 8], is now [3, 8]") and recompile["each_ms"] > 0
    assert recompile["source"].startswith("def forward")
    assert fallback["id"] == "recompile-limit" and fallback["count"] == 1


def test_the_call_of_something_compiled_is_not_run():
    model = lampwork.compile(breaks, options={"cache": False})
    facts = lampwork.explain(model, torch.ones(4)).to_dict()
    assert facts["history"]["calls"] == 0
    (found,) = facts["issues"]
    assert found["id"] == "data-dependent" and found["each_ms"] is None


def test_a_refused_fusion_has_both_lines_bytes_and_milliseconds():
    facts = lampwork.explain(two_axes, torch.ones(64, 64)).to_dict()
    found = facts["fusions"][0]
    line = two_axes.__code__.co_firstlineno + 1
    assert found["id"] == "fusion-reductions" and found["bytes"] >= 2 * 64 * 64 * 4
    assert found["producer"]["line"] == found["consumer"]["line"] == line
    assert found["producer"]["source"] == "return x.softmax(1).mean(0)"
    assert 0 < found["ms"] < 100


def test_calls_of_aten_are_refused_fusions_too():
    facts = lampwork.explain(lambda x: torch.mm(x, x).relu(), torch.ones(64, 64)).to_dict()
    (found,) = [each for each in facts["fusions"] if each["id"] == "fusion-aten-call"]
    assert found["producer"]["op"].startswith("aten::mm") and found["consumer"]["op"].startswith("aten::relu")
    assert found["bytes"] == 2 * 64 * 64 * 4


def test_guards_are_grouped_and_name_parameters():
    explanation = lampwork.explain(Scaled(), torch.ones(2, 8))
    groups = {group["about"]: [each["text"] for each in group["guards"]] for group in explanation.to_dict()["guards"]}
    assert any(text.startswith("x is a Tensor float32[2, 8]") for text in groups["arguments"])
    assert any("self.linear.weight" in text for text in groups["weights and buffers"])
    assert "self.scale == 2" in groups["modules and objects"]
    assert "grad mode == False" in groups["process state"]
    assert 0 < explanation.to_dict()["guard_us"] < 10_000


def test_kernels_say_what_they_move_and_compute():
    explanation = lampwork.explain(lambda x: x.exp() + 1, torch.ones(1000))
    (kernel,) = explanation.to_dict()["kernels"]
    assert (kernel["launches"], kernel["read_bytes"], kernel["written_bytes"]) == (1, 4000, 4000)
    assert kernel["lines"][0]["file"] == __file__ and kernel["lines"][0]["ops"]
    assert "reads 3.9 KiB, writes 3.9 KiB" in explanation["kernels"]


def test_facts_are_json_and_complete():
    facts = lampwork.explain(two_axes, torch.ones(64, 64)).to_dict()
    assert json.loads(json.dumps(facts)) == facts
    assert all(each["id"] in DIAGNOSTICS for each in [*facts["issues"], *facts["fusions"]])


class _Balance(html.parser.HTMLParser):
    """Open tags; anything that would be loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.loaded, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.loaded += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("function", [breaks, two_axes, Scaled()], ids=["breaks", "two_axes", "module"])
def test_the_page_needs_nothing_beside_it_and_says_the_same(function):
    explanation = lampwork.explain(function, torch.ones(8, 8))
    page = _Balance()
    page.feed(explanation.html())
    assert page.open == [] and page.loaded == []
    text = "".join(page.text)
    for each in [*explanation.to_dict()["issues"], *explanation.to_dict()["fusions"]]:
        assert each["id"] in text and each["reason"] in text


def test_the_page_answers_first():
    """Then it says what to do, dearest first, and shows the rest."""
    page = _Balance()
    explanation = lampwork.explain(breaks, torch.ones(8, 8))
    page.feed(explanation.html())
    text = "".join(page.text)
    assert "1 break" in explanation.answer() and "to do" in explanation.answer()
    places = [text.index(each) for each in (explanation.answer(), "What to do", "Kernels", "Guards", "Time by stage")]
    assert places == sorted(places)


def test_where_nothing_is_to_be_done_the_page_says_so():
    explanation = lampwork.explain(lambda x: (x @ x).relu(), torch.ones(8, 8))
    assert explanation.answer().endswith("Nothing to do.")
    text = explanation.html()
    assert explanation.answer() in text and "What to do" not in text
    assert text.index("Kernels") < text.index("Refused fusions without a remedy") and "fusion-aten-call" in text


def test_of_many_bars_the_longest_are_drawn():
    drawn = bars([(f"kernel_{each}", float(each), str(each)) for each in range(1, 31)], "All")
    assert drawn.count("<rect") == 13 and "18 others" in drawn and "kernel_30" in drawn and "kernel_3<" not in drawn
    assert not bars([], "Nothing") and not bars([("none", 0.0, "0")], "Nothing")


def test_the_command_says_what_it_wrote(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("def program():\n    import torch\n    return torch.ones(4) * 2\n")
    assert cli.main(["explain", f"{script}::program", "--html", str(tmp_path / "page.html")]) == 0
    told = capsys.readouterr().out
    assert "Nothing to do." in told and "page.html" in told


def test_markup_in_the_program_is_escaped():
    def program(x):
        return x + torch.tensor([ord(c) for c in "<script>"]).sum()

    assert "<script>" not in lampwork.explain(program, torch.ones(4)).html()


def test_overview_leaves_code_out():
    explanation = lampwork.explain(two_axes, torch.ones(8, 8))
    assert "== fusion" in explanation.overview() and "== llvm" not in explanation.overview()
    assert "== llvm" in str(explanation)


def test_memory_takes_longer_for_more():
    assert 0 < memory_seconds(1 << 14) < 100 * memory_seconds(1 << 28)
    assert memory_seconds(0) == 0.0
    assert copy_bytes_a_second(1 << 20, "cpu") > 0


def test_sizes_that_may_vary_are_a_group_of_their_own():
    model = lampwork.compile(lambda x, y: x.exp() + y, dynamic=True, options={"cache": False})
    facts = lampwork.explain(model, torch.ones(6), torch.ones(6)).to_dict()
    (group,) = [group for group in facts["guards"] if group["about"] == "sizes that may vary"]
    assert any("x.size(0)" in each["text"] for each in group["guards"])


def test_a_fixed_size_is_told_with_the_line_that_needs_it():
    def program(x):
        return sum(x for _ in range(x.shape[0]))

    model = lampwork.compile(program, dynamic=True, options={"cache": False})
    (found,) = lampwork.explain(model, torch.ones(4)).to_dict()["issues"]
    assert found["reason"].startswith("x.size(0) is fixed at 4")
    assert found["id"] == "size-specialised" and found["source"] == "return sum(x for _ in range(x.shape[0]))"


def twice_in_a_leaf(x):
    first = _leaf(x).softmax(1)
    return _leaf(first).exp()


def _leaf(x):
    y = x.sin()
    pause()
    return y * 2


@lampwork.disable
def pause():
    time.sleep(0.001)


def test_every_graph_of_a_call_that_breaks_is_told():
    explanation = lampwork.explain(twice_in_a_leaf, torch.ones(4, 4))
    facts = explanation.to_dict()
    (found,) = [each for each in facts["issues"] if each["kind"] == "break"]
    assert found["source"] == "pause()" and found["count"] == 2 and 1 <= found["each_ms"] < 1000
    assert len(facts["graphs"]) == 3 and found["then"]["graphs"] == [each["name"] for each in facts["graphs"][1:]]
    assert found["then"]["guards"] > 0 and found["then"]["guard_us"] > 0 and found["then"]["compile_ms"] > 0
    assert "then 2 graphs, compiled in" in explanation["breaks"] and "then 2 graphs" in explanation.html()
    lines = {line["source"] for kernel in facts["kernels"] for line in kernel["lines"]}
    assert {"y = x.sin()", "return _leaf(first).exp()"} <= lines
    assert len(facts["kernels"]) == explanation["kernels"].count("# launched")


def test_what_happened_at_breaks_so_far():
    compiled = lampwork.compile(twice_in_a_leaf, options={"cache": False})
    for _ in range(3):
        compiled(torch.ones(4, 4))
    facts = lampwork.explain(compiled, torch.ones(4, 4)).to_dict()
    (found,) = [each for each in facts["issues"] if each["kind"] == "break"]
    assert found["count"] == 6 and found["then"]["graphs"] and facts["history"]["calls"] == 3
    assert facts["guard_us"] > 0
