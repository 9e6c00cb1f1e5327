"""State that modules keep: buffers written in forward, counters, caches, things built on the first call."""

from __future__ import annotations

import copy

import torch
from torch import nn

from tests.python.harness import program
from tests.python.tensors import frozen, values


def _x():
    return values(2, 4)


class RunningMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.steps += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean


@program(together=lambda: (_x(), RunningMean()))
def buffers_updated_in_place(x, model):
    return model(x), model.steps


class Replaced(RunningMean):
    def forward(self, x):
        self.steps = self.steps + 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean


@program(together=lambda: (_x(), Replaced()))
def buffers_replaced(x, model):
    model(x)
    return model(x)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.losses = []
        self.last = None

    def forward(self, x):
        self.calls += 1
        self.last = x * self.calls
        self.losses.append(self.last.sum())
        return self.last


@program(together=lambda: (_x(), Counter()))
def attributes_written(x, model):
    return model(x), model(x), model.calls, len(model.losses)


@program(together=lambda: (_x(), frozen(lambda: nn.BatchNorm1d(4)).train()))
def batch_norm_in_training(x, norm):
    return norm(x), norm.num_batches_tracked


@program(together=lambda: (_x(), frozen(lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)))))
def train_and_eval_switched_inside(x, model):
    model.train()
    trained = model[0](x)
    model.eval()
    return trained, model(x), model.training, model[1].training


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 4))
        self.position = 0

    def forward(self, x):
        index = torch.arange(self.position, self.position + x.shape[1])
        self.keys.index_copy_(1, index, x)
        self.position += x.shape[1]
        return self.keys[:, : self.position].sum(1)


@program(together=lambda: (values(2, 3, 4), Cache()))
def cache_filled_by_index_copy(x, model):
    return model(x)


class Positions(nn.Module):
    """The table is made when it is first needed, and again when it is too short."""

    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None or self.table.shape[0] < x.shape[1]:
            steps = torch.arange(x.shape[1], dtype=x.dtype, device=x.device).unsqueeze(1)
            frequencies = torch.exp(torch.arange(0, x.shape[2], 2) * (-4.0 / x.shape[2]))
            self.table = torch.cat([torch.sin(steps * frequencies), torch.cos(steps * frequencies)], dim=1)
        return x + self.table[: x.shape[1]]


@program(together=lambda: (values(2, 3, 4), Positions()))
def positions_cached_on_first_call(x, model):
    return model(x)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", None, persistent=False)

    def forward(self, scores):
        if self.mask is None:
            size = scores.shape[-1]
            self.mask = torch.ones(size, size, dtype=torch.bool).tril()
        return scores.masked_fill(~self.mask, float("-inf")).softmax(-1)


@program(together=lambda: (values(2, 5, 5), Masked()))
def buffer_is_none_at_first(x, model):
    return model(x)


class Registers(nn.Module):
    def forward(self, x):
        if "total" not in self._buffers:
            self.register_buffer("total", torch.zeros_like(x))
        self.total = self.total + x
        return self.total * 2


@program(together=lambda: (_x(), Registers()))
def buffer_registered_in_forward(x, model):
    return model(x)


@program(together=lambda: (_x(), frozen(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()))))
def layer_replaced_inside(x, model):
    before = model(x)
    model[1] = nn.Sigmoid()
    return before, model(x), type(model[1]).__name__


@program(together=lambda: (_x(), frozen(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()))))
def layer_deleted_and_appended(x, model):
    del model[1]
    model.append(nn.Tanh())
    return model(x), len(model)


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def module_copied_inside(x, layer):
    twin = copy.deepcopy(layer)
    return twin(x), twin is layer, twin.weight is layer.weight


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))), grad=True)
def weights_copied_under_no_grad(x, layer):
    with torch.no_grad():
        layer.weight.copy_(torch.eye(4))
        layer.bias.zero_()
    return layer(x)


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4)), frozen(lambda: nn.Linear(4, 4), seed=1)))
def state_loaded_from_another(x, layer, other):
    layer.load_state_dict(other.state_dict())
    return layer(x)


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4)), frozen(lambda: nn.Linear(4, 4), seed=1)))
def moving_average_of_weights(x, average, current):
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), current.parameters()):
            slow.mul_(0.99).add_(fast, alpha=0.01)
    return average(x)


class Registry(nn.Module):
    instances = 0

    def __init__(self):
        super().__init__()
        self.log = {}

    def forward(self, x):
        name = f"call{len(self.log)}"
        self.log[name] = x.norm()
        return x / self.log[name]


@program(together=lambda: (_x(), Registry()))
def results_kept_in_a_dict(x, model):
    return model(x), list(model.log)


class Gate(nn.Module):
    enabled = True

    def forward(self, x):
        return x * 2 if self.enabled and not self.training else x


@program(together=lambda: (_x(), Gate()))
def flags_on_class_and_instance(x, model):
    first = model(x)
    model.eval()
    second = model(x)
    model.enabled = False
    return first, second, model(x)


class ClassCounter(nn.Module):
    made = 0

    def forward(self, x):
        ClassCounter.made += 1
        return x + 1


@program(together=lambda: (_x(), ClassCounter()))
def class_attribute_counted(x, model):
    start = ClassCounter.made
    return model(x), ClassCounter.made - start


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self._scale = 2.0

    @property
    def scale(self):
        return self._scale

    @scale.setter
    def scale(self, value):
        self._scale = value * 2

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x) * self.scale


@program(together=lambda: (_x(), frozen(Module)))
def properties_and_getattr(x, model):
    first = model(x)
    model.scale = 3.0
    return first, model(x), model.in_features, model.weight


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def module_made_inside(x, layer):
    outer = nn.Sequential(layer, nn.ReLU(), nn.Softmax(dim=-1))
    return outer(x)


@program(together=lambda: (_x(),), grad=True)
def module_with_weights_made_inside(x):
    torch.manual_seed(0)
    layer = nn.Linear(4, 2)
    with torch.no_grad():
        return layer(x)


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def module_put_in_another_type(x, layer):
    return layer.to(torch.float64)(x.double())


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def forward_replaced_on_the_instance(x, layer):
    original = layer.forward
    layer.forward = lambda value: original(value) * 2
    result = layer(x)
    del layer.forward
    return result, layer(x)


@program(together=lambda: (_x(), frozen(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))))
def zero_grad_and_requires_grad(x, model):
    model.zero_grad()
    return model(x), all(p.grad is None for p in model.parameters()), any(p.requires_grad for p in model.parameters())


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def module_printed_to_text(x, layer):
    return layer(x), repr(layer), layer.extra_repr()
