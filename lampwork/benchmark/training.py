"""One training step of a model, as a user writes it, and what several of them leave behind.

    optimizer.zero_grad(); loss = model(batch); loss.backward(); clip_grad_norm_; AdamW; the schedule's step outside

`prepare` makes the workload, `Trainer` trains one copy of its model, `compare` judges what two of them came to; where
eager differs from itself as much, `Nearby` knows.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from lampwork.benchmark import zoo
from lampwork.benchmark.record import Found
from lampwork.verdict import verify

BATCHES = 4  # that the steps take in turns
LEARNING_RATE = 3e-4
LARGEST_NORM = 1.0
SCHEDULE_STEPS = 1000
PIECE = 1 << 17  # elements that are compared at once on a CPU: what its caches hold in double precision
NEARBY = 3  # runs of eager from parameters a last bit away, where one run of eager refuses a column

#: Models whose own forward computes the loss, given `labels`: token numbers, or one class for each image.
LABELS = {"bert": "tokens", "gpt2": "tokens", "llama": "tokens", "vit": "classes", "resnet": "classes"}


@dataclass(frozen=True)
class Batch:
    """The arguments of one call, and what the loss compares its output with (None: the output has a loss)."""

    args: tuple
    kwargs: dict[str, Any]
    target: Any = None


@dataclass(frozen=True)
class Workload:
    """A model in training mode with its batches; `loss(output, target)` is a scalar."""

    name: str
    module: torch.nn.Module
    batches: tuple[Batch, ...]
    loss: Callable[[Any, Any], torch.Tensor]
    description: str = ""


def prepare(name: str, *, device: str = "cpu", size: str = "train", dropout: bool = False) -> Workload:
    """The model `name` of the zoo, or of a factory, ready to train in float32; the same weights and batches each time.

    A factory's module is trained on its output's `loss`, on the output itself if that is a scalar, else on the mean of
    its squares. Dropouts are set to 0 unless `dropout`. Raises ValueError if a factory gives anything but a module.
    """
    built = zoo.build(name, device=device, size=size)
    module = built.module
    if module is None:
        raise ValueError(f"{name}: only modules are trained, and its factory gives a {type(built.function).__name__}")
    module.train()
    if not dropout:
        without_dropout(module)
    batches = []
    for number in range(BATCHES):
        args = tuple(_varied(value, number) for value in built.args)
        kwargs = {key: _varied(value, number) for key, value in built.kwargs.items()}
        batches.append(_with_target(name, module, args, kwargs, number))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        kept = {key: value.clone() for key, value in module.named_buffers()}
        output = module(*batches[0].args, **batches[0].kwargs)
        for key, value in module.named_buffers():
            value.copy_(kept[key])
    return Workload(name, module, tuple(batches), _loss_for(name, output), built.description)


def _varied(value: object, number: int) -> Any:
    """A value of the same kind and layout with other numbers."""
    if not isinstance(value, torch.Tensor):
        return value
    new = torch.empty_like(value)
    return new.copy_(value * (1 - number / 16) if value.is_floating_point() else value.roll(number, -1))


def _with_target(name: str, module: Any, args: tuple, kwargs: dict[str, object], number: int) -> Batch:
    if LABELS.get(name) == "tokens":
        return Batch(args, {**kwargs, "labels": args[0].roll(1, -1) if name == "bert" else args[0]})
    if LABELS.get(name) == "classes":
        classes = torch.arange(number, number + args[0].shape[0], device=args[0].device) % module.config.num_labels
        return Batch(args, {**kwargs, "labels": classes})
    if name == "mlp":
        return Batch(args, kwargs, torch.arange(number, number + args[0].shape[0], device=args[0].device) % 10)
    if name == "unet":
        return Batch(args, kwargs, args[0].roll(1, -1))  # stands for the noise that is to be found
    return Batch(args, kwargs)


def _loss_for(name: str, output: object) -> Callable[[Any, Any], torch.Tensor]:
    if name == "mlp":
        return classification_loss
    if name == "unet":
        return regression_loss
    if isinstance(getattr(output, "loss", None), torch.Tensor):
        return own_loss
    return plain_loss if isinstance(output, torch.Tensor) and output.dim() == 0 else mean_square


def own_loss(output: Any, target: object) -> torch.Tensor:
    return output.loss


def plain_loss(output: Any, target: object) -> torch.Tensor:
    return output


def classification_loss(output: Any, target: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(output, target)


def regression_loss(output: Any, target: Any) -> torch.Tensor:
    return torch.nn.functional.mse_loss(output, target)


def mean_square(output: object, target: object) -> torch.Tensor:
    first = next(leaf for _, leaf in verify.leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad)
    return first.float().square().mean()


def without_dropout(module: torch.nn.Module) -> None:
    """Set every dropout's probability to 0: those of layers, and those that modules keep as plain numbers."""
    for child in module.modules():
        for name, value in vars(child).items():
            is_layer = name == "p" and "Dropout" in type(child).__name__
            if isinstance(value, float) and (is_layer or "dropout" in name or "pdrop" in name):
                setattr(child, name, 0.0)


def make_optimizer(module: torch.nn.Module, kind: str) -> torch.optim.Optimizer:
    """AdamW over all parameters; `kind` is the implementation: fused, foreach or plain."""
    ways = {"fused": {"fused": True}, "foreach": {"foreach": True}, "plain": {"foreach": False, "fused": False}}
    return torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE, **ways[kind])


class Trainer:
    """A copy of a workload's model with an optimizer and a cosine schedule of its own. Calling it makes one step.

    `compile_model` and `compile_step` take the model, or the function of a whole step, and return what runs instead.
    `autocast`: the type that forward and loss are computed in, if that is not the parameters'.
    """

    def __init__(
        self,
        workload: Workload,
        device: str,
        *,
        optimizer: str = "fused",
        autocast: torch.dtype | None = None,
        dtype: torch.dtype = torch.float32,
        compile_model: Callable[[Any], Any] | None = None,
        compile_step: Callable[[Any], Any] | None = None,
    ) -> None:
        self.module = copy.deepcopy(workload.module).to(dtype)
        self.batches = [
            tuple(zoo.convert(each, dtype=dtype) for each in (batch.args, batch.kwargs, batch.target))
            for batch in workload.batches
        ]
        self.optimizer = make_optimizer(self.module, optimizer)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, SCHEDULE_STEPS)
        self.number = 0
        model = self.module if compile_model is None else compile_model(self.module)
        step = make_step(model, list(self.module.parameters()), self.optimizer, workload.loss, device, autocast)
        self.compiled = model if compile_step is None else compile_step(step)
        self.step = step if compile_step is None else self.compiled

    def __call__(self) -> torch.Tensor:
        """Make one step; its loss."""
        args, kwargs, target = self.batches[self.number % len(self.batches)]
        loss = self.step(args, kwargs, target)
        self.schedule.step()
        self.number += 1
        return loss


def make_step(
    model: Any,
    parameters: list[torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    loss_function: Callable[[Any, Any], torch.Tensor],
    device: str,
    autocast: torch.dtype | None,
) -> Callable[[tuple, Found, Any], torch.Tensor]:
    """The function of one training step: what the column `lampwork:step` compiles as a whole."""

    def step(args: tuple, kwargs: dict[str, Any], target: Any) -> torch.Tensor:
        optimizer.zero_grad()
        with contextlib.nullcontext() if autocast is None else torch.autocast(device, dtype=autocast):
            loss = loss_function(model(*args, **kwargs), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, LARGEST_NORM)
        optimizer.step()
        return loss.detach()

    return step


@dataclass
class Outcome:
    """What some steps of a trainer left: losses, gradients after the first step and after the last, parameters,
    buffers. Tensors are on the CPU, whatever they were computed on."""

    losses: list[float]
    first_gradients: dict[str, torch.Tensor | None]
    gradients: dict[str, torch.Tensor | None]
    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


def train(trainer: Trainer, steps: int) -> Outcome:
    """The outcome of `steps` steps from where the trainer stands."""
    losses = [trainer()]
    first = _gradients(trainer.module)
    losses += [trainer() for _ in range(steps - 1)]
    module = trainer.module
    return Outcome(
        [float(loss) for loss in losses],
        first,
        _gradients(module),
        parameters_of(module),
        {name: value.detach().cpu().clone() for name, value in module.named_buffers()},
    )


def parameters_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of a module's parameters on the CPU."""
    return {name: value.detach().cpu().clone() for name, value in module.named_parameters()}


def _gradients(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    return {n: None if p.grad is None else p.grad.detach().cpu().clone() for n, p in module.named_parameters()}


def nudge(module: torch.nn.Module, seed: int) -> None:
    """Change every parameter in its last bit, up or down by chance: no more than rounding it does."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            up = torch.randint(0, 2, parameter.shape, generator=chance, dtype=torch.int8).bool().to(parameter.device)
            towards = torch.where(up, math.inf, -math.inf).to(parameter.dtype)
            parameter.copy_(torch.nextafter(parameter, towards))


class Nearby:
    """How far eager is from itself: the errors of `NEARBY` eager runs whose parameters begin a last bit away.

    Iterating gives each run's errors against `right`, as `errors_of` does. A run is made when it is asked for, by the
    trainer that `make` returns, and remembered.
    """

    def __init__(self, make: Callable[[], Trainer], steps: int, right: Outcome, start: dict[str, torch.Tensor]) -> None:
        self.make = make
        self.steps = steps
        self.right = right
        self.start = start
        self.found: list[dict[str, float]] = []

    def __iter__(self) -> Iterator[dict[str, float]]:
        for seed in range(NEARBY):
            if seed == len(self.found):
                trainer = self.make()
                nudge(trainer.module, seed)
                begun = parameters_of(trainer.module)
                self.found.append(errors_of(train(trainer, self.steps), self.right, self.start, begun))
            yield self.found[seed]


def errors_of(
    outcome: Outcome,
    right: Outcome,
    start: dict[str, torch.Tensor],
    own_start: dict[str, torch.Tensor] | None = None,
) -> dict[str, float]:
    """Relative distances of an outcome from the right one, by the words that a verdict says of each.

    They are root mean squares over those of what is right: of all losses, all gradients, what training changed about
    all parameters (which were `start`, or this outcome's `own_start`), all buffers. First gradients have one each, too,
    relative to all of them where that is more. What either side lacks is left out. Infinite where a NaN is on one side
    alone.
    """
    mine, exact = (torch.tensor(side.losses, dtype=torch.float64) for side in (outcome, right))
    found = {"losses": _relative([_squares(mine, exact)])}
    for what in ("first_gradients", "gradients"):
        ours, theirs = getattr(outcome, what), getattr(right, what)
        names = [name for name in theirs if ours[name] is not None and theirs[name] is not None]
        squares = {name: _squares(ours[name], theirs[name]) for name in names}
        found[what] = _relative(list(squares.values()))
        if what == "first_gradients":
            overall = _size(list(squares.values()))
            found |= {f"first gradient of {name}": _relative([each], overall) for name, each in squares.items()}
    changes = _changes(outcome, own_start or start), _changes(right, start)
    found["parameters"] = _relative([_squares(*pair) for pair in zip(*changes, strict=True)])
    floating = [name for name, value in right.buffers.items() if value.is_floating_point()]
    if floating:
        found["buffers"] = _relative([_squares(outcome.buffers[name], right.buffers[name]) for name in floating])
    return found


def compare(
    ours: Outcome,
    eager: Outcome,
    reference: Outcome | None,
    start: dict[str, torch.Tensor],
    dtype: torch.dtype,
    nearby: Iterable[dict[str, float]] = (),
) -> Found:
    """The verdict on an outcome: `accepted`, `reasons`, and the relative errors of each part, eager's beside them.

    The rule is that of `verify.py` for `dtype`, in which the model computed: root mean square errors against the
    reference are at most k times eager's, plus a tenth of the tolerance. All are relative, for gradients can be far
    smaller than a tolerance: to the root mean square of the gradients, to that of what training changed about the
    parameters. First gradients are judged one by one; what comes later amplifies rounding differently in each run
    (AdamW divides noise by noise where a gradient is nearly 0), so it is judged as a whole, by the whole tolerance.

    One run of eager is one draw of what rounding does to it. Where that refuses, `nearby` (see `Nearby`) is asked, one
    after the other: eager's error is the largest among all its runs that stayed finite. `eager_runs` counts them.
    """
    tolerance = verify.TOLERANCE[dtype]
    multiplier = verify.MULTIPLIER[dtype]
    reasons = _differences_in_kind(ours, eager)
    exact = eager if reference is None else reference
    mine, usual = (errors_of(each, exact, start) for each in (ours, eager))
    reasons += [f"eager's own {what} are not finite" for what, error in usual.items() if not math.isfinite(error)]

    def refused() -> list[str]:
        return [
            f"{what}: relative error {error:.3g}, eager's {usual[what]:.3g}"
            for what, error in mine.items()
            if not error <= multiplier * usual[what] + (tolerance / 10 if what.startswith("first") else tolerance)
        ]

    runs = 1
    if not reasons and refused():
        for errors in nearby:
            runs += 1
            usual |= {what: max(usual[what], error) for what, error in errors.items() if math.isfinite(error)}
            if not refused():
                break
    reasons += refused()
    parts = [what for what in mine if not what.startswith("first gradient of")]
    return {
        "accepted": not reasons,
        "reasons": reasons[:8],
        "errors": {what: [mine[what], usual[what]] for what in parts},
        "eager_runs": runs,
    }


def _differences_in_kind(ours: Outcome, eager: Outcome) -> list[str]:
    """What no rounding explains: a gradient that one side lacks, counters that differ; losses of eager's that are no
    numbers, next to which nothing could be wrong."""
    found = []
    if not all(math.isfinite(loss) for loss in eager.losses):
        found.append(f"eager's own losses are not finite: {eager.losses[:5]}")
    for what in ("first_gradients", "gradients"):
        mine, theirs = getattr(ours, what), getattr(eager, what)
        absent = [name for name in theirs if (mine[name] is None) != (theirs[name] is None)]
        if absent:
            found.append(f"{what}: {', '.join(absent[:3])}: one has a gradient, the other has none")
    for name, value in eager.buffers.items():
        if not value.is_floating_point() and not torch.equal(ours.buffers[name], value):
            found.append(f"buffer {name}: {ours.buffers[name]} instead of {value}"[:200])
    return found


def _changes(outcome: Outcome, start: dict[str, torch.Tensor]) -> Iterator[torch.Tensor]:
    """What training changed about each parameter, in double precision."""
    return (outcome.parameters[name].double() - value.double() for name, value in start.items())


class _Squares(NamedTuple):
    """Of two tensors: the sums of squares of their difference and of the second, and how many elements they have."""

    apart: float
    right: float
    elements: int


def _squares(ours: torch.Tensor, right: torch.Tensor) -> _Squares:
    """Where both are NaN they are equal; a NaN in one of them alone makes `apart` infinite."""
    device, piece = ("cuda", max(1, ours.numel())) if torch.cuda.is_available() else ("cpu", PIECE)
    apart = size = 0.0
    for one, other in zip(ours.reshape(-1).split(piece), right.reshape(-1).split(piece), strict=True):
        one, other = one.to(device).double(), other.to(device).double()
        difference = one - other
        squares, own = float(difference.dot(difference)), float(other.dot(other))
        if not math.isfinite(squares + own):
            squares = float(difference.masked_fill(one.isnan() & other.isnan(), 0.0).square().sum())
            own = float(other.nan_to_num().square().sum())
        apart, size = apart + squares, size + own
    return _Squares(apart if apart == apart else math.inf, size, ours.numel())


def _size(squares: list[_Squares]) -> float:
    """Root mean square of what is right."""
    return (sum(each.right for each in squares) / max(1, sum(each.elements for each in squares))) ** 0.5


def _relative(squares: list[_Squares], at_least: float = 0.0) -> float:
    """Distance over the size of what is right, or over `at_least` where that is more; as it is where both are 0."""
    distance = (sum(each.apart for each in squares) / max(1, sum(each.elements for each in squares))) ** 0.5
    return distance / (max(_size(squares), at_least) or 1.0)
