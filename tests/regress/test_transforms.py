"""Function transforms in a process that has not loaded Dynamo: capture does not load it, and the entry serves its call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lampwork
from lampwork import _torch
from tests.processes import plain_environment, run_python

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, torch, lampwork
compiled = lampwork.compile(lambda x: TRANSFORM, options={"cache": False})
with torch.no_grad():
    found = compiled(torch.tensor([1.0, 2.0]))
loaded = "torch._dynamo" in sys.modules
stats = lampwork.stats(compiled)
print(found.tolist(), not stats["breaks"] and not stats["fallbacks"], loaded)
"""


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ("torch.func.vmap(lambda r: r * 2)(x)", "[2.0, 4.0]"),
        ("torch.func.grad(lambda r: (r * r).sum())(x)", "[2.0, 4.0]"),
        ("torch.func.hessian(lambda r: (r * r).sum())(x)", "[[2.0, 0.0], [0.0, 2.0]]"),
    ],
)
def test_transform_in_a_fresh_process(transform, expected):
    done = run_python(
        ["-c", PROGRAM.replace("TRANSFORM", transform)],
        cwd=ROOT,
        env=plain_environment(LAMPWORK_STRICT="1", PATH="", PYTHONPATH=str(ROOT)),
    )
    assert done.stdout.strip() == f"{expected} True False", done.stderr[-800:]


def test_forward_derivatives_of_a_compiled_function():
    """Neither entries nor captures looked at tangents of arguments, and the result had none."""
    import torch.autograd.forward_ad as forward_ad

    compiled = lampwork.compile(lambda x: x.sin(), options={"cache": False})
    x = torch.arange(3.0)
    compiled(x)
    with forward_ad.dual_level():
        result = forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, torch.ones(3))))
        torch.testing.assert_close(result.tangent, x.cos())
    assert [each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]] == ["modes-active"]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("transform", [
    lambda f, x: torch.func.jvp(f, (x,), (x + 1,)),
    lambda f, x: torch.func.jacfwd(f)(x),
    lambda f, x: torch.func.jacrev(f)(x),
    lambda f, x: torch.func.hessian(lambda y: f(y).sum())(x),
])  # fmt: skip
def test_weights_first_met_inside_a_transform(transform, grad):
    weight = torch.ones(3, 2, requires_grad=grad)

    def program(x):
        return transform(lambda y: torch.tanh(y @ weight.t()), x)

    compiled, x = lampwork.compile(program, options={"cache": False}), torch.tensor([1.0, 2.0])
    torch.testing.assert_close(compiled(x), program(x))
    assert not lampwork.stats(compiled)["breaks"] and not lampwork.stats(compiled)["fallbacks"]


def test_the_first_tensor_of_a_process_that_is_met_inside_of_a_transform():
    """How tensors are laid out in memory is found by differentiating one, which transforms refuse."""
    _torch.tensor_layout.cache_clear()
    offsets = torch.arange(3.0)

    def program():
        return torch.func.vmap(lambda row: row + offsets)(torch.ones(2, 3))

    compiled = lampwork.compile(program, options={"cache": False})
    assert compiled().tolist() == [[1.0, 2.0, 3.0]] * 2
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize(
    "change",
    [
        lambda row, n: row + n, lambda row, n: n - row, lambda row, n: row * n, lambda row, n: row / n,
        lambda row, n: row % n, lambda row, n: row.long() // n, lambda row, n: row.int() * n, lambda row, n: row < n,
        lambda row, n: row == n, lambda row, n: (row > 0) * n, lambda row, n: torch.where(row < n, row, n - 1),
    ],
)  # fmt: skip
def test_sizes_that_meet_tensors_inside_of_a_transform_stay_symbols(change):
    def program(x, other):
        return torch.func.vmap(torch.func.vmap(lambda row: change(row, other.size(0))))(x)

    compiled = lampwork.compile(program, dynamic=True, fullgraph=True, options={"cache": False})
    for size in (3, 5, 8):
        x, other = torch.arange(2.0 * size).reshape(2, size) - 3, torch.zeros(size + 1)
        found, expected = compiled(x, other), program(x, other)
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected)
    assert lampwork.stats(compiled)["captures"] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
@pytest.mark.parametrize(
    "change",
    [
        lambda row, n: row * n, lambda row, n: n - row, lambda row, n: row / n, lambda row, n: row < n,
        lambda row, n: n * torch.tanh(row / n), lambda row, n: torch.where(row > n, row, n), lambda row, n: row // n,
    ],
)  # fmt: skip
def test_numbers_that_vary_inside_of_a_transform_are_in_one_entry(change, dtype):
    def program(x, number):
        return torch.func.vmap(torch.func.vmap(lambda row: change(row, number)))(x)

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    x = (torch.arange(12).reshape(3, 4) - 3).to(dtype)
    for number in (0.3, 0.7, 1.9, -2.25):
        found, expected = compiled(x, number), program(x, number)
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected)
    assert lampwork.stats(compiled)["captures"] == 2


def test_a_number_is_written_into_what_a_transform_wraps():
    def program(x, number):
        def change(row):
            row = row + 1
            row *= number
            return row

        return torch.func.vmap(change)(x)

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for number in (0.3, 0.7, 1.9):
        assert torch.equal(compiled(torch.ones(3, 2), number), program(torch.ones(3, 2), number))
    assert lampwork.stats(compiled)["captures"] == 2


class _Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


class _TripledInBatches(_Doubled):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x):
        return x * 3, in_dims[0]


class _NotInBatches(_Doubled):
    generate_vmap_rule = False


@pytest.mark.parametrize("function", [_Doubled, _TripledInBatches, _NotInBatches])
def test_functions_of_autograd_have_rules_of_their_own_inside_of_vmap(function):
    """Where nothing is differentiated, the forward was run in every case."""
    found = []
    for program in (_batched, lampwork.compile(_batched, options={"cache": False})):
        try:
            found.append(program(function, torch.ones(2)).tolist())
        except RuntimeError as error:
            found.append(str(error))
    assert found[0] == found[1]


def _batched(function, x):
    return torch.func.vmap(lambda row: function.apply(row))(x)
