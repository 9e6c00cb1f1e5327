"""Classes that functions, `type()` and generated text make, and lookups that end at natives of the interpreter, kept
entries in memory: parametrized layers, `nn.MultiheadAttention`, LSTMs and layers of generated code were never stored."""

from __future__ import annotations

from tests.python.warm import run_cold_and_warm

PROGRAM = '''
import inspect, sys, types, warnings
import torch, lampwork
from torch import nn
from torch.nn.utils import parametrizations, parametrize

warnings.simplefilter("error", lampwork.LampworkWarning)

class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

def symmetric():
    layer = nn.Linear(8, 8)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer

class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
    def forward(self, x):
        return self.attention(x[None], x[None], x[None])[0]

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            result = result + expert(x) * (weights * (chosen == number)).sum(-1, keepdim=True)
        return result

TEMPLATE = """
def propagate(self, edges, x):
    gathered = {"x_i": x[edges[1]], "x_j": x[edges[0]]}
    messages = self.message(**{name: gathered[name] for name in NAMES})
    return torch.zeros_like(x).index_add(0, edges[1], messages)
"""

class MessagePassing(nn.Module):
    """As PyG's: the method that calls `message` is generated for its parameters, and the class is made anew."""
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        names = [*inspect.signature(self.message).parameters]
        module = types.ModuleType(f"generated_{type(self).__name__}")
        module.torch, module.NAMES = torch, names
        exec(compile(TEMPLATE, module.__name__, "exec"), vars(module))
        self.__class__ = type(f"{type(self).__name__}Jittable", (type(self),), {"propagate": module.propagate})
    def message(self, x_j):
        return self.linear(x_j)
    def forward(self, x):
        return self.propagate(torch.tensor([[0, 1, 2], [1, 2, 0]]), x)

def local():
    class Local(nn.Module):
        factor = 2
        @property
        def shift(self):
            return 3
        def forward(self, x):
            return x * self.factor + self.shift
    return Local()

def check(name, make, train):
    torch.manual_seed(0)
    model = make()
    x = torch.randn(6, 8)
    compiled = lampwork.compile(model)
    with torch.set_grad_enabled(train):
        found, expected = compiled(x), model(x)
        if isinstance(found, tuple):
            found, expected = found[0], expected[0]
    torch.testing.assert_close(found, expected)
    counted = lampwork.stats(compiled)
    print(name, train, counted["captures"], counted["cache_hits"], counted["cache_notes"])

for name, make in {
    "symmetric": symmetric, "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(8, 8)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(8, 8)), "attention": SelfAttention,
    "experts": Experts, "messages": MessagePassing, "local": local, "lstm": lambda: nn.LSTM(8, 8),
}.items():
    check(name, make, True)
    check(name, make, False)
'''


def test_their_entries_are_found_by_another_process(tmp_path):
    cold, warm = run_cold_and_warm(tmp_path, PROGRAM)
    assert [line.split()[2:4] for line in cold] == [["1", "0"]] * 16, cold
    assert [line.split()[2:4] for line in warm] == [["0", "1"]] * 16, warm
