"""Whether what a compiled program gave is right, element by element.

Eager is the specification. Where an element differs from eager's by more than a few units in the last place, other
answers that a right program may give are consulted: the program in double precision, and eager runs whose rounding is
disturbed (`Oracle`). An element is right if it lies within `WIDER` times the range of those, is NaN or infinite as one
of them is, or is closer to double precision than eager is. Among the runs are some in which what may be zero, or a whole
number, is that: there functions have poles and comparisons turn; and some in which what terms outside of the range of
their type leave is one of the things that it may be (`overflow.py`). And an element is right if it is what eager gives
for the same numbers in memory of another layout, or on a machine with narrower vectors (`elsewhere.py`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzz.program import Program
from tests.fuzz.run import Oracle, Outcome

#: Differences of so many units in the last place need no second opinion.
UNITS = 4
#: How much further than the disturbed runs an answer may lie from eager's.
WIDER = 6.0
#: The smallest float16. What is near to it on the way is rounded to it or to 0, once or twice.
_SMALLEST_HALF = 2.0**-24
#: Disturbed runs: at first, and before an element is called wrong.
FEW, MANY = 3, 36

WRONG_VALUES, WRONG_GRADIENTS = "wrong values", "wrong gradients"
SIGN_OF_ZERO, STRIDES, GRADIENT_STRIDES = "sign of zero", "wrong strides", "gradient strides"
METADATA, ALIASING, DRAWS = "wrong shape or type", "aliasing", "random numbers"
ADDED, LOST, ANOTHER = "exception added", "exception lost", "another exception"
OUTSIDE, FAILED = "write outside of memory", "compiler failed"
CRASH, STUCK = "crash", "no answer"
#: An error in the fuzzer's own code.
BROKEN = "fuzzer failed"
KINDS = (WRONG_VALUES, WRONG_GRADIENTS, METADATA, STRIDES, GRADIENT_STRIDES, ALIASING, SIGN_OF_ZERO, DRAWS, ADDED,
         LOST, ANOTHER, OUTSIDE, FAILED, CRASH, STUCK, BROKEN)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    kind: str
    where: str
    detail: str


def told(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:240] if lines else ''}"


def is_own(error: BaseException) -> bool:
    """Whether an exception is the compiler's, which it raises in strict mode where it failed."""
    return type(error).__module__.split(".")[0] == "lampwork"


def judge(eager: Outcome, ours: Outcome, oracle: Oracle) -> list[Difference]:
    """What a caller could tell from eager's outcome, worst first."""
    found: list[Difference] = []
    if not ours.is_intact and eager.is_intact:
        found.append(Difference(OUTSIDE, "arguments", "bytes outside of a storage have changed"))
    if ours.error is not None and is_own(ours.error):
        return [*found, Difference(FAILED, "call", told(ours.error))]
    if eager.error is None and ours.error is not None:
        return [*found, Difference(ADDED, "call", told(ours.error))]
    if eager.error is not None:
        if ours.error is None:
            found.append(Difference(LOST, "call", told(eager.error)))
        elif type(ours.error) is not type(eager.error):
            found.append(Difference(ANOTHER, "call", f"{told(ours.error)}; eager: {told(eager.error)}"))
        return found
    if list(ours.values) != list(eager.values):
        return [*found, Difference(METADATA, "results", f"{list(ours.values)} instead of {list(eager.values)}")]
    for label, expected in eager.values.items():
        found += _compare(label, ours.values[label], expected, oracle)
    if ours.facts != eager.facts and _have_shapes_of(ours, eager):
        found.append(Difference(ALIASING, "results", f"{ours.facts} instead of {eager.facts}"))
    if eager.random_state is not None and not torch.equal(eager.random_state, ours.random_state):
        found.append(Difference(DRAWS, "generator", "the random generator is in another state"))
    return sorted(found, key=lambda each: KINDS.index(each.kind))


def _have_shapes_of(ours: Outcome, eager: Outcome) -> bool:
    """Whether results are as large as eager's: where in shared memory a part begins depends on that."""
    return all(getattr(each, "shape", None) == getattr(ours.values[label], "shape", None)
               for label, each in eager.values.items())  # fmt: skip


def _compare(label: str, ours: Any, expected: Any, oracle: Oracle) -> list[Difference]:
    is_gradient = label.startswith("gradient")
    if not isinstance(expected, torch.Tensor) or not isinstance(ours, torch.Tensor):
        if type(expected) is not type(ours):
            return [Difference(METADATA, label, f"{_outline(ours)} instead of {_outline(expected)}")]
        if isinstance(expected, (int, float, complex, bool)):
            return _compare(label, torch.tensor(ours), torch.tensor(expected), oracle)
        return [] if expected == ours else [Difference(WRONG_VALUES, label, f"{ours!r} instead of {expected!r}")]
    if (ours.dtype, ours.shape, ours.device) != (expected.dtype, expected.shape, expected.device):
        if (ours.dtype, ours.dim(), ours.device) == (expected.dtype, expected.dim(), expected.device):
            if _is_given_elsewhere(label, ours, oracle) or _has_that_shape(label, ours, oracle):
                return []
        return [Difference(METADATA, label, f"{_outline(ours)} instead of {_outline(expected)}")]
    if (ours.is_conj(), ours.is_neg(), type(ours)) != (expected.is_conj(), expected.is_neg(), type(expected)):
        return [Difference(METADATA, label, "lazily conjugated or negated, or of another class")]
    if ours.layout != expected.layout:
        return [Difference(METADATA, label, f"{ours.layout} instead of {expected.layout}")]
    found = []
    if ours.layout == torch.strided and ours.stride() != expected.stride():
        kind = GRADIENT_STRIDES if is_gradient else STRIDES
        found.append(Difference(kind, label, f"{ours.stride()} instead of {expected.stride()} for {tuple(ours.shape)}"))
    difference = compare_elements(label, ours, expected, oracle)
    if difference is not None:
        found.append(Difference(WRONG_GRADIENTS if is_gradient and difference.kind == WRONG_VALUES else difference.kind, label, difference.detail))  # fmt: skip
    return found


def _has_that_shape(label: str, ours: torch.Tensor, oracle: Oracle) -> bool:
    """Whether `ours` is what the program gives in double precision, or a disturbed run of eager: how many elements
    `nonzero` finds of a difference that cancels depends on rounding. Where sums overflow, and where equal numbers are
    left out, a shape between those of disturbed runs will do, if each element of `ours` is in one of them or another;
    and one with fewer elements, where numbers are left out that differ by rounding in every run: those of sums that
    cancel do."""
    if (
        _reads_bits(oracle)
        and ours.dtype == torch.int64
        and ours.dim() == 2
        and _are_possible_places(label, ours, oracle)
    ):
        return True
    outcomes = [oracle.wide, *oracle.noisy(MANY)]
    values = [outcome.values.get(label) for outcome in outcomes]
    others = [each for each in values if isinstance(each, torch.Tensor) and each.dim() == ours.dim()]
    relative = UNITS * torch.finfo(ours.dtype).eps if ours.dtype.is_floating_point or ours.dtype.is_complex else 0.0
    mine = _parts(ours).double()
    alike = [_parts(other).double() for other in others if other.shape == ours.shape]
    if any(torch.allclose(mine, other, relative, 0.0, equal_nan=True) for other in alike):
        return True
    overflows = any(outcome.has_overflowed for outcome in outcomes)
    if alike and not overflows and ours.dtype.is_floating_point and _lies_among(mine, alike, relative, ours.dtype):
        return True
    sorts_out = any(_SORTS_OUT.search(each.text) for each in oracle.program.statements)
    if not sorts_out and not overflows:
        return False
    sizes = list(zip(ours.shape, *(each.shape for each in others)))
    if any(size > max(found) for size, *found in sizes):
        return False
    if any(size < min(found) for size, *found in sizes) and not (sorts_out and _is_near_all(mine, others, relative)):
        return False
    known = torch.cat([_parts(each).double() for each in others]).unique()
    known = torch.cat([known[~known.isnan()], known.new_tensor([torch.nan])]) if known.isnan().any() else known
    # Eight units in each of a few operators.
    return all(bool(torch.isclose(known, each, 64 * relative, 0.0, equal_nan=True).any()) for each in mine.unique())


def _lies_among(mine: torch.Tensor, others: Sequence[torch.Tensor], relative: float, dtype: torch.dtype) -> bool:
    """Whether each element lies in the range of the others' at its place, as much wider as elsewhere: sums that cancel
    have no digit in common."""
    low, high = functools.reduce(torch.fmin, others), functools.reduce(torch.fmax, others)
    margin = WIDER * (high - low).nan_to_num() + relative * mine.abs().nan_to_num()
    if dtype == torch.float16:
        margin += 2 * _SMALLEST_HALF
    missing = functools.reduce(torch.logical_or, [other.isnan() for other in others])
    return bool(((low - margin <= mine) & (mine <= high + margin) | mine.isnan() & missing).all())


def _is_near_all(mine: torch.Tensor, others: Sequence[torch.Tensor], relative: float) -> bool:
    """Whether each finite number of the others is in `mine`, but for rounding of the terms that it is a sum of."""
    known = torch.cat([_parts(each).double().reshape(-1) for each in others])
    known = known[known.isfinite()]
    largest = max(1.0, float(known.abs().max())) if known.numel() else 1.0
    return all(bool(torch.isclose(mine, each, 64 * relative, 64 * relative * largest).any()) for each in known)


#: What shows the bits of a number, which rounding changes at random, or its exponent.
_READS_BITS = re.compile(r"\.view\((?:dtype=)?torch\.\w+\)|\bfrexp\(")


#: No sum of a few such steps overflows.
_FAR = 1 << 58


#: Kernels over vectors give NaN where a quotient overflows, those over numbers the remainder, which is exact. Operands
#: of two types are always made vectors, so no layout shows the other.
_NARROW = re.compile(r"float16|half")
_HALF = re.compile(r"(?<!b)float16|half")
_REMAINDER = re.compile(r"fmod|remainder|%")


def _reads_bits(oracle: Oracle) -> bool:
    return any(_READS_BITS.search(each.text) for each in oracle.program.statements)


#: What leaves out numbers that are there already, which of rounded ones is a matter of rounding.
_SORTS_OUT = re.compile(r"unique")


#: What tells where numbers are zero, which of rounded numbers is a matter of rounding.
_FINDS_PLACES = re.compile(r"nonzero|argwhere")


def _finds_places(oracle: Oracle) -> bool:
    return _reads_bits(oracle) or any(_FINDS_PLACES.search(each.text) for each in oracle.program.statements)


def _steps_from(origin: torch.Tensor | None, value: torch.Tensor) -> torch.Tensor:
    """How far whole numbers are from `origin`, the shorter way around; themselves without an origin."""
    if origin is None:
        return value
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()]
    steps = value.view(signed) - origin.view(signed)
    return steps.clamp(-_FAR, _FAR) if signed is torch.int64 else steps.long()


def _are_possible_places(label: str, ours: torch.Tensor, oracle: Oracle) -> bool:
    """Whether `ours`, in order, holds all places that each disturbed run of eager finds and none that no run does, and
    runs find different numbers of them: which of the bits of a rounded number are 0 no other run repeats as a whole."""
    runs = [outcome.values.get(label) for outcome in oracle.noisy(MANY)]
    kept = [each for each in runs if isinstance(each, torch.Tensor) and each.shape[1:] == ours.shape[1:]]
    if ours.dtype != torch.int64 or ours.dim() != 2:
        return False
    found = [set(map(tuple, each.tolist())) for each in kept]
    mine = list(map(tuple, ours.tolist()))
    if len(set(map(len, found))) < 2 or mine != sorted(set(mine)):
        return False
    return set.intersection(*found) <= set(mine) <= set.union(*found)


def _outline(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__


def _parts(value: torch.Tensor) -> torch.Tensor:
    """Elements in a row on the CPU, of double precision or whole; complex numbers as two."""
    value = value.detach().resolve_conj().resolve_neg().cpu()
    if value.layout != torch.strided:
        value = value.to_dense()
    if value.is_complex():
        value = torch.view_as_real(value)
    value = value.reshape(-1)
    if value.dtype == torch.uint64:  # which no kernel compares: the same order of numbers that have signs
        return value.view(torch.int64) ^ torch.iinfo(torch.int64).min
    return value.double() if value.is_floating_point() else value


def compare_elements(label: str, ours: torch.Tensor, expected: torch.Tensor, oracle: Oracle) -> Difference | None:
    """The first wrong element, in words."""
    if expected.numel() == 0:
        return None
    mine, theirs = _parts(ours), _parts(expected)
    if not expected.is_floating_point() and not expected.is_complex():
        wrong = mine != theirs
        if not bool(wrong.any()) or (_finds_places(oracle) and _are_possible_places(label, ours, oracle)):
            return None
        # Bits of numbers near to each other are near to each other as whole numbers that begin again after the last.
        origin = theirs if _reads_bits(oracle) and theirs.dtype != torch.bool else None
        answers = _range(label, theirs, oracle, MANY, origin)
        place = _steps_from(origin, mine)
        low, high = answers.low, answers.high
        if _reads_bits(oracle) and theirs.dtype == torch.bool and bool((low < high).any()):
            return None  # bytes of rounded numbers: one in 256 is 0, which few runs show of any one of them
        if origin is not None:
            margin = (high - low) * int(WIDER)
            low, high = low - margin, high + margin
        wrong &= ~((low < high) & (low <= place) & (place <= high))
        wide = answers.wide
        if bool(wrong.any()) and wide is not None and wide.dtype == theirs.dtype == torch.bool:
            if not any(each.has_overflowed for each in oracle.noisy(MANY)):
                wrong &= mine != wide  # what is equal but for rounding: two disturbed numbers never are
        if bool(wrong.any()):
            wrong = _nowhere(label, mine, wrong, oracle, 0.0)
        return _told_of(mine, theirs, wrong, ours)
    real = expected.dtype.to_real() if expected.is_complex() else expected.dtype
    info = torch.finfo(real)
    same = (mine == theirs) | (mine.isnan() & theirs.isnan())
    close = same | _is_near(mine, theirs, UNITS * info.eps * theirs.abs())
    if expected.is_complex():
        close |= _is_close_as_a_number(mine, theirs, UNITS * info.eps)
    signs = same & (mine == 0) & (mine.signbit() != theirs.signbit())
    if bool(close.all()) and not bool(signs.any()):
        return None
    floor = 64 * info.smallest_normal * info.eps
    is_narrow = _is_narrow_inside(oracle.program)
    if is_narrow and any(_HALF.search(each.text) for each in oracle.program.statements):
        floor = max(floor, 2 * _SMALLEST_HALF)
    takes_remainders = any(_REMAINDER.search(each.text) for each in oracle.program.statements)
    for count in (FEW, MANY):
        answers = _range(label, theirs, oracle, count)
        wide = answers.wide
        spread = torch.where(answers.any_finite, answers.high - answers.low, 0)
        margin = WIDER * spread + UNITS * info.eps * theirs.abs().nan_to_num(0.0, 0.0, 0.0) + floor
        inside = answers.has(mine, margin)
        if wide is not None:
            # As near to double precision as eager, or nearer. Where a narrow type overflows in between, double
            # precision is what was meant.
            eager_error = (theirs - wide).abs().nan_to_num(nan=0.0, posinf=0.0)
            allowed = 1.5 * eager_error + UNITS * info.eps * wide.abs() + floor
            if real in (torch.float32, torch.float64):
                known = theirs.isfinite()
                if real is torch.float32 and takes_remainders:
                    known |= theirs.isnan()
                allowed = torch.where(known, allowed, -1.0)
            if real in (torch.float16, torch.bfloat16) or is_narrow:
                inside |= (mine == wide.to(real).double()) | (mine.isnan() & wide.isnan())
            if oracle.has_variances:  # equal numbers have none, but for eager's rounding, by which the program divides
                inside |= mine.isnan() & wide.isnan()
            if is_narrow:  # numbers below the smallest normal one have few digits
                inside |= ~theirs.isfinite() & _is_near(mine, wide, wide.abs() / 2)
            inside |= _is_near(mine, wide, allowed) | (mine == wide) & theirs.isfinite()
        wrong = ~(close | inside)
        if not bool(wrong.any()):
            break
    else:
        if any(_SORTS_OUT.search(each.text) for each in oracle.program.statements):
            wrong &= ~_among_others(label, mine, oracle, 64 * info.eps)
        if real in (torch.float16, torch.bfloat16) and bool((wrong & ~theirs.isfinite()).any()):
            wrong &= theirs.isfinite() | ~_without_overflow(label, mine, oracle, info.eps)
        if oracle.has_variances and bool((wrong & theirs.isnan()).any()):
            # Normalized numbers that eager's rounding leaves out of the domain of a function.
            if not any(each.has_overflowed for each in oracle.noisy(MANY)):
                wrong &= ~theirs.isnan() | ~_without_overflow(label, mine, oracle, info.eps, some=True)
        wrong = _nowhere(label, mine, wrong, oracle, UNITS * info.eps, WIDER * spread)
        for count in (FEW, MANY):
            if bool((wrong & ~theirs.isfinite()).any()):
                wrong &= theirs.isfinite() | ~_finite_elsewhere(label, mine, oracle, count, UNITS * info.eps)
        if bool(wrong.any()) and oracle.device != "cpu" and _is_right_on_a_cpu(label, ours, oracle):
            return None
        return _told_of(mine, theirs, wrong, ours)
    for count in (FEW, MANY) if bool(signs.any()) else ():
        answers = _range(label, theirs, oracle, count)
        zeros, wide = answers.zeros, answers.wide
        if real in (torch.float16, torch.bfloat16):
            zeros = zeros & (wide == 0) if wide is not None else torch.zeros_like(zeros)
        wrong = signs & zeros
        if not bool(wrong.any()):
            break
    else:
        if bool(signs.any()):
            found = _told_of(mine, theirs, _nowhere(label, mine, wrong, oracle, 0.0), ours)
            return Difference(SIGN_OF_ZERO, label, found.detail) if found else None
    return None


def _is_narrow_inside(program: Program) -> bool:
    """Whether numbers of 16 bits may overflow or vanish before there are wider ones."""
    return any(each.dtype in ("float16", "bfloat16") for each in program.inputs) or any(
        _NARROW.search(each.text) for each in program.statements
    )


def _is_near(mine: torch.Tensor, other: torch.Tensor, distance: Any) -> torch.Tensor:
    """Where `mine` is no further than that from a finite number: none is near to an infinity."""
    return other.isfinite() & ((mine - other).abs() <= distance)


def _is_close_as_a_number(mine: torch.Tensor, theirs: torch.Tensor, relative: float) -> torch.Tensor:
    """Whether real and imaginary parts, that follow each other, are off by little beside the number that they are parts
    of: what products and quotients of complex numbers promise."""
    off = (mine - theirs).abs().view(-1, 2).amax(1)
    size = torch.hypot(*theirs.view(-1, 2).unbind(1))
    return (size.isfinite() & (off <= relative * size)).repeat_interleave(2)


def _nowhere(
    label: str, mine: torch.Tensor, wrong: torch.Tensor, oracle: Oracle, relative: float, margin: Any = 0.0
) -> torch.Tensor:
    """Which of the `wrong` elements eager gives neither for operands of other layouts nor with narrower vectors, nearer
    than `relative` to the element, or than `margin`. Without a `relative` distance signs of zero are asked for."""
    for values in oracle.elsewhere():
        other = values.get(label)
        if isinstance(other, (int, float, complex, bool)):
            other = torch.tensor(other)
        parts = _parts(other) if isinstance(other, torch.Tensor) else None
        if parts is None or parts.shape != mine.shape or parts.dtype != mine.dtype:
            continue
        near = mine == parts
        if relative:
            near |= _is_near(mine, parts, relative * parts.abs() + margin)
        signs = (mine != 0) | (mine.signbit() == parts.signbit()) if not relative else True
        same = near & signs | (mine.isnan() & parts.isnan())
        wrong = wrong & ~same
        if not bool(wrong.any()):
            break
    return wrong


def _is_right_on_a_cpu(label: str, ours: torch.Tensor, oracle: Oracle) -> bool:
    """Whether the judge would take `ours` for right if the program had run on a CPU: of rows with an infinity a root mean
    square is infinite there, and NaN by one of the two kernels for a GPU."""
    expected = oracle.on_cpu.values.get(label)
    if not isinstance(expected, torch.Tensor) or (expected.shape, expected.dtype) != (ours.shape, ours.dtype):
        return False
    return compare_elements(label, ours.cpu(), expected, Oracle(oracle.program, oracle.call)) is None


def _is_given_elsewhere(label: str, ours: torch.Tensor, oracle: Oracle) -> bool:
    """Whether eager gives `ours` for operands of another layout or with narrower vectors."""
    others = (values.get(label) for values in oracle.elsewhere())
    return any(
        isinstance(other, torch.Tensor) and other.shape == ours.shape and torch.equal(_parts(other), _parts(ours))
        for other in others
    )


def _finite_elsewhere(label: str, mine: torch.Tensor, oracle: Oracle, count: int, relative: float) -> torch.Tensor:
    """Where disturbed runs on operands of another layout are all finite, and `mine` is in their range: a remainder whose
    quotient overflows in vectors depends on every bit of its operands."""
    found = torch.zeros_like(mine, dtype=torch.bool)
    for outcomes in oracle.noisy_elsewhere(count):
        others = [_parts(each) for values in outcomes if isinstance(each := values.get(label), torch.Tensor)]
        if not others or any(each.shape != mine.shape or each.dtype != mine.dtype for each in others):
            continue
        low, high = torch.stack(others).amin(0), torch.stack(others).amax(0)
        margin = WIDER * (high - low) + relative * high.abs()
        found |= low.isfinite() & high.isfinite() & (low - margin <= mine) & (mine <= high + margin)
    return found


def _among_others(label: str, mine: torch.Tensor, oracle: Oracle, relative: float) -> torch.Tensor:
    """Where `mine` is as near to some element of the disturbed runs, wherever it is there, as numbers are that were
    rounded beside the largest. Nowhere if all runs give as many elements as ours."""
    values = (outcome.values.get(label) for outcome in oracle.noisy(MANY))
    others = [_parts(each) for each in values if isinstance(each, torch.Tensor)]
    others = [each for each in others if each.dtype == mine.dtype]
    if all(each.shape == mine.shape for each in others):
        return torch.zeros_like(mine, dtype=torch.bool)
    known = torch.cat(others)
    known = known[known.isfinite()]
    if not known.numel():
        return torch.zeros_like(mine, dtype=torch.bool)
    return (mine[:, None] - known).abs().amin(1) <= relative * known.abs().amax()


def _without_overflow(label: str, mine: torch.Tensor, oracle: Oracle, eps: float, some: bool = False) -> torch.Tensor:
    """Where `mine` is what a type would give that has as few digits, but no largest number: in every run, or in `some`
    where others give NaN."""
    values = (outcome.values.get(label) for outcome in oracle.noisy_wide(MANY, eps))
    others = [_parts(each) for each in values if isinstance(each, torch.Tensor)]
    others = [each for each in others if each.shape == mine.shape and each.dtype == mine.dtype]
    if not others:
        return torch.zeros_like(mine, dtype=torch.bool)
    low, high = (torch.fmin, torch.fmax) if some else (torch.minimum, torch.maximum)
    low, high = functools.reduce(low, others), functools.reduce(high, others)
    margin = WIDER * (high - low)
    return low.isfinite() & high.isfinite() & (low - margin <= mine) & (mine <= high + margin)


@dataclass
class _Answers:
    """What eager and disturbed runs give, element by element: the least and the greatest number, the least and the
    greatest magnitude of one that is not zero; where some are finite, NaN, inf, -inf; where all are zeros of one sign;
    the answer in double precision, if there is one."""

    low: torch.Tensor
    high: torch.Tensor
    small: torch.Tensor
    large: torch.Tensor
    any_finite: torch.Tensor
    any_nan: torch.Tensor
    any_above: torch.Tensor
    any_below: torch.Tensor
    zeros: torch.Tensor
    wide: torch.Tensor | None

    def has(self, mine: torch.Tensor, margin: torch.Tensor) -> torch.Tensor:
        """Where `mine` is one of the answers: a number within `margin` of finite ones, or what is not finite as another
        is. Where some are infinite and others finite there may be a pole: the nearer an operand comes to it the larger
        are they, and how near it comes the spread of their magnitudes tells."""
        found = self.any_finite & (self.low - margin <= mine) & (mine <= self.high + margin)
        beyond = self.large * (self.large / self.small) ** 2
        is_beyond = self.any_finite & (self.large <= mine.abs()) & (mine.abs() <= beyond)
        found |= is_beyond & ((mine > 0) & self.any_above | (mine < 0) & self.any_below)
        found = found & mine.isfinite() | mine.isnan() & self.any_nan
        # What is infinite by one formula may be NaN by another: at a pole that some runs miss.
        found |= mine.isinf() & self.any_nan & self.any_finite & ~(self.any_above | self.any_below)
        return found | (mine == torch.inf) & self.any_above | (mine == -torch.inf) & self.any_below


def _range(
    label: str, theirs: torch.Tensor, oracle: Oracle, count: int, origin: torch.Tensor | None = None
) -> _Answers:
    """What there is beside `theirs`. `origin`: as for `_steps_from`."""
    is_real = theirs.is_floating_point()
    zeros = theirs == 0
    sign = theirs.signbit() if is_real else zeros
    values = [theirs]
    for outcome in oracle.noisy(count):
        other = outcome.values.get(label)
        if isinstance(other, (int, float, complex, bool)):
            other = torch.tensor(other)
        if not isinstance(other, torch.Tensor):
            continue
        parts = _parts(other)
        if parts.shape != theirs.shape or parts.dtype != theirs.dtype:
            continue
        values.append(parts)
        if is_real:
            zeros &= (parts == 0) & (parts.signbit() == sign)
    every = torch.stack(values)
    wide = oracle.wide.values.get(label)
    wide = _parts(wide) if isinstance(wide, torch.Tensor) else None
    if wide is not None and wide.shape != theirs.shape:
        wide = None
    if not is_real:
        nowhere = torch.zeros_like(zeros)
        every = _steps_from(origin, every)
        low, high = every.amin(0), every.amax(0)
        return _Answers(low, high, low, high, ~nowhere, nowhere, nowhere, nowhere, zeros, wide)
    finite = every.isfinite()
    at_least = lambda x, where: torch.where(where, x, torch.inf).amin(0)
    at_most = lambda x, where: torch.where(where, x, -torch.inf).amax(0)
    some = finite & (every != 0)
    return _Answers(
        at_least(every, finite), at_most(every, finite), at_least(every.abs(), some), at_most(every.abs(), some),
        finite.any(0), every.isnan().any(0), (every == torch.inf).any(0), (every == -torch.inf).any(0), zeros, wide,
    )  # fmt: skip


def _told_of(mine: torch.Tensor, theirs: torch.Tensor, wrong: torch.Tensor, ours: torch.Tensor) -> Difference | None:
    places = wrong.nonzero().flatten().tolist()
    if not places:
        return None
    first = places[0]
    return Difference(
        WRONG_VALUES, "", f"{len(places)} of {len(mine)} elements of {_outline(ours)}, the first at {first}: "
        f"{mine[first].item()!r} instead of {theirs[first].item()!r}",
    )  # fmt: skip
