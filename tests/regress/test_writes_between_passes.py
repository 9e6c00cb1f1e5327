"""The caller writes to results between the passes: eager raises where autograd keeps them, and nowhere else.

Gradients were computed of what the caller wrote (a hidden base of two views, one of which is all of it); a write to a
returned copy of what is kept raised.
"""

from __future__ import annotations

import pytest
import torch

import lampwork

PROGRAMS = {
    "two views": lambda x: ((v := x.exp()).unsqueeze(0), v.unsqueeze(1)),
    "all of it and a view": lambda x: ((v := x.exp())[..., :30000], v.unsqueeze(0)),
    "a view and all of it": lambda x: ((v := x.exp()).unsqueeze(0), v[..., :30000]),
    "a norm": lambda x: ((v := torch.linalg.vector_norm(x, 2, 0, keepdim=True))[..., :2], v.unsqueeze(0)),
    "itself and a view": lambda x: ((v := x.exp()), v.flatten()),
    "parts": lambda x: ((v := x.exp())[:1], v[1:]),
    "copy": lambda x: (x.exp().clone(), x * 2),
    "itself and a copy": lambda x: ((v := x.exp()), v.clone()),
    "a copy and itself": lambda x: ((v := x.exp()).clone(), v),
    "a copy of a view": lambda x: ((v := x.exp()).view(1, -1).clone(), v.sum()),
    "a view of a copy": lambda x: ((v := x.exp()).clone().view(1, -1), v.sum()),
    "kept is a copy of what is returned": lambda x: ((v := x * 2), v.clone().exp().sin()),
    "kept is a copy, returned before": lambda x: ((v := x * 2).clone() ** 3, v),
    "converted": lambda x: (x.exp().to(torch.float32, copy=True), x * 2),
}


@pytest.mark.parametrize("size", [3, 30000])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("written", [0, 1])
def test_results(name, written, size):
    found = []
    for function in (PROGRAMS[name], lampwork.compile(PROGRAMS[name], options={"cache": False})):
        x = torch.linspace(0, 1, size).requires_grad_()
        results = function(x)
        with torch.no_grad():
            results[written].mul_(2)
        try:
            torch.autograd.backward(results, [torch.ones_like(each) for each in results])
            found.append(x.grad)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            found.append(None)
    eager, ours = found
    assert (eager is None) == (ours is None)
    if eager is not None:
        torch.testing.assert_close(ours, eager)
