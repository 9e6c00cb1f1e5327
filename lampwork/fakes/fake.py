"""Fake tensors: everything about a tensor but its memory.

A `Fake` is a real tensor object on the real device (so dispatch, autograd and eager's own choices of kernels go as they
would), over a storage that has a size and no memory. Fakes of views share one such storage, so aliasing is the
framework's own: `shares_storage(a, b)`. Views are made by PyTorch's own view kernels, which only compute metadata;
every other operator is answered by `fakes.shapes`. No kernel that reads data ever runs on a fake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import torch

from lampwork import _torch
from lampwork.errors import Diagnostic, GraphBreak
from lampwork.ir.record import record
from lampwork.ir.size import span


class Unknown(Exception):
    """A shape rule does not cover these arguments."""


class Unsupported(GraphBreak):
    """An operator or tensor that capture does not put in a graph; `diagnostic.id` says which kind."""

    def __init__(self, reason: str, remedy: str = "", id: str = "unsupported-operator") -> None:
        super().__init__(Diagnostic(id, reason, remedy=remedy))


class DataDependent(Unsupported):
    """The program asks for a value or a size that depends on tensor contents: `.item()`, `bool(t)`, `nonzero`."""

    def __init__(self, operator: str) -> None:
        super().__init__(
            f"{operator} needs the contents of a tensor while the program is being captured",
            "Keep the value in a tensor (torch.where, masks), or compute it outside the compiled function.",
            "data-dependent",
        )
        self.operator = operator


class Fake(torch.Tensor):
    """A tensor without memory. Made by `make_fake`, or by operators under `Recorder.recording()`.

    node             the torch.fx.Node that computes it
    lampwork_source  where it came from (an `ir.source.Source`), None if made in the region
    real_class       the class `type(x)` answers with: torch.Tensor or nn.Parameter
    constant         the real tensor, for literals such as `torch.tensor([1, 2])`; valid until written to
    lampwork_storage the storage it lies in, where that is not its own: fakes of symbolic sizes cannot be views
    lampwork_history it stands for what a tensor from outside was computed from
    lampwork_edge    the node of its history that its gradient arrives at, for tensors from outside that are no leaves
    lampwork_placeholder  of a fake of an input: its node, whatever the program writes to it later
    """

    __torch_function__ = _torch.no_torch_function
    node: Any = None
    lampwork_source: Any = None
    real_class: type = torch.Tensor
    constant: torch.Tensor | None = None
    lampwork_storage: Any = None
    lampwork_history: bool = False
    lampwork_edge: Any = None
    lampwork_placeholder: torch.fx.Node

    def __repr__(self, *, tensor_contents: object = None) -> str:
        # By the program: our own messages use `describe`.
        if _torch.is_recording() and not _torch.is_choosing_overload():
            raise DataDependent("the text of a tensor")
        return f"Fake({describe(self)})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return self.__repr__()

    def __deepcopy__(self, memo: dict) -> Any:
        raise Unsupported("copy.deepcopy of a tensor inside a compiled region")

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise Unsupported("pickling a tensor inside a compiled region")


def _refuse_dispatch(cls: type, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
    raise Unsupported(f"{func} met a tensor of a captured region outside of its recording", id="fake-escaped")


# Set after the class exists: `__init_subclass__` would wrap it in something that imports Dynamo.
Fake.__torch_dispatch__ = classmethod(_refuse_dispatch)


def describe(tensor: torch.Tensor) -> str:
    """`float32[2, 3][3, 1]cpu`: dtype, shape, strides, device."""
    return f"{str(tensor.dtype)[6:]}{list(tensor.size())}{list(tensor.stride())}{tensor.device}"


@record
class TensorSpec:
    """Metadata enough for `make_fake`. `offset`: storage offset in elements. Sizes and strides may be symbolic."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device = torch.device("cpu")
    requires_grad: bool = False
    offset: int = 0
    is_leaf: bool = True
    real_class: type = torch.Tensor


class FakeStorage:
    """Storage of `size_bytes` without memory, which fakes of overlapping tensors share."""

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        with _torch.kernels_only():
            owner = _torch.tensor_without_memory(Fake, (size_bytes,), (1,), torch.uint8, device)
            self.untyped = owner.untyped_storage()


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """The spec of a real tensor. Raises `Unsupported` for what fakes cannot stand for."""
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        raise Unsupported(f"a tensor of subclass {kind.__module__}.{kind.__qualname__}", id="tensor-subclass")
    if tensor.layout is not torch.strided:
        raise Unsupported(f"a tensor of layout {tensor.layout}", id="tensor-layout")
    if tensor.is_quantized:
        raise Unsupported("a quantized tensor", id="tensor-layout")
    if tensor.is_conj() or tensor.is_neg():
        raise Unsupported("a lazily conjugated tensor as an input", "Call resolve_conj() first.", "tensor-layout")
    if tensor.device.type == "cuda" and not torch.backends.cuda.is_built():
        raise Unsupported("a CUDA tensor on a build without CUDA", id="tensor-device")
    return TensorSpec(
        tuple(tensor.size()), tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad,
        tensor.storage_offset(), tensor.is_leaf, kind,
    )  # fmt: skip


def make_fake(
    tensor: torch.Tensor | TensorSpec,
    *,
    storage: FakeStorage | None = None,
    requires_grad: bool | None = None,
    source: object = None,
) -> Fake:
    """A fake with the metadata of `tensor`, over `storage` at the same offset (a storage of its own when None).

    Call it outside `Recorder.recording()`. `requires_grad` overrides the tensor's. A tensor that is no leaf becomes a
    fake that is no leaf. Raises `Unsupported` for sparse, quantized, conjugated tensors and foreign subclasses.
    """
    spec = tensor if isinstance(tensor, TensorSpec) else spec_of(tensor)
    wants_grad = spec.requires_grad if requires_grad is None else requires_grad
    symbolic = any(type(each) is torch.SymInt for each in (*spec.shape, *spec.strides))
    if symbolic:
        fake = _torch.tensor_without_memory(
            Fake, spec.shape, spec.strides, spec.dtype, spec.device, wants_grad, spec.offset
        )
        if storage is not None:
            fake.lampwork_storage = storage.untyped
    elif storage is None and not spec.offset:
        fake = _torch.tensor_without_memory(Fake, spec.shape, spec.strides, spec.dtype, spec.device, wants_grad)
    else:
        if storage is None:
            storage = FakeStorage(_end_bytes(spec), spec.device)
        with torch.no_grad(), _torch.kernels_only():
            plain = torch.empty(0, dtype=spec.dtype, device=spec.device)
            plain.set_(storage.untyped, spec.offset, spec.shape, spec.strides)
        fake = _torch.as_subclass(Fake, plain, wants_grad)
    fake.real_class = spec.real_class
    fake.lampwork_source = source
    if wants_grad and not spec.is_leaf:
        fake = _non_leaf(fake)
    if issubclass(spec.real_class, torch.nn.Parameter):
        _torch.pass_for_parameter(fake)
    if _torch.is_buffer(tensor):
        _torch.pass_for_buffer(fake)
    return fake


def _end_bytes(spec: TensorSpec) -> int:
    if 0 in spec.shape:
        return 0
    return (spec.offset + span(spec.shape, spec.strides)) * spec.dtype.itemsize


class _Identity(torch.autograd.Function):
    """Gives a fake a history, as the result of some earlier computation has."""

    @staticmethod
    def forward(ctx: object, fake: Fake) -> Fake:
        with _torch.kernels_only():
            plain = fake.detach()
        result = _torch.as_subclass(Fake, plain)
        result.real_class, result.lampwork_source = fake.real_class, fake.lampwork_source
        result.lampwork_storage = fake.lampwork_storage
        return result

    @staticmethod
    def backward(ctx: object, gradient: object) -> Any:
        return gradient


def _non_leaf(fake: Fake) -> Fake:
    """`lampwork_edge` is the node that its gradient arrives at, whatever the program writes to it later."""
    fake.lampwork_history = True
    with torch.enable_grad():
        made = _Identity.apply(fake)
    made.lampwork_edge = made.grad_fn
    return made


def make_fakes(tensors: Sequence[torch.Tensor], sources: Iterable[object] | None = None) -> list[Fake]:
    """Fakes of several tensors; tensors that share a storage get fakes that share one."""
    storages: dict[int, FakeStorage] = {}
    counts: dict[int, int] = {}
    for tensor in tensors:
        key = _torch.storage_key(tensor)
        counts[key] = counts.get(key, 0) + 1
    fakes = []
    for tensor, source in zip(tensors, sources or [None] * len(tensors)):
        key = _torch.storage_key(tensor)
        storage = None
        if counts[key] > 1:
            if key not in storages:
                storages[key] = FakeStorage(_torch.storage_bytes(tensor), tensor.device)
            storage = storages[key]
        fakes.append(make_fake(tensor, storage=storage, source=source))
    return fakes


def shares_storage(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two fakes lie in one storage (they may still not overlap)."""
    return _torch.storage_key(left) == _torch.storage_key(right)


def fake_like_view(tensor: torch.Tensor, base: torch.Tensor) -> Fake:
    """The plain tensor that a view kernel returned of `base`, as a `Fake` in the storage that `base` lies in.

    A part at known sizes of a tensor whose sizes vary is a plain tensor itself, but names the storage of the whole.
    """
    fake = _torch.as_subclass(Fake, tensor)
    if isinstance(base, Fake):
        fake.lampwork_storage = base.lampwork_storage
    return fake
