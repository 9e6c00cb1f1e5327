"""What a program wants saved on another device is saved there: eager's autograd does it, between compiled parts."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from lampwork.capture.capture import capture
from lampwork.config import Settings
from lampwork.ir.region import Continue, Return
from tests.cuda_stand_in import cuda_stand_in


def to_cpu():
    return saved_tensors_hooks(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


@pytest.mark.parametrize("moves", [save_on_cpu, to_cpu])
def test_memory_of_a_gpu_is_given_back(moves):
    def program(x):
        with moves():
            return (x * x).exp()

    x = torch.ones(3, requires_grad=True)
    with cuda_stand_in():
        region = capture(program, (x,), {}, Settings(), split=True)
    assert isinstance(region.outcome, Continue) and region.outcome.reason.id == "backward-effect"
    assert isinstance(capture(program, (x,), {}, Settings(), split=True).outcome, Return)
