"""Indexed operators on tensors that do not fit together raise what eager raises, instead of reading past the end."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

THREE = torch.tensor([0, 1, 2])


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int64)


PROGRAMS = {
    "one_hot": lambda x: F.one_hot(torch.tensor([1, 5]), 3) + x[:1, :3],
    "one_hot, negative": lambda x: F.one_hot(torch.tensor([1, -1]), 3) + x[:1, :3],
    "weights of classes": lambda x: F.cross_entropy(x, zeros(5), torch.ones(9)),
    "layer norm": lambda x: torch.native_layer_norm(x, (4,), torch.ones(2), None, 1e-5),
    "flip": lambda x: x.flip(5),
    "masked_fill_": lambda x: x.clone().masked_fill_(x > 0, torch.ones(2)),
    "index_add": lambda x: x.index_add(0, THREE, torch.ones(2, 4)),
    "index_add_": lambda x: x.clone().index_add_(0, THREE, torch.ones(2, 4)),
    "index_add, wide": lambda x: x.index_add(0, THREE[:2], torch.ones(2, 7)),
    "index_copy": lambda x: x.index_copy(0, THREE, torch.ones(2, 4)),
    "index_copy, wide": lambda x: x.index_copy(0, THREE[:2], torch.ones(2, 7)),
    "gather": lambda x: x.gather(0, zeros(2, 9)),
    "scatter": lambda x: x.scatter(0, zeros(4, 4), torch.ones(2, 4)),
    "scatter_": lambda x: x.clone().scatter_(0, zeros(4, 4), torch.ones(2, 4)),
    "scatter, wide": lambda x: x.scatter(0, zeros(1, 6), torch.ones(9, 9)),
    "scatter of a number": lambda x: x.scatter(0, zeros(1, 6), 1.0),
    "scatter_add": lambda x: x.scatter_add(0, zeros(4, 4), torch.ones(2, 4)),
    "index_put": lambda x: x.index_put((THREE,), torch.ones(2, 4)),
    "index_fill, a dimension that is not there": lambda x: x.index_fill(2, THREE, 1.0),
    "index_fill of a number, another dimension": lambda x: x.sum().index_fill(1, THREE[:1], 1.0),
    "index_select, a matrix of indices": lambda x: x.index_select(0, THREE[None, :1]),
    "index_select of a number, another dimension": lambda x: x.sum().index_select(1, THREE[:1]),
    "index_select of a number, two indices": lambda x: x.sum().index_select(0, THREE[:2]),
    "index_select of a number, as many indices as rows": lambda x: x.sum().index_select(0, zeros(len(x))),
    "index_copy, indices of another type": lambda x: x.index_copy(0, THREE.int(), torch.ones(3, 4)),
    "as_strided_scatter before the memory": lambda x: x.as_strided_scatter(torch.ones(2), (2,), (1,), -1),
    "an assignment": lambda x: x.clone().__setitem__(THREE, torch.ones(2, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_refused(name):
    messages = []
    program = PROGRAMS[name]
    for function in (
        program,
        *(lampwork.compile(program, dynamic=some, options={"cache": False}) for some in (None, True)),
    ):
        with pytest.raises((RuntimeError, IndexError)) as caught:
            function(torch.zeros(5, 4))
        messages.append((caught.type, str(caught.value)))
    assert messages[0] == messages[1] == messages[2]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.as_strided_scatter(torch.ones(2), (2,), (1,), len(x) - 3),
        lambda x: (x + 1).as_strided((2,), (1,), len(x) - 3) * 2,
    ],
)
def test_offsets_that_sizes_decide(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for count in (6, 5, 4):
        assert torch.equal(compiled(torch.ones(count)), program(torch.ones(count)))
    for function in (program, compiled):
        with pytest.raises(RuntimeError, match="invalid storage offset -1"):
            function(torch.ones(2))


def test_rows_that_contents_decide():
    """As many rows as a mask has are written where another tensor says: that they fit is checked."""
    program = lambda x, mask, rows: x.index_copy(0, mask.nonzero().squeeze(1), rows)
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.zeros(5, 2)
    for count, fits in ((3, True), (2, False), (3, True)):
        mask, rows = torch.arange(5) < count, torch.ones(3, 2)
        if fits:
            assert torch.equal(compiled(x, mask, rows), program(x, mask, rows))
            continue
        for function in (program, compiled):
            with pytest.raises(IndexError, match="Number of indices"):
                function(x, mask, rows)
