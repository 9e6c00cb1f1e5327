"""`lampwork.verify`: calls of a program, compiled and by eager, compared element by element; who is to blame if not.

Eager runs as it is, beside float64, and a few times with every operator's result off by a rounding: these say how far
right numbers may be apart (see `judge.py`). Only where something is wrong, the calls are made once more and judged
stage by stage (`blame.py`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from lampwork.config import Settings
from lampwork.errors import OptionError
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.wrappers import compiled_of, is_wrapper, original_of
from lampwork.verdict.assess import telling
from lampwork.verdict.program import loss_of
from lampwork.verification.answer import Compared, Verification, Wrong
from lampwork.verification.blame import Blame, Judging, blame_capture, blame_guards, blame_memory, judged
from lampwork.verification.call import Call, References, Subject, Trail
from lampwork.verification.judge import Difference, differences
from lampwork.verification.losses import Losses

Say = Callable[[str], object]

#: The learning rate of the optimizer that a module is trained with, where the program brings none.
LEARNING_RATE = 1e-3

#: Kinds of values in the order in which the answer tells of them, by how their names begin.
KINDS = (
    ("gradients", "gradient of "), ("buffers", "buffer "), ("parameters", "parameter "),
    ("states of optimizers", "optimizer "), ("arguments", "argument "),
)  # fmt: skip


def verify_calls(
    function: Callable[..., Any],
    calls: Sequence[Call],
    *,
    backward: bool | None = None,
    steps: int = 0,
    seeds: int = 2,
    blame: bool = True,
    progress: bool | None = None,
    name: str = "",
) -> Verification:
    """See `lampwork.verify`. `name`: what the answer calls the program, in place of the function's own."""
    for option, value in (("steps", steps), ("seeds", seeds)):
        if not isinstance(value, int) or value < 0:
            raise OptionError(f"{option} must be a number, 0 or more, not {value!r}")
    began = time.perf_counter()
    settings = Settings()
    if is_wrapper(function):
        function, settings = original_of(function), compiled_of(function).settings
    name = name or getattr(function, "__qualname__", type(function).__qualname__)
    if steps and isinstance(function, torch.nn.Module):
        function, backward = training_step(function), False
    with telling(progress) as say:
        say("one eager call")
        subject = Subject(function, calls, backward, steps)
        found = compared_with(subject, settings, subject.references(say), seeds, blame, say)
    return replace(found, name=name, seconds=time.perf_counter() - began)


def compared_with(
    subject: Subject, settings: Settings, references: References, seeds: int = 0, blame: bool = True,
    say: Say = lambda text: None,
) -> Verification:  # fmt: skip
    """The compiled calls of a subject compared with eager's, which were made before."""
    # What mode "auto" runs eagerly at first is verified as if it were compiled; what is stored has no stages.
    mode = "default" if settings.mode == "auto" else settings.mode
    settings = replace(settings, mode=mode, options=replace(settings.options, cache=False))
    say("compiling")
    function = subject.program.function
    ours, stats = _compiled_calls(subject, settings)
    say("comparing")
    wrong, counts = _compared(ours, references)
    losses = _losses(subject, ours, references, seeds, say) if subject.trains else None
    found = None
    if blame and (wrong or (losses is not None and not losses.inside)):
        gc.collect()  # memory of the compiled function goes: the calls that are made again would find it idle
        found = _blame(subject, function, settings, references, wrong, losses, say)
    return Verification(
        subject.name, counts, tuple(wrong), losses, found, _notes(stats, references), int(str(stats["graphs"])),
        subject.steps,
    )  # fmt: skip


def _compiled_calls(subject: Subject, settings: Settings) -> tuple[Trail, Mapping[str, Any]]:
    """What the calls leave, compiled, and the compiled function's statistics."""
    compiled = CompiledFunction(subject.program.function, settings)
    ours = subject.run(lambda *args, **kwargs: compiled.call(args, kwargs))
    return ours, compiled.counters.snapshot(compiled.entries, compiled.continuations)


def training_step(module: torch.nn.Module) -> Callable[..., torch.Tensor]:
    """One step of AdamW on `loss_of` what the module returns, as a function of the module's arguments."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE)

    def step(*args: Any, **kwargs: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(module(*args, **kwargs))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _compared(ours: Trail, references: References) -> tuple[list[Wrong], tuple[Compared, ...]]:
    wrong: list[Wrong] = []
    counts: dict[str, list[int]] = {}
    eager = references.eager
    for number in sorted(eager.each):
        if number not in ours.each:
            break
        found = {each.name: each for each in differences(ours.each[number], references.of(number))}
        wrong += [Wrong(number, each) for each in found.values()]
        for name, value in eager.each[number].items():
            count = counts.setdefault(_kind(name), [0, 0, 0])
            count[0] += 1
            count[1] += value.numel() if isinstance(value, torch.Tensor) else 1
            count[2] += name in found
    if ours.raised is not None:
        number, error = ours.raised
        text = f"{type(error).__name__}: {error}"
        wrong.append(Wrong(number, Difference("the call", f"raises {text:.300}, where eager does not")))
    order = ["results", *(kind for kind, _ in KINDS)]
    return wrong, tuple(Compared(kind, *counts[kind]) for kind in order if kind in counts)


def _kind(name: str) -> str:
    return next((kind for kind, begins in KINDS if name.startswith(begins)), "results")


def _losses(subject: Subject, ours: Trail, references: References, seeds: int, say: Say) -> Losses | None:
    eager, wide = references.eager, references.wide
    if not eager.losses:
        return None
    others = []
    for seed in range(seeds if subject.draws else 0):
        say(f"eager with other random numbers, {seed + 1} of {seeds}")
        others.append(subject.run(seed=seed + 1).losses)
    return Losses(ours.losses, eager.losses, wide.losses, [each.losses for each in references.rounded], others)


def _blame(
    subject: Subject, function: Callable[..., Any], settings: Settings, references: References, wrong: Sequence[Wrong],
    losses: Losses | None, say: Say,
) -> Blame | None:  # fmt: skip
    """Makes the calls again, up to the first wrong one, and judges each run of each program."""
    first = min([each.call for each in wrong] or (losses.outside if losses is not None else []) or [0])
    what = str(wrong[0].difference) if wrong else "the loss curve"
    judging = _made_again(subject, function, Judging(settings, say), first)
    if wrong and judging.is_late():
        say("making the wrong call alone")
        if _is_right_alone(subject, CompiledFunction(function, settings), first, references):
            return blame_guards(judging, what)
    if judging.blames:
        return judging.blames[0]
    say("looking at results when the call ends")
    if _made_again(subject, function, Judging(settings, say, judges=False), first).overwritten():
        return blame_memory(what)
    say("comparing eager's operators with those of the graphs")
    return blame_capture(judging, lambda mode: subject.make(first, mode), first, what)


def _made_again(subject: Subject, function: Callable[..., Any], judging: Judging, first: int) -> Judging:
    """What is found out by the calls up to the first wrong one."""

    def before(number: int) -> None:
        if number <= first:
            judging.begin(number)
            judging.keep = number == first

    with judged(judging) as observer:
        compiled = CompiledFunction(function, judging.settings, None, observer)

        def call(*args: Any, **kwargs: Any) -> Any:
            if judging.number > first or judging.blames:
                return function(*args, **kwargs)
            return compiled.call(args, kwargs)

        subject.run(call, before=before)
    return judging


def _is_right_alone(subject: Subject, compiled: CompiledFunction, number: int, references: References) -> bool:
    """Whether a call is right that is the first of a compiled function, after eager's earlier calls."""
    at = 0

    def before(each: int) -> None:
        nonlocal at
        at = each

    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled.call(args, kwargs) if at == number else subject.program.function(*args, **kwargs)

    ours = subject.run(call, before=before)
    return number in ours.each and not differences(ours.each[number], references.of(number))


def _notes(stats: Mapping[str, Any], references: References) -> tuple[str, ...]:
    found = []
    if not stats["graphs"]:
        found.append("Nothing was compiled: eager is compared with itself.")
    for each in (*stats["breaks"], *stats["fallbacks"]):
        where = f" at {each.location.file}:{each.location.line}" if each.location.file else ""
        found.append(f"Not compiled{where}: {each.reason}.")
    if not references.rounded:
        found.append("No run of eager that was off by roundings came to its end: elements are held to float64 alone.")
    return tuple(dict.fromkeys(found))
