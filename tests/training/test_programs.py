"""Training programs of the kinds that users write, on three roads: eager, a compiled module, a compiled step.

Losses, gradients, parameters, buffers and the generator's state are compared after each of four steps. What runs as one
piece stays so: the programs that break, or run eagerly, are listed with how often.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lampwork
from tests.training.programs import TABLE, Program

STEPS = 4

#: (program, road) -> breaks and fall-backs, by id. All others have none.
COUNTED: dict[tuple[str, str], set[str]] = {
    ("transformer", "module"): {"data-dependent"},  # looks whether a mask is the causal one
    ("sparse embedding", "module"): {"needs-grad"},
    ("sparse embedding", "step"): {"tensor-layout"},
    ("lbfgs", "step"): {"data-dependent"},
    ("gradient penalty", "module"): {"double-backward"},
}


def _made(name: str) -> Program:
    torch.manual_seed(0)
    return TABLE[name]()


def _seen(program: Program) -> dict[str, Any]:
    """Everything a step leaves behind."""
    seen: dict[str, Any] = {"generator": torch.get_rng_state()}
    for number, module in enumerate(program.modules()):
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            seen[f"{number}.{name}"] = value.detach().clone()
            seen[f"{number}.{name}.grad"] = None if value.grad is None else value.grad.clone()
    return seen


def _compare(found: Any, expected: Any, where: str) -> None:
    if expected is None or found is None:
        assert found is expected, f"{where}: {found} for {expected}"
        return
    assert found.layout == expected.layout and found.dtype == expected.dtype, where
    if found.layout != torch.strided:
        found, expected = found.to_dense(), expected.to_dense()
    tolerance = 1e-2 if found.dtype in (torch.bfloat16, torch.float16) or "autocast" in where else 2e-4
    torch.testing.assert_close(
        found, expected, rtol=tolerance, atol=tolerance / 10, equal_nan=True, msg=lambda text: f"{where}: {text}"
    )


def trained(name: str, road: str) -> set[str]:
    """Trains the program on the road and in eager; the ids of what did not run compiled. Raises where they differ."""
    eager, other = _made(name), _made(name)
    step = other.step
    if road == "module":
        compiled = other.run = lampwork.compile(other.model, options={"cache": False})
    else:
        compiled = step = lampwork.compile(other.step, options={"cache": False})
    for number in range(STEPS):
        torch.manual_seed(number)
        expected = eager.step(*eager.inputs(number)), _seen(eager)
        torch.manual_seed(number)
        found = step(*other.inputs(number)), _seen(other)
        _compare(found[0], expected[0], f"{name}, step {number}, loss")
        for key, value in expected[1].items():
            _compare(found[1][key], value, f"{name}, step {number}, {key}")
    counted = lampwork.stats(compiled)
    assert counted["calls"], "the compiled one was never called"
    return {each.diagnostic.id for each in (*counted["breaks"], *counted["fallbacks"])}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("road", ["module", "step"])
@pytest.mark.parametrize("name", TABLE)
def test_program(name: str, road: str) -> None:
    assert trained(name, road) == COUNTED.get((name, road), set())


if __name__ == "__main__":  # python -m tests.training.test_programs: what breaks, what runs eagerly, what differs
    import warnings

    warnings.simplefilter("ignore")
    clean = 0
    for each in TABLE:
        for way in ("module", "step"):
            try:
                ids = trained(each, way)
            except Exception as error:
                print(f"{each} ({way}): {type(error).__name__}: {str(error).strip()[:300]}")
                continue
            clean += not ids
            if ids:
                print(f"{each} ({way}): {', '.join(sorted(ids))}")
    print(f"{clean} of {2 * len(TABLE)} in one piece")
