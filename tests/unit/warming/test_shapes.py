"""Tensors in words, and arguments of calls."""

from __future__ import annotations

import pytest
import torch

from lampwork.warming import shapes


@pytest.mark.parametrize(
    ("text", "dtype", "sizes"),
    [
        ("float32[8,128]", torch.float32, (8, 128)),
        ("bfloat16[ 8 , 128 ]", torch.bfloat16, (8, 128)),
        ("int64[]", torch.int64, ()),
        ("bool[0]", torch.bool, (0,)),
        ("float16[2]@cpu", torch.float16, (2,)),
    ],
)
def test_tensors(text, dtype, sizes):
    made = shapes.tensor(text)
    assert made.dtype == dtype and made.shape == sizes and not made.any() and not made.requires_grad
    assert shapes.tensor(shapes.words(made)).shape == sizes


def test_tensors_are_plain_ones_in_inference_mode():
    with torch.inference_mode():
        assert not shapes.tensor("float32[2]").is_inference()


@pytest.mark.parametrize("text", ["", "float32", "[8]", "float32[-1]", "float32[a]", "float32[8", "a photo [8] of"])
def test_texts_that_describe_no_tensor_stay(text):
    assert shapes.tensor(text) is None and shapes.made(text) == text


@pytest.mark.parametrize(("text", "told"), [("floaty[8]", "no type 'floaty'"), ("float32[8]@nowhere", "nowhere")])
def test_tensors_that_cannot_be_made(text, told):
    with pytest.raises(ValueError, match=told):
        shapes.tensor(text)


def test_tensors_in_containers():
    made = shapes.made(({"a": ["float32[2]", "plain"]}, 3))
    assert made[0]["a"][0].shape == (2,) and made[0]["a"][1] == "plain" and made[1] == 3


@pytest.mark.parametrize(
    ("text", "args", "kwargs"),
    [
        ("", (), {}),
        ("float32[1,128] int64[1, 128]", ("float32[1,128]", "int64[1, 128]"), {}),
        ("float32[2] scale=2.5 mask=bool[2]", ("float32[2]",), {"scale": 2.5, "mask": "bool[2]"}),
        ("None 'a text' (1, 2) [3] name=\"x y\"", (None, "a text", (1, 2), [3]), {"name": "x y"}),
        ("-1 flag=True", (-1,), {"flag": True}),
    ],
)
def test_calls(text, args, kwargs):
    assert shapes.call(text) == (args, kwargs)


@pytest.mark.parametrize("text", ["foo", "floaty[8]", "float32[2] x=open('x')", "x=", "float32[2"])
def test_calls_that_are_none(text):
    with pytest.raises(ValueError, match="type|float32"):
        shapes.call(text)


def test_calls_in_words():
    call = (torch.ones(2, 3), [torch.ones(1), 2], "float32[4]"), {"scale": 2.5, "more": {"a": None}}
    assert shapes.words(call) == "float32[2,3] (float32[1], 2) float32[4] scale=2.5 more={'a': None}"
