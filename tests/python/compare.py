"""When two runs of a program count as equal: a walk over both worlds at once.

Objects correspond one to one: where the left side meets an object again, the right side must meet its partner again. That
is how shared identity and aliasing are compared. Immutable builtin values have no identity here. Classes and functions
of the program exist once for each side and correspond by name; what they hold (attributes, defaults, closures) is compared.
"""

from __future__ import annotations

import collections
import enum
import functools
import math
import re
import traceback
import types
import weakref
from typing import Any

import numpy
import torch

from lampwork.runtime.function import CompiledFunction

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), type(NotImplemented), range, tuple, frozenset)
_ADDRESS = re.compile(r"0x[0-9a-f]{4,}")
#: `__slotnames__` is a cache that `copyreg` leaves in classes whose instances are copied; `__annotations__`, where there
#: are none, is made by whoever asks for them.
_CLASS_PRIVATE = frozenset({
    "__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl", "__firstlineno__", "__slotnames__",
    "__annotations__",
})  # fmt: skip
_BY_VALUE = (
    torch.dtype, torch.device, torch.layout, torch.memory_format, re.Pattern, numpy.dtype, types.CodeType,
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.UnionType,
)  # fmt: skip


_CONTAINERS = (dict, collections.OrderedDict, list)


class Mismatch(Exception):
    """The two sides differ; the message says where and how."""


class Failure:
    """An exception that left a program. `file`: whose lines of the traceback count."""

    def __init__(self, error: BaseException, file: str) -> None:
        self.error = error
        self.file = file


class Comparison:
    """One comparison of two worlds. `module`: the name under which both sides' program is loaded."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.partners: dict[int, int] = {}
        self.taken: set[int] = set()  # the values of `partners`
        self.storages: dict[int, int] = {}
        self.slots: dict[type, list[tuple[type, str]]] = {}
        self.keep: list[Any] = []

    def compare(self, left: Any, right: Any, path: str = "") -> None:
        """Returns if equal; raises `Mismatch` otherwise."""
        if isinstance(right, Failure) and not isinstance(left, Failure):
            text = "".join(traceback.format_exception(right.error))
            raise Mismatch(f"{path}: {_show(left)} in eager, compiled:\n{text}")
        self.same_class(type(left), type(right), path)
        if isinstance(left, _PLAIN) and type(left) in _PLAIN:
            self.plain(left, right, path)
            return
        known = self.partners.get(id(left))
        if known is not None or id(right) in self.taken:
            if known != id(right):
                raise Mismatch(f"{path}: the two sides do not share the same objects ({_show(left)})")
            return
        self.pair(left, right)
        self.contents(left, right, path)

    def pair(self, left: Any, right: Any) -> None:
        """From here on the one stands for the other."""
        self.partners[id(left)] = id(right)
        self.taken.add(id(right))
        self.keep += (left, right)

    def equal(self, left: Any, right: Any, path: str) -> None:
        if left != right:
            raise Mismatch(f"{path}: {_show(left)} in eager, {_show(right)} compiled")

    def plain(self, left: Any, right: Any, path: str) -> None:
        if isinstance(left, (tuple, frozenset)):
            self.contents(left, right, path)
        elif isinstance(left, str):
            if _ADDRESS.sub("0x", left) != _ADDRESS.sub("0x", right):
                self.equal(left, right, path)
        elif isinstance(left, float):
            if not (
                left == right or (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-5)
            ):
                self.equal(left, right, path)
            if not math.isnan(left):
                self.equal(math.copysign(1, left), math.copysign(1, right), f"sign of {path}")
        else:
            self.equal(left, right, path)

    # -- classes

    def same_class(self, left: type, right: type, path: str) -> None:
        if left is not right and (left.__module__, left.__qualname__) != (right.__module__, right.__qualname__):
            raise Mismatch(f"{path}: a {left.__qualname__} in eager, a {right.__qualname__} compiled")

    def classes(self, left: type, right: type, path: str) -> None:
        self.same_class(left, right, path)
        if left is right or left.__module__ != self.module:
            return
        names = [[name for name in vars(each) if name not in _CLASS_PRIVATE] for each in (left, right)]
        self.equal(*map(sorted, names), f"names in {path}")
        self.compare(left.__mro__, right.__mro__, f"{path}.__mro__")
        for name in names[0]:
            self.compare(vars(left)[name], vars(right)[name], f"{path}.{name}")

    # -- everything else, by kind

    def contents(self, left: Any, right: Any, path: str) -> None:
        if type(left) in _CONTAINERS:
            self.objects(left, right, path)
        elif isinstance(left, torch.Tensor):
            self.tensors(left, right, path)
        elif isinstance(left, Failure):
            self.errors(left.error, right.error, left.file, f"{path}: exception")
        elif isinstance(left, type):
            self.classes(left, right, path)
        elif isinstance(left, types.ModuleType):
            self.equal(left.__name__, right.__name__, path)
        elif isinstance(left, enum.Enum):
            names = [vars(each).get("_name_", _Empty) for each in (left, right)]  # a program may delete it
            self.equal(*names, path)
            self.compare(type(left), type(right), f"type({path})")
        elif isinstance(left, (numpy.ndarray, numpy.generic)):
            self.equal((left.dtype, left.shape), (right.dtype, right.shape), path)
            if not numpy.allclose(left, right, equal_nan=True):
                self.equal(left.tolist(), right.tolist(), path)
        elif isinstance(left, torch.Generator):
            self.compare(left.get_state(), right.get_state(), f"{path}.get_state()")
        elif isinstance(left, BaseException):
            self.errors(left, right, None, path)
        elif isinstance(left, _BY_VALUE):
            self.by_value(left, right, path)
        elif isinstance(left, types.FunctionType):
            self.functions(left, right, path)
        elif isinstance(left, types.MethodType):
            self.compare(left.__func__, right.__func__, f"{path}.__func__")
            self.compare(left.__self__, right.__self__, f"{path}.__self__")
        elif isinstance(left, types.CellType):
            self.compare(_cell(left), _cell(right), path)
        elif isinstance(left, types.GeneratorType):
            self.generators(left, right, path)
        elif isinstance(left, weakref.ReferenceType):
            self.compare(left(), right(), f"{path}()")
        else:
            self.objects(left, right, path)

    def by_value(self, left: Any, right: Any, path: str) -> None:
        if getattr(left, "__self__", None) is not None and not isinstance(left.__self__, types.ModuleType):
            self.equal(left.__name__, right.__name__, path)
            self.compare(left.__self__, right.__self__, f"{path}.__self__")
        elif isinstance(left, types.GetSetDescriptorType) or isinstance(left, types.UnionType):
            self.equal(str(left), str(right), path)
        else:
            self.equal(left, right, path)

    def tensors(self, left: torch.Tensor, right: torch.Tensor, path: str) -> None:
        facts = [
            (each.dtype, tuple(each.shape), each.layout, each.device, each.requires_grad, _is_leaf(each), each.is_inference(),
             each.is_conj(), each.is_neg())
            for each in (left, right)
        ]  # fmt: skip
        self.equal(*facts, f"(dtype, shape, layout, device, grad, leaf, inference, conj, neg) of {path}")
        if left.layout is torch.strided:
            # Strides of dimensions of size 1 mean nothing.
            self.equal(*[tuple(s for s, n in zip(each.stride(), each.shape) if n != 1) for each in (left, right)],
                       f"strides of {path}")  # fmt: skip
            self.equal(left.storage_offset(), right.storage_offset(), f"storage offset of {path}")
            mine, other = left.untyped_storage(), right.untyped_storage()
            if left.numel():
                partner = self.storages.setdefault(mine.data_ptr(), other.data_ptr())
                if partner != other.data_ptr() or list(self.storages.values()).count(partner) != 1:
                    raise Mismatch(f"{path}: the two sides do not share the same storages")
        if not _close(left, right):
            raise Mismatch(f"{path}: {_show(left)} in eager, {_show(right)} compiled")
        if _is_leaf(left) is None:
            return  # autograd refuses to say how either was made
        if left.is_leaf:
            self.compare(left.grad, right.grad, f"{path}.grad")
        else:
            names = type(left.grad_fn).__name__, type(right.grad_fn).__name__
            if names[1] not in (
                "LampworkRegionBackward",
                "LampworkRegionResultsBackward",
                "AsStridedBackward0",
                "SpentBackward",
            ):  # a region is one node, or a few
                self.equal(*names, f"{path}.grad_fn")
        self.compare(left.__dict__, right.__dict__, f"{path}.__dict__")

    def functions(self, left: Any, right: Any, path: str) -> None:
        self.equal((left.__qualname__, left.__module__), (right.__qualname__, right.__module__), path)
        if left is right:
            return
        self.equal(left.__code__.co_code, right.__code__.co_code, f"{path}.__code__")
        if left.__module__ != self.module:
            return
        if hasattr(left, "_clear_cache"):  # `functools.singledispatch`: which classes it has seen is its own affair
            return
        for name in ("__defaults__", "__kwdefaults__", "__closure__", "__annotations__"):
            self.compare(getattr(left, name), getattr(right, name), f"{path}.{name}")
        # An address, which `torch.compiler.disable` keeps.
        names = [{key: each for key, each in vars(side).items() if key != "_torchdynamo_wrapper_id"}
                 for side in (left, right)]  # fmt: skip
        self.compare(*names, f"{path}.__dict__")

    def generators(self, left: Any, right: Any, path: str) -> None:
        self.equal((left.__qualname__, left.gi_running), (right.__qualname__, right.gi_running), path)
        frames = left.gi_frame, right.gi_frame
        self.equal(*[each is None for each in frames], f"end of {path}")
        if frames[0] is not None:
            self.equal(*[each.f_lineno for each in frames], f"line of {path}")
            self.compare(*[dict(each.f_locals) for each in frames], f"locals of {path}")  # type: ignore[misc]

    def errors(self, left: BaseException, right: BaseException, file: str | None, path: str) -> None:
        """`file`: lines of the traceback in it are compared."""
        if type(left).__qualname__ != type(right).__qualname__:
            text = "".join(traceback.format_exception(right))
            raise Mismatch(f"{path}: {left!r} in eager, compiled:\n{text}")
        self.compare(left.args, right.args, f"{path}.args")
        self.equal(*[_ADDRESS.sub("0x", str(each)) for each in (left, right)], f"text of {path}")
        self.compare(left.__dict__, right.__dict__, f"{path}.__dict__")
        self.equal(left.__suppress_context__, right.__suppress_context__, f"{path}.__suppress_context__")
        if isinstance(left, BaseExceptionGroup):
            self.compare(left.exceptions, right.exceptions, f"{path}.exceptions")  # type: ignore[attr-defined]
        if file is not None:
            lines = [
                [
                    (place.name, place.lineno)
                    for place in traceback.extract_tb(each.__traceback__)
                    if place.filename == file
                ]
                for each in (left, right)
            ]
            self.equal(*lines, f"traceback of {path}")
        for name in ("__cause__", "__context__"):
            pair = getattr(left, name), getattr(right, name)
            self.equal(*[type(each).__qualname__ for each in pair], f"{path}.{name}")
            if pair[0] is not None and id(pair[0]) not in self.partners:
                self.pair(*pair)
                self.errors(*pair, file, f"{path}.{name}")

    def objects(self, left: Any, right: Any, path: str) -> None:
        """Containers of any class, iterators that can be taken apart, and plain objects: class, contents, attributes."""
        self.compare(type(left), type(right), f"type({path})")
        if isinstance(left, CompiledFunction):  # its entries are nobody's business
            self.compare(left.function, right.function, f"{path}.function")
            return
        if isinstance(left, (int, float, str, bytes, complex)):
            self.plain(*[_base_value(each) for each in (left, right)], path)
        elif isinstance(left, (dict, types.MappingProxyType)):
            items = [list(_items(each)) for each in (left, right)]
            self.equal(*map(len, items), f"len({path})")
            for (key, value), (other_key, other_value) in zip(*items):
                self.compare(key, other_key, f"key {_show(key)} of {path}")
                self.compare(value, other_value, f"{path}[{_show(key)}]")
            if isinstance(left, collections.defaultdict):
                self.compare(left.default_factory, right.default_factory, f"{path}.default_factory")
        elif isinstance(left, (set, frozenset)):
            self.sets(left, right, path)
        elif isinstance(left, (list, tuple, collections.deque, collections.abc.MappingView, bytearray)):
            base = next(each for each in (list, tuple, object) if isinstance(left, each))
            values = [list(base.__iter__(each) if base is not object else each) for each in (left, right)]  # type: ignore[attr-defined]
            self.equal(*map(len, values), f"len({path})")
            for index, pair in enumerate(zip(*values)):
                self.compare(*pair, f"{path}[{index}]")
            if isinstance(left, collections.deque):
                self.equal(left.maxlen, right.maxlen, f"{path}.maxlen")
        elif isinstance(left, functools.partial):
            for name in ("func", "args", "keywords", "__dict__"):
                self.compare(getattr(left, name), getattr(right, name), f"{path}.{name}")
            return
        elif isinstance(left, property):
            for name in ("fget", "fset", "fdel"):
                self.compare(getattr(left, name), getattr(right, name), f"{path}.{name}")
        elif isinstance(left, (staticmethod, classmethod)):
            self.compare(left.__func__, right.__func__, path)
        elif type(left).__name__ == "_lru_cache_wrapper":
            # How often it was asked is not part of what a program computes; what it remembers is.
            self.equal(left.cache_info().currsize, right.cache_info().currsize, f"{path}.cache_info().currsize")
        elif isinstance(left, slice):
            self.compare(*[(each.start, each.stop, each.step) for each in (left, right)], path)  # type: ignore[misc]
        elif type(left).__module__ in ("builtins", "itertools", "_collections") and hasattr(left, "__next__"):
            if type(left) not in (map, filter):  # they hold no more than what they were made of
                self.compare(*[_taken_apart(each) for each in (left, right)], path)  # type: ignore[misc]
        self.attributes(left, right, path)

    def attributes(self, left: Any, right: Any, path: str) -> None:
        pair = _dict(left), _dict(right)
        if pair[0] is not None or pair[1] is not None:
            self.compare(*pair, f"{path}.__dict__")
        slots = self.slots.get(type(left))
        if slots is None:
            slots = self.slots[type(left)] = _slots(type(left))
        for cls, name in slots:
            other = next(each for each in type(right).__mro__ if each.__qualname__ == cls.__qualname__)
            self.compare(_slot(vars(cls)[name], left), _slot(vars(other)[name], right), f"{path}.{name}")

    def sets(self, left: Any, right: Any, path: str) -> None:
        self.equal(len(left), len(right), f"len({path})")
        rest = list(right)
        for element in left:
            for index, other in enumerate(rest):
                before = dict(self.partners), set(self.taken), dict(self.storages)
                try:
                    self.compare(element, other, path)
                except Mismatch:
                    self.partners, self.taken, self.storages = before
                else:
                    del rest[index]
                    break
            else:
                raise Mismatch(f"{path}: {_show(element)} is in eager's set only")


def _is_leaf(tensor: torch.Tensor) -> bool | None:
    """None where autograd raises: of a view made under `no_grad` whose base was written to outside of it."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return None


def _close(left: torch.Tensor, right: torch.Tensor) -> bool:
    left, right = (_plain(each) for each in (left, right))
    if not (left.is_floating_point() or left.is_complex()):
        return torch.equal(left, right)
    wide = torch.complex128 if left.is_complex() else torch.float64
    loose = left.dtype in (torch.bfloat16, torch.float16)
    left, right = left.resolve_conj().to(wide), right.resolve_conj().to(wide)
    return torch.allclose(left, right, rtol=1e-2 if loose else 1e-5, atol=1e-2 if loose else 1e-6, equal_nan=True)


def _plain(value: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(False):  # a tensor of that mode cannot become another class
        value = value.detach().clone()
    if value.layout is not torch.strided:
        return value.to_dense()
    return value if type(value) is torch.Tensor else value.as_subclass(torch.Tensor)


def _show(value: Any) -> str:
    try:
        return f"{value!r:.200}" if isinstance(value, str) else f"{repr(value):.200}"
    except Exception as error:
        return f"a {type(value).__qualname__} whose repr raises {type(error).__name__}"


class _Empty:
    """Stands for a cell or slot without a value."""


def _dict(value: Any) -> Any:
    """Where the attributes of a value are, past what its class defines; None where it has none."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def _slots(cls: type) -> list[tuple[type, str]]:
    """The slots of a class that is written in Python, and of its bases: (where it is, its name)."""
    return [
        (base, name)
        for base in cls.__mro__
        if base.__flags__ & (1 << 9)
        for name, entry in vars(base).items()
        if isinstance(entry, types.MemberDescriptorType)
    ]


def _items(mapping: Any) -> Any:
    """Items in the order of the builtin class, past what a subclass defines."""
    for base in (collections.OrderedDict, dict):
        if isinstance(mapping, base):
            return base.items(mapping)
    return mapping.items()


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _Empty


def _slot(descriptor: Any, value: Any) -> Any:
    try:
        return descriptor.__get__(value)
    except AttributeError:
        return _Empty


def _taken_apart(iterator: Any) -> Any:
    try:
        return tuple(iterator.__reduce__()[1:])
    except TypeError:
        return None


def _base_value(value: Any) -> Any:
    base = next(each for each in type(value).__mro__ if each in _PLAIN)
    return base.__add__(value, base()) if base is not bool else bool(value)
