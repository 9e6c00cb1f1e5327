"""Small training programs of the kinds that users write, one for each module family and habit of training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, rnn
from torch.utils.checkpoint import checkpoint


def normal(*shape: int) -> Callable[[int], tuple]:
    """Step number -> one tensor of normal numbers, the same on every road."""
    return lambda number: (torch.randn(*shape, generator=torch.Generator().manual_seed(number)),)


def integers(high: int, *shape: int) -> Callable[[int], tuple]:
    return lambda number: (torch.randint(high, shape, generator=torch.Generator().manual_seed(number)),)


def both(*makers: Callable[[int], tuple]) -> Callable[[int], tuple]:
    return lambda number: sum((make(number) for make in makers), ())


def squared(result: Any) -> torch.Tensor:
    while not isinstance(result, torch.Tensor):
        result = result[0]
    return result.float().square().mean()


class Program:
    """A model, what it is trained on, and a step. `run` is what calls the model: the model, or it compiled."""

    model: nn.Module
    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple]
    rate = 0.05

    def __init__(self) -> None:
        self.model = self.make()
        self.run: Callable[..., Any] = self.model
        self.optimizer = self.optimizers()
        self.calls = 0

    def optimizers(self) -> torch.optim.Optimizer:
        wanted = [each for each in self.model.parameters() if each.requires_grad]
        return torch.optim.SGD(wanted, self.rate, momentum=0.9)

    def loss(self, *inputs: Any) -> torch.Tensor:
        return squared(self.run(*inputs))

    def between(self) -> None:
        """After the gradients, before the step."""

    def step(self, *inputs: Any) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(*inputs)
        loss.backward()
        self.between()
        self.optimizer.step()
        return loss.detach()

    def modules(self) -> list[nn.Module]:
        return [self.model]


TABLE: dict[str, type[Program]] = {}


def add(
    name: str, make: Callable[[], nn.Module], inputs: Callable[[int], tuple], loss: Any = None, **more: Any
) -> None:
    """A program that is a module and its inputs. `loss`: (what runs the module, inputs) -> loss."""
    body: dict[str, Any] = {"make": staticmethod(make), "inputs": staticmethod(inputs), **more}
    if loss is not None:
        body["loss"] = lambda self, *inputs: loss(self.run, *inputs)
    TABLE[name] = type(name, (Program,), body)


def register(name: str) -> Callable[[type[Program]], type[Program]]:
    def put(program: type[Program]) -> type[Program]:
        TABLE[name] = program
        return program

    return put


def module(forward: Callable[..., Any], **parts: Callable[[], Any]) -> Callable[[], nn.Module]:
    """A maker of modules with these parts, whose `forward` is the function given."""

    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, make in parts.items():
                setattr(self, name, make())

    Made.forward = forward  # type: ignore[method-assign]
    return Made


# Recurrent ------------------------------------------------------------------------------------------------------------

add("lstm", lambda: nn.LSTM(4, 6, 2, batch_first=True, dropout=0.2), normal(3, 5, 4))
add("lstm with projection", lambda: nn.LSTM(4, 6, proj_size=3), normal(5, 3, 4))
add("gru", lambda: nn.GRU(4, 6, bidirectional=True), normal(5, 3, 4))
add("rnn relu", lambda: nn.RNN(4, 6, nonlinearity="relu"), normal(5, 3, 4))


def _packed(self: Any, x: torch.Tensor) -> torch.Tensor:
    packed = rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
    padded, _ = rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)
    return padded


add("packed gru", module(_packed, layer=lambda: nn.GRU(4, 6, batch_first=True)), normal(3, 5, 4))
add("packed lstm", module(_packed, layer=lambda: nn.LSTM(4, 6, batch_first=True)), normal(3, 5, 4))


def _cells(self: Any, x: torch.Tensor) -> torch.Tensor:
    h = c = x.new_zeros(x.shape[1], 6)
    for each in x:
        h, c = self.cell(each, (h, c))
    return self.out(h)


add("lstm cell", module(_cells, cell=lambda: nn.LSTMCell(4, 6), out=lambda: nn.Linear(6, 2)), normal(3, 2, 4))

# Attention ------------------------------------------------------------------------------------------------------------

add(
    "encoder",
    lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True), 2, enable_nested_tensor=False
    ),
    normal(2, 5, 8),
)
add(
    "encoder, norm first",
    lambda: nn.TransformerEncoderLayer(8, 2, 12, norm_first=True, activation="gelu"),
    normal(5, 2, 8),
)
add("decoder", lambda: nn.TransformerDecoderLayer(8, 2, 12, dropout=0.2), both(normal(5, 2, 8), normal(3, 2, 8)))
add(
    "transformer",
    lambda: nn.Transformer(8, 2, 1, 1, 12, batch_first=True),
    both(normal(2, 4, 8), normal(2, 3, 8)),
    lambda run, x, y: squared(run(x, y, tgt_mask=torch.full((3, 3), -torch.inf).triu(1))),
)
add(
    "attention with masks",
    module(
        lambda self, x: self.a(x, x, x, key_padding_mask=x[..., 0] > 1.5, attn_mask=torch.ones(5, 5).triu(1).bool())[0],
        a=lambda: nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True),
    ),
    normal(2, 5, 8),
    lambda run, x: squared(run(x).nan_to_num()),
)
add(
    "attention, averaged weights",
    module(
        lambda self, x: sum(each.square().mean() for each in self.a(x, x, x)),
        a=lambda: nn.MultiheadAttention(8, 2, kdim=8, vdim=8),
    ),
    normal(5, 2, 8),
)

# Embeddings -----------------------------------------------------------------------------------------------------------

add(
    "embedding",
    module(lambda self, i: self.o(self.e(i)), e=lambda: nn.Embedding(9, 4, padding_idx=0), o=lambda: nn.Linear(4, 2)),
    integers(9, 3, 5),
)
add(
    "embedding with a norm",
    module(lambda self, i: self.e(i), e=lambda: nn.Embedding(9, 4, max_norm=1.0)),
    integers(9, 3, 5),
)


@register("sparse embedding")
class SparseEmbedding(Program):
    make = staticmethod(module(lambda self, i: self.e(i).tanh(), e=lambda: nn.Embedding(9, 4, sparse=True)))
    inputs = staticmethod(integers(9, 3, 5))

    def optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(self.model.parameters(), 0.05)


add("embedding bag", lambda: nn.EmbeddingBag(9, 4, mode="mean"), integers(9, 3, 5))
add(
    "embedding bag with offsets",
    module(lambda self, i: self.e(i, torch.tensor([0, 4, 9])), e=lambda: nn.EmbeddingBag(9, 4, mode="max")),
    integers(9, 15),
)

# Convolutions, pools, shapes ------------------------------------------------------------------------------------------

add(
    "conv 1d transposed",
    lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.ELU(), nn.ConvTranspose1d(4, 2, 3, 2)),
    normal(2, 2, 9),
)
add(
    "conv 2d transposed",
    lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, groups=2, padding_mode="circular", padding=1),
        nn.PReLU(4),
        nn.ConvTranspose2d(4, 2, 3, 2, 1, 1),
    ),
    normal(2, 2, 6, 6),
)
add(
    "conv 3d transposed",
    lambda: nn.Sequential(nn.Conv3d(2, 3, 2, dilation=2), nn.Mish(), nn.ConvTranspose3d(3, 2, 2, 2)),
    normal(1, 2, 4, 4, 4),
)
add(
    "norms",
    lambda: nn.Sequential(
        nn.BatchNorm2d(4),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        nn.LocalResponseNorm(3),
        nn.LayerNorm([3, 3]),
        nn.RMSNorm(3),
    ),
    normal(3, 4, 3, 3),
)
add(
    "batch norm without momentum",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None)),
    normal(5, 4),
)
for _name, _pool in {
    "max pool": lambda: nn.MaxPool2d(3, 2, 1), "average pool": lambda: nn.AvgPool2d(2, ceil_mode=True),
    "adaptive max": lambda: nn.AdaptiveMaxPool2d(2), "adaptive average": lambda: nn.AdaptiveAvgPool2d((3, 2)),
    "lp pool": lambda: nn.LPPool2d(2, 2), "fractional pool": lambda: nn.FractionalMaxPool2d(2, output_size=3),
}.items():  # fmt: skip
    add(_name, lambda pool=_pool: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), pool()), normal(2, 2, 7, 7))
add(
    "max unpool",
    module(
        lambda self, x: self.u(*self.p(self.c(x))),
        c=lambda: nn.Conv2d(2, 3, 3, padding=1),
        p=lambda: nn.MaxPool2d(2, return_indices=True),
        u=lambda: nn.MaxUnpool2d(2),
    ),
    normal(2, 2, 6, 6),
)
add(
    "pixel shuffle",
    lambda: nn.Sequential(nn.Conv2d(2, 8, 1), nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(2)),
    normal(2, 2, 4, 4),
)
add("fold", lambda: nn.Sequential(nn.Conv2d(2, 2, 1), nn.Unfold(2), nn.Fold((4, 4), 2)), normal(2, 2, 4, 4))
add(
    "grid sample",
    module(
        lambda self, x: F.grid_sample(
            x,
            F.affine_grid(self.l(x.flatten(1)).view(-1, 2, 3), list(x.shape), align_corners=False),
            align_corners=False,
        ),
        l=lambda: nn.Linear(32, 6),
    ),
    normal(2, 2, 4, 4),
)
add(
    "interpolate",
    module(
        lambda self, x: (
            F.interpolate(self.c(x), scale_factor=1.5, mode="bilinear").mean()
            + F.interpolate(self.c(x), size=(3, 5), mode="bicubic", align_corners=True).square().mean()
            + F.interpolate(self.c(x), scale_factor=2, mode="nearest").sum() * 0.01
        ),
        c=lambda: nn.Conv2d(2, 2, 1),
    ),
    normal(2, 2, 4, 4),
)
add("bilinear", module(lambda self, x: self.b(x, x.sin()), b=lambda: nn.Bilinear(4, 4, 3)), normal(5, 4))

# Losses ---------------------------------------------------------------------------------------------------------------

_LOSSES: dict[str, tuple[nn.Module, Callable[[torch.Tensor], tuple]]] = {
    "cross entropy": (nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.tensor([1.0, 2, 0.5, 1])),
                      lambda y: (torch.arange(6) % 4,)),
    "nll, ignored": (nn.NLLLoss(ignore_index=2), lambda y: (torch.arange(6) % 4,)),
    "binary": (nn.BCEWithLogitsLoss(pos_weight=torch.ones(4) * 2), lambda y: (torch.ones(6, 4) / 3,)),
    "divergence": (nn.KLDivLoss(reduction="batchmean", log_target=True), lambda y: (torch.zeros(6, 4).log_softmax(1),)),
    "huber": (nn.HuberLoss(delta=0.5), lambda y: (torch.ones(6, 4),)),
    "smooth": (nn.SmoothL1Loss(), lambda y: (torch.ones(6, 4),)),
    "gaussian": (nn.GaussianNLLLoss(), lambda y: (torch.ones(6, 4), y.square() + 0.1)),
    "poisson": (nn.PoissonNLLLoss(), lambda y: (torch.ones(6, 4),)),
    "cosine": (nn.CosineEmbeddingLoss(margin=0.1), lambda y: (torch.ones(6, 4), torch.tensor([1, -1] * 3))),
    "ranking": (nn.MarginRankingLoss(0.5), lambda y: (torch.zeros(6, 4), torch.ones(6, 4))),
    "triplet": (nn.TripletMarginLoss(), lambda y: (y + 1, torch.zeros(6, 4))),
    "hinge": (nn.HingeEmbeddingLoss(), lambda y: (torch.tensor([1.0, -1] * 12).view(6, 4),)),
    "multi margin": (nn.MultiMarginLoss(), lambda y: (torch.arange(6) % 4,)),
    "multi label": (nn.MultiLabelMarginLoss(), lambda y: (torch.tensor([[1, 2, -1, 0]] * 6),)),
    "soft margin": (nn.MultiLabelSoftMarginLoss(), lambda y: (torch.ones(6, 4),)),
    "ctc": (nn.CTCLoss(), lambda y: (torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2]))),
}  # fmt: skip


def _with_loss(name: str) -> Callable[..., torch.Tensor]:
    criterion, others = _LOSSES[name]

    def loss(run: Callable, x: torch.Tensor) -> torch.Tensor:
        y = run(x)
        if name in ("divergence", "nll, ignored", "ctc"):
            y = y.log_softmax(1)
        return criterion(y[:, None] if name == "ctc" else y, *others(y))

    return loss


for _name in _LOSSES:
    add(f"loss: {_name}", lambda: nn.Linear(3, 4), normal(6, 3), _with_loss(_name))
add(
    "adaptive softmax",
    module(
        lambda self, x: self.s(self.l(x), torch.arange(6)).loss,
        l=lambda: nn.Linear(3, 8),
        s=lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7]),
    ),
    normal(6, 3),
)

# Parameters -----------------------------------------------------------------------------------------------------------

add(
    "weight norm",
    lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2)),
    normal(3, 4),
)
add(
    "spectral norm",
    lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 5)), nn.Linear(5, 2)),
    normal(3, 4),
)
add("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(4, 4)), normal(3, 4))
add(
    "tied",
    module(lambda self, i: F.cross_entropy(self.e(i) @ self.e.weight.t(), i.roll(1)), e=lambda: nn.Embedding(9, 4)),
    integers(9, 12),
)


def _frozen() -> nn.Module:
    made = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
    made[0].requires_grad_(False)
    return made


add("frozen", _frozen, normal(3, 4))
add(
    "complex",
    module(
        lambda self, x: torch.view_as_real((torch.fft.rfft(x) * self.w).cumsum(-1)).abs(),
        w=lambda: nn.Parameter(torch.randn(3, dtype=torch.complex64)),
    ),
    normal(5, 4),
)
add(
    "dropouts",
    lambda: nn.Sequential(
        nn.Conv1d(4, 4, 1),
        nn.Dropout(0.3),
        nn.Dropout1d(0.3),
        nn.AlphaDropout(0.2),
        nn.FeatureAlphaDropout(0.2),
        nn.RReLU(),
    ),
    normal(3, 4, 5),
)
add(
    "activations",
    lambda: nn.Sequential(
        nn.Linear(4, 6),
        nn.CELU(),
        nn.SELU(),
        nn.Hardswish(),
        nn.Softplus(),
        nn.LogSigmoid(),
        nn.Softshrink(0.1),
        nn.Softmin(1),
        nn.Threshold(0.05, 0.01),
        nn.Hardtanh(-1, 0.9),
        nn.Tanhshrink(),
        nn.GLU(),
    ),
    normal(3, 4),
)

# Habits of training ---------------------------------------------------------------------------------------------------


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


add(
    "checkpoint",
    module(
        lambda self, x: checkpoint(self.m, x, use_reentrant=False) + x[:, :2],
        m=lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.2), nn.GELU(), nn.Linear(6, 2)),
    ),
    normal(3, 4),
)


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, limit: float) -> torch.Tensor:
        context.save_for_backward(x)
        context.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple:  # type: ignore[override]
        (x,) = context.saved_tensors
        return gradient * (x.abs() < 2 * context.limit), None


add("own function", module(lambda self, x: _Clipped.apply(self.l(x), 0.4), l=lambda: nn.Linear(4, 3)), normal(3, 4))


class _Plain(Program):
    make = staticmethod(_mlp)
    inputs = staticmethod(normal(3, 4))


@register("evaluated on every other step")
class Switching(_Plain):
    make = staticmethod(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 2)))

    def step(self, *inputs: Any) -> torch.Tensor:
        self.calls += 1
        self.model.train(self.calls % 2 == 1)
        if self.model.training:
            return super().step(*inputs)
        with torch.no_grad():
            return self.loss(*inputs)


@register("accumulated gradients")
class Accumulated(_Plain):
    def step(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        self.optimizer.zero_grad(set_to_none=False)
        for part in x.split(1):
            loss = self.loss(part) / len(x)
            loss.backward()
            total = total + loss.detach()
        self.optimizer.step()
        return total


@register("two losses")
class TwoLosses(_Plain):
    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        y = self.run(x)
        first, second = y.square().mean(), (y - 1).abs().mean()
        first.backward(retain_graph=True)
        (second * 0.5).backward()
        self.optimizer.step()
        return torch.stack([first.detach(), second.detach()])


@register("gan")
class Gan(_Plain):
    def __init__(self) -> None:
        self.judge = nn.Sequential(nn.Linear(2, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1))
        super().__init__()
        self.other = torch.optim.Adam(self.judge.parameters(), 0.02, eps=1e-3)

    def modules(self) -> list[nn.Module]:
        return [self.model, self.judge]

    def step(self, x: torch.Tensor) -> torch.Tensor:
        made = self.run(torch.randn_like(x))
        self.other.zero_grad()
        wrong, right = self.judge(made.detach()), self.judge(x[:, :2])
        judged = F.softplus(wrong).mean() + F.softplus(-right).mean()
        judged.backward()
        self.other.step()
        self.optimizer.zero_grad()
        fooled = F.softplus(-self.judge(made)).mean()
        fooled.backward()
        self.optimizer.step()
        return torch.stack([judged.detach(), fooled.detach()])


@register("moving average")
class Average(_Plain):
    def __init__(self) -> None:
        super().__init__()
        self.average = copy.deepcopy(self.model).requires_grad_(False)

    def modules(self) -> list[nn.Module]:
        return [self.model, self.average]

    def step(self, *inputs: Any) -> torch.Tensor:
        loss = super().step(*inputs)
        with torch.no_grad():
            for mine, other in zip(self.average.parameters(), self.model.parameters()):
                mine.lerp_(other, 0.1)
        return loss


@register("clipped by value")
class ClippedByValue(_Plain):
    def between(self) -> None:
        nn.utils.clip_grad_value_(self.model.parameters(), 0.01)


@register("clipped by norm")
class ClippedByNorm(_Plain):
    def between(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)

    def optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), 0.01, eps=1e-3)


@register("lbfgs")
class Lbfgs(_Plain):
    make = staticmethod(lambda: nn.Linear(4, 2))

    def optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(self.model.parameters(), 0.1, max_iter=3)

    def step(self, *inputs: Any) -> torch.Tensor:
        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = self.loss(*inputs)
            loss.backward()
            return loss

        return self.optimizer.step(closure).detach()  # type: ignore


@register("hooks on gradients")
class Hooked(_Plain):
    def loss(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        y = self.run(x)
        y.register_hook(lambda gradient: gradient * 2)
        return squared(y)

    def __init__(self) -> None:
        super().__init__()
        self.model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))  # type: ignore


@register("gradient penalty")
class Penalty(_Plain):
    make = staticmethod(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)))

    def loss(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        x = x.clone().requires_grad_()
        y = self.run(x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y.square().mean() + (gradient.norm(dim=1) - 1).square().mean()


@register("inner gradients")
class Inner(_Plain):
    def loss(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        weight = self.model[0].weight  # type: ignore
        (gradient,) = torch.autograd.grad(squared(self.run(x)), [weight])
        return squared(F.linear(x, weight - 0.1 * gradient, self.model[0].bias))  # type: ignore


@register("autocast")
class Autocast(_Plain):
    def loss(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        with torch.autocast("cpu", torch.bfloat16):
            return self.run(x).float().square().mean()


@register("scheduler")
class Scheduled(_Plain):
    def __init__(self) -> None:
        super().__init__()
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=9)

    def step(self, *inputs: Any) -> torch.Tensor:
        loss = super().step(*inputs)
        self.scheduler.step()
        return loss
