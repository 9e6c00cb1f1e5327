"""`as_strided_scatter` counted from the beginning of the workspace that its argument was planned in: what was written
was lost (the gradient of `adaptive_avg_pool2d(x, 1)` of channels-last images was 0)."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("images", [torch.contiguous_format, torch.channels_last])
def test_pooling_of_channels_last_images(size, images):
    w = torch.randn(3, generator=torch.Generator().manual_seed(1))

    def program(x):
        pooled = F.adaptive_avg_pool2d(x * w[:, None, None], size)
        return (pooled.flatten(2).mean(2) * w).square().sum()

    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(memory_format=images).requires_grad_()
    compiled = lampwork.compile(program, fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x), torch.autograd.grad(program(x), x))


@pytest.mark.parametrize(
    "layout", [((2, 3), (3, 1), 0), ((2, 2), (3, 1), 1), ((3, 2), (1, 3), 0), ((2,), (2,), 1), ((2, 2), (2, 1), 4)]
)
@pytest.mark.parametrize("step", [1, 2])
def test_parts_of_memory_of_its_own(layout, step):
    """In the middle of planned memory: values before and behind it are computed, too."""
    size, stride, offset = layout

    def program(x, source):
        before, base = x.sin(), x.cos().repeat(4)[::step]
        base = base + 1
        base.as_strided(size, stride, offset).copy_(source * 3)
        return before, base.as_strided((5,), (1,), 1) * 2, base.exp()

    compiled = lampwork.compile(program, fullgraph=True)
    x, source = torch.randn(8), torch.randn(size)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, source), program(x, source))


def test_the_operator_itself_on_inputs_that_begin_anywhere():
    def program(x, source):
        return x.as_strided_scatter(source, (2, 2), (3, 1)) + 1, x.as_strided((2, 2), (3, 1)) + source

    compiled = lampwork.compile(program)
    memory, source = torch.randn(32), torch.randn(2, 2)
    with torch.no_grad():
        for start in (0, 5, 3):
            x = memory[start : start + 12].view(3, 4)
            torch.testing.assert_close(compiled(x, source), program(x, source))


def test_a_write_through_an_expanded_view_of_one_element_behind_others():
    """Stand-ins that kernels are asked with have no storage ahead of a tensor."""

    def program(x):
        _, columns = torch.meshgrid(x, x, indexing="ij")
        columns.fill_(-1)
        return x

    x, y = torch.ones(7), torch.ones(7)
    compiled = lampwork.compile(program, options={"cache": False})
    assert torch.equal(compiled(x[3:4]), program(y[3:4])) and torch.equal(x, y)
