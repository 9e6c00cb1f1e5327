"""Every use of PyTorch's private names, so that a new release breaks one file.

Each function says which private name it leans on and what would replace it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import operator as _operator
import re
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._ops import OpOverload
from torch.fx.node import Node

# Tensors without memory ---------------------------------------------------------------------------


def tensor_without_memory(
    cls: type,
    shape: tuple,
    strides: tuple | None,
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool = False,
    offset: Any = None,
) -> torch.Tensor:
    """A tensor of subclass `cls` on `device` whose storage has a size but no memory (`Tensor._make_wrapper_subclass`).

    Sizes, strides and `offset` may be `torch.SymInt`. Costs 2 us. Kernels must never run on it; views of it are exact,
    because view kernels only compute metadata.
    """
    made = torch.Tensor._make_wrapper_subclass(
        cls, shape, strides, offset, None, dtype, torch.strided, device, False, requires_grad
    )
    for size in shape:
        if type(size) is torch.SymInt:
            made.lampwork_storage = MemoryName()  # its storage has a symbolic size and refuses to be looked at
            break
    return made


class MemoryName:
    """Stands for the storage of tensors whose storage cannot be named."""

    @property
    def _cdata(self) -> int:
        return -id(self)


def zeros_without_memory(cls: type, shape: tuple, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """As `tensor_without_memory`, known to hold zeros: PyTorch computes with it as with its own zero tensors."""
    return torch.Tensor._make_wrapper_subclass(
        cls, shape, None, None, None, dtype, torch.strided, device, False, False,
        _extra_dispatch_keys=torch._C.DispatchKeySet(torch._C.DispatchKey.ZeroTensor),
    )  # fmt: skip


def as_subclass(cls: type, tensor: torch.Tensor, requires_grad: bool = False) -> Any:
    """`tensor`'s metadata and storage as a new object of subclass `cls`, with no history (`Tensor._make_subclass`)."""
    return torch.Tensor._make_subclass(cls, tensor, requires_grad)


#: Context manager: operators skip `__torch_dispatch__` and run the device's own kernel.
kernels_only = torch._C._DisableTorchDispatch

#: The `__torch_function__` of a subclass that wants none.
no_torch_function = torch._C._disabled_torch_function_impl


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share one storage, while both are alive (`UntypedStorage._cdata`).

    Fakes of symbolic sizes name the storage that they lie in as `lampwork_storage`.
    """
    named = getattr(tensor, "lampwork_storage", None)
    return tensor.untyped_storage()._cdata if named is None else named._cdata


# Operators ----------------------------------------------------------------------------------------


def has_composite_implementation(op: OpOverload) -> bool:
    """Whether `op` is written in terms of others at the dispatcher (CompositeImplicitAutograd)."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def has_meta_kernel(name: str) -> bool:
    """Whether the operator `aten::add.Tensor` says on "meta" tensors what its result looks like."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(name, "Meta") or has_kernel(name, "CompositeExplicitAutograd")


def is_operator(target: Any) -> bool:
    return isinstance(target, OpOverload)


# torch.fx without its per-node costs --------------------------------------------------------------


def append_node(graph: torch.fx.Graph, base: str, target: Any, args: tuple, kwargs: dict) -> Node:
    """`graph.call_function(target, args, kwargs)` named `base`, `base_1`, ...: 2 us in place of 12.

    `base` must be a valid identifier. Leans on `Graph._insert` and the graph's namespace; `create_node` replaces it.
    """
    namespace = graph._graph_namespace
    number = namespace._base_count.get(base, -1) + 1
    name = f"{base}_{number}" if number else base
    used = namespace._used_names
    while name in used:
        number += 1
        name = f"{base}_{number}"
    namespace._base_count[base] = number
    used.add(name)
    node = Node(graph, name, "call_function", target, args, kwargs)
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


# Meta kernels written in Python -------------------------------------------------------------------

_prepared_modules: set[str] = set()


def keep_dynamo_unloaded() -> None:
    """Make the Python meta kernels callable without importing `torch._dynamo` (0.3 to 1.3 s).

    PyTorch wraps them in `torch._disable_dynamo`, whose wrapper looks for a cached `__dynamo_disable` on the function
    and else imports Dynamo. The cache entry put here calls the function directly while Dynamo is not loaded and fetches
    Dynamo's own wrapper once it is, so nothing changes for a program that uses `torch.compile`.
    """
    if "torch._dynamo" in sys.modules:
        return
    for module_name in ("torch._refs", "torch._refs.nn.functional", "torch._refs.special", "torch._refs.linalg",
                        "torch._refs.fft", "torch._meta_registrations", "torch._decomp.decompositions",
                        "torch._decomp.decompositions_for_jvp", "torch._prims_common.wrappers"):  # fmt: skip
        module = sys.modules.get(module_name)
        if module is None or module_name in _prepared_modules:
            continue
        _prepared_modules.add(module_name)
        for value in list(vars(module).values()):
            _defer_inside(value)


def _defer_inside(value: Any) -> None:
    """`_defer` for each function that `value` wraps, however many wrappers deep."""
    pending, seen = [value], set()
    while pending:
        function = pending.pop()
        if not isinstance(function, types.FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        captured = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        inner = captured["fn"].cell_contents if "fn" in captured else None
        if function.__code__.co_filename.endswith("_compile.py") and inner is not None:
            if not hasattr(inner, "__dynamo_disable"):
                _defer(inner)
        pending += [inner, getattr(function, "__wrapped__", None)]


def _defer(function: Any) -> None:
    def direct(*args: Any, **kwargs: Any) -> Any:
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is None or not hasattr(dynamo, "disable"):
            return function(*args, **kwargs)
        disabled = dynamo.disable(function, True, wrapping=False)
        function.__dynamo_disable = disabled
        return disabled(*args, **kwargs)

    function.__dynamo_disable = direct


# Operator schemas, for calls through ATen ---------------------------------------------------------


def operator_name(op: OpOverload) -> str:
    """`aten::add.Tensor`, `aten::relu.default` (`OpOverload._schema`, `_overloadname`)."""
    return f"{op._schema.name}.{op._overloadname}"


def returns_alias(op: OpOverload) -> bool:
    """Whether a result of `op` shares memory with an argument (a view, or a written argument)."""
    return any(result.alias_info is not None for result in op._schema.returns)


def written_arguments(op: OpOverload) -> tuple[int | str, ...]:
    """Arguments `op` writes in place: position, or name for keyword-only ones."""
    return tuple(
        argument.name if argument.kwarg_only else position
        for position, argument in enumerate(op._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def copying_variant(op: OpOverload) -> OpOverload | None:
    """The operator that copies where view `op` aliases, as `view_as_real_copy` for `view_as_real`; None without one."""
    namespace, _, name = op._schema.name.partition("::")
    name = name.lstrip("_") if not hasattr(getattr(torch.ops, namespace), f"{name}_copy") else name
    packet = getattr(getattr(torch.ops, namespace), f"{name}_copy", None)
    overload = getattr(packet, op._overloadname, None) if packet is not None else None
    return overload if isinstance(overload, OpOverload) else None


def out_variant(op: OpOverload, device: str = "CPU") -> str | None:
    """Name of the overload of `op` with the same arguments that writes into given tensors, if `device` has a kernel of
    its own for it. The others copy from the functional result, so calling them gains nothing.

    Not for decompositions with several results: they ask whether two of these share a storage, as parts of planned
    memory do, and leave elements unwritten then (the lower triangle of `linalg_qr`'s second).
    """
    schema = op._schema
    if len(schema.returns) > 1 and "linalg_" in schema.name:
        return None
    if any(argument.alias_info is not None for argument in schema.arguments):
        return None
    if not all(str(result.type) == "Tensor" for result in schema.returns):
        return None
    wanted = [(argument.name, str(argument.type)) for argument in schema.arguments]
    packet = op.overloadpacket
    for name in packet.overloads():
        candidate = getattr(packet, name)
        arguments = candidate._schema.arguments
        outs = [argument for argument in arguments if argument.is_out]
        if len(outs) != len(schema.returns) or not outs:
            continue
        if [(a.name, str(a.type)) for a in arguments if not a.is_out] != wanted:
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(candidate.name(), device):
            return operator_name(candidate)
    return None


# The peer, for measurements -----------------------------------------------------------------------


def peer_guard_check(call: Callable[[], Any]) -> Callable[[], bool] | None:
    """A function that checks the guards which `torch.compile` made for the eager function that `call` runs, once each.

    None if it holds no passing entry for any frame of `call`. The frames' variables are those of an eager call, as a
    dictionary, which is close to what its frame hook checks. Leans on `torch._dynamo`'s table of code objects and cache
    entries; loads it only if it is loaded already.
    """
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    if convert_frame is None or eval_frame is None:
        return None
    compiled = {code for code in (ref() for ref in convert_frame.input_codes.seen) if code is not None}
    frames: dict[types.CodeType, dict[str, Any]] = {}

    def note(frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in compiled and frame.f_code not in frames:
            frames[frame.f_code] = dict(frame.f_locals)

    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(previous)
    checks: list[tuple[Callable[[dict[str, Any]], bool], dict[str, Any]]] = []
    for code, variables in frames.items():
        for entry in eval_frame._debug_get_cache_entry_list(code):
            if entry.guard_manager.check(variables):
                checks.append((entry.guard_manager.root.check, variables))
                break
    if not checks:
        return None
    if len(checks) == 1:
        ((check, variables),) = checks
        return lambda: check(variables)
    return lambda: all([check(variables) for check, variables in checks])  # noqa: C419 a failure must not skip the rest


# Process state that programs read (`ir.source.State`), and its setters for `SetState` -------------


def autocast_state() -> tuple:
    """`((device, enabled, dtype), ..., cache enabled)` for the devices whose autocast this process can switch."""
    return (
        ("cpu", torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        ("cuda", torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")),
        torch.is_autocast_cache_enabled(),
    )


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


def attention_state() -> tuple[bool, ...]:
    """Which fused attention implementations may be chosen (flash, memory efficient, math, cudnn)."""
    return (
        torch._C._get_flash_sdp_enabled(),
        torch._C._get_mem_efficient_sdp_enabled(),
        torch._C._get_math_sdp_enabled(),
        torch._C._get_cudnn_sdp_enabled(),
    )


def is_recording() -> bool:
    """Whether a dispatch mode is active in this thread, such as a recording's."""
    return torch._C._len_torch_dispatch_stack() > 0


def active_modes() -> int:
    """How many torch function modes, dispatch modes and functorch transforms are active in this thread."""
    return (
        torch._C._len_torch_function_stack()
        + torch._C._len_torch_dispatch_stack()
        + (torch._C._functorch.peek_interpreter_stack() is not None)
    )


def active_transforms() -> int:
    """How many transforms of `torch.func` are active in this thread (`torch._C._functorch`'s stack)."""
    return torch._C._functorch.get_dynamic_layer_stack_depth()


def leave_transforms(depth: int, dual_levels: list[int]) -> None:
    """Leaves the function transforms that were entered beyond `depth`, and these levels of forward derivatives."""
    torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
    while dual_levels:
        torch._C._exit_dual_level(level=dual_levels.pop())


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


#: Switches of CUDA's libraries that a program may read, by the native function that reads each.
CUDA_SWITCHES: tuple[Any, ...] = tuple(
    getattr(torch._C, name)
    for name in (
        "_get_cublas_allow_tf32", "_get_cublas_allow_fp16_reduced_precision_reduction",
        "_get_cublas_allow_bf16_reduced_precision_reduction", "_get_cublas_allow_fp16_accumulation",
        "_get_cudnn_allow_tf32", "_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic",
    )
    if hasattr(torch._C, name)
)  # fmt: skip


def cuda_switches() -> tuple:
    """The answers of `CUDA_SWITCHES`. Those that newer interfaces replaced raise when both were used: that is told."""
    return tuple(repr(_answer(reader)) for reader in CUDA_SWITCHES)


def _answer(reader: Callable[[], Any]) -> Any:
    try:
        return reader()
    except RuntimeError:
        return "mixed"


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
    "anomaly": torch.is_anomaly_enabled,
    "cuda": lambda: cuda_state(),
    "cuda_switches": lambda: cuda_switches(),
}


def state_test(name: str, expected: Any) -> tuple[str, dict[str, Any]] | None:
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
            "transforms": c._functorch.peek_interpreter_stack,
        }  # fmt: skip
        return "function_modes() or dispatch_modes() or transforms() is not None", names
    return None


def _set_autocast(value: tuple) -> None:
    for device, enabled, dtype in value[:-1]:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(value[-1])


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
    "grad_mode": torch._C._set_grad_enabled,
    "autocast": _set_autocast,
    "default_dtype": torch.set_default_dtype,
    "deterministic": _set_deterministic,
    "num_threads": torch.set_num_threads,
    "float32_matmul_precision": torch.set_float32_matmul_precision,
    "warning_filters": _forget_warnings_shown,
}


#: Context manager of native code: operators called inside skip the `__torch_function__` of subclasses.
without_torch_function = torch._C.DisableTorchFunctionSubclass

#: The class of classes that pybind11 makes: their attributes are C++'s and never change.
pybind_metaclass = type(torch._C._SDPBackend)

#: The kinds of fused attention by which `sdpa_kernel` names them: constants.
AttentionBackend = torch._C._SDPBackend

#: What `torch.inference_mode` enters: a class whose `__enter__` and `__exit__` are native.
InferenceModeContext = torch._C._InferenceMode

#: How many dispatch modes are active; native.
dispatch_stack_length = torch._C._len_torch_dispatch_stack

#: Natives whose answer does not depend on anything a program can change, where this release has them.
CONSTANT_ANSWERS: tuple[Any, ...] = tuple(
    getattr(torch._C, name)
    for name in (
        "_get_tracing_state", "_is_tracing", "_log_api_usage_once", "_is_torch_function_mode_enabled",
        "_len_torch_function_stack", "_get_privateuse1_backend_name", "_current_graph_task_id",
        "_are_functorch_transforms_active", "_accelerator_getAccelerator",
    )
    if hasattr(torch._C, name)
)  # fmt: skip

# Running recorded operators -----------------------------------------------------------------------


#: Dispatch keys above the kernels: what was recorded is already below autograd, view tracking and autocast.
_ABOVE_KERNELS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
for _name in ("AutogradCPU", "AutogradCUDA", "AutogradOther", "AutogradMeta", "AutocastCPU", "AutocastCUDA"):
    if hasattr(torch._C.DispatchKey, _name):
        _ABOVE_KERNELS = _ABOVE_KERNELS | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _name))


def below_autograd() -> Any:
    """Context manager: operators called inside skip autograd, view tracking and autocast."""
    return torch._C._ExcludeDispatchKeyGuard(_ABOVE_KERNELS)


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """What autograd saves in this thread goes to no hook: `saved_tensors_hooks` around a call are not for fakes."""
    state = torch._C._autograd
    hooks = []
    while (top := state._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        state._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            state._push_saved_tensors_default_hooks(pack, unpack)


def are_saved_tensors_hooked() -> bool:
    """Whether `saved_tensors_hooks` (`save_on_cpu` is one) see what autograd saves in this thread."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


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


def overload(name: str) -> Any:
    """The `torch.ops` overload named "aten::addmm.out" ("aten::relu" and "aten::relu.default" are the same)."""
    namespace, _, rest = name.partition("::")
    operator, _, variant = rest.partition(".")
    if namespace == "lampwork":
        _define_operators()
    elif namespace == _PURE:
        digits, _, rest = operator[2:].partition("_")
        origin, rest = rest[: int(digits)], rest[int(digits) + 1 :]
        pure = functional_of_custom(getattr(getattr(getattr(torch.ops, origin), rest), variant or "default"))
        assert pure is not None
        return pure
    return getattr(getattr(getattr(torch.ops, namespace), operator), variant or "default")


_registering = threading.RLock()


def _once(function: Any) -> Any:
    """`functools.cache` for what registers operators: two threads that ask first do not register twice."""
    cached = functools.cache(function)

    @functools.wraps(function)
    def one_at_a_time(*args: Any) -> Any:
        with _registering:
            return cached(*args)

    return one_at_a_time


@_once
def random_state_operator(name: str) -> OpOverload:
    """Our own operators on the random number generators, so that a graph can hold them in order with the draws:

    manual_seed(int seed) of all devices, get_rng_state() and set_rng_state(Tensor) of the CPU.
    """
    _define_operators()
    return getattr(torch.ops.lampwork, name).default


def many_of_one() -> OpOverload:
    """Our operator that gives as many elements, all in one place, as an integer tensor of one element says: so a graph
    knows the integer as a size. What runs it is in `runtime/numbers.py`."""
    return overload("lampwork::many_of_one")


@_once
def _define_operators() -> Any:
    library = torch.library.Library("lampwork", "DEF")
    tag = (torch.Tag.nondeterministic_seeded,)
    key = "CompositeExplicitAutograd"
    library.define("manual_seed(int seed) -> ()", tags=tag)
    library.impl("manual_seed", lambda seed: torch.manual_seed(seed) and None, key)
    library.define("get_rng_state() -> Tensor", tags=tag)
    library.impl("get_rng_state", lambda: torch.default_generator.get_state(), key)
    library.define("set_rng_state(Tensor state) -> ()", tags=tag)
    library.impl("set_rng_state", lambda state: torch.default_generator.set_state(state) and None, key)
    library.define("many_of_one(Tensor number) -> Tensor", tags=(torch.Tag.dynamic_output_shape,))
    return library  # which lives as long as what it registers


@functools.cache
def cpu_random_state_bytes() -> int:
    return torch.default_generator.get_state().numel()


_PURE = "lampwork_pure"


@_once
def functional_of_custom(op: OpOverload) -> OpOverload | None:
    """For an operator of a user's that writes to tensors: our operator with its results, followed by what it would have
    written, which leaves its arguments alone. None for lists of tensors that are written, or results that alias.

    `OpOverload._schema`; the new operator lives in a library of ours, under a name that `overload` can read.
    """
    schema = op._schema
    positions = [
        position for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]  # fmt: skip
    if any(str(schema.arguments[position].type) != "Tensor" or schema.arguments[position].kwarg_only
           for position in positions) or returns_alias(op):  # fmt: skip
        return None
    origin, _, name = schema.name.partition("::")
    arguments = re.sub(r"\([a-z]\d*!?\)", "", str(schema))
    arguments = arguments[arguments.index("(") : arguments.rindex(" -> ")]
    results = [str(each.type) for each in schema.returns] + ["Tensor"] * len(positions)
    pure = f"of{len(origin)}_{origin}_{name}"
    full = pure if op._overloadname == "default" else f"{pure}.{op._overloadname}"

    def call(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for position in positions:
            given[position] = given[position].clone()
        result = op(*given, **kwargs)
        results = () if result is None else result if isinstance(result, tuple) else (result,)
        results += tuple(given[position] for position in positions)
        return results[0] if len(results) == 1 else results

    library = torch.library.Library(_PURE, "FRAGMENT")
    library.define(f"{full}{arguments} -> ({', '.join(results)})")
    library.impl(full, call, "CompositeExplicitAutograd")
    _libraries.append(library)
    return getattr(getattr(getattr(torch.ops, _PURE), pure), op._overloadname)


_libraries: list[Any] = []  # they live as long as what they register


def out_arguments(name: str) -> tuple[str, ...]:
    """Names of the arguments that the overload `name` writes its results to, in order."""
    return tuple(argument.name for argument in overload(name)._schema.arguments if argument.is_out)


def direct_call(name: str) -> Callable:
    """The C++ callable behind the overload `name`, without the Python `OpOverload.__call__` around it."""
    found = overload(name)
    return getattr(found, "_op", found)


def increment_version(tensor: torch.Tensor) -> None:
    """The tensor was written: autograd and version checks see it. Inference tensors keep no version."""
    if not tensor.is_inference():
        torch._C._increment_version((tensor,))


def storage_use_count_at(address: int) -> int:
    """How many owners (tensors, views, exports) the storage whose `_cdata` is `address` has. It must be alive."""
    return torch._C._storage_Use_Count(address)


def storage_address(tensor: torch.Tensor) -> int:
    """What `untyped_storage()._cdata` is, without making the storage's Python object. Needs `tensor_layout()`."""
    layout = tensor_layout()
    assert layout is not None
    return _word(tensor._cdata + layout.storage)


def finish_graph_module(module: torch.fx.GraphModule) -> None:
    """Generate the module's code now, if it was put off to the first call: its class changes when that happens."""
    getattr(module, "real_recompile", lambda: None)()


def draws_random_numbers(name: str) -> bool:
    """Whether the operator `name` advances a random number generator."""
    return torch.Tag.nondeterministic_seeded in overload(name).tags


# Recording ----------------------------------------------------------------------------------------

#: Context manager: no dispatch mode and no subclass sees what is called inside (the mode of a recording included).
without_modes = torch._C._DisableTorchDispatch

#: What `torch.fx` graphs select results of multi-result operators with.
getitem = _operator.getitem


def tensor_constant(dtype: str, shape: tuple[int, ...], data: bytes) -> torch.Tensor:
    """The target of literal nodes: a fresh CPU tensor with these contents (little-endian, row-major)."""
    count = 1
    for size in shape:
        count *= size
    if not count:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype), count=count).reshape(shape)


def functional_of_out(op: OpOverload) -> OpOverload | None:
    """`aten::add.out` -> `aten::add.Tensor`: the overload with the same arguments less the out= ones.

    None if there is none.
    """
    wanted = [(argument.name, str(argument.type)) for argument in op._schema.arguments if not argument.is_out]
    packet = getattr(getattr(torch.ops, op.namespace), op._schema.name.split("::")[1])
    for name in packet.overloads():
        candidate = getattr(packet, name)
        arguments = candidate._schema.arguments
        if any(argument.alias_info is not None for argument in arguments):
            continue
        names = [(argument.name, str(argument.type)) for argument in arguments]
        tail = {"dtype", "layout", "device", "pin_memory"}
        if [each for each in names if each[0] not in tail] == [each for each in wanted if each[0] not in tail]:
            return candidate
    return None


def scalar_type_name(dtype: torch.dtype) -> str:
    """The name of `dtype` in PyTorch's error messages: `Float`, `Long`."""
    names = {
        torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
        torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
        torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
    }  # fmt: skip
    return names.get(dtype, str(dtype)[6:])


def decompose(op: OpOverload, args: tuple, kwargs: dict) -> Any:
    """Run the composite implementation of `op`: the C++ one, as eager does, though Python may have one for tracing."""
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def functional_of_inplace(op: OpOverload) -> OpOverload | None:
    """`aten::add_.Tensor` -> `aten::add.Tensor`: same arguments, fresh results. None if there is none."""
    name = op._schema.name.split("::")[1]
    special = {"zero_": "zero", "normal_": "normal_functional"}
    candidates = [special.get(name, name[:-1] if name.endswith("_") else name), f"{name.rstrip('_')}_functional"]
    wanted = [str(argument.type) for argument in op._schema.arguments]
    for candidate in candidates:
        packet = getattr(getattr(torch.ops, op.namespace), candidate, None)
        if packet is None:
            continue
        names = packet.overloads()
        if op._overloadname in names:
            names = [op._overloadname, *names]
        if op._overloadname == "float" and "p" in packet.overloads():
            names = ["p"]  # bernoulli_.float
        for overload_name in names:
            found = getattr(packet, overload_name)
            if found is not op and [str(argument.type) for argument in found._schema.arguments] == wanted:
                if not any(a.alias_info is not None and a.alias_info.is_write for a in found._schema.arguments):
                    return found
    return None


# Where a tensor keeps its metadata ----------------------------------------------------------------


class TensorLayout(NamedTuple):
    """Byte offsets of what the runtime looks at in tensors.

    In a Python tensor: of its `at::Tensor`. In a `TensorImpl`: of the first and past the last word of its metadata, of
    its storage and its autograd metadata. In that: of `requires_grad` and of the gradient function. In a `StorageImpl`:
    of its data.
    """

    handle: int
    first: int
    last: int
    storage: int
    autograd: int
    requires_grad: int
    grad_fn: int
    data: int


@functools.cache
def tensor_layout() -> TensorLayout | None:
    """The layout, found by looking for known values in tensors made for the purpose; None where they are not found."""
    with torch.inference_mode(False), torch.no_grad():
        plain = torch.empty(5, 7, dtype=torch.float32)
        odd = torch.empty(2, 11, dtype=torch.float64)[:, 3:8:2]
        leaf = torch.empty(3).requires_grad_()
        handle = _offset_of([(id(each), each._cdata) for each in (plain, odd, leaf)], 64)
        storage = _offset_of([(each._cdata, each.untyped_storage()._cdata) for each in (plain, odd, leaf)], 64)
        keys = _offset_of([(each._cdata, torch._C._dispatch_keys(each).raw_repr()) for each in (plain, odd, leaf)], 400)
        sizes = _offset_of([(plain._cdata, 5), (odd._cdata, 2), (leaf._cdata, 3)], 400)
        strides = _offset_of([(plain._cdata, 7), (odd._cdata, 11), (leaf._cdata, 1)], 400)
        right, lower = odd[:, 1:], odd[1:]
        offset = _offset_of([(odd._cdata, 3), (right._cdata, 5), (lower._cdata, 14)], 400)
        storages = [each.untyped_storage() for each in (plain, leaf)]
        data = _offset_of([(each._cdata, each.data_ptr()) for each in storages], 96)
        if None in (handle, storage, keys, sizes, strides, offset, data):
            return None
        assert storage is not None and keys is not None and sizes and strides and offset and handle and data
        # In order: storage, autograd metadata, ..., sizes and strides, offset, count, dtype, device, flags, keys.
        autograd = storage + 8
        if not storage < autograd < sizes < offset < keys or not storage < strides < keys:
            return None
        if _word(plain._cdata + autograd) or not _word(leaf._cdata + autograd):
            return None
        other = torch.empty(5, 7, dtype=torch.int32)
        between = range(storage + 8, keys, 8)
        if all(_word(plain._cdata + at) == _word(other._cdata + at) for at in between):
            return None  # the element type is kept somewhere else
        requires_grad = _requires_grad_offset(leaf, _word(leaf._cdata + autograd))
        with torch.enable_grad():
            result = leaf.requires_grad_() * 2
        node = _word(id(result.grad_fn) + 16)  # the C++ node a Python function object stands for
        grad_fn = _offset_of([(_word(result._cdata + autograd), node), (_word(leaf._cdata + autograd), 0)], 200)
        if requires_grad is None or grad_fn is None:
            return None
        return TensorLayout(handle, storage, keys + 8, storage, autograd, requires_grad, grad_fn, data)


def _word(address: int) -> int:
    return int.from_bytes(ctypes.string_at(address, 8), "little")


def _offset_of(places: list[tuple[int, int]], limit: int) -> int | None:
    """The first offset at which every object holds its value."""
    for offset in range(8, limit, 8):
        if all(_word(address + offset) == value & 0xFFFFFFFFFFFFFFFF for address, value in places):
            return offset
    return None


def _requires_grad_offset(leaf: torch.Tensor, meta: int) -> int | None:
    """The byte of autograd metadata that follows `requires_grad_`; 1 for true."""
    found = set(range(8, 160))
    for value in (True, False, True, False):
        leaf.requires_grad_(value)
        data = ctypes.string_at(meta, 160)
        found = {at for at in found if data[at] == value}
    return found.pop() if len(found) == 1 else None


# Markers of the framework's own compiler ----------------------------------------------------------


def without_disabling(function: types.FunctionType) -> str:
    """For a function that torch itself keeps from Dynamo: the attribute that holds the function behind; else "".

    `torch._disable_dynamo` wraps functions of torch's own, and Dynamo, once imported, replaces some by its `disable`.
    Both are about Dynamo; what users disable is disabled for us too.
    """
    if function.__code__ is _DISABLING_CODE:
        return "__wrapped__"
    behind = function.__dict__.get("_torchdynamo_orig_callable")
    if behind is not None and str(getattr(behind, "__module__", "")).startswith("torch."):
        return "_torchdynamo_orig_callable"
    return ""


_DISABLING_CODE = torch._disable_dynamo(lambda: None).__code__


def allowed_in_graph(function: Any) -> bool:
    """Whether `torch.compiler.allow_in_graph` was applied to `function`.

    It keeps identities in a module of Dynamo's, which is looked at only where something has imported it already
    (`torch._dynamo.trace_rules._allowed_callable_ids`).
    """
    rules = sys.modules.get("torch._dynamo.trace_rules")
    allowed = getattr(rules, "_allowed_callable_ids", None)
    return id(function) in (getattr(allowed, "function_ids", None) or ())


# Vendor products ----------------------------------------------------------------------------------


def has_vendor_products() -> bool:
    """Whether this build has oneDNN's fused linear and convolution operators (`torch.ops.mkldnn`)."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def vendor_supports_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _convolution_backend(x: torch.Tensor, weight: torch.Tensor, bias: Any, *geometry: Any) -> Any:
    """ATen's choice for a convolution of these; fakes will do."""
    if x.dim() == 3 and not x.is_contiguous():
        # ATen copies such an input before it chooses, and fakes have no memory to copy.
        batch, channels, length = x.size()
        strides = (channels * length, length, 1)
        x = tensor_without_memory(type(x), (batch, channels, length), strides, x.dtype, x.device)
    with kernels_only():  # it makes views of one-dimensional images
        return torch._C._select_conv_backend(x, weight, bias, *geometry)


def convolution_writes_bias_first(x: torch.Tensor, weight: torch.Tensor, *geometry: Any) -> bool:
    """Whether ATen runs this convolution by its plain algorithm, which copies the bias over the output beforehand.

    `geometry`: stride, padding, dilation, transposed, output padding, groups. Fakes will do. False for what ATen
    refuses.
    """
    try:
        backend = _convolution_backend(x, weight, None, *geometry)
    except RuntimeError:
        return False
    return backend in (torch._C._ConvBackend.Slow2d, torch._C._ConvBackend.Slow3d)


def generation_tag() -> Any:
    """The function by which `torch._dynamo`, once it compiled something, notes every module made; None before that.

    Dynamo replaces `nn.Module.__init__` with one that calls it. The note is Dynamo's own; no program sees it.
    """
    guard = sys.modules.get("torch._dynamo.mutation_guard")
    return None if guard is None else guard.GenerationTracker.tag.__func__


# CUDA ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def literals_start_on_cpu() -> Iterator[None]:
    """While active, `torch.tensor(data, device="cuda")` makes a CPU tensor and copies it by an operator.

    A dispatch mode then sees the data and the copy; otherwise it would be handed a tensor on the device.
    """
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def convolution_is_channels_last(x: torch.Tensor, weight: torch.Tensor, bias: Any, *geometry: Any) -> bool:
    """Whether eager's convolution of these (fakes will do) gives its result in channels-last order.

    `geometry`: stride, padding, dilation, transposed, output padding, groups. Raises what ATen raises for arguments
    that it refuses.
    """
    sizes = tuple(bias.size()) if bias is not None else None
    backend = _convolution_backend(x, weight, bias, *geometry, sizes)
    with kernels_only():
        chosen = torch._C._conv_determine_backend_memory_format(x, weight, backend)
    return chosen in (torch.channels_last, torch.channels_last_3d)


def cuda_stream_reader() -> Callable[[int], int]:
    """What reads the handle of a device's current stream; `torch.cuda.current_stream` makes an object for it."""
    return torch._C._cuda_getCurrentRawStream


def empty_cuda() -> Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]:
    """What makes an uninitialised tensor of a shape, strides and type on the current device, past the dispatcher."""
    direct = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
    if direct is not None:
        return direct
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


_attention_order_settled = False


def settle_attention_order() -> None:
    """Has PyTorch decide in which order it tries attention kernels, as the first choice among them in a process does.

    That order is guarded (`cuda_state`), and the first choice might be a capture's.
    """
    global _attention_order_settled
    if _attention_order_settled or not torch.cuda.is_initialized() or is_cuda_capturing():
        return
    with kernels_only(), torch._C.DisableTorchFunction():
        x = torch.empty((1, 1, 1, 8), dtype=torch.float16, device="cuda")
        torch.ops.aten._fused_sdp_choice.default(x, x, x)
    _attention_order_settled = True


def is_cuda_capturing() -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    return torch._C._cuda_isCurrentStreamCapturing()


def convolution_adds_bias_last(x: torch.Tensor, weight: torch.Tensor, *geometry: Any) -> bool:
    """Whether ATen runs this convolution by cuDNN and then adds the bias in a pass of its own.

    `geometry` as in `convolution_writes_bias_first`. Fakes will do. False for what ATen refuses.
    """
    try:
        backend = _convolution_backend(x, weight, None, *geometry)
    except RuntimeError:
        return False
    return backend in (torch._C._ConvBackend.Cudnn, torch._C._ConvBackend.CudnnTranspose)


# Sizes that a user marked -------------------------------------------------------------------------


class SizeMarks(NamedTuple):
    """What was said of a tensor's dimensions. `dynamic`: (least, largest) by dimension, None where not said; `maybe`:
    dynamic if that costs nothing; `static`: dimensions that stay as they are."""

    dynamic: dict[int, tuple[int | None, int | None]]
    maybe: frozenset[int]
    static: frozenset[int]

    def is_static(self, axis: int) -> bool:
        return axis in self.static


_UNMARKED = SizeMarks({}, frozenset(), frozenset())


def size_marks(tensor: torch.Tensor) -> SizeMarks:
    """The marks of `lampwork.mark_dynamic` and of `torch._dynamo.mark_dynamic` and its like: attributes of the tensor
    object (`_dynamo_dynamic_indices`, `_dynamo_dynamic_range`, `_dynamo_weak_dynamic_indices`,
    `_dynamo_static_indices`, and those of `mark_unbacked`, whose sizes are symbols like others here)."""
    attributes = tensor.__dict__
    if not attributes:
        return _UNMARKED
    dynamic: dict[int, tuple[int | None, int | None]] = dict.fromkeys(
        attributes.get("_dynamo_dynamic_indices") or (), (None, None)
    )
    for each in attributes.get("_dynamo_dynamic_range") or ():
        dynamic[each.dim] = (each.min, each.max)
    dynamic.update(attributes.get("_lampwork_dynamic") or {})
    static = {*(attributes.get("_dynamo_static_indices") or ()), *(attributes.get("_lampwork_static") or ())}
    dynamic.update(dict.fromkeys(attributes.get("_dynamo_strict_unbacked_indices") or (), (None, None)))
    weak = attributes.get("_dynamo_weak_dynamic_indices") or ()
    maybe = frozenset({*weak, *(attributes.get("_dynamo_unbacked_indices") or ())})
    for axis in attributes.get("_lampwork_dynamic") or ():
        static.discard(axis)
    return SizeMarks(dynamic, maybe, frozenset(static))


# Autograd and function transforms inside a program ------------------------------------------------

#: What `torch.autograd.grad` and `backward` hand to the engine; and how gradients are taken inside `torch.func`.
run_backward = torch.autograd.graph._engine_run_backward
gradients_of_transform = torch._functorch.eager_transforms._autograd_grad

#: Loads, once in a process, what `vmap` needs.
load_decompositions = torch._functorch.predispatch.lazy_load_decompositions

#: Entering and leaving a level of forward derivatives, each under the names it has (PyTorch 2.11 has them in `torch._C`
#: alone); and whether those are on.
_dual_levels = [module for module in (torch._C, torch._functorch.predispatch) if hasattr(module, "_enter_dual_level")]
ENTER_DUAL_LEVEL = tuple(module._enter_dual_level for module in _dual_levels)
EXIT_DUAL_LEVEL = tuple(module._exit_dual_level for module in _dual_levels)
FORWARD_DERIVATIVES = (torch._C._is_fwd_grad_enabled, torch._C._set_fwd_grad_enabled)

#: Why hooks on saved tensors are forbidden; forbidding and allowing them.
saved_hooks_refusal = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message
REFUSE_SAVED_HOOKS = (torch._C._autograd._saved_tensors_hooks_disable, torch._C._autograd._saved_tensors_hooks_enable)

#: How optimizers sort their tensors for one call of a `_foreach` operator.
group_tensors = torch._C._group_tensors_by_device_and_dtype


#: Private modules whose Python functions take tensors and plain data only, and run as one unit on fakes.
PRIVATE_TENSOR_MODULES = frozenset({
    "torch._tensor", "torch._refs", "torch._refs.nn.functional", "torch._ops", "torch._linalg_utils", "torch._lowrank",
    "torch._functorch.predispatch",
})  # fmt: skip

#: Modules written in C whose functions are operators on tensors.
BUILTIN_MODULES = frozenset({
    "torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special", "torch._C._nested", "torch._C._sparse",
    "torch._C._functorch",
})  # fmt: skip


def backend_names() -> list[str]:
    """The back ends that `torch.compile` knows. Loads Dynamo, whose registry is where they are."""
    return importlib.import_module("torch._dynamo").list_backends(None)


def backend(name: str) -> Callable[..., Any]:
    """The back end that `torch.compile` knows by `name`, one of `backend_names()`."""
    return importlib.import_module("torch._dynamo.backends.registry").lookup_backend(name)


#: Makes results whose differentiation raises an error with the given text.
delayed_error = torch._C._functions.DelayedError
