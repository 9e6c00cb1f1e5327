"""Where eager's time goes by operator, and how much of it a compiled program moved into kernels of its own.

Matrix products, convolutions and attention are left to the vendor's libraries on purpose and stand apart, in eager's
account as in the compiled program's:

- with all that runs inside of them. `addmm` and ATen's plain convolution begin by copying the bias over their output:
  that copy is theirs, and whoever replaces it by the vendor's fused bias has not computed it either.
- with the activations that the compiler handed to them (`mkldnn._linear_pointwise(..., "gelu")`): these are neither
  ATen's any more nor kernels of the compiler's own.

Composites (`linear`, `matmul`, `scaled_dot_product_attention` by its mathematical definition) are no vendor's calls:
what they consist of is judged by itself. Views and allocations, which compute nothing, stand apart too. The rest is
what a compiler should have taken over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.profiler import ProfilerActivity, profile

from lampwork.benchmark.record import Found
from lampwork.ir.program import Extern

PRODUCTS = frozenset(
    "mm bmm addmm baddbmm addbmm addmv addr mv dot vdot matmul linear einsum _addmm_activation mkldnn_linear "
    "convolution _convolution conv1d conv2d conv3d conv_transpose2d mkldnn_convolution thnn_conv2d slow_conv3d "
    "_slow_conv2d_forward _conv_depthwise2d convolution_overrideable scaled_dot_product_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_attention_math _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention".split()
)

# The products that are made of other operators, each of which a compiler sees.
COMPOSITES = frozenset(
    "matmul linear einsum conv1d conv2d conv3d conv_transpose2d scaled_dot_product_attention "
    "_scaled_dot_product_attention_math".split()
)

# What the vendor's fused operators apply after a product: by the vendor's name, the operators of eager that do it.
FUSED = {
    "gelu": ("gelu",),
    "relu": ("relu", "clamp_min"),
    "swish": ("silu",),
    "tanh": ("tanh",),
    "sigmoid": ("sigmoid",),
    "add": ("add",),
}

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
    """Self CPU time of each ATen operator of one call, in microseconds, by base name (`layer_norm`, `add`).

    `inside` and `calls_inside`: the same of what products, convolutions and attention call themselves, and only of it.
    """

    microseconds: Mapping[str, float]
    calls: Mapping[str, int]
    inside: Mapping[str, float] = field(default_factory=dict)
    calls_inside: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.microseconds.values()) + sum(self.inside.values())

    @property
    def products_share(self) -> float:
        """Share of the time in products, convolutions and attention."""
        products = sum(time for name, time in self.microseconds.items() if name in PRODUCTS)
        products += sum(self.inside.values())
        return products / self.total if self.total else 0.0

    @property
    def others(self) -> dict[str, float]:
        """Time of the operators that a compiler should take over."""
        skip = PRODUCTS | BOOKKEEPING
        return {name: time for name, time in self.microseconds.items() if name not in skip}

    def as_dict(self) -> Found:
        return {
            "microseconds": dict(self.microseconds),
            "calls": dict(self.calls),
            "inside": dict(self.inside),
            "calls_inside": dict(self.calls_inside),
        }


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


def operator_times(call: Callable[[], object], rounds: int = 5) -> OperatorTimes:
    """Self CPU time by operator: the least of `rounds` calls, for what else the machine does can only add to it."""
    call()
    return least([_profiled(call) for _ in range(rounds)])


def least(rounds: Sequence[OperatorTimes]) -> OperatorTimes:
    """The least time and number of calls of each operator over all rounds."""

    def smallest(name: str) -> Found:
        tables = [getattr(each, name) for each in rounds]
        return {key: min(table[key] for table in tables if key in table) for table in tables for key in table}

    return OperatorTimes(smallest("microseconds"), smallest("calls"), smallest("inside"), smallest("calls_inside"))


def _profiled(call: Callable[[], object]) -> OperatorTimes:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    microseconds: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    calls_inside: Counter[str] = Counter()
    for event in profiler.events():
        if not event.name.startswith("aten::"):
            continue
        name = base_name(event.name)
        times, counts = (inside, calls_inside) if _is_inside(event) else (microseconds, calls)
        times[name] += event.self_cpu_time_total
        counts[name] += 1
    return OperatorTimes(dict(microseconds), dict(calls), dict(inside), dict(calls_inside))


def _is_inside(event: Any) -> bool:
    """Whether a product, a convolution or attention called the operator of `event`."""
    caller = event.cpu_parent
    while caller is not None:
        if caller.name.startswith("mkldnn::") or base_name(caller.name) in PRODUCTS - COMPOSITES:
            return True
        caller = caller.cpu_parent
    return False


def fused_operators(steps: Iterable[object]) -> Counter[str]:
    """How many operators the vendor's calls among a program's steps do besides their products, by the vendor's name."""
    fused: Counter[str] = Counter()
    for step in steps:
        if isinstance(step, Extern) and step.op.startswith("mkldnn::"):
            fused.update(value for value in step.args if isinstance(value, str) and value in FUSED)
    return fused


def native_share(
    eager: OperatorTimes,
    compiled: OperatorTimes,
    extern_calls: Mapping[str, Any],
    fused: Mapping[str, int] | None = None,
) -> Found:
    """How much of eager's time outside products and bookkeeping the compiler's kernels took over: a share from 0 to 1.

    An operator still counts as ATen's if it appears in `extern_calls` (the compiler's own account) or in the profile
    of the compiled call (what really ran). It weighs eager's cost of as many calls as are left, or what they cost now,
    whichever is more: 1 copy left of 73 is 1/73 of eager's copies, unless it has become as slow as all of them. An
    operator that eager does not have can only lower the share.

    What products call themselves counts only as far as they do so more often than eager's: copies that the compiler
    causes by the layouts it hands them are its own. `fused` (see `fused_operators`) leaves eager's account; the result
    tells as `fused_share` how much of eager's time that was. Where nothing else is left to take over, the share is 1.
    """
    skip = PRODUCTS | BOOKKEEPING
    given_away: dict[str, float] = {}
    for what, count in (fused or {}).items():
        for name in FUSED[what]:
            if eager.calls.get(name):
                given_away[name] = eager.microseconds[name] * min(1.0, count / eager.calls[name])
    remaining: dict[str, float] = {}
    told: Counter[str] = Counter()
    for operator, count in extern_calls.items():
        told[base_name(operator)] += count if isinstance(count, int) else 1
    for name in {*told, *compiled.others, *compiled.inside}:
        if name in skip:
            continue
        before, left = eager.calls.get(name, 0), max(told[name], compiled.calls.get(name, 0))
        now = compiled.microseconds.get(name, 0.0)
        inside = compiled.calls_inside.get(name, 0)
        if inside > (usual := eager.calls_inside.get(name, 0)):
            left += inside - usual
            now += compiled.inside[name] * (inside - usual) / inside
        if name not in compiled.others and not left:
            continue
        kept = min(1.0, left / before) if before else 1.0
        weight = max(eager.microseconds.get(name, 0.0) * kept, now)
        if weight > 0:
            remaining[name] = weight
    everything, given = sum(eager.others.values()), sum(given_away.values())
    others = everything - given
    share = max(0.0, 1.0 - sum(remaining.values()) / others) if others > 0 else 1.0 if not remaining else 0.0
    return {
        "share": share,
        "eager_others_us": others,
        "still_aten_us": dict(sorted(remaining.items(), key=lambda item: -item[1])),
        "fused_share": given / everything if everything else 0.0,
        "fused_into_products_us": given_away,
    }
