"""Steps to what an object, a class or a function has: attributes, its dict, its type, closures."""

from __future__ import annotations

from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from lampwork.ir.source import Attribute, Cell, ClassAttribute, InstanceDict, PythonModule, TypeOf
from lampwork.runtime.guards.interpreter import attribute, class_attribute, instance_dict, read
from lampwork.runtime.guards.memory_words import (
    CELL_CONTENTS,
    Unstable,
    function_offset,
    member_offset,
    name_offset,
    word,
)
from lampwork.runtime.guards.rules import StepRule, step_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots


#: The flag of classes that `class` statements make.
_HEAP_TYPE = 1 << 9
#: `__name__`, `__mro__` and what else the interpreter has of every class: its version changes with it.
_OF_CLASSES = type.__dict__


@step_rule(InstanceDict)
class InstanceDictRule(StepRule[InstanceDict]):
    def read(self, source: InstanceDict, scope: Scope) -> Any:
        return instance_dict(read(source.base, scope))

    def text(self, writer: CheckWriter, source: InstanceDict) -> str:
        value = writer.load(source.base)
        kind = writer.type_of(source.base)
        if isinstance(source.base, PythonModule) or (kind is not None and has_plain_dict(kind)):
            return f"{value}.__dict__"
        return f"reading.instance_dict({value})"

    def snapshot(self, snapshots: VersionSnapshots, source: InstanceDict) -> Any:
        return snapshots.instance_dict(snapshots.value(source.base))


def has_plain_dict(cls: type) -> bool:
    """`x.__dict__` on instances of `cls` reads the C slot and runs nothing of the program."""
    return cls.__getattribute__ is object.__getattribute__ and not any(
        isinstance(base.__dict__.get("__dict__"), property) for base in cls.__mro__
    )


@step_rule(Attribute)
class AttributeRule(StepRule[Attribute]):
    def read(self, source: Attribute, scope: Scope) -> Any:
        return attribute(read(source.base, scope), source.name)

    def text(self, writer: CheckWriter, source: Attribute) -> str:
        value = writer.load(source.base)
        kind = writer.type_of(source.base)
        if kind is FunctionType or kind in (torch.Tensor, torch.nn.Parameter):
            return f"{value}.{source.name}"
        return f"reading.attribute({value}, {source.name!r})"

    def snapshot(self, snapshots: VersionSnapshots, source: Attribute) -> Any:
        value, name = snapshots.value(source.base), source.name
        found = attribute(value, name)
        if type(value) is FunctionType and name in ("__code__", "__defaults__", "__kwdefaults__"):
            address = id(value) + function_offset(name)
            if found is None and word(address) == 0:
                snapshots.words(address, 8)
            else:
                snapshots.slot(address, found)
            return found
        if isinstance(value, type) and type(_OF_CLASSES.get(name)) is GetSetDescriptorType:
            snapshots.class_version(value)
            if name in ("__name__", "__qualname__") and value.__flags__ & _HEAP_TYPE:
                snapshots.slot(id(value) + name_offset(name), found)
            return found
        for cls in type(value).__mro__:
            member = cls.__dict__.get(name)
            if member is not None:
                if type(member) is not MemberDescriptorType:
                    break
                snapshots.type_of(value)
                snapshots.slot(id(value) + member_offset(member), found)
                return found
        raise Unstable(f"attribute {name}")


@step_rule(ClassAttribute)
class ClassAttributeRule(StepRule[ClassAttribute]):
    def read(self, source: ClassAttribute, scope: Scope) -> Any:
        return class_attribute(read(source.base, scope), source.name)

    def text(self, writer: CheckWriter, source: ClassAttribute) -> str:
        return f"reading.class_attribute({writer.load(source.base)}, {source.name!r})"

    def snapshot(self, snapshots: VersionSnapshots, source: ClassAttribute) -> Any:
        cls = snapshots.value(source.base)
        snapshots.class_version(cls)
        return class_attribute(cls, source.name)


@step_rule(TypeOf)
class TypeOfRule(StepRule[TypeOf]):
    def read(self, source: TypeOf, scope: Scope) -> Any:
        return type(read(source.base, scope))

    def text(self, writer: CheckWriter, source: TypeOf) -> str:
        return f"type({writer.load(source.base)})"

    def snapshot(self, snapshots: VersionSnapshots, source: TypeOf) -> Any:
        return snapshots.type_of(snapshots.value(source.base))


@step_rule(Cell)
class CellRule(StepRule[Cell]):
    def read(self, source: Cell, scope: Scope) -> Any:
        return attribute(read(source.base, scope), "__closure__")[source.index].cell_contents

    def text(self, writer: CheckWriter, source: Cell) -> str:
        return f"{writer.load(source.base)}.__closure__[{source.index}].cell_contents"

    def snapshot(self, snapshots: VersionSnapshots, source: Cell) -> Any:
        cell = attribute(snapshots.value(source.base), "__closure__")[source.index]
        contents = cell.cell_contents
        snapshots.slot(id(cell) + CELL_CONTENTS, contents)
        return contents
