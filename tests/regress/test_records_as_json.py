"""A record with numbers out of tensors, written as JSON, broke the graph: its text is made after the graph."""

from __future__ import annotations

import json

import pytest
import torch

import lampwork


def means(x, step):
    record = {"step": step, "rows": len(x), "mean": round(x.mean().item(), 3), "tags": ["a", None, (True, 1.5)]}
    text = json.dumps(record)
    record["mean"] = 0.0  # what the text holds was copied
    return text, record


def looks(x, step):
    record = {"z": x.sum().item(), "a": f"{x.max().item():.2f}", "step": step}
    return json.dumps(record, indent=2, sort_keys=True), json.dumps(record, separators=(",", ":")) + "\n"


def printed(x, step):
    print(json.dumps({"loss": x.square().mean().item(), "step": step}))
    return x * step


def without_numbers(x, step):
    return x + 1, json.dumps({"step": [1, 2]}), json.dumps("text")


def _cases():
    for step, x in enumerate((torch.ones(3), torch.arange(5.0), torch.tensor([float("nan"), float("inf")]))):
        yield x, step


@pytest.mark.parametrize("program", [means, looks, printed, without_numbers])
def test_the_text_is_eagers(program, capsys):
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for x, step in _cases():
        expected, said = program(x, step), capsys.readouterr().out
        found, told = compiled(x, step), capsys.readouterr().out
        assert str(found) == str(expected) and told == said
        assert [type(each) for each in found] == [type(each) for each in expected]


def refuses_nan(x):
    return json.dumps({"mean": x.mean().item()}, allow_nan=False)


def of_a_tensor(x):
    return json.dumps({"x": x.mean()})


def with_code(x):
    return json.dumps({"x": x.mean(), "y": x.sum().item()}, default=lambda each: each.tolist())


def unlike_keys(x):
    return json.dumps({"a": x.sum().item(), 1: 2}, sort_keys=True)


@pytest.mark.parametrize("program", [refuses_nan, of_a_tensor, with_code, unlike_keys])
def test_what_may_raise_is_left_to_eager(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for x in (torch.ones(2), torch.tensor([float("nan")])):
        outcomes = []
        for function in (program, compiled):
            try:
                outcomes.append(function(x))
            except (TypeError, ValueError) as error:
                outcomes.append(f"{type(error).__name__}: {error}")
        assert outcomes[0] == outcomes[1]
