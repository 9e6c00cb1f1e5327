"""Tensors that a program makes without naming their type, under a default type that it sets itself and takes back: the
graph ran under the default from before, so draws and windows had its type, not the one that the program had set."""

from __future__ import annotations

import warnings

import pytest
import torch

import lampwork

FACTORIES = {
    "rand": lambda x: torch.rand(2),
    "randn of sizes": lambda x: torch.randn(x.shape),
    "normal": lambda x: torch.normal(0.0, 1.0, (2,)),
    "parameter": lambda x: torch.nn.Parameter(torch.rand(2)) * x.to(torch.get_default_dtype()),
    "complex pairs": lambda x: torch.view_as_complex(torch.rand(3, 2)),
    "hann": lambda x: torch.hann_window(4),
    "kaiser": lambda x: torch.kaiser_window(5),
    "logspace": lambda x: torch.logspace(0, 1, 3),
    "complex linspace": lambda x: torch.linspace(0, 1j, 3),
    "complex full": lambda x: torch.full((2,), 1j),
    "zeros": lambda x: torch.zeros(2),
    "arange": lambda x: torch.arange(0, 2.5),
    "tensor": lambda x: torch.tensor([1.5, 2]),
}


#: Eager has no `linspace` of complex numbers of halves.
CASES = [(name, torch.float64) for name in FACTORIES] + [
    (name, torch.float16) for name in FACTORIES if name != "complex linspace"
]


@pytest.mark.parametrize("name, inner", CASES)
@pytest.mark.parametrize("outer", [torch.float32, torch.float64])
def test_factories(name, inner, outer):
    make = FACTORIES[name]

    def program(x):
        torch.set_default_dtype(inner)
        made = make(x)
        torch.set_default_dtype(outer)
        return made, torch.empty(0).dtype

    compiled = lampwork.compile(program, options={"cache": False})
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(outer)
        results = []
        with warnings.catch_warnings():
            warnings.simplefilter("error", lampwork.LampworkWarning)
            for function in (program, compiled, compiled):
                torch.manual_seed(3)
                results.append(function(torch.ones(2)))
    finally:
        torch.set_default_dtype(before)
    for made, default in results:
        assert default is outer
        assert made.dtype is results[0][0].dtype
        pair = made, results[0][0]
        assert torch.equal(*(torch.view_as_real(each) if each.is_complex() else each for each in pair))
