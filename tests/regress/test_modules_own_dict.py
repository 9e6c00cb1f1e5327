"""A module whose `__dict__` came in beside it: its guards are read from the module, not from what held the dict."""

from __future__ import annotations

import torch

import lampwork


def test_a_list_holds_the_dict_of_a_module_that_is_called() -> None:
    model = torch.nn.Linear(3, 3)
    model.scale = 2.0

    @lampwork.compile
    def scaled(namespaces: list, model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x) * namespaces[0]["scale"]

    x = torch.ones(2, 3)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(scaled([model.__dict__], model, x), model(x) * 2.0)
        model.register_forward_hook(lambda model, args, result: result + 1)
        torch.testing.assert_close(scaled([model.__dict__], model, x), model(x) * 2.0)
    assert lampwork.stats(scaled)["captures"] == 2 and not lampwork.stats(scaled)["fallbacks"]
