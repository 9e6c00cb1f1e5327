"""PyTorch's own operator samples as statements of generated programs.

Tensor arguments of a sample become inputs of the program's own kinds and variables of the same shape and type; values
that an operator needs (indices, triangular factors) stay the sample's, as named constants.
"""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

import torch

from tests.fuzz.builder import ROUNDS, VIEW, Builder, Skip

#: Operators whose results depend on memory that nobody wrote or on chance, or that have other samples of their own.
LEFT_OUT = frozenset("""empty empty_like new_empty new_empty_strided empty_strided empty_permuted resize_ resize_as_
rand rand_like randn randn_like randint randint_like normal multinomial bernoulli exponential cauchy geometric log_normal
uniform randperm nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d nn.functional.alpha_dropout
nn.functional.feature_alpha_dropout nn.functional.rrelu svd_lowrank pca_lowrank to_sparse linalg.eig linalg.eigh
linalg.svd svd geqrf linalg.qr qr lobpcg nn.functional.scaled_dot_product_attention nn.functional.fractional_max_pool2d
nn.functional.fractional_max_pool3d ormqr linalg.householder_product jiterator_unary tensor_split""".split())  # fmt: skip


@functools.cache
def operators() -> list[Any]:
    from tests.ops.check import leave_seeding_to_the_check  # first: it stands in for `expecttest` where that is missing

    from torch.testing._internal.common_methods_invocations import op_db  # isort: skip

    leave_seeding_to_the_check()
    return [op for op in op_db if op.name not in LEFT_OUT and not op.name.startswith(("jiterator", "_refs", "sparse"))]


@functools.cache
def functions() -> dict[str, Any]:
    """The operators by the names that they have in programs."""
    return {_label(op): op.get_op() for op in operators()}


def _label(op: Any) -> str:
    return "op_" + op.name.replace(".", "_") + ("_" + op.variant_test_name if op.variant_test_name else "")


@functools.lru_cache(maxsize=512)
def _samples(index: int, dtype: torch.dtype, grad: bool) -> list[Any]:
    state = torch.get_rng_state()
    torch.manual_seed(3)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            found = list(itertools.islice(operators()[index].sample_inputs("cpu", dtype, requires_grad=False), 24))
    except Exception:
        found = []
    torch.set_rng_state(state)
    return found


def statement(b: Builder) -> tuple:
    index = b.below(len(operators()))
    op = operators()[index]
    dtype = getattr(torch, b.one(*b.dtypes))
    if dtype not in op.dtypes:
        raise Skip
    found = _samples(index, dtype, b.grad)
    if not found:
        raise Skip
    sample = random.Random(b.below(1 << 20)).choice(found)
    function = op.get_op()
    label = _label(op)
    b.names[label] = function
    arguments = [_argument(b, each, place == 0) for place, each in enumerate((sample.input, *sample.args))]
    if "_polynomial_" in op.name:  # of NaN these kernels return a variable that they have not written
        arguments[0] = f"torch.nan_to_num({arguments[0]}, 0.5, inf, -inf)"
    arguments += [f"{name}={_argument(b, each, False)}" for name, each in sample.kwargs.items()]
    # What is read by strides is read in that memory: copies, which disturbed operands are, have another.
    return f"{label}({', '.join(arguments)})", VIEW if op.name.startswith("as_strided") else ROUNDS


def _argument(b: Builder, value: Any, is_first: bool) -> str:
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.numel() > 3000:
            raise Skip
        alike = b.tensors(lambda x: x.shape == value.shape and x.dtype == value.dtype)
        if alike and b.chance(0.7):
            return b.choose.choice(alike)
        if value.is_floating_point() and is_first:
            return b.new(value.shape, str(value.dtype).removeprefix("torch."))
        return _constant(b, value.detach().clone())
    if type(value) in (list, tuple):
        inner = ", ".join(_argument(b, each, is_first) for each in value)
        return f"[{inner}]" if type(value) is list else f"({inner}{',' if len(value) == 1 else ''})"
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.memory_format)):
        return repr(value)
    return _constant(b, value)


def _constant(b: Builder, value: Any) -> str:
    name = f"constant{len(b.names)}"
    b.names[name] = value
    return name
