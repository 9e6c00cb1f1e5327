"""Where eager's time goes by operator, and how much of it a compiled program moved into kernels of its own.

Matrix products, convolutions and attention are left to the vendor's libraries on purpose and stand apart. So do views
and allocations, which compute nothing. The rest is what a compiler should have taken over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.profiler import ProfilerActivity, profile

PRODUCTS = frozenset(
    "mm bmm addmm baddbmm addbmm addmv addr mv dot vdot matmul linear einsum _addmm_activation mkldnn_linear "
    "convolution _convolution conv1d conv2d conv3d conv_transpose2d mkldnn_convolution thnn_conv2d slow_conv3d "
    "_slow_conv2d_forward _conv_depthwise2d convolution_overrideable scaled_dot_product_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_attention_math _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention".split()
)

# Metadata, allocation and bookkeeping: no arithmetic, no copy of their own.
BOOKKEEPING = frozenset(
    "view _unsafe_view reshape view_as permute transpose t expand expand_as as_strided slice select unsqueeze squeeze "
    "empty empty_like empty_strided new_empty new_empty_strided resize_ detach detach_ alias unbind split "
    "split_with_sizes chunk narrow flatten unflatten movedim swapaxes lift_fresh to _to_copy contiguous result_type "
    "item _local_scalar_dense is_nonzero set_ _reshape_alias _reshape_copy resolve_conj resolve_neg size stride "
    "dropout feature_dropout broadcast_tensors numpy_T mT diagonal unfold real imag view_as_real "
    "view_as_complex".split()
)


@dataclass(frozen=True)
class OperatorTimes:
    """Self CPU time of each ATen operator of one call, in microseconds, by base name (`layer_norm`, `add`)."""

    microseconds: Mapping[str, float]
    calls: Mapping[str, int]

    @property
    def total(self) -> float:
        return sum(self.microseconds.values())

    @property
    def products_share(self) -> float:
        """Share of the time in products, convolutions and attention."""
        products = sum(time for name, time in self.microseconds.items() if name in PRODUCTS)
        return products / self.total if self.total else 0.0

    @property
    def others(self) -> dict[str, float]:
        """Time of the operators that a compiler should take over."""
        skip = PRODUCTS | BOOKKEEPING
        return {name: time for name, time in self.microseconds.items() if name not in skip}

    def as_dict(self) -> dict[str, Any]:
        return {"microseconds": dict(self.microseconds), "calls": dict(self.calls)}


def base_name(operator: str) -> str:
    """`aten::add_`, `aten.add_.Tensor`, `torch.ops.aten.add.Tensor` and `add` all give "add"."""
    name = operator.removeprefix("torch.ops.").replace("::", ".")
    if name.startswith("aten."):
        name = name[len("aten.") :]
    name = name.split(".")[0]
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    # eager's profile names the kernel behind a composite operator, a graph may hold the composite one
    return name.removeprefix("native_")


def operator_times(call: Callable[[], Any], rounds: int = 3) -> OperatorTimes:
    """Self CPU time by operator, averaged over `rounds` calls after one that warms up."""
    call()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(rounds):
            call()
    microseconds: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in profiler.key_averages():
        if not event.key.startswith("aten::"):
            continue
        name = base_name(event.key)
        microseconds[name] += event.self_cpu_time_total / rounds
        calls[name] += event.count // rounds
    return OperatorTimes(dict(microseconds), dict(calls))


def native_share(eager: OperatorTimes, compiled: OperatorTimes, extern_calls: Mapping[str, Any]) -> dict[str, Any]:
    """How much of eager's time outside products and bookkeeping no longer runs in ATen: a share from 0 to 1.

    An operator still counts as ATen's if it appears in `extern_calls` (the compiler's own account) or in the profile
    of the compiled call (what really ran). It weighs eager's cost of as many calls as are left, or what they cost now,
    whichever is more: 1 copy left of 73 is 1/73 of eager's copies, unless it has become as slow as all of them. An
    operator that eager does not have can only lower the share.
    """
    skip = PRODUCTS | BOOKKEEPING
    remaining: dict[str, float] = {}
    told: Counter[str] = Counter()
    for operator, count in extern_calls.items():
        told[base_name(operator)] += count if isinstance(count, int) else 1
    for name in set(told) | set(compiled.others):
        if name in skip:
            continue
        before, left = eager.calls.get(name, 0), max(told[name], compiled.calls.get(name, 0))
        kept = min(1.0, left / before) if before else 1.0
        weight = max(eager.microseconds.get(name, 0.0) * kept, compiled.microseconds.get(name, 0.0))
        if weight > 0:
            remaining[name] = weight
    others = sum(eager.others.values())
    share = 1.0 if others == 0 else max(0.0, 1.0 - sum(remaining.values()) / others)
    return {
        "share": share,
        "eager_others_us": others,
        "still_aten_us": dict(sorted(remaining.items(), key=lambda item: -item[1])),
    }
