"""Data on its way to a model: collating, padding, packing, tokens, augmentation, sampling, metrics, normalisation."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from tests.python.harness import program
from tests.python.tensors import frozen, integers, seeded, values

ROWS = [lambda: (values(2, 3),), lambda: (values(4, 3, seed=1),), lambda: (values(2, 3, seed=2),)]
LISTS = [
    lambda: ([values(3), values(2), values(4)],), lambda: ([values(2), values(2, seed=1)],), lambda: ([values(5)],),
]  # fmt: skip


class Sample(NamedTuple):
    x: torch.Tensor
    label: int
    weight: float = 1.0


def collate(samples):
    first = samples[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(list(samples))
    if isinstance(first, (int, float)):
        return torch.tensor(samples)
    if isinstance(first, str):
        return list(samples)
    if isinstance(first, Mapping):
        return {key: collate([each[key] for each in samples]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(collate(part) for part in zip(*samples)))
    if isinstance(first, Sequence):
        return [collate(part) for part in zip(*samples)]
    raise TypeError(type(first))


@program(calls=[
    lambda: ([Sample(values(2), 1), Sample(values(2, seed=1), 0, 0.5)],),
    lambda: ([{"x": values(2), "name": "a"}, {"x": values(2), "name": "b"}],),
    lambda: ([(values(2), [1, 2.0])] * 3,), lambda: ([{1}],),
])  # fmt: skip
def collated_by_type(samples):
    return collate(samples)


@program(calls=LISTS)
def padded_by_hand(parts):
    longest = max(len(p) for p in parts)
    batch = torch.zeros(len(parts), longest)
    mask = torch.zeros(len(parts), longest, dtype=torch.bool)
    for i, part in enumerate(parts):
        batch[i, : len(part)] = part
        mask[i, : len(part)] = True
    return (batch * mask).sum(1) / mask.sum(1), mask


@program(calls=LISTS)
def padded_by_torch(parts):
    padded = pad_sequence(parts, batch_first=True, padding_value=-1.0)
    return padded, padded.ne(-1).sum(1), pad_sequence(parts, padding_side="left", batch_first=True)


@program(calls=LISTS)
def sequences_packed_from_a_list(parts):
    packed = pack_sequence([p[:, None] for p in parts], enforce_sorted=False)
    doubled = PackedSequence(packed.data * 2, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    out, lengths = pad_packed_sequence(doubled, batch_first=True)
    return out, lengths, packed.batch_sizes


GRU = frozen(lambda: nn.GRU(3, 2, batch_first=True))
LENGTHS = [
    lambda: (values(2, 4, 3), [4, 2]), lambda: (values(3, 4, 3), [4, 4, 1]), lambda: (values(2, 5, 3, seed=1), [5, 3]),
]  # fmt: skip


@program(calls=LENGTHS)
def encoder_over_packed(x, lengths):
    packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=True)
    out, h = GRU(packed)
    unpacked, sizes = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
    return unpacked.sum(1), h[-1], sizes


TAGGER = seeded(lambda: nn.LSTM(3, 2, num_layers=2, bidirectional=True))


@program(calls=LENGTHS, grad=True)
def tagger_over_packed(x, lengths):
    packed = pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False)
    out, (h, c) = TAGGER(packed)
    loss = pad_packed_sequence(out)[0].square().mean() + c.mean()
    return loss.detach(), torch.autograd.grad(loss, TAGGER.weight_hh_l1)[0], h.detach()


@program(calls=LENGTHS)
def masked_pooling(x, lengths):
    mask = torch.arange(x.shape[1])[None, :] < torch.tensor(lengths)[:, None]
    mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    top = x.masked_fill(~mask[..., None], float("-inf")).amax(1)
    last = x[torch.arange(len(x)), torch.tensor(lengths) - 1]
    return mean, top, last


class Vocabulary:
    def __init__(self, words):
        self.index = {word: i for i, word in enumerate(["<pad>", "<unk>", *words])}
        self.words = list(self.index)
        self.unknown = collections.Counter()

    def encode(self, text, length=None):
        ids = []
        for word in text.lower().split():
            if word not in self.index:
                self.unknown[word] += 1
            ids.append(self.index.get(word, 1))
        if length is not None:
            ids = ids[:length] + [0] * (length - len(ids))
        return ids

    def decode(self, ids):
        return " ".join(self.words[i] for i in ids if i)


VOCABULARY = Vocabulary(["the", "cat", "sat"])
EMBEDDING = frozen(lambda: nn.Embedding(5, 3, padding_idx=0))


@program(calls=[lambda: ("The cat sat",), lambda: ("a cat",), lambda: ("the dog sat down",), lambda: ("",)])
def text_to_embedding(text):
    ids = VOCABULARY.encode(text, 4)
    tensor = torch.tensor(ids, dtype=torch.long)
    return EMBEDDING(tensor).sum(0), VOCABULARY.decode(ids), dict(VOCABULARY.unknown)


BAG = frozen(lambda: nn.EmbeddingBag(5, 3, mode="mean"))


@program(calls=[lambda: ([[1, 2], [3]],), lambda: ([[4], [], [0, 1, 2]],), lambda: ([[2, 2]],)])
def bags_of_words(bags):
    offsets = torch.tensor([0, *(len(b) for b in bags[:-1])]).cumsum(0)
    return BAG(torch.tensor([w for b in bags for w in b], dtype=torch.long), offsets)


class Augment:
    def __init__(self, *steps, p=0.5):
        self.steps, self.p = steps, p
        self.applied = []

    def __call__(self, x):
        for step in self.steps:
            if random.random() < self.p:
                self.applied.append(step.__name__)
                x = step(x)
        return x


def flip(x):
    return x.flip(-1)


def jitter(x):
    return x * random.uniform(0.8, 1.2)


ALWAYS = Augment(flip, jitter, p=1.1)


@program(calls=ROWS)
def augmentations_always_applied(x):
    return ALWAYS(x), len(ALWAYS.applied)


@program(calls=[lambda: (values(1, 3, 6, 6), 4), lambda: (values(2, 3, 8, 6), 4), lambda: (values(1, 3, 6, 6), 2)])
def crops_of_an_image(x, size):
    h, w = x.shape[-2:]
    top, left = (h - size) // 2, (w - size) // 2
    center = x[..., top : top + size, left : left + size]
    corners = [x[..., :size, :size], x[..., -size:, -size:]]
    return torch.cat([center, *corners]), F.interpolate(x, (size, size), mode="nearest")


@program(
    calls=[lambda: (values(1, 3, 4, 4),), lambda: (values(2, 3, 6, 4, seed=1),), lambda: (values(1, 3, 4, 4, seed=2),)]
)
def normalised_image(x):
    mean = torch.tensor([0.5, 0.4, 0.3]).view(-1, 1, 1)
    std = x.new_tensor([0.2, 0.3, 0.4])[:, None, None]
    y = (x.clamp(0, 1) - mean) / std
    return y, (y * 255).round().clamp(0, 255).to(torch.uint8), y.mul(std).add_(mean)


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return torch.tensor([float(i), float(i * i)]), i % 2


@program(calls=[lambda: (values(2), Squares(4)), lambda: (values(2), Squares(3)), lambda: (values(2), Squares(5))])
def dataset_indexed(x, data):
    items = [data[i] for i in range(len(data))]
    xs, ys = zip(*items)
    return torch.stack(xs) * x, torch.tensor(ys), len([0 for _ in data])


@program(calls=[lambda: (values(2), 4, 2), lambda: (values(2), 3, 2), lambda: (values(2), 4, 3)])
def loader_iterated(x, n, size):
    total = torch.zeros(2)
    batches = 0
    for xs, ys in DataLoader(Squares(n), batch_size=size):
        total = total + (xs * x).sum(0) + ys.sum()
        batches += 1
    return total, batches


@program(calls=ROWS)
def default_collation(x):
    data = TensorDataset(x, x.sum(1))
    batch = default_collate([data[i] for i in range(2)])
    return batch, default_collate([{"a": 1, "b": x[0]}, {"a": 2, "b": x[1]}])


def split_indices(n, fractions, seed):
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator)
    ends = [0]
    for f in fractions:
        ends.append(ends[-1] + int(f * n))
    return [order[a:b] for a, b in zip(ends, ends[1:])]


@program(
    calls=[
        lambda: (values(10, 2), (0.5, 0.5)),
        lambda: (values(7, 2), (0.4, 0.3)),
        lambda: (values(10, 2), (0.8, 0.1, 0.1)),
    ]
)
def split_at_random(x, fractions):
    return [x[i].mean(0) for i in split_indices(len(x), fractions, 3)]


@program(
    calls=[
        lambda: (values(4), integers(4, high=2)),
        lambda: (values(6, seed=1), integers(6, high=2, seed=1)),
        lambda: (values(3), integers(3, high=2)),
    ]
)
def area_under_the_curve(score, label):
    order = score.argsort(descending=True)
    hits = label[order]
    tps = hits.cumsum(0)
    fps = (1 - hits).cumsum(0)
    tpr = tps / tps[-1].clamp(min=1)
    fpr = fps / fps[-1].clamp(min=1)
    precision = tps / (tps + fps)
    return torch.trapezoid(tpr, fpr), (precision * hits).sum() / hits.sum().clamp(min=1)


@program(
    calls=[
        lambda: (values(4, 5), integers(4, high=5)),
        lambda: (values(3, 6), integers(3, high=6)),
        lambda: (values(4, 3), integers(4, high=3)),
    ]
)
def accuracy_at_several(logits, label, topk=(1, 3)):
    places = logits.topk(max(topk), 1)[1].t()
    right = places.eq(label.view(1, -1).expand_as(places))
    return {f"top{k}": right[:k].reshape(-1).float().sum(0).mul(100 / len(label)) for k in topk}


@dataclasses.dataclass
class Running:
    """Welford's mean and variance."""

    count: int = 0
    mean: torch.Tensor | float = 0.0
    m2: torch.Tensor | float = 0.0

    def __iadd__(self, batch):
        for row in batch:
            self.count += 1
            delta = row - self.mean
            self.mean = self.mean + delta / self.count
            self.m2 = self.m2 + delta * (row - self.mean)
        return self

    @property
    def std(self):
        return (self.m2 / max(self.count - 1, 1)) ** 0.5


RUNNING = Running()


@program(calls=ROWS)
def statistics_running(x):
    global RUNNING
    RUNNING += x
    return (x - RUNNING.mean) / (RUNNING.std + 1e-6), RUNNING.count


class Scaler(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("low", None)
        self.register_buffer("high", None)

    def fit(self, x):
        low, high = x.amin(0), x.amax(0)
        if self.low is None:
            self.low, self.high = low, high
        else:
            torch.minimum(self.low, low, out=self.low)
            torch.maximum(self.high, high, out=self.high)
        return self

    def forward(self, x):
        return (x - self.low) / (self.high - self.low).clamp(min=1e-6)


SCALER = Scaler()


@program(calls=ROWS)
def scaler_fitted(x):
    return SCALER.fit(x)(x), sorted(SCALER.state_dict())


@program(calls=[lambda: (values(12), 3), lambda: (values(9), 4), lambda: (values(12), 5)])
def batched_with_a_rest(x, size):
    whole, rest = divmod(len(x), size)
    batches = x[: whole * size].view(whole, size)
    return batches.mean(1), x[whole * size :], rest, math.ceil(len(x) / size), [len(c) for c in x.split(size)]


@program(
    calls=[
        lambda: (integers(2, 6, high=9) + 1, 0.5),
        lambda: (integers(1, 8, high=9) + 1, 0.2),
        lambda: (integers(2, 6, high=9) + 1, 1.0),
    ]
)
def tokens_masked(ids, p):
    labels = ids.clone()
    chosen = torch.bernoulli(torch.full(labels.shape, p)).bool()
    labels[~chosen] = -100
    replaced = torch.bernoulli(torch.full(labels.shape, 0.8)).bool() & chosen
    ids[replaced] = 0
    random_words = torch.randint(10, labels.shape)
    swapped = torch.bernoulli(torch.full(labels.shape, 0.5)).bool() & chosen & ~replaced
    ids[swapped] = random_words[swapped]
    return ids, labels


@program(calls=[lambda: ([3, 2],), lambda: ([1, 4, 2],), lambda: ([5],)])
def documents_in_one_row(lengths):
    segment = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    position = torch.cat([torch.arange(n) for n in lengths])
    same = segment[:, None] == segment[None, :]
    ends = F.pad(torch.tensor(lengths).cumsum(0), (1, 0))
    return same & (position[:, None] >= position), ends, (same.float() / same.sum(1)).sum()


@program(calls=[lambda: (values(6), [2, 4]), lambda: (values(6), [1, 1, 4]), lambda: (values(8, seed=1), [8])])
def split_by_sizes(x, sizes):
    parts = torch.split(x, sizes)
    return (
        torch.stack([p.mean() for p in parts]),
        torch.cat([p.softmax(0) for p in parts]),
        torch.tensor_split(x, [1, 3]),
    )


@functools.singledispatch
def to_device(batch, device):
    return batch


@to_device.register
def _(batch: torch.Tensor, device):
    return batch.to(device, non_blocking=True)


@to_device.register
def _(batch: dict, device):
    return {k: to_device(v, device) for k, v in batch.items()}


@to_device.register(list)
@to_device.register(tuple)
def _(batch, device):
    return type(batch)(to_device(v, device) for v in batch)


@program(
    calls=[lambda: ({"x": values(2), "meta": ("a", [values(1)])},), lambda: ([values(2), 3],), lambda: (values(2),)]
)
def moved_to_a_device(batch):
    return to_device(batch, torch.device("cpu"))


@program(
    calls=[
        lambda: (values(4, 2), integers(4, high=3)),
        lambda: (values(6, 2), integers(6, high=3)),
        lambda: (values(4, 2), integers(4, high=1)),
    ]
)
def weights_of_classes(x, y):
    counts = torch.bincount(y, minlength=3).float()
    weight = torch.where(counts > 0, counts.sum() / (3 * counts.clamp(min=1)), 0.0)
    per_class = torch.zeros(3, 2).index_add_(0, y, x) / counts.clamp(min=1)[:, None]
    return weight[y], per_class, F.one_hot(y, 3).float().mean(0)


@program(
    calls=[
        lambda: (values(5, 2), integers(5, high=2).bool()),
        lambda: (values(3, 2), torch.tensor([True, True, False])),
        lambda: (values(4, 2), torch.zeros(4, dtype=torch.bool)),
    ]
)
def valid_rows_only(x, valid):
    kept = x[valid]
    if kept.shape[0] == 0:
        return x.sum() * 0
    return kept.mean(0), valid.nonzero().squeeze(1), x.masked_select(valid[:, None])


@program(
    calls=[
        lambda: (values(3, 4), "a,b"),
        lambda: (values(3, 4), "b"),
        lambda: (values(3, 4), "c,a"),
        lambda: (values(3, 4), "z"),
    ]
)
def columns_by_name(x, names):
    columns = {name: i for i, name in enumerate("abcd")}
    try:
        picked = [columns[name] for name in names.split(",")]
    except KeyError as error:
        raise LookupError(f"no column {error}") from None
    return x[:, picked], {n: x[:, columns[n]].mean() for n in names.split(",")}
