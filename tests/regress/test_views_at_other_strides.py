"""Views of tensors whose strides vary, and of tensors with a history whose sizes vary: their memory had no name."""

from __future__ import annotations

import pytest
import torch

import lampwork


def element(x):
    return x[1, 2]


@pytest.mark.parametrize("has_history", [False, True])
def test_strides_that_vary(has_history):
    lampwork.reset()
    compiled = lampwork.compile(element, options={"cache": False, "recompile_limit": 20})
    memory = torch.randn(64, requires_grad=has_history)
    for strides in ((3, 1), (1, 4), (0, 1), (12, 2), (7, 1), (9, 2)):
        x = (memory * 1).as_strided((4, 3), strides)
        torch.testing.assert_close(compiled(x), element(x))
    assert not lampwork.stats(compiled)["fallbacks"]


def test_sizes_that_vary_of_a_tensor_with_a_history():
    lampwork.reset()
    compiled = lampwork.compile(lambda x: x[1:].sum(0), dynamic=True, options={"cache": False})
    for rows in (3, 5, 8):
        x = torch.randn(rows, 2, requires_grad=True)
        torch.testing.assert_close(compiled(x * 1), x[1:].sum(0))
    assert not lampwork.stats(compiled)["fallbacks"]


def test_views_of_single_elements_at_other_strides():
    """A dimension of size 1 has a stride of its own, which a view keeps."""
    compiled = lampwork.compile(lambda x: x.view(x.size(0), -1), dynamic=True, options={"cache": False})
    for strides in ((1, 3, 3, 3), (1, 1, 1, 1), (1, 3, 1, 1)):
        x = torch.arange(10.0).as_strided((3, 1, 1, 1), strides)
        assert compiled(x).stride() == x.view(3, -1).stride()


def written_by_strides(x):
    part = x.as_strided((2, 2), (2, 1), x.storage_offset())
    part[1:] = -1
    return x.chunk(2)[1]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", [((3, 1), (2, 2), 0), ((2, 2), (4, 2), 1), ((2, 2), (2, 1), 1), ((5,), (2,), 1)])
def test_writes_to_the_gaps_of_an_argument(layout, dynamic):
    """What `as_strided` reaches in between of the argument's elements was not written."""
    compiled = lampwork.compile(written_by_strides, dynamic=dynamic, options={"cache": False})
    ours, memory = torch.arange(10.0), torch.arange(10.0)
    result, expected = compiled(ours.as_strided(*layout)), written_by_strides(memory.as_strided(*layout))
    assert torch.equal(ours, memory) and torch.equal(result, expected)


def test_writes_through_a_dimension_of_one_element_that_expand_made():
    """The root's contents were taken for those of the view below: the write failed, or went to other elements."""

    def program(x):
        part = x[:, 1].expand(1, 1)
        part.unsqueeze_(0)
        part.mul_(2)
        return part

    compiled = lampwork.compile(program, options={"cache": False})
    ours, memory = torch.tensor([[-0.75, -0.5]]), torch.tensor([[-0.75, -0.5]])
    assert torch.equal(compiled(ours), program(memory)) and torch.equal(ours, memory)


def test_scatters_by_strides():
    """The copy of an expanded tensor is contiguous; a tensor with a history must be."""
    program = lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (1, 2))
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.tensor([0.25]).expand(4)
    assert torch.equal(compiled(x, torch.ones(2, 2)), program(x, torch.ones(2, 2)))
    leaf = torch.ones(2, 2).t().requires_grad_()
    for function in (program, compiled):
        with pytest.raises(RuntimeError, match="only supported for contiguous"):
            function(leaf, torch.ones(2, 2))


@pytest.mark.parametrize("dynamic", [None, True])
def test_views_of_conjugates_are_conjugates(dynamic):
    x = torch.tensor([2 - 0j, -1.75 - 0.75j]).view(1, 2, 1, 1)
    for program in (
        lambda x: x.adjoint().swapdims(0, 0),
        lambda x: x.conj().split(1, 1)[0],
        lambda x: x.conj()[:, 0],
        lambda x: (x + 1).conj().as_strided((2,), (1,)),
        lambda x: x.conj().imag.transpose(0, 1),
        lambda x: x.conj().view_as(x),
        lambda x: x.conj().reshape(-1, x.shape[1])[:, :1],
    ):
        expected, ours = program(x), lampwork.compile(program, dynamic=dynamic, options={"cache": False})(x)
        assert (ours.is_conj(), ours.is_neg()) == (expected.is_conj(), expected.is_neg()) and torch.equal(
            ours, expected
        )
