"""`out=` given to operators that write no type but their own, that reshape it, or that write to another tensor."""

from __future__ import annotations

import pytest
import torch

import lampwork

ONE_TYPE = {
    "abs": lambda x, out: torch.abs(x, out=out),
    "clamp": lambda x, out: torch.clamp(x, -1, 1, out=out),
    "clamp_min": lambda x, out: torch.clamp_min(x, -1, out=out),
    "neg": lambda x, out: torch.neg(x, out=out),
    "sign": lambda x, out: torch.sign(x, out=out),
    "round": lambda x, out: torch.round(x, out=out),
    "silu": lambda x, out: torch.ops.aten.silu.out(x, out=out),
    "nan_to_num": lambda x, out: torch.nan_to_num(x, out=out),
    "heaviside": lambda x, out: torch.heaviside(x, x, out=out),
    "signbit": lambda x, out: torch.signbit(x, out=out),
}


@pytest.mark.parametrize("name", ONE_TYPE)
@pytest.mark.parametrize("size", [3, 5000])
def test_another_type_is_refused(name, size):
    texts = []
    for function in (ONE_TYPE[name], lampwork.compile(ONE_TYPE[name])):
        with pytest.raises(RuntimeError) as raised:
            function(torch.ones(size, dtype=torch.float16), torch.empty(size, dtype=torch.float32))
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["exp", "sin", "sqrt", "square"])
def test_other_types_are_written_by_those_that_convert(name):
    x, given = torch.rand(7, dtype=torch.float16), torch.empty(7)
    lampwork.compile(lambda x, out: getattr(torch, name)(x, out=out))(x, given)
    assert torch.equal(given, getattr(torch, name)(x, out=torch.empty(7)))


def test_a_given_tensor_is_reshaped():
    """`kron(out=)` writes to `_unsafe_view` of the tensor, which it shares memory with."""
    x, given, made = torch.rand(3), torch.zeros(9), torch.zeros(3)
    assert lampwork.compile(lambda x, out: torch.kron(x, x, out=out))(x, given) is given
    assert torch.equal(given, torch.kron(x, x))

    def into_a_copy(x, y):
        out = y.clone()
        torch.kron(x, x[:1], out=out)
        return out + 1

    assert torch.equal(lampwork.compile(into_a_copy)(x, made), into_a_copy(x, made))


def test_written_through_an_unsafe_view():
    def program(x):
        y = x * 2
        torch.ops.aten._unsafe_view(y, [3, 2]).add_(1)
        torch.ops.aten._unsafe_view(x, [3, 2]).add_(1)
        return y

    x, other = torch.arange(6.0), torch.arange(6.0)
    assert torch.equal(lampwork.compile(program)(x), program(other))
    assert torch.equal(x, other)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_composite_that_computes_a_new_tensor_where_python_looks_on(dtype):
    """PyTorch's `linalg.matrix_rank` does not write to `out=` under dispatch modes: a break."""

    def program(x, out):
        rank = torch.linalg.matrix_rank(x, out=out)
        return rank is out, rank + 1

    x, given, expected = torch.eye(3), torch.zeros((), dtype=dtype), torch.zeros((), dtype=dtype)
    answer, wanted = lampwork.compile(program)(x, given), program(x, expected)
    assert answer[0] is wanted[0] is True
    assert torch.equal(answer[1], wanted[1]) and torch.equal(given, expected)
