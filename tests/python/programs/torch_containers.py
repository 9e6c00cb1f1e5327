"""Containers of modules and parameters, and what programs ask them."""

from __future__ import annotations

import collections

import torch
from torch import nn

from tests.python.harness import program
from tests.python.tensors import frozen, values


def _x():
    return values(2, 4)


@program(together=lambda: (_x(), frozen(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))))
def sequential(x, model):
    return model(x)


@program(together=lambda: (_x(), frozen(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))))
def sequential_sliced_and_indexed(x, model):
    return model[:2](x), model[-1].weight.shape, len(model), model[0](x)


@program(
    together=lambda: (_x(), frozen(lambda: nn.Sequential(collections.OrderedDict(a=nn.Linear(4, 4), b=nn.Tanh()))))
)
def sequential_with_names(x, model):
    return model.a(x), [name for name, _ in model.named_children()]


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        outputs = []
        for index, layer in enumerate(self.layers):
            x = layer(x).relu() + index
            outputs.append(x)
        return x, outputs


@program(together=lambda: (_x(), frozen(Stack)))
def module_list(x, model):
    return model(x)


@program(together=lambda: (_x(), frozen(Stack)))
def module_list_reversed_and_sliced(x, model):
    for layer in reversed(model.layers):
        x = layer(x)
    for layer in model.layers[1:]:
        x = layer(x)
    return x, len(model.layers[:2])


@program(together=lambda: (_x(), frozen(Stack)))
def module_list_zipped_with_scales(x, model):
    for layer, scale in zip(model.layers, (1.0, 0.5, 0.25)):
        x = layer(x) * scale
    return x


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"left": nn.Linear(4, 2), "right": nn.Linear(4, 3)})
        self.activations = nn.ModuleDict([["relu", nn.ReLU()], ["tanh", nn.Tanh()]])

    def forward(self, x, activation):
        return {name: self.activations[activation](head(x)) for name, head in self.heads.items()}


@program(together=lambda: (_x(), frozen(Branches)))
def module_dict(x, model):
    return model(x, "relu"), model(x, "tanh")


@program(together=lambda: (_x(), frozen(Branches)))
def module_dict_asked(x, model):
    heads = model.heads
    found = "left" in heads, "middle" in heads, list(heads.keys()), len(heads)
    return found, [head(x).sum() for head in heads.values()]


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([torch.full((4,), float(n)) for n in range(3)])
        self.named = nn.ParameterDict(
            {"bias": nn.Parameter(torch.ones(4)), "gain": nn.Parameter(torch.full((4,), 2.0))}
        )

    def forward(self, x):
        for scale in self.scales:
            x = x + scale
        return x * self.named["gain"] + self.named.bias


@program(together=lambda: (_x(), frozen(Weights)))
def parameter_list_and_dict(x, model):
    return model(x), self_names(model), len(model.scales), model.scales[-1]


def self_names(model):
    return [name for name, _ in model.named_parameters()]


@program(together=lambda: (_x(), frozen(Stack)))
def parameters_counted_and_summed(x, model):
    count = sum(parameter.numel() for parameter in model.parameters())
    norm = sum((parameter**2).sum() for name, parameter in model.named_parameters() if name.endswith("weight"))
    return x * norm, count


@program(together=lambda: (_x(), frozen(Branches)))
def modules_walked(x, model):
    kinds = [type(module).__name__ for module in model.modules()]
    paths = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return x + len(kinds), kinds, paths, [name for name, _ in model.named_children()]


@program(together=lambda: (_x(), frozen(Stack)))
def submodule_by_path(x, model):
    return model.get_submodule("layers.1")(x), model.get_parameter("layers.2.bias")


@program(together=lambda: (_x(), frozen(Stack)))
def state_dict_read(x, model):
    state = model.state_dict()
    return torch.nn.functional.linear(x, state["layers.0.weight"], state["layers.0.bias"]), list(state)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


@program(together=lambda: (torch.tensor([[1, 2, 9]]), frozen(Tied)))
def tied_weights(tokens, model):
    return model(tokens), model.head.weight is model.embed.weight, len(list(model.parameters()))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.again = self.layer
        self.all = [self.layer, self.again]

    def forward(self, x):
        for layer in self.all:
            x = layer(x)
        return self.again(self.layer(x))


@program(together=lambda: (_x(), frozen(Shared)))
def one_module_under_two_names(x, model):
    return model(x), model.layer is model.again, len(list(model.named_modules()))


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def module_passed_as_callable(x, layer):
    def twice(function, value):
        return function(function(value))

    return twice(layer, x), twice(torch.relu, x), twice(layer.forward, x)


@program(together=lambda: (values(3, 2, 8), frozen(lambda: nn.LSTM(8, 6, num_layers=2, bidirectional=True))))
def recurrent_network(x, lstm):
    output, (hidden, cell) = lstm(x)
    return output, hidden, cell


@program(together=lambda: (values(5, 2, 8), frozen(lambda: nn.GRUCell(8, 6))))
def recurrent_cell_in_a_loop(x, cell):
    hidden = x.new_zeros(2, 6)
    for step in x:
        hidden = cell(step, hidden)
    return hidden


@program(
    together=lambda: (
        values(2, 5, 8),
        frozen(
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), num_layers=2, enable_nested_tensor=False
            )
        ),
    )
)
def transformer_encoder(x, encoder):
    return encoder(x)


@program(together=lambda: (values(2, 5, 8), frozen(lambda: nn.MultiheadAttention(8, 2, batch_first=True))))
def multi_head_attention(x, attention):
    output, weights = attention(x, x, x)
    return output, weights, attention(x, x, x, need_weights=False)[0]


@program(
    together=lambda: (
        values(2, 3, 8, 8),
        frozen(
            lambda: nn.Sequential(
                nn.Conv2d(3, 4, 3, padding=1),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(64, 5),
            )
        ),
    )
)
def convolutional_network(x, model):
    return model(x).softmax(dim=-1)


@program(together=lambda: (_x(), frozen(Stack)))
def apply_over_modules(x, model):
    seen = []

    def visit(module):
        if isinstance(module, nn.Linear):
            seen.append(tuple(module.weight.shape))

    model.apply(visit)
    return model(x)[0], seen
