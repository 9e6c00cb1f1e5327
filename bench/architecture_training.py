"""Three steps of training each architecture of `architectures.py`, compiled and not.

    python -m bench.architectures --task train            the model compiled; backward and AdamW as users call them
    python -m bench.architectures --task step bert t5     the function of the whole step compiled

The loss is the model's own wherever it computes one (`labels` are made here), else a fixed projection of its results.
Dropouts are 0. "Right" is the rule of `lampwork.benchmark.training`: losses, every first gradient, later
gradients, parameters and buffers, against eager and float64.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch

from bench.architecture_inputs import BATCH, token_ids
from bench.architectures import BY_NAME, SEED, Missing
from lampwork.benchmark import training
from lampwork.verdict import verify

STEPS = 3
BATCHES = 2  # that the steps take in turns


# The workload ---------------------------------------------------------------------------------------------------------


def prepare(name: str) -> training.Workload:
    """The architecture `name`, float32 on the CPU, in training mode; the same each time. Raises `Missing`."""
    architecture = BY_NAME[name]
    module, first = architecture.build(_calm)
    module.train()
    training.without_dropout(module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED + 1)
        calls = [first] + [architecture.inputs(module.config) for _ in range(BATCHES - 1)]
        calls = [_with_labels(module, inputs) for inputs in calls]
    batches = tuple(training.Batch((), inputs) for inputs in calls)
    return training.Workload(name, module, batches, _loss)


def _calm(config: Any) -> None:
    """Nothing random in a configuration, nor in those that it holds: neither dropped nor masked."""
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict"):
            _calm(value)
        elif isinstance(value, float) and any(part in name for part in ("dropout", "drop_path", "layerdrop", "pdrop")):
            setattr(config, name, 0.0)
        elif name == "apply_spec_augment":
            config.apply_spec_augment = False


def _with_labels(module: torch.nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs and what the model wants beside them to compute a loss, if it can."""
    accepted = inspect.signature(module.forward).parameters
    if "return_loss" in accepted:
        return {**inputs, "return_loss": True}
    if "labels" in inputs or "future_values" in inputs:
        return inputs
    if "future_values" in accepted:
        return {**inputs, "future_values": _future(module.config, inputs)}
    make = next((make for end, make in _LABELS if type(module).__name__.endswith(end)), None)
    if make is _objects and not _can_match_boxes():
        return inputs
    return inputs if make is None or "labels" not in accepted else {**inputs, "labels": make(module.config, inputs)}


def _future(config: Any, inputs: dict[str, Any]) -> torch.Tensor:
    if isinstance(inputs["past_values"], list):
        return torch.randn(BATCH, config.horizon_length)
    return torch.randn(BATCH, config.prediction_length, config.num_input_channels)


def _next_tokens(config: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """Labels of a language model: where the text is padded, none."""
    if "decoder_input_ids" in inputs:
        return inputs["decoder_input_ids"].roll(-1, -1)
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    special = torch.zeros_like(ids, dtype=torch.bool) if mask is None else mask == 0
    image = getattr(config, "image_token_id", None)
    return ids.masked_fill(special if image is None else special | (ids == image), -100)


def _classes(config: Any, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.randint(0, config.num_labels, (BATCH,))


def _class_of_each_token(config: Any, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.randint(0, config.num_labels, inputs["input_ids"].shape)


def _spoken(config: Any, inputs: dict[str, Any]) -> torch.Tensor:
    return token_ids(5)


def _class_of_each_pixel(config: Any, inputs: dict[str, Any]) -> torch.Tensor:
    classes = torch.randint(0, config.num_labels, (BATCH, *inputs["pixel_values"].shape[-2:]))
    return classes.masked_fill(torch.rand(classes.shape) < 0.1, 255)  # what segmentation leaves out


def _masks(config: Any, inputs: dict[str, Any]) -> torch.Tensor:
    side = config.vision_config.image_size
    return torch.randint(0, 2, (BATCH, side, side)).float()


def _scores(config: Any, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.rand(BATCH, config.num_labels)


def _objects(config: Any, inputs: dict[str, Any]) -> list[dict[str, torch.Tensor]]:
    """Boxes in images, one more in each: middle and size as shares of the image."""
    return [
        {
            "class_labels": torch.randint(0, config.num_labels, (count,)),
            "boxes": torch.cat([0.3 + 0.4 * torch.rand(count, 2), 0.1 + 0.4 * torch.rand(count, 2)], -1),
        }
        for count in range(1, BATCH + 1)
    ]


def _can_match_boxes() -> bool:
    """Whether the packages are here that transformers matches predicted boxes with given ones by."""
    return all(importlib.util.find_spec(package) is not None for package in ("scipy", "PIL"))


#: By the end of a model's name; the first that fits.
_LABELS: tuple[tuple[str, Callable[[Any, dict[str, Any]], Any]], ...] = (
    ("ImageSegmentation", _masks),
    ("SemanticSegmentation", _class_of_each_pixel),
    ("ObjectDetection", _objects),
    ("QuestionAnswering", _scores),
    ("TokenClassification", _class_of_each_token),
    ("ElectraForPreTraining", _class_of_each_token),
    ("Classification", _classes),
    ("CTC", _spoken),
    ("MaskedLM", _next_tokens),
    ("CausalLM", _next_tokens),
    ("LMHeadModel", _next_tokens),
    ("WithLMHead", _next_tokens),
    ("ConditionalGeneration", _next_tokens),
    ("MarianMTModel", _next_tokens),
    ("VisionEncoderDecoderModel", _next_tokens),
)


def _loss(output: Any, target: Any) -> torch.Tensor:
    """The model's own loss, or else a projection on waves: a mean of squares would have no gradient behind a norm."""
    own = getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own.mean()  # some models leave the mean over the batch to whoever trains them
    total: Any = 0
    for _, leaf in verify.leaves(output):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            wave = torch.arange(leaf.numel(), dtype=leaf.dtype).mul(0.7).sin()
            total = total + (leaf * wave.view(leaf.shape)).mean()
    return total


# In the process of one architecture -----------------------------------------------------------------------------------


def check(name: str, *, task: str = "train", fullgraph: bool = False) -> dict[str, Any]:
    """What came of training the architecture `name`, as JSON. `status` is as in `architecture_check.check`.

    graphs, breaks, fallbacks, recompiles, kernels, extern_calls, seconds: as `lampwork.stats` has them after the last
    step. errors: pairs of relative errors, ours and eager's. Exceptions pass.
    """
    import lampwork

    try:
        workload = prepare(name)
    except Missing as missing:
        return {"status": "missing", "reasons": [str(missing)]}
    road = "compile_step" if task == "step" else "compile_model"
    compiling = {road: lambda value: lampwork.compile(value, fullgraph=fullgraph, options={"cache": False})}
    start = {key: value.detach().clone() for key, value in workload.module.named_parameters()}
    eager = training.train(_eager(workload), STEPS)
    reference = _reference(workload)
    ours = training.Trainer(workload, "cpu", optimizer="foreach", **compiling)
    result: dict[str, Any] = {"status": "ok", "reasons": []}
    try:
        outcome = training.train(_seeded(ours), STEPS)
    except lampwork.GraphBreak as stop:
        return {**result, "status": "break", "breaks": [told(stop.diagnostic)], "fallbacks": []}
    nearby = training.Nearby(lambda: _eager(workload), STEPS, reference or eager, start)
    verdict = training.compare(outcome, eager, reference, start, torch.float32, nearby)
    if not verdict["accepted"]:
        result.update(status="wrong", reasons=verdict["reasons"])
    stats = lampwork.stats(ours.compiled)
    result.update(
        errors=verdict["errors"],
        graphs=stats["graphs"],
        entries=stats["entries"],
        captures=stats["captures"],
        kernels=stats["native_kernels"],
        extern_calls=sum(stats["extern_calls"].values()),
        seconds=dict(stats["compile_seconds"]),
        losses=outcome.losses,
        **{key: [told(each) for each in stats[key]] for key in ("breaks", "fallbacks", "recompiles")},
    )
    return result


def told(reason: Any) -> dict[str, Any]:
    """A record of a break, a fall-back or a recompile as JSON."""
    place = reason.location
    return {"id": reason.id, "reason": reason.reason, "where": f"{place.file}:{place.line}" if place.file else ""}


def _eager(workload: training.Workload, dtype: torch.dtype = torch.float32) -> training.Trainer:
    trainer = training.Trainer(workload, "cpu", optimizer="foreach", dtype=dtype)
    for module in trainer.module.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.register_forward_pre_hook(_with_contiguous_operand)
            module.register_forward_hook(_with_contiguous_gradient)
    return _seeded(trainer)


# Eager's derivative of batch norm on a CPU (PyTorch 2.13) is wrong where one side of the image is 1 and an operand is
# channels last in memory, but not by the stride of that side: it is read as if it were contiguous, and sums over a
# channel take other elements. CLAP's audio encoder is such a model. Ours is right, and measured against what is right.


def _with_contiguous_operand(module: torch.nn.Module, args: tuple) -> tuple:
    return tuple(each.contiguous() if isinstance(each, torch.Tensor) else each for each in args)


def _with_contiguous_gradient(module: torch.nn.Module, args: tuple, result: torch.Tensor) -> None:
    if result.requires_grad:
        result.register_hook(torch.Tensor.contiguous)


def _seeded(trainer: training.Trainer) -> training.Trainer:
    torch.manual_seed(SEED)  # layers that may be left out are drawn for, whatever the probability
    return trainer


def _reference(workload: training.Workload) -> training.Outcome | None:
    """The outcome in float64; None where the model itself insists on a smaller type, or has masks that overflow it."""
    try:
        outcome = training.train(_eager(workload, torch.float64), STEPS)
    except (RuntimeError, NotImplementedError):
        return None
    return outcome if all(map(math.isfinite, outcome.losses)) else None
