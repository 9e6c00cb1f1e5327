"""Programs that ask whether they are compiled: under numerics="eager" they hear no, and run as eager runs them."""

from __future__ import annotations

import pytest
import torch

import lampwork
from tests.ops.bits import apart


@pytest.mark.parametrize("asks", [
    torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch._dynamo.is_compiling,
    torch._dynamo.external_utils.is_compiling, torch._utils.is_compiling, torch.jit.is_tracing, torch.jit.is_scripting,
    torch.compiler.is_exporting,
])  # fmt: skip
def test_the_answer_is_no(asks):
    program = lambda x: x.exp().sum() if asks() else x.double().exp().sum()
    x = torch.randn(1000)
    compiled = lampwork.compile(program, options={"numerics": "eager", "cache": False})
    assert not apart(compiled(x), program(x))
    assert not lampwork.stats(compiled)["breaks"]


def test_tensors_are_plain_ones():
    def program(x):
        fake = isinstance(x, torch._subclasses.FakeTensor) or isinstance(x, torch.fx.Proxy)
        return x + (1 if fake or type(x) is not torch.Tensor else 2)

    x = torch.randn(4)
    compiled = lampwork.compile(program, options={"numerics": "eager", "cache": False})
    assert not apart(compiled(x), program(x))


def test_the_answer_is_yes_by_default():
    program = lambda x: x * 2 if torch.compiler.is_compiling() else x
    x = torch.randn(4)
    assert torch.equal(lampwork.compile(program)(x), x * 2)


@pytest.mark.parametrize("numerics", ["default", "eager"])
def test_branches_on_what_is_computed_from_constants(numerics):
    """What a program asks of its masks when it is not compiled: whether they hide anything."""

    def program(x):
        positions = torch.arange(x.shape[1])[None]
        packed = (torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1).cumsum(-1)
        if (packed[:, -1] == 0).all():
            return x * 2
        return x

    x = torch.randn(3, 8)
    compiled = lampwork.compile(program, options={"numerics": numerics, "cache": False})
    assert not apart(compiled(x), program(x))
    assert not lampwork.stats(compiled)["breaks"] and lampwork.stats(compiled)["entries"] == 1


def test_branches_on_what_was_written():
    def program(x, index):
        mask = torch.ones(4, dtype=torch.bool)
        first = bool(mask.all())
        mask[index] = False
        view = mask[1:]
        return x * 2 if view.all() and first else x * 3

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.randn(4)
    for index in (torch.tensor(2), torch.tensor(0)):
        assert not apart(compiled(x, index), program(x, index))


def test_branches_on_what_an_input_decides():
    program = lambda x: x * 2 if (torch.ones(4) * x).sum() > 0 else x * 3
    compiled = lampwork.compile(program, options={"cache": False})
    for x in (torch.ones(4), -torch.ones(4)):
        assert not apart(compiled(x), program(x))


def test_masks_written_after_they_were_looked_at():
    def program(x):
        mask = torch.ones(8, 8, dtype=torch.bool)
        one = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        mask[:, 4:] = False
        return one, torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    x = torch.randn(2, 3, 8, 16)
    with torch.no_grad():
        for found, expected in zip(lampwork.compile(program)(x), program(x)):
            torch.testing.assert_close(found, expected)
