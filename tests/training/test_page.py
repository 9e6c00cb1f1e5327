"""The page about training: its code, run as it stands there, ends where eager ends, in one graph each."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import lampwork

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


class MyModel(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))


def run(compiler: Any) -> dict[str, Any]:
    """The page's names after its code has run, with `compiler` for lampwork."""
    torch.manual_seed(0)
    batches = [(torch.randn(16, 8), torch.randint(0, 4, (16,))) for _ in range(4)]
    names = {"torch": torch, "lampwork": compiler, "MyModel": MyModel, "batches": batches}
    names |= {"x": batches[0][0], "y": batches[0][1], "loss_function": torch.nn.functional.cross_entropy}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 6
    model, _, rest = blocks[0].partition("\n")
    exec(model, names)
    names["optimizer"] = torch.optim.AdamW(names["model"].parameters())
    names["scheduler"] = torch.optim.lr_scheduler.CosineAnnealingLR(names["optimizer"], 10)
    for block in [rest, *blocks[1:]]:
        exec(block, names)
    return names


def test_the_code_of_the_page() -> None:
    eager = run(
        SimpleNamespace(compile=lambda function, **options: function, stats=lambda function: defaultdict(tuple))
    )
    compiled = run(lampwork)
    for name in ("model", "update", "step", "accumulate"):
        stats = lampwork.stats(compiled[name])
        assert stats["calls"] and not stats["breaks"] and not stats["fallbacks"], name
    expected = eager["model"].state_dict()
    for name, value in compiled["model"].state_dict().items():
        torch.testing.assert_close(value, expected[name])
