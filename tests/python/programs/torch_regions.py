"""Regions that change how torch computes: autocast, attention kernels, default types, profiling."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.python.harness import program
from tests.python.tensors import frozen, values


def _x():
    return values(2, 4)


def _heads():
    return values(1, 2, 5, 8), values(1, 2, 5, 8, seed=1), values(1, 2, 5, 8, seed=2)


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def autocast_region(x, layer):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    return y, y.dtype, layer(x).dtype


@program(together=lambda: (_x(), frozen(lambda: nn.Linear(4, 4))))
def autocast_disabled_inside(x, layer):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        with torch.autocast("cpu", enabled=False):
            z = layer(y.float())
    return y, z


@torch.autocast("cpu", dtype=torch.bfloat16)
def _product(x, y):
    return x @ y


@program(together=lambda: (_x(), values(4, 3)))
def autocast_as_decorator(x, y):
    return _product(x, y), torch.is_autocast_enabled("cpu")


@program(together=lambda: (_x(), values(4, 3)))
def autocast_asked(x, y):
    with torch.amp.autocast("cpu"):
        return x @ y, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


@program(together=_heads)
def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@program(together=_heads)
def attention_kernel_chosen(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


@program(together=_heads)
def attention_kernels_in_order(q, k, v):
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        return F.scaled_dot_product_attention(q, k, v, scale=0.5)


@program(together=_heads)
def attention_with_mask(q, k, v):
    mask = torch.ones(5, 5, dtype=torch.bool).tril(1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@program(together=lambda: (_x(),))
def default_dtype_changed(x):
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.ones(3)
    finally:
        torch.set_default_dtype(previous)
    return x, y


@program(together=lambda: (_x(),))
def record_function_region(x):
    with torch.profiler.record_function("block"):
        y = x * 2
    return y


@program(together=lambda: (_x(),))
def null_context_or_no_grad(x):
    results = []
    for context in (contextlib.nullcontext(), torch.no_grad()):
        with context:
            results.append(x * 2)
    return results


@program(together=lambda: (_x(),))
def several_contexts_in_an_exit_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        return x @ x.T


@program(together=lambda: (_x(),))
def deterministic_algorithms_asked(x):
    return x.cumsum(0) if torch.are_deterministic_algorithms_enabled() else x.sum(0)


@program(together=lambda: (_x(),))
def matmul_precision_set(x):
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    y = x @ x.T
    torch.set_float32_matmul_precision(previous)
    return y


@program(together=lambda: (_x(),))
def default_device_region(x):
    with torch.device("cpu"):
        return x + torch.ones(4)


@program(together=lambda: (_x(),))
def anomaly_detection_region(x):
    with torch.autograd.set_detect_anomaly(False):
        return x.log()


@program(together=lambda: (_x(),))
def saved_tensors_hooks_region(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return x * 2
