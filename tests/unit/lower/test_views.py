"""Views are index arithmetic: no nest, and a strided reference that ATen operators read without a copy."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lampwork.ir.loops import LoopNest
from lampwork.ir.program import Extern
from lampwork.lower.view import reshape_strides
from tests.unit.lower.graphs import assert_like_eager, lowered_of

X = torch.arange(2 * 3 * 4 * 6, dtype=torch.float32).reshape(2, 3, 4, 6)

CHAINS = {
    "heads": lambda x: x.view(2, 3, 24).view(2, 3, 4, 6).transpose(1, 2),
    "merge heads": lambda x: x.transpose(1, 2).reshape(2, 4, 18),
    "slices": lambda x: x[:, 1:, ::2, 1:5:3],
    "negative": lambda x: x[-1, :, -3:-1],
    "select": lambda x: x.select(2, 3).unsqueeze(0).squeeze(1),
    "expand": lambda x: x[:, :1, :, :1].expand(2, 5, 4, 7),
    "unfold": lambda x: x.unfold(3, 3, 2),
    "diagonal": lambda x: x.diagonal(1, 2, 3),
    "negative diagonal": lambda x: x.diagonal(-2, 3, 1),
    "movedim": lambda x: x.movedim(0, -1).flatten(1),
    "chunk": lambda x: x.chunk(3, dim=3)[1],
    "split": lambda x: x.split([1, 4, 1], dim=3)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "as_strided": lambda x: x.clone().as_strided((3, 5), (7, 2), 4),
    "ones": lambda x: x.reshape(1, 2, 1, 72, 1).squeeze().reshape(2, 1, 72),
    "bits": lambda x: x.view(torch.int32),
}


@pytest.mark.parametrize("name", CHAINS)
def test_view_then_pointwise(name):
    chain = CHAINS[name]
    lowered = assert_like_eager(lambda x: chain(x) + 1, X)
    nests = [item for item in lowered.items if isinstance(item, LoopNest)]
    copies = {"merge heads": 1, "as_strided": 1, "movedim": 1}.get(name, 0)
    assert len(nests) == 1 + copies


@pytest.mark.parametrize("name", [name for name in CHAINS if name not in ("bits",)])
def test_view_then_aten(name):
    """cumsum has no rule: it reads the view through a TensorRef."""
    chain = CHAINS[name]
    lowered = assert_like_eager(lambda x: chain(x).cumsum(0), X)
    (extern,) = (item for item in lowered.items if isinstance(item, Extern))
    assert extern.out_variant == "aten::cumsum.out"


def test_transposed_weight_is_not_copied():
    lowered = lowered_of(lambda x, w: x @ w.t(), (torch.randn(3, 4), torch.randn(5, 4)))
    (item,) = lowered.items
    assert item.args[1].shape == (4, 5) and item.args[1].strides == (1, 4)


_sizes = st.sampled_from(
    [(2, 3, 4), (4, 6), (24,), (2, 12), (3, 8), (6, 4), (2, 2, 2, 3), (1, 24), (3, 1, 8), (12, 1, 2)]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_sizes, st.permutations(range(4)), st.booleans()), min_size=1, max_size=4))
def test_random_reshapes_and_permutations(steps):
    def program(x):
        for shape, order, rotate in steps:
            x = x.reshape(shape)
            x = x.permute([d for d in order if d < x.dim()])
            if rotate and x.shape[0] > 2:
                x = torch.cat((x[2:], x[:2]), 0)
        return x * 2

    assert_like_eager(program, torch.arange(24, dtype=torch.float32))


@pytest.mark.parametrize("shape", [(2, 3, 4), (6, 4), (2, 1, 12), (1, 24)])
def test_memory_that_a_reshape_can_see_as_it_is(shape):
    """Eager's strides of the view; None where there is no view, as across gaps."""
    for steps in itertools.product((0, 1, 2, 4, 5, 12), repeat=len(shape)):
        x = torch.empty(400).as_strided(shape, steps)
        for new in ((24,), (4, 6), (6, 4), (2, 12), (2, 3, 2, 2), (3, 2, 4), (2, 3, 4, 1), (12, 1, 2)):
            try:
                expected = x.view(new).stride()
            except RuntimeError:
                expected = None
            found = reshape_strides(shape, steps, new)
            assert (found is None) == (expected is None), (steps, new)
            if found is not None:
                assert [s for s, n in zip(found, new) if n > 1] == [s for s, n in zip(expected, new) if n > 1]
