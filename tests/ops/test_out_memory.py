"""Operators that are called with `out=` leave the given tensors where they are."""

from __future__ import annotations

import warnings

import pytest
import torch

from lampwork import _torch
from lampwork._torch.out_memory import KEEPING
from lampwork._torch.schemas import out_overload
from lampwork.runtime.launch.out_arguments import memory_of, unmoved
from lampwork.runtime.launch.poison import poisoned
from tests.ops.out_memory import probe_samples

#: Samples of operators that programs often call with `out=`, and of those that do not keep given memory.
NAMES = frozenset(
    """
    mm bmm addmm baddbmm addmv mv linalg.vector_norm cumsum cumprod sort topk kthvalue index_select index_add
    scatter scatter_add gather cat where histc searchsorted fft.fft fft.rfft nn.functional.interpolate
    nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.nll_loss div add maximum erfinv digamma polygamma
    nn.functional.mse_loss nn.functional.smooth_l1_loss nn.functional.huber_loss softmax triu
""".split()
)


@pytest.fixture(scope="module")
def probe():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return probe_samples(3, variants=4, names=NAMES)


def wrong_in_table(probe) -> dict:
    """Operators of the table that were tried and did something else with given memory."""
    tried = {name.replace(".", "::", 1): set(faults) for name, faults in probe.faults.items()}
    return {name: tried[name] for name in KEEPING if tried.get(name, {""}) != {""}}


def test_operators_of_the_table_keep_given_memory(probe):
    assert not wrong_in_table(probe)
    assert sum(name.replace(".", "::", 1) in KEEPING for name in probe.faults) > 40


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_operator_of_the_table_was_tried():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probe = probe_samples(2, variants=8)
    assert not wrong_in_table(probe)
    assert not KEEPING - {name.replace(".", "::", 1) for name in probe.faults}


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss", "_softmax", "triu"])
def test_the_probe_finds_those_that_do_not(probe, name):
    op = getattr(torch.ops.aten, name).default
    assert set(probe.faults[str(op)]) - {""}
    assert out_overload(op) is not None and _torch.out_variant(op) is None


def test_moved_results_are_an_error():
    memory = torch.zeros(4)
    out = torch.empty(0).set_(memory.untyped_storage(), 3, (), ())
    before = memory_of(out)
    unmoved("aten::mm.out", before, out)
    out.set_(torch.zeros(12))
    with pytest.raises(RuntimeError, match="aten::mm.out moved"):
        unmoved("aten::mm.out", before, out)


def test_new_memory_is_nan_under_poison():
    assert poisoned(torch.empty_strided)((3, 4), (1, 3), dtype=torch.float32).isnan().all()
    assert (poisoned(torch.empty_strided)((2,), (4,), dtype=torch.int64) == -1).all()
