"""Gradients of operator samples: a program that takes them with `torch.autograd.grad`, for `check.check_sample`.

    def program(arguments, cotangents):           # the sample's own tensors, and one cotangent for each result
        leaves = [each.detach().requires_grad_() for each in differentiable arguments]
        return torch.autograd.grad(operator(arguments), leaves, cotangents)

Either the whole program is compiled, so that the operator's derivative lies in the same graph as the operator; or the
operator alone, whose derivative is then a program of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

import lampwork
from tests.ops.check import Outcome, call_as_it_is, check_sample, leave_seeding_to_the_check, spread

#: Derivatives that eager itself gives other values on every call, or that stand for memory nobody wrote.
UNDEFINED = frozenset("empty_like new_empty new_empty_strided empty_permuted resize_ resize_as_".split())

#: Eager takes another path for subclasses of tensors, with the same values in another layout.
OTHER_LAYOUT = frozenset({"ormqr"})


def check_gradient(op: Any, program: Any, args: tuple, kwargs: dict, how: str = "whole") -> Outcome:
    """`check_sample` for a program of `gradient_samples`. Strides are compared where they say something: not those of
    dimensions of size 1.

    `how`: "whole", the program is compiled; "apart", the operator alone is, and its compiled derivative is called by
    eager's engine.
    """
    if how == "apart":  # gradients that are views of cotangents in eager are tensors of their own
        return check_sample(op, program, args, kwargs, CompiledForward(program), "none")
    return check_sample(op, program, args, kwargs, strides="none" if op.name in OTHER_LAYOUT else "significant")


def gradient_samples(
    op: Any, dtype: torch.dtype, limit: int | None, device: str = "cpu"
) -> list[tuple[str, Any, tuple, dict]]:
    """Up to `limit` samples of a differentiable operator as (label, program, arguments, keyword arguments).

    Samples without a differentiable argument or result are left out.
    """
    if op.name in UNDEFINED or not op.supports_autograd or dtype not in op.supported_backward_dtypes(device):
        return []
    leave_seeding_to_the_check()
    torch.manual_seed(7)
    found = op.sample_inputs(device, dtype, requires_grad=True)
    every = list(found if limit is None else itertools.islice(found, 40))
    cases = []
    for index, sample in enumerate(spread(every, limit)):
        case = _case(op, sample)
        if case is not None:
            cases.append((str(index), *case))
    return cases


def _case(op: Any, sample: Any) -> tuple[Callable, tuple, dict] | None:
    given = ((sample.input, *sample.args), dict(sample.kwargs))
    wanted = [each.requires_grad for each in _tensors(given)]
    arguments = _detached(given)
    function, wrapper, finish = op.get_op(), op.gradcheck_wrapper, sample.output_process_fn_grad
    if wrapper.__name__ == "wrapper_set_seed":
        wrapper = call_as_it_is

    def forward(args: tuple, kwargs: dict) -> list[torch.Tensor]:
        """The operator's results that have a gradient."""
        return [each for each in _tensors(finish(wrapper(function, *args, **kwargs))) if each.requires_grad]

    def program(arguments: Any, cotangents: list[torch.Tensor]) -> tuple[Any, ...]:
        leaves: list[torch.Tensor] = []
        with torch.enable_grad():
            args, kwargs = _with_leaves(arguments, iter(wanted), leaves)
            return torch.autograd.grad(forward(args, kwargs), leaves, cotangents, allow_unused=True)

    torch.manual_seed(11)
    try:
        with torch.enable_grad():
            outputs = forward(*_with_leaves(_copied(arguments), iter(wanted), []))
    except Exception:
        return None  # eager refuses the sample
    if not any(wanted) or not outputs:
        return None
    program.forward, program.wanted = forward, wanted  # type: ignore[attr-defined]
    torch.manual_seed(13)
    return program, (arguments, [torch.randn_like(each) for each in outputs]), {}


class CompiledForward:
    """A compiler for `check_sample` that compiles the operator alone: eager's engine takes the gradients."""

    reset, stats = staticmethod(lampwork.reset), staticmethod(lambda compiled: lampwork.stats(compiled.forward))

    def __init__(self, program: Any) -> None:
        self.program = program

    def compile(self, function: Any, options: Any) -> Any:
        forward, wanted = lampwork.compile(self.program.forward, options=options), self.program.wanted

        def compiled(arguments: Any, cotangents: list[torch.Tensor]) -> tuple[Any, ...]:
            leaves: list[torch.Tensor] = []
            with torch.enable_grad():
                args, kwargs = _with_leaves(arguments, iter(wanted), leaves)
                return torch.autograd.grad(forward(args, kwargs), leaves, cotangents, allow_unused=True)

        compiled.forward = forward  # type: ignore[attr-defined]
        return compiled


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)


def _with_leaves(value: Any, wanted: Iterator[bool], leaves: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if not next(wanted):
            return value
        leaf = value.detach().requires_grad_()
        leaves.append(leaf)
        return leaf
    if isinstance(value, (tuple, list)):
        return type(value)([_with_leaves(each, wanted, leaves) for each in value])
    if isinstance(value, dict):
        return {name: _with_leaves(each, wanted, leaves) for name, each in value.items()}
    return value


def _detached(value: Any) -> Any:
    return _mapped(value, lambda tensor: tensor.detach())


def _copied(value: Any) -> Any:
    return _mapped(value, lambda tensor: tensor.clone())


def _mapped(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if type(value) in (tuple, list):
        return type(value)([_mapped(each, function) for each in value])
    if type(value) is dict:
        return {name: _mapped(each, function) for name, each in value.items()}
    return value
