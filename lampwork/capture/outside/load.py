"""`Loader`: what the program gets when it reads a value from outside, and the guards which that reading costs.

tensor                   a fake; a graph input with its metadata guarded
plain data               itself, guarded equal
function                 itself, guarded by its code; closure, defaults and globals are guarded when read
class, builtin, module   itself, guarded by identity
object, nn.Module        itself, guarded by its type; attributes go through a overlay of its `__dict__`
list, dict, set, deque   a private copy; elements are loaded when read
tuple, frozenset         a new one of loaded elements
anything else            itself, guarded by identity; no native function accepts it
"""

from __future__ import annotations

import collections
import enum
import functools
import gc
import operator
import re
import types
import weakref
from typing import Any

import numpy
import torch

from lampwork import _torch
from lampwork.capture.outside.class_lookups import ClassLookups
from lampwork.capture.outside.container_overlays import ContainerOverlays
from lampwork.capture.outside.guards import GuardList, Sources
from lampwork.capture.outside.open_text import OpenText, open_text
from lampwork.capture.outside.overlay import (
    Break,
    CellOverlay,
    Deferred,
    DictOverlay,
    ListOverlay,
    Origin,
    Pending,
    SetOverlay,
)
from lampwork.capture.outside.plain import (
    HEAP_TYPE,
    IMMUTABLE_TYPE,
    PLAIN_TYPES,
    bound_owner,
    holds_native_state,
    is_plain,
)
from lampwork.capture.outside.wrappers import is_wrapper, load_wrapper
from lampwork.capture.values.numbers import in_parameter_group
from lampwork.capture.values.unknown_array import UnknownArray, can_follow
from lampwork.ir.operations import HOLD_PLAIN_DATA, plain_contents
from lampwork.ir.reference import namespace_of
from lampwork.ir.source import Source

BUILTIN_TYPES: frozenset[type] = frozenset({
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
})  # fmt: skip

_NOT_MADE_BY_PROGRAMS = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION

#: In this order: setting the cause suppresses the context.
CHANGED_BY_RAISING = ("__traceback__", "__context__", "__cause__", "__suppress_context__")


class Loader(ContainerOverlays):
    """Tables of everything from outside that the program has met, and `load`, which adds to them."""

    def __init__(self, guards: GuardList, sources: Sources, tensors: Any, numbers: Any) -> None:
        super().__init__(guards, sources)
        #: `TensorInputs`: makes fakes and graph inputs.
        self.tensors = tensors
        self.classes = ClassLookups(self)
        #: `Subclasses`: what stands for tensors of wrapper subclasses.
        self.subclasses: Any = None
        #: `BackedNumbers`: numbers that may be others on the next call.
        self.numbers = numbers
        #: Values that no native function may look into, by id.
        self.opaque: set[int] = set()
        #: Symbols for integers from outside, by id of the source.
        self.integers: dict[int, Any] = {}
        #: Texts that no guard fixes, by id of the source; and what they are in this call.
        self.open_texts: dict[int, OpenText] = {}
        self._open_names: set[str] = set()
        #: Objects of the program's own making whose `__dict__` it held: that, and the object, by the id of the dict.
        self.dict_owners: dict[int, tuple[dict[str, Any], Any]] = {}
        #: What stands for objects that host calls make (`values/host_results.py`), with the calls, by id.
        self.host_objects: dict[int, tuple[Any, Any]] = {}
        #: Exceptions from outside, with what raising and chaining them changes, as it was.
        self.exceptions: dict[int, tuple[BaseException, tuple]] = {}
        #: Whether a `backward()` freed the history of tensors.
        self.freed_histories = False
        #: Nodes that a `backward()` has freed and that do not tell.
        self.freed_nodes: set[Any] = set()
        #: The first function with globals that are no module's, by the id of these.
        self.namespaces: dict[int, Source] = {}
        self._by_type: dict[type, Any] = {}
        for kind in PLAIN_TYPES:
            self._by_type[kind] = self._load_plain
        self._by_type[str] = self._load_text
        self._by_type[int] = self._load_integer
        self._by_type[float] = self._load_float
        for kind in BUILTIN_TYPES:
            self._by_type[kind] = self._load_identity
        self._by_type.update({
            slice: self._load_slice,
            types.FunctionType: self._load_function,
            types.MethodType: self._load_method,
            types.MethodWrapperType: self._load_builtin_method,
            types.ModuleType: self._load_identity,
            list: self._load_list,
            collections.deque: self._load_list,
            dict: self._load_dict,
            collections.OrderedDict: self._load_dict,
            collections.defaultdict: self._load_dict,
            set: self._load_set,
            frozenset: self._load_frozenset,
            tuple: self._load_tuple,
            functools.partial: self._load_partial,
            types.MappingProxyType: self._load_mapping_proxy,
            property: self._load_object,
            re.Pattern: self._load_pattern,
            types.CellType: self._load_cell,
            torch.jit.ScriptFunction: self._load_identity,
            operator.itemgetter: self._load_identity,
            operator.attrgetter: self._load_identity,
            operator.methodcaller: self._load_identity,
            weakref.ReferenceType: self._load_weak_reference,
            **dict.fromkeys(_torch.OPERATOR_TYPES, self._load_identity),
        })  # fmt: skip

    # ------------------------------------------------------------------------------------------------------------------

    def load(self, raw: Any, source: Source) -> Any:
        """What the program holds for the object `raw` found at `source`. Guards it, as the module says."""
        handler = self._by_type.get(type(raw))
        if handler is not None:
            return handler(raw, source)
        return self._load_other(raw, source)

    def look(self, value: Any) -> Any:
        """The value, loaded if it is a `Deferred`."""
        return self.load(value.raw, value.source) if type(value) is Deferred else value

    def origin(self, value: Any) -> Origin | None:
        """Where a value that the program holds came from, if it came from outside and has an identity."""
        return self.by_value.get(id(value))

    def remember(self, value: Any, raw: Any, source: Source) -> Any:
        origin = Origin(value, raw, source)
        self.by_raw[id(raw)] = origin
        self.by_value[id(value)] = origin
        return value

    def _known(self, raw: Any, source: Source) -> Origin | None:
        """The origin of an object met before; meeting it at another source is guarded."""
        origin = self.by_raw.get(id(raw))
        if origin is not None and origin.source is not source:
            self.guards.same_object(source, origin.source)
        return origin

    def current(self, raw: Any) -> Any:
        """What the program holds for `raw` if that has been loaded; else `raw` itself."""
        origin = self.by_raw.get(id(raw))
        return raw if origin is None else origin.value

    # ------------------------------------------------------------------------------------------------------------------

    def _load_plain(self, raw: Any, source: Source) -> Any:
        self.guards.equals(source, raw)
        return raw

    def _load_text(self, raw: str, source: Source) -> Any:
        """Itself; open, if it differed between calls, or is the same as another one that did."""
        known = self.open_texts.get(id(source))
        if known is not None:
            return known
        if raw in self._open_names or self.tensors.policy.is_symbol(source, "text"):
            self._open_names.add(raw)
            self.guards.type_is(source, str)
            made = self.open_texts[id(source)] = open_text(raw, source, self.guards.equals)
            return made
        self.guards.equals(source, raw)
        return raw

    def _load_integer(self, raw: int, source: Source) -> Any:
        if self.tensors.policy.allowed:
            known = self.integers.get(id(source))
            if known is None:
                known = self.tensors.load_integer(raw, source)
            if known is not None:
                self.integers[id(source)] = known
                return known
        self.guards.equals(source, raw)
        return raw

    def _load_float(self, raw: float, source: Source) -> Any:
        if raw == raw and (in_parameter_group(source) or self.tensors.policy.is_symbol(source, "value")):
            self.guards.type_is(source, float)
            return self.numbers.at(source, "value", raw)
        self.guards.equals(source, raw)
        return raw

    def _load_slice(self, raw: slice, source: Source) -> Any:
        if not is_plain(raw):
            raise Break("opaque-value", "a slice of objects from outside the program")
        self.guards.equals(source, raw)
        return raw

    def _load_identity(self, raw: Any, source: Source) -> Any:
        if type(raw) is types.BuiltinFunctionType and bound_owner(raw) is not None:
            return self._load_builtin_method(raw, source)
        self.guards.is_object(source, raw)
        if id(raw) not in self.by_value:
            self.remember(raw, raw, source)
            if isinstance(raw, types.ModuleType) and type(raw) is not types.ModuleType:
                self.class_source(type(raw), source)
            elif isinstance(raw, type) and type(raw) is not type:
                self.class_source(type(raw), source)  # its metaclass, which answers for it
        return raw

    def _load_builtin_method(self, raw: Any, source: Source) -> Any:
        """A C method bound to an object from outside (`self.append`): bound to what the program holds instead."""
        owner = self.load(raw.__self__, self.sources.attribute(source, "__self__"))
        if type(raw) is types.MethodWrapperType and (id(owner) in self.opaque or type(owner) is not type(raw.__self__)):
            raise Break("opaque-value", f"{raw.__name__} of a {type(raw.__self__).__name__} from outside is called")
        self.guards.type_is(source, type(raw))
        self.guards.equals(self.sources.attribute(source, "__name__"), raw.__name__)
        return getattr(owner, raw.__name__)

    def _load_function(self, raw: Any, source: Source) -> Any:
        origin = self.by_raw.get(id(raw))
        self.guards.function_is(source, raw)
        if not namespace_of(raw):  # globals are read of one of the functions that share them
            first = self.namespaces.setdefault(id(raw.__globals__), source)
            if first is not source:
                own, shared = (self.sources.attribute(each, "__globals__") for each in (source, first))
                self.guards.same_object(own, shared)
        if raw.__closure__ and self.guards.reference(raw).portable:
            # One code serves many closures, such as those of `F.max_pool2d` and `F.adaptive_max_pool2d`. What is called
            # by its name, uninterpreted, has no guards of its cells: it is the object that the name leads to.
            self.guards.is_object(source, raw)
        if origin is None:
            self.remember(raw, raw, source)
        elif origin.source is not source:
            # Same code does not mean same closure: what is read of it later is guarded at the first source only.
            self.guards.same_object(source, origin.source)
        return raw

    def _load_method(self, raw: Any, source: Source) -> Any:
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, types.MethodType)
        function = self.load(raw.__func__, self.sources.attribute(source, "__func__"))
        instance = self.load(raw.__self__, self.sources.attribute(source, "__self__"))
        return self.remember(types.MethodType(function, instance), raw, source)

    def _load_weak_reference(self, raw: Any, source: Source) -> Any:
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, weakref.ReferenceType)
        referent = self.load(raw(), self.sources.referent(source))
        return self.remember(raw if referent is None else weakref.ref(referent), raw, source)

    def _load_partial(self, raw: Any, source: Source) -> Any:
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, functools.partial)
        attribute = self.sources.attribute
        function = self.load(raw.func, attribute(source, "func"))
        args = self.load(raw.args, attribute(source, "args"))
        keywords = self.settle(self.load(raw.keywords, attribute(source, "keywords")))
        return self.remember(functools.partial(function, *args, **keywords), raw, source)

    def _load_list(self, raw: Any, source: Source) -> Any:
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, type(raw))
        iterate = list.__iter__ if isinstance(raw, list) else iter
        elements = [Pending(element, index) for index, element in enumerate(iterate(raw))]
        copy: Any = elements
        if type(raw) is collections.deque:
            copy = collections.deque(elements, raw.maxlen)
            self.guards.equals(self.sources.attribute(source, "maxlen"), raw.maxlen)
        elif type(raw) is not list:  # of a class written in Python: its instance dict is shadowed like any other
            self.class_source(type(raw), source)
            copy = list.__new__(type(raw))
            list.extend(copy, elements)
        self.lists[id(copy)] = self.unsettled[id(copy)] = ListOverlay(copy, raw, source)
        return self.remember(copy, raw, source)

    def _load_dict(self, raw: Any, source: Source) -> Any:
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, type(raw))
        if type(raw) is collections.defaultdict:
            factory = self.load(raw.default_factory, self.sources.attribute(source, "default_factory"))
            copy: dict = collections.defaultdict(factory, raw)
        else:
            copy = raw.copy()
        overlay = self.dicts[id(copy)] = self.unsettled[id(copy)] = DictOverlay(copy, raw, source)
        if any(isinstance(key, torch.Tensor) for key in overlay.base):
            self._load_tensor_keys(overlay)
        return self.remember(copy, raw, source)

    def _load_tensor_keys(self, overlay: DictOverlay) -> None:
        """A dict with tensors for keys (an optimizer's state): the copy has what stands for them, all guarded."""
        overlay.whole = True
        self.guards.length_is(overlay.source, len(overlay.base))
        pairs = []
        for index, (key, value) in enumerate(overlay.base.items()):
            pairs.append((self.load(key, self.sources.key_at(overlay.source, index)), value))
        overlay.copy.clear()
        overlay.copy.update(pairs)
        overlay.base = dict(pairs)
        overlay.pending = {key for key, _ in pairs}

    def _load_mapping_proxy(self, raw: Any, source: Source) -> Any:
        """A read-only view of a dict of its own, with everything loaded; views of other mappings and of classes'
        dicts, which are large, are opaque."""
        mapping = gc.get_referents(raw)[0]
        if type(mapping) not in (dict, collections.OrderedDict) or "__module__" in mapping:
            return self._load_opaque(raw, source)
        if not all(map(is_plain, mapping)):
            return self._load_opaque(raw, source)
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, types.MappingProxyType)
        self.guards.keys_are(source, tuple(mapping))
        self.guard_members(frozenset(mapping), None)
        copy = {key: self.load(value, self.sources.item(source, key)) for key, value in mapping.items()}
        return self.remember(types.MappingProxyType(type(mapping)(copy)), raw, source)

    def _load_set(self, raw: Any, source: Source) -> Any:
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, set)
        copy = set(raw)
        self.sets[id(copy)] = self.unsettled[id(copy)] = SetOverlay(copy, raw, source)
        return self.remember(copy, raw, source)

    def _load_frozenset(self, raw: Any, source: Source) -> Any:
        if is_plain(raw):
            self.guard_members(raw, source)
            self.guards.equals(source, raw)
            return raw if id(raw) in self.by_raw else self.remember(raw, raw, source)
        value = self._load_opaque(raw, source)
        if all(map(_never_changes, raw)):
            self.guards.is_object(source, raw)
            self.opaque.discard(id(raw))  # the same object has the same elements, and these may be looked at
        return value

    def _load_tuple(self, raw: Any, source: Source) -> Any:
        if is_plain(raw) and not self.tensors.policy.opens(source) and not _holds_hyper_parameters(raw, source):
            self.guards.equals(source, raw)
            self.guard_members(raw, source)
            return raw
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, type(raw))
        self.guards.length_is(source, tuple.__len__(raw))
        self.class_source(type(raw), source)
        items = [self.load(item, self.sources.item(source, index)) for index, item in enumerate(tuple.__iter__(raw))]
        value = tuple(items) if type(raw) is tuple else tuple.__new__(type(raw), items)
        return self.remember(value, raw, source)

    def _load_only_one(self, raw: Any, source: Source) -> Any:
        """`sys.flags`, `sys.version_info` and their like: plain, and no program can make another."""
        value = self._load_opaque(raw, source)
        self.guards.is_object(source, raw)
        self.opaque.discard(id(raw))
        return value

    def _load_opaque(self, raw: Any, source: Source) -> Any:
        """Only its type is known, and only what reads it again through a source may look into it."""
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, type(raw))
        self.opaque.add(id(raw))
        return self.remember(raw, raw, source)

    def _load_array(self, raw: numpy.ndarray, source: Source) -> Any:
        """A numpy array: a tensor over its memory is an input of the graph."""
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, numpy.ndarray)
        with self.tensors.recorder._paused():
            tensor = torch.from_numpy(raw)
        memory = self.tensors.load(tensor, self.sources.array_memory(source))
        return self.remember(UnknownArray(memory), raw, source)

    def load_node(self, raw: Any, source: Source) -> Any:
        """A node of autograd's graph, whose type says nothing: it is known by its identity."""
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.opaque.add(id(raw))
        return self.remember(raw, raw, source)

    def _load_member(self, raw: enum.Enum, source: Source) -> Any:
        self.guards.equals(source, raw)
        self.guard_members(raw, source)
        return raw

    def _load_pattern(self, raw: re.Pattern, source: Source) -> Any:
        self.guards.type_is(source, re.Pattern)
        for name in ("pattern", "flags"):
            self.guards.equals(self.sources.attribute(source, name), getattr(raw, name))
        return raw if self._known(raw, source) is not None else self.remember(raw, raw, source)

    def _load_cell(self, raw: types.CellType, source: Source) -> Any:
        """A cell that is held as such: a variable that suspended frames share with functions."""
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, types.CellType)
        if id(raw) not in self.cells:
            contents = self.sources.attribute(source, "cell_contents")
            self.cells[id(raw)] = CellOverlay(raw, source, contents)
        return self.remember(raw, raw, source)

    def _load_other(self, raw: Any, source: Source) -> Any:
        if isinstance(raw, torch.Tensor):
            origin = self._known(raw, source)
            if origin is not None:
                return origin.value
            if is_wrapper(raw):
                return load_wrapper(self, raw, source)
            return self.remember(self.tensors.load(raw, source), raw, source)
        if isinstance(raw, type):
            return self._load_identity(raw, source)
        if isinstance(raw, enum.Enum):
            return self._load_member(raw, source)
        if isinstance(raw, types.ModuleType):
            return self._load_identity(raw, source)
        kind = type(raw)
        if can_follow(raw):
            return self._load_array(raw, source)
        if isinstance(raw, tuple):
            if kind.__flags__ & _NOT_MADE_BY_PROGRAMS:
                return self._load_only_one(raw, source)
            if kind.__new__ is tuple.__new__ or hasattr(kind, "_fields"):
                return self._load_tuple(raw, source)
            return self._load_opaque(raw, source)
        if isinstance(raw, (numpy.number, numpy.bool_)):
            return self._load_plain(raw, source)
        if isinstance(raw, BaseException):
            return self._load_exception(raw, source)
        if not kind.__flags__ & HEAP_TYPE or kind.__flags__ & IMMUTABLE_TYPE:
            return self._load_opaque(raw, source)  # implemented in C
        if isinstance(raw, weakref.ReferenceType):
            return self._load_opaque(raw, source)
        if isinstance(raw, list):
            return self._load_list(raw, source)
        if isinstance(raw, HOLD_PLAIN_DATA):
            return self._load_derived(raw, source)
        if isinstance(raw, (set, frozenset, collections.deque)):
            return self._load_opaque(raw, source)
        if isinstance(raw, dict):
            return self._load_dict_subclass(raw, source)
        if holds_native_state(kind):
            self.opaque.add(id(raw))
        return self._load_object(raw, source)

    def _load_object(self, raw: Any, source: Source) -> Any:
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, type(raw))
        self.class_source(type(raw), source)
        return self.remember(raw, raw, source)

    def _load_derived(self, raw: Any, source: Source) -> Any:
        """A text or number of a class written in Python: an object, and what it holds, which any native code reads."""
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        value = self._load_object(raw, source)
        self.guards.equals(self.sources.plain_contents(source), plain_contents(raw))
        return value

    def _load_exception(self, raw: BaseException, source: Source) -> Any:
        """Itself; what it holds is loaded attribute by attribute. `restore_exceptions` undoes what raising it does."""
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.exceptions[id(raw)] = (raw, tuple([getattr(raw, name) for name in CHANGED_BY_RAISING]))
        self.opaque.add(id(raw))
        return self._load_object(raw, source)

    def release(self) -> None:
        """Forgets everything: the program's objects do not live longer because they were captured."""
        for table in vars(self).values():
            if isinstance(table, dict):
                table.clear()

    def restore_exceptions(self) -> None:
        for raw, values in self.exceptions.values():
            for name, value in zip(CHANGED_BY_RAISING, values):
                setattr(raw, name, value)

    def _load_dict_subclass(self, raw: dict, source: Source) -> Any:
        """A copy with the same class: contents and instance dict are both shadowed."""
        origin = self._known(raw, source)
        if origin is not None:
            return origin.value
        self.guards.type_is(source, type(raw))
        base = next(cls for cls in type(raw).__mro__ if cls in (dict, collections.OrderedDict, collections.defaultdict))
        copy = base.__new__(type(raw))
        if base is collections.defaultdict:
            return self._load_opaque(raw, source)
        for key, value in base.items(raw):
            base.__setitem__(copy, key, value)
        self.dicts[id(copy)] = self.unsettled[id(copy)] = DictOverlay(copy, raw, source)
        return self.remember(copy, raw, source)


#: Objects that are known by their identity, and are hashed by it.
_KNOWN_BY_IDENTITY = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.ClassMethodDescriptorType, types.ModuleType,
)  # fmt: skip


def _never_changes(value: Any) -> bool:
    """Whether an element of a frozen set is what it is as long as the set is the same object."""
    if type(value) in (tuple, frozenset):
        return all(map(_never_changes, value))
    return is_plain(value) or isinstance(value, _KNOWN_BY_IDENTITY)


def _holds_hyper_parameters(raw: tuple, source: Source) -> bool:
    return in_parameter_group(source) and float in map(type, raw)
