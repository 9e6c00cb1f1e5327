"""Packed sequences: batches of sequences of several lengths, and the recurrent layers that take them.

    data, batch_sizes = pack(x, lengths)        f32[u0, 4] and i64[u1]: how much there is, is in `lengths`
    y, h, c = torch.lstm(data, batch_sizes, ..) each layer is one operator (`recurrent.py`)
    x, lengths = pad(y, batch_sizes)            f32[3, u1, 6]

How many sequences there are is the first of the sizes of batches: who reads that gets the number (`Contents.batch_in`).
What ATen refuses (lengths that are not sorted, or longer than `x`) is a check of contents that is assumed to hold; the
call runs eagerly where it does not.

What is captured has no memory to read, and ATen reads. So other calls are a break, and run natively between the graphs:
those of sequences that were packed outside, and on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.capture.record.recurrent import are_layers, parameters_fit, refuse_written, run_layers
from lampwork.fakes.shapes import Spec, contiguous
from lampwork.fakes.strides import surely_same
from lampwork.fakes.symbolic import size_of

_PACK, _PAD = _torch.PACKING

#: Which argument holds the sizes of batches; where that is no tensor, it is the call of a sequence that is not packed.
#: `lstm(data, batch_sizes, states, ...)`, but `lstm(x, states, ...)`; `gru(data, batch_sizes, state, params, ...)`, but
#: `gru(x, state, params, ...)`.
_LAYERS = {torch.lstm: 1, torch.gru: 2, torch.rnn_tanh: 2, torch.rnn_relu: 2}


def _refused(native: Any) -> Break:
    reason = f"torch.{native.__name__} reads the sizes of a packed sequence's batches"
    return Break("operator-error", f"{reason}, which have no contents while the program is being captured")


def _is_followed(world: Any, tensors: Any) -> bool:
    """Whether operators of ours do what ATen's do with these."""
    if not all(type(each) is Fake and each.is_cpu for each in tensors) or not world.recorder.contents.allowed:
        return False
    transforms = _torch.active_transforms() or world.process.dual_levels
    return not transforms and not torch.is_autocast_enabled("cpu")


def _pack(world: Any, x: Any = None, lengths: Any = None, batch_first: Any = False) -> Any:
    recorder = world.recorder
    if not _is_followed(world, (x, lengths)) or type(batch_first) is not bool:
        raise _refused(_PACK)
    if x.dim() < 2 or lengths.dim() != 1 or lengths.dtype is not torch.int64 or x.is_complex():
        raise _refused(_PACK)
    batch, time = x.size(0 if batch_first else 1), x.size(1 if batch_first else 0)
    if lengths.size(0) != batch or not all(size > 0 for size in x.size()):
        raise _refused(_PACK)
    known = recorder.constants.exact_value(recorder.node_of(lengths))
    if known is not None and type(time) is int:
        plain = known.tolist()
        if plain != sorted(plain, reverse=True) or plain[-1] <= 0 or plain[0] > time:
            raise _refused(_PACK)
        steps, total = plain[0], sum(plain)
    else:
        _assume_lengths(recorder, lengths, batch, time)
        steps, total = _found(recorder, batch, time)
    shape = (total, *x.size()[2:])
    specs = Spec(shape, contiguous(shape), x.dtype), Spec((steps,), (1,), torch.int64)
    data, batch_sizes = _Pack.apply(recorder, torch.is_grad_enabled(), x, lengths, batch_first, specs)
    recorder.contents.batches[recorder.node_of(batch_sizes)] = batch, total
    return data, batch_sizes


def _found(recorder: Any, batch: Any, time: Any) -> tuple[Any, Any]:
    """The length of the longest sequence, and how many steps they all have: what lengths decide."""
    contents, sizes = recorder.contents, recorder.sizes
    steps = contents.size(time, 1)
    if type(time) is not int:
        sizes.at_most(size_of(steps), size_of(time))
    is_known = type(batch) is int and type(time) is int
    return steps, contents.size(batch * time if is_known else None, batch if type(batch) is int else 1)


def _assume_lengths(recorder: Any, lengths: Any, batch: Any, time: Any) -> None:
    """Records checks of what ATen refuses."""
    with torch.no_grad():
        last = lengths.narrow(0, batch - 1, 1)
        fits = torch.logical_and(torch.gt(last, 0).all(), torch.le(lengths.narrow(0, 0, 1), time).all())
        if type(batch) is not int or batch > 1:
            before, after = lengths.narrow(0, 0, batch - 1), lengths.narrow(0, 1, batch - 1)
            fits = torch.logical_and(fits, torch.ge(before, after).all())
        _torch.assert_async(fits, "lengths of sequences do not decrease, or do not fit")


def _batch(world: Any, batch_sizes: Any) -> tuple[Any, Any]:
    """How many sequences a batch has that the program packed, and how many steps in all; None where nothing is
    known."""
    recorder = world.recorder
    if type(batch_sizes) is not Fake or _torch.storage_key(batch_sizes) in recorder.written:
        return None, None
    return recorder.contents.batches.get(recorder.node_of(batch_sizes), (None, None))


def _pad(
    world: Any, data: Any = None, batch_sizes: Any = None, batch_first: Any = False, padding_value: Any = 0.0,
    total_length: Any = None,
) -> Any:  # fmt: skip
    batch, total = _batch(world, batch_sizes)
    if batch is None or not _is_followed(world, (data, batch_sizes)) or type(batch_first) is not bool:
        raise _refused(_PAD)
    if type(padding_value) not in (int, float) or type(total_length) not in (int, torch.SymInt) or data.is_complex():
        raise _refused(_PAD)
    if not surely_same(data.size()[:1], (total,)) or total_length < batch_sizes.size(0):
        raise _refused(_PAD)
    length = None if surely_same((total_length,), batch_sizes.size()) else total_length
    grad = torch.is_grad_enabled()
    return _Pad.apply(world.recorder, grad, data, batch_sizes, batch_first, padding_value, length, batch)


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorder: Any, grad: bool, x: Any, lengths: Any, batch_first: bool, specs: Any) -> Any:
        pack, *_ = _torch.packing_operators()
        with torch.set_grad_enabled(grad):  # which is noted, for eager to run it again
            data, batch_sizes = recorder.contents.record(pack, (x, lengths, batch_first), {}, specs)
        ctx.mark_non_differentiable(batch_sizes)
        ctx.save_for_backward(batch_sizes)
        ctx.recorder, ctx.batch_first, ctx.size = recorder, batch_first, x.size()[:2]
        return data, batch_sizes

    @staticmethod
    def backward(ctx: Any, tangent: Any, _: Any) -> Any:
        (batch_sizes,) = ctx.saved_tensors
        _refuse_again(ctx.recorder, batch_sizes)
        _, _, backward, _ = _torch.packing_operators()
        batch, length = ctx.size if ctx.batch_first else reversed(ctx.size)
        given = (tangent, batch_sizes, ctx.batch_first, length, batch)
        return None, None, ctx.recorder.call(backward, given, {}), None, None, None


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorder: Any, grad: bool, data: Any, batch_sizes: Any, batch_first: bool, *rest: Any) -> Any:
        _, pad, _, _ = _torch.packing_operators()
        with torch.set_grad_enabled(grad):
            x, lengths = recorder.call(pad, (data, batch_sizes, batch_first, *rest), {})
        ctx.mark_non_differentiable(lengths)
        ctx.save_for_backward(batch_sizes)
        ctx.recorder, ctx.batch_first = recorder, batch_first
        ctx.length, ctx.steps = x.size(int(batch_first)), data.size(0)
        return x, lengths

    @staticmethod
    def backward(ctx: Any, tangent: Any, _: Any) -> Any:
        (batch_sizes,) = ctx.saved_tensors
        _refuse_again(ctx.recorder, batch_sizes)
        *_, backward = _torch.packing_operators()
        given = (tangent, batch_sizes, ctx.batch_first, ctx.length, ctx.steps)
        return None, None, ctx.recorder.call(backward, given, {}), *[None] * 5


def _refuse_again(recorder: Any, batch_sizes: Any) -> None:
    refuse_written(recorder, batch_sizes)
    if torch.is_grad_enabled():
        raise Break("autograd", "gradients of packed sequences are differentiated again")


def _layers(native: Any, place: int) -> Callable:
    """The answer for `native`, whose call is one of a packed sequence where argument `place` is a tensor."""

    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) <= place or type(args[place]) is not Fake or type(args[1]) is not Fake:
            return world.call_native(native, args, kwargs)
        made = _of_packed(world, native.__name__, *args) if len(args) == 9 and not kwargs else None
        if made is None:
            raise _refused(native)
        return made

    return answer


def _of_packed(
    world: Any, kind: str, data: Any, batch_sizes: Any, states: Any, params: Any, biases: Any, layers: Any,
    dropout: Any, train: Any, bidirectional: Any,
) -> Any:  # fmt: skip
    """What the layers return; None where that is not known."""
    states = (states,) if kind != "lstm" else tuple(states) if isinstance(states, (tuple, list)) else ()
    batch, total = _batch(world, batch_sizes)
    if batch is None or not isinstance(params, (tuple, list)) or not world.data.are_data((states, params), {}):
        return None
    if not _is_followed(world, (data, batch_sizes, *states, *params)):
        return None
    if not are_layers(biases, layers, dropout, train, bidirectional):
        return None
    directions = 2 if bidirectional else 1
    if data.dim() != 2 or not surely_same(data.size()[:1], (total,)):
        return None
    if not parameters_fit(kind, data, batch, states, params, layers, directions, biases):
        return None
    rate = dropout if train else 0.0
    return run_layers(world.recorder, kind, data, states, params, biases, layers, rate, directions, batch_sizes)


NATIVES: dict[Any, Answer] = {
    **{layer: _layers(layer, place) for layer, place in _LAYERS.items()},
    _PACK: _pack,
    _PAD: _pad,
}
