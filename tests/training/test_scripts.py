"""Training scripts as users write them: eager's losses, numbers and weights."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import lampwork
from tests.training.scripts import SCRIPTS

#: Relative error that is allowed beside twice eager's own; half types are told apart by a key that begins so.
TOLERANCE, ROUGH = 1e-4, 2e-2

#: Scripts in which some call runs eagerly, by the ids of why.
EAGERLY: dict[str, set[str]] = {
    "generative-wgan_penalty": {"double-backward"},
    "loops-profiled": {"needs-grad"},  # anomaly detection
}


class SameDraws(TorchFunctionMode):
    """Random numbers of float32 whatever the type: float64 trains on the same data, from the same weights."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        if name in ("randn", "rand"):
            return function(*args, **{**kwargs, "dtype": torch.float32}).double()
        if name in ("randn_like", "rand_like"):
            return function(args[0].float(), *args[1:], **kwargs).double()
        if name in ("normal_", "uniform_", "xavier_uniform_", "kaiming_uniform_"):
            target, args = (args[0], args[1:]) if args else (kwargs.pop("tensor"), ())
            with torch.no_grad():
                return target.copy_(function(torch.empty(target.shape, dtype=torch.float32), *args, **kwargs))
        return function(*args, **kwargs)


def run(script, compile=lambda value: value):
    torch.manual_seed(0)
    return script(compile)


def exactly(script):
    """What the script gives in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        with SameDraws():
            return run(script)
    finally:
        torch.set_default_dtype(torch.float32)


def flat(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach().double().flatten()
    if isinstance(value, (list, tuple)):
        return torch.cat([flat(each) for each in value]) if value else torch.zeros(0)
    return torch.tensor([float("nan") if value is None else value], dtype=torch.float64)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name):
    script, functions = SCRIPTS[name], []

    def compile(value):
        functions.append(lampwork.compile(value, options={"cache": False}))
        return functions[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager, exact, ours = run(script), exactly(script), run(script, compile)
    assert list(ours) == list(eager)
    for key, value in eager.items():
        mine, theirs, right = flat(ours[key]), flat(value), flat(exact[key])
        assert mine.shape == theirs.shape, key
        size = right.nan_to_num().norm().item() or 1.0
        error, usual = ((each - right).nan_to_num().norm().item() / size for each in (mine, theirs))
        assert torch.equal(mine.isnan(), theirs.isnan()), key
        assert error <= 2 * usual + (ROUGH if key.startswith("rough") else TOLERANCE), (
            f"{key}: {error}, eager's {usual}"
        )
    found = {each.id for function in functions for each in lampwork.stats(function)["fallbacks"]}
    assert found == EAGERLY.get(name, set())
