"""What `bench.verdicts` asks about: small programs of many kinds, as users write them.

Nothing here imports Lampwork: a process that measures eager's time must not have loaded it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bench.architectures import BY_NAME

SEED = 2027


@dataclass
class Case:
    """`function(*args, **kwargs)` is one call; `model` is the module in it, if there is one; `grad`: with gradients."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    model: nn.Module | None = None
    grad: bool = False

    def call(self, function: Callable[..., Any]) -> Any:
        with torch.set_grad_enabled(self.grad):
            return function(*self.args, **self.kwargs)


@dataclass(frozen=True)
class Kind:
    """What its time goes to, and who makes its case on a device."""

    name: str
    kind: str
    make: Callable[[str], Case]

    def build(self, device: str) -> Case:
        torch.manual_seed(SEED)
        return self.make(device)


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: _moved(each, device) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(each, device) for each in value)
    return value


# Architectures --------------------------------------------------------------------------------------------------------


def _architecture(name: str, **larger: Any) -> Callable[[str], Case]:
    """One call of the architecture in inference. `larger` replaces parts of its small configuration."""

    def make(device: str) -> Case:
        model, inputs = _built(name, larger)
        model = model.to(device)
        return Case(model, (), _moved(inputs, device), model)

    return make


def _training(name: str, optimizer: str, **larger: Any) -> Callable[[str], Case]:
    """A training step of the architecture: forward, backward, optimizer."""

    def make(device: str) -> Case:
        model, inputs = _built(name, larger)
        model, inputs = model.to(device).train(), _moved(inputs, device)
        stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-4)

        def step() -> torch.Tensor:
            stepper.zero_grad()
            output = model(**inputs)
            found = next(each for each in output.values() if isinstance(each, torch.Tensor) and each.requires_grad)
            loss = found.float().square().mean()
            loss.backward()
            stepper.step()
            return loss.detach()

        return Case(step, model=model, grad=True)

    return make


def _built(name: str, larger: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    architecture = BY_NAME[name]
    return replace(architecture, config={**architecture.config, **larger}).build()


# Functions ------------------------------------------------------------------------------------------------------------


def _function(function: Callable[..., Any], *shapes: tuple[int, ...], grad: bool = False) -> Callable[[str], Case]:
    def make(device: str) -> Case:
        return Case(function, tuple(torch.randn(shape, device=device) for shape in shapes), grad=grad)

    return make


def black_scholes(spot, strike, years):
    spot, strike, years = spot.exp(), strike.exp(), years.abs() + 0.1
    d1 = (torch.log(spot / strike) + 0.05 * years) / (0.3 * years.sqrt()) + 0.15 * years.sqrt()
    d2 = d1 - 0.3 * years.sqrt()
    normal = torch.distributions.Normal(0.0, 1.0, validate_args=False)
    return spot * normal.cdf(d1) - strike * torch.exp(-0.05 * years) * normal.cdf(d2)


def softmax_of_rows(x):
    return torch.softmax(x * 0.125, -1)


def norm_gelu(x, weight, bias):
    return F.gelu(F.layer_norm(x, x.shape[-1:], weight, bias)) * 0.5 + x


def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def masked_loss(logits, noise):
    targets = (noise.abs() * 10).long().clamp(max=logits.shape[-1] - 1)
    loss = F.cross_entropy(logits, targets, reduction="none")
    keep = targets > 2
    return (loss * keep).sum() / keep.sum()


def distances(x, y):
    return torch.exp(-(x[:, None] - y[None]).square().sum(-1)).mean(1)


def augment(image):
    image = image.flip(-1) * 1.1 + 0.05
    mean = image.mean((-1, -2), keepdim=True)
    return ((image - mean) * 1.2 + mean).clamp(0, 1).sub(0.5).div(0.25)


def one_add(x, y):
    return x + y


def product(x, y):
    return x @ y


def product_gelu(x, y, bias):
    return F.gelu(x @ y + bias)


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def slow_attention(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def many_small(x):
    for index in range(60):
        x = x * 0.99 + index * 0.01
        x = torch.where(x > 1, x - 1, x)
    return x


def cumulative(x):
    return torch.cumsum(x, -1).sort(-1).values


def fft_filter(x):
    spectrum = torch.fft.rfft(x)
    return torch.fft.irfft(spectrum * (spectrum.abs() > 1), x.shape[-1])


def solve(a, b):
    return torch.linalg.solve(a @ a.mT + torch.eye(a.shape[-1], device=a.device), b)


def lstm_cell_loop(x, w, u):
    h = torch.zeros(x.shape[1], u.shape[0], device=x.device)
    c = torch.zeros_like(h)
    for step in x:
        i, f, g, o = (step @ w + h @ u).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h


def newton(x):
    guess = x.abs() + 1
    for _ in range(20):
        guess = 0.5 * (guess + x.abs() / guess)
    return guess


def breaks_on_numpy(x, w):
    hidden = torch.relu(x @ w)
    order = hidden.detach().cpu().numpy().sum(0).argsort()
    return hidden[:, torch.from_numpy(order.copy()).to(x.device)] * 2 + 1


def breaks_on_item(x, w):
    total = 0.0
    for part in x.chunk(8):
        value = (part @ w).square().mean()
        total += value.item() if value.item() > 0.1 else 0.0
    return total


def branches_on_data(x):
    for _ in range(10):
        x = x * 0.9 if float(x.sum()) > 0 else x + 0.1
    return x


# Programs with state --------------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    def __init__(self, width: int, depth: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Dropout(dropout))
            for _ in range(depth)
        )

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class ConvNet(nn.Module):
    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(
            nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
            for _ in range(depth)
        ))  # fmt: skip
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((-1, -2)))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.lstm = nn.LSTM(64, 64, batch_first=True, bidirectional=True)
        self.out = nn.Linear(128, 12)

    def forward(self, tokens):
        return self.out(self.lstm(self.words(tokens))[0])


def _module(build: Callable[[], nn.Module], *shape: int) -> Callable[[str], Case]:
    def make(device: str) -> Case:
        model = build().to(device).eval()
        return Case(model, (torch.randn(shape, device=device),), model=model)

    return make


def _tagger(device: str) -> Case:
    model = Tagger().to(device).eval()
    return Case(model, (torch.randint(1000, (4, 24), device=device),), model=model)


def _trained(build: Callable[[], nn.Module], optimizer: str, *shape: int) -> Callable[[str], Case]:
    def make(device: str) -> Case:
        model = build().to(device).train()
        stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-4)
        x = torch.randn(shape, device=device)

        def step(x: torch.Tensor) -> torch.Tensor:
            stepper.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            stepper.step()
            return loss.detach()

        return Case(step, (x,), model=model, grad=True)

    return make


def _waiting(build: Callable[[], nn.Module], milliseconds: float, *shape: int) -> Callable[[str], Case]:
    """Each call waits for its batch, as behind a slow loader."""

    def make(device: str) -> Case:
        model = build().to(device).eval()
        x = torch.randn(shape, device=device)

        def step() -> torch.Tensor:
            time.sleep(milliseconds / 1e3)
            return model(x)

        return Case(step, model=model)

    return make


def _reading(device: str) -> Case:
    """Each call reads its batch from a file and prepares it in Python."""
    folder = Path(tempfile.mkdtemp())
    path = folder / "batch.txt"
    path.write_text("\n".join(" ".join(str(number % 97) for number in range(512)) for _ in range(16)))
    model = Mlp(512, 2).to(device).eval()

    def step() -> torch.Tensor:
        rows = [[float(word) for word in line.split()] for line in path.read_text().splitlines()]
        return model(torch.tensor(rows, device=device) / 97)

    return Case(step, model=model)


def _ragged(build: Callable[[], nn.Module], width: int, lengths: tuple[int, ...]) -> Callable[[str], Case]:
    """Batches whose lengths go round."""

    def make(device: str) -> Case:
        model = build().to(device).eval()
        batches = [torch.randn(length, width, device=device) for length in lengths]
        calls = 0

        def step() -> torch.Tensor:
            nonlocal calls
            calls += 1
            return model(batches[calls % len(batches)])

        return Case(step, model=model)

    return make


def _decoding(device: str) -> Case:
    """Sixteen tokens are generated greedily, each with the whole text before it."""
    model, inputs = BY_NAME["gpt2"].build()
    model, tokens = model.to(device), inputs["input_ids"].to(device)

    def generate() -> torch.Tensor:
        text = tokens[:, :4]
        for _ in range(16):
            text = torch.cat([text, model(text).logits[:, -1:].argmax(-1)], 1)
        return text

    return Case(generate, model=model)


WIDE = {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 1024}
WIDE_GPT = {"n_embd": 256, "n_layer": 4, "n_head": 8}

WORKLOADS = (
    # Launches and Python are most of the time.
    *(Kind(name, "launches", _architecture(name)) for name in (
        "bert", "gpt2", "llama", "t5", "vit", "swin", "convnext", "resnet", "mobilenet-v2", "mamba", "wav2vec2",
        "mixtral", "segformer", "deberta", "clip", "detr", "patchtst", "dinov2",
    )),
    Kind("many-small", "launches", _function(many_small, (32, 32))),
    Kind("lstm-cells", "launches", _function(lstm_cell_loop, (32, 8, 64), (64, 256), (64, 256))),
    Kind("newton", "launches", _function(newton, (1000,))),
    Kind("mlp-tiny", "launches", _module(lambda: Mlp(16, 4), 4, 16)),
    Kind("tagger", "launches", _tagger),
    Kind("decoding", "launches", _decoding),
    # Memory is.
    Kind("black-scholes", "memory", _function(black_scholes, (1 << 20,), (1 << 20,), (1 << 20,))),
    Kind("softmax", "memory", _function(softmax_of_rows, (2048, 1024))),
    Kind("norm-gelu", "memory", _function(norm_gelu, (2048, 1024), (1024,), (1024,))),
    Kind("rms-norm", "memory", _function(rms_norm, (2048, 1024), (1024,))),
    Kind("rotate", "memory", _function(rotate, (8, 12, 256, 64), (256, 64), (256, 64))),
    Kind("masked-loss", "memory", _function(masked_loss, (512, 5000), (512,))),
    Kind("distances", "memory", _function(distances, (256, 64), (256, 64))),
    Kind("augment", "memory", _function(augment, (16, 3, 224, 224))),
    Kind("slow-attention", "memory", _function(slow_attention, (4, 8, 256, 64), (4, 8, 256, 64), (4, 8, 256, 64))),
    Kind("add-large", "memory", _function(one_add, (1 << 22,), (1 << 22,))),
    # Products are.
    Kind("product", "products", _function(product, (768, 768), (768, 768))),
    Kind("product-gelu", "products", _function(product_gelu, (512, 768), (768, 3072), (3072,))),
    Kind("attention", "products", _function(attention, (4, 8, 256, 64), (4, 8, 256, 64), (4, 8, 256, 64))),
    Kind("bert-wide", "products", _architecture("bert", **WIDE)),
    Kind("gpt2-wide", "products", _architecture("gpt2", **WIDE_GPT)),
    Kind("mlp-wide", "products", _module(lambda: Mlp(1024, 3), 128, 1024)),
    Kind("convolutions", "products", _module(lambda: ConvNet(32, 4), 4, 3, 64, 64)),
    Kind("solve", "products", _function(solve, (200, 200), (200, 8))),
    # There is next to nothing to gain.
    Kind("add-small", "nothing", _function(one_add, (8,), (8,))),
    Kind("fft", "nothing", _function(fft_filter, (64, 4096))),
    Kind("cumulative", "nothing", _function(cumulative, (64, 4096))),
    # They wait for data.
    Kind("waits-2ms", "loader", _waiting(lambda: Mlp(64, 4), 2, 16, 64)),
    Kind("waits-20ms", "loader", _waiting(lambda: Mlp(256, 4), 20, 64, 256)),
    Kind("waits-50ms", "loader", _waiting(lambda: ConvNet(16, 3), 50, 2, 3, 32, 32)),
    Kind("reads", "loader", _reading),
    # They break.
    Kind("numpy", "breaks", _function(breaks_on_numpy, (128, 256), (256, 256))),
    Kind("item", "breaks", _function(breaks_on_item, (128, 256), (256, 256))),
    Kind("branches", "breaks", _function(branches_on_data, (1000,))),
    # Sizes change.
    Kind("ragged-mlp", "ragged", _ragged(lambda: Mlp(128, 3), 128, tuple(range(3, 40)))),
    Kind("ragged-wide", "ragged", _ragged(lambda: Mlp(512, 3), 512, (17, 64, 33, 128, 5, 90, 71))),
    Kind("ragged-two", "ragged", _ragged(lambda: Mlp(64, 6), 64, (8, 8, 8, 5))),
    # Training.
    Kind("train-bert", "training", _training("bert", "AdamW")),
    Kind("train-gpt2", "training", _training("gpt2", "AdamW")),
    Kind("train-vit", "training", _training("vit", "SGD")),
    Kind("train-resnet", "training", _training("resnet", "SGD")),
    Kind("train-gpt2-wide", "training", _training("gpt2", "AdamW", **WIDE_GPT)),
    Kind("train-mlp", "training", _trained(lambda: Mlp(128, 4, 0.1), "AdamW", 32, 128)),
    Kind("train-mlp-wide", "training", _trained(lambda: Mlp(512, 4), "Adam", 128, 512)),
    Kind("train-convolutions", "training", _trained(lambda: ConvNet(16, 3), "AdamW", 8, 3, 32, 32)),
)  # fmt: skip

BY_WORKLOAD = {each.name: each for each in WORKLOADS}
