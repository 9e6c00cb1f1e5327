"""Operators that write: `x.add_(y)`, `out=`, and changes of a tensor's shape or memory in place.

    x.add_(1)       add_(x, 1), which returns x: later readers name the node that x has
    x.t_()          the node of a view, which x moves on to
    x.data = y      likewise, a view of y
    x.resize_(4)    of an empty tensor: memory of its own, with anything in it

Writes are refused as eager refuses them: arguments that do not fit, a type that cannot be cast, memory that overlaps.
What eager would do otherwise is told by `Unsupported`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from lampwork import _torch
from lampwork.fakes.fake import (
    Fake,
    Unsupported,
    fake_like_view,
)
from lampwork.fakes.kernels import refusal
from lampwork.fakes.operators import Operator, operator
from lampwork.fakes.rules.pointwise import refuse_booleans
from lampwork.fakes.shapes import (
    Unknown,
    broadcast,
    infer,
    is_dense,
    promoted,
    refuse_several_devices,
    surely_same,
    tensors_in,
)
from lampwork.fakes.shared_memory import is_same_view, memory_owner, share_elements
from lampwork.fakes.strides import overlap
from lampwork.fakes.views import has_symbols
from lampwork.fakes.views import view as view_of

if TYPE_CHECKING:
    from lampwork.capture.record.recorder import Recorder


def call_inplace(recorder: Recorder, op: Operator, args: tuple, kwargs: dict) -> Any:
    """Records an operator that writes to its arguments; its results are those arguments, or fresh."""
    result = _written(recorder, op, args, kwargs)
    recorder.view_writes.note(op.overload, args, kwargs)  # after what the operator is made of
    return result


def _written(recorder: Recorder, op: Operator, args: tuple, kwargs: dict) -> Any:
    if op.base in ("index_put_", "_index_put_impl_"):
        args = recorder.contents.places_written(args)
    targets = [kwargs.get(where) if isinstance(where, str) else args[where] if where < len(args)
               else kwargs.get(op.positional[where]) for where in op.written]  # fmt: skip
    _refuse_own_memory(op, args, kwargs, targets)
    if op.overload.namespace != "aten" and _torch.functional_of_inplace(op.overload) is None:
        return _call_custom(recorder, op, args, kwargs)
    refuse_several_devices(op.overload, args, kwargs, tensors_in(targets))
    if recorder.views_by_memory:
        _note_write_to_view_by_memory(recorder, targets, (*args, *kwargs.values()))
    for target in targets:
        for each in target if isinstance(target, (list, tuple)) else (target,):
            if each is not None:
                if recorder.write_hook is not None and type(each) is Fake:
                    recorder.write_hook(op.base, each, args[1:], kwargs)
                if recorder.made_in_inference and "batch_norm" not in op.base:  # whose kernel raises no version
                    _refuse_inference_tensor(recorder, each)
                _note_write(recorder, each, op)
    result = _results(recorder, op, args, kwargs, targets)  # may give a target other memory
    recorder.record(op, args, kwargs, result)
    return result


def _refuse_inference_tensor(recorder: Recorder, target: Fake) -> None:
    """Raises eager's error for a write outside of inference mode to a tensor that was made in it, or a view of one."""
    if torch.is_inference_mode_enabled():
        return
    key = _torch.storage_key(target)
    for each in recorder.made_in_inference:
        if target is each or (_torch.storage_key(each) == key and _torch.shares_version(target, each)):
            raise RuntimeError(
                "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a "
                "normal tensor before doing inplace update."
            )


def _call_custom(recorder: Recorder, op: Operator, args: tuple, kwargs: dict) -> Any:
    """A user's operator that writes: recorded as one that gives what it writes, and copies of that."""
    targets = [_argument(op, where, args, kwargs) for where in op.written]
    lengths = _torch.lengths_written(op.overload, targets)
    pure = _torch.functional_of_custom(op.overload, lengths)
    if pure is None:
        remedy = "Declare the results that it writes as results of its own (mutates_args=())."
        what = f"{op.overload}, a custom operator that writes to its arguments"
        raise Unsupported(what, remedy, "custom-operator")
    _refuse_shared_targets(op, targets)
    made = recorder.call(pure, args, kwargs)
    results = list(made) if len(pure._schema.returns) != 1 else [made]
    own = _torch.own_results(op.overload)
    if lengths:  # each element of a list is a result
        targets = [each for target in targets for each in (target if isinstance(target, (list, tuple)) else (target,))]
    for target, value in zip(targets, results[len(own) :], strict=True):
        if isinstance(target, (list, tuple)):
            for each, part in zip(target, value, strict=True):
                recorder.call(torch.ops.aten.copy_.default, (each, part), {})
        elif target is not None:
            recorder.call(torch.ops.aten.copy_.default, (target, value), {})
    returned: dict[int, Any] = dict(zip(own, results))
    for place in range(len(op.overload._schema.returns)):
        if place not in returned:
            position = _torch.written_by_result(op.overload, place)
            assert position is not None
            returned[place] = _argument(op, position, args, kwargs)
    found = [returned[place] for place in range(len(returned))]
    return None if not found else found[0] if len(found) == 1 else tuple(found)


def _refuse_shared_targets(op: Operator, targets: list[Any]) -> None:
    """Refuses tensors written by one operator that share elements: what it writes last is not known."""
    written = [each for each in tensors_in(targets) if type(each) is Fake]
    for place, target in enumerate(written):
        for other in written[:place]:
            if other is target or _torch.storage_key(other) == _torch.storage_key(target):
                if share_elements(target, other) is not False:
                    what = f"{op.overload} writes to one memory through two arguments"
                    raise Unsupported(what, "Call clone() on one of them.", "custom-operator")


def _argument(op: Operator, where: int | str, args: tuple, kwargs: dict) -> Any:
    """The argument at a position, or of a name; None where it is left out."""
    position = op.positional.index(where) if isinstance(where, str) else where
    return args[position] if position < len(args) else kwargs.get(op.positional[position])


def _results(recorder: Recorder, op: Operator, args: tuple, kwargs: dict, targets: list[Any]) -> Any:
    returns = op.returns_written
    if op.written and all(isinstance(where, str) for where in op.written):
        return _results_of_out(recorder, op, args, kwargs, targets)
    if not returns:
        return None
    if all(returns):
        if op.written == (0,) and returns == [True]:
            _check_elementwise(op, args, kwargs)
            _check_by_rule(op, args, kwargs)
            _check_memory(op, args, kwargs)
            _check_result_type(op, args, kwargs)
        return targets[0] if len(returns) == 1 else tuple(targets)
    # Some results are fresh (batch norm with running statistics): those come from the shape rule.
    return infer(op.overload, args, kwargs)


def _is_target(operand: Any, args: tuple, target: Any) -> bool:
    """Whether an operand is the first, is the very elements that are written, and no other shares their memory."""
    storage = _torch.storage_key(target)
    return (
        operand is args[0]
        and is_same_view(target, operand)
        and not any(_torch.storage_key(each) == storage for each in tensors_in(args[1:]))
    )


def _results_of_out(recorder: Recorder, op: Operator, args: tuple, kwargs: dict, targets: list[Any]) -> Any:
    """`torch.add(a, b, out=c)`: recorded as it is when `c` already has the result's shape."""
    functional = _torch.functional_of_out(op.overload)
    if functional is None or not all(isinstance(each, torch.Tensor) for each in targets):
        raise Unsupported(f"{op.overload} (an out= variant)")
    others = {key: value for key, value in kwargs.items() if key not in op.written}
    fresh = infer(functional, args, others)
    elementwise = torch.Tag.pointwise in op.overload.tags
    for result, target in zip(fresh if isinstance(fresh, (tuple, list)) else (fresh,), targets):
        if elementwise:
            _refuse_cast(result.dtype, target.dtype)
            if result.dtype != target.dtype:
                _refuse_as_kernels(op, args, kwargs)
        elif not op.is_random:
            storage = _torch.storage_key(target)
            if result.dtype != target.dtype or any(
                _torch.storage_key(each) == storage
                and not (op.base in _INTO_OPERAND and _is_target(each, args, target))
                for each in tensors_in((*args, *others.values()))
            ):
                remedy = "Give out= a tensor of the result's type that is no argument."
                raise Unsupported(f"{op.overload} into a tensor of another type, or an argument", remedy)
        if tuple(result.size()) != tuple(target.size()):
            if target.numel() or result.dtype != target.dtype:
                remedy = "Give out= a tensor of the result's shape."
                raise Unsupported("an out= tensor that must be resized", remedy, "out-resized")
            _refuse_shared_memory(recorder, target)
            _give_memory(recorder, target, result, keeps_strides=elementwise or op.base == "sort")
    return targets[0] if len(targets) == 1 else tuple(targets)


def _refuse_as_kernels(op: Operator, args: tuple, kwargs: dict) -> None:
    """Raises what the kernel raises of these types: some, as `abs`, write no type but the one that they compute."""
    error = refusal(op.overload, args, kwargs)
    if error is not None:
        raise error


def call_metadata(recorder: Recorder, op: Operator, args: tuple, kwargs: dict) -> Any:
    """`x.t_()`: the node of a view, which the fake moves on to; its old node keeps a snapshot of what it was."""
    fake = args[0]
    view = operator(_torch.overload(f"aten::{op.view}"))
    _refuse_view_of_history(recorder, fake)
    _refuse_base_of_differentiable_views(recorder, fake)
    if fake._is_view() or next(_views_of(recorder, fake), None) is not None:
        recorder.views_by_memory.setdefault(_torch.storage_key(fake), recorder.steps())
    if hasattr(fake, "lampwork_placeholder"):  # a tensor that the caller holds
        rebind(recorder, fake, recorder.call(view.overload, args, kwargs))
        return fake
    if has_symbols((args, kwargs)):
        snapshot, target = view_of(torch.ops.aten.alias.default, (fake,), {}), view_of(view.overload, args, kwargs)
        assert isinstance(snapshot, Fake)
        with recorder._paused(), _torch.kernels_only(), torch.no_grad():
            fake.data = target  # type: ignore[assignment]
        fake.lampwork_storage = snapshot.lampwork_storage
    else:
        with _torch.kernels_only():
            snapshot = fake_like_view(torch.ops.aten.alias.default(fake), fake)
            target = view.overload(*args, **kwargs)
            fake.as_strided_(target.size(), target.stride(), target.storage_offset())
    snapshot.node = node = recorder.node_of(fake)
    _replace_value(node, fake, snapshot)
    if node.target is _torch.getitem:
        _replace_value(node.args[0], fake, snapshot)
    recorder.record(view, args, kwargs, fake, rebind=True)
    return fake


def _note_write_to_view_by_memory(recorder: Recorder, targets: list[Any], operands: tuple[Any, ...]) -> None:
    """Notes a write to memory with a history that has a view whose shape was changed in place, or one of a view by
    `as_strided`. Its gradient goes by the strides of views, of plain tensors; of fakes by the operators that made the
    views: they make them as they were before, and none outside of the view that it was taken of. So the region ends
    before that view is made."""
    steps = [recorder.views_by_memory.get(_torch.storage_key(each)) for each in tensors_in(targets)]
    found = [each for each in steps if each is not None]
    if found and any(each.requires_grad for each in tensors_in(operands)):
        known = recorder.view_by_memory_written
        recorder.view_by_memory_written = min(found if known is None else [*found, known])


def _refuse_view_of_history(recorder: Recorder, fake: Fake) -> None:
    """Refuses a view of a tensor from outside that has a history: eager raises where that is a view of a leaf itself,
    which fakes of tensors from outside never are."""
    if not (torch.is_grad_enabled() and fake.requires_grad and fake._is_view()):
        return
    key = _torch.storage_key(fake)
    for each in recorder.inputs:
        if isinstance(each, Fake) and each.lampwork_edge is not None and _torch.storage_key(each) == key:
            raise Unsupported("the shape of a view, of a tensor that was computed outside, is changed in place")


def _refuse_base_of_differentiable_views(recorder: Recorder, fake: Fake) -> None:
    """Refuses a tensor that has views which require gradients. After a change autograd replays these views: those of
    plain tensors by their strides, which stay right; those of fakes by their operators, which now see another shape."""
    if fake._is_view() or not (torch.is_grad_enabled() and fake.requires_grad):
        return
    if any(each.requires_grad for each in _views_of(recorder, fake)):
        raise Unsupported("the shape of a tensor is changed in place, and views of it require gradients")


def _views_of(recorder: Recorder, fake: Fake) -> Iterator[Fake]:
    for node in recorder.graph.nodes:
        for each in tensors_in((node.meta.get("val"),)):
            if type(each) is Fake and each._base is fake:
                yield each


def rebind(recorder: Recorder, fake: Fake, other: Fake) -> None:
    """`fake.data = other`: the node of a view of `other`, which `fake` moves on to.

    Its old node keeps a snapshot of what it was, for other views of the memory that it leaves.
    """
    if recorder.data_hook is None and hasattr(fake, "lampwork_placeholder"):
        raise Unsupported("the shape, strides or memory of a tensor that the caller holds is changed")
    view = operator(torch.ops.aten.alias.default)
    inputs = (recorder.node_of(other),)
    node = recorder.node_of(fake)
    with recorder._paused(), _torch.kernels_only(), torch.no_grad():
        snapshot = fake_like_view(torch.ops.aten.alias.default(fake), fake)
        fake.data = fake_like_view(torch.ops.aten.alias.default(other), other)
    fake.lampwork_storage = other.lampwork_storage
    snapshot.node = node
    _replace_value(node, fake, snapshot)
    if node.target is _torch.getitem:
        _replace_value(node.args[0], fake, snapshot)
    fake.constant = None
    recorder.record(view, inputs, {}, fake, rebind=True)
    if recorder.data_hook is not None:
        recorder.data_hook(fake, other)


def _give_memory(recorder: Recorder, fake: Fake, result: Fake, keeps_strides: bool) -> None:
    """An empty tensor is resized: it gets memory of its own, with anything in it, for `result`."""
    options = {"dtype": fake.dtype, "device": fake.device}
    size, stride = list(result.size()), list(result.stride())
    is_empty = any(type(each) is int and each == 0 for each in size)  # contiguous, whatever its strides are
    if keeps_strides and (is_empty or not result.is_contiguous()):
        made = recorder.call(torch.ops.aten.empty_strided.default, (size, stride), options)
    else:
        made = recorder.call(torch.ops.aten.empty.memory_format, (size,), options)
    rebind(recorder, fake, made)


def _refuse_shared_memory(recorder: Recorder, fake: Fake) -> None:
    """Refuses to resize an empty tensor that may lie in memory with elements in it: eager's result lies there then."""
    key = _torch.storage_key(fake)
    if fake._is_view() or any(isinstance(each, Fake) and _torch.storage_key(each) == key for each in recorder.inputs):
        raise Unsupported("an empty tensor that may share memory is resized", "Make it in the program.", "out-resized")


def _refuse_cast(computed: torch.dtype, written: torch.dtype) -> None:
    """Raises what eager raises where a result is of a kind that the tensor written to cannot hold."""
    if not torch.can_cast(computed, written):
        raise RuntimeError(
            f"result type {_torch.scalar_type_name(computed)} can't be cast to the desired output type "
            f"{_torch.scalar_type_name(written)}"
        )


def change_storage(recorder: Recorder, op: Operator, args: tuple, kwargs: dict) -> Any:
    """`x.resize_(size)` of an empty tensor, or to the size that it has; raises `Unsupported` for all else."""
    if op.base == "resize_" and not kwargs and not args[0].numel() and not args[0].requires_grad:
        options = {"dtype": args[0].dtype, "device": args[0].device}
        _refuse_shared_memory(recorder, args[0])
        rebind(recorder, args[0], recorder.call(torch.ops.aten.empty.memory_format, (list(args[1]),), options))
        return args[0]
    if op.base == "resize_" and not kwargs and surely_same(args[0].size(), args[1]):
        return args[0]  # as it is
    raise Unsupported(f"{op.overload} changes the memory or size of a tensor in place", id="storage-changed")


def _note_write(recorder: Recorder, target: Any, op: Operator) -> None:
    if not isinstance(target, Fake):
        recorder.to_nodes(target)  # raises for foreign tensors
        return
    if op.overload not in _WRITES_ONE_NUMBER and overlap(target.size(), target.stride()):
        # Eager refuses most of these and lets some through: it shall answer.
        raise Unsupported(f"{op.overload} writes to an expanded tensor", "Call clone() on it first.")
    if target.dtype is not torch.bool and memory_owner(recorder.node_of(target)).meta["val"].dtype is torch.bool:
        # A graph has no truths that are neither 0 nor 1.
        raise Unsupported(f"{op.overload} writes to the bytes of a bool tensor", "Make it of type uint8.", "aliasing")
    recorder.note_written(target)


def write_unseen(recorder: Recorder, target: Fake, value: Fake) -> None:
    """Records that the memory of `target` holds `value` from here on, as autograd and inference mode do not see it."""
    copy = operator(torch.ops.aten.copy_.default)
    if recorder.write_hook is not None:
        recorder.write_hook("launch", target, (), {})
    _note_write(recorder, target, copy)
    recorder.record(copy, (target, value), {}, target)


def _replace_value(node: torch.fx.Node, old: Fake, new: Fake) -> None:
    value = node.meta["val"]
    node.meta["val"] = new if value is old else type(value)(new if each is old else each for each in value)


def _check_elementwise(op: Operator, args: tuple, kwargs: dict) -> None:
    """Raises what eager raises when the arguments of `x.add_(y)` do not fit into `x`, or overlap it partly."""
    target = args[0]
    if op.base == "sub_":
        refuse_booleans(target, *args[1:2])
    if op.base == "abs_" and target.is_complex():
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    others = [each for each in args[1:] if isinstance(each, torch.Tensor)]
    if op.base in _ELEMENTWISE_WRITES and others:
        _check_others(target, others)
    if op.base in _PROMOTING_WRITES:
        try:
            common = promoted([each for each in args if isinstance(each, (torch.Tensor, bool, int, float, complex))])
        except Unknown:
            return
        _refuse_cast(common, target.dtype)


_SHARED = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
    "location. Please clone() the tensor before performing the operation."
)


def _check_others(target: Any, others: list[Any]) -> None:
    """The part of `_check_elementwise` about tensors that are read."""
    shape = broadcast([target.size(), *(other.size() for other in others)])
    if shape != tuple(target.size()):
        raise RuntimeError(f"output with shape {list(target.size())} doesn't match the broadcast shape {list(shape)}")
    for other in others:
        if other is not target and _partly_overlaps(target, other):
            raise RuntimeError(_SHARED)


def _check_by_rule(op: Operator, args: tuple, kwargs: dict) -> None:
    """Raises what eager raises when the arguments of `x.addmm_(y, z)` do not fit together, or their result not into
    `x`: what the shape rule of `x.addmm(y, z)` says. `_check_elementwise` says it of elementwise operators."""
    reads = any(isinstance(each, torch.Tensor) for each in tensors_in((*args[1:], *kwargs.values())))
    if op.base not in _CHECKED_WRITES:
        usual = op.base in _ELEMENTWISE_WRITES and _is_of_one_type(args, kwargs)
        takes_every_number = not reads and torch.Tag.pointwise in op.overload.tags and args[0].is_floating_point()
        if usual or takes_every_number or op.is_random:
            return
    functional = _torch.functional_of_inplace(op.overload)
    if functional is None:
        return
    try:
        result = infer(functional, args, kwargs)
    except Unsupported:
        if reads:
            raise
        return  # nothing is known of its results, but that they are written to where they fit
    if isinstance(result, Fake) and not surely_same(result.size(), args[0].size()):
        shape = tuple(result.size())
        if shape != tuple(args[0].size()):
            raise RuntimeError(
                f"output with shape {list(args[0].size())} doesn't match the broadcast shape {list(shape)}"
            )


def _is_of_one_type(args: tuple, kwargs: dict) -> bool:
    """Whether all tensors are of one type, which is not complex, and all numbers are real: kernels take these."""
    types = {each.dtype for each in tensors_in((*args, *kwargs.values()))}
    return len(types) == 1 and not types.pop().is_complex and complex not in map(type, (*args, *kwargs.values()))


def _check_result_type(op: Operator, args: tuple, kwargs: dict) -> None:
    """Raises what eager raises when `x.exp_()` computes a type that `x` cannot hold, or one that has no kernel."""
    target = args[0]
    has_complex = any([each.is_complex() for each in tensors_in((args, tuple(kwargs.values())))])  # noqa: C419  quicker
    if not isinstance(target, Fake) or target.is_floating_point() and not has_complex:
        return  # kernels know real numbers, but for a few operators that are checked by their rules
    functional = _torch.functional_of_inplace(op.overload)
    if op.overload is torch.ops.aten.polygamma_.default:
        functional, args = torch.ops.aten.polygamma.default, args[::-1]
    if functional is None:
        return
    try:
        result = infer(functional, args, kwargs)
    except Unsupported:
        return
    if isinstance(result, Fake):
        _refuse_cast(result.dtype, target.dtype)


#: Which element is written last to a memory location makes no difference to them.
_WRITES_ONE_NUMBER = frozenset({torch.ops.aten.fill_.Scalar, torch.ops.aten.zero_.default})


_INDEXED_WRITES = frozenset({"scatter_", "scatter_add_", "scatter_reduce_", "index_add_", "index_copy_", "index_put_",
                             "masked_fill_"})  # fmt: skip


_SHIFTS = frozenset({"bitwise_left_shift_", "bitwise_right_shift_", "__ilshift__", "__irshift__"})


_BITWISE_WRITES = _SHIFTS | {"bitwise_and_", "bitwise_or_", "bitwise_xor_"}


_CHECKED_WRITES = _INDEXED_WRITES | _BITWISE_WRITES | {
    "clamp_", "bitwise_not_", "frac_", "cumsum_", "cumprod_", "heaviside_",
}  # fmt: skip


_PROMOTING_WRITES = _SHIFTS | {
    "add_", "sub_", "mul_", "div_", "pow_", "fmod_", "remainder_", "floor_divide_", "nextafter_", "xlogy_", "hypot_",
    "atan2_", "copysign_",
}  # fmt: skip


_ELEMENTWISE_WRITES = _PROMOTING_WRITES | _BITWISE_WRITES | {
    "addcmul_", "addcdiv_", "lerp_", "eq_", "ne_", "lt_", "le_", "gt_", "ge_",
    "logical_and_", "logical_or_", "logical_xor_", "copysign_", "atan2_", "masked_fill_", "clamp_", "clamp_min_",
    "clamp_max_", "copy_", "hypot_", "nextafter_", "xlogy_",
}  # fmt: skip


#: Products that are added to their first operand, which may be where they are written to.
_INTO_OPERAND = frozenset({"addmm", "addmv", "addbmm", "baddbmm", "addr"})

#: Eager asserts that what they read shares no memory with what they write, not even all of it (`assert_no_overlap`).
_READS_OTHER_MEMORY = frozenset({"index_put_", "_index_put_impl_", "index_copy_", "index_add_", "index_reduce_", "put_",
                                 "scatter_", "scatter_add_", "scatter_reduce_"})  # fmt: skip


def _check_memory(op: Operator, args: tuple, kwargs: dict) -> None:
    """Raises what eager raises when an argument of `x.scatter_(0, index, y)` shares memory with `x`."""
    if op.base not in _READS_OTHER_MEMORY and op.base != "addr_":
        return
    for other in tensors_in((*args[1:], *kwargs.values())):
        if _partly_overlaps(args[0], other, or_fully=op.base != "addr_"):
            raise RuntimeError(_SHARED)


def _refuse_own_memory(op: Operator, args: tuple, kwargs: dict, targets: list[Any]) -> None:
    """Refuses an operator that reads elements which it writes, unless it is elementwise and reads each right before it
    writes it. Others raise in eager, or give what the order of their loops makes of it."""
    written = list(tensors_in(targets))
    keys = {_torch.storage_key(each) for each in written if type(each) is Fake}
    names = {where if isinstance(where, str) else op.positional[where] for where in op.written}
    read = [each for number, each in enumerate(args) if number not in op.written]
    read += [each for name, each in kwargs.items() if name not in names]
    elementwise = op.base in _ELEMENTWISE_WRITES or torch.Tag.pointwise in op.overload.tags
    for other in tensors_in(read):
        if type(other) is not Fake or _torch.storage_key(other) not in keys:
            continue
        for target in written:
            if is_same_view(target, other) and (
                elementwise or (op.base in _INTO_OPERAND and _is_target(other, args, target))
            ):
                continue
            if elementwise and _partly_overlaps(target, other):
                raise RuntimeError(_SHARED)
            if op.base in _READS_OTHER_MEMORY and _partly_overlaps(target, other, or_fully=True):
                continue  # `_check_memory` raises it
            shared = share_elements(target, other)
            if shared or (shared is None and not elementwise):
                raise Unsupported(f"{op.overload} reads the memory that it writes", "Call clone() on what it reads.")


def _partly_overlaps(target: torch.Tensor, other: torch.Tensor, or_fully: bool = False) -> bool:
    """Eager's `assert_no_partial_overlap`: both dense, in one storage, ranges that meet without being the same;
    `or_fully`: ranges that are the same, too."""
    if target is other:
        return or_fully
    if _torch.storage_key(target) != _torch.storage_key(other) or not target.numel() or not other.numel():
        return False
    if not is_dense(target.size(), target.stride()) or not is_dense(other.size(), other.stride()):
        return False
    left, right = target.storage_offset() * target.element_size(), other.storage_offset() * other.element_size()
    left_end, right_end = left + target.numel() * target.element_size(), right + other.numel() * other.element_size()
    if left == right and left_end == right_end:
        return or_fully or tuple(target.stride()) != tuple(other.stride())
    return left < right_end and right < left_end
