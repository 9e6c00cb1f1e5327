"""Shape rules: what eager would return, as metadata. One rule per operator, in tables; nothing here computes data.

A rule takes an operator's arguments (fakes, numbers, lists) and returns a `Spec`, or a tuple of `Spec | None` for
operators with several results. Rules give eager's dtype, shape and STRIDES on the CPU; `tests/unit/fakes/
test_shapes.py` checks each against PyTorch's own operator samples. A rule that meets a case it does not know raises
`Unknown`, and the operator's meta kernel answers instead (slower, 20-400 us); so do operators without a rule.

Rules find here what they are written with: layouts (`strides.py`) and types (`promotion.py`) included.
"""

# ruff: noqa: F401 (what rules import from here)

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

import torch

from lampwork import _torch
from lampwork.errors import LampworkError
from lampwork.fakes.fake import DataDependent, Fake, Unknown, Unsupported
from lampwork.fakes.kernels import checked
from lampwork.fakes.promotion import (
    COMPLEX_OF,
    as_float,
    promoted,
    real_dtype,
    scalar_dtype,
)
from lampwork.fakes.strides import (
    Shape,
    at_least_one,
    broadcast,
    channels_last,
    check_expands,
    contiguous,
    differ,
    exceeds_one,
    expect_sizes,
    fresh_in_format,
    has_zero,
    in_format_of,
    in_memory_format,
    is_channels_last,
    is_contiguous,
    is_dense,
    iterated,
    iterated_of,
    less,
    permuted,
    preserved,
    preserved_of,
    same_sizes,
    sorted_strides,
    strides_suggest_channels_last,
    suggests_channels_last,
    surely_same,
)
from lampwork.fakes.symbolic import are_sizes


class Spec(NamedTuple):
    """A result's metadata; the device is that of the arguments unless given."""

    shape: Shape
    strides: Shape
    dtype: torch.dtype
    device: torch.device | None = None


R = TypeVar("R", bound=Callable)
#: What `name()` of an overload gives -> its rule. Finding hundreds of overloads takes longer than importing this house.
RULES: dict[str, Callable] = {}


def rule(*names: str) -> Callable[[R], R]:
    """Registers a shape rule for overloads such as "add.Tensor" ("gelu" means "gelu.default"; names are ATen's, but for
    those like "library::scaled")."""

    def register(function: R) -> R:
        for name in names:
            RULES[operator_name(name)] = function
        return function

    return register


def rule_of(name: str) -> Callable | None:
    """The rule of the overload of this name. Those of backward passes are loaded where the first one is asked for: a
    cold start of inference does without."""
    if name not in RULES and "backward" in name:
        from lampwork.fakes.rules import backward as _  # registers its rules
    return RULES.get(name)


def operator_name(name: str) -> str:
    """What `name()` of the overload that `rule` means by this gives: "aten::add.Tensor", "library::scaled"."""
    return (name if "::" in name else f"aten::{name}").removesuffix(".default")


def wrap_dim(dim: int, dims: int) -> int:
    """A non-negative dimension. Raises eager's error outside of [-dims, dims)."""
    limit = dims if dims else 1
    if not -limit <= dim < limit:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})")
    return dim + limit if dim < 0 else dim


def wrap_dims(dims: Any, count: int) -> tuple[int, ...]:
    """Reduction dimensions, all when None or empty."""
    if dims is None:
        return tuple(range(count))
    if isinstance(dims, int):
        dims = (dims,)
    if not dims:
        return tuple(range(count))
    wrapped = tuple(wrap_dim(dim, count) for dim in dims)
    if len(set(wrapped)) != len(wrapped):
        raise Unknown
    return wrapped


# Answering an operator ----------------------------------------------------------------------------


def infer(op: Any, args: tuple, kwargs: dict) -> Any:
    """What `op` returns on fakes, as new fakes over new storages. For operators whose results alias nothing.

    Raises eager's own error for arguments that eager refuses, `Unsupported` for operators without shape rule and
    meta kernel. The kernel itself has the last word on small calls.
    """
    if op.namespace == _torch.GIVEN_NUMBERS:
        return infer(*_torch.some_numbers(op, args, kwargs))
    refuse_several_devices(op, args, kwargs)
    if _STRICT_RULES:
        return _infer(op, args, kwargs)
    return checked(op, args, kwargs, lambda: _infer(op, args, kwargs))


def _infer(op: Any, args: tuple, kwargs: dict) -> Any:
    """What the rule says, else the meta kernel."""
    function = rule_of(op.name())
    if function is not None:
        try:
            return materialize(function(*args, **kwargs), args, kwargs)
        except Unknown:
            pass
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            # The rule met arguments of a kind it was not written for.
            if _STRICT_RULES:
                raise AssertionError(f"shape rule of {op}: {error}") from error
    return infer_by_meta_kernel(op, args, kwargs)


#: Tests set this: a rule that fails by accident must not hide behind the meta kernel.
_STRICT_RULES = False


def materialize(result: Any, args: tuple, kwargs: dict) -> Any:
    """Fakes for a rule's result. Raises `Unknown` where a size is negative: the kernel refuses, in its own words."""
    if type(result) is Spec:
        if not are_sizes(result.shape):
            raise Unknown
        device = result.device
        if device is None:
            device = device_of(args, kwargs)
        return _torch.tensor_without_memory(Fake, result.shape, result.strides, result.dtype, device)
    if result is None or type(result) is int:
        return result
    return type(result)(materialize(each, args, kwargs) for each in result)


_CPU = torch.device("cpu")


def exact_device(device: torch.device) -> torch.device:
    """`device` with its index: "cuda" is the current CUDA device."""
    exact = device if type(device) is torch.device else torch.device(device)
    if exact.type == "cuda" and exact.index is None:
        return torch.device("cuda", _torch.current_cuda_device())
    return exact


def device_of(args: tuple, kwargs: dict) -> torch.device:
    """The common device of the tensor arguments (a 0-d CPU tensor follows the others), else the `device` argument."""
    found = None
    for each in tensors_in(args):
        device = each.device
        if found is None or (found == _CPU and device != _CPU):
            found = device
        if device == _CPU and found == _CPU and each.dim():
            break
    if found is None:
        found = kwargs.get("device")
    return exact_device(found) if found is not None else _CPU


#: Operators of which some operands may lie on a CPU and others on a GPU: indices, lengths, and what is copied.
_OF_TWO_DEVICES = frozenset("""index _unsafe_index index_put _unsafe_index_put _index_put_impl copy _to_copy fill
slice_scatter select_scatter diagonal_scatter as_strided_scatter _pack_padded_sequence _pad_packed_sequence
_ctc_loss""".split())  # fmt: skip


def refuse_several_devices(op: Any, args: tuple, kwargs: dict, written: Iterable[torch.Tensor] = ()) -> None:
    """Raises `Unsupported`, so that eager decides, for operands on a CPU and on a GPU, but for CPU tensors without
    dimensions that are read: kernels say themselves which of those they take."""
    tensors = list(tensors_in((*args, *kwargs.values())))
    if op.namespace != "aten" or not any([each.is_cuda for each in tensors]):  # noqa: C419  quicker
        return
    devices = {each.device for each in tensors if each.is_cuda or each.is_cpu and each.dim()}
    devices |= {each.device for each in written}
    if len(devices) > 1 and op._schema.name.removeprefix("aten::").rstrip("_") not in _OF_TWO_DEVICES:
        names = " and ".join(sorted(map(str, devices)))
        raise Unsupported(f"{op} is given tensors on {names}", "Move them to one device.", "several-devices")


def tensors_in(values: Iterable[object]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


#: Losses that are added up, as their operators take it.
_SUM = 2


def infer_by_meta_kernel(
    op: _torch.Overload, args: tuple, kwargs: dict, kernel: Callable[..., Any] | None = None
) -> Any:
    """`infer` through the operator's meta kernel on tensors of device "meta". `kernel`: what is called in its place."""
    name = op.name()
    if kernel is None and not _torch.has_meta_kernel(name):
        raise Unsupported(f"{op} says nothing about the shape of its result (it has no meta kernel)")
    if any(type(each) is torch.dtype and each in _QUANTIZED for each in (*args, *kwargs.values())):
        raise Unsupported("a quantized tensor is made", id="tensor-layout")  # of which meta kernels know nothing
    _torch.keep_dynamo_unloaded()
    device = device_of((*args, *kwargs.values()), kwargs)
    copies: dict[int, torch.Tensor] = {}
    in_numbers = symbolic = False

    def to_meta(value: object) -> Any:
        nonlocal symbolic
        if isinstance(value, torch.Tensor):
            if id(value) not in copies:
                size, stride = value.size(), value.stride()
                symbolic = symbolic or any(type(each) is torch.SymInt for each in (*size, *stride))
                if in_numbers:
                    size, stride = torch.Size(map(int, size)), tuple(map(int, stride))
                copies[id(value)] = torch.empty_strided(size, stride, dtype=value.dtype, device="meta")
            return copies[id(value)]
        if isinstance(value, torch.SymInt):
            symbolic = True
            return int(value) if in_numbers else value
        if isinstance(value, (list, tuple)):
            return type(value)(to_meta(each) for each in value)
        if isinstance(value, torch.device):
            return torch.device("meta")
        return value

    kwargs = {**kwargs, **_on_no_device(op, kwargs)}

    of_library = op.namespace not in ("aten", "prims")

    def run() -> Any:
        given, options = to_meta(args), {key: to_meta(value) for key, value in kwargs.items()}
        # Kernels of the CPU take no symbols for sizes; where a rule names no device, that is what it means.
        is_placed = of_library and symbolic and not in_numbers and device.type == "cpu"
        with torch.device("meta") if is_placed else nullcontext():
            return called(given, options)

    def called(given: Any, options: dict) -> Any:
        if kernel is not None:
            return kernel(*given, **options)
        try:
            return op(*given, **options)
        except ZeroDivisionError:  # a mean of nothing, by a decomposition: it has the shape of a sum
            names = [argument.name for argument in op._schema.arguments]
            if "reduction" not in names[: len(given)]:
                raise
            place = names.index("reduction")
            return op(*given[:place], _SUM, *given[place + 1 :], **options)

    try:
        try:
            result = run()
        except Exception as error:
            if isinstance(error, (LampworkError, NotImplementedError)) or not symbolic or kernel is not None:
                raise
            # Native code knows nothing of symbols, and PyTorch's own rules may trip over them. With the sizes as fixed
            # numbers the answer is eager's; so is an error.
            in_numbers = True
            copies.clear()
            result = run()
    except NotImplementedError as error:
        raise Unsupported(f"{op}: {error}") from error
    except RuntimeError as error:
        if op.namespace not in ("aten", "prims") and "data-dependent shape" in str(error):
            raise DataDependent(str(op)) from error  # its fake asks for a size that only a run tells
        if op.namespace not in ("aten", "prims") and "fake impl" in str(error):
            remedy = "Tell what its result looks like with register_fake."
            raise Unsupported(f"{op}, a custom operator without a fake", remedy, "custom-operator") from error
        raise
    return _from_meta(result, device, of_library)


_QUANTIZED = frozenset({torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4})


def _on_no_device(op: _torch.Overload, kwargs: dict) -> dict[str, torch.device]:
    """For an operator that makes a tensor where it is told to: not on the CPU, where it would compute and draw."""
    if kwargs.get("device") is None and any(each.name == "device" for each in op._schema.arguments):
        return {"device": torch.device("meta")}
    return {}


def _from_meta(value: object, device: torch.device, of_library: bool = False) -> Any:
    """Fakes for what lies on no device. `of_library`: a rule that makes a tensor on some device means that one."""
    if isinstance(value, torch.Tensor):
        if of_library and value.device.type != "meta":
            device = value.device
        if value.layout is not torch.strided:
            raise Unsupported(f"a tensor of layout {value.layout} is made", id="tensor-layout")
        return _torch.tensor_without_memory(Fake, tuple(value.size()), value.stride(), value.dtype, device)
    if isinstance(value, (list, tuple)):
        return type(value)(_from_meta(each, device, of_library) for each in value)
    return value
