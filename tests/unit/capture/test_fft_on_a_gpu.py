"""Real numbers that cuFFT reads from where no complex number begins: eager copies them first, which shows in strides."""

from __future__ import annotations

import pytest
import torch

from lampwork.capture.capture import capture
from lampwork.config import make_settings
from tests.cuda_stand_in import cuda_stand_in
from tests.dynamic.support import relation_texts


def captured(function, *args):
    with torch.no_grad(), cuda_stand_in():
        region = capture(function, args, {}, make_settings())
    relations = relation_texts(region.sizes.guards() if region.sizes else ())
    return [str(node.target) for node in region.graph.nodes if node.op == "call_function"], relations


@pytest.mark.parametrize("function", [torch.fft.rfft, torch.fft.ifft, torch.fft.rfft2])
def test_what_begins_between_is_copied(function):
    memory = torch.randn(40)
    names, relations = captured(function, memory.as_strided((2, 3, 4), (12, 4, 1), 3))
    assert "aten.clone.default" in names and relations == ["x0 % 2 == 1"]
    names, relations = captured(function, memory.as_strided((2, 3, 4), (12, 4, 1), 4))
    assert "aten.clone.default" not in names and relations == ["x0 % 2 == 0"]


def test_what_the_program_made_begins_at_one():
    names, relations = captured(lambda x: torch.fft.rfft(x * 2), torch.randn(40).as_strided((2, 4), (4, 1), 3))
    assert "aten.clone.default" not in names and not relations
    names, relations = captured(lambda x: torch.fft.rfft((x * 2)[1:]), torch.randn(6))
    assert "aten.clone.default" in names and not relations


def test_copies_have_the_transformed_dimension_innermost():
    function = lambda x: torch.fft.rfft(x, dim=0)
    with torch.no_grad(), cuda_stand_in():
        region = capture(function, (torch.randn(40).as_strided((2, 3, 4), (12, 4, 1), 3),), {}, make_settings())
    (transform,) = [node for node in region.graph.nodes if "_fft_r2c" in str(node.target)]
    assert transform.args[0].meta["val"].stride() == (1, 8, 2)
