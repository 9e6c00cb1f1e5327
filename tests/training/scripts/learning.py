"""Ways of learning: by reinforcement, from a teacher, from a few examples, from several tasks at once."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.training.scripts.support import mlp, script, state


@script
def dqn(compile):
    """A target network that is copied now and then; a buffer of transitions; a soft loss."""
    online, target = mlp(4, 24, 3, activation=nn.ReLU), mlp(4, 24, 3, activation=nn.ReLU)
    target.load_state_dict(online.state_dict())
    act, judge = compile(online), compile(target)
    optimizer = torch.optim.RMSprop(online.parameters(), lr=1e-3, alpha=0.95, centered=True)
    seen = torch.randn(64, 4)
    losses, chosen = [], []
    for step in range(8):
        index = torch.randint(0, 63, (16,))
        here, there = seen[index], seen[index + 1]
        action, reward, over = torch.randint(0, 3, (16,)), torch.randn(16), torch.rand(16) < 0.1
        with torch.no_grad():
            best = act(there).argmax(1, keepdim=True)
            wanted = reward + 0.9 * judge(there).gather(1, best).squeeze(1) * ~over
        loss = F.smooth_l1_loss(act(here).gather(1, action[:, None]).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(online.parameters(), 0.5)
        optimizer.step()
        if step % 3 == 2:
            target.load_state_dict(online.state_dict())
        losses.append(loss.item())
        with torch.no_grad():
            chosen.append(int(act(seen[step][None]).argmax()))
    return {"losses": losses, "chosen": chosen, "state": state(online, target)}


@script
def ppo(compile):
    """Several epochs over one rollout in shuffled mini-batches, clipped ratios, entropy, a stop when too far."""

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic = mlp(4, 16, 2, activation=nn.Tanh), mlp(4, 16, 1, activation=nn.Tanh)
            self.spread = nn.Parameter(torch.zeros(2))

        def forward(self, x, action):
            policy = torch.distributions.Normal(self.actor(x), self.spread.exp())
            return policy.log_prob(action).sum(-1), policy.entropy().sum(-1), self.critic(x).squeeze(-1)

    model = Agent()
    fast, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
    x, reward = torch.randn(32, 4), torch.randn(32)
    losses, stopped = [], None
    with torch.no_grad():
        action = model.actor(x) + torch.randn(32, 2)
        before, _, value = fast(x, action)
    advantage = torch.zeros(32)
    later = torch.zeros(())
    for t in reversed(range(31)):
        later = reward[t] + 0.99 * value[t + 1] - value[t] + 0.99 * 0.95 * later
        advantage[t] = later
    wanted = advantage + value
    for epoch in range(4):
        for index in torch.randperm(32).split(8):
            now, entropy, guess = fast(x[index], action[index])
            ratio = (now - before[index]).exp()
            a = advantage[index]
            a = (a - a.mean()) / (a.std() + 1e-8)
            gain = torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            loss = -gain + 0.5 * (guess - wanted[index]).square().mean() - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
        if (before[index] - now).mean().item() > 0.5:
            stopped = epoch
            break
    return {"losses": losses, "stopped": stopped, "state": state(model)}


@script
def actor_critic(compile):
    """Actions are drawn in the loop, a return is discounted backwards over a list of compiled results."""
    model = mlp(4, 16, 4, activation=nn.ReLU)
    fast, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        place, scores, values, rewards = torch.randn(4), [], [], []
        for _ in range(5):
            *logits, value = fast(place).unbind()
            policy = torch.distributions.Categorical(logits=torch.stack(logits))
            action = policy.sample()
            scores.append(policy.log_prob(action))
            values.append(value)
            place = torch.tanh(place + action - 1)
            rewards.append(place.sum().item())
        total, losses_here = 0.0, []
        for score, value, reward in zip(reversed(scores), reversed(values), reversed(rewards)):
            total = reward + 0.9 * total
            losses_here.append(-score * (total - value.item()) + F.smooth_l1_loss(value, torch.tensor(total)))
        loss = torch.stack(losses_here).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def distillation(compile):
    """A teacher in eval mode, a student, two losses and a temperature; features are matched by a hook."""
    teacher = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5)).eval()
    student = mlp(10, 12, 5, activation=nn.ReLU)
    bridge = nn.Linear(12, 32)
    features = {}
    student[1].register_forward_hook(lambda module, args, output: features.update(student=output))
    teacher[2].register_forward_hook(lambda module, args, output: features.update(teacher=output))
    small, large = compile(student), compile(teacher)
    optimizer = torch.optim.SGD([*student.parameters(), *bridge.parameters()], lr=0.05, momentum=0.9)
    losses = []
    for _ in range(5):
        x, y = torch.randn(8, 10), torch.randint(0, 5, (8,))
        with torch.no_grad():
            soft = large(x)
        logits = small(x)
        close = F.kl_div(F.log_softmax(logits / 3, -1), F.softmax(soft / 3, -1), reduction="batchmean") * 9
        alike = F.mse_loss(bridge(features["student"]), features["teacher"])
        loss = 0.7 * close + 0.3 * F.cross_entropy(logits, y) + 0.1 * alike
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(student, bridge, teacher)}


@script
def maml(compile):
    """An inner step whose gradient is kept, taken on copies of the parameters."""
    model = mlp(1, 12, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    @compile
    def task_loss(x, y, new_x, new_y):
        weights = dict(model.named_parameters())
        loss = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
        found = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        adapted = {name: value - 0.1 * g for (name, value), g in zip(weights.items(), found)}
        return F.mse_loss(torch.func.functional_call(model, adapted, (new_x,)), new_y)

    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = 0.0
        for _ in range(2):
            phase, x, new_x = torch.rand(1), torch.randn(6, 1), torch.randn(6, 1)
            loss = loss + task_loss(x, torch.sin(x + phase), new_x, torch.sin(new_x + phase))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def reptile(compile):
    """The inner loop trains a copy of the compiled model, the outer one moves towards it."""
    model = mlp(2, 8, 1)
    losses = []
    for _ in range(3):
        fast = compile(copy.deepcopy(model))
        optimizer = torch.optim.SGD(fast.parameters(), lr=0.05)
        for _ in range(3):
            x = torch.randn(8, 2)
            loss = F.l1_loss(fast(x), x.prod(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for slow, new in zip(model.parameters(), fast.parameters()):
                slow += 0.3 * (new - slow)
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def several_tasks(compile):
    """A trunk and heads, each task in turn; weights of the losses are learned; some parameters get no gradient."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = mlp(8, 16, 16)
            self.heads = nn.ModuleDict({"class": nn.Linear(16, 3), "value": nn.Linear(16, 1), "rank": nn.Linear(16, 1)})
            self.doubts = nn.ParameterDict({name: nn.Parameter(torch.zeros(())) for name in self.heads})

        def forward(self, x, tasks):
            h = self.trunk(x)
            return {name: (self.heads[name](h), self.doubts[name]) for name in tasks}

    model = Model()
    fast, optimizer = compile(model), torch.optim.NAdam(model.parameters(), lr=5e-3)
    losses = []
    for tasks in (
        ("class",),
        ("class", "value"),
        ("class", "value", "rank"),
        ("value",),
        ("rank", "class"),
        ("value",),
    ):
        x = torch.randn(6, 8)
        losses_of = {
            "class": lambda out, x: F.cross_entropy(out, (x.sum(1) > 0).long()),
            "value": lambda out, x: F.huber_loss(out.squeeze(1), x[:, 0]),
            "rank": lambda out, x: F.margin_ranking_loss(out[:3, 0], out[3:, 0], torch.ones(3), margin=0.5),
        }
        loss = sum((-d).exp() * losses_of[name](out, x) + d for name, (out, d) in fast(x, tasks).items())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def graph_network(compile):
    """Messages are gathered along edges and added up at nodes; graphs have different sizes."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.update = mlp(16, 16, 8, activation=nn.ReLU), nn.GRUCell(8, 8)

        def forward(self, h, edges):
            source, target = edges
            sent = self.message(torch.cat([h[source], h[target]], -1))
            total = torch.zeros_like(h).index_add_(0, target, sent)
            count = h.new_zeros(h.shape[0]).scatter_add_(0, target, torch.ones_like(target, dtype=h.dtype))
            return self.update(total / count.clamp(min=1)[:, None], h)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layers = nn.Embedding(5, 8), nn.ModuleList([Layer(), Layer()])
            self.head = nn.Linear(16, 2)

        def forward(self, kinds, edges, owner, count: int):
            h = self.embed(kinds)
            for layer in self.layers:
                h = layer(h, edges)
            whole = torch.zeros(count, 8, dtype=h.dtype).index_add(0, owner, h)
            index = owner[:, None].expand(-1, 8)
            most = torch.zeros(count, 8, dtype=h.dtype).scatter_reduce(0, index, h, "amax", include_self=False)
            return self.head(torch.cat([whole, most], -1))

    model = Model()
    fast, optimizer = compile(model), torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for nodes, edges in [(9, 20), (12, 24), (7, 15), (12, 30)]:
        owner = torch.arange(nodes) % 3
        logits = fast(torch.randint(0, 5, (nodes,)), torch.randint(0, nodes, (2, edges)), owner, 3)
        loss = F.cross_entropy(logits, torch.randint(0, 2, (3,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def mean_teacher(compile):
    """A teacher that averages the student, buffers included, and two views of one batch."""
    student = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                            nn.Linear(6, 4))  # fmt: skip
    teacher = copy.deepcopy(student).requires_grad_(False)
    fast, slow = compile(student), compile(teacher)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, weight_decay=1e-3)
    losses = []
    for step in range(5):
        x = torch.randn(6, 1, 7, 7)
        one, other = fast(x + 0.1 * torch.randn_like(x)), slow(x + 0.1 * torch.randn_like(x))
        loss = F.mse_loss(one.softmax(-1), other.softmax(-1)) * 10 + F.cross_entropy(one[:2], torch.tensor([1, 3]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay = min(0.99, (step + 1) / (step + 5))
        with torch.no_grad():
            for mine, new in zip(teacher.state_dict().values(), student.state_dict().values()):
                mine.copy_(decay * mine + (1 - decay) * new if mine.is_floating_point() else new)
        losses.append(loss.item())
    return {"losses": losses, "state": state(student, teacher)}


@script
def siamese(compile):
    """One model on three inputs of a triplet, and centres of classes that are learned by an optimizer of their own."""
    model = nn.Sequential(nn.Linear(8, 16), nn.PReLU(), nn.Linear(16, 4))
    centres = nn.Parameter(torch.randn(3, 4))
    fast = compile(model)
    optimizer, other = torch.optim.Adam(model.parameters(), lr=1e-2), torch.optim.SGD([centres], lr=0.5)
    losses = []
    for _ in range(5):
        anchor, same, different = (fast(torch.randn(6, 8)) for _ in range(3))
        label = torch.randint(0, 3, (6,))
        loss = F.triplet_margin_loss(anchor, same, different) + 0.1 * (anchor - centres[label]).square().sum(1).mean()
        optimizer.zero_grad()
        other.zero_grad()
        loss.backward()
        optimizer.step()
        centres.grad.mul_(10)
        other.step()
        losses.append(loss.item())
    return {"losses": losses, "state": [*state(model), centres.detach().clone()]}
