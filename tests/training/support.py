"""Training steps run as written and compiled, on two worlds made alike, and compared after each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

import lampwork


@dataclass
class Steps:
    """What `step_number -> result` is called for, and what there is to see after each call."""

    step: Callable[..., Any]
    observe: Callable[[], Any]
    arguments: Callable[[int], tuple] = lambda number: ()
    between: Callable[[int], None] = lambda number: None


def check_steps(
    make: Callable[[], Steps], count: int = 4, entries: int = 2, whole: bool = True, rtol: float = 1e-5,
    atol: float = 1e-6,
) -> Any:  # fmt: skip
    """Runs `count` steps both ways; results and everything observed must be equal within the tolerances.

    `entries`: how many there may be at most (the first step often differs from later ones); none is made after the
    second step. `whole`: nothing may break or run eagerly. Returns the compiled step's statistics.
    """
    torch.manual_seed(0)
    eager = make()
    torch.manual_seed(0)
    other = make()
    compiled = lampwork.compile(other.step, options={"cache": False})  # tests share code
    compiles = []
    for number in range(count):
        torch.manual_seed(number)
        expected = eager.step(*eager.arguments(number))
        torch.manual_seed(number)
        actual = compiled(*other.arguments(number))
        compare(actual, expected, f"step {number}, result", rtol, atol)
        compare(other.observe(), eager.observe(), f"step {number}", rtol, atol)
        eager.between(number)
        other.between(number)
        compiles.append(lampwork.stats(compiled)["captures"])
    found = lampwork.stats(compiled)
    if whole:
        assert not found["breaks"] and not found["fallbacks"], [*found["breaks"], *found["fallbacks"]]
        assert found["entries"] <= entries, found["recompiles"]
        assert compiles[1:] == compiles[-1:] * (count - 1), found["recompiles"]
    return found


def compare(actual: Any, expected: Any, where: str, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Raises AssertionError where two nested values differ in structure, type, layout or contents."""
    assert type(actual) is type(expected), f"{where}: {type(actual)} is not {type(expected)}"
    if isinstance(expected, torch.Tensor):
        for name in ("dtype", "device", "requires_grad", "is_leaf"):
            found, wanted = getattr(actual, name), getattr(expected, name)
            assert found == wanted, f"{where}: {name} {found} is not {wanted}"
        assert actual.shape == expected.shape and actual.stride() == expected.stride(), f"{where}: layout"
        torch.testing.assert_close(
            actual.detach(),
            expected.detach(),
            rtol=rtol,
            atol=atol,
            equal_nan=True,
            msg=lambda text: f"{where}: {text}",
        )
    elif isinstance(expected, Mapping):
        assert list(actual) == list(expected), f"{where}: keys {list(actual)} are not {list(expected)}"
        for key, value in expected.items():
            compare(actual[key], value, f"{where}[{key!r}]", rtol, atol)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), f"{where}: {len(actual)} items, not {len(expected)}"
        for index, (one, two) in enumerate(zip(actual, expected)):
            compare(one, two, f"{where}[{index}]", rtol, atol)
    elif isinstance(expected, float):
        assert actual == expected or abs(actual - expected) <= atol + rtol * abs(expected), (
            f"{where}: {actual}, not {expected}"
        )
    else:
        assert actual == expected, f"{where}: {actual} is not {expected}"


def state_of(*modules: torch.nn.Module) -> list[Any]:
    """Parameters, their gradients, and buffers."""
    return [([(each, each.grad) for each in module.parameters()], list(module.buffers())) for module in modules]
