"""A load that nothing proves to be inside of its buffer is refused, and the call compiled for its sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import lampwork
from lampwork import pipeline
from lampwork.config import environment
from lampwork.errors import OffsetError
from lampwork.ir import offsets
from lampwork.ir.kernel_verify import prove_program, verify_kernel, verify_program
from lampwork.ir.loops import Axis, Buffer, Compute, Constant, Index, Kernel, Let, Load, Local, Loop, Parameter, Store
from lampwork.ir.program import Launch, Placement, Program
from lampwork.ir.size import INFINITY, Symbol, floordiv, mod, mul
from lampwork.runtime import function


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


@pytest.mark.parametrize("last, inside", [(3, True), (4, False)])
def test_a_mask_compares_an_integer_that_is_computed(last, inside):
    """`d.diagonal(1)` of a gathered gradient on a GPU: b0[i0] of 3 where i0 + 1 is an integer kept below `last`."""
    index = Symbol("i0", 0, 9)
    whole = lambda value: Constant(value, "int64")
    kept = Compute(
        "minimum", (Compute("maximum", (Load("b2", (index,), "int64"), whole(0)), "int64"), whole(last)), "int64"
    )
    row = Compute("add", (Index(index), whole(1)), "int64")
    load = Load("b0", (index,), "float32", mask=Compute("eq", (Local("t0", "int64"), row), "bool"), other=0)
    body = (Loop(Axis("i0", 10), (Let("t0", kept), Store("b1", (index,), load)), "parallel"),)
    parameters = (
        Parameter("b0", "float32", "read", 3), Parameter("b1", "float32", "write", 10), Parameter("b2", "int64", "read", 10)
    )  # fmt: skip
    masked = Kernel("masked", parameters, body)
    if inside:
        verify_kernel(masked)
    else:
        with pytest.raises(OffsetError, match="nothing proves"):
            verify_kernel(masked)
    offsets.TALLY.clear()


@pytest.mark.parametrize("verify", [True, False])
def test_sizes_are_fixed_where_a_proof_is_missing(monkeypatch, verify):
    """Nothing is proved of symbols here: each pair of sizes is an entry of its own, whether the verifier runs or not."""
    monkeypatch.setattr(pipeline, "environment", replace(environment, verify=verify))
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


def test_what_nothing_proves_of_numbers_runs_eagerly(monkeypatch):
    """Not of symbols, and not of the numbers in their place."""
    monkeypatch.setattr(pipeline, "environment", replace(environment, verify=False, strict=False))
    monkeypatch.setattr(function, "environment", replace(environment, verify=False, strict=False))
    monkeypatch.setattr(offsets.Access, "proved", lambda *arguments: False)
    monkeypatch.setattr(offsets.Access, "enumerated", lambda *arguments: False)
    compiled = lampwork.compile(lambda x: x[1:] + x[:-1], dynamic=True, options={"cache": False})
    x = torch.randn(5, 3)
    with pytest.warns(lampwork.LampworkWarning, match="nothing proves"):
        assert torch.equal(compiled(x), x[1:] + x[:-1])
    assert lampwork.stats(compiled)["fallbacks"]
    offsets.TALLY.clear()


def test_kernels_with_numbers_alone_are_not_proved_again(monkeypatch):
    """Programs of fixed sizes take no time for proofs: the verifier is for tests."""
    monkeypatch.setattr(pipeline, "environment", replace(environment, verify=False))
    monkeypatch.setattr(offsets.Access, "proved", lambda *arguments: pytest.fail("proved"))
    compiled = lampwork.compile(lambda x: x[1:] + x[:-1], options={"cache": False})
    x = torch.randn(5, 3)
    assert torch.equal(compiled(x), x[1:] + x[:-1])
    assert "prove" not in lampwork.stats(compiled)["compile_seconds"]


def test_buffers_are_as_large_as_kernels_take_them_to_be():
    """A kernel is proved for buffers of a size, and is given such buffers."""
    n = Symbol("n", 2)
    load = Load("b0", (Symbol("i0", 0),), "float32")
    size = Symbol("s0", 2)
    body = (Loop(Axis("i0", size), (Store("b1", (Symbol("i0", 0),), load),), "parallel"),)
    parameters = (Parameter("b0", "float32", "read", size), Parameter("b1", "float32", "write", size))
    kernel = Kernel("copies", parameters, body, ("s0",))
    for rows, facts, proved in ((n, (), True), (n + 1, (), True), (n + -1, (), False), (mul(n, n) - 4, (), False),
                                (Symbol("m", 2), (), False), (Symbol("m", 2), (Symbol("m", 2) - n,), True)):  # fmt: skip
        x, y = Buffer("x", "float32", (rows,), (1,)), Buffer("y", "float32", (n,), (1,))
        program = Program(
            (kernel,), {"x": x, "y": y}, {"x": Placement("input", 0), "y": Placement("result", 0)},
            (Launch(0, ("x", "y"), (Symbol("n"),)),), ("x",), (), ("y",), sizes=("n", "m"),
        )  # fmt: skip
        for check in (prove_program, verify_program):
            if proved:
                check(program, facts)
                continue
            with pytest.raises(OffsetError, match="nothing proves that x has n elements"):
                check(program, facts)


def test_numbers_that_are_kept_inside_are_put_to_their_ends():
    """Rows of `rows // 20 - 1` numbers, looked up by two indices that a kernel computes and clamps."""
    rows, count = Symbol("s0", 60), Symbol("s1", 2)
    wide = floordiv(rows, 20) - 1
    row, column = (Symbol(name, -INFINITY, INFINITY) for name in ("x0", "x1"))
    facts = (row, count - 1 - row, column, wide - 1 - column)
    index, numel = mul(wide, row) + column, mul(wide, count)
    assert offsets.Access("", index, numel, {}, facts).proved()
    assert not offsets.Access("", index + 1, numel, {}, facts).proved()
    assert not offsets.Access("", index, numel, {}, facts[1:]).proved()
    assert not offsets.Access("", index, numel, {}, facts[:3]).proved()
    assert not offsets.Access("", index, numel, {}, (*facts[:3], wide - column)).proved()
    assert offsets.Access("", index, numel, {}, (*facts, row - column)).proved()


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


@pytest.mark.parametrize(
    "program, shape",
    [
        (lambda x, i: torch.take(torch.fliplr(x), i % 32), (2, 2)),
        (lambda x, i: torch.take(torch.fliplr(x), i), (200, 150)),
        (lambda x, i: torch.gather(torch.column_stack([x, x]).diagonal(1), 1, i.view(1, 1, 1)), (1, 1, 1, 2)),
    ],
)
def test_indices_that_tensors_hold(program, shape):
    """A number that the kernel keeps within its bounds, in remainders and quotients; what is read nowhere."""
    x, index = torch.rand(shape), torch.tensor([[1]])
    compiled = lampwork.compile(program, options={"cache": False})
    assert torch.equal(compiled(x, index), program(x, index))
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_diagonals_whose_rows_or_columns_are_picked(offset):
    """Where the diagonal ends is part of the condition: an index that was picked says nothing of the other."""
    x, y, index = torch.rand(10, 8), torch.rand(10, 8).diagonal(offset).contiguous(), torch.tensor([3, 0])
    for program in (
        lambda x, y, i: torch.diagonal_scatter(x, y, offset)[:, i],
        lambda x, y, i: torch.diagonal_scatter(x, y, offset)[i],
        lambda x, y, i: torch.diag_embed(x, offset)[..., i],
        lambda x, y, i: torch.diag_embed(x, offset)[:, i],
    ):
        assert torch.equal(lampwork.compile(program, options={"cache": False})(x, y, index), program(x, y, index))


@pytest.mark.parametrize("rows, width", [(3, 2), (900, 5)])
def test_windows_that_hold_a_picked_row(rows, width):
    """Which windows hold it is a condition on the least of two numbers, one of which a tensor holds."""
    program = lambda x, i, y: x.scatter_reduce(1, i % 16, y, "amax").unfold(1, width, 1) * 1
    compiled = lampwork.compile(program, options={"cache": False})
    for function_ in (program, compiled):
        x, y = torch.rand(1, rows, 1), torch.full((1, 1, 1), 2.0, requires_grad=True)
        function_(x, torch.tensor([[[1]]]), y).sum().backward()
        assert y.grad.item() == 2
    assert not lampwork.stats(compiled)["fallbacks"]
