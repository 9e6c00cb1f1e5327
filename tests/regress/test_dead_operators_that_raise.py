"""What nobody reads is not computed, but eager raises where an index is out of range or an integer is divided by 0."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

PROGRAMS = {
    "scatter_add": lambda x, i: (x.scatter_add(1, i, x), x * 2)[1],
    "then changed": lambda x, i: (x.gather(1, i).mul_(2), x * 2)[1],
    "index": lambda x, i: (x[i[0]], x * 2)[1],
    "index_select": lambda x, i: (x.index_select(0, i[0]), x * 2)[1],
    "embedding": lambda x, i: (F.embedding(i, x), x * 2)[1],
    "nll_loss": lambda x, i: (F.nll_loss(x, i[0, :2]), x * 2)[1],
    "loss": lambda x, i: (F.binary_cross_entropy(x * i, x), x * 2)[1],
    "multi_margin_loss": lambda x, i: (F.multi_margin_loss(x, i[0, :2]), x * 2)[1],
    "multilabel_margin_loss": lambda x, i: (F.multilabel_margin_loss(x, i).mul_(2), x * 2)[1],
    "max_unpool": lambda x, i: (F.max_unpool1d(x[None], i[None], 1), x * 2)[1],
    "embedding_bag": lambda x, i: (F.embedding_bag(i, x), x * 2)[1],
    "masked_scatter": lambda x, i: (x.masked_scatter(i < 5, x[i[0, 0] :, 0]), x * 2)[1],
    "histc": lambda x, i: (torch.histc(x / (i - 1)), x * 2)[1],
    "division": lambda x, i: (i // (i - 1), x * 2)[1],
    "inverse": lambda x, i: (torch.cholesky_inverse((i[:, :2] - 1) * torch.eye(2)), x * 2)[1],
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_as_eager(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    x = torch.ones(2, 3)
    for number in (0, 4, 1):
        index = torch.full((2, 3), number)
        try:
            expected = program(x, index)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                compiled(x, index)
        else:
            assert torch.equal(compiled(x, index), expected)


@pytest.mark.parametrize("program", [PROGRAMS[name] for name in ("scatter_add", "index", "embedding", "division")])
def test_as_eager_where_gradients_are_wanted(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for number in (0, 4, 1):
        index, seen = torch.full((2, 3), number), []
        for function in (program, compiled):
            x = torch.ones(2, 3, requires_grad=True)
            try:
                function(x, index).sum().backward()
                seen.append(x.grad.tolist())
            except (RuntimeError, IndexError) as error:
                seen.append(type(error))
        assert seen[0] == seen[1]


@pytest.mark.parametrize("number", [2.0, 3.0])
def test_strides_of_what_has_no_elements(number):
    """Beside a number that varies, too."""
    compiled = lampwork.compile(
        lambda x, n: (x**n, n**x, x * n, torch.special.xlog1py(x, n), F.relu6(x)),
        dynamic=True,
        options={"cache": False},
    )
    for x in (torch.empty(0, 1), torch.empty(0, 1, 0, 2), torch.empty(3, 0, 2).transpose(0, 2)):
        for mine, theirs in zip(
            compiled(x, number), (x**number, number**x, x * number, torch.special.xlog1py(x, number), F.relu6(x))
        ):
            assert (mine.shape, mine.stride(), mine.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(8, 1), (1, 8, 5)])
def test_channels_that_do_not_fit(shape, dynamic):
    weight = torch.ones(4, 8, 3)
    program = lambda x: (F.conv_transpose1d(x, weight), x * 2)[1]
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    with pytest.raises(RuntimeError, match="to have 4 channels, but got 8 channels"):
        compiled(torch.ones(shape))


@pytest.mark.parametrize("function", [F.conv2d, F.conv_transpose2d])
def test_weights_that_groups_do_not_divide(function):
    """At a size that varies, and where nobody reads the result."""
    transposed = function is F.conv_transpose2d
    program = lambda x, weight: (function(x, weight, groups=2), x * 2)[1]
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for outer in (4, 6, 5, 1):
        x = torch.ones(1, outer if transposed else 2, 3, 3)
        weight = torch.ones(outer, 1, 1, 1)
        if outer % 2:
            with pytest.raises(RuntimeError, match="Given groups=2"):
                compiled(x, weight)
        else:
            assert torch.equal(compiled(x, weight), x * 2)


@pytest.mark.parametrize("count", [0, 3, 4, 5])
@pytest.mark.parametrize("is_read", [True, False])
def test_sizes_that_the_program_claims(count, is_read):
    """Contents must have the size that the program says they have, also where that is none."""

    def program(x, repeats):
        found = x.repeat_interleave(repeats, 0, output_size=count)
        return found if is_read else x + 1

    compiled = lampwork.compile(program, options={"cache": False})
    x, repeats = torch.arange(4.0)[:, None], torch.tensor([1, 2, 0, 1])
    if count == 4:
        assert torch.equal(compiled(x, repeats), program(x, repeats))
        return
    for function in (program, compiled):
        with pytest.raises(RuntimeError, match="allocated size does not match"):
            function(x, repeats)
