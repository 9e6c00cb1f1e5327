"""What is measured on a GPU: the zoo at sizes that fill one, and at sizes where launching is all. No torch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace

GPU_SIZES = ("batch", "single", "train-gpu")


@dataclass(frozen=True)
class Case:
    """A model of the zoo, or a factory, at one of its sizes; `name` stands for it in tables and records."""

    name: str
    model: str
    size: str


CASES = (
    Case("mlp 64", "mlp", "batch"),
    Case("resnet 64x224", "resnet", "batch"),
    Case("vit 32x224", "vit", "batch"),
    Case("bert 16x512", "bert", "batch"),
    Case("bert 1x128", "bert", "single"),
    Case("gpt2 8x1024", "gpt2", "batch"),
    Case("llama 4x2048", "llama", "batch"),
    Case("llama 1x64", "llama", "single"),
    Case("unet 4x64x64", "unet", "batch"),
)

#: The models of the zoo, by name.
MODELS = tuple(dict.fromkeys(case.model for case in CASES))

#: Training fills a GPU with the same, and with a llama small enough that its gradients and AdamW's state fit.
TRAINING_CASES = tuple(
    replace(case, size="train-gpu") if case.model == "llama" else case for case in CASES if case.size == "batch"
)

#: The class of `transformers` that a model is made of: imported once for all processes that measure it.
CLASSES = {
    "resnet": "ResNetForImageClassification",
    "vit": "ViTForImageClassification",
    "bert": "BertForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
}


def why_unknown(name: str, with_cases: bool = False) -> str:
    """Why nothing can be measured under this name; empty where it is a model, `package.module:factory` with such a
    module, or, `with_cases`, the name of a case. Whether the factory is there is seen when it is called."""
    module, colon, _ = name.partition(":")
    if colon:
        try:
            found = bool(module) and importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            found = False
        return "" if found else f"{name}: there is no module {module!r} in the current folder or on PYTHONPATH"
    if name in MODELS or with_cases and any(case.name == name for case in CASES):
        return ""
    return f"unknown model {name!r}: the zoo has {' '.join(MODELS)}; your own is named package.module:factory"


def cases(model: str, size: str) -> tuple[Case, ...]:
    """What `model` is measured at: on size "gpu" the cases above ("full" for a factory), else that size alone.

    A model may also be the name of a case: "bert 1x128".
    """
    named = tuple(case for case in CASES if case.name == model)
    if named or size == "gpu":
        return named or tuple(case for case in CASES if case.model == model) or (Case(model, model, "full"),)
    return (Case(f"{model} {size}" if size != "full" else model, model, size),)


def training_cases(model: str, size: str) -> tuple[Case, ...]:
    """What training `model` is measured at: on size "gpu" the cases above, on "full" the batches that suit a CPU.

    A factory has one size, its own.
    """
    if size == "gpu" or any(case.name == model for case in TRAINING_CASES):
        found = tuple(case for case in TRAINING_CASES if model in (case.name, case.model))
        return found or (Case(model, model, "full"),)
    if ":" in model or size == "full":
        return (Case(model, model, "full" if ":" in model else "train"),)
    return (Case(f"{model} {size}", model, size),)
