"""What an operator saves that writes to a view is known, though autograd hides its node: a write by the caller before the
backward pass raises as in eager, and so does a second backward pass. Nothing raised, where the derivative of ours read
something else."""

from __future__ import annotations

import pytest
import torch

import lampwork

VIEWS = {
    "whole": lambda x: (x * 1.2).view(-1).view(2, 2),
    "reshaped": lambda x: x.clone().reshape(2, 2),
    "product": lambda x: torch.tensordot(x, torch.ones(2, 2), dims=([1], [0])),
    "transposed": lambda x: (x * 1.2).t(),
    "part": lambda x: torch.stack([x, x])[0],
    "none": lambda x: x * 1.2,
}
WRITES = {
    "abs_": lambda y, w: y.abs_(),
    "acos_": lambda y, w: y.acos_(),
    "add_": lambda y, w: y.add_(w, alpha=2),
    "addcdiv_": lambda y, w: y.addcdiv_(w, w),
    "addcmul_": lambda y, w: y.addcmul_(w, torch.ones(2)),
    "addmm_": lambda y, w: y.addmm_(w, w, beta=0.5),
    "atan2_": lambda y, w: y.atan2_(w),
    "clamp_": lambda y, w: y.clamp_(0.2, 0.5),
    "clamp_ to tensors": lambda y, w: y.clamp_(w * 0.5, w),
    "copy_": lambda y, w: y.copy_(w),
    "copysign_": lambda y, w: y.copysign_(100.0),
    "copysign_ of a tensor": lambda y, w: y.copysign_(w),
    "cumprod_": lambda y, w: y.cumprod_(0),
    "cumsum_": lambda y, w: y.cumsum_(0),
    "div_": lambda y, w: y.div_(w),
    "div_ by a number": lambda y, w: y.div_(2.0),
    "elu_": lambda y, w: torch.nn.functional.elu_(y),
    "erf_": lambda y, w: y.erf_(),
    "exp_": lambda y, w: y.exp_(),
    "fill_": lambda y, w: y.fill_(w.sum()),
    "hypot_": lambda y, w: y.hypot_(w),
    "index_add_": lambda y, w: y.index_add_(0, torch.tensor([0, 1]), w),
    "index_put_": lambda y, w: y.index_put_((torch.tensor([0]),), w[0]),
    "a mask": lambda y, w: y.masked_fill_(w > 0.3, 0.5),
    "items": lambda y, w: [y.__setitem__(0, w[0]), y][1],
    "leaky_relu_": lambda y, w: torch.nn.functional.leaky_relu_(y),
    "lerp_": lambda y, w: y.lerp_(w, 0.3),
    "lerp_ by a tensor": lambda y, w: y.lerp_(torch.ones(2), w),
    "log_": lambda y, w: y.log_(),
    "mul_": lambda y, w: y.mul_(w),
    "mul_ by a constant": lambda y, w: y.mul_(torch.full((2,), 3.0)),
    "pow_": lambda y, w: y.pow_(w),
    "pow_ of a number": lambda y, w: y.pow_(2.5),
    "reciprocal_": lambda y, w: y.reciprocal_(),
    "relu_": lambda y, w: y.relu_(),
    "rsqrt_": lambda y, w: y.rsqrt_(),
    "scatter_": lambda y, w: y.scatter_(0, torch.zeros(1, 2, dtype=torch.int64), w),
    "sigmoid_": lambda y, w: y.sigmoid_(),
    "sin_": lambda y, w: y.sin_(),
    "sqrt_": lambda y, w: y.sqrt_(),
    "sub_": lambda y, w: y.sub_(w),
    "tanh_": lambda y, w: y.tanh_(),
    "tril_": lambda y, w: y.tril_(),
    "twice": lambda y, w: y.exp_().mul_(w),
    "xlogy_": lambda y, w: y.xlogy_(w),
    "zero_": lambda y, w: y.zero_(),
}


def nothing(result, x, w):
    pass


AFTER = {
    "nothing": nothing,
    "the result": lambda result, x, w: result.add_(1),
    "a part of the result": lambda result, x, w: result[0].zero_(),
    "the operand": lambda result, x, w: w.mul_(2),
}


def gradients(function, after, times):
    x = torch.tensor([[0.3, 0.6], [0.2, 0.8]], requires_grad=True)
    leaf = torch.tensor([[0.25, 0.85], [0.35, 0.65]], requires_grad=True)
    w = leaf * 1
    result = function(x, w)
    total = result.sum()
    with torch.no_grad():
        after(result, x, w)
    try:
        for _ in range(times):
            total.backward()
    except RuntimeError as error:
        return "again" if "second time" in str(error) else "written"
    return x.grad, leaf.grad


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_what_is_saved_is_eagers(view, name):
    program = lambda x, w: WRITES[name](VIEWS[view](x), w)
    compiled = lampwork.compile(program, options={"cache": False})
    for after, times in [*[(each, 1) for each in AFTER], ("nothing", 2)]:
        expected = gradients(program, AFTER[after], times)
        found = gradients(compiled, AFTER[after], times)
        if isinstance(expected, str):
            assert found == expected, after
        else:
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["copysign_", "mul_", "index_put_", "a mask"])
def test_sizes_that_vary(name):
    program = lambda x, w: WRITES[name]((x * 1.2).view(-1).view(x.shape), w)
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for after in AFTER:
        expected, found = (gradients(each, AFTER[after], 1) for each in (program, compiled))
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)


def test_the_memory_that_was_written_through_a_view():
    def program(x, w):
        y = x * 1.2
        y.view(-1).exp_()
        return y

    compiled = lampwork.compile(program, options={"cache": False})
    for after in AFTER.values():
        expected, found = (gradients(each, after, 1) for each in (program, compiled))
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)
