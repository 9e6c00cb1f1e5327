"""State of the process and the thread that programs read (`ir.source.State`), and its setters for `SetState`."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from lampwork._torch.modes import active_modes
from lampwork._torch.private import private


def anomaly_state() -> int:
    """Whether the engine is watched (1), and whether it looks for NaN as well (2)."""
    return 1 + torch.is_anomaly_check_nan_enabled() if torch.is_anomaly_enabled() else 0


def autocast_state() -> tuple:
    """`((device, enabled, dtype), ..., cache enabled)` for the devices whose autocast this process can switch."""
    return (
        ("cpu", torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        ("cuda", torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")),
        torch.is_autocast_cache_enabled(),
    )


def in_this_state(function: Callable[[], None]) -> Callable[[], None]:
    """`function`, which another thread may call as if it were this one: gradients, inference mode, autocast and context
    variables are there as they are here now. Other state of the thread (`threading.local`) is not."""
    gradients, inference, autocast = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast_state()
    variables = contextvars.copy_context()

    def run() -> None:
        before = autocast_state()
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            _set_autocast(autocast)
            try:
                function()
            finally:
                _set_autocast(before)

    return lambda: variables.run(run)


def working_directory() -> str:
    """Where the process works; empty where that folder is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def deterministic_state() -> tuple[bool, bool, bool]:
    """(deterministic algorithms, warn only, fill uninitialized memory).

    The others mean nothing while the first is off.
    """
    if not torch._C._get_deterministic_algorithms():
        return (False, False, False)
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


#: The kinds of fused attention by which `sdpa_kernel` names them: constants.
AttentionBackend = private("_C._SDPBackend")


def attention_state() -> tuple[bool, ...]:
    """Which fused attention implementations may be chosen (flash, memory efficient, math, cudnn)."""
    return (
        torch._C._get_flash_sdp_enabled(),
        torch._C._get_mem_efficient_sdp_enabled(),
        torch._C._get_math_sdp_enabled(),
        torch._C._get_cudnn_sdp_enabled(),
    )


def current_cuda_device() -> int:
    """What `torch.cuda.current_device()` answers, without starting CUDA in a process that has not (then 0)."""
    return torch._C._cuda_getDevice() if torch.cuda.is_initialized() else 0


def cuda_state() -> tuple:
    """What recording a program on CUDA tensors depends on beside the tensors.

    (current device, cuDNN enabled, cuDNN deterministic, order in which attention implementations are tried). The
    switches for TF32 and reduced precision are not among them: the recorded operators read those whenever they run.
    """
    c = torch._C
    order = tuple(c._get_sdp_priority_order())
    return (current_cuda_device(), c._get_cudnn_enabled(), c._get_cudnn_deterministic(), order)


#: Switches of CUDA's libraries and of oneDNN that a program may read, by the native function that reads each.
CUDA_SWITCHES: tuple[Any, ...] = tuple(
    getattr(torch._C, name)
    for name in (
        "_get_cublas_allow_tf32", "_get_cublas_allow_fp16_reduced_precision_reduction",
        "_get_cublas_allow_bf16_reduced_precision_reduction", "_get_cublas_allow_fp16_accumulation",
        "_get_cudnn_allow_tf32", "_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic",
        "_get_mkldnn_enabled",
    )
    if hasattr(torch._C, name)
)  # fmt: skip


def cuda_switches() -> tuple:
    """The answers of `CUDA_SWITCHES`. Those that newer interfaces replaced raise when both were used: that is told."""
    return tuple(repr(_answer(reader)) for reader in CUDA_SWITCHES)


#: Switches of cuDNN that a program may set for a while: (reader, writer) of those that this build has.
_CUDNN: tuple[tuple[Callable[[], Any], Callable[[Any], None]], ...] = tuple(
    (getattr(torch._C, reader), getattr(torch._C, reader.replace("_get_", "_set_")))
    for reader in (
        "_get_cudnn_enabled", "_get_cudnn_benchmark", "_cuda_get_cudnn_benchmark_limit", "_get_cudnn_deterministic",
        "_get_cudnn_depthwise_kernel",
    )
    if hasattr(torch._C, reader)
)  # fmt: skip
CUDNN_READERS: tuple[Any, ...] = tuple(reader for reader, _ in _CUDNN)
CUDNN_WRITERS: tuple[Any, ...] = tuple(writer for _, writer in _CUDNN)


def cudnn_state() -> tuple:
    """The answers of `CUDNN_READERS`."""
    return tuple(reader() for reader in CUDNN_READERS)


def _set_cudnn(state: tuple) -> None:
    for writer, value in zip(CUDNN_WRITERS, state):
        writer(value)


#: How a library computes float32, by library and operator: what reads it and what sets it, where this release has them
#: (and all of those pairs).
get_precision: Any = getattr(torch._C, "_get_fp32_precision_getter", None)
set_precision: Any = getattr(torch._C, "_set_fp32_precision_setter", None)
#: The older switch for cuDNN, which sets two of those precisions.
get_cudnn_tf32: Any = private("_C._get_cudnn_allow_tf32")
set_cudnn_tf32: Any = private("_C._set_cudnn_allow_tf32")
_PRECISIONS = (
    ("generic", "all"),
    *((library, operator) for library in ("cuda", "mkldnn") for operator in ("all", "matmul", "conv", "rnn")),
)


def precision_state() -> tuple:
    """How each library computes float32, and what the older switch for cuDNN says of it."""
    if get_precision is None:
        return (repr(_answer(get_cudnn_tf32)),)
    return (*[_answer(functools.partial(get_precision, *each)) for each in _PRECISIONS], repr(_answer(get_cudnn_tf32)))


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """Products of float32 are computed in float32, without TF32, in the block: what is computed there is a reference.

    The switches are set as the program set them, by the older or by the newer interface: those of the older one raise
    where the newer one was used. Set past `torch.backends`, which may be frozen (`disable_global_flags`).
    """
    c = torch._C
    switches: list[tuple[Callable[[], Any], Callable[[Any], Any], Any]] = [
        (c._get_cublas_allow_tf32, c._set_cublas_allow_tf32, False),
        (get_cudnn_tf32, set_cudnn_tf32, False),
    ]
    try:
        before = [get() for get, _, _ in switches]
    except RuntimeError:
        switches = [
            (functools.partial(get_precision, "cuda", each), functools.partial(set_precision, "cuda", each), "ieee")
            for each in ("matmul", "conv", "rnn")
        ]
        before = [get() for get, _, _ in switches]
    for _, set_, exact in switches:
        set_(exact)
    try:
        yield
    finally:
        for (_, set_, _), value in zip(switches, before):
            set_(value)


def _set_precision_again(values: tuple) -> None:
    set_precision(*values)


def attention_order() -> tuple[int, ...]:
    """In which order implementations of attention are tried."""
    return tuple(torch._C._get_sdp_priority_order())


def _set_attention_order(order: tuple[int, ...]) -> None:
    torch._C._set_sdp_priority_order(list(order))


def _answer(reader: Callable[[], object]) -> Any:
    try:
        return reader()
    except RuntimeError:
        return "mixed"


@functools.cache
def hardware() -> tuple[bool, int]:
    """Whether PyTorch sees GPUs, and how many: the environment of a process decides it."""
    return torch.cuda.is_available(), torch.cuda.device_count()


#: Known to this process, and to those that it forks.
_THIS_PROCESS = os.urandom(8)

#: name -> reader. Every value is in the domain of `ir.guard.Equals`.
STATE: dict[str, Callable[[], Any]] = {
    "grad_mode": torch.is_grad_enabled,
    "inference_mode": torch.is_inference_mode_enabled,
    "autocast": autocast_state,
    "default_dtype": torch.get_default_dtype,
    "deterministic": deterministic_state,
    "num_threads": torch.get_num_threads,
    "attention": attention_state,
    "float32_matmul_precision": torch.get_float32_matmul_precision,
    "modes": active_modes,
    "anomaly": anomaly_state,
    "torch_function": private("_C._is_torch_function_enabled"),
    "cuda": lambda: cuda_state(),
    "cuda_switches": lambda: cuda_switches(),
    "cudnn": cudnn_state,
    "precision": precision_state,
    "attention_order": attention_order,
    "hardware": hardware,
    "recursion_limit": sys.getrecursionlimit,
    "working_directory": working_directory,
    "collector": gc.isenabled,
    # An error that is raised meanwhile has the one that is handled as its context.
    "exception_handled": lambda: sys.exception() is not None,
    "text_hashes": lambda: hash("text"),
    "addresses": lambda: _THIS_PROCESS,
}


def state_test(name: str, expected: Any) -> tuple[str, dict[str, object]] | None:
    """A condition that is true when `STATE[name]()` differs from `expected`, and the names it uses; None: call `STATE`.

    The same answers as reading the state and comparing, in a fifth of the time.
    """
    c = torch._C
    if name == "autocast" and not any(enabled for _, enabled, _ in expected[:-1]):
        names = {"any_autocast": c._is_any_autocast_enabled, "autocast_dtype": torch.get_autocast_dtype}
        tests = ["any_autocast()"]
        for device, _, dtype in expected[:-1]:
            names[f"autocast_{device}"] = dtype
            tests.append(f"autocast_dtype({device!r}) is not autocast_{device}")
        names["autocast_cache"] = torch.is_autocast_cache_enabled
        tests.append(f"autocast_cache() is not {expected[-1]}")
        return " or ".join(tests), names
    if name == "deterministic" and not expected[0]:
        return "deterministic()", {"deterministic": c._get_deterministic_algorithms}
    if name == "attention":
        readers = (
            c._get_flash_sdp_enabled,
            c._get_mem_efficient_sdp_enabled,
            c._get_math_sdp_enabled,
            c._get_cudnn_sdp_enabled,
        )
        names = {f"attention_{index}": reader for index, reader in enumerate(readers)}
        return " or ".join(f"{each}() is not {value}" for each, value in zip(names, expected)), names
    if name == "cuda":
        device, enabled, deterministic, order = expected
        names = {
            "cuda_device": c._cuda_getDevice if torch.cuda.is_initialized() else current_cuda_device,
            "cudnn": c._get_cudnn_enabled, "cudnn_deterministic": c._get_cudnn_deterministic,
            "attention_order": c._get_sdp_priority_order,
        }  # fmt: skip
        test = f"cuda_device() != {device} or cudnn() is not {enabled} or cudnn_deterministic() is not {deterministic}"
        return f"{test} or attention_order() != {list(order)}", names
    if name == "modes" and expected == 0:
        names = {
            "function_modes": c._len_torch_function_stack, "dispatch_modes": c._len_torch_dispatch_stack,
            "transforms": c._functorch.peek_interpreter_stack, "forward_derivatives": torch.autograd.forward_ad,
            "traced": c._get_tracing_state,
        }  # fmt: skip
        test = "function_modes() or dispatch_modes() or transforms() is not None or traced() is not None"
        return test + " or forward_derivatives._current_level >= 0", names
    if name == "exception_handled":
        return f"exception() is {'' if expected else 'not '}None", {"exception": sys.exception}
    return None


def _set_autocast(value: tuple) -> None:
    for device, enabled, dtype in value[:-1]:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(value[-1])


def autocast_nesting() -> int:
    """In how many `torch.autocast` contexts this thread is: who leaves the last one empties their cache of casts."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _change_autocast_nesting(change: tuple[int, int, bool]) -> None:
    """Leaves contexts down to `lowest` (relative to now), enters some up to `depth`. Eager code between two parts of a
    program casts weights, and what it keeps of that is for as long as these contexts last: the weights change."""
    lowest, depth, cleared = change
    if cleared:
        torch.clear_autocast_cache()
    for _ in range(-lowest):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
    for _ in range(depth - lowest):
        torch.autocast_increment_nesting()


def _set_deterministic(value: tuple[bool, bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])
    torch.utils.deterministic.fill_uninitialized_memory = value[2]


def _set_attention(state: tuple[bool, ...]) -> None:
    torch._C._set_sdp_use_flash(state[0])
    torch._C._set_sdp_use_mem_efficient(state[1])
    torch._C._set_sdp_use_math(state[2])
    torch._C._set_sdp_use_cudnn(state[3])


def _forget_warnings_shown(_: None) -> None:
    """What every change of the warning filters does: places that warned once may warn again."""
    with warnings.catch_warnings():
        pass


SET_STATE: dict[str, Callable[[Any], None]] = {
    "attention": _set_attention,
    "grad_mode": private("_C._set_grad_enabled"),
    "autocast": _set_autocast,
    "autocast_nesting": _change_autocast_nesting,
    "default_dtype": torch.set_default_dtype,
    "deterministic": _set_deterministic,
    "num_threads": torch.set_num_threads,
    "float32_matmul_precision": torch.set_float32_matmul_precision,
    "warning_filters": _forget_warnings_shown,
    "cudnn": _set_cudnn,
    "precision": _set_precision_again,
    "cudnn_tf32": set_cudnn_tf32,
    "attention_order": _set_attention_order,
}


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Autocast is off in this thread: backward passes run without it."""
    before = autocast_state()
    try:
        for device, _, _ in before[:-1]:
            torch.set_autocast_enabled(device, False)
        yield
    finally:
        _set_autocast(before)


def is_default_generator(generator: torch.Generator) -> bool:
    """Whether operators that are given no generator draw from this one."""
    return generator is torch.default_generator or generator in torch.cuda.default_generators
