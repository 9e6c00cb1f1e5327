"""Calls that differ: tensors whose sizes, strides, types and aliases are others in the next call, and effects on them."""

from __future__ import annotations

import contextlib
import copy
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.python.harness import program

LOG: list[Any] = []
SEEN: dict[str, Any] = {}


def rows(count, width=3):
    return torch.arange(float(count * width)).reshape(count, width) / 4 - 1


@torch.compiler.disable
def outside(value):
    LOG.append(value if not torch.is_tensor(value) else tuple(value.shape))
    return value


SIZES = [lambda: (rows(4),), lambda: (rows(2),), lambda: (rows(1),), lambda: (rows(0),), lambda: (rows(7),)]


# Sizes ----------------------------------------------------------------------------------------------------------------


@program(calls=SIZES)
def sums_and_extremes(x):
    total = x.sum(0)
    outside(total)
    return total, x.mean(), x.sum(1), x.numel(), x.amax(1), x.cumsum(0)


@program(calls=SIZES)
def branches_on_sizes(x):
    if x.shape[0] == 0:
        return "empty", x.sum()
    if x.shape[0] == 1:
        return x[0]
    half = x.shape[0] // 2
    return x[:half] * 2, x[half:], x.shape[0] % 2


@program(calls=SIZES)
def steps_backwards(x):
    order = list(range(x.shape[0] - 1, -1, -1))
    outside(len(order))
    return x.flip(0), x[order], x[::2], [x[-1 - place] for place in range(min(2, len(x)))]


@program(calls=SIZES)
def sizes_in_arithmetic(x):
    n, width = x.shape
    scale = (n + 1) / 2 + n // 3 - n % 2 + n**2 + abs(n - 3) + max(n, 2) - min(n, 5)
    outside(n)
    return x * scale, torch.full((n + 2, 2 * width), float(n)), torch.arange(0, n, 2), f"{n}x{width}", [0] * n


@program(calls=SIZES)
def padded_to_a_multiple(x):
    missing = -x.shape[0] % 4
    padded = F.pad(x, (0, 0, 0, missing))
    return padded, padded.view(-1, 4, 3).sum(1) if padded.numel() else padded, missing


@program(calls=SIZES)
def walked_by_rows(x):
    total = torch.zeros(3)
    for place, row in enumerate(x):
        total = total * 0.5 + row
        LOG.append(place)
    return total


@program(calls=SIZES)
def chunks_and_joins(x):
    parts = x.chunk(3)
    outside(len(parts))
    return (
        torch.cat([part * place for place, part in enumerate(parts)]),
        torch.stack([x, x], 1),
        [len(part) for part in parts],
    )


@program(
    calls=[
        lambda: (rows(4), torch.ones(3)),
        lambda: (rows(4), torch.ones(4, 1)),
        lambda: (rows(4), torch.ones(1)),
        lambda: (rows(1), torch.ones(4, 3)),
        lambda: (rows(4), torch.tensor(2.0)),
        lambda: (rows(4), torch.ones(5)),
        lambda: (rows(0), torch.ones(1, 3)),
    ]
)
def broadcasting_changes(x, y):
    try:
        return x * y + torch.where(x > y, x, y)
    except RuntimeError as error:
        return str(error)


@program(
    calls=[
        lambda: (rows(4), 1),
        lambda: (rows(4), -1),
        lambda: (rows(4), 0),
        lambda: (rows(4), 7),
        lambda: (rows(2), -3),
    ]
)
def indices_out_of_range(x, place):
    done = []
    try:
        done.append(x[place])
        outside(place)
        done.append(x.select(0, place))
    except IndexError as error:
        done.append(str(error))
    return done


@program(
    calls=[
        lambda: (rows(4), slice(None, None, 2)),
        lambda: (rows(4), slice(-3, -1)),
        lambda: (rows(3), slice(5, 1)),
        lambda: (rows(2), 1),
    ]
)
def slices_change(x, part):
    y = x.clone()
    y[part] = 7.0
    outside(0)
    return x[part], y, y[..., part]


@program(
    calls=[
        lambda: (rows(4), -1),
        lambda: (rows(4), 0),
        lambda: (rows(4), 1),
        lambda: (rows(4), None),
        lambda: (rows(4), (0, 1)),
    ]
)
def dimensions_change(x, dim):
    total = x.sum() if dim is None else x.sum(dim, keepdim=True)
    outside(dim)
    return total, x.norm(dim=dim), x - total


@program(
    calls=[
        lambda: (rows(4), 2),
        lambda: (rows(4), 2.0),
        lambda: (rows(4), True),
        lambda: (rows(4), 1 + 0j),
        lambda: (rows(4), torch.tensor(2)),
    ]
)
def numbers_change_their_type(x, factor):
    y = x * factor
    outside(0)
    return y, y.dtype, torch.full((2,), factor) if not torch.is_tensor(factor) else factor + 1


@program(
    calls=[
        lambda: (rows(3),),
        lambda: (rows(3).double(),),
        lambda: (rows(3).long(),),
        lambda: (rows(3).bool(),),
        lambda: (rows(3).half(),),
    ]
)
def types_change(x):
    y = x + 1
    outside(str(x.dtype))
    return y, x / 2, x.sum(), x.float().mean(), torch.zeros_like(x), x.new_ones(2)


@program(
    calls=[
        lambda: (rows(4),),
        lambda: (rows(4).t(),),
        lambda: (rows(8)[::2],),
        lambda: (rows(1).expand(4, 3),),
        lambda: (rows(4)[:, :1],),
    ]
)
def layouts_change(x):
    y = x.contiguous()
    outside(x.is_contiguous())
    return x * 2, y, x.reshape(-1), x.stride(), x.t().relu()


@program(
    calls=[
        lambda: (rows(4), [1.0, 2.0]),
        lambda: (rows(4), [1, 2, 3]),
        lambda: (rows(4), []),
        lambda: (rows(4), [[1.0], [2.0]]),
    ]
)
def tensors_made_of_lists(x, values):
    made = torch.tensor(values)
    outside(0)
    return made, x.sum() + made.sum(), torch.as_tensor(values, dtype=torch.float64)


# Aliases and effects --------------------------------------------------------------------------------------------------


def _pair(kind):
    x = rows(4)
    return (
        (x, x)
        if kind == "same"
        else (x, x[1:3])
        if kind == "part"
        else (x[1:], x[:-1])
        if kind == "overlap"
        else (x, rows(4))
    )


@program(calls=[lambda: _pair("other"), lambda: _pair("same"), lambda: _pair("part"), lambda: _pair("overlap")])
def inputs_that_alias(x, y):
    x.mul_(2)
    total = y.sum()
    outside(0)
    y.add_(1)
    return total, x.sum(), x is y


@program(calls=SIZES)
def views_written_in_place(x):
    first = x[:, 0]
    first += 10
    outside(0)
    x[:, 1:].zero_()
    x.t()[2] = first
    return first, x.sum()


@program(calls=[lambda: (rows(4), 2), lambda: (rows(4), 9), lambda: (rows(2), 1)])
def written_half_way(x, limit):
    for place in range(4):
        x[place].mul_(2)
        LOG.append(place)
        if place == limit:
            raise StopAsyncIteration(place)
    return x


@program(calls=[lambda: (rows(3), {}), lambda: (rows(3), {"last": rows(2)}), lambda: (rows(2), {"last": None})])
def cache_that_grows(x, cache):
    last = cache.get("last")
    cache["last"] = x if last is None else torch.cat([last, x])
    outside(len(cache))
    cache.setdefault("count", 0)
    cache["count"] += 1
    return cache["last"].sum(0)


@program(calls=[lambda: (rows(3), [rows(1)]), lambda: (rows(3), []), lambda: (rows(3), [rows(1), rows(2), rows(3)])])
def list_of_tensors_changes(x, parts):
    parts.append(x * 2)
    joined = torch.cat(parts)
    outside(0)
    first = parts.pop(0)
    first.add_(1)
    return joined.sum(), len(parts)


@program(calls=[lambda: (rows(3), "out"), lambda: (rows(3), None), lambda: (rows(2), "other")])
def out_arguments(x, out):
    target = None if out is None else torch.empty(3 if out == "out" else 2, 3)
    try:
        made = torch.add(x, 1, out=target)
    except RuntimeError as error:
        return str(error)
    outside(0)
    return made is target, made


@program(calls=[lambda: (rows(3),), lambda: (rows(5),)])
def attributes_of_tensors(x):
    x.note = "here"
    y = x * 2
    y.note = x.note + "!"
    outside(0)
    return y, y.note, hasattr(x, "other")


@program(calls=[lambda: (rows(3), 1), lambda: (rows(3), 0), lambda: (rows(2), 4)])
def resized_and_swapped(x, count):
    y = torch.zeros(2, 2)
    y.resize_(count, 2).fill_(1)
    outside(0)
    x.t_()
    return y, x.shape, x.sum()


# Modules, hooks, parametrizations -------------------------------------------------------------------------------------


class Gate(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("cache", None, persistent=False)
        self.history: list[int] = []

    def forward(self, x, mask=None):
        self.steps += 1
        self.history.append(x.shape[0])
        if self.cache is not None and self.cache.shape == x.shape:
            x = x + self.cache
        self.cache = x.detach()
        x = x * self.weight.sigmoid()
        return x if mask is None else x.masked_fill(mask, 0.0)


@program(
    calls=[
        lambda: (Gate(), rows(2)),
        lambda: (Gate(), rows(4)),
        lambda: (Gate().eval(), rows(1)),
        lambda: (Gate(), rows(0)),
    ]
)
def module_with_a_cache(gate, x):
    first = gate(x)
    outside(0)
    second = gate(x, x > 0)
    return first, second, gate.steps, gate.history, gate.cache is None


class Noted:
    def __init__(self, log):
        self.log = log

    def __call__(self, module, args, result=None):
        self.log.append((type(module).__name__, len(args)))
        return None if result is None else result * 2


@program(calls=[lambda: (Gate(), rows(2), 0), lambda: (Gate(), rows(2), 1), lambda: (Gate(), rows(3), 2)])
def hooks_come_and_go(gate, x, count):
    handles = [gate.register_forward_hook(Noted(LOG)) for _ in range(count)]
    handles += [gate.register_forward_pre_hook(lambda module, args: (args[0] + 1,))]
    with_hooks = gate(x)
    outside(0)
    for handle in handles:
        handle.remove()
    return with_hooks, gate(x), len(gate._forward_hooks)


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)

    def right_inverse(self, weight):
        return weight.triu()


def _parametrized(kind):
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    if kind == "norm":
        nn.utils.parametrizations.weight_norm(layer)
    elif kind:
        nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


@program(
    calls=[
        lambda: (_parametrized(""), rows(2)),
        lambda: (_parametrized("own"), rows(2)),
        lambda: (_parametrized("norm"), rows(4)),
    ]
)
def parametrized_or_not(layer, x):
    y = layer(x)
    outside(0)
    with nn.utils.parametrize.cached():
        return y, layer(x) - layer(x), nn.utils.parametrize.is_parametrized(layer)


@program(
    calls=[
        lambda: (nn.ModuleDict({"a": nn.Identity(), "b": nn.ReLU()}), rows(2)),
        lambda: (nn.ModuleDict({"c": nn.Tanh()}), rows(2)),
        lambda: (nn.ModuleDict(), rows(1)),
    ]
)
def module_dict_changes(layers, x):
    for name, layer in layers.items():
        x = layer(x)
        outside(name)
    return x, list(layers), len(layers)


@program(
    calls=[
        lambda: (nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), rows(2)),
        lambda: (nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval(), rows(2)),
    ]
)
def training_mode_changes(layers, x):
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.fill_(0.1)
    y = layers(x)
    outside(layers.training)
    layers.train(not layers.training)
    return y, layers(x), [each.training for each in layers.modules()]


@program(calls=[lambda: (Gate(), rows(2)), lambda: (Gate(), rows(3))])
def state_dict_round_trip(gate, x):
    state = {name: value.clone() for name, value in gate.state_dict().items()}
    gate(x)
    outside(0)
    other = copy.deepcopy(gate)
    missing = gate.load_state_dict(state, strict=False)
    return gate.steps, other.steps, list(state), missing.missing_keys, gate(x)


# Transforms and gradients ---------------------------------------------------------------------------------------------


@program(calls=[lambda: (rows(4), 0), lambda: (rows(2), 1), lambda: (rows(1), 0)])
def mapped_over_another_dimension(x, dim):
    y = torch.vmap(lambda row: (row * row).sum() + row.shape[0], in_dims=dim)(x)
    outside(0)
    return y, torch.func.grad(lambda value: (value**3).sum())(x)


@program(calls=[lambda: (rows(1, 2),), lambda: (rows(1, 3),), lambda: (rows(1, 4),)])
def jacobians(x):
    def function(value):
        return torch.stack([value.prod(), value.sum() ** 2])

    warnings.simplefilter("ignore")  # of what eager has no batching rule for
    row = x[0] + 2
    value, tangent = torch.func.jvp(function, (row,), (torch.ones_like(row),))
    result, pull = torch.func.vjp(function, row)
    outside(0)
    return value, tangent, pull(torch.ones_like(result)), torch.func.jacrev(function)(row)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        LOG.append("backward")
        return grad * (x.abs() <= ctx.limit) * 2, None


@program(calls=[lambda: (rows(4), 1.0), lambda: (rows(4), 0.25), lambda: (rows(2), 2)], grad=True)
def own_function_with_another_limit(x, limit):
    x = x.clone().requires_grad_()
    y = Clipped.apply(x * 2, limit)
    y.sum().backward()
    return y.detach(), x.grad


@program(calls=[lambda: (rows(4),), lambda: (rows(1),), lambda: (rows(0),)], grad=True)
def gradients_inside(x):
    w = torch.ones(3, requires_grad=True)
    loss = ((x * w).tanh() ** 2).sum()
    (slope,) = torch.autograd.grad(loss, w)
    outside(0)
    return loss.detach(), slope


@program(
    calls=[
        lambda: (rows(3).requires_grad_(), True),
        lambda: (rows(3), False),
        lambda: (rows(2).requires_grad_(), False),
    ],
    grad=True,
)
def requires_grad_changes(x, detached):
    y = (x.detach() if detached else x) * 2
    outside(y.requires_grad)
    with torch.no_grad():
        z = y + x
    return y.detach(), z.requires_grad, y.requires_grad, x.is_leaf


@program(calls=[lambda: (rows(3), torch.bfloat16), lambda: (rows(3), None), lambda: (rows(2), torch.float16)])
def autocast_in_layers(x, dtype):
    weight = torch.ones(3, 3)
    context = torch.autocast("cpu", dtype) if dtype else contextlib.nullcontext()
    with context:
        y = x @ weight
        with torch.autocast("cpu", enabled=False):
            z = x @ weight
        outside(torch.is_autocast_enabled("cpu"))
        w = F.linear(z, weight)
    return y, z, w, torch.is_autocast_enabled("cpu")


@program(calls=[lambda: (rows(3), 1), lambda: (rows(3), 0), lambda: (rows(3), 5)])
def modes_in_a_loop(x, times):
    for place in range(times):
        with torch.set_grad_enabled(place % 2 == 0):
            x = x + torch.is_grad_enabled()
            outside(torch.is_grad_enabled())
    return x, torch.is_grad_enabled()


# Contents -------------------------------------------------------------------------------------------------------------


@program(calls=SIZES)
def masked_rows(x):
    mask = x.sum(1) > 0 if x.numel() else torch.zeros(x.shape[0], dtype=torch.bool)
    picked = x[mask]
    outside(tuple(picked.shape))
    x[mask] = picked * 2
    return picked.sum(0), x, mask.sum().item()


@program(calls=[lambda: (rows(4), 0.0), lambda: (rows(4), 10.0), lambda: (rows(4), -10.0)])
def branches_on_contents(x, limit):
    if x.max() > limit:
        x = x - limit
    elif (x == limit).any():
        return "equal"
    number = x.sum().item()
    LOG.append(number)
    return x * number, int(number), number > 0


@program(
    calls=[
        lambda: (rows(4), torch.tensor([2, 1, 1])),
        lambda: (rows(3), torch.tensor([0, 3])),
        lambda: (rows(1), torch.tensor([1])),
    ]
)
def split_by_lengths(x, lengths):
    parts = x.split(lengths.tolist())
    outside(len(parts))
    return [part.sum(0) for part in parts], nn.utils.rnn.pad_sequence(list(parts), batch_first=True)


@program(calls=[lambda: (rows(4), 3), lambda: (rows(4), 0), lambda: (rows(2), 1)])
def while_on_contents(x, limit):
    steps = 0
    while x.abs().max() > limit + 1 and steps < 4:
        x = x / 2
        steps += 1
    return x, steps


@program(
    calls=[
        lambda: (torch.tensor([3, 1, 3]),),
        lambda: (torch.tensor([2]),),
        lambda: (torch.tensor([], dtype=torch.long),),
    ]
)
def counted_and_unique(ids):
    values, counts = ids.unique(return_counts=True)
    outside(0)
    return values, counts, torch.bincount(ids, minlength=2), ids.tolist(), F.one_hot(ids, 4)


@program(calls=[lambda: (rows(3), 0), lambda: (rows(3), 1), lambda: (rows(2), 0)])
def draws_between_breaks(x, seed):
    torch.manual_seed(seed)
    first = torch.rand(2) + x.sum()
    outside(0)
    second = torch.randn_like(x)
    order = torch.randperm(x.shape[0])
    return first, second, x[order], F.dropout(x, 0.5, training=bool(seed))


@program(calls=[lambda: (rows(3),), lambda: (rows(1),)])
def numpy_and_back(x):
    array = x.numpy()
    array *= 2
    outside(array.shape[0])
    return torch.from_numpy(array + 1), float(array.sum()), array.tolist(), x


@program(calls=[lambda: (rows(3),), lambda: (rows(1),), lambda: (rows(0),)])
def told_in_order(x):
    print("shape", tuple(x.shape))
    warnings.warn(f"{len(x)} rows", stacklevel=1)
    outside(0)
    print("sum", x.sum().item(), x.dtype)
    print(x)
    return x + 1
