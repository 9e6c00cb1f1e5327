"""Models of sequences: translation, language models, adapters, labels of tokens."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.training.scripts.support import mlp, script, state


class Decoder(nn.Module):
    """A small causal transformer, with checkpoints if asked."""

    def __init__(self, vocabulary=31, width=16, depth=2, checkpoints=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(24, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.checkpoints = checkpoints

    def forward(self, ids):
        h = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=h.dtype)
        for block in self.blocks:
            if self.checkpoints and self.training:
                h = checkpoint(block, h, mask, use_reentrant=False)
            else:
                h = block(h, mask)
        return self.head(self.norm(h))


def next_token_loss(logits, ids):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


@script
def language_model(compile):
    """Groups with and without weight decay, warm-up and cosine, clipping, accumulation over micro-batches."""
    model = Decoder()
    fast = compile(model)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5),
        ],
        milestones=[3],
    )
    losses, norms = [], []
    for _ in range(6):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(3):
            ids = torch.randint(0, 31, (2, 12))
            loss = next_token_loss(fast(ids), ids) / 3
            loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return {"losses": losses, "norms": norms, "state": state(model)}


@script
def checkpointed(compile):
    model = Decoder(checkpoints=True)
    fast, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    losses = []
    for _ in range(4):
        ids = torch.randint(0, 31, (2, 10))
        loss = next_token_loss(fast(ids), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def curriculum(compile):
    """Lengths and batches grow."""
    model = Decoder()
    fast, optimizer = compile(model), torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for length, batch in [(6, 4), (6, 4), (8, 4), (8, 2), (12, 2), (16, 3), (20, 2), (9, 5)]:
        ids = torch.randint(0, 31, (batch, length))
        loss = next_token_loss(fast(ids), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def seq2seq(compile):
    """Recurrent encoder and decoder with attention; the teacher is listened to in some steps."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(20, 12), nn.Embedding(20, 12)
            self.encoder = nn.GRU(12, 16, batch_first=True)
            self.cell, self.head = nn.GRUCell(12 + 16, 16), nn.Linear(16, 20)

        def forward(self, source, target, forced: bool):
            memory, last = self.encoder(self.source(source))
            h, word, logits = last[0], target[:, 0], []
            for place in range(1, target.shape[1]):
                weights = (memory @ h[:, :, None]).softmax(1)
                h = self.cell(torch.cat([self.target(word), (memory * weights).sum(1)], -1), h)
                logits.append(self.head(h))
                word = target[:, place] if forced else logits[-1].argmax(-1)
            return torch.stack(logits, 1)

    model = Model()
    fast, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for forced in (True, False, True, True, False):
        source, target = torch.randint(0, 20, (3, 7)), torch.randint(0, 20, (3, 5))
        loss = F.cross_entropy(fast(source, target, forced).transpose(1, 2), target[:, 1:], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def packed_lstm(compile):
    """Sentences of different lengths, padded; the label is read where each ends."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8, padding_idx=0)
            self.lstm, self.head = nn.LSTM(8, 12, bidirectional=True, batch_first=True), nn.Linear(24, 3)

        def forward(self, ids, lengths):
            h, _ = self.lstm(self.embed(ids))
            return self.head(h[torch.arange(ids.shape[0]), lengths - 1])

    model = Model()
    fast, optimizer = compile(model), torch.optim.Adagrad(model.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        lengths = torch.randint(2, 9, (6,))
        ids = torch.randint(1, 20, (6, 8)) * (torch.arange(8) < lengths[:, None])
        loss = F.cross_entropy(fast(ids, lengths), torch.randint(0, 3, (6,)), weight=torch.tensor([1.0, 2.0, 0.5]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


class Adapted(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.down), self.up) * 2.0


@script
def lora(compile):
    """A frozen base with low-rank additions, which are merged into it at the end."""
    model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.Linear(16, 20))
    model.requires_grad_(False)
    for index in (1, 3):
        model[index] = Adapted(model[index])
    fast = compile(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(5):
        ids = torch.randint(0, 20, (4, 6))
        loss = F.cross_entropy(fast(ids).flatten(0, 1), ids.roll(1, 1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for index in (1, 3):
        adapted = model[index]
        with torch.no_grad():
            adapted.base.weight += 2.0 * adapted.up @ adapted.down
        model[index] = adapted.base
    with torch.no_grad():
        merged = fast(torch.arange(20)[None])
    return {"losses": losses, "state": state(model), "merged": merged}


@script
def token_labels(compile):
    """The loss is of the labelled tokens alone: picked by a mask, and by an index to ignore."""
    model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 5))
    head = compile(model)

    @compile
    def loss_of(ids, labels):
        logits = model(ids)
        picked = labels != -100
        return F.cross_entropy(logits[picked], labels[picked])

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        ids, labels = torch.randint(0, 20, (3, 8)), torch.randint(0, 5, (3, 8))
        labels[torch.rand(3, 8) < 0.4] = -100
        loss = loss_of(ids, labels) + F.cross_entropy(head(ids).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def preferences(compile):
    """DPO: the log-probabilities of two answers under a policy and a frozen copy."""
    policy = Decoder()
    reference = copy.deepcopy(policy).requires_grad_(False).eval()
    fast, slow = compile(policy), compile(reference)

    def score(model, ids):
        logits = model(ids)[:, :-1].log_softmax(-1)
        return logits.gather(-1, ids[:, 1:, None]).squeeze(-1)[:, 4:].sum(-1)

    optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        good, bad = torch.randint(0, 31, (2, 10)), torch.randint(0, 31, (2, 10))
        with torch.no_grad():
            before = score(slow, good) - score(slow, bad)
        loss = -F.logsigmoid(0.5 * (score(fast, good) - score(fast, bad) - before)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(policy)}


@script
def contrastive(compile):
    """Two towers, a temperature that is learned and clamped."""

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.images, self.texts = mlp(12, 24, 8), nn.Sequential(nn.EmbeddingBag(20, 16), nn.Linear(16, 8))
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, images, texts):
            one, other = F.normalize(self.images(images), dim=-1), F.normalize(self.texts(texts), dim=-1)
            return self.scale.exp() * one @ other.t()

    model = Towers()
    fast, optimizer = compile(model), torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        logits = fast(torch.randn(6, 12), torch.randint(0, 20, (6, 5)))
        pairs = torch.arange(6)
        loss = (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.t(), pairs)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.scale.clamp_(0, 2.01)
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}
