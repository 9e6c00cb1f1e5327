"""A function that is replaced is part of the key; one that is added under a name nobody had is not, and is guarded."""

from __future__ import annotations

import builtins
import functools
import operator

import pytest
import torch

from lampwork.runtime.cache.patches import patches
from tests.shipping.support import fresh


def mine(*args, **kwargs):
    return None


REPLACED = [
    (torch, "relu"), (torch, "take_along_dim"), (torch, "einsum"), (torch, "broadcast_shapes"), (torch, "is_tensor"),
    (torch, "conv2d"), (torch.Tensor, "gather"), (torch.Tensor, "__add__"),
    (torch.Tensor, "backward"), (torch.Tensor, "split"), (torch.nn.functional, "softmax"),
    (torch.nn.functional, "linear"), (torch.nn.functional, "gelu"), (torch.nn.functional, "scaled_dot_product_attention"),
    (torch.nn.functional, "max_pool2d"), (torch.nn.Module, "__call__"), (torch.nn.Module, "__setattr__"),
    (torch.nn.Module, "__init__"), (torch.nn.Module, "apply"), (torch.nn.Module, "forward"),
    (torch.nn.Module, "__repr__"), (torch.nn.Module, "__eq__"),
    (builtins, "len"), (functools, "reduce"), (operator, "add"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "name"), REPLACED, ids=lambda each: getattr(each, "__name__", each))
def test_what_is_replaced_is_told(place, name, monkeypatch):
    original = getattr(place, name, None)
    monkeypatch.setattr(place, name, lambda *args, **kwargs: original(*args, **kwargs), raising=False)
    assert f"patched {place.__name__}.{name}" in dict(patches())


@pytest.mark.parametrize("place", [torch, torch.Tensor, torch.nn.functional, torch.nn.Module], ids=str)
def test_what_is_added_is_not(place, monkeypatch):
    before = dict(patches())
    monkeypatch.setattr(place, "smart_apply_of_mine", mine, raising=False)
    assert dict(patches()) == before


def test_another_torch_compile_says_nothing(monkeypatch):
    before = dict(patches())
    monkeypatch.setattr(torch, "compile", mine)
    assert dict(patches()) == before


PROGRAM = """
import torch, lampwork
class Model(torch.nn.Module):
    def forward(self, x):
        x = x.sin()
        if hasattr(self, "added_of_mine"):
            x = self.added_of_mine(x)
        if getattr(torch, "added_of_mine", None) is not None:
            x = torch.added_of_mine(x)
        if hasattr(x, "added_of_mine"):
            x = x.added_of_mine()
        if hasattr(torch.nn.functional, "added_of_mine"):
            x = torch.nn.functional.added_of_mine(x)
        return x
x = torch.linspace(0, 1, 12)
model = Model()
for place in sys.argv[1].split():
    times = {"torch.nn.Module": 3, "torch": 5, "torch.Tensor": 7, "torch.nn.functional": 11}[place]
    target = torch
    for each in place.split(".")[1:]:
        target = getattr(target, each)
    target.added_of_mine = (lambda self, x: x * 3) if times == 3 else lambda x, times=times: x * times
fast = lampwork.compile(model)
with torch.no_grad():
    assert torch.allclose(fast(x), model(x), atol=1e-5), sys.argv[1]
counts = lampwork.stats(fast)
print(counts["cache_hits"], counts["captures"])
"""


def test_a_stored_entry_serves_none_but_those_without_the_name(tmp_path, monkeypatch):
    monkeypatch.setenv("LAMPWORK_CACHE_DIR", str(tmp_path))
    every = ["", "torch.nn.Module", "torch torch.Tensor torch.nn.functional", ""]
    said = [fresh(PROGRAM, each, LAMPWORK_CACHE="1").split() for each in every]
    assert said[0] == ["0", "1"] and said[-1] == ["1", "0"], said
    assert all(each[1] == "1" for each in said[1:-1]), said
    assert fresh(PROGRAM, every[1], LAMPWORK_CACHE="1").split() == ["1", "0"]
