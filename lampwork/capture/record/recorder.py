"""The recorder: calling torch functions on fakes grows one `torch.fx.Graph` of ATen operators.

    x = torch.ones(2, 3)
    recorder = Recorder()
    fake = recorder.input(x)
    with recorder.recording():
        result = torch.relu(fake + 1)
    print(recorder.finish([result]))

    graph():
        %input_1 = placeholder[target=input_1]
        %add = call_function[target=torch.ops.aten.add.Tensor](args = (%input_1, 1))
        %relu = call_function[target=torch.ops.aten.relu.default](args = (%add,))
        return (relu,)

Guarantees. Operators land in program order, in-place operators and views as they are called; operators written in terms
of others are decomposed on every road, so that `no_grad`, `inference_mode` and grad mode give the same graph. Every
value in the graph is a placeholder, computed in it, or a literal (`_torch.tensor_constant`). Nodes carry `meta["val"]`
(the fake, or a list of them), `meta["location"]` and `meta["grad_enabled"]`.

A fake has one node for life: an in-place operator writes to the memory that the node names, later readers name the same
node. In-place changes of metadata (`x.t_()`) are recorded as the view they make, and the fake moves on to that node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.fx

from lampwork import _torch
from lampwork.capture.autograd.accumulation import accumulate, is_accumulation
from lampwork.capture.record.memo import Alike
from lampwork.capture.record.recording import Recording
from lampwork.capture.record.writes import call_inplace, call_metadata, change_storage
from lampwork.fakes import rules  # noqa: F401  (fills the table of shape rules)
from lampwork.fakes.fake import DataDependent, Fake, Unsupported, fake_like_view
from lampwork.fakes.numbers import mentions_numbers, with_known_floats
from lampwork.fakes.operators import Operator, operator
from lampwork.fakes.overflow import refuse_overflow, refuse_wide
from lampwork.fakes.rules.memory import MASKS
from lampwork.fakes.shapes import (
    exact_device,
    has_zero,
    in_format_of,
    infer,
    suggests_channels_last,
    surely_same,
    tensors_in,
)
from lampwork.fakes.shared_memory import memory_owner
from lampwork.fakes.symbolic import by_contents
from lampwork.fakes.views import has_symbols, view
from lampwork.ir.loops import Location
from lampwork.ir.region import Region, Return
from lampwork.ir.source import Argument
from lampwork.ir.template import ConstantValue, NewTuple, NewValue, Template, TensorValue
from lampwork.turns import give_way


class Recorder(Recording):
    """Records one region: what becomes of each kind of operator."""

    def __init__(
        self,
        location_hook: Callable[[], Location] | None = None,
        sizes_by_contents: bool = True,
        exact: bool = False,
    ) -> None:
        super().__init__(location_hook, sizes_by_contents, exact)
        self.alike = Alike(self)
        self._handlers: dict[str, Callable] = {
            "functional": self._call_functional,
            "composite": self._call_composite,
            "view": self._call_view,
            "inplace": partial(call_inplace, self),
            "metadata": partial(call_metadata, self),
            "lift": self._call_lift,
            "identity": lambda op, args, kwargs: args[0],
            "device": lambda op, args, kwargs: args[0].device,
            "data-dependent": self._call_data_dependent,
            "storage": partial(change_storage, self),
            "unclear": _refuse_results,
        }

    def call(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Records one operator call and returns what it returns, as fakes."""
        give_way()
        question = _QUESTIONS.get(func)
        if question is not None:
            return question(*args)
        if self.handed_on:
            if is_accumulation(self, func, args, kwargs):
                return accumulate(self, *args)
            self.handed_on = ()
        op = operator(func)
        if op.base.startswith("_foreach_"):
            from lampwork.capture.record.lists import on_each

            if op.kind == "inplace":  # eager's code for lists raises no version: the operators that it calls do
                _torch.increment_version(*tensors_in(args[0]))
            done = on_each(self, op, args, kwargs)
            if done is not NotImplemented:
                return done
        if op.elementwise and self._keeps is None and not self.sizes:
            return self.alike.call(op, args, kwargs, self._call)
        return self._call(op, args, kwargs)

    def _call(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        if self.switched is not None:
            self.switched(op)
        if self.sizes:
            args, kwargs = with_known_floats(args), with_known_floats(kwargs)
        if self.numbers is not None and (mentions_numbers(args) or (kwargs and mentions_numbers(kwargs))):
            from lampwork.capture.record.scalars import Scalars

            return Scalars(self).call(op, args, kwargs)
        if kwargs:
            device = kwargs.get("device")
            if device is not None and device.type == "cuda":
                self.uses_cuda = True
                if device.index is None:  # the current device is guarded, so that the graph may name it
                    kwargs = {**kwargs, "device": exact_device(device)}
        if self.sizes:
            refuse_wide(op, args, kwargs)
        refuse_overflow(op, args, kwargs)
        if op.overload.namespace == "prims" and (op.kind in ("view", "inplace") or op.base in _PRIMS_IN_ATEN):
            with self._mode:
                return _torch.call_in_aten(op.overload, args, kwargs)
        if self._keeps is None or op.kind == "composite":
            return self._handlers[op.kind](op, args, kwargs)
        before = self.graph._root._prev
        result = self._handlers[op.kind](op, args, kwargs)
        if self._keeps(op.overload, args, kwargs, result):
            node = self.graph._root._prev
            while node is not before:
                node.meta["kept"] = True
                node = node._prev
        return result

    def _is_alone(self, fake: Fake) -> bool:
        """Whether native code has made this tensor, which the program does not get: it gave no tensor on its memory."""
        key = _torch.storage_key(fake)
        return all(_torch.storage_key(each) != key for each in tensors_in(self.called_with) if type(each) is Fake)

    def _call_functional(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        if op.base in _KEEP_STORAGE and _STORAGE_COPIES in self.left:
            raise Unsupported(self.left[_STORAGE_COPIES])
        if op.base in _CHANGED_BEFORE_RECORDING and self.momentum is None:
            changed = _CHANGED_BEFORE_RECORDING[op.base](args, kwargs)
            if changed is not None:
                result = self.call(*changed)
                if op.base.startswith("unsafe") and type(result[0].node) is tuple:
                    result[0].node[0].meta["replayed"] = op.overload
                return result
        elif op.overload is _INDEX and any(each is not None and each.dtype in MASKS for each in args[1]):
            args = args[0], self.contents.without_masks(*args)
        elif op.base in ("index_put", "_unsafe_index_put"):
            args = self.contents.places_written(args)
        elif op.base in ("median", "nanmedian") and _repeats_elements(args[0]):
            # ATen's kernel reads beyond what it copied of a dimension of stride 0. A copy has the numbers themselves.
            options = {"memory_format": torch.contiguous_format}
            args = self.call(torch.ops.aten.clone.default, (args[0],), options), *args[1:]
        elif op.base == "_fft_r2c" and args[0].is_cuda and args[1]:
            args = self._in_whole_complex_numbers(args[0], args[1][-1]), *args[1:]
        elif op.base == "_unsafe_view" and not self._is_alone(args[0]):
            return self.call(torch.ops.aten.view.default, args, kwargs)
        elif op.base == "as_strided_copy":
            part = self.call(torch.ops.aten.as_strided.default, args, kwargs)
            return self.call(torch.ops.aten.clone.default, (part,), {"memory_format": torch.contiguous_format})
        elif op.base == "as_strided_scatter":
            if args[0].requires_grad and not args[0].is_contiguous():
                raise RuntimeError("as_strided_scatter is currently only supported for contiguous inputs")
            if _repeats_elements(args[0]):
                args = self.call(torch.ops.aten.clone.default, (args[0],), {}), *args[1:]  # as eager does
            self.note_offset(args[0])
            place = {name: each for name, each in kwargs.items() if name != "src"}
            self._check_place(args[0], *args[2:], **place)
        elif self.momentum is not None and op.base in _BATCH_NORMS and args[5]:
            return self._train_batch_norm(op, *args)
        elif op.base == "cudnn_batch_norm":
            if not self.exact:
                return self._call_cudnn_batch_norm(*args, **kwargs)
            if args[5] and args[3] is not None and args[4] is not None:
                return self._train_cudnn_batch_norm(*args)
        elif op.base == "_to_copy" and type(args[0]) in _NUMBERS:
            return self._copy_of_number(op, *args, **kwargs)
        elif (
            op.base == "_to_copy"
            and args[0].device.type == "meta"
            and (kwargs.get("device") or args[0].device).type != "meta"
        ):
            raise Unsupported("a copy elsewhere of a tensor without contents")
        elif op.base == "_efficientzerotensor":
            return self._call_zero_tensor(*args, **kwargs)
        first = args[0] if args else None
        if type(first) in _NUMBERS and _takes_tensor(op) and not any(isinstance(each, Fake) for each in args):
            return self._call_on_numbers(op, args, kwargs)
        inputs = self.to_nodes(args), self.to_nodes(kwargs) if kwargs else {}
        try:
            result = infer(op.overload, args, kwargs)
        except DataDependent:
            if op.overload.namespace in ("aten", "prims"):
                raise
            return self.contents.of_library(op, args, kwargs)
        if torch.get_default_dtype() is not self.default_dtype and _reads_default_dtype(op, args, kwargs):
            # The graph runs under the default type that the program had before.
            inputs = inputs[0], {**inputs[1], "dtype": result.dtype}
        self._record(op, *inputs, result)
        if type(first) is Fake and first.constant is not None and type(result) is Fake:
            result.constant = self._folded(op, args, kwargs)
        is_lazy = _LAZILY_CONJUGATED.get(op.base)
        if is_lazy is not None and is_lazy(*args, **kwargs):
            # What an operator gives is resolved where it is called.
            result = self.call(torch.ops.aten._conj_physical.default, (result,), {})
            result = self.call(torch.ops.aten._conj.default, (result,), {})
        return result

    def _call_on_numbers(self, op: Operator, args: tuple, kwargs: dict) -> Fake:
        """`torch.div(7, 2, rounding_mode="trunc")`: a tensor whose value is known."""
        if op.is_random:
            raise Unsupported(f"{op.overload} of plain numbers")
        plain = [int(each) if type(each) is torch.SymInt else each for each in args]
        with self._paused():
            made = op.overload(*plain, **kwargs).resolve_conj()
        return self.constant(made)

    def _folded(self, op: Operator, args: tuple, kwargs: dict) -> torch.Tensor | None:
        """What an operator makes of literals of one element; None where something else takes part."""
        if op.is_random or kwargs or op.overload.namespace != "aten":
            return None
        values = []
        for each in args:
            if isinstance(each, Fake):
                if each.constant is None or each.numel() != 1 or _torch.storage_key(each) in self.written:
                    return None
                each = each.constant
            elif type(each) not in _NUMBER_TYPES:
                return None
            values.append(each)
        with self._paused(), torch.no_grad():
            made = op.overload(*values)
        return made if made.numel() == 1 else None

    def _call_cudnn_batch_norm(self, x: Fake, *rest: Any) -> Any:
        """Recorded as the operator that other batch norms are: the library's says neither that training writes the
        running statistics, nor what it reserves for the backward pass. The others lay their result out as the input,
        and the library in its memory format: alike but for dimensions of size 1."""
        if not surely_same(x.stride(), in_format_of(x, x.size())):
            x = self._in_its_format(x)
        results = self.call(torch.ops.aten.native_batch_norm.default, (x, *rest), {})
        options = {"dtype": torch.uint8, "device": x.device}
        return *results, self.call(torch.ops.aten.empty.memory_format, ([0],), options)

    def _in_its_format(self, x: Fake) -> Fake:
        """A view of `x`, which is contiguous in its memory format, with that format's strides where a size is 1."""
        dims = list(range(x.dim()))
        order = [0, *dims[2:], 1] if suggests_channels_last(x) else dims
        rows = self.call(torch.ops.aten.permute.default, (x, order), {})
        flat = self.call(torch.ops.aten.view.default, (rows, [-1]), {})
        rows = self.call(torch.ops.aten.view.default, (flat, list(rows.size())), {})
        return self.call(torch.ops.aten.permute.default, (rows, [order.index(dim) for dim in dims]), {})

    def _train_cudnn_batch_norm(
        self, x: Fake, weight: Fake, bias: Fake | None, mean: Fake, variance: Fake, training: bool, *numbers: float
    ) -> Any:
        """As the operator of ours that the library's is without its writes, which its schema does not mention, and the
        writes: eager's bits are the library's. (What keeps no statistics writes nothing, and is recorded as it is.)"""
        op = _torch.cudnn_batch_norm()
        given = (x, weight, bias, mean, variance, *numbers)
        results = infer(op, given, {})
        self.record(operator(op), given, {}, results)
        for statistic, new in zip((mean, variance), results[4:], strict=True):
            self.call(torch.ops.aten.copy_.default, (statistic, new), {})
        return results[:4]

    def _train_batch_norm(
        self, op: Operator, x: Fake, weight: Fake, bias: Fake | None, mean: Fake, variance: Fake, training: bool,
        momentum: float, eps: float,
    ) -> Any:  # fmt: skip
        """With the momentum that is in the tensor `self.momentum` when the library is called."""
        given: tuple[Any, ...]
        if op.base == "cudnn_batch_norm":
            called, given, place = _torch.cudnn_batch_norm(), (x, weight, bias, mean, variance, momentum, eps), 5
        else:
            called = torch.ops.aten._native_batch_norm_legit_functional.default
            given, place = (x, weight, bias, mean, variance, training, momentum, eps), 6
        results = infer(called, given, {})
        taken = (*given[:place], self.momentum, *given[place + 1 :])
        self.record(operator(_torch.with_numbers(called, (place,))), taken, {}, results)
        for statistic, new in zip((mean, variance), results[-2:], strict=True):
            self.call(torch.ops.aten.copy_.default, (statistic, new), {})
        return results[:-2]

    def _copy_of_number(self, op: Operator, number: Any, **options: Any) -> Any:
        """Function transforms convert the numbers that meet their tensors; a number is seen as such here."""
        if type(number) is torch.SymInt:
            dtype, device = options.get("dtype") or torch.int64, options.get("device") or torch.device("cpu")
            return self.call(torch.ops.aten.full.default, ([], number), {"dtype": dtype, "device": device})
        with self._paused():
            made = op.overload(torch.tensor(number, dtype=_NUMBER_TYPES[type(number)]), **options)
        return self.constant(made)

    def _call_zero_tensor(self, size: Any, **options: Any) -> Any:
        """The zeros of forward derivatives, which have no memory and stay zero times infinity: torch computes with them
        before anything is recorded. What does reach the graph are ordinary zeros."""
        options = {name: value for name, value in options.items() if name in ("dtype", "device") and value is not None}
        plain = infer(torch.ops.aten.zeros.default, (list(size),), options)
        result = _torch.zeros_without_memory(Fake, tuple(size), plain.dtype, plain.device)
        self._record(operator(torch.ops.aten.zeros.default), (list(size),), options, result)
        return result

    def _call_composite(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        """Decomposed, but where a GPU has a kernel of its own for the operator: that is what eager calls there, with
        its strides and its rounding. (On a CPU operators that have both are elementwise: their kernel is called where
        the rounding matters.)"""
        if any(type(each) is Fake and each.is_cuda for each in args) and _torch.has_kernel(op.overload, "CUDA"):
            return self._call_functional(op, args, kwargs)
        if self.exact and _torch.has_kernel(op.overload, "CPU"):
            return self._call_functional(op, args, kwargs)
        with self._mode:
            return _torch.decompose(op.overload, args, kwargs)

    def note_offset(self, tensor: Fake) -> None:
        """The program's meaning depends on where in its storage `tensor` lies: guards that of the inputs there."""
        key = _torch.storage_key(tensor)
        for fake in self.inputs:
            if isinstance(fake, Fake) and fake.lampwork_source is not None and _torch.storage_key(fake) == key:
                self.sizes.require(fake.lampwork_source, "offset", 0, int(fake.storage_offset()))

    def _note_offset_in(self, tensor: Fake, elements: int) -> None:
        """As `note_offset`, for what depends on the remainder by a number of elements alone."""
        key = _torch.storage_key(tensor)
        for fake in self.inputs:
            if isinstance(fake, Fake) and fake.lampwork_source is not None and _torch.storage_key(fake) == key:
                self.sizes.require(fake.lampwork_source, "offset", 0, int(fake.storage_offset()) % elements, elements)

    def _in_whole_complex_numbers(self, x: Fake, last: int) -> Fake:
        """What cuFFT reads of real numbers: `x`, or where that does not begin at a whole complex number a copy with the
        dimension `last` innermost. Guards where in its storage an input lies, as that decides."""
        offset = x.storage_offset()
        if type(offset) is not int:
            return x
        self._note_offset_in(x, 2)
        if offset % 2 == 0:
            return x
        aten = torch.ops.aten
        order = [each for each in range(x.dim()) if each != last % x.dim()]
        order.append(last % x.dim())
        moved = self.call(aten.permute.default, (x, order), {})
        copied = self.call(aten.clone.default, (moved,), {"memory_format": torch.contiguous_format})
        return self.call(aten.permute.default, (copied, [order.index(each) for each in range(x.dim())]), {})

    def _call_view(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        if type(args[0]) in _NUMBERS:  # the conjugate of a factor, in derivatives
            return self._call_on_numbers(op, args, kwargs)
        if op.base == "as_strided":
            self._leave_copies_of_storages(args[0])
            if args[0]._is_view():
                self.views_by_memory.setdefault(_torch.storage_key(args[0]), self.steps())
            if len(args) > 3 or "storage_offset" in kwargs:
                self.note_offset(args[0])
        elif op.overload is torch.ops.aten.view_as_complex.default:
            self._note_offset_in(args[0], 2)  # eager raises where it begins in the middle of an element, read or not
        elif op.overload is torch.ops.aten.view.dtype and args[1].itemsize > args[0].dtype.itemsize:
            self._note_offset_in(args[0], args[1].itemsize // args[0].dtype.itemsize)
        inputs = self.to_nodes(args), self.to_nodes(kwargs) if kwargs else {}
        result: Any
        if self.sizes and has_symbols((args, kwargs)):
            if op.base == "as_strided":
                self._check_room(*args, **kwargs)
            result = view(op.overload, args, kwargs)
            self._record(op, *inputs, result)
            return result
        with _torch.kernels_only():
            plain = op.overload(*args, **kwargs)
        fakes = [each if isinstance(each, Fake) else fake_like_view(each, args[0])
                 for each in ((plain,) if isinstance(plain, torch.Tensor) else plain)]  # fmt: skip
        result = fakes[0] if isinstance(plain, torch.Tensor) else fakes
        self._record(op, *inputs, result)
        return result

    def _leave_copies_of_storages(self, x: Fake) -> None:
        """Leaves copies to eager that it makes with all of the memory of their source: a strided part of one may reach
        around its elements, and nobody here has that memory."""
        node = memory_owner(self.node_of(x))
        if node.op != "call_function" or not _torch.is_operator(node.target):
            return
        if operator(node.target).base in _KEEP_STORAGE:
            reason = f"as_strided of what {node.target} makes"
            if self.leave is not None:
                self.leave(_STORAGE_COPIES, reason)
            raise Unsupported(reason)

    def _check_place(self, x: Fake, *place: Any, **named: Any) -> None:
        """Raises eager's error where a part of the storage of `x` reaches out of it, whether its elements are used or
        not."""
        if self.sizes and has_symbols((x, place, named)):
            self._check_room(x, *place, **named)
        else:
            with _torch.kernels_only():
                torch.ops.aten.as_strided.default(x, *place, **named)

    def _check_room(self, x: Fake, size: Any, stride: Any, storage_offset: Any = None) -> None:
        """Raises eager's error where a view reaches out of the memory of `x`, if that is an operator's result; what
        lies around an input is not known here. That it does not is guarded."""
        node = self.node_of(x)
        if node.op != "call_function" or not _torch.is_operator(node.target):
            return
        if operator(node.target).kind != "functional" or any(
            map(by_contents, (*x.size(), *x.stride(), *size, *stride))
        ):
            return
        offset = x.storage_offset() if storage_offset is None else storage_offset
        if has_zero(size):
            return
        room = 0 if has_zero(x.size()) else 1 + _reach(x.size(), x.stride())
        if offset + _reach(size, stride) >= room:
            raise RuntimeError(
                f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} are out of bounds "
                f"for storage of {room} elements"
            )

    def _call_lift(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        tensor = args[0]
        if isinstance(tensor, Fake):
            return tensor
        return self.constant(tensor)

    def _call_data_dependent(self, op: Operator, args: tuple, kwargs: dict) -> Any:
        if any(each.device.type == "meta" for each in tensors_in(args)):
            raise Unsupported(f"{op.overload} of a tensor without contents")
        first = args[0] if args else None
        if isinstance(first, Fake) and first.constant is not None and op.base == "_local_scalar_dense":
            if _torch.storage_key(first) not in self.written:
                return first.constant.item()
        if isinstance(first, Fake) and op.base == "_local_scalar_dense" and first.numel() == 1:
            known = self.constants.exact_value(first.node)
            if known is None:
                known = self.settings(first)
            if known is not None:
                with self._paused():
                    return known.item() if isinstance(known, torch.Tensor) else known
            batch = self.contents.batch_in(first)
            if batch is not None:
                return int(batch)
        return self.contents.call(op, args, kwargs)


def _refuse_results(op: Operator, args: tuple, kwargs: dict) -> Any:
    """Of an operator of a library that is "unclear"."""
    if any(each.alias_info is not None for each in op.overload._schema.returns):
        what, remedy = "a view of its argument", "Return a copy, and declare no alias in its schema."
    else:
        what, remedy = "a list beside other results", "Return one list, or tensors alone."
    raise Unsupported(f"{op.overload}, a custom operator that returns {what}", remedy, "custom-operator")


def _uses_cudnn_for_ctc_loss(
    log_probs: Fake, targets: Fake, input_lengths: Any, target_lengths: Any, blank: int
) -> bool:
    """False where metadata rule the library's algorithm out; else that depends on the lengths. Eager reads lengths that
    lie on the CPU; the operator that takes them as tensors wants them where the rest is."""
    if log_probs.is_cuda and any(type(each) is Fake and each.is_cpu for each in (input_lengths, target_lengths)):
        raise Unsupported("a CTC loss on a GPU has lengths on the CPU", "Move the lengths to the GPU.")
    fits = targets.dim() == 1 and log_probs.dtype is torch.float32 and targets.dtype is torch.int32 and not blank
    if fits and log_probs.is_cuda and torch.backends.cudnn.enabled:
        raise Unsupported("cuDNN computes a CTC loss, if the lengths allow it", "Give targets as int64.")
    return False


#: What native code asks where it can take numbers only (symbolic sizes are specialised), and choices that it asks for.
_QUESTIONS: dict[Any, Callable[..., Any]] = {
    **{
        getattr(packet, overload): _uses_cudnn_for_ctc_loss
        for name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss")
        if (packet := getattr(torch.ops.aten, name, None)) is not None
        for overload in packet.overloads()
        if overload in ("default", "Tensor")
    },
    torch.ops.aten.size.default: lambda fake: [int(each) for each in fake.size()],
    torch.ops.aten.stride.default: lambda fake: [int(each) for each in fake.stride()],
    torch.ops.aten.numel.default: lambda fake: int(fake.numel()),
    torch.ops.aten.storage_offset.default: lambda fake: int(fake.storage_offset()),
}


#: What PyTorch makes of a Python number that it wraps as a tensor.
_NUMBER_TYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_NUMBERS = frozenset({*_NUMBER_TYPES, torch.SymInt})


def _solves_from_the_right(
    factors: Fake, pivots: Fake, right: Fake, *, left: bool = True, adjoint: bool = False
) -> bool:
    return not left and right.is_complex() and not has_zero(right.size()) and not has_zero(factors.size())


#: Whether a result is the conjugate of what the kernel has computed, which nobody has resolved.
_LAZILY_CONJUGATED: dict[str, Callable[..., bool]] = {
    "dot": lambda x, y: x.is_conj() and y.is_conj(),
    "vdot": lambda x, y: y.is_conj() and not x.is_conj(),
    "linalg_lu_solve": _solves_from_the_right,
}


def _takes_tensor(op: Operator) -> bool:
    """Whether the operator's first argument is a tensor, or a number that stands for one."""
    return str(op.overload._schema.arguments[0].type) == "Tensor"


def _reads_default_dtype(op: Operator, args: tuple, kwargs: dict) -> bool:
    """Whether an operator is given no type for what it makes, and no tensor either."""
    return "dtype" in op.positional and kwargs.get("dtype") is None and next(iter(tensors_in(args)), None) is None


_BATCH_NORMS = frozenset({"native_batch_norm", "cudnn_batch_norm"})
_INDEX = torch.ops.aten.index.Tensor


def _batch_norm_writes_statistics(args: tuple, kwargs: dict) -> Any:
    """`native_batch_norm` does not say in its schema that training updates running statistics; its twin does."""
    arguments = list(args)
    if len(arguments) == 8 and not kwargs and arguments[5] and arguments[3] is not None and arguments[4] is not None:
        return torch.ops.aten._native_batch_norm_legit.default, tuple(arguments), {}
    return None


def _views_instead(view: Any) -> Callable[[tuple, dict], Any]:
    """`unsafe_split` returns views that autograd does not know as such, so that they may be written to; to memory they
    are those of `split`. Where autograd sees the program again (`graph/replay.py`), it is called itself."""
    return lambda args, kwargs: (view, args, kwargs)


def _as_views_on_a_gpu(args: tuple, kwargs: dict) -> Any:
    """Eager's `channel_shuffle` on a GPU is made of views and a copy, which is none where nothing moves."""
    x, groups = args if len(args) == 2 else (args[0], kwargs.get("groups", 0))
    if not x.is_cuda or x.dim() < 3 or groups <= 0 or has_zero(x.size()) or x.size()[1] % groups:
        return None
    return torch.ops.aten.native_channel_shuffle.default, (x, groups), {}


def _reach(size: Any, stride: Any) -> Any:
    """How many elements after the first one the last one lies."""
    return sum((length - 1) * step for length, step in zip(size, stride))


#: Operators of `torch.ops.prims`, beside views and writes, that ATen spells with other arguments.
_PRIMS_IN_ATEN = frozenset({"device_put", "item"})
#: Copies that eager makes with all of the memory of their source; and their kind.
_KEEP_STORAGE = frozenset({"as_strided_scatter", "slice_scatter", "select_scatter", "diagonal_scatter"})
_STORAGE_COPIES = "copies of storages"


def _repeats_elements(x: Fake) -> bool:
    """Whether several elements surely lie in one place, as those of `expand` do."""
    return any(type(step) is int and step == 0 and size != 1 for size, step in zip(x.size(), x.stride()))


_CHANGED_BEFORE_RECORDING: dict[str, Callable[[tuple, dict], Any]] = {
    "native_batch_norm": _batch_norm_writes_statistics,
    "channel_shuffle": _as_views_on_a_gpu,
    "unsafe_split": _views_instead(torch.ops.aten.split.Tensor),
    "unsafe_split_with_sizes": _views_instead(torch.ops.aten.split_with_sizes.default),
}


def record(fn: Callable, example_tensors: Iterable[torch.Tensor], name: str = "recorded") -> Region:
    """The region of `fn(*tensors)` recorded without the bytecode machine: for tests and graphs that are torch-level.

    `fn` may return a tensor, None, or a flat tuple or list of tensors; it must touch Python state of its own only.
    The program runs under the modes in force (grad mode, autocast). Nothing is computed or written.
    """
    recorder = Recorder()
    fakes = [recorder.input(tensor, Argument(index)) for index, tensor in enumerate(example_tensors)]
    with recorder.recording():
        result = fn(*fakes)
    many = isinstance(result, (tuple, list))
    results = list(result) if many else [result]
    tensors = [each for each in results if isinstance(each, Fake)]
    graph = recorder.finish(tensors)
    templates: list[Template] = []
    for each in results:
        if isinstance(each, Fake):
            position = next(index for index, other in enumerate(tensors) if other is each)
            templates.append(TensorValue(position, requires_grad=each.requires_grad))
        else:
            templates.append(ConstantValue(each))
    return Region(
        name=name,
        graph=graph,
        inputs=tuple(Argument(index) for index in range(len(fakes))),
        guards=(),
        objects=(NewTuple(tuple(templates)),) if many else (),
        effects=(),
        outcome=Return(NewValue(0) if many else templates[0]),
        requires_grad_outputs=any(each.requires_grad for each in tensors),
        input_values=tuple(fakes),
    )
