"""A load that nothing proves to be inside of its buffer is refused by the verifier, and the call compiled for its sizes."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.errors import OffsetError
from lampwork.ir import offsets
from lampwork.ir.kernel_verify import verify_kernel
from lampwork.ir.loops import Axis, Kernel, Load, Loop, Parameter, Store
from lampwork.ir.size import Symbol, floordiv, mod, mul


def kernel(index, numel: int, extent: int) -> Kernel:
    """Reads b0, of `numel` elements, at `index` of i0 < `extent`."""
    load = Load("b0", (index,), "float32")
    body = (Loop(Axis("i0", extent), (Store("b1", (Symbol("i0", 0, extent - 1),), load),), "parallel"),)
    parameters = (Parameter("b0", "float32", "read", numel), Parameter("b1", "float32", "write", extent))
    return Kernel("reads", parameters, body)


def test_small_loops_are_enumerated():
    index = Symbol("i0", 0, 9)
    scattered = mod(mul(index, index), 10)  # 0 1 4 9 6 5 6 9 4 1
    offsets.TALLY.clear()
    verify_kernel(kernel(scattered, 10, 10))
    with pytest.raises(AssertionError, match="is outside at"):
        verify_kernel(kernel(scattered, 9, 10))
    assert not offsets.TALLY.open


def test_what_nothing_proves_is_refused(monkeypatch):
    index = Symbol("i0", 0, 99_999)
    squares = floordiv(mul(index, index), 100_000)
    monkeypatch.setattr(offsets.Access, "proved", lambda *arguments: False)
    with pytest.raises(OffsetError, match="nothing proves"):
        verify_kernel(kernel(squares, 100_000, 100_000))
    offsets.TALLY.clear()


def test_sizes_are_fixed_where_a_proof_is_missing(monkeypatch):
    """Nothing is proved of symbols here: each pair of sizes is an entry of its own."""
    proved = offsets.Access.proved
    monkeypatch.setattr(offsets.Access, "proved", lambda self, facts=(): not self.sizes() and proved(self, facts))
    compiled = lampwork.compile(lambda x: x[1:] + x[:-1], dynamic=True, options={"cache": False})
    for rows in (4, 5, 4):
        x = torch.randn(rows, 3)
        assert torch.equal(compiled(x), x[1:] + x[:-1])
    assert lampwork.stats(compiled)["entries"] == 2
    assert not lampwork.stats(compiled)["fallbacks"]
    assert offsets.TALLY.open
    offsets.TALLY.clear()


def written(shape: tuple[int, ...], index: tuple) -> None:
    """The derivative of a slice with steps writes the slice's gradient among zeros."""
    offsets.TALLY.clear()
    x = torch.randn(shape, requires_grad=True)
    compiled = lampwork.compile(lambda x: torch.autograd.grad((x[index] ** 2).sum(), x), options={"cache": False})
    assert torch.equal(compiled(x)[0], torch.autograd.grad((x[index] ** 2).sum(), x)[0])
    assert not lampwork.stats(compiled)["fallbacks"] and not offsets.TALLY.open


@pytest.mark.parametrize(
    "index", [(slice(None), slice(1, -2, 3)), (slice(-10, -2, 2),), (slice(None), slice(2, 19, 5))]
)
def test_slices_with_steps_are_proved(index, monkeypatch):
    monkeypatch.setattr(offsets.Access, "enumerated", lambda self: False)
    written((20, 30, 40), index)


@pytest.mark.parametrize("index", [(slice(None), slice(1, -2, 3)), (slice(-10, -2, 2),)])
def test_loops_that_ends_say_all_of_are_not_enumerated(index, monkeypatch):
    monkeypatch.setattr(offsets.Access, "proved", lambda *arguments: False)
    written((20, 30, 40), index)


@pytest.mark.parametrize("columns", [1, 3])
def test_places_in_what_a_concatenation_makes_are_proved(columns):
    """Which operand an element comes from is a condition on a remainder of its place."""
    offsets.TALLY.clear()
    x = torch.arange(2 * columns).view(2, columns)
    program = lambda x: torch.take(torch.cat([x, x[:, :1]], 1), x % 4)
    compiled = lampwork.compile(program, options={"cache": False})
    assert torch.equal(compiled(x), program(x))
    assert not lampwork.stats(compiled)["fallbacks"] and not offsets.TALLY.open
