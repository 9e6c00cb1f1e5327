"""Tensors from outside as graph inputs, and which torch functions run natively on fakes."""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.nn.functional

from lampwork import _torch
from lampwork.capture.outside.dynamic_sizes import MARKED_ONLY, DynamicPolicy, symbolic_layout
from lampwork.capture.outside.guards import GuardList
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.errors import GraphBreak
from lampwork.fakes.shared_memory import is_one_memory
from lampwork.fakes.symbolic import SMALLEST_SIZE
from lampwork.ir.guard import StorageGroups, TensorIs
from lampwork.ir.number import NumberExpr
from lampwork.ir.size import INFINITY
from lampwork.ir.source import Computed, Source


class TensorInputs:
    """Makes the graph inputs of one capture: a fake and a placeholder for every tensor the program reads."""

    def __init__(self, recorder: Any, guards: GuardList, policy: DynamicPolicy = MARKED_ONLY) -> None:
        self.recorder = recorder
        self.guards = guards
        self.policy = policy
        #: Of every graph input, in order; those of tensors among them with the tensors.
        self.inputs: list[Source] = []
        self.sources: list[Source] = []
        self.values: list[torch.Tensor] = []
        self.fakes: list[Any] = []
        self._computed: dict[NumberExpr, Any] = {}

    def load(self, raw: torch.Tensor, source: Source) -> Any:
        """The fake of a tensor met for the first time; its metadata is guarded. Raises `Break` for what fakes cannot
        stand for."""
        if isinstance(raw, Fake):
            raise Break("fake-escaped", "a tensor of another captured region is read")
        with _torch.without_torch_function():  # what a subclass defines is the program's to run
            return self._load(raw, source)

    def _load(self, raw: torch.Tensor, source: Source) -> Any:
        if raw.layout is not torch.strided:
            raise Break("tensor-layout", f"a tensor of layout {raw.layout} is read")
        if isinstance(raw, torch.nn.parameter.UninitializedTensorMixin):
            raise Break("tensor-layout", "a tensor whose shape the first call decides (of a lazy module) is read")
        try:
            layout = symbolic_layout(raw, source, self.policy, self.recorder.sizes)
            fake = self.recorder.input(raw, source, layout)
        except GraphBreak as stop:
            raise Break(stop.diagnostic.id, stop.diagnostic.reason, stop.diagnostic.remedy) from None
        self.guards.add(source, ("tensor",), lambda: tensor_test(raw, layout))
        self.inputs.append(source)
        self.sources.append(source)
        self.values.append(raw)
        self.fakes.append(fake)
        return fake

    def load_integer(self, raw: int, source: Source) -> Any:
        """The symbol for an integer from outside, a graph input from then on; None where it shall be the number."""
        if not self.policy.is_symbol(source, "value"):
            return None
        symbol = self._symbol(raw, source)
        if symbol is not None:
            self.guards.type_is(source, int)
        return symbol

    def part(self, value: int, source: Source) -> Any:
        """The symbol for an integer that is part of what the program has: a size of a tensor that is no input."""
        symbol = self._symbol(value, source)
        if symbol is not None:
            self.guards.type_is(source, int)
        return symbol

    def computed_integer(self, number: NumberExpr, value: int) -> Any:
        """The symbol for an integer that the host computes, `value` in this call; None where it shall be that."""
        known = self._computed.get(number)
        if known is None and self.policy.allowed:
            known = self._computed[number] = self._symbol(value, Computed(number))
        return known

    def _symbol(self, value: int, source: Source) -> Any:
        """The symbol for the integer at `source`. What a kernel's arithmetic may not hold is an entry's own."""
        if not SMALLEST_SIZE <= value < INFINITY:
            return None
        symbol = self.recorder.sizes.symbol(source, "value", 0, value, upper=INFINITY - 1)
        self.recorder.integer(symbol)
        self.inputs.append(source)
        self.fakes.append(symbol)
        return symbol

    def fakes_of_tensors(self) -> list[Any]:
        """Those of `values`: without symbols, and without the tensor that numbers come in."""
        return [each for each in self.fakes if isinstance(each, torch.Tensor) and each.lampwork_source is not None]

    def finish(self, copied: bool) -> None:
        """The guards on all inputs together: none is another, and which of them overlap in memory.

        The latter matters to programs that write to an input, to those that have `copied` storages whole, and where two
        tensors are equal as they are one memory: other readers cannot tell memory that is shared from what is not.
        """
        if len(self.sources) < 1:
            return
        sources = tuple(self.sources)
        if len(sources) > 1:
            self.guards.distinct(sources)
            written = any(_torch.storage_key(fake) in self.recorder.written for fake in self.fakes_of_tensors())
            if not (written or copied or self.recorder.contents.compared_memory):
                return
            # Tensors on "meta" have no memory, and the address of each of them is 0.
            known = zip(sources, self.values, self.fakes_of_tensors(), strict=True)
            held = [each for each in known if each[1].device.type != "meta"]
            placed, values = tuple(source for source, _, _ in held), [value for _, value, _ in held]
            keys = [_torch.storage_key(fake) for _, _, fake in held]
            groups = overlapping(values)
            for group in groups:
                if len({_torch.storage_key(values[index]) for index, _ in group}) > 1:
                    raise Break("aliasing", "two tensors share memory through different storages")
                members = [index for index, _ in group]
                is_written = any(keys[index] in self.recorder.written for index in members)
                if is_written and not is_one_memory([values[index] for index in members]):
                    raise Break("aliasing", "two tensors share memory as element types that do not fit")
            if len(placed) > 1:
                self.guards.add(placed[0], ("storages",), lambda: StorageGroups(placed, groups))


def tensor_test(raw: torch.Tensor, layout: tuple[tuple, tuple] | None = None) -> TensorIs:
    """The guard on a tensor's metadata; sizes and strides that `layout` has symbols for are left open."""
    kind = type(raw)
    shape, strides = layout if layout is not None else (tuple(raw.shape), raw.stride())
    return TensorIs(
        tensor_type=f"{kind.__module__}.{kind.__qualname__}",
        dtype=str(raw.dtype)[6:],
        shape=tuple(each if type(each) is int else None for each in shape),
        strides=tuple(each if type(each) is int else None for each in strides),
        device=str(raw.device),
        requires_grad=raw.requires_grad,
        is_leaf=raw.is_leaf if raw.requires_grad else None,
        is_inference=raw.is_inference(),
        is_conj=raw.is_conj(),
        is_neg=raw.is_neg(),
    )


def overlapping(tensors: list[torch.Tensor]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Groups of tensors that overlap in memory: (index, offset in bytes from the first of the group)."""
    ranges = []
    for index, tensor in enumerate(tensors):
        if tensor.numel() == 0:
            continue
        start = tensor.data_ptr()
        span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1
        ranges.append((start, start + span * tensor.element_size(), str(tensor.device), index))
    ranges.sort(key=lambda item: (item[2], item[0]))
    groups: list[list[tuple[int, int]]] = []
    current: list[tuple[int, int]] = []
    end, device = 0, ""
    for start, stop, where, index in ranges:
        if current and where == device and start < end:
            current.append((index, start))
            end = max(end, stop)
        else:
            if len(current) > 1:
                groups.append(current)
            current, end, device = [(index, start)], stop, where
    if len(current) > 1:
        groups.append(current)
    result = []
    for group in groups:
        group.sort()
        base = group[0][1]
        result.append(tuple((index, start - base) for index, start in group))
    return tuple(sorted(result))


# ---------------------------------------------------------------------------------------------------------------------

#: Modules whose Python functions take tensors and plain data only, and run as one unit on fakes.
TENSOR_MODULES = frozenset({
    "torch.nn.functional", "torch.functional", "torch.nn.init", "torch.special", "torch.fft", "torch.linalg",
    *_torch.PRIVATE_TENSOR_MODULES,
})  # fmt: skip

#: Functions there that call back, keep state or look at memory.
NOT_NATIVE = frozenset({
    "backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "share_memory_", "storage",
    "multi_head_attention_forward_hooks", "triplet_margin_with_distance_loss", "__deepcopy__", "__reduce_ex__",
    "__setstate__", "__array__", "__torch_function__", "storage_type", "is_shared", "module_load", "__dlpack__",
    "_reduce_ex_internal", "__dlpack_device__", "reinforce", "gaussian_nll_loss",
})  # fmt: skip


def is_tensor_function(function: Any) -> bool:
    """Whether `function` is one of torch's that runs natively on fakes when given tensors and plain data."""
    kind = type(function)
    if kind is types.FunctionType:
        return function.__module__ in TENSOR_MODULES and function.__name__ not in NOT_NATIVE
    if kind is types.BuiltinFunctionType:
        owner = function.__self__
        if isinstance(owner, torch.Tensor):
            return function.__name__ not in MEMORY_METHODS
        if owner is None:  # torch.add and its like are static methods of a class that has no instance in their __self__
            if not function.__qualname__.startswith("_VariableFunctionsClass."):
                return False
            return function.__name__ not in MEMORY_METHODS
        module = owner.__name__ if isinstance(owner, types.ModuleType) else function.__module__
        return module in _torch.BUILTIN_MODULES
    if kind is types.MethodDescriptorType or kind is types.WrapperDescriptorType:
        return (
            issubclass(torch.Tensor, function.__objclass__)
            and function.__objclass__ is not object
            and (function.__name__ not in MEMORY_METHODS)
        )
    return isinstance(function, _torch.OPERATOR_TYPES)


#: Methods of a tensor that hand out memory, Python state or history.
MEMORY_METHODS = frozenset({
    "numpy", "data_ptr", "const_data_ptr", "mutable_data_ptr", "untyped_storage", "storage", "_typed_storage",
    "__array__", "tolist_", "set_", "register_hook",
    "_register_hook_dict", "share_memory_", "retain_grad", "backward", "_make_subclass", "_make_wrapper_subclass",
    "as_subclass", "__reduce_ex__", "__setstate__", "map_", "map2_", "apply_",
})  # fmt: skip

#: C-level attributes of a tensor that are plain data, tensors, or views of it.
TENSOR_ATTRIBUTES = frozenset({
    "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "is_cuda", "is_cpu", "is_meta",
    "is_sparse",
    "is_sparse_csr", "is_quantized", "is_mkldnn", "is_mps", "is_xpu", "is_xla", "is_hpu", "is_mtia", "is_nested",
    "is_vulkan", "is_ipu", "is_maia", "itemsize", "nbytes", "T", "mT", "H", "mH", "real", "imag", "names",
    "is_inference",
    "output_nr", "retains_grad",
})  # fmt: skip
