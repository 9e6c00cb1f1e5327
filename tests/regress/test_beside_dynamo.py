"""Lampwork in a process where torch.compile patched torch.nn.Module.__init__ before or after."""

import torch

import lampwork


class Makes(torch.nn.Module):
    """Makes a module while it runs, as caches of language models do."""

    def forward(self, x):
        return torch.nn.Identity()(x) + 1


def test_the_peer_compiles_between_calls():
    model, x = Makes(), torch.zeros(3)
    compiled = lampwork.compile(model, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x), x + 1)
    torch.compile(lambda y: y * 2, backend="eager")(x)
    assert torch.nn.Module.__init__.__module__ == "torch._dynamo.mutation_guard"
    for _ in range(8):
        assert torch.equal(compiled(x), x + 1)
    assert not lampwork.stats(compiled)["fallbacks"]
