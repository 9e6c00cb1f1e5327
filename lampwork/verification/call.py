"""What is verified: one call, or several, of a program, from the same state each time; and all that they leave.

A call leaves its result, the loss, what it wrote to its arguments, gradients, buffers, parameters and the states of
optimizers, each by a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.record import record
from lampwork.verdict.program import Program, watching
from lampwork.verdict.verify import leaves
from lampwork.verification.eager import Beside64, Rounded
from lampwork.verification.judge import Allowed

#: Runs of eager that are off by roundings.
ROUNDED = 3

Call = tuple[tuple[Any, ...], Mapping[str, Any]]


@record(frozen=False)
class Trail:
    """What calls left: `each[k]` of call k by name, for the calls that are compared, and `losses` of all. `raised`: the
    call that ended them, and what it raised."""

    each: dict[int, dict[str, Any]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    raised: tuple[int, Exception] | None = None


@record(frozen=False)
class References:
    """Trails of eager: as it is, in float64, and of runs that were off by roundings."""

    eager: Trail
    wide: Trail
    rounded: list[Trail]

    def of(self, number: int) -> Allowed:
        """What eager says of call `number`."""
        return Allowed(self.eager.each[number], self.wide.each[number], [each.each[number] for each in self.rounded])


class Subject:
    """`function`, called with each of `calls` in turn, `steps` times in all, with the backward pass if `backward`.

    `kept`: the numbers of the calls whose results are compared element by element: the first of each arguments, and
    the last. Raises what the first eager call raises.
    """

    def __init__(
        self, function: Callable[..., Any], calls: Sequence[Call], backward: bool | None = None, steps: int = 0
    ) -> None:
        self.programs = [Program(function, args, kwargs, backward) for args, kwargs in calls]
        self.program = self.programs[0]
        #: Whether losses of steps are compared.
        self.trains = steps > 0
        self.steps = max(steps, len(calls))
        self.kept = {*range(len(calls)), self.steps - 1}
        for each in self.programs[1:]:  # one state for all of them
            self.program.snapshot.add_tensors(
                value for _, value in leaves((each.args, each.kwargs)) if isinstance(value, torch.Tensor)
            )
        self._layouts = [
            (value, value.untyped_storage(), value.storage_offset(), value.size(), value.stride())
            for each in self.programs
            for _, value in leaves((each.args, each.kwargs))
            if isinstance(value, torch.Tensor) and value.layout == torch.strided
        ]
        with watching(self.program.snapshot) as self.program.watched:
            state = torch.get_rng_state()
            for number in range(len(calls)):
                self._at(number).run(function)
            #: Whether calls draw random numbers.
            self.draws = not torch.equal(state, torch.get_rng_state())
        self.restore()
        self.modules = [each.module for each in self.program.watched.modules]
        if self.program.module is not None and not self.modules:
            self.modules = [self.program.module]

    @property
    def name(self) -> str:
        return self.program.name

    def restore(self) -> None:
        """State as it was found; arguments have their shape and memory again."""
        for value, storage, offset, size, stride in self._layouts:
            if (value.size(), value.stride(), value.storage_offset()) != (size, stride, offset):
                value.data = torch.empty(0, dtype=value.dtype, device=value.device).set_(storage, offset, size, stride)
        self.program.snapshot.restore()

    def _at(self, number: int) -> Program:
        return self.programs[number % len(self.programs)]

    def run(
        self,
        function: Callable[..., Any] | None = None,
        mode: Beside64 | Rounded | None = None,
        before: Callable[[int], object] | None = None,
        seed: int | None = None,
    ) -> Trail:
        """What all calls of `function` (eager's own where it is None) leave, as copies; state is as before afterwards.

        `mode`: active during each call; of `Beside64` the float64 values are kept. `before`: told the number of each
        call. `seed`: of other random numbers than those of the state.
        """
        trail = Trail()
        self.restore()
        if seed is not None:
            torch.manual_seed(seed)
        context: AbstractContextManager[Any] = nullcontext() if mode is None else mode
        try:
            for number in range(self.steps):
                if before is not None:
                    before(number)
                program = self._at(number)
                try:
                    with context:
                        result = program.run(function or program.function)
                except Exception as error:
                    if function is None:
                        raise
                    trail.raised = (number, error)
                    break
                loss = loss_among(result)
                if loss is not None:
                    trail.losses.append(float(mode.of(loss) if isinstance(mode, Beside64) else loss.detach()))
                if number in self.kept:
                    trail.each[number] = self._left(program, result, mode)
        finally:
            self.restore()
        return trail

    def make(self, number: int, mode: AbstractContextManager[Any]) -> None:
        """Eager's calls up to `number`, of which that one is made in `mode`, without its backward pass; state is as
        before afterwards."""
        self.restore()
        try:
            for earlier in range(number):
                self._at(earlier).run(self._at(earlier).function)
            program = self._at(number)
            with mode:
                program.function(*program.args, **program.kwargs)
        finally:
            self.restore()

    def _left(self, program: Program, result: Any, mode: Beside64 | Rounded | None) -> dict[str, Any]:
        found = dict(leaves(result, "result"))
        for path, value in leaves((program.args, dict(program.kwargs)), "arguments"):
            if isinstance(value, torch.Tensor):
                found[f"{_argument_name(path)} afterwards"] = value
                if value.is_leaf and value.grad is not None:
                    found[f"gradient of {_argument_name(path)}"] = value.grad
        for module in self.modules:
            for name, value in module.named_parameters():
                if value.grad is not None:
                    found[f"gradient of {name}"] = value.grad
            found.update({f"buffer {name}": value for name, value in module.named_buffers()})
            found.update({f"parameter {name}": value for name, value in module.named_parameters()})
        for place, optimizer in enumerate(program.watched.optimizers or self.program.watched.optimizers):
            for key, state in optimizer.state_dict()["state"].items():
                found.update({f"optimizer {place} state {key} {name}": value for name, value in state.items()})
        copied = mode.of if isinstance(mode, Beside64) else _copy
        return {name: copied(value) for name, value in found.items()}

    def references(self, say: Callable[[str], object] = lambda text: None) -> References:
        """What eager says of all calls."""
        say("eager")
        eager = self.run()
        say("eager beside float64")
        with _torch.exact_products():
            wide = self.run(mode=Beside64())
        rounded: list[Trail] = []
        for seed in range(ROUNDED):
            say(f"eager, off by roundings, {seed + 1} of {ROUNDED}")
            try:
                rounded.append(self.run(mode=Rounded(seed)))
            except (RuntimeError, ValueError, IndexError):
                continue  # a rounding led where the program raises an error
        return References(eager, wide, rounded)


def loss_among(result: Any) -> torch.Tensor | None:
    """What a step's loss is: `.loss` of the result, or the only tensor of one element among its floats."""
    loss = getattr(result, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    found = [each for _, each in leaves(result) if isinstance(each, torch.Tensor) and each.is_floating_point()]
    return found[0].reshape(()) if len(found) == 1 and found[0].numel() == 1 else None


def _argument_name(path: str) -> str:
    """`arguments[0][2]` as "argument 2", `arguments[1]['x']` as "argument x"; what is inside of these as it is."""
    inside = path.removeprefix("arguments[0][").removeprefix("arguments[1][")
    first, _, rest = inside.partition("]")
    return f"argument {first.strip(chr(39))}{rest}"


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
