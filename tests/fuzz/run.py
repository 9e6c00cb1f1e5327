"""One call of a program, and all that its caller can see afterwards."""

from __future__ import annotations

import functools
import math
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from tests.fuzz.elsewhere import LAYOUTS, narrower, spread, spread_in_place
from tests.fuzz.inputs import Argument, make, widened
from tests.fuzz.inside import Inside, InsideBackward, InsidePython, WithSlope, unwatched
from tests.fuzz.overflow import Overflow
from tests.fuzz.program import NOISY, NOISY_WIDE, SPREAD, WIDE, Call, Program
from tests.fuzz.variances import ExactVariances

MODES = {"enable_grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


@dataclass
class Outcome:
    """Values by label ("result 0", "gradient of x1", "memory of x0"), or the error; which results share memory."""

    error: BaseException | None = None
    values: dict[str, Any] = field(default_factory=dict)
    facts: tuple[Any, ...] = ()
    is_intact: bool = True
    random_state: Any = None
    #: Whether terms have left the range of their type, in a disturbed run.
    has_overflowed: bool = False


def arguments_of(program: Program, call: Call, wide: bool = False, device: str = "cpu") -> list[Argument]:
    sizes = dict(call.sizes)
    return [
        make(program.input_of(index, call), sizes, call.seed * 31 + index, wide, device)
        for index in range(len(program.inputs))
    ]


def run_call(
    function: Callable,
    program: Program,
    call: Call,
    wide: bool = False,
    device: str = "cpu",
    noise: Noise | None = None,
) -> Outcome:
    """What `function`, some form of the program for that device, does on this call. `noise` disturbs gradients of
    results."""
    arguments = arguments_of(program, call, wide, device)
    tensors = [each.tensor for each in arguments]
    outcome = Outcome()
    torch.manual_seed(call.seed)
    try:
        with warnings.catch_warnings(), MODES[program.mode]():
            warnings.simplefilter("ignore")
            results = function(*tensors, *call.numbers)
            for index, result in enumerate(results):
                outcome.values[f"result {index}"] = result
            outcome.facts = aliasing(results, tensors)
            outcome.random_state = torch.get_rng_state()
            if program.grad:
                if call.written >= 0:
                    visible = [*tensors, *results]
                    overwrite(visible[call.written % len(visible)], tensors)
                used = [each for index, each in enumerate(results) if not call.unused >> index & 1]
                _differentiate(used, arguments, outcome, noise)
            if device != "cpu":
                torch.cuda.synchronize()  # what a kernel asserts is this call's
    except Exception as error:
        outcome.error = error
        outcome.values = {}
    for index, each in enumerate(arguments):
        outcome.values[f"memory of x{index}"] = each.memory.flat
        outcome.is_intact &= each.memory.is_intact()
    return outcome


def overwrite(value: Any, arguments: list[torch.Tensor]) -> None:
    """Doubles it in place, which is exact. Arguments that are leaves and want a gradient are written between steps
    alone."""
    if not isinstance(value, torch.Tensor) or not _has_memory(value):
        return
    for each in arguments:
        if each.requires_grad and each.is_leaf and _has_memory(each):
            if each.untyped_storage().data_ptr() == value.untyped_storage().data_ptr():
                return
    with suppress(RuntimeError), torch.no_grad():  # elements of one memory
        value.mul_(2)


def _differentiate(results: Any, arguments: list[Argument], outcome: Outcome, noise: Noise | None) -> None:
    roots, weights = [], []
    for result in results:
        if isinstance(result, torch.Tensor) and result.requires_grad and result.is_floating_point():
            generator = torch.Generator().manual_seed(5 + len(roots))
            weight = torch.randn(result.shape, generator=generator, dtype=torch.float64)
            roots.append(result)
            weight = weight.to(result.dtype).to(result.device)
            weights.append(noise(weight) if noise else weight)
    if not roots:
        return
    with InsideBackward(noise) if noise and not noise.stays_outside else nullcontext():
        torch.autograd.backward(roots, weights)
    for index, each in enumerate(arguments):
        if each.leaf.requires_grad:
            outcome.values[f"gradient of x{index}"] = each.leaf.grad


def aliasing(results: Any, arguments: list[torch.Tensor]) -> tuple[Any, ...]:
    """For each result: the tensor that it is, else where in the memory of an earlier tensor it begins."""
    tensors: list[Any] = list(arguments)
    facts = []
    for result in results:
        if not isinstance(result, torch.Tensor):
            facts.append(type(result).__name__)
            tensors.append(result)
            continue
        fact: Any = "own memory"
        for index, other in enumerate(tensors):
            if other is result:
                fact = ("is", index)
                break
            if isinstance(other, torch.Tensor) and _has_memory(result) and _has_memory(other):
                if other.untyped_storage().data_ptr() == result.untyped_storage().data_ptr():
                    # Where a result's own memory begins nobody promises (`select_scatter` copies whole storages).
                    begin = 0 if index < len(arguments) else other.storage_offset() * other.itemsize
                    fact = ("shares", index, result.storage_offset() * result.itemsize - begin)
                    break
        facts.append((fact, result.requires_grad, result.is_leaf))
        tensors.append(result)
    return tuple(facts)


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.numel() > 0


def _wide(value: Any) -> Any:
    """A constant of the text in double precision."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(widened(value.dtype))


@contextmanager
def _in_double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of factory functions, and of quotients of whole numbers
    try:
        yield
    finally:
        torch.set_default_dtype(before)


#: Operators whose kernels lose tens of units even in double precision.
_VARIANCES = re.compile(r"var|std|layer_norm|group_norm")


class Oracle:
    """Other answers that a right program may give on a call: in double precision, and with rounding disturbed."""

    def __init__(self, program: Program, call: Call, device: str = "cpu") -> None:
        self.program, self.call, self.device = program, call, device
        self._wide: Outcome | None = None
        self._on_cpu: Outcome | None = None
        self._noisy: list[Outcome] = []
        self._outside: list[Outcome] = []
        self._seen: dict[int, Any] = {}
        self._spread: dict[str, dict[str, Any]] = {}

    @property
    def has_variances(self) -> bool:
        """Whether the program takes some, which are exact in double precision."""
        return any(_VARIANCES.search(each.text) for each in self.program.statements)

    @property
    def wide(self) -> Outcome:
        if self._wide is None:
            with _in_double_precision():
                names = {name: _wide(each) for name, each in self.program.names.items()}
                function = self.program.function(WIDE, names, self.device)
                with ExactVariances() if self.has_variances else nullcontext():
                    self._wide = run_call(function, self.program, self.call, True, self.device)
        return self._wide

    def noisy_wide(self, count: int, eps: float) -> list[Outcome]:
        """`count` runs in double precision, disturbed as much as those of a type are whose numbers are `eps` from each
        other: what the program would give if that type had no largest number."""
        with _in_double_precision():
            noises = (Noise(index, 8.0 if index % 3 == 2 else 2.0, eps=eps) for index in range(count))
            return [self._disturbed(noise, noise, True) for noise in noises]

    def elsewhere(self) -> Iterator[dict[str, Any]]:
        """What eager gives for operands of other layouts, and on other machines (with narrower vectors; for a GPU, a
        CPU) and kernels (those of ATen where cuDNN has some), by label."""
        for layout in LAYOUTS:
            if layout not in self._spread:
                names = {
                    "SPREAD": functools.partial(spread, layout),
                    "SPREAD_IN_PLACE": functools.partial(spread_in_place, layout),
                }
                function = self.program.function(SPREAD, names, self.device)
                self._spread[layout] = run_call(function, self.program, self.call, False, self.device).values
            yield self._spread[layout]
        if self.device == "cpu":
            if "narrower" not in self._spread:
                process = narrower()
                self._spread["narrower"] = process.values(self.program, self.call) if process is not None else {}
            yield self._spread["narrower"]
        else:
            yield self.on_cpu.values
            if "without cuDNN" not in self._spread:
                with torch.backends.cudnn.flags(enabled=False):
                    self._spread["without cuDNN"] = run_call(
                        self.program.function(device=self.device), self.program, self.call, False, self.device
                    ).values
            yield self._spread["without cuDNN"]

    @property
    def on_cpu(self) -> Outcome:
        """What eager's kernels for a CPU give."""
        if self._on_cpu is None:
            self._on_cpu = run_call(self.program.function(), self.program, self.call)
        return self._on_cpu

    def noisy(self, count: int) -> list[Outcome]:
        """`count` runs, every third of which is disturbed eight times as much; and a sixth as many that are disturbed
        outside of operators alone."""
        while len(self._noisy) < count:
            index = len(self._noisy)
            noise = Noise(index, 8.0 if index % 3 == 2 else 2.0, self._seen, index > 8 and index % 4 == 0)
            self._noisy.append(self._disturbed(noise, noise))
        while len(self._outside) < count // 6:
            noise = Noise(len(self._outside), 4.0, stays_outside=True)
            self._outside.append(self._disturbed(noise, noise))
        return [*self._noisy, *self._outside]

    def noisy_elsewhere(self, count: int) -> Iterator[list[dict[str, Any]]]:
        """What `count` disturbed runs give for operands of each other layout, by label."""
        for layout in LAYOUTS:
            runs = []
            for index in range(count):
                noise = Noise(index, 2.0)
                spread_out = lambda value, noise=noise, layout=layout: spread(layout, noise(value))
                runs.append(self._disturbed(noise, spread_out).values)
            yield runs

    def _disturbed(self, noise: Noise, operand: Callable, wide: bool = False) -> Outcome:
        names = {
            "NOISE": operand, "ROUNDED": noise.rounded, "NOISE_IN_PLACE": noise.in_place, "ZEROS": noise.zeros,
            "EITHER": _either, "SIGNED": noise.signed,
        }  # fmt: skip
        for name, each in self.program.names.items():
            if isinstance(each, FunctionType):
                names[name] = InsidePython(noise).wrap(each)
            elif wide:
                names[name] = _wide(each)
        function = self.program.function(NOISY_WIDE if wide else NOISY, names, self.device)
        overflow = Overflow(noise)
        with Inside(noise), nullcontext() if noise.stays_outside else overflow:
            outcome = run_call(function, self.program, self.call, wide, self.device, noise)
        outcome.has_overflowed = overflow.has_replaced
        return outcome


def _either(disturbed: Callable, plain: Callable) -> Any:
    """What an operator gives for disturbed operands; for its own where those are refused, such as a matrix that is no
    more orthogonal, so that what the program rounds elsewhere is disturbed all the same."""
    try:
        return disturbed()
    except Exception:
        return plain()


def _type_of(operands: Sequence[Any], otherwise: torch.dtype) -> torch.dtype:
    """The floating-point type in which an operator computes; `otherwise` if that has more digits or is none."""
    tensors = [each for each in operands if isinstance(each, torch.Tensor)]
    if not tensors:
        return otherwise
    # A tensor without dimensions decides among those alone.
    dims = [each for each in tensors if each.dim()] or tensors
    found = functools.reduce(torch.promote_types, [each.dtype for each in dims])
    if not found.is_floating_point:
        found = torch.get_default_dtype()
    return max(found, otherwise, key=lambda dtype: torch.finfo(dtype).eps) if not found.is_complex else otherwise


#: Types whose numbers below the smallest normal one are disturbed by units, too.
_WITH_SMALL_STEPS = (torch.float16, torch.float32, torch.float64)


#: Whole numbers of the same size, and the bits of the fraction.
_WHOLE = {
    torch.float64: (torch.int64, (1 << 52) - 1), torch.float32: (torch.int32, (1 << 23) - 1),
    torch.float16: (torch.int16, (1 << 10) - 1), torch.bfloat16: (torch.int16, (1 << 7) - 1),
}  # fmt: skip


class Noise:
    """Multiplies floating-point elements by 1 plus up to `units` units in the last place; in every second run, numbers
    of one magnitude alike, so that ties stay, and what cancels cancels. Zeros stay; NaNs, whose signs IEEE 754 leaves
    open, get any.

    `seen` keeps between runs the least and the greatest that elements of results were. With `is_whole`, those with a
    whole number in between are that: a sum whose sign is a matter of rounding may be zero, too, where a logarithm ends,
    and one whose fraction is may have none, where powers of negative numbers begin and gamma functions end. `eps`: the
    unit, where it is not that of the elements' type. `stays_outside`: no dispatch mode disturbs operators from inside.
    Under one, PyTorch differentiates some by formulas that always hold (`prod`: infinity times 0, where two factors are
    0), and otherwise looks at contents first.
    """

    def __init__(
        self,
        seed: int,
        units: float,
        seen: dict[int, Any] | None = None,
        is_whole: bool = False,
        eps: float | None = None,
        stays_outside: bool = False,
    ) -> None:
        self.units, self._seed, self._alike = int(units), seed, bool(seed % 2)
        self._eps = eps
        self._stays_finite = seed % 4 < 2
        self._generator = torch.Generator().manual_seed(seed)
        self._random = random.Random(seed)
        self._seen = seen if seen is not None else {}
        self._is_whole = is_whole
        self._results = 0
        self.stays_outside = stays_outside

    @property
    def keeps_ties(self) -> bool:
        return self._alike

    @unwatched
    def rounded(self, value: Any) -> Any:
        """What an operator returns, disturbed."""
        value = self(value)
        if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
            return type(value)([self._noted(each) for each in value])
        return self._noted(value)

    def _noted(self, value: Any) -> Any:
        self._results += 1
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.layout != torch.strided:
            return value
        number = value.detach()
        low, high = self._seen.get(self._results, (number, number))
        if low.shape != number.shape:
            return value
        self._seen[self._results] = low, high = torch.fmin(low, number), torch.fmax(high, number)
        if not self._is_whole:
            return value
        least, greatest = low.ceil(), high.floor()
        zero = torch.zeros_like(number).copysign(self.sign_like(number))
        whole = torch.where((low < 0) & (high > 0), zero, number.round().clamp(least, greatest))
        # What is infinite here is one where its operands vanish: that is to be seen.
        made = torch.where((low < high) & (least <= greatest) & number.isfinite(), whole, number)
        return WithSlope.apply(value, made, torch.ones_like(number)) if value.requires_grad else made

    def _factor(self, x: torch.Tensor) -> torch.Tensor:
        factor = self._any_factor(x)
        if not self._is_whole or x.dtype.is_complex:
            return factor
        return torch.where(x.detach() == x.detach().round(), torch.ones_like(factor), factor)

    def _any_factor(self, x: torch.Tensor) -> torch.Tensor:
        real = x.dtype.to_real() if x.dtype.is_complex else x.dtype
        if self._alike and not x.dtype.is_complex:
            bits = x.detach().abs().double().view(torch.int64) ^ (self._seed * 0x5851F42D4C957F2D & (1 << 62) - 1)
            steps = ((bits * 0x2545F4914F6CDD1D) >> 33).remainder(2 * self.units + 1).double() - self.units
        else:
            steps = torch.randint(-self.units, self.units + 1, x.shape, generator=self._generator, dtype=torch.float64)
        return (1 + steps * (self._eps or torch.finfo(real).eps)).to(real).to(x.device)

    @unwatched
    def signed(self, value: Any) -> Any:
        """The same, but for the signs of NaNs."""
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout == torch.strided
        return self._signed(value) if is_float and value.numel() else value

    def _signed(self, value: torch.Tensor) -> torch.Tensor:
        missing = value.detach().isnan()
        if not bool(missing.any()):
            return value
        sign = self.sign_like(value)
        other = torch.copysign(torch.full_like(sign, math.nan), sign)
        if not value.requires_grad:  # which NaN it is, libraries of functions do not agree on
            whole, fraction = _WHOLE[value.dtype]
            other = torch.where(self.sign_like(value) > 0, other, (other.view(whole) | fraction).view(value.dtype))
        made = torch.where(missing, other, value.detach())
        return WithSlope.apply(value, made, torch.ones_like(made)) if value.requires_grad else made

    @unwatched
    def __call__(self, value: Any) -> Any:
        """In every second pair of runs no number becomes infinite: terms at the end of their range are to cancel."""
        disturbed = self._disturbed(value)
        if not self._stays_finite or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return disturbed
        risen = disturbed.detach().isinf() & value.detach().isfinite()
        return torch.where(risen, value, disturbed) if bool(risen.any()) else disturbed

    def _disturbed(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            return value
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            value = self._signed(value)
        if isinstance(value, torch.Tensor):
            if value.is_floating_point() and value.numel():
                tiny = torch.finfo(value.dtype).tiny
                if value.dtype in _WITH_SMALL_STEPS and bool((value.detach().abs() < tiny).any()):
                    # Below the smallest normal number a unit is an absolute step.
                    step = torch.finfo(value.dtype).smallest_normal * torch.finfo(value.dtype).eps
                    moved = torch.randint(-self.units, self.units + 1, value.shape, generator=self._generator)
                    small = (value.detach() != 0) & (value.detach().abs() < tiny)
                    steps = moved.to(value.device, value.dtype) * step
                    disturbed = value * self._factor(value)
                    return torch.where(small, disturbed + steps, disturbed)  # -0 + 0 would be 0
                return value * self._factor(value)
            if value.is_complex() and value.numel():
                return torch.complex(value.real * self._factor(value), value.imag * self._factor(value))
            return value
        if isinstance(value, (tuple, list)):
            made = [self(each) for each in value]
            if hasattr(value, "_fields") or type(value).__module__ == "torch.return_types":
                return tuple(made)
            return type(value)(made)
        if isinstance(value, float):
            return value * (1 + self._random.randint(-self.units, self.units) * 2.0**-24)
        return value

    @unwatched
    def choice(self, count: int, value: torch.Tensor) -> torch.Tensor:
        """One of so many numbers for each element, at random; in every other case the same for all."""
        shape = value.shape if self._random.random() < 0.5 else ()
        return torch.randint(0, count, shape, generator=self._generator).to(value.device)

    @unwatched
    def sign_like(self, value: torch.Tensor) -> torch.Tensor:
        """1 or -1 for each element, at random."""
        return 1 - 2 * torch.randint(0, 2, value.shape, generator=self._generator).to(value)

    @unwatched
    def zeros(self, value: Any) -> Any:
        """The same where zeros of both signs meet, each with a sign at random."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        plain = value.detach()
        zero = plain == 0
        if not bool((zero & plain.signbit()).any()) or not bool((zero & ~plain.signbit()).any()):
            return value
        made = torch.where(zero, torch.zeros_like(plain).copysign(self.sign_like(plain)), plain)
        return WithSlope.apply(value, made, torch.ones_like(plain)) if value.requires_grad else made

    @unwatched
    def in_place(self, value: torch.Tensor, *operands: Any) -> None:
        """What an operator wrote to `value`, disturbed; with `operands`, it was computed in their type."""
        if not value.is_floating_point() or value.requires_grad or (value._is_view() and value._base.requires_grad):
            return
        if 0 in value.stride() and value.numel() > 1:
            return
        with torch.no_grad():
            value.mul_(self._factor(value.to(_type_of(operands, value.dtype))).to(value.dtype))
            if bool(value.isnan().any()):
                value.copy_(self._signed(value))
