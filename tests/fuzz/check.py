"""One program through a compiler and through eager: what differs in its calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from tests.fuzz.judge import ADDED, CRASH, FAILED, KINDS, WRONG_GRADIENTS, WRONG_VALUES, Difference, is_own, judge, told
from tests.fuzz.misread import misreads
from tests.fuzz.program import Program
from tests.fuzz.races import writes_several_to_one_place
from tests.fuzz.run import Oracle, Outcome, run_call
from tests.fuzz.thresholds import as_if_large


@dataclass(frozen=True)
class Finding:
    """How a program differs from eager; `call` is the number of the call that does."""

    kind: str
    where: str
    detail: str
    call: int


@dataclass
class Report:
    finding: Finding | None
    fallbacks: tuple[str, ...] = ()
    breaks: int = 0
    #: How many calls eager raised in.
    raised: int = 0
    #: Whether calls were left out, whose results nothing can be compared with.
    left_out: bool = False


class Lampwork:
    """The compiler under test. `strict`: what fails inside of it raises."""

    name = "lampwork"

    def compile(self, program: Program, device: str) -> Callable:
        import lampwork

        lampwork.reset()
        return lampwork.compile(
            program.function(device=device), dynamic=program.dynamic, options={"cache": False, "recompile_limit": 64}
        )

    def facts(self, compiled: Callable) -> tuple[tuple[str, ...], int]:
        import lampwork

        stats = lampwork.stats(compiled)
        return tuple(each.id for each in stats["fallbacks"]), sum(each.count for each in stats["breaks"])


class TorchCompile:
    """`torch.compile` in its place, to see what of the findings is the peer's, too."""

    name = "torch.compile"

    def compile(self, program: Program, device: str) -> Callable:
        torch._dynamo.reset()
        return torch.compile(program.function(device=device), dynamic=program.dynamic)

    def facts(self, compiled: Callable) -> tuple[tuple[str, ...], int]:
        return (), 0


class Eager:
    """The program itself in its place: whatever is found is the judge's own."""

    name = "eager"

    def compile(self, program: Program, device: str) -> Callable:
        return program.function(device=device)

    def facts(self, compiled: Callable) -> tuple[tuple[str, ...], int]:
        return (), 0


COMPILERS: dict[str, Any] = {each.name: each for each in (Lampwork, TorchCompile, Eager)}


class DeviceLost(Exception):
    """Eager itself ended the GPU's context: nothing more can be asked of it in this process."""


#: What eager's kernels for a CPU say of contents that those for a GPU assert, which ends the context.
_ASSERTED = re.compile(r"index|bound|range|between|smaller than|negative|probab|[Cc]lass|[Tt]arget")


#: What GPUs do by chance: dropouts draw numbers of their own inside of fused kernels (docs/usage.md), and where several
#: elements go to one place, threads race.
_LEFT_TO_CHANCE = re.compile(r"dropout|max_unpool|index_copy")

#: Which of equal elements they find, and so where its gradient goes, is chance on a GPU, too; the value is not.
_PICKS_BY_CHANCE = re.compile(r"median|kthvalue|mode\(")


#: Eager refuses writes to one of the views that `split` and `unbind` make, though it is all that is left of them.
_OF_SEVERAL_VIEWS = "This view is the output of a function that returns multiple views"


def check(program: Program, compiler: Any, device: str = "cpu") -> Report:
    """The worst difference of the first call that differs. Raises `DeviceLost`."""
    with as_if_large(program.seed):  # all calls: some compile again
        return _check(program, compiler, device)


def _check(program: Program, compiler: Any, device: str) -> Report:
    if device != "cpu" and any(_LEFT_TO_CHANCE.search(each.text) for each in program.statements):
        return Report(None, left_out=True)
    function = program.function(device=device)
    compiled = compiler.compile(program, device)
    raised, left_out = 0, False
    kept: list[tuple[int, Kept, Kept]] = []
    for index, call in enumerate(program.calls):
        oracle = Oracle(program, call, device)
        if device != "cpu" and _ASSERTED.search(str(oracle.on_cpu.error or "")):
            left_out = True
            break
        expected = run_call(function, program, call, device=device)
        if is_lost(expected.error):
            raise DeviceLost
        ours = run_call(compiled, program, call, device=device)
        if is_lost(ours.error):
            return Report(Finding(CRASH, "call", told(ours.error), index), raised=raised)
        raised += expected.error is not None
        if is_out_of_memory(expected.error):
            break
        if _OF_SEVERAL_VIEWS in str(expected.error or ""):
            left_out = True
            break
        found = judge(expected, ours, oracle)
        if found and device != "cpu" and _may_divide_by_zero(program, oracle):
            left_out = True
            break  # what a GPU makes of a whole number divided by zero is anything
        if found and device != "cpu" and found[0].kind in (WRONG_VALUES, WRONG_GRADIENTS):
            if any(_PICKS_BY_CHANCE.search(each.text) for each in program.statements):
                left_out = True
                break
        if found and device != "cpu" and writes_several_to_one_place(program, call, device):
            left_out = True
            break
        if found and misreads(program, call, device):
            left_out = True
            break
        if found and found[0].kind in (FAILED, ADDED) and compiler.name == "lampwork":
            # Strict mode raises where the compiler fails. Without it the call falls back and is right, or should be.
            lenient = _lenient(program, compiler, index, device)
            if lenient is not None:
                found = [lenient]
            else:
                found = [Difference(FAILED, found[0].where, found[0].detail)]
        if found:
            worst = found[0]
            return Report(Finding(worst.kind, worst.where, worst.detail, index), raised=raised)
        kept.append((index, Kept(expected), Kept(ours)))
    facts = compiler.facts(compiled)
    if kept and not left_out:
        index, *_ = kept[-1]
        for each in (function, compiled):  # and what the last call gave is there while the next one runs
            run_call(each, program, program.calls[index], device=device)
        for index, theirs, mine in kept:
            for label in sorted(mine.changed() - theirs.changed()):
                return Report(Finding(WRONG_VALUES, label, "a later call wrote to it", index), raised=raised)
    return Report(None, *facts, raised, left_out)


#: What draws whole numbers, and what divides by some: a CPU draws others than a GPU.
_DRAWS, _DIVIDES = re.compile(r"randint|random_|randperm|bernoulli|poisson"), re.compile(r"//|%|div|fmod|remainder")


def _may_divide_by_zero(program: Program, oracle: Oracle) -> bool:
    texts = [each.text for each in program.statements]
    draws_divisors = any(map(_DRAWS.search, texts)) and any(map(_DIVIDES.search, texts))
    return draws_divisors or "ZeroDivisionError" in repr(oracle.on_cpu.error)


class Kept:
    """What a call gave, as it was then: later calls may not write to it."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.before = {
            label: _bytes(value)
            for label, value in outcome.values.items()
            if isinstance(value, torch.Tensor) and value.layout == torch.strided
        }

    def changed(self) -> set[str]:
        """The labels of what is something else now."""
        return {label for label, old in self.before.items() if not torch.equal(_bytes(self.outcome.values[label]), old)}


def _bytes(x: torch.Tensor) -> torch.Tensor:
    """A copy of the elements, as bytes."""
    return (
        x.detach().resolve_conj().resolve_neg().flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8)
    )


#: In PyTorch's words, and in the driver's, which our launches pass on.
_LOST = re.compile(
    r"CUDA error|CUDA_ERROR_(ILLEGAL|INVALID_(PC|ADDRESS)|MISALIGNED|LAUNCH_(FAILED|TIMEOUT)|HARDWARE|ASSERT)"
)


def is_lost(error: Any) -> bool:
    """Whether an error ended the GPU's context: whatever is asked of it next raises."""
    return bool(_LOST.search(str(error or "")))


def is_out_of_memory(error: BaseException | None) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(error or "")


def _lenient(program: Program, compiler: Any, index: int, device: str) -> Difference | None:
    """What differs where failures inside the compiler fall back instead of raising."""
    from lampwork.config import environment

    before = environment.strict
    environment.__dict__["strict"] = False
    try:
        compiled = compiler.compile(program, device)
        function = program.function(device=device)
        for call in program.calls[: index + 1]:
            expected = run_call(function, program, call, device=device)
            ours = run_call(compiled, program, call, device=device)
            found = judge(expected, ours, Oracle(program, call, device))
            if found:
                return found[0]
    finally:
        environment.__dict__["strict"] = before
    return None


__all__ = ["COMPILERS", "DeviceLost", "Finding", "KINDS", "Report", "check", "is_lost", "is_own", "replace"]
