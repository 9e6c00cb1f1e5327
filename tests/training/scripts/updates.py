"""Whole steps as users write them where the update is more than a loss and an optimizer."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.training.scripts.support import mlp, script, state


@script
def policy_gradient(compile):
    """Rewards are floats of Python, discounted in the step; frozen features are thawed by `requires_grad`."""
    features, policy = mlp(4, 12, 6), mlp(6, 3)
    optimizer = torch.optim.Adam([*features.parameters(), *policy.parameters()], lr=1e-2)

    @compile
    def step(x, action, rewards, frozen: bool):
        for parameter in features.parameters():
            parameter.requires_grad = not frozen
        later, returns = 0.0, []
        for reward in reversed(rewards):
            later = reward + 0.95 * later
            returns.insert(0, later)
        wanted = torch.tensor(returns)
        wanted = (wanted - wanted.mean()) / (wanted.std() + 1e-5)
        score = policy(features(x)).log_softmax(-1).gather(1, action[:, None]).squeeze(1)
        loss = -(score * wanted).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for number in range(8):
        x, action, rewards = torch.randn(6, 4), torch.randint(0, 3, (6,)), torch.randn(6).tolist()
        losses.append(step(x, action, rewards, number % 4 == 1).item())
    return {"losses": losses, "state": state(features, policy)}


@script
def twin_critics(compile):
    """SAC: critics that are frozen while the policy learns through them, a temperature that is learned, soft copies."""
    policy, critics = mlp(4, 16, 4), nn.ModuleList([mlp(6, 16, 1), mlp(6, 16, 1)])
    targets = copy.deepcopy(critics)
    temperature = nn.Parameter(torch.zeros(1))
    optimizers = [
        torch.optim.Adam(each, lr=1e-2, eps=1e-3) for each in (critics.parameters(), policy.parameters(), [temperature])
    ]

    def act(x, noise):
        mean, spread = policy(x).chunk(2, -1)
        normal = torch.distributions.Normal(mean, spread.clamp(-5, 2).exp(), validate_args=False)
        raw = mean + normal.scale * noise
        action = raw.tanh()
        return action, (normal.log_prob(raw) - (1 - action.square() + 1e-6).log()).sum(1, keepdim=True)

    def least(models, x, action):
        return torch.min(*[model(torch.cat([x, action], 1)) for model in models])

    @compile
    def step(x, action, reward, there, noise):
        with torch.no_grad():
            chosen, score = act(there, noise[0])
            wanted = reward + 0.9 * (least(targets, there, chosen) - temperature.exp() * score)
        judged = sum(F.mse_loss(model(torch.cat([x, action], 1)), wanted) for model in critics)
        optimizers[0].zero_grad()
        judged.backward()
        optimizers[0].step()
        critics.requires_grad_(False)
        chosen, score = act(x, noise[1])
        gained = (temperature.exp().detach() * score - least(critics, x, chosen)).mean()
        optimizers[1].zero_grad()
        gained.backward()
        optimizers[1].step()
        critics.requires_grad_(True)
        warmed = -(temperature * (score.detach() - 2)).mean()
        optimizers[2].zero_grad()
        warmed.backward()
        optimizers[2].step()
        with torch.no_grad():
            for mine, new in zip(targets.parameters(), critics.parameters()):
                mine.data.mul_(0.95)
                mine.data.add_(0.05 * new.data)
        return judged.detach(), gained.detach(), warmed.detach()

    losses = []
    for _ in range(6):
        x, action, reward, there = (torch.randn(8, width) for width in (4, 2, 1, 4))
        losses += [each.item() for each in step(x, action, reward, there, torch.randn(2, 8, 2))]
    return {"losses": losses, "state": [*state(policy, critics, targets), temperature.detach().clone()]}


@script
def momentum_queue(compile):
    """MoCo: keys of earlier batches in a buffer, read as a copy and then written where a counter says."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = mlp(12, 16, 6)
            self.key = copy.deepcopy(self.query).requires_grad_(False)
            self.register_buffer("queue", F.normalize(torch.randn(6, 12), dim=0))
            self.register_buffer("place", torch.zeros(1, dtype=torch.long))

        def forward(self, one, other):
            query = F.normalize(self.query(one), dim=1)
            with torch.no_grad():
                for slow, new in zip(self.key.parameters(), self.query.parameters()):
                    slow.data = slow.data * 0.9 + new.data * 0.1
                key = F.normalize(self.key(other), dim=1)
            same = torch.einsum("nc,nc->n", query, key)[:, None]
            others = torch.einsum("nc,ck->nk", query, self.queue.clone().detach())
            with torch.no_grad():
                place = int(self.place)
                self.queue[:, place : place + len(key)] = key.T
                self.place[0] = (place + len(key)) % 12
            return torch.cat([same, others], 1) / 0.2

    model = Model()
    fast, optimizer = compile(model), torch.optim.SGD(model.query.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(7):
        loss = F.cross_entropy(fast(torch.randn(4, 12), torch.randn(4, 12)), torch.zeros(4, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def heat_equation(compile):
    """A network that solves an equation: first and second derivatives by its inputs are part of the loss."""
    model = mlp(2, 16, 16, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-3)

    @compile
    def step(x, t, start):
        x, t = x.clone().requires_grad_(), t.clone().requires_grad_()
        u = model(torch.cat([x, t], 1))
        by_t = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
        by_x = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
        twice = torch.autograd.grad(by_x.sum(), x, create_graph=True)[0]
        first = model(torch.cat([start, torch.zeros_like(start)], 1)) - start.sin()
        loss = (by_t + u * by_x - 0.1 * twice).square().mean() + first.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(torch.randn(12, 1), torch.rand(12, 1), torch.randn(5, 1)).item() for _ in range(6)]
    return {"losses": losses, "state": state(model)}


@script
def curvature(compile):
    """Products of the Hessian with random signs estimate its diagonal, which the update is divided by."""
    model = mlp(4, 8, 1, activation=nn.Softplus)
    parameters = list(model.parameters())
    diagonal = [torch.zeros_like(each) for each in parameters]

    @compile
    def step(x):
        loss = (model(x).squeeze(-1) - x.sum(1)).square().mean()
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        signs = [torch.randint(0, 2, each.shape).to(each.dtype) * 2 - 1 for each in parameters]
        products = torch.autograd.grad(gradients, parameters, grad_outputs=signs)
        with torch.no_grad():
            for each, gradient, sign, product, mean in zip(parameters, gradients, signs, products, diagonal):
                mean.mul_(0.9).add_(sign * product, alpha=0.1)
                each.addcdiv_(gradient, mean.abs().clamp_(min=0.1), value=-0.01)
        return loss.detach()

    losses = [step(torch.randn(6, 4)).item() for _ in range(6)]
    return {"losses": losses, "state": [*state(model), *diagonal]}


@script
def private(compile):
    """Gradients of each row by `vmap`, clipped one by one before they are added up."""
    model = mlp(6, 12, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        def loss_of(parameters, row, label):
            return F.cross_entropy(torch.func.functional_call(model, parameters, (row[None],)), label[None])

        parameters = {name: each.detach() for name, each in model.named_parameters()}
        rows = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
        norms = torch.stack([each.flatten(1).norm(dim=1) for each in rows.values()], 1).norm(dim=1)
        share = (1 / (norms + 1e-6)).clamp(max=1.0)
        for name, each in model.named_parameters():
            each.grad = torch.einsum("i,i...->...", share, rows[name]) / len(x)
        optimizer.step()
        return norms

    norms = [step(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(5)]
    return {"norms": norms, "state": state(model)}
