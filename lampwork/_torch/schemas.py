"""Operators: what their schemas say, and which other operator does the same into fresh or into given memory."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from lampwork._torch.draws import drawn_by
from lampwork._torch.given_numbers import numbers_given, with_numbers
from lampwork._torch.library import DRAWING, GIVEN_NUMBERS, overload
from lampwork._torch.modes import kernels_only
from lampwork._torch.out_memory import keeps_given_memory


def is_operator(target: object) -> bool:
    return isinstance(target, OpOverload)


def operator_name(op: OpOverload) -> str:
    """`aten::add.Tensor`, `aten::relu.default` (`OpOverload._schema`, `_overloadname`)."""
    return f"{op._schema.name}.{op._overloadname}"


def has_composite_implementation(op: OpOverload) -> bool:
    """Whether `op` is written in terms of others at the dispatcher (CompositeImplicitAutograd)."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def has_kernel(op: OpOverload, key: str) -> bool:
    """Whether `op` has a kernel of its own for the dispatch key, as "CUDA", though it may be decomposed elsewhere."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)


def has_meta_kernel(name: str) -> bool:
    """Whether the operator `aten::add.Tensor` says on "meta" tensors what its result looks like."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(name, "Meta") or has_kernel(name, "CompositeExplicitAutograd")


def decompose(op: OpOverload, args: tuple, kwargs: dict) -> Any:
    """Run the composite implementation of `op`: the C++ one, as eager does, though Python may have one for tracing."""
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def call_in_aten(op: OpOverload, args: tuple, kwargs: dict) -> Any:
    """What an operator of `torch.ops.prims` does, by operators of ATen."""
    return op.impl_aten(*args, **kwargs)


#: Operators that return views of their argument, which their schemas do not declare; and those that copy instead.
_UNDECLARED_VIEWS = {
    torch.ops.aten._unsafe_view.default: torch.ops.aten.view_copy.default,
    torch.ops.aten.lift.default: torch.ops.aten.clone.default,
    torch.ops.aten.unsafe_split.Tensor: torch.ops.aten.split_copy.Tensor,
    torch.ops.aten.unsafe_split_with_sizes.default: torch.ops.aten.split_with_sizes_copy.default,
}


def may_alias_arguments(op: OpOverload) -> bool:
    """Whether a result of `op` may share memory with an argument (a view, or a written argument)."""
    return op in _UNDECLARED_VIEWS or any(result.alias_info is not None for result in op._schema.returns)


def written_arguments(op: OpOverload) -> tuple[int | str, ...]:
    """Arguments `op` writes in place: position, or name for keyword-only ones."""
    return tuple(
        argument.name if argument.kwarg_only else position
        for position, argument in enumerate(op._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def copying_variant(op: OpOverload) -> OpOverload | None:
    """The operator that copies where view `op` aliases, as `view_as_real_copy` for `view_as_real`; None without one."""
    if op in _UNDECLARED_VIEWS:
        return _UNDECLARED_VIEWS[op]
    namespace, _, name = op._schema.name.partition("::")
    name = name.lstrip("_") if not hasattr(getattr(torch.ops, namespace), f"{name}_copy") else name
    packet = getattr(getattr(torch.ops, namespace), f"{name}_copy", None)
    overload = getattr(packet, op._overloadname, None) if packet is not None else None
    return overload if isinstance(overload, OpOverload) else None


def out_variant(op: OpOverload, device: str = "CPU") -> str | None:
    """Name of the overload of `op` with the same arguments that writes into given tensors, if `device` has a kernel of
    its own for it and it is known to leave them where they are. The others copy from the functional result, so calling
    them gains nothing, or give the tensor other memory: then the result would not lie where it was planned.
    """
    if op.namespace == DRAWING:
        return drawn_by(op)
    if op.namespace == GIVEN_NUMBERS:
        called, places = numbers_given(op)
        found = out_variant(called, device)
        return None if found is None else operator_name(with_numbers(overload(found), places))
    if device == "CUDA" and op._schema.name.startswith("aten::_fft_"):
        return None  # it multiplies by 1 there, as complex numbers: infinities and NaN come out as others
    return out_overload(op, device) if keeps_given_memory(op) else None


def out_overload(op: OpOverload, device: str = "CPU") -> str | None:
    """Name of the overload of `op` with the same arguments that writes into given tensors, if `device` has a kernel of
    its own for it. What it does with their memory is not known."""
    schema = op._schema
    if any(argument.alias_info is not None for argument in schema.arguments):
        return None
    if not all(str(result.type) == "Tensor" for result in schema.returns):
        return None
    wanted = [(argument.name, str(argument.type)) for argument in schema.arguments]
    packet = op.overloadpacket
    for name in packet.overloads():
        candidate = getattr(packet, name)
        arguments = candidate._schema.arguments
        outs = [argument for argument in arguments if argument.is_out]
        if len(outs) != len(schema.returns) or not outs:
            continue
        if [(a.name, str(a.type)) for a in arguments if not a.is_out] != wanted:
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(candidate.name(), device):
            return operator_name(candidate)
    return None


def functional_of_out(op: OpOverload) -> OpOverload | None:
    """`aten::add.out` -> `aten::add.Tensor`: the overload with the same arguments less the out= ones.

    None if there is none.
    """
    wanted = [(argument.name, str(argument.type)) for argument in op._schema.arguments if not argument.is_out]
    packet = getattr(getattr(torch.ops, op.namespace), op._schema.name.split("::")[1])
    for name in packet.overloads():
        candidate = getattr(packet, name)
        arguments = candidate._schema.arguments
        if any(argument.alias_info is not None for argument in arguments):
            continue
        names = [(argument.name, str(argument.type)) for argument in arguments]
        tail = {"dtype", "layout", "device", "pin_memory"}
        if [each for each in names if each[0] not in tail] == [each for each in wanted if each[0] not in tail]:
            return candidate
    return None


def functional_of_inplace(op: OpOverload) -> OpOverload | None:
    """`aten::add_.Tensor` -> `aten::add.Tensor`: same arguments, fresh results. None if there is none."""
    name = op._schema.name.split("::")[1]
    special = {
        "zero_": "zero", "normal_": "normal_functional", "__ilshift__": "bitwise_left_shift",
        "__irshift__": "bitwise_right_shift",
    }  # fmt: skip
    candidates = [special.get(name, name[:-1] if name.endswith("_") else name), f"{name.rstrip('_')}_functional"]
    wanted = [str(argument.type) for argument in op._schema.arguments]
    for candidate in candidates:
        packet = getattr(getattr(torch.ops, op.namespace), candidate, None)
        if packet is None:
            continue
        names = packet.overloads()
        if op._overloadname in names:
            names = [op._overloadname, *names]
        if op._overloadname == "float" and "p" in packet.overloads():
            names = ["p"]  # bernoulli_.float
        for overload_name in names:
            found = getattr(packet, overload_name)
            if found is not op and [str(argument.type) for argument in found._schema.arguments] == wanted:
                if not any(a.alias_info is not None and a.alias_info.is_write for a in found._schema.arguments):
                    return found
    return None


def scalar_type_name(dtype: torch.dtype) -> str:
    """The name of `dtype` in PyTorch's error messages: `Float`, `Long`."""
    names = {
        torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
        torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
        torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
    }  # fmt: skip
    return names.get(dtype, str(dtype)[6:])


@cache
def cross_entropy_checks_targets() -> bool:
    """Whether the kernel of `binary_cross_entropy` on a CPU refuses targets outside of [0, 1]: versions differ."""
    with kernels_only(), torch._C.DisableTorchFunction():
        try:
            torch.ops.aten.binary_cross_entropy.default(torch.full((1,), 0.5), torch.full((1,), 2.0))
        except RuntimeError:
            return True
    return False


@cache
def clamp_takes_missing_limits() -> bool:
    """Whether `clamp` on a CPU with one number as its limit, which is NaN, gives NaN: versions differ. With two limits,
    with tensors and in `clamp_min` and `clamp_max` all do."""
    with kernels_only(), torch._C.DisableTorchFunction():
        return bool(torch.ops.aten.clamp.default(torch.zeros(1), math.nan).isnan())


@cache
def contracts_products(kind: str = "cpu") -> bool:
    """Whether kernels for a device of that type round the sum of a product once, in vectors and in their tails:
    `addcmul`, `lerp`, and `add` with an `alpha`. Builds for processors with fused instructions do, where the compiler
    contracts; others round twice. CUDA's compiler contracts; a process without a GPU is not asked."""
    if kind == "cuda" and not torch.cuda.is_available():
        return True
    with kernels_only(), torch._C.DisableTorchFunction():
        count = torch.arange(1, 38, dtype=torch.float64)  # vectors, and a tail
        # Of 24 bits each, and so near to each other that double precision holds the exact results.
        a, b, c = (
            (count * factor % 1 + 1).float().to(kind)
            for factor in (0.618033988749895, 0.414213562373095, 0.7320508075688)
        )
        alpha, weight = torch.tensor(0.3, device=kind), torch.tensor(0.1, device=kind)

        def once(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return (x.double() * y.double() + z.double()).float()

        return (
            # Kernels for GPUs round another product there, and their table leaves that call out.
            (kind == "cuda" or torch.equal(torch.addcmul(a, b, c, value=0.3), once(b * alpha, c, a)))
            and torch.equal(torch.addcmul(a, b, c), once(b, c, a))
            and torch.equal(torch.lerp(a, b, 0.1), once(weight, b - a, a))
            and torch.equal(torch.lerp(a, b, 0.9), once(torch.tensor(0.9, device=kind) - 1, b - a, b))
            and torch.equal(torch.add(a, b, alpha=0.3), once(b, alpha, a))
        )
