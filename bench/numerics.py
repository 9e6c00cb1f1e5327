"""Whether `numerics="eager"` trains with eager's bits, and how much of the default's gain it keeps, model by model.

    python -m bench.numerics [MODELS...] [--size train|tiny] [--steps 20] [--ways model step] [--optimizer plain]
                             [--autocast bfloat16] [--device cpu|cuda] [--threads N] [--seconds 30]
                             [--record FILE] [--resume]

Models are those of the zoo. `model` compiles the module, `step` the whole training step: forward, loss, backward,
clipped gradients, AdamW. A line for each model and way:

    bits        steps whose digest is eager's, of `--steps`: all of them, or how many, and what comes
                first in the next one of what differs: outputs, loss, buffers, gradients, weights, optimizer states.
                "eager differs from itself" where two eager copies do, too: some kernels of GPUs add in whatever
                order they come to it
    eager       milliseconds of one step, the median; in turns with the other two
    default     how many times faster the program that `lampwork.compile` makes by default is
    exact       the same with `numerics="eager"`
    kept        the share of the default's gain that is kept: time saved by `exact` over time saved by `default`;
                "-" where the default saves less than a twentieth of eager's time

Times are of one process. With `--threads 1` they are processor time of that thread, which other work on the machine
moves less; else time on the clock. `--seconds` are for all three together, at least three rounds; compiling is not
counted.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import lampwork
from lampwork.benchmark import training, zoo
from lampwork.benchmark.record import Record, source_digest
from lampwork.verdict import verify

WAYS = ("model", "step")
LEAST_GAIN = 0.05
WARM_STEPS = 3
FEWEST_ROUNDS = 3

Digests = dict[str, str]


class Run:
    """A copy of a workload's model that trains; calling it makes one step and returns the loss.

    `numerics`: None for eager. `way`: "model" compiles the module, "step" the whole step.
    """

    def __init__(
        self,
        workload: training.Workload,
        numerics: str | None,
        way: str,
        *,
        device: str = "cpu",
        optimizer: str = "plain",
        autocast: torch.dtype | None = None,
    ) -> None:
        self.module = copy.deepcopy(workload.module)
        self.optimizer = training.make_optimizer(self.module, optimizer)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, training.SCHEDULE_STEPS)
        self.batches, self.number = workload.batches, 0
        self.output: Any = None
        self.loss: torch.Tensor | None = None
        options = {"cache": False, "numerics": numerics}
        model: Any = self.module
        if numerics is not None and way == "model":
            model = lampwork.compile(self.module, options=options)
        step = _step(model, self.optimizer, workload.loss, device, autocast)
        self.step = lampwork.compile(step, options=options) if numerics is not None and way == "step" else step
        self.compiled = self.step if way == "step" else model

    def __call__(self) -> torch.Tensor:
        batch = self.batches[self.number % len(self.batches)]
        self.output, self.loss = self.step(batch.args, batch.kwargs, batch.target)
        self.schedule.step()
        self.number += 1
        return self.loss

    def digests(self) -> Digests:
        """What the last step left, by what it is and name, as digests of bits, in the order in which a step comes to
        it."""
        return {name: digest(value) for name, value in self._tensors()}

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for path, leaf in verify.leaves(self.output):
            if isinstance(leaf, torch.Tensor):
                yield path, leaf
        assert self.loss is not None
        yield "loss", self.loss
        for name, buffer in self.module.named_buffers():
            yield f"buffer {name}", buffer
        # What follows first from what differs: gradients of the last layers are computed first.
        parameters = list(self.module.named_parameters())
        for name, parameter in reversed(parameters):
            if parameter.grad is not None:
                yield f"gradient {name}", parameter.grad
        for name, parameter in parameters:
            yield f"weight {name}", parameter
        for name, parameter in parameters:
            for key, value in self.optimizer.state[parameter].items():
                if isinstance(value, torch.Tensor):
                    yield f"{key} {name}", value


def _step(
    model: Any, optimizer: torch.optim.Optimizer, loss_of: Callable[[Any, Any], torch.Tensor], device: str,
    autocast: torch.dtype | None,
) -> Callable[[tuple, dict[str, Any], Any], tuple[Any, torch.Tensor]]:  # fmt: skip
    parameters = [each for group in optimizer.param_groups for each in group["params"]]

    def step(args: tuple, kwargs: dict[str, Any], target: Any) -> tuple[Any, torch.Tensor]:
        optimizer.zero_grad()
        with contextlib.nullcontext() if autocast is None else torch.autocast(device, dtype=autocast):
            output = model(*args, **kwargs)
            loss = loss_of(output, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, training.LARGEST_NORM)
        optimizer.step()
        return [leaf.detach() for _, leaf in verify.leaves(output) if isinstance(leaf, torch.Tensor)], loss.detach()

    return step


def digest(tensor: torch.Tensor) -> str:
    """Of shape, type and bits; of every NaN as of one."""
    plain = tensor.detach().cpu().contiguous()
    if plain.is_floating_point():
        plain = torch.where(plain.isnan(), torch.full_like(plain, torch.nan), plain)
    found = hashlib.sha256(f"{plain.dtype}{tuple(plain.shape)}".encode())
    found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return found.hexdigest()


def equal_steps(eager: Run, exact: Run, steps: int) -> tuple[int, list[str]]:
    """How many steps leave the same bits, and what differs in the first one that does not, in the order of a step."""
    for number in range(steps):
        # Random operators draw the same numbers.
        state = _random_state()
        eager()
        _set_random_state(state)
        exact()
        left, right = eager.digests(), exact.digests()
        if left != right:
            return number, [name for name in {**left, **right} if left.get(name) != right.get(name)]
    return steps, []


def own_steps(workload: training.Workload, steps: int, **settings: Any) -> tuple[int, list[str]]:
    """The same of two eager copies: what differs there, no compiler can promise."""
    return equal_steps(Run(workload, None, "model", **settings), Run(workload, None, "model", **settings), steps)


def _random_state() -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def _set_random_state(state: tuple[torch.Tensor, list[torch.Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


def step_times(runs: dict[str, Run], device: str, seconds: float) -> dict[str, list[float]]:
    """Seconds of single steps of each, in turns."""
    clock = time.thread_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    found: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found["eager"]) < FEWEST_ROUNDS:
        for name, run in runs.items():
            start = clock()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            found[name].append(clock() - start)
    return found


def measure(name: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """One line of the table."""
    workload = training.prepare(name, device=options.device, size=options.size)
    autocast = getattr(torch, options.autocast) if options.autocast else None
    settings = {"device": options.device, "optimizer": options.optimizer, "autocast": autocast}
    runs = {each: Run(workload, numerics, way, **settings)
            for each, numerics in (("eager", None), ("default", "default"), ("exact", "eager"))}  # fmt: skip
    equal, differing = equal_steps(runs["eager"], runs["exact"], options.steps)
    stats = lampwork.stats(runs["exact"].compiled)
    found = {
        "steps": options.steps,
        "equal": equal,
        "differing": differing[:8],
        # How many steps eager has its own bits: asked where something differs.
        "own": own_steps(workload, options.steps, **settings)[0] if equal < options.steps else options.steps,
        "breaks": [each.reason for each in stats["breaks"]],
        "fallbacks": [each.reason for each in stats["fallbacks"]],
        "launches": stats["launches"],
        "calls": sum(stats["extern_calls"].values()),
    }
    if options.seconds:
        for _ in range(WARM_STEPS):
            runs["default"]()
        times = step_times(runs, options.device, options.seconds)
        found["ms"] = {each: statistics.median(taken) * 1e3 for each, taken in times.items()}
        found["rounds"] = len(times["eager"])
    return found


def kept(times: dict[str, float]) -> float | None:
    """The share of the default's gain; None where there is none to speak of."""
    gain = times["eager"] - times["default"]
    return (times["eager"] - times["exact"]) / gain if gain > LEAST_GAIN * times["eager"] else None


def table_of(record: Record, names: list[str], ways: list[str]) -> Table:
    table = Table("model", "way", "bits", "launches", "calls", "eager ms", "default", "exact", "kept", "rounds")
    for name in names:
        for way in ways:
            found = record.get(name, way)
            if not found:
                continue
            bits = "all" if found["equal"] == found["steps"] else f"{found['equal']}, then {found['differing'][0]}"
            if found["own"] < found["steps"]:
                bits += f"; eager differs from itself after {found['own']}"
            cells = [name, way, bits, str(found["launches"]), str(found["calls"])]
            times = found.get("ms")
            if times:
                share = kept(times)
                cells += [f"{times['eager']:.2f}"]
                cells += [f"{times['eager'] / times[each]:.2f}x" for each in ("default", "exact")]
                cells += ["-" if share is None else f"{share:.0%}", str(found["rounds"])]
            table.add_row(*cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*zoo.ZOO, []], default=[], metavar="MODELS")
    parser.add_argument("--size", default="train")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--optimizer", default="plain", choices=["plain", "foreach", "fused"])
    parser.add_argument("--autocast", choices=["bfloat16", "float16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--record")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    names = options.names or list(zoo.ZOO)
    kind = f"{options.device} {options.size} {options.optimizer} {options.autocast or 'float32'}"
    plan = f"{kind} {options.steps} steps, {options.threads} threads"
    record = Record(options.record, plan, source_digest(), options.resume)
    console = Console(width=140)
    for name in names:
        for way in options.ways:
            if not record.get(name, way):
                start = time.perf_counter()
                found = measure(name, way, options)
                record.add(name, way, "", found, time.perf_counter() - start)
                console.print(f"{name} {way}: {found}", highlight=False)
    console.print(f"{plan}, torch {torch.__version__}")
    console.print(table_of(record, names, options.ways))


if __name__ == "__main__":
    main()
