"""Decoding, sampling and searching: top-k, nucleus, beams, Viterbi, alignment, trees, queues, batches of requests."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from typing import NamedTuple

import torch
import torch.nn.functional as F

from tests.python.harness import program
from tests.python.tensors import frozen, integers, values

LOGITS = [lambda: (values(2, 7),), lambda: (values(3, 7, seed=1),), lambda: (values(1, 9, seed=2),)]


@program(
    calls=[lambda: (values(2, 7), 3), lambda: (values(2, 7), 5), lambda: (values(2, 7), 1), lambda: (values(1, 7), 0)]
)
def top_k_filtered(logits, k):
    if k > 0:
        kth = torch.topk(logits, k)[0][..., -1, None]
        logits = logits.masked_fill(logits < kth, -float("inf"))
    return torch.multinomial(F.softmax(logits, -1), 1), logits


@program(calls=[lambda: (values(2, 7), 0.9), lambda: (values(2, 7), 0.5), lambda: (values(2, 7), 1.0)])
def nucleus_filtered(logits, p):
    if p < 1.0:
        ordered, places = logits.sort(descending=True)
        beyond = ordered.softmax(-1).cumsum(-1) > p
        beyond[..., 1:] = beyond[..., :-1].clone()
        beyond[..., 0] = False
        logits = logits.masked_fill(beyond.scatter(1, places, beyond), float("-inf"))
    return torch.multinomial(logits.softmax(-1), num_samples=2, replacement=True), logits


@program(calls=LOGITS)
def smallest_probability_kept(logits):
    probs = logits.softmax(-1)
    kept = probs >= 0.3 * probs.amax(-1, keepdim=True)
    return torch.where(kept, logits, logits.new_full((), -1e9))


@program(calls=[lambda: (values(2, 7), integers(2, 4, high=7)), lambda: (values(2, 7), integers(2, 6, high=7, seed=1))])
def repetition_penalised(logits, seen):
    score = torch.gather(logits, 1, seen)
    score = torch.where(score < 0, score * 1.3, score / 1.3)
    return logits.scatter(1, seen, score), logits.scatter_(1, seen, score)


@program(calls=[lambda: (values(7), [1, 2, 1, 2, 1]), lambda: (values(7), [3, 3, 3]), lambda: (values(7), [4])])
def repeated_pairs_banned(logits, tokens):
    pairs = {}
    for first, second in zip(tokens, tokens[1:]):
        pairs.setdefault(first, []).append(second)
    banned = pairs.get(tokens[-1], [])
    if banned:
        logits[banned] = float("-inf")
    return logits, banned


@program(calls=LOGITS)
def gumbel_argmax(logits):
    noise = -torch.empty_like(logits).exponential_().log()
    return ((logits + noise) / 0.7).argmax(-1)


@program(calls=LOGITS)
def inverse_cumulative_sampling(logits):
    cdf = logits.softmax(-1).cumsum(-1)
    u = torch.rand(logits.shape[0], 1)
    return torch.searchsorted(cdf, u).squeeze(-1).clamp(max=logits.shape[-1] - 1)


class Hypothesis(NamedTuple):
    tokens: tuple
    score: float


@program(
    calls=[
        lambda: ([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]], values(3)),
        lambda: ([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5]], values(2)),
    ]
)
def beam_of_named_tuples(table, x):
    beams = [Hypothesis((), 1.0)]
    for row in table:
        grown = [Hypothesis((*b.tokens, t), b.score * p) for b in beams for t, p in enumerate(row)]
        beams = heapq.nlargest(2, grown, key=lambda each: each.score)
    best = beams[0]
    return x[list(best.tokens)], best, [b._replace(score=round(b.score, 3)) for b in beams]


TRANSITION = values(4, 4, seed=3)


@program(calls=[lambda: (values(5, 4),), lambda: (values(3, 4, seed=1),), lambda: (values(1, 4, seed=2),)])
def best_path_by_viterbi(emissions):
    score = emissions[0]
    pointers = []
    for emission in emissions[1:]:
        best, where = (score.unsqueeze(1) + TRANSITION).max(0)
        score = best + emission
        pointers.append(where)
    last = score.argmax()
    path = [last]
    for pointer in reversed(pointers):
        last = pointer[last]
        path.append(last)
    return torch.stack(path[::-1]), score.max()


@program(calls=[lambda: (values(5, 4),), lambda: (values(3, 4, seed=1),), lambda: (values(2, 4, seed=2),)])
def partition_of_a_chain(emissions):
    alpha = emissions[0]
    for emission in emissions[1:]:
        alpha = torch.logsumexp(alpha[:, None] + TRANSITION, 0) + emission
    return alpha.logsumexp(0)


@program(
    calls=[
        lambda: ("kitten", "sitting", values(2)),
        lambda: ("", "abc", values(2)),
        lambda: ("flaw", "lawn", values(3)),
    ]
)
def edit_distance_of_texts(a, b, x):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (ca != cb))
    return x * row[-1]


@program(calls=[lambda: (values(3, 4), values(5, 4)), lambda: (values(2, 4), values(2, 4, seed=1))])
def time_warped(a, b):
    cost = torch.cdist(a, b)
    n, m = cost.shape
    table = cost.new_full((n + 1, m + 1), float("inf"))
    table[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            step = torch.min(torch.stack([table[i - 1, j], table[i, j - 1], table[i - 1, j - 1]]))
            table[i, j] = cost[i - 1, j - 1] + step
    return table[n, m]


CTC = [
    lambda: (values(6, 2, 5), integers(2, 3, high=4) + 1, [6, 5], [3, 2]),
    lambda: (values(4, 2, 5), integers(2, 2, high=4) + 1, [4, 4], [1, 2]),
]


@program(calls=CTC)
def alignment_loss(x, targets, lengths, target_lengths):
    return F.ctc_loss(x.log_softmax(-1), targets, lengths, target_lengths, blank=0, reduction="none")


@program(calls=CTC)
def collapsed_labels(x, targets, lengths, target_lengths):
    best = x.argmax(-1).t()
    changed = torch.ones_like(best, dtype=torch.bool)
    changed[:, 1:] = best[:, 1:] != best[:, :-1]
    kept = changed & (best != 0)
    inside = torch.arange(best.shape[1])[None] < torch.tensor(lengths)[:, None]
    return torch.where(kept & inside, best, -1), (kept & inside).sum(1)


EMBED = frozen(lambda: torch.nn.Embedding(7, 7))


@program(
    calls=[
        lambda: (integers(1, 2, high=7), 4),
        lambda: (integers(2, 2, high=7, seed=1), 2),
        lambda: (integers(1, 2, high=7), 0),
    ]
)
def greedy_with_finished_rows(ids, steps):
    done = torch.zeros(ids.shape[0], dtype=torch.bool)
    for _ in range(steps):
        nxt = EMBED(ids[:, -1]).argmax(-1)
        nxt = torch.where(done, torch.zeros_like(nxt), nxt)
        ids = torch.cat([ids, nxt[:, None]], 1)
        done = done | nxt.eq(3)
    return ids, done


@program(calls=[lambda: (integers(1, 2, high=7),), lambda: (integers(1, 3, high=7, seed=1),)])
def stopped_when_all_are_finished(ids):
    for step in range(6):
        nxt = EMBED(ids[:, -1:]).argmax(-1)
        ids = torch.cat([ids, nxt], dim=1)
        if (nxt == 3).all():
            break
    return ids, step


@program(calls=[lambda: (values(3, 7), values(4, 7, seed=1), [1, 2, 3]), lambda: (values(2, 7), values(3, 7), [0, 6])])
def drafts_accepted(draft, target, tokens):
    p, q = draft.softmax(-1), target.softmax(-1)
    index = torch.tensor(tokens)[:, None]
    ratio = (q[: len(tokens)].gather(1, index) / p.gather(1, index)).squeeze(1).clamp(max=1)
    accepted = torch.cumprod((torch.rand(len(tokens)) < ratio).long(), 0)
    count = accepted.sum()
    rest = F.relu(q[: len(tokens)] - p)
    return count, rest / rest.sum(-1, keepdim=True).clamp(min=1e-8), q.index_select(0, count[None])


@dataclasses.dataclass(order=True)
class Request:
    priority: int
    name: str = dataclasses.field(compare=False)
    tensor: torch.Tensor = dataclasses.field(compare=False, default=None)
    done: bool = dataclasses.field(compare=False, default=False)


QUEUE: list[Request] = []


@program(calls=[lambda: (3, "c", values(2)), lambda: (1, "a", values(2, seed=1)), lambda: (2, "b", values(2, seed=2))])
def requests_in_a_heap(priority, name, x):
    heapq.heappush(QUEUE, Request(priority, name, x))
    first = QUEUE[0]
    first.done = True
    return first.tensor * 2, first.name, [r.name for r in sorted(QUEUE)], len(QUEUE)


@program(calls=[lambda: ([3, 1, 2], values(4, 3)), lambda: ([2, 2], values(4, 3, seed=1)), lambda: ([4], values(4, 3))])
def batches_by_length(lengths, x):
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    groups = {n: list(g) for n, g in itertools.groupby(order, key=lambda i: lengths[i])}
    return {n: x[:n].sum(0) * len(g) for n, g in groups.items()}, order


@program(calls=[lambda: (values(6, 2), 2), lambda: (values(9, 2, seed=1), 3), lambda: (values(4, 2), 2)])
def clusters_by_means(points, k):
    centers = points[:k].clone()
    for _ in range(3):
        labels = torch.cdist(points, centers).argmin(1)
        member = F.one_hot(labels, k).to(points.dtype)
        centers = (member.t() @ points) / member.sum(0).clamp(min=1)[:, None]
    return centers, labels


@program(calls=[lambda: (values(5, 2),), lambda: (values(7, 2, seed=1),), lambda: (values(3, 2),)])
def farthest_points(points):
    chosen = [torch.zeros((), dtype=torch.long)]
    distance = torch.full((points.shape[0],), float("inf"))
    for _ in range(2):
        distance = torch.minimum(distance, (points - points[chosen[-1]]).square().sum(-1))
        chosen.append(distance.argmax())
    return torch.stack(chosen), points[torch.stack(chosen)]


@program(calls=[lambda: (values(4, 3), values(5, 3, seed=1), 2), lambda: (values(2, 3), values(6, 3), 3)])
def nearest_neighbours(queries, points, k):
    distance, index = torch.cdist(queries, points).topk(k, largest=False)
    weight = 1 / distance.clamp_min(1e-8)
    return (points[index] * (weight / weight.sum(1, keepdim=True)).unsqueeze(-1)).sum(1), index


class Node:
    __slots__ = ("children", "prior", "total", "visits")

    def __init__(self, prior):
        self.prior, self.visits, self.total, self.children = prior, 0, 0.0, {}

    @property
    def value(self):
        return self.total / self.visits if self.visits else 0.0


def select(node):
    return max(node.children.items(), key=lambda kv: (kv[1].value + kv[1].prior / (1 + kv[1].visits), -kv[0]))


@program(calls=[lambda: (values(3), 4), lambda: (values(3, seed=1), 2), lambda: (values(3), 6)])
def tree_search(x, rounds):
    root = Node(1.0)
    root.children = {a: Node(p) for a, p in enumerate((0.5, 0.3, 0.2))}
    for step in range(rounds):
        action, child = select(root)
        child.visits += 1
        child.total += 0.1 * (action + step)
        root.visits += 1
    counts = [child.visits for child in root.children.values()]
    return x * torch.tensor(counts, dtype=x.dtype), counts, select(root)[0]


@program(calls=[lambda: (values(5),), lambda: (values(8, seed=1),), lambda: (values(3, seed=2),)])
def returns_and_advantages(rewards):
    value = rewards.roll(1) * 0.5
    advantage = torch.zeros_like(rewards)
    last = 0
    for t in reversed(range(len(rewards))):
        following = value[t + 1] if t + 1 < len(rewards) else 0.0
        delta = rewards[t] + 0.9 * following - value[t]
        advantage[t] = last = delta + 0.9 * 0.95 * last
    return advantage, (advantage - advantage.mean()) / (advantage.std() + 1e-8)


@program(calls=[lambda: (values(4, 3),), lambda: (values(6, 3, seed=1),), lambda: (values(2, 3),)])
def policy_clipped(logits):
    old = logits.detach().log_softmax(-1)
    new = (logits * 1.1).log_softmax(-1)
    action = logits.argmax(-1, keepdim=True)
    ratio = (new.gather(1, action) - old.gather(1, action)).exp()
    advantage = torch.linspace(-1, 1, len(logits))[:, None]
    loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    entropy = -(new.exp() * new).sum(-1).mean()
    return loss - 0.01 * entropy, (ratio - 1).abs().gt(0.2).float().mean()


@program(
    calls=[
        lambda: (values(2, 3), 10, {1: 0.5}),
        lambda: (values(2, 3), 20, {}),
        lambda: (values(2, 3), 10, {1: 0.5, 2: 2.0}),
    ]
)
def biases_from_a_dict(x, temperature, bias):
    x = x / (temperature / 10)
    for token, amount in bias.items():
        x[:, token] += amount
    return x


@program(calls=[lambda: (values(2, 4, 3),), lambda: (values(1, 2, 3),), lambda: (values(3, 5, 3),)])
def beams_reordered(x):
    batch, beams, vocab = x.shape
    score, flat = x.view(batch, -1).topk(2)
    beam, token = torch.div(flat, vocab, rounding_mode="floor"), flat % vocab
    picked = x.gather(1, beam[..., None].expand(-1, -1, vocab))
    return score, beam, token, picked, [divmod(i, vocab) for i in range(0, beams * vocab, vocab + 1)]


@program(calls=[lambda: (values(6), 3), lambda: (values(6, seed=1), 2), lambda: (values(4), 4)])
def sliding_maximum(x, width):
    windows = x.unfold(0, width, 1)
    best, where = windows.max(-1)
    return best, where + torch.arange(windows.shape[0]), windows.shape


@program(calls=[lambda: (integers(8, high=3),), lambda: (integers(5, high=3, seed=1),)])
def runs_encoded(x):
    change = torch.cat([torch.ones(1, dtype=torch.bool), x[1:] != x[:-1]])
    label = change.long().cumsum(0) - 1
    counts = torch.zeros_like(x).scatter_add_(0, label, torch.ones_like(x))
    return label, counts


@program(calls=[lambda: (values(5, 5),), lambda: (values(4, 4, seed=1),), lambda: (values(3, 3),)])
def shortest_paths(x):
    d = x.abs().clone()
    d.fill_diagonal_(0)
    for k in range(len(d)):
        d = torch.minimum(d, d[:, k, None] + d[None, k, :])
    return d


@program(calls=[lambda: (values(4, 4),), lambda: (values(6, 4, seed=1),), lambda: (values(4, 4, seed=2),)])
def page_ranks(x):
    a = x @ x.t()
    p = (a > 0).float()
    p = p / p.sum(1, keepdim=True).clamp(min=1)
    rank = torch.full((len(p),), 1 / len(p))
    for _ in range(5):
        rank = 0.15 / len(p) + 0.85 * (p.mT @ rank)
    return rank.sort(descending=True)
