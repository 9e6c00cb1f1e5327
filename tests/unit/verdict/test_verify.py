"""The acceptance rule accepts what is about as close as eager and nothing else."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from lampwork.verdict.verify import compare, leaves


def test_equal_outputs_are_accepted():
    output = {"logits": torch.randn(3, 4), "loss": (torch.tensor(1.0), None, 3)}
    verdict = compare(output, output)
    assert verdict.accepted and verdict.error == 0.0


def test_a_wrong_value_is_refused_with_its_place():
    eager = {"a": torch.zeros(3), "b": [torch.zeros(2), torch.zeros(2)]}
    ours = {"a": torch.zeros(3), "b": [torch.zeros(2), torch.tensor([0.0, 0.5])]}
    verdict = compare(ours, eager)
    assert not verdict.accepted
    assert verdict.error == 0.5
    assert len(verdict.reasons) == 1 and verdict.reasons[0].startswith("output['b'][1]: off by 0.5")


def test_as_far_from_float64_as_eager_is_accepted():
    reference = torch.linspace(0, 1, 1000, dtype=torch.float64)
    eager = (reference + 3e-4 * torch.sin(reference * 900)).float()
    ours = (reference + 3e-4 * torch.cos(reference * 900)).float()
    assert not compare(ours, eager).accepted
    assert compare(ours, eager, reference).accepted
    worse = (reference + 3e-3 * torch.cos(reference * 900)).float()
    assert not compare(worse, eager, reference).accepted


def test_dtype_shape_and_structure_must_be_equal():
    x = torch.zeros(2, 3)
    for wrong in (x.double(), x.reshape(3, 2), [x], (x, x)):
        verdict = compare(wrong, x)
        assert not verdict.accepted and verdict.reasons
    assert not compare([x], (x,)).accepted


def test_strides_are_noted():
    x = torch.zeros(2, 3)
    verdict = compare(x.t().contiguous().t(), x)
    assert verdict.accepted and "strides" in verdict.notes[0]


def test_nan_and_infinity_must_stay_where_they_were():
    x = torch.tensor([1.0, float("nan"), float("inf")])
    assert compare(x.clone(), x).accepted
    for index in (1, 2):
        wrong = x.clone()
        wrong[index] = 0.0
        verdict = compare(wrong, x, x.double())
        assert not verdict.accepted and verdict.error == float("inf")
    number = torch.tensor([0.0, 0.0, 0.0])
    assert not compare(x, number, number.double()).accepted


def test_integers_and_python_values_must_be_equal():
    assert not compare(torch.tensor([1, 2]), torch.tensor([1, 3])).accepted
    assert compare(torch.tensor([1, 2]), torch.tensor([1, 2])).accepted
    assert not compare((1, "a"), (1, "b")).accepted
    assert not compare(1, True).accepted


def test_complex_and_empty_outputs():
    z = torch.complex(torch.ones(3), torch.ones(3))
    assert compare(z, z.clone()).accepted
    assert not compare(z, z.conj()).accepted
    assert compare(torch.empty(0, 3), torch.empty(0, 3)).accepted


def test_leaves_of_dataclasses_and_mappings_in_order():
    @dataclass
    class Output:
        first: int
        second: list

    assert list(leaves({"k": Output(1, [2, 3])})) == [
        ("output['k'].first", 1),
        ("output['k'].second[0]", 2),
        ("output['k'].second[1]", 3),
    ]


class Cache:
    def __init__(self, *keys):
        self.keys = list(keys)
        self.owner = self


def test_objects_are_compared_by_what_they_hold():
    zeros, ones = torch.zeros(2), torch.ones(2)
    assert compare({"cache": Cache(zeros, ones)}, {"cache": Cache(zeros.clone(), ones.clone())}).accepted
    refused = compare({"cache": Cache(zeros, ones)}, {"cache": Cache(zeros, zeros)})
    assert refused.reasons == ("output['cache'].keys[1]: off by 1",)
    assert not compare(Cache(zeros), Cache(zeros, ones)).accepted
    assert not compare(Cache(zeros), Cache(1.0)).accepted


def test_objects_whose_state_is_not_in_their_dict_must_be_equal():
    assert not compare(functools.partial(max, 1), functools.partial(max, 2)).accepted
    assert not compare([ValueError(1)], [ValueError(2)]).accepted
