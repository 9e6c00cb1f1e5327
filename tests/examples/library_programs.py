"""Programs as users of libraries write them, small: `build()` gives what to compile, what it is called with, and the state.

`python -m tests.examples.library_programs` measures those whose libraries are there: the table of docs/recipes.md.
"""

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

PROGRAMS: dict[str, tuple[tuple[str, ...], int, Callable[[], tuple]]] = {}


def program(*libraries: str, breaks: int = 0) -> Callable:
    """`breaks`: how many a call has at most."""

    def add(build: Callable[[], tuple]) -> Callable[[], tuple]:
        PROGRAMS[build.__name__] = libraries, breaks, build
        return build

    return add


def is_there(name: str) -> bool:
    return all(importlib.util.find_spec(each) is not None for each in PROGRAMS[name][0])


def built(name: str) -> tuple:
    """(what to compile, arguments of each call, modules whose state it changes), from the same seed each time."""
    torch.manual_seed(0)
    return PROGRAMS[name][2]()


def training_step(loss: Callable[..., torch.Tensor], parameters: Any) -> Callable[..., torch.Tensor]:
    optimizer = torch.optim.SGD(parameters, 1e-2)

    def step(*args: Any) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(*args)
        value.backward()
        optimizer.step()
        return value.detach()

    return step


@program("einops")
def einops_attention():
    from einops import rearrange, repeat
    from einops.layers.torch import Rearrange

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4), nn.Linear(48, 64))
            self.first = nn.Parameter(torch.randn(1, 1, 64))
            self.qkv = nn.Linear(64, 192)

        def forward(self, image):
            x = self.patches(image)
            x = torch.cat([repeat(self.first, "1 1 d -> b 1 d", b=len(x)), x], 1)
            q, k, v = (rearrange(each, "b n (h d) -> b h n d", h=4) for each in self.qkv(x).chunk(3, -1))
            return rearrange((q @ k.mT * 0.25).softmax(-1) @ v, "b h n d -> b n (h d)").mean(1)

    model = Attention()
    step = training_step(lambda image: model(image).square().mean(), model.parameters())
    return step, [(torch.rand(rows, 3, 32, 32),) for rows in (4, 4, 6)], [model]


@program("jaxtyping", "beartype")
def jaxtyping_attention():
    from beartype import beartype
    from jaxtyping import Float, jaxtyped

    @jaxtyped(typechecker=beartype)
    def attention(
        q: Float[torch.Tensor, "b n d"],  # noqa: F722
        k: Float[torch.Tensor, "b m d"],  # noqa: F722
        v: Float[torch.Tensor, "b m d"],  # noqa: F722
    ) -> Float[torch.Tensor, "b n d"]:  # noqa: F722
        return (q @ k.mT).softmax(-1) @ v

    calls = [(torch.rand(rows, 16, 32), torch.rand(rows, 24, 32), torch.rand(rows, 24, 32)) for rows in (4, 4, 6)]
    return attention, calls, []


@program("torchdiffeq")
def torchdiffeq_field():
    """The field is compiled, the solver is called as it is."""
    from torchdiffeq import odeint

    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 8))

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model

        def forward(self, t, y):
            return self.net(y**3) * torch.cos(t)

    field = Field()

    def solve(compiled, y):
        return odeint(compiled, y, torch.linspace(0.0, 1.0, 5), method="rk4")

    return field, [(torch.randn(rows, 8),) for rows in (16, 16, 20)], [model], solve


@program("timm")
def timm_training():
    import timm
    from timm.optim import create_optimizer_v2

    model = timm.create_model("resnet10t", num_classes=4)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-3)

    def step(image, label):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(image), label)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, [(torch.rand(rows, 3, 64, 64), torch.arange(rows) % 4) for rows in (4, 4)], [model]


@program("timm")
def timm_muon():
    from timm.optim import create_optimizer_v2

    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    optimizer = create_optimizer_v2(model, opt="muon", lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, [(torch.randn(8, 32),) for _ in range(3)], [model]


@program("torch_geometric")
def pyg_batches():
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import BatchNorm, GCNConv, global_mean_pool

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.norm = GCNConv(6, 32), GCNConv(32, 32), BatchNorm(32)
            self.head = nn.Linear(32, 3)

        def forward(self, data):
            x = self.norm(self.first(data.x, data.edge_index)).relu()
            return self.head(global_mean_pool(self.second(x, data.edge_index).relu(), data.batch))

    def graphs(count):
        sizes = [5 + number % 4 for number in range(count)]
        return Batch.from_data_list([
            Data(x=torch.randn(size, 6), edge_index=torch.randint(0, size, (2, 3 * size)), y=torch.tensor([size % 3]))
            for size in sizes
        ])  # fmt: skip

    model = Net()
    step = training_step(lambda data: F.cross_entropy(model(data), data.y), model.parameters())
    return step, [(graphs(count),) for count in (8, 8, 10)], [model]


@program("gpytorch")
def gpytorch_exact():
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 64)
    y = torch.sin(6 * x) + 0.1 * torch.randn(64)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood).train()
    likelihood.train()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return training_step(lambda: -loss(model(x), y), model.parameters()), [()] * 4, [model]


@program("botorch")
def botorch_acquisition():
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    x = torch.rand(12, 2, dtype=torch.double)
    y = x.sin().sum(1, keepdim=True)
    acquisition = LogExpectedImprovement(SingleTaskGP(x, y).eval(), best_f=y.max())
    calls = [(torch.rand(rows, 1, 2, dtype=torch.double),) for rows in (3, 4, 5)]
    return acquisition, calls, []


@program("kornia")
def kornia_filters():
    from kornia import color, filters, geometry

    def augment(image, angle):
        image = filters.gaussian_blur2d(geometry.rotate(image, angle), (3, 3), (1.0, 1.0))
        return color.rgb_to_grayscale(image), filters.sobel(image), color.rgb_to_hsv(image)

    return augment, [(torch.rand(2, 3, side, side), torch.tensor([30.0, 10.0])) for side in (32, 32, 40)], []


@program("monai")
def monai_training():
    from monai.losses import DiceLoss
    from monai.networks.nets import UNet

    model = UNet(2, 1, 2, (4, 8, 16), (2, 2), num_res_units=2)
    loss = DiceLoss(to_onehot_y=True, softmax=True)
    step = training_step(lambda image, label: loss(model(image), label), model.parameters())
    calls = [(torch.rand(rows, 1, 32, 32), torch.randint(0, 2, (rows, 1, 32, 32))) for rows in (2, 2, 3)]
    return step, calls, [model]


@program("monai")
def monai_meta_tensor():
    from monai.data import MetaTensor
    from monai.networks.nets import UNet

    model = UNet(2, 1, 2, (4, 8), (2,)).eval()

    def predict(image):
        with torch.no_grad():
            return model(image * 2 - 1).argmax(1)

    return predict, [(MetaTensor(torch.rand(1, 1, side, side)),) for side in (32, 32, 48)], []


@program("torchvision")
def torchvision_training():
    import torchvision

    model = torchvision.models.resnet18(num_classes=4)
    step = training_step(lambda image, label: F.cross_entropy(model(image), label), model.parameters())
    return step, [(torch.rand(4, 3, 64, 64), torch.arange(4)) for _ in range(2)], [model]


@program("diffusers")
def diffusers_training():
    from diffusers import DDPMScheduler, UNet2DModel

    model = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16),
        norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4,
    )  # fmt: skip
    scheduler = DDPMScheduler(num_train_timesteps=10)

    def loss(image, noise, times):
        return F.mse_loss(model(scheduler.add_noise(image, noise, times), times).sample, noise)

    image = torch.randn(2, 3, 16, 16)
    calls = [(image, torch.randn_like(image), torch.tensor([3, 7])) for _ in range(2)]
    return training_step(loss, model.parameters()), calls, [model]


@program("torchao")
def torchao_int8():
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    quantize_(model, Int8WeightOnlyConfig())

    def predict(x):
        with torch.no_grad():
            return model(x)

    return predict, [(torch.randn(rows, 64),) for rows in (4, 4, 6)], []


def run(parts: tuple, compiled: Callable) -> list[Any]:
    """What the calls return, with `compiled` in the place of what is to be compiled."""
    call = (lambda *args: parts[3](compiled, *args)) if len(parts) > 3 else compiled
    return [call(*args) for args in parts[1]]


def seconds(parts: tuple, compiled: Callable, repeats: int = 40) -> float:
    """The fastest of some calls with the last arguments."""
    call = (lambda *args: parts[3](compiled, *args)) if len(parts) > 3 else compiled
    args, fastest = parts[1][-1], float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call(*args)
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def main() -> None:
    import lampwork

    warnings.simplefilter("ignore")
    compilers: dict[str, Callable] = {"lampwork": lampwork.compile}
    if "--torch" in sys.argv:
        compilers["torch.compile"] = torch.compile
    names = [each for each in sys.argv[1:] if each in PROGRAMS] or list(PROGRAMS)
    for name in filter(is_there, names):
        parts = built(name)
        run(parts, parts[0])
        row = [name, f"{1e3 * seconds(parts, parts[0]):.2f} ms"]
        for label, compiler in compilers.items():
            parts = built(name)
            try:
                compiled = compiler(parts[0])
                run(parts, compiled)
                row.append(f"{label} {1e3 * seconds(parts, compiled):.2f} ms")
            except Exception as error:
                row.append(f"{label} raises {type(error).__name__}")
                continue
            if label == "lampwork":
                found = lampwork.stats(compiled)
                breaks = sum(each.count for each in found["breaks"])
                row.append(f"{found['entries']} entries, {breaks} breaks in {found['calls']} calls")
        print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
