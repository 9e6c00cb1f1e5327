"""Training as users write it: steps with state between calls, optimizers by hand, clipping, averages, penalties, meters."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections import defaultdict, deque

import torch
import torch.nn.functional as F
from torch import nn

from tests.python.harness import program
from tests.python.tensors import integers, seeded, values


def _batch(count=4, seed=0):
    return values(count, 6, seed=seed), integers(count, high=3, seed=seed)


BATCHES = [lambda: _batch(), lambda: _batch(6, 1), lambda: _batch(3, 2)]


def _network():
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))


# Steps with a model of the module ------------------------------------------------------------------------------------

STEPPED = _network()
STEPPED_OPTIMIZER = torch.optim.SGD(STEPPED.parameters(), lr=0.1, momentum=0.9, nesterov=True)


@program(calls=BATCHES, grad=True)
def step_of_a_global_model(x, y):
    STEPPED_OPTIMIZER.zero_grad()
    loss = F.cross_entropy(STEPPED(x), y)
    loss.backward()
    STEPPED_OPTIMIZER.step()
    return loss.detach()


ACCUMULATED = _network()
PENDING = {"count": 0, "every": 2}


@program(calls=BATCHES, grad=True)
def gradients_accumulated_over_calls(x, y):
    loss = F.cross_entropy(ACCUMULATED(x), y) / PENDING["every"]
    loss.backward()
    PENDING["count"] += 1
    stepped = False
    if PENDING["count"] % PENDING["every"] == 0:
        with torch.no_grad():
            for p in ACCUMULATED.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        stepped = True
    return loss.detach(), stepped


CLIPPED = _network()


@program(calls=BATCHES, grad=True)
def clipped_by_hand(x, y):
    params = [p for p in CLIPPED.parameters() if p.requires_grad]
    grads = torch.autograd.grad(F.cross_entropy(CLIPPED(x), y), params)
    total = torch.sqrt(sum(g.pow(2).sum() for g in grads))
    scale = (0.5 / (total + 1e-6)).clamp(max=1.0)
    with torch.no_grad():
        for p, g in zip(params, grads):
            p.sub_(scale * g, alpha=0.2)
    return total


VALUE_CLIPPED = _network()


@program(calls=BATCHES, grad=True)
def clipped_by_value_and_norm(x, y):
    VALUE_CLIPPED.zero_grad(set_to_none=False)
    F.cross_entropy(VALUE_CLIPPED(x), y).backward()
    nn.utils.clip_grad_value_(VALUE_CLIPPED.parameters(), 0.05)
    norm = nn.utils.clip_grad_norm_(VALUE_CLIPPED.parameters(), 0.01, norm_type=float("inf"))
    return norm, [p.grad.abs().max() for p in VALUE_CLIPPED.parameters()]


class Averager:
    """An exponential moving average of a model, with the usual warm-up."""

    def __init__(self, model, decay=0.99):
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for kept, new in zip(self.shadow.parameters(), model.parameters()):
            kept.lerp_(new, 1 - decay)
        for kept, new in zip(self.shadow.buffers(), model.buffers()):
            kept.copy_(new)
        return decay


AVERAGED = _network()
AVERAGER = Averager(AVERAGED)


@program(calls=BATCHES, grad=True)
def average_with_warm_up(x, y):
    loss = F.cross_entropy(AVERAGED(x), y)
    AVERAGED.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in AVERAGED.parameters():
            p.add_(p.grad, alpha=-0.1)
    return AVERAGER.update(AVERAGED), AVERAGER.shadow(x).argmax(1)


CRITIC = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1)))


@program(calls=BATCHES, grad=True)
def penalty_of_the_critic(x, y):
    CRITIC.zero_grad()
    fake = torch.roll(x, 1, 0) + 0.1
    mix = torch.linspace(0, 1, len(x))[:, None]
    between = (mix * x + (1 - mix) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(CRITIC(between).sum(), between, create_graph=True)
    penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
    loss = CRITIC(fake).mean() - CRITIC(x).mean() + 10 * penalty
    loss.backward()
    return loss.detach(), penalty.detach(), [p.grad.clone() for p in CRITIC.parameters() if p.grad is not None]


R1 = seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.Softplus(), nn.Linear(4, 1)))


@program(calls=BATCHES, grad=True)
def penalty_every_second_step(x, y, *, every=2, state={"step": 0}):
    loss = F.softplus(-R1(x)).mean()
    if state["step"] % every == 0:
        real = x.detach().requires_grad_(True)
        grads = torch.autograd.grad(outputs=R1(real).sum(), inputs=real, create_graph=True, retain_graph=True)[0]
        loss = loss + 0.5 * grads.square().sum(1).mean()
    state["step"] += 1
    return torch.autograd.grad(loss, list(R1.parameters()))


# Optimizers written by hand ------------------------------------------------------------------------------------------


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                average = state["exp_avg"]
                beta1, beta2 = group["betas"]
                p.add_((average * beta1 + p.grad * (1 - beta1)).sign(), alpha=-group["lr"])
                average.lerp_(p.grad, 1 - beta2)
        return loss


LION_MODEL = _network()
LION = Lion(LION_MODEL.parameters(), weight_decay=0.1)


@program(calls=BATCHES, grad=True)
def optimizer_of_a_user(x, y):
    LION.zero_grad()
    F.cross_entropy(LION_MODEL(x), y).backward()
    LION.step()
    return len(LION.state)


CLOSURE_MODEL = _network()
CLOSURE_LION = Lion(CLOSURE_MODEL.parameters())


@program(calls=BATCHES, grad=True)
def optimizer_of_a_user_with_a_closure(x, y):
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        CLOSURE_LION.zero_grad()
        loss = F.cross_entropy(CLOSURE_MODEL(x), y)
        loss.backward()
        return loss

    return CLOSURE_LION.step(closure), calls


class AdamByHand:
    def __init__(self, params):
        self.params = list(params)
        self.t = 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]

    def step(self, lr, b1=0.9, b2=0.999, eps=1e-8):
        self.t += 1
        for i, p in enumerate(self.params):
            g = p.grad
            self.m[i] = b1 * self.m[i] + (1 - b1) * g
            self.v[i] = b2 * self.v[i] + (1 - b2) * g * g
            m_hat = self.m[i] / (1 - b1**self.t)
            v_hat = self.v[i] / (1 - b2**self.t)
            p.data = p.data - lr * m_hat / (v_hat.sqrt() + eps)


ADAM_MODEL = _network()
ADAM = AdamByHand(ADAM_MODEL.parameters())


def cosine(step, total=10, base=0.1):
    return 0.5 * base * (1 + math.cos(math.pi * step / total))


@program(calls=BATCHES, grad=True)
def adam_by_hand_with_a_schedule(x, y):
    for p in ADAM.params:
        p.grad = None
    F.cross_entropy(ADAM_MODEL(x), y).backward()
    ADAM.step(lr=cosine(ADAM.t))
    return ADAM.t


GROUPED = _network()
GROUPED_OPTIMIZER = torch.optim.AdamW(
    [
        {"params": [p for n, p in GROUPED.named_parameters() if n.endswith("weight")], "weight_decay": 0.1},
        {"params": [p for n, p in GROUPED.named_parameters() if n.endswith("bias")], "weight_decay": 0.0, "lr": 0.5},
    ],
    lr=0.01,
)


@program(calls=BATCHES, grad=True)
def groups_with_rates_of_their_own(x, y):
    for place, group in enumerate(GROUPED_OPTIMIZER.param_groups):
        group["lr"] = group.get("initial", 0.01) * 0.9 ** (place + 1)
    GROUPED_OPTIMIZER.zero_grad()
    F.cross_entropy(GROUPED(x), y, label_smoothing=0.1).backward()
    GROUPED_OPTIMIZER.step()
    return [group["lr"] for group in GROUPED_OPTIMIZER.param_groups]


SIGN_MODEL = _network()


@program(calls=BATCHES, grad=True)
def updates_by_foreach(x, y):
    params = list(SIGN_MODEL.parameters())
    grads = torch.autograd.grad(F.cross_entropy(SIGN_MODEL(x), y), params)
    with torch.no_grad():
        torch._foreach_add_(params, [g.sign() for g in grads], alpha=-0.01)
        norms = torch._foreach_norm(params)
    return torch.stack(norms)


SHARPNESS = _network()


@program(calls=BATCHES, grad=True)
def sharpness_aware_step(x, y):
    def gradients():
        return torch.autograd.grad(F.cross_entropy(SHARPNESS(x), y), list(SHARPNESS.parameters()))

    first = gradients()
    norm = torch.stack([g.norm() for g in first]).norm() + 1e-12
    steps = [0.05 * g / norm for g in first]
    with torch.no_grad():
        for p, e in zip(SHARPNESS.parameters(), steps):
            p.add_(e)
    second = gradients()
    with torch.no_grad():
        for p, e, g in zip(SHARPNESS.parameters(), steps, second):
            p.sub_(e).sub_(g, alpha=0.1)
    return norm


META = _network()


@program(calls=BATCHES, grad=True)
def inner_and_outer_step(x, y):
    weights = {n: p for n, p in META.named_parameters()}
    inner = F.cross_entropy(torch.func.functional_call(META, weights, (x,)), y)
    grads = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
    fast = {n: w - 0.4 * g for (n, w), g in zip(weights.items(), grads)}
    outer = F.cross_entropy(torch.func.functional_call(META, fast, (x.flip(0),)), y.flip(0))
    META.zero_grad()
    outer.backward()
    return inner.detach(), outer.detach()


LBFGS_MODEL = seeded(lambda: nn.Linear(6, 3)).double()  # it divides by differences of gradients
LBFGS = torch.optim.LBFGS(LBFGS_MODEL.parameters(), lr=0.5, max_iter=3, history_size=2)


@program(calls=BATCHES, grad=True)
def lbfgs_over_calls(x, y):
    def closure():
        LBFGS.zero_grad()
        loss = F.cross_entropy(LBFGS_MODEL(x.double()), y)
        loss.backward()
        return loss

    return LBFGS.step(closure).detach()


# Meters, early stops, trainers ---------------------------------------------------------------------------------------


@dataclasses.dataclass
class Meter:
    name: str
    total: float = 0.0
    count: int = 0
    history: list = dataclasses.field(default_factory=list)

    def update(self, value, n=1):
        self.total += value * n
        self.count += n
        self.history.append(value)

    @property
    def average(self):
        return self.total / max(self.count, 1)

    def __format__(self, spec):
        return f"{self.name}={format(self.average, spec)}"


LOSS_METER = Meter("loss")


@program(calls=BATCHES)
def meter_of_losses(x, y):
    loss = F.cross_entropy(x[:, :3], y)
    LOSS_METER.update(loss.item(), n=len(x))
    return f"{LOSS_METER:.3f}", LOSS_METER.count


CONFUSION = torch.zeros(3, 3, dtype=torch.long)


@program(calls=BATCHES)
def confusion_matrix_filled(x, y):
    predicted = x[:, :3].argmax(1)
    CONFUSION.index_put_((y, predicted), torch.ones_like(y), accumulate=True)
    precision = CONFUSION.diag() / CONFUSION.sum(0).clamp(min=1)
    recall = CONFUSION.diag() / CONFUSION.sum(1).clamp(min=1)
    return precision, recall, 2 * precision * recall / (precision + recall + 1e-9)


@dataclasses.dataclass
class EarlyStop:
    patience: int = 1
    best: float | None = None
    bad: int = 0

    def __call__(self, loss):
        if self.best is None or loss < self.best - 1e-4:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        return self.bad > self.patience


STOP = EarlyStop()


@program(calls=BATCHES)
def early_stop_by_sizes(x, y):
    stop = STOP(x.shape[0] / 10)
    return x * 2, stop, STOP.bad


class Trainer:
    def __init__(self):
        self.model = _network()
        self.callbacks = defaultdict(list)
        self.recent = deque(maxlen=2)
        self.step_number = 0

    def on(self, event):
        def register(function):
            self.callbacks[event].append(function)
            return function

        return register

    def fire(self, event, **facts):
        return [function(self, **facts) for function in self.callbacks.get(event, ())]

    def train_step(self, x, y):
        self.fire("before", step=self.step_number)
        self.model.train()
        loss = F.cross_entropy(self.model(x), y)
        grads = torch.autograd.grad(loss, list(self.model.parameters()))
        for p, g in zip(self.model.parameters(), grads):
            p.data.add_(g, alpha=-0.1)
        self.recent.append(loss.detach())
        self.step_number += 1
        return self.fire("after", loss=loss.detach(), step=self.step_number)


TRAINER = Trainer()


@TRAINER.on("before")
def _announce(trainer, step):
    print("step", step)


@TRAINER.on("after")
def _smooth(trainer, loss, step):
    return torch.stack(list(trainer.recent)).mean(), step


@program(calls=BATCHES, grad=True)
def trainer_with_callbacks(x, y):
    return TRAINER.train_step(x, y)


FROZEN = _network()


@program(calls=BATCHES, grad=True)
def layers_frozen_by_name(x, y):
    for name, p in FROZEN.named_parameters():
        p.requires_grad_(not name.startswith("0."))
    loss = F.cross_entropy(FROZEN(x), y)
    loss.backward()
    return {name: None if p.grad is None else p.grad.sum() for name, p in FROZEN.named_parameters()}


@contextlib.contextmanager
def evaluating(model):
    was = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield model
    finally:
        model.train(was)


EVALUATED = seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.3)))


@program(calls=BATCHES, grad=True)
def evaluated_between_steps(x, y):
    trained = EVALUATED(x)
    with evaluating(EVALUATED) as model:
        out = model(x)
    return trained.shape, out, out.requires_grad, EVALUATED.training


TEACHER, STUDENT = _network().eval().requires_grad_(False), _network()


@program(calls=BATCHES, grad=True)
def distilled(x, y, *, temperature=2.0):
    with torch.no_grad():
        soft = F.softmax(TEACHER(x) / temperature, -1)
    STUDENT.zero_grad()
    logits = STUDENT(x * 1.5)
    kl = F.kl_div(F.log_softmax(logits / temperature, -1), soft, reduction="batchmean") * temperature**2
    loss = 0.7 * kl + 0.3 * F.cross_entropy(logits, y)
    loss.backward()
    return loss, STUDENT[0].weight.grad


MIXED = _network()


@program(calls=BATCHES, grad=True)
def mixed_up_batches(x, y):
    lam = 0.3
    order = torch.randperm(len(x))
    out = MIXED(lam * x + (1 - lam) * x[order])
    loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[order])
    return loss.detach(), torch.autograd.grad(loss, [*MIXED.parameters()])[-1]


HISTORY = {"loss": [], "lr": []}


@program(calls=BATCHES)
def history_written_to_lists(x, y):
    for epoch, chunk in enumerate(x.split(2)):
        HISTORY["loss"].append(chunk.mean())
        HISTORY["lr"].append(0.1 / (1 + epoch))
    return len(HISTORY["loss"]), sum(HISTORY["lr"])


SCALED = _network()


@program(calls=BATCHES, grad=True)
def half_precision_forward_full_backward(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = SCALED(x)
        kind = logits.dtype
    loss = F.cross_entropy(logits.float(), y)
    SCALED.zero_grad()
    loss.backward()
    return kind, loss.dtype, {p.grad.dtype for p in SCALED.parameters()}


CYCLED = {"it": None, "epoch": 0}


@program(calls=BATCHES)
def loader_restarted_when_it_ends(x, y):
    if CYCLED["it"] is None:
        CYCLED["it"] = iter([1.0, 2.0])
    try:
        factor = next(CYCLED["it"])
    except StopIteration:
        CYCLED["epoch"] += 1
        CYCLED["it"] = iter([1.0, 2.0])
        factor = next(CYCLED["it"])
    return x * factor, CYCLED["epoch"]


REPLAY: deque = deque(maxlen=3)


@program(calls=BATCHES)
def replay_buffer_of_batches(x, y):
    REPLAY.append((x.mean(0), y.float().mean()))
    states, rewards = zip(*REPLAY)
    returns = []
    running = torch.zeros(())
    for reward in reversed(rewards):
        running = reward + 0.9 * running
        returns.insert(0, running)
    return torch.stack(states), torch.stack(returns)


BEST = {"loss": float("inf"), "weights": None}
CHECKPOINTED = _network()


@program(calls=BATCHES)
def best_weights_kept(x, y):
    score = 1.0 / x.shape[0]
    if score < BEST["loss"]:
        BEST["loss"] = score
        BEST["weights"] = {k: v.detach().clone() for k, v in CHECKPOINTED.state_dict().items()}
    else:
        CHECKPOINTED.load_state_dict(BEST["weights"])
    return CHECKPOINTED(x), sorted(BEST["weights"])


WARM = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=1.0)
WARM_UP = torch.optim.lr_scheduler.LambdaLR(WARM, lambda step: min(1.0, (step + 1) / 4))


@program(calls=BATCHES, grad=True)
def schedule_of_a_lambda(x, y):
    (p,) = WARM.param_groups[0]["params"]
    WARM.zero_grad()
    (p * x.mean()).sum().backward()
    WARM.step()
    WARM_UP.step()
    return WARM_UP.get_last_lr(), p.detach().clone()


SPLIT = {"encoder": _network(), "head": seeded(lambda: nn.Linear(3, 2), 5)}


@program(calls=BATCHES, grad=True)
def alternating_players(x, y, turn=[0]):
    player = ["encoder", "head"][turn[0] % 2]
    turn[0] += 1
    loss = SPLIT["head"](SPLIT["encoder"](x)).pow(2).mean()
    grads = torch.autograd.grad(loss, list(SPLIT[player].parameters()))
    with torch.no_grad():
        for p, g in zip(SPLIT[player].parameters(), grads):
            p -= g
    return player, loss.detach()
