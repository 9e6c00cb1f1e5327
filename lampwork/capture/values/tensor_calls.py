"""`TensorCalls`: calls of native functions on fakes, which the recorder records.

Arguments are brought into the form that PyTorch takes: numbers that are not known become symbols or tensors, integers
out of tensors become sizes. Where that does not make data of them, the call is a graph break.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch
from lampwork.capture.natives.effect_classes import name_of
from lampwork.capture.natives.generators import draw, is_drawn
from lampwork.capture.natives.process_state import WARNING_FILTERS
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.attention import SPELLINGS, AttentionCalls, attention, refuse_wide_mask
from lampwork.capture.record.composites import called as composite_called
from lampwork.capture.record.composites import with_known_sizes
from lampwork.capture.record.dropout import dropout, is_dropout
from lampwork.capture.record.fake import Fake, Unsupported
from lampwork.capture.record.products import called as product_called
from lampwork.capture.record.recurrent import RECURRENT, recurrent
from lampwork.capture.record.reshapes import called as reshape_called
from lampwork.capture.values.number_arguments import call_with_numbers, has_number, takes_numbers
from lampwork.capture.values.overloads import overloaded
from lampwork.capture.values.scalar import Scalar, is_backed, is_unbacked
from lampwork.capture.values.sizes import decided
from lampwork.capture.values.subclasses import has_wrapper
from lampwork.capture.values.unbacked_numbers import as_size, item, items
from lampwork.capture.values.walk import classes_in, holds
from lampwork.fakes.numbers import number_behind
from lampwork.fakes.overflow import has_64_bits, refuse_misfit, refuse_unknown
from lampwork.fakes.symbolic import by_contents

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

aten = torch.ops.aten

_MAKE_TENSORS = frozenset({torch.tensor, torch.as_tensor, torch.scalar_tensor})
#: Numbers that are not known yet.
_NUMBERS = frozenset({Scalar})
#: Elements of lists that are made a tensor in the graph.
_STACKED = frozenset({Scalar, torch.SymInt, float, int})
_SYMBOLS = frozenset({Scalar, torch.SymInt})
_TRUTHS = frozenset({torch.SymBool})
_MAKES = frozenset({*_SYMBOLS, list, tuple, torch.Size})
#: Functions that make a tensor of Python data. They read a symbol as its number, and convert that without a check.
_OF_DATA = frozenset({"tensor", "as_tensor", "asarray", "new_tensor"})
#: Keywords of operators that are numbers.
_TAKE_NUMBERS = frozenset({"value", "alpha"})


#: Written so that vectors are computed, too, where a derivative may be asked for, or of a subclass of tensors, which
#: fakes are. What eager calls of others computes the values alone, refuses less and takes less time.
_VALUES_ALONE: dict[Any, Any] = {
    torch.linalg.eigvals: lambda A: aten._linalg_eigvals(A),
    torch.linalg.eigvalsh: lambda A, UPLO="L": aten._linalg_eigh(A, UPLO, False)[0],
    torch.linalg.svdvals: lambda A, *, driver=None: aten._linalg_svd(A, False, False, driver=driver)[1],
}


#: Made of those, and of no vectors.
_OF_VALUES = frozenset({
    torch.linalg.matrix_rank, torch.linalg.cond, torch.linalg.matrix_norm, torch.linalg.norm, torch.nuclear_norm,
    torch.norm, vars(torch.Tensor)["norm"],
})  # fmt: skip


def _has_derivative(args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether a derivative may be asked for of a function of the first argument; also where nothing says."""
    if not args or not isinstance(args[0], torch.Tensor) or "out" in kwargs:
        return True
    return torch.is_grad_enabled() and args[0].requires_grad


class TensorCalls:
    """Calls tensor functions, and makes numbers of tensors."""

    def __init__(self, world: TorchWorld) -> None:
        self.world, self.data = world, world.data
        self.recorder, self.loader, self.backed_numbers = world.recorder, world.loader, world.backed_numbers
        self.attention = AttentionCalls(world.recorder)

    def called_natively(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What `function` returns, whose own calls of tensor functions are not seen here."""
        if function in _OF_VALUES and not _has_derivative(args, kwargs):
            return self._of_values_alone(function, *args, **kwargs)
        if self.recorder.sizes:
            return with_known_sizes(function, args, kwargs)
        return function(*args, **kwargs)

    def _of_values_alone(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.recorder.takes_values_alone = True
        try:
            return function(*args, **kwargs)
        finally:
            self.recorder.takes_values_alone = False

    def call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A native function of tensors, recorded."""
        if WARNING_FILTERS not in self.world.process.touched:
            return self._call(function, args, kwargs)
        # The program's own filters say what PyTorch's warnings do, and they are not in force while it is captured.
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            made = self._call(function, args, kwargs)
        if warned and not self.world.warned_at:
            self.world.warned_at = self.world.machine.steps
        return made

    def _call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self.recorder.sizes and holds((*args, *kwargs.values()), _TRUTHS):
            args, kwargs = decided(args), decided(kwargs)
        for name in _TAKE_NUMBERS & kwargs.keys():
            if type(kwargs[name]) is Fake and not kwargs[name].dim():  # it gives its number
                kwargs = {**kwargs, name: self._item(kwargs[name])}
        if is_drawn(args, kwargs):
            return draw(self.world, function, args, kwargs)
        if is_dropout(function, args, kwargs):
            return dropout(self.world, function, *args)
        if function in _torch.list_lerps and len(args) == 3 and type(args[2]) is Fake and not args[2].dim():
            args = (*args[:2], self._item(args[2]))
        if function in _MAKE_TENSORS and args and type(args[0]) in _MAKES:
            if is_backed(args[0]):
                if function is torch.scalar_tensor:  # unlike `torch.tensor`, it refuses what float32 does not hold
                    self.world.process.read("default_dtype")
                    if (kwargs.get("dtype") or torch.get_default_dtype()) is torch.float32:
                        refuse_unknown(self.world.families.scalar.symbolic(args[0]), torch.float32)
                made = self._tensor_of_number(*args, **kwargs)
            elif function is torch.scalar_tensor:
                made = None
            else:
                made = self._tensor_of_numbers(*args, **kwargs)
            if made is not None:
                return made
        if classes_in((*args, *kwargs.values()), _NUMBERS):
            args = tuple(map(self.world.families.scalar.symbolic, args))
            kwargs = {name: self.world.families.scalar.symbolic(each) for name, each in kwargs.items()}
        if has_number(args, kwargs):
            if takes_numbers(function):
                return call_with_numbers(function, args, kwargs)
            args, kwargs = self.with_sizes(args), self.with_sizes(kwargs)
            if has_number(args, kwargs):
                return call_with_numbers(function, args, kwargs)  # which says why not
        if not self.data.are_data(args, kwargs):
            answer = overloaded(self.world, function, args, kwargs)
            if answer is not NotImplemented:
                return answer
            shown = self.data.describe_arguments(args, kwargs)
            args, kwargs = self.with_sizes(args), self.with_sizes(kwargs)
        if not self.data.are_data(args, kwargs):
            raise Break("tensor-argument", f"{name_of(function)} is called with {shown}")
        if self.recorder.wrapped is not None and has_wrapper(args, kwargs, getattr(function, "__self__", None)):
            return self.world.subclasses.call(function, args, kwargs)
        name = getattr(function, "__name__", "")
        if name == "tolist" or (name == "item" and args == () == tuple(kwargs)):
            owner = getattr(function, "__self__", None)
            if name == "tolist":
                return items(self.recorder, owner)
            if isinstance(owner, torch.Tensor) and owner.numel() == 1:
                return self._item(owner)
        if name == "storage_offset":
            self.recorder.note_offset(function.__self__ if not args else args[0])
        if function in _VALUES_ALONE and not _has_derivative(args, kwargs):
            function = _VALUES_ALONE[function]
        if function in _OF_VALUES and not _has_derivative(args, kwargs):
            function = partial(self._of_values_alone, function)
        if function in SPELLINGS:
            refuse_wide_mask(args, kwargs)
        if function is attention and not self.recorder.exact:
            args, kwargs = self.attention.simplified(args, kwargs)
        if self.recorder.sizes:
            answer = product_called(function, args, kwargs)
            if answer is NotImplemented:
                answer = reshape_called(function, args, kwargs)
            if answer is NotImplemented:
                answer = composite_called(self.recorder, function, args, kwargs)
            if answer is NotImplemented and function in RECURRENT:
                answer = recurrent(self.world, function.__name__, args, kwargs)
            if answer is not NotImplemented:
                return answer
        if name in _OF_DATA:
            args, kwargs = _fixed(args), _fixed(kwargs)
        self.recorder.called_with = args, tuple(kwargs.values())
        writes = self.recorder.writes
        result = with_known_sizes(function, args, kwargs) if self.recorder.sizes else function(*args, **kwargs)
        if kwargs.get("out") is not None and self.recorder.writes == writes:
            # Where Python intercepts operators, `linalg.matrix_rank` computes a tensor that it drops.
            remedy = "Copy its result into the tensor instead."
            raise Unsupported(f"{name_of(function)}, which does not write to out= while it is captured,", remedy)
        return result

    def _tensor_of_number(self, number: Scalar, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        """`torch.tensor(number)`: computed in the graph; None where it must be the number that it is now."""
        self.world.process.read("default_dtype")
        dtype = dtype or torch.get_default_dtype()
        if options or not dtype.is_floating_point:
            return None
        made = self.backed_numbers.made_tensor(number, dtype)
        return made if device is None else made.to(device)

    def _tensor_of_numbers(self, numbers: Any, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        """`torch.tensor([number, 1.5])`, of which some are not known, or of a counter: computed in the graph; None for
        anything else."""
        if id(numbers) in self.loader.unsettled:
            return None
        leaves = numbers if type(numbers) in (list, tuple, torch.Size) else [numbers]
        kinds = {*map(type, leaves)}
        if not kinds & _SYMBOLS or not kinds <= _STACKED or options:
            return None
        if any(by_contents(each) or is_unbacked(each) or not has_64_bits(each) for each in leaves):
            return None
        wide = torch.float64 if kinds & {Scalar, float} else torch.int64
        if dtype is None and wide is torch.float64:
            self.world.process.read("default_dtype")
            dtype = torch.get_default_dtype()
        if dtype is not None and not dtype.is_floating_point:
            if wide is torch.float64:
                return None  # it may not fit, which is an error
            for each in leaves:
                refuse_misfit(each, dtype)
        with torch.no_grad():
            parts = [
                self.backed_numbers.tensor(each) if is_backed(each) else torch.full((), each, dtype=wide)
                for each in leaves
            ]
            made = (parts[0] if leaves is not numbers else torch.stack(parts)).to(dtype or wide)
        return made if device is None else made.to(device)

    def _item(self, tensor: Any) -> Any:
        """`tensor.item()`: a number that the host knows, or one that the graph does."""
        known = None
        if type(tensor) is Fake:
            known = self.backed_numbers.item(tensor, self.loader.origin(tensor))
        return item(self.recorder, tensor) if known is None else known

    def note_write(self, op: str, tensor: Any, args: tuple, kwargs: dict) -> None:
        """The recorder writes to a tensor."""
        args = tuple([number_behind(each) for each in args]) if not kwargs else ()
        self.backed_numbers.note_write(op, tensor, args, self.loader.origin(tensor))

    def with_sizes(self, value: Any) -> Any:
        """Arguments of an operator, with integers that were taken out of tensors as sizes which contents decide."""
        kind = type(value)
        if is_unbacked(value):
            return as_size(self.recorder, value)
        if kind is tuple or (kind is list and id(value) not in self.loader.unsettled):
            return kind([self.with_sizes(each) for each in value])
        if kind is dict and id(value) not in self.loader.unsettled:
            return {name: self.with_sizes(each) for name, each in value.items()}
        if kind is slice:
            return slice(*[self.with_sizes(each) for each in (value.start, value.stop, value.step)])
        return value


def _fixed(value: Any) -> Any:
    """Arguments with the numbers that symbols are in this call, which is guarded."""
    kind = type(value)
    if kind is torch.SymInt:
        return int(value)
    if kind is tuple or kind is list:
        return kind([_fixed(each) for each in value])
    return {name: _fixed(each) for name, each in value.items()} if kind is dict else value
