"""Operations on tensors that mean something else than a call of PyTorch's operator, which the recorder records."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from lampwork.capture.machine import UNBOUND, World
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import TENSOR_KINDS, Fake
from lampwork.capture.record.products import product
from lampwork.capture.values.arrays import as_tensors
from lampwork.capture.values.assumptions import assumed_branch
from lampwork.capture.values.family import HANDS_ON, Family
from lampwork.capture.values.scalar import Scalar, is_backed, is_unbacked
from lampwork.capture.values.sized_indices import has_found_index, part_at
from lampwork.capture.values.special_methods import index_of, is_object
from lampwork.capture.values.unbacked_numbers import as_element, as_size, item
from lampwork.capture.values.unknown_text import text_of_tensor
from lampwork.fakes.symbolic import by_contents
from lampwork.ir.reference import is_replacement

if TYPE_CHECKING:
    from lampwork.capture.machine import Frame

_PLACES = (torch.int64, torch.bool)
#: Indices that may be, or hold, integers that are not known yet.
_SIZED = frozenset({slice, tuple, Scalar})
#: Conversions of tensors of one element.
_OF_ONE = frozenset({bool, int, float})


class TensorFamily(Family):
    """Tensors, those among them that function transforms wrap."""

    def has(self, cls: type) -> bool:
        return cls in TENSOR_KINDS

    def kind(self, value: Any) -> type:
        return getattr(value, "real_class", torch.Tensor)

    def example(self, value: Any) -> Any:
        with self.world.recorder._paused():
            return torch.empty(0).as_subclass(self.kind(value))

    # -- operators

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        if op is operator.matmul and self.world.has_symbols:
            answer = product(left, right)
            if answer is not NotImplemented:
                return answer
        return HANDS_ON

    def truth(self, value: Any) -> bool:
        known = self.decided(value)
        if known is None and type(value) is Fake and self.world.has_symbols:
            return self._truth_of_one(value)
        return World.truth(self.world, value) if known is None else known

    def _truth_of_one(self, value: Fake) -> bool:
        """The truth of a tensor of one element, eager's own error for others: where sizes vary, PyTorch, which is asked
        for it otherwise, does not count elements."""
        count = value.numel()
        if count == 1:
            return bool(torch.ops.aten._local_scalar_dense.default(value))
        with self.world.recorder._paused():
            return bool(torch.empty(2 if count else 0))

    def branch(self, frame: Frame, value: Any, if_true: int, if_false: int) -> bool:
        assumed = assumed_branch(self.world, frame, value, if_true, if_false) if type(value) is Fake else None
        return self.world.truth(value) if assumed is None else assumed

    def decided(self, value: Any) -> bool | None:
        """What a tensor of one boolean holds, where it compares a counter that the host knows; guarded."""
        world = self.world
        return world.backed_numbers.decided(value, world.loader.origin) if type(value) is Fake else None

    # -- conversions

    def text(self, value: Any, function: Any) -> Any:
        if type(value) is not Fake or self._replaced(value, "__repr__") or self._replaced(value, "__str__"):
            return HANDS_ON
        return text_of_tensor(self.world, value)

    def format(self, value: Any, spec: Any) -> Any:
        return HANDS_ON if self._replaced(value, "__format__") else self.formatted(value, spec)

    def _replaced(self, value: Any, name: str) -> bool:
        """Whether a method of all tensors is one that a program put there."""
        return is_replacement(self.world.class_lookup(type(value), name)[1])

    def formatted(self, value: Any, spec: Any = "") -> Any:
        """What PyTorch's own `__format__` gives."""
        if value.dim() or self.kind(value) is not torch.Tensor:
            if spec:
                raise TypeError(f"unsupported format string passed to {self.kind(value).__name__}.__format__")
            return text_of_tensor(self.world, value)
        found = item(self.world.recorder, value)
        return self.world.machine.call(format, (found, spec))

    def convert(self, value: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Of a tensor of one element. `bool(x)` is a number, unless a branch is what asks."""
        if function not in _OF_ONE or args or kwargs or type(value) is not Fake or value.numel() != 1:
            return HANDS_ON
        known = self.decided(value) if function is bool else None
        return self.world.machine.call(function, (item(self.world.recorder, value) if known is None else known,))

    # -- as a container

    def length(self, value: Any) -> int:
        if type(value) is Fake and value.dim() and self.world.has_symbols:
            return value.size(0)
        return World.length(self.world, value)

    def iterate(self, value: Any) -> Any:
        self.world.class_lookup(Fake, "__iter__")
        return iter(value)

    def iterable(self, value: Any) -> Any:
        self.world.class_lookup(Fake, "__iter__")
        return list(value)

    def unpacked(self, value: Any) -> Any:
        return self.iterable(value)

    def get_item(self, container: Any, key: Any) -> Any:
        self.world.class_lookup(Fake, "__getitem__")
        key = self._key(container, key)
        if has_found_index(key):
            return part_at(self.world.recorder, container, key)
        if type(container) is Fake and _varies(key):
            container, key = selected(container, key)
            if type(key) is tuple and not key:
                return container
        return container[key]

    def set_item(self, container: Any, key: Any, value: Any) -> None:
        self.world.class_lookup(Fake, "__setitem__")
        if type(container) is Fake and is_backed(value):
            if container.is_floating_point() and container.device.type == "cpu":
                value = self.world.backed_numbers.made_tensor(value, container.dtype)
            else:
                value = value.take()
        elif type(container) is Fake and is_unbacked(value):
            value = as_element(self.world.recorder, value, container)
        key = self._key(container, key)
        if has_found_index(key):
            container, key = part_at(self.world.recorder, container, key), ...
        elif type(container) is Fake and _varies(key):
            container, key = selected(container, key)
        places = places_written(container, key, value)
        if places is not None:
            container.index_put_(places, value)  # torch would ask whether there is just one
        elif is_condition(container, key, value):
            container.masked_fill_(key, value)  # torch would look at the condition
        else:
            container[key] = value

    def _key(self, container: Any, key: Any) -> Any:
        """An index of a tensor: everything in it loaded, nothing but plain data and tensors."""
        if type(container) is Fake:
            key = as_tensors(self.world, key)
        if is_object(key) and self.world.python_special(key, "__getitem__") is not UNBOUND:
            raise Break("native-argument", "a tensor is indexed with an object that is a sequence")  # as eager takes it
        key = index_of(self.world, key)
        if type(key) is slice:
            key = self._with_settings(key)
        elif type(key) is tuple and slice in map(type, key):
            key = tuple([self._with_settings(each) if type(each) is slice else each for each in key])
        if type(key) in _SIZED and not self.world.data.is_data(key):
            parts = key if type(key) is tuple else (key,)
            sized = [
                as_size(self.world.recorder, each, signed=True)
                if is_unbacked(each)
                else self.world.tensor_calls.with_sizes(each)
                if type(each) is slice
                else each
                for each in parts
            ]
            key = tuple(sized) if type(key) is tuple else sized[0]
        if not self.world.data.is_data(key):
            raise Break("tensor-argument", f"a tensor is indexed with a {type(key).__name__}")
        return key

    def _with_settings(self, part: slice) -> slice:
        """With numbers for tensors among its ends that are computed from settings: native code would fix them."""
        ends = part.start, part.stop, part.step
        return slice(*[self._setting(each) if type(each) is Fake else each for each in ends])

    def _setting(self, end: Fake) -> Any:
        known = None if end.dim() or end.is_floating_point() else self.world.recorder.settings(end)
        if known is None:
            return end
        with self.world.recorder._paused():
            return known.item() if isinstance(known, torch.Tensor) else known

    # -- attributes

    def load_attr(self, value: Any, name: str) -> Any:
        return self.world.tensor_attributes.load(value, name)

    def instance_store(self, obj: Any, name: str, value: Any) -> None:
        self.world.tensor_attributes.store(obj, name, value)

    def instance_delete(self, obj: Any, name: str) -> None:
        if name == "grad":
            self.world.tensor_attributes.store(obj, name, None)  # what torch makes of it, whatever was there
        else:
            super().instance_delete(obj, name)


def _varies(key: Any) -> bool:
    """Whether an index has an integer that is another in the next call."""
    return any(type(each) is torch.SymInt and not by_contents(each) for each in (key if type(key) is tuple else (key,)))


def selected(tensor: Any, key: Any) -> tuple[Any, Any]:
    """The elements where the integers in the key that vary point to, and the rest of the key, () where that says
    nothing; `tensor` and `key` themselves where PyTorch raises an error.

        x[:, -n, mask]      ->      x.select(1, x.size(1) - n), (:, mask)
    """
    parts = list(key) if type(key) is tuple else [key]
    taken = [_dimensions(each) for each in parts]
    for position in [position for position, each in enumerate(parts) if each is ...][:1]:
        taken[position] = tensor.dim() - sum(taken)
    if min(taken) < 0 or sum(taken) > tensor.dim():
        return tensor, key  # an error, which PyTorch words
    for position in reversed(range(len(parts))):
        index, dim = parts[position], sum(taken[:position])
        if type(index) is not torch.SymInt or by_contents(index):
            continue
        size = tensor.size(dim)
        if not -size <= index < size:
            return tensor, key
        tensor = tensor.select(dim, index if index >= 0 else index + size)
        del parts[position]
    says_nothing = all(
        each is ... or (type(each) is slice and each.start is each.stop is each.step is None) for each in parts
    )
    return tensor, () if says_nothing else tuple(parts)


def _dimensions(part: Any) -> int:
    """How many dimensions of the tensor a part of an index is about."""
    if type(part) is Fake:
        return part.dim() if part.dtype in (torch.bool, torch.uint8) else 1
    return 0 if part is None or part is ... or type(part) is bool else 1


def places_written(tensor: Any, key: Any, value: Any) -> tuple[Any, ...] | None:
    """The indices with which `tensor[key] = value` is `index_put_`, for a value whose size contents decide."""
    parts = key if type(key) is tuple else (key,)
    if type(tensor) is not Fake or type(value) is not Fake or not any(map(by_contents, value.size())):
        return None
    if value.dtype != tensor.dtype or value.device != tensor.device:
        return None
    for each in parts:
        whole = type(each) is slice and each.start is each.stop is each.step is None
        if not whole and (type(each) is not Fake or not each.dim() or each.dtype not in _PLACES):
            return None
    masks = [each for each in parts if type(each) is Fake and each.dtype is torch.bool]
    dims = [1 if each.dtype is torch.bool else each.dim() for each in parts if type(each) is Fake]
    indexed = len(dims) + sum(each.dim() - 1 for each in masks)
    if not dims or value.dim() > tensor.dim() - indexed + max(dims):
        return None
    return tuple([None if type(each) is slice else each for each in parts])


def is_condition(tensor: Any, key: Any, value: Any) -> bool:
    """Whether `tensor[key] = value` fills the whole tensor where `key`, a tensor of one boolean, is true; for values
    that `masked_fill_` takes as indexing does."""
    if type(tensor) is not Fake or type(key) is not Fake or key.dim() or key.dtype is not torch.bool:
        return False
    if type(value) is Fake:
        return not value.dim() and value.dtype == tensor.dtype and value.device == tensor.device
    if tensor.dtype in (torch.float32, torch.float64):
        return type(value) in (int, float) and not 3e38 < abs(value) < math.inf
    return tensor.dtype is torch.bool and type(value) is bool
