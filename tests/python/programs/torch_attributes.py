"""Attributes and methods of tensors that are not operators."""

from __future__ import annotations

import torch

from tests.python.harness import program
from tests.python.tensors import values


def _x():
    return values(2, 3, 4)


@program(together=lambda: (_x(),))
def shape_dtype_device(x):
    return x * 2, x.shape, x.dtype, x.device, x.ndim, x.layout, x.is_cuda, x.itemsize, x.nbytes


@program(together=lambda: (_x(),))
def sizes_and_strides(x):
    return x.size(), x.size(-1), x.stride(), x.stride(0), x.dim(), x.numel(), x.nelement(), x.element_size(), len(x)


@program(together=lambda: (_x(),))
def contiguity_asked(x):
    y = x.transpose(0, 2)
    return y.contiguous(), y.is_contiguous(), x.is_contiguous(), y.storage_offset(), x[1].storage_offset()


@program(together=lambda: (values(3, 4),))
def transposes(x):
    return x.T, x.mT, x.H, x.mH, x.t(), x.T.is_contiguous()


@program(together=lambda: (values(2, 2, 2).to(torch.complex64),))
def real_and_imaginary(x):
    return x.real + 1, x.imag, x.conj().is_conj(), x.is_complex()


@program(together=lambda: (_x(),))
def data_read(x):
    return x.data * 2, x.data.requires_grad


@program(together=lambda: (values(2, 4),))
def data_written(x):
    y = x.clone()
    y.data = torch.zeros(3)
    return y, y.shape


@program(together=lambda: (values(2, 4), values(2, 4, seed=1)))
def data_of_argument_written(x, y):
    x.data = y * 2
    return x + 1


@program(together=lambda: (values(2, 4),))
def data_changed_in_place(x):
    x.data.mul_(2)
    x.data[0] = 1.0
    return x + 1


def _with_gradient():
    x = values(2, 4).requires_grad_()
    x.grad = torch.ones(2, 4)
    return (x,)


@program(together=_with_gradient, grad=True)
def gradient_read_and_dropped(x):
    with torch.no_grad():
        y = x if x.grad is None else x - 0.1 * x.grad
        x.grad = None
    return y.detach(), x.grad


@program(together=_with_gradient)
def gradient_zeroed(x):
    x.grad.zero_()
    return x.grad.sum()


@program(together=lambda: (values(2, 4).requires_grad_(),))
def gradient_assigned(x):
    x.grad = torch.full((2, 4), 2.0)
    return x.grad * 2


def _tagged():
    x = values(2, 4)
    x.tag = "left"
    x.scale = torch.tensor(2.0)
    return (x,)


@program(together=_tagged)
def attribute_of_tensor_read(x):
    return x * x.scale if x.tag == "left" else x, hasattr(x, "other"), getattr(x, "missing", 3)


@program(together=lambda: (values(2, 4),))
def attribute_put_on_a_tensor(x):
    y = x * 2
    y.note = "made here"
    return y + 1, y.note


@program(together=lambda: (values(2, 4),))
def attribute_put_on_an_argument(x):
    x.note = "seen"
    return x + 1


@program(together=lambda: (values(2, 4),))
def tensors_converted(x):
    return x.double(), x.half(), x.int(), x.to(torch.bfloat16), x.type(torch.float64), x.bool(), x.to("cpu"), x.cpu()


@program(together=lambda: (values(2, 4), values(2, 4, dtype=torch.float64)))
def types_promoted_and_asked(x, y):
    z = x + y
    return z, torch.promote_types(x.dtype, y.dtype), torch.result_type(x, 1), torch.can_cast(z.dtype, x.dtype), x.type()


@program(together=lambda: (values(2, 4),))
def type_information(x):
    info = torch.finfo(x.dtype)
    return x.clamp(min=info.min, max=info.max), info.eps, torch.iinfo(torch.int32).max, x.is_floating_point()


@program(together=lambda: (values(2, 4), values(2, 4)))
def tensor_identity_and_equality(x, y):
    return x is y, x is x, torch.equal(x, y), (x == y).all(), x.is_same_size(y)


@program(together=lambda: (values(2, 4),))
def tensors_in_sets_and_dicts(x):
    y = x + 1
    found = {x: "x", y: "y"}
    return found[x], y in found, len({x, y, x}), hash(x) == hash(x)


@program(together=lambda: (values(2, 4),))
def tensor_methods_by_name(x):
    results = [getattr(x, name)() for name in ("exp", "sum", "abs")]
    return results, callable(x.relu), hasattr(x, "sigmoid")


@program(together=lambda: (values(2, 4),))
def unbound_tensor_methods(x):
    return torch.Tensor.add(x, 1), torch.Tensor.__mul__(x, 2), list(map(torch.Tensor.sum, [x, x + 1]))


@program(together=lambda: (values(2, 4),))
def version_counter(x):
    y = x.clone()
    before = y._version
    y.add_(1)
    return y, y._version - before


@program(together=lambda: (values(2, 4),))
def storage_shared_asked(x):
    y = x[0]
    return y + 1, x.data_ptr() == y.data_ptr(), x.untyped_storage().nbytes()


@program(together=lambda: (values(2, 4),))
def tensor_shown_as_text(x):
    return x * 2, str(x), f"{x.sum():.3f}"
