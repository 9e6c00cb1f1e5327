"""Functions that ask for every size as a number, on symbolic sizes: in terms of operators that take them.

    max_pool1d(x[s0, 4, s1], 2)             ->    max_pool2d(x as [s0, 4, 1, s1], (1, 2)) as [s0, 4, s1 // 2]
    avg_pool2d(x[s0, 4, s1, s2], (s1, s2))  ->    mean(x, (2, 3)) as [s0, 4, 1, 1]
    stft(x[s0, s1], 16, 4, return_complex)  ->    rfft(windows of 16 of x, 4 apart).transpose(1, 2)

PyTorch writes them in C++ in terms of others, and asks for the numbers on the way: that would specialise all sizes, and
each new size would be compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from lampwork.capture.record.resampling import interpolate
from lampwork.fakes.strides import contiguous, overlap, surely_same
from lampwork.fakes.symbolic import by_contents

if TYPE_CHECKING:
    from lampwork.capture.record.recorder import Recorder

aten = torch.ops.aten


def called(recorder: Recorder, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What `function` gives; NotImplemented where it should be called itself: it is another one, no size is symbolic,
    in cases that are not written here, and to word errors."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.Tensor):  # a bound method
        function, args = getattr(torch.Tensor, function.__name__, None), (owner, *args)
    equivalent = partial(_linspace, recorder) if function is torch.linspace else _EQUIVALENTS.get(function)
    if equivalent is None or kwargs.get("out") is not None or not any(map(_has_symbols, (*args, *kwargs.values()))):
        return NotImplemented
    if recorder.exact and function in _OTHER_BITS:
        return NotImplemented
    try:
        return equivalent(*args, **kwargs)
    except TypeError:  # a spelling of the arguments that only PyTorch's parser knows
        return NotImplemented


def with_known_sizes(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    """What `function` gives, of tensors with the sizes that they have now where it trips over symbols: native code that
    counts elements asks nobody."""
    try:
        return function(*args, **kwargs)
    except RuntimeError as error:
        if "on tensor with symbolic sizes/strides" not in str(error):
            raise
        try:
            known = _known(args), _known(kwargs)
        except LookupError:
            raise error from None
    return function(*known[0], **known[1])


def _known(value: Any) -> Any:
    """Raises LookupError for a tensor that cannot be had with numbers: see below."""
    if isinstance(value, torch.Tensor) and _has_symbols(value):
        sizes = [int(each) for each in value.size()]
        view = value.view(sizes)
        if not _has_symbols(view):
            return view
        strides = [int(each) for each in value.stride()]
        if overlap(sizes, strides):  # the derivative of `as_strided` is the mean of what shares memory
            raise LookupError("elements share memory, and strides are symbols")
        return value.as_strided(sizes, strides)
    if isinstance(value, dict):
        return {name: _known(each) for name, each in value.items()}
    return type(value)(map(_known, value)) if type(value) in (tuple, list) else value


def _has_symbols(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return any(type(each) is torch.SymInt for each in (*value.size(), *value.stride()))
    return type(value) is torch.SymInt or isinstance(value, (tuple, list)) and any(map(_has_symbols, value))


def _number(value: Any) -> Any:
    """The only number of a list of one, as operators on signals take them."""
    return value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value


def _linspace(recorder: Recorder, start: Any, end: Any, steps: Any, **options: Any) -> Any:
    """Recorded here, since PyTorch's own parser makes a number of the steps before the operator is called."""
    numbers = type(start) in _NUMBERS and type(end) in _NUMBERS
    if not numbers or type(steps) is not torch.SymInt or options.keys() - {"dtype", "device"} or steps < 2:
        return NotImplemented
    named = {name: value for name, value in options.items() if value is not None}
    if "device" in named:
        named["device"] = torch.device(named["device"])
    return recorder.call(aten.linspace.default, (start, end, steps), named)


_NUMBERS = frozenset({int, float})


def _pools_all(dims: int, average: bool, otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A pool over `dims` dimensions, of windows that are as large as what they are in: a reduction, as pools take
    numbers for their windows. Nothing that is differentiated: a pool saves what it is given, which a reduction does
    not, and nobody would notice that it was written to meanwhile."""

    def pool(
        input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *others: Any, **named: Any
    ) -> Any:
        sizes = tuple(input.shape[-dims:])
        whole = kernel_size if isinstance(kernel_size, (tuple, list)) else (kernel_size,) * dims
        one_window = stride is None or isinstance(stride, (tuple, list)) and not stride
        usual = one_window and padding in (0, (0,) * dims, [0] * dims) and not others and not named
        differentiated = torch.is_grad_enabled() and input.requires_grad
        if usual and not differentiated and input.dim() == dims + 2 and _is_plain(input) and _is_all(whole, sizes):
            reduce: Any = torch.mean if average else torch.amax
            return reduce(input, tuple(range(-dims, 0)), keepdim=True)
        return otherwise(input, kernel_size, stride, padding, *others, **named) if otherwise else NotImplemented

    return pool


def _is_all(window: Any, sizes: tuple[Any, ...]) -> bool:
    """Whether a window has these sizes in every call. Of sizes that contents decide nobody knows that there are any."""
    return surely_same(tuple(window), sizes) and not any(map(by_contents, sizes))


def _is_plain(input: torch.Tensor) -> bool:
    """Whether all kernels lay their results out in the same way: strides of dimensions of size 1 make a difference."""
    return input.is_floating_point() and surely_same(input.stride(), contiguous(input.size()))


def _max_pool1d(
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    stride = kernel_size if stride is None or stride == [] else stride
    numbers = [_number(each) for each in (kernel_size, stride, padding, dilation)]
    if return_indices or input.dim() not in (2, 3) or not _is_plain(input):
        return NotImplemented
    if not all(type(each) is int for each in numbers) or min(numbers[0], numbers[1], numbers[3]) < 1:
        return NotImplemented
    kernel, step, pad, apart = numbers
    if not 0 <= pad <= kernel // 2:
        return NotImplemented
    image = input.unsqueeze(-2) if input.dim() == 3 else input.unsqueeze(0).unsqueeze(-2)
    pooled = F.max_pool2d(image, (1, kernel), (1, step), (0, pad), (1, apart), ceil_mode).squeeze(-2)
    return pooled if input.dim() == 3 else pooled.squeeze(0)


def _cov(input: torch.Tensor, *, correction: int = 1, fweights: object = None, aweights: object = None) -> Any:
    if fweights is not None or aweights is not None or not 1 <= input.dim() <= 2 or input.dtype == torch.bool:
        return NotImplemented
    rows = input if input.dim() == 2 else input.unsqueeze(0)
    count = rows.size(1)
    if count - correction < 1:
        return NotImplemented
    centred = rows - (rows.sum(1) / count).unsqueeze(1)
    return torch.true_divide(torch.mm(centred, centred.t().conj()), count - correction).squeeze()


def _corrcoef(input: torch.Tensor) -> Any:
    found = _cov(input) if input.dim() == 2 and input.is_floating_point() else NotImplemented
    if found is NotImplemented or found.dim() != 2:
        return NotImplemented
    deviations = found.diag().sqrt()
    return (found / deviations.view(-1, 1) / deviations.view(1, -1)).clamp(-1, 1)


def _stft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """Of real signals, as complex numbers."""
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    if not return_complex or not input.is_floating_point() or input.dim() not in (1, 2) or align_to_window is not None:
        return NotImplemented
    if not 0 < win_length <= n_fft or hop_length < 1:
        return NotImplemented
    if window is not None and (not window.is_floating_point() or window.dim() != 1 or window.size(0) != win_length):
        return NotImplemented
    signal: Any = input if input.dim() == 2 else input.unsqueeze(0)
    if center:
        signal = F.pad(signal.unsqueeze(0), (n_fft // 2, n_fft // 2), pad_mode).squeeze(0)
    if signal.size(1) < n_fft:
        return NotImplemented
    if win_length < n_fft:
        if window is None:
            window = torch.ones(win_length, dtype=input.dtype, device=input.device)
        left = (n_fft - win_length) // 2
        window = F.pad(window, (left, n_fft - win_length - left))
    frames = signal.unfold(-1, n_fft, hop_length)
    if window is not None:
        frames = frames * window
    transform = torch.fft.fft if onesided is False else torch.fft.rfft
    found = transform(frames, dim=-1, norm="ortho" if normalized else None).transpose(1, 2)
    return found if input.dim() == 2 else found.squeeze(0)


_METHODS: Any = torch.Tensor
_EQUIVALENTS: dict[Any, Callable[..., Any]] = {
    F.interpolate: interpolate,
    F.max_pool1d: _pools_all(1, average=False, otherwise=_max_pool1d),
    torch.max_pool1d: _pools_all(1, average=False, otherwise=_max_pool1d),
    F.max_pool2d: _pools_all(2, average=False),
    F.max_pool3d: _pools_all(3, average=False),
    F.avg_pool1d: _pools_all(1, average=True),
    F.avg_pool2d: _pools_all(2, average=True),
    F.avg_pool3d: _pools_all(3, average=True),
    torch.cov: _cov,
    _METHODS.cov: _cov,
    torch.corrcoef: _corrcoef,
    _METHODS.corrcoef: _corrcoef,
    torch.stft: _stft,
    _METHODS.stft: _stft,
}
#: Those of them whose bits may differ from eager's: sums in another order, and which of two zeros is the larger.
_OTHER_BITS = frozenset({
    F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.max_pool1d, F.max_pool2d, F.max_pool3d, torch.max_pool1d,
    torch.cov, _METHODS.cov, torch.corrcoef, _METHODS.corrcoef,
})  # fmt: skip
