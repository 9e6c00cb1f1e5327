"""Leaves, programs that return views, and what a caller can do with these: for the property test of `test_views.py`.

argument, leaves = LEAVES["expanded"]()
results = tensors(PROGRAMS["own_and_transposed"](argument))
OBSERVERS["backward"](argument, leaves, results)        -> gradients and whatever else is seen
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

# Arguments ------------------------------------------------------------------------------------------------------------


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _leaf(tensor: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    tensor.requires_grad_()
    return tensor, [tensor]


def _made(leaf: torch.Tensor, make: Callable) -> tuple[torch.Tensor, list[torch.Tensor]]:
    leaf.requires_grad_()
    return make(leaf), [leaf]


#: Makes an argument of shape (4, 3) and the leaves that gradients go to.
LEAVES: dict[str, Callable[[], tuple[torch.Tensor, list[torch.Tensor]]]] = {
    "plain": lambda: _leaf(_random(4, 3)),
    "transposed": lambda: _leaf(_random(3, 4).t()),
    "expanded": lambda: _leaf(_random(3).expand(4, 3)),
    "expanded_column": lambda: _leaf(_random(4, 1).expand(4, 3)),
    "overlapping": lambda: _leaf(_random(8).as_strided((4, 3), (1, 1))),
    "overlapping_later": lambda: _leaf(_random(12).as_strided((4, 3), (1, 2), 1)),
    "gapped": lambda: _leaf(_random(8, 6)[::2, ::2]),
    "later": lambda: _leaf(_random(6, 3)[2:]),
    "computed": lambda: _made(_random(4, 3), lambda leaf: leaf * 2),
    "view": lambda: _made(_random(3, 4), lambda leaf: leaf.t()),
    "expanded_view": lambda: _made(_random(3), lambda leaf: leaf.expand(4, 3)),
    "computed_expanded": lambda: _made(_random(3), lambda leaf: (leaf * 2).expand(4, 3)),
    "computed_gapped": lambda: _made(_random(8, 6), lambda leaf: (leaf * 1)[::2, ::2]),
    "computed_overlapping": lambda: _made(_random(8), lambda leaf: (leaf * 1).as_strided((4, 3), (1, 1))),
}

# Programs -------------------------------------------------------------------------------------------------------------

PROGRAMS: dict[str, Callable] = {
    "same": lambda x: x,
    "transposed": lambda x: x.t(),
    "expanded": lambda x: x.expand(2, 4, 3),
    "unsqueezed": lambda x: x[None, :, :],
    "row": lambda x: x[1],
    "element": lambda x: x[1, 2],
    "slice": lambda x: x[1:3],
    "stepped": lambda x: x[::2, 1:],
    "nothing": lambda x: x[2:2],
    "diagonal": lambda x: x.diagonal(1),
    "unfolded": lambda x: x.unfold(0, 2, 1),
    "permuted": lambda x: x[None].permute(2, 0, 1),
    "squeezed": lambda x: x[:1].squeeze(0),
    "chain": lambda x: x.t()[1:].expand(2, 2, 4)[0, :, ::2],
    "strided": lambda x: x.as_strided((2, 2), (1, 1)),
    "strided_later": lambda x: x.as_strided((2,), (1,), x.storage_offset()),
    "split": lambda x: x.split(2),
    "part": lambda x: x.split([1, 3])[1],
    "unbound": lambda x: x.unbind(),
    "column": lambda x: x.unbind(1)[2],
    "chunks": lambda x: x.chunk(2, 1),
    "parts": lambda x: torch.tensor_split(x, 3, 1),
    "detached": lambda x: (x.t().detach(), x * 2),
    "only_detached": lambda x: x.detach(),
    "without_gradients": lambda x: (_without_gradients(x), x * 2),
    "with_and_without_gradients": lambda x: (_without_gradients(x), x[1:]),
    "only_without_gradients": lambda x: _without_gradients(x),
    "two_views": lambda x: (x[1:], x.t()),
    "view_of_view": lambda x: (x[1:], x[1:][0]),
    "itself_and_view": lambda x: (x, x.view_as(x)),
    "view_and_computed": lambda x: (x[1:], x.sin()),
    "expanded_and_computed": lambda x: (x.expand(2, 4, 3), (x * 2).sum(0)),
    "reshaped": lambda x: x.reshape(-1),
    "contiguous": lambda x: x.contiguous(),
    "not_differentiable": lambda x: (x.argmax(), x > 0, x * 2, x.sort()),
    "imaginary": lambda x: torch.complex(x, x * 2).imag,
    "as_complex": lambda x: torch.view_as_complex(torch.stack([x, x * 2], -1)),
}


def _program(function: Callable) -> Callable:
    PROGRAMS[function.__name__] = function
    return function


def _of_computed(**programs: Callable) -> None:
    """Programs that are given twice the argument, and return views of that."""
    for name, function in programs.items():
        PROGRAMS[f"own_{name}"] = lambda x, function=function: function(x * 2)


_of_computed(
    and_transposed=lambda y: (y, y.t()),
    rows=lambda y: (y[0], y[1:]),
    and_expanded=lambda y: (y.expand(2, 4, 3), y),
    expanded=lambda y: y.expand(2, 4, 3),
    expanded_twice=lambda y: (y.expand(2, 4, 3), y.expand(3, 4, 3)),
    parts_of_expanded=lambda y: (y.expand(2, 4, 3)[0], y.expand(2, 4, 3)[:, 0]),
    row_expanded=lambda y: (lambda e: (e, e.t(), e[0]))(y[0].expand(4, 3)),
    and_detached=lambda y: (y, y.detach()),
    and_detached_row=lambda y: (y[0].detach(), y),
    and_diagonal=lambda y: (y.diagonal(), y),
    split=lambda y: y.split(2),
    unbound=lambda y: y.unbind(1),
    and_unbound=lambda y: (y, *y.unbind(1)),
    strided=lambda y: (y.contiguous().as_strided((2, 2), (1, 1)), y.contiguous().as_strided((3, 2), (1, 1))),
    twice=lambda y: (y, y),
    slice=lambda y: y[1:],
    and_leaf=lambda y: (y.detach().requires_grad_(), y),
    flat=lambda y: y.flatten(),
)


def _without_gradients(x: Any) -> Any:
    with torch.no_grad():
        return x[1:]


@_program
def view_written(x: Any) -> Any:
    y = x.clone()
    view = y[0]
    view.mul_(3)
    return y, view


@_program
def view_written_beside_another(x: Any) -> Any:
    y = x.clone()
    view, other = y[1:], y.t()
    view.mul_(3)
    return other, view


@_program
def base_written(x: Any) -> Any:
    y = x.clone()
    view = y[0]
    y.mul_(3)
    return view, y


@_program
def turned(x: Any) -> Any:
    y = x * 2
    y.t_()
    return y


@_program
def detached_written(x: Any) -> Any:
    y = x * 2
    y.detach().add_(1)
    return y


@_program
def copied_into_view(x: Any) -> Any:
    y = torch.zeros(4, 3, dtype=x.dtype)
    view = y[1:]
    view.copy_(x[1:])
    return y, view


@_program
def items_set(x: Any) -> Any:
    y = x.clone()
    y[0] = x[1]
    y[:, 1] *= 2
    return y


@_program
def argument_written(x: Any) -> Any:
    x.mul_(2)
    return x[1:]


@_program
def view_of_argument_written(x: Any) -> Any:
    view = x[1:]
    view.mul_(2)
    return view


# What the caller does and sees ----------------------------------------------------------------------------------------


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of nested tuples and lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for item in value for each in tensors(item)] if isinstance(value, (tuple, list)) else []


def _cotangent(tensor: torch.Tensor, number: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7 + number)
    return torch.randn(tensor.shape, dtype=tensor.dtype, generator=generator)


def _differentiable(results: list[torch.Tensor]) -> list[torch.Tensor]:
    return [each for each in results if each.requires_grad]


def _loss(results: list[torch.Tensor], power: int = 1) -> torch.Tensor:
    total: Any = 0
    for number, each in enumerate(results):
        if each.requires_grad:
            value = (each**power * _cotangent(each, number)).sum()
            total = total + (value.real if value.is_complex() else value)
    return total


def _seen(tensor: torch.Tensor | None) -> Any:
    return None if tensor is None else (tensor.detach().clone(), tuple(tensor.stride()))


def _gradients(leaves: list[torch.Tensor]) -> list[Any]:
    return [_seen(each.grad) for each in leaves]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _metadata(argument: Any, leaves: Any, results: Any) -> Any:
    seen: list[Any] = []
    for each in results:
        layout = (each.dtype, tuple(each.shape), tuple(each.stride()), each.storage_offset())
        seen.append((layout, each.requires_grad, each.is_leaf, each is argument, _storage(each) == _storage(argument)))
        seen.append(each.detach().clone())
    pairs = itertools.combinations(results, 2)
    return seen, [(one is other, _storage(one) == _storage(other)) for one, other in pairs]


def _views_of_argument(argument: Any, leaves: Any, results: Any) -> Any:
    """What autograd says of results that are views of the argument, as it does in eager."""
    views = [each for each in results if each is not argument and _storage(each) == _storage(argument)]
    return [(each._is_view(), each._version, each.grad_fn and each.grad_fn.name()) for each in views]


def _backward(argument: Any, leaves: Any, results: Any) -> Any:
    _loss(results).backward()
    return _gradients(leaves)


def _backward_of_results(argument: Any, leaves: Any, results: Any) -> Any:
    wanted = _differentiable(results)
    torch.autograd.backward(wanted, [_cotangent(each, number) for number, each in enumerate(wanted)])
    return _gradients(leaves)


def _backward_of_sums(argument: Any, leaves: Any, results: Any) -> Any:
    sums = [each.sum() for each in _differentiable(results)]
    sum(each.real if each.is_complex() else each for each in sums).backward()
    return _gradients(leaves)


def _accumulated(argument: Any, leaves: Any, results: Any) -> Any:
    for each in leaves:
        each.grad = torch.ones_like(each.detach())
    before = [each.grad for each in leaves]
    _loss(results).backward()
    return _gradients(leaves), [old is each.grad for old, each in zip(before, leaves, strict=True)]


def _retained(argument: Any, leaves: Any, results: Any) -> Any:
    loss = _loss(results, 2)
    loss.backward(retain_graph=True)
    loss.backward()
    return _gradients(leaves)


def _each_result(argument: Any, leaves: Any, results: Any) -> Any:
    return [
        [
            each if each is None else each.clone()
            for each in torch.autograd.grad(result, leaves, _cotangent(result), retain_graph=True, allow_unused=True)
        ]
        for result in _differentiable(results)
    ]


def _of_argument_too(argument: Any, leaves: Any, results: Any) -> Any:
    found = torch.autograd.grad(_loss(results), [argument, *leaves], allow_unused=True)
    return [each if each is None else each.clone() for each in found]


def _twice(argument: Any, leaves: Any, results: Any) -> Any:
    first = torch.autograd.grad(_loss(results, 3), leaves, create_graph=True, allow_unused=True)
    present = [each for each in first if each is not None]
    second = torch.autograd.grad(_loss(present), leaves, allow_unused=True)
    return [each if each is None else each.detach().clone() for each in (*present, *second)]


def _results_written(argument: Any, leaves: Any, results: Any) -> Any:
    for each in _differentiable(results):
        each.mul_(3)
    written = [each.detach().clone() for each in (*results, argument)]
    _loss(results).backward()
    return written, _gradients(leaves)


def _results_written_without_gradients(argument: Any, leaves: Any, results: Any) -> Any:
    with torch.no_grad():
        for each in results:
            each.add_(1)
    _loss(results).backward()
    return [each.detach().clone() for each in results], _gradients(leaves)


def _hooks(argument: Any, leaves: Any, results: Any) -> Any:
    seen: list[torch.Tensor] = []
    for each in _differentiable(results):
        each.register_hook(lambda gradient: gradient * 2)
    argument.register_hook(lambda gradient: seen.append(gradient.clone()))
    leaves[0].register_hook(lambda gradient: gradient * 3)
    _loss(results).backward()
    return seen, _gradients(leaves)


def _kept(argument: Any, leaves: Any, results: Any) -> Any:
    for each in _differentiable(results):
        each.retain_grad()
    argument.retain_grad()
    _loss(results).backward()
    return [each.grad.clone() for each in _differentiable(results) if each.grad is not None], _gradients(leaves)


def _last_result(argument: Any, leaves: Any, results: Any) -> Any:
    _loss(_differentiable(results)[-1:]).backward()
    return _gradients(leaves)


OBSERVERS: dict[str, Callable] = {
    function.__name__[1:]: function
    for function in (
        _metadata, _views_of_argument, _backward, _backward_of_results, _backward_of_sums, _accumulated, _retained,
        _each_result, _of_argument_too, _twice, _results_written, _results_written_without_gradients, _hooks, _kept,
        _last_result,
    )
}  # fmt: skip

#: Eager itself ends the process: hooks on views whose base was written.
CRASHES = {(name, "hooks") for name in PROGRAMS if name.endswith("written") or "written_" in name}


def observe(function: Callable, leaf: str, observer: str) -> Any:
    """What the observer sees of `function`, or the class of the exception it gets."""
    torch.manual_seed(1)
    argument, leaves = LEAVES[leaf]()
    try:
        return OBSERVERS[observer](argument, leaves, tensors(function(argument)))
    except (RuntimeError, IndexError, AttributeError, TypeError, ValueError) as error:
        return type(error)
