"""The program that is assessed: one call that can be made again and again, and what was seen to run in it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lampwork import _torch
from lampwork.benchmark import zoo
from lampwork.ir.record import record
from lampwork.verdict.snapshot import Snapshot, seed_all
from lampwork.verdict.verify import Comparison, compare, leaves


@record(frozen=False, eq=False)
class Seen:
    """A module that the program called, not from within another one, and the seconds of its forward passes."""

    module: torch.nn.Module
    calls: int = 0
    seconds: float = 0.0


@record(frozen=False, eq=False)
class Watched:
    """What ran while `watching` was on."""

    outermost: dict[int, Seen] = field(default_factory=dict)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)

    @property
    def modules(self) -> list[Seen]:
        return list(self.outermost.values())

    @property
    def forward_seconds(self) -> float:
        return sum(each.seconds for each in self.outermost.values())


@contextmanager
def watching(snapshot: Snapshot | None = None) -> Iterator[Watched]:
    """Notes outermost modules and optimizers; each is added to `snapshot` before it runs for the first time. Those in
    branches and loops are seen, too."""
    watched = Watched()

    def module(each: torch.nn.Module) -> None:
        if snapshot is not None:
            snapshot.add(each)

    def stepping(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not any(each is optimizer for each in watched.optimizers):
            watched.optimizers.append(optimizer)
            if snapshot is not None:
                snapshot.add(optimizer)

    handle = register_optimizer_step_pre_hook(stepping)
    try:
        with watching_modules(watched, module, time.perf_counter), _torch.functions_in_python():
            yield watched
    finally:
        handle.remove()


@contextmanager
def watching_modules(
    watched: Watched, entered: Callable[[torch.nn.Module], None], now: Callable[[], float]
) -> Iterator[None]:
    """Notes outermost modules in `watched`; tells `entered` of each before it runs. Times are those of `now`."""
    stack: list[tuple[torch.nn.Module, float]] = []

    def before(module: torch.nn.Module, args: Any) -> None:
        if torch.compiler.is_dynamo_compiling():  # a function that `torch.cond` was given
            return
        if not stack:
            entered(module)
        stack.append((module, now()))

    def after(module: torch.nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_dynamo_compiling():
            return
        while stack:
            inner, started = stack.pop()  # those above it were left by exceptions
            if inner is module:
                break
        else:
            return
        if not stack:
            seen = watched.outermost.setdefault(id(module), Seen(module))
            seen.calls += 1
            seen.seconds += now() - started

    handles = [register_module_forward_pre_hook(before), register_module_forward_hook(after)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@record
class Outcome:
    """Results, gradients and buffers by name, and parameters before and after the call."""

    left: dict[str, Any]
    parameters: dict[str, tuple[torch.Tensor, torch.Tensor]]

    def compare(self, eager: Outcome, reference: Outcome | None = None, disturbed: Outcome | None = None) -> Comparison:
        """Whether these numbers are eager's, or about as near as eager's to those of a `reference`.

        Of a reference only those are taken that eager's are near to: others come of other random numbers.

        Parameters are judged by their updates. Of a gradient that is rounding alone (a bias before batch norm) Adam
        makes a whole step, in either direction: so single elements may be off by two steps, and all of a parameter's
        by half a step in the root of the mean square, and further by `ROUNDINGS` times what eager's own update changes
        by when weights change by a rounding (`disturbed`).
        """
        near = {} if reference is None else {
            name: value for name, value in reference.left.items() if _is_near(eager.left.get(name), value)
        }  # fmt: skip
        found = compare(self.left, eager.left, near)
        reasons = list(found.reasons)
        for name in eager.parameters:
            if name not in self.parameters:
                reasons.append(f"{name}: not among the parameters of the modules that ran")
                continue
            update, ours = _update(eager, name), _update(self, name)
            moves = torch.zeros_like(update) if disturbed is None else _update(disturbed, name) - update
            if not update.numel() or torch.equal(update, ours):
                continue
            for size, share, told in ((_largest, 2.1, ""), (_typical, 0.5, " in the root of the mean square")):
                error, limit = size(ours - update), share * size(update) + ROUNDINGS * size(moves) + 1e-6
                if not error <= limit and not (math.isnan(error) and bool(update.isnan().any())):
                    reasons.append(f"{name}: off by {error:.3g} after an update of {size(update):.3g}{told}")
                    break
        return dataclasses.replace(found, accepted=not reasons, reasons=tuple(reasons))

    def numbers(self) -> dict[str, Any]:
        """Every leaf by its path, updates of parameters among them."""
        updates = {f"update of {name}": _update(self, name) for name in self.parameters}
        return {**self.left, **updates}


#: How many times as far as by one rounding of every weight a right result may be off.
ROUNDINGS = 10.0


def _update(outcome: Outcome, name: str) -> torch.Tensor:
    before, after = outcome.parameters[name]
    return after.double() - before.double()


def _largest(difference: torch.Tensor) -> float:
    return float(difference.abs().max())


def _typical(difference: torch.Tensor) -> float:
    return float(difference.square().mean().sqrt())


class Program:
    """`function(*args, **kwargs)`, for a module that is trained with its backward pass.

    task     "infer" where nothing takes gradients, "train" where the call ends with gradients or an optimizer's step
    devices  where its tensors lie
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        backward: bool | None = None,
    ) -> None:
        self.function, self.args, self.kwargs = function, args, dict(kwargs or {})
        self.snapshot = Snapshot()
        self.snapshot.add_tensors(each for _, each in leaves((args, self.kwargs)) if isinstance(each, torch.Tensor))
        self.module = function if isinstance(function, torch.nn.Module) else None
        if self.module is not None:
            self.snapshot.add(self.module)
        for holder in _found_with_state(function):
            self.snapshot.add(holder)
        if self.module is None:
            self.snapshot.add_program(function)
        if backward is None:
            backward = self.module is not None and self.module.training and torch.is_grad_enabled()
        self.backward = backward
        self.watched = Watched()
        self._left_gradients = False
        self._parameters = [] if self.module is None else list(self.module.parameters())

    @property
    def name(self) -> str:
        if self.module is not None:
            return type(self.module).__name__
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    @property
    def root(self) -> torch.nn.Module | None:
        """The module whose parts may be compiled: in a function the one that most of its forward time goes to."""
        if self.module is not None:
            return self.module
        seen = self.watched.modules
        return max(seen, key=lambda each: each.seconds).module if seen else None

    @property
    def variables(self) -> tuple[str, str]:
        """What the user's code is thought to call the function, and the module whose parts may be compiled."""
        if self.module is not None:
            return "model", "model"
        name = self.name.rpartition(".")[2]
        root = self.root
        holders = (named for named, value in _named(self.function) if value is root and root is not None)
        return name if name.isidentifier() else "function", next(holders, "model")

    @property
    def task(self) -> str:
        return "train" if self.backward or self.watched.optimizers or self._left_gradients else "infer"

    def observe(self) -> Any:
        """The first call, eagerly, and its result; what ran is in `watched` afterwards, and state is as before."""
        self.snapshot.restore()
        with watching(self.snapshot) as self.watched:
            result = self.run(self.function)
        parameters = [each for seen in self.watched.modules for each in seen.module.parameters()]
        self._left_gradients = any(each.grad is not None for each in parameters)
        self.snapshot.restore()
        return result

    def run(self, function: Callable[..., Any]) -> Any:
        """One call of `function` in place of the program's own."""
        if not self.backward:
            return function(*self.args, **self.kwargs)
        for parameter in self._parameters:
            parameter.grad = None
        result = function(*self.args, **self.kwargs)
        loss_of(result).backward()
        return result

    def outcome(self, function: Callable[..., Any], disturbance: float = 0.0, seed: int | None = None) -> Outcome:
        """What one call leaves, from the state that was found, as copies; state is as before afterwards.

        disturbance   each parameter is off by this share of itself, up or down
        seed          that random numbers begin with; None: as they were found
        """
        self.snapshot.restore()
        if seed is not None:
            seed_all(seed)
        modules = [each.module for each in self.watched.modules] or ([self.module] if self.module else [])
        if disturbance:
            _disturb([each for module in modules for each in module.parameters()], disturbance)
        before = {name: _copy(value) for module in modules for name, value in module.named_parameters()}
        result = self.run(function)
        left: dict[str, Any] = {"result": result}
        updates: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for module in modules:
            left.update(module.named_buffers())
            for name, value in module.named_parameters():
                if value.grad is not None:
                    left[f"gradient of {name}"] = value.grad
                if name in before:
                    updates[name] = before[name], _copy(value)
        kept = {path: _copy(value) for path, value in leaves(left, "")}
        self.snapshot.restore()
        return Outcome(kept, updates)

    def reference(self) -> Outcome | None:
        """What the call leaves in float64 where it is a module's, in float32 without TF32 where it is not."""
        with _torch.exact_products():
            if self.module is not None:
                try:
                    args, kwargs = (zoo.convert(each, dtype=torch.float64) for each in (self.args, self.kwargs))
                    double = Program(copy.deepcopy(self.module).double(), args, kwargs, self.backward)
                    return double.outcome(double.function)
                except (RuntimeError, TypeError, NotImplementedError):
                    pass  # an operator that has no float64
            return self.outcome(self.function)

    def devices(self) -> set[str]:
        tensors = [each for _, each in leaves((self.args, self.kwargs)) if isinstance(each, torch.Tensor)]
        for seen in self.watched.modules:
            tensors += list(seen.module.parameters())[:1]
        return {each.device.type for each in tensors} or {"cpu"}


def _disturb(parameters: list[torch.nn.Parameter], share: float) -> None:
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for each in parameters:
            if each.is_floating_point():
                up = torch.randint(0, 2, each.shape, generator=numbers).to(each.device)
                each.mul_((1.0 + share * (2.0 * up.double() - 1.0)).to(each.dtype))


#: Rounding, of TF32 too, stays below this share of the largest value; other random numbers do not.
NEAR = 0.05


def _is_near(eager: Any, reference: Any) -> bool:
    if not isinstance(eager, torch.Tensor) or not isinstance(reference, torch.Tensor) or eager.shape != reference.shape:
        return False
    if not eager.numel() or not eager.is_floating_point():
        return False
    difference = (eager.double() - reference.double()).square().mean().sqrt()
    return bool(difference <= NEAR * reference.double().square().mean().sqrt() + 1e-6)


def loss_of(result: Any) -> torch.Tensor:
    """What gradients are taken of: `.loss` of the result, a result of one element, or the mean of all that take any.

    Raises TypeError where nothing in the result takes gradients.
    """
    loss = getattr(result, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    found = [each for _, each in leaves(result) if isinstance(each, torch.Tensor) and each.requires_grad]
    if not found:
        raise TypeError("the result takes no gradients: call it under torch.no_grad(), or in eval mode, to assess it")
    if len(found) == 1 and found[0].numel() == 1:
        return found[0].reshape(())
    return sum((each.float().mean() for each in found), torch.zeros((), device=found[0].device))


def _found_with_state(function: Any) -> list[Any]:
    """What the function names that has a `state_dict`: schedulers, scalers, modules and optimizers of its own."""
    return [each for _, each in _named(function) if not isinstance(each, type) and _has_state(each)]


def _named(function: Any) -> list[tuple[str, Any]]:
    """What the function names: its object and what that holds, free variables and globals; each with its expression."""
    while isinstance(function, functools.partial):
        function = function.func
    found: list[tuple[str, Any]] = []
    if inspect.ismethod(function):
        holder = function.__self__
        held = getattr(holder, "__dict__", {})
        found += [("self", holder), *((f"self.{name}", value) for name, value in held.items())]
    elif not inspect.isroutine(function):  # an object that is called
        found += [(f"function.{name}", value) for name, value in getattr(function, "__dict__", {}).items()]
        function = type(function).__call__
    plain = inspect.unwrap(getattr(function, "__func__", function))
    if inspect.isfunction(plain):
        names = inspect.getclosurevars(plain)
        found += [*names.nonlocals.items(), *names.globals.items()]
    return found


def _has_state(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
