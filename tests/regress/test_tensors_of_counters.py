"""Tensors that are made of a counter: `torch.tensor(step)`."""

from __future__ import annotations

import pytest
import torch

import lampwork

MAKERS = {
    "counter": lambda n, v: torch.tensor(n),
    "as a float": lambda n, v: torch.tensor(n, dtype=torch.float32),
    "as a boolean": lambda n, v: torch.tensor(n - 4, dtype=torch.bool),
    "on a device": lambda n, v: torch.as_tensor(n + 1, device="cpu"),
    "counters": lambda n, v: torch.tensor([n, 2, n * n]),
    "small integers": lambda n, v: torch.tensor((n, 2), dtype=torch.int32),
    "mixed": lambda n, v: torch.tensor([n, v, 2, 0.5]),
    "mixed, double": lambda n, v: torch.tensor([n, v], dtype=torch.float64),
    "counter and float": lambda n, v: torch.tensor([n, 0.5]),
    "scalar": lambda n, v: torch.scalar_tensor(n),
    "leaf": lambda n, v: torch.tensor([float(n), v], requires_grad=True),
    "no integers of floats": lambda n, v: torch.tensor([n, v], dtype=torch.int64),
}


@pytest.mark.parametrize("name", MAKERS)
def test_tensors_of_counters(name):
    def program(x, n, v):
        made = MAKERS[name](n, v)
        return made, x * made.sum()

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.randn(3)
    for n in (1, 2, 3, 4, 5, 6, 2**24 + 1):
        expected, found = program(x, n, 0.9**n), compiled(x, n, 0.9**n)
        for one, other in zip(found, expected):
            torch.testing.assert_close(one, other)
            assert (one.dtype, one.stride(), one.is_leaf, one.requires_grad) == (
                other.dtype, other.stride(), other.is_leaf, other.requires_grad,
            )  # fmt: skip
        assert found[0].untyped_storage().data_ptr() != compiled(x, n, 0.9**n)[0].untyped_storage().data_ptr()
    stats = lampwork.stats(compiled)
    if name not in ("scalar", "leaf", "no integers of floats", "small integers"):
        assert stats["captures"] <= 4 and not stats["breaks"] and not stats["fallbacks"], stats["recompiles"]


def test_a_counter_that_does_not_fit():
    def program(n):
        return torch.tensor(n, dtype=torch.uint8)

    compiled = lampwork.compile(program, options={"cache": False})
    for n in (2, 3, 255, 4):
        assert torch.equal(compiled(n), program(n))
    with pytest.raises(RuntimeError, match="without overflow"):
        compiled(300)
