"""Models with the structure of real ones and random weights, for benchmarks and tests.

`build(name)` returns a model and the arguments of one call. Names are those of `ZOO`, or
`package.module:factory`, where `factory()` returns `(callable, args)` or `(callable, args, kwargs)`.
Transformers are built by the `transformers` package from configurations, so nothing is downloaded.

Every model has a `size`: "full" is the published configuration (or the one that the benchmark states), "tiny" has
the same structure at a width that runs in milliseconds, for tests. "batch" and "single" are what is measured on a GPU:
a batch that fills one, and one short sequence, where launching is most of the time (`cases.py` lists them). "train" are
batches whose training steps take two cores of a CPU 0.1 to 1.5 s; "train-gpu" is a Llama that trains on one GPU.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from lampwork.benchmark.cases import GPU_SIZES, why_unknown
from lampwork.benchmark.unet import UNet

SEED = 1009


@dataclass(frozen=True)
class Workload:
    """One call that is measured: `function(*args, **kwargs)`."""

    name: str
    function: Callable
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    description: str = ""

    @property
    def module(self) -> torch.nn.Module | None:
        """The workload's module, or None if its function is a plain one."""
        return self.function if isinstance(self.function, torch.nn.Module) else None


@dataclass(frozen=True)
class ZooEntry:
    """How to build one model of the zoo; `factory(size)` gives the module and the arguments, in float32 on the CPU."""

    description: str
    factory: Callable[[str], tuple[torch.nn.Module, tuple]]


def build(name: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32, size: str = "full") -> Workload:
    """The workload called `name`, its module in eval mode, the same weights and inputs each time.

    Sizes for GPUs are built on `device` at once: a billion random weights take a CPU longer than a compile.

    Raises ValueError for a name that is neither in the zoo nor of the form `package.module:factory`, and TypeError if
    such a factory returns something other than `(callable, args)` or `(callable, args, kwargs)`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        if ":" in name:
            return _move(_from_factory(name), device, dtype)
        if name not in ZOO:
            raise ValueError(why_unknown(name))
        entry = ZOO[name]
        with torch.device(device if size in GPU_SIZES else "cpu"):
            module, args = entry.factory(size)
        _wake_zero_weights(module)
        return _move(Workload(name, module.eval(), args, {}, entry.description), device, dtype)


def convert(value: Any, *, device: str | torch.device | None = None, dtype: torch.dtype | None = None) -> Any:
    """`value` with the tensors in its tuples, lists and dicts moved; `dtype` applies to floating-point ones only."""
    if isinstance(value, torch.Tensor):
        return value.to(device=device, dtype=dtype if value.is_floating_point() else None)
    if type(value) in (tuple, list):
        return type(value)(convert(item, device=device, dtype=dtype) for item in value)
    if type(value) is dict:
        return {key: convert(item, device=device, dtype=dtype) for key, item in value.items()}
    return value


def _move(workload: Workload, device: str, dtype: torch.dtype) -> Workload:
    function = workload.function
    if isinstance(function, torch.nn.Module):
        function = function.to(device=device)
        if dtype != torch.float32:
            function = function.to(dtype=dtype)
    moved_dtype = None if dtype == torch.float32 else dtype
    args = convert(workload.args, device=device, dtype=moved_dtype)
    kwargs = convert(workload.kwargs, device=device, dtype=moved_dtype)
    return Workload(workload.name, function, args, kwargs, workload.description)


def _from_factory(name: str) -> Workload:
    module_name, _, attribute = name.partition(":")
    module = importlib.import_module(module_name)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ValueError(f"{name}: module {module_name} has no callable named {attribute!r}")
    made = factory()
    if not (
        isinstance(made, tuple) and len(made) in (2, 3) and callable(made[0]) and isinstance(made[1], tuple | list)
    ):
        raise TypeError(
            f"{name} returned {type(made).__name__}; a factory returns (callable, args) or (callable, args, kwargs), "
            "with args a tuple"
        )
    kwargs = dict(made[2]) if len(made) == 3 else {}
    function = made[0].eval() if isinstance(made[0], torch.nn.Module) else made[0]
    return Workload(name, function, tuple(made[1]), kwargs, inspect.getdoc(factory) or "")


def _wake_zero_weights(module: torch.nn.Module) -> None:
    """Give random values to weight matrices that start at zero: zero outputs would pass any comparison."""
    for parameter in module.parameters():
        if parameter.dim() > 1 and not parameter.detach().any():
            torch.nn.init.normal_(parameter, std=0.02)


def _transformers(names: str) -> Any:
    try:
        module = importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(f"{names} needs the transformers package: pip install 'lampwork[bench]'") from error
    return module


def _mlp(size: str) -> tuple[torch.nn.Module, tuple]:
    width = 32 if size == "tiny" else 512
    module = torch.nn.Sequential(
        torch.nn.Linear(256, width),
        torch.nn.GELU(),
        torch.nn.Linear(width, width),
        torch.nn.GELU(),
        torch.nn.Linear(width, 10),
    )
    return module, (torch.randn(8192 if size == "train" else 64, 256),)


def _resnet(size: str) -> tuple[torch.nn.Module, tuple]:
    # ResNetConfig's defaults are ResNet-50: bottlenecks 3-4-6-3, 256 to 2048 channels, stride in the 3x3 convolution.
    transformers = _transformers("resnet")
    shrink = {} if size != "tiny" else {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [2, 2]}
    config = transformers.ResNetConfig(num_labels=10 if size == "tiny" else 1000, **shrink)
    module = transformers.ResNetForImageClassification(config)
    _randomise_batch_norm(module)
    side = 32 if size == "tiny" else 224
    batch = {"batch": 64, "train": 4}.get(size, 1)
    return _channels_last(module, torch.randn(batch, 3, side, side), size)


def _channels_last(
    module: torch.nn.Module, image: torch.Tensor, size: str
) -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """Convolutions of bf16 on a GPU are run with channels last; every other size keeps PyTorch's usual order."""
    if size != "batch":
        return module, (image,)
    return module.to(memory_format=torch.channels_last), (image.to(memory_format=torch.channels_last),)


def _randomise_batch_norm(module: torch.nn.Module) -> None:
    """Statistics like those of a trained network, so that normalisation does something (fresh ones are 0 and 1)."""
    for child in module.modules():
        if isinstance(child, torch.nn.BatchNorm2d):
            child.running_mean.normal_(0, 0.1)
            child.running_var.uniform_(0.5, 1.5)


#: A transformer whose calls take milliseconds.
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def _vit(size: str) -> tuple[torch.nn.Module, tuple]:
    transformers = _transformers("vit")
    shrink = {**TINY, "image_size": 32, "patch_size": 8} if size == "tiny" else {}
    config = transformers.ViTConfig(num_labels=10 if size == "tiny" else 1000, **shrink)
    side = config.image_size
    batch = {"batch": 32, "train": 2}.get(size, 1)
    return transformers.ViTForImageClassification(config), (torch.randn(batch, 3, side, side),)


def _bert(size: str) -> tuple[torch.nn.Module, tuple]:
    transformers = _transformers("bert")
    shrink = {**TINY, "vocab_size": 97} if size == "tiny" else {}
    config = transformers.BertConfig(**shrink)
    shape = {"tiny": (1, 16), "batch": (16, 512)}.get(size, (1, 128))
    return transformers.BertForMaskedLM(config), (torch.randint(0, config.vocab_size, shape),)


def _gpt2(size: str) -> tuple[torch.nn.Module, tuple]:
    transformers = _transformers("gpt2")
    tokens = {"vocab_size": 97, "n_positions": 64, "bos_token_id": 0, "eos_token_id": 0}
    shrink = {"n_embd": 32, "n_layer": 2, "n_head": 4, **tokens} if size == "tiny" else {}
    config = transformers.GPT2Config(use_cache=False, **shrink)
    shape = {"tiny": (1, 16), "batch": (8, 1024)}.get(size, (1, 128))
    return transformers.GPT2LMHeadModel(config), (torch.randint(0, config.vocab_size, shape),)


def _llama(size: str) -> tuple[torch.nn.Module, tuple]:
    transformers = _transformers("llama")
    # width, inner width, layers, heads, heads of keys and values, vocabulary; tokens
    shapes = {
        "full": ((512, 1376, 4, 8, 2, 32000), (1, 128)),
        "tiny": ((32, 64, 2, 4, 2, 97), (1, 16)),
        "batch": ((2048, 5632, 16, 16, 4, 32000), (4, 2048)),
        "single": ((2048, 5632, 16, 16, 4, 32000), (1, 64)),
        "train": ((512, 1376, 4, 8, 2, 32000), (2, 128)),
        "train-gpu": ((1024, 2816, 16, 16, 4, 32000), (4, 2048)),
    }
    (width, inner, layers, heads, key_heads, vocabulary), tokens = shapes[size]
    config = transformers.LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        vocab_size=vocabulary,
        max_position_embeddings=2048,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config), (torch.randint(0, config.vocab_size, tokens),)


def _unet(size: str) -> tuple[torch.nn.Module, tuple]:
    channels, side, batch = {"tiny": (8, 8, 1), "batch": (256, 64, 4), "train": (64, 16, 8)}.get(size, (64, 16, 1))
    module = UNet(channels=channels, multipliers=(1, 2, 4), groups=4 if size == "tiny" else 32)
    return module, (torch.randn(batch, 4, side, side), torch.tensor([37] * batch))


ZOO: dict[str, ZooEntry] = {
    "mlp": ZooEntry("three layers, 256-512-512-10, batch 64", _mlp),
    "resnet": ZooEntry("ResNet-50, 1x3x224x224", _resnet),
    "vit": ZooEntry("ViT-B/16, 1x3x224x224", _vit),
    "bert": ZooEntry("BERT-base masked language model, 1x128 tokens", _bert),
    "gpt2": ZooEntry("GPT-2 small, 1x128 tokens", _gpt2),
    "llama": ZooEntry("Llama, 4 layers of width 512, grouped queries 8/2, 1x128 tokens", _llama),
    "unet": ZooEntry("time-conditioned UNet, 64 channels x 1/2/4, 1x4x16x16", _unet),
}
