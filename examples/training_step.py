"""A whole training step as one graph: forward and backward pass, clipping and the update."""

import copy

import torch

import lampwork

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 10))
batches = [(torch.randn(16, 32), torch.randint(0, 10, (16,))) for _ in range(20)]


def make_step(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)

    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step, scheduler


def train(step, scheduler):
    losses = []
    for x, y in batches:
        losses.append(step(x, y))
        scheduler.step()  # outside: the learning rate is an input of the graph, nothing is compiled anew
    return torch.stack(losses)


other = copy.deepcopy(model)
eager, scheduler = make_step(model)
expected = train(eager, scheduler)

step, scheduler = make_step(other)
step = lampwork.compile(step, fullgraph=True)
found = train(step, scheduler)

stats = lampwork.stats(step)
print(f"losses: from {found[0]:.3f} to {found[-1]:.3f}; eager's last one is {expected[-1]:.3f}")
torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
print(f"{stats['calls']} steps, {stats['captures']} capture, {stats['launches']} kernel launches in a step,", end=" ")
print(f"{len(stats['fallbacks'])} fall-backs")
