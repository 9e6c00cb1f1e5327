"""Writes the end of an entry's function: objects made, effects applied in order, the outcome returned or raised.

    objects, effects, outcome -> lines of Python over `values` (what the check read) and `results` (what the graph gave)

Immutable objects are written where they are used; an object in a cycle, or used twice, gets a local name. Values found
at sources were read by the check, before any effect.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.number import Leaf, NumberExpr
from lampwork.ir.number import text as number_text
from lampwork.ir.number_operations import NAMES
from lampwork.ir.operations import advanced
from lampwork.ir.reference import resolve
from lampwork.ir.region import Continue, Outcome, Raise, Return
from lampwork.ir.source import Source
from lampwork.ir.template import (
    AdvanceIterator,
    Call,
    CallSetAttribute,
    ConstantValue,
    DeleteAttribute,
    DeleteItem,
    Effect,
    Evaluate,
    HostCall,
    HostValue,
    NewCall,
    NewCell,
    NewDeque,
    NewDict,
    NewFunction,
    NewList,
    NewMethod,
    NewObject,
    NewSet,
    NewSlice,
    NewThing,
    NewTuple,
    NewValue,
    NumberValue,
    ObjectValue,
    ReplaceDict,
    ReplaceItems,
    ReplaceSet,
    ScalarValue,
    SetAttribute,
    SetCell,
    SetItem,
    SetState,
    SourceValue,
    Template,
    TensorValue,
)
from lampwork.runtime.guards.interpreter import instance_dict
from lampwork.runtime.guards.plain_data import typed


def sources_of(*parts: object) -> tuple[Source, ...]:
    """Every source that a template in `parts` reads, each once, in order of appearance."""
    found: dict[int, Source] = {}
    for part in parts:
        _collect(part, found)
    return tuple(found.values())


def _collect(part: object, found: dict[int, Source]) -> None:
    if isinstance(part, SourceValue):
        found.setdefault(id(part.source), part.source)
    elif isinstance(part, NumberExpr):
        for leaf in part.leaves:
            found.setdefault(id(leaf.source), leaf.source)
    elif isinstance(part, tuple):
        for item in part:
            _collect(item, found)
    elif is_dataclass(part) and not isinstance(part, type) and not isinstance(part, (ConstantValue, ObjectValue)):
        for each in fields(part):
            _collect(getattr(part, each.name), found)


class TemplateWriter:
    """`values`: text of the value at each source (by id of the source). Constants go to `constants`, by name."""

    def __init__(self, objects: Sequence[NewThing], values: dict[int, str], inputs_kept: frozenset[int]) -> None:
        self.objects = objects
        self.values = values
        #: Results that are the very tensor passed in: their class and grad flag are theirs already.
        self.inputs_kept = inputs_kept
        self.lines: list[str] = []
        self.constants: dict[str, object] = {"runtime": _HELPERS, **NAMES}
        self._names: dict[int, str] = {}
        self._tensors: dict[int, str] = {}
        self._uses = _count_uses(objects)
        self._cyclic = _cyclic(objects)

    def write(self, effects: Sequence[Effect], outcome: Outcome) -> tuple[list[str], list[str]]:
        """Lines that make what effects and outcome hold, and change nothing; and those that apply the effects, whose
        last returns, or calls `leave`: with what to raise, or with what goes on at a break."""
        for part in (*effects, outcome):
            for index in _direct_objects(part):
                self._uses[index] = self._uses.get(index, 0) + 1
        self._start_cycles()
        # Effects may change what other templates were read from; what they hold is made before the first of them.
        prepared = [(effect, self._texts(effect)) for effect in effects]
        if isinstance(outcome, Return):
            text, form = self.text(outcome.value), "return {}"
        elif isinstance(outcome, Raise):
            text, form = self.text(outcome.exception), "return leave({})"
        elif isinstance(outcome, Continue):
            named = "".join(f"{name!r}: {self.text(value)}, " for name, value in outcome.kwargs)
            args, live = self._items(outcome.args), self._items(outcome.live)
            text, form = f"({self.text(outcome.callable)}, ({args}), {{{named}}}, ({live}))", "return leave(*{})"
        else:
            raise TypeError(f"an entry without a program has no end to write: {outcome!r}")
        if effects and not text.isidentifier():
            self.lines.append(f"outcome = {text}")
            text = "outcome"
        final = form.format(text)
        made, self.lines = self.lines, []
        for effect, texts in prepared:
            self._effect(effect, texts)
        return made, [*self.lines, final]

    def host_call(self, call: HostCall) -> str:
        """A line that makes a host call. It names no object of the region."""
        named = "".join(f"{name}={self.text(value)}, " for name, value in call.kwargs)
        return f"host{call.index} = {self.constant(resolve(call.function))}({self._items(call.args)}{named})"

    # Templates -----------------------------------------------------------------------------------------------------

    def constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def text(self, template: Template) -> str:
        match template:
            case ConstantValue(value):
                if value is None or type(value) in (bool, int, str, bytes):
                    return repr(value)
                return self.constant(value)
            case ObjectValue(ref):
                return self.constant(resolve(ref))
            case SourceValue(source):
                return self.values[id(source)]
            case TensorValue():
                return self._tensor(template)
            case ScalarValue(index, kind):
                return f"{kind}(results[{index}])"
            case NumberValue(number):
                return f"({number_text(number, self._number)})"
            case HostValue(index):
                return f"host{index}"
            case NewValue(index):
                return self._object(index)
        raise TypeError(f"not a template: {template!r}")

    def _tensor(self, template: TensorValue) -> str:
        plain = f"results[{template.index}]"
        if template.index in self.inputs_kept or (template.tensor_class is None and not template.requires_grad):
            return plain
        if template.index not in self._tensors:
            name = self._tensors[template.index] = f"t{template.index}"
            if template.spent:
                self.lines.append(f"{name} = runtime.spent({plain})")
                return name
            cls = torch.Tensor if template.tensor_class is None else resolve(template.tensor_class)
            self.lines.append(f"{name} = runtime.as_tensor({plain}, {self.constant(cls)}, {template.requires_grad})")
        return self._tensors[template.index]

    def _number(self, leaf: Leaf) -> str:
        return leaf.text(self.values[id(leaf.source)])

    def _object(self, index: int) -> str:
        if index in self._names:
            return self._names[index]
        thing = self.objects[index]
        if isinstance(thing, NewFunction) and thing.attributes and index in self._cyclic:
            return self._cyclic_function(index, thing)
        text = self._made(thing)
        if self._uses.get(index, 0) > 1 or not isinstance(self.objects[index], (NewTuple, NewList, NewDict, NewSlice)):
            name = self._names[index] = f"o{index}"
            self.lines.append(f"{name} = {text}")
            return name
        return text

    def _items(self, items: Sequence[Template]) -> str:
        return "".join(self.text(item) + ", " for item in items)

    def _pairs(self, pairs: Sequence[tuple[Template, Template]]) -> str:
        return ", ".join(f"{self.text(key)}: {self.text(value)}" for key, value in pairs)

    def _made(self, thing: NewThing) -> str:
        """An expression that makes `thing`, for objects outside cycles and immutable ones inside."""
        match thing:
            case NewTuple(items, cls):
                text = f"({self._items(items)})"
                if cls is None:
                    return text
                found = resolve(cls)
                if found is torch.Size or hasattr(found, "n_sequence_fields"):  # written in C: made by calling it
                    return f"{self.constant(found)}({text})"
                return f"tuple.__new__({self.constant(found)}, {text})"
            case NewSlice(start, stop, step):
                return f"slice({self.text(start)}, {self.text(stop)}, {self.text(step)})"
            case NewList(items):
                return f"[{self._items(items)}]"
            case NewSet(items, frozen):
                return f"{'frozenset' if frozen else 'set'}(({self._items(items)}))"
            case NewDict(pairs):
                return "{" + self._pairs(pairs) + "}"
            case NewDeque(items, maxlen):
                return f"{self.constant(deque)}(({self._items(items)}), {maxlen})"
            case NewObject():
                name = f"o{len(self._names)}_{len(self.lines)}"
                self.lines.append(f"{name} = {self._empty(thing)}")
                self._fill(name, thing)
                return name
            case NewCell(contents):
                return f"{self.constant(CellType)}({'' if contents is None else self.text(contents)})"
            case NewFunction():
                return self._function(thing)
            case NewMethod(function, instance):
                return f"{self.constant(MethodType)}({self.text(function)}, {self.text(instance)})"
            case NewCall(callable, args, kwargs):
                named = "".join(f"{name}={self.text(value)}, " for name, value in kwargs)
                return f"{self.constant(resolve(callable))}({self._items(args)}{named})"
        raise TypeError(f"not an object: {thing!r}")

    def _function(self, thing: NewFunction) -> str:
        closure = f"({self._items(thing.closure)})" if thing.closure else "None"
        defaults = "None" if thing.defaults is None else self.text(thing.defaults)
        kwdefaults = "None" if thing.kwdefaults is None else self.text(thing.kwdefaults)
        attributes = ", ".join(f"({name!r}, {self.text(value)})" for name, value in thing.attributes)
        return (
            f"runtime.make_function({self.constant(thing.code)}, {self.text(thing.globals_of)}, {thing.name!r}, "
            f"{thing.qualname!r}, {defaults}, {kwdefaults}, {closure}, [{attributes}])"
        )

    def _cyclic_function(self, index: int, thing: NewFunction) -> str:
        """A function that what it holds may lead back to: that is stored when the function has a name."""
        text = self._function(replace(thing, attributes=()))
        name = self._names[index] = f"o{index}"
        self.lines.append(f"{name} = {text}")
        for key, value in thing.attributes:
            self.lines.append(f"setattr({name}, {key!r}, {self.text(value)})")
        return name

    # Cycles: mutable members are allocated first and filled when everything has a name -----------------------------

    def _start_cycles(self) -> None:
        mutable = [index for index in sorted(self._cyclic) if isinstance(self.objects[index], _MUTABLE)]
        for index in mutable:
            name = self._names[index] = f"o{index}"
            self.lines.append(f"{name} = {self._empty(self.objects[index])}")
        for index in mutable:
            self._fill(self._names[index], self.objects[index])

    def _empty(self, thing: NewThing) -> str:
        match thing:
            case NewList():
                return "[]"
            case NewDict():
                return "{}"
            case NewSet():
                return "set()"
            case NewDeque(_, maxlen):
                return f"{self.constant(deque)}((), {maxlen})"
            case NewCell():
                return f"{self.constant(CellType)}()"
            case NewObject(cls):
                value = "" if thing.value is None else f", {self.text(thing.value)}"
                return f"runtime.allocate({self.constant(resolve(cls))}{value})"
        raise TypeError(f"{type(thing).__name__} is immutable")

    def _fill(self, name: str, thing: NewThing) -> None:
        match thing:
            case NewList(items) | NewDeque(items):
                self.lines.append(f"{name}.extend(({self._items(items)}))")
            case NewDict(pairs):
                self.lines.append(f"{name}.update({{{self._pairs(pairs)}}})")
            case NewSet(items):
                self.lines.append(f"{name}.update(({self._items(items)}))")
            case NewCell(contents):
                if contents is not None:
                    self.lines.append(f"{name}.cell_contents = {self.text(contents)}")
            case NewObject():
                if thing.items is not None:
                    self.lines.append(f"runtime.fill_items({name}, ({self._items(thing.items)}))")
                if thing.pairs is not None:
                    rows = "".join(f"({self.text(key)}, {self.text(value)}), " for key, value in thing.pairs)
                    self.lines.append(f"runtime.fill_pairs({name}, ({rows}))")
                if thing.attributes:
                    rows = ", ".join(f"{key!r}: {self.text(value)}" for key, value in thing.attributes)
                    self.lines.append(f"runtime.instance_dict({name}).update({{{rows}}})")
                for key, value in thing.slots:
                    self.lines.append(f"object.__setattr__({name}, {key!r}, {self.text(value)})")

    # Effects -------------------------------------------------------------------------------------------------------

    def _texts(self, effect: Effect) -> dict[str, object]:
        texts: dict[str, Any] = {}
        for each in fields(effect):
            value = getattr(effect, each.name)
            if each.name in ("target", "value", "key", "function") and value is not None:
                texts[each.name] = self.constant(resolve(value)) if isinstance(effect, Call) else self.text(value)
            elif each.name in ("items", "args"):
                texts[each.name] = f"({self._items(value)})"
            elif each.name == "pairs":
                texts["pairs"] = "(" + "".join(f"({self.text(k)}, {self.text(v)}), " for k, v in value) + ")"
        for name, text in list(texts.items()):
            if not text.isidentifier() and not text.startswith(("values[", "results[")):
                local = f"e{len(self.constants)}_{len(self.lines)}_{name}"
                self.lines.append(f"{local} = {text}")
                texts[name] = local
        return texts

    def _effect(self, effect: Effect, texts: dict[str, object]) -> None:
        match effect:
            case SetAttribute(_, name, _):
                self.lines.append(f"runtime.instance_dict({texts['target']})[{name!r}] = {texts['value']}")
            case DeleteAttribute(_, name):
                self.lines.append(f"del runtime.instance_dict({texts['target']})[{name!r}]")
            case CallSetAttribute(_, name):
                function = "runtime.set_past" if effect.past else "setattr"
                self.lines.append(f"{function}({texts['target']}, {name!r}, {texts['value']})")
            case ReplaceItems(_, keep, _):
                self.lines.append(f"runtime.replace_items({texts['target']}, {keep}, {texts['items']})")
            case SetItem():
                self.lines.append(f"runtime.set_item({texts['target']}, {texts['key']}, {texts['value']})")
            case DeleteItem():
                self.lines.append(f"runtime.delete_item({texts['target']}, {texts['key']})")
            case ReplaceDict():
                self.lines.append(f"runtime.replace_dict({texts['target']}, {texts['pairs']})")
            case ReplaceSet():
                self.lines.append(f"runtime.replace_set({texts['target']}, {texts['items']})")
            case SetCell(_, index, value):
                cell = f"{texts['function']}.__closure__[{index}]"
                self.lines.append(
                    f"del {cell}.cell_contents" if value is None else f"{cell}.cell_contents = {texts['value']}"
                )
            case SetState(name, _):
                self.lines.append(f"{self.constant(_torch.SET_STATE[name])}({texts['value']})")
            case Evaluate():
                pass  # its texts were
            case Call():
                self.lines.append(f"{texts['function']}(*{texts['args']})")
            case AdvanceIterator(_, steps, exhausted):
                self.lines.append(f"runtime.advance({texts['target']}, {steps}, {exhausted})")
            case _:
                raise TypeError(f"not an effect: {effect!r}")


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: not set for classes that C code defines once and for all
_MUTABLE = (NewList, NewDict, NewDeque, NewCell, NewObject)


def _direct_objects(part: object) -> Iterator[int]:
    """Indices of the objects named in `part`, not looking inside them."""
    if isinstance(part, NewValue):
        yield part.index
    elif isinstance(part, tuple):
        for item in part:
            yield from _direct_objects(item)
    elif is_dataclass(part) and not isinstance(part, (type, ConstantValue, ObjectValue, SourceValue, NumberValue)):
        for each in fields(part):
            yield from _direct_objects(getattr(part, each.name))


def _count_uses(objects: Sequence[NewThing]) -> dict[int, int]:
    uses: dict[int, int] = {}
    for thing in objects:
        for index in _direct_objects(thing):
            uses[index] = uses.get(index, 0) + 1
    return uses


def _cyclic(objects: Sequence[NewThing]) -> set[int]:
    """Objects that reach themselves."""
    edges = [tuple(_direct_objects(thing)) for thing in objects]
    found = set()
    for start in range(len(objects)):
        seen: set[int] = set()
        pending = list(edges[start])
        while pending:
            index = pending.pop()
            if index not in seen:
                seen.add(index)
                pending.extend(edges[index])
        if start in seen:
            found.add(start)
    return found


class _HELPERS:
    """What the written lines call. Containers are changed by the builtin type's own methods."""

    instance_dict = staticmethod(instance_dict)

    @staticmethod
    def as_tensor(tensor: torch.Tensor, cls: type, requires_grad: bool) -> torch.Tensor:
        if cls is torch.Tensor:
            return tensor.requires_grad_(requires_grad)
        return _torch.as_subclass(cls, tensor, requires_grad)

    @staticmethod
    def spent(tensor: torch.Tensor) -> torch.Tensor:
        from lampwork.runtime.autograd.freed_history import spent

        return spent(tensor)

    @staticmethod
    def allocate(cls: type, *value: object) -> Any:
        base = next(each for each in cls.__mro__ if not each.__flags__ & _HEAP_TYPE)
        return base.__new__(cls, *value)

    @staticmethod
    def fill_items(target: Any, items: tuple) -> None:
        if isinstance(target, list):
            list.extend(target, items)
        elif isinstance(target, set):
            set.update(target, items)
        elif isinstance(target, BaseException):
            target.args = items
        else:
            deque.extend(target, items)

    @staticmethod
    def fill_pairs(target: dict, pairs: tuple) -> None:
        setter = OrderedDict.__setitem__ if isinstance(target, OrderedDict) else dict.__setitem__
        for key, value in pairs:
            setter(target, key, value)

    @staticmethod
    def make_function(
        code: Any, home: Any, name: str, qualname: str, defaults: Any, kwdefaults: Any, closure: Any, attributes: Any
    ) -> FunctionType:
        home = sys.modules[home] if isinstance(home, str) else home
        made = FunctionType(code, home.__dict__ if isinstance(home, ModuleType) else home, name, defaults, closure)
        made.__kwdefaults__ = kwdefaults
        made.__qualname__ = qualname
        for key, value in attributes:
            setattr(made, key, value)
        return made

    @staticmethod
    def set_past(target: Any, name: str, value: Any) -> None:
        (type if isinstance(target, type) else object).__setattr__(target, name, value)

    @staticmethod
    def replace_items(target: Any, keep: int | None, items: tuple) -> None:
        if isinstance(target, list):
            list.__setitem__(target, slice(list.__len__(target) if keep is None else keep, None), items)
        else:
            while keep is not None and deque.__len__(target) > keep:
                deque.pop(target)
            deque.extend(target, items)

    @staticmethod
    def set_item(target: _torch.Overload, key: object, value: object) -> None:
        kind: Any
        for kind in (OrderedDict, dict, list, deque):
            if isinstance(target, kind):
                kind.__setitem__(target, key, value)
                return
        raise TypeError(f"{type(target).__name__} is no builtin container")

    @staticmethod
    def delete_item(target: _torch.Overload, key: object) -> None:
        kind: Any
        for kind in (OrderedDict, dict, list, deque):
            if isinstance(target, kind):
                kind.__delitem__(target, key)
                return
        raise TypeError(f"{type(target).__name__} is no builtin container")

    @staticmethod
    def replace_dict(target: dict, pairs: tuple) -> None:
        kind = OrderedDict if isinstance(target, OrderedDict) else dict
        kind.clear(target)
        for key, value in pairs:
            kind.__setitem__(target, key, value)

    @staticmethod
    def replace_set(target: set, items: tuple) -> None:
        """What stays keeps its place, on which the order of a set depends."""
        wanted = {each: each for each in items}
        gone = [each for each in set.__iter__(target) if each not in wanted or typed(wanted[each]) != typed(each)]
        set.difference_update(target, gone)
        set.update(target, items)

    advance = staticmethod(advanced)
