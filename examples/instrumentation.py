"""A pass of your own: every activation is looked at while the compiled program runs, with no change to the model."""

import torch
import torch.fx
from torch import Tensor

import lampwork

aten = torch.ops.aten
LARGEST: dict[str, float] = {}


# An operator that returns nothing is called for what it does: it stays, and keeps its place.
@torch.library.custom_op("example::watch", mutates_args=())
def watch(x: Tensor, name: str) -> None:
    LARGEST[name] = max(LARGEST.get(name, 0.0), x.abs().max().item())


@watch.register_fake
def _(x: Tensor, name: str) -> None:
    pass


def watch_activations(graph: torch.fx.Graph) -> None:
    """The pass: it edits the graph that it is given, and adds a call after each activation."""
    for node in list(graph.nodes):
        if node.target in (aten.relu.default, aten.gelu.default, aten.addmm.default):
            name = f"{node.name}: {node.target.name().removeprefix('aten::')}{tuple(node.meta['val'].shape)}"
            with graph.inserting_after(node):
                graph.call_function(torch.ops.example.watch.default, (node, name))


torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)
).requires_grad_(False)
watched = lampwork.GraphPass(watch_activations, digest=lampwork.digest(__file__))
fast = lampwork.compile(model, options={"passes": {"forward": [watched]}})
for _ in range(10):
    x = torch.randn(32, 8)
    torch.testing.assert_close(fast(x), model(x))
for name, largest in LARGEST.items():
    print(f"{name:28} at most {largest:.2f}")
