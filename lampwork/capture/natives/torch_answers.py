"""torch functions that capture answers in its own way: random number state, tensors made or copied as objects, labels.

Functions that take tensors and plain data only need no answer: they run on fakes (`tensor_inputs.py`).
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils.hooks import BackwardHook, RemovableHandle

from lampwork import _torch
from lampwork.capture.autograd import checkpoints
from lampwork.capture.autograd.backward import leave_hooks_to_eager, refuse_anomalies
from lampwork.capture.machine import Answer, Enter, InPython
from lampwork.capture.outside import facts
from lampwork.capture.outside.overlay import Break, HookNumber, IdentityNumber
from lampwork.capture.record.fake import Fake
from lampwork.capture.record.fused import KERNELS, write
from lampwork.capture.values.scalar import Scalar, is_backed
from lampwork.capture.values.subclasses import parameter
from lampwork.capture.values.unbacked_numbers import beside, tensor_of
from lampwork.fakes import strides
from lampwork.fakes.shapes import is_dense
from lampwork.fakes.wrappers import Wrapper

_MAX_SEED = (1 << 63) - 1


# Random number state --------------------------------------------------------------------------------------------------


def _manual_seed(world: Any, seed: Any) -> Any:
    """Recorded among the draws, in program order."""
    if type(seed) is not int or not -_MAX_SEED <= seed <= _MAX_SEED:
        raise Break("random-state", f"torch.manual_seed is called with {seed!r:.40}, which is no 64-bit number")
    world.recorder.effect(_torch.random_state_operator("manual_seed"), (seed,))
    return world.attribute(torch.random, "default_generator")


def _get_rng_state(world: Any) -> Any:
    size = _torch.cpu_random_state_bytes()
    return world.recorder.effect(_torch.random_state_operator("get_rng_state"), (), (size,), torch.uint8)


def _set_rng_state(world: Any, new_state: Any) -> None:
    if not isinstance(new_state, Fake) or new_state.dtype is not torch.uint8 or new_state.device.type != "cpu":
        raise Break("random-state", "torch.set_rng_state is called with something that is not a state of the CPU")
    world.recorder.effect(_torch.random_state_operator("set_rng_state"), (new_state,))


# Tensors as objects ---------------------------------------------------------------------------------------------------


def _parameter(world: Any, data: Any = None, requires_grad: Any = True) -> Any:
    """`nn.Parameter(data)`: the same memory as another tensor object."""
    if data is None:
        data = torch.empty(0)
    if isinstance(data, Wrapper):
        return parameter(world, data, bool(requires_grad))
    if not isinstance(data, Fake) or data.real_class not in (torch.Tensor, torch.nn.Parameter):
        raise Break("tensor-subclass", f"a Parameter is made of a {type(data).__name__}")
    return _as_parameter(data, bool(requires_grad))


def _as_parameter(data: Any, requires_grad: bool) -> Any:
    with torch.no_grad():
        made = torch.ops.aten.alias.default(data)
    made.real_class = torch.nn.Parameter
    _torch.pass_for_parameter(made)
    return made.requires_grad_(requires_grad)


def _copy_deeply(world: Any, tensor: Any, memo: Any) -> Any:
    """`copy.deepcopy` of a tensor, which copies its storage whole.

    That is only followed for a tensor that fills its storage and shares it with nothing else that is copied.
    """
    key = IdentityNumber(id(tensor))
    if key in memo:
        return memo[key]
    if not isinstance(tensor, Fake):
        raise Break("tensor-copy", f"a {type(tensor).__name__} is copied")
    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001"
        )
    world.tensor_attributes.keep_plain(tensor)
    is_parameter = issubclass(tensor.real_class, torch.nn.Parameter)
    if not is_parameter:
        storage = _torch.storage_key(tensor)
        _, copied = world.copied_storages.setdefault(id(memo), (memo, set()))  # which keeps its id to itself
        fills = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        if storage in copied or not fills or not is_dense(tensor.size(), tensor.stride()):
            raise Break("tensor-copy", "a view of a larger tensor is copied with copy.deepcopy", "Call clone() on it.")
        copied.add(storage)
    with torch.no_grad():
        copy = tensor.clone(memory_format=torch.preserve_format)
    if is_parameter:
        copy = _as_parameter(copy, tensor.requires_grad)
    else:
        copy.requires_grad_(tensor.requires_grad)
        gradient = world.tensor_attributes.load(tensor, "grad")
        if gradient is not None:
            world.tensor_attributes.store(copy, "grad", _copy_deeply(world, gradient, memo))
    memo[key] = copy
    return copy


def _is_view(world: Any, tensor: Any) -> bool:
    """Fakes of tensors from outside are no views, whatever those are."""
    if isinstance(tensor, Wrapper):
        raise Break("tensor-attribute", "whether a tensor of a subclass is a view is asked")
    origin = world.loader.origin(tensor)
    return tensor._is_view() if origin is None else facts.is_view(world.loader, origin)


def _requires_grad(world: Any, tensor: Any, requires_grad: Any = True) -> Any:
    if requires_grad:
        world.tensor_attributes.may_require_grad(tensor)
    return tensor.requires_grad_(requires_grad)


def _detach_in_place(world: Any, tensor: Any) -> Any:
    """Autograd refuses views, which fakes of tensors from outside are not."""
    origin = world.loader.origin(tensor) if isinstance(tensor, torch.Tensor) else None
    if origin is not None and facts.is_view(world.loader, origin):
        raise Break("tensor-attribute", "a view that was made outside is detached in place")
    return tensor.detach_()


def _one_hot(world: Any, tensor: Any, num_classes: int = -1) -> Any:
    """On the CPU eager looks whether each class is one of them, but not in tensors without memory, as fakes are."""
    known = type(num_classes) in (int, torch.SymInt)
    if type(tensor) is Fake and known and num_classes >= 0 and tensor.is_cpu and tensor.numel():
        _torch.assert_async(torch.ge(tensor, 0).all(), "Class values must be non-negative.")
        _torch.assert_async(torch.lt(tensor, num_classes).all(), "Class values must be smaller than num_classes.")
    hot = torch.nn.functional.one_hot(tensor, num_classes)
    # Eager writes ones into zeros. Without memory it compares, and what it compares may be transposed.
    return _row_major(hot) if type(tensor) is Fake else hot


def _row_major(made: Any) -> Any:
    """The tensor, or a copy that is contiguous to its strides: `contiguous` asks for none of dimensions of size 1."""
    if made.stride() == strides.contiguous(made.size()):
        return made
    return made.clone(memory_format=torch.contiguous_format)


def _max_pool1d(pool: Any) -> Any:
    """On the CPU, where nothing is differentiated, eager has a kernel whose results are contiguous; fakes are pooled in
    two dimensions, as tensors that require grad, in strides that follow the operand's."""

    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        pooled = world.call_native(pool, args, kwargs)
        first = args[0] if args else kwargs.get("input")
        if type(first) is not Fake or type(pooled) is not Fake or not first.is_cpu:
            return pooled
        if not first.dtype.is_floating_point:
            raise NotImplementedError(
                f"\"max_pool1d_impl\" not implemented for '{_torch.scalar_type_name(first.dtype)}'"
            )
        return pooled if first.requires_grad and torch.is_grad_enabled() else _row_major(pooled)

    return answer


def _batch_norm(world: Any, *args: Any, **kwargs: Any) -> Any:
    """With a momentum that is known when the graph runs, or varies (`momentum=None`: one over the number of batches),
    what the operator would write to the running statistics is written here. Where numbers are to be eager's bit by bit,
    the operator gets the momentum when it is called."""
    if kwargs or len(args) != 9 or type(args[6]) is not Scalar:
        return world.call_native(torch.batch_norm, args, kwargs)
    x, weight, bias, mean, var, training, momentum, eps, vendor = args
    if not training or mean is None or not x.numel():  # eager writes nothing of an empty batch
        return torch.batch_norm(x, weight, bias, mean, var, training, 0.0, eps, vendor)
    recorder = world.recorder
    if recorder.exact:
        recorder.momentum = momentum.numbers.tensor(momentum) if is_backed(momentum) else tensor_of(momentum)
        try:
            return torch.batch_norm(x, weight, bias, mean, var, True, 0.5, eps, vendor)
        finally:
            recorder.momentum = None
    if is_backed(momentum):
        momentum = world.backed_numbers.unbacked(momentum)
    batch_mean, batch_var = torch.zeros_like(mean), torch.zeros_like(var)
    result = torch.batch_norm(x, weight, bias, batch_mean, batch_var, True, 1.0, eps, vendor)
    with torch.no_grad():
        for running, now in ((mean, batch_mean), (var, batch_var)):
            share = beside(momentum, running)
            new = now * share + running * (1 - share)
            if type(running) is Fake:
                _write_unseen(world, running, new)  # as kernels of batch norms write
            else:
                running.copy_(new)
    return result


def _inverse_of_stft(world: Any, *args: Any, **kwargs: Any) -> Any:
    """Raises where windows leave a sample out; that they do not is assumed, as a program's own checks are."""
    contents = world.recorder.contents
    contents.must_differ = True
    try:
        return world.call_native(torch.istft, args, kwargs)
    finally:
        contents.must_differ = False


def _legacy_tensor(world: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.Tensor(2, 3)`, `torch.Tensor([1, 2])`: sizes, or data of the default type."""
    return legacy_tensor(world, torch.get_default_dtype(), args, kwargs)


def legacy_tensor(world: Any, dtype: torch.dtype, args: tuple, kwargs: dict) -> Any:
    world.process.read("default_dtype")
    if not kwargs and all(type(size) in (int, torch.SymInt) for size in args):
        return torch.empty(args or (0,), dtype=dtype)
    if len(args) == 1 and not kwargs:
        data = args[0]
        if isinstance(data, torch.Size):
            return torch.empty(data, dtype=dtype)
        if isinstance(data, (list, tuple)) and world.data.is_plain_data(data):
            return torch.tensor(data, dtype=dtype)
    raise Break("legacy-constructor", f"torch.Tensor is called with {world.data.describe_arguments(args, kwargs)}",
                "Use torch.tensor or torch.empty.")  # fmt: skip


# Autograd and scripts -------------------------------------------------------------------------------------------------


def _set_anomaly(world: Any, enabled: Any, check_nan: Any = True) -> None:
    world.process.read("anomaly")
    if (bool(enabled), bool(check_nan)) != (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()):
        raise Break("native-call", "anomaly detection is switched")


# Function transforms run natively on fakes, which they wrap; the functions in them are interpreted ----------------


def _load_decompositions(world: Any) -> None:
    """What torch loads once in a process, before its first `vmap`."""
    with world.recorder._paused():
        _torch.load_decompositions()
    _torch.keep_dynamo_unloaded()


def _gradients_of_transform(
    world: Any, outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool = False,
    create_graph: bool = True,
) -> tuple:  # fmt: skip
    """As torch's, without a look at the compiler of autograd graphs, whose import costs a second."""
    if not world.data.are_data((outputs, inputs, grad_outputs), {}):
        raise Break("autograd", "gradients are taken of objects")
    directions = [None] * len(outputs) if grad_outputs is None else grad_outputs
    pairs = [(output, direction) for output, direction in zip(outputs, directions) if output.requires_grad]
    if not pairs:
        return tuple([torch.zeros_like(each) for each in inputs])
    refuse_anomalies()
    _torch.keep_dynamo_unloaded()
    gradients = torch.autograd.grad(
        [output for output, _ in pairs], inputs, None if grad_outputs is None else [each for _, each in pairs],
        retain_graph=retain_graph, create_graph=create_graph, allow_unused=True,
    )  # fmt: skip
    return tuple([torch.zeros_like(at) if found is None else found for found, at in zip(gradients, inputs)])


def _enter_dual_level(world: Any) -> int:
    level = _torch.ENTER_DUAL_LEVEL[0]()
    world.process.dual_levels.append(level)
    return level


def _exit_dual_level(world: Any, level: int) -> None:
    _torch.EXIT_DUAL_LEVEL[0](level=level)
    world.process.dual_levels.remove(level)


def _refuse_saved_hooks(world: Any, message: Any = None, fail_if_non_empty: Any = True) -> None:
    """Transforms forbid hooks on saved tensors while they are active; there are none inside a region."""
    world.saved_hooks_refusal = message


# The rest -------------------------------------------------------------------------------------------------------------


def _register_hook(world: Any, hooks: Any, *, extra_dict: Any = None) -> Any:
    """`RemovableHandle(hooks)`. Hooks are numbered in the process: their numbers are computed anew on every call."""
    number = HookNumber(RemovableHandle.next_id + world.hooks_registered)
    number.position = world.hooks_registered
    world.hooks_registered += 1
    extra = (extra_dict,) if isinstance(extra_dict, dict) else tuple(extra_dict or ())
    handle = object.__new__(RemovableHandle)
    handle.hooks_dict_ref = weakref.ref(hooks)
    handle.id = number
    handle.extra_dict_ref = tuple([weakref.ref(each) for each in extra])
    return handle


def _module_hooks(method: Any) -> Any:
    """`BackwardHook.setup_input_hook` and `setup_output_hook`, interpreted unless hooks are left to eager: the hooks of
    a module hang on nodes on either side of it."""

    def answer(world: Any, hook: Any, args: Any) -> Any:
        tensors = args if isinstance(args, tuple) else (args,)
        if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in tensors):
            leave_hooks_to_eager(world)
        return Enter(method, (hook, args), {})

    return answer


def _module_boundary(world: Any, *tensors: Any) -> Any:
    """`BackwardHookFunction.apply`, which hands tensors and gradients on: nodes that module hooks hang on."""
    if _torch.active_transforms() or not all(type(each) is Fake for each in tensors):
        return NotImplemented
    return _torch.BackwardHookFunction.apply(*tensors)


def _group_tensors(world: Any, *args: Any, **kwargs: Any) -> Any:
    if not world.data.are_data(args, kwargs):
        raise Break("tensor-argument", "tensors are grouped together with objects")
    return _torch.group_tensors(*args, **kwargs)


def _label(world: Any, label: Any, name: str, args: Any = None) -> None:
    """`record_function`: a label for profilers. What it would label is one compiled program."""
    for key, value in {"name": name, "args": args, "run_callbacks_on_exit": True, "record": None}.items():
        world.instance_store(label, key, value)


#: Functions of autograd that are PyTorch's own and are not interpreted; what gives NotImplemented has them interpreted.
_APPLIED: dict[Any, Any] = {**checkpoints.APPLIED, _torch.BackwardHookFunction: _module_boundary}


def apply_function(world: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
    """`cls.apply(*args)` of a `torch.autograd.Function`."""
    answer = _APPLIED[cls](world, *args, **kwargs) if cls in _APPLIED else NotImplemented
    if answer is not NotImplemented:
        return answer
    from lampwork.capture.autograd import user_functions  # few programs have any

    return user_functions.apply(world, cls, *args, **kwargs)


def _natively(native: Any) -> Any:
    return lambda world, *args: native(*args)


def _write_unseen(world: Any, target: Any, value: Any) -> None:
    world.recorder.call(torch.ops.aten.copy_.default, (target, value), {})


_LABEL = torch.autograd.profiler.record_function
NATIVES: dict[Any, Answer] = {
    **{getattr(torch, name): InPython(written_out) for name, written_out in KERNELS.items()},
    write: _write_unseen,
    torch.random.manual_seed: _manual_seed,
    torch.random.get_rng_state: _get_rng_state,
    torch.random.set_rng_state: _set_rng_state,
    torch.Tensor.__deepcopy__: _copy_deeply,
    torch.Tensor: _legacy_tensor,
    torch.nn.Parameter: _parameter,
    RemovableHandle: _register_hook,
    torch.set_anomaly_enabled: _set_anomaly,
    torch.Tensor._is_view: _is_view,
    torch.Tensor.requires_grad_: _requires_grad,
    torch.Tensor.detach_: _detach_in_place,
    torch.detach_: _detach_in_place,
    **({_torch.FUNCTION_APPLY: apply_function} if _torch.FUNCTION_APPLY else {}),
    _torch.load_decompositions: _load_decompositions,
    _torch.gradients_of_transform: _gradients_of_transform,
    **dict.fromkeys(_torch.ENTER_DUAL_LEVEL, _enter_dual_level),
    **dict.fromkeys(_torch.EXIT_DUAL_LEVEL, _exit_dual_level),
    **{native: _natively(native) for native in _torch.FORWARD_DERIVATIVES},
    _torch.saved_hooks_refusal: lambda world: world.saved_hooks_refusal,
    **dict.fromkeys(_torch.REFUSE_SAVED_HOOKS, _refuse_saved_hooks),
    **{method: _module_hooks(method) for method in (BackwardHook.setup_input_hook, BackwardHook.setup_output_hook)},
    torch.nn.functional.one_hot: _one_hot,
    **{pool: _max_pool1d(pool) for pool in (torch.max_pool1d, torch.nn.functional.max_pool1d)},
    torch.batch_norm: _batch_norm,
    torch.istft: _inverse_of_stft,
    _torch.group_tensors: _group_tensors,
    _LABEL.__init__: _label,
    _LABEL.__enter__: lambda world, label: label,
    _LABEL.__exit__: lambda world, label, *error: None,
}


def _fused_step(world: Any, *args: Any, **kwargs: Any) -> None:
    remedy = "Leave out fused=True: the optimizer's operators are then part of the graph."
    raise Break(
        "native-call", "PyTorch's fused optimizer kernel, whose rounding no other operators have, is called", remedy
    )


#: The answers that differ where numbers are to be eager's bit by bit. Fused kernels of optimizers round the squares of
#: gradients otherwise in their vectors than in the tails of these, so they are called natively.
EXACT_NATIVES: dict[Any, Answer] = {getattr(torch, name): _fused_step for name in KERNELS if name.startswith("_fused_")}
