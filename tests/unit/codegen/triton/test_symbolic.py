"""Programs of symbolic sizes through the GPU schedule: one text, run in Triton's interpreter at several sizes."""

from __future__ import annotations

import pytest
import torch

from lampwork.capture.capture import capture
from lampwork.config import Settings
from lampwork.graph.prepare import prepare
from lampwork.lower import lower
from tests.dynamic.test_programs import PROGRAMS
from tests.unit.codegen.triton.interpret import available, launch
from tests.unit.codegen.triton.programs import run_program, scheduled, sources
from tests.unit.lower.graphs import _flatten

pytestmark = pytest.mark.skipif(bool(available()), reason=available())

SIZES = [(4, 6), (7, 37), (33, 5)]
#: Those whose kernels have index arithmetic in symbols; the interpreter is too slow for all.
NAMES = [
    "broadcast", "embedded", "expanded", "factories", "gathered", "integers", "joined", "merged", "normalised", "padded",
    "permuted", "pointwise", "positions", "size_as_number", "slices", "slices_by_size", "softmaxes", "transposed", "triangles",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_one_text_at_several_sizes(name):
    function, shapes, _ = PROGRAMS[name]
    torch.manual_seed(0)
    program, sizes = None, None
    for n, m in SIZES:
        made = [each(n, m) for each in shapes]
        arguments = [each if isinstance(each, torch.Tensor) else torch.randn(each) for each in made]
        with torch.no_grad():
            expected = _flatten(function(*[each.clone() for each in arguments]))
            if program is None:
                settings = Settings(dynamic=True)
                region = capture(function, tuple(arguments), {}, settings)
                program = scheduled(lower(prepare(region, settings), settings))
                order = [source.index for source in region.inputs]
            found = run_program(program, [arguments[index].clone() for index in order])
        for ours, theirs in zip(found, [each for each in expected if isinstance(each, torch.Tensor)], strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("length, block", [(700, 256), (100, 128), (9000, 4096)])
def test_tiles_fit_the_sizes_seen(length, block):
    """Rows of any length are read in blocks; what the captured call had decides how large those are."""
    x, settings = torch.randn(40, length), Settings(dynamic=True)
    with torch.no_grad():
        region = capture(lambda x: x.softmax(-1), (x,), {}, settings)
        program = scheduled(lower(prepare(region, settings), settings))
        (kernel,) = sources(program)
        assert dict(kernel.constants)["RBLOCK"] == block
        assert "for start in range(0, s" in kernel.source
        for columns in (length, 5000):
            other = torch.randn(3, columns)
            torch.testing.assert_close(run_program(program, [other])[0], other.softmax(-1))


def test_rows_whose_length_is_found_to_be_nothing():
    """Unaligned rows are read from the aligned address before them on. Empty rows have no memory to read."""
    function = lambda x: torch.nonzero(x).sum(0, keepdim=True)
    settings = Settings()
    with torch.no_grad():
        region = capture(function, (torch.ones(2, 3),), {}, settings)
        program = scheduled(lower(prepare(region, settings), settings))
        (kernel,) = [each for each in sources(program) if "sum" in each.name]
    assert "// 2 * 2" in kernel.source  # whole vectors are loaded
    for length in (4, 1, 0):
        found = torch.full((2,), -1)
        memory = torch.arange(2 * length)
        launch(kernel, [memory, found], {"s0": length})
        assert found.tolist() == memory.view(2, length).sum(1).tolist()
