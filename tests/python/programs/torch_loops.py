"""Loops of small tensor programs: decoding with caches, search, averages, iterations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.python.harness import program
from tests.python.tensors import frozen, integers, values


class KeyValueCache:
    def __init__(self):
        self.keys, self.values = [], []

    def update(self, key, value, layer):
        if len(self.keys) <= layer:
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], key], dim=-2)
            self.values[layer] = torch.cat([self.values[layer], value], dim=-2)
        return self.keys[layer], self.values[layer]

    def length(self, layer=0):
        return self.keys[layer].shape[-2] if self.keys else 0


class Attention(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x, cache):
        q, k, v = self.qkv(x).view(x.shape[0], x.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4)
        k, v = cache.update(k, v, self.layer)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).flatten(2))


@program(
    together=lambda: (values(1, 3, 8), frozen(lambda: nn.ModuleList([Attention(0), Attention(1)])), KeyValueCache())
)
def growing_cache(x, layers, cache):
    for layer in layers:
        x = layer(x, cache)
    return x, cache.length()


class StaticCache:
    def __init__(self):
        self.data = torch.zeros(1, 8, 4)
        self.used = 0

    def append(self, x):
        self.data[:, self.used : self.used + x.shape[1]] = x
        self.used += x.shape[1]
        return self.data[:, : self.used]


@program(together=lambda: (values(1, 2, 4), StaticCache()))
def cache_of_fixed_size(x, cache):
    return cache.append(x).mean(1), cache.used


@program(together=lambda: (integers(1, 3, high=7), frozen(lambda: nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 7)))))
def greedy_decoding(tokens, model):
    for _ in range(3):
        logits = model(tokens)[:, -1]
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
    return tokens


@program(together=lambda: (values(2, 6),))
def beam_search(start):
    beams = [(torch.zeros(()), [])]
    for step in range(2):
        grown = []
        for score, path in beams:
            best, where = start[step].log_softmax(0).topk(2)
            for each in range(2):
                grown.append((score + best[each], path + [where[each]]))
        beams = grown[:3]
    return [(score, torch.stack(path)) for score, path in beams]


@program(together=lambda: (integers(2, high=7), values(7, 7)))
def beams_batched(start, table):
    scores, beams = torch.zeros(2), start.unsqueeze(1)
    for _ in range(2):
        logits = table[beams[:, -1]].log_softmax(-1)
        scores, flat = (scores.unsqueeze(1) + logits).flatten().topk(2)
        beams = torch.cat([beams[flat // 7], (flat % 7).unsqueeze(1)], dim=1)
    return scores, beams


@program(together=lambda: (values(4, 4),))
def newton_iteration(a):
    a = a @ a.T + torch.eye(4)
    inverse = a.T / (a.norm(1) * a.norm(float("inf")))
    for _ in range(5):
        inverse = inverse @ (2 * torch.eye(4) - a @ inverse)
    return inverse


@program(together=lambda: (values(4, 4), 4))
def power_iteration(a, steps):
    vector = torch.ones(4)
    for _ in range(steps):
        vector = F.normalize(a @ vector, dim=0)
    return vector, vector @ a @ vector


@program(together=lambda: (values(3, 2, 4), frozen(lambda: nn.RNNCell(4, 4))))
def recurrence_collected(x, cell):
    hidden, outputs = None, []
    for step in range(x.size(0)):
        hidden = cell(x[step], hidden)
        outputs.append(hidden)
    return torch.stack(outputs, dim=1)


@program(together=lambda: ({"w": values(4)}, {"w": values(4, seed=1)}))
def moving_average(shadow, current):
    for name in shadow:
        shadow[name] = 0.9 * shadow[name] + 0.1 * current[name]
    return shadow["w"].sum()


@program(together=lambda: (values(2, 3, 8, 8),))
def diffusion_steps(x):
    alphas = torch.linspace(0.9, 0.5, 4)
    for alpha in alphas:
        noise = x.mean((1, 2, 3), keepdim=True)
        x = (x - (1 - alpha) * noise) / alpha.sqrt()
    return x


@program(together=lambda: (values(3, 4), [1, 2, 3]))
def loop_over_argument_list(x, factors):
    total = torch.zeros_like(x)
    for index, factor in enumerate(factors, start=1):
        total = total + x * factor / index
    return total


@program(together=lambda: (values(6, 4),))
def dynamic_programming(scores):
    best = scores[0]
    pointers = []
    for row in scores[1:]:
        best, pointer = (best.unsqueeze(1) + torch.eye(4)).max(0)
        best = best + row
        pointers.append(pointer)
    return best, torch.stack(pointers)


@program(
    together=lambda: (values(2, 5, 8), frozen(lambda: nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])), values(8, 3))
)
def mixture_of_experts(x, experts, router):
    weights = (x @ router).softmax(-1)
    return sum(weights[..., index : index + 1] * expert(x) for index, expert in enumerate(experts))


@program(
    together=lambda: (values(6, 8), frozen(lambda: nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])), values(8, 3))
)
def experts_by_index(x, experts, router):
    chosen = (x @ router).argmax(-1)
    output = torch.zeros_like(x)
    for index, expert in enumerate(experts):
        rows = torch.where(chosen == index)[0]
        output.index_add_(0, rows, expert(x[rows]))
    return output


@program(together=lambda: (values(8, 4),))
def recursion_over_halves(x):
    def total(part):
        if part.shape[0] == 1:
            return part[0]
        middle = part.shape[0] // 2
        return total(part[:middle]) + total(part[middle:]) * 0.5

    return total(x)


@program(together=lambda: (torch.ones(3), [4, 5, 6]))
def position_found_by_index(x, table):
    for place, entry in enumerate(reversed(table)):
        x = x * entry + place
    return x, table.index(5)


@program(together=lambda: (torch.ones(3),))
def two_iterators_side_by_side(x):
    odd, even = iter([1, 3, 5]), iter([2, 4])
    taken = []
    for number in odd:
        taken.append((number, next(even, None)))
        x = x + number
    return x, taken


@program(together=lambda: (torch.arange(6.0).reshape(3, 2),))
def rows_of_what_a_mask_picks(x):
    total = torch.zeros(2)
    for row in x[x.sum(1) > 2]:
        total = total + row
    return total
