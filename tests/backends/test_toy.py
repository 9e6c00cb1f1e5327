"""Another back end is a folder and one entry of `BACKENDS`: three small models run by one that is no part of lampwork."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lampwork
from lampwork.backends import BACKENDS, backend_of
from lampwork.backends.backend import Backend, Costs, Kernels, Numerics
from lampwork.errors import LampworkWarning
from lampwork.runtime import function
from tests.backends.toy import TOY
from tests.backends.toy.launch import COUNTED


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.first(self.norm(x)).chunk(3, -1)
        weights = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
        return x + F.gelu(self.second(weights @ v))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 3), nn.LogSoftmax(-1)), (4, 6)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()).eval(),
        (1, 2, 8, 8),
    ),
    "attention": (Attention, (2, 5, 8)),
}


@pytest.fixture
def toy():
    lampwork.reset()
    with mock.patch.dict(BACKENDS, cpu=TOY):
        yield
    lampwork.reset()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", MODELS)
def test_model(toy, name, dynamic):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), torch.randn(shape)
    compiled = lampwork.compile(model, dynamic=dynamic, options={"cache": False})
    before = COUNTED.kernels
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    stats = lampwork.stats(compiled)
    assert not stats["fallbacks"] and not stats["breaks"]
    assert COUNTED.kernels - before >= 2  # both calls


def test_training_step(toy):
    make, shape = MODELS["mlp"]
    torch.manual_seed(0)
    model, x, classes = make(), torch.randn(shape), torch.arange(4) % 3
    compiled = lampwork.compile(lambda: F.nll_loss(model(x), classes), options={"cache": False})
    expected = torch.autograd.grad(F.nll_loss(model(x), classes), list(model.parameters()))
    before = COUNTED.kernels
    found = torch.autograd.grad(compiled(), list(model.parameters()))
    assert COUNTED.kernels - before >= 2 and not lampwork.stats(compiled)["fallbacks"]
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_what_it_cannot_do_is_counted(toy):
    compiled = lampwork.compile(lambda x: x.exp() * 2, options={"cache": False})
    x = torch.randn(4).bfloat16()
    with mock.patch.object(function, "environment", replace(function.environment, strict=False)):
        with pytest.warns(LampworkWarning, match="memory of type bfloat16"):
            torch.testing.assert_close(compiled(x), x.exp() * 2)
    assert lampwork.stats(compiled)["fallbacks"]


def test_back_ends_are_whole():
    """Every fact is named in the class, and every instance says all of them."""
    for each in BACKENDS.values():
        for part, cls in ((each, Backend), (each.numerics, Numerics), (each.kernels, Kernels), (each.costs, Costs)):
            assert type(part) is cls
            assert all(name in (cls.__doc__ or "") or name in ("numerics", "kernels", "costs", "device")
                       for name in cls.__dataclass_fields__)  # fmt: skip
        functions = [name for name in vars(backend_of("cpu").launching) if name in LAUNCH]
        assert sorted(functions) == sorted(LAUNCH)
        assert all(callable(getattr(each.launching, name)) for name in LAUNCH)
    assert backend_of("cuda:1") is BACKENDS["cuda"]
    with pytest.raises(LookupError, match="no back end for mps; there are cpu, cuda"):
        backend_of("mps:0")


#: What `Backend.launch` has, in each back end.
LAUNCH = (
    "load", "leases", "host_names", "on_device", "settle", "generator_states", "restore_generators", "is_capturing",
    "graphs", "ready", "prepare",
)  # fmt: skip
