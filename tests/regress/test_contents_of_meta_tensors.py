"""Contents that tensors on the meta device do not have: where nothing used what was read of one, the read was dropped with
eager's refusal."""

from __future__ import annotations

import pytest
import torch

import lampwork

READS = {
    "item": lambda x: x.to("meta").sum().item(),
    "tolist": lambda x: x.to("meta").tolist(),
    "tolist of one": lambda x: x.to("meta").sum().tolist(),
    "bool": lambda x: bool(x.to("meta").sum()),
    "float": lambda x: float(torch.empty((), device="meta")),
    "part": lambda x: x.to("meta")[0].item(),
    "cpu": lambda x: torch.empty(2, device="meta").cpu(),
    "nonzero": lambda x: torch.empty(2, device="meta").nonzero(),
    "equal": lambda x: torch.equal(torch.empty(2, device="meta"), torch.empty(2, device="meta")),
    "type": lambda x: x.to("meta").to(torch.float64).sum(),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("caught", [False, True])
def test_the_refusal_stays(name, caught):
    read = READS[name]

    def program(x):
        if not caught:
            read(x)
            return "nothing is refused"
        try:
            read(x)
        except RuntimeError as error:
            return type(error).__name__, str(error)
        return "nothing is refused"

    def observed(function):
        try:
            return function(torch.ones(2))
        except RuntimeError as error:
            return type(error), str(error)

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        assert observed(compiled) == observed(program)
