"""Lampwork in a process where torch.compile patched torch.nn.Module.__init__ before or after."""

import torch

import lampwork
from tests.processes import run_python


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


#: Loaded, `torch._dynamo` wraps methods of optimizers.
TRAINED = """
import torch
import torch._dynamo
import lampwork

layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(layer.parameters())

@lampwork.compile(fullgraph=True, options={"cache": False})
def step(x):
    optimizer.zero_grad()
    layer(x).square().mean().backward()
    optimizer.step()

for _ in range(3):
    step(torch.ones(2, 4))
assert lampwork.stats(step)["captures"] == 1 and optimizer.state[layer.weight]["step"] == 3
"""


def test_first_steps_of_optimizers_that_the_peer_has_wrapped():
    done = run_python(["-c", TRAINED])
    assert done.returncode == 0, done.stderr
