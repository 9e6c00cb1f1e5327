"""What an operator's kernel says of a call: its error, or the metadata of its results, on small stand-ins.

    bool[3] // bool[3]   ->  NotImplementedError: "div_floor_cpu" not implemented for 'Bool'

Shape rules and meta kernels leave checks to the kernels (types that have no kernel, sizes that are refused), and differ
from them in corners of layouts. So small calls, which cost microseconds, are made: on tensors with the fakes' metadata,
of ones and, where those are refused, of zeros. Of an elementwise operator on large tensors or symbolic sizes the types
alone are asked for, on tensors that are two long. Another operator on large tensors, or where contents decide sizes, is
asked whether it has a kernel for the types, on tensors whose sizes are cut, and for the layouts and types of results
where those of its operands are unusual, on reduced ones (`stand_ins.py`). On symbolic sizes it is asked at those of
the call that is captured: for types, for the order of dimensions in memory, and for errors: those of types, and all
where a tensor has no elements, as compiled programs do not call ATen then. Other calls are left to their rules.

Kernels for a GPU are asked in the same way, on stand-ins on that GPU. They check indices by assertions, and one that
fails ends the process's use of the GPU: operators that read indices are not asked there, but for indexing itself, where
all stand-ins are zeros. It lays out what has no elements as it does on a CPU, which is asked instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from lampwork import _torch
from lampwork.errors import GraphBreak
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.stand_ins import (
    KEPT,
    CannotAsk,
    Layout,
    Reduced,
    TooLarge,
    Whole,
    cut,
    fakes_in,
    key_of,
    seen,
    stand_in,
)
from lampwork.fakes.strides import contiguous, permuted, surely_same

#: Calls with storages or results of more elements are not made.
LARGEST = 1 << 12
#: What an operator is called that reads whole numbers as places, classes or lengths.
_READS_INDICES = (
    "index", "gather", "scatter", "take", "put", "embedding", "nll", "segment", "hot", "bincount", "unpool",
    "multi_margin", "multilabel", "ctc", "pack", "rnn", "gru", "lstm", "nested", "interleave", "jagged", "hist",
    "sparse", "lu_", "ormqr", "ldl", "_attention",
)  # fmt: skip
_INDEX_TYPES = frozenset({torch.int64, torch.int32})
#: What chooses places by being true there: how many, contents decide.
_MASKS = frozenset({torch.bool, torch.uint8})
#: What an operator is called that is not asked on a GPU: it sets up a library for that, or trusts its operands.
_NOT_ON_A_GPU = (
    "linalg", "cholesky", "triangular", "solve", "inverse", "det", "svd", "eig", "qr", "fractional", "fused", "cudnn",
    "_attention",
)  # fmt: skip
#: Operators that are laid out as on a CPU where a tensor has no elements.
_NOTHING_AS_ON_A_CPU = ("aten::index", "aten::_unsafe_index")
#: Operators that are elementwise without a tag that says so.
_ELEMENTWISE = frozenset({
    "aten::floor_divide", "aten::rsub", "aten::hardswish", "aten::masked_fill", "aten::mse_loss_backward",
    "aten::smooth_l1_loss_backward", "aten::huber_loss_backward", "aten::binary_cross_entropy_backward",
})  # fmt: skip
#: Numbers in a list may be the sizes of a result: where their product is larger, no call is made with cut sizes.
_LARGEST_LISTED = 1 << 12
#: What sizes of a large call are cut to, one after the other while the kernel refuses them.
_CUTS = (2, 3, 8)
#: What an operator is called that is not asked with sizes that are cut: some trust that sizes and numbers fit.
_NOT_CUT = (
    "_backward", "fft", "fbgemm", "mkldnn", "cudnn", "miopen", "quantize", "pack", "choose_qparams", "diag",
)  # fmt: skip
#: Private operators of PyTorch that check their sizes. Other private ones are not asked with cut sizes.
_PRIVATE_BUT_CHECKED = (
    "aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax", "aten::_adaptive_avg_pool", "aten::_upsample",
    "aten::_prelu_kernel", "aten::_cdist_forward", "aten::_trilinear",
)  # fmt: skip
#: Operators whose results are row-major, whatever the layout of their operands.
_IN_ORDER = frozenset({"aten::mm", "aten::addmm", "aten::bmm"})
#: Types that nearly all kernels know.
_USUAL_TYPES = {
    "cpu": frozenset({torch.float32, torch.float64, torch.bfloat16}),
    "cuda": frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16}),
}
#: What errors say that are of types.
_OF_TYPES = ("dtype", "scalar type")
#: What errors that kernels raised have among their attributes.
_REFUSED = "lampwork_refused"
#: What calls gave that no kernel refused, by operator and metadata; emptied when it is large.
_known: dict[Any, tuple[Any, bool]] = {}
_MOST_KNOWN = 1 << 12


class _Spec(NamedTuple):
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    device: torch.device


def checked(op: Any, args: tuple, kwargs: dict, answer: Callable[[], object]) -> Any:
    """What `answer()`, the rule of `op`, gives, with what the kernel knows better: fakes, or eager's error."""
    if not _may_ask(op):
        return answer()
    try:
        result = answer()
    except GraphBreak:
        raise
    except Exception as error:
        _ask(op, args, kwargs, None)  # whose words are the error's, and whose type
        raise error
    made = _ask(op, args, kwargs, result)
    return result if made is None else made


def refusal(op: _torch.Overload, args: tuple, kwargs: dict) -> Exception | None:
    """The error of a call on tensors of two elements a dimension at most, of ones or of zeros; None where there is
    none, or nothing can stand for an argument. Operators may write in place. On a CPU, where a GPU is not asked.

    Callers keep it, so it has no traceback: that would keep all frames of the capture, and the program's objects."""
    tensors = fakes_in((args, kwargs))
    if not tensors:
        return None
    on_cpu = not all(each.is_cuda for each in tensors) or not _may_ask_a_gpu(op, tensors)
    error: Exception | None = None
    for fill in _fills(op, not on_cpu):
        made: dict[int, torch.Tensor] = {}
        try:
            arguments, named = (stand_in(each, fill, made, cut, on_cpu) for each in (args, kwargs))
        except (RuntimeError, NotImplementedError, TooLarge):
            return None
        try:
            with torch.no_grad(), _torch.below_autograd(), _torch.kernels_only():
                op(*arguments, **named)
        except Exception as raised:
            error = raised.with_traceback(None)
            error.__context__ = None
        else:
            return None
    return error


def _may_ask(op: Any) -> bool:
    found = operator(op)
    return (
        op.namespace in ("aten", "prims")
        and found.kind == "functional"
        and not (found.is_random or found.has_effect)
        # Counted from the beginning of a storage, of which stand-ins have their own part alone.
        and "storage_offset" not in found.positional
    )


def _may_ask_a_gpu(op: Any, tensors: list[Fake]) -> bool:
    if not torch.cuda.is_initialized() or _torch.is_cuda_capturing():
        return False
    name = op._schema.name
    if any(word in name for word in _NOT_ON_A_GPU):
        return False
    if _takes_places(op) and all(each.dtype in _INDEX_TYPES for each in tensors[1:]):
        return not _has_nothing(tensors)
    has_integers = any(not (each.dtype.is_floating_point or each.dtype.is_complex) for each in tensors)
    return _is_elementwise(op) or not (has_integers and any(word in name for word in _READS_INDICES))


def _trusts_places_in_nothing(op: Any, tensors: list[Fake], result: Any) -> bool:
    """Whether it is a derivative that reads places in a tensor that has none: even the first is outside of it. On the
    operands of a call its forward kernel raises; on stand-ins, whose contents are others, it may not."""
    if not op._schema.name.endswith("_backward"):
        return False
    if not any(each.dtype in _INDEX_TYPES and not _has_nothing(each) for each in tensors):
        return False
    return result is None or _has_nothing(result) or _has_nothing(tensors)


def _takes_places(op: Any) -> bool:
    """Whether it is `x[places]`: zeros are places in whatever has elements."""
    return op._schema.name == "aten::index"


def _is_elementwise(op: Any) -> bool:
    return torch.Tag.pointwise in op.tags or op._schema.name in _ELEMENTWISE


def _ask(op: _torch.Overload, args: tuple, kwargs: dict, result: object) -> Any:
    """Fakes that the kernel's results describe, where they differ from `result`; None: nothing is to be said against
    it. Raises what the kernel raises whatever tensors hold."""
    exact, whole = True, Whole(LARGEST)
    symbolic = _has_symbols(args) or _has_symbols(kwargs)
    tensors = fakes_in((args, kwargs))
    on_cpu = any([each.is_cuda for each in tensors]) and not _may_ask_a_gpu(op, tensors)  # noqa: C419  quicker
    if on_cpu and not (op._schema.name in _NOTHING_AS_ON_A_CPU and _has_nothing(tensors)):
        return None
    if _trusts_places_in_nothing(op, tensors, result):
        return None
    try:
        try:
            if symbolic and _is_elementwise(op):
                raise TooLarge
            key = (op, torch.get_default_dtype(), key_of(args, whole.layout), key_of(kwargs, whole.layout))
            if not _is_small(result):
                raise TooLarge
        except TooLarge:
            if not _is_elementwise(op) and not (_takes_places(op) and tensors[0].is_cuda):
                _ask_for_types(op, args, kwargs, tensors)
                return _reduced(op, args, kwargs, tensors, result)
            exact = False
            key = (op, torch.get_default_dtype(), key_of(args, cut), key_of(kwargs, cut))
    except (CannotAsk, TooLarge):
        return None
    found = _known.get(key)
    if found is None:
        try:
            found = _call(op, args, kwargs, whole.layout if exact else cut, tensors[0].device if on_cpu else None)
        except Exception as error:
            sizes_vary = symbolic and exact and not (_has_nothing(args) or _has_nothing(result))
            if sizes_vary and not isinstance(error, NotImplementedError):
                _specialise((args, kwargs))  # other sizes might not get it
            raise
        if found is None:
            return None
        if len(_known) > _MOST_KNOWN:
            _known.clear()
        _known[key] = found
    specs, only_tensors = found
    if not only_tensors:
        return None
    if not exact or symbolic:
        typed = _typed(result, specs)
        if not exact or typed is not None:
            return typed
    if symbolic:
        if _is_nothing_otherwise(result, specs):  # the program is compiled for the sizes of this call alone
            _specialise(tensors)
            return _fakes(specs)
        return _laid_out(result, specs, tensors, whole)
    return None if result is not None and _specs(result) == specs else _fakes(specs)


def _ask_for_types(op: _torch.Overload, args: tuple, kwargs: dict, tensors: list[Fake]) -> None:
    """Raises what the kernel raises of element types that it does not know, whatever the sizes are."""
    if all(each.dtype in _USUAL_TYPES.get(each.device.type, ()) for each in tensors):
        return
    if not _may_change_sizes(op, args, kwargs, tensors):
        return
    try:
        key = (op, "types", key_of(args, cut), key_of(kwargs, cut))
    except (CannotAsk, TooLarge):
        return
    if key in _known:
        return
    for longest in _CUTS:
        made: dict[int, torch.Tensor] = {}
        try:
            layout_of = partial(cut, longest=longest)
            arguments, named = (stand_in(each, torch.ones, made, layout_of) for each in (args, kwargs))
            with torch.no_grad(), _torch.below_autograd(), _torch.kernels_only():
                op(*arguments, **named)
            break
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            if any(word in str(error) for word in ("not implemented for", *_OF_TYPES)):
                error.__dict__[_REFUSED] = True
                raise
            # else it is of the sizes, or may be
    _known[key] = None, False


def _reduced(op: _torch.Overload, args: tuple, kwargs: dict, tensors: list[Fake], result: object) -> Any:
    """Fakes like those in `result`, of the types and with the order of dimensions that the kernel gives reduced
    operands; None where they have those already. It is asked where operands have two types, or are not row-major:
    shape rules and meta kernels agree with kernels elsewhere."""
    try:
        if result is None or (len({each.dtype for each in tensors}) == 1 and _are_in_order(op, tensors)):
            return None
        if not _may_change_sizes(op, args, kwargs, tensors) or _tells_sizes(op, args, kwargs):
            return None
        small = Reduced((*tensors, *fakes_in(result)))
        key = (op, "reduced", torch.get_default_dtype(), key_of(args, small.layout), key_of(kwargs, small.layout))
        found = _known.get(key)
        if found is None:
            try:
                found = _call(op, args, kwargs, small.layout, None)
            except Exception:  # of these sizes, or may be
                found = None
            _known[key] = found = found or (None, False)
        specs, only_tensors = found
        if not only_tensors:
            return None
        typed = _typed(result, specs)
        laid_out = _laid_out(result if typed is None else typed, specs, tensors, small)
        return typed if laid_out is None else laid_out
    except (CannotAsk, TooLarge):
        return None


def _are_in_order(op: _torch.Overload, tensors: list[Fake]) -> bool:
    """Whether the operator's rule knows the layout of results: operands are row-major, or it does not matter."""
    if op._schema.name in _IN_ORDER:
        return True
    return all(seen(each.stride()) == contiguous(seen(each.size())) for each in tensors)


def _may_change_sizes(op: _torch.Overload, args: tuple, kwargs: dict, tensors: list[Fake]) -> bool:
    """Whether the kernel may be called with other sizes: it checks them, whatever numbers it is given."""
    name = op._schema.name
    if any(word in name for word in _NOT_CUT):
        return False
    if name.startswith("aten::_") and not name.startswith(_PRIVATE_BUT_CHECKED):
        return False
    has_integers = not all(each.dtype.is_floating_point or each.dtype.is_complex for each in tensors)
    if has_integers and any(word in name for word in _READS_INDICES):
        return False
    return not any(map(_lists_large_sizes, (*args, kwargs)))


def _tells_sizes(op: _torch.Overload, args: tuple, kwargs: dict) -> bool:
    """Whether a number among the arguments may be a size, or a place, of the large tensors: it would not fit small
    ones, and some kernels trust it."""
    named = [*zip(operator(op).positional, args), *kwargs.items()]
    return any(_holds_large_number(value) for name, value in named if not name.startswith("dim"))


def _holds_large_number(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_large_number, value))
    return type(value) is torch.SymInt or type(value) is int and abs(value) > KEPT


def _lists_large_sizes(value: object) -> bool:
    """Whether the numbers of a list among the arguments might be the sizes of a large result."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        return False
    return math.prod([abs(each) for each in value if type(each) is int and each]) > _LARGEST_LISTED or any(
        map(_lists_large_sizes, value)
    )


def _typed(result: object, specs: object) -> Any:
    """Fakes like those in `result`, of the element types of the kernel's results; None where they are of those."""
    if type(result) is Fake and type(specs) is _Spec:
        if result.dtype == specs.dtype:
            return None
        size, stride = tuple(result.size()), tuple(result.stride())
        return _torch.tensor_without_memory(Fake, size, stride, specs.dtype, result.device)
    return _in_each(_typed, result, specs)


def _laid_out(result: object, specs: object, operands: list[Fake], asked: Whole | Reduced) -> Any:
    """Fakes like those in `result` with dimensions in the order of the kernel's results, or with the strides of an
    operand that has theirs; None where they are that already, or neither explains their strides. `asked`: what stood
    for the operands."""
    if type(result) is Fake and type(specs) is _Spec:
        try:
            size, stride = asked.size(result.size()), asked.stride(result.size(), result.stride())
        except TooLarge:
            return None
        if size != specs.size or stride == specs.stride:
            return None
        # What is one long has the stride of what lies outside of it, or inside of all that has the same stride.
        order = sorted(range(len(size)), key=lambda dim: (-specs.stride[dim], size[dim] == 1))
        strides = permuted(result.size(), order)
        if 0 in size and all([each < 2 for each in specs.stride]):  # noqa: C419  quicker
            strides = specs.stride
        if asked.stride(result.size(), strides) != specs.stride:
            found = [each.stride() for each in operands if _is_laid_out(each, result.size(), specs.stride, asked)]
            if not found:
                return None
            strides = found[0]
        return _torch.tensor_without_memory(Fake, tuple(result.size()), strides, result.dtype, result.device)
    return _in_each(partial(_laid_out, operands=operands, asked=asked), result, specs)


def _is_laid_out(tensor: Fake, size: Sequence[int], stride: tuple[int, ...], asked: Whole | Reduced) -> bool:
    """Whether it has that size in every call, and what stood for it those strides."""
    try:
        return surely_same(tensor.size(), size) and asked.stride(tensor.size(), tensor.stride()) == stride
    except TooLarge:
        return False


def _in_each(made_of: Callable[[object, object], object], result: object, specs: object) -> Any:
    """What `made_of` makes of each result, and others as they are; None where it makes nothing."""
    if isinstance(result, (tuple, list)) and isinstance(specs, (tuple, list)) and len(result) == len(specs):
        made = [made_of(each, spec) for each, spec in zip(result, specs)]
        if any(each is not None for each in made):
            kept = [each if new is None else new for each, new in zip(result, made)]
            return kept if type(result) is list else tuple(kept)
    return None


def _is_nothing_otherwise(result: object, specs: object) -> bool:
    """Whether a result without elements is laid out otherwise than its rule says: no rule follows a kernel there."""
    if type(result) is not Fake or type(specs) is not _Spec or not _has_nothing(result):
        return False
    try:
        return seen(result.stride()) != specs.stride
    except TooLarge:
        return False


def _has_symbols(value: Any) -> bool:
    kind = type(value)
    if kind is Fake:
        return not all([type(each) is int for each in (*value.size(), *value.stride())])  # noqa: C419  quicker
    if kind is tuple or kind is list:
        return any(map(_has_symbols, value))
    return any(map(_has_symbols, value.values())) if kind is dict else kind is torch.SymInt


def _has_nothing(value: object) -> bool:
    """Whether a tensor in it has no elements."""
    if isinstance(value, torch.Tensor):
        return 0 in [each for each in value.size() if type(each) is int]
    return any(map(_has_nothing, value)) if isinstance(value, (tuple, list)) else False


def _specialise(value: Any) -> None:
    """Guards every size among the arguments to be what it is in this call."""
    kind = type(value)
    if kind is Fake:
        _ = [int(each) for each in (*value.size(), *value.stride())]
    elif kind is torch.SymInt:
        int(value)
    elif kind is dict:
        _specialise(list(value.values()))
    elif kind is tuple or kind is list:
        for each in value:
            _specialise(each)


def _is_small(result: object) -> bool:
    if isinstance(result, torch.Tensor):
        return math.prod(seen(result.size())) <= LARGEST
    return all(map(_is_small, result)) if isinstance(result, (tuple, list)) else True


def _call(
    op: Any, args: tuple, kwargs: dict, layout_of: Callable[[Fake], Layout], instead_of: torch.device | None
) -> tuple[Any, bool] | None:
    """Specs of what the kernel returns, and whether fakes can be made of them; None where it may depend on contents.
    The kernel is that for a CPU where one is asked instead of a device."""
    on_cpu = instead_of is not None
    error: Exception | None = None
    for fill in _fills(op, not on_cpu and any(each.is_cuda for each in fakes_in((args, kwargs)))):
        made: dict[int, torch.Tensor] = {}
        try:
            arguments, named = (stand_in(each, fill, made, layout_of, on_cpu) for each in (args, kwargs))
        except (RuntimeError, NotImplementedError):
            return None
        if not made:
            return None
        try:
            with torch.no_grad(), _torch.below_autograd(), _torch.kernels_only():
                results = op(*arguments, **named)
        except torch.linalg.LinAlgError:
            return None
        except Exception as raised:
            if error is not None and type(error) is not type(raised):
                return None
            error = raised
        else:
            return _specs(results, instead_of), _only_tensors(results)
    assert error is not None
    _raise_if_certain(op, error, list(made.values()))
    return None


def _fills(op: _torch.Overload, on_a_gpu: bool = False) -> tuple[Callable, ...]:
    """What stand-ins are made by, one after the other while a call is refused.

    Whole numbers may be places in other tensors, which derivatives trust as the forward kernel gave them: no place but
    the first is sure to be there. LAPACK counts pivots from 1, and writes outside of memory for a pivot of 0.
    """
    if any("pivots" in name for name in operator(op).positional):
        return (torch.ones,)
    if _is_elementwise(op):
        return torch.ones, torch.zeros
    if on_a_gpu and _takes_places(op):
        return (torch.zeros,)
    if op._schema.name.endswith("_backward"):
        return partial(_filled, 1, 0), torch.zeros
    return partial(_filled, 1, 0), partial(_filled, 0, 1)


def _filled(number: int, whole: int, size: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.Tensor:
    return torch.full(
        size if isinstance(size, tuple) else (size,),
        whole if dtype in _INDEX_TYPES else number,
        dtype=dtype,
        device=device,
    )


def _raise_if_certain(op: _torch.Overload, error: Exception, tensors: list[torch.Tensor]) -> None:
    """Raises it unless other contents, of indices and lengths, might be accepted."""
    certain = (
        isinstance(error, (NotImplementedError, TypeError))
        or _is_elementwise(op)
        or any(each.numel() == 0 for each in tensors)
        or not any(each.dtype in _INDEX_TYPES or each.dtype in _MASKS for each in tensors)
        or not any(word in op._schema.name for word in _READS_INDICES)
        or any(word in str(error) for word in _OF_TYPES)
    )
    if certain:
        error.__dict__[_REFUSED] = True
        raise error


def is_refusal(error: BaseException | None) -> bool:
    """Whether a kernel raised it for a call of the program's, as it will when the call is made."""
    return error is not None and _REFUSED in error.__dict__


def _specs(value: object, device: torch.device | None = None) -> Any:
    """Dtype, sizes and strides of each tensor, said to be on a device; containers as lists and tuples."""
    if isinstance(value, torch.Tensor):
        return _Spec(value.dtype, tuple(value.size()), tuple(value.stride()), device or value.device)
    if isinstance(value, (tuple, list)):
        return (list if type(value) is list else tuple)([_specs(each, device) for each in value])
    return None


def _only_tensors(value: object) -> bool:
    """Whether fakes can be made of its specs; what a derivative was not asked for is None."""
    if value is None:
        return True
    if isinstance(value, torch.Tensor):
        return value.layout is torch.strided and not (value.is_conj() or value.is_neg() or value.is_quantized)
    return isinstance(value, (tuple, list)) and all(map(_only_tensors, value))


def _fakes(specs: Any) -> Any:
    if specs is None:
        return None
    if type(specs) is _Spec:
        return _torch.tensor_without_memory(Fake, specs.size, specs.stride, specs.dtype, specs.device)
    return type(specs)([_fakes(each) for each in specs])
