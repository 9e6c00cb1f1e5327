"""What stands around the model: precision, loaders, schedules, saving, hooks, profilers, searches."""

from __future__ import annotations

import io
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

from tests.training.scripts.support import mlp, script, state


def small_convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(12, 4),
    )  # fmt: skip


@script
def epochs(compile):
    """train() and eval(), a loader that shuffles, accuracy, the best weights kept, a stop when nothing improves."""
    data = TensorDataset(torch.randn(40, 3, 8, 8), torch.randint(0, 4, (40,)))
    training, validation = random_split(data, [30, 10], generator=torch.Generator().manual_seed(1))
    model = small_convolutions()
    fast, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.3)
    best, kept, patience, history = math.inf, None, 0, []
    for _ in range(4):
        fast.train()
        total = 0.0
        for x, y in DataLoader(training, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(2)):
            optimizer.zero_grad()
            loss = F.cross_entropy(fast(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        fast.eval()
        wrong, right = 0.0, 0
        with torch.inference_mode():
            for x, y in DataLoader(validation, batch_size=4):
                logits = fast(x)
                wrong += F.cross_entropy(logits, y, reduction="sum").item()
                right += (logits.argmax(1) == y).sum().item()
        schedule.step(wrong)
        history += [total, wrong, optimizer.param_groups[0]["lr"]]
        if wrong < best:
            best, kept, patience = wrong, {k: v.clone() for k, v in fast.state_dict().items()}, 0
        else:
            patience += 1
            if patience > 2:
                break
    model.load_state_dict(kept)
    return {"losses": history, "state": state(model)}


@script
def saved_and_resumed(compile):
    """State dicts of all through a file half-way, into objects made anew."""

    def make():
        model = mlp(6, 16, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
        return model, compile(model), optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=10)

    model, fast, optimizer, schedule = make()
    losses = []
    for step in range(8):
        if step == 4:
            file = io.BytesIO()
            parts = {"model": fast.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
            torch.save(parts | {"random": torch.get_rng_state()}, file)
            model, fast, optimizer, schedule = make()
            file.seek(0)
            parts = torch.load(file)
            fast.load_state_dict(parts["model"])
            optimizer.load_state_dict(parts["optimizer"])
            schedule.load_state_dict(parts["schedule"])
            torch.set_rng_state(parts["random"])
        x = torch.randn(5, 6)
        loss = F.mse_loss(fast(x), x[:, :3])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def scaled(compile):
    """Autocast and a scaler, which skips a step whose gradients are not finite."""
    model = mlp(6, 16, 3)
    fast, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    losses, scales = [], []
    for step in range(6):
        x = torch.randn(5, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=x.dtype == torch.float32):
            loss = F.mse_loss(fast(x).to(x.dtype), x[:, :3]) * (math.inf if step == 2 else 1.0)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item() if step != 2 else 0.0)
        scales.append(scaler.get_scale())
    return {"rough losses": losses, "scales": scales, "rough state": state(model)}


@script
def skipping(compile):
    """Batches whose loss is not finite are left out; gradients are watched by hooks; noise is added to them."""
    model = mlp(4, 16, 2, activation=nn.Softplus)
    fast, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=1e-2)
    norms, losses = {name: [] for name, _ in model.named_parameters()} | {"hidden": []}, []
    for name, parameter in model.named_parameters():  # in which order leaves' hooks are called is nobody's promise
        parameter.register_hook(
            lambda gradient, name=name: norms[name].append(gradient.norm().item()) or gradient * 0.5
        )
    model[0].register_full_backward_hook(
        lambda module, inputs, outputs: norms["hidden"].append(outputs[0].abs().max().item())
    )
    for step in range(6):
        x = torch.randn(5, 4)
        if step in (1, 4):
            x[2, 1] = math.nan
        loss = fast(x).square().mean()
        if not torch.isfinite(loss):
            losses.append(-1.0)
            continue
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.grad += 1e-3 * torch.randn_like(parameter)
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, **norms, "state": state(model)}


@script
def layerwise_rates(compile):
    """A rate for each layer, layers that thaw one by one, a group added on the way."""
    model = mlp(6, 12, 12, 3)
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    for layer in layers[:-1]:
        layer.requires_grad_(False)
    fast = compile(model)
    optimizer = torch.optim.SGD(layers[-1].parameters(), lr=0.1, momentum=0.8, dampening=0.1)
    losses = []
    for step in range(6):
        if step in (2, 4):
            thawed = layers[1 - step // 4]
            thawed.requires_grad_(True)
            optimizer.add_param_group({"params": thawed.parameters(), "lr": 0.1 / step})
        x = torch.randn(5, 6)
        loss = F.mse_loss(fast(x), x[:, :3].cos())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def rate_finder(compile):
    """The rate grows until the loss does; then weights and optimizer are put back."""
    model = mlp(6, 12, 3)
    fast, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=1e-3)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 3.0**step)
    x, losses, best = torch.randn(20, 6), [], math.inf
    for _ in range(9):
        loss = F.mse_loss(fast(x), x[:, :3])
        if loss.item() > 4 * best:
            break
        best = min(best, loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.load_state_dict(before)
    return {"losses": losses, "state": state(model), "again": fast(x).detach()}


@script
def averaged(compile):
    """Stochastic weight averaging, and batch norms whose statistics are taken again for the average."""
    model = small_convolutions()
    fast, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=0.05)
    average = torch.optim.swa_utils.AveragedModel(model)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.02, anneal_epochs=2)
    batches, losses = [torch.randn(4, 3, 8, 8) for _ in range(3)], []
    for step in range(6):
        x = batches[step % 3]
        loss = F.cross_entropy(fast(x), torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        schedule.step()
        losses.append(loss.item())
    torch.optim.swa_utils.update_bn(batches, average)
    quick = compile(average.eval())
    with torch.no_grad():
        found = quick(batches[0])
    return {"losses": losses, "state": state(model, average), "found": found}


@script
def sharpness_aware(compile):
    """Two passes a step: up along the gradient, then down from there."""
    model = mlp(6, 16, 3, activation=nn.ReLU)
    fast, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(5):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        F.cross_entropy(fast(x), y).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm() + 1e-12
            steps = [p.grad * (0.05 / norm) for p in model.parameters()]
            torch._foreach_add_(list(model.parameters()), steps)
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), steps)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "state": state(model)}


@script
def second_order(compile):
    """LBFGS calls a closure as often as it likes."""
    model = mlp(3, 8, 1, activation=nn.Tanh)
    fast = compile(model)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    x, losses = torch.randn(16, 3), []

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(fast(x), x.sin().sum(1, keepdim=True))
        loss.backward()
        return loss

    for _ in range(3):
        losses.append(optimizer.step(closure).item())
    return {"losses": losses, "state": state(model)}


@script
def profiled(compile):
    """A profiler, labels, anomaly detection and a module that counts its calls."""

    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = mlp(6, 12, 3), 0
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.calls += 1
            self.seen += x.shape[0]
            with torch.profiler.record_function("inner"):
                return self.inner(x)

    model = Counted()
    fast, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        for _ in range(3):
            with torch.autograd.set_detect_anomaly(True):
                x = torch.randn(5, 6)
                loss = F.mse_loss(fast(x), x[:, :3])
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return {"losses": losses, "calls": model.calls, "state": state(model)}


class Sentences(Dataset):
    def __init__(self, count):
        self.rows = [torch.randint(1, 20, (3 + (index * 7) % 6,)) for index in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], index % 2


def collate(rows):
    ids = nn.utils.rnn.pad_sequence([ids for ids, _ in rows], batch_first=True)
    return {"ids": ids, "mask": ids != 0, "labels": torch.tensor([label for _, label in rows])}


@script
def padded_batches(compile):
    """A collate function pads each batch to its longest; batches are dicts that the model takes by name."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 16, padding_idx=0)
            self.attend, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 2)

        def forward(self, ids, mask, labels=None):
            h = self.embed(ids)
            h = h + self.attend(h, h, h, key_padding_mask=~mask, need_weights=False)[0]
            logits = self.head((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
            return {"logits": logits, "loss": F.cross_entropy(logits, labels) if labels is not None else None}

    loader = DataLoader(Sentences(22), batch_size=4, collate_fn=collate, drop_last=False)
    model = Model()
    fast, optimizer = compile(model), torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for batch in loader:
        loss = fast(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        logits = [fast(batch["ids"], batch["mask"])["logits"] for batch in loader]
    return {"losses": losses, "logits": logits, "state": state(model)}


@script
def ensembles(compile):
    """Models stacked by `torch.func`, trained as one by vmap."""
    models = [mlp(4, 8, 2) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    skeleton = mlp(4, 8, 2).to("meta")

    @compile
    def forward(parameters, x):
        return torch.vmap(lambda p: torch.func.functional_call(skeleton, (p, buffers), (x,)))(parameters)

    optimizer = torch.optim.Adam(parameters.values(), lr=1e-2)
    losses = []
    for _ in range(5):
        x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
        loss = F.cross_entropy(forward(parameters, x).flatten(0, 1), y.repeat(3))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": [value.detach().clone() for value in parameters.values()]}
