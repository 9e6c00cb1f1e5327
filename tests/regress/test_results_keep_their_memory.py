"""What a call returned is not written to by the next call. A reshape whose sizes vary may be left to ATen, which gives the
memory of its operand though the operator's schema does not say so: that was memory which every call uses again."""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import lampwork
from lampwork import _torch


def reshaped(x):
    y = (x + 1).movedim(2, 0)
    return y, y.reshape(-1, 2), torch.cat([x, x])


def reshaped_alone(x):
    return (x * 2).transpose(0, 1).reshape(2, -1)


def reshaped_twice(x):
    y = (x - 1).transpose(0, 2).reshape(-1, 4)
    return y.reshape(2, -1), y + 1


@pytest.mark.parametrize("program", [reshaped, reshaped_alone, reshaped_twice])
@pytest.mark.parametrize("make", [lambda: torch.randn(6, 3, 4).permute(2, 1, 0), lambda: torch.randn(4, 3, 8)])
def test_results_of_calls(program, make):
    compiled = lampwork.compile(program, dynamic=True)
    inputs = [make() for _ in range(4)]
    found, expected = [compiled(x) for x in inputs], [program(x) for x in inputs]
    for one, other in zip(found, expected):
        one, other = (each if isinstance(each, tuple) else (each,) for each in (one, other))
        assert all(map(torch.equal, one, other))
        assert [each.stride() for each in one] == [each.stride() for each in other]


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("_unsafe_view", ([2, 6],)), ("view", ([2, 6],)), ("lift", ()), ("unsafe_split.Tensor", (2,)),
        ("unsafe_split_with_sizes", ([1, 3],)), ("split.Tensor", (2,)), ("transpose.int", (0, 1)),
    ],
)  # fmt: skip
def test_operators_that_alias_arguments(name, arguments):
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    x = torch.randn(4, 3)
    first = lambda result: result[0] if isinstance(result, (list, tuple)) else result
    assert first(op(x, *arguments)).data_ptr() == x.data_ptr()
    assert _torch.may_alias_arguments(op)
    copied = first(_torch.copying_variant(op)(x, *arguments))
    assert copied.data_ptr() != x.data_ptr() and torch.equal(copied, first(op(x, *arguments)))


@pytest.mark.slow
def test_no_other_operator_may_alias_arguments():
    """Operators by PyTorch's samples: what shares memory and says nothing of it is in the table."""
    mode = UndeclaredAliases()
    for info in op_db:
        if torch.float32 not in info.supported_dtypes("cpu"):
            continue
        for sample in itertools.islice(info.sample_inputs("cpu", torch.float32), 3):
            with mode, torch.no_grad(), contextlib.suppress(Exception):
                info.op(sample.input, *sample.args, **sample.kwargs)
    assert not [op for op in mode.found if not _torch.may_alias_arguments(op)]
    assert torch.ops.aten._unsafe_view.default in mode.found


class UndeclaredAliases(TorchDispatchMode):
    """Finds the operators whose results share memory with an argument, and whose schemas do not say so."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not any(each.alias_info for each in func._schema.returns):
            memory = lambda values: {
                each.untyped_storage().data_ptr()
                for each in tree_leaves(values)
                if isinstance(each, torch.Tensor) and each.layout == torch.strided and each.numel()
            }
            if memory(result) & memory((args, kwargs)):
                self.found.add(func)
        return result
