"""Types that eager's kernel refuses are refused, also where sizes vary or tensors are large."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

CALLS = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), torch.ones(1, 3, 8, dtype=torch.int64)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), torch.ones(4, 3, 2, dtype=torch.int64)),
    "batch_norm of two types": (
        lambda x: F.batch_norm(x, None, None, torch.ones(3, dtype=torch.float64), training=True), torch.ones(4, 3, 2)
    ),
    "index_copy": (lambda x: x.index_copy(0, torch.tensor([0, 1]), x[:2].double()), torch.ones(4, 3)),
    "index_reduce": (lambda x: x.index_reduce(0, torch.tensor([0]), x[:1, :2], "amax"), torch.ones(4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_refused(name, large, dynamic):
    function, x = CALLS[name]
    x = x.repeat(*[1] * (x.dim() - 1), 3000) if large else x
    with pytest.raises(Exception) as expected:
        function(x)
    with pytest.raises(expected.type) as found:
        lampwork.compile(lambda x: function(x) * 2, dynamic=dynamic)(x)
    assert type(found.value) is expected.type
