"""Effect classes of native functions: what each may be given so that calling it for real, during capture, is right.

    "data"       pure; looks inside its arguments (`str`, `max`, `math.sqrt`): plain data and tensors only
    "holds"      pure; takes any values, looks at none (`list`, `zip`, `tuple`): containers among them are loaded
    "method"     a container's own method that changes or reads its `self` and looks at no element (`list.append`)
    "keyed"      as "method", but hashes or compares its arguments (`dict.pop`, `set.add`)
    "compares"   as "method", but compares elements (`list.index`, `list.remove`)
    "identity"   looks at identity or type only (`id`, `callable`)
    "state"      reads process state whose value is guarded

A function that is in no table breaks the graph: capture never guesses.
"""

from __future__ import annotations

import builtins
import cmath
import collections
import functools
import gc
import heapq
import itertools
import math
import operator
import os
import re
import sys
import types
from typing import Any

import torch

from lampwork import _torch

_class: Any
_view: Any
#: callable -> effect class
EFFECTS: dict[Any, str] = {}


def declare(effect: str, *functions: Any) -> None:
    for function in functions:
        EFFECTS[function] = effect


def declare_methods(effect: str, cls: type, names: str) -> None:
    """Methods of a builtin class, by name; those that this Python does not have are left out."""
    for name in names.split():
        found = cls.__dict__.get(name)
        if found is not None:
            EFFECTS[found] = effect


def _declare_all_methods(effect: str, cls: type, skip: frozenset[str] = frozenset()) -> None:
    for name, found in cls.__dict__.items():
        if callable(found) and name not in skip:
            EFFECTS[found] = effect
        elif isinstance(found, (classmethod, staticmethod)):
            EFFECTS[getattr(cls, name)] = effect


_OBJECT_ONLY = frozenset({"__new__", "__init__", "__getattribute__", "__setattr__", "__class__", "__reduce_ex__"})

declare(
    "data",
    abs, divmod, pow, round, min, max, sum, any, all, repr, ascii, format, chr, ord, hex, oct, bin, sorted,
    int, float, complex, bool, str, bytes, bytearray, range, slice,
)  # fmt: skip
declare("holds", list, tuple, dict, set, frozenset, zip, enumerate, reversed, len, iter, next, collections.OrderedDict,
        collections.deque, types.SimpleNamespace, object, property, staticmethod, classmethod, types.MethodType,
        types.MappingProxyType, functools.partial, types.GenericAlias)  # fmt: skip
declare("identity", callable, type, isinstance, issubclass)
for _module in (math, cmath):
    declare("data", *[value for value in vars(_module).values() if callable(value)])
declare("data", *[value for name, value in vars(operator).items() if isinstance(value, types.BuiltinFunctionType)])
#: Functions of the class "data" that change a container, and keep what they are given.
WRITERS: frozenset[Any] = frozenset({
    heapq.heapify, heapq.heappush, heapq.heappop, heapq.heappushpop, heapq.heapreplace,
    *[getattr(heapq, name) for name in ("_heapify_max", "_heappop_max", "_heapreplace_max") if hasattr(heapq, name)],
    operator.setitem, operator.delitem, operator.iadd, operator.iand, operator.iconcat, operator.imul, operator.ior,
    operator.isub, operator.ixor,
})  # fmt: skip
declare("data", *WRITERS)
declare(
    "holds", itertools.chain, itertools.product, itertools.islice, itertools.repeat, itertools.count, itertools.cycle,
    itertools.combinations, itertools.permutations, itertools.combinations_with_replacement, itertools.zip_longest,
    itertools.compress, itertools.tee, itertools.chain.from_iterable, itertools.pairwise,
)  # fmt: skip

declare("data", itertools.groupby)

for _class in (str, int, float, complex, bool, bytes, range, slice, re.Pattern, re.Match, type(None)):
    _declare_all_methods("data", _class, _OBJECT_ONLY)
EFFECTS[str.maketrans] = EFFECTS[bytes.fromhex] = EFFECTS[float.fromhex] = EFFECTS[int.from_bytes] = "data"
declare_methods("method", tuple, "__len__ __iter__ __getitem__ __add__ __mul__ __rmul__")
declare_methods("compares", tuple, "count index __contains__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__")
declare_methods(
    "method", list, "append extend insert pop clear copy reverse __len__ __iter__ __reversed__ __getitem__ __setitem__ "
    "__delitem__ __add__ __iadd__ __mul__ __imul__ __rmul__ __init__",
)  # fmt: skip
declare_methods("compares", list, "count index remove sort __contains__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__")
for _class in (dict, collections.OrderedDict, collections.defaultdict):
    declare_methods(
        "keyed", _class, "get pop setdefault __getitem__ __setitem__ __delitem__ __contains__ fromkeys move_to_end "
        "update __or__ __ior__ __ror__ __init__",
    )  # fmt: skip
    declare_methods(
        "method", _class, "keys values items clear copy popitem __len__ __iter__ __reversed__ __copy__",
    )  # fmt: skip
    declare_methods("compares", _class, "__eq__ __ne__")
EFFECTS[dict.fromkeys] = "keyed"
for _class in (set, frozenset):
    declare_methods("method", _class, "clear copy pop __len__ __iter__")
    declare_methods(
        "keyed", _class, "add discard remove update union intersection difference symmetric_difference issubset "
        "issuperset isdisjoint intersection_update difference_update symmetric_difference_update __contains__ __or__ "
        "__and__ __sub__ __xor__ __ror__ __rand__ __rsub__ __rxor__ __ior__ __iand__ __isub__ __ixor__ __eq__ __ne__ "
        "__le__ __lt__ __ge__ __gt__ __init__",
    )  # fmt: skip
declare_methods(
    "method", collections.deque, "append appendleft extend extendleft pop popleft rotate clear copy reverse insert "
    "__len__ __iter__ __getitem__ __setitem__ __delitem__ __copy__ __reversed__",
)  # fmt: skip
for _class in (set, frozenset, collections.deque, collections.OrderedDict):
    declare_methods("method", _class, "__reduce__")
declare_methods("holds", property, "__init__")
declare_methods("compares", collections.deque, "count index remove __contains__ __eq__")
for _view in (type({}.keys()), type({}.values()), type({}.items()), type(collections.OrderedDict().keys()),
              type(collections.OrderedDict().items()), type(collections.OrderedDict().values())):  # fmt: skip
    declare_methods("method", _view, "__len__ __iter__ __reversed__")
    declare_methods("keyed", _view, "__contains__ isdisjoint __and__ __or__ __sub__ __xor__ __rand__ __ror__ __rsub__ "
                     "__rxor__ __eq__ __ne__ __le__ __lt__ __ge__ __gt__")  # fmt: skip
declare_methods("method", types.MappingProxyType, "keys values items copy __len__ __iter__ __reversed__")
declare_methods("keyed", types.MappingProxyType, "get __getitem__ __contains__ __or__ __ror__")

#: Native iterators: they hold loaded values and hand them out.
ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(set())),
    type(iter("")), type(iter(range(0))), type(iter(reversed([]))), type(reversed({})), type(iter(collections.deque())),
    type(iter(collections.OrderedDict())), type(iter(b"")), type(iter(range(1 << 70))),
    zip, enumerate, reversed, itertools.chain, itertools.product, itertools.islice, itertools.repeat, itertools.count,
    itertools.cycle, itertools.combinations, itertools.permutations, itertools.zip_longest, itertools.compress,
    itertools.combinations_with_replacement, itertools.pairwise, itertools.groupby, itertools.accumulate,
    type(next(itertools.groupby("a"))[1]), type(itertools.tee(())[0]),
    type(iter({}.keys())), type(re.finditer("", "")),
)  # fmt: skip
for _iterator in ITERATORS:
    declare_methods("method", _iterator, "__next__ __iter__ __length_hint__")

for _class in (torch.device, torch.Size, torch.finfo, torch.iinfo, torch.dtype):
    declare("data", _class)
    _declare_all_methods("data", _class, _OBJECT_ONLY)
declare_methods("method", torch.Size, "__add__ __getitem__ __len__ __iter__")
declare("data", torch.Size.numel, torch.Size.__add__)
for _class in (re.Pattern, re.Match):
    _declare_all_methods("data", _class, _OBJECT_ONLY)

#: Exceptions and their builtin methods hold what they are given.
for _name, _class in vars(builtins).items():
    if isinstance(_class, type) and issubclass(_class, BaseException):
        EFFECTS[_class] = "holds"
        declare_methods("method", _class, "__init__")
        declare_methods("data", _class, "__str__ __repr__")
declare_methods("method", BaseException, "with_traceback add_note __setstate__")
declare_methods("holds", BaseExceptionGroup, "split subgroup derive")

# Torch: process state and questions about tensors -------------------------------------------------


def _enter(table: dict[Any, str], name: str, *paths: str) -> None:
    """Enters the functions of torch at `paths`, those that this release has, under the state that they are about."""
    for path in paths:
        value: Any = torch
        for part in path.split("."):
            value = getattr(value, part, None)
            if value is None:
                break
        if value is not None:
            table[value] = name


STATE_READERS: dict[Any, str] = {}
_state = functools.partial(_enter, STATE_READERS)

_state("grad_mode", "is_grad_enabled", "_C.is_grad_enabled")
_state("inference_mode", "is_inference_mode_enabled", "_C.is_inference_mode_enabled")
_state(
    "autocast", "is_autocast_enabled", "_C.is_autocast_enabled", "get_autocast_dtype", "get_autocast_cpu_dtype",
    "get_autocast_gpu_dtype", "is_autocast_cpu_enabled", "is_autocast_cache_enabled", "_C._is_any_autocast_enabled",
    "is_autocast_xla_enabled", "is_autocast_ipu_enabled", "_C._is_autocast_available", "amp.is_autocast_available",
)  # fmt: skip
_state("default_dtype", "get_default_dtype", "_C.get_default_dtype")
_state(
    "deterministic", "are_deterministic_algorithms_enabled", "_C._get_deterministic_algorithms",
    "is_deterministic_algorithms_warn_only_enabled", "_C._get_deterministic_algorithms_warn_only",
)  # fmt: skip
_state("num_threads", "get_num_threads")
_state("float32_matmul_precision", "get_float32_matmul_precision", "_C._get_float32_matmul_precision")
_state(
    "attention", "_C._get_flash_sdp_enabled", "_C._get_mem_efficient_sdp_enabled", "_C._get_math_sdp_enabled",
    "_C._get_cudnn_sdp_enabled", "_C._get_overrideable_sdp_enabled",
)  # fmt: skip
_state("cuda", "cuda.current_device", "_C._cuda_getDevice")
_state("attention_order", "_C._get_sdp_priority_order")
for _switch in _torch.CUDA_SWITCHES:
    STATE_READERS[_switch] = "cuda_switches"
for _switch in _torch.CUDNN_READERS:
    STATE_READERS[_switch] = "cudnn"
if _torch.get_precision is not None:
    STATE_READERS[_torch.get_precision] = "precision"
_state(
    "hardware", "cuda.is_available", "cuda.device_count", "cuda.is_bf16_supported", "cuda.get_device_capability",
    "cuda.get_device_name",
)  # fmt: skip
STATE_READERS[sys.getrecursionlimit] = "recursion_limit"
STATE_READERS[os.getcwd] = "working_directory"
STATE_READERS[gc.isenabled] = "collector"
_state("torch_function", "_C._is_torch_function_enabled")
_state("anomaly", "is_anomaly_enabled", "_C.is_anomaly_enabled", "_C.is_anomaly_check_nan_enabled")

#: Writes of process state: performed while capturing, undone after it; a difference at the end becomes an effect.
STATE_WRITERS: dict[Any, str] = {}
_writer = functools.partial(_enter, STATE_WRITERS)

_writer("grad_mode", "_C._set_grad_enabled")
_writer(
    "autocast", "set_autocast_enabled", "set_autocast_dtype", "set_autocast_cpu_enabled", "set_autocast_gpu_dtype",
    "set_autocast_cpu_dtype", "set_autocast_cache_enabled", "autocast_increment_nesting",
    "autocast_decrement_nesting", "clear_autocast_cache",
)  # fmt: skip
_writer("default_dtype", "_C._set_default_dtype")
_writer(
    "attention",
    "_C._set_sdp_use_flash",
    "_C._set_sdp_use_mem_efficient",
    "_C._set_sdp_use_math",
    "_C._set_sdp_use_cudnn",
    "_C._set_sdp_use_overrideable",
)
_writer("attention_order", "_C._set_sdp_priority_order")

#: Entering and leaving contexts implemented in C; those still entered when capture stops are left by it.
CONTEXT_ENTER = frozenset(_torch.ENTER_INFERENCE_MODE)
CONTEXT_EXIT = frozenset(_torch.EXIT_INFERENCE_MODE)

#: Natives whose answer does not depend on anything the program can change: build, whether this is a script.
CONSTANT_ANSWERS: frozenset[Any] = frozenset(
    value
    for value in (
        torch.jit.is_scripting,
        torch.jit.is_tracing,
        torch.compiler.is_exporting,
        torch.cuda.is_current_stream_capturing,
        torch.backends.mps.is_available,
        torch.overrides.has_torch_function,
        torch.overrides.has_torch_function_unary,
        torch.overrides.has_torch_function_variadic,
        torch.overrides.is_tensor_method_or_property,
        torch.cuda.is_initialized,
        torch.xpu.device_count,
        torch.get_default_device,  # set by a function mode, of which there is none: that is guarded
        getattr(torch, "_is_functional_tensor", None),
        torch.amp.autocast_mode.is_autocast_available,
        *_torch.CONSTANT_ANSWERS,
    )
    if value is not None
)


def name_of(function: Any) -> str:
    """The name of a function in words for users."""
    module = getattr(function, "__module__", None)
    owner = getattr(function, "__objclass__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(type(function))
    if owner is not None:
        return f"{owner.__qualname__}.{getattr(function, '__name__', name)}"
    return f"{module}.{name}" if module and module != "builtins" else str(name)
