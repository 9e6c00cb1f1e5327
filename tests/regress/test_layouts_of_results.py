"""Fresh results have eager's strides where its kernels keep the memory format, or do not."""

from __future__ import annotations

import types

import pytest
import torch
from torch.nn import functional as F

import lampwork
from tests.ops.check import check_sample

OPERATOR = types.SimpleNamespace(name="program")


def images(channels=8):
    return torch.randn(2, channels, 6, 5).contiguous(memory_format=torch.channels_last)


def volumes():
    return torch.randn(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)


PROGRAMS = {
    **{f"stack along {dim}": lambda x, dim=dim: (torch.stack([x, x * 2], dim), torch.stack([x], dim)) for dim in range(5)},
    "pad by reflection": lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect") + 1,
    "pad by replication": lambda x: F.pad(x, (2, -1, 0, 3), mode="replicate"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[..., :4], 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 4),
    "logsigmoid": lambda x: F.logsigmoid(x),
    "rrelu": lambda x: (F.rrelu(x), F.rrelu(x, training=True)),
    "isin": lambda x: (torch.isin(x, x[0, 0]), torch.isin(x, 2.0)),
}  # fmt: skip

INDICES = {
    "a new dimension before": lambda x, index: x[None, index],
    "a new dimension between": lambda x, index: x[:, None, index],
    "a new dimension behind": lambda x, index: (x[index, None], x[index, :, None]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_images(name):
    outcome = check_sample(OPERATOR, PROGRAMS[name], (images(),), {})
    assert outcome.kind in ("native", "aten"), outcome


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_layouts(name):
    for x in (images().contiguous(), images()[:1].expand(2, -1, -1, -1), images(10)[:, 1:-1]):
        outcome = check_sample(OPERATOR, PROGRAMS[name], (x,), {})
        assert outcome.kind in ("native", "aten"), outcome


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_pads_of_volumes(mode):
    outcome = check_sample(OPERATOR, lambda x: F.pad(x, (1, 1, 2, 0, 1, 1), mode=mode), (volumes(),), {})
    assert outcome.kind == "native", outcome


@pytest.mark.parametrize("name", INDICES)
def test_indices(name):
    for index in (torch.tensor([0, 1, 2]), torch.tensor([[0], [2]])):
        outcome = check_sample(OPERATOR, INDICES[name], (torch.randn(8, 6).t(), index), {})
        assert outcome.kind == "native", outcome


def test_what_eager_refuses():
    for program in (lambda x: F.pad(x, (6, 1, 0, 0), mode="reflect"), lambda x: F.pixel_shuffle(x, 3)):
        assert check_sample(OPERATOR, program, (images(),), {}).kind == "raises"


@pytest.mark.parametrize("classes", [5, 9])
def test_one_hot_of_transposed_classes(classes):
    """Without memory, as fakes are, it is a comparison, whose result is laid out as the classes are."""
    for index in (torch.arange(20).view(4, 5).t() % 5, torch.arange(24).view(2, 3, 4)[:, ::2].transpose(0, 2) % 5):
        outcome = check_sample(OPERATOR, lambda index: F.one_hot(index, classes), (index,), {})
        assert outcome.kind in ("native", "aten"), outcome
        outcome = check_sample(OPERATOR, lambda index: F.one_hot(index, num_classes=classes) + 1, (index,), {})
        assert outcome.kind in ("native", "aten"), outcome


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 2), (2, 3, 4), (1, 2, 3), (3, 4)])
def test_max_pool1d_of_transposed_rows(shape, requires_grad):
    """Where nothing is differentiated, eager's kernel gives contiguous results."""
    x = torch.randn(shape).mT.requires_grad_(requires_grad)
    for program in (lambda x: F.max_pool1d(x, 1, 2), torch.nn.MaxPool1d(1), lambda x: torch.max_pool1d(x, 1)):
        for dynamic in (None, True):
            assert lampwork.compile(program, dynamic=dynamic)(x).stride() == program(x).stride()


def test_threshold_of_the_places_of_whole_numbers():
    """A column of which only contents say how long it is."""
    for program in (lambda x: F.threshold(torch.nonzero(x), 0, 1), lambda x: F.threshold(torch.nonzero(x) - 1, 0, 1)):
        x = torch.tensor([5, -5], dtype=torch.int16)
        assert lampwork.compile(program)(x).stride() == program(x).stride()


LARGE = {
    "losses of points": lambda x: F.cross_entropy(x, torch.ones(70, 70, 2, dtype=torch.int64).permute(2, 0, 1), reduction="none"),
    "unpool": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, 2, return_indices=True), 2, 2),
    "reflected": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "rows by a weight in order of channels": lambda x: F.conv1d(x[:, :, 0], torch.ones(6, 3, 4).transpose(1, 2)),
    "rows spread by such a weight": lambda x: F.conv_transpose1d(x[:, :, 0], torch.ones(4, 3, 6).transpose(1, 2)),
    "volumes spread": lambda x: F.conv_transpose3d(
        x[:, :, :, None].contiguous(memory_format=torch.channels_last_3d), torch.ones(4, 6, 3, 3, 3)
    ),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", LARGE)
def test_more_elements_than_kernels_are_asked_for(name, dynamic):
    x = torch.randn(2, 4, 70, 70).contiguous(memory_format=torch.channels_last)
    compiled = lampwork.compile(LARGE[name], dynamic=dynamic, options={"cache": False})
    assert compiled(x).stride() == LARGE[name](x).stride()


@pytest.mark.parametrize("mode", ["replicate", "reflect"])
def test_padding_a_volume_without_images(mode):
    """Its channels, depth and height look like images, channels and height of a plane in another memory format."""
    x = torch.rand(3, 2, 4, 5).to(memory_format=torch.channels_last)
    for dynamic in (False, True):
        program = lambda x: F.pad(x, (0, 1, 0, 1, 0, 1), mode)
        compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
        assert compiled(x).stride() == program(x).stride()
        assert torch.equal(compiled(x), program(x))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("strides", [(2, 2, 1), (1, 2, 1), (7, 2, 1), (1, 1, 2)])
def test_mantissas_and_exponents_lie_as_their_operand(strides, dynamic):
    x = torch.rand(20).as_strided((1, 2, 1), strides)
    compiled = lampwork.compile(torch.frexp, dynamic=dynamic, options={"cache": False})
    assert [each.stride() for each in compiled(x)] == [each.stride() for each in torch.frexp(x)]


@pytest.mark.parametrize("shape, strides", [((2, 1), (1, 2)), ((1, 3), (1, 1)), ((1, 1, 2), (2, 7, 1))])
def test_ones_among_classes_are_row_major(shape, strides):
    """Dimensions of size 1, too, whatever the operand's strides are there."""
    x = torch.arange(6).as_strided(shape, strides)
    program = lambda x: F.one_hot(x, 8)
    compiled = lampwork.compile(program, dynamic=False)
    assert torch.equal(compiled(x), program(x)) and compiled(x).stride() == program(x).stride()


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0], [0.0]])
def test_views_of_the_same_sizes_that_contents_decide_keep_their_strides(values):
    """Places are found as columns: the strides of a single one tell how many places there are."""
    x = torch.tensor(values)
    program = lambda x: torch.argwhere(x).reshape(-1, 1)
    compiled = lampwork.compile(program)
    assert torch.equal(compiled(x), program(x)) and compiled(x).stride() == program(x).stride()
