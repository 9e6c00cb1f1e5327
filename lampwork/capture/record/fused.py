"""PyTorch's fused optimizer kernels, written out: interpreted like the program's own code where it calls them.

The arithmetic of each element is that of the kernels; scheduling makes one loop of it again. Step counters on the CPU
are numbers that the host knows, those on a GPU stay there.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch

from lampwork.capture.bytecode.decode import decode


def adam(*args: Any, **options: Any) -> None:
    _adam(*args, decoupled=False, **options)


def adamw(*args: Any, **options: Any) -> None:
    _adam(*args, decoupled=True, **options)


def _number(value: Any) -> Any:
    """A float, or a tensor of one element: what is on the CPU as a number."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.device.type == "cpu" else value.double()
    return value


def write(target: Any, value: Any) -> None:
    """`target.copy_(value)`, of which autograd does not know: these kernels raise the version of nothing."""
    raise NotImplementedError  # answered by `natives/torch_answers.py`


def _store(target: Any, value: Any, found_inf: Any) -> None:
    """Writes `value`, unless the gradients were found to overflow."""
    if found_inf is not None:
        value = torch.where(found_inf == 1, target, value)
    write(target, value)


def _unscaled(grad: Any, grad_scale: Any, found_inf: Any) -> Any:
    if grad_scale is None:
        return grad
    value = grad / grad_scale
    _store(grad, value, found_inf)
    return value


def _gradient(
    grad: Any, param: Any, grad_scale: Any, found_inf: Any, maximize: bool, weight_decay: Any
) -> Any:  # fmt: skip
    """What is descended along: the gradient, with the decay of weights added to it."""
    grad = _unscaled(grad, grad_scale, found_inf)
    if maximize:
        grad = -grad
    return grad.add(param, alpha=weight_decay) if weight_decay != 0 else grad


def _moved(param: Any, direction: Any, denominator: Any, step_size: Any) -> Any:
    """`param - step_size * direction / denominator`."""
    if isinstance(step_size, torch.Tensor):
        return param - step_size.to(param.dtype) * (direction / denominator)
    return param.addcdiv(direction, denominator, value=-step_size)


def _adam(
    params: Any, grads: Any, averages: Any, squares: Any, largest: Any, steps: Any, *, lr: Any, beta1: Any, beta2: Any,
    weight_decay: Any, eps: Any, amsgrad: bool, maximize: bool, decoupled: bool, grad_scale: Any = None,
    found_inf: Any = None,
) -> None:  # fmt: skip
    lr = _number(lr)
    for index, param in enumerate(params):
        grad = _gradient(grads[index], param, grad_scale, found_inf, maximize, 0 if decoupled else weight_decay)
        step = _number(steps[index])
        moved = param
        if decoupled and weight_decay != 0:
            moved = param * (1 - lr * weight_decay)
        average = averages[index].lerp(grad, 1 - beta1)
        square = (squares[index] * beta2).addcmul(grad, grad, value=1 - beta2)
        first = 1 - beta1**step
        second = (1 - beta2**step) ** 0.5
        spread = square
        if amsgrad:
            spread = torch.maximum(largest[index], square)
        if isinstance(second, torch.Tensor):
            second = second.to(param.dtype)
        moved = _moved(moved, average, (spread.sqrt() / second).add(eps), lr / first)
        _store(param, moved, found_inf)
        _store(averages[index], average, found_inf)
        _store(squares[index], square, found_inf)
        if amsgrad:
            _store(largest[index], spread, found_inf)


def sgd(
    params: Any, grads: Any, buffers: Any, *, weight_decay: Any, momentum: Any, lr: Any, dampening: Any,
    nesterov: bool, maximize: bool, is_first_step: bool, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    lr = _number(lr)
    for index, param in enumerate(params):
        grad = _gradient(grads[index], param, grad_scale, found_inf, maximize, weight_decay)
        if len(buffers):
            buffer = grad
            if not is_first_step:
                buffer = (buffers[index] * momentum).add(grad, alpha=1 - dampening)
            _store(buffers[index], buffer, found_inf)
            grad = grad.add(buffer, alpha=momentum) if nesterov else buffer
        moved = param - lr.to(param.dtype) * grad if isinstance(lr, torch.Tensor) else param.add(grad, alpha=-lr)
        _store(param, moved, found_inf)


def adagrad(
    params: Any, grads: Any, sums: Any, steps: Any, *, lr: Any, lr_decay: Any, weight_decay: Any, eps: Any,
    maximize: bool, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    lr = _number(lr)
    for index, param in enumerate(params):
        grad = _gradient(grads[index], param, grad_scale, found_inf, maximize, weight_decay)
        total = sums[index].addcmul(grad, grad, value=1.0)
        rate = lr / (1 + (_number(steps[index]) - 1) * lr_decay)
        _store(param, _moved(param, grad, total.sqrt().add(eps), rate), found_inf)
        _store(sums[index], total, found_inf)


def unscale(grads: Any, found_inf: Any, inverse_scale: Any) -> None:
    """What `GradScaler` does to the gradients of one device and type."""
    finite = torch.stack([torch.isfinite(grad).all() for grad in grads]).all()
    found_inf.copy_(torch.where(finite, found_inf, 1.0))
    for grad in grads:
        grad.mul_(inverse_scale)


#: The kernel that `torch` calls and what is interpreted in its place.
KERNELS = {
    "_fused_adam_": adam, "_fused_adamw_": adamw, "_fused_sgd_": sgd, "_fused_adagrad_": adagrad,
    "_amp_foreach_non_finite_check_and_unscale_": unscale,
}  # fmt: skip


# Code of lampwork is left to CPython, which would hand the program's numbers to operators as they are. This is not.
for _function in [*globals().values()]:
    if isinstance(_function, FunctionType) and _function.__module__ == __name__ and _function is not write:
        _code = decode(_function.__code__)
        _code.hidden, _code.is_native = True, False
