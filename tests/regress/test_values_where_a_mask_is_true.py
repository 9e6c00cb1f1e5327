"""Values for the places where a mask is true, as many as there are: no mask but the one at hand has so many, so that
stand-ins for it were refused, and the error was taken for the program's."""

from __future__ import annotations

import pytest
import torch

import lampwork


def assigned(x, mask, values):
    x = x.clone()
    x[mask] = values
    return x


PROGRAMS = {
    "assigned": assigned,
    "index_put": lambda x, mask, values: x.index_put((mask,), values),
    "added": lambda x, mask, values: x.index_put((mask,), values, accumulate=True),
    "operator": lambda x, mask, values: torch.ops.aten.index_put(x, [mask], values, False),
}


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_as_many_as_there_are(program, dynamic, dtype):
    compiled = lampwork.compile(program, fullgraph=True, dynamic=dynamic, options={"cache": False})
    x = torch.arange(5.0)
    for mask in ([1, 1, 0, 0, 0], [0, 0, 1, 0, 1]):
        arguments = x, torch.tensor(mask).to(dtype), torch.tensor([7.0, 8.0])
        assert torch.equal(compiled(*arguments), program(*arguments))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        compiled(x, torch.tensor([1, 1, 1, 0, 0]).to(dtype), torch.tensor([7.0, 8.0]))
